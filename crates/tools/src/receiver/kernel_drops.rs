//! Whose datagrams the kernel dropped in front of the sockets, and how many.
//!
//! Pure arithmetic: the kernel's count and the gaps in the flows are laid beside each other. What neither
//! accounts for is left over and stays unexplained.

use crate::report::Scope;

/// The most datagrams one train holds; a train that the kernel dropped lost at least one and at most these.
const MAX_TRAIN: u64 = 64;

/// What is known about the kernel's drops of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence {
    /// Drops that the kernel counted: datagrams, or trains with GRO on.
    pub(super) counted: u64,
    /// Datagrams missing in the flows; nothing when flows were not followed.
    pub(super) lost: Option<u64>,
    pub(super) is_gro_on: bool,
    /// Whether datagrams came that the sender did not send.
    pub(super) has_strangers: bool,
    pub(super) scope: Scope,
}

/// The kernel's drops, in datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KernelDrops {
    /// The sender's.
    pub(super) ours: u64,
    /// Everybody else's.
    pub(super) of_strangers: u64,
}

impl KernelDrops {
    /// Without GRO the kernel's count is exact; when strangers came too, what it counted beyond the gaps was
    /// theirs. With GRO it counts trains, so the gaps tell how many datagrams those were.
    pub(super) fn of(evidence: &Evidence) -> Self {
        let Evidence { counted, lost, is_gro_on, has_strangers, scope } = *evidence;
        let ours = match (lost, is_gro_on) {
            (Some(lost), false) if has_strangers => counted.min(lost),
            // Between two hosts the wire may have lost some of them: only what the trains prove is the kernel's.
            (Some(lost), true) if scope == Scope::TwoHosts => counted.min(lost),
            (Some(lost), true) => lost.min(counted.saturating_mul(MAX_TRAIN)),
            (_, _) => counted,
        };
        let of_strangers = if is_gro_on { 0 } else { counted.saturating_sub(ours) };
        Self { ours, of_strangers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATAGRAMS: Evidence = Evidence {
        counted: 100,
        lost: Some(100),
        is_gro_on: false,
        has_strangers: false,
        scope: Scope::OneHost,
    };

    fn drops(evidence: &Evidence) -> (u64, u64) {
        let KernelDrops { ours, of_strangers } = KernelDrops::of(evidence);
        (ours, of_strangers)
    }

    #[test]
    fn without_gro_the_kernels_count_stands_whatever_the_gaps_say() {
        for lost in [None, Some(99), Some(100), Some(101)] {
            assert_eq!(drops(&Evidence { lost, ..DATAGRAMS }), (100, 0), "{lost:?}");
        }
    }

    #[test]
    fn what_was_dropped_beyond_the_gaps_was_the_strangers() {
        for (lost, expected) in [(0, (0, 100)), (99, (99, 1)), (100, (100, 0)), (101, (100, 0))] {
            let evidence = Evidence { lost: Some(lost), has_strangers: true, ..DATAGRAMS };
            assert_eq!(drops(&evidence), expected, "{lost}");
        }
        assert_eq!(drops(&Evidence { lost: None, has_strangers: true, ..DATAGRAMS }), (100, 0));
    }

    #[test]
    fn dropped_trains_account_for_at_most_64_datagrams_each() {
        let trains = Evidence { counted: 2, is_gro_on: true, ..DATAGRAMS };
        for (lost, expected) in [(1, 1), (127, 127), (128, 128), (129, 128)] {
            assert_eq!(drops(&Evidence { lost: Some(lost), ..trains }), (expected, 0), "{lost}");
        }
        assert_eq!(drops(&Evidence { counted: u64::MAX, lost: Some(5), ..trains }), (5, 0));
    }

    #[test]
    fn between_two_hosts_a_dropped_train_proves_one_datagram() {
        let trains = Evidence { counted: 2, is_gro_on: true, scope: Scope::TwoHosts, ..DATAGRAMS };
        for (lost, expected) in [(1, 1), (2, 2), (3, 2)] {
            assert_eq!(drops(&Evidence { lost: Some(lost), ..trains }), (expected, 0), "{lost}");
        }
    }
}
