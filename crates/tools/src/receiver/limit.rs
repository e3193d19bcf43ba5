//! Finds out whether the sender or the network between two hosts limited the rate of a run.

use crate::csv::{self, Sample};
use crate::report::{LIMITED_BY_PROVIDER, LIMITED_BY_SENDER, Scope};

/// The facts about a rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct RateEvidence<'a> {
    pub(super) scope: Scope,
    pub(super) samples: &'a [Sample],
    /// Datagrams that the receiver's kernel dropped.
    pub(super) kernel_drops: u64,
    /// Datagrams that are missing without a reason. Between two hosts the network lost them.
    pub(super) lost_on_way: u64,
    /// Datagrams of the books that were dropped for any reason.
    pub(super) dropped: u64,
    /// Whether the sender sent as fast as it could, or fell behind its schedule.
    pub(super) sends_all_it_can: bool,
    /// Whether acks or memory held the sender back.
    pub(super) is_held_back: bool,
}

/// Returns the limit of the rate; `None` if the receiver was the limit, or if it received everything that was offered.
pub(super) fn limited_by(evidence: &RateEvidence<'_>) -> Option<&'static str> {
    if evidence.is_held_back {
        return None;
    }
    // No socket overflowed, and the rate hardly changed between seconds. A sender at its limit is less even, and a scheduled
    // rate arrives without loss unless the network limits it.
    let is_providers = evidence.scope == Scope::TwoHosts
        && evidence.kernel_drops == 0
        && (evidence.sends_all_it_can || evidence.lost_on_way > 0)
        && csv::is_flat(evidence.samples);
    if is_providers {
        return Some(LIMITED_BY_PROVIDER);
    }
    let is_dropless = evidence.dropped == 0 && evidence.lost_on_way == 0;
    (is_dropless && evidence.sends_all_it_can).then_some(LIMITED_BY_SENDER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(rates: &[u64]) -> Vec<Sample> {
        let samples = rates.iter().zip(0..);
        samples.map(|(pps, run)| Sample { run, pps_per_thread: vec![*pps] }).collect()
    }

    fn evidence(samples: &[Sample]) -> RateEvidence<'_> {
        RateEvidence {
            scope: Scope::TwoHosts,
            samples,
            kernel_drops: 0,
            lost_on_way: 0,
            dropped: 0,
            sends_all_it_can: true,
            is_held_back: false,
        }
    }

    #[test]
    fn a_flat_rate_between_two_hosts_is_the_providers() {
        let flat = samples(&[50_000, 101_000, 101_400, 100_600, 101_000, 101_200, 40_000]);
        let flat = evidence(&flat);
        assert_eq!(limited_by(&flat), Some(LIMITED_BY_PROVIDER));
        let scheduled = RateEvidence { sends_all_it_can: false, ..flat };
        assert_eq!(limited_by(&scheduled), None, "a schedule is flat by itself");
        assert_eq!(limited_by(&RateEvidence { lost_on_way: 7, ..scheduled }), Some(LIMITED_BY_PROVIDER));
        let here = RateEvidence { scope: Scope::OneHost, ..flat };
        assert_eq!(limited_by(&here), Some(LIMITED_BY_SENDER), "there is no way between");
        let overflowed = RateEvidence { kernel_drops: 7, dropped: 7, ..flat };
        assert_eq!(limited_by(&overflowed), None, "the receiver took no more");
    }

    #[test]
    fn a_rate_is_the_senders_when_nothing_is_lost_of_all_it_can_send() {
        let uneven = samples(&[50_000, 101_000, 90_000, 120_000, 101_000, 99_000, 40_000]);
        let uneven = evidence(&uneven);
        assert_eq!(limited_by(&uneven), Some(LIMITED_BY_SENDER));
        assert_eq!(limited_by(&RateEvidence { sends_all_it_can: false, ..uneven }), None);
        assert_eq!(limited_by(&RateEvidence { dropped: 1, ..uneven }), None);
        assert_eq!(limited_by(&RateEvidence { lost_on_way: 1, ..uneven }), None);
        assert_eq!(limited_by(&RateEvidence { is_held_back: true, ..uneven }), None);
    }
}
