//! `cargo xtask ci`: the steps CI runs, derived from the workspace as it is, run in order until one fails.
//!
//! Every step is one command that can be typed by hand. Nothing here knows how CI machines are set up; `.ci/run` does.

use std::time::Duration;

use crate::bench::{DEADLINE, short_run};
use crate::example;
use crate::run::Stop;
use crate::steps::{Step, Steps, step};
use crate::workspace::{Package, Workspace};

/// An example ends by itself within 10 s; at this age it is killed.
const EXAMPLE_DEADLINE: Duration = Duration::from_secs(60);
/// A minute and a half of one core.
const GATE_DEADLINE: Duration = Duration::from_secs(600);
/// A run of two seconds and the build before it.
const RUN_DEADLINE: Duration = Duration::from_secs(600);
/// Fifteen seconds of scenarios on two cores, and the build before them.
const SIM_DEADLINE: Duration = Duration::from_secs(600);

/// Models of half a minute at most, and a build of everything under another flag.
const LOOM_DEADLINE: Duration = Duration::from_secs(900);

/// More than the task itself allows the tests, so that it is the task that says what is amiss.
const SANITIZE_DEADLINE: Duration = Duration::from_secs(1_200);

/// A hundred sessions of a quarter of a second, the build and the packages before them.
const INTEROP_DEADLINE: Duration = Duration::from_secs(600);

/// 100,000 cases of each take less than a minute of one core; the build before them.
const PROPERTIES_DEADLINE: Duration = Duration::from_secs(900);

/// More than the task itself allows the build and the tests.
const COVERAGE_DEADLINE: Duration = Duration::from_secs(1_500);

/// Examples with a command for a server and one for a client in their heads.
const TWO_HOST_EXAMPLES: [&str; 3] = ["configured", "echo", "tick_server"];

/// Runs the steps, or prints them when `list` is set.
///
/// # Errors
/// [`Stop::Failed`] with the first failing step and the command to repeat it.
pub(crate) fn run(list: bool, skip_debug_tests: bool) -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let steps = plan(&workspace, skip_debug_tests)?;
    if list {
        steps.iter().for_each(|step| println!("{}: {}", step.name, step.command));
        return Ok(());
    }
    let mut done = Steps::new(&workspace.root, steps.len());
    steps.iter().try_for_each(|step| done.run(step))?;
    done.finish()
}

/// All steps for this workspace, cheapest first.
fn plan(workspace: &Workspace, skip_debug_tests: bool) -> Result<Vec<Step>, Stop> {
    let mut steps = vec![
        step("fmt", "fmt --all --check"),
        step("fmt, peers", "fmt --manifest-path benches/peers/Cargo.toml --check"),
        step("fmt, bevy", "fmt --manifest-path crates/bevy/Cargo.toml --check"),
        step("fmt, fuzzer", "fmt --manifest-path crates/fuzz/libfuzzer/Cargo.toml --check"),
        step("clippy", "clippy --workspace --all-targets -- -D warnings"),
        step("tidy", "xtask tidy"),
        step("crates of others", "xtask deny").skippable(),
        step("known vulnerabilities", "xtask deny --advisories").skippable(),
    ];
    if !skip_debug_tests {
        steps.push(step("tests", "test --workspace"));
    }
    steps.extend(feature_tests(workspace).into_iter().flatten());
    steps.extend(property_steps(workspace).into_iter().flatten());
    steps.extend(simulator_steps(workspace));
    let mut docs = step("docs", "doc --workspace --no-deps");
    docs.command = docs.command.env("RUSTDOCFLAGS", "-D warnings");
    steps.push(docs);
    if workspace.package_in("crates/drumfire").is_some() {
        steps.push(step("the guide's programs", "xtask guide").within(RUN_DEADLINE));
    }
    steps.push(step("packages", "xtask package").within(RUN_DEADLINE));
    workspace.packages.iter().for_each(|package| steps.extend(feature_steps(package)));
    if workspace.package_in("crates/drumfire").is_some() {
        let oldest = step("oldest versions of others", "xtask minimal-versions").within(RUN_DEADLINE);
        steps.push(Step { can_be_skipped: true, ..oldest });
        steps.push(step("every interleaving", "xtask loom").within(LOOM_DEADLINE));
        steps.push(step("interleavings at random", "xtask loom --shuttle 10000").within(LOOM_DEADLINE));
    }
    if workspace.package_in("crates/socket").is_some() {
        let sanitize = step("address sanitizer", "xtask sanitize").within(SANITIZE_DEADLINE);
        steps.push(Step { can_be_skipped: true, ..sanitize });
    }
    steps.extend(portable_steps(workspace));
    if let Some(package) = workspace.package_in("examples") {
        steps.extend(example_steps(package)?);
        steps.extend(loopback_example_steps(workspace, package));
        steps.extend(two_host_example_steps(package));
        let interop = step("a client in Python", "xtask interop").within(INTEROP_DEADLINE);
        steps.push(Step { can_be_skipped: true, ..interop });
        if workspace.package_in("crates/ffi").is_some() {
            steps.push(step("clients in C", "xtask ffi").within(RUN_DEADLINE));
        }
        let agones = step("a round beside Agones' SDK", "xtask agones").within(RUN_DEADLINE);
        steps.push(Step { can_be_skipped: true, ..agones });
    }
    if let Some(package) = workspace.package_in("benches") {
        steps.extend(bench_steps(package)?);
    }
    if let Some(tools) = workspace.package_in("crates/tools") {
        steps.extend(view_steps(tools));
        let run = step("the README's run", "run --release --bin receiver -- --with-sender --secs 2");
        steps.push(run.within(RUN_DEADLINE));
        let flags = "--with-sender --stage deliver --mode reliable-ordered --secs 2";
        let run = step("reliable messages", &format!("run --release --bin receiver -- {flags}"));
        steps.push(run.within(RUN_DEADLINE));
        let two_hosts = step("two hosts", "xtask two-hosts --secs 2");
        steps.push(Step { can_be_skipped: true, ..two_hosts });
    }
    if workspace.package_in("crates/chaos").is_some() {
        let chaos =
            step("new ports, restarts and panics", "xtask chaos C5 C6 C9 --quick").within(RUN_DEADLINE);
        steps.push(Step { can_be_skipped: true, ..chaos });
    }
    Ok(steps)
}

