//! Chaos over real sockets: a server in a process of its own, clients that play, and something that goes wrong meanwhile.
//! Each run prints what it saw beside what it wanted.
//!
//! This file reads the command line and turns the outcome into an exit code: 0 all marks reached, 1 a mark missed or a run
//! that could not go on, 3 the machine lacks something. It makes no network namespace: `cargo xtask chaos` does, and starts
//! this program inside one.
#![forbid(unsafe_code)]

mod crowd;
mod flood;
mod foreign;
mod forged;
mod ledger;
mod link;
mod marks;
mod mux;
mod packet;
mod platform;
mod process;
mod router;
mod runs;
mod serve;
mod size;
mod stop;
mod system;
mod tap;
mod times;
mod trains;

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use clap::Parser;

use crate::marks::Verdict;
use crate::runs::{Other, Run, Setting};
use crate::serve::ServeFlags;
use crate::size::Size;
use crate::stop::Stop;

/// Faults, floods and restarts over real sockets.
#[derive(Parser)]
#[command(bin_name = "chaos")]
enum Task {
    /// Do one run and judge it.
    Run {
        /// Which one.
        run: Run,
        /// How long and how often.
        #[arg(long, value_enum, default_value_t = Size::Default)]
        size: Size,
        /// The name of another network namespace, which this one reaches over a link; both are for this run alone.
        #[arg(long, requires = "other_address")]
        other: Option<String>,
        /// Its address.
        #[arg(long, requires = "other")]
        other_address: Option<IpAddr>,
        /// Where the server of the run is, port 0 for any.
        #[arg(long, default_value = "127.0.0.1:0")]
        address: SocketAddr,
    },
    /// Be another process on the port of a server, and answer each line with how many datagrams came.
    Join {
        /// The server's.
        address: SocketAddr,
    },
    /// Be the server of a run: answer lines on standard input until it ends.
    Serve(ServeFlags),
}

fn main() -> ExitCode {
    let outcome = match Task::parse() {
        Task::Run { run, size, other, other_address, address } => {
            let other = other.zip(other_address).map(|(name, address)| Other { name, address });
            runs::judge(run, &Setting { size, other, address }).map(|verdict| match verdict {
                Verdict::Passed => 0,
                Verdict::Missed => 1,
                Verdict::Skipped => 3,
            })
        }
        Task::Join { address } => foreign::run(address).map(|()| 0),
        Task::Serve(flags) => serve::run(&flags).map(|()| 0),
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(Stop::Failed(why)) => {
            eprintln!("{why}");
            ExitCode::from(1)
        }
        Err(Stop::Needs(what)) => {
            eprintln!("skipped: needs {what}");
            ExitCode::from(3)
        }
    }
}
