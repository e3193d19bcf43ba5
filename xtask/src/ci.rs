//! `cargo xtask ci`: the steps that CI runs, one after the other until one fails.
//!
//! Every step is one command that can be typed by hand. The time of each is printed at the end; together with the tests they should
//! take [`BUDGET`] on two cores, so that what takes longer belongs to the nightly task. Nothing here knows how CI machines are set
//! up; `.ci/run` does.

use std::time::Duration;

use crate::example;
use crate::run::{CommandLine, Stop, is_installed};
use crate::steps::{Step, Steps, step};
use crate::workspace::{Package, Workspace};

/// The time for all steps and the tests, on two cores.
const BUDGET: Duration = Duration::from_secs(15 * 60);
/// A step that is still running after this time hangs.
const DEADLINE: Duration = Duration::from_secs(15 * 60);

/// Steps with a name and the arguments for cargo. The cheapest come first.
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

/// The step that `.ci/run` has done already, as the README's test command.
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

/// Examples that also run on two hosts, each in a network namespace.
const TWO_HOST_EXAMPLES: [&str; 3] = ["configured", "echo", "tick_server"];

/// Runs the steps, or prints them when `list` is set.
///
/// # Errors
/// [`Stop::Failed`] with the first step that fails, and the command to repeat it.
pub(crate) fn run(list: bool, skip_debug_tests: bool) -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let steps = plan(&workspace, skip_debug_tests)?;
    if list {
        steps.iter().for_each(|step| println!("{}: {}", step.name, step.command));
        return Ok(());
    }
    let mut done = Steps::new(&workspace.root, steps.len());
    steps.iter().try_for_each(|step| done.run(step))?;
    println!("\nall steps and the tests should take {} minutes on two cores", BUDGET.as_secs() / 60);
    done.finish()
}

/// Returns all steps for this workspace.
fn plan(workspace: &Workspace, skip_debug_tests: bool) -> Result<Vec<Step>, Stop> {
    let package = |folder: &str| {
        let package = workspace.package_in(folder);
        package.ok_or_else(|| Stop::failed(format!("{folder}: there is no such package")))
    };
    let table =
        |rows: &[(&str, &str)]| rows.iter().map(|(name, args)| ci_step(name, args)).collect::<Vec<_>>();
    let mut steps = table(&CHECKS);
    if !skip_debug_tests {
        steps.extend(table(&[TESTS]));
    }
    let published = workspace.published();
    // The nightly run also builds each package alone.
    steps.push(ci_step("packages", &format!("package --offline --allow-dirty --no-verify {published}")));
    if is_installed("cargo-hack") {
        steps.push(ci_step("each feature", &format!("hack check --each-feature {published}")));
    } else {
        let packages = workspace.packages.iter().filter(|package| package.is_published);
        steps.extend(packages.flat_map(feature_steps));
    }
    steps.extend(table(&PROOFS));
    steps.extend(example_steps(workspace, package("examples")?));
    steps.extend(bench_steps(package("benches")?)?);
    steps.extend(table(&PROGRAMS));
    Ok(steps)
}

/// Returns a step of CI. Tasks of this package say when the machine lacks what they need.
fn ci_step(name: &str, args: &str) -> Step {
    let mut step = step(name, args).within(DEADLINE);
    step.can_be_skipped = args.starts_with("xtask ");
    if args.starts_with("deny ") {
        step.needs = Some("cargo-deny");
    }
    if args.starts_with("doc ") {
        step.command = step.command.env("RUSTDOCFLAGS", "-D warnings");
    }
    step
}

/// Returns the checks of a package without features, and with each alone, for a machine without cargo-hack. Other steps build the
/// default features.
fn feature_steps(package: &Package) -> Vec<Step> {
    let name = &package.name;
    let features: Vec<_> = package.features.iter().filter(|feature| *feature != "default").collect();
    if features.is_empty() {
        return Vec::new();
    }
    let alone = features.iter().map(|feature| (feature.as_str(), format!(" --features {feature}")));
    let check = |(label, flag): (&str, String)| {
        ci_step(&format!("{name}, {label}"), &format!("check -p {name} --no-default-features{flag}"))
    };
    std::iter::once(("no features", String::new())).chain(alone).map(check).collect()
}

