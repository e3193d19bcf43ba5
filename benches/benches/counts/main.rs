//! Instructions of each stage of a packet's path, counted by valgrind's callgrind: `cargo bench --bench counts`.
//!
//! Each stage runs in a process of its own, N times and 2 N times. The difference counts, so that work that happens once cancels out.
//! Callgrind counts only within one function, so that one process can seal the packets of a stage and open them. Keys, seeds, addresses,
//! and the clock are fixed, so counts repeat to the instruction, except for the inline server's, which repeat within 1 %. They depend on
//! the compiler, on valgrind, and on the C library, but not on how busy the machine is. System calls are not counted. Cache lines are
//! counted for one stage only.
//!
//! `cargo xtask bench --gate` compares the counts with `benches/counts.toml`. Some stages have a limit here as well: the cost of a
//! datagram without keys, and the cost of a packet full of one kind of frame. `--quick` makes a tenth of the calls and leaves out a stage
//! that takes long to prepare. `--only STAGE` runs one stage.
#![forbid(unsafe_code)]

mod broadcast;
mod cold;
mod inline;
mod packets;
mod stages;

use std::collections::BTreeMap;
use std::process::{Command, ExitCode, Stdio};

use drumfire_benches::hellos::Flaw;
use drumfire_benches::steps::{Meter, Step, Stream};
use drumfire_benches::{Bench, Counts, Extent, Goal, Program, ROLE_FLAG, UNPINNED, arguments, part};
use drumfire_crypto::Suite;
use drumfire_proto::Config;

use cold::COLD;
use inline::Direction;
use packets::{DATAGRAM_BYTES, ONE_MESSAGE, PACKETS};
use stages::PAYLOAD;

/// A stage that is counted.
struct Stage {
    /// The name in tables and in the baseline.
    name: &'static str,
    /// Calls of the shorter run.
    calls: u64,
    /// Makes this number of calls.
    run: fn(u64),
    /// Whether the stage takes long to prepare and its first call is like any other. Then one run is enough.
    is_long_prepared: bool,
    /// The limit of a call, independent of the baseline.
    most: Option<u32>,
}

const fn stage(name: &'static str, calls: u64, run: fn(u64)) -> Stage {
    Stage { name, calls, run, is_long_prepared: false, most: None }
}

impl Stage {
    const fn at_most(self, most: u32) -> Self {
        Self { most: Some(most), ..self }
    }
}

/// The stages in the order of a packet's path. The limits are those of a datagram from a sender without keys.
const STAGES: [Stage; 29] = [
    stage("parse", 1_024, stages::parse),
    stage("look-up and replay window", 1_024, stages::find),
    stage("open, ChaCha20-Poly1305", 1_024, |count| stages::open(Suite::ChaCha20Poly1305, count)),
    stage("open, AES-128-GCM", 1_024, |count| stages::open(Suite::Aes128Gcm, count)),
    stage("event hand-over", 1_024, stages::take_events),
    stage("receive, unreliable", 2_048, stages::receive_unreliable),
    stage("receive, reliable ordered", 2_048, |count| send(true, count, Step::Receive)),
    stage("hear an ack of 1 packet", 512, |count| stages::receive_acks(count, 1)),
    stage("hear an ack of 32 packets", 64, |count| stages::receive_acks(count, 32)),
    stage("build and seal a packet", 2_048, |count| send(false, count, Step::Seal)),
    stage("send, reliable ordered", 2_048, |count| send(false, count, Step::Send)),
    stage("inline server, message in", 1_024, |count| inline::echo(Direction::In, count)),
    stage("inline server, message out", 1_024, |count| inline::echo(Direction::Out, count)),
    stage("broadcast of 137 messages to 64 members, each", 10 * broadcast::DELIVERIES, broadcast::run),
    stage("29 messages: queue", 2_900, |count| send_full(count, Step::Queue)),
    stage("29 messages: write and seal", 2_900, |count| send_full(count, Step::Seal)),
    stage("29 messages: ack", 2_900, |count| send_full(count, Step::Ack)),
    stage("keep-alive exchange", 256, stages::keep_alive),
    Stage { is_long_prepared: true, ..stage("tick, 8,192 idle connections", 1_000, stages::tick) },
    stage("handshake", 20, stages::handshake),
    stage("Hello without a cookie", 256, |count| stages::refuse(Flaw::NoCookie, count)).at_most(3_000),
    stage("Hello with a bad cookie", 256, |count| stages::refuse(Flaw::BadCookie, count)).at_most(3_000),
    stage("Hello with a bad token", 256, |count| stages::refuse(Flaw::BadToken, count)).at_most(15_000),
    stage("Hello with a bad MAC", 256, |count| stages::refuse(Flaw::BadMac, count)).at_most(40_000),
    stage("packet with a forged id", 1_024, stages::forged_id).at_most(500),
    stage("ack of 32 ranges, 2,048 in flight", 4, |count| stages::widest_acks(count, 2_048)),
    stage("ack of 32 ranges, 4,096 in flight", 4, |count| stages::widest_acks(count, 4_096)).at_most(150_000),
    stage("ack that leaves 2,048 lost", 2, |count| stages::acks_with_losses(count, 2_048)),
    stage("ack that leaves 4,096 lost", 2, |count| stages::acks_with_losses(count, 4_096)),
];

