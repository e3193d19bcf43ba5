//! The report of a run: its figures, its machine, and its books.
//!
//! The receiver, the sender, and the benches all use [`Report`], whose fields are the keys of its JSON. [`Report::derived`] computes
//! every rate and share from counts over one common window, so that averages over different times are never added up.
//! A report whose books do not close is neither printed nor written.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod books;
mod facts;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use books::{
    Accounting, GIVEN_UP, IN_LOST_DATAGRAMS, KERNEL_RECEIVE_QUEUE, Messages, OVERTAKEN, RECEIVE_MEMORY,
    SUPERSEDED, Scope, UNEXPLAINED, WIRE_OR_NIC,
};
use facts::switch_text;
pub use facts::{CpuTime, Flags, Granted, Latency, Machine, REPORT_FORMAT, Versions};
pub(crate) use facts::{flags_of, flags_text};

use crate::error::Error;
use crate::table::thousands;

/// The value of [`Report::limited_by`] when the receivers kept up with all that was sent.
pub const LIMITED_BY_SENDER: &str = "sender";

/// The value of [`Report::limited_by`] when the way between two hosts carries a fixed number of packets per second.
pub const LIMITED_BY_PROVIDER: &str = "provider";

/// A measured thread that waited longer than this share of the window for a core makes the round void.
pub const RUN_DELAY_LIMIT: f64 = 0.03;

/// A machine that lost more than this share of its time to other guests makes the round void.
pub const STEAL_LIMIT: f64 = 0.005;

/// A result, ready to be written as JSON or printed as a table.
///
/// The keys of `books` are at the top level of the JSON: `sent`, `received`, `drops`, `unexplained`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The name of the run: `receiver`, `sender`, or the row of a bench.
    pub name: String,
    /// The command that printed this.
    pub command: String,
    /// The flags in effect, defaults included.
    pub flags: Flags,
    /// The versions of the program that wrote the report.
    pub versions: Versions,
    /// The machine, without its name.
    pub machine: Machine,
    /// Length of the one window over which everything was counted, in seconds.
    pub window_s: f64,
    /// The books of datagrams.
    #[serde(flatten)]
    pub books: Accounting,
    /// Datagrams received per second of the window.
    pub pps: f64,
    /// Each thread's share.
    pub threads: Vec<ThreadReport>,
    /// The busiest thread's datagrams over the mean of all threads; absent when there were none.
    pub spread_max_over_mean: Option<f64>,
    /// CPU nanoseconds of all threads per datagram that they handled; absent when either is unknown.
    pub cpu_ns_per_packet: Option<f64>,
    /// The settings that the kernel granted.
    pub granted: Granted,
    /// Drops that the interfaces and UDP of this host counted during the run, by name. They include datagrams of all programs, so
    /// they are not part of the books. Names of interfaces' counters begin with `rx_` and `tx_`, names of UDP's with `udp_`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub host_drops: BTreeMap<String, u64>,
    /// CPU seconds of the sending threads, in a receiver's report; absent if they are not known. A sender's own report has them in
    /// its threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_cpu_s: Option<f64>,
    /// Arrivals that the sender never sent, such as empty or junk datagrams, by name; outside the books.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub foreign: BTreeMap<String, u64>,
    /// Latency from the intended time of sending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Latency>,
    /// Datagrams that the schedule asked for, when there was a rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<u64>,
    /// The limit of the figure, if it was not the receiver: [`LIMITED_BY_SENDER`], [`LIMITED_BY_PROVIDER`], or another word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<String>,
    /// Notes for the reader of the figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Further copies of datagrams that are in the books already; outside the books.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicated: Option<u64>,
    /// Datagrams that arrived after a later one of their flow; they are in the books.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reordered: Option<u64>,
    /// Longest share of the window that a measured thread waited for a core, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_delay_share: Option<f64>,
    /// Share of the machine's time that went to other guests of its host, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal_share: Option<f64>,
    /// The books of messages, in the stage that delivers some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<Messages>,
    /// Datagrams received per second by thread, with a row for each second of the run, for box plots. A last part of half a second
    /// or more has a row too, and so has a run shorter than a second. Every row is a rate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pps_per_second: Vec<Vec<u64>>,
}

/// One thread in a [`Report`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadReport {
    /// The thread, from 0.
    pub index: u32,
    /// Datagrams of the books that it received: without foreign datagrams and second copies.
    pub received: u64,
    /// Datagrams that it sent; present for a sender's thread alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<u64>,
    /// Datagrams handled per second of the window; [`Report::derived`] computes it.
    pub pps: f64,
    /// Drops that the kernel counted on its socket; absent if they are not known.
    pub kernel_drops: Option<u64>,
    /// CPU seconds in the program; absent if they are not known.
    pub cpu_user_s: Option<f64>,
    /// CPU seconds in the kernel; absent if they are not known.
    pub cpu_sys_s: Option<f64>,
}

