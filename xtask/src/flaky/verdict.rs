//! Reads failures out of the output of a test program, and sums up all runs.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::time::Duration;

/// The longest message that is shown; the log has all of it.
const MESSAGE_CHARS_MAX: usize = 200;

/// One test that failed in one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// Its name; the program's end where no test is named.
    pub(super) test: String,
    /// The first line of its panic, and where it happened.
    message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.test, self.message)
    }
}

/// Returns the failures that the output of a program names, or its `end` where it names none: a crash, or a deadline.
pub(super) fn failures(said: &str, end: &str) -> Vec<Failure> {
    let named = |line: &str| {
        let rest = line.strip_prefix("test ")?;
        let name =
            rest.strip_suffix(" ... FAILED").or_else(|| rest.strip_suffix(" - should panic ... FAILED"))?;
        Some(Failure { test: name.to_owned(), message: panic_of(section_of(said, name)).unwrap_or_default() })
    };
    let mut failures: Vec<_> = said.lines().filter_map(named).collect();
    // A test that hangs is named by the harness before the program is killed.
    let hangs = said.lines().filter_map(|line| line.split_once(" has been running for over "));
    let hangs = hangs.filter_map(|(name, _)| name.strip_prefix("test "));
    let hangs = hangs.filter(|name| !said.contains(&format!("test {name} ... ")));
    failures.extend(hangs.map(|name| Failure { test: name.to_owned(), message: end.to_owned() }));
    if failures.is_empty() {
        let panic = panic_of(said).map_or_else(String::new, |panic| format!("; {panic}"));
        failures.push(Failure { test: "the program".to_owned(), message: format!("{end}{panic}") });
    }
    failures
}

/// Returns what a failed test printed, as the harness repeats it at the end.
fn section_of<'a>(said: &'a str, test: &str) -> &'a str {
    let section = said.split_once(&format!("---- {test} stdout ----")).map_or("", |(_, rest)| rest);
    section.split_once("\n---- ").map_or(section, |(section, _)| section)
}

/// Returns the message of the first panic, and where it happened.
fn panic_of(said: &str) -> Option<String> {
    let mut lines = said.lines();
    while let Some(line) = lines.next() {
        if let Some((_, place)) = line.split_once(" panicked at ") {
            let message: String = lines.next().unwrap_or_default().chars().take(MESSAGE_CHARS_MAX).collect();
            return Some(format!("{message} ({})", place.trim_end_matches(':')));
        }
    }
    None
}

/// Returns a line for each test that failed, with how often and how it failed first, and the totals.
pub(super) fn summary(
    failures: &BTreeMap<(String, String), Vec<Failure>>,
    runs: usize,
    elapsed: Duration,
) -> String {
    let mut text = String::new();
    for ((program, _), failed) in failures {
        if let Some(first) = failed.first() {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{:4} x {program}  {first}", failed.len());
        }
    }
    let count: usize = failures.values().map(Vec::len).sum();
    let _ = writeln!(text, "{runs} runs in {} s, {count} failures", elapsed.as_secs());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
running 3 tests
test good ... ok
test a::bad ... FAILED
test b::worse ... FAILED

failures:

---- a::bad stdout ----

thread 'a::bad' (123) panicked at tests/a.rs:7:9:
assertion failed: left == right
stack backtrace:

---- b::worse stdout ----
thread 'a helper' (9) panicked at src/lib.rs:1:1:
on a thread of its own

test result: FAILED. 1 passed; 2 failed
";

    #[test]
    fn a_failure_has_its_test_and_the_first_line_of_its_panic() {
        let found: Vec<_> = failures(SAID, "exit status: 101").iter().map(ToString::to_string).collect();
        let bad = "a::bad: assertion failed: left == right (tests/a.rs:7:9)";
        assert_eq!(found, [bad, "b::worse: on a thread of its own (src/lib.rs:1:1)"]);
    }

    #[test]
    fn a_program_without_a_harness_is_named_with_its_end() {
        let said = "test one ... ok\n\nthread 'main' (1) panicked at tests/main.rs:3:5:\nnot in time\n";
        let found = failures(said, "exit status: 101");
        assert_eq!(found[0].to_string(), "the program: exit status: 101; not in time (tests/main.rs:3:5)");
        assert_eq!(failures("", "signal: 11")[0].to_string(), "the program: signal: 11");
    }

    #[test]
    fn a_test_that_hangs_is_named() {
        let said = "test slow has been running for over 60 seconds\ntest stuck has been running for over 60 seconds\n\
                    test slow ... ok\n";
        let found = failures(said, "killed: still running after 900 s");
        assert_eq!(found[0].to_string(), "stuck: killed: still running after 900 s");
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn the_summary_counts_each_test_once() {
        let failed = failures(SAID, "exit status: 101").remove(0);
        let all = BTreeMap::from([(("p/t".to_owned(), "a::bad".to_owned()), vec![failed.clone(), failed])]);
        let text = summary(&all, 7, Duration::from_secs(90));
        assert_eq!(
            text,
            "   2 x p/t  a::bad: assertion failed: left == right (tests/a.rs:7:9)\n7 runs in 90 s, 2 failures\n"
        );
    }
}
