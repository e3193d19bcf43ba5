//! The tests that SECURITY.md names as proofs: a promise whose test was renamed or dropped is a promise without one.
//!
//! It knows names alone. Whether a test proves what stands beside it is for people to judge.

use super::{File, Violation, starts_of};

/// The document of promises.
const DOCUMENT: &str = "SECURITY.md";
/// A name of more words than this, in backticks and lower case, is a test's: no setting, feature or program has one.
const WORDS_MAX: usize = 3;

pub(super) fn check(files: &[File]) -> Vec<Violation> {
    let documents = files.iter().filter(|file| file.path == DOCUMENT);
    documents.flat_map(|document| missing(document, files)).collect()
}

fn missing(document: &File, files: &[File]) -> Vec<Violation> {
    let lines = document.text.lines().zip(1..);
    let names = lines.flat_map(|(line, number)| names(line).map(move |name| (number, name)));
    names
        .filter(|(_, name)| !files.iter().any(|file| has_test(file, name)))
        .map(|(number, name)| document.violation(number, format!("there is no test `{name}`")))
        .collect()
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
        assert_eq!(found(gone), expected.map(|name| format!("SECURITY.md:2: there is no test `{name}`")));
    }
}
