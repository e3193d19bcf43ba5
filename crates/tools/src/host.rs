//! The machine, its drops of datagrams, and the CPU time of threads and processes.
//!
//! The facts come from `/proc` and `/sys`. An unknown fact is `None`, never zero. On other systems than Linux, all
//! facts are unknown. Only [`pin_current_thread`] and [`raise_open_files`] change anything. This module reads no clock
//! and does not wait: a caller takes one sample at each end of a window.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod calls;

use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) use calls::drops;
pub use calls::{allowed_cores, cpu_ticks, current_thread_id, machine};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::error::Error;
use crate::report::CpuTime;

/// CPU time of all cores together, in clock ticks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CpuTicks {
    /// Time that the host of this virtual machine gave to others.
    pub steal: u64,
    /// All time, including idle and stolen time.
    pub total: u64,
}

impl CpuTicks {
    /// The share of the time since `earlier` that was stolen, 0 to 1. `None` if no tick has passed.
    pub fn steal_share_since(&self, earlier: &Self) -> Option<f64> {
        let total = self.total.checked_sub(earlier.total).filter(|total| *total > 0)?;
        Some(self.steal.checked_sub(earlier.steal)? as f64 / total as f64)
    }
}

/// The idle driver of the cores and, in a guest, how long it polls before it sleeps. A core that sleeps immediately is slow to
/// wake, which makes every wait longer.
pub fn idle() -> Option<String> {
    let driver = read("/sys/devices/system/cpu/cpuidle/current_driver")?;
    let polls = read("/sys/module/haltpoll/parameters/guest_halt_poll_ns");
    let polls = polls.map_or_else(String::new, |nanos| format!(", guest_halt_poll_ns {}", nanos.trim()));
    Some(format!("{}{polls}", driver.trim()))
}

/// The id of the running kernel, which all its processes and namespaces share. Empty if it is not known.
pub fn kernel_id() -> String {
    read("/proc/sys/kernel/random/boot_id").map_or_else(String::new, |text| text.trim().to_owned())
}

/// Returns the growth of each counter that was read both times; 0 for a counter that was reset.
pub(crate) fn growth(before: &BTreeMap<String, u64>, now: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let both = now.into_iter().filter_map(|(name, now)| Some((before.get(&name)?, name, now)));
    both.map(|(then, name, now)| (name, now.saturating_sub(*then))).collect()
}

/// CPU time of a thread or a process since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThreadSample {
    /// Time on a core, in nanoseconds.
    pub run_ns: u64,
    /// Time ready to run but without a core, in nanoseconds; absent if the kernel does not count it.
    pub run_delay_ns: Option<u64>,
    /// The part of `run_ns` in the program, in seconds.
    pub user_s: f64,
    /// The part of `run_ns` in the kernel, in seconds.
    pub sys_s: f64,
}

impl ThreadSample {
    /// The CPU time between an earlier sample and this one.
    ///
    /// The kernel counts the split in ticks of a few milliseconds, the sum in nanoseconds: the split of the
    /// difference is scaled so that both parts together are `run_ns`.
    pub fn since(&self, earlier: &Self) -> Self {
        let run_ns = self.run_ns.saturating_sub(earlier.run_ns);
        let delays = self.run_delay_ns.zip(earlier.run_delay_ns);
        Self::split(
            run_ns,
            delays.map(|(now, then)| now.saturating_sub(then)),
            (self.user_s - earlier.user_s).max(0.0),
            (self.sys_s - earlier.sys_s).max(0.0),
        )
    }

    /// The two parts, as a report has them.
    pub fn cpu_time(&self) -> CpuTime {
        CpuTime { user_s: self.user_s, sys_s: self.sys_s }
    }

    /// Share of `window` that was spent waiting for a core, 0 to 1 for one thread.
    pub fn run_delay_share(&self, window: Duration) -> Option<f64> {
        let share = self.run_delay_ns? as f64 / (window.as_secs_f64() * 1e9);
        share.is_finite().then_some(share)
    }

