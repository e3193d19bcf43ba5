//! The open-loop schedule: when each datagram or message should leave, regardless of earlier ones.

use std::time::Duration;

use drumfire_socket::{Parker, Poller};

use crate::clock;

/// A longer wait sleeps first. A shorter one spins, because a sleep may end this much late.
const SPIN: Duration = Duration::from_micros(60);

/// The schedule of one thread.
pub(super) struct Schedule {
    pub(super) start_ns: u64,
    /// Datagrams per second; 0 means as fast as possible.
    pub(super) rate: f64,
    pub(super) length: Duration,
}

impl Schedule {
    /// How many datagrams are due in this time; `None` without a rate.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "float casts saturate")]
    pub(super) fn due(&self, elapsed: Duration) -> Option<u64> {
        let time = elapsed.min(self.length).as_secs_f64();
        (self.rate > 0.0).then(|| (time * self.rate).round() as u64)
    }

    /// The intended time of the `n`-th datagram, from 0; without a rate it is now.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "float casts saturate")]
    pub(super) fn stamp_ns(&self, n: u64) -> u64 {
        if self.rate > 0.0 { self.start_ns + (n as f64 * 1e9 / self.rate) as u64 } else { clock::host_ns() }
    }

    /// Whether the run's time has passed.
    pub(super) fn is_over(&self) -> bool {
        Duration::from_nanos(clock::host_ns().saturating_sub(self.start_ns)) >= self.length
    }

    /// Waits until the `n`-th datagram is due. Returns false if the run is over.
    pub(super) fn await_turn(&self, n: u64, poller: &mut Poller) -> bool {
        let is_over = self.is_over();
        if self.rate <= 0.0 {
            return !is_over;
        }
        if is_over || self.due(self.length).is_some_and(|all| n >= all) {
            return false;
        }
        Self::wait_until(self.stamp_ns(n), poller);
        true
    }

    /// Waits until the host's clock shows this.
    pub(super) fn wait_until(due_ns: u64, poller: &mut Poller) {
        let rest = Duration::from_nanos(due_ns.saturating_sub(clock::host_ns()));
        if rest > SPIN {
            poller.nap(rest - SPIN);
        }
        while clock::host_ns() < due_ns {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(rate: f64, seconds: u64) -> Schedule {
        Schedule { start_ns: 1_000, rate, length: Duration::from_secs(seconds) }
    }

    #[test]
    fn send_times_lie_evenly_from_the_start_on() {
        let schedule = schedule(250_000.0, 1);
        assert_eq!(schedule.stamp_ns(0), 1_000);
        assert_eq!(schedule.stamp_ns(1), 5_000);
        assert_eq!(schedule.stamp_ns(250_000), 1_000_001_000);
    }

    #[test]
    fn due_messages_follow_the_clock_until_the_run_ends() {
        let schedule = schedule(1_000.0, 2);
        assert_eq!(schedule.due(Duration::from_millis(500)), Some(500));
        assert_eq!(schedule.due(Duration::from_secs(2)), Some(2_000));
        assert_eq!(schedule.due(Duration::from_secs(9)), Some(2_000));
        assert_eq!(Schedule { rate: 0.0, ..schedule }.due(Duration::from_secs(1)), None);
    }
}
