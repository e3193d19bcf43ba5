//! A [`Report`] as people read it: who measured, each thread, the books, the spread, and what it all means.
//!
//! Plain ASCII within [`LINE_WIDTH`] columns, no colour. The books stand as a sum that
//! can be checked by eye. A report that [`Report::check`] refuses is not rendered. The line that a running
//! receiver prints each second comes from [`live_line`]; other tables are built with
//! [`TextTable`].

mod live;
mod messages;
mod text;

use std::collections::BTreeMap;

pub use live::live_line;
pub use text::{
    Align, LINE_WIDTH, TextTable, abbreviated, paragraph, plain_ascii, rounded, signed_thousands, thousands,
    wrapped,
};

use crate::report::{
    Granted, LIMITED_BY_SENDER, Latency, Report, ReportError, Scope, ThreadReport, flags_text,
};
use Align::{Left, Right};

/// The column at which the words of a labelled line start.
const LABEL_WIDTH: usize = 10;

/// The report for people.
///
/// # Errors
/// As [`Report::check`]: a report whose books do not close is not rendered, and the error says so with the
/// numbers. A program that meets it prints it and exits with a failure.
pub fn render(report: &Report) -> Result<String, ReportError> {
    report.check()?;
    let sections = [head(report), threads(report), books(report), messages::section(report), meaning(report)];
    let sections: Vec<String> = sections.into_iter().filter(|section| !section.is_empty()).collect();
    Ok(sections.join("\n"))
}

fn line(label: &str, text: &str) -> String {
    paragraph(label, LABEL_WIDTH, text)
}

fn head(report: &Report) -> String {
    let versions = &report.versions;
    let rustc = versions.rustc.as_ref().map_or_else(String::new, |name| format!(", rustc {name}"));
    let mut out =
        line(&report.name, &format!("drumfire {}, {} build{rustc}", versions.drumfire, versions.build));
    out += &line("machine", &report.machine.to_string());
    out += &line("interface", &report.interface.clone().unwrap_or_default().to_string());
    if !report.flags.is_empty() {
        out += &line("flags", &flags_text(&report.flags));
    }
    out += &line("command", &report.command);
    out += &line("window", &format!("{:.2} s, one window for all threads", report.window_s));
    out
}

fn threads(report: &Report) -> String {
    let threads = &report.threads;
    if threads.is_empty() {
        return String::new();
    }
    let is_sender = threads.iter().any(|thread| thread.sent.is_some());
    let handled = if is_sender { "sent" } else { "received" };
    let headings = ["thread", handled, "pps", "of mean", "kernel drops", "user s", "sys s", "ns/packet"];
    let mut table = TextTable::new(&headings.map(|heading| (heading, Right)));
    let sum = threads.iter().fold(0, |sum: u64, thread| sum.saturating_add(thread.handled()));
    let mean = sum as f64 / threads.len() as f64;
    for thread in threads {
        table.row(thread_cells(thread, mean));
    }
    table.row([
        "all".to_owned(),
        thousands(sum),
        rounded(threads.iter().map(|thread| thread.pps).sum()),
        String::new(),
        or_dash(total(threads.iter().map(|thread| thread.kernel_drops)), thousands),
        or_dash(threads.iter().map(|thread| thread.cpu_user_s).sum(), seconds),
        or_dash(threads.iter().map(|thread| thread.cpu_sys_s).sum(), seconds),
        or_dash(report.cpu_ns_per_packet, rounded),
    ]);
    table.render()
}

fn thread_cells(thread: &ThreadReport, mean: f64) -> [String; 8] {
    let of_mean = (mean > 0.0).then(|| thread.handled() as f64 / mean);
    [
        thread.index.to_string(),
        thousands(thread.handled()),
        rounded(thread.pps),
        or_dash(of_mean, |share| format!("{share:.2}")),
        or_dash(thread.kernel_drops, thousands),
        or_dash(thread.cpu_user_s, seconds),
        or_dash(thread.cpu_sys_s, seconds),
        or_dash(thread.cpu_ns_per_packet(), rounded),
    ]
}

