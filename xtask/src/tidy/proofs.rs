//! Checks that every test that EVIDENCE.md names as a proof exists, and that the tests of the whole workspace run it: its feature, if it
//! has one, is enabled there. A test that only the simulator's copy of the project has counts only where the document names the task that
//! runs it.
//!
//! The check knows names and features. A reviewer judges whether a test proves its promise.

use std::collections::HashMap;

use super::{File, Violation};
use crate::files::regex;
use crate::workspace::Package;

const DOCUMENT: &str = "crates/drumfire/docs/EVIDENCE.md";
/// A lower-case name in backticks with at least four words is a test. No setting, feature, or program has such a name.
const NAME: &str = r"`([a-z0-9]+(?:_[a-z0-9]*){3,})`";
/// The folder of tests that only the simulator's copy of the project has, and the task that runs them.
const COPIED: (&str, &str) = ("crates/sim/patches/", "`cargo xtask sim --tests`");
/// A function, with the place of the feature in the attributes right before it.
const FUNCTION: &str =
    r"(?:#\[cfg\(feature = (?<feature>[^)]*)\)\]\s*|#\[[^\]]*\]\s*)*(?:\w+ )*\bfn (?<name>\w+)\(";
/// A name in the list of a test program without such functions.
const LISTED: &str = r#""([a-z0-9]+(?:_[a-z0-9]*){3,})""#;

pub(super) fn check(files: &[File], packages: &[Package]) -> Vec<Violation> {
    let Some(document) = files.iter().find(|file| file.path == DOCUMENT) else { return Vec::new() };
    let (name, tests) = (regex(NAME), tests(files));
    let mut violations = Vec::new();
    for (line, number) in document.text.lines().zip(1..) {
        for name in name.captures_iter(line).map(|found| found.extract().1).map(|[name]| name) {
            let what = match tests.get(name) {
                None => format!("there is no test `{name}`"),
                Some((file, _)) if file.path.starts_with(COPIED.0) && !line.contains(COPIED.1) => {
                    format!("`{name}` is not a test of a package: write {} next to it", COPIED.1)
                }
                Some((file, Some(feature))) if !is_enabled(packages, file, feature) => {
                    format!("`{name}` needs `{feature}`, which no package enables")
                }
                Some(_) => continue,
            };
            violations.push(document.violation(number, what));
        }
    }
    violations
}

/// Returns the file of each test, and its feature if it has one. In the code, literals such as features are blank.
fn tests(files: &[File]) -> HashMap<&str, (&File, Option<&str>)> {
    let (function, listed) = (regex(FUNCTION), regex(LISTED));
    let mut tests = HashMap::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        for found in function.captures_iter(&file.code) {
            let feature = found.name("feature").map(|feature| file.text[feature.range()].trim_matches('"'));
            tests
                .entry(&file.text[found.name("name").map_or(0..0, |name| name.range())])
                .or_insert((file, feature));
        }
        if file.path.contains("/tests/") {
            for found in listed.captures_iter(&file.text) {
                tests.entry(found.extract::<1>().1[0]).or_insert((file, None));
            }
        }
    }
    tests
}

/// Returns whether a feature of the file's package is enabled where all packages are tested: by default, or by another package.
fn is_enabled(packages: &[Package], file: &File, feature: &str) -> bool {
    let Some(own) = packages.iter().find(|package| file.is_in_module(&package.folder)) else { return false };
    own.is_default(feature) || packages.iter().any(|package| package.enables(&own.folder, feature))
}
