//! The protocol in memory, without sockets: `cargo bench --bench pipeline`.
//!
//! | part | what is measured |
//! | --- | --- |
//! | `find` | the steps of a server before a packet is opened: header, look-up, and replay window |
//! | `pipeline` | the receiving side of a server per packet of 128 B, and own code as the difference to an open alone |
//!
//! `find` receives copies of packets that were opened before, which the server drops as duplicates. `pipeline` covers parsing,
//! opening, frames, ack bookkeeping, timers, taking the event, and the acks that follow. One thread does all work, pinned to a core.
//! The work of the other end is not timed. Each round has new connections.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use drumfire_benches::memory::SealedPeers;
use drumfire_benches::steps::{self, Meter, PACKET_BYTES, Step, Stream};
use drumfire_benches::{
    Arm, ArmTable, Bench, Extent, Goal, OpenAlone, Program, Rounds, Spread, cell, median_cell, part,
};
use drumfire_crypto::Suite;
use drumfire_proto::Config;
use drumfire_tools::clock;

/// Rounds that count.
const ROUNDS: u32 = 9;
/// The payload of a reliable message that fills a packet of [`PACKET_BYTES`]. Packets with short message ids
/// are shorter, but few.
const PAYLOAD: &[u8] = &[7; 94];
/// The goal for the steps before the open, in nanoseconds.
const FIND_NS: f64 = 40.0;
/// The goal for own code over one ChaCha20-Poly1305 open.
const OWN_OVER_OPEN: f64 = 0.6;

fn main() -> ExitCode {
    let parts = [part("find", find), part("pipeline", pipeline)];
    let prepare = |bench: &mut Bench| bench.results.pinned_as("the one thread to the last core");
    Program { prepare, ..Program::new("pipeline", &parts) }.main()
}

/// The time that a server took to find connections or to receive.
#[derive(Default)]
struct StepTimer(Duration);

impl Meter for StepTimer {
    fn is_of(&self, step: Step) -> bool {
        matches!(step, Step::Find | Step::Receive)
    }

    fn measure<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let start = clock::now();
        let outcome = work();
        self.0 += start.elapsed();
        outcome
    }
}

impl StepTimer {
    fn ns_per_packet(&self, count: u64) -> f64 {
        self.0.as_nanos() as f64 / count as f64
    }
}

fn sealed(suite: Suite, connections: u8) -> SealedPeers {
    let config = Config::default().has_aes_gcm(suite == Suite::Aes128Gcm);
    SealedPeers::of_server(config, connections, None).expect("connections")
}

/// Measures the steps before the open, with one connection and with 200.
fn find(bench: &mut Bench) -> Result<(), String> {
    let count = bench.extent().pick(1_024, 200_000, 200_000);
    let arm = |connections: u8| {
        let name = format!("header, look-up, and replay window, connections: {connections}");
        Arm::new(name, move || {
            let mut timer = StepTimer::default();
            steps::find(&mut sealed(Suite::Aes128Gcm, connections), count, &mut timer);
            Ok(timer.ns_per_packet(count))
        })
    };
    let arms = bench.interleave_work(ROUNDS, vec![arm(1), arm(200)])?;
    for arm in &arms {
        let ns = arm.spread(|ns| Some(*ns));
        bench.results.spread(arm.name.as_str(), ns, "ns", Goal::AtMost(FIND_NS), arm.busy_or(""));
    }
    Ok(())
}

/// The cipher, the kind of message, and the number of connections that send in turn.
#[derive(Clone, Copy, Debug)]
struct Case {
    suite: Suite,
    is_reliable: bool,
    connections: u8,
}

const CHACHA: Case = Case { suite: Suite::ChaCha20Poly1305, is_reliable: false, connections: 1 };
const AES: Case = Case { suite: Suite::Aes128Gcm, ..CHACHA };
const CASES: [Case; 5] = [
    CHACHA,
    AES,
    Case { is_reliable: true, ..CHACHA },
    Case { is_reliable: true, ..AES },
    Case { connections: 200, ..CHACHA },
];

