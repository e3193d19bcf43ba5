//! Packets per second and CPU per packet on loopback: `cargo bench --bench pps`.
//!
//! | part | what is measured |
//! | --- | --- |
//! | `drain` | CPU per packet of a plain C loop, the reference drain, and batches that gather, at the same load |
//! | `pipeline` | the cost that parsing, opening, and delivering add to a bare receive |
//! | `trains` | packets per second of trains and of single datagrams, as fast as possible |
//!
//! The receiver is in this process and the sender in a process of its own. CPU is that of the receiver's threads. The books close in every
//! run: a packet that is neither received nor in a named drop ends the bench. Books under overload are those of `cargo xtask chaos C3` and
//! `C4`. How evenly flows spread over threads is the subject of tests (`connections_are_spread_evenly_over_the_threads`), and
//! `receiver --plot` shows the rate of each thread.
#![forbid(unsafe_code)]

mod drain;
mod pipeline;
mod trains;

use std::process::ExitCode;
use std::time::Duration;

use drumfire_benches::{
    Arm, Bench, Extent, Measured, Plan, Program, SENDER, Values, cell, interleave, part, send, start_sender,
};
use drumfire_tools::choices::{Gro, SendMode, Stage, Steer};
use drumfire_tools::cli::{Load, Traffic};
use drumfire_tools::host;
use drumfire_tools::receiver::{BoundReceiver, Outcome, Plan as Receiver};

fn main() -> ExitCode {
    let parts =
        [part("drain", drain::measure), part("pipeline", pipeline::measure), part("trains", trains::measure)];
    let prepare = |bench: &mut Bench| bench.results.pinned_as(&Setup::of(bench).pinning());
    Program { prepare, roles: &[(SENDER, send)], ..Program::new("pps", &parts) }.main()
}

/// The settings that all parts share.
struct Setup {
    extent: Extent,
    rounds: Plan,
    /// The length of one run.
    window: Duration,
    cores: Vec<usize>,
}

/// The size of receive buffers. They hold the datagrams that arrive while a thread has no core.
const RECEIVE_BUFFER_BYTES: usize = 4 * 1024 * 1024;

impl Setup {
    fn of(bench: &Bench) -> Self {
        let extent = bench.extent();
        let seconds = Duration::from_secs;
        Self {
            extent,
            rounds: Plan { rounds: extent.pick(1, 5, 5), ..bench.plan() },
            window: extent.pick(Duration::from_millis(300), seconds(1), seconds(3)),
            cores: host::allowed_cores().unwrap_or_default(),
        }
    }

    /// Describes which thread is pinned to which core.
    fn pinning(&self) -> String {
        match *self.cores.as_slice() {
            [] => "no thread to a core".to_owned(),
            [only] => format!("receiver and sender to core {only}, which is the only one"),
            [receiver, sender, ..] => format!("receiver to core {receiver} and sender to core {sender}"),
        }
    }

    /// The run that parts vary: one receiver thread on the first core, raw stage, no GRO, and a sender with one thread on the second core,
    /// where there is one. Rate 0 is as fast as possible.
    fn run(&self, flows: u32, size: u32, rate: u64, send: SendMode) -> Run {
        let mut receiver = Receiver::new(([127, 0, 0, 1], 0).into());
        receiver.threads = 1;
        receiver.gro = Gro::Off;
        receiver.steer = Steer::Hash;
        receiver.stage = Stage::Raw;
        receiver.receive_buffer_bytes = Some(RECEIVE_BUFFER_BYTES);
        receiver.cores = self.cores.iter().copied().take(1).collect();
        let load = Load { flows, size, rate, send };
        let traffic = Traffic { threads: 1, load, secs: self.window, pin: Some(1) };
        Run { receiver, traffic }
    }

    fn interleave(&self, arms: Vec<Arm<'_>>) -> Result<Vec<Measured>, String> {
        interleave(arms, self.rounds)
    }
}

/// A receiver in this process, and the traffic of a sender in a process of its own.
struct Run {
    receiver: Receiver,
    traffic: Traffic,
}

impl Run {
    fn arm(self, name: impl Into<String>) -> Arm<'static> {
        Arm::new(name, move || Ok((self.outcome()?.report, Values::new())))
    }

    /// Runs receiver and sender.
    fn outcome(&self) -> Result<Outcome, String> {
        let receiver =
            BoundReceiver::open(self.receiver.clone()).map_err(|error| format!("the receiver: {error}"))?;
        let sender = start_sender(receiver.address(), &self.traffic)?;
        // The sender prints a line at its end, after it has the books of the receiver.
        let is_stopped = || sender.line_within(Duration::ZERO).is_err();
        let outcome = receiver.serve(&mut |_| {}, &is_stopped).map_err(|error| error.to_string())?;
        sender.finish()?;
        Ok(outcome)
    }
}

/// Millions of packets received per second, for a table.
fn mpps_cell(arm: &Measured) -> String {
    cell(arm.spread(|report| Some(report.pps / 1e6)), 2)
}

/// The share of a core that the sending threads used, in percent, for a table.
fn sender_cell(arm: &Measured) -> String {
    cell(arm.spread(|report| Some(report.sender_cores()? * 100.0)), 0)
}
