//! `cargo xtask nightly`: the long forms of all checks that look for faults, one after the other, within a budget of minutes.
//!
//! This module decides which parts run and how long. A part that fails is a finding, and the night fails. It also fails when the time
//! was not enough for all pieces of the simulator.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::fuzz::at_once;
use crate::ledger;
use crate::run::{CommandLine, Stop, is_installed};
use crate::steps::{Step, Steps, step};
use crate::workspace::Workspace;

/// Parts of a fixed size, in their order. A part that the machine cannot run is skipped. Placeholders in the arguments:
///
/// - `SEED` is the first seed that was not tried yet. `WORKERS` and `HOSTILE` are ranges of seeds that begin there.
/// - `SHARD` is a shard of the mutants.
/// - `PUBLISHED` selects the packages that go to a registry.
/// - `NO_TESTS` leaves test files out of a coverage report.
const PARTS: [Part; 27] = [
    part(
        "tests, full",
        "test --release -p drumfire -p drumfire-proto -p drumfire-socket -p drumfire-wire -p drumfire-crypto \
         --features drumfire/control --lib --tests",
        16,
    )
    .env(&FULL)
    .quick("test --release -p drumfire-proto --test core"),
    part("hostile traffic", "xtask hostile --seeds HOSTILE --counted 60", 4)
        .quick("xtask hostile --seeds 0..200 --counted 2"),
    part("planted bugs", "xtask sim --plant all --ledger", 15).quick("xtask sim --plant 1"),
    part("simulator, failing workers", "xtask sim --worker --seeds WORKERS --ledger", 5)
        .quick("xtask sim --worker --seeds 0..200"),
    // More than a million in all.
    part("interleavings at random", "xtask loom --shuttle 100000 --seed SEED", 3)
        .quick("xtask loom --shuttle 10000 --seed SEED"),
    part("secrets", "xtask secrets", 2),
    // What one player can do to the others.
    part("neighbors", "bench -p drumfire-benches --bench neighbours -- --judge", 4),
    part("chaos, first half", "xtask chaos C1 C2 C3 C4 C5 C6", 11).quick("xtask chaos C5 --quick").turn(0),
    part("chaos, second half", "xtask chaos C7 C8 C9 C10 C11 C12", 11)
        .quick("xtask chaos C9 --quick")
        .turn(1),
    part(MUTANTS, "mutants --shard SHARD", 30).needs(CARGO_MUTANTS).turn(0),
    part("address sanitizer", "xtask sanitize --all", 8).quick("xtask sanitize").turn(1),
    part("soak under the address sanitizer", "xtask chaos C1 --sanitized", 7).turn(1),
    // Each back end of the portable ciphers against another implementation. The accelerated provider chooses by the processor alone.
    part("ciphers, soft", CIPHERS, 3).env(&[("RUSTFLAGS", SOFT)]).turn(1),
    part("ciphers, SSE2", CIPHERS, 3).env(&[("RUSTFLAGS", SSE2)]).needs("sse2").turn(1),
    part("ciphers, AVX2", CIPHERS, 3).env(&[("RUSTFLAGS", AVX2)]).needs("avx2").turn(1),
    part("packages alone", "package --offline --allow-dirty --target-dir target/alone/SEED PUBLISHED", 3)
        .turn(2),
    part("oldest dependencies", "minimal-versions check --direct --each-feature -p drumfire", 3)
        .needs("cargo-minimal-versions")
        .turn(2),
    part(
        "coverage",
        "llvm-cov --no-report --lib --tests -p drumfire-wire -p drumfire-crypto -p drumfire-proto",
        4,
    )
    .needs(COVERAGE)
    .turn(2),
    // Test modules inside files count, and run in whole.
    part(
        "coverage of wire",
        "llvm-cov report -p drumfire-wire --fail-under-lines 92 --fail-under-regions 92 NO_TESTS",
        1,
    )
    .needs(COVERAGE)
    .turn(2),
    part("coverage of crypto", "llvm-cov report -p drumfire-crypto --fail-under-lines 92 NO_TESTS", 1)
        .needs(COVERAGE)
        .turn(2),
    part("coverage of proto", "llvm-cov report -p drumfire-proto --fail-under-lines 92 NO_TESTS", 1)
        .needs(COVERAGE)
        .turn(2),
    part("plugin for Bevy", "xtask bevy", 5).turn(2),
    part("round with Agones", "xtask agones", 2).turn(2),
    part("live view", "test -p drumfire-tools --features top top", 2).turn(2),
    part(
        "portable sockets, both ends",
        "test -p drumfire --features drumfire-socket/portable --test it --test restart --test foreign",
        3,
    )
    .turn(2),
    part("portable sockets, documentation", "test -p drumfire --features drumfire-socket/portable --doc", 2)
        .turn(2),
    part(
        "portable sockets, main job",
        "run --release -p drumfire-tools --features portable --bin receiver -- --with-sender --threads 1 \
         --secs 1",
        2,
    )
    .turn(2),
];

