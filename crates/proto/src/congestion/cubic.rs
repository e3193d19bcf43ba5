//! CUBIC (RFC 9438) with the loss handling of RFC 9002: the window grows with the cube of the time since the last
//! loss. It is flat around the window at which that loss occurred.
//!
//! HyStart++ and the undoing of spurious reductions are not implemented: the first slow start ends with a loss.
//! Windows are in bytes, times in milliseconds.

use std::time::Duration;

use crate::convert::nanos;
use crate::time::Moment;

use super::{
    AckSummary, Controller, LossSummary, SEGMENT_BYTES, WINDOW_MIN_BYTES, WINDOW_START_BYTES, Window, pace,
    scale,
};

/// The part of the window that is left after a loss: 7/10 (RFC 9438 section 4.6).
const BETA: (u64, u64) = (7, 10);

/// Growth of the cubic function in its first second: 0.4 segments (the constant C of RFC 9438 section 5).
const CUBE_BYTES: u64 = SEGMENT_BYTES * 4 / 10;

/// Milliseconds cubed in a second cubed.
const CUBIC_MILLIS: u64 = 1_000_000_000;

/// The longest time that is passed to the cubic function, so that its cube fits.
const TIME_MAX_MILLIS: u64 = 1_000_000;

/// The growth per round trip of a Reno flow that keeps 7/10 of its window after a loss: 9/17 segments (RFC 9438
/// section 4.3).
const RENO_STEP_BYTES: u64 = SEGMENT_BYTES * 9 / 17;

/// The controller of [`Congestion::Cubic`](super::Congestion::Cubic).
#[derive(Debug)]
pub(super) struct Cubic {
    /// The congestion window (`cwnd`).
    window: Window,
    /// The slow start threshold (`ssthresh`) in bytes. Slow start lasts while the window is below it.
    threshold_bytes: u64,
    /// Losses of packets sent up to this moment belong to congestion that was already handled. `None` before the
    /// first loss.
    recovery_from: Option<Moment>,
    /// The window before the last reduction, in bytes, at which the cubic function is flat (`W_max`). Lower with fast
    /// convergence, and 0 before the first loss.
    plateau_bytes: u64,
    /// The window before the last reduction, in bytes, not lowered by fast convergence (`cwnd_prior`).
    prior_bytes: u64,
    /// Congestion avoidance since the last loss or pause. `None` until it begins again.
    epoch: Option<Epoch>,
}

/// One curve of the cubic function.
#[derive(Debug)]
struct Epoch {
    /// The time at which the curve began.
    from: Moment,
    /// The time from the start of the curve to its plateau, in milliseconds (`K`).
    rise_millis: u64,
    /// The height of the plateau in bytes, at least the window at the start of the curve.
    plateau_bytes: u64,
    /// The window that Reno would have (`W_est`).
    reno: Window,
}

impl Default for Cubic {
    fn default() -> Self {
        Self {
            window: Window::new(WINDOW_START_BYTES),
            threshold_bytes: u64::MAX,
            recovery_from: None,
            plateau_bytes: 0,
            prior_bytes: 0,
            epoch: None,
        }
    }
}

impl Controller for Cubic {
    fn on_acked(&mut self, ack: &AckSummary) {
        if ack.is_app_limited {
            // Time without data does not count for the cubic function (RFC 9438 section 5.8). A later curve starts
            // from the present window.
            self.epoch = None;
            return;
        }
        // Acks of packets from before the reduction do not grow the window (RFC 9002 section 7.3.2).
        if self.is_in_recovery(ack.sent_at) {
            return;
        }
        // Slow start grows by the bytes acknowledged, and doubles the window each round trip (RFC 9002 section 7.3.1).
        let window_bytes = self.window.bytes();
        if self.is_starting() {
            self.window.grow(window_bytes, ack.bytes, window_bytes);
            return;
        }
        let (prior_bytes, plateau_bytes) = (self.prior_bytes, self.plateau_bytes);
        let epoch = self.epoch.get_or_insert_with(|| Epoch::new(ack.now, self.window, plateau_bytes));
        // Reno with 7/10 after a loss grows more slowly, so that it has the average of a Reno flow that halves. Beyond
        // the window before the loss it may grow as that flow does (RFC 9438 section 4.3).
        let step = if epoch.reno.bytes() < prior_bytes { RENO_STEP_BYTES } else { SEGMENT_BYTES };
        epoch.reno.grow(step, ack.bytes, window_bytes);
        let time = ack.now.since(epoch.from);
        // The Reno-friendly region (RFC 9438 section 4.3): on short or slow paths, cubic growth is slower than Reno's.
        if epoch.bytes_at(time) < epoch.reno.bytes() {
            self.window = Window(self.window.0.max(epoch.reno.0));
            return;
        }
        // The target is at most 1.5 windows (RFC 9438 section 4.2).
        let max_bytes = window_bytes.saturating_add(window_bytes / 2);
        let target = epoch.bytes_at(time.saturating_add(ack.smoothed)).min(max_bytes);
        self.window.grow(target.saturating_sub(window_bytes), ack.bytes, window_bytes);
    }

