//! Congestion control: how much a connection may have in flight, and how fast it may send. Each busy connection has
//! one [`Rate`].
//!
//! A [`Controller`] turns acks and losses into a window, the pacer spreads the window over time, and the bandwidth
//! estimate measures what the path delivers. This module keeps no list of packets, detects no losses (see `loss`),
//! sets no timer, and uses no ECN. Its state for a path is a few numbers, which are dropped when the connection
//! becomes idle.

mod bandwidth;
mod cubic;
mod delay;
mod fixed;
mod flight_limit;
mod pacer;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::time::Duration;

use bandwidth::Bandwidth;
use cubic::Cubic;
use delay::Delay;
use fixed::FixedRate;
use flight_limit::FlightLimit;
use pacer::Pacer;

use crate::convert::nanos;
use crate::limits::{ACK_MERGE_INTERVAL, ROUND_TRIP_INITIAL};
use crate::time::{Micros, Moment};

/// The algorithm that decides how fast a connection may send.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case", deny_unknown_fields))]
#[non_exhaustive]
pub enum Congestion {
    /// Keeps queues short: slows down when packets wait at a router for more than 10 to 25 ms, long before any are
    /// lost. Ignores occasional packets lost on radio links. Suited to small frequent packets on home and mobile
    /// links, where a full queue is felt as lag. Next to a TCP download it gets less than half of the link, but never
    /// falls below the rate that a player's input needs. (After Copa, NSDI 2018, and Swift, SIGCOMM 2020.)
    #[default]
    Delay,
    /// CUBIC, as in TCP (RFC 9438): fills the queue until packets are lost, and gets its share next to TCP. Suited to
    /// bulk transfers that are not sensitive to delay.
    Cubic,
    /// Always this rate, regardless of losses. For LANs and links whose rate is known. On any other link it can starve
    /// all traffic, including its own.
    Fixed {
        /// Bytes of datagrams per second, at least 1,200.
        bytes_per_second: u64,
    },
}

/// The packet size for algorithms that count packets, in bytes.
const SEGMENT_BYTES: u64 = 1_200;

/// The smallest window (RFC 9002 section 7.2).
const WINDOW_MIN_BYTES: u64 = 2 * SEGMENT_BYTES;

/// The window of a new path: ten packets (RFC 9002 section 7.2).
const WINDOW_START_BYTES: u64 = 10 * SEGMENT_BYTES;

/// The largest window: 1 Gbit/s at half a second.
const WINDOW_MAX_BYTES: u64 = 1 << 26;

/// The summary of an ack that newly acknowledged something.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AckSummary {
    /// The time at which the ack arrived.
    pub(crate) now: Moment,
    /// The number of bytes that it newly acknowledged.
    pub(crate) bytes: u64,
    /// The time at which the newest of the newly acknowledged packets was sent.
    pub(crate) sent_at: Moment,
    /// The time from then until now, minus the delay that the peer reported.
    pub(crate) round_trip: Duration,
    /// The smoothed round trip.
    pub(crate) smoothed: Duration,
    /// The application had no more data to send, so neither the window nor the pacer delayed anything.
    pub(crate) is_app_limited: bool,
    /// Whether the limit on the number of packets in flight was reached, whatever their size.
    pub(crate) is_count_limited: bool,
}

impl AckSummary {
    /// Merges this ack with a later one.
    fn with(self, later: &Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(later.bytes),
            sent_at: self.sent_at.max(later.sent_at),
            round_trip: self.round_trip.min(later.round_trip),
            ..*later
        }
    }
}

/// Packets that were declared lost in one step, reported after the ack that showed the loss.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LossSummary {
    /// The time at which the loss was detected.
    pub(crate) now: Moment,
    /// The number of bytes in all lost packets.
    pub(crate) bytes: u64,
    /// The time at which the newest of the lost packets was sent.
    pub(crate) sent_at: Moment,
    /// All packets over several probe timeouts were lost: persistent congestion (RFC 9002 section 7.6).
    pub(crate) is_persistent: bool,
}

/// An algorithm that decides how many bytes may be in flight.
pub(crate) trait Controller: Debug + Send {
    /// Updates the window after packets were acknowledged.
    fn on_acked(&mut self, ack: &AckSummary);

    /// Updates the window after packets were lost.
    fn on_lost(&mut self, loss: &LossSummary);

    /// The number of bytes that may be in flight.
    fn window_bytes(&self) -> u64;

    /// The pacing rate for this smoothed round trip, in bytes per second.
    fn pacing_rate(&self, smoothed: Duration) -> u64;

    /// Resets all estimates: another path is another network.
    fn on_path_changed(&mut self);

    /// Asserts what must hold between two updates.
    fn assert_invariants(&self);
}

