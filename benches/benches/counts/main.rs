//! Instructions of each stage of a packet's way, counted by valgrind: `cargo bench --bench counts`.
//!
//! Each stage runs in a process of its own, N times and two N times, and the difference counts: what happens once cancels out.
//! What makes the stage's input, such as a client that seals, runs in the same process and is not counted, because callgrind
//! collects within one function alone. The most that a stranger's datagram may cost is a goal here, whatever the baseline says,
//! and so is the most that a packet of each kind of frame may cost. Keys, seeds, addresses and the clock are fixed, so that
//! counts repeat to the instruction. They say nothing of system calls and of memory that is far away. `cargo xtask bench --gate`
//! holds them against `benches/counts.toml`. `--quick` has a tenth of the calls and leaves out what takes long to prepare;
//! `--only STAGE` has one stage.
#![forbid(unsafe_code)]

mod hostile;
mod idle;
mod packets;
mod receive;
mod send;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::ExitCode;

use drumfire_benches::{
    Extent, Goal, Options, Results, ending, instructions, print_machine, run_bench, valgrind_version,
};

/// The first argument of the run that is counted, before the stage and how many calls.
const COUNTED: &str = "--counted";

/// The function within which callgrind collects.
const WITHIN: &str = "*counted_part*";

/// As many packets as a receive call takes.
const BATCH: u64 = 32;

/// One thing that is counted.
struct Stage {
    /// Its name in tables and in the baseline.
    name: &'static str,
    /// Calls of the shorter run.
    calls: u64,
    /// Does it so many times, within [`counted_part`].
    run: fn(u64),
    /// It takes long to prepare, and the first call is like any other: it runs once, and all calls count.
    is_long_prepared: bool,
    /// What is promised, whatever the baseline says.
    most: Option<u32>,
}

/// A stage that runs twice.
const fn stage(name: &'static str, calls: u64, run: fn(u64)) -> Stage {
    Stage { name, calls, run, is_long_prepared: false, most: None }
}

impl Stage {
    /// The same, with a promise that a call costs no more instructions than that.
    const fn at_most(self, most: u32) -> Self {
        Self { most: Some(most), ..self }
    }

    /// What its count is held against here; the baseline is the gate's.
    fn goal(&self) -> Goal {
        self.most.map_or(Goal::Shown, |most| Goal::AtMost(most.into()))
    }
}

/// In the order of a packet's way.
const STAGES: [Stage; 23] = [
    stage("parse", 32 * BATCH, receive::parse),
    stage("look-up and replay window", 32 * BATCH, receive::find),
    stage("open, ChaCha20-Poly1305", 32 * BATCH, receive::open_chacha),
    stage("open, AES-128-GCM", 32 * BATCH, receive::open_aes),
    stage("event hand-over", 32 * BATCH, receive::events),
    stage("receive, unreliable", 64 * BATCH, receive::unreliable),
    stage("receive, reliable ordered", 64 * BATCH, receive::reliable_ordered),
    stage("hear an ack of 1 packet", 512, send::ack_of_one),
    stage("hear an ack of 32 packets", 64, send::ack_of_32),
    stage("build and seal a packet", 64 * BATCH, send::build_and_seal),
    stage("send, reliable ordered", 64 * BATCH, send::whole),
    stage("keep-alive exchange", 256, idle::keep_alive),
    Stage { is_long_prepared: true, ..stage("tick, 8,192 idle connections", 1_000, idle::tick) },
    stage("handshake", 20, idle::handshake),
    stage("Hello without a cookie", 256, hostile::no_cookie).at_most(3_000),
    stage("Hello with a bad cookie", 256, hostile::bad_cookie).at_most(3_000),
    stage("Hello with a bad token", 256, hostile::bad_token).at_most(15_000),
    stage("Hello with a bad MAC", 256, hostile::bad_mac).at_most(40_000),
    stage("packet with a forged id", 32 * BATCH, hostile::forged_id).at_most(500),
    stage("ack of 32 ranges, 2,048 in flight", 4, hostile::widest_ack::<2_048>),
    stage("ack of 32 ranges, 4,096 in flight", 4, hostile::widest_ack::<4_096>).at_most(150_000),
    stage("ack that leaves 2,048 lost", 2, hostile::ack_with_losses::<2_048>),
    stage("ack that leaves 4,096 lost", 2, hostile::ack_with_losses::<4_096>),
];

/// Twice as much under way costs so many times as much at most, or the cost grows with more than what an ack settles.
const DOUBLE: f64 = 2.2;

