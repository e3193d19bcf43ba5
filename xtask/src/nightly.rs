//! `cargo xtask nightly`: the long forms of all checks that look for faults, within a budget of minutes.
//!
//! A part that fails is a finding, and the night fails. It also fails when the time was not enough for all pieces of the simulator.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use crate::fuzz;
use crate::ledger;
use crate::run::{CommandLine, Stop, is_installed};
use crate::steps::{Step, Steps};
use crate::workspace::Workspace;

/// Parts of a fixed size, in order. [`Plan::step`] replaces the words in capitals.
const PARTS: [Part; 28] = [
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
    // More than a million schedules of all models together.
    part("interleavings at random", "xtask loom --shuttle 100000 --seed SEED", 3)
        .quick("xtask loom --shuttle 10000 --seed SEED"),
    part("secrets", "xtask secrets", 2),
    // The harm that one player can do to the others.
    part("neighbors", "bench -p drumfire-benches --bench server -- --only neighbours --judge", 4),
    part("chaos, first half", "xtask chaos C1 C2 C3 C4 C5 C6", 11).quick("xtask chaos C5 --quick").turn(0),
    part("chaos, second half", "xtask chaos C7 C8 C9 C10 C11 C12", 11).quick("xtask chaos C9 --quick").turn(1),
    part(MUTANTS, "mutants --shard SHARD", 30).needs(CARGO_MUTANTS).turn(0),
    part("address sanitizer", "xtask sanitize --all", 8).quick("xtask sanitize").turn(1),
    part("soak under the address sanitizer", "xtask chaos C1 --sanitized", 7).turn(1),
    // Each back end of the portable ciphers. The accelerated provider chooses by the processor alone.
    part("ciphers, soft", CIPHERS, 3).env(&[("RUSTFLAGS", SOFT)]).turn(1),
    part("ciphers, SSE2", CIPHERS, 3).env(&[("RUSTFLAGS", SSE2)]).needs("sse2").turn(1),
    part("ciphers, AVX2", CIPHERS, 3).env(&[("RUSTFLAGS", AVX2)]).needs("avx2").turn(1),
    part("packages alone", "package --offline --allow-dirty --target-dir target/alone/SEED PUBLISHED", 3).turn(2),
    part("API since the last release", "semver-checks --baseline-rev RELEASE PUBLISHED", 8)
        .needs("cargo-semver-checks")
        .turn(2),
    part("oldest dependencies", "minimal-versions check --direct --each-feature -p drumfire", 3)
        .needs("cargo-minimal-versions")
        .turn(2),
    part("coverage", "llvm-cov --no-report --lib --tests -p drumfire-wire -p drumfire-crypto -p drumfire-proto", 4)
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
    part("portable sockets, documentation", "test -p drumfire --features drumfire-socket/portable --doc", 2).turn(2),
    part(
        "portable sockets, main job",
        "run --release -p drumfire-tools --features portable --bin receiver -- --with-sender --threads 1 --secs 1",
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
const MUTANTS: &str = "mutants";
const CARGO_MUTANTS: &str = "cargo-mutants";
/// The counts of cargo-mutants, below the root.
const MUTANT_COUNTS: &str = "mutants.out/outcomes.json";
/// The folder of `packages alone`, below the target directory. Cargo unpacks a package once for each directory and version, so each
/// night has a directory of its own.
const ALONE: &str = "alone";

/// Every part runs at least once in this number of nights.
const TURNS: u64 = 3;
/// Shards of mutants. One takes about half an hour.
const SHARDS: u64 = 8;
const HOSTILE_SEEDS: u64 = 6_000;
const WORKER_SEEDS: u64 = 20_000;
/// Seeds of the simulator in one night. They run in pieces, so that the ledger keeps what ran before the time was over.
const SEEDS: u64 = 100_000;
const PIECE_SEEDS: u64 = 10_000;
const QUICK_SEEDS: u64 = 200;
/// Scenarios of one hour each.
const HOURS: u64 = 50;
const QUICK_HOURS: u64 = 1;
/// A piece that takes longer hangs.
const PIECE_DEADLINE: Duration = Duration::from_secs(3_600);
/// The least time for each target of the fuzzer, in seconds.
const FUZZ_SECONDS: u64 = 60;
const QUICK_FUZZ_SECONDS: u64 = 2;
/// The time for the fuzzer's build, and for starting and ending its targets.
const FUZZ_BUILD: Duration = Duration::from_secs(180);

/// A part of a fixed size.
#[derive(Clone, Copy)]
struct Part {
    name: &'static str,
    long: &'static str,
    /// The arguments for a quick run. A part without them is left out of it.
    quick: Option<&'static str>,
    /// Minutes after which it hangs.
    minutes: u64,
    /// The nights in which it runs, by their number modulo [`TURNS`]. A part without a turn runs every night.
    turn: Option<u64>,
    /// The environment of the long run.
    env: &'static [(&'static str, &'static str)],
    /// The program or instruction set without which it is skipped.
    needs: Option<&'static str>,
}

const fn part(name: &'static str, long: &'static str, minutes: u64) -> Part {
    Part { name, long, quick: None, minutes, turn: None, env: &[], needs: None }
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
}

#[derive(Debug, clap::Args)]
pub(crate) struct NightlyArgs {
    /// The budget in minutes.
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u64).range(1..=1_440))]
    minutes: u64,
    /// Run a little of each part, without a budget and without the ledger.
    #[arg(long)]
    quick: bool,
    /// Continue after a failure.
    #[arg(long)]
    keep_going: bool,
    /// Which of the parts that run every third night run; by default those of the present day.
    #[arg(long, value_name = "0..2", value_parser = clap::value_parser!(u64).range(0..=2))]
    turn: Option<u64>,
}

