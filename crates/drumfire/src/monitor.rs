//! What an operator sees of a running server and may do to it, from any thread: [`Monitor`].
//!
//! It asks the workers by message and waits where the caller waits. It keeps nothing, draws nothing, and opens no socket; see the
//! module `control` for that.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use drumfire_proto::{CloseError, FlightRecord, PlayerId};

use crate::admission::{Ban, Door};
use crate::clock;
use crate::front::close_command;
use crate::link::{Command, Link, REPORTS_MAX};
use crate::peer::PeerId;
use crate::server::CloseAndBanError;
use crate::stats::WorkerStats;

/// Connections that one [survey](Monitor::survey) tells of, at most.
pub const SURVEY_PEERS_MAX: usize = 1_024;

/// A server as its operator sees it: clones are the same view, for any thread.
///
/// Whatever takes time is done by the workers between two passes: a survey looks at 128 connections per pass, so that traffic
/// waits some microseconds for it, also where there are 100,000. A server without threads answers while it is polled.
///
/// ```
/// # use std::time::Duration;
/// # use drumfire::*;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
/// # let mut server = Server::bind(config.workers(Workers::Shards { sockets: 2, threads: 2 }))?;
/// # let mut client = Client::connect_dev(server.local_addr())?;
/// # loop {
/// #     client.wait(Duration::from_millis(1));
/// #     client.poll().count();
/// #     if server.poll().any(|event| matches!(event, Event::Connected { .. })) { break }
/// # }
/// let monitor = server.monitor();
/// let survey = monitor.survey(SurveyOrder::RoundTrip, 10).wait(Duration::from_secs(1));
/// for peer in &survey.peers {
///     println!("{} from {}: {:?} there and back", peer.peer, peer.address, peer.round_trip);
/// }
/// # assert_eq!(survey.peers.len(), 1);
/// let worst = survey.peers[0].peer;
/// monitor.close(worst, 1, "until tomorrow")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Monitor {
    links: Arc<[Arc<Link>]>,
    door: Arc<Door>,
}

/// Which connections a survey puts first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "control",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum SurveyOrder {
    /// Those with the longest round trip.
    #[default]
    RoundTrip,
    /// Those that lose the most, whichever way is worse.
    Loss,
    /// Those for which the most bytes wait.
    Queue,
    /// Those with the most bytes per second, both ways together.
    Rate,
}

/// One connection, as a survey found it. What is counted is counted since the connection was last idle for five seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerSample {
    /// Whose it is.
    pub peer: PeerId,
    /// Where the peer is now.
    pub address: SocketAddr,
    /// Whose token let it in; `None` in open access.
    pub player: Option<PlayerId>,
    /// The round trip, smoothed; 100 ms before the first measurement.
    pub round_trip: Duration,
    /// Packets sent that ask for an ack.
    pub packets_sent: u64,
    /// Packets of those that were found lost.
    pub packets_lost: u64,
    /// Packets that came.
    pub packets_received: u64,
    /// Packets of the peer that did not come, or not yet.
    pub packets_missing: u64,
    /// Bytes of UDP payload sent.
    pub bytes_sent: u64,
    /// Bytes of UDP payload that came.
    pub bytes_received: u64,
    /// Bytes of messages that wait or were not acknowledged, charges included.
    pub queued_bytes: usize,
    /// Bytes sent per second since a survey before; `None` in the first one, and when that was over ten seconds ago.
    pub sent_per_second: Option<u64>,
    /// Bytes that came per second, likewise.
    pub received_per_second: Option<u64>,
}

impl PeerSample {
    /// Lost packets in a million, of the way that loses more.
    #[must_use]
    pub fn loss_per_million(&self) -> u64 {
        let share = |lost: u64, all: u64| {
            let share = u128::from(lost).saturating_mul(1_000_000).checked_div(u128::from(all)).unwrap_or(0);
            u64::try_from(share).unwrap_or(u64::MAX)
        };
        let came = self.packets_received.saturating_add(self.packets_missing);
        share(self.packets_lost, self.packets_sent).max(share(self.packets_missing, came))
    }

