//! `cargo xtask ci`: the steps of CI in order, up to the first one that fails.
//!
//! Each step is one command that can be typed by hand. Together with the tests they should take 15 minutes on two cores. A check that
//! takes longer belongs to the nightly task. `.ci/run` prepares the machine.

use std::time::Duration;

use crate::example;
use crate::run::{Stop, is_installed};
use crate::steps::{Step, Steps};
use crate::workspace::{Package, Workspace};

/// A step that still runs after this time hangs.
const DEADLINE: Duration = Duration::from_secs(15 * 60);

/// The name of each step and its arguments for cargo. The cheapest steps come first.
const CHECKS: [(&str, &str); 8] = [
    ("format", "fmt --all --check"),
    ("format of the comparison", "fmt --manifest-path benches/peers/Cargo.toml --check"),
    ("format of the Bevy plugin", "fmt --manifest-path crates/bevy/Cargo.toml --check"),
    ("format of the fuzzer", "fmt --manifest-path crates/fuzz/libfuzzer/Cargo.toml --check"),
    ("house rules", "xtask tidy"),
    ("licenses and sources", "deny --workspace check --hide-inclusion-graph bans licenses sources"),
    ("advisories", "deny --workspace check --hide-inclusion-graph advisories"),
    ("clippy", "clippy --workspace --all-targets -- -D warnings"),
];

/// The README's test command. `.ci/run` has already run it.
const TESTS: (&str, &str) = ("tests", "test --workspace");

const PROOFS: [(&str, &str); 9] = [
    ("tests of the portable sockets", "test -p drumfire-socket --features portable"),
    ("documentation", "doc --workspace --no-deps"),
    ("programs of the guide", "xtask guide"),
    ("simulator", "xtask sim --seeds 0..2000"),
    ("simulator, failing workers", "xtask sim --worker --seeds 0..2000"),
    ("simulator, hours", "xtask sim --long --seeds 0..4"),
    ("audited tests", "xtask sim --tests"),
    ("hostile traffic", "xtask hostile --seeds 0..2000 --counted 20"),
    ("every interleaving", "xtask loom"),
];

const PROGRAMS: [(&str, &str); 7] = [
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

/// Examples that also run on two hosts.
const TWO_HOST_EXAMPLES: [&str; 3] = ["configured", "echo", "tick_server"];

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct CiArgs {
    /// Print the steps and their commands without running them.
    #[arg(long)]
    list: bool,
    /// Leave out `cargo test --workspace`, for a caller that has just run it.
    #[arg(long)]
    skip_debug_tests: bool,
}

/// Runs the steps, or prints them.
pub(crate) fn run(args: CiArgs) -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let steps = plan(&workspace, args.skip_debug_tests)?;
    if args.list {
        steps.iter().for_each(|step| println!("{}: {}", step.name, step.command));
        return Ok(());
    }
    let mut done = Steps::new(&workspace.root, steps.len());
    steps.iter().try_for_each(|step| done.run(step))?;
    done.finish()
}

fn plan(workspace: &Workspace, skips_tests: bool) -> Result<Vec<Step>, Stop> {
    let package = |folder: &str| {
        workspace.package_in(folder).ok_or_else(|| Stop::failed(format!("there is no package {folder}")))
    };
    let (published, tests) = (workspace.published(), if skips_tests { &[][..] } else { &[TESTS] });
    let mut steps: Vec<Step> = CHECKS.iter().chain(tests).map(|(name, args)| step(name, args)).collect();
    // The nightly run also builds each package alone.
    steps.push(step("packages", &format!("package --offline --allow-dirty --no-verify {published}")));
    if is_installed("cargo-hack") {
        steps.push(step("each feature", &format!("hack check --each-feature {published}")));
    } else {
        let packages = workspace.packages.iter().filter(|package| package.is_published());
        steps.extend(packages.flat_map(feature_steps));
    }
    steps.extend(PROOFS.iter().map(|(name, args)| step(name, args)));
    steps.extend(example_steps(workspace, package("examples")?));
    steps.extend(bench_steps(package("benches")?)?);
    steps.extend(PROGRAMS.iter().map(|(name, args)| step(name, args)));
    Ok(steps)
}

fn step(name: &str, args: &str) -> Step {
    let mut step = Step::cargo(name, args, DEADLINE);
    step.needs = args.starts_with("deny ").then_some("cargo-deny");
    if args.starts_with("doc ") {
        step.command = step.command.env("RUSTDOCFLAGS", "-D warnings");
    }
    step
}