impl ThreadReport {
    /// Returns the thread with this CPU time.
    #[must_use]
    pub fn with_cpu(self, cpu: Option<CpuTime>) -> Self {
        let (cpu_user_s, cpu_sys_s) = cpu.map(|cpu| (cpu.user_s, cpu.sys_s)).unzip();
        Self { cpu_user_s, cpu_sys_s, ..self }
    }

    /// Datagrams that the thread handled: sent by a sender's thread, received by any other.
    pub fn handled(&self) -> u64 {
        self.sent.unwrap_or(self.received)
    }

    /// The sum of its CPU seconds.
    pub fn cpu_s(&self) -> Option<f64> {
        Some(self.cpu_user_s? + self.cpu_sys_s?)
    }

    /// Its CPU nanoseconds per datagram handled.
    pub fn cpu_ns_per_packet(&self) -> Option<f64> {
        ns_per_packet(self.cpu_s()?, self.handled())
    }
}

impl Report {
    /// Computes rates, spread, and CPU per datagram from the books, the threads, and the window, and adds the versions of this build.
    ///
    /// A window of no length has rates of zero.
    #[must_use]
    pub fn derived(mut self) -> Self {
        let window_s = self.window_s;
        for thread in &mut self.threads {
            thread.pps = per_second(thread.handled(), window_s);
        }
        let handled: Vec<u64> = self.threads.iter().map(ThreadReport::handled).collect();
        Self {
            flags: self.flags.into_iter().map(|(name, value)| (name, switch_text(value))).collect(),
            versions: Versions::of_this_build(),
            pps: per_second(self.books.received, window_s),
            spread_max_over_mean: spread_max_over_mean(&handled),
            cpu_ns_per_packet: cpu_ns_per_packet(&self.threads),
            ..self
        }
    }

    /// Checks that the books close and that the threads add up to them.
    ///
    /// # Errors
    /// [`Error::Run`] if datagrams or messages are missing (see [`Accounting::check`]), if messages were not delivered as promised, or if
    /// the counts of the threads do not add up to the books.
    pub fn check(&self) -> Result<(), Error> {
        self.books.check()?;
        self.messages.as_ref().map_or(Ok(()), Messages::check)?;
        // The threads of a report belong to one side.
        let is_sender = self.threads.iter().any(|thread| thread.sent.is_some());
        let (side, in_books) =
            if is_sender { ("sent", self.books.sent) } else { ("received", self.books.received) };
        let by_threads = self.threads.iter().fold(0, |sum: u64, thread| sum.saturating_add(thread.handled()));
        if self.threads.is_empty() || by_threads == in_books {
            return Ok(());
        }
        let (by_threads, in_books) = (thousands(by_threads), thousands(in_books));
        Err(Error::Run(format!(
            "BOOKS DO NOT CLOSE: the threads {side} {by_threads}, the books say {in_books}"
        )))
    }

    /// The report as indented JSON, ended by a line feed, or the error of [`Report::check`].
    pub(crate) fn to_json(&self) -> Result<String, Error> {
        self.check()?;
        let text = serde_json::to_string_pretty(self);
        Ok(text.map_err(|error| Error::Run(format!("cannot write the report as JSON: {error}")))? + "\n")
    }

    /// CPU nanoseconds of the sending threads per datagram that they sent, in a receiver's report.
    pub fn sender_cpu_ns_per_packet(&self) -> Option<f64> {
        ns_per_packet(self.sender_cpu_s?, self.books.sent)
    }

    /// How much of a core the sending threads used together over the window, in a receiver's report: 1 is one whole core.
    pub fn sender_cores(&self) -> Option<f64> {
        let cpu_s = self.sender_cpu_s?;
        (self.window_s > 0.0).then(|| cpu_s / self.window_s)
    }

    /// Returns whether the machine was too busy with others for the figures to count.
    ///
    /// Returns `true` above [`RUN_DELAY_LIMIT`] or [`STEAL_LIMIT`]. An unknown share is ignored.
    pub fn is_void(&self) -> bool {
        self.run_delay_share.is_some_and(|share| share > RUN_DELAY_LIMIT)
            || self.steal_share.is_some_and(|share| share > STEAL_LIMIT)
    }
}

/// The largest count over the mean of all; `None` if there are none or all are zero.
///
/// 1 is perfectly even, the number of counts is one thread doing everything.
pub fn spread_max_over_mean(counts: &[u64]) -> Option<f64> {
    let sum: f64 = counts.iter().map(|count| *count as f64).sum();
    let max = *counts.iter().max()? as f64;
    (sum > 0.0).then(|| max * counts.len() as f64 / sum)
}

fn cpu_ns_per_packet(threads: &[ThreadReport]) -> Option<f64> {
    let cpu_s = threads.iter().map(ThreadReport::cpu_s).sum::<Option<f64>>()?;
    let handled = threads.iter().fold(0, |sum: u64, thread| sum.saturating_add(thread.handled()));
    ns_per_packet(cpu_s, handled)
}

fn ns_per_packet(cpu_s: f64, packets: u64) -> Option<f64> {
    (packets > 0).then(|| cpu_s * 1e9 / packets as f64)
}

