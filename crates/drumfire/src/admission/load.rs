//! How busy a worker is: the share of the last second that it spent in passes which did something.
//!
//! Measured by its worker, one clock reading per such pass, and shown to all others in one atomic, once per second. An
//! empty pass is not work: a worker that spins does nothing else. A pass takes longer when others have the core meanwhile,
//! so the share is never more than that of the thread's CPU time, which is asked for once per second; where the platform
//! does not tell it, such passes count whole. What the application does on its own thread is not seen, and neither is a
//! pass that has not ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use drumfire_proto::{Moment, Stats};

use crate::base::clock::{Clock, Reading};

/// How often the share is shown.
const WINDOW: Duration = Duration::from_secs(1);

/// A share that was shown longer ago is that of a worker which had nothing to do since.
const STALE: Duration = Duration::from_secs(2);

/// Bits of the percentage in what is shown; the milliseconds of when stand above.
const PERCENT_BITS: u32 = 8;

/// One worker's share. Only that worker writes.
#[derive(Debug, Default)]
pub(crate) struct LoadMeter {
    window_start_nanos: AtomicU64,
    spent_nanos: AtomicU64,
    /// CPU time of its thread when the window began; 0 = when the thread did.
    cpu_start_nanos: AtomicU64,
    /// Datagrams received and sent until the last pass.
    progress: AtomicU64,
    shown: AtomicU64,
    /// Workers that share its thread with it.
    beside: AtomicU64,
}

impl LoadMeter {
    /// A pass of this worker is over that began at `began` and brought the counters there.
    pub(crate) fn on_pass(&self, began: &Reading, counted: &Stats, clock: &mut dyn Clock) {
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
        let spent = self.cpu_limit(clock).map_or(spent, |limit| spent.min(limit));
        let percent = (u128::from(spent) * 100).checked_div(window.as_nanos()).unwrap_or(0).min(100);
        let millis = end.as_nanos() / 1_000_000;
        let percent = u64::try_from(percent).unwrap_or(100);
        self.shown.store_alone(millis << PERCENT_BITS | percent);
        self.window_start_nanos.store_alone(end.as_nanos());
        self.spent_nanos.store_alone(0);
    }

    /// The most that this worker can have done since this was asked last: its part of what its thread did. `None` where
    /// nobody knows.
    fn cpu_limit(&self, clock: &mut dyn Clock) -> Option<u64> {
        let used = nanos(clock.thread_cpu_time()?);
        let before = self.cpu_start_nanos.swap_alone(used);
        // A clock that went back is another thread's.
        used.checked_sub(before)?.checked_div(self.beside.load_alone().saturating_add(1))
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
    /// The thread may be another than before, whose CPU time tells nothing of this window.
    pub(crate) fn share_thread(&self, workers: usize) {
        self.cpu_start_nanos.store_alone(0);
        self.beside.store_alone(u64::try_from(workers.saturating_sub(1)).unwrap_or(u64::MAX));
    }
}

/// Loads and stores that order nothing: the numbers mean something each for itself.
trait SingleWorker {
    fn load_alone(&self) -> u64;
    fn store_alone(&self, number: u64);

    /// Stores, and answers what was there: in two steps, for a single writer.
    fn swap_alone(&self, number: u64) -> u64 {
        let before = self.load_alone();
        self.store_alone(number);
        before
    }
}

impl SingleWorker for AtomicU64 {
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
        Reading { instant: crate::base::clock::instant(), now }
    }

    /// Shows one time and a CPU time, and panics when it is not to be asked.
    #[derive(Default)]
    struct Shows {
        milliseconds: Option<u64>,
        cpu_milliseconds: Option<u64>,
    }

    impl Clock for Shows {
        fn read(&mut self) -> Reading {
            reading(self.milliseconds.expect("an empty pass reads no clock"))
        }

        fn thread_cpu_time(&mut self) -> Option<Duration> {
            let is_window_over = self.milliseconds.is_some_and(|milliseconds| milliseconds % 1_000 == 0);
            assert!(is_window_over || self.cpu_milliseconds.is_none(), "asked once per window");
            self.cpu_milliseconds.map(Duration::from_millis)
        }
    }