fn total(counts: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    counts.flatten().fold(None, |sum: Option<u64>, count| Some(sum.unwrap_or(0).saturating_add(count)))
}

fn books(report: &Report) -> String {
    let books = &report.books;
    let mut table = TextTable::new(&[("", Left), ("", Right), ("", Right)]).indented(2);
    let share = |count: f64| share_of(count, books.sent);
    table.row(["  sent".to_owned(), thousands(books.sent), share(books.sent as f64)]);
    table.row(["= received".to_owned(), thousands(books.received), share(books.received as f64)]);
    for (name, count) in &books.drops {
        table.row([format!("+ {name}"), thousands(*count), share(*count as f64)]);
    }
    let remainder = books.unexplained();
    let name = books.scope.remainder_name();
    table.row([format!("+ {name}"), signed_thousands(remainder), share(remainder as f64)]);
    let title = match books.scope {
        Scope::OneHost => "datagrams on one host: nothing may be missing",
        Scope::OneHostUncounted => {
            "datagrams on one host whose kernel does not tell what it dropped: that may be missing"
        }
        Scope::TwoHosts => "datagrams between two hosts: wire_or_nic is lost on the way, not explained",
    };
    let mut out = line("books", title) + &table.render() + &beside(report);
    if !report.foreign.is_empty() {
        out += &line(
            "foreign",
            &format!("outside the books, never sent by the sender: {}", named(&report.foreign)),
        );
    }
    out += &order(report);
    out
}

/// The counters of the interface and of UDP, which are not part of the books.
fn beside(report: &Report) -> String {
    let counted = report.interface.as_ref().map(|interface| &interface.counted);
    let Some(counted) = counted.filter(|counted| !counted.is_empty()) else { return String::new() };
    let title = "counted on this host meanwhile, of anybody's datagrams, and no part of the books";
    line("beside", &format!("{title}: {}", named(counted)))
}

fn named(counts: &BTreeMap<String, u64>) -> String {
    let counts: Vec<String> =
        counts.iter().map(|(name, count)| format!("{name} {}", thousands(*count))).collect();
    counts.join(", ")
}

fn order(report: &Report) -> String {
    let parts = [
        report.duplicated.map(|count| format!("{} second copies (outside the books)", thousands(count))),
        report.reordered.map(|count| format!("{} after a later one of their flow", thousands(count))),
    ];
    let known: Vec<String> = parts.into_iter().flatten().collect();
    if known.is_empty() { String::new() } else { line("order", &known.join(", ")) }
}

fn meaning(report: &Report) -> String {
    let mut out = line("rate", &rate(report));
    if let Some(offered) = report.offered {
        let share = share_of(report.books.sent as f64, offered);
        out += &line("offered", &format!("{} by the schedule, {share} of them sent", thousands(offered)));
    }
    if let Some(spread) = report.spread_max_over_mean {
        out += &line("spread", &format!("{spread:.3} busiest thread over mean (1 is even)"));
    }
    if let Some(latency) = &report.latency_ns {
        out += &line("latency", &latency_text(latency));
    }
    if let Some(limit) = &report.limited_by {
        out += &line("limit", &limit_text(limit));
    }
    out += &line("granted", &granted(&report.granted));
    out += &busy(report);
    for note in notes(report) {
        out += &line("note", &note);
    }
    out
}

fn rate(report: &Report) -> String {
    let mut text = format!("{} packets per second received", rounded(report.pps));
    if let Some(ns) = report.cpu_ns_per_packet {
        text += &format!(", {} ns of CPU per packet", rounded(ns));
    }
    if let Some(ns) = report.sender_cpu_ns_per_packet() {
        text += &format!(", {} ns at the sender", rounded(ns));
    }
    text
}

fn limit_text(limit: &str) -> String {
    if limit == LIMITED_BY_SENDER {
        "sender-limited: the receivers kept up with all that was sent; this is the sender's figure, not the \
         receiver's"
            .to_owned()
    } else {
        format!("{limit}-limited: this is the figure of the {limit}, not of the receiver")
    }
}

