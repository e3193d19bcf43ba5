//! A controller for small frequent packets, which keeps the queue at the bottleneck short.
//!
//! Its parts, and the reasons for them:
//!
//! - The queueing delay is the current round trip minus the minimum of the last 5 to 10 s. The current round trip is
//!   the minimum over the last third to two thirds of a round trip (after Copa's standing round trip, NSDI 2018).
//!   Jitter of a few milliseconds and bursts of acks then count for little.
//! - Below a target the window grows by half a segment each round trip. Above it, the window shrinks once each round
//!   trip by the excess. The target is 25 ms, and less for large windows (Swift, SIGCOMM 2020). Of two flows that
//!   share a queue, the larger yields first, even when their measurements differ by a few milliseconds.
//! - While the queue is shorter than half the target and nothing is lost, the growth doubles every round trip, to use
//!   capacity that became free.
//! - A queue that never empties would hide the true round trip, most of all from flows that started later. After 5 s
//!   without a round trip near the minimum, half of the window is withheld for one round trip. All flows that share
//!   the queue do this in the same round trip, because they last saw it empty at the same time (BBR's ProbeRTT). A
//!   flow that sends little never does it.
//! - Radio links lose packets, so a loss alone is not congestion. With a queue above the target, any loss halves the
//!   queue. With a shorter queue, a loss rate of 1/32 halves it, which costs only delay. A loss rate of 1/8 takes a
//!   quarter of the window. Persistent congestion restarts the controller.
//!
//! The controller does not compete for its share with flows that fill queues. Delay alone never lowers the rate below
//! what a player's input needs.

use std::time::Duration;

use crate::convert::{nanos, saturated};
use crate::time::{Moment, part};

use super::{
    AckSummary, Controller, LossSummary, NANOS_PER_SECOND, SEGMENT_BYTES, WINDOW_MIN_BYTES,
    WINDOW_START_BYTES, Window, pace, scale,
};

/// The target queueing delay for small windows, in nanoseconds.
const TARGET_MAX: u64 = 25_000_000;

/// The lowest target, in nanoseconds: this much is attributed to jitter, however large the window.
const TARGET_MIN: u64 = 10_000_000;

/// Windows above this size have a smaller target: half of it at sixteen times this size.
const TARGET_WINDOW_BYTES: u64 = 4 * SEGMENT_BYTES;

/// A round trip within this distance of the minimum counts as one without a queue, in nanoseconds.
const EMPTY_QUEUE_MAX: u64 = 2_500_000;

/// The minimum round trip is taken over one to two of these intervals.
const MIN_ROUND_TRIP_INTERVAL: Duration = Duration::from_secs(5);

/// Without a round trip near the minimum for this long, the queue is drained to measure it.
const DRAIN_AFTER: Duration = Duration::from_secs(5);

/// The rate below which delay alone never lowers a flow, in bytes per second. It is enough for 60 packets of 400 bytes each second.
const RATE_FLOOR: u64 = 24_000;

/// The longest round trip for which the floor of the window is computed.
const FLOOR_ROUND_TRIP_MAX: u64 = NANOS_PER_SECOND;

/// While packets wait in a queue, losing more than one byte in this many is congestion.
const QUEUED_LOSS_PARTS: u32 = 32;

/// Losing more than one byte in this many is congestion, with or without a queue.
const ANY_LOSS_PARTS: u32 = 8;

/// The loss rate is computed over at least this many bytes and one round trip, because one loss among few packets
/// means little.
const LOSS_RATE_MIN_BYTES: u32 = 48_000;

/// The minimum growth of the window per round trip below the target.
const STEP_MIN_BYTES: u64 = SEGMENT_BYTES / 2;

/// The limit of doubling growth: one part in this many of the window per round trip.
const GROWTH_PARTS: u64 = 8;

/// The controller of [`Congestion::Delay`](super::Congestion::Delay).
#[derive(Debug)]
pub(super) struct Delay {
    // The window
    /// The congestion window.
    window: Window,
    /// Whether the controller is in slow start.
    is_starting: bool,
    /// The growth of the window per round trip below the target, in bytes.
    step_bytes: u64,

    // The queueing delay
    /// The round trip without a queue.
    min_round_trip: WindowedMin,
    /// The current round trip, without jitter.
    standing_round_trip: WindowedMin,
    /// A round trip ends when a packet sent from this moment on is acknowledged.
    round_from: Moment,

    // Draining the queue
    /// The time at which the queue is drained next, or `None` before the first ack.
    drain_at: Option<Moment>,
    /// Until when the queue is drained, and the window in bytes during that time. `None` while it is not drained.
    drain: Option<(Moment, u64)>,

    // Losses
    /// Losses of packets sent up to this moment were already handled. `None` before the first reduction.
    recovery_from: Option<Moment>,
    /// Bytes acknowledged since the loss rate was last computed.
    acked_bytes: u32,
    /// Bytes lost since the loss rate was last computed.
    lost_bytes: u32,
}

