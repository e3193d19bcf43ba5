//! Instructions of each stage of a packet's path, counted by valgrind's callgrind: `cargo bench --bench counts`.
//!
//! Each stage runs in a process of its own, N times and 2 N times. The difference counts, so that work that happens once cancels out.
//! Callgrind counts only within one function, so that one process can seal the packets of a stage and open them. Keys, seeds, addresses,
//! and the clock are fixed, so counts repeat to the instruction, except for the inline server's, which repeat within 1 %. They depend on
//! the compiler, on valgrind, and on the C library, but not on how busy the machine is. System calls are not counted.
//!
//! `cargo xtask bench --gate` compares the counts with `benches/counts.toml`. Some stages have a limit here as well: the cost of a
//! datagram without keys, and the cost of a packet full of one kind of frame. `--quick` makes a tenth of the calls and leaves out a stage
//! that takes long to prepare.
#![forbid(unsafe_code)]

mod packets;
mod stages;

use std::collections::BTreeMap;
use std::process::{Command, ExitCode, Stdio};

use drumfire_benches::hellos::Flaw;
use drumfire_benches::memory::SealedPeer;
use drumfire_benches::steps::{COUNTED_PART, Step, Stream, find, receive_unreliable};
use drumfire_benches::{Bench, Counts, Extent, Goal, Program, ROLE_FLAG, arguments, part};
use drumfire_crypto::Suite;
use drumfire_proto::Config;

use packets::{DATAGRAM_BYTES, ONE_MESSAGE, PACKETS, Packet, WAITED_FOR, WAITING};
use stages::{PAYLOAD, sealed};

/// A stage that is counted.
struct Stage {
    /// The name in tables and in the baseline.
    name: &'static str,
    work: Work,
    /// The limit, independent of the baseline.
    goal: Goal,
}

/// The work of a stage.
enum Work {
    /// Calls: their number in the shorter run, and the function that makes this number of calls.
    Calls(u64, fn(u64)),
    /// A packet, in the more expensive one of two sizes of datagrams.
    Packet(Packet),
}

const fn stage(name: &'static str, calls: u64, run: fn(u64)) -> Stage {
    Stage { name, work: Work::Calls(calls, run), goal: Goal::Shown }
}

const fn limited(name: &'static str, calls: u64, max: f64, run: fn(u64)) -> Stage {
    Stage { goal: Goal::AtMost(max), ..stage(name, calls, run) }
}

/// The stage that takes long to prepare. One run is enough, because its first call is like any other.
const LONG_PREPARED: &str = "tick, 8,192 idle connections";

/// The stages in the order of a packet's path. The limits are those of a datagram from a sender without keys.
static STAGES: [Stage; 29] = [
    stage("parse", 1_024, stages::parse),
    stage("look-up and replay window", 1_024, |count| find(&mut server(), count)),
    stage("open, ChaCha20-Poly1305", 1_024, |count| stages::open(Suite::ChaCha20Poly1305, count)),
    stage("open, AES-128-GCM", 1_024, |count| stages::open(Suite::Aes128Gcm, count)),
    stage("event hand-over", 1_024, |count| receive_unreliable(&mut server(), false, count)),
    stage("receive, unreliable", 2_048, |count| receive_unreliable(&mut server(), true, count)),
    stage("receive, reliable ordered", 2_048, |count| Stream::new(true, ONE).run(count, Step::Receive)),
    stage("receive an ack of 1 packet", 512, |count| stages::receive_acks(count, 1)),
    stage("receive an ack of 32 packets", 64, |count| stages::receive_acks(count, 32)),
    stage("build and seal a packet", 2_048, |count| Stream::new(false, ONE).run(count, Step::Seal)),
    stage("send, reliable ordered", 2_048, |count| Stream::new(false, ONE).run(count, Step::Send)),
    stage("inline server, message in", 1_024, |count| stages::echo(true, count)),
    stage("inline server, message out", 1_024, |count| stages::echo(false, count)),
    stage("broadcast of 137 messages to 64 members, each", 10 * stages::DELIVERIES, stages::broadcast),
    stage("29 messages: queue", 2_900, |count| Stream::new(false, FULL).run(count / 29, Step::Queue)),
    stage("29 messages: write and seal", 2_900, |count| Stream::new(false, FULL).run(count / 29, Step::Seal)),
    stage("29 messages: ack", 2_900, |count| Stream::new(false, FULL).run(count / 29, Step::Ack)),
    stage("keep-alive exchange", 256, stages::keep_alive),
    stage(LONG_PREPARED, 1_000, stages::tick),
    stage("handshake", 20, stages::handshake),
    limited("Hello without a cookie", 256, 3_000.0, |count| stages::refuse(Flaw::NoCookie, count)),
    limited("Hello with a bad cookie", 256, 3_000.0, |count| stages::refuse(Flaw::BadCookie, count)),
    limited("Hello with a bad token", 256, 15_000.0, |count| stages::refuse(Flaw::BadToken, count)),
    limited("Hello with a bad MAC", 256, 40_000.0, |count| stages::refuse(Flaw::BadMac, count)),
    limited("packet with a forged id", 1_024, 500.0, stages::forged_id),
    stage("ack of 32 ranges, 2,048 in flight", 4, |count| stages::widest_acks(count, 2_048, 2)),
    limited("ack of 32 ranges, 4,096 in flight", 4, 150_000.0, |count| stages::widest_acks(count, 4_096, 2)),
    stage("ack that leaves 2,048 lost", 2, |count| stages::widest_acks(count, 2_048, 64)),
    stage("ack that leaves 4,096 lost", 2, |count| stages::widest_acks(count, 4_096, 128)),
];