fn latency_text(latency: &Latency) -> String {
    let us = |ns: u64| format!("{:.1}", ns as f64 / 1_000.0);
    let Latency { p50, p90, p99, p999, max, count } = *latency;
    format!(
        "p50 {} us, p90 {} us, p99 {} us, p99.9 {} us, longest {} us of {}",
        us(p50),
        us(p90),
        us(p99),
        us(p999),
        us(max),
        thousands(count)
    )
}

fn granted(granted: &Granted) -> String {
    let bytes = |name: &str, count: Option<u64>| count.map(|n| format!("{name} {} bytes", thousands(n)));
    let switch =
        |name: &str, is_on: Option<bool>| is_on.map(|on| format!("{name} {}", if on { "on" } else { "off" }));
    let parts = [
        bytes("receive buffer", granted.receive_buffer_bytes),
        bytes("send buffer", granted.send_buffer_bytes),
        switch("GRO", granted.gro),
        switch("GSO", granted.gso),
        granted.filter.as_ref().map(|filter| format!("filter {filter}")),
    ];
    let known: Vec<String> = parts.into_iter().flatten().collect();
    if known.is_empty() { "the kernel did not say".to_owned() } else { known.join(", ") }
}

fn busy(report: &Report) -> String {
    let parts = [
        report
            .run_delay_share
            .map(|share| format!("{} of the window waited for a core", percent(share * 100.0))),
        report.steal_share.map(|share| format!("{} stolen by other guests", percent(share * 100.0))),
    ];
    let known: Vec<String> = parts.into_iter().flatten().collect();
    if known.is_empty() {
        return String::new();
    }
    let verdict = if report.is_void() { "; machine busy: these figures do not count" } else { "" };
    line("quiet", &format!("{}{verdict}", known.join(", ")))
}

fn notes(report: &Report) -> Vec<String> {
    let mut notes = report.notes.clone();
    let cores = report.machine.cores.and_then(|count| usize::try_from(count).ok());
    if let Some(cores) = cores.filter(|cores| *cores < report.threads.len()) {
        notes.push(format!(
            "{} threads on {cores} cores show spread and books; what they could take is not measurable here",
            report.threads.len()
        ));
    }
    if report.versions.build == "debug" {
        notes.push("a debug build: the books hold, the rates say nothing".to_owned());
    }
    notes
}

fn seconds(time: f64) -> String {
    format!("{time:.2}")
}

fn percent(share: f64) -> String {
    format!("{share:.3} %")
}

fn share_of(part: f64, whole: u64) -> String {
    or_dash((whole > 0).then(|| part * 100.0 / whole as f64), percent)
}