/// The simulator as it is, with workers that fail, and with bugs planted; and every nonce of the core's tests, audited.
fn simulator_steps(workspace: &Workspace) -> Vec<Step> {
    let mut steps = Vec::new();
    if workspace.package_in("crates/sim").is_some() {
        steps.push(step("simulator", "xtask sim --seeds 0..2000").within(SIM_DEADLINE));
        let workers = step("simulator, workers that fail", "xtask sim --worker --seeds 0..2000");
        steps.push(workers.within(SIM_DEADLINE));
        let hours = step("simulator, hours", "xtask sim --long --seeds 0..20");
        steps.push(hours.within(SIM_DEADLINE));
        steps.push(step("planted bugs", "xtask sim --plant all --seeds 0..2000").within(SIM_DEADLINE));
    }
    if workspace.package_in("crates/proto").is_some() {
        let hostile = step("hostile traffic", "xtask hostile --seeds 0..2000 --counted 20");
        steps.push(Step { can_be_skipped: true, ..hostile.within(SIM_DEADLINE) });
    }
    let audited = ["crates/crypto", "crates/proto"].map(|folder| workspace.package_in(folder));
    if let [Some(crypto), Some(proto)] = audited {
        let features = format!("{}/audit-nonce,{}/audit-nonce", crypto.name, proto.name);
        let packages = format!("-p {} -p {} --features {features}", crypto.name, proto.name);
        steps.push(step(
            "nonces, audited",
            &format!("test --release {packages} --test audit_nonce --test core"),
        ));
    }
    steps
}

/// Tests behind features that no other step with tests has: of what hostile ends do, and of bugs planted on purpose. Apart from
/// each other, for with the latter no two worlds of one process may have the same keys.
fn feature_tests(workspace: &Workspace) -> Option<[Step; 3]> {
    let packages =
        ["crates/sim", "crates/drumfire", "crates/crypto"].map(|folder| workspace.package_in(folder));
    let [Some(sim), Some(drumfire), Some(crypto)] = packages.map(|package| Some(&package?.name)) else {
        return None;
    };
    let hostile = format!("test -p {drumfire} --features hostile --lib worker::");
    let planted = format!("test -p {sim} -p {crypto} --features {sim}/plant --lib plant");
    let judged = format!("test -p {sim} --features hostile --test judged");
    Some([
        step("tests of hostile ends", &hostile),
        step("tests of the simulator's judges", &judged),
        step("tests of planted bugs", &planted),
    ])
}

/// What must hold for any input, and how much of the code that an attacker meets first any test runs.
fn property_steps(workspace: &Workspace) -> Option<[Step; 2]> {
    workspace.package_in("crates/wire")?;
    let properties = step("properties", "xtask props").within(PROPERTIES_DEADLINE);
    Some([properties, step("coverage", "xtask coverage").within(COVERAGE_DEADLINE).skippable()])
}

