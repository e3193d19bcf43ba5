//! `cargo xtask ci`: the steps of CI in order, up to the first one that fails.
//!
//! Each step is one command that can be typed by hand. A check that does not fit into the budget belongs to the nightly task. `.ci/run`
//! prepares the machine.

use std::time::Duration;

use crate::example;
use crate::run::Stop;
use crate::steps::{Step, Steps};
use crate::workspace::{Package, Workspace};

/// The time of all steps on two idle cores.
const BUDGET: Duration = Duration::from_secs(15 * 60);
/// A step that still runs after this time hangs.
const DEADLINE: Duration = BUDGET;

/// The name of each step and its arguments for cargo. The cheapest steps come first.
const CHECKS: [(&str, &str); 9] = [
    ("format", "fmt --all --check"),
    ("format of the comparison", "fmt --manifest-path benches/peers/Cargo.toml --check"),
    ("format of the Bevy plugin", "fmt --manifest-path crates/bevy/Cargo.toml --check"),
    ("format of the fuzzer", "fmt --manifest-path crates/fuzz/libfuzzer/Cargo.toml --check"),
    ("house rules", "xtask tidy"),
    ("licenses and sources", "deny --workspace check --hide-inclusion-graph bans licenses sources"),
    ("advisories", "deny --workspace check --hide-inclusion-graph advisories"),
    ("clippy", "clippy --workspace --all-targets -- -D warnings"),
    (TESTS, "test --workspace"),
];

const PROOFS: [(&str, &str); 16] = [
    ("tests of the portable sockets", "test -p drumfire-socket --features portable"),
    ("documentation", "RUSTDOCFLAGS=-Dwarnings doc --workspace --no-deps"),
    ("programs of the guide", "xtask guide"),
    ("simulator", "xtask sim --seeds 0..2000"),
    ("simulator, failing workers", "xtask sim --worker --seeds 0..2000"),
    ("simulator, hours", "xtask sim --long --seeds 0..4"),
    ("audited tests", "xtask sim --tests"),
    (
        HOSTILE,
        "HOSTILE_SEEDS=0..2000 HOSTILE_COUNTED_SEEDS=0..20 test --release -p drumfire-proto --test hostile_traffic",
    ),
    ("every interleaving", "xtask loom"),
    ("client in Python", "xtask interop"),
    ("clients in C", "xtask ffi"),
    ("main job", "run --release --bin receiver -- --with-sender --secs 2"),
    (
        "main job, reliable",
        "run --release --bin receiver -- --with-sender --stage deliver --mode reliable-ordered --secs 2",
    ),
    ("two hosts", "xtask two-hosts --secs 2"),
    ("ports, restarts, and panics", "xtask chaos C5 C6 C9 --quick"),
    ("instruction counts", "xtask bench --gate"),
];

/// The README's test command.
const TESTS: &str = "tests";
/// The step that counts instructions of hostile packets under valgrind.
const HOSTILE: &str = "hostile traffic";
/// Examples that also run on two hosts.
const TWO_HOST_EXAMPLES: [&str; 3] = ["configured", "echo", "tick_server"];
/// The bench that `cargo xtask bench --gate` runs in full.
const GATED_BENCH: &str = "counts";

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct CiArgs {
    /// Print the steps and their commands without running them.
    #[arg(long)]
    list: bool,
    /// Skip `cargo test --workspace`, which has just run.
    #[arg(long)]
    skip_tests: bool,
}

/// Runs the steps, or prints them.
pub(crate) fn run(args: CiArgs) -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let mut steps = plan(&workspace)?;
    steps.retain(|step| !(args.skip_tests && step.name == TESTS));
    if args.list {
        steps.iter().for_each(|step| println!("{}: {}", step.name, step.command));
        return Ok(());
    }
    let mut done = Steps::new(&workspace.root, steps.len());
    steps.iter().try_for_each(|step| done.run(step))?;
    let elapsed = done.elapsed();
    done.finish()?;
    if elapsed > BUDGET {
        // A busy machine is slower than the two cores of the budget, so that this is no failure.
        println!("more than {} minutes: move a step to the nightly task", BUDGET.as_secs() / 60);
    }
    Ok(())
}

