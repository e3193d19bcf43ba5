//! Statistics of one connection's path, for a game that adapts to it: a snapshot, taken on request.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_wire::ChannelId;

use crate::PlayerId;
use crate::congestion::Rate;
use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::meter::{ClockOffset, Meter};
use crate::peer_id::PeerId;
use crate::placement::Placement;
use crate::time::{Moment, Now};

/// The state of a connection and its path. "Recent" values cover the time since the connection was last idle for five
/// seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerStats {
    /// This end's clock at the time of the snapshot.
    pub taken_at: Moment,
    /// The offset of the peer's clock, which showed `taken_at` plus this offset. `None` before the first measurement,
    /// which the first acks bring.
    pub clock_offset: Option<ClockOffset>,
    /// The smoothed round trip (RFC 9002 section 5.3); 100 ms before the first measurement.
    pub round_trip: Duration,
    /// The mean deviation of the round trip, also called jitter (RFC 9002 section 5.3).
    pub jitter: Duration,
    /// The shortest recent round trip; `None` before the first measurement.
    pub round_trip_min: Option<Duration>,
    /// The recent 50th, 95th, and 99th percentiles of the round trip, rounded up by at most an eighth.
    pub round_trip_percentiles: Option<[Duration; 3]>,
    /// The number of recently sent ack-eliciting packets. The fate of other packets is unknown.
    pub packets_sent: u64,
    /// The number of recent packets that were declared lost.
    pub packets_lost: u64,
    /// The number of recently received packets.
    pub packets_received: u64,
    /// The number of recent packets of the peer that have not arrived, derived from packet numbers: accurate to one percent.
    pub packets_missing: u64,
    /// The number of recently sent bytes of UDP payload.
    pub bytes_sent: u64,
    /// The number of recently received bytes of UDP payload, computed with the shortest possible header.
    pub bytes_received: u64,
    /// The number of messages that were recently put into packets, including retransmissions.
    pub messages_sent: u64,
    /// The number of retransmissions of reliable messages among `messages_sent`.
    pub messages_resent: u64,
    /// The number of bytes that may be in flight.
    pub window_bytes: usize,
    /// The number of bytes in flight.
    pub in_flight_bytes: usize,
    /// The rate that the path recently delivered, in bytes per second. A lower bound for an application that sends
    /// less than the path carries.
    pub bandwidth_estimate: Option<u64>,
    /// The largest datagram that the path carries, in bytes.
    pub datagram_max_bytes: u16,
    /// The bytes of messages that wait or are not acknowledged, including charges.
    pub send_memory_bytes: usize,
    /// The time that the next message of each channel with waiting messages has waited.
    pub queue_times: Vec<(ChannelId, Duration)>,
}

/// The part of [`PeerStats`] that needs no computation and no memory, for callers that read many connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerSummary {
    /// The address of the peer.
    pub address: SocketAddr,
    /// The player whose token was accepted; `None` in open access.
    pub player: Option<PlayerId>,
    /// See [`PeerStats::round_trip`].
    pub round_trip: Duration,
    /// See [`PeerStats::packets_sent`].
    pub packets_sent: u64,
    /// See [`PeerStats::packets_lost`].
    pub packets_lost: u64,
    /// See [`PeerStats::packets_received`].
    pub packets_received: u64,
    /// See [`PeerStats::packets_missing`].
    pub packets_missing: u64,
    /// See [`PeerStats::bytes_sent`].
    pub bytes_sent: u64,
    /// See [`PeerStats::bytes_received`].
    pub bytes_received: u64,
    /// See [`PeerStats::send_memory_bytes`].
    pub send_memory_bytes: usize,
}

impl<P: Placement> Endpoint<P> {
    /// Returns the summary of a connection; `None` for a stale id and before the handshake is complete.
    #[must_use]
    pub fn peer_summary(&self, peer: PeerId) -> Option<PeerSummary> {
        self.connection(peer)?.summary()
    }

    /// Returns the statistics of a connection at present; `None` for a stale id and before the handshake is complete.
    pub fn peer_stats(&mut self, now: Now, peer: PeerId) -> Option<PeerStats> {
        let now = self.advance(now);
        self.connection(peer)?.stats(now)
    }
}

impl Connection {
    fn summary(&self) -> Option<PeerSummary> {
        self.session.as_ref()?;
        let meter = self.active.as_ref().map(|active| &active.meter);
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
        let (meter, rate) = self.active.as_ref().map(|active| (&active.meter, &active.rate)).unzip();
        let counts = meter.map(Meter::counts).unwrap_or_default();
        let percentile = |percent| meter.and_then(|meter| meter.percentile(percent));
        let percentiles = [percentile(50), percentile(95), percentile(99)];
        Some(PeerStats {
            taken_at: now,
            clock_offset: meter.and_then(|meter| meter.clock_offset(now)),
            round_trip: summary.round_trip,
            jitter: self.loss.round_trip().variation(),
            round_trip_min: meter.and_then(Meter::min_round_trip),
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
