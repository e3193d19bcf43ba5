//! The checks for every report.

use std::collections::BTreeSet;

use drumfire_socket::ReuseportGroup;
use serde_json::Value;

use crate::process::Ended;

/// The keys that every report has.
const AGREED: [&str; 15] = [
    "name",
    "command",
    "flags",
    "versions",
    "machine",
    "window_s",
    "sent",
    "received",
    "pps",
    "drops",
    "unexplained",
    "threads",
    "spread_max_over_mean",
    "cpu_ns_per_packet",
    "granted",
];

/// The keys that a report may have besides.
const OPTIONAL: [&str; 14] = [
    "foreign",
    "latency_ns",
    "offered",
    "limited_by",
    "notes",
    "duplicated",
    "reordered",
    "run_delay_share",
    "steal_share",
    "scope",
    "messages",
    "pps_per_second",
    "interface",
    "sender_cpu_s",
];

const OF_THREAD: [&str; 6] = ["index", "received", "pps", "kernel_drops", "cpu_user_s", "cpu_sys_s"];

/// Whether the platform under test has batches, groups and drop counts.
pub(crate) const IS_NATIVE: bool = ReuseportGroup::MAX_SOCKETS > 1;

/// Threads that can share a port here, for a test that wants several.
pub(crate) const SEVERAL: u32 = if IS_NATIVE { 3 } else { 1 };

/// A report whose shape and sums have been checked.
#[derive(Debug)]
pub(crate) struct Report(pub(crate) Value);

impl Report {
    /// Reads the report of a program with the flag `--json -`.
    #[track_caller]
    pub(crate) fn of(ended: &Ended) -> Self {
        Self::read(&ended.stdout.join("\n"), &ended.what)
    }

    /// Reads and checks: the agreed keys, closed books, threads that add up.
    #[track_caller]
    pub(crate) fn read(text: &str, what: &str) -> Self {
        let value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{what}: {error}: {text}"));
        let report = Self(value);
        let keys = report.0.as_object().unwrap().keys().map(String::as_str).collect::<BTreeSet<_>>();
        let agreed = BTreeSet::from(AGREED);
        assert!(keys.is_superset(&agreed), "{what}: {keys:?}");
        let more = keys.difference(&agreed).copied().collect::<BTreeSet<_>>();
        assert!(more.is_subset(&BTreeSet::from(OPTIONAL)), "{what}: {more:?}");
        report.assert_threads(what);
        report.assert_books(what);
        report.assert_messages(what);
        report
    }

    /// A whole number at this place, such as `/drops/empty`.
    #[track_caller]
    pub(crate) fn number(&self, pointer: &str) -> u64 {
        let number = self.0.pointer(pointer).and_then(Value::as_u64);
        number.unwrap_or_else(|| panic!("{pointer} is no count in {:#}", self.0))
    }

    /// Datagrams lost under a name.
    pub(crate) fn dropped(&self) -> u64 {
        let drops = self.0["drops"].as_object().unwrap();
        drops.values().map(|count| count.as_u64().unwrap()).sum()
    }

    fn threads(&self) -> &[Value] {
        self.0["threads"].as_array().unwrap()
    }

    #[track_caller]
    fn assert_threads(&self, what: &str) {
        let is_sender = self.0["name"] == "sender";
        let mut expected = BTreeSet::from(OF_THREAD);
        if is_sender {
            expected.insert("sent");
        }
        for (index, thread) in self.threads().iter().enumerate() {
            let keys = thread.as_object().unwrap().keys().map(String::as_str).collect::<BTreeSet<_>>();
            assert_eq!(keys, expected, "{what}");
            assert_eq!(thread["index"], index, "{what}");
        }
        let key = if is_sender { "sent" } else { "received" };
        let sum: u64 = self.threads().iter().map(|thread| thread[key].as_u64().unwrap()).sum();
        assert_eq!(sum, self.number(&format!("/{key}")), "{what}: {:#}", self.0);
    }

    #[track_caller]
    fn assert_messages(&self, what: &str) {
        let Some(messages) = self.0.get("messages") else { return };
        let drops = messages["drops"].as_object().unwrap().values().map(|count| count.as_u64().unwrap());
        let known = self.number("/messages/received") + drops.sum::<u64>();
        assert!(known > 0, "{what}");
        assert_eq!(self.number("/messages/sent"), known, "{what}: {messages:#}");
        assert_eq!((&messages["unexplained"], &messages["out_of_promise"]), (&0.into(), &0.into()), "{what}");
    }

    #[track_caller]
    fn assert_books(&self, what: &str) {
        let (sent, received) = (self.number("/sent"), self.number("/received"));
        assert!(sent > 0, "{what}");
        if IS_NATIVE {
            assert_eq!(self.0["unexplained"], 0, "{what}: {:#}", self.0);
            assert_eq!(sent, received + self.dropped(), "{what}: {:#}", self.0);
            assert!(self.0.get("scope").is_none(), "{what}: one host is not said");
        } else {
            // Drops of a kernel that does not count them have no name.
            assert_eq!(sent, received + self.dropped() + self.number("/unexplained"), "{what}");
            assert_eq!(self.0["scope"], "one_host_uncounted", "{what}");
            assert!(self.0["drops"].get("kernel_receive_queue").is_none(), "{what}");
        }
    }
}