fn plan(workspace: &Workspace) -> Result<Vec<Step>, Stop> {
    let package = |folder: &str| {
        workspace.package_in(folder).ok_or_else(|| Stop::failed(format!("there is no package {folder}")))
    };
    let mut steps: Vec<Step> = CHECKS.iter().map(|(name, args)| step(name, args)).collect();
    // The nightly run also builds each package alone.
    let published = workspace.published();
    steps.push(step("packages", &format!("package --offline --allow-dirty --no-verify {published}")));
    steps.extend(workspace.packages.iter().filter(|package| package.is_published()).flat_map(feature_steps));
    steps.extend(PROOFS.iter().map(|(name, args)| step(name, args)));
    steps.extend(example_steps(workspace, package("examples")?));
    steps.extend(bench_steps(package("benches")?));
    Ok(steps)
}

fn step(name: &str, args: &str) -> Step {
    let mut step = Step::cargo(name, args, DEADLINE);
    if name == HOSTILE {
        step.needs = Some("valgrind");
    }
    step
}

/// Returns the checks of a package without features, and with each feature alone. Other steps build the default features.
fn feature_steps(package: &Package) -> Vec<Step> {
    let features: Vec<&String> = package.features.keys().filter(|feature| *feature != "default").collect();
    if features.is_empty() {
        return Vec::new();
    }
    let check = format!("check -p {} --no-default-features", package.name);
    let alone = features.into_iter().map(|feature| {
        step(&format!("{}, {feature}", package.name), &format!("{check} --features {feature}"))
    });
    std::iter::once(step(&format!("{}, no features", package.name), &check)).chain(alone).collect()
}

/// Returns a run of each example, one of both ends where it has two, and some on two hosts.
fn example_steps(workspace: &Workspace, package: &Package) -> Vec<Step> {
    let names: Vec<&str> = package.targets_of("example").collect();
    let alone = names
        .iter()
        .map(|name| step(&format!("example {name}"), &format!("run -p {} --example {name}", package.name)));
    let both = names.iter().filter(|name| example::has_commands(workspace, name));
    let both = both.map(|name| step(&format!("example {name}, both ends"), &format!("xtask example {name}")));
    let two_hosts = TWO_HOST_EXAMPLES.iter().map(|name| {
        step(&format!("example {name}, two hosts"), &format!("xtask example {name} --two-hosts"))
    });
    alone.chain(both).chain(two_hosts).collect()
}

/// Returns one build of all benches and a short run of each.
fn bench_steps(package: &Package) -> Vec<Step> {
    let build = step("build of the benches", &format!("bench -p {} --benches --no-run", package.name));
    let runs = package.targets_of("bench").filter(|bench| *bench != GATED_BENCH).map(|bench| {
        step(&format!("bench {bench}"), &format!("bench -p {} --bench {bench} -- --quick", package.name))
    });
    std::iter::once(build).chain(runs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_packages_features_examples_and_benches_have_steps() {
        let steps = plan(&Workspace::load().unwrap()).unwrap();
        let commands: Vec<String> = steps.iter().map(|step| step.command.to_string()).collect();
        let has = |command: &str| commands.iter().any(|one| one == command);
        for command in [
            "cargo test --workspace",
            "cargo check -p drumfire --no-default-features",
            "cargo check -p drumfire --no-default-features --features tokio",
            "cargo run -p drumfire-examples --example echo",
            "cargo xtask example chat",
            "cargo xtask example tick_server --two-hosts",
            "cargo bench -p drumfire-benches --bench pps -- --quick",
        ] {
            assert!(has(command), "{command}: {commands:#?}");
        }
        assert!(!has("cargo xtask example shared_port"), "it has one end");
        assert!(!commands.iter().any(|command| command.contains("--bench counts")), "the gate counts");
    }
}
