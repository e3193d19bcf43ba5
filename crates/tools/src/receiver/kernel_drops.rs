//! Splits the kernel's drops into datagrams of the sender and of others. Pure arithmetic.
//!
//! The kernel's count is compared with the gaps in the flows. A difference remains unexplained.

use crate::report::Scope;

/// The most datagrams one train holds; a train that the kernel dropped lost at least one and at most these.
const MAX_TRAIN: u64 = 64;

/// The facts about the kernel's drops of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct DropEvidence {
    /// Drops that the kernel counted: datagrams, or trains with GRO on.
    pub(super) counted: u64,
    /// Datagrams missing in the flows; `None` if flows were not followed.
    pub(super) lost: Option<u64>,
    pub(super) is_gro_on: bool,
    /// Whether datagrams came that the sender did not send.
    pub(super) has_strangers: bool,
    pub(super) scope: Scope,
}

/// The kernel's drops, in datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KernelDrops {
    /// Drops of the sender's datagrams.
    pub(super) ours: u64,
    /// Drops of datagrams from other programs.
    pub(super) of_strangers: u64,
}

impl KernelDrops {
    /// Without GRO the kernel's count is exact. If strangers sent too, the drops beyond the gaps were theirs. With GRO the
    /// kernel counts trains, so the gaps show how many datagrams those were.
    pub(super) fn of(evidence: &DropEvidence) -> Self {
        let DropEvidence { counted, lost, is_gro_on, has_strangers, scope } = *evidence;
        let ours = match (lost, is_gro_on) {
            (Some(lost), false) if has_strangers => counted.min(lost),
            // Between two hosts the wire may have lost some of them. A dropped train proves one datagram only.
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

    const DATAGRAMS: DropEvidence = DropEvidence {
        counted: 100,
        lost: Some(100),
        is_gro_on: false,
        has_strangers: false,
        scope: Scope::OneHost,
    };

    fn drops(evidence: &DropEvidence) -> (u64, u64) {
        let KernelDrops { ours, of_strangers } = KernelDrops::of(evidence);
        (ours, of_strangers)
    }

    #[test]
    fn without_gro_the_kernels_count_stands_whatever_the_gaps_say() {
        for lost in [None, Some(99), Some(100), Some(101)] {
            assert_eq!(drops(&DropEvidence { lost, ..DATAGRAMS }), (100, 0), "{lost:?}");
        }
    }

    #[test]
    fn what_was_dropped_beyond_the_gaps_was_the_strangers() {
        for (lost, expected) in [(0, (0, 100)), (99, (99, 1)), (100, (100, 0)), (101, (100, 0))] {
            let evidence = DropEvidence { lost: Some(lost), has_strangers: true, ..DATAGRAMS };
            assert_eq!(drops(&evidence), expected, "{lost}");
        }
        assert_eq!(drops(&DropEvidence { lost: None, has_strangers: true, ..DATAGRAMS }), (100, 0));
    }

    #[test]
    fn dropped_trains_account_for_at_most_64_datagrams_each() {
        let trains = DropEvidence { counted: 2, is_gro_on: true, ..DATAGRAMS };
        for (lost, expected) in [(1, 1), (127, 127), (128, 128), (129, 128)] {
            assert_eq!(drops(&DropEvidence { lost: Some(lost), ..trains }), (expected, 0), "{lost}");
        }
        assert_eq!(drops(&DropEvidence { counted: u64::MAX, lost: Some(5), ..trains }), (5, 0));
    }

    #[test]
    fn between_two_hosts_a_dropped_train_proves_one_datagram() {
        let trains = DropEvidence { counted: 2, is_gro_on: true, scope: Scope::TwoHosts, ..DATAGRAMS };
        for (lost, expected) in [(1, 1), (2, 2), (3, 2)] {
            assert_eq!(drops(&DropEvidence { lost: Some(lost), ..trains }), (expected, 0), "{lost}");
        }
    }
}