/// Tests try all that their names say, properties 100,000 cases, and tests of the core 1,000 seeds.
const FULL: [(&str, &str); 4] = [
    ("DRUMFIRE_FULL", "1"),
    ("PROPTEST_CASES", "100000"),
    ("DRUMFIRE_SEEDS", "1000"),
    ("STRATEGY_SEEDS", "1000"),
];

const CIPHERS: &str = "test --release --target-dir target/ciphers -p drumfire-crypto --lib suite::";
const SOFT: &str =
    "--cfg chacha20_force_soft --cfg poly1305_force_soft --cfg aes_force_soft --cfg polyval_force_soft";
const SSE2: &str = "--cfg chacha20_force_sse2";
/// The crate uses AVX2 only where the whole program may.
const AVX2: &str = "--cfg chacha20_force_avx2 -C target-feature=+avx2";

const COVERAGE: &str = "cargo-llvm-cov";
const CARGO_MUTANTS: &str = "cargo-mutants";
const MUTANTS: &str = "mutants";
/// Where `packages alone` builds, below the target directory. Cargo unpacks packages once for each directory and version, so each
/// night has a directory of its own.
const ALONE: &str = "alone";

/// Nights after which every part was run.
const TURNS: u64 = 3;
/// Shards of mutants. One takes about half an hour.
const SHARDS: u64 = 8;

/// A part of a fixed size.
#[derive(Clone, Copy)]
struct Part {
    name: &'static str,
    long: &'static str,
    /// The arguments for a quick run; `None` where there is none.
    quick: Option<&'static str>,
    /// Minutes after which it hangs.
    minutes: u64,
    /// The nights in which it runs, by their number modulo [`TURNS`]; `None` for all.
    turn: Option<u64>,
    /// The environment of the long run.
    env: &'static [(&'static str, &'static str)],
    /// The program or instruction set without which it is skipped.
    needs: Option<&'static str>,
}

/// Returns a part that runs every night.
const fn part(name: &'static str, long: &'static str, minutes: u64) -> Part {
    Part { name, long, quick: None, minutes, turn: None, env: &[], needs: None }
}

/// Seeds of hostile traffic.
const HOSTILE_SEEDS: u64 = 6_000;

/// Seeds of a server with workers that fail.
const WORKER_SEEDS: u64 = 20_000;

/// The simulator's part.
const SEEDS: u64 = 100_000;
/// It runs in pieces, so that what was done is kept when the time is over.
const SEEDS_AT_ONCE: u64 = 10_000;
const QUICK_SEEDS: u64 = 200;
/// Scenarios of an hour each.
const HOURS: u64 = 50;
const QUICK_HOURS: u64 = 1;
/// A piece that takes longer is stuck.
const SEEDS_DEADLINE: Duration = Duration::from_secs(3_600);

