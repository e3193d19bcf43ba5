//! The runs of the program `chaos`, which describes them. They need two network namespaces, devices whose packets a program carries, and
//! filters that make system calls fail, so that there are none on other systems than Linux.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod error;
mod flood;
mod host;
mod link;
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
    /// Does one run and judges it.
    Run {
        /// The name of the run.
        #[arg(value_parser = Run::parse)]
        run: Run,
        #[command(flatten)]
        setting: Setting,
    },
    /// Is the server of a run, and reads orders from standard input until it ends.
    Serve(Box<ServerFlags>),
}

/// Does what the command line says.
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
