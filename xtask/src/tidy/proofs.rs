//! Checks that every test that EVIDENCE.md names as a proof exists, and that a command runs it. A promise whose test was renamed or
//! dropped has no proof. A test behind a feature counts only where the document's command enables the feature. A test that only
//! the simulator's copy of the project has counts only where the document names the task that runs it.
//!
//! It knows names and features only. People judge whether a test proves its promise.

use toml::Table;

use super::{File, Violation, line_at, starts_of};

/// The document of promises.
const DOCUMENT: &str = "crates/drumfire/docs/EVIDENCE.md";
/// A name of more words than this, in backticks and lower case, is a test's: no setting, feature or program has one.
const WORDS_MAX: usize = 3;

/// The folder of tests that only the simulator's copy of the project has, and the task that runs them.
const COPIED: (&str, &str) = ("crates/sim/patches/", "`cargo xtask sim --tests`");

/// What opens a test's feature, on a line before it.
const GATE: &str = "#[cfg(feature = \"";
/// The tables in which a package turns features of another on, for all that is built together.
const DEPENDENCIES: [&str; 2] = ["dependencies", "dev-dependencies"];

pub(super) fn check(files: &[File]) -> Vec<Violation> {
    let documents = files.iter().filter(|file| file.path == DOCUMENT);
    documents.flat_map(|document| stray(document, files)).collect()
}

fn stray(document: &File, files: &[File]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (line, number) in document.text.lines().zip(1..) {
        for name in names(line) {
            let Some(file) = files.iter().find(|file| has_test(file, name)) else {
                violations.push(document.violation(number, format!("there is no test `{name}`")));
                continue;
            };
            if file.path.starts_with(COPIED.0) && !line.contains(COPIED.1) {
                let what = format!("`{name}` is no test of a package: write {} beside it", COPIED.1);
                violations.push(document.violation(number, what));
            }
            let feature = feature_of(file, name).filter(|feature| !is_on(files, file, feature));
            if let Some(feature) = feature.filter(|feature| !has_command(line, feature)) {
                let what = format!(
                    "`{name}` needs the feature `{feature}`: write the command that runs it beside it"
                );
                violations.push(document.violation(number, what));
            }
        }
    }
    violations
}

/// The feature that a test stands behind, as the lines right before it say.
fn feature_of<'a>(file: &'a File, name: &str) -> Option<&'a str> {
    let at = starts_of(&file.code, &format!("fn {name}(")).next()?;
    let before: Vec<&str> = file.text.lines().take(line_at(&file.code, at) - 1).collect();
    let mut attributes =
        before.iter().rev().map(|line| line.trim_start()).take_while(|line| line.starts_with("#["));
    attributes.find_map(|line| line.strip_prefix(GATE)?.strip_suffix("\")]"))
}

/// Whether a feature of the package of this file is on where all packages are tested: by default, or because another wants it.
fn is_on(files: &[File], file: &File, feature: &str) -> bool {
    let tables: Vec<(&str, Table)> = files.iter().filter_map(manifest).collect();
    let own = tables.iter().find(|(folder, _)| file.path.starts_with(folder));
    let Some((_, own)) = own else { return false };
    let has = |list: Option<&toml::Value>| {
        let list = list.and_then(toml::Value::as_array);
        list.is_some_and(|list| list.iter().any(|one| one.as_str() == Some(feature)))
    };
    let name = own.get("package").and_then(|package| package.get("name")).and_then(toml::Value::as_str);
    has(own.get("features").and_then(|features| features.get("default")))
        || tables.iter().any(|(_, table)| {
            let of = |kind: &str| table.get(kind)?.get(name?)?.get("features");
            DEPENDENCIES.iter().any(|kind| has(of(kind)))
        })
}

/// A package's manifest, and the folder that it stands in.
fn manifest(file: &File) -> Option<(&str, Table)> {
    let folder = file.path.strip_suffix("Cargo.toml").filter(|folder| !folder.is_empty())?;
    Some((folder, file.text.parse().ok()?))
}

