//! Instructions of hostile packets: valgrind counts each packet of some seeds separately.
//!
//! A virtual machine rarely has hardware counters, and times depend on other load. Instructions under valgrind repeat
//! exactly. A run takes fifty times as long, so it has fewer seeds.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::scene::Scene;
use crate::seeds::question_count;
use crate::violation::Violation;

/// The seeds of a run that specifies none.
const SEEDS: Range<u64> = 0..3;

/// Seeds of one process under valgrind.
const SEEDS_AT_ONCE: u64 = 5;

/// Packets of a seed.
const PACKETS: u64 = 600;

/// Small messages of each seed, before the hostile packets.
const SMALL_MESSAGES: u64 = 9;

/// The maximum cost of a packet of 1,200 bytes relative to a packet with a message of 64 bytes, on average over a run of
/// packets.
const MOST_TIMES: u64 = 20;

/// Packets of such a run. A table that grows makes one packet expensive, and the following ones cheap.
const RUN: usize = 16;

/// The maximum cost of any single packet, relative to a packet with a small message.
const ONE_MOST_TIMES: u64 = 60;

/// The seeds to count, and those of one process.
const COUNTED_SEEDS: &str = "HOSTILE_COUNTED_SEEDS";
const COUNTED: &str = "HOSTILE_COUNTED";

/// Performs the work that is counted. Valgrind identifies this function by its name.
#[inline(never)]
pub(crate) fn counted_packet(work: impl FnOnce()) {
    work();
}

/// Sets up a seed. The application sends nothing, because the cost of an ack that settles many packets would be
/// charged to one packet.
fn quiet(seed: u64) -> Scene {
    let mut scene = Scene::new(seed);
    scene.is_quiet = true;
    scene.send_small_messages(SMALL_MESSAGES);
    scene
}

/// Runs a part of a seed. Returns how many packets were counted.
fn run_part(seed: u64) -> u64 {
    let mut scene = quiet(seed);
    while scene.packet < PACKETS && !scene.is_over() {
        scene.step();
    }
    scene.counted
}

/// Runs under valgrind, with seeds from the environment; without them it runs the first seed.
#[test]
fn counted_seeds_send_hostile_packets() {
    for seed in question_count(COUNTED).unwrap_or(0..1) {
        let packets = run_part(seed);
        println!("counted: {seed} {packets}");
        assert!(packets > SMALL_MESSAGES, "seed {seed} sends hostile packets");
    }
}

/// The instructions of every packet of a seed; those of the small messages come first.
struct Counts {
    seed: u64,
    instructions: Vec<u64>,
}

/// Runs these seeds under valgrind.
fn count(seeds: Range<u64>) -> Vec<Counts> {
    let program = std::env::current_exe().expect("the program has a path");
    let out = std::env::temp_dir().join(format!("hostile-traffic-{}.out", std::process::id()));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--combine-dumps=yes", "--compress-strings=no"])
        // Two options with the same pattern would be one for valgrind.
        .args(["--toggle-collect=*counted_packet*", "--dump-after=hostile_traffic::cost::counted_packet"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .args(["--exact", "cost::counted_seeds_send_hostile_packets", "--nocapture", "--test-threads=1"])
        .env(COUNTED, format!("{}..{}", seeds.start, seeds.end))
        .stderr(Stdio::null())
        .output()
        .expect("valgrind is there");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "under valgrind: {}\n{text}", output.status);
    let mut dumped = dumps(&out).into_iter();
    fs::remove_file(&out).expect("valgrind wrote its counts");
    let counts: Vec<_> = text
        .lines()
        .filter_map(|line| line.split_once("counted: ")?.1.split_once(' '))
        .map(|(seed, packets)| {
            let packets: usize = packets.parse().expect("a number of packets");
            let instructions: Vec<u64> = dumped.by_ref().take(packets).collect();
            assert_eq!(instructions.len(), packets, "valgrind counted other packets than were sent");
            Counts { seed: seed.parse().expect("a seed"), instructions }
        })
        .collect();
    // A program that runs no test succeeds too.
    assert!(counts.iter().map(|counts| counts.seed).eq(seeds), "other seeds were counted:\n{text}");
    counts
}

/// Reads the sums of all dumps except the last, which is written when the program ends.
fn dumps(out: &Path) -> Vec<u64> {
    let text = fs::read_to_string(out).expect("valgrind wrote its counts");
    let sums = text.lines().filter_map(|line| line.strip_prefix("summary: ")?.trim().parse().ok());
    let mut sums: Vec<u64> = sums.collect();
    sums.pop();
    sums
}

/// Costs of the packets of a seed, in tenths of a small message.
#[derive(Default)]
struct Worst {
    of_one: u64,
    of_run: u64,
}

/// Finds the most expensive packets of a seed. Returns a violation if they cost too much.
fn check(counts: &Counts) -> Result<Worst, Violation> {
    let (small, hostile) = counts.instructions.split_at(usize::try_from(SMALL_MESSAGES).expect("few"));
    assert!(hostile.len() >= RUN, "seed {} has {} hostile packets", counts.seed, hostile.len());
    let mut sorted = small.to_vec();
    sorted.sort_unstable();
    let usual = sorted[sorted.len() / 2];
    let worst = |run: usize| {
        let means = hostile.windows(run).map(|packets| packets.iter().sum::<u64>() / run as u64);
        means.enumerate().max_by_key(|(_, mean)| *mean).unwrap_or_default()
    };
    for (run, most_times) in [(1, ONE_MOST_TIMES), (RUN, MOST_TIMES)] {
        let (at, mean) = worst(run);
        if mean > most_times * usual {
            let what = format!(
                "{run} packets cost {mean} instructions each, {} times the {usual} of a message of 64 bytes",
                mean / usual
            );
            return Err(reproduce(counts.seed, (at + run - 1) as u64, what));
        }
    }
    Ok(Worst { of_one: worst(1).1 * 10 / usual, of_run: worst(RUN).1 * 10 / usual })
}

/// Runs a seed once more, up to the packet with this number, for its frames.
fn reproduce(seed: u64, packet: u64, what: String) -> Violation {
    let mut scene = quiet(seed);
    while scene.counted <= SMALL_MESSAGES + packet {
        scene.step();
    }
    Violation {
        test: "hostile_packets_cost_at_most_twenty_small_messages",
        seed,
        packet: scene.packet - 1,
        what,
        frames: scene.frames.clone(),
        plan: scene.plan(),
    }
}

#[test]
fn hostile_packets_cost_at_most_twenty_small_messages() {
    let (seeds, mut violations, mut worst) =
        (question_count(COUNTED_SEEDS).unwrap_or(SEEDS), Vec::new(), Worst::default());
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("without valgrind nothing is counted");
        return;
    }
    let mut from = seeds.start;
    while from < seeds.end {
        let to = seeds.end.min(from + SEEDS_AT_ONCE);
        for counts in count(from..to) {
            match check(&counts) {
                Ok(Worst { of_one, of_run }) => {
                    worst.of_one = worst.of_one.max(of_one);
                    worst.of_run = worst.of_run.max(of_run);
                }
                Err(violation) => {
                    println!("{violation}\n");
                    violations.push(violation.seed);
                }
            }
        }
        from = to;
    }
    let Worst { of_one, of_run } = worst;
    println!("in small messages, the worst packet costs {}.{}", of_one / 10, of_one % 10);
    println!("and the worst run of {RUN} packets {}.{} each", of_run / 10, of_run % 10);
    assert!(violations.is_empty(), "seeds with packets that cost too much: {violations:?}");
}
