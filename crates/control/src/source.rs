//! The program behind a control socket: a server, or another program that implements [`Source`].

use std::collections::BTreeMap;
use std::time::Duration;

use drumfire::config::CLOSE_TEXT_MAX_BYTES;
use drumfire::control::{PeerSample, SurveyOrder, WorkerSample};
use drumfire::stats::DropReason;
use drumfire::{Control, Error, PeerId};

use super::message::{Command, PeerRow, Response, SNAPSHOT_PEERS_MAX, Snapshot, WorkerRow};

/// The longest wait for the workers. A snapshot leaves out the connections of workers that do not respond in time.
const WORKER_TIMEOUT: Duration = Duration::from_millis(500);

/// The application code of connections that an operator closes.
const OPERATOR_CODE: u32 = 0;

/// The text that a banned peer receives.
const BAN_TEXT: &str = "banned by the operator";

/// The error of a command about a connection, in a program without connections.
const NO_CONNECTIONS: &str = "this program has no connections";

/// The program that a control socket shows. The thread of the socket calls one method at a time, so a method may wait briefly.
///
/// The returned texts are for people: one line that says what was done, or why not. A program without connections implements
/// [`snapshot`](Self::snapshot) alone, and refuses the commands about connections.
pub trait Source: Send + 'static {
    /// Returns the state of the program. A control socket replaces the time by its own.
    fn snapshot(&mut self, order: SurveyOrder, limit: usize) -> Snapshot;

    /// Closes the connection of a peer.
    ///
    /// # Errors
    ///
    /// The reason in one line.
    fn close(&mut self, _peer: &str, _text: &str) -> Result<String, String> {
        Err(NO_CONNECTIONS.to_owned())
    }

    /// Bans a peer for this duration, and closes its connection.
    ///
    /// # Errors
    ///
    /// The reason in one line.
    fn ban(&mut self, _peer: &str, _duration: Duration) -> Result<String, String> {
        Err(NO_CONNECTIONS.to_owned())
    }

    /// Returns the flight record of a connection as text.
    ///
    /// # Errors
    ///
    /// The reason in one line.
    fn trace(&mut self, _peer: &str) -> Result<String, String> {
        Err(NO_CONNECTIONS.to_owned())
    }

    /// Calls the method for a request, and returns the response.
    fn respond(&mut self, command: Command) -> Response {
        let done = |text| Response::Done { text };
        let response = match command {
            Command::Snapshot { order, limit } => Ok(Response::Snapshot(self.snapshot(order, limit))),
            Command::Close { peer, text } => self.close(&peer, &text).map(done),
            Command::Ban { peer, seconds } => self.ban(&peer, Duration::from_secs(seconds)).map(done),
            Command::Trace { peer } => self.trace(&peer).map(|text| Response::Record { text }),
        };
        response.unwrap_or_else(|text| Response::Error { text })
    }
}

impl Source for Control {
    fn snapshot(&mut self, order: SurveyOrder, limit: usize) -> Snapshot {
        let mut pending = self.survey(order, limit.min(SNAPSHOT_PEERS_MAX));
        let survey = pending.wait(WORKER_TIMEOUT).unwrap_or_else(|| pending.take_partial());
        Snapshot {
            program: "server".to_owned(),
            taken_at_nanos: 0,
            workers: survey.workers.iter().map(worker).collect(),
            peers: survey.peers.iter().map(peer).collect(),
            peers_examined: wide(survey.examined_count),
            has_peers: true,
        }
    }

    fn close(&mut self, peer: &str, text: &str) -> Result<String, String> {
        let id = named(peer)?;
        if text.len() > CLOSE_TEXT_MAX_BYTES {
            return Err(format!("the text has more than {CLOSE_TEXT_MAX_BYTES} bytes"));
        }
        if id.worker() >= self.stats().workers.len() {
            return Err(Error::UnknownPeer.to_string());
        }
        Self::close(self, id, OPERATOR_CODE, text);
        Ok(format!("closed {peer}"))
    }

    fn ban(&mut self, peer: &str, duration: Duration) -> Result<String, String> {
        let id = named(peer)?;
        let ban = self.close_and_ban(id, OPERATOR_CODE, BAN_TEXT, duration).wait(WORKER_TIMEOUT);
        let ban = ban
            .ok_or("the worker of the peer does not answer in time")?
            .map_err(|error| error.to_string())?;
        Ok(format!("banned {ban} for {} s", duration.as_secs()))
    }

    fn trace(&mut self, peer: &str) -> Result<String, String> {
        let record = self.flight_record(named(peer)?).wait(WORKER_TIMEOUT).flatten();
        let record = record.ok_or_else(|| {
            format!(
                "there is no flight record of {peer}: it is gone or idle, or the server's flight_recorder is off"
            )
        })?;
        Ok(record.to_string())
    }
}

fn named(peer: &str) -> Result<PeerId, String> {
    peer.parse().map_err(|error| format!("{error}"))
}

fn worker(sample: &WorkerSample) -> WorkerRow {
    let stats = &sample.stats;
    let protocol = DropReason::ALL.iter().map(|reason| (reason.name(), stats.protocol.dropped(*reason)));
    let socket = drumfire_socket::DropReason::ALL.iter();
    let socket = socket.map(|reason| (reason.name(), stats.received.dropped(*reason)));
    let mut dropped = BTreeMap::new();
    for (name, count) in protocol.chain(socket).filter(|(_, count)| *count > 0) {
        *dropped.entry(name.to_owned()).or_default() += count;
    }
    WorkerRow {
        received: stats.received.datagrams,
        sent: stats.sent.datagrams,
        busy_percent: sample.busy_percent.map(u64::from),
        connections: wide(stats.connections),
        waiting: wide(sample.events_waiting),
        kernel_dropped: Some(stats.kernel_dropped),
        dropped,
    }
}

fn peer(sample: &PeerSample) -> PeerRow {
    PeerRow {
        peer: sample.peer.to_string(),
        address: sample.address.to_string(),
        player: sample.player.map(|player| player.0.to_string()),
        round_trip_micros: u64::try_from(sample.round_trip.as_micros()).unwrap_or(u64::MAX),
        loss_per_million: sample.loss_per_million(),
        queued_bytes: wide(sample.queued_bytes),
        sent_per_second: sample.sent_per_second,
        received_per_second: sample.received_per_second,
    }
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