/// The package without features, with each alone, and with all, linted; the first and the last with the code of their tests. Its
/// default set is what the workspace steps build, and so is a package that has none.
fn feature_steps(package: &Package) -> Vec<Step> {
    let features: Vec<&String> = package.features.iter().filter(|feature| *feature != "default").collect();
    if features.is_empty() {
        return Vec::new();
    }
    let mut sets = vec![("none".to_owned(), "--all-targets --no-default-features".to_owned())];
    sets.extend(features.iter().map(|f| ((*f).clone(), format!("--no-default-features --features {f}"))));
    if features.len() > 1 {
        sets.push(("all".to_owned(), "--all-targets --all-features".to_owned()));
    }
    let name = &package.name;
    sets.iter()
        .map(|(label, flags)| {
            step(&format!("features of {name}: {label}"), &format!("clippy -p {name} {flags} -- -D warnings"))
        })
        .collect()
}

/// The live view of the tools, which is in no other build: its linting is a feature's as any.
fn view_steps(tools: &Package) -> Option<Step> {
    let has_view = tools.features.iter().any(|feature| feature == "top");
    has_view.then(|| step("live view", &format!("test -p {} --features top top", tools.name)))
}

/// The portable path on a system that has a native one: the socket crate's tests, servers and clients over it, and the
/// receiver where it offers it.
fn portable_steps(workspace: &Workspace) -> Vec<Step> {
    let mut steps = Vec::new();
    if let Some(socket) = workspace.package_in("crates/socket") {
        steps.push(step("portable path, tests", &format!("test -p {} --features portable", socket.name)));
        if let Some(ends) = workspace.package_in("crates/drumfire") {
            // What is tested in virtual time knows no path.
            let tests = "--test server --test restart --test asynchronous --test foreign";
            let test = format!("test -p {} --features {}/portable,tokio", ends.name, socket.name);
            steps.push(step("portable path, both ends", &format!("{test} {tests}")));
            steps.push(step("portable path, examples of the documentation", &format!("{test} --doc")));
        }
    }
    let has_portable = |package: &&Package| package.features.iter().any(|feature| feature == "portable");
    if let Some(tools) = workspace.package_in("crates/tools").filter(has_portable) {
        let flags = "--features portable --bin receiver -- --with-sender --threads 1 --secs 1";
        let run = step("portable path, run", &format!("run --release -p {} {flags}", tools.name));
        steps.push(run.within(RUN_DEADLINE));
    }
    steps
}

/// One build for all examples, then each by itself.
fn example_steps(package: &Package) -> Result<Vec<Step>, Stop> {
    let name = &package.name;
    let mut steps = vec![step("examples, build", &format!("build -p {name} --bins --examples"))];
    for kind in ["example", "bin"] {
        steps.extend(package.targets_of(kind).map(|target| {
            step(&format!("example {target}"), &format!("run -p {name} --{kind} {target}"))
                .within(EXAMPLE_DEADLINE)
        }));
    }
    if steps.len() == 1 {
        return Err(Stop::failed("examples/Cargo.toml: the package holds no example to run"));
    }
    Ok(steps)
}

/// The examples whose server and client run in a process each, with the commands of their heads.
fn loopback_example_steps(workspace: &Workspace, package: &Package) -> impl Iterator<Item = Step> {
    let names = package.targets_of("example").filter(|name| example::has_commands(workspace, name));
    names.map(|name| {
        step(&format!("both ends, {name}"), &format!("xtask example {name}")).within(RUN_DEADLINE)
    })
}

/// The examples whose server and client also run on two hosts, each in a network namespace.
fn two_host_example_steps(package: &Package) -> impl Iterator<Item = Step> {
    let names = package.targets_of("example").filter(|name| TWO_HOST_EXAMPLES.contains(name));
    names.map(|name| Step {
        can_be_skipped: true,
        ..step(&format!("two hosts, {name}"), &format!("xtask two-hosts-example {name}"))
    })
}

