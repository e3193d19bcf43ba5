//! The runs of the program `chaos`, whose docs describe them. They need network namespaces, raw sockets, and seccomp
//! filters, which only Linux has.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod error;
mod flood;
mod host;
mod marks;
mod net;
mod platform;
mod players;
mod process;
mod relay;
mod runs;
mod server;
mod traffic;

use std::process::ExitCode;

use clap::Parser;

use crate::error::Error;
use crate::marks::Verdict;
use crate::runs::{Run, Setting};
use crate::server::ServerFlags;

/// Faults over real sockets.
#[derive(Parser)]
#[command(bin_name = "chaos")]
enum Task {
    /// Executes one run and compares its figures with their goals.
    Run {
        /// The name of the run.
        #[arg(value_parser = Run::parse)]
        run: Run,
        #[command(flatten)]
        setting: Setting,
    },
    /// Runs the server of a run, which reads commands from standard input until its end.
    Serve(Box<ServerFlags>),
}

/// Executes the task of the command line.
#[must_use]
pub fn main() -> ExitCode {
    let outcome = match Task::parse() {
        Task::Run { run, setting } => runs::judge(run, &setting),
        Task::Serve(flags) => server::run(*flags).map(|()| Verdict::Passed),
    };
    match outcome {
        Ok(verdict) => ExitCode::from(verdict as u8),
        Err(Error::Failed(reason)) => {
            eprintln!("{reason}");
            ExitCode::from(1)
        }
        Err(Error::Unsupported(what)) => {
            eprintln!("skipped: needs {what}");
            ExitCode::from(3)
        }
    }
}
