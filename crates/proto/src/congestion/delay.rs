//! A controller for small frequent packets: it keeps the queue at the bottleneck short.
//!
//! What it is made of, and why:
//!
//! - The delay of the queue is the round trip above the least of the last 5 to 10 s, and the round trip is the least of
//!   the last third or two of one (after Copa's standing round trip, NSDI 2018): jitter of a few milliseconds and acks
//!   in lumps count for little.
//! - Below a target the window grows by half a segment each round trip; above it, it shrinks once each round trip by
//!   what is too much. The target is 25 ms, and less for large windows (Swift, SIGCOMM 2020): of two that share a queue,
//!   the larger yields first, even when they disagree by a few milliseconds on how long the queue is.
//! - While the queue is shorter than half the target and nothing is lost, growth doubles every round trip, for room that
//!   came free.
//! - A queue that never empties would hide the true round trip, most of all from whoever came later. So after 5 s
//!   without a sight of it half the window is withheld for a round trip: by all who share the queue at once, because
//!   they last saw it empty at once (BBR's probe of the least round trip). Who sends little never does that.
//! - Radio loses packets, so loss is no congestion by itself. A queue above the target is halved when anything is lost,
//!   a shorter one when a 32nd of all is, which costs only delay; an eighth takes a quarter of the window; everything
//!   for long begins anew.
//!
//! It does not fight for its share with those who fill queues. But delay alone brings nobody below the rate that a
//! player's input needs.

use std::time::Duration;

use crate::time::{Moment, part};

use super::{
    Acked, Controller, Lost, NANOS_PER_SECOND, SEGMENT_BYTES, WINDOW_MIN_BYTES, WINDOW_START_BYTES, Window,
    nanos, pace, scale,
};

/// How long packets may wait in the queue, in nanoseconds, when windows are small.
const TARGET_MAX: u64 = 25_000_000;

/// However large the window, so much is taken for jitter.
const TARGET_MIN: u64 = 10_000_000;

/// A larger window has a smaller target: half of it when it is sixteen times this.
const TARGET_WINDOW_BYTES: u64 = 4 * SEGMENT_BYTES;

/// A round trip so little above the least is one without a queue, in nanoseconds.
const NEAR: u64 = 2_500_000;

/// The least round trip is that of once or twice this long.
const BASE_INTERVAL: Duration = Duration::from_secs(5);

/// Without a round trip near the least for this long, the queue is drained to see it.
const DRAIN_AFTER: Duration = Duration::from_secs(5);

/// Bytes per second that delay alone takes from nobody: sixty small packets, and as many that wait for an ack.
const RATE_FLOOR: u64 = 24_000;

/// Round trips longer than this do not raise that floor.
const FLOOR_ROUND_TRIP_MAX: u64 = NANOS_PER_SECOND;

/// More than one part in so many lost is congestion while a queue stands.
const LIGHT_PARTS: u32 = 32;

/// More than one part in so many lost is congestion.
const HEAVY_PARTS: u32 = 8;

/// Losses are weighed over so many bytes and a round trip at least: of few packets, one lost is many.
const WEIGHED_BYTES: u32 = 48_000;

/// What a round trip adds to the window below the target, at least.
const STEP_BYTES: u64 = SEGMENT_BYTES / 2;

/// Growth doubles up to this part of the window each round trip.
const GROWTH_PARTS: u64 = 8;

/// The controller of [`Congestion::Delay`](super::Congestion::Delay).
#[derive(Debug)]
pub(super) struct Delay {
    window: Window,
    /// Slow start.
    is_starting: bool,
    /// The round trip without a queue.
    base: Least,
    /// The round trip now, without jitter.
    standing: Least,
    /// A round trip is over when a packet sent from here on is acknowledged.
    round_from: Moment,
    /// What a round trip adds below the target.
    step_bytes: u64,
    /// When the queue is drained next; nothing before the first ack.
    drain_at: Option<Moment>,
    /// Until when it is being drained, and the window meanwhile.
    drain: Option<(Moment, u64)>,
    /// Losses of packets sent until then were answered already.
    recovery_from: Option<Moment>,
    /// Since losses were last weighed.
    acked_bytes: u32,
    lost_bytes: u32,
}

/// The least of what was measured in the last one or two intervals, in nanoseconds.
#[derive(Debug)]
struct Least {
    previous: u64,
    current: u64,
    from: Moment,
}

impl Default for Delay {
    fn default() -> Self {
        Self {
            window: Window::new(WINDOW_START_BYTES),
            is_starting: true,
            base: Least::NOTHING,
            standing: Least::NOTHING,
            round_from: Moment::ORIGIN,
            step_bytes: STEP_BYTES,
            drain_at: None,
            drain: None,
            recovery_from: None,
            acked_bytes: 0,
            lost_bytes: 0,
        }
    }
}