/// The values on which the steps depend.
struct Plan {
    is_quick: bool,
    /// The number of the night. It selects the parts with a turn, and the shard of mutants.
    number: u64,
    /// The first seed that no earlier night has tried.
    seed: u64,
    /// The flags that select the packages for a registry.
    published: String,
    /// The tag of the last release.
    release: Option<String>,
}

/// Runs all parts, then pieces of the simulator, then the fuzzer for the rest of the time.
pub(crate) fn run(args: &NightlyArgs) -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let root = &workspace.root;
    let plan = Plan {
        is_quick: args.quick,
        number: args.turn.map_or_else(|| days_since_1970(root), Ok)?,
        seed: ledger::next_seed(root)?,
        published: workspace.published(),
        release: CommandLine::new("git", &["describe", "--tags", "--abbrev=0"])
            .output(root)
            .ok()
            .map(|tag| tag.trim().to_owned()),
    };
    let parts: Vec<Step> = PARTS.iter().filter_map(|part| plan.step(part)).chain([plan.hours()]).collect();
    let pieces = plan.pieces();
    // It fails where there is no such folder.
    drop(fs::remove_dir_all(workspace.target.join(ALONE)));
    if !args.quick {
        ledger::begin(root)?;
    }
    let mut steps = Steps::new(root, parts.len() + pieces.len() + 1);
    for part in &parts {
        run_step(&mut steps, part, args)?;
        if part.name == MUTANTS && is_installed(CARGO_MUTANTS) {
            note_mutants(root)?;
        }
    }
    let budget = Duration::from_secs(60 * args.minutes);
    // Targets that run in parallel take the time of one.
    let turns = fuzz::target_count(root)?.div_ceil(fuzz::threads() as u64);
    let least = FUZZ_BUILD + Duration::from_secs(FUZZ_SECONDS * turns);
    let (mut left, mut longest) = (pieces.len(), Duration::ZERO);
    for piece in &pieces {
        // One more piece that takes as long as the longest so far must leave the fuzzer its time.
        if !args.quick && steps.elapsed() + longest + least > budget {
            break;
        }
        let before = steps.elapsed();
        run_step(&mut steps, piece, args)?;
        longest = longest.max(steps.elapsed().saturating_sub(before));
        left -= 1;
    }
    let rest = budget.saturating_sub(steps.elapsed()).saturating_sub(FUZZ_BUILD);
    run_step(&mut steps, &plan.fuzz(rest, turns), args)?;
    let elapsed = steps.elapsed();
    let outcome = steps.finish();
    ledger::run()?;
    outcome?;
    if left > 0 {
        let all = pieces.len();
        return Err(Stop::failed(format!("no time left for {left} of {all} pieces of the simulator")));
    }
    if args.quick { Ok(()) } else { check_budget(elapsed, budget) }
}

