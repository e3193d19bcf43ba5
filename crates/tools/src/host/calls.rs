//! The system calls and files below `/proc` that only Linux has.
//!
//! On other systems, every function returns `None`, an error, or an empty value.

pub(crate) use system::drops;
pub(super) use system::pin_current_thread;
pub use system::{allowed_cores, cpu_ticks, current_thread_id, machine};

#[cfg(target_os = "linux")]
mod system {
    use std::collections::BTreeMap;
    use std::io;

    use procfs::process::{Process, Schedstat};
    use procfs::{CpuInfo, Current, CurrentSI, KernelStats, Meminfo};
    use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};

    use super::super::{CpuTicks, ProcessClock, ThreadClock, ThreadSample};
    use crate::report::Machine;
    use crate::table::plain_ascii;

    /// The maximum number of threads of a process that are added up.
    const TASK_LIMIT: usize = 4_096;

    /// The maximum length of the name of a processor, in characters.
    const MODEL_LIMIT: usize = 100;

    /// The kernel's number of the calling thread.
    pub fn current_thread_id() -> Option<u32> {
        u32::try_from(gettid().as_raw_nonzero().get()).ok()
    }

    /// The cores on which the calling thread may run, in ascending order.
    pub fn allowed_cores() -> Option<Vec<usize>> {
        let cores = sched_getaffinity(None).ok()?;
        Some((0..CpuSet::MAX_CPU).filter(|core| cores.is_set(*core)).collect())
    }

    pub(in super::super) fn pin_current_thread(core: usize) -> io::Result<()> {
        if core >= CpuSet::MAX_CPU {
            return Err(io::Error::from(rustix::io::Errno::INVAL));
        }
        let mut cores = CpuSet::new();
        cores.set(core);
        Ok(sched_setaffinity(None, &cores)?)
    }

    impl ThreadClock {
        /// Returns the CPU time that a thread has used so far, or `None` if there is no such thread. `tid` is the kernel's number of
        /// the thread: [`current_thread_id`].
        pub fn sample(tid: u32) -> Option<ThreadSample> {
            let thread = Process::myself().ok()?.task_from_tid(tid.try_into().ok()?).ok()?;
            let stat = thread.stat().ok()?;
            let run_and_delay_ns = thread.schedstat().ok().as_ref().map(run_and_delay);
            Some(ThreadSample::of(stat.utime, stat.stime, run_and_delay_ns))
        }
    }

    impl ProcessClock {
        /// Returns the CPU time that a process has used so far, or `None` if there is no such process.
        pub fn sample(pid: u32) -> Option<ThreadSample> {
            let process = Process::new(pid.try_into().ok()?).ok()?;
            let stat = process.stat().ok()?;
            // A thread may end between the listing and the reading.
            let threads = process.tasks().ok().into_iter().flatten().take(TASK_LIMIT).flatten();
            let times = threads.filter_map(|thread| thread.schedstat().ok().as_ref().map(run_and_delay));
            let run_and_delay_ns =
                times.reduce(|sum, one| (sum.0.saturating_add(one.0), sum.1.saturating_add(one.1)));
            Some(ThreadSample::of(stat.utime, stat.stime, run_and_delay_ns))
        }
    }

    fn run_and_delay(times: &Schedstat) -> (u64, u64) {
        (times.sum_exec_runtime, times.run_delay)
    }

    /// The system's counters of drops, of all interfaces and programs.
    pub(crate) fn drops() -> BTreeMap<String, u64> {
        let mut drops: BTreeMap<String, u64> = BTreeMap::new();
        let mut add = |name: &str, count: u64| {
            let sum = drops.entry(name.to_owned()).or_default();
            *sum = sum.saturating_add(count);
        };
        for interface in procfs::net::dev_status().unwrap_or_default().values() {
            add("rx_dropped", interface.recv_drop);
            add("rx_fifo_errors", interface.recv_fifo);
            add("tx_dropped", interface.sent_drop);
        }
        // UDP counts over IPv4 and over IPv6.
        let v4 = procfs::net::snmp().map(|v4| (v4.udp_in_errors, v4.udp_rcvbuf_errors));
        let v6 = procfs::net::snmp6().map(|v6| (v6.udp_in_errors, v6.udp_rcvbuf_errors));
        for (in_errors, rcvbuf_errors) in v4.into_iter().chain(v6) {
            add("udp_in_errors", in_errors);
            add("udp_rcvbuf_errors", rcvbuf_errors);
        }
        drops
    }

    /// The machine's CPU time since it started, of all cores together.
    pub fn cpu_ticks() -> Option<CpuTicks> {
        let total = KernelStats::current().ok()?.total;
        let steal = total.steal?;
        // The kernel includes the time of guests in `user` and `nice`.
        let parts = [total.user, total.nice, total.system, total.idle, steal];
        let later_parts = [total.iowait, total.irq, total.softirq].into_iter().flatten();
        let total = parts.into_iter().chain(later_parts).fold(0, u64::saturating_add);
        Some(CpuTicks { steal, total })
    }

    /// The processor, cores, kernel, and memory of this machine, as far as they are known.
    pub fn machine() -> Machine {
        let model = CpuInfo::current().ok().and_then(|info| {
            let model: String = info.model_name(0)?.chars().take(MODEL_LIMIT).collect();
            Some(plain_ascii(&model)).filter(|model| !model.is_empty())
        });
        let kernel = super::super::read("/proc/sys/kernel/osrelease").map(|text| text.trim().to_owned());
        Machine {
            cpu: model,
            cores: KernelStats::current().ok().and_then(|stats| stats.cpu_time.len().try_into().ok()),
            kernel: kernel.filter(|release| !release.is_empty()),
            memory_bytes: Meminfo::current().ok().map(|memory| memory.mem_total),
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::collections::BTreeMap;
    use std::io;

    use super::super::{CpuTicks, ProcessClock, ThreadClock, ThreadSample};
    use crate::report::Machine;

    /// The kernel's number of the calling thread; not known on this system.
    pub fn current_thread_id() -> Option<u32> {
        None
    }

    /// The cores on which the calling thread may run; not known on this system.
    pub fn allowed_cores() -> Option<Vec<usize>> {
        None
    }

    pub(in super::super) fn pin_current_thread(_core: usize) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this system does not pin threads"))
    }

    impl ThreadClock {
        /// The CPU time of a thread; not known on this system.
        pub fn sample(_tid: u32) -> Option<ThreadSample> {
            None
        }
    }

    impl ProcessClock {
        /// The CPU time of a process; not known on this system.
        pub fn sample(_pid: u32) -> Option<ThreadSample> {
            None
        }
    }

    /// The system's counters of drops, of all interfaces and programs.
    pub(crate) fn drops() -> BTreeMap<String, u64> {
        BTreeMap::new()
    }

    /// The machine's CPU time; not known on this system.
    pub fn cpu_ticks() -> Option<CpuTicks> {
        None
    }

    /// The machine; not known on this system.
    pub fn machine() -> Machine {
        Machine::default()
    }
}
