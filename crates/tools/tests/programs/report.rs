//! The checks for every report.

use drumfire_socket::ReuseportGroup;
use drumfire_tools::report;
use serde_json::Value;

use crate::process::{Ended, receiver};

/// Whether the platform under test has batches, groups and drop counts.
pub(crate) const IS_NATIVE: bool = ReuseportGroup::MAX_SOCKETS > 1;

/// Threads that can share a port here, for a test that wants several.
pub(crate) const SEVERAL: u32 = if IS_NATIVE { 3 } else { 1 };

/// A report whose shape and sums have been checked.
#[derive(Debug)]
pub(crate) struct Report(pub(crate) Value);

impl Report {
    /// Runs a receiver with its own sender and these flags.
    #[track_caller]
    pub(crate) fn of_run(flags: &str) -> Self {
        Self::of(&receiver(&format!("--with-sender --json - {flags}")).end().with_code(0))
    }

    /// Reads the report of a program with the flag `--json -`.
    #[track_caller]
    pub(crate) fn of(ended: &Ended) -> Self {
        Self::read(&ended.stdout.join("\n"), &ended.what)
    }

    /// Reads a report, whose JSON must have the agreed keys, closed books, and threads that add up.
    #[track_caller]
    pub(crate) fn read(text: &str, what: &str) -> Self {
        let typed: report::Report =
            serde_json::from_str(text).unwrap_or_else(|error| panic!("{what}: {error}: {text}"));
        typed.check().unwrap_or_else(|error| panic!("{what}: {error}: {text}"));
        let report = Self(serde_json::from_str(text).unwrap());
        assert_eq!(report.0, serde_json::to_value(&typed).unwrap(), "{what}: a key is not agreed");
        assert!(
            typed.books.sent > 0 && typed.messages.is_none_or(|messages| messages.books.sent > 0),
            "{what}"
        );
        if IS_NATIVE {
            assert!(typed.books.close() && report.0.get("scope").is_none(), "{what}: {text}");
        } else {
            // Drops of a kernel that does not count them have no name.
            assert_eq!(report.0["scope"], "one_host_uncounted", "{what}");
            assert!(!typed.books.drops.contains_key(report::KERNEL_RECEIVE_QUEUE), "{what}");
        }
        report
    }

    /// A whole number at this place, such as `/drops/empty`.
    #[track_caller]
    pub(crate) fn number(&self, pointer: &str) -> u64 {
        let number = self.0.pointer(pointer).and_then(Value::as_u64);
        number.unwrap_or_else(|| panic!("{pointer} is no count in {:#}", self.0))
    }
}