/// The minimum over the last one to two intervals, in nanoseconds.
#[derive(Debug)]
struct WindowedMin {
    /// The minimum of the previous interval, or `u64::MAX` without a sample in it.
    previous: u64,
    /// The minimum of the present interval, or `u64::MAX` before its first sample.
    current: u64,
    /// The time at which the present interval began.
    from: Moment,
}

impl Default for Delay {
    fn default() -> Self {
        Self {
            window: Window::new(WINDOW_START_BYTES),
            is_starting: true,
            step_bytes: STEP_MIN_BYTES,
            min_round_trip: WindowedMin::EMPTY,
            standing_round_trip: WindowedMin::EMPTY,
            round_from: Moment::ORIGIN,
            drain_at: None,
            drain: None,
            recovery_from: None,
            acked_bytes: 0,
            lost_bytes: 0,
        }
    }
}

impl Controller for Delay {
    fn on_acked(&mut self, ack: &AckSummary) {
        // The measurement comes first, because all decisions below depend on the queue that this ack has seen.
        self.measure(ack);
        self.acked_bytes = self.acked_bytes.saturating_add(saturated(ack.bytes, u32::MAX));
        // Decisions take a round trip to show an effect, so there is at most one of each kind per round trip.
        let is_round_over = ack.sent_at >= self.round_from;
        if is_round_over {
            self.round_from = ack.now;
            self.evaluate_loss_rate(ack.now);
        }
        // While the queue drains, round trips measure the drain and not the window.
        if let Some((until, _)) = self.drain {
            if ack.now >= until {
                self.drain = None;
            }
            return;
        }
        let (queue, target) = (self.queue(), self.target());
        if self.is_starting && queue > target {
            // The present queue is the effect of the window one round trip ago, which was half of the present one.
            self.is_starting = false;
            self.window = Window::new(self.window.bytes() / 2);
        } else if is_round_over {
            self.on_round(queue, ack);
        }
        // Growth is spread over the acks of a round trip. Acks of packets from before a reduction do not undo it (RFC
        // 9002 section 7.3.2), and a window that the application does not fill stays as it is (section 7.8). Below the
        // floor the window grows despite a queue, because delay alone never takes that rate from a flow.
        let has_room = queue <= target || self.window.bytes() < self.floor_bytes();
        if has_room && !ack.is_app_limited && !self.is_in_recovery(ack.sent_at) {
            let window_bytes = self.window.bytes();
            let step = if self.is_starting { window_bytes } else { self.step_bytes };
            self.window.grow(step, ack.bytes, window_bytes);
        }
    }

    fn on_lost(&mut self, loss: &LossSummary) {
        if loss.is_persistent {
            // The path is as unknown as a new one, so the window is that of a new one. RFC 9002 section 7.6.2 begins with
            // two packets, which take two or three round trips more until the newest values of all keys arrive.
            *self = Self::default();
            return;
        }
        // Losses are only counted here. Their rate is evaluated once per round trip.
        self.lost_bytes = self.lost_bytes.saturating_add(saturated(loss.bytes, u32::MAX));
        let (queue, target) = (self.queue(), self.target());
        // A loss while packets wait means that the growth has found the limit.
        if queue > EMPTY_QUEUE_MAX {
            self.step_bytes = STEP_MIN_BYTES;
        }
        // A loss above the target does not wait for the end of the round trip: the queue overflows.
        if queue > target && !self.is_in_recovery(loss.sent_at) {
            self.is_starting = false;
            self.recovery_from = Some(loss.now);
            self.shrink_by(queue / 2);
        }
    }

    fn window_bytes(&self) -> u64 {
        let window_bytes = self.window.bytes();
        self.drain.map_or(window_bytes, |(_, bytes)| bytes.min(window_bytes))
    }

    fn pacing_rate(&self, smoothed: Duration) -> u64 {
        pace(self.window.bytes(), smoothed, self.is_starting)
    }

    fn on_path_changed(&mut self) {
        *self = Self::default();
    }

    fn assert_invariants(&self) {
        self.window.assert_invariants();
        debug_assert!(
            self.step_bytes >= STEP_MIN_BYTES,
            "a window that may grow by {} bytes",
            self.step_bytes
        );
        debug_assert!(
            self.drain.is_none_or(|(_, bytes)| bytes >= WINDOW_MIN_BYTES),
            "the queue is drained with a window that carries no packet"
        );
    }
}

impl Delay {
    /// Updates the minimum round trips, and postpones the drain while the queue empties by itself.
    fn measure(&mut self, ack: &AckSummary) {
        let round_trip = nanos(ack.round_trip);
        self.min_round_trip.update(ack.now, round_trip, MIN_ROUND_TRIP_INTERVAL);
        self.standing_round_trip.update(ack.now, round_trip, part(ack.smoothed, 3));
        if self.drain_at.is_none() || round_trip <= self.min_round_trip.get().saturating_add(EMPTY_QUEUE_MAX)
        {
            self.drain_at = Some(ack.now.after(DRAIN_AFTER));
        }
    }