    fn on_lost(&mut self, loss: &LossSummary) {
        // One reduction per round trip: further losses of packets from before it are the same congestion (RFC 9002
        // section 7.3.2).
        if !self.is_in_recovery(loss.sent_at) {
            self.recovery_from = Some(loss.now);
            self.epoch = None;
            let before = self.window.bytes();
            let (kept, of) = BETA;
            // Fast convergence (RFC 9438 section 4.7): a flow whose window shrank since the last loss leaves room for
            // new flows.
            self.plateau_bytes = if before < self.plateau_bytes {
                scale(before, kept.saturating_add(of), of.saturating_mul(2))
            } else {
                before
            };
            self.prior_bytes = before;
            self.window = Window::new(scale(before, kept, of));
            self.threshold_bytes = self.window.bytes();
        }
        // Persistent congestion starts over with slow start, up to the threshold of the last reduction (RFC 9002
        // section 7.6.2).
        if loss.is_persistent {
            self.window = Window::new(WINDOW_MIN_BYTES);
            self.recovery_from = None;
            self.epoch = None;
        }
    }

    fn window_bytes(&self) -> u64 {
        self.window.bytes()
    }

    fn pacing_rate(&self, smoothed: Duration) -> u64 {
        pace(self.window.bytes(), smoothed, self.is_starting())
    }

    fn on_path_changed(&mut self) {
        *self = Self::default();
    }

    fn assert_invariants(&self) {
        self.window.assert_invariants();
        debug_assert!(
            self.threshold_bytes >= WINDOW_MIN_BYTES,
            "slow start would end below the smallest window"
        );
        // Fast convergence only lowers the plateau.
        debug_assert!(
            self.plateau_bytes <= self.prior_bytes,
            "the curve is flat above the window before the loss"
        );
        if let Some(epoch) = &self.epoch {
            epoch.reno.assert_invariants();
            debug_assert!(!self.is_starting(), "congestion avoidance began in slow start");
        }
    }
}

impl Cubic {
    const fn is_starting(&self) -> bool {
        self.window.bytes() < self.threshold_bytes
    }

    fn is_in_recovery(&self, sent_at: Moment) -> bool {
        self.recovery_from.is_some_and(|from| sent_at <= from)
    }
}

impl Epoch {
    fn new(from: Moment, window: Window, plateau_bytes: u64) -> Self {
        // K of RFC 9438 section 4.2: the cube root of the distance to the plateau over C. A curve that begins above
        // its plateau is at its flat point.
        let below = plateau_bytes.saturating_sub(window.bytes());
        Self {
            from,
            rise_millis: cube_root(scale(below, CUBIC_MILLIS, CUBE_BYTES)),
            plateau_bytes: plateau_bytes.max(window.bytes()),
            reno: window,
        }
    }

    /// The window of the curve after this time.
    fn bytes_at(&self, time: Duration) -> u64 {
        let millis = nanos(time) / 1_000_000;
        let distance_millis = millis.abs_diff(self.rise_millis).min(TIME_MAX_MILLIS);
        // W_cubic(t) = C * (t - K)^3 + W_max (RFC 9438 section 4.2): concave up to the plateau, convex beyond it.
        let distance_bytes = scale(
            distance_millis.saturating_mul(distance_millis).saturating_mul(distance_millis),
            CUBE_BYTES,
            CUBIC_MILLIS,
        );
        if millis < self.rise_millis {
            self.plateau_bytes.saturating_sub(distance_bytes)
        } else {
            self.plateau_bytes.saturating_add(distance_bytes)
        }
    }
}

/// Returns the cube root of `value`, rounded down and at most [`TIME_MAX_MILLIS`].
fn cube_root(value: u64) -> u64 {
    // Bisection takes 20 steps, once per curve, and needs no floating point.
    let (mut low, mut high) = (0, TIME_MAX_MILLIS);
    while low < high {
        let middle = low.midpoint(high).saturating_add(1).min(high);
        if middle.saturating_mul(middle).saturating_mul(middle) <= value {
            low = middle;
        } else {
            high = middle.saturating_sub(1);
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cube_roots_are_rounded_down() {
        for root in [0, 1, 2, 3, 999, 4_217, TIME_MAX_MILLIS - 1] {
            let cube = root * root * root;
            assert_eq!(cube_root(cube), root);
            assert_eq!(cube_root(cube + 1), root.max(u64::from(root == 0)));
            assert_eq!(cube_root((cube).saturating_sub(1)), root.saturating_sub(1));
        }
        assert_eq!(cube_root(u64::MAX), TIME_MAX_MILLIS);
    }

    #[test]
    fn the_curve_follows_rfc_9438() {
        // From 70 segments to a plateau of 100: K = cbrt(30 / 0.4) = 4.217 s.
        let epoch = Epoch::new(Moment::ORIGIN, Window::new(70 * SEGMENT_BYTES), 100 * SEGMENT_BYTES);
        assert_eq!(epoch.rise_millis, 4_217);
        let at = |seconds| epoch.bytes_at(Duration::from_secs(seconds));
        assert!(at(0).abs_diff(70 * SEGMENT_BYTES) < 20);
        assert!(at(4).abs_diff(100 * SEGMENT_BYTES) < 10);
        assert!(at(8).abs_diff(121 * SEGMENT_BYTES + 788) < 30, "{}", at(8));
    }
}
