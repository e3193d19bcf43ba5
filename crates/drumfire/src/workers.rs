//! How many threads receive, and what the machine grants.

use std::num::NonZeroU16;

/// How a server does its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// No thread: `poll`, `flush` and `wait` do the work. For a match that fits half a core.
    Inline,
    /// This many threads, 1 to 1,024 (one, where the platform shares no port).
    Count(u16),
    /// As many threads as the process may use cores, by the CPU quota of its cgroup and its affinity; none where
    /// that is one core, as with [`Workers::Inline`].
    Auto,
}

/// Where Linux shows the quota of the cgroup a container runs in.
const QUOTA_FILE: &str = "/sys/fs/cgroup/cpu.max";

impl Workers {
    /// How many threads; `None` = inline.
    pub(crate) fn threads(self) -> Option<NonZeroU16> {
        match self {
            Self::Inline => None,
            // Zero was refused before, by name.
            Self::Count(count) => NonZeroU16::new(count),
            Self::Auto => {
                let quota = std::fs::read_to_string(QUOTA_FILE).ok().and_then(|text| cores(&text));
                let available = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
                threads_of(quota, available)
            }
        }
    }
}

fn threads_of(quota: Option<usize>, available: usize) -> Option<NonZeroU16> {
    let most = drumfire_socket::ReuseportGroup::MAX_SOCKETS;
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
        if drumfire_socket::ReuseportGroup::MAX_SOCKETS > 1 {
            assert_eq!(threads(None, 2), Some(2));
            assert_eq!(threads(Some(3), 64), Some(3));
            assert_eq!(threads(Some(64), 4), Some(4));
        }
    }
}
