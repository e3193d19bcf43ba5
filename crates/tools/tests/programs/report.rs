//! The checks for every report.

use drumfire_socket::ReuseportGroup;
use drumfire_tools::report::{KERNEL_RECEIVE_QUEUE, Messages, Report, Scope};
use serde_json::Value;

use crate::process::{Ended, receiver};

/// Whether the platform under test has batches, groups and drop counts.
pub(crate) const IS_NATIVE: bool = ReuseportGroup::MAX_SOCKETS > 1;

/// Threads that can share a port here, for a test that wants several.
pub(crate) const SEVERAL: u32 = if IS_NATIVE { 3 } else { 1 };

/// Runs a receiver with its own sender and these flags, and returns its report.
#[track_caller]
pub(crate) fn report_of_run(flags: &str) -> Report {
    report_of(&receiver(&format!("--with-sender --json - {flags}")).end().with_code(0))
}

/// Reads the report of a program with the flag `--json -`.
#[track_caller]
pub(crate) fn report_of(ended: &Ended) -> Report {
    read_report(&ended.stdout.join("\n"), &ended.what)
}

/// Reads a report, whose JSON must have the agreed keys, closed books, and threads that add up.
#[track_caller]
pub(crate) fn read_report(text: &str, what: &str) -> Report {
    let report: Report = serde_json::from_str(text).unwrap_or_else(|error| panic!("{what}: {error}: {text}"));
    report.check().unwrap_or_else(|error| panic!("{what}: {error}: {text}"));
    let written: Value = serde_json::from_str(text).unwrap();
    assert_eq!(written, serde_json::to_value(&report).unwrap(), "{what}: a key is not agreed");
    let Report { books, messages, .. } = &report;
    let has_messages = messages.as_ref().is_none_or(|messages| messages.books.sent > 0);
    assert!(books.sent > 0 && has_messages, "{what}: {text}");
    if IS_NATIVE {
        assert!(books.close() && books.scope == Scope::OneHost, "{what}: {text}");
    } else {
        // Drops of a kernel that does not count them have no name.
        assert_eq!(books.scope, Scope::OneHostUncounted, "{what}");
        assert!(!books.drops.contains_key(KERNEL_RECEIVE_QUEUE), "{what}");
    }
    report
}

/// Returns the books of messages, which the report must have.
#[track_caller]
pub(crate) fn messages_of(report: &Report) -> &Messages {
    report.messages.as_ref().expect("books of messages")
}
