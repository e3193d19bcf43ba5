//! How a bench ends, and what a criterion bench was started for.
//!
//! It measures nothing.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::flags::{Extent, Options, parse};

/// Reads the flags of a bench with these parts, runs it, and says what went wrong in one line.
pub fn run_bench(
    args: impl IntoIterator<Item = OsString>,
    parts: &[&str],
    bench: impl FnOnce(&Options) -> Result<(), String>,
) -> ExitCode {
    match parse(args, parts) {
        Ok(options) => ending(bench(&options)),
        Err(line) => {
            eprintln!("error: {line}");
            ExitCode::from(2)
        }
    }
}

/// The exit code of a bench that came to this, with one line for what went wrong.
#[must_use]
pub fn ending(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("error: {line}");
            ExitCode::FAILURE
        }
    }
}

/// How long a criterion bench is to take: a smoke run where that is asked for, and where cargo runs it as a test.
#[must_use]
pub fn criterion_extent() -> Extent {
    let args: Vec<String> = std::env::args().collect();
    let is_smoke = args.iter().any(|arg| arg == "--test" || arg == "--quick")
        || !args.iter().any(|arg| arg == "--bench");
    if is_smoke { Extent::Quick } else { Extent::Default }
}