/// The number of messages of 36 B that fill a packet.
const FULL: u64 = 29;

/// The role of the process that runs under valgrind.
const COUNTED: &str = "counted";

/// The pattern of the function within which callgrind collects.
const WITHIN: &str = "--toggle-collect=*counted_part*";

/// Switches off whatever takes time or leaves files behind.
const FLAGS: [&str; 3] = ["--tool=callgrind", "--callgrind-out-file=/dev/null", "--vgdb=no"];

/// Makes the C library copy and clear memory with vectors. Valgrind counts each byte of a string instruction.
const TUNABLES: &str =
    "glibc.cpu.x86_rep_movsb_threshold=1000000000:glibc.cpu.x86_rep_stosb_threshold=1000000000";

/// The cost of an ack with twice the packets in flight over its cost with half of them, at most. Above it, the cost of an ack would
/// depend on more than the packets that it settles.
const DOUBLE: f64 = 2.2;

/// Stages with twice the packets in flight, each with the stage that has half of them.
const DOUBLED: [(&str, &str); 2] = [
    ("ack of 32 ranges, 4,096 in flight", "ack of 32 ranges, 2,048 in flight"),
    ("ack that leaves 4,096 lost", "ack that leaves 2,048 lost"),
];

/// A packet of any content over a packet with a message of 64 B, at most.
const PACKET_RATIO: f64 = 20.0;

/// The delivery of a message that waited over a packet with a message of 64 B, at most.
const DELIVERED_RATIO: f64 = 1.0;

/// Instructions within this function count. [`WITHIN`] contains its name.
#[inline(never)]
fn counted_part<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// Counts one step of a packet's path.
pub(crate) struct StepCounter(pub(crate) Step);

impl Meter for StepCounter {
    fn is_of(&self, step: Step) -> bool {
        self.0 == step
    }

    fn measure<T>(&mut self, work: impl FnOnce() -> T) -> T {
        counted_part(work)
    }
}

/// Sends packets with one reliable message each.
fn send(is_to_server: bool, count: u64, step: Step) {
    Stream::new(is_to_server, Config::default(), (1, PAYLOAD)).run(count, &mut StepCounter(step));
}

/// Sends this number of messages in packets that are full of them.
fn send_full(count: u64, step: Step) {
    Stream::new(false, Config::default(), (FULL, &[7; 36])).run(count / FULL, &mut StepCounter(step));
}

fn main() -> ExitCode {
    let names = STAGES.iter().map(|stage| stage.name).chain(PACKETS.iter().map(|packet| packet.name));
    let names = names.chain(COLD.iter().map(|(name, _)| *name));
    let parts = [part("counts", run).with_sections(names.collect::<Vec<_>>().leak())];
    Program { roles: &[(COUNTED, run_counted)], ..Program::new("counts", &parts) }.main()
}

/// Runs under valgrind. The arguments are the name of a stage, and its number of calls or the size of its packet.
fn run_counted(args: &str) -> Result<Counts, String> {
    let (name, number): (String, u64) = arguments(args)?;
    if let Some(packet) = PACKETS.iter().find(|packet| packet.name == name) {
        packets::receive(packet, usize::try_from(number).map_err(|error| error.to_string())?);
        return Ok(Counts::new());
    }
    if let Some((_, direction)) = COLD.iter().find(|(cold, _)| *cold == name) {
        cold::echo(*direction, number);
        return Ok(Counts::new());
    }
    let stage = STAGES.iter().find(|stage| stage.name == name).ok_or_else(|| format!("no stage {name}"))?;
    (stage.run)(number);
    Ok(Counts::new())
}