/// Returns the whole number below a number that is not negative. A number that does not fit becomes the largest.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "float casts saturate")]
pub(crate) const fn whole(number: f64) -> u64 {
    number as u64
}

/// Returns a rate per second; 0 over no time.
pub(crate) fn per_second(count: u64, window_s: f64) -> f64 {
    if window_s > 0.0 { count as f64 / window_s } else { 0.0 }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on should say where")]
mod tests {
    use super::*;
    use crate::choices::Mode;

    fn report() -> Report {
        let thread = |index, received| ThreadReport {
            index,
            received,
            kernel_drops: Some(50),
            cpu_user_s: Some(0.5),
            cpu_sys_s: Some(1.5),
            ..ThreadReport::default()
        };
        let report = Report {
            name: "receiver".to_owned(),
            command: "receiver --with-sender".to_owned(),
            flags: Flags::from([("threads".to_owned(), 2u32.into()), ("pin".to_owned(), true.into())]),
            machine: Machine { cores: Some(2), ..Machine::default() },
            window_s: 10.0,
            books: Accounting::new(4_000_100, 4_000_000).dropped(KERNEL_RECEIVE_QUEUE, 100),
            threads: vec![thread(0, 3_000_000), thread(1, 1_000_000)],
            granted: Granted { gro: Some(false), ..Granted::default() },
            ..Report::default()
        };
        report.derived()
    }

    #[test]
    fn rates_spread_and_cpu_follow_from_the_counts() {
        let mut report = report();
        assert_eq!((report.pps, report.threads[0].pps), (400_000.0, 300_000.0));
        assert_eq!(report.spread_max_over_mean, Some(1.5));
        assert_eq!(
            (report.cpu_ns_per_packet, report.threads[1].cpu_ns_per_packet()),
            (Some(1_000.0), Some(2_000.0))
        );
        assert_eq!((report.sender_cpu_ns_per_packet(), report.sender_cores()), (None, None));
        (report.sender_cpu_s, report.books.sent) = (Some(5.0), 5_000_000);
        assert_eq!((report.sender_cpu_ns_per_packet(), report.sender_cores()), (Some(1_000.0), Some(0.5)));
        let empty = Report::default().derived();
        assert_eq!((empty.pps, empty.spread_max_over_mean, empty.cpu_ns_per_packet), (0.0, None, None));
        assert!(empty.to_json().is_ok());
    }

    #[test]
    fn a_full_report_is_read_back_from_json() {
        let mut report = report();
        report.threads[0].cpu_user_s = None;
        report.host_drops = BTreeMap::from([("rx_dropped".to_owned(), 2)]);
        report.sender_cpu_s = Some(4.5);
        report.foreign = BTreeMap::from([("empty".to_owned(), 1_000_000)]);
        report.latency_ns = Some(Latency { p50: 1, p90: 2, p99: 3, p999: 4, max: 5, count: 6 });
        report.limited_by = Some(LIMITED_BY_SENDER.to_owned());
        report.notes = vec!["two sentences".to_owned()];
        (report.offered, report.duplicated, report.reordered) = (Some(5_000_000), Some(0), Some(3));
        (report.run_delay_share, report.steal_share) = (Some(0.001), Some(0.0));
        report.messages = Some(Messages {
            mode: Mode::ReliableOrdered,
            offered: Some(8),
            resent: 3,
            ..Messages::default()
        });
        report.pps_per_second = vec![vec![300_000, 100_000], vec![299_000]];
        let text = report.to_json().unwrap();
        assert!(text.ends_with("}\n") && text.contains(r#""mode": "reliable-ordered""#), "{text}");
        assert!(text.contains(r#""pin": "on""#), "{text}");
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    }

    #[test]
    fn threads_that_do_not_add_up_are_refused() {
        let mut report = report();
        report.threads[1].received -= 1;
        let refusal = |report: &Report| report.check().map_err(|error| error.to_string());
        let text = "BOOKS DO NOT CLOSE: the threads received 3,999,999, the books say 4,000,000";
        assert_eq!(refusal(&report), Err(text.to_owned()));
        for (thread, sent) in report.threads.iter_mut().zip([3_000_100, 1_000_000]) {
            (thread.received, thread.sent) = (0, Some(sent));
        }
        assert_eq!(refusal(&report), Ok(()));
        report.threads[0].sent = Some(3_000_101);
        let text = "BOOKS DO NOT CLOSE: the threads sent 4,000,101, the books say 4,000,100";
        assert_eq!(refusal(&report), Err(text.to_owned()));
    }

    #[test]
    fn a_round_is_void_above_the_limits_and_not_at_them() {
        let mut report = report();
        assert!(!report.is_void());
        for (run_delay, steal, is_void) in [
            (RUN_DELAY_LIMIT, STEAL_LIMIT, false),
            (RUN_DELAY_LIMIT + 0.0001, 0.0, true),
            (0.0, STEAL_LIMIT + 0.0001, true),
        ] {
            (report.run_delay_share, report.steal_share) = (Some(run_delay), Some(steal));
            assert_eq!(report.is_void(), is_void);
        }
    }
}
