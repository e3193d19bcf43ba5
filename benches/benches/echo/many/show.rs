//! The tables in the columns of nbio's benchmark, what they leave out in a second one, and the figures beside their goals.

use drumfire_benches::paired::{METHOD, Paired};
use drumfire_benches::{BUSY, Goal, Results, Spread};
use drumfire_crypto::Suite;
use drumfire_tools::table::{Align, TextTable};

use super::line::{OUT_MAX, PAYLOAD_BYTES};
use super::round::Round;
use super::{Load, Subject};
use crate::peer::Peer;
use crate::server::Order;

/// Of what the raw echo delivers in the same run, at least.
const DELIVERED_AES: f64 = 0.8;
const DELIVERED_CHACHA: f64 = 0.7;

/// A raw echo that delivers less of what is offered sets the mark itself.
const ALL: f64 = 0.999;

/// TP99 over TP50, at most.
const TAIL: f64 = 2.0;

/// EER over nbio's, at least.
const OVER_NBIO: f64 = 3.0;

/// Picks a number of a round.
type Pick = fn(&Round) -> f64;

/// A column: its heading, and its cell of the rounds of a row.
type Column = (&'static str, fn(&[&Round]) -> String);

/// Places among the times of a round.
const TP50: usize = 3;
const TP99: usize = 7;

const TIMES: [Column; 9] = [
    ("Min", |rounds| time(rounds, 0)),
    ("Avg", |rounds| time(rounds, 1)),
    ("Max", |rounds| time(rounds, 2)),
    ("TP50", |rounds| time(rounds, TP50)),
    ("TP75", |rounds| time(rounds, 4)),
    ("TP90", |rounds| time(rounds, 5)),
    ("TP95", |rounds| time(rounds, 6)),
    ("TP99", |rounds| time(rounds, TP99)),
    ("TP99.9", |rounds| time(rounds, 8)),
];

/// A column as a figure: what it is, its unit, and where it is.
type EchoCounts = (&'static str, &'static str, fn(&Round) -> Option<f64>);

/// Those of both tables.
const FIGURES: [EchoCounts; 24] = [
    ("TPS", "/s", |round| Some(round.tps)),
    ("EER", "", |round| Some(round.eer())),
    ("Min", "us", |round| Some(round.times[0] / 1e3)),
    ("Avg", "us", |round| Some(round.times[1] / 1e3)),
    ("Max", "us", |round| Some(round.times[2] / 1e3)),
    ("TP50", "us", |round| Some(round.times[TP50] / 1e3)),
    ("TP75", "us", |round| Some(round.times[4] / 1e3)),
    ("TP90", "us", |round| Some(round.times[5] / 1e3)),
    ("TP95", "us", |round| Some(round.times[6] / 1e3)),
    ("TP99", "us", |round| Some(round.times[TP99] / 1e3)),
    ("TP99.9", "us", |round| Some(round.times[8] / 1e3)),
    ("CPU Min", "%", |round| Some(round.cpu_range.0)),
    ("CPU Avg", "%", |round| Some(round.cpu_percent)),
    ("CPU Max", "%", |round| Some(round.cpu_range.1)),
    ("MEM Min", "MiB", |round| Some(round.memory.0 / MIB)),
    ("MEM Avg", "MiB", |round| Some(round.memory.1 / MIB)),
    ("MEM Max", "MiB", |round| Some(round.memory.2 / MIB)),
    ("skipped for want of room", "", |round| Some(round.skipped?.0 as f64)),
    ("skipped because late", "", |round| Some(round.skipped?.1 as f64)),
    ("Failed", "", |round| Some(round.lost as f64)),
    ("calls per packet", "", |round| round.calls_per_packet),
    ("packets per call", "", |round| Some(1.0 / round.calls_per_packet?)),
    ("bytes per echo", "B", |round| Some(round.bytes_per_echo)),
    ("client's CPU", "%", |round| Some(round.client_percent)),
];

const MIB: f64 = 1_048_576.0;

const USE: [Column; 6] = [
    ("CPU Min", |rounds| median(rounds, 2, |round| Some(round.cpu_range.0))),
    ("CPU Avg", |rounds| median(rounds, 2, |round| Some(round.cpu_percent))),
    ("CPU Max", |rounds| median(rounds, 2, |round| Some(round.cpu_range.1))),
    ("MEM Min", |rounds| mib(rounds, |round| round.memory.0)),
    ("MEM Avg", |rounds| mib(rounds, |round| round.memory.1)),
    ("MEM Max", |rounds| mib(rounds, |round| round.memory.2)),
];

/// What the reference does not print.
const MORE: [Column; 8] = [
    ("EER least-most", |rounds| range(rounds, Round::eer)),
    ("per CPU second", |rounds| median(rounds, 0, |round| Some(round.per_cpu_second()))),
    ("calls/packet", |rounds| median(rounds, 3, |round| round.calls_per_packet)),
    ("packets/call", |rounds| median(rounds, 2, |round| round.calls_per_packet.map(|calls| 1.0 / calls))),
    ("bytes/echo", |rounds| median(rounds, 0, |round| Some(round.bytes_per_echo))),
    ("undelivered", |rounds| median(rounds, 0, |round| Some(round.undelivered as f64))),
    ("client CPU", |rounds| median(rounds, 0, |round| Some(round.client_percent))),
    ("", |rounds| words(rounds).join("; ")),
];

/// Both tables of a load.
pub(crate) fn tables(load: Load, rounds: &[Round], missing: &str) -> String {
    let (first, more) = match load {
        Load::Echo => (echo_columns(), MORE.to_vec()),
        Load::Rate => (rate_columns(), [&TIMES[..], &MORE].concat()),
    };
    let legend = format!(
        "  Medians of all rounds. CPU is user and system time of the server's process over the time of the window, in percent of a \
         core; its Min and Max, and MEM,\n  are from samples of one second (of the whole window, if it is shorter). Times are from when a message was to leave. \
         calls/packet: receive and send calls of the server, not its waits, over datagrams in\n  and out. bytes/echo: datagrams \
         with their headers of UDP and IP, or bytes of streams without those of TCP and IP, both ways.{}\n",
        match load {
            Load::Echo => String::new(),
            Load::Rate => format!(
                " A turn is skipped when its connection has {OUT_MAX} messages\n  out (no room), or when the next one came \
                 before it (late)."
            ),
        }
    );
    let legend = format!("{legend}  Flush now over flush at tick, below: {METHOD}.\n");
    let table = |columns: &[Column]| format!("{}\n", table(load, columns, rounds, missing).render());
    format!("{}\n{}{}{legend}", load.name(), table(&first), table(&more))
}

fn echo_columns() -> Vec<Column> {
    let mut columns: Vec<Column> = vec![
        ("TPS", |rounds| median(rounds, 0, |round| Some(round.tps))),
        ("EER", |rounds| median(rounds, 2, |round| Some(round.eer()))),
    ];
    columns.extend(TIMES);
    columns.extend::<[Column; 7]>([
        ("Usage", |rounds| median(rounds, 2, |round| Some(round.window_s)) + "s"),
        ("Total", |rounds| median(rounds, 0, |round| Some((round.echoed + round.lost) as f64))),
        ("Success", |rounds| median(rounds, 0, |round| Some(round.echoed as f64))),
        ("Failed", |rounds| median(rounds, 0, |round| Some(round.lost as f64))),
        ("Conns", connections),
        ("Concurrency", connections),
        ("Payload", |_| PAYLOAD_BYTES.to_string()),
    ]);
    columns.extend(USE);
    columns
}

fn rate_columns() -> Vec<Column> {
    let mut columns: Vec<Column> = vec![
        ("Duration", |rounds| median(rounds, 2, |round| Some(round.window_s)) + "s"),
        ("EchoEER", |rounds| median(rounds, 2, |round| Some(round.eer()))),
        ("Offered", |rounds| median(rounds, 0, |round| round.offered.map(|count| count as f64))),
        ("Skipped no room", |rounds| {
            median(rounds, 0, |round| round.skipped.map(|skipped| skipped.0 as f64))
        }),
        ("late", |rounds| median(rounds, 0, |round| round.skipped.map(|skipped| skipped.1 as f64))),
        ("Packet Sent", |rounds| median(rounds, 0, |round| Some(round.sent as f64))),
        ("Bytes Sent", |rounds| mib(rounds, |round| (round.sent * PAYLOAD_BYTES as u64) as f64)),
        ("Packet Recv", |rounds| median(rounds, 0, |round| Some(round.echoed as f64))),
        ("Bytes Recv", |rounds| mib(rounds, |round| (round.echoed * PAYLOAD_BYTES as u64) as f64)),
        ("Recv/s", |rounds| median(rounds, 0, |round| Some(round.tps))),
        ("Conns", connections),
        ("SendRate", |rounds| flag(rounds, "send_rate")),
        ("Payload", |_| PAYLOAD_BYTES.to_string()),
    ];
    columns.extend(USE);
    columns
}

fn table(load: Load, columns: &[Column], rounds: &[Round], missing: &str) -> TextTable {
    let mut headings = vec![("Framework", Align::Left)];
    headings.extend(
        columns
            .iter()
            .map(|(heading, _)| (*heading, if heading.is_empty() { Align::Left } else { Align::Right })),
    );
    let mut table = TextTable::new(&headings).indented(2);
    for subject in Subject::all() {
        for flush in [Order::FlushAtTick, Order::FlushNow] {
            let of_row = rows(rounds, load, subject, flush);
            if of_row.is_empty() {
                continue;
            }
            let mut cells = vec![row_name(subject, flush)];
            cells.extend(columns.iter().map(|(_, cell)| cell(&of_row)));
            table.row(cells);
        }
    }
    if !missing.is_empty() {
        table.row([Subject::Nbio.name(), missing.to_owned()]);
    }
    table
}

/// What a row is called, here and in the file.
pub(super) fn row_name(subject: Subject, flush: Order) -> String {
    match (subject, flush) {
        (_, Order::FlushNow) => format!("{}, flush now", subject.name()),
        (subject, _) if subject.is_flushed() => format!("{}, flush at tick", subject.name()),
        (subject, _) => subject.name(),
    }
}

fn rows(rounds: &[Round], load: Load, subject: Subject, flush: Order) -> Vec<&Round> {
    let is_of = |round: &&Round| (round.load, round.subject, round.flush) == (load, subject, flush);
    rounds.iter().filter(is_of).collect()
}

/// The columns of a load as figures, medians.
pub(crate) fn columns(load: Load, rounds: &[Round], results: &mut Results) {
    for subject in Subject::all() {
        for flush in [Order::FlushAtTick, Order::FlushNow] {
            let of_row = rows(rounds, load, subject, flush);
            let note = words(&of_row).join("; ");
            for (what, unit, of) in FIGURES {
                let values: Option<Vec<f64>> = of_row.iter().map(|round| of(round)).collect();
                let Some(spread) = values.and_then(Spread::of) else { continue };
                let name = format!("{}: {}: {what}", load.name(), row_name(subject, flush));
                results.spread(name, Some(spread), unit, Goal::Shown, &note);
            }
        }
    }
}

/// The figures of a load beside their goals.
pub(crate) fn figures(load: Load, rounds: &[Round], missing: &str, results: &mut Results) {
    let name = |what: &str| format!("{}: {what}", load.name());
    let tick = |subject| rows(rounds, load, subject, Order::FlushAtTick);
    let (raw, nbio) = (tick(Subject::RAW), tick(Subject::Nbio));
    for subject in Subject::all() {
        let (Some(delivered), ours) = (delivered(subject), tick(subject)) else { continue };
        if ours.is_empty() {
            continue;
        }
        let over = |other: &[&Round], of: Pick| Some(middle(&ours, of)? / middle(other, of)?);
        let note = |other: &[&Round]| {
            let (mut all, others) = (words(&ours), words(other));
            let is_new = |word: &String| !all.contains(word);
            let more: Vec<String> = others.into_iter().filter(is_new).collect();
            all.extend(more);
            all.join("; ")
        };
        let called = |what: &str| name(&format!("{what}, {}", subject.name()));
        let tail = middle(&ours, |round| round.times[TP99]).zip(middle(&ours, |round| round.times[TP50]));
        let tail = tail.map(|(most, half)| most / half);
        results.figure(called("TP99 over TP50"), tail, "x", Goal::AtMost(TAIL), &note(&[]));
        let lost = ours.iter().map(|round| round.undelivered as f64).reduce(f64::max);
        results.figure(called("undelivered after a second"), lost, "", Goal::AtMost(0.0), "");
        if load == Load::Rate {
            let is_enough = middle(&raw, |round| round.answered_share.unwrap_or(0.0)) >= Some(ALL);
            let (what, value, goal) = if is_enough {
                let share = middle(&ours, |round| round.answered_share.unwrap_or(0.0));
                ("delivered over offered", share, Goal::AtLeast(1.0))
            } else {
                ("delivered over raw", over(&raw, |round| round.tps), Goal::AtLeast(delivered))
            };
            results.figure(called(what), value, "x", goal, &note(&raw));
        }
        results.figure(called("EER over raw"), over(&raw, Round::eer), "x", Goal::Shown, &note(&raw));
        let note = if missing.is_empty() { note(&nbio) } else { missing.to_owned() };
        let goal = if subject.is_held_against_nbio() { Goal::AtLeast(OVER_NBIO) } else { Goal::Shown };
        results.figure(called("EER over nbio"), over(&nbio, Round::eer), "x", goal, &note);
    }
    flush_figures(load, rounds, results);
}

/// What it has to deliver of what the floor delivers, at least; nothing is asked of who is not drumfire.
const fn delivered(subject: Subject) -> Option<f64> {
    match subject {
        Subject::Udp(Peer::Drumfire(_, _, Suite::ChaCha20Poly1305)) => Some(DELIVERED_CHACHA),
        Subject::Udp(Peer::Drumfire(..)) => Some(DELIVERED_AES),
        Subject::Udp(Peer::Raw) | Subject::Nbio => None,
    }
}

/// Flush now over flush at tick.
fn flush_figures(load: Load, rounds: &[Round], results: &mut Results) {
    let Some(flushed) = Subject::all().into_iter().find(|subject| subject.is_flushed()) else { return };
    let of = |flush| rows(rounds, load, flushed, flush);
    let (now, tick) = (of(Order::FlushNow), of(Order::FlushAtTick));
    let compared: [(&str, Pick); 4] = [
        ("EER", Round::eer),
        ("messages per second", |round| round.tps),
        ("TP50", |round| round.times[TP50]),
        ("TP99", |round| round.times[TP99]),
    ];
    for (what, of) in compared {
        // Those of one session are a pair.
        let pairs: Vec<(f64, f64)> = now.iter().zip(&tick).map(|(now, tick)| (of(now), of(tick))).collect();
        let paired = Paired::of(&pairs);
        let mut note = paired.map_or_else(String::new, |paired| paired.to_string());
        if now.iter().chain(&tick).any(|round| round.report.is_void()) {
            note = format!("{note}; {BUSY}");
        }
        let name = format!("{}: flush now over flush at tick, {what}", load.name());
        results.figure(name, paired.map(|paired| paired.ratio), "x", Goal::Shown, &note);
    }
}

/// What a reader of a row has to know.
fn words(rounds: &[&Round]) -> Vec<String> {
    let Some(first) = rounds.first() else { return Vec::new() };
    let mut words = Vec::new();
    if rounds.iter().filter(|round| round.is_client_limit()).count() * 2 > rounds.len() {
        words.push(format!("client-limited: {}", row_name(first.subject, first.flush)));
    }
    if rounds.iter().any(|round| round.report.is_void()) {
        words.push(BUSY.to_owned());
    }
    words
}

fn middle(rounds: &[&Round], of: impl Fn(&Round) -> f64) -> Option<f64> {
    Spread::of(rounds.iter().map(|round| of(round))).map(|spread| spread.median)
}

fn median(rounds: &[&Round], digits: usize, of: impl Fn(&Round) -> Option<f64>) -> String {
    let values: Option<Vec<f64>> = rounds.iter().map(|round| of(round)).collect();
    let spread = values.and_then(Spread::of);
    spread.map_or_else(|| "-".to_owned(), |spread| format!("{:.digits$}", spread.median))
}

fn range(rounds: &[&Round], of: impl Fn(&Round) -> f64) -> String {
    let spread = Spread::of(rounds.iter().map(|round| of(round)));
    spread.map_or_else(|| "-".to_owned(), |spread| format!("{:.1}-{:.1}", spread.least, spread.most))
}

fn time(rounds: &[&Round], place: usize) -> String {
    let Some(nanos) = middle(rounds, |round| round.times[place]) else { return "-".to_owned() };
    if nanos < 1e6 { format!("{:.2}us", nanos / 1e3) } else { format!("{:.2}ms", nanos / 1e6) }
}

fn mib(rounds: &[&Round], of: impl Fn(&Round) -> f64) -> String {
    median(rounds, 2, |round| Some(of(round) / MIB)) + "M"
}

fn connections(rounds: &[&Round]) -> String {
    flag(rounds, "connections")
}

fn flag(rounds: &[&Round], name: &str) -> String {
    let value = rounds.first().and_then(|round| round.report.flags.get(name));
    value.map_or_else(|| "-".to_owned(), ToString::to_string)
}