/// The least that each target of the fuzzer looks.
const FUZZ_SECONDS: u64 = 60;
const QUICK_FUZZ_SECONDS: u64 = 2;
/// The fuzzer's build, and what it needs to begin and to end a target.
const FUZZ_BUILD: Duration = Duration::from_secs(180);
/// The committed corpora, a folder for each target.
const CORPORA: &str = "crates/fuzz/corpus";

/// The flags of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct NightlyArgs {
    /// The minutes that it may take.
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u64).range(1..=1_440))]
    minutes: u64,
    /// A little of each part, whatever the time.
    #[arg(long)]
    quick: bool,
    /// Run all parts, also after a failure.
    #[arg(long)]
    keep_going: bool,
    /// Which of the parts that run every third night run; by the present day if absent.
    #[arg(long, value_name = "0..2", value_parser = clap::value_parser!(u64).range(0..=2))]
    turn: Option<u64>,
}

/// Runs all parts.
///
/// # Errors
/// [`Stop::Failed`] with what was missed.
pub(crate) fn run(args: &NightlyArgs) -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let root = &workspace.root;
    // Targets that run side by side take the time of one.
    let turns = targets(root)?.div_ceil(at_once() as u64);
    let seed = ledger::next_seed(root)?;
    let pieces = pieces(seed, args.quick);
    let night = match (args.quick, args.turn) {
        (true, _) => None,
        (false, Some(turn)) => Some(turn),
        (false, None) => Some(today(root)?),
    };
    let published = workspace.published();
    let parts = PARTS.iter().filter_map(|part| part.step(night, seed, &published));
    let parts: Vec<_> = parts.chain([hours(seed, args.quick)]).collect();
    // It fails where there is none.
    drop(fs::remove_dir_all(workspace.target.join(ALONE)));
    if !args.quick {
        ledger::begin(root)?;
    }
    let mut steps = Steps::new(root, parts.len() + pieces.len() + 1);
    for part in &parts {
        go(&mut steps, part, args)?;
        if part.name == MUTANTS && is_installed(CARGO_MUTANTS) {
            note_mutants(root)?;
        }
    }
    let budget = Duration::from_secs(60 * args.minutes);
    let least = FUZZ_BUILD + Duration::from_secs(FUZZ_SECONDS * turns);
    let (mut left, mut longest) = (pieces.len(), Duration::ZERO);
    for piece in &pieces {
        // One more like the longest so far must leave the fuzzer its time.
        if !args.quick && steps.elapsed() + longest + least > budget {
            break;
        }
        let before = steps.elapsed();
        go(&mut steps, piece, args)?;
        longest = longest.max(steps.elapsed().saturating_sub(before));
        left -= 1;
    }
    let rest = budget.saturating_sub(steps.elapsed()).saturating_sub(FUZZ_BUILD);
    let seconds = if args.quick { QUICK_FUZZ_SECONDS } else { seconds_each(rest, turns) };
    go(&mut steps, &fuzz(seconds, turns, args.quick), args)?;
    let took = steps.elapsed();
    let end = steps.finish();
    ledger::run()?;
    end?;
    if left > 0 {
        let all = pieces.len();
        return Err(Stop::failed(format!("no time left for {left} of {all} pieces of the simulator")));
    }
    if args.quick { Ok(()) } else { in_time(took, budget) }
}

/// Whether all of it took no longer than it may.
fn in_time(took: Duration, budget: Duration) -> Result<(), Stop> {
    if took <= budget {
        return Ok(());
    }
    let minutes = |time: Duration| time.as_secs().div_ceil(60);
    Err(Stop::failed(format!("took {} minutes, and may take {}", minutes(took), minutes(budget))))
}