fn check_budget(elapsed: Duration, budget: Duration) -> Result<(), Stop> {
    if elapsed <= budget {
        return Ok(());
    }
    let [elapsed, budget] = [elapsed, budget].map(|time| time.as_secs().div_ceil(60));
    Err(Stop::failed(format!("the night took {elapsed} minutes instead of {budget}")))
}

/// Runs one step. A failure that the step itself did not write into the ledger is written here. It ends the night unless the caller
/// asked to continue.
fn run_step(steps: &mut Steps<'_>, step: &Step, args: &NightlyArgs) -> Result<(), Stop> {
    let root = steps.root;
    let before = ledger::findings(root)?;
    let why = match steps.run(step) {
        Err(Stop::Failed(why)) => why,
        outcome => return outcome,
    };
    if !args.quick && ledger::findings(root)? == before {
        let command = step.command.to_string();
        ledger::note(root, command.trim_start_matches("cargo "), "findings=1", true)?;
    }
    if !args.keep_going {
        return Err(Stop::Failed(why));
    }
    eprintln!("{why}");
    Ok(())
}

/// The counts of cargo-mutants. Mutants that do not compile are not counted.
#[derive(Debug, Deserialize)]
struct Mutants {
    caught: u64,
    /// A test that no longer ends has caught its mutant.
    timeout: u64,
    missed: u64,
}

/// Writes the counts of cargo-mutants into the ledger.
fn note_mutants(root: &Path) -> Result<(), Stop> {
    let Ok(text) = fs::read_to_string(root.join(MUTANT_COUNTS)) else { return Ok(()) };
    let Mutants { caught, timeout, missed } =
        serde_json::from_str(&text).map_err(|why| Stop::failed(format!("{MUTANT_COUNTS}: {why}")))?;
    let caught = caught + timeout;
    ledger::note(root, "mutants", &format!("mutants={caught}/{} findings=0", caught + missed), true)
}

impl Plan {
    /// Returns the step of a part, if the part runs in this night.
    fn step(&self, part: &Part) -> Option<Step> {
        let is_today = part.turn.is_none_or(|turn| turn == self.number % TURNS);
        let args = if self.is_quick { part.quick? } else { Some(part.long).filter(|_| is_today)? };
        let seed = self.seed;
        let words = BTreeMap::from([
            ("HOSTILE", format!("{seed}..{}", seed + HOSTILE_SEEDS)),
            ("WORKERS", format!("{seed}..{}", seed + WORKER_SEEDS)),
            ("SEED", seed.to_string()),
            ("SHARD", format!("{}/{SHARDS}", self.number / TURNS % SHARDS)),
            ("PUBLISHED", self.published.clone()),
            ("RELEASE", self.release.clone().unwrap_or_default()),
            ("NO_TESTS", "--ignore-filename-regex /test(s|_support)[./]".to_owned()),
        ]);
        let args: Vec<&str> =
            args.split(' ').map(|word| words.get(word).map_or(word, String::as_str)).collect();
        // The seed is also a part of a path.
        let args = args.join(" ").replace("/SEED", &format!("/{seed}"));
        let mut step = Step::cargo(part.name, &args, Duration::from_secs(60 * part.minutes));
        step.needs = part.needs;
        if part.long.contains("RELEASE") && self.release.is_none() {
            // No program has this name, so that the step is skipped.
            step.needs = Some("the tag of a release");
        }
        if !self.is_quick {
            step.command =
                part.env.iter().fold(step.command, |command, (name, value)| command.env(name, value));
        }
        Some(step)
    }

    fn hours(&self) -> Step {
        self.simulator("--long ", self.seed, if self.is_quick { QUICK_HOURS } else { HOURS })
    }

    /// Returns the pieces of the simulator. All have the same size, so that each takes about the same time.
    fn pieces(&self) -> Vec<Step> {
        let (all, size) = if self.is_quick { (QUICK_SEEDS, QUICK_SEEDS) } else { (SEEDS, PIECE_SEEDS) };
        (0..all / size).map(|piece| self.simulator("", self.seed + piece * size, size)).collect()
    }

