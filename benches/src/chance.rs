//! What chance makes of flows that a hash spreads over threads: the busiest thread over the mean, simulated.
//!
//! It knows an ideal hash, which the kernel's is at best, and flows that send alike. Nothing is received here.

use drumfire_tools::report::spread_max_over_mean;

/// Where the draws begin, so that a table is the same every time.
pub const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// The busiest thread over the mean, over many draws of ideal hashing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ByChance {
    /// The mean of all draws.
    pub mean: f64,
    /// Nineteen draws of twenty are at most this.
    pub p95: f64,
}

impl ByChance {
    /// So many flows over so many threads, drawn so many times; `None` when one of the numbers is 0.
    #[must_use]
    pub fn of(flows: u32, threads: u32, draws: usize) -> Option<Self> {
        let mut state = SEED;
        let mut spreads = Vec::with_capacity(draws);
        for _ in 0..draws {
            let mut counts = vec![0_u64; threads as usize];
            for _ in 0..flows {
                let thread = usize::try_from(next(&mut state) % u64::from(threads.max(1))).unwrap_or(0);
                *counts.get_mut(thread)? += 1;
            }
            spreads.push(spread_max_over_mean(&counts)?);
        }
        spreads.sort_by(f64::total_cmp);
        let p95 = *spreads.get((spreads.len() * 19).div_ceil(20).checked_sub(1)?)?;
        Some(Self { mean: spreads.iter().sum::<f64>() / spreads.len() as f64, p95 })
    }
}

/// The busiest thread over the mean when flows are spread as evenly as whole flows can be.
#[must_use]
pub fn least_spread(flows: u32, threads: u32) -> f64 {
    f64::from(flows.div_ceil(threads.max(1))) * f64::from(threads) / f64::from(flows.max(1))
}

/// The next draw (splitmix64).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_spreads_few_flows_badly_and_many_well() {
        // By counting: five of twelve on one of six threads, and no more, nineteen times of twenty.
        for (flows, threads, mean, p95) in [(12, 6, 1.96, 2.5), (100, 16, 1.76, 2.24), (500, 16, 1.33, 1.5)] {
            let chance = ByChance::of(flows, threads, 10_000).expect("there are flows and threads");
            assert!((chance.mean - mean).abs() < 0.02, "{flows} on {threads}: {chance:?}");
            assert!((chance.p95 - p95).abs() < 0.04, "{flows} on {threads}: {chance:?}");
        }
        assert_eq!(ByChance::of(12, 1, 10), Some(ByChance { mean: 1.0, p95: 1.0 }));
        assert_eq!(
            (ByChance::of(0, 6, 10), ByChance::of(6, 0, 10), ByChance::of(6, 6, 0)),
            (None, None, None)
        );
    }

    #[test]
    fn whole_flows_cannot_be_spread_more_evenly_than_by_counting() {
        assert_eq!((least_spread(12, 6), least_spread(500, 16)), (1.0, 1.024));
        assert_eq!(least_spread(100, 16), 1.12);
    }
}