/// Runs one step. A failure that the step itself did not write into the ledger is written here. It ends the night unless the caller
/// asked for all parts.
fn go(steps: &mut Steps<'_>, step: &Step, args: &NightlyArgs) -> Result<(), Stop> {
    let root = steps.root();
    let before = ledger::findings(root)?;
    let why = match steps.run(step) {
        Err(Stop::Failed(why)) => why,
        end => return end,
    };
    if !args.quick && ledger::findings(root)? == before {
        let command = step.command.to_string();
        ledger::note(root, command.trim_start_matches("cargo "), &["findings=1".to_owned()], true)?;
    }
    if args.keep_going {
        eprintln!("{why}");
        Ok(())
    } else {
        Err(Stop::Failed(why))
    }
}

/// Writes the counts of cargo-mutants into the ledger.
fn note_mutants(root: &Path) -> Result<(), Stop> {
    let Ok(outcomes) = fs::read_to_string(root.join("mutants.out/outcomes.json")) else { return Ok(()) };
    let figures =
        mutants(&outcomes).ok_or_else(|| Stop::failed("mutants.out/outcomes.json has no counts"))?;
    ledger::note(root, "mutants", &[figures], true)
}

/// Returns how many of the mutants that compile were caught. A test that no longer ends catches its mutant too.
fn mutants(outcomes: &str) -> Option<String> {
    let outcomes: Value = serde_json::from_str(outcomes).ok()?;
    let count = |name: &str| outcomes[name].as_u64();
    let caught = count("caught")? + count("timeout")?;
    Some(format!("mutants={caught}/{} findings=0", caught + count("missed")?))
}

impl Part {
    const fn quick(self, args: &'static str) -> Self {
        Self { quick: Some(args), ..self }
    }

    const fn turn(self, turn: u64) -> Self {
        Self { turn: Some(turn), ..self }
    }

    const fn env(self, env: &'static [(&'static str, &'static str)]) -> Self {
        Self { env, ..self }
    }

    const fn needs(self, program: &'static str) -> Self {
        Self { needs: Some(program), ..self }
    }

    /// Returns its step in a night, if it has one: the quick one where there is no night.
    fn step(&self, night: Option<u64>, seed: u64, published: &str) -> Option<Step> {
        let args = match night {
            None => self.quick?,
            Some(night) if self.turn.is_none_or(|turn| turn == night % TURNS) => self.long,
            Some(_) => return None,
        };
        let workers = format!("{seed}..{}", seed + WORKER_SEEDS);
        let hostile = format!("{seed}..{}", seed + HOSTILE_SEEDS);
        let shard = format!("{}/{SHARDS}", night.unwrap_or(0) / TURNS % SHARDS);
        let args = args.replace("WORKERS", &workers).replace("HOSTILE", &hostile);
        let args = args.replace("SEED", &seed.to_string()).replace("SHARD", &shard);
        let args = args
            .replace("PUBLISHED", published)
            .replace("NO_TESTS", "--ignore-filename-regex /test(s|_support)[./]");
        let mut step = step(self.name, &args).within(Duration::from_secs(60 * self.minutes)).skippable();
        if night.is_some() {
            step.command =
                self.env.iter().fold(step.command, |command, (name, value)| command.env(name, value));
        }
        Some(Step { needs: self.needs, ..step })
    }
}

/// Returns the number of the present day. Parts that do not run every night run by it.
fn today(root: &Path) -> Result<u64, Stop> {
    let seconds = CommandLine::new("date", &["-u", "+%s"]).output(root)?;
    let seconds: u64 =
        seconds.trim().parse().map_err(|why| Stop::failed(format!("date: {seconds}: {why}")))?;
    Ok(seconds / (24 * 60 * 60))
}

/// The simulator's hours, from this seed on.
fn hours(from: u64, quick: bool) -> Step {
    simulator("--long ", from, if quick { QUICK_HOURS } else { HOURS }, quick)
}