    fn simulator(&self, kind: &str, from: u64, seeds: u64) -> Step {
        let args = format!("xtask sim {kind}--seeds {from}..{}{}", from + seeds, self.ledger_flag());
        Step::cargo("simulator", &args, PIECE_DEADLINE)
    }

    /// Returns the step of the fuzzer, which has `rest` for all its turns.
    fn fuzz(&self, rest: Duration, turns: u64) -> Step {
        let seconds = (rest.as_secs() / turns.max(1)).max(FUZZ_SECONDS);
        let seconds = if self.is_quick { QUICK_FUZZ_SECONDS } else { seconds };
        // Twice the time, for the builds and for targets that are slow to start.
        let deadline = 4 * FUZZ_BUILD + Duration::from_secs(2 * seconds * turns);
        let args = format!("xtask fuzz all --seconds {seconds}{}", self.ledger_flag());
        Step::cargo("fuzzer", &args, deadline)
    }

    fn ledger_flag(&self) -> &'static str {
        if self.is_quick { "" } else { " --ledger" }
    }
}

fn days_since_1970(root: &Path) -> Result<u64, Stop> {
    let seconds = CommandLine::new("date", &["-u", "+%s"]).output(root)?;
    let seconds: u64 =
        seconds.trim().parse().map_err(|why| Stop::failed(format!("date: {seconds}: {why}")))?;
    Ok(seconds / (24 * 60 * 60))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{
        self,
        samples::{TestFolder, root},
    };
    use std::collections::BTreeSet;

    fn night(number: u64) -> Plan {
        let published = "-p drumfire-wire".to_owned();
        Plan { is_quick: false, number, seed: 7_000, published, release: Some("v1".to_owned()) }
    }

    fn quick() -> Plan {
        Plan { is_quick: true, ..night(0) }
    }

    fn commands(night: &Plan) -> Vec<String> {
        PARTS.iter().filter_map(|part| night.step(part)).map(|step| step.command.to_string()).collect()
    }

    #[test]
    fn all_seeds_continue_where_the_last_night_ended() {
        let pieces: Vec<_> = night(0).pieces().iter().map(|step| step.command.to_string()).collect();
        assert_eq!(pieces.len(), 10);
        assert_eq!(pieces[0], "cargo xtask sim --seeds 7000..17000 --ledger");
        assert_eq!(pieces[9], "cargo xtask sim --seeds 97000..107000 --ledger");
        assert_eq!((quick().pieces().len(), quick().ledger_flag()), (1, ""));
        assert_eq!(
            night(0).hours().command.to_string(),
            "cargo xtask sim --long --seeds 7000..7050 --ledger"
        );
        let parts = commands(&night(0));
        for part in [
            "cargo xtask sim --worker --seeds 7000..27000 --ledger",
            "cargo xtask hostile --seeds 7000..13000 --counted 60",
            "cargo xtask loom --shuttle 100000 --seed 7000",
        ] {
            assert!(parts.iter().any(|command| command == part), "{parts:#?}");
        }
        let alone = "cargo package --offline --allow-dirty --target-dir target/alone/7000 -p drumfire-wire";
        assert!(commands(&night(2)).iter().any(|command| command == alone));
    }

    #[test]
    fn the_fuzzer_has_the_rest_of_the_time_or_a_minute_per_target() {
        let seconds = |rest| night(0).fuzz(Duration::from_secs(rest), 18).command.to_string();
        assert_eq!(seconds(3_600), "cargo xtask fuzz all --seconds 200 --ledger");
        assert_eq!(seconds(0), "cargo xtask fuzz all --seconds 60 --ledger");
        assert!(night(0).fuzz(Duration::from_secs(3_600), 18).deadline > Duration::from_secs(3_600));
    }

    #[test]
    fn every_part_and_every_shard_has_its_night_and_all_nights_fit() {
        let named = |night: &Plan| {
            PARTS
                .iter()
                .filter(|part| night.step(part).is_some())
                .map(|part| part.name)
                .collect::<BTreeSet<_>>()
        };
        let all: BTreeSet<_> = (0..TURNS).flat_map(|number| named(&night(number))).collect();
        assert_eq!(all.len(), PARTS.len());
        for night in [quick(), night(0), night(1), night(2)] {
            let parts = PARTS.iter().filter(|part| night.step(part).is_some());
            let minutes: u64 = parts.map(|part| part.minutes).sum();
            assert!(minutes <= 90, "night {}: {minutes}", night.number);
        }
        let shards: BTreeSet<String> = (0..TURNS * SHARDS)
            .flat_map(|number| commands(&night(number)))
            .filter(|command| command.starts_with("cargo mutants"))
            .collect();
        assert_eq!(shards.len() as u64, SHARDS);
    }

    #[test]
    fn each_cipher_back_end_is_forced_and_a_release_is_compared() {
        let forced = |name: &str| {
            let is_forced = |command: &String| {
                command.starts_with("RUSTFLAGS=") && command.contains(&format!("--cfg chacha20_force_{name}"))
            };
            commands(&night(1)).iter().any(is_forced)
        };
        assert!(["soft", "sse2", "avx2"].into_iter().all(forced));
        let api = PARTS.iter().find(|part| part.long.starts_with("semver-checks")).unwrap();
        let step = night(2).step(api).unwrap();
        assert_eq!(step.command.to_string(), "cargo semver-checks --baseline-rev v1 -p drumfire-wire");
        let without = Plan { release: None, ..night(2) };
        assert_eq!(without.step(api).unwrap().needs, Some("the tag of a release"));
    }

    #[test]
    fn the_variables_of_full_tests_are_those_that_tests_read() {
        for (path, name) in [
            ("crates/tries/src/lib.rs", "DRUMFIRE_FULL"),
            ("crates/proto/tests/core/connection/paths.rs", "DRUMFIRE_SEEDS"),
            ("crates/proto/tests/core/hostile/strategies.rs", "STRATEGY_SEEDS"),
        ] {
            assert!(FULL.iter().any(|(variable, _)| *variable == name));
            assert!(files::text(&root().join(path)).unwrap().contains(&format!("\"{name}\"")), "{path}");
        }
    }

    /// A repository with the project's ledger, in which a night has begun.
    fn begun(name: &str) -> TestFolder {
        let folder = TestFolder::new(name);
        files::write(&folder.join(ledger::PATH), files::read(&root().join(ledger::PATH)).unwrap()).unwrap();
        let script = "git init -q && git -c user.name=x -c user.email=x commit -q --allow-empty -m x";
        CommandLine::new("sh", &["-c", script]).done(&folder).unwrap();
        ledger::begin(&folder).unwrap();
        folder
    }

    #[test]
    fn a_part_that_fails_is_a_finding() {
        let folder = begun("nightly");
        let before = ledger::findings(&folder).unwrap();
        let run = |quick, keep_going| {
            let args = NightlyArgs { minutes: 1, quick, keep_going, turn: None };
            let step = Step::cargo("fails", "no-such-command", Duration::from_secs(60));
            run_step(&mut Steps::new(&folder, 1), &step, &args)
        };
        assert!(matches!(
            [run(false, true), run(false, false), run(true, true)],
            [Ok(()), Err(Stop::Failed(_)), Ok(())]
        ));
        assert_eq!(ledger::findings(&folder).unwrap(), before + 2);
        let text = files::text(&folder.join(ledger::PATH)).unwrap();
        assert!(text.ends_with(" | `no-such-command` | failed |\n"), "{text}");
        assert_eq!(ledger::check(&text), Ok(()));
    }

    #[test]
    fn mutants_are_counted_without_those_that_do_not_compile() {
        let folder = begun("mutants");
        let counts = r#"{"total_mutants":9,"caught":4,"timeout":1,"missed":2,"unviable":2}"#;
        files::write(&folder.join(MUTANT_COUNTS), counts).unwrap();
        note_mutants(&folder).unwrap();
        assert!(files::text(&folder.join(ledger::PATH)).unwrap().contains("| 5/7 |"));
        files::write(&folder.join(MUTANT_COUNTS), "{}").unwrap();
        assert!(note_mutants(&folder).is_err());
    }

    #[test]
    fn a_night_that_exceeds_its_budget_is_a_failure() {
        let budget = Duration::from_secs(5_400);
        assert!(check_budget(budget, budget).is_ok());
        let late = check_budget(budget + Duration::from_secs(1), budget);
        assert!(matches!(late, Err(Stop::Failed(why)) if why == "the night took 91 minutes instead of 90"));
    }
}
