//! How many threads receive, and what the machine grants.

use std::num::NonZeroU16;

use drumfire_socket::ReuseportGroup;

/// How a server does its work.
///
/// A server with one socket has its port alone: Linux lets nobody join. (Windows lets a process of the same user in that asks
/// for it, and tells nobody.) Several sockets share the port, and whoever runs as the same user can come to them:
/// [`Stats::foreign_sockets`](crate::stats::Stats::foreign_sockets) tells, and a line on standard error. Run each server under a user
/// of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// No thread: `poll` and `flush` do the work. For a match that fits half a core.
    ///
    /// Call `poll` at least ten times per second. Without these calls the server receives nothing, and clients end their
    /// connections after [`unacknowledged_timeout`](crate::ServerConfig::unacknowledged_timeout), 10 s by default. A server that
    /// loads for longer needs a thread: [`Workers::Count`].
    Inline,
    /// This many threads, 1 to 1,024 (one, where the platform shares no port), with a socket each.
    Count(u16),
    /// More sockets than threads, so that there can be [more threads](crate::Control::set_threads) while clients play. Where
    /// the platform shares no port it is one socket and one thread, and a line on standard error says so.
    Shards {
        /// How many sockets, and workers, as long as the server lives: 1 to 1,024. Take as many as there may ever be
        /// threads, or a multiple of it: the work of one is never divided.
        sockets: u16,
        /// How many threads to begin with, 1 to as many as there are sockets.
        threads: u16,
    },
    /// As many threads as the process may use cores, by the CPU quota of its cgroup and its affinity; none where
    /// that is one core, as with [`Workers::Inline`].
    Auto,
}

/// Where Linux shows the quota of the cgroup a container runs in.
const QUOTA_FILE: &str = "/sys/fs/cgroup/cpu.max";

/// Sockets, and who serves them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadCounts {
    pub(crate) sockets: NonZeroU16,
    /// `None` = the application, by its calls.
    pub(crate) threads: Option<NonZeroU16>,
}

impl Workers {
    /// Refuses numbers that no platform has; answers what is wrong.
    pub(crate) const fn check(self) -> Result<(), &'static str> {
        match self {
            Self::Count(count) => check_count(count as usize),
            Self::Shards { sockets: 0 | 1_025.., .. } => Err("sockets are 1 to 1024"),
            Self::Shards { sockets, threads } if threads == 0 || threads > sockets => {
                Err("threads are 1 to as many as there are sockets; take Inline for no thread")
            }
            _ => Ok(()),
        }
    }

    /// How many sockets and threads, of numbers that were checked.
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
                threads_of(quota, available)
            }
        };
        ThreadCounts { sockets: threads.unwrap_or(NonZeroU16::MIN), threads }
    }
}

/// A socket for each thread is more than some platforms have.
const fn check_count(count: usize) -> Result<(), &'static str> {
    const MOST: usize = ReuseportGroup::MAX_SOCKETS;
    match count {
        1..=MOST => Ok(()),
        2.. if MOST == 1 => Err("this platform shares no port: a count is 1; take Inline for no thread"),
        _ => Err("a count is 1 to 1024; take Inline for no thread"),
    }
}

/// As many as the platform shares a port between.
fn shards(sockets: u16, threads: u16, most: usize) -> ThreadCounts {
    let granted = u16::try_from(most).map_or(sockets, |most| sockets.min(most));
    if granted < sockets {
        eprintln!(
            "drumfire: this platform shares no port: {granted} socket instead of {sockets}, and one thread"
        );
    }
    let sockets = NonZeroU16::new(granted).unwrap_or(NonZeroU16::MIN);
    let threads = NonZeroU16::new(threads.min(granted)).unwrap_or(NonZeroU16::MIN);
    ThreadCounts { sockets, threads: Some(threads) }
}

fn threads_of(quota: Option<usize>, available: usize) -> Option<NonZeroU16> {
    let most = ReuseportGroup::MAX_SOCKETS;
    let cores = quota.unwrap_or(available).min(available).min(most);
    u16::try_from(cores).ok().filter(|cores| *cores > 1).and_then(NonZeroU16::new)
}

/// Whole cores of a quota as the kernel writes it: microseconds of CPU, or `max`, and the period they are for.
/// What is left of a core is for the application's thread.
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
        let threads = |quota, available| threads_of(quota, available).map(NonZeroU16::get);
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
    fn shards_become_one_where_no_port_is_shared() {
        let numbers = |counts: ThreadCounts| (counts.sockets.get(), counts.threads.map(NonZeroU16::get));
        assert_eq!(numbers(shards(16, 4, 1_024)), (16, Some(4)));
        assert_eq!(numbers(shards(16, 4, 1)), (1, Some(1)));
    }
}