/// One build for all benches, then the short run of each with the arguments `package.metadata.smoke` gives it.
fn bench_steps(package: &Package) -> Result<Vec<Step>, Stop> {
    let name = &package.name;
    let benches: Vec<&str> = package.targets_of("bench").collect();
    if benches.is_empty() {
        return Err(Stop::failed("benches/Cargo.toml: the package holds no bench to run"));
    }
    if let Some(stray) = package.smoke.keys().find(|named| !benches.contains(&named.as_str())) {
        return Err(Stop::failed(format!(
            "benches/Cargo.toml: package.metadata.smoke names `{stray}`, which is no bench"
        )));
    }
    let build = step("benches, build", &format!("bench -p {name} --benches --no-run"));
    let runs = benches.iter().map(|bench| {
        let run = Step { command: short_run(package, bench), ..step(&format!("bench {bench}"), "bench") };
        run.within(DEADLINE)
    });
    let gate = step("instruction counts", "xtask bench --gate").within(GATE_DEADLINE);
    let gate = benches.contains(&"counts").then_some(Step { can_be_skipped: true, ..gate });
    Ok(std::iter::once(build).chain(runs).chain(gate).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::samples::{package, workspace};
    use serde_json::{Value, json};

    fn commands(packages: &[Value]) -> Vec<String> {
        plan(&workspace(packages), false).unwrap().iter().map(|step| step.command.to_string()).collect()
    }

    #[test]
    fn debug_tests_are_left_out_on_request_only() {
        let wire = workspace(&[package("crates/wire", &[], &[], &[])]);
        let has_them = |skip| {
            plan(&wire, skip).unwrap().iter().any(|step| step.command.to_string() == "cargo test --workspace")
        };
        assert!(has_them(false));
        assert!(!has_them(true));
    }

    #[test]
    fn packages_that_do_not_exist_have_no_steps() {
        let all = commands(&[package("crates/wire", &[], &[], &[])]).join("\n");
        for absent in ["portable", "--example", "cargo bench", "receiver", "two-hosts"] {
            assert!(!all.contains(absent), "{absent} in\n{all}");
        }
    }

    #[test]
    fn chaos_is_part_of_it_where_the_machine_lets_it() {
        let steps = plan(&workspace(&[package("crates/chaos", &[], &[], &[])]), true).unwrap();
        let chaos =
            steps.iter().find(|step| step.command.to_string() == "cargo xtask chaos C5 C6 C9 --quick");
        assert!(chaos.is_some_and(|step| step.can_be_skipped && step.deadline.is_some()));
    }

    #[test]
    fn tests_behind_features_are_run() {
        let folders = ["crates/sim", "crates/drumfire", "crates/crypto"];
        let all = commands(&folders.map(|folder| package(folder, &[], &[], &[])));
        for command in [
            "cargo test -p drumfire-drumfire --features hostile --lib worker::",
            "cargo test -p drumfire-sim -p drumfire-crypto --features drumfire-sim/plant --lib plant",
        ] {
            assert!(all.iter().any(|c| c == command), "{all:#?}");
        }
        assert!(!commands(&[package("crates/sim", &[], &[], &[])]).join("\n").contains("worker::"));
    }

    #[test]
    fn properties_and_coverage_are_part_of_it_and_the_latter_where_there_are_tools() {
        let steps = plan(&workspace(&[package("crates/wire", &[], &[], &[])]), true).unwrap();
        let of =
            |task: &str| steps.iter().find(|step| step.command.to_string() == format!("cargo xtask {task}"));
        assert!(of("props").is_some_and(|step| !step.can_be_skipped && step.deadline.is_some()));
        assert!(of("coverage").is_some_and(|step| step.can_be_skipped && step.deadline.is_some()));
    }

    #[test]
    fn what_goes_to_a_registry_is_packed() {
        let steps = plan(&workspace(&[package("crates/wire", &[], &[], &[])]), true).unwrap();
        let packed = steps.iter().find(|step| step.command.to_string() == "cargo xtask package");
        assert!(packed.is_some_and(|step| step.deadline.is_some()));
    }

    #[test]
    fn each_feature_is_built_alone_and_with_all_others() {
        let all = commands(&[package("crates/drumfire", &["default", "tokio", "serde"], &[], &[])]);
        let combinations = all.iter().filter(|c| c.starts_with("cargo clippy -p drumfire-drumfire")).count();
        assert_eq!(combinations, 4, "none, tokio, serde, all: {all:#?}");
        let one = "cargo clippy -p drumfire-drumfire --no-default-features --features tokio -- -D warnings";
        assert!(all.iter().any(|c| c == one), "{all:#?}");
        assert!(all.iter().any(|c| c.contains("--all-features")), "{all:#?}");
        let without = commands(&[package("examples", &[], &[("example", "echo")], &[])]);
        assert!(!without.join("\n").contains("-features"), "{without:#?}");
    }

    #[test]
    fn the_portable_receiver_runs_where_the_tools_offer_it() {
        let socket = package("crates/socket", &["portable"], &[], &[]);
        let without = commands(&[socket.clone(), package("crates/tools", &[], &[], &[])]);
        assert!(without.contains(&"cargo test -p drumfire-socket --features portable".to_owned()));
        assert!(without.contains(&"cargo xtask two-hosts --secs 2".to_owned()));
        assert!(!without.iter().any(|c| c.contains("-p drumfire-tools --features portable")));
        let with = commands(&[socket, package("crates/tools", &["portable"], &[], &[])]);
        assert!(with.iter().any(|c| c.contains("-p drumfire-tools --features portable --bin receiver")));
    }

    #[test]
    fn both_ends_are_tested_over_the_portable_path() {
        let all = commands(&[
            package("crates/socket", &["portable"], &[], &[]),
            package("crates/drumfire", &[], &[], &[]),
        ]);
        let both_ends = "cargo test -p drumfire-drumfire --features drumfire-socket/portable,tokio";
        for targets in ["--test server --test restart", "--doc"] {
            assert!(
                all.iter().any(|c| c.starts_with(&format!("{both_ends} {targets}"))),
                "{targets}: {all:#?}"
            );
        }
    }

    #[test]
    fn every_example_is_run_with_a_deadline() {
        let targets = [("example", "echo"), ("bin", "room")];
        let steps =
            example_steps(&workspace(&[package("examples", &[], &targets, &[])]).packages[0]).unwrap();
        let runs: Vec<String> = steps[1..].iter().map(|step| step.command.to_string()).collect();
        assert_eq!(
            runs,
            ["cargo run -p drumfire-examples --example echo", "cargo run -p drumfire-examples --bin room"]
        );
        assert!(steps[1..].iter().all(|step| step.deadline == Some(EXAMPLE_DEADLINE)));
    }

    #[test]
    fn both_ends_of_an_example_that_has_two_are_run_with_a_deadline() {
        let steps = plan(&Workspace::load().unwrap(), true).unwrap();
        let of = |name: &str| {
            let command = format!("cargo xtask example {name}");
            steps.iter().find(|step| step.command.to_string() == command)
        };
        assert!(of("chat").is_some_and(|step| step.deadline.is_some()));
        assert!(of("shared_port").is_none());
    }

    #[test]
    fn a_bench_runs_quick_unless_the_package_says_otherwise() {
        let mut benches = package("benches", &[], &[("bench", "pps"), ("bench", "codec")], &[]);
        benches["metadata"] = json!({ "smoke": { "codec": ["--test"] } });
        let all = commands(&[benches]);
        assert!(
            all.contains(&"cargo bench -p drumfire-benches --bench pps -- --quick".to_owned()),
            "{all:#?}"
        );
        assert!(
            all.contains(&"cargo bench -p drumfire-benches --bench codec -- --test".to_owned()),
            "{all:#?}"
        );
    }

    #[test]
    fn instruction_counts_are_compared_where_they_are_counted() {
        let gate = |bench| {
            let steps = plan(&workspace(&[package("benches", &[], &[("bench", bench)], &[])]), true).unwrap();
            steps.into_iter().find(|step| step.command.to_string() == "cargo xtask bench --gate")
        };
        assert!(gate("counts").is_some_and(|step| step.can_be_skipped && step.deadline.is_some()));
        assert!(gate("pps").is_none());
    }

    #[test]
    fn clients_in_c_meet_the_server_of_an_example() {
        let (ffi, examples) =
            (package("crates/ffi", &[], &[], &[]), package("examples", &[], &[("example", "echo")], &[]));
        let has_them = |packages: &[Value]| commands(packages).contains(&"cargo xtask ffi".to_owned());
        assert!(has_them(&[ffi.clone(), examples.clone()]));
        assert!(!has_them(&[ffi]) && !has_them(&[examples]));
    }

    #[test]
    fn a_package_with_nothing_to_run_is_a_failure() {
        assert!(plan(&workspace(&[package("examples", &[], &[], &[])]), false).is_err());
        assert!(plan(&workspace(&[package("benches", &[], &[], &[])]), false).is_err());
    }

    #[test]
    fn arguments_for_a_bench_that_does_not_exist_are_a_failure() {
        let mut benches = package("benches", &[], &[("bench", "pps")], &[]);
        benches["metadata"] = json!({ "smoke": { "gone": ["--test"] } });
        assert!(plan(&workspace(&[benches]), false).is_err());
    }
}
