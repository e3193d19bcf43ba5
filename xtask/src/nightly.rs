//! `cargo xtask nightly`: the long forms of all checks that look for faults, within a budget of minutes.
//!
//! A part that fails is a finding. The others still run, and then the night fails. It also fails when the time was not enough for all
//! pieces of the simulator.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use crate::fuzz;
use crate::ledger;
use crate::run::{CommandLine, Stop, is_installed};
use crate::steps::{Step, Steps};
use crate::workspace::Workspace;

/// Parts of a fixed size, in order. [`Plan::step`] replaces the words in braces.
const PARTS: [Part; 28] = [
    // Tests try all that their names say, properties 100,000 cases, and tests of the core 1,000 seeds.
    part(
        "tests, full",
        "DRUMFIRE_FULL=1 PROPTEST_CASES=100000 DRUMFIRE_SEEDS=1000 STRATEGY_SEEDS=1000 \
         test --release -p drumfire -p drumfire-proto -p drumfire-socket -p drumfire-wire -p drumfire-crypto \
         --features drumfire/control --lib --tests",
        16,
    ),
    part(
        "hostile traffic",
        "HOSTILE_SEEDS={seed}..{hostile_end} HOSTILE_COUNTED_SEEDS={seed}..{counted_end} \
         test --release -p drumfire-proto --test hostile_traffic",
        4,
    )
    .needs("valgrind"),
    part("planted bugs", "xtask sim --plant all --ledger", 15),
    part("simulator, failing workers", "xtask sim --worker --seeds {seed}..{workers_end} --ledger", 5),
    // More than a million schedules of all models together.
    part("interleavings at random", "xtask loom --shuttle 100000 --seed {seed}", 3),
    part("secrets", "xtask secrets", 2),
    // The harm that one player can do to the others.
    part("neighbors", "bench -p drumfire-benches --bench server -- --only neighbours --judge", 4),
    part("chaos, first half", "xtask chaos C1 C2 C3 C4 C5 C6", 11).turn(0),
    part("chaos, second half", "xtask chaos C7 C8 C9 C10 C11 C12", 11).turn(1),
    part(MUTANTS, "mutants --shard {shard}", 30).turn(0),
    part("address sanitizer", "xtask sanitize --all", 8).turn(1),
    part("soak under the address sanitizer", "xtask chaos C1 --sanitized", 7).turn(1),
    // Each back end of the portable ciphers. The accelerated provider chooses by the processor alone.
    part("ciphers, soft", CIPHERS, 3).rustflags(SOFT).turn(1),
    part("ciphers, SSE2", CIPHERS, 3).rustflags("--cfg chacha20_force_sse2").needs("sse2").turn(1),
    // The crate uses AVX2 only where the whole program may.
    part("ciphers, AVX2", CIPHERS, 3)
        .rustflags("--cfg chacha20_force_avx2 -C target-feature=+avx2")
        .needs("avx2")
        .turn(1),
    // Cargo unpacks a package once for each directory and version, so each night has a directory of its own.
    part("packages alone", "package --offline --allow-dirty --target-dir target/alone/{seed} {published}", 3).turn(2),
    part("API since the last release", "semver-checks --baseline-rev {release} {published}", 8).turn(2),
    part("oldest dependencies", "minimal-versions check --direct --each-feature -p drumfire", 3).turn(2),
    part("coverage", "llvm-cov --no-report --lib --tests -p drumfire-wire -p drumfire-crypto -p drumfire-proto", 4)
        .turn(2),
    // Test modules inside files count, and run in whole.
    part("coverage of wire", "{coverage} -p drumfire-wire --fail-under-regions 92", 1).turn(2),
    part("coverage of crypto", "{coverage} -p drumfire-crypto", 1).turn(2),
    part("coverage of proto", "{coverage} -p drumfire-proto", 1).turn(2),
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

const CIPHERS: &str = "test --release --target-dir target/ciphers -p drumfire-crypto --lib suite::";
const SOFT: &str =
    "--cfg chacha20_force_soft --cfg poly1305_force_soft --cfg aes_force_soft --cfg polyval_force_soft";
const COVERAGE: &str = "llvm-cov report --fail-under-lines 92 --ignore-filename-regex /test(s|_support)[./]";
const MUTANTS: &str = "mutants";
/// The counts of cargo-mutants, below the root.
const MUTANT_COUNTS: &str = "mutants.out/outcomes.json";

/// Every part runs at least once in this number of nights.
const TURNS: u64 = 3;
/// Shards of mutants. One takes about half an hour.
const SHARDS: u64 = 8;
const HOSTILE_SEEDS: u64 = 6_000;
/// Seeds of hostile traffic under valgrind.
const COUNTED_SEEDS: u64 = 60;
const WORKER_SEEDS: u64 = 20_000;
/// Pieces of the simulator. The ledger keeps those that ran before the time was over.
const PIECES: u64 = 10;
const PIECE_SEEDS: u64 = 10_000;
/// Scenarios of one hour each.
const HOURS: u64 = 50;
/// A piece that takes longer hangs.
const PIECE_DEADLINE: Duration = Duration::from_secs(3_600);
/// The least time for each target of the fuzzer, in seconds.
const FUZZ_SECONDS: u64 = 60;
/// The time for the fuzzer's build, and for starting and ending its targets.
const FUZZ_BUILD: Duration = Duration::from_secs(180);

/// A part of a fixed size.
#[derive(Clone, Copy)]
struct Part {
    name: &'static str,
    /// The arguments for cargo, after their environment.
    args: &'static str,
    /// The value of `RUSTFLAGS`, if it differs from that of the whole night.
    rustflags: Option<&'static str>,
    /// Minutes after which it hangs.
    minutes: u64,
    /// The nights in which it runs, by their number modulo [`TURNS`]. A part without a turn runs every night.
    turn: Option<u64>,
    /// The program or feature of the processor without which it is skipped. Commands of cargo are known to [`Step`].
    needs: Option<&'static str>,
}

const fn part(name: &'static str, args: &'static str, minutes: u64) -> Part {
    Part { name, args, rustflags: None, minutes, turn: None, needs: None }
}

impl Part {
    const fn rustflags(self, flags: &'static str) -> Self {
        Self { rustflags: Some(flags), ..self }
    }

    const fn turn(self, turn: u64) -> Self {
        Self { turn: Some(turn), ..self }
    }

    const fn needs(self, need: &'static str) -> Self {
        Self { needs: Some(need), ..self }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct NightlyArgs {
    /// The budget in minutes.
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u64).range(1..=1_440))]
    minutes: u64,
    /// Which of the parts that run every third night run; by default those of the present day.
    #[arg(long, value_name = "0..2", value_parser = clap::value_parser!(u64).range(0..=2))]
    turn: Option<u64>,
}