    /// Makes a sample from the ticks in the program and in the kernel, and from the time on a core and without one in nanoseconds.
    fn of(user_ticks: u64, sys_ticks: u64, run_and_delay_ns: Option<(u64, u64)>) -> Self {
        let tick_ns = 1_000_000_000_u64.checked_div(rustix::param::clock_ticks_per_second()).unwrap_or(0);
        let by_ticks_ns = user_ticks.saturating_add(sys_ticks).saturating_mul(tick_ns);
        let run_ns = run_and_delay_ns.map_or(by_ticks_ns, |(run_ns, _)| run_ns.max(by_ticks_ns));
        let run_delay_ns = run_and_delay_ns.map(|(_, run_delay_ns)| run_delay_ns);
        Self::split(run_ns, run_delay_ns, user_ticks as f64, sys_ticks as f64)
    }

    /// Scales a coarse split to an exact sum. Before the first tick all time counts as the program's, as in the kernel.
    fn split(run_ns: u64, run_delay_ns: Option<u64>, user: f64, sys: f64) -> Self {
        let run_s = run_ns as f64 / 1e9;
        let user_share = if user + sys > 0.0 { user / (user + sys) } else { 1.0 };
        let user_s = run_s * user_share;
        Self { run_ns, run_delay_ns, user_s, sys_s: run_s - user_s }
    }
}

/// The CPU clock of a thread of this process.
///
/// The kernel brings the clock of a running thread forward at each tick and at each switch, so a sample may be one tick (1 to
/// 10 ms) behind.
#[derive(Clone, Copy, Debug)]
pub struct ThreadClock;

/// The CPU clock of a whole process.
///
/// `run_ns` is the sum over its running threads (the first 4,096), unless the ticks are more: they include threads that have
/// ended. `run_delay_ns` includes running threads only.
#[derive(Clone, Copy, Debug)]
pub struct ProcessClock;

/// Restricts the calling thread to one core.
///
/// `core` is a number from [`allowed_cores`].
///
/// # Errors
/// [`Error::Usage`], one line that names the core, when the process may not use it or there is none, and on
/// systems that do not pin threads.
pub fn pin_current_thread(core: usize) -> Result<(), Error> {
    let pinned = calls::pin_current_thread(core);
    pinned.map_err(|error| Error::Usage(format!("cannot pin a thread to core {core}: {error}")))
}

/// Raises the limit of open files to `wanted`, or as far as the system allows.
///
/// It never lowers the limit. Returns the limit now in force, `u64::MAX` for none.
pub fn raise_open_files(wanted: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(current) = current else { return u64::MAX };
    let target = maximum.map_or(wanted, |maximum| wanted.min(maximum));
    let is_raised =
        target > current && setrlimit(Resource::Nofile, Rlimit { current: Some(target), maximum }).is_ok();
    if is_raised { target } else { current }
}

/// A file as text; `None` if it cannot be read.
fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
mod tests {
    use super::*;

    #[test]
    fn the_stolen_share_is_of_the_time_between_two_samples() {
        let earlier = CpuTicks { steal: 10, total: 1_000 };
        let later = CpuTicks { steal: 15, total: 2_000 };
        assert_eq!(later.steal_share_since(&earlier), Some(0.005));
        assert_eq!((earlier.steal_share_since(&earlier), earlier.steal_share_since(&later)), (None, None));
    }

    #[test]
    fn ticks_split_the_exact_time_or_replace_it() {
        const TICK_NS: u64 = 10_000_000;
        let times = |user_ticks, sys_ticks, run_and_delay_ns| {
            let ThreadSample { run_ns, run_delay_ns, user_s, sys_s } =
                ThreadSample::of(user_ticks, sys_ticks, run_and_delay_ns);
            (run_ns, run_delay_ns, user_s, sys_s)
        };
        assert_eq!(times(1, 3, Some((40_000_000_000, 5))), (40_000_000_000, Some(5), 10.0, 30.0));
        assert_eq!(times(0, 0, Some((1_000, 0))), (1_000, Some(0), 1e-6, 0.0), "before the first tick");
        assert_eq!(times(50, 150, None), (200 * TICK_NS, None, 0.5, 1.5), "without the exact clock");
        assert_eq!(times(100, 0, Some((TICK_NS, 0))).0, 100 * TICK_NS, "threads that have ended");
    }