/// The controller, pacer and bandwidth estimate of one connection.
#[derive(Debug)]
pub(crate) struct Rate {
    // Algorithms
    /// Decides how many bytes may be in flight.
    controller: Algorithm,
    /// Decides when the next of them may be sent.
    pacer: Pacer,
    /// Measures the rate at which the path delivers.
    bandwidth: Bandwidth,
    /// Limits the bytes in flight to what such a path needs.
    limit: FlightLimit,

    // The path
    /// The smoothed round trip at the last update, from which the pacing rate is computed.
    smoothed: Micros,
    /// Packets that were sent before this moment used another path.
    path_from: Moment,

    // Merged acks
    /// Acks received while the application had no more data, not yet passed to the controller. It would only update
    /// its round trip from them. `None` when all acks were passed on.
    held: Option<AckSummary>,
    /// The time at which the controller was last updated from an ack.
    updated_at: Moment,
}

/// Stored inline, because a [`Rate`] is already boxed.
#[derive(Debug)]
enum Algorithm {
    Delay(Delay),
    Cubic(Cubic),
    Fixed(FixedRate),
}

impl Rate {
    /// Creates a rate for a path of which nothing is known. `in_flight_bytes` is the range of the limit on the bytes in
    /// flight, which follows the path.
    pub(crate) fn new(choice: Congestion, in_flight_bytes: &RangeInclusive<u32>) -> Self {
        let controller = match choice {
            Congestion::Delay => Algorithm::Delay(Delay::default()),
            Congestion::Cubic => Algorithm::Cubic(Cubic::default()),
            Congestion::Fixed { bytes_per_second } => Algorithm::Fixed(FixedRate::new(bytes_per_second)),
        };
        // A fixed rate says what the path delivers, so nothing has to be measured.
        let max_bytes = in_flight_bytes.end();
        let limit = match choice {
            Congestion::Fixed { .. } => FlightLimit::new(&(*max_bytes..=*max_bytes)),
            Congestion::Delay | Congestion::Cubic => FlightLimit::new(in_flight_bytes),
        };
        // Before the first sample, the first window is spread over the assumed round trip.
        let pacer = Pacer::new(controller.get().pacing_rate(ROUND_TRIP_INITIAL));
        Self {
            controller,
            pacer,
            bandwidth: Bandwidth::default(),
            limit,
            smoothed: Micros::new(ROUND_TRIP_INITIAL),
            path_from: Moment::ORIGIN,
            held: None,
            updated_at: Moment::ORIGIN,
        }
    }

    /// Reads a field of each part, for `Connection::prefetch_parts`.
    #[inline]
    pub(crate) fn prefetch(&self) -> impl Copy + use<> {
        (self.controller.get().window_bytes(), self.path_from, self.updated_at)
    }

    /// Registers a packet that counts as in flight.
    pub(crate) fn on_sent(&mut self, now: Moment, bytes: u64) {
        self.pacer.on_sent(now, bytes);
    }

    /// Updates the rate after an ack.
    pub(crate) fn on_acked(&mut self, ack: &AckSummary) {
        // A packet of the previous path says nothing about this one.
        if ack.sent_at < self.path_from {
            return;
        }
        let ack = self.held.take().map_or(*ack, |held| held.with(ack));
        // App-limited acks within `ACK_MERGE_INTERVAL` are merged into one update. The window does not grow from them (RFC
        // 9002 section 7.8), and a game with a packet per tick would otherwise pay for an update with each of them.
        if ack.is_app_limited && ack.now.since(self.updated_at) < ACK_MERGE_INTERVAL {
            self.held = Some(ack);
            return;
        }
        self.updated_at = ack.now;
        self.smoothed = Micros::new(ack.smoothed);
        self.bandwidth.on_acked(&ack);
        self.limit.on_acked(ack.now, self.bandwidth.bytes_per_second(), ack.smoothed);
        // A window that another limit keeps from being used must not grow either (RFC 9002 section 7.8). Such a window says
        // nothing about the path, and would be far too large once the other limit rises. The rate that the path delivers is
        // measured all the same.
        let is_unused = ack.is_count_limited || self.limit.bytes() < self.controller.get().window_bytes();
        let is_app_limited = ack.is_app_limited || is_unused;
        self.controller.get_mut().on_acked(&AckSummary { is_app_limited, ..ack });
        self.set_pace(ack.now);
    }

    /// Updates the rate after a loss.
    pub(crate) fn on_lost(&mut self, loss: &LossSummary) {
        // Packets to the previous address are lost because the peer left it, not because of congestion.
        if loss.sent_at < self.path_from {
            return;
        }
        self.limit.on_lost(loss.now, loss.bytes, self.smoothed.to_duration());
        self.controller.get_mut().on_lost(loss);
        self.set_pace(loss.now);
    }

