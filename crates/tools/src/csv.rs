//! The packet rate of each thread in each second, as comma-separated values.
//!
//! The format is the one of the article that this receiver repeats: a heading `run,thread,pps` and one row for
//! each second and thread, where `run` is the second. Spreadsheets, R and Python read it as it is. All threads
//! are counted over the same second, so the rows of one run may be added up; rates of runs of different length
//! may not. There is no reader here.

use std::fmt::Write as _;
use std::path::Path;

use crate::report::{FileError, write_file};

/// What each thread took in a stretch of time that is the same for all: a second of the receiver's, a whole run of a bench.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Sample {
    /// Which of them, from 0; the article's word for its seconds too.
    pub run: u64,
    /// Packets per second by thread index. A run that gains or loses threads has samples of different length.
    pub pps_per_thread: Vec<u64>,
}

/// Seconds that a rate is watched at least before it is called flat.
const FLAT_SECONDS: usize = 5;

/// How far a flat rate may be from its mean, as a share of it.
const FLAT_SHARE: f64 = 0.005;

/// Whether what all threads received together was the same in every second, give or take 0.5 %: a rate that something holds.
///
/// The first second and the last are left out, for a run begins and ends in them. Fewer than five others tell nothing.
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

/// The samples as comma-separated values, the heading first.
#[must_use]
pub fn render(samples: &[Sample]) -> String {
    let mut out = String::from("run,thread,pps\n");
    for sample in samples {
        for (thread, pps) in sample.pps_per_thread.iter().enumerate() {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{},{thread},{pps}", sample.run);
        }
    }
    out
}

/// Writes the samples to a file, replacing what it held.
///
/// # Errors
/// [`FileError`] with the path when the file cannot be made or written.
pub fn write(path: &Path, samples: &[Sample]) -> Result<(), FileError> {
    write_file(path, &render(samples))
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
        // What a provider let through in the article, and one second that it did not hold.
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
