//! The packet rate of each thread in each second, as comma-separated values.
//!
//! The format is the one of the article that this receiver repeats: a heading `run,thread,pps` and one row for
//! each second and thread, where `run` is the second. Spreadsheets, R and Python read it as it is. All threads
//! are counted over the same second, so the rows of one run may be added up; rates of runs of different length
//! may not. There is no reader here.

use std::fmt::Write as _;
use std::path::Path;

use crate::report::{FileError, write_file};

/// One second of a run: what each thread took in it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Sample {
    /// Which second of the run, from 0.
    pub second: u64,
    /// Packets per second by thread index. A run that gains or loses threads has samples of different length.
    pub pps_per_thread: Vec<u64>,
}

/// The samples as comma-separated values, the heading first.
#[must_use]
pub fn render(samples: &[Sample]) -> String {
    let mut out = String::from("run,thread,pps\n");
    for sample in samples {
        for (thread, pps) in sample.pps_per_thread.iter().enumerate() {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{},{thread},{pps}", sample.second);
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
            Sample { second: 0, pps_per_thread: vec![132_000, 1_037_000] },
            Sample { second: 1, pps_per_thread: vec![145_000, 0] },
        ];
        assert_eq!(render(&samples), "run,thread,pps\n0,0,132000\n0,1,1037000\n1,0,145000\n1,1,0\n");
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
