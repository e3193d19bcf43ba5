//! Times that were seen, by how many of them stay below what.
//!
//! It takes no time itself.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::stop::{Stop, Tried};

/// Above an hour is as good as an hour.
const MOST_US: u64 = 3_600_000_000;

/// Digits that are kept of each time.
const DIGITS: u8 = 3;

/// Times in microseconds, in memory that does not grow.
#[derive(Debug)]
pub(crate) struct Times(Histogram<u64>);

impl Times {
    /// None yet.
    pub(crate) fn new() -> Result<Self, Stop> {
        Histogram::new_with_bounds(1, MOST_US, DIGITS).map(Self).tried("a histogram")
    }

    /// One more.
    pub(crate) fn note(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_micros()).unwrap_or(MOST_US));
    }

    /// What so many percent stay below; nothing where there are none.
    pub(crate) fn percentile(&self, percent: f64) -> Duration {
        Duration::from_micros(self.0.value_at_percentile(percent))
    }

    /// Forgets all.
    pub(crate) fn forget(&mut self) {
        self.0.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_time_is_kept_as_it_is_and_an_endless_one_as_an_hour() {
        let mut times = Times::new().expect("a histogram");
        assert_eq!(times.percentile(99.0), Duration::ZERO);
        times.note(Duration::from_millis(60));
        let seen = times.percentile(99.0);
        assert!(seen >= Duration::from_millis(60) && seen < Duration::from_millis(61), "{seen:?}");
        times.note(Duration::MAX);
        let hour = Duration::from_secs(3_600);
        assert!(times.percentile(100.0) >= hour && times.percentile(100.0) < hour + Duration::from_secs(4));
        assert!(times.percentile(50.0) < Duration::from_millis(61));
        times.forget();
        assert_eq!(times.percentile(100.0), Duration::ZERO);
    }
}
