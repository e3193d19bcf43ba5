//! The load of a worker: the share of the last second that it spent in passes that sent or received datagrams.
//!
//! Each worker measures its own load, with one clock reading per such pass. It publishes the load once per second in an atomic.
//! Empty passes do not count, because a worker that spins makes them all the time.
//!
//! A pass takes longer when other threads use the core. The CPU time of the thread, read once per second, therefore limits the
//! load. On platforms without such a clock, passes count with their full duration.
//!
//! The load does not include the application's own work on its thread, or a pass that has not ended.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use drumfire_proto::{Moment, Stats};

use crate::base::clock::Clock;

/// The interval at which the load is published, in nanoseconds.
const WINDOW_NANOS: u64 = 1_000_000_000;

/// The age at which a published load expires. A worker that publishes nothing in this time is idle.
const STALE: Duration = Duration::from_secs(2);

/// The number of low bits of `LoadMeter::published` that contain the percentage. The higher bits contain the time in milliseconds.
const PERCENT_BITS: u32 = 8;

/// The load of one worker. Only the thread of the worker writes it, and all threads may read it. Each number is valid by itself, so the
/// accesses need no ordering.
#[derive(Debug, Default)]
pub(crate) struct LoadMeter {
    /// The start of the current window, in nanoseconds of the monotonic clock.
    window_start_nanos: AtomicU64,
    /// The time spent in passes with datagrams since then, in nanoseconds.
    spent_nanos: AtomicU64,
    /// The CPU time of the thread at the start of the window, in nanoseconds. 0 counts all CPU time since the thread started.
    cpu_start_nanos: AtomicU64,
    /// The number of datagrams received and sent up to the last pass.
    progress: AtomicU64,
    /// The published load and its time. See [`PERCENT_BITS`].
    published: AtomicU64,
    /// The number of other workers on the same thread.
    other_workers: AtomicU64,
    /// Whether the worker has ended. An idle worker publishes nothing, so the load does not show that.
    has_ended: AtomicBool,
}

impl LoadMeter {
    /// Records a pass that started at `began` and ended now. `counted` has the counters of the worker after the pass.
    pub(crate) fn on_pass(&self, began: Moment, counted: &Stats, clock: &mut dyn Clock) {
        let progress = counted.datagrams_received.wrapping_add(counted.datagrams_sent);
        if self.progress.load(Relaxed) == progress {
            return;
        }
        self.progress.store(progress, Relaxed);
        let (began, end) = (began.as_nanos(), clock.monotonic().as_nanos());
        let spent = self.spent_nanos.load(Relaxed).saturating_add(end.saturating_sub(began));
        let window = end.saturating_sub(self.window_start_nanos.load(Relaxed));
        if window < WINDOW_NANOS {
            self.spent_nanos.store(spent, Relaxed);
            return;
        }
        let spent = self.cpu_limit(clock).map_or(spent, |limit| spent.min(limit));
        // A window ends with a pass, so it can be much longer than `WINDOW_NANOS`.
        let percent = u128::from(spent) * 100 / u128::from(window);
        let percent = u64::try_from(percent.min(100)).unwrap_or(100);
        self.published.store((end / 1_000_000) << PERCENT_BITS | percent, Relaxed);
        self.window_start_nanos.store(end, Relaxed);
        self.spent_nanos.store(0, Relaxed);
    }

    /// Returns the CPU time that this worker can have used since the last call, in nanoseconds: an equal part of the CPU time of
    /// its thread. `None` if it is unknown.
    fn cpu_limit(&self, clock: &mut dyn Clock) -> Option<u64> {
        let used = nanos(clock.thread_cpu_time()?);
        // Only this thread writes, so the inline path needs no atomic read-modify-write.
        let before = self.cpu_start_nanos.load(Relaxed);
        self.cpu_start_nanos.store(used, Relaxed);
        // A smaller value comes from another thread, because the CPU time of one thread never decreases.
        used.checked_sub(before)?.checked_div(self.other_workers.load(Relaxed).saturating_add(1))
    }

    /// Returns the load of the worker's thread in percent, from 0 to 100. All workers of the thread count like this one.
    pub(crate) fn percent(&self, now: Moment) -> u8 {
        let published = self.published.load(Relaxed);
        let at = Moment::from_nanos((published >> PERCENT_BITS).saturating_mul(1_000_000));
        let percent = u8::try_from(published & ((1 << PERCENT_BITS) - 1)).unwrap_or(u8::MAX);
        if now.since(at) > STALE {
            return 0;
        }
        let on_thread = u64::from(percent).saturating_mul(self.other_workers.load(Relaxed).saturating_add(1));
        u8::try_from(on_thread.min(100)).unwrap_or(100)
    }

