//! A row: what came of one run, in numbers, and as a report whose books close.

use std::time::Duration;

use drumfire_benches::{OUTSTANDING, SATURATED, Turns, counts_text};
use drumfire_tools::host;
use drumfire_tools::report::{Books, Counted, Flags, KERNEL_RECEIVE_QUEUE, Latency, Report, ThreadCount};

use super::line::PAYLOAD_BYTES;
use super::session::Ran;
use super::{Load, Sizes, Subject};
use crate::server::Order;

/// Bytes of the headers of UDP and IPv4 before a payload.
const HEADERS_BYTES: u64 = 28;

/// A schedule of which the client left out more turns than one in a hundred is the client's figure.
const LATE_LEAST: u64 = 100;

/// A row of a table.
pub(crate) struct Round {
    pub(crate) subject: Subject,
    pub(crate) load: Load,
    pub(crate) flush: Order,
    pub(crate) report: Report,
    /// Messages there and back per second of the window.
    pub(crate) tps: f64,
    /// Of one core, in percent, over the window.
    pub(crate) cpu_percent: f64,
    /// The least and the most of samples of one second.
    pub(crate) cpu_range: (f64, f64),
    /// Least, mean and most of samples of one second, in bytes.
    pub(crate) memory: (f64, f64, f64),
    /// The client's share of its core, in percent.
    pub(crate) client_percent: f64,
    /// Least, mean, most, TP50, TP75, TP90, TP95, TP99 and p99.9, in nanoseconds.
    pub(crate) times: [f64; 9],
    pub(crate) window_s: f64,
    pub(crate) echoed: u64,
    pub(crate) sent: u64,
    /// Turns of the schedule, left-out ones included.
    pub(crate) offered: Option<u64>,
    /// Turns left out because the connection had too much out, and because the client had no time.
    pub(crate) skipped: Option<(u64, u64)>,
    /// Share of the offered turns whose message came back.
    pub(crate) answered_share: Option<f64>,
    /// Not back a second after the window.
    pub(crate) undelivered: u64,
    /// Never came back.
    pub(crate) lost: u64,
    /// Of the server, for each datagram in or out.
    pub(crate) calls_per_packet: Option<f64>,
    /// Bytes of datagrams with their headers of UDP and IP, or of streams without any, both ways, for each message there and back.
    pub(crate) bytes_per_echo: f64,
}

impl Round {
    /// Messages there and back per second and percent of a core.
    pub(crate) fn eer(&self) -> f64 {
        self.tps / self.cpu_percent
    }

    /// Messages there and back per CPU second.
    pub(crate) fn per_cpu_second(&self) -> f64 {
        self.eer() * 100.0
    }

    pub(crate) fn is_client_limit(&self) -> bool {
        self.report.limited_by.is_some()
    }
}

/// Makes a row.
///
/// # Errors
///
/// Which messages are nowhere.
pub(crate) fn round_of(subject: Subject, sizes: Sizes, ran: &Ran) -> Result<Round, String> {
    check(subject, ran)?;
    let (tally, seen) = (&ran.outcome.tally, &ran.seen);
    let window_ns = tally.window.end - tally.window.start;
    let (turns, window_s) = (ran.outcome.turns, window_ns as f64 / 1e9);
    let report = report_of(subject, sizes, ran, Duration::from_nanos(window_ns));
    report.check().map_err(|error| error.to_string())?;
    let latency = tally.latency();
    let at = |quantile| latency.value_at_quantile(quantile) as f64;
    let least = if latency.is_empty() { 0.0 } else { latency.min() as f64 };
    let times = [
        least,
        latency.mean(),
        latency.max() as f64,
        at(0.5),
        at(0.75),
        at(0.9),
        at(0.95),
        at(0.99),
        at(0.999),
    ];
    let (cpu_percent, memory) = (seen.core_share() * 100.0, &seen.samples.memory);
    let traffic = seen.traffic;
    let bytes =
        traffic.map_or(seen.stream_bytes, |traffic| traffic.bytes + HEADERS_BYTES * traffic.datagrams());
    Ok(Round {
        subject,
        load: ran.run.load,
        flush: ran.run.flush,
        tps: tally.counts.echoed as f64 / window_s,
        cpu_percent,
        cpu_range: range(&seen.samples.cpu_percent).unwrap_or((cpu_percent, cpu_percent)),
        memory: range(memory).map_or((0.0, 0.0, 0.0), |(least, most)| {
            (least, memory.iter().sum::<f64>() / memory.len() as f64, most)
        }),
        client_percent: seen.client.core_share() * 100.0,
        times,
        window_s,
        echoed: tally.counts.echoed,
        sent: tally.counts.sent,
        offered: turns.map(|turns| turns.offered),
        skipped: turns.map(|turns| (turns.no_room + turns.refused, turns.late)),
        answered_share: turns.map(|turns| {
            turns.sent.saturating_sub(ran.outcome.undelivered) as f64 / turns.offered.max(1) as f64
        }),
        undelivered: ran.outcome.undelivered,
        lost: tally.counts.lost,
        calls_per_packet: traffic.map(|traffic| traffic.calls as f64 / traffic.datagrams().max(1) as f64),
        bytes_per_echo: bytes as f64 / tally.counts.echoed.max(1) as f64,
        report,
    })
}