impl Case {
    fn name(self) -> String {
        let source = if self.is_reliable { "ReliableOrdered" } else { "Unreliable" };
        let plural = if self.connections == 1 { "" } else { "s" };
        format!("{source}, {}, {} connection{plural}", self.suite_name(), self.connections)
    }

    const fn suite_name(self) -> &'static str {
        match self.suite {
            Suite::ChaCha20Poly1305 => "ChaCha20-Poly1305",
            Suite::Aes128Gcm => "AES-128-GCM",
        }
    }

    /// Passes `count` packets to a new server.
    fn receive(self, count: u64) -> PerPacket {
        let mut timer = StepTimer::default();
        let (acks, bytes) = if self.is_reliable {
            let config = Config::default().has_aes_gcm(self.suite == Suite::Aes128Gcm);
            Stream::new(true, config, (1, PAYLOAD)).run(count, &mut timer)
        } else {
            let mut sealed = sealed(self.suite, self.connections);
            let acks = steps::receive_unreliable(&mut sealed, count, &mut timer);
            (acks, PACKET_BYTES * usize::try_from(count).unwrap_or(usize::MAX))
        };
        [timer.ns_per_packet(count), acks as f64 / count as f64, bytes as f64 / count as f64]
    }
}

/// Nanoseconds, acks, and bytes per packet of a round.
type PerPacket = [f64; 3];

/// Measures both ciphers alone and every case.
fn pipeline(bench: &mut Bench) -> Result<(), String> {
    let count = bench.extent().pick(1_024, 200_000, 200_000);
    let mut arms = Vec::new();
    for cipher in [CHACHA, AES] {
        let mut open = OpenAlone::new(cipher.suite);
        arms.push(Arm::new(format!("open alone, {}", cipher.suite_name()), move || {
            let ns = open.time(count).as_nanos() as f64 / count as f64;
            Ok([ns, 0.0, PACKET_BYTES as f64])
        }));
    }
    arms.extend(CASES.map(|case| Arm::new(case.name(), move || Ok(case.receive(count)))));
    let arms = bench.interleave_work(ROUNDS, arms)?;
    let [chacha, aes, pipelines @ ..] = &arms[..] else { return Err("there were no rounds".to_owned()) };
    let of = |arm: &Rounds<PerPacket>, at: usize| arm.spread(|round| Some(round[at]));
    // Both sides are of the same round, so that a change of the machine's speed affects both.
    let own_over_open = |arm: &Rounds<PerPacket>| {
        let case = CASES.iter().find(|case| case.name() == arm.name)?;
        let open = if case.suite == Suite::Aes128Gcm { aes } else { chacha };
        let rounds = arm.rounds.iter().zip(&open.rounds).zip(&chacha.rounds);
        Spread::of(rounds.map(|((whole, open), chacha)| (whole[0] - open[0]) / chacha[0]))
    };
    ArmTable::new("per packet of 128 B", &arms)
        .column("ns", |arm| cell(of(arm, 0), 1))
        .column("acks", |arm| median_cell(of(arm, 1), 3))
        .column("own over one ChaCha20-Poly1305 open", |arm| median_cell(own_over_open(arm), 2))
        .print();
    for arm in &arms {
        let note = arm.busy_or("");
        bench.results.spread(format!("{}, per packet", arm.name), of(arm, 0), "ns", Goal::Shown, note);
    }
    for arm in pipelines {
        let name = format!("{}, own code over one ChaCha20-Poly1305 open", arm.name);
        let goal = Goal::AtMost(OWN_OVER_OPEN);
        bench.results.spread(name, own_over_open(arm), "", goal, arm.busy_or(""));
        let bytes = of(arm, 2).ok_or("there were no rounds")?.median;
        if bench.extent() != Extent::Quick && (bytes - PACKET_BYTES as f64).abs() > 0.5 {
            return Err(format!("{}: packets of {bytes:.1} B", arm.name));
        }
    }
    Ok(())
}