fn run(bench: &mut Bench) -> Result<(), String> {
    let version = Command::new("valgrind").arg("--version").stderr(Stdio::null()).output();
    let Some(version) = version.ok().filter(|output| output.status.success()) else {
        println!("skipped: needs valgrind on the PATH, which counts the instructions");
        return Ok(());
    };
    println!("counted by {}", String::from_utf8_lossy(&version.stdout).trim());
    let mut counts = BTreeMap::new();
    for stage in STAGES {
        if !bench.wants(stage.name) {
            continue;
        }
        let goal = stage.most.map_or(Goal::Shown, |most| Goal::AtMost(most.into()));
        let is_quick = bench.extent() == Extent::Quick;
        if is_quick && stage.is_long_prepared {
            bench.results.figure(stage.name, None, "instructions", goal, "not in a quick run");
            continue;
        }
        let each = count(&stage, if is_quick { (stage.calls / 10).max(1) } else { stage.calls })?;
        bench.results.figure(stage.name, Some(each as f64), "instructions", goal, "");
        counts.insert(stage.name, each as f64);
    }
    for (whole, half) in DOUBLED {
        if let (Some(of_whole), Some(of_half)) = (counts.get(whole), counts.get(half)) {
            let name = format!("{whole} over {half}");
            bench.results.figure(name, Some(of_whole / of_half), "", Goal::AtMost(DOUBLE), "");
        }
    }
    count_packets(bench)?;
    cold::run(bench)
}

/// Counts the most expensive packet of each kind, in the more expensive one of two sizes of datagrams.
fn count_packets(bench: &mut Bench) -> Result<(), String> {
    let mut one_message = None;
    for packet in PACKETS {
        if !bench.wants(packet.name) {
            continue;
        }
        let [small, large] = DATAGRAM_BYTES.map(|bytes| instructions(packet.name, bytes as u64));
        let most = small?.max(large?) as f64;
        bench.results.figure(packet.name, Some(most), "instructions", Goal::Shown, "");
        let Some(one) = one_message else {
            one_message = (packet.name == ONE_MESSAGE).then_some(most);
            continue;
        };
        let (name, count, goal) = match packet.delivered {
            0 => (packet.name.to_owned(), 1.0, PACKET_RATIO),
            count => (format!("{}, each", packet.name), count.into(), DELIVERED_RATIO),
        };
        let name = format!("{name}, over {ONE_MESSAGE}");
        bench.results.figure(name, Some(most / count / one), "", Goal::AtMost(goal), "");
    }
    Ok(())
}

/// Returns the instructions of one call.
fn count(stage: &Stage, calls: u64) -> Result<u64, String> {
    let once = instructions(stage.name, calls)?;
    let all =
        if stage.is_long_prepared { once } else { instructions(stage.name, 2 * calls)?.saturating_sub(once) };
    Ok((all + calls / 2) / calls)
}

/// Returns the instructions that a new process of this bench executes within [`counted_part`].
fn instructions(name: &str, number: u64) -> Result<u64, String> {
    match valgrind(&[], name, number)?[..] {
        [0, ..] | [] => Err(format!("{name}, {number}: valgrind counted nothing")),
        [count, ..] => Ok(count),
    }
}

/// Returns what callgrind counts within [`counted_part`] of a new process of this bench.
fn valgrind(options: &[&str], name: &str, number: u64) -> Result<Vec<u64>, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(FLAGS)
        .arg(WITHIN)
        .args(options)
        .arg(program)
        .args([ROLE_FLAG, COUNTED, UNPINNED, &format!("[{name:?},{number}]")])
        .env("GLIBC_TUNABLES", TUNABLES)
        .stdout(Stdio::null())
        .output()
        .map_err(|error| format!("valgrind cannot be started: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let line = text.lines().rfind(|line| !line.starts_with("==")).unwrap_or("it printed nothing");
        return Err(format!("{name}, {number}: {}: {line}", output.status));
    }
    let collected = text.lines().find_map(|line| line.split_once("Collected : "));
    let counts = collected.map_or("", |(_, counts)| counts).split_whitespace();
    counts.map(|count| count.parse().map_err(|_| format!("{name}: {count}: not a number"))).collect()
}
