//! Checks that every test that EVIDENCE.md names as a proof exists, and that the tests of the whole workspace run it: its feature, if it
//! has one, is enabled there. A test that only the simulator's copy of the project has counts only where the document names the task that
//! runs it.
//!
//! The check knows names and features. A reviewer judges whether a test proves its promise.

use super::{File, Violation, line_at, positions_of};
use crate::workspace::Package;

/// The document of promises.
const DOCUMENT: &str = "crates/drumfire/docs/EVIDENCE.md";
/// A lower-case name in backticks with more words than this is a test. No setting, feature, or program has such a name.
const WORDS_MAX: usize = 3;
/// The folder of tests that only the simulator's copy of the project has, and the task that runs them.
const COPIED: (&str, &str) = ("crates/sim/patches/", "`cargo xtask sim --tests`");
/// The attribute with a test's feature.
const GATE: &str = "#[cfg(feature = \"";
pub(super) fn check(files: &[File], packages: &[Package]) -> Vec<Violation> {
    let Some(document) = files.iter().find(|file| file.path == DOCUMENT) else { return Vec::new() };
    let mut violations = Vec::new();
    for (line, number) in document.text.lines().zip(1..) {
        let names = backticks(line).filter(|text| is_test_name(text));
        let faults = names.flat_map(|name| faults(name, line, files, packages));
        violations.extend(faults.map(|what| document.violation(number, what)));
    }
    violations
}

/// Returns the texts between backticks.
fn backticks(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn is_test_name(text: &str) -> bool {
    text.split('_').count() > WORDS_MAX && text.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric())
}

fn faults(name: &str, line: &str, files: &[File], packages: &[Package]) -> Vec<String> {
    let Some(file) = files.iter().find(|file| has_test(file, name)) else {
        return vec![format!("there is no test `{name}`")];
    };
    let mut faults = Vec::new();
    if file.path.starts_with(COPIED.0) && !line.contains(COPIED.1) {
        faults.push(format!("`{name}` is not a test of a package: write {} next to it", COPIED.1));
    }
    let feature = feature_of(file, name).filter(|feature| !is_enabled(packages, file, feature));
    faults.extend(feature.map(|feature| format!("`{name}` needs `{feature}`, which no package enables")));
    faults
}

/// Returns whether a file has a function of this name, or the name in the list of a test program without such functions.
fn has_test(file: &File, name: &str) -> bool {
    let is_listed = || file.path.contains("/tests/") && file.text.contains(&format!("\"{name}\""));
    file.is_rust() && (positions_of(&file.code, &format!("fn {name}(")).next().is_some() || is_listed())
}

/// Returns the feature in the attributes right before a test.
fn feature_of<'a>(file: &'a File, name: &str) -> Option<&'a str> {
    let at = positions_of(&file.code, &format!("fn {name}(")).next()?;
    let before: Vec<&str> = file.text.lines().take(line_at(&file.code, at) - 1).collect();
    let mut attributes =
        before.iter().rev().map(|line| line.trim_start()).take_while(|line| line.starts_with("#["));
    attributes.find_map(|line| line.strip_prefix(GATE)?.strip_suffix("\")]"))
}

/// Returns whether a feature of the file's package is enabled where all packages are tested: by default, or by another package.
fn is_enabled(packages: &[Package], file: &File, feature: &str) -> bool {
    let Some(own) = packages.iter().find(|package| file.is_in_module(&package.folder)) else { return false };
    own.is_default(feature) || packages.iter().any(|package| package.enables(&own.folder, feature))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::samples;
    use serde_json::json;

    fn found(document: &str) -> Vec<String> {
        let core = "#[cfg(feature = \"rare\")]\n#[test]\nfn a_rare_test_of_it() {}\n\n\
            #[cfg(feature = \"usual\")]\n#[test]\nfn a_usual_test_of_it() {}\n\n\
            #[test]\n#[cfg(feature = \"wanted\")]\nfn a_wanted_test_of_it() {}\n";
        let files = [
            (DOCUMENT, document),
            ("crates/wire/src/lib.rs", "fn the_first_of_two_tests() {}\n// fn a_test_in_a_comment() {}"),
            ("crates/wire/tests/own/main.rs", "const ALL: [&str; 1] = [\"a_test_of_its_own\"];"),
            ("crates/sim/patches/tests/panics.rs", "fn a_test_of_the_copy() {}"),
            ("crates/core/src/lib.rs", core),
        ];
        let mut packages = [("crates/core", &[][..]), ("crates/user", &["crates/core"])]
            .map(|(folder, uses)| samples::package(folder, &[], uses));
        packages[0]["features"] = json!({ "default": ["usual"], "rare": [], "wanted": [] });
        packages[1]["dependencies"][0]["features"] = json!(["wanted"]);
        let files = files.map(|(path, text)| File::new(path, text));
        let violations = check(&files, &samples::workspace(&packages).packages);
        violations.into_iter().map(|violation| format!("{}: {}", violation.line, violation.what)).collect()
    }

    #[test]
    fn tests_that_do_not_exist_are_named_with_their_line() {
        let good = "| `the_first_of_two_tests`, `a_test_of_its_own` | `audit-nonce`, `one_two_three` |";
        assert_eq!(found(good), [""; 0]);
        let gone = "a\n| `the_first_of_two` | not `the_first_of_two_tests_` | `a_test_in_a_comment`";
        let expected = ["the_first_of_two", "the_first_of_two_tests_", "a_test_in_a_comment"];
        assert_eq!(found(gone), expected.map(|name| format!("2: there is no test `{name}`")));
    }

    #[test]
    fn a_test_of_the_copy_needs_its_task() {
        assert_eq!(found("| `a_test_of_the_copy` |").len(), 1);
        assert_eq!(found("| `a_test_of_the_copy`: `cargo xtask sim --tests` |"), [""; 0]);
    }

    #[test]
    fn a_test_behind_a_disabled_feature_is_no_proof() {
        assert_eq!(found("| `a_usual_test_of_it`, `a_wanted_test_of_it` |"), [""; 0]);
        let needs = "1: `a_rare_test_of_it` needs `rare`, which no package enables";
        assert_eq!(found("| `a_rare_test_of_it` |"), [needs]);
    }
}
