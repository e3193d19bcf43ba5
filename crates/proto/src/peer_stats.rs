//! What there is to know of one connection's path, for a game that adapts to it: a snapshot, taken when asked for.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_wire::ChannelId;

use crate::PlayerId;
use crate::congestion::Rate;
use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::meter::{ClockOffset, Meter};
use crate::placement::Placement;
use crate::slab::PeerId;
use crate::time::{Moment, Now};

/// A connection and its path. What is measured or counted `lately` is so since the connection was last idle for five seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerStats {
    /// What this end's clock showed then.
    pub taken_at: Moment,
    /// How far the peer's clock is ahead of this end's: what it showed then is `taken_at` and so much more. `None` before
    /// the first measurement, which comes with the first acks.
    pub clock_offset: Option<ClockOffset>,
    /// The round trip, smoothed (RFC 9002 section 5.3); 100 ms before the first measurement.
    pub round_trip: Duration,
    /// Its mean deviation, the jitter (RFC 9002 section 5.3).
    pub jitter: Duration,
    /// The shortest round trip lately; `None` before the first measurement.
    pub round_trip_min: Option<Duration>,
    /// The round trips that 50, 95 and 99 of a hundred were no longer than lately, rounded up by an eighth at most.
    pub round_trip_percentiles: Option<[Duration; 3]>,
    /// Packets sent lately that ask for an ack; what becomes of others nobody hears.
    pub packets_sent: u64,
    /// Packets found lost lately.
    pub packets_lost: u64,
    /// Packets that came lately.
    pub packets_received: u64,
    /// Packets of the peer that did not come lately, or not yet, as far as numbers tell: within one in a hundred.
    pub packets_missing: u64,
    /// Bytes of UDP payload sent lately.
    pub bytes_sent: u64,
    /// Bytes of UDP payload that came lately, with the shortest header there may be.
    pub bytes_received: u64,
    /// Messages put into packets lately, resends included.
    pub messages_sent: u64,
    /// Of those, resends of reliable ones.
    pub messages_resent: u64,
    /// Bytes that may be under way without an ack, and those that are.
    pub window_bytes: usize,
    /// Bytes under way.
    pub in_flight_bytes: usize,
    /// What the path was seen to deliver lately, in bytes per second: at least so much, for who sends less than it carries.
    pub bandwidth_estimate: Option<u64>,
    /// Bytes of the largest datagram that the path carries.
    pub datagram_max_bytes: u16,
    /// Bytes of messages that wait or were not acknowledged, charges included.
    pub send_memory_bytes: usize,
    /// How long the message that goes next has waited, of each channel on which some wait.
    pub queue_times: Vec<(ChannelId, Duration)>,
}

/// The part of [`PeerStats`] that is told by looking alone, for who looks at many connections: a few fields of each, and no
/// memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerSummary {
    /// Where the peer is.
    pub address: SocketAddr,
    /// Whose token let it in; `None` in open access.
    pub player: Option<PlayerId>,
    /// [`PeerStats::round_trip`].
    pub round_trip: Duration,
    /// [`PeerStats::packets_sent`].
    pub packets_sent: u64,
    /// [`PeerStats::packets_lost`].
    pub packets_lost: u64,
    /// [`PeerStats::packets_received`].
    pub packets_received: u64,
    /// [`PeerStats::packets_missing`].
    pub packets_missing: u64,
    /// [`PeerStats::bytes_sent`].
    pub bytes_sent: u64,
    /// [`PeerStats::bytes_received`].
    pub bytes_received: u64,
    /// [`PeerStats::send_memory_bytes`].
    pub send_memory_bytes: usize,
}

impl<P: Placement> Endpoint<P> {
    /// What there is to see of a connection at a glance; `None` for a stale id and before the handshake is over.
    #[must_use]
    pub fn peer_summary(&self, peer: PeerId) -> Option<PeerSummary> {
        self.connection(peer)?.summary()
    }

    /// What there is to know of a connection now; `None` for a stale id and before the handshake is over.
    pub fn peer_stats(&mut self, now: Now, peer: PeerId) -> Option<PeerStats> {
        let now = self.advance(now);
        self.connection(peer)?.stats(now)
    }
}

impl Connection {
    fn summary(&self) -> Option<PeerSummary> {
        self.session.as_ref()?;
        let meter = self.activity.as_ref().map(|activity| &activity.meter);
        let counts = meter.map(Meter::counts).unwrap_or_default();
        let (packets_received, packets_missing) = meter.map(Meter::received).unwrap_or_default();
        Some(PeerSummary {
            address: self.path.route.peer,
            player: self.grant.as_ref().map(|grant| grant.player),
            round_trip: self.loss.round_trip().smoothed(),
            packets_sent: counts.packets_sent,
            packets_lost: counts.packets_lost,
            packets_received,
            packets_missing,
            bytes_sent: counts.bytes_sent,
            bytes_received: counts.bytes_received,
            send_memory_bytes: self.sending.used_bytes(),
        })
    }

    fn stats(&self, now: Moment) -> Option<PeerStats> {
        let summary = self.summary()?;
        let (meter, rate) = self.activity.as_ref().map(|activity| (&activity.meter, &activity.rate)).unzip();
        let counts = meter.map(Meter::counts).unwrap_or_default();
        let percentile = |percent| meter.and_then(|meter| meter.percentile(percent));
        let percentiles = [percentile(50), percentile(95), percentile(99)];
        Some(PeerStats {
            taken_at: now,
            clock_offset: meter.and_then(|meter| meter.clock_offset(now)),
            round_trip: summary.round_trip,
            jitter: self.loss.round_trip().variation(),
            round_trip_min: meter.and_then(Meter::least_round_trip),
            round_trip_percentiles: if let [Some(p50), Some(p95), Some(p99)] = percentiles {
                Some([p50, p95, p99])
            } else {
                None
            },
            packets_sent: summary.packets_sent,
            packets_lost: summary.packets_lost,
            packets_received: summary.packets_received,
            packets_missing: summary.packets_missing,
            bytes_sent: summary.bytes_sent,
            bytes_received: summary.bytes_received,
            messages_sent: counts.messages_sent,
            messages_resent: counts.messages_resent,
            window_bytes: self.window_bytes(),
            in_flight_bytes: self.loss.in_flight_bytes(),
            bandwidth_estimate: rate.map(Rate::estimate_bytes_per_second).filter(|rate| *rate > 0),
            datagram_max_bytes: self.path.datagram_max_bytes,
            send_memory_bytes: summary.send_memory_bytes,
            queue_times: self.sending.queue_times(now),
        })
    }
}