fn or_dash<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::choices::Mode;
    use crate::report::{
        Books, Counted, CpuTime, IN_LOST_DATAGRAMS, Interface, KERNEL_RECEIVE_QUEUE, Machine, Messages,
        ThreadCount,
    };

    fn report(per_thread: &[u64]) -> Report {
        let cpu = Some(CpuTime { user_s: 1.25, sys_s: 8.5 });
        let threads = (0u32..).zip(per_thread).map(|(index, received)| ThreadCount {
            index,
            received: *received,
            sent: None,
            kernel_drops: Some(25),
            cpu,
        });
        let received = per_thread.iter().sum();
        let mut report = Report::of(Counted {
            name: "receiver".to_owned(),
            command: "receiver --bind 127.0.0.1:4433 --threads 4 --with-sender".to_owned(),
            flags: (0..12).map(|n| (format!("some-flag-{n}"), 250_000u64.into())).collect(),
            machine: Machine {
                cpu: Some("Intel(R) Xeon(R) Processor".to_owned()),
                cores: Some(2),
                kernel: Some("6.18.44".to_owned()),
                memory_bytes: Some(24_684_084 << 10),
            },
            window: Duration::from_secs(10),
            books: Books::new(received + 100, received).dropped(KERNEL_RECEIVE_QUEUE, 100),
            threads: threads.collect(),
            granted: Granted { receive_buffer_bytes: Some(425_984), gro: Some(true), ..Granted::default() },
        });
        report.versions.build = "release".to_owned();
        report
    }

    fn assert_lines_fit(text: &str) {
        for line in text.lines() {
            assert!(line.len() <= LINE_WIDTH, "{} columns: {line}", line.len());
            assert!(line.chars().all(|c| c == ' ' || c.is_ascii_graphic()), "{line}");
        }
    }

    #[test]
    fn a_report_fits_the_line_width_with_one_and_with_many_threads() {
        for count in [1, 4, 16, 64] {
            let mut report = report(&vec![123_456_789_012; count]);
            report.machine.cpu = Some("\u{1b}[2J a name \u{e9} ".repeat(20));
            report.command = "x".repeat(300);
            report.notes = vec!["a sentence that goes on ".repeat(12)];
            report.foreign = (0..9).map(|n| (format!("stranger-number-{n}"), u64::MAX)).collect();
            report.granted.filter = Some("hash (the kernel refused the filter) ".repeat(4));
            report.interface = Some(Interface {
                name: Some("\u{1b}[2J eth ".repeat(20)),
                driver: Some("x".repeat(300)),
                counted: report.foreign.clone(),
                ..Interface::default()
            });
            assert_lines_fit(&render(&report).unwrap());
        }
    }

    #[test]
    fn each_thread_has_a_line_and_the_sum_comes_last() {
        let text = render(&report(&[3_000_000, 1_000_000])).unwrap();
        let expected = [
            "thread   received      pps  of mean  kernel drops  user s  sys s  ns/packet",
            "     0  3,000,000  300,000     1.50            25    1.25   8.50      3,250",
            "     1  1,000,000  100,000     0.50            25    1.25   8.50      9,750",
            "   all  4,000,000  400,000                     50    2.50  17.00      4,875",
        ];
        assert!(text.contains(&expected.join("\n")), "{text}");
    }

    #[test]
    fn the_books_stand_as_a_sum() {
        let text = render(&report(&[3_000_000, 1_000_000])).unwrap();
        let expected = [
            "books     datagrams on one host: nothing may be missing",
            "    sent                  4,000,100  100.000 %",
            "  = received              4,000,000   99.998 %",
            "  + kernel_receive_queue        100    0.002 %",
            "  + unexplained                   0    0.000 %",
        ];
        assert!(text.contains(&expected.join("\n")), "{text}");
    }

    #[test]
    fn open_books_are_not_rendered() {
        let mut report = report(&[1_000]);
        report.books.sent += 1;
        let error = render(&report).unwrap_err().to_string();
        assert!(error.starts_with("BOOKS DO NOT CLOSE: sent 1,101 is not received 1,000"), "{error}");
    }

    #[test]
    fn between_two_hosts_the_remainder_is_wire_or_nic_and_not_called_explained() {
        let mut report = report(&[1_000]);
        report.books.sent += 7;
        report.books.scope = Scope::TwoHosts;
        let text = render(&report).unwrap();
        assert!(text.contains("+ wire_or_nic               7    0.632 %"), "{text}");
        assert!(text.contains("not explained") && !text.contains("unexplained"), "{text}");
    }

    #[test]
    fn what_the_interface_counted_stands_beside_the_books_and_changes_none() {
        let mut report = report(&[1_000]);
        let without = render(&report).unwrap();
        assert!(without.contains("interface not told") && !without.contains("beside"), "{without}");
        report.interface = Some(Interface {
            name: Some("eth0".to_owned()),
            driver: Some("ena".to_owned()),
            receive_queues: Some(8),
            send_queues: Some(8),
            counted: BTreeMap::from([("rx_dropped".to_owned(), 1_234), ("udp_in_errors".to_owned(), 0)]),
        });
        report.sender_cpu_s = Some(0.0011);
        let text = render(&report).unwrap();
        assert!(text.contains("interface eth0, driver ena, 8 receive and 8 send queue(s)"), "{text}");
        assert!(text.contains("beside    counted on this host meanwhile"), "{text}");
        assert!(text.contains("rx_dropped 1,234"), "{text}");
        assert!(text.contains("  + unexplained               0    0.000 %"), "{text}");
        assert!(text.contains("1,000 ns at the sender"), "{text}");
    }

    #[test]
    fn a_sender_limited_run_says_whose_figure_it_is() {
        let mut report = report(&[1_000]);
        assert!(!render(&report).unwrap().contains("sender-limited"));
        report.limited_by = Some(LIMITED_BY_SENDER.to_owned());
        let text = render(&report).unwrap();
        assert!(
            text.contains("limit     sender-limited: the receivers kept up with all that was sent"),
            "{text}"
        );
    }

    #[test]
    fn more_threads_than_cores_are_said_not_to_be_measurable() {
        for (threads, is_said) in [(1, false), (2, false), (3, true)] {
            let text = render(&report(&vec![1_000; threads])).unwrap();
            assert_eq!(text.contains("not measurable here"), is_said, "{text}");
        }
    }

    #[test]
    fn a_busy_machine_and_a_debug_build_are_said() {
        let mut report = report(&[1_000]);
        report.run_delay_share = Some(0.031);
        report.versions.build = "debug".to_owned();
        let text = render(&report).unwrap();
        assert!(text.contains("3.100 % of the window waited for a core; machine busy"), "{text}");
        assert!(text.contains("a debug build"), "{text}");
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        let mut report = report(&[1_000]);
        report.threads[0] =
            ThreadReport { kernel_drops: None, cpu_user_s: None, ..report.threads[0].clone() };
        report.cpu_ns_per_packet = None;
        report.machine = Machine::default();
        report.granted = Granted::default();
        let text = render(&report).unwrap();
        assert!(text.contains("machine   unknown"), "{text}");
        assert!(text.contains("granted   the kernel did not say"), "{text}");
        assert!(
            text.contains("     0     1,000  100     1.00             -       -   8.50          -"),
            "{text}"
        );
    }

    #[test]
    fn a_sender_shows_what_its_threads_sent() {
        let mut report = report(&[1_000]);
        report.threads[0].sent = Some(report.books.sent);
        report.threads[0].received = 0;
        let text = render(&report).unwrap();
        assert!(text.contains("thread   sent"), "{text}");
        assert!(text.contains("     0  1,100"), "{text}");
    }

    #[test]
    fn messages_have_books_of_their_own_and_open_ones_are_not_rendered() {
        let mut report = report(&[1_000]);
        let mut messages = Messages::none(Mode::Unreliable);
        messages.books = Books::new(5_000, 4_990).dropped(IN_LOST_DATAGRAMS, 10);
        messages.offered = Some(10_000);
        (messages.resent, messages.packets_lost, messages.answers, messages.acks_alone) =
            (1, 2, 4_000, 3_000);
        report.messages = Some(messages);
        let text = render(&report).unwrap();
        let expected = [
            "messages  unreliable: at most once, in any order; the promise was kept",
            "    sent               5,000  100.000 %",
            "  = delivered          4,990   99.800 %",
            "  + in_lost_datagrams     10    0.200 %",
            "  + unexplained            0    0.000 %",
            "offered   10,000 messages by the schedule, 50.000 % of them sent",
            "delivery  1 messages sent again, 2 packets found lost, 4,000 datagrams sent back, 3,000 of them acks",
        ];
        assert!(text.contains(&expected.join("\n")), "{text}");
        report.messages.as_mut().unwrap().books.received += 1;
        assert!(render(&report).is_err());
    }

    #[test]
    fn strangers_copies_and_latency_have_their_lines() {
        let mut report = report(&[1_000]);
        report.foreign = BTreeMap::from([("empty".to_owned(), 1_000_000)]);
        report.duplicated = Some(2);
        report.reordered = Some(3);
        report.offered = Some(2_200);
        report.latency_ns =
            Some(Latency { p50: 12_345, p90: 2, p99: 3, p999: 4, max: 5_000_000, count: 1_000 });
        let text = render(&report).unwrap();
        assert!(text.contains("never sent by the sender: empty 1,000,000"), "{text}");
        assert!(text.contains("2 second copies (outside the books), 3 after a later one"), "{text}");
        assert!(text.contains("offered   2,200 by the schedule, 50.000 % of them sent"), "{text}");
        assert!(text.contains("p50 12.3 us"), "{text}");
        assert!(text.contains("longest 5000.0 us of 1,000"), "{text}");
    }
}
