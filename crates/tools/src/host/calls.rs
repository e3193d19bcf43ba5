//! The system calls that the tools make beside sockets: thread id, pinning, open files, the length of a tick.
//!
//! This is the one place with conditions on the system: rustix offers thread ids and pinning on Linux alone
//! (and limits on Unix alone), so everywhere else each question is answered with `None` or an error. The
//! measurements that need them read `/proc`, which those systems do not have either.

pub use system::{allowed_cores, current_thread_id, raise_open_files};
pub(super) use system::{pin_current_thread, ticks_per_second};

#[cfg(target_os = "linux")]
mod system {
    use std::io;

    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};

    /// The kernel's number of the calling thread.
    #[must_use]
    pub fn current_thread_id() -> Option<u32> {
        u32::try_from(gettid().as_raw_nonzero().get()).ok()
    }

    /// The cores on which the calling thread may run, in ascending order.
    #[must_use]
    pub fn allowed_cores() -> Option<Vec<usize>> {
        let cores = sched_getaffinity(None).ok()?;
        Some((0..CpuSet::MAX_CPU).filter(|core| cores.is_set(*core)).collect())
    }

    /// Raises the limit of open files to `wanted`, or as far as the system allows.
    ///
    /// It never lowers it. Returns the limit now in force, `u64::MAX` for none.
    #[must_use]
    pub fn raise_open_files(wanted: u64) -> Option<u64> {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let Some(current) = current else { return Some(u64::MAX) };
        let target = maximum.map_or(wanted, |maximum| wanted.min(maximum));
        if target > current && setrlimit(Resource::Nofile, Rlimit { current: Some(target), maximum }).is_ok()
        {
            Some(target)
        } else {
            Some(current)
        }
    }

    pub(in super::super) fn pin_current_thread(core: usize) -> io::Result<()> {
        if core >= CpuSet::MAX_CPU {
            return Err(io::Error::from(rustix::io::Errno::INVAL));
        }
        let mut cores = CpuSet::new();
        cores.set(core);
        Ok(sched_setaffinity(None, &cores)?)
    }

    pub(in super::super) fn ticks_per_second() -> u64 {
        rustix::param::clock_ticks_per_second()
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::io;

    /// The kernel's number of the calling thread; not known on this system.
    #[must_use]
    pub fn current_thread_id() -> Option<u32> {
        None
    }

    /// The cores on which the calling thread may run; not known on this system.
    #[must_use]
    pub fn allowed_cores() -> Option<Vec<usize>> {
        None
    }

    /// The limit of open files is left as it is on this system.
    #[must_use]
    pub fn raise_open_files(_wanted: u64) -> Option<u64> {
        None
    }

    pub(in super::super) fn pin_current_thread(_core: usize) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this system does not pin threads"))
    }

    pub(in super::super) fn ticks_per_second() -> u64 {
        100
    }
}
