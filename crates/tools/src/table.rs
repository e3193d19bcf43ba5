//! A [`Report`] as text: the circumstances, each thread, the books, and the rates.
//!
//! All text is printable ASCII within [`LINE_WIDTH`] columns. The books are printed as a sum that can be checked by eye. A report
//! that [`Report::check`] refuses is not rendered.

mod text;

pub use text::{Align, LINE_WIDTH, TextTable, rounded, thousands};
pub(crate) use text::{abbreviated, named, paragraph, plain_ascii, signed_thousands, wrapped};

use crate::error::Error;
use crate::report::{
    Accounting, Granted, LIMITED_BY_SENDER, Latency, Messages, Report, Scope, ThreadReport, UNEXPLAINED,
    flags_text, spread_max_over_mean,
};
use Align::{Left, Right};

/// Returns the report as text, or the error of [`Report::check`], which has the numbers of books that do not close.
pub(crate) fn render(report: &Report) -> Result<String, Error> {
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
pub(crate) fn live_line(second: u64, rates: &[u64], kernel_drops: Option<u64>) -> String {
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

/// Returns the rates of [`Report::pps_per_second`] as comma-separated values: a heading `run,thread,pps`, and a row for each second
/// and thread, where `run` is the second.
///
/// All threads are counted over the same second, so the rates of one second may be added up.
pub fn csv(rates: &[Vec<u64>]) -> String {
    let rows = rates.iter().enumerate().flat_map(|(run, rates)| {
        rates.iter().enumerate().map(move |(thread, pps)| format!("{run},{thread},{pps}\n"))
    });
    rows.fold("run,thread,pps\n".to_owned(), |text, row| text + &row)
}

/// Labelled lines with the texts that are known.
fn lines<const N: usize>(rows: [(&str, Option<String>); N]) -> String {
    let known = rows.into_iter().filter_map(|(label, text)| Some(paragraph(label, &text?)));
    known.collect()
}

/// The parts that are known in one text; `None` if none is.
fn joined<const N: usize>(parts: [Option<String>; N]) -> Option<String> {
    let known: Vec<String> = parts.into_iter().flatten().collect();
    (!known.is_empty()).then(|| known.join(", "))
}

fn head(report: &Report) -> String {
    let versions = &report.versions;
    let rustc = versions.rustc.as_ref().map_or_else(String::new, |name| format!(", rustc {name}"));
    let version = format!("drumfire {}, {} build{rustc}", versions.drumfire, versions.build);
    lines([
        (report.name.as_str(), Some(version)),
        ("machine", Some(report.machine.to_string())),
        ("flags", Some(flags_text(&report.flags)).filter(|flags| !flags.is_empty())),
        ("command", Some(report.command.clone())),
        ("window", Some(format!("{:.2} s, one window for all threads", report.window_s))),
    ])
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
    let mut row = |label: &str, of_mean: &str, thread: &ThreadReport, ns_per_packet| {
        table.row([
            label,
            &thousands(thread.handled()),
            &rounded(thread.pps),
            of_mean,
            &or_dash(thread.kernel_drops, thousands),
            &or_dash(thread.cpu_user_s, seconds),
            &or_dash(thread.cpu_sys_s, seconds),
            &or_dash(ns_per_packet, rounded),
        ]);
    };
    for thread in threads {
        let of_mean = (mean > 0.0).then(|| thread.handled() as f64 / mean);
        let of_mean = or_dash(of_mean, |share| format!("{share:.2}"));
        row(&thread.index.to_string(), &of_mean, thread, thread.cpu_ns_per_packet());
    }
    let all = ThreadReport {
        received: sum,
        pps: threads.iter().map(|thread| thread.pps).sum(),
        kernel_drops: threads.iter().filter_map(|thread| thread.kernel_drops).reduce(u64::saturating_add),
        cpu_user_s: threads.iter().map(|thread| thread.cpu_user_s).sum(),
        cpu_sys_s: threads.iter().map(|thread| thread.cpu_sys_s).sum(),
        ..ThreadReport::default()
    };
    row("all", "", &all, report.cpu_ns_per_packet);
    table.render()
}

/// The sum of some books, with a name for the received part and for the remainder.
fn sum(books: &Accounting, received: &str, remainder_name: &str) -> String {
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
    let Report { books, foreign, host_drops, .. } = report;
    let title = match books.scope {
        Scope::OneHost => "datagrams on one host: nothing may be missing",
        Scope::OneHostUncounted => {
            "datagrams on one host whose kernel does not count its drops: those may be missing"
        }
        Scope::TwoHosts => "datagrams between two hosts: wire_or_nic is lost on the way, not explained",
    };
    let sum = sum(books, "received", books.scope.remainder_name());
    let order = [
        report.duplicated.map(|count| format!("{} second copies (outside the books)", thousands(count))),
        report.reordered.map(|count| format!("{} after a later one of their flow", thousands(count))),
    ];
    lines([("books", Some(title.to_owned()))])
        + &sum
        + &lines([
            ("host", named(host_drops).map(|text| format!("outside the books, of all programs: {text}"))),
            ("foreign", named(foreign).map(|text| format!("outside the books, not from the sender: {text}"))),
            ("order", joined(order)),
        ])
}

fn messages(messages: &Messages) -> String {
    let Messages { mode, offered, books, resent, packets_lost, answers, acks_alone, .. } = messages;
    let title = format!("{mode}: {}; the promise was kept", mode.promise());
    let offered = offered.map(|offered| {
        let share = share_of(books.sent as f64, offered);
        format!("{} messages by the schedule, {share} of them sent", thousands(offered))
    });
    let [resent, lost, answers, acks] =
        [resent, packets_lost, answers, acks_alone].map(|count| thousands(*count));
    let delivery = format!(
        "{resent} messages sent again, {lost} packets found lost, {answers} datagrams sent back, {acks} of them acks only"
    );
    lines([("messages", Some(title))])
        + &sum(books, "delivered", UNEXPLAINED)
        + &lines([("offered", offered), ("delivery", Some(delivery))])
}

fn figures(report: &Report) -> String {
    let offered = report.offered.map(|offered| {
        let share = share_of(report.books.sent as f64, offered);
        format!("{} by the schedule, {share} of them sent", thousands(offered))
    });
    let spread = report.spread_max_over_mean;
    let figures = lines([
        ("rate", Some(rate(report))),
        ("offered", offered),
        ("spread", spread.map(|spread| format!("{spread:.3} busiest thread over mean (1 is even)"))),
        ("latency", report.latency_ns.as_ref().map(latency_text)),
        ("limit", report.limited_by.as_deref().map(limit_text)),
        ("granted", Some(granted(&report.granted))),
        ("quiet", busy(report)),
    ]);
    figures + &notes(report).into_iter().map(|note| lines([("note", Some(note))])).collect::<String>()
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
    joined(parts).unwrap_or_else(|| "unknown".to_owned())
}

fn busy(report: &Report) -> Option<String> {
    let share =
        |text: &str, share: Option<f64>| share.map(|share| format!("{} {text}", percent(share * 100.0)));
    let text = joined([
        share("of the window waited for a core", report.run_delay_share),
        share("stolen by other guests", report.steal_share),
    ]);
    let verdict = if report.is_void() { "; machine busy: these figures do not count" } else { "" };
    text.map(|text| text + verdict)
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
    use std::collections::BTreeMap;

    use super::*;
    use crate::choices::Mode;
    use crate::report::{IN_LOST_DATAGRAMS, KERNEL_RECEIVE_QUEUE, Machine};

    /// A report of a release build with these threads.
    fn report(per_thread: &[u64]) -> Report {
        let threads = (0u32..).zip(per_thread).map(|(index, received)| ThreadReport {
            index,
            received: *received,
            kernel_drops: Some(25),
            cpu_user_s: Some(1.25),
            cpu_sys_s: Some(8.5),
            ..ThreadReport::default()
        });
        let received = per_thread.iter().sum();
        let report = Report {
            name: "receiver".to_owned(),
            command: "receiver --bind 127.0.0.1:4433 --threads 4 --with-sender".to_owned(),
            flags: (0..12).map(|n| (format!("some-flag-{n}"), 250_000u64.into())).collect(),
            machine: Machine { cores: Some(2), ..Machine::default() },
            window_s: 10.0,
            books: Accounting::new(received + 100, received).dropped(KERNEL_RECEIVE_QUEUE, 100),
            threads: threads.collect(),
            granted: Granted { receive_buffer_bytes: Some(425_984), gro: Some(true), ..Granted::default() },
            ..Report::default()
        };
        let mut report = report.derived();
        (report.versions.drumfire, report.versions.rustc) = ("0.1.0".to_owned(), None);
        report.versions.build = "release".to_owned();
        report
    }

    /// A report with every section.
    fn whole_report() -> Report {
        let mut report = report(&[3_000_000, 1_000_000, 0]);
        (report.threads[1].kernel_drops, report.threads[1].cpu_user_s) = (None, None);
        report.host_drops = BTreeMap::from([("rx_dropped".to_owned(), 1_234)]);
        report.sender_cpu_s = Some(4.0001);
        report.foreign = BTreeMap::from([("empty".to_owned(), 1_000_000)]);
        (report.duplicated, report.reordered, report.offered) = (Some(2), Some(3), Some(8_000_200));
        report.latency_ns = Some(Latency {
            p50: 12_345,
            p90: 20_000,
            p99: 30_000,
            p999: 40_000,
            max: 5_000_000,
            count: 1_000,
        });
        report.limited_by = Some(LIMITED_BY_SENDER.to_owned());
        (report.run_delay_share, report.steal_share) = (Some(0.031), Some(0.001));
        report.messages = Some(Messages {
            mode: Mode::Unreliable,
            books: Accounting::new(5_000, 4_990).dropped(IN_LOST_DATAGRAMS, 10),
            offered: Some(10_000),
            resent: 1,
            packets_lost: 2,
            answers: 4_000,
            acks_alone: 3_000,
            ..Messages::default()
        });
        report.notes = vec!["a note of the run".to_owned()];
        report.versions.build = "debug".to_owned();
        report
    }

    #[test]
    fn a_report_is_printed_as_recorded() {
        // A text that differs on purpose is replaced by what this prints.
        let text = render(&whole_report()).unwrap();
        assert!(text == include_str!("table/report.txt"), "{text}");
    }

    #[test]
    fn a_report_fits_the_line_width() {
        for count in [1, 4, 16, 64] {
            let mut report = report(&vec![123_456_789_012; count]);
            report.machine.cpu = Some("\u{1b}[2J a name \u{e9} ".repeat(20));
            report.command = "x".repeat(300);
            report.notes = vec!["a sentence that goes on ".repeat(12)];
            report.foreign = (0..9).map(|n| (format!("stranger-number-{n}"), u64::MAX)).collect();
            report.host_drops = report.foreign.clone();
            for line in render(&report).unwrap().lines() {
                assert!(line.len() <= LINE_WIDTH, "{} columns: {line}", line.len());
                assert!(line.chars().all(|c| c == ' ' || c.is_ascii_graphic()), "{line}");
            }
        }
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
    fn each_second_and_thread_has_a_row_of_csv() {
        let rates = [vec![132_000, 1_037_000], vec![145_000, 0]];
        assert_eq!(csv(&rates), "run,thread,pps\n0,0,132000\n0,1,1037000\n1,0,145000\n1,1,0\n");
    }

    #[test]
    fn a_live_line_has_every_rate_or_three_of_them() {
        let few = live_line(3, &[25_003, 25_001, 25_004, 25_004], Some(40));
        assert_eq!(few, "   3 s     100,012 pps  spread 1.00  kernel drops 40  | 25.0k 25.0k 25.0k 25.0k");
        let many: Vec<u64> = (0..64).map(|thread| 10_000 + thread * 100).collect();
        assert!(live_line(7, &many, Some(0)).ends_with("kernel drops 0  | 10.0k 13.2k 16.3k"));
        assert!(live_line(0, &[0], None).ends_with("spread    -  kernel drops unknown  | 0"));
        for threads in 0..=64 {
            let line = live_line(86_400, &vec![12_345_678_901; threads], Some(1_234_567_890));
            assert!(line.len() <= LINE_WIDTH, "{line}");
        }
    }
}
