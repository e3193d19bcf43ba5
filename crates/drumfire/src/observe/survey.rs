//! The result of a survey of the connections of a server.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_proto::{PeerId, PlayerId};

use super::stats::WorkerStats;
use crate::base::sync::Pending;

/// The largest number of connections in a survey.
pub(crate) const SURVEY_PEERS_MAX: usize = 1_024;

/// The order of the connections in a survey.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SurveyOrder {
    /// The longest round trip first.
    #[default]
    RoundTrip,
    /// The highest packet loss first, in the worse direction.
    Loss,
    /// The most queued bytes first.
    Queue,
    /// The most bytes per second first, in both directions together.
    Rate,
}

impl SurveyOrder {
    /// All orders.
    pub const ALL: [Self; 4] = [Self::RoundTrip, Self::Loss, Self::Queue, Self::Rate];

    /// Returns the name of the order in snake case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RoundTrip => "round_trip",
            Self::Loss => "loss",
            Self::Queue => "queue",
            Self::Rate => "rate",
        }
    }
}

/// One connection, as a survey found it. Its counters start again after the connection was idle for five seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerSample {
    /// The id of the peer.
    pub peer: PeerId,
    /// The current address of the peer.
    pub address: SocketAddr,
    /// The player of the token, or `None` in open access.
    pub player: Option<PlayerId>,
    /// The smoothed round-trip time. It is 100 ms before the first measurement.
    pub round_trip: Duration,
    /// The number of ack-eliciting packets sent.
    pub packets_sent: u64,
    /// The number of these packets that were declared lost.
    pub packets_lost: u64,
    /// The number of packets received.
    pub packets_received: u64,
    /// The number of packets of the peer that have not arrived.
    pub packets_missing: u64,
    /// The bytes of UDP payload sent.
    pub bytes_sent: u64,
    /// The bytes of UDP payload received.
    pub bytes_received: u64,
    /// The bytes of messages that wait or are not acknowledged, with the charge of each message.
    pub queued_bytes: usize,
    /// The bytes sent per second since the last survey, or `None` if there was none in the last ten seconds.
    pub sent_per_second: Option<u64>,
    /// The bytes received per second since the last survey, or `None` if there was none in the last ten seconds.
    pub received_per_second: Option<u64>,
}

impl PeerSample {
    /// Returns the lost packets per million, of the direction that loses more.
    #[must_use]
    pub fn loss_per_million(&self) -> u64 {
        let share = |lost: u64, all: u64| {
            let share = u128::from(lost).saturating_mul(1_000_000).checked_div(u128::from(all)).unwrap_or(0);
            u64::try_from(share).unwrap_or(u64::MAX)
        };
        let expected = self.packets_received.saturating_add(self.packets_missing);
        share(self.packets_lost, self.packets_sent).max(share(self.packets_missing, expected))
    }

    /// Returns the value by which a survey in this order sorts.
    pub(crate) fn sort_key(&self, order: SurveyOrder) -> u64 {
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

/// The result of a survey.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Survey {
    /// The state of each worker, by index.
    pub workers: Vec<WorkerSample>,
    /// The first connections in the requested order, of all workers that answered.
    pub peers: Vec<PeerSample>,
    /// The number of connections that the workers examined.
    pub examined_count: usize,
}

impl Survey {
    /// Adds the answer of a worker: its index and load, the number of connections it examined, and the first of them.
    pub(crate) fn add(
        &mut self,
        (worker, busy_percent): (usize, u8),
        examined_count: usize,
        peers: Vec<PeerSample>,
        (order, limit): (SurveyOrder, usize),
    ) {
        if let Some(worker) = self.workers.get_mut(worker) {
            worker.busy_percent = Some(busy_percent);
        }
        self.examined_count = self.examined_count.saturating_add(examined_count);
        self.peers.extend(peers);
        sort_peers(&mut self.peers, order);
        self.peers.truncate(limit);
    }
}

impl Pending<Survey> {
    /// Returns the connections of the workers that have answered so far.
    #[must_use]
    pub fn take_partial(mut self) -> Survey {
        self.take_incomplete().unwrap_or_default()
    }
}

/// One worker, as a survey found it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WorkerSample {
    /// The counters of the worker.
    pub stats: WorkerStats,
    /// The share of the last second that it spent on traffic, in percent of one core, or `None` if it did not answer in time.
    pub busy_percent: Option<u8>,
    /// The number of events that the application has not taken yet.
    pub events_waiting: usize,
}

/// Sorts the connections, highest value first. Connections with the same value are sorted by id.
pub(crate) fn sort_peers(peers: &mut [PeerSample], order: SurveyOrder) {
    peers.sort_unstable_by_key(|peer| (std::cmp::Reverse(peer.sort_key(order)), peer.peer));
}