    /// The queueing delay in nanoseconds.
    fn queue(&self) -> u64 {
        self.standing_round_trip.get().saturating_sub(self.min_round_trip.get())
    }

    /// The target queueing delay in nanoseconds, in inverse proportion to the fourth root of the window.
    fn target(&self) -> u64 {
        // Two integer square roots: the core uses no floating point.
        let root = |window: Window| window.0.isqrt().isqrt();
        let target = scale(TARGET_MAX, root(Window::new(TARGET_WINDOW_BYTES)), root(self.window));
        target.clamp(TARGET_MIN, TARGET_MAX)
    }

    /// Updates the window once per round trip: shrinks it, chooses its growth, and drains the queue when that is due.
    fn on_round(&mut self, queue: u64, ack: &AckSummary) {
        let target = self.target();
        if queue > target {
            self.shrink_by(queue.saturating_sub(target));
        }
        // Doubling growth needs a queue that is clearly short. It starts over as soon as the queue builds up, or the
        // application leaves the window unused.
        self.step_bytes = if queue < target / 2 && !ack.is_app_limited {
            self.step_bytes.saturating_mul(2).min(self.window.bytes() / GROWTH_PARTS).max(STEP_MIN_BYTES)
        } else {
            STEP_MIN_BYTES
        };
        let is_drain_due = self.drain_at.is_some_and(|at| ack.now >= at);
        // Slow start is not interrupted, because it ends with a queue anyway. A flow that sends little does not keep
        // the queue from emptying.
        if is_drain_due && !self.is_starting && !ack.is_app_limited {
            self.drain_at = Some(ack.now.after(DRAIN_AFTER));
            // The window without the bytes in the queue, by Little's law. Half of it is enough to empty the queue.
            let without_queue =
                scale(self.window.bytes(), self.min_round_trip.get(), self.standing_round_trip.get());
            self.drain = Some((ack.now.after(ack.smoothed), self.floor_bytes().max(without_queue / 2)));
        }
    }

    /// Shrinks the window by the part that causes `excess` nanoseconds of the round trip.
    fn shrink_by(&mut self, excess: u64) {
        debug_assert!(excess <= self.standing_round_trip.get(), "the queue is longer than the round trip");
        // At most half at a time: one wrong measurement must not stop the flow.
        let window_bytes = self.window.bytes();
        let taken = scale(window_bytes, excess, self.standing_round_trip.get()).min(window_bytes / 2);
        let left = window_bytes.saturating_sub(taken).max(self.floor_bytes());
        self.window = Window::new(left.min(window_bytes));
    }

    /// The window in bytes that gives the flow its minimum rate at the present round trip.
    fn floor_bytes(&self) -> u64 {
        let round_trip = self.standing_round_trip.get().min(FLOOR_ROUND_TRIP_MAX);
        scale(RATE_FLOOR, round_trip, NANOS_PER_SECOND).max(WINDOW_MIN_BYTES)
    }

    /// Decides once per round trip whether the loss rate is a sign of congestion.
    fn evaluate_loss_rate(&mut self, now: Moment) {
        let all = self.acked_bytes.saturating_add(self.lost_bytes);
        if all < LOSS_RATE_MIN_BYTES {
            return;
        }
        // Both counts start over in any case, so that each loss is counted once.
        let lost = std::mem::take(&mut self.lost_bytes);
        self.acked_bytes = 0;
        if lost > all / ANY_LOSS_PARTS {
            // Slow start may have doubled the window since the losses began, so half of it goes.
            let parts = if self.is_starting { 2 } else { 4 };
            let window_bytes = self.window.bytes();
            self.window = Window::new(window_bytes.saturating_sub(scale(window_bytes, 1, parts)));
        } else if lost > all / QUEUED_LOSS_PARTS && self.queue() > self.target() / 4 {
            self.shrink_by(self.queue() / 2);
        } else {
            return;
        }
        self.is_starting = false;
        self.recovery_from = Some(now);
    }

    fn is_in_recovery(&self, sent_at: Moment) -> bool {
        self.recovery_from.is_some_and(|from| sent_at <= from)
    }
}

impl WindowedMin {
    const EMPTY: Self = Self { previous: u64::MAX, current: u64::MAX, from: Moment::ORIGIN };

    fn update(&mut self, now: Moment, value: u64, interval: Duration) {
        // Two intervals instead of a list of samples: old minima expire, and the memory is constant.
        if now.since(self.from) >= interval {
            self.previous = self.current;
            self.current = value;
            self.from = now;
        } else {
            self.current = self.current.min(value);
        }
    }

    fn get(&self) -> u64 {
        self.previous.min(self.current)
    }
}