/// Stages of which the second has half under way of what the first has.
const DOUBLED: [(&str, &str); 2] = [
    ("ack of 32 ranges, 4,096 in flight", "ack of 32 ranges, 2,048 in flight"),
    ("ack that leaves 4,096 lost", "ack that leaves 2,048 lost"),
];

/// What is done within it is counted, nothing else is. Its name is [`WITHIN`].
#[inline(never)]
fn counted_part<T>(work: impl FnOnce() -> T) -> T {
    work()
}

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    if let [COUNTED, name, count] = words[..] {
        return ending(run_counted(name, count));
    }
    let packets = packets::PACKETS.iter().map(|packet| packet.name);
    let names: Vec<&str> = STAGES.iter().map(|stage| stage.name).chain(packets).collect();
    run_bench(args, &names, bench)
}

/// What runs under valgrind.
fn run_counted(name: &str, count: &str) -> Result<(), String> {
    let count: u64 = count.parse().map_err(|_| format!("{count}: not a number of calls"))?;
    if let Some(packet) = packets::PACKETS.iter().find(|packet| packet.name == name) {
        packets::receive(packet, usize::try_from(count).map_err(|error| error.to_string())?);
        return Ok(());
    }
    let stage = STAGES.iter().find(|stage| stage.name == name).ok_or_else(|| format!("no stage {name}"))?;
    (stage.run)(count);
    Ok(())
}

fn bench(options: &Options) -> Result<(), String> {
    let Some(version) = valgrind_version() else {
        println!("skipped: needs valgrind on the PATH, which counts the instructions");
        return Ok(());
    };
    print_machine();
    println!("counted   by {version}\n");
    let mut results = Results::new("counts", options);
    let mut counts = BTreeMap::new();
    for stage in STAGES.iter().filter(|stage| options.wants(stage.name)) {
        let is_quick = options.extent == Extent::Quick;
        if is_quick && stage.is_long_prepared {
            results.figure(stage.name, None, "instructions", stage.goal(), "not in a quick run");
            continue;
        }
        let each = count(stage, if is_quick { (stage.calls / 10).max(1) } else { stage.calls })?;
        results.figure(stage.name, Some(each as f64), "instructions", stage.goal(), "");
        counts.insert(stage.name, each as f64);
    }
    for (whole, half) in DOUBLED {
        if let (Some(of_whole), Some(of_half)) = (counts.get(whole), counts.get(half)) {
            results.figure(
                format!("{whole} over {half}"),
                Some(of_whole / of_half),
                "",
                Goal::AtMost(DOUBLE),
                "",
            );
        }
    }
    count_packets(options, &mut results)?;
    println!("{}", results.table());
    println!("written to {}", results.write()?.display());
    Ok(())
}

/// Counts the most expensive packet of each kind, in the larger of both sizes of datagrams that is dearer.
fn count_packets(options: &Options, results: &mut Results) -> Result<(), String> {
    let mut one_message: Option<f64> = None;
    for packet in packets::PACKETS.iter().filter(|packet| options.wants(packet.name)) {
        let counted = |bytes: usize| instructions(&[COUNTED, packet.name, &bytes.to_string()], Some(WITHIN));
        let [small, large] = packets::DATAGRAM_BYTES.map(counted);
        let most = small?.max(large?);
        results.figure(packet.name, Some(most as f64), "instructions", Goal::Shown, "");
        let Some(one) = one_message else {
            one_message = (packet.name == packets::ONE_MESSAGE).then_some(most as f64);
            continue;
        };
        let (what, count, goal) = match packet.delivered {
            0 => (packet.name.to_owned(), 1.0, packets::RATIO_MAX),
            count => (format!("{}, each", packet.name), count.into(), packets::DELIVERED_RATIO_MAX),
        };
        let ratio = most as f64 / count / one;
        results.figure(
            format!("{what}, over {}", packets::ONE_MESSAGE),
            Some(ratio),
            "",
            Goal::AtMost(goal),
            "",
        );
    }
    Ok(())
}

/// Instructions of one call.
fn count(stage: &Stage, calls: u64) -> Result<u64, String> {
    let counted = |calls: u64| instructions(&[COUNTED, stage.name, &calls.to_string()], Some(WITHIN));
    let (before, whole) =
        if stage.is_long_prepared { (0, counted(calls)?) } else { (counted(calls)?, counted(2 * calls)?) };
    Ok((whole.saturating_sub(before) + calls / 2) / calls)
}
