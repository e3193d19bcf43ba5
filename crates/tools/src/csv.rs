//! The packet rate of each thread in each second, as comma-separated values.
//!
//! A heading `run,thread,pps` and one row for each second and thread, in the format of the article that this receiver repeats;
//! `run` is the second. All threads are counted over the same second, so the rates of one second may be added up.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

/// The rate of each thread over an interval that is the same for all: a second of a receiver, or a whole run of a bench.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Sample {
    /// The number of the interval, from 0.
    pub run: u64,
    /// Packets per second by thread index. The number of threads may change between samples.
    pub pps_per_thread: Vec<u64>,
}

/// The minimum number of whole seconds in which a rate can be flat.
const FLAT_SECONDS: usize = 5;

/// The maximum difference of a flat rate from its mean, as a share of the mean.
const FLAT_SHARE: f64 = 0.005;

/// Returns whether the sum of all threads was the same in every second, within 0.5 %. Such a rate is limited by something.
///
/// The first and the last second are ignored, because the run begins and ends in them. Fewer than five others are not flat.
#[must_use]
pub fn is_flat(samples: &[Sample]) -> bool {
    let Some((_, [whole @ .., _])) = samples.split_first() else { return false };
    let rates: Vec<f64> =
        whole.iter().map(|sample| sample.pps_per_thread.iter().sum::<u64>() as f64).collect();
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    rates.len() >= FLAT_SECONDS
        && mean > 0.0
        && rates.iter().all(|rate| (rate - mean).abs() <= mean * FLAT_SHARE)
}

/// Returns the samples as comma-separated values with a heading.
#[must_use]
pub fn render(samples: &[Sample]) -> String {
    let mut out = String::from("run,thread,pps\n");
    for sample in samples {
        for (thread, pps) in sample.pps_per_thread.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{},{thread},{pps}", sample.run);
        }
    }
    out
}

/// Writes the samples to a file, which is replaced if it exists.
///
/// # Errors
///
/// The error of the system, with the path.
pub fn write(path: &Path, samples: &[Sample]) -> io::Result<()> {
    std::fs::write(path, render(samples))
        .map_err(|error| io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_and_thread_has_a_row() {
        let samples = [
            Sample { run: 0, pps_per_thread: vec![132_000, 1_037_000] },
            Sample { run: 1, pps_per_thread: vec![145_000, 0] },
        ];
        assert_eq!(render(&samples), "run,thread,pps\n0,0,132000\n0,1,1037000\n1,0,145000\n1,1,0\n");
    }

    #[test]
    fn a_rate_is_flat_when_something_holds_it() {
        let run = |rates: &[u64]| -> Vec<Sample> {
            let samples = rates.iter().zip(0..);
            samples.map(|(pps, run)| Sample { run, pps_per_thread: vec![*pps, 1_000] }).collect()
        };
        // The limit of a provider in the article, and one second above it.
        let held = [40_000, 100_000, 100_500, 99_500, 100_200, 99_800, 7];
        assert!(is_flat(&run(&held)));
        assert!(!is_flat(&run(&held[..6])), "four whole seconds are too few");
        assert!(!is_flat(&run(&[40_000, 100_000, 100_500, 99_500, 101_000, 99_800, 7])));
        assert!(!is_flat(&run(&[0; 8])[..0]) && !is_flat(&[]));
        let silent = vec![Sample { run: 0, pps_per_thread: vec![0] }; 8];
        assert!(!is_flat(&silent), "nothing is no rate");
    }

    #[test]
    fn a_run_without_samples_is_a_heading() {
        assert_eq!(render(&[]), "run,thread,pps\n");
    }

    #[test]
    fn an_error_names_the_path() {
        let error = write(Path::new("no-such-folder/pps.csv"), &[]).unwrap_err();
        assert!(error.to_string().contains("no-such-folder/pps.csv"), "{error}");
    }
}
