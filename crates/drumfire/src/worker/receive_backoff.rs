//! How long a socket is left alone whose receives all fail: the kernel has no memory, or answers every call with an error.
//!
//! It may still hold datagrams, so it is asked again, however little is told; but asked in every pass it would take the core.
//! Sending, timers and commands go on meanwhile. Which ends of a drain mean that is `transport`'s to know.

use std::time::Duration;

use drumfire_proto::Moment;

/// The first rest. Each further one is twice as long.
const REST_MIN: Duration = Duration::from_millis(1);

/// The longest rest: so late the first datagrams are read when the fault is over.
const REST_MAX: Duration = Duration::from_millis(100);

/// The rests of one socket.
#[derive(Debug, Default)]
pub(super) struct Starved {
    /// The last one, since anything came or the socket was seen empty.
    rest: Option<Duration>,
    until: Moment,
    /// What was left of it when the time was told last; `None` when it was over.
    left: Option<Duration>,
}

impl Starved {
    /// Whether the socket is to be left alone now.
    pub(super) fn is_resting(&mut self, now: Moment) -> bool {
        self.left = self.rest.map(|rest| self.until.since(now).min(rest)).filter(|left| !left.is_zero());
        self.left.is_some()
    }

    /// A drain is over; `is_fruitless` says that nothing came and its calls failed.
    pub(super) fn on_drain(&mut self, now: Moment, is_fruitless: bool) {
        let longer = self.rest.map_or(REST_MIN, |rest| rest.saturating_mul(2).min(REST_MAX));
        self.rest = is_fruitless.then_some(longer);
        self.left = self.rest;
        self.until = now.after(longer);
    }

    /// How long the next wait may take at most, and has to; `None` when the socket can be asked.
    pub(super) const fn left(&self) -> Option<Duration> {
        self.left
    }

    /// The socket is another.
    pub(super) fn on_replaced(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_from_one_to_a_hundred_milliseconds_and_begin_anew_after_a_success() {
        let (mut starved, mut now) = (Starved::default(), Moment::ORIGIN);
        let mut rests = Vec::new();
        for _ in 0..9 {
            assert!(!starved.is_resting(now));
            starved.on_drain(now, true);
            let rest = starved.left().unwrap();
            rests.push(rest.as_millis());
            assert!(starved.is_resting(now.after(rest - Duration::from_nanos(1))));
            assert_eq!(starved.left(), Some(Duration::from_nanos(1)));
            now = now.after(rest);
        }
        assert_eq!(rests, [1, 2, 4, 8, 16, 32, 64, 100, 100]);
        starved.on_drain(now, false);
        assert_eq!((starved.left(), starved.is_resting(now)), (None, false));
        starved.on_drain(now, true);
        assert_eq!(starved.left(), Some(REST_MIN));
    }

    #[test]
    fn a_clock_that_goes_back_makes_no_rest_longer() {
        let (mut starved, now) = (Starved::default(), Moment::ORIGIN.after(Duration::from_secs(9)));
        starved.on_drain(now, true);
        assert!(starved.is_resting(Moment::ORIGIN));
        assert_eq!(starved.left(), Some(REST_MIN));
    }
}