/// Returns the checks of a package without features, and with each feature alone, for a machine without cargo-hack. Other steps build
/// the default features.
fn feature_steps(package: &Package) -> Vec<Step> {
    let name = &package.name;
    let features = package.features.keys().filter(|feature| *feature != "default");
    let alone = features.map(|feature| (feature.as_str(), format!(" --features {feature}")));
    let check = |(label, flag): (&str, String)| {
        step(&format!("{name}, {label}"), &format!("check -p {name} --no-default-features{flag}"))
    };
    let mut steps: Vec<Step> =
        std::iter::once(("no features", String::new())).chain(alone).map(check).collect();
    if steps.len() == 1 {
        steps.clear();
    }
    steps
}

/// Returns a run of each example, one of both ends where it has two, and some on two hosts.
fn example_steps(workspace: &Workspace, package: &Package) -> Vec<Step> {
    let names: Vec<&str> = package.targets_of("example").collect();
    let alone = names
        .iter()
        .map(|name| step(&format!("example {name}"), &format!("run -p {} --example {name}", package.name)));
    let both = names.iter().filter(|name| example::has_commands(workspace, name));
    let both = both.map(|name| step(&format!("example {name}, both ends"), &format!("xtask example {name}")));
    let two_hosts = names.iter().filter(|name| TWO_HOST_EXAMPLES.contains(name)).map(|name| {
        step(&format!("example {name}, two hosts"), &format!("xtask example {name} --two-hosts"))
    });
    alone.chain(both).chain(two_hosts).collect()
}

/// Returns one build of all benches and a short run of each: with `--quick`, or with the arguments in `package.metadata.smoke`.
fn bench_steps(package: &Package) -> Result<Vec<Step>, Stop> {
    let benches: Vec<&str> = package.targets_of("bench").collect();
    if let Some((stray, _)) = package.smoke().find(|(bench, _)| !benches.contains(&bench.as_str())) {
        let what = "is not a bench, but package.metadata.smoke names it";
        return Err(Stop::failed(format!("benches/Cargo.toml: `{stray}` {what}")));
    }
    let build = step("build of the benches", &format!("bench -p {} --benches --no-run", package.name));
    let runs = benches.iter().map(|bench| {
        let args = package
            .smoke()
            .find(|(name, _)| name == bench)
            .map_or("--quick".to_owned(), |(_, args)| args.join(" "));
        step(&format!("bench {bench}"), &format!("bench -p {} --bench {bench} -- {args}", package.name))
    });
    Ok(std::iter::once(build).chain(runs).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::samples::{package, workspace};
    use serde_json::json;

    fn commands(steps: &[Step]) -> Vec<String> {
        steps.iter().map(|step| step.command.to_string()).collect()
    }

    #[test]
    fn the_plan_has_tests_on_request_and_all_forms_of_examples() {
        let here = Workspace::load().unwrap();
        let has =
            |skips, command: &str| commands(&plan(&here, skips).unwrap()).iter().any(|one| one == command);
        assert!(has(false, "cargo test --workspace") && !has(true, "cargo test --workspace"));
        assert!(has(true, "cargo run -p drumfire-examples --example echo"));
        assert!(has(true, "cargo xtask example chat") && !has(true, "cargo xtask example shared_port"));
        assert!(has(true, "cargo xtask example tick_server --two-hosts"));
        assert_eq!(step("advisories", "deny check").needs, Some("cargo-deny"));
    }

    #[test]
    fn each_feature_of_a_published_package_is_built_alone() {
        let mut drumfire = package("crates/drumfire", &[], &[]);
        drumfire["features"] = json!({ "default": [], "tokio": [], "serde": [] });
        let check = "cargo check -p drumfire-drumfire --no-default-features";
        let with = |feature| format!("{check} --features {feature}");
        let steps = feature_steps(&workspace(&[drumfire]).packages[0]);
        assert_eq!(commands(&steps), [check.to_owned(), with("serde"), with("tokio")]);
    }

    #[test]
    fn a_bench_runs_quick_unless_the_package_says_otherwise() {
        let mut benches = package("benches", &[("bench", "pps"), ("bench", "codec")], &[]);
        benches["metadata"] = json!({ "smoke": { "codec": ["--test"] } });
        let steps = bench_steps(&workspace(&[benches.clone()]).packages[0]).unwrap();
        let command = |bench, arg| format!("cargo bench -p drumfire-benches --bench {bench} -- {arg}");
        assert_eq!(commands(&steps)[1..], [command("pps", "--quick"), command("codec", "--test")]);
        benches["metadata"] = json!({ "smoke": { "no_bench": ["--test"] } });
        assert!(bench_steps(&workspace(&[benches]).packages[0]).is_err());
    }
}
