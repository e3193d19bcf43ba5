//! The number of threads and sockets of a server.

use std::num::NonZeroU16;

use drumfire_socket::ReuseportGroup;

/// The threads that do the work of a server.
///
/// On Linux, no other process can share the port of a server with one socket. (On Windows, a process of the same user can, and the
/// server does not notice.) Several sockets share the port, and other processes of the same user can join them. The server then prints
/// a line on standard error and counts them in [`Stats::foreign_sockets`](crate::stats::Stats::foreign_sockets). Run each server as a
/// user of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case", deny_unknown_fields))]
pub enum Workers {
    /// No threads: `poll` and `flush` do the work. This suits a match that needs up to half a core.
    ///
    /// Call `poll` at least ten times per second. Without these calls the server receives nothing, and clients end their
    /// connections after [`unacknowledged_timeout`](crate::ServerConfig::unacknowledged_timeout), 10 s by default. A server that
    /// loads for longer needs a thread: [`Workers::Count`].
    Inline,
    /// This number of threads, 1 to 1,024, with a socket each. The only valid count is 1 on platforms without shared ports.
    Count(u16),
    /// More sockets than threads, so that [`Control::set_threads`](crate::Control::set_threads) can add threads while clients play. On
    /// platforms without shared ports, the server has one socket and one thread, and prints a line on standard error.
    Shards {
        /// The number of sockets, 1 to 1,024. It does not change, and the work of one socket is never divided. Choose the maximum number of
        /// threads that you may ever need, or a multiple of it.
        sockets: u16,
        /// The number of threads at the start, 1 to `sockets`.
        threads: u16,
    },
    /// One thread for each core that the process may use, by the CPU quota of its cgroup and its affinity. If that is one core, the
    /// server has no threads, like [`Workers::Inline`].
    Auto,
}

/// The file in which Linux shows the CPU quota of a container's cgroup.
const QUOTA_FILE: &str = "/sys/fs/cgroup/cpu.max";

/// The numbers of sockets and threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadCounts {
    pub(crate) sockets: NonZeroU16,
    /// `None` if the application's calls do the work.
    pub(crate) threads: Option<NonZeroU16>,
}

impl Workers {
    /// Checks the numbers of sockets and threads. The error is the reason why a number cannot be used.
    pub(crate) const fn check(self) -> Result<(), &'static str> {
        match self {
            Self::Count(count) => check_count(count as usize),
            Self::Shards { sockets: 0 | 1_025.., .. } => Err("sockets are 1 to 1024"),
            Self::Shards { sockets, threads } if threads == 0 || threads > sockets => {
                Err("threads are 1 to the number of sockets; use Inline for no thread")
            }
            _ => Ok(()),
        }
    }

    /// Returns the numbers of sockets and threads. [`Workers::check`] has passed.
    pub(crate) fn counts(self) -> ThreadCounts {
        let threads = match self {
            Self::Inline => None,
            Self::Count(count) => NonZeroU16::new(count),
            Self::Shards { sockets, threads } => {
                return shards(sockets, threads, ReuseportGroup::MAX_SOCKETS);
            }
            Self::Auto => {
                let quota = std::fs::read_to_string(QUOTA_FILE).ok().and_then(|text| cores(&text));
                let available = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
                threads_for(quota, available)
            }
        };
        ThreadCounts { sockets: threads.unwrap_or(NonZeroU16::MIN), threads }
    }
}

/// Checks a number of threads with a socket each. Some platforms do not support several sockets on one port.
const fn check_count(count: usize) -> Result<(), &'static str> {
    const MOST: usize = ReuseportGroup::MAX_SOCKETS;
    match count {
        1..=MOST => Ok(()),
        2.. if MOST == 1 => Err(
            "several sockets cannot share a port on this platform: a count is 1; use Inline for no thread",
        ),
        _ => Err("a count is 1 to 1024; use Inline for no thread"),
    }
}

/// Limits the sockets to `max`, the number that can share a port.
fn shards(sockets: u16, threads: u16, max: usize) -> ThreadCounts {
    let granted = u16::try_from(max).map_or(sockets, |max| sockets.min(max));
    if granted < sockets {
        eprintln!(
            "drumfire: several sockets cannot share a port on this platform: {granted} socket instead of {sockets}, and one thread"
        );
    }
    let sockets = NonZeroU16::new(granted).unwrap_or(NonZeroU16::MIN);
    let threads = NonZeroU16::new(threads.min(granted)).unwrap_or(NonZeroU16::MIN);
    ThreadCounts { sockets, threads: Some(threads) }
}

/// Returns the number of threads for a CPU quota and the cores that the process may use. `None` for one core.
fn threads_for(quota: Option<usize>, available: usize) -> Option<NonZeroU16> {
    let max = ReuseportGroup::MAX_SOCKETS;
    let cores = quota.unwrap_or(available).min(available).min(max);
    u16::try_from(cores).ok().filter(|cores| *cores > 1).and_then(NonZeroU16::new)
}

/// Returns the whole cores of a quota in the kernel's format: microseconds of CPU, or `max`, and the period. The fraction of a core
/// that is left is for the application's thread.
fn cores(quota: &str) -> Option<usize> {
    let (quota, period) = quota.trim().split_once(' ')?;
    let (quota, period): (usize, usize) = (quota.parse().ok()?, period.parse().ok()?);
    quota.checked_div(period).map(|cores| cores.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_whole_cores_and_at_least_one() {
        for (text, wanted) in [
            ("max 100000\n", None),
            ("50000 100000\n", Some(1)),
            ("199999 100000", Some(1)),
            ("200000 100000", Some(2)),
            ("1600000 100000", Some(16)),
            ("100000 0", None),
            ("", None),
            ("x y", None),
        ] {
            assert_eq!(cores(text), wanted, "{text}");
        }
    }

    #[test]
    fn one_core_needs_no_thread_and_the_smaller_grant_counts() {
        let threads = |quota, available| threads_for(quota, available).map(NonZeroU16::get);
        assert_eq!(threads(None, 1), None);
        assert_eq!(threads(Some(1), 64), None);
        assert_eq!(threads(Some(8), 1), None);
        if ReuseportGroup::MAX_SOCKETS > 1 {
            assert_eq!(threads(None, 2), Some(2));
            assert_eq!(threads(Some(3), 64), Some(3));
            assert_eq!(threads(Some(64), 4), Some(4));
        }
    }

    #[test]
    fn there_is_one_shard_if_ports_cannot_be_shared() {
        let numbers = |counts: ThreadCounts| (counts.sockets.get(), counts.threads.map(NonZeroU16::get));
        assert_eq!(numbers(shards(16, 4, 1_024)), (16, Some(4)));
        assert_eq!(numbers(shards(16, 4, 1)), (1, Some(1)));
    }
}
