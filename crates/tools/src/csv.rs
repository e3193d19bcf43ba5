//! The packet rate of each thread in each second, as comma-separated values.
//!
//! A heading `run,thread,pps` and one row for each second and thread, in the format of the article that this receiver repeats;
//! `run` is the second. All threads are counted over the same second, so the rates of one second may be added up.

use std::fmt::Write as _;

/// The minimum number of whole seconds in which a rate can be flat.
const FLAT_SECONDS: usize = 5;

/// The maximum difference of a flat rate from its mean, as a share of the mean.
const FLAT_SHARE: f64 = 0.005;

/// Returns whether the sum of all threads was the same in every second, within 0.5 %. Such a rate is limited by something.
///
/// `rates` has a row for each second and a column for each thread. The first and the last second are ignored, because the run
/// begins and ends in them. Fewer than five others are not flat.
#[must_use]
pub fn is_flat(rates: &[Vec<u64>]) -> bool {
    let [_, whole @ .., _] = rates else { return false };
    let sums: Vec<f64> = whole.iter().map(|rates| rates.iter().sum::<u64>() as f64).collect();
    let mean = sums.iter().sum::<f64>() / sums.len() as f64;
    sums.len() >= FLAT_SECONDS
        && mean > 0.0
        && sums.iter().all(|rate| (rate - mean).abs() <= mean * FLAT_SHARE)
}

/// Returns the rates of [`Report::pps_per_second`](crate::report::Report::pps_per_second) as comma-separated values.
#[must_use]
pub fn render(rates: &[Vec<u64>]) -> String {
    let mut out = String::from("run,thread,pps\n");
    for (run, rates) in rates.iter().enumerate() {
        for (thread, pps) in rates.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{run},{thread},{pps}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_and_thread_has_a_row() {
        let rates = [vec![132_000, 1_037_000], vec![145_000, 0]];
        assert_eq!(render(&rates), "run,thread,pps\n0,0,132000\n0,1,1037000\n1,0,145000\n1,1,0\n");
        assert_eq!(render(&[]), "run,thread,pps\n");
    }

    #[test]
    fn a_rate_is_flat_when_something_holds_it() {
        let run = |rates: &[u64]| rates.iter().map(|pps| vec![*pps, 1_000]).collect::<Vec<_>>();
        // The limit of a provider in the article, and one second above it.
        let held = [40_000, 100_000, 100_500, 99_500, 100_200, 99_800, 7];
        assert!(is_flat(&run(&held)));
        assert!(!is_flat(&run(&held[..6])), "four whole seconds are too few");
        assert!(!is_flat(&run(&[40_000, 100_000, 100_500, 99_500, 101_000, 99_800, 7])));
        assert!(!is_flat(&[]) && !is_flat(&vec![vec![0]; 8]), "nothing is no rate");
    }
}
