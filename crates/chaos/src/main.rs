//! Chaos over real sockets: a server in a process of its own, clients that play, and something that goes wrong meanwhile.
//! Each run prints what it saw beside what it wanted.
//!
//! This file reads the command line and turns the outcome into an exit code: 0 all marks reached, 1 a mark missed or a run
//! that could not go on, 3 the machine lacks something, 4 all marks reached but those that this size does not judge. It makes no
//! network namespace: `cargo xtask chaos` does, and starts this program inside one.
//!
//! What is to hold, by its row in the list of threats, and the command that shows it (`--quick` for seconds, `--full` for hours).
//! Players and what is counted are fewer in `--quick`, and otherwise at least as many as the row wants. What a size does not judge is
//! told as `SKIP` among its marks, and the run has passed in part.
//!
//! | row | what goes wrong | what has to hold | command |
//! | --- | --- | --- | --- |
//! | 3, 4 | floods of each class, Hellos from a million addresses too | players lose less than 0.1 %, their p99 rises by 5 ms at most; nothing is kept of who is not proved, and answers are a tenth of the questions at most | `cargo xtask chaos C3` |
//! | 14 | a million empty datagrams | ticks late by 5 ms at most, p99.9, as in row 16; every one counted, by its name or as dropped by the kernel | `cargo xtask chaos C3` |
//! | 15 | datagrams of every length up to the longest, in fragments and in trains | dropped and counted, to the last one; no panic | `cargo xtask chaos C12` |
//! | 16 | a worker that only receives | ticks late by 5 ms at most, p99.9, in every flood, of a worker that has a core to itself and comes before all else there (`SCHED_FIFO`, by `chrt`): one that shares it waits for who runs there | `cargo xtask chaos C3` |
//! | 23 | two players on 1 Mbit/s, which is too slow for either | each gets 40 % of it at least, its queue drops 5 % at most | `cargo xtask chaos C4` |
//! | 24 | a task that takes nothing for a minute, by each policy | memory 1.10 times the limit at most, the others' p99 2 ms later at most, counters are what was dropped | `cargo bench --bench neighbours -- --only stalled --seconds 60` |
//! | 25 | one who sends 100,000 valid packets a second | the others lose less than 0.1 %, their p99 2 ms later at most | `cargo bench --bench neighbours -- --only abuser` |
//! | 28 | ports and addresses that change, copies from elsewhere | nobody reconnects, nothing reliable is lost, no path moves by a copy | `cargo xtask chaos C5` |
//! | 30 | servers killed and started again; two of them pointed at each other | all know within 1 s; two packets, and no more | `cargo xtask chaos C6` |
//! | 31 | a server that ends while it sends | each message acknowledged or reported, in time | `cargo xtask chaos C7` |
//! | 32 | an application that panics at messages, receipts and ticks | the others lose a batch at most; their echoes are back within 100 ms, p99.9 (not in `--quick`) | `cargo xtask chaos C9` |
//! | 32 | panics that no worker catches, so that its thread falls, beside 200 players | it is back within 100 ms, each time, at its place and with its socket; its players come again, the others lose a batch at most | `cargo xtask chaos C9` |
//! | 34 | each error of the system, by a filter of calls, by routes, by a firewall (`nft`) | counted by its name, to the last call where a filter refuses all; no worker ends but one whose socket is gone (`EBADF`, `ENOTSOCK`); nobody else is lost; 25 % of a processor at most | `cargo xtask chaos C10` |
//! | 35 | a full receive buffer | what was sent is what came and what the kernel dropped, in number, none of it in trains | `cargo xtask chaos C4` |
//! | 36 | a full send buffer, for 10 s | 5 % of a processor at most, what waits for a player within its limit, order kept | `cargo xtask chaos C4` |
//! | 38 | 3 s without a server, or without players; 30 s without a server (not in `--quick`) | nobody lost; all know, and new handshakes within 2 s | `cargo xtask chaos C8` |
//! | 40 | several connections behind one port, their packets in one train | nothing lost, nothing at another connection | `cargo xtask chaos C12` |
//! | 43 | another process on the port | an alarm within 10 s, none of the players' datagrams | `cargo xtask chaos C11` |
//! | 44 | a flood for one worker | the p99 of the others' players as it was, within 1 ms | `cargo xtask chaos C3` |
//! | 44 | a million tags at random, and all there are | spread as chance does (chi-square, p > 0.01); each where the model says; with a secret that nobody knows, a worker's share is off by a tenth at most | `cargo xtask chaos C11` |
//! | – | long play; a bad net; all sizes of packets; a path that narrows | nothing reliable lost, files as they were, memory grows by 1 KiB in a minute at most (`--full` alone: after 5 minutes) | `cargo xtask chaos C1 C2 C12` |
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
mod still;
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
                Verdict::Partly => 4,
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