/// What no books can make good.
fn check(subject: Subject, ran: &Ran) -> Result<(), String> {
    let (tally, served) = (&ran.outcome.tally, &ran.seen.served);
    ran.outcome.turns.map_or(Ok(()), |turns| turns.check())?;
    for (count, what) in [
        (tally.counts.strangers, "messages came back that were not on their way"),
        (tally.counts.refused, "messages found no room at the client"),
        (served.refused, "messages found no room at the server"),
        (served.unexplained, "datagrams are in no counter of the server"),
        (if subject.may_lose() { 0 } else { tally.counts.lost }, "reliable messages never came back"),
    ] {
        if count > 0 {
            return Err(format!("BOOKS DO NOT CLOSE: {count} {what}"));
        }
    }
    Ok(())
}

fn report_of(subject: Subject, sizes: Sizes, ran: &Ran, window: Duration) -> Report {
    let (tally, seen) = (&ran.outcome.tally, &ran.seen);
    // What is lost of a reliable row stays without an explanation, and opens the books.
    let by_kernel = if subject.may_lose() { tally.counts.lost.min(ran.drops) } else { 0 };
    let mut report = Report::of(Counted {
        flags: flags(subject, sizes, ran),
        machine: host::machine(),
        window,
        books: Books::new(tally.counts.out_at_start + tally.counts.sent, tally.counts.echoed)
            .dropped(OUTSTANDING, tally.counts.late)
            .dropped(KERNEL_RECEIVE_QUEUE, by_kernel),
        threads: vec![ThreadCount {
            received: tally.counts.echoed,
            cpu: Some(seen.server.cpu_over(window)),
            ..ThreadCount::default()
        }],
        ..Counted::default()
    });
    report.latency_ns = Latency::of(tally.latency());
    report.offered = ran.outcome.turns.map(|turns| turns.offered);
    // Threads of one server on one core wait for each other; only what others take is a disturbance.
    let server = seen.server.run_delay_share().filter(|_| subject.has_one_thread());
    let client = seen.client.run_delay_share();
    report.run_delay_share = [server, client].into_iter().flatten().reduce(f64::max);
    report.steal_share = seen.steal_share;
    report.limited_by = is_client_limit(ran.outcome.turns, seen.core_share()).then(|| "client".to_owned());
    report.notes.push(format!(
        "the server took {:.0} % of its core, the client {:.0} % of the other",
        seen.core_share() * 100.0,
        seen.client.core_share() * 100.0
    ));
    report.notes.push(format!("{} messages were not back after a second", ran.outcome.undelivered));
    if let Some(turns) = ran.outcome.turns {
        report.notes.push(format!(
            "turns: offered {}, sent {}, left out for want of room {}, because the client had no time {}, refused {}",
            turns.offered, turns.sent, turns.no_room, turns.late, turns.refused
        ));
    }
    if let Some(traffic) = seen.traffic {
        report.notes.push(format!(
            "the server's socket within the window: {} datagrams in, {} out, {} bytes, {} calls",
            traffic.datagrams_received, traffic.datagrams_sent, traffic.bytes, traffic.calls
        ));
    }
    if !seen.served.counts.is_empty() {
        let counts = counts_text(&seen.served.counts);
        report.notes.push(format!("the server from its first datagram to the window's end: {counts}"));
    }
    report
}

/// Whether the client was the limit: of a closed loop when the server rests, of a schedule when turns are late.
fn is_client_limit(turns: Option<Turns>, core_share: f64) -> bool {
    turns.map_or(core_share < SATURATED, |turns| turns.late * LATE_LEAST > turns.offered)
}

fn flags(subject: Subject, sizes: Sizes, ran: &Ran) -> Flags {
    let mut flags = Flags::from([
        ("peer".to_owned(), subject.name().into()),
        ("load".to_owned(), ran.run.load.name().into()),
        ("flush".to_owned(), ran.run.flush.name().into()),
        ("connections".to_owned(), sizes.connections.into()),
        ("size".to_owned(), PAYLOAD_BYTES.into()),
    ]);
    match ran.run.load {
        Load::Echo => flags.insert("echoes".to_owned(), sizes.echoes.into()),
        Load::Rate => {
            flags.insert("send_rate".to_owned(), sizes.rate.into());
            flags.insert("rate".to_owned(), (sizes.rate * sizes.connections as u64).into())
        }
    };
    flags
}

fn range(samples: &[f64]) -> Option<(f64, f64)> {
    Some((samples.iter().copied().reduce(f64::min)?, samples.iter().copied().reduce(f64::max)?))
}