/// The simulator's pieces, from this seed on: all of one size, so that one takes as long as another.
fn pieces(from: u64, quick: bool) -> Vec<Step> {
    let (all, size) = if quick { (QUICK_SEEDS, QUICK_SEEDS) } else { (SEEDS, SEEDS_AT_ONCE) };
    (0..all / size).map(|piece| simulator("", from + piece * size, size, quick)).collect()
}

fn simulator(kind: &str, from: u64, seeds: u64, quick: bool) -> Step {
    let task = format!("xtask sim {kind}--seeds {from}..{}{}", from + seeds, kept(quick));
    step("simulator", &task).within(SEEDS_DEADLINE)
}

/// Returns the flag with which a task writes into the ledger.
fn kept(quick: bool) -> &'static str {
    if quick { "" } else { " --ledger" }
}

fn fuzz(seconds: u64, turns: u64, quick: bool) -> Step {
    // Twice the time, for the builds and for targets that are slow to begin.
    let deadline = 4 * FUZZ_BUILD + Duration::from_secs(2 * seconds * turns);
    step("fuzzer", &format!("xtask fuzz all --seconds {seconds}{}", kept(quick))).within(deadline).skippable()
}

/// Returns the seconds for each target when `rest` is left for all turns.
fn seconds_each(rest: Duration, turns: u64) -> u64 {
    (rest.as_secs() / turns.max(1)).max(FUZZ_SECONDS)
}

