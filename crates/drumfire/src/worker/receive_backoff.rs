//! The backoff for a socket whose receive calls all fail, because the kernel has no memory or returns an error every time.
//!
//! The socket may still hold datagrams, so the worker must call again, even without a readiness event. Calling in every pass would take
//! the whole core. Sends, timers, and commands are not delayed. `transport` decides which ends of a drain count as failures.

use std::time::Duration;

use drumfire_proto::Moment;

/// The first delay. Each further delay is twice as long.
const DELAY_MIN: Duration = Duration::from_millis(1);

/// The longest delay. It bounds how late the first datagrams are read after the fault is over.
const DELAY_MAX: Duration = Duration::from_millis(100);

/// The receive backoff of one socket.
#[derive(Debug, Default)]
pub(super) struct ReceiveBackoff {
    /// The present delay, or `None` after a drain that did not fail.
    delay: Option<Duration>,
    until: Moment,
    /// The rest of the delay at the last call of `is_waiting`, or `None` if the delay was over.
    left: Option<Duration>,
}

impl ReceiveBackoff {
    /// Returns whether the worker must not receive from the socket now.
    pub(super) fn is_waiting(&mut self, now: Moment) -> bool {
        // A clock that goes back must not extend the delay.
        self.left = self.delay.map(|delay| self.until.since(now).min(delay)).filter(|left| !left.is_zero());
        self.left.is_some()
    }

    /// Takes the end of a drain. `has_failed` means that no datagram came and the calls failed.
    pub(super) fn on_drain(&mut self, now: Moment, has_failed: bool) {
        let longer = self.delay.map_or(DELAY_MIN, |delay| delay.saturating_mul(2).min(DELAY_MAX));
        self.delay = has_failed.then_some(longer);
        self.left = self.delay;
        self.until = now.after(longer);
    }

    /// Returns the longest time that the next wait may take. The wait has to last this long if no event ends it. Returns `None` if the
    /// worker may receive.
    pub(super) const fn left(&self) -> Option<Duration> {
        self.left
    }

    /// Resets the backoff for a new socket.
    pub(super) fn on_replaced(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_from_1_to_100_ms_and_restart_after_a_success() {
        let (mut backoff, mut now) = (ReceiveBackoff::default(), Moment::ORIGIN);
        let mut delays = Vec::new();
        for _ in 0..9 {
            assert!(!backoff.is_waiting(now));
            backoff.on_drain(now, true);
            let delay = backoff.left().unwrap();
            delays.push(delay.as_millis());
            assert!(backoff.is_waiting(now.after(delay - Duration::from_nanos(1))));
            assert_eq!(backoff.left(), Some(Duration::from_nanos(1)));
            now = now.after(delay);
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 100, 100]);
        backoff.on_drain(now, false);
        assert_eq!((backoff.left(), backoff.is_waiting(now)), (None, false));
        backoff.on_drain(now, true);
        assert_eq!(backoff.left(), Some(DELAY_MIN));
    }

    #[test]
    fn a_clock_that_goes_back_extends_no_delay() {
        let (mut backoff, now) = (ReceiveBackoff::default(), Moment::ORIGIN.after(Duration::from_secs(9)));
        backoff.on_drain(now, true);
        assert!(backoff.is_waiting(Moment::ORIGIN));
        assert_eq!(backoff.left(), Some(DELAY_MIN));
    }
}
