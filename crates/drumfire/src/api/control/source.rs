//! What a control socket tells of and acts on: a server by its [`Monitor`], or whatever else keeps the contract.

use std::collections::BTreeMap;
use std::time::Duration;

use drumfire_proto::{DropReason, PeerId};

use super::message::{PeerRow, SNAPSHOT_PEERS_MAX, Snapshot, WorkerRow};
use crate::admission::bans::Ban;
use crate::engine::control::Monitor;
use crate::observe::survey::{PeerSample, SurveyOrder, WorkerSample};

/// How long workers may take to answer; of those that do not, less is told.
const PATIENCE: Duration = Duration::from_millis(500);

/// The application code of a close that an operator asked for.
const OPERATOR_CODE: u32 = 0;

/// Who is banned learns no more than that the server did it.
const BAN_TEXT: &str = "banned by the operator";

/// What a control socket is in front of. Its thread calls one of these at a time, so that each may wait a little.
///
/// The texts are for people: one line, what was done or why not.
pub trait Source: Send + 'static {
    /// How everything is; when it was, is filled in behind it.
    fn snapshot(&mut self, order: SurveyOrder, most: usize) -> Snapshot;

    /// Closes a connection.
    ///
    /// # Errors
    ///
    /// Why not, in one line.
    fn close(&mut self, peer: &str, text: &str) -> Result<String, String>;

    /// Bans a peer for so long, and closes its connection.
    ///
    /// # Errors
    ///
    /// Why not, in one line.
    fn ban(&mut self, peer: &str, duration: Duration) -> Result<String, String>;

    /// What happened last to a connection, in lines.
    ///
    /// # Errors
    ///
    /// Why it cannot be told, in one line.
    fn trace(&mut self, peer: &str) -> Result<String, String>;
}

impl Source for Monitor {
    fn snapshot(&mut self, order: SurveyOrder, most: usize) -> Snapshot {
        let survey = self.survey(order, most.min(SNAPSHOT_PEERS_MAX)).wait(PATIENCE);
        Snapshot {
            what: "server".to_owned(),
            taken_at_nanos: 0,
            workers: survey.workers.iter().map(worker).collect(),
            peers: survey.peers.iter().map(peer).collect(),
            peers_seen: wide(survey.seen_count),
            has_peers: true,
        }
    }

    fn close(&mut self, peer: &str, text: &str) -> Result<String, String> {
        let id = named(peer)?;
        Self::close(self, id, OPERATOR_CODE, text).map_err(|error| error.to_string())?;
        Ok(format!("closed {peer}"))
    }

    fn ban(&mut self, peer: &str, duration: Duration) -> Result<String, String> {
        let id = named(peer)?;
        let ban = self.close_and_ban(id, OPERATOR_CODE, BAN_TEXT, duration, PATIENCE);
        let ban = ban.map_err(|error| error.to_string())?;
        let target = match ban {
            Ban::Player(player) => format!("player {}", player.0),
            Ban::Address(address) => address.to_string(),
            Ban::Prefix { address, bits } => format!("{address}/{bits}"),
        };
        Ok(format!("banned {target} for {} s", duration.as_secs()))
    }

    fn trace(&mut self, peer: &str) -> Result<String, String> {
        let record = self.flight_record(named(peer)?).wait(PATIENCE);
        let record = record.ok_or_else(|| {
            format!(
                "nothing is recorded of {peer}: it is gone or idle, or the server's flight_recorder is off"
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