    #[test]
    fn samples_are_subtracted() {
        let earlier =
            ThreadSample { run_ns: 1_000_000_000, run_delay_ns: Some(10), user_s: 0.75, sys_s: 0.25 };
        let later = ThreadSample { run_ns: 3_000_000_000, run_delay_ns: Some(30), user_s: 1.25, sys_s: 1.75 };
        let used = ThreadSample { run_ns: 2_000_000_000, run_delay_ns: Some(20), user_s: 0.5, sys_s: 1.5 };
        assert_eq!(later.since(&earlier), used);
        assert_eq!(
            ThreadSample::default().since(&earlier),
            ThreadSample::default(),
            "a clock that went back"
        );
        let waited = ThreadSample { run_delay_ns: Some(30_000_000), ..ThreadSample::default() };
        assert_eq!(waited.run_delay_share(Duration::from_secs(1)), Some(0.03));
        assert_eq!(waited.run_delay_share(Duration::ZERO), None);
    }

    #[test]
    fn this_machine_thread_and_process_are_known_on_linux() {
        assert_eq!((ThreadClock::sample(u32::MAX), ProcessClock::sample(u32::MAX)), (None, None));
        let Some(tid) = current_thread_id() else { return };
        let mut thread = ThreadClock::sample(tid).unwrap();
        // The kernel updates the clock of a running thread at a tick, or when the thread gives up its core.
        for _ in 0..1_000_000 {
            if thread.run_ns > 0 {
                break;
            }
            std::thread::yield_now();
            thread = ThreadClock::sample(tid).unwrap();
        }
        assert!(thread.run_ns > 0);
        let process = ProcessClock::sample(std::process::id()).unwrap();
        assert!(process.run_ns >= thread.run_ns, "the process has this thread and others");
        assert!((thread.user_s + thread.sys_s - thread.run_ns as f64 / 1e9).abs() < 1e-9);
        let machine = machine();
        assert!(machine.cores.is_some_and(|cores| cores > 0) && machine.kernel.is_some());
        assert!(machine.memory_bytes.is_some_and(|bytes| bytes > 1 << 20));
        assert!(cpu_ticks().is_some_and(|ticks| ticks.total >= ticks.steal));
    }

    #[test]
    fn a_counter_that_was_reset_did_not_grow() {
        let counts = |counts: &[(&str, u64)]| -> BTreeMap<String, u64> {
            counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
        };
        let before = counts(&[("a", 5), ("b", 9), ("gone", 1)]);
        assert_eq!(growth(&before, counts(&[("a", 7), ("b", 3), ("new", 1)])), counts(&[("a", 2), ("b", 0)]));
        let found = drops();
        if current_thread_id().is_some() {
            let names = ["rx_dropped", "rx_fifo_errors", "tx_dropped", "udp_in_errors", "udp_rcvbuf_errors"];
            assert!(names.iter().all(|name| found.contains_key(*name)), "{found:?}");
        }
    }

    #[test]
    fn a_thread_is_pinned_to_a_core_that_it_may_use() {
        for core in [1_023, 1_024, usize::MAX] {
            let text = pin_current_thread(core).unwrap_err().to_string();
            assert!(text.starts_with(&format!("cannot pin a thread to core {core}: ")), "{text}");
        }
        let Some(cores) = allowed_cores() else { return };
        let last = *cores.last().unwrap();
        // The pinning ends with the thread.
        let pinned = std::thread::spawn(move || (pin_current_thread(last).is_ok(), allowed_cores()));
        assert_eq!(pinned.join().unwrap(), (true, Some(vec![last])));
    }

    #[test]
    fn the_limit_of_open_files_is_never_lowered() {
        let before = raise_open_files(0);
        assert!([before, 1].into_iter().all(|wanted| raise_open_files(wanted) >= before));
    }
}