/// A server with one client, with the default settings.
fn server() -> SealedPeer {
    sealed(Config::default())
}

/// A reliable message that fills a packet of 128 B, and messages of 36 B that fill a packet.
const ONE: (u64, &[u8]) = (1, PAYLOAD);
const FULL: (u64, &[u8]) = (29, &[7; 36]);

/// The role of the process that runs under valgrind.
const COUNTED: &str = "counted";

/// Switches off whatever takes time or leaves files behind.
const FLAGS: [&str; 3] = ["--tool=callgrind", "--callgrind-out-file=/dev/null", "--vgdb=no"];

/// Makes the C library copy and clear memory with vectors. Valgrind counts each byte of a string instruction.
const TUNABLES: &str =
    "glibc.cpu.x86_rep_movsb_threshold=1000000000:glibc.cpu.x86_rep_stosb_threshold=1000000000";

/// The cost of an ack with twice the packets in flight over its cost with half of them, at most. Above it, the cost of an ack would
/// depend on more than the packets that it settles.
const DOUBLE: f64 = 2.2;

/// The stages with packets in flight, whose number is left out here.
const IN_FLIGHT: [&str; 2] = ["ack of 32 ranges, N in flight", "ack that leaves N lost"];

/// A packet of any content over a packet with a message of 64 B, at most.
const PACKET_RATIO: f64 = 20.0;

/// The delivery of a message that waited over a packet with a message of 64 B, at most.
const DELIVERED_RATIO: f64 = 1.0;

fn main() -> ExitCode {
    Program { roles: &[(COUNTED, run_counted)], ..Program::new("counts", &[part("counts", run)]) }.main()
}

/// Runs under valgrind. The arguments are the name of a stage, and its number of calls or the size of its packet.
fn run_counted(args: &str) -> Result<Counts, String> {
    let (name, number): (String, u64) = arguments(args)?;
    let stage = STAGES.iter().chain(&PACKETS).find(|stage| stage.name == name);
    match &stage.ok_or_else(|| format!("no stage {name}"))?.work {
        Work::Calls(_, run) => run(number),
        Work::Packet(packet) => packets::receive(packet, number),
    }
    Ok(Counts::new())
}

fn run(bench: &mut Bench) -> Result<(), String> {
    let version = Command::new("valgrind").arg("--version").stderr(Stdio::null()).output();
    let Some(version) = version.ok().filter(|output| output.status.success()) else {
        println!("skipped: needs valgrind on the PATH, which counts the instructions");
        return Ok(());
    };
    println!("counted by {}", String::from_utf8_lossy(&version.stdout).trim());
    let is_quick = bench.extent() == Extent::Quick;
    let mut counts = BTreeMap::new();
    for stage in STAGES.iter().chain(&PACKETS) {
        if is_quick && stage.name == LONG_PREPARED {
            continue;
        }
        let each = count(stage, is_quick)? as f64;
        bench.results.figure(stage.name, Some(each), "instructions", stage.goal, "");
        if let (Work::Packet(_), Some(one)) = (&stage.work, counts.get(ONE_MESSAGE)) {
            let (what, count, goal) = match stage.name {
                WAITED_FOR => (", each", WAITING.into(), DELIVERED_RATIO),
                _ => ("", 1.0, PACKET_RATIO),
            };
            let name = format!("{}{what}, over {ONE_MESSAGE}", stage.name);
            bench.results.figure(name, Some(each / count / one), "", Goal::AtMost(goal), "");
        }
        counts.insert(stage.name, each);
    }
    for name in IN_FLIGHT {
        let [whole, half] = ["4,096", "2,048"].map(|number| name.replace('N', number));
        if let (Some(of_whole), Some(of_half)) = (counts.get(&*whole), counts.get(&*half)) {
            let name = format!("{whole} over {half}");
            bench.results.figure(name, Some(of_whole / of_half), "", Goal::AtMost(DOUBLE), "");
        }
    }
    Ok(())
}

/// Returns the instructions of one call, or of a packet.
fn count(stage: &Stage, is_quick: bool) -> Result<u64, String> {
    let Work::Calls(calls, _) = stage.work else {
        let [small, large] = DATAGRAM_BYTES.map(|bytes| instructions(stage.name, bytes as u64));
        return Ok(small?.max(large?));
    };
    let calls = if is_quick { (calls / 10).max(1) } else { calls };
    let once = instructions(stage.name, calls)?;
    let all = match stage.name {
        LONG_PREPARED => once,
        name => instructions(name, 2 * calls)?.saturating_sub(once),
    };
    Ok((all + calls / 2) / calls)
}

/// Returns the instructions that count in a new process of this bench.
fn instructions(name: &str, number: u64) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(FLAGS)
        .arg(format!("--toggle-collect={COUNTED_PART}"))
        .arg(program)
        .args([ROLE_FLAG, COUNTED, "null", &format!("[{name:?},{number}]")])
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
    let count = collected.and_then(|(_, count)| count.trim().parse().ok()).filter(|count| *count > 0);
    count.ok_or_else(|| format!("{name}, {number}: valgrind counted nothing"))
}