    fn received(datagrams: u64) -> Stats {
        let mut stats = Stats::default();
        stats.datagrams_received = datagrams;
        stats
    }

    /// Passes that do something, from when to when in milliseconds.
    pub(crate) fn passes(busy: &LoadMeter, passes: &[(u64, u64)]) {
        for (began, end) in passes {
            let counted = received(busy.progress.load_alone() + 1);
            busy.on_pass(
                &reading(*began),
                &counted,
                &mut Shows { milliseconds: Some(*end), ..Shows::default() },
            );
        }
    }

    #[test]
    fn the_share_is_that_of_the_last_second_and_shown_when_it_is_over() {
        let busy = LoadMeter::default();
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

    /// Passes that do something, from when to when, with the CPU time of the thread after each.
    fn passes_of_a_thread(busy: &LoadMeter, passes: &[(u64, u64, u64)]) {
        for (began, end, cpu) in passes {
            let counted = received(busy.progress.load_alone() + 1);
            let mut clock = Shows { milliseconds: Some(*end), cpu_milliseconds: Some(*cpu) };
            busy.on_pass(&reading(*began), &counted, &mut clock);
        }
    }

    #[test]
    fn a_pass_in_which_others_had_the_core_counts_by_its_cpu_time() {
        let busy = LoadMeter::default();
        passes_of_a_thread(&busy, &[(0, 950, 300), (990, 1_000, 310)]);
        assert_eq!(busy.percent(at(1_000)), 31, "it had the core for 310 ms of 960 ms in passes");
        passes_of_a_thread(&busy, &[(1_000, 1_900, 1_150), (1_990, 2_000, 1_260)]);
        assert_eq!(busy.percent(at(2_000)), 91, "the rest of its 950 ms went into waiting");
        passes_of_a_thread(&busy, &[(2_000, 2_100, 2_000), (2_999, 3_000, 2_260)]);
        assert_eq!(busy.percent(at(3_000)), 10, "a worker that spins uses all of its core and does little");
    }

    #[test]
    fn workers_of_one_thread_are_together_as_busy_as_its_cpu_time() {
        let busy = LoadMeter::default();
        busy.share_thread(2);
        passes_of_a_thread(&busy, &[(0, 480, 700), (990, 1_000, 800)]);
        assert_eq!(busy.percent(at(1_000)), 80, "not 98, for each of them had 400 ms");
    }

    #[test]
    fn a_worker_that_came_to_another_thread_is_not_held_against_its_cpu_time() {
        for there in [6_100, 20] {
            let busy = LoadMeter::default();
            passes_of_a_thread(&busy, &[(0, 500, 5_000), (999, 1_000, 6_000)]);
            assert_eq!(busy.percent(at(1_000)), 50);
            if there > 6_000 {
                busy.share_thread(1);
            }
            passes_of_a_thread(&busy, &[(1_000, 1_600, there), (1_999, 2_000, there + 10)]);
            assert_eq!(busy.percent(at(2_000)), 60, "{there}");
        }
    }

    #[test]
    fn workers_of_one_thread_have_its_time_together() {
        let busy = LoadMeter::default();
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
        let busy = LoadMeter::default();
        passes(&busy, &[(0, 2_000)]);
        let counted = received(1);
        for began in 2_000..4_000 {
            busy.on_pass(&reading(began), &counted, &mut Shows::default());
        }
        assert_eq!((busy.percent(at(4_000)), busy.percent(at(4_001))), (100, 0));
        passes(&busy, &[(10_000, 10_400)]);
        assert_eq!(busy.percent(at(10_400)), 4, "of more than eight seconds");
    }

    #[test]
    fn a_clock_that_goes_back_makes_nobody_busy() {
        let busy = LoadMeter::default();
        passes(&busy, &[(5_000, 4_000), (u64::MAX / 2_000_000, 1), (3_000, 3_000)]);
        assert_eq!(busy.percent(at(3_000)), 0);
    }
}