    /// Restarts on another path. Reports about packets that were sent before now are ignored.
    pub(crate) fn on_path_changed(&mut self, now: Moment) {
        // The capacity of the old path says nothing about the new one (RFC 9000 section 9.4).
        self.controller.get_mut().on_path_changed();
        self.bandwidth = Bandwidth::default();
        self.limit.reset();
        self.smoothed = Micros::new(ROUND_TRIP_INITIAL);
        self.path_from = now;
        self.held = None;
        self.set_pace(now);
    }

    /// Whether the pacer allows another packet now, after `bytes` more bytes. Probes and acks are not subject to it.
    pub(crate) fn may_send_after(&self, now: Moment, bytes: u64) -> bool {
        self.pacer.may_send_after(now, bytes)
    }

    /// Returns the time at which the pacer allows the next packet, or `None` when it allows one now. The window is not
    /// considered.
    pub(crate) fn next_at(&self, now: Moment) -> Option<Moment> {
        self.pacer.next_at(now)
    }

    /// The number of bytes that may be in flight.
    pub(crate) fn window_bytes(&self) -> u64 {
        self.controller.get().window_bytes().min(self.limit.bytes())
    }

    /// The rate at which the path delivered recently, in bytes per second; 0 before the first measurement. For a
    /// connection that sends little it is only a lower bound.
    pub(crate) const fn estimate_bytes_per_second(&self) -> u64 {
        self.bandwidth.bytes_per_second()
    }

    /// Asserts what must hold between two updates.
    pub(crate) fn assert_invariants(&self) {
        self.controller.get().assert_invariants();
        self.pacer.assert_invariants();
        self.bandwidth.assert_invariants();
        self.limit.assert_invariants();
        // Acks that could grow the window are never held, and none of another path.
        debug_assert!(
            self.held.is_none_or(|held| held.is_app_limited && held.sent_at >= self.path_from),
            "an ack is held that the controller should have seen: {:?}",
            self.held
        );
    }

    fn set_pace(&mut self, now: Moment) {
        let rate = self.controller.get().pacing_rate(self.smoothed.to_duration());
        self.pacer.set_rate(now, rate);
    }
}

impl Algorithm {
    fn get(&self) -> &dyn Controller {
        match self {
            Self::Delay(delay) => delay,
            Self::Cubic(cubic) => cubic,
            Self::Fixed(fixed) => fixed,
        }
    }

    fn get_mut(&mut self) -> &mut dyn Controller {
        match self {
            Self::Delay(delay) => delay,
            Self::Cubic(cubic) => cubic,
            Self::Fixed(fixed) => fixed,
        }
    }
}

/// A congestion window within its bounds, in 65,536ths of a byte, so that the fractions of many small acks add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window(u64);

impl Window {
    const PARTS: u64 = 1 << 16;

    fn new(bytes: u64) -> Self {
        Self(bytes.clamp(WINDOW_MIN_BYTES, WINDOW_MAX_BYTES).saturating_mul(Self::PARTS))
    }

    const fn bytes(self) -> u64 {
        self.0 / Self::PARTS
    }

    /// Asserts that the window is within its bounds. A smaller one could stop the connection, because a packet in flight
    /// would fill it.
    fn assert_invariants(self) {
        let bounds = WINDOW_MIN_BYTES..=WINDOW_MAX_BYTES;
        debug_assert!(bounds.contains(&self.bytes()), "the window is {} bytes", self.bytes());
    }

    /// Grows by `step` bytes for each `of` bytes acknowledged: adds `step` x `acked` / `of`.
    fn grow(&mut self, step: u64, acked: u64, of: u64) {
        debug_assert!(of >= WINDOW_MIN_BYTES, "a window of {of} bytes grows");
        let added = scale(step.min(WINDOW_MAX_BYTES).saturating_mul(Self::PARTS), acked, of);
        self.0 = self.0.saturating_add(added).min(WINDOW_MAX_BYTES.saturating_mul(Self::PARTS));
    }
}

/// The pacing rate of a window: 5/4 of the window per round trip, so that pacing is not the limit. In slow start,
/// when the window doubles every round trip, it is twice the window (RFC 9002 section 7.7).
fn pace(window_bytes: u64, smoothed: Duration, is_starting: bool) -> u64 {
    let quarters = if is_starting { 8 } else { 5 };
    scale(window_bytes.saturating_mul(quarters), NANOS_PER_SECOND / 4, nanos(smoothed))
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Returns `value` x `times` / `of`, rounded down, or `u64::MAX` when the result does not fit or `of` is zero.
fn scale(value: u64, times: u64, of: u64) -> u64 {
    let product = u128::from(value).saturating_mul(times.into());
    product.checked_div(of.into()).and_then(|result| u64::try_from(result).ok()).unwrap_or(u64::MAX)
}
