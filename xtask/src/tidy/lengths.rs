//! How long Rust files are before their tests, and that each opens with its module docs.
//!
//! The lengths of functions are clippy's (`too_many_lines`).

use std::collections::BTreeMap;

use super::{File, Violation};
use crate::files::is_tests_alone;

/// Lines before the first top-level `#[cfg(test)]`.
const MOST_LINES: usize = 500;
/// The files that are longer today.
const RATCHET: &str = "xtask/tidy-ratchet.txt";

pub(super) fn check(files: &[File]) -> Vec<Violation> {
    let mut violations: Vec<Violation> =
        files.iter().filter(|file| file.is_rust()).filter_map(opening).collect();
    match files.iter().find(|file| file.path == RATCHET) {
        Some(ratchet) => violations.extend(lengths(files, ratchet)),
        None => violations.push(Violation {
            path: RATCHET.to_owned(),
            line: 1,
            what: "is missing: it lists the files that are still too long, or nothing".to_owned(),
        }),
    }
    violations
}

fn opening(file: &File) -> Option<Violation> {
    let what = "open the file with `//!`: what it does, and what it deliberately does not";
    (!file.text.starts_with("//!")).then(|| file.violation(1, what))
}

/// Compares every file's length with the limit, or with its ratchet entry, which must be exact so that it only shrinks.
fn lengths(files: &[File], ratchet: &File) -> Vec<Violation> {
    let (mut entries, mut violations) = entries(ratchet);
    for file in files.iter().filter(|file| file.is_rust() && !is_tests_alone(&file.path)) {
        let length = length(file);
        let over = length > MOST_LINES;
        match entries.remove(file.path.as_str()) {
            None if over => violations.push(file.violation(
                length,
                format!("{length} lines before its tests, at most {MOST_LINES}: find the missing concept"),
            )),
            Some((_, listed)) if over && length > listed => violations.push(file.violation(
                length,
                format!("grew from {listed} to {length} lines: its entry in {RATCHET} may only shrink"),
            )),
            Some((line, listed)) if over && length < listed => violations.push(ratchet.violation(
                line,
                format!("{} has {length} lines now: lower its entry from {listed}", file.path),
            )),
            Some((line, _)) if !over => {
                violations.push(ratchet.violation(
                    line,
                    format!("{} is within {MOST_LINES} lines: remove its entry", file.path),
                ));
            }
            _ => {}
        }
    }
    let gone = entries
        .iter()
        .map(|(path, (line, _))| ratchet.violation(*line, format!("{path} is gone: remove its entry")));
    violations.extend(gone);
    violations
}

fn length(file: &File) -> usize {
    file.code.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count()
}

/// The ratchet's entries by path, each with the line it stands on, and a violation for each line that is none.
fn entries(ratchet: &File) -> (BTreeMap<&str, (usize, usize)>, Vec<Violation>) {
    let mut entries = BTreeMap::new();
    let mut violations = Vec::new();
    for (line, text) in (1..).zip(ratchet.text.lines()) {
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        match text.split_once(' ').and_then(|(path, lines)| Some((path, lines.parse().ok()?))) {
            Some((path, lines)) => {
                entries.insert(path, (line, lines));
            }
            None => violations.push(ratchet.violation(line, "write an entry as `path lines`")),
        }
    }
    (entries, violations)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rust(lines: usize) -> File {
        File::new("crates/wire/src/a.rs", &"//!\n".repeat(lines))
    }

    fn found(file: File, ratchet: &str) -> Vec<String> {
        let files = [file, File::new(RATCHET, ratchet)];
        check(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_file_may_have_as_many_lines_as_the_limit() {
        assert!(found(rust(MOST_LINES - 1), "").is_empty());
        assert!(found(rust(MOST_LINES), "").is_empty());
        let over = found(rust(MOST_LINES + 1), "");
        assert!(over.len() == 1 && over[0].starts_with("crates/wire/src/a.rs:501: 501 lines"), "{over:?}");
    }

    #[test]
    fn lines_from_the_tests_on_are_not_counted() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "\n".repeat(MOST_LINES));
        assert!(found(File::new("a.rs", &format!("//!\n{tests}")), "").is_empty());
        assert_eq!(found(File::new("a.rs", &format!("//!\n/* \n{tests}*/")), "").len(), 1, "in a comment");
        assert!(found(File::new("crates/sim/tests/loss.rs", &"//!\n".repeat(MOST_LINES + 1)), "").is_empty());
    }

    #[test]
    fn an_entry_holds_a_file_to_its_exact_length() {
        assert!(found(rust(600), "# why\n\ncrates/wire/src/a.rs 600\n").is_empty());
        assert!(found(rust(601), "crates/wire/src/a.rs 600\n")[0].contains("grew from 600 to 601"));
        assert!(found(rust(599), "crates/wire/src/a.rs 600\n")[0].contains("lower its entry from 600"));
    }

    #[test]
    fn an_entry_that_is_not_needed_is_removed() {
        assert!(found(rust(MOST_LINES), "crates/wire/src/a.rs 600\n")[0].contains("remove its entry"));
        assert!(
            found(rust(1), "# first\ncrates/wire/src/gone.rs 600\n")[0]
                .starts_with("xtask/tidy-ratchet.txt:2:")
        );
    }

    #[test]
    fn a_line_that_is_no_entry_is_refused() {
        assert!(found(rust(1), "crates/wire/src/a.rs long\n")[0].contains("`path lines`"));
    }

    #[test]
    fn a_missing_ratchet_is_named() {
        assert!(check(&[rust(1)])[0].what.starts_with("is missing"));
    }

    #[test]
    fn a_file_opens_with_its_docs() {
        assert!(found(File::new("a.rs", "//! Does this.\n"), "").is_empty());
        assert_eq!(found(File::new("a.rs", "\n//! Does this.\n"), "").len(), 1);
        assert_eq!(found(File::new("a.rs", "use std::fs;\n"), "").len(), 1);
        assert!(found(File::new("a.md", "text\n"), "").is_empty());
    }
}