    /// What it is sorted by.
    pub(crate) fn weight(&self, order: SurveyOrder) -> u64 {
        match order {
            SurveyOrder::RoundTrip => u64::try_from(self.round_trip.as_nanos()).unwrap_or(u64::MAX),
            SurveyOrder::Loss => self.loss_per_million(),
            SurveyOrder::Queue => u64::try_from(self.queued_bytes).unwrap_or(u64::MAX),
            SurveyOrder::Rate => {
                let (sent, received) = (self.sent_per_second, self.received_per_second);
                sent.unwrap_or(0).saturating_add(received.unwrap_or(0))
            }
        }
    }
}

/// What a survey found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Survey {
    /// By worker: what it counted, and how it is.
    pub workers: Vec<WorkerSample>,
    /// The first connections in the order that was asked for, of all workers that answered.
    pub peers: Vec<PeerSample>,
    /// Connections that were looked at.
    pub seen_count: usize,
}

/// One worker, as a survey found it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WorkerSample {
    /// What it counted.
    pub stats: WorkerStats,
    /// The share of the last second that it spent on traffic, in percent of one core; `None` where it did not answer in time.
    pub busy_percent: Option<u8>,
    /// Events that wait for the application to take them.
    pub events_waiting: usize,
}

/// A survey under way: the workers answer while nobody waits too.
#[derive(Debug)]
pub struct PendingSurvey {
    links: Arc<[Arc<Link>]>,
    answers: Receiver<WorkerAnswer>,
    order: SurveyOrder,
    most: usize,
    taken: Vec<WorkerAnswer>,
}

/// A flight record that was asked for.
#[derive(Debug)]
pub struct PendingRecord(Receiver<Option<Box<FlightRecord>>>);

/// What a worker found among its own connections.
#[derive(Debug)]
pub(crate) struct WorkerAnswer {
    pub(crate) worker: usize,
    pub(crate) busy_percent: u8,
    pub(crate) seen_count: usize,
    pub(crate) peers: Vec<PeerSample>,
}

/// What a worker is asked beside what the application asks; it answers to who asked and to nobody else.
#[derive(Debug)]
pub(crate) enum Question {
    Survey(SurveyQuestion),
    Record { peer: PeerId, answer: SyncSender<Option<Box<FlightRecord>>> },
    Ban(BanQuestion),
}

#[derive(Debug)]
pub(crate) struct SurveyQuestion {
    pub(crate) order: SurveyOrder,
    pub(crate) most: usize,
    pub(crate) answer: SyncSender<WorkerAnswer>,
}

/// A worker knows where its peer is, who it is, and what time it is.
#[derive(Debug)]
pub(crate) struct BanQuestion {
    pub(crate) peer: PeerId,
    pub(crate) duration: Duration,
    pub(crate) door: Arc<Door>,
    pub(crate) answer: SyncSender<Result<Ban, CloseAndBanError>>,
}

impl Monitor {
    pub(crate) const fn new(links: Arc<[Arc<Link>]>, door: Arc<Door>) -> Self {
        Self { links, door }
    }

    /// Asks all workers for their first `most` connections in this order, [`SURVEY_PEERS_MAX`] at most. Surveys less than half a
    /// second apart tell the same rates.
    #[must_use]
    pub fn survey(&self, order: SurveyOrder, most: usize) -> PendingSurvey {
        let most = most.min(SURVEY_PEERS_MAX);
        let (answer, answers) = sync_channel(self.links.len());
        for link in self.links.iter() {
            let survey = SurveyQuestion { order, most, answer: answer.clone() };
            link.command_at_once(Command::Ask(Box::new(Question::Survey(survey))));
        }
        PendingSurvey { links: Arc::clone(&self.links), answers, order, most, taken: Vec::new() }
    }

    /// Closes a peer's connection, with a code of the application's own and a line for the peer's log. The application hears of
    /// it as [`Event::Disconnected`](crate::Event::Disconnected). A peer that is gone stays gone.
    ///
    /// # Errors
    ///
    /// [`CloseError`]: the text is longer than [`CLOSE_TEXT_MAX_BYTES`](crate::CLOSE_TEXT_MAX_BYTES), or the peer is another
    /// server's.
    pub fn close(&self, peer: PeerId, code: u32, text: &str) -> Result<(), CloseError> {
        let command = close_command(peer, code, text)?;
        self.link(peer).ok_or(CloseError::UnknownPeer)?.command_at_once(command);
        Ok(())
    }