/// The values on which the steps depend.
struct Plan {
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
    let release = CommandLine::new("git", &["describe", "--tags", "--abbrev=0"]).output(root);
    let plan = Plan {
        number: args.turn.map_or_else(|| days_since_1970(root), Ok)?,
        seed: ledger::next_seed(root)?,
        published: workspace.published(),
        release: release.ok().map(|tag| tag.trim().to_owned()),
    };
    let parts: Vec<Step> = PARTS
        .iter()
        .filter_map(|part| plan.step(part))
        .chain([simulator("--long ", plan.seed, HOURS)])
        .collect();
    let pieces = plan.pieces();
    // The folder of `packages alone`. It fails where there is no such folder.
    drop(fs::remove_dir_all(workspace.target.join("alone")));
    ledger::begin(root)?;
    let mut steps = Steps::new(root, parts.len() + pieces.len() + 1);
    for part in &parts {
        run_step(&mut steps, part)?;
        if part.name == MUTANTS && is_installed("cargo-mutants") {
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
        if steps.elapsed() + longest + least > budget {
            break;
        }
        let before = steps.elapsed();
        run_step(&mut steps, piece)?;
        longest = longest.max(steps.elapsed().saturating_sub(before));
        left -= 1;
    }
    let rest = budget.saturating_sub(steps.elapsed()).saturating_sub(FUZZ_BUILD);
    run_step(&mut steps, &fuzzer(rest, turns))?;
    let elapsed = steps.elapsed();
    let outcome = steps.finish();
    ledger::run()?;
    outcome?;
    if left > 0 {
        return Err(Stop::failed(format!("no time left for {left} of {PIECES} pieces of the simulator")));
    }
    if elapsed > budget {
        let minutes = elapsed.as_secs().div_ceil(60);
        return Err(Stop::failed(format!("the night took {minutes} minutes instead of {}", args.minutes)));
    }
    Ok(())
}

/// Runs one step. A failure that the step itself did not write into the ledger is written here.
fn run_step(steps: &mut Steps<'_>, step: &Step) -> Result<(), Stop> {
    let root = steps.root;
    let before = ledger::findings(root)?;
    let why = match steps.run(step) {
        Err(Stop::Failed(why)) => why,
        outcome => return outcome,
    };
    eprintln!("{why}");
    if ledger::findings(root)? > before {
        return Ok(());
    }
    let command = step.command.to_string();
    ledger::note(root, command.trim_start_matches("cargo "), "findings=1", true)
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
        if part.turn.is_some_and(|turn| turn != self.number % TURNS) {
            return None;
        }
        let seed = self.seed;
        let words = [
            ("{coverage}", COVERAGE.to_owned()),
            ("{counted_end}", (seed + COUNTED_SEEDS).to_string()),
            ("{hostile_end}", (seed + HOSTILE_SEEDS).to_string()),
            ("{workers_end}", (seed + WORKER_SEEDS).to_string()),
            ("{seed}", seed.to_string()),
            ("{shard}", format!("{}/{SHARDS}", self.number / TURNS % SHARDS)),
            ("{published}", self.published.clone()),
            ("{release}", self.release.clone().unwrap_or_default()),
        ];
        let args = words.iter().fold(part.args.to_owned(), |args, (word, value)| args.replace(word, value));
        let mut step = Step::cargo(part.name, &args, Duration::from_secs(60 * part.minutes));
        step.needs = step.needs.or(part.needs);
        if let Some(flags) = part.rustflags {
            step.command = step.command.env("RUSTFLAGS", flags);
        }
        if part.args.contains("{release}") && self.release.is_none() {
            // No program has this name, so that the step is skipped.
            step.needs = Some("the tag of a release");
        }
        Some(step)
    }

