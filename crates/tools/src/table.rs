//! A [`Report`] as text: the circumstances, each thread, the books, and the rates.
//!
//! All text is printable ASCII within [`LINE_WIDTH`] columns. The books are printed as a sum that can be checked by eye. A report
//! that [`Report::check`] refuses is not rendered.

mod text;

use std::collections::BTreeMap;

pub use text::{
    Align, LINE_WIDTH, TextTable, abbreviated, paragraph, plain_ascii, rounded, signed_thousands, thousands,
    wrapped,
};

use crate::report::{
    Books, Granted, LIMITED_BY_SENDER, Latency, Messages, Report, ReportError, Scope, ThreadReport,
    UNEXPLAINED, flags_text, spread_max_over_mean,
};
use Align::{Left, Right};

/// The column at which the words of a labelled line start.
const LABEL_WIDTH: usize = 10;

/// Returns the report as text.
///
/// # Errors
/// As [`Report::check`]: the error has the numbers of books that do not close.
pub fn render(report: &Report) -> Result<String, ReportError> {
    report.check()?;
    let messages = report.messages.as_ref().map_or_else(String::new, messages);
    let sections = [head(report), threads(report), books(report), messages, figures(report)];
    let sections: Vec<String> = sections.into_iter().filter(|section| !section.is_empty()).collect();
    Ok(sections.join("\n"))
}