fn targets(root: &Path) -> Result<u64, Stop> {
    let folder = root.join(CORPORA);
    let entries = std::fs::read_dir(&folder).map_err(|why| Stop::failed(format!("{CORPORA}: {why}")))?;
    Ok(entries.count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files;

    #[test]
    fn the_simulator_goes_on_where_it_ended_and_leaves_no_seed_out() {
        let commands: Vec<_> = pieces(7_000, false).iter().map(|step| step.command.to_string()).collect();
        assert_eq!(commands.len(), 10);
        assert_eq!(commands[0], "cargo xtask sim --seeds 7000..17000 --ledger");
        assert_eq!(commands[9], "cargo xtask sim --seeds 97000..107000 --ledger");
        assert_eq!(pieces(0, true).len(), 1);
        let long = hours(7_000, false).command.to_string();
        assert_eq!(long, "cargo xtask sim --long --seeds 7000..7050 --ledger");
    }

    #[test]
    fn the_fuzzer_gets_what_is_left_and_a_minute_each_at_least() {
        assert_eq!(seconds_each(Duration::from_secs(3_600), 18), 200);
        assert_eq!(seconds_each(Duration::ZERO, 18), FUZZ_SECONDS);
        let step = fuzz(200, 18, false);
        assert!(step.deadline.is_some_and(|deadline| deadline > Duration::from_secs(200 * 18)));
    }

    #[test]
    fn chance_and_workers_go_on_where_the_last_night_ended() {
        let commands: Vec<_> = PARTS
            .iter()
            .filter_map(|part| part.step(Some(0), 7_000, ""))
            .map(|step| step.command.to_string())
            .collect();
        for part in [
            "cargo xtask sim --worker --seeds 7000..27000 --ledger",
            "cargo xtask hostile --seeds 7000..13000 --counted 60",
            "cargo xtask loom --shuttle 100000 --seed 7000",
        ] {
            assert!(commands.iter().any(|command| command == part), "{commands:#?}");
        }
    }

    #[test]
    fn all_shards_of_mutants_come_within_24_nights() {
        let shards: std::collections::BTreeSet<_> = (0..TURNS * SHARDS)
            .flat_map(|night| PARTS.iter().filter_map(move |part| part.step(Some(night), 0, "")))
            .map(|step| step.command.to_string())
            .filter(|command| command.starts_with("cargo mutants"))
            .collect();
        assert_eq!(shards.len() as u64, SHARDS);
        assert!(shards.contains("cargo mutants --shard 7/8"));
    }

    #[test]
    fn each_back_end_of_the_ciphers_is_forced() {
        let commands: Vec<_> = PARTS
            .iter()
            .filter_map(|part| part.step(Some(1), 0, ""))
            .map(|step| step.command.to_string())
            .collect();
        for name in ["soft", "sse2", "avx2"] {
            let flag = format!("--cfg chacha20_force_{name}");
            let is_forced = |command: &&String| command.starts_with("RUSTFLAGS=") && command.contains(&flag);
            assert!(commands.iter().any(|command| is_forced(&command)), "{name}");
        }
    }

    #[test]
    fn the_variables_of_the_full_tests_are_those_that_the_tests_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for (path, name) in [
            ("crates/tries/src/lib.rs", "DRUMFIRE_FULL"),
            ("crates/proto/tests/core/paths.rs", "DRUMFIRE_SEEDS"),
            ("crates/proto/tests/core/strategies.rs", "STRATEGY_SEEDS"),
        ] {
            assert!(FULL.iter().any(|(variable, _)| *variable == name));
            assert!(fs::read_to_string(root.join(path)).unwrap().contains(&format!("\"{name}\"")), "{path}");
        }
    }

    #[test]
    fn a_part_that_fails_is_a_finding() {
        let root = std::env::temp_dir().join(format!("drumfire-nightly-{}", std::process::id()));
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        files::make_empty(&root).unwrap();
        files::write(&root.join(ledger::PATH), &files::read(&project.join(ledger::PATH)).unwrap()).unwrap();
        let script = "git init -q && git -c user.name=x -c user.email=x commit -q --allow-empty -m x";
        CommandLine::new("sh", &["-c", script]).done(&root).unwrap();
        ledger::begin(&root).unwrap();
        let before = ledger::findings(&root).unwrap();
        let fails = |quick, keep_going| {
            let args = NightlyArgs { minutes: 1, quick, keep_going, turn: None };
            let step = step("fails", "no-such-command");
            go(&mut Steps::new(&root, 1), &step, &args)
        };
        let ends = [fails(false, true), fails(false, false), fails(true, true)];
        assert!(matches!(ends, [Ok(()), Err(Stop::Failed(_)), Ok(())]));
        assert_eq!(ledger::findings(&root).unwrap(), before + 2);
        let text = fs::read_to_string(root.join(ledger::PATH)).unwrap();
        fs::remove_dir_all(&root).unwrap();
        assert!(text.ends_with(" | `no-such-command` | failed |\n"), "{text}");
        assert_eq!(ledger::check(&text), Ok(()));
    }

    #[test]
    fn mutants_are_counted_without_those_that_do_not_compile() {
        let outcomes = r#"{"total_mutants":9,"caught":4,"timeout":1,"missed":2,"unviable":2}"#;
        assert_eq!(mutants(outcomes).as_deref(), Some("mutants=5/7 findings=0"));
        assert_eq!(mutants("{}"), None);
    }

    #[test]
    fn a_night_that_takes_too_long_is_a_failure() {
        let budget = Duration::from_secs(5_400);
        assert!(in_time(budget, budget).is_ok());
        let late = in_time(budget + Duration::from_secs(1), budget);
        assert!(matches!(late, Err(Stop::Failed(why)) if why == "took 91 minutes, and may take 90"));
    }

    #[test]
    fn every_part_has_a_deadline_and_may_say_that_the_machine_lacks_something() {
        for night in [None, Some(0), Some(1), Some(2)] {
            let parts = PARTS.iter().filter(|part| part.step(night, 0, "").is_some());
            for part in parts.clone() {
                let step = part.step(night, 0, "").unwrap();
                assert!(step.can_be_skipped && step.deadline.is_some(), "{}", part.name);
            }
            let minutes: u64 = parts.map(|part| part.minutes).sum();
            assert!(minutes <= 90, "night {night:?}: {minutes}");
        }
        let turns = PARTS.iter().filter_map(|part| part.turn).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(turns, (0..TURNS).collect());
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        assert!(targets(root).unwrap() > 10);
    }
}