impl Controller for Delay {
    fn on_acked(&mut self, ack: &Acked) {
        self.measure(ack);
        self.acked_bytes = self.acked_bytes.saturating_add(small(ack.bytes));
        let is_round_over = ack.sent_at >= self.round_from;
        if is_round_over {
            self.round_from = ack.now;
            self.weigh_losses(ack.now);
        }
        if let Some((until, _)) = self.drain {
            if ack.now >= until {
                self.drain = None;
            }
            return;
        }
        let (queue, target) = (self.queue(), self.target());
        if self.is_starting && queue > target {
            // What is measured now is the work of the window of a round trip ago: half of this one.
            self.is_starting = false;
            self.window = Window::new(self.window.bytes() / 2);
        } else if is_round_over {
            self.on_round(queue, ack);
        }
        let has_room = queue <= target || self.window.bytes() < self.floor_bytes();
        if has_room && !ack.is_app_limited && !self.is_in_recovery(ack.sent_at) {
            let window_bytes = self.window.bytes();
            let step = if self.is_starting { window_bytes } else { self.step_bytes };
            self.window.grow(step, ack.bytes, window_bytes);
        }
    }

    fn on_lost(&mut self, loss: &Lost) {
        if loss.is_persistent {
            *self = Self { window: Window::new(WINDOW_MIN_BYTES), ..Self::default() };
            return;
        }
        self.lost_bytes = self.lost_bytes.saturating_add(small(loss.bytes));
        let (queue, target) = (self.queue(), self.target());
        if queue > NEAR {
            self.step_bytes = STEP_BYTES;
        }
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
}

impl Delay {
    fn measure(&mut self, ack: &Acked) {
        let round_trip = nanos(ack.round_trip);
        self.base.note(ack.now, round_trip, BASE_INTERVAL);
        self.standing.note(ack.now, round_trip, part(ack.smoothed, 3));
        if self.drain_at.is_none() || round_trip <= self.base.get().saturating_add(NEAR) {
            self.drain_at = Some(ack.now.after(DRAIN_AFTER));
        }
    }

    /// How long packets wait in the queue, in nanoseconds.
    fn queue(&self) -> u64 {
        self.standing.get().saturating_sub(self.base.get())
    }

    /// How long packets may wait, in nanoseconds: in inverse proportion to the fourth root of the window.
    fn target(&self) -> u64 {
        let root = |window: Window| window.0.isqrt().isqrt();
        let target = scale(TARGET_MAX, root(Window::new(TARGET_WINDOW_BYTES)), root(self.window));
        target.clamp(TARGET_MIN, TARGET_MAX)
    }

    /// What is done once each round trip: shrinks, chooses how to grow, and drains when it is time.
    fn on_round(&mut self, queue: u64, ack: &Acked) {
        let target = self.target();
        if queue > target {
            self.shrink_by(queue.saturating_sub(target));
        }
        self.step_bytes = if queue < target / 2 && !ack.is_app_limited {
            self.step_bytes.saturating_mul(2).min(self.window.bytes() / GROWTH_PARTS).max(STEP_BYTES)
        } else {
            STEP_BYTES
        };
        let is_drain_due = self.drain_at.is_some_and(|at| ack.now >= at);
        if is_drain_due && !self.is_starting && !ack.is_app_limited {
            self.drain_at = Some(ack.now.after(DRAIN_AFTER));
            let without_queue = scale(self.window.bytes(), self.base.get(), self.standing.get());
            self.drain = Some((ack.now.after(ack.smoothed), self.floor_bytes().max(without_queue / 2)));
        }
    }

    /// Takes from the window what makes up this much of the round trip.
    fn shrink_by(&mut self, excess: u64) {
        let window_bytes = self.window.bytes();
        let taken = scale(window_bytes, excess, self.standing.get()).min(window_bytes / 2);
        let left = window_bytes.saturating_sub(taken).max(self.floor_bytes());
        self.window = Window::new(left.min(window_bytes));
    }

    fn floor_bytes(&self) -> u64 {
        let round_trip = self.standing.get().min(FLOOR_ROUND_TRIP_MAX);
        scale(RATE_FLOOR, round_trip, NANOS_PER_SECOND).max(WINDOW_MIN_BYTES)
    }

    /// Once each round trip: whether what was lost is congestion.
    fn weigh_losses(&mut self, now: Moment) {
        let all = self.acked_bytes.saturating_add(self.lost_bytes);
        if all < WEIGHED_BYTES {
            return;
        }
        let lost = std::mem::take(&mut self.lost_bytes);
        self.acked_bytes = 0;
        if lost > all / HEAVY_PARTS {
            let parts = if self.is_starting { 2 } else { 4 };
            let window_bytes = self.window.bytes();
            self.window = Window::new(window_bytes.saturating_sub(scale(window_bytes, 1, parts)));
        } else if lost > all / LIGHT_PARTS && self.queue() > self.target() / 4 {
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

impl Least {
    const NOTHING: Self = Self { previous: u64::MAX, current: u64::MAX, from: Moment::ORIGIN };

    fn note(&mut self, now: Moment, value: u64, interval: Duration) {
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

/// A count of bytes in half the memory, the most there is when it does not fit.
fn small(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