    /// Returns the pieces of the simulator. All have the same size, so that each takes about the same time.
    fn pieces(&self) -> Vec<Step> {
        (0..PIECES).map(|piece| simulator("", self.seed + piece * PIECE_SEEDS, PIECE_SEEDS)).collect()
    }
}

/// Returns the step of the fuzzer, which has `rest` for all its turns.
fn fuzzer(rest: Duration, turns: u64) -> Step {
    let seconds = (rest.as_secs() / turns.max(1)).max(FUZZ_SECONDS);
    // Twice the time, for the builds and for targets that are slow to start.
    let deadline = 4 * FUZZ_BUILD + Duration::from_secs(2 * seconds * turns);
    Step::cargo("fuzzer", &format!("xtask fuzz all --seconds {seconds} --ledger"), deadline)
}

fn simulator(kind: &str, from: u64, seeds: u64) -> Step {
    let args = format!("xtask sim {kind}--seeds {from}..{} --ledger", from + seeds);
    Step::cargo("simulator", &args, PIECE_DEADLINE)
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
        Plan { number, seed: 7_000, published, release: Some("v1".to_owned()) }
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
        let all: Vec<String> = (0..TURNS).flat_map(|number| commands(&night(number))).collect();
        for part in [
            "cargo xtask sim --worker --seeds 7000..27000 --ledger",
            "HOSTILE_SEEDS=7000..13000 HOSTILE_COUNTED_SEEDS=7000..7060 \
             cargo test --release -p drumfire-proto --test hostile_traffic",
            "cargo xtask loom --shuttle 100000 --seed 7000",
            "cargo package --offline --allow-dirty --target-dir target/alone/7000 -p drumfire-wire",
            "cargo semver-checks --baseline-rev v1 -p drumfire-wire",
            &format!("RUSTFLAGS='--cfg chacha20_force_sse2' cargo {CIPHERS}"),
        ] {
            assert!(all.iter().any(|command| command == part), "{all:#?}");
        }
        assert!(!all.iter().any(|command| command.contains('{')), "{all:#?}");
        let api = PARTS.iter().find(|part| part.args.contains("{release}")).unwrap();
        let without = Plan { release: None, ..night(2) };
        assert_eq!(without.step(api).unwrap().needs, Some("the tag of a release"));
    }

    #[test]
    fn the_fuzzer_has_the_rest_of_the_time_or_a_minute_per_target() {
        let seconds = |rest| fuzzer(Duration::from_secs(rest), 18).command.to_string();
        assert_eq!(seconds(3_600), "cargo xtask fuzz all --seconds 200 --ledger");
        assert_eq!(seconds(0), "cargo xtask fuzz all --seconds 60 --ledger");
        assert!(fuzzer(Duration::from_secs(3_600), 18).deadline > Duration::from_secs(3_600));
    }

    #[test]
    fn every_part_and_every_shard_has_its_night_and_all_nights_fit() {
        for night in [night(0), night(1), night(2)] {
            let parts = PARTS.iter().filter(|part| night.step(part).is_some());
            let minutes: u64 = parts.map(|part| part.minutes).sum();
            assert!(minutes <= 90, "night {}: {minutes}", night.number);
        }
        assert!(PARTS.iter().all(|part| part.turn.is_none_or(|turn| turn < TURNS)));
        let shards: BTreeSet<String> = (0..TURNS * SHARDS)
            .flat_map(|number| commands(&night(number)))
            .filter(|command| command.starts_with("cargo mutants"))
            .collect();
        assert_eq!(shards.len() as u64, SHARDS);
    }

    #[test]
    fn the_variables_of_full_tests_are_those_that_tests_read() {
        let folder = root().join("crates");
        for (path, name) in [
            ("tries/src/lib.rs", "DRUMFIRE_FULL"),
            ("proto/tests/core/connection/paths.rs", "DRUMFIRE_SEEDS"),
            ("proto/tests/core/hostile/strategies.rs", "STRATEGY_SEEDS"),
            ("proto/tests/hostile_traffic/seeds.rs", "HOSTILE_SEEDS"),
            ("proto/tests/hostile_traffic/cost.rs", "HOSTILE_COUNTED_SEEDS"),
        ] {
            assert!(PARTS[..2].iter().any(|part| part.args.contains(&format!("{name}="))), "{name}");
            assert!(files::text(&folder.join(path)).unwrap().contains(&format!("\"{name}\"")), "{path}");
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
        let step = Step::cargo("fails", "no-such-command", Duration::from_secs(60));
        let mut steps = Steps::new(&folder, 1);
        run_step(&mut steps, &step).unwrap();
        assert!(steps.finish().is_err());
        assert_eq!(ledger::findings(&folder).unwrap(), before + 1);
    }

    #[test]
    fn mutants_are_counted_without_those_that_do_not_compile() {
        let folder = begun("mutants");
        let counts = r#"{"total_mutants":9,"caught":4,"timeout":1,"missed":2,"unviable":2}"#;
        files::write(&folder.join(MUTANT_COUNTS), counts).unwrap();
        note_mutants(&folder).unwrap();
        assert!(files::text(&folder.join(ledger::PATH)).unwrap().contains("mutants = \"5/7\""));
        files::write(&folder.join(MUTANT_COUNTS), "{}").unwrap();
        assert!(note_mutants(&folder).is_err());
    }
}