    /// Marks the worker as ended.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Release);
    }

    /// Whether the worker has ended, so that it takes no connections and no commands.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Acquire)
    }

    /// Sets the number of workers on the thread of this one.
    pub(crate) fn share_thread(&self, workers: usize) {
        // The worker may have moved to another thread, and the CPU time of the old thread does not apply to it.
        self.cpu_start_nanos.store(0, Relaxed);
        // The other workers are assumed to be equally busy, because new connections go to the least loaded worker.
        self.other_workers.store(u64::try_from(workers.saturating_sub(1)).unwrap_or(u64::MAX), Relaxed);
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

    /// A clock with fixed readings, which panics if it is read at the wrong time.
    #[derive(Default)]
    struct FixedClock {
        milliseconds: Option<u64>,
        cpu_milliseconds: Option<u64>,
    }

    impl Clock for FixedClock {
        fn read(&mut self) -> Now {
            let milliseconds = self.milliseconds.expect("an empty pass reads no clock");
            Now { monotonic: at(milliseconds), wall: Duration::ZERO }
        }

        fn thread_cpu_time(&mut self) -> Option<Duration> {
            let is_window_over = self.milliseconds.is_some_and(|milliseconds| milliseconds % 1_000 == 0);
            assert!(
                is_window_over || self.cpu_milliseconds.is_none(),
                "the CPU time is read once per window"
            );
            self.cpu_milliseconds.map(Duration::from_millis)
        }
    }

    fn received(datagrams: u64) -> Stats {
        let mut stats = Stats::default();
        stats.datagrams_received = datagrams;
        stats
    }

    /// Records passes with datagrams. Each has a start and an end in milliseconds.
    pub(crate) fn passes(busy: &LoadMeter, passes: &[(u64, u64)]) {
        for (began, end) in passes {
            let counted = received(busy.progress.load(Relaxed) + 1);
            busy.on_pass(
                at(*began),
                &counted,
                &mut FixedClock { milliseconds: Some(*end), ..FixedClock::default() },
            );
        }
    }

    #[test]
    fn the_load_covers_the_last_second_and_is_published_at_its_end() {
        let busy = LoadMeter::default();
        passes(&busy, &[(0, 500), (500, 900)]);
        assert_eq!(busy.percent(at(900)), 0, "the load is published after a second");
        passes(&busy, &[(990, 1_000)]);
        assert_eq!(busy.percent(at(1_000)), 91);
        passes(&busy, &[(1_000, 1_300), (1_900, 1_999)]);
        assert_eq!(busy.percent(at(1_999)), 91);
        passes(&busy, &[(1_999, 2_000)]);
        assert_eq!(busy.percent(at(2_000)), 40);
        passes(&busy, &[(2_000, 5_000)]);
        assert_eq!(busy.percent(at(5_000)), 100);
    }

    /// Records passes with datagrams. Each has a start, an end, and the CPU time of the thread after it, in milliseconds.
    fn passes_of_a_thread(busy: &LoadMeter, passes: &[(u64, u64, u64)]) {
        for (began, end, cpu) in passes {
            let counted = received(busy.progress.load(Relaxed) + 1);
            let mut clock = FixedClock { milliseconds: Some(*end), cpu_milliseconds: Some(*cpu) };
            busy.on_pass(at(*began), &counted, &mut clock);
        }
    }

    #[test]
    fn the_cpu_time_limits_passes_that_other_threads_interrupt() {
        let busy = LoadMeter::default();
        passes_of_a_thread(&busy, &[(0, 950, 300), (990, 1_000, 310)]);
        assert_eq!(busy.percent(at(1_000)), 31, "passes took 960 ms, with 310 ms of CPU time");
        passes_of_a_thread(&busy, &[(1_000, 1_900, 1_150), (1_990, 2_000, 1_260)]);
        assert_eq!(busy.percent(at(2_000)), 91, "of 950 ms of CPU time, passes took 910 ms");
        passes_of_a_thread(&busy, &[(2_000, 2_100, 2_000), (2_999, 3_000, 2_260)]);
        assert_eq!(
            busy.percent(at(3_000)),
            10,
            "a worker that spins uses 1,000 ms of CPU time, and passes took 101 ms"
        );
    }

    #[test]
    fn cpu_time_limits_the_total_load_of_the_workers_of_a_thread() {
        let busy = LoadMeter::default();
        busy.share_thread(2);
        passes_of_a_thread(&busy, &[(0, 480, 700), (990, 1_000, 800)]);
        assert_eq!(
            busy.percent(at(1_000)),
            80,
            "each of two workers can have used 400 ms, so the load is not 98"
        );
    }

    #[test]
    fn cpu_time_of_the_old_thread_does_not_limit_a_moved_worker() {
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
    fn the_load_of_a_thread_is_that_of_all_its_workers() {
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
    fn the_load_of_an_idle_worker_expires() {
        let busy = LoadMeter::default();
        passes(&busy, &[(0, 2_000)]);
        let counted = received(1);
        for began in 2_000..4_000 {
            busy.on_pass(at(began), &counted, &mut FixedClock::default());
        }
        assert_eq!((busy.percent(at(4_000)), busy.percent(at(4_001))), (100, 0));
        passes(&busy, &[(10_000, 10_400)]);
        assert_eq!(busy.percent(at(10_400)), 4, "passes took 400 ms of a window of 8.4 s");
    }

    #[test]
    fn a_clock_that_goes_back_adds_no_load() {
        let busy = LoadMeter::default();
        passes(&busy, &[(5_000, 4_000), (u64::MAX / 2_000_000, 1), (3_000, 3_000)]);
        assert_eq!(busy.percent(at(3_000)), 0);
    }
}