/// Returns the rates of one second in one line. If the rates of many threads do not fit, it has the lowest, the median, and the
/// highest of them.
///
/// `second` counts from 0, and `rates` is by thread index. `kernel_drops` counts the drops of this second; `None` if they are not
/// known.
#[must_use]
pub fn live_line(second: u64, rates: &[u64], kernel_drops: Option<u64>) -> String {
    let sum = rates.iter().fold(0, |sum: u64, pps| sum.saturating_add(*pps));
    let spread = or_dash(spread_max_over_mean(rates), |spread| format!("{spread:.2}"));
    let drops = kernel_drops.map_or_else(|| "unknown".to_owned(), thousands);
    let head = format!("{second:>4} s  {:>10} pps  spread {spread:>4}  kernel drops {drops}", thousands(sum));
    let all: String = rates.iter().map(|pps| format!(" {}", abbreviated(*pps))).collect();
    let line = format!("{head}  |{all}");
    if line.len() <= LINE_WIDTH {
        return line;
    }
    let mut sorted = rates.to_vec();
    sorted.sort_unstable();
    let [low, median, high] =
        [0, sorted.len() / 2, sorted.len().saturating_sub(1)].map(|at| sorted.get(at).copied().unwrap_or(0));
    format!("{head}  | {} {} {}", abbreviated(low), abbreviated(median), abbreviated(high))
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

/// The sum of some books, with a name for the received part and for the remainder.
fn sum(books: &Books, received: &str, remainder_name: &str) -> String {
    let mut table = TextTable::new(&[("", Left), ("", Right), ("", Right)]).indented(2);
    let share = |count: f64| share_of(count, books.sent);
    table.row(["  sent".to_owned(), thousands(books.sent), share(books.sent as f64)]);
    table.row([format!("= {received}"), thousands(books.received), share(books.received as f64)]);
    for (name, count) in &books.drops {
        table.row([format!("+ {name}"), thousands(*count), share(*count as f64)]);
    }
    let remainder = books.unexplained();
    table.row([format!("+ {remainder_name}"), signed_thousands(remainder), share(remainder as f64)]);
    table.render()
}

fn books(report: &Report) -> String {
    let Report { books, foreign, interface, .. } = report;
    let title = match books.scope {
        Scope::OneHost => "datagrams on one host: nothing may be missing",
        Scope::OneHostUncounted => {
            "datagrams on one host whose kernel does not count its drops: those may be missing"
        }
        Scope::TwoHosts => "datagrams between two hosts: wire_or_nic is lost on the way, not explained",
    };
    let mut out = line("books", title) + &sum(books, "received", books.scope.remainder_name());
    let counted = interface.as_ref().map(|interface| &interface.counted);
    if let Some(counted) = counted.filter(|counted| !counted.is_empty()) {
        // These counters include datagrams of other programs.
        out +=
            &line("host", &format!("outside the books, for all programs of this host: {}", named(counted)));
    }
    if !foreign.is_empty() {
        out += &line("foreign", &format!("outside the books, not from the sender: {}", named(foreign)));
    }
    let parts = [
        report.duplicated.map(|count| format!("{} second copies (outside the books)", thousands(count))),
        report.reordered.map(|count| format!("{} after a later one of their flow", thousands(count))),
    ];
    out + &line_of("order", &parts)
}

fn messages(messages: &Messages) -> String {
    let Messages { mode, offered, books, resent, packets_lost, answers, acks_alone, .. } = messages;
    let title = format!("{mode}: {}; the promise was kept", mode.promise());
    let mut out = line("messages", &title) + &sum(books, "delivered", UNEXPLAINED);
    if let Some(offered) = offered {
        let share = share_of(books.sent as f64, *offered);
        let text = format!("{} messages by the schedule, {share} of them sent", thousands(*offered));
        out += &line("offered", &text);
    }
    let [resent, lost, answers, acks] =
        [resent, packets_lost, answers, acks_alone].map(|count| thousands(*count));
    let text = format!(
        "{resent} messages sent again, {lost} packets found lost, {answers} datagrams sent back, {acks} of them acks only"
    );
    out + &line("delivery", &text)
}

fn named(counts: &BTreeMap<String, u64>) -> String {
    let counts: Vec<String> =
        counts.iter().map(|(name, count)| format!("{name} {}", thousands(*count))).collect();
    counts.join(", ")
}

/// A line with the parts that are known; nothing if none is.
fn line_of(label: &str, parts: &[Option<String>]) -> String {
    let known: Vec<&str> = parts.iter().flatten().map(String::as_str).collect();
    if known.is_empty() { String::new() } else { line(label, &known.join(", ")) }
}

fn figures(report: &Report) -> String {
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
    notes(report).iter().fold(out, |out, note| out + &line("note", note))
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
        "sender-limited: the receivers kept up with all that was sent; this is the figure of the sender"
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
    if known.is_empty() { "unknown".to_owned() } else { known.join(", ") }
}

fn busy(report: &Report) -> String {
    let verdict = if report.is_void() { "; machine busy: these figures do not count" } else { "" };
    let share =
        |text: &str, share: Option<f64>| share.map(|share| format!("{} {text}", percent(share * 100.0)));
    let delay = share("of the window waited for a core", report.run_delay_share);
    let steal = share("stolen by other guests", report.steal_share);
    let last = steal.clone().or(delay.clone()).map(|text| text + verdict);
    line_of("quiet", &[steal.and(delay), last])
}

fn notes(report: &Report) -> Vec<String> {
    let mut notes = report.notes.clone();
    let cores = report.machine.cores.and_then(|count| usize::try_from(count).ok());
    if let Some(cores) = cores.filter(|cores| *cores < report.threads.len()) {
        notes.push(format!(
            "{} threads on {cores} cores show spread and books; their throughput cannot be measured here",
            report.threads.len()
        ));
    }
    if report.versions.build == "debug" {
        notes.push("a debug build: the books hold, the rates mean nothing".to_owned());
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
        Counted, CpuTime, IN_LOST_DATAGRAMS, Interface, KERNEL_RECEIVE_QUEUE, Machine, ThreadCount,
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
            machine: Machine { cores: Some(2), ..Machine::default() },
            window: Duration::from_secs(10),
            books: Books::new(received + 100, received).dropped(KERNEL_RECEIVE_QUEUE, 100),
            threads: threads.collect(),
            granted: Granted { receive_buffer_bytes: Some(425_984), gro: Some(true), ..Granted::default() },
        });
        report.versions.build = "release".to_owned();
        report
    }

    #[track_caller]
    fn assert_has(report: &Report, lines: &[&str]) {
        let text = render(report).unwrap();
        assert!(text.contains(&lines.join("\n")), "{text}");
    }

    #[test]
    fn a_report_fits_the_line_width() {
        for count in [1, 4, 16, 64] {
            let mut report = report(&vec![123_456_789_012; count]);
            report.machine.cpu = Some("\u{1b}[2J a name \u{e9} ".repeat(20));
            report.command = "x".repeat(300);
            report.notes = vec!["a sentence that goes on ".repeat(12)];
            report.foreign = (0..9).map(|n| (format!("stranger-number-{n}"), u64::MAX)).collect();
            report.interface = Some(Interface {
                name: Some("\u{1b}[2J eth ".repeat(20)),
                driver: Some("x".repeat(300)),
                counted: report.foreign.clone(),
                ..Interface::default()
            });
            for line in render(&report).unwrap().lines() {
                assert!(line.len() <= LINE_WIDTH, "{} columns: {line}", line.len());
                assert!(line.chars().all(|c| c == ' ' || c.is_ascii_graphic()), "{line}");
            }
        }
    }

    #[test]
    fn threads_have_a_line_each_and_the_books_are_a_sum() {
        let report = report(&[3_000_000, 1_000_000]);
        assert_has(
            &report,
            &[
                "thread   received      pps  of mean  kernel drops  user s  sys s  ns/packet",
                "     0  3,000,000  300,000     1.50            25    1.25   8.50      3,250",
                "     1  1,000,000  100,000     0.50            25    1.25   8.50      9,750",
                "   all  4,000,000  400,000                     50    2.50  17.00      4,875",
            ],
        );
        assert_has(
            &report,
            &[
                "books     datagrams on one host: nothing may be missing",
                "    sent                  4,000,100  100.000 %",
                "  = received              4,000,000   99.998 %",
                "  + kernel_receive_queue        100    0.002 %",
                "  + unexplained                   0    0.000 %",
            ],
        );
    }

    #[test]
    fn open_books_are_not_rendered() {
        let mut report = report(&[1_000]);
        report.books.sent += 7;
        let error = render(&report).unwrap_err().to_string();
        assert!(error.starts_with("BOOKS DO NOT CLOSE: sent 1,107 is not received 1,000"), "{error}");
        report.books.scope = Scope::TwoHosts;
        let text = render(&report).unwrap();
        assert!(text.contains("+ wire_or_nic               7    0.632 %"), "{text}");
        assert!(text.contains("not explained") && !text.contains("unexplained"), "{text}");
    }

    #[test]
    fn facts_outside_the_books_have_their_lines() {
        let mut report = report(&[1_000, 0, 0]);
        report.interface = Some(Interface {
            name: Some("eth0".to_owned()),
            counted: BTreeMap::from([("rx_dropped".to_owned(), 1_234)]),
            ..Interface::default()
        });
        report.sender_cpu_s = Some(0.0011);
        report.foreign = BTreeMap::from([("empty".to_owned(), 1_000_000)]);
        (report.duplicated, report.reordered, report.offered) = (Some(2), Some(3), Some(2_200));
        report.latency_ns =
            Some(Latency { p50: 12_345, p90: 2, p99: 3, p999: 4, max: 5_000_000, count: 1_000 });
        report.limited_by = Some(LIMITED_BY_SENDER.to_owned());
        report.run_delay_share = Some(0.031);
        report.versions.build = "debug".to_owned();
        report.granted = Granted::default();
        for line in [
            "interface eth0",
            "host      outside the books, for all programs of this host: rx_dropped 1,234",
            "1,000 ns at the sender",
            "not from the sender: empty 1,000,000",
            "2 second copies (outside the books), 3 after a later one",
            "offered   2,200 by the schedule, 50.000 % of them sent",
            "latency   p50 12.3 us",
            "longest 5000.0 us of 1,000",
            "limit     sender-limited: the receivers kept up",
            "3.100 % of the window waited for a core; machine busy",
            "3 threads on 2 cores",
            "a debug build",
            "granted   unknown",
        ] {
            assert_has(&report, &[line]);
        }
    }

    #[test]
    fn an_unknown_value_is_a_dash() {
        let mut report = report(&[1_000]);
        (report.threads[0].kernel_drops, report.threads[0].cpu_user_s) = (None, None);
        assert_has(&report, &["     0     1,000  100     1.00             -       -   8.50          -"]);
    }

    #[test]
    fn messages_have_books_of_their_own() {
        let mut report = report(&[1_000]);
        let mut messages = Messages::none(Mode::Unreliable);
        messages.books = Books::new(5_000, 4_990).dropped(IN_LOST_DATAGRAMS, 10);
        messages.offered = Some(10_000);
        (messages.resent, messages.packets_lost, messages.answers, messages.acks_alone) =
            (1, 2, 4_000, 3_000);
        report.messages = Some(messages);
        assert_has(
            &report,
            &[
                "messages  unreliable: at most once, in any order; the promise was kept",
                "    sent               5,000  100.000 %",
                "  = delivered          4,990   99.800 %",
                "  + in_lost_datagrams     10    0.200 %",
                "  + unexplained            0    0.000 %",
                "offered   10,000 messages by the schedule, 50.000 % of them sent",
                "delivery  1 messages sent again, 2 packets found lost, 4,000 datagrams sent back, 3,000 of them acks",
            ],
        );
        report.messages.as_mut().unwrap().books.received += 1;
        assert!(render(&report).is_err());
    }

    #[test]
    fn a_live_line_has_every_rate_or_three_of_them() {
        let few = live_line(3, &[25_003, 25_001, 25_004, 25_004], Some(40));
        assert_eq!(few, "   3 s     100,012 pps  spread 1.00  kernel drops 40  | 25.0k 25.0k 25.0k 25.0k");
        let many: Vec<u64> = (0..64).map(|thread| 10_000 + thread * 100).collect();
        assert!(live_line(7, &many, Some(0)).ends_with("kernel drops 0  | 10.0k 13.2k 16.3k"));
        assert_eq!(
            live_line(0, &[0], None),
            "   0 s           0 pps  spread    -  kernel drops unknown  | 0"
        );
        for threads in 0..=64 {
            let line = live_line(86_400, &vec![12_345_678_901; threads], Some(1_234_567_890));
            assert!(line.len() <= LINE_WIDTH, "{line}");
        }
    }
}