    /// Bans a peer for so long, by its player or, in open access, by the address where it is now, and closes its connection.
    /// Waits for its worker, at most for `patience`. Answers the ban.
    ///
    /// # Errors
    ///
    /// [`CloseAndBanError`]: nothing has happened then. A worker that does not answer in time counts as one whose peer is gone,
    /// though it may ban it later.
    pub fn close_and_ban(
        &self,
        peer: PeerId,
        code: u32,
        text: &str,
        duration: Duration,
        patience: Duration,
    ) -> Result<Ban, CloseAndBanError> {
        let gone = CloseAndBanError::Close(CloseError::UnknownPeer);
        let close = close_command(peer, code, text).map_err(CloseAndBanError::Close)?;
        let link = self.link(peer).ok_or(gone)?;
        let (answer, answers) = sync_channel(1);
        let ban = BanQuestion { peer, duration, door: Arc::clone(&self.door), answer };
        link.command_at_once(Command::Ask(Box::new(Question::Ban(ban))));
        let ban = answers.recv_timeout(patience).unwrap_or(Err(gone))?;
        link.command_at_once(close);
        Ok(ban)
    }

    /// Asks what happened last to a peer's connection.
    #[must_use]
    pub fn flight_record(&self, peer: PeerId) -> PendingRecord {
        let (answer, answers) = sync_channel(1);
        if let Some(link) = self.link(peer) {
            link.command_at_once(Command::Ask(Box::new(Question::Record { peer, answer })));
        }
        PendingRecord(answers)
    }

    fn link(&self, peer: PeerId) -> Option<&Arc<Link>> {
        self.links.get(peer.worker())
    }
}

impl PendingSurvey {
    /// Whether all workers have answered, so that there is nothing to wait for.
    pub fn is_complete(&mut self) -> bool {
        self.taken.extend(self.answers.try_iter());
        self.taken.len() >= self.links.len()
    }

    /// Waits until all workers have answered, at most for `timeout`; those that did not are left out.
    #[must_use]
    pub fn wait(mut self, timeout: Duration) -> Survey {
        let start = clock::instant();
        while !self.is_complete() {
            match self.answers.recv_timeout(left(start, timeout)) {
                Ok(answer) => self.taken.push(answer),
                Err(_) => break,
            }
        }
        self.into_survey()
    }

    fn into_survey(self) -> Survey {
        let mut survey = Survey { workers: Vec::new(), peers: Vec::new(), seen_count: 0 };
        for link in self.links.iter() {
            let events_waiting = REPORTS_MAX.saturating_sub(link.room().0);
            survey.workers.push(WorkerSample { stats: link.stats(), busy_percent: None, events_waiting });
        }
        for answer in self.taken {
            if let Some(worker) = survey.workers.get_mut(answer.worker) {
                worker.busy_percent = Some(answer.busy_percent);
            }
            survey.seen_count = survey.seen_count.saturating_add(answer.seen_count);
            survey.peers.extend(answer.peers);
        }
        put_in_order(&mut survey.peers, self.order);
        survey.peers.truncate(self.most);
        survey
    }
}

impl PendingRecord {
    /// Waits for it, at most for `timeout`; `None` for a peer that is gone or was silent for five seconds, without
    /// [`ServerConfig::flight_recorder`](crate::ServerConfig::flight_recorder), and when the time is over.
    #[must_use]
    pub fn wait(self, timeout: Duration) -> Option<Box<FlightRecord>> {
        self.0.recv_timeout(timeout).ok().flatten()
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").field("workers", &self.links.len()).finish_non_exhaustive()
    }
}

/// Most first; of two that are even, the one with the lower name.
pub(crate) fn put_in_order(peers: &mut [PeerSample], order: SurveyOrder) {
    peers.sort_unstable_by_key(|peer| (std::cmp::Reverse(peer.weight(order)), peer.peer));
}

fn left(start: Instant, timeout: Duration) -> Duration {
    timeout.saturating_sub(clock::instant().saturating_duration_since(start))
}