/// Returns a run of each example, one of both of its ends where it has two, and some on two hosts.
fn example_steps(workspace: &Workspace, package: &Package) -> Vec<Step> {
    let names: Vec<_> = package.targets_of("example").collect();
    let alone = names.iter().map(|name| {
        ci_step(&format!("example {name}"), &format!("run -p {} --example {name}", package.name))
    });
    let both = names.iter().filter(|name| example::has_commands(workspace, name));
    let both =
        both.map(|name| ci_step(&format!("example {name}, both ends"), &format!("xtask example {name}")));
    let apart = names.iter().filter(|name| TWO_HOST_EXAMPLES.contains(name));
    let apart = apart.map(|name| {
        ci_step(&format!("example {name}, two hosts"), &format!("xtask example {name} --two-hosts"))
    });
    alone.chain(both).chain(apart).collect()
}

/// Returns one build for all benches, then the short run of each with the arguments that `package.metadata.smoke` gives it.
fn bench_steps(package: &Package) -> Result<Vec<Step>, Stop> {
    let benches: Vec<&str> = package.targets_of("bench").collect();
    if let Some(stray) = package.smoke.keys().find(|named| !benches.contains(&named.as_str())) {
        return Err(Stop::failed(format!(
            "benches/Cargo.toml: package.metadata.smoke names `{stray}`, which is no bench"
        )));
    }
    let build = ci_step("build of the benches", &format!("bench -p {} --benches --no-run", package.name));
    let runs = benches.iter().map(|bench| Step {
        command: short_run(package, bench),
        ..ci_step(&format!("bench {bench}"), "bench")
    });
    Ok(std::iter::once(build).chain(runs).collect())
}

/// Returns the command of a bench's short run: `--quick`, or the arguments that `package.metadata.smoke` gives it.
fn short_run(package: &Package, bench: &str) -> CommandLine {
    let quick = ["--quick".to_owned()];
    let args = package.smoke.get(bench).map_or(&quick[..], |args| &args[..]);
    let command = CommandLine::new("cargo", &["bench", "-p", &package.name, "--bench", bench, "--"]);
    args.iter().fold(command, CommandLine::arg)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::samples::{package, workspace};
    use serde_json::json;

    fn commands(skip_debug_tests: bool) -> Vec<String> {
        let steps = plan(&Workspace::load().unwrap(), skip_debug_tests).unwrap();
        assert!(steps.iter().all(|step| step.deadline.is_some()));
        steps.iter().map(|step| step.command.to_string()).collect()
    }

    #[test]
    fn the_tests_are_left_out_on_request_only() {
        let has_them = |skip| commands(skip).iter().any(|command| command == "cargo test --workspace");
        assert!(has_them(false) && !has_them(true));
    }

    #[test]
    fn a_task_may_be_skipped_and_nothing_else() {
        assert!(ci_step("house rules", "xtask tidy").can_be_skipped);
        assert!(!ci_step("clippy", "clippy").can_be_skipped);
        assert_eq!(ci_step("advisories", "deny check").needs, Some("cargo-deny"));
    }

    #[test]
    fn each_feature_of_a_published_package_is_built_alone() {
        let drumfire = workspace(&[package("crates/drumfire", &["default", "tokio", "serde"], &[], &[])]);
        let steps = feature_steps(&drumfire.packages[0]);
        let commands: Vec<_> = steps.iter().map(|step| step.command.to_string()).collect();
        let check = "cargo check -p drumfire-drumfire --no-default-features";
        let with = |feature| format!("{check} --features {feature}");
        assert_eq!(commands, [check.to_owned(), with("serde"), with("tokio")]);
    }

    #[test]
    fn every_example_runs_and_so_do_both_ends_of_those_with_two() {
        let all = commands(true);
        let has = |command: &str| all.iter().any(|other| other == command);
        assert!(has("cargo run -p drumfire-examples --example echo"));
        assert!(has("cargo xtask example chat") && !has("cargo xtask example shared_port"));
        assert!(has("cargo xtask example tick_server --two-hosts"));
    }

    #[test]
    fn a_bench_runs_quick_unless_the_package_says_otherwise() {
        let mut benches = package("benches", &[], &[("bench", "pps"), ("bench", "codec")], &[]);
        benches["metadata"] = json!({ "smoke": { "codec": ["--test"] } });
        let steps = bench_steps(&workspace(&[benches]).packages[0]).unwrap();
        let all: Vec<_> = steps.iter().map(|step| step.command.to_string()).collect();
        assert_eq!(all[1], "cargo bench -p drumfire-benches --bench pps -- --quick");
        assert_eq!(all[2], "cargo bench -p drumfire-benches --bench codec -- --test");
    }

    #[test]
    fn arguments_for_a_bench_that_does_not_exist_are_a_failure() {
        let mut benches = package("benches", &[], &[("bench", "pps")], &[]);
        benches["metadata"] = json!({ "smoke": { "gone": ["--test"] } });
        assert!(bench_steps(&workspace(&[benches]).packages[0]).is_err());
    }
}
