//! The clocks of one end of a world, which may run fast or slow, stop, or jump.

use std::time::Duration;

use drumfire_proto::{Moment, Now};

/// The wall-clock time at the origin of the monotonic time, since 1970. It is in September 2001.
pub(crate) const WALL_ORIGIN: Duration = Duration::from_secs(1_000_000_000);

/// The rate of the world's time, in parts per million.
const NOMINAL_RATE_PPM: u32 = 1_000_000;

/// The configuration of the monotonic clock and the wall clock of one end. By default both are correct.
///
/// A configuration that follows another one replaces the rate and the offset, but does not undo earlier deviations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClockConfig {
    /// The rate of both clocks in parts per million of the world's time. 0 stops them. The default is 1,000,000.
    pub rate_ppm: u32,
    /// The jump of both clocks in nanoseconds when the configuration takes effect. Negative values jump back. The default is 0.
    pub step_nanos: i64,
    /// The additional offset of the wall clock in seconds. A positive offset puts it ahead. The default is 0.
    pub wall_offset_seconds: i64,
}

impl Default for ClockConfig {
    fn default() -> Self {
        Self { rate_ppm: NOMINAL_RATE_PPM, step_nanos: 0, wall_offset_seconds: 0 }
    }
}

impl ClockConfig {
    /// Sets the rate of both clocks, in parts per million of the world's time.
    #[must_use]
    pub fn rate_ppm(mut self, rate: u32) -> Self {
        self.rate_ppm = rate;
        self
    }

    /// Sets the jump of both clocks, in nanoseconds.
    #[must_use]
    pub fn step_nanos(mut self, nanos: i64) -> Self {
        self.step_nanos = nanos;
        self
    }

    /// Sets the additional offset of the wall clock, in seconds.
    #[must_use]
    pub fn wall_offset_seconds(mut self, seconds: i64) -> Self {
        self.wall_offset_seconds = seconds;
        self
    }
}

/// The clocks of one end.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorldClock {
    /// The world's time of the last configuration.
    set_at: Moment,
    /// The reading of the monotonic clock after the last configuration.
    reading_at_set: Moment,
    rate_ppm: u32,
    wall_offset_seconds: i64,
}

impl WorldClock {
    pub(super) const fn correct() -> Self {
        Self {
            set_at: Moment::ORIGIN,
            reading_at_set: Moment::ORIGIN,
            rate_ppm: NOMINAL_RATE_PPM,
            wall_offset_seconds: 0,
        }
    }

    pub(super) fn set(&mut self, world: Moment, config: &ClockConfig) {
        let reading = self.monotonic(world).as_nanos().saturating_add_signed(config.step_nanos);
        *self = Self {
            set_at: world,
            reading_at_set: Moment::from_nanos(reading),
            rate_ppm: config.rate_ppm,
            wall_offset_seconds: config.wall_offset_seconds,
        };
    }

    /// Returns the readings of both clocks at this time of the world.
    pub(super) fn now(&self, world: Moment) -> Now {
        let monotonic = self.monotonic(world);
        let wall = WALL_ORIGIN + Duration::from_nanos(monotonic.as_nanos());
        let offset = Duration::from_secs(self.wall_offset_seconds.unsigned_abs());
        let is_ahead = self.wall_offset_seconds >= 0;
        let wall = if is_ahead { wall.saturating_add(offset) } else { wall.saturating_sub(offset) };
        Now { monotonic, wall }
    }

    /// Returns the world's time at which the monotonic clock has advanced by `own`, or `None` if the clock is stopped.
    pub(super) fn after(&self, world: Moment, own: Duration) -> Option<Moment> {
        let nanos = (own.as_nanos() * u128::from(NOMINAL_RATE_PPM)).checked_div(u128::from(self.rate_ppm))?;
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        // Rounded up: an end that wakes before its deadline would wake again and again at the same moment.
        let rounding = u64::from(self.rate_ppm != NOMINAL_RATE_PPM);
        Some(world.after(Duration::from_nanos(nanos.saturating_add(rounding))))
    }

    fn monotonic(&self, world: Moment) -> Moment {
        let passed = u128::from(u64::try_from(world.since(self.set_at).as_nanos()).unwrap_or(u64::MAX));
        let own = passed * u128::from(self.rate_ppm) / u128::from(NOMINAL_RATE_PPM);
        self.reading_at_set.after(Duration::from_nanos(u64::try_from(own).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_correct_clock_shows_the_worlds_time() {
        let clock = WorldClock::correct();
        assert_eq!(clock.now(seconds(7)).monotonic, seconds(7));
        assert_eq!(clock.now(seconds(7)).wall, WALL_ORIGIN + Duration::from_secs(7));
        assert_eq!(clock.after(seconds(7), Duration::from_secs(2)), Some(seconds(9)));
    }

    #[test]
    fn a_clock_runs_at_its_rate_from_its_reading_when_it_is_set() {
        let mut clock = WorldClock::correct();
        clock.set(seconds(10), &ClockConfig::default().rate_ppm(500_000));
        assert_eq!(clock.now(seconds(14)).monotonic, seconds(12));
        clock.set(seconds(14), &ClockConfig::default().step_nanos(-5_000_000_000));
        assert_eq!(clock.now(seconds(15)).monotonic, seconds(8));
        clock.set(seconds(15), &ClockConfig::default().wall_offset_seconds(-3_600));
        let Now { monotonic, wall } = clock.now(seconds(16));
        assert_eq!(monotonic, seconds(9));
        assert_eq!(wall, WALL_ORIGIN + Duration::from_secs(9) - Duration::from_secs(3_600));
    }

    #[test]
    fn a_stopped_clock_never_reaches_a_deadline() {
        let mut clock = WorldClock::correct();
        clock.set(seconds(10), &ClockConfig::default().rate_ppm(0));
        assert_eq!(clock.now(seconds(99)).monotonic, seconds(10));
        assert_eq!(clock.after(seconds(99), Duration::from_nanos(1)), None);
    }

    #[test]
    fn a_wait_by_a_wrong_clock_never_ends_too_early() {
        for rate in [900_000, 999_999, 1_000_001, 1_100_000] {
            let mut clock = WorldClock::correct();
            clock.set(seconds(1), &ClockConfig::default().rate_ppm(rate));
            for nanos in [0, 1, 2, 3, 999, 1_000_000, 123_456_789] {
                let (at, own) = (seconds(5), Duration::from_nanos(nanos));
                let woken = clock.after(at, own).unwrap();
                assert!(clock.now(woken).monotonic >= clock.now(at).monotonic.after(own), "{rate} {nanos}");
            }
        }
    }
}
