//! `cargo xtask props`: the property tests of all packages, in release, each with many more cases than an ordinary run has.
//!
//! A property is a test inside proptest's macro; the task finds them by it, so that none is left out, and runs them alone. What
//! must hold, and the smallest input for which it does not, is the tests' business and proptest's.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::files::listed;
use crate::run::{CommandLine, Stop};
use crate::steps::{Step, Steps, step};
use crate::workspace::{Package, Workspace};

/// Cases of each property, unless something else is asked for.
pub(crate) const CASES: u32 = 100_000;
/// The variable by which proptest is told.
const VARIABLE: &str = "PROPTEST_CASES";
/// What opens a block of properties, alone on its line; a brace as far in closes it.
const OPENING: &str = "proptest! {";
/// What a package's properties have beside the time of their cases.
const DEADLINE: Duration = Duration::from_secs(300);
/// What a case of all properties of a package takes at most, many times over.
const DEADLINE_PER_CASE: Duration = Duration::from_millis(5);

/// The properties of one package.
struct Properties<'a> {
    package: &'a Package,
    /// Each as the test program calls it: `ack::tests::any_bytes_are_ranges`.
    tests: Vec<String>,
}

/// Runs all of them, with so many cases each.
///
/// # Errors
/// [`Stop::Failed`] when one does not hold or takes too long, or when one that is written is in no test program.
pub(crate) fn run(cases: u32) -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let paths = listed(&workspace.root)?;
    let mut all = Vec::new();
    for package in &workspace.packages {
        let names = written(&workspace.root, package, &paths)?;
        if !names.is_empty() {
            all.push((package, names));
        }
    }
    if all.is_empty() {
        return Err(Stop::failed(format!("there is no property: no package has `{OPENING}`")));
    }
    let mut steps = Steps::new(&workspace.root, all.len());
    let mut count = 0;
    for (package, names) in &all {
        // Built before, so that what is timed are the properties.
        let list = test(package).arg("--").arg("--list");
        println!("{list}");
        let tests = in_programs(names, &list.output(&workspace.root)?)
            .map_err(|name| Stop::failed(format!("{}: no test program has {name}", package.folder)))?;
        println!("  {}", tests.join("\n  "));
        count += tests.len();
        steps.run(&Properties { package, tests }.step(cases))?;
    }
    println!("\n{count} properties, {cases} cases each");
    steps.finish()
}

impl Properties<'_> {
    fn step(&self, cases: u32) -> Step {
        let name = format!("{} properties of {}", self.tests.len(), self.package.name);
        let command = test(self.package).env(VARIABLE, &cases.to_string()).arg("--").arg("--exact");
        let command = self.tests.iter().fold(command, CommandLine::arg);
        Step { command, ..step(&name, "test") }.within(DEADLINE + DEADLINE_PER_CASE * cases)
    }
}

fn test(package: &Package) -> CommandLine {
    CommandLine::new("cargo", &["test", "--release", "--quiet", "-p", &package.name, "--lib", "--tests"])
}

/// The names of the properties that stand in the files of this package.
fn written(root: &Path, package: &Package, paths: &[String]) -> Result<BTreeSet<String>, Stop> {
    let folder = format!("{}/", package.folder);
    let mut names = BTreeSet::new();
    for path in paths.iter().filter(|path| path.starts_with(&folder) && path.ends_with(".rs")) {
        let source =
            fs::read_to_string(root.join(path)).map_err(|why| Stop::failed(format!("{path}: {why}")))?;
        names.extend(properties(&source).into_iter().map(str::to_owned));
    }
    Ok(names)
}

/// The names of the functions right inside proptest's macro.
fn properties(source: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut opened_at = None;
    for line in source.lines() {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        match opened_at {
            None if code == OPENING => opened_at = Some(indent),
            Some(opened) if indent == opened && code == "}" => opened_at = None,
            Some(opened) if indent == opened + 4 => {
                let name = code.strip_prefix("fn ").and_then(|rest| rest.split_once('('));
                names.extend(name.map(|(name, _)| name));
            }
            _ => {}
        }
    }
    names
}

/// The tests with these names in what test programs list; the first name that none has, where there is one.
fn in_programs<'a>(names: &'a BTreeSet<String>, list: &str) -> Result<Vec<String>, &'a str> {
    let listed = list.lines().filter_map(|line| line.strip_suffix(": test"));
    let name_of = |path: &str| path.rsplit("::").next().unwrap_or_default().to_owned();
    let mut tests: Vec<String> =
        listed.filter(|path| names.contains(&name_of(path))).map(str::to_owned).collect();
    tests.sort();
    tests.dedup();
    let found: BTreeSet<String> = tests.iter().map(|path| name_of(path)).collect();
    match names.iter().find(|name| !found.contains(*name)) {
        Some(missing) => Err(missing),
        None => Ok(tests),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::samples;

    const SOURCE: &str = "fn before() {}\n    proptest! {\n        #[test]\n        fn one(a: u8) {\n            fn inner() {}\n        \
                          }\n\n        #[test]\n        fn two(\n            b: u8,\n        ) {}\n    }\n    fn behind() {}\n";

    fn names(of: &[&str]) -> BTreeSet<String> {
        of.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn what_stands_in_the_macro_is_a_property_and_nothing_else() {
        assert_eq!(properties(SOURCE), ["one", "two"]);
        assert_eq!(properties("use proptest::prelude::*;\nfn three() {}\n"), [""; 0]);
    }

    #[test]
    fn a_property_is_run_by_its_path_and_one_that_is_in_no_program_is_named() {
        let list = "a::tests::one: test\nb::two: test\na::tests::three: test\n\n3 tests, 0 benchmarks\none: benchmark\n";
        assert_eq!(in_programs(&names(&["one", "two"]), list).unwrap(), ["a::tests::one", "b::two"]);
        assert_eq!(in_programs(&names(&["one", "four"]), list), Err("four"));
    }

    #[test]
    fn the_cases_are_asked_for_and_the_time_grows_with_them() {
        let workspace = samples::workspace(&[samples::package("crates/wire", &[], &[], &[])]);
        let properties = Properties { package: &workspace.packages[0], tests: vec!["a::one".to_owned()] };
        let step = properties.step(7_000);
        assert_eq!(
            step.command.to_string(),
            "PROPTEST_CASES=7000 cargo test --release --quiet -p drumfire-wire --lib --tests -- --exact a::one"
        );
        assert!(step.deadline > properties.step(CASES / 100).deadline);
    }

    #[test]
    fn every_package_with_proptest_has_properties() {
        let workspace = Workspace::load().unwrap();
        let paths = listed(&workspace.root).unwrap();
        for folder in ["crates/wire", "crates/crypto", "crates/proto", "crates/socket"] {
            let package = workspace.package_in(folder).unwrap();
            assert!(!written(&workspace.root, package, &paths).unwrap().is_empty(), "{folder}");
        }
    }
}
