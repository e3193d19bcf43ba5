//! Faults over real sockets: a server in its own process, simulated players, and a fault. Each run prints its figures
//! and their goals.
//!
//! Exit codes:
//! - 0: all marks were reached.
//! - 1: a mark was missed, or the run could not be finished.
//! - 3: the machine lacks a requirement of the run.
//! - 4: all marks were reached, except for marks that this size does not judge.
//!
//! `cargo xtask chaos` creates two network namespaces for each run and starts this program in one of them.
//!
//! The rows are those of the list of threats. `--quick` takes seconds and `--full` hours. Only `--quick` has fewer players and counts
//! than a row requires. A mark that a size does not judge is printed as `SKIP`, and the run passes in part.
//!
//! | row | fault | requirement | command |
//! | --- | --- | --- | --- |
//! | 3, 4 | floods of each class, and Hellos from a million addresses | players lose less than 0.1 %, their p99 rises by at most 5 ms; the server keeps nothing of unproved addresses and sends them at most a tenth of the bytes | `cargo xtask chaos C3` |
//! | 14 | a million empty datagrams | ticks late by at most 5 ms, p99.9; each datagram counted by name or dropped by the kernel | `cargo xtask chaos C3` |
//! | 15 | datagrams of every length, in fragments and in trains | all dropped and counted; no panic | `cargo xtask chaos C12` |
//! | 16 | a worker that only receives | ticks late by at most 5 ms, p99.9, in every flood, for a worker with its own core and real-time priority (`SCHED_FIFO`, by `chrt`) | `cargo xtask chaos C3` |
//! | 23 | two players on 1 Mbit/s, which is too slow for either | each gets at least 40 % of it, the queue drops at most 5 % | `cargo xtask chaos C4` |
//! | 24 | a task that receives no messages, for each policy | memory at most 1.10 times the limit, the p99 of the others at most 2 ms later, counters equal to what was dropped | `cargo bench --bench server -- --full --only stalled` |
//! | 25 | a client that sends 100,000 valid packets per second | the others lose less than 0.1 %, their p99 is at most 2 ms later | `cargo bench --bench server -- --only abuser` |
//! | 28 | ports and addresses that change, copies from another address | no reconnect, no reliable message lost, no migration because of a copy | `cargo xtask chaos C5` |
//! | 30 | servers killed and started again; two of them pointed at each other | all players notice within 1 s; at most two packets | `cargo xtask chaos C6` |
//! | 31 | a server that shuts down while it sends | each message acknowledged or reported, in time | `cargo xtask chaos C7` |
//! | 32 | an application that panics in messages, receipts, and ticks | the others lose at most a batch; their echoes are back within 100 ms, p99.9 (not in `--quick`) | `cargo xtask chaos C9` |
//! | 32 | panics that end a worker's thread, with 200 players | the worker is back within 100 ms, each time, at its place and with its socket; its players reconnect, the others lose at most a batch | `cargo xtask chaos C9` |
//! | 34 | each error of the system, by a filter of calls, by routes, by a firewall (`nft`) | counted by its name, exactly where a filter refuses all calls; no worker ends except one without a socket (`EBADF`, `ENOTSOCK`); no other connection ends; at most 25 % of a core | `cargo xtask chaos C10` |
//! | 35 | a full receive buffer | sent equals received plus dropped by the kernel, with no trains | `cargo xtask chaos C4` |
//! | 36 | a full send buffer, for 10 s | at most 5 % of a core, queues within their limit, order kept | `cargo xtask chaos C4` |
//! | 38 | 3 s without a server, or without players; 30 s without a server (not in `--quick`) | no connection ends; all players know, and new handshakes take at most 2 s | `cargo xtask chaos C8` |
//! | 40 | several connections behind one port, their packets in one train | nothing lost, nothing at another connection | `cargo xtask chaos C12` |
//! | 43 | another process on the port | an alarm within 10 s, and it receives no datagram of a player | `cargo xtask chaos C11` |
//! | 44 | a flood for one worker | the p99 of players on other workers as before, within 1 ms | `cargo xtask chaos C3` |
//! | 44 | a million random tags, and all tags | equal shares (chi-square, p > 0.01); each at the socket that the model names; with an unknown secret, a worker's share is off by at most a tenth | `cargo xtask chaos C11` |
//! | – | long play; a bad network; all sizes of packets; a path that narrows | no reliable message lost, the same number of open files, memory grows by at most 1 KiB per minute (only in `--full`: after 5 minutes) | `cargo xtask chaos C1 C2 C12` |
#![forbid(unsafe_code)]

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    drumfire_chaos::main()
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("skipped: needs the namespaces, devices, and filters of Linux");
    ExitCode::from(3)
}
