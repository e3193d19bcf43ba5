//! How busy a worker is: the share of the last second that it spent in passes which did something.
//!
//! Measured by its worker, one clock reading per such pass, and shown to all others in one atomic, once per second. An
//! empty pass is not work: a worker that spins does nothing else. What the application does on its own thread is not
//! seen, and neither is a pass that has not ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use drumfire_proto::{Moment, Stats};

use super::{Clock, Reading};

/// How often the share is shown.
const WINDOW: Duration = Duration::from_secs(1);

/// A share that was shown longer ago is that of a worker which had nothing to do since.
const STALE: Duration = Duration::from_secs(2);

/// Bits of the percentage in what is shown; the milliseconds of when stand above.
const PERCENT_BITS: u32 = 8;

/// One worker's share. Only that worker writes.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    window_start_nanos: AtomicU64,
    spent_nanos: AtomicU64,
    /// Datagrams received and sent until the last pass.
    progress: AtomicU64,
    shown: AtomicU64,
    /// Workers that share its thread with it.
    beside: AtomicU64,
}

impl Busy {
    /// A pass of this worker is over that began at `began` and brought the counters there.
    pub(crate) fn on_pass(&self, began: &Reading, counted: &Stats, clock: &mut impl Clock) {
        let progress = counted.datagrams_received.wrapping_add(counted.datagrams_sent);
        if self.progress.swap_alone(progress) == progress {
            return;
        }
        let (began, end) = (began.now.monotonic, clock.read().now.monotonic);
        let spent = self.spent_nanos.load_alone().saturating_add(nanos(end.since(began)));
        let start = Moment::from_nanos(self.window_start_nanos.load_alone());
        let window = end.since(start);
        if window < WINDOW {
            self.spent_nanos.store_alone(spent);
            return;
        }
        let percent = (u128::from(spent) * 100).checked_div(window.as_nanos()).unwrap_or(0).min(100);
        let millis = end.as_nanos() / 1_000_000;
        let percent = u64::try_from(percent).unwrap_or(100);
        self.shown.store_alone(millis << PERCENT_BITS | percent);
        self.window_start_nanos.store_alone(end.as_nanos());
        self.spent_nanos.store_alone(0);
    }

    /// The share of its thread's time, in percent, as far as anybody knows now.
    pub(crate) fn percent(&self, now: Moment) -> u8 {
        let shown = self.shown.load_alone();
        let at = Moment::from_nanos((shown >> PERCENT_BITS).saturating_mul(1_000_000));
        let percent = u8::try_from(shown & ((1 << PERCENT_BITS) - 1)).unwrap_or(u8::MAX);
        if now.since(at) > STALE {
            return 0;
        }
        let on_thread = u64::from(percent).saturating_mul(self.beside.load_alone().saturating_add(1));
        u8::try_from(on_thread.min(100)).unwrap_or(100)
    }

    /// Says how many workers its thread has. They are taken to be as busy as this one: new players go to the least loaded.
    pub(crate) fn share_thread(&self, workers: usize) {
        self.beside.store_alone(u64::try_from(workers.saturating_sub(1)).unwrap_or(u64::MAX));
    }
}

/// Loads and stores that order nothing: the numbers mean something each for itself.
trait Alone {
    fn load_alone(&self) -> u64;
    fn store_alone(&self, number: u64);

    /// Stores, and answers what was there: in two steps, for a single writer.
    fn swap_alone(&self, number: u64) -> u64 {
        let before = self.load_alone();
        self.store_alone(number);
        before
    }
}

impl Alone for AtomicU64 {
    fn load_alone(&self) -> u64 {
        self.load(Ordering::Relaxed)
    }

    fn store_alone(&self, number: u64) {
        self.store(number, Ordering::Relaxed);
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use drumfire_proto::Now;

    fn at(milliseconds: u64) -> Moment {
        Moment::ORIGIN.after(Duration::from_millis(milliseconds))
    }

    fn reading(milliseconds: u64) -> Reading {
        let now = Now { monotonic: at(milliseconds), wall: Duration::ZERO };
        Reading { instant: crate::clock::instant(), now }
    }

    /// Shows one time, and panics when it is not to be asked.
    struct Shows(Option<u64>);

    impl Clock for Shows {
        fn read(&mut self) -> Reading {
            reading(self.0.expect("an empty pass reads no clock"))
        }
    }

    fn received(datagrams: u64) -> Stats {
        let mut stats = Stats::default();
        stats.datagrams_received = datagrams;
        stats
    }

    /// Passes that do something, from when to when in milliseconds.
    pub(crate) fn passes(busy: &Busy, passes: &[(u64, u64)]) {
        for (began, end) in passes {
            let counted = received(busy.progress.load_alone() + 1);
            busy.on_pass(&reading(*began), &counted, &mut Shows(Some(*end)));
        }
    }

    #[test]
    fn the_share_is_that_of_the_last_second_and_shown_when_it_is_over() {
        let busy = Busy::default();
        passes(&busy, &[(0, 500), (500, 900)]);
        assert_eq!(busy.percent(at(900)), 0, "the first second is not over");
        passes(&busy, &[(990, 1_000)]);
        assert_eq!(busy.percent(at(1_000)), 91);
        passes(&busy, &[(1_000, 1_300), (1_900, 1_999)]);
        assert_eq!(busy.percent(at(1_999)), 91);
        passes(&busy, &[(1_999, 2_000)]);
        assert_eq!(busy.percent(at(2_000)), 40);
        passes(&busy, &[(2_000, 5_000)]);
        assert_eq!(busy.percent(at(5_000)), 100);
    }

    #[test]
    fn workers_of_one_thread_have_its_time_together() {
        let busy = Busy::default();
        passes(&busy, &[(0, 300), (1_000, 1_001)]);
        assert_eq!(busy.percent(at(1_001)), 30);
        busy.share_thread(3);
        assert_eq!(busy.percent(at(1_001)), 90);
        busy.share_thread(4);
        assert_eq!(busy.percent(at(1_001)), 100);
        busy.share_thread(1);
        assert_eq!(busy.percent(at(1_001)), 30);
    }

    #[test]
    fn a_worker_without_work_is_not_busy_whatever_it_was_before() {
        let busy = Busy::default();
        passes(&busy, &[(0, 2_000)]);
        let counted = received(1);
        for began in 2_000..4_000 {
            busy.on_pass(&reading(began), &counted, &mut Shows(None));
        }
        assert_eq!((busy.percent(at(4_000)), busy.percent(at(4_001))), (100, 0));
        passes(&busy, &[(10_000, 10_400)]);
        assert_eq!(busy.percent(at(10_400)), 4, "of more than eight seconds");
    }

    #[test]
    fn a_clock_that_goes_back_makes_nobody_busy() {
        let busy = Busy::default();
        passes(&busy, &[(5_000, 4_000), (u64::MAX / 2_000_000, 1), (3_000, 3_000)]);
        assert_eq!(busy.percent(at(3_000)), 0);
    }
}