/// Whether a line has a command that turns a feature on.
fn has_command(line: &str, feature: &str) -> bool {
    let commands = line.split('`').skip(1).step_by(2).filter(|text| text.starts_with("cargo test "));
    let mut features = commands.filter_map(|command| command.split("--features ").nth(1)?.split(' ').next());
    features.any(|features| features.split(',').any(|one| one.rsplit('/').next() == Some(feature)))
}

/// What stands in backticks in this line and looks like the name of a test.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let is_name = |text: &&str| {
        text.split('_').count() > WORDS_MAX && text.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric())
    };
    line.split('`').skip(1).step_by(2).filter(is_name)
}

/// A function of this name, or a name in the list of a test program that has no functions of the usual kind.
fn has_test(file: &File, name: &str) -> bool {
    file.is_rust()
        && (starts_of(&file.code, &format!("fn {name}(")).next().is_some()
            || file.path.contains("/tests/") && file.text.contains(&format!("\"{name}\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(document: &str) -> Vec<String> {
        let files = [
            File::new(DOCUMENT, document),
            File::new(
                "crates/wire/src/lib.rs",
                "fn the_first_of_two_tests() {}\n// fn a_test_in_a_comment() {}",
            ),
            File::new("crates/wire/tests/own/main.rs", "const ALL: [&str; 1] = [\"a_test_of_its_own\"];"),
            File::new(
                "crates/core/src/lib.rs",
                "#[cfg(feature = \"rare\")]\n#[test]\nfn a_rare_test_of_it() {}\n\n\
                 #[cfg(feature = \"usual\")]\n#[test]\nfn a_usual_test_of_it() {}\n\n\
                 #[test]\n#[cfg(feature = \"wanted\")]\nfn a_wanted_test_of_it() {}\n",
            ),
            File::new(
                "crates/core/Cargo.toml",
                "[package]\nname = \"the-core\"\n[features]\ndefault = [\"usual\"]\nrare = []\nwanted = []\n",
            ),
            File::new(
                "crates/user/Cargo.toml",
                "[package]\nname = \"user\"\n[dependencies]\nthe-core = { features = [\"wanted\"] }\n",
            ),
        ];
        check(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_test_that_is_there_is_no_violation_whatever_kind_it_is() {
        assert_eq!(
            found("| `the_first_of_two_tests`, `a_test_of_its_own` | `audit-nonce`, `one_two_three` |"),
            [""; 0]
        );
    }

    #[test]
    fn a_test_that_is_gone_is_named_with_its_line() {
        let gone = "a\n| `the_first_of_two` | not `the_first_of_two_tests_` | `a_test_in_a_comment`";
        let expected = ["the_first_of_two", "the_first_of_two_tests_", "a_test_in_a_comment"];
        assert_eq!(
            found(gone),
            expected.map(|name| format!("crates/drumfire/docs/EVIDENCE.md:2: there is no test `{name}`"))
        );
    }

    #[test]
    fn a_test_behind_a_feature_that_nobody_turns_on_needs_its_command() {
        let usual = "| `a_usual_test_of_it`, `a_wanted_test_of_it` |";
        assert_eq!(found(usual), [""; 0]);
        let needs = "crates/drumfire/docs/EVIDENCE.md:1: `a_rare_test_of_it` needs the feature `rare`: write the command that runs it beside it";
        for alone in [
            "| `a_rare_test_of_it` |",
            "| `a_rare_test_of_it`; `cargo test --features usual,rarer` |",
            "| `a_rare_test_of_it`; `cargo build --features rare` |",
        ] {
            assert_eq!(found(alone), [needs], "{alone}");
        }
        for with in ["`cargo test --features rare`", "`cargo test -p x --features usual,the-core/rare --lib`"]
        {
            assert_eq!(found(&format!("| `a_rare_test_of_it`; {with} |")), [""; 0], "{with}");
        }
    }
}
