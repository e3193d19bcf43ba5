//! The tables, in the columns of nbio's benchmark for its loads, and the figures with their goals.

use drumfire_benches::paired::{METHOD, Paired};
use drumfire_benches::traffic::{Shape, TURN_OUTSTANDING_MAX};
use drumfire_benches::{
    Bench, Column, Goal, Measured, PER_SOCKET, Pick, Results, Spread, cell, column, median_cell, micros,
    print_table, ratio_note,
};
use drumfire_crypto::Suite;
use drumfire_tools::report::Report;

use crate::round::{CONNECT_TIMES, Load, RAMP_PER_SECOND};
use crate::subject::{Flush, Io, Mode, Subject, default_suite};

/// CPU per message over plain UDP in F, at most.
const F_RELIABLE: f64 = 1.35;
const F_UNRELIABLE: f64 = 1.2;

/// Latency over plain UDP in A, at most.
const A_LATENCY: f64 = 1.3;

/// Messages delivered over those of plain UDP, at least.
const DELIVERED_AES: f64 = 0.8;
const DELIVERED_CHACHA: f64 = 0.7;

/// Where plain UDP delivers this share of what is offered, drumfire must deliver all of it.
const ALL: f64 = 0.999;

/// TP99 over TP50, at most.
const TAIL: f64 = 2.0;

/// EER over nbio's, at least.
const OVER_NBIO: f64 = 3.0;

/// One number of a round.
type Number = fn(&Report) -> Option<f64>;

const TIMES: [(&str, Pick); 4] = [
    ("p50", |latency| latency.p50),
    ("p90", |latency| latency.p90),
    ("p99", |latency| latency.p99),
    ("p99.9", |latency| latency.p999),
];

/// The values that are figures, and their units.
const FIGURES: [(&str, &str); 24] = [
    ("TPS", "/s"),
    ("EER", ""),
    ("Min", "us"),
    ("Avg", "us"),
    ("Max", "us"),
    ("TP50", "us"),
    ("TP75", "us"),
    ("TP90", "us"),
    ("TP95", "us"),
    ("TP99", "us"),
    ("TP99.9", "us"),
    ("CPU Min", "%"),
    ("CPU Avg", "%"),
    ("CPU Max", "%"),
    ("MEM Min", "MiB"),
    ("MEM Avg", "MiB"),
    ("MEM Max", "MiB"),
    ("skipped for want of room", ""),
    ("skipped because late", ""),
    ("Failed", ""),
    ("calls per packet", ""),
    ("packets per call", ""),
    ("bytes per echo", "B"),
    ("client's CPU", "%"),
];

/// The columns of nbio's BenchEcho and BenchRate. The offered turns and the skipped ones are added to the second.
const OF_ECHO: &str = "TPS|EER|Min|Avg|Max|TP50|TP75|TP90|TP95|TP99|TP99.9|Usage|Total|Success|Failed|Conns|Concurrency|Payload";
const OF_RATE: &str = "Duration|EchoEER|Offered|skipped for want of room|skipped because late|Packet Sent|Bytes Sent|Packet Recv|\
                       Bytes Recv|Recv/s|Conns|SendRate|Payload";
const OF_BOTH: &str = "CPU Min|CPU Avg|CPU Max|MEM Min|MEM Avg|MEM Max";

/// The columns that nbio's benchmark does not have.
const MORE: &str = "per CPU second|calls per packet|packets per call|bytes per echo|undelivered|client's CPU";
const MORE_OF_RATE: &str = "Min|Avg|Max|TP50|TP75|TP90|TP95|TP99|TP99.9";

/// The subjects of a part with their rounds.
pub(crate) struct Rows {
    pub(crate) subjects: Vec<Subject>,
    pub(crate) measured: Vec<Measured>,
    /// The reason why nbio is not among them.
    pub(crate) missing: Option<String>,
}

impl Rows {
    fn iter(&self) -> impl Iterator<Item = (Subject, &Measured)> {
        self.subjects.iter().copied().zip(&self.measured)
    }

    fn of(&self, subject: Subject) -> Option<&Measured> {
        self.iter().find(|(of, _)| *of == subject).map(|(_, measured)| measured)
    }
}

/// The cell of a value in a table, with its unit.
fn text(name: &str, spread: Option<Spread>) -> String {
    let Some(value) = spread.map(|spread| spread.median) else { return "-".to_owned() };
    let unit = FIGURES.iter().find(|(known, _)| *known == name).map_or("", |(_, unit)| unit);
    match (name, unit) {
        (_, "us") if value < 1e3 => format!("{value:.2}us"),
        (_, "us") => format!("{:.2}ms", value / 1e3),
        (_, "MiB") | ("Bytes Sent" | "Bytes Recv", _) => format!("{value:.2}M"),
        ("Usage" | "Duration", _) => format!("{value:.2}s"),
        (_, "%") | ("EER" | "EchoEER" | "packets per call", _) => format!("{value:.2}"),
        ("calls per packet", _) => format!("{value:.3}"),
        _ => format!("{value:.0}"),
    }
}

fn median(arm: &Measured, name: &str) -> Option<f64> {
    arm.value(name).map(|spread| spread.median)
}

/// Shows F or A.
pub(crate) fn game(load: Load, rows: &Rows, bench: &mut Bench) {
    let is_closed = matches!(load.shape, Shape::Closed { .. });
    let how = if is_closed { "closed loop" } else { "at fixed times; latency from the intended send time" };
    println!("  {} connections, {} B, {how}", load.connections, load.bytes);
    let mut columns = vec![
        column("messages/s", |arm| median_cell(arm.pps(), 0)),
        column("CPU ns/message", |arm| cell(arm.cpu_ns(), 0)),
    ];
    let headings = ["p50 us", "p90 us", "p99 us", "p99.9 us"].into_iter().zip(TIMES);
    columns.extend(headings.map(|(heading, (_, pick))| {
        column(heading, move |arm| median_cell(arm.spread(|report| micros(report, pick)), 0))
    }));
    columns.extend([
        column("core %", |arm| median_cell(arm.value("CPU Avg"), 0)),
        column("client's %", |arm| median_cell(arm.value("client's CPU"), 0)),
        column("RSS MiB", |arm| median_cell(arm.value("MEM Max"), 1)),
        column("lost", |arm| format!("{:.0}", arm.sum("Failed"))),
    ]);
    print_table("peer", &rows.measured, &columns);
    let Some(raw) = rows.of(Subject::Raw) else { return };
    for (subject, ours) in rows.iter() {
        let Subject::Drumfire(mode) = subject else { continue };
        let note = ratio_note(&[ours, raw]);
        let mut figure = |what: &str, number: &dyn Fn(&Report) -> Option<f64>, goal| {
            let pairs = ours.rounds.iter().zip(&raw.rounds);
            let ratios: Option<Vec<f64>> =
                pairs.map(|(ours, raw)| Some(number(ours)? / number(raw)?)).collect();
            let name = format!("{}: {what} over raw, {}", load.name, subject.name());
            bench.results.spread(name, ratios.and_then(Spread::of), "x", goal, &note);
        };
        // A worker that passes messages to another thread has no goal, because plain UDP answers where it reads.
        let goal = match mode.io {
            Io::Inline | Io::Handler if is_closed && mode.is_reliable => Goal::AtMost(F_RELIABLE),
            Io::Inline | Io::Handler if is_closed => Goal::AtMost(F_UNRELIABLE),
            _ => Goal::Shown,
        };
        figure("CPU per message", &|report| report.cpu_ns_per_packet, goal);
        for (time, pick) in TIMES.into_iter().filter(|_| !is_closed) {
            let has_goal = mode.io == Io::Handler && matches!(time, "p50" | "p90");
            let goal = if has_goal { Goal::AtMost(A_LATENCY) } else { Goal::Shown };
            figure(time, &|report| micros(report, pick), goal);
        }
    }
}

/// Shows a load of nbio's benchmark.
pub(crate) fn nbio(load: Load, rows: &Rows, bench: &mut Bench) {
    let results = &mut bench.results;
    let tables = if matches!(load.shape, Shape::Closed { .. }) {
        connections(load, rows, results);
        [[OF_ECHO, OF_BOTH].join("|"), MORE.to_owned()]
    } else {
        [[OF_RATE, OF_BOTH].join("|"), [MORE_OF_RATE, MORE].join("|")]
    };
    for names in tables {
        let columns: Vec<Column<'_>> =
            names.split('|').map(|name| column(name, move |arm| text(name, arm.value(name)))).collect();
        print_table("Framework", &rows.measured, &columns);
    }
    println!(
        "  CPU is that of the server's process over the window, in percent of a core. Its Min and Max, and MEM, are samples of one\n  \
         second. Calls are the server's receive and send calls, and packets are datagrams in and out. Bytes per echo include headers\n  \
         of UDP and IP, but not of TCP. A turn is skipped when its connection has {TURN_OUTSTANDING_MAX} outstanding messages, or\n  \
         when the next turn came first (late). Flush now over flush at tick, below: {METHOD}."
    );
    for (subject, arm) in rows.iter() {
        for (what, unit) in FIGURES {
            let Some(spread) = arm.value(what) else { continue };
            let name = format!("{}: {}: {what}", load.name, subject.row());
            results.spread(name, Some(spread), unit, Goal::Shown, &ratio_note(&[arm]));
        }
    }
    for (subject, arm) in rows.iter() {
        if let Subject::Drumfire(mode) = subject
            && mode.flush != Flush::Now
        {
            goals(load, rows, (mode, arm), results);
        }
    }
    flush_figures(load, rows, results);
}

/// Shows how connections were made, in the columns of nbio's benchmark.
fn connections(load: Load, rows: &Rows, results: &mut Results) {
    let millis = |arm: &Measured, name| median_cell(arm.value(name), 2) + "ms";
    let mut columns = vec![
        column("TPS", |arm| median_cell(arm.value("connect TPS"), 0)),
        column("Avg", move |arm| millis(arm, "connect Avg")),
    ];
    let headings = CONNECT_TIMES.map(|(name, _)| (name, name.trim_start_matches("connect ")));
    columns.extend(headings.map(|(name, heading)| column(heading, move |arm| millis(arm, name))));
    columns.extend([
        column("Usage", |arm| median_cell(arm.value("connect Usage"), 2) + "s"),
        column("Total", move |_| load.connections.to_string()),
        column("Success", move |_| load.connections.to_string()),
        // A connection that cannot be made ends the part.
        column("Failed", |_| "0".to_owned()),
    ]);
    print_table("Connections", &rows.measured, &columns);
    println!(
        "  Times are those of {PER_SOCKET} connections on one socket. Plain datagrams need no connection. drumfire's clients begin \
         {RAMP_PER_SECOND} per\n  second, because a server accepts 2,000. nbio's begin one after the other.\n"
    );
    for (subject, arm) in rows.iter() {
        if matches!(subject, Subject::Drumfire(Mode { flush: Flush::Now, .. })) {
            continue;
        }
        let named = |heading: &str| format!("Connections: {}: {heading}", subject.name());
        for (name, heading) in headings {
            results.figure(named(heading), median(arm, name), "ms", Goal::Shown, "");
        }
        results.figure(named("TPS"), median(arm, "connect TPS"), "/s", Goal::Shown, "");
    }
}

/// Adds the figures of one row with their goals.
fn goals(load: Load, rows: &Rows, (mode, ours): (Mode, &Measured), results: &mut Results) {
    let (raw, nbio) = (rows.of(Subject::Raw), rows.of(Subject::Nbio));
    let named = |what: &str| format!("{}: {what}, {}", load.name, Subject::Drumfire(mode).name());
    let ratio = |other: Option<&Measured>, what| Some(median(ours, what)? / median(other?, what)?);
    let note =
        |other: Option<&Measured>| ratio_note(&[Some(ours), other].into_iter().flatten().collect::<Vec<_>>());
    let tail = median(ours, "TP99").zip(median(ours, "TP50")).map(|(most, half)| most / half);
    results.figure(named("TP99 over TP50"), tail, "x", Goal::AtMost(TAIL), &note(None));
    let undelivered = ours.value("undelivered").map(|spread| spread.most);
    results.figure(named("undelivered after a second"), undelivered, "", Goal::AtMost(0.0), "");
    if matches!(load.shape, Shape::Open { .. }) {
        let is_enough = raw.and_then(|raw| median(raw, "answered")).is_some_and(|share| share >= ALL);
        let delivered = if mode.suite == Suite::ChaCha20Poly1305 { DELIVERED_CHACHA } else { DELIVERED_AES };
        let (what, value, goal) = if is_enough {
            ("delivered over offered", median(ours, "answered"), Goal::AtLeast(1.0))
        } else {
            ("delivered over raw", ratio(raw, "TPS"), Goal::AtLeast(delivered))
        };
        results.figure(named(what), value, "x", goal, &note(raw));
    }
    results.figure(named("EER over raw"), ratio(raw, "EER"), "x", Goal::Shown, &note(raw));
    // The row with the default suite that answers as nbio's server does.
    let has_goal = mode.io == Io::Gathered && mode.suite == default_suite();
    let goal = if has_goal { Goal::AtLeast(OVER_NBIO) } else { Goal::Shown };
    let note = rows.missing.clone().unwrap_or_else(|| note(nbio));
    results.figure(named("EER over nbio"), ratio(nbio, "EER"), "x", goal, &note);
}

/// Compares flushing each answer with flushing after each poll. Rounds that followed each other are a pair.
fn flush_figures(load: Load, rows: &Rows, results: &mut Results) {
    let flushed = |flush| {
        let is_flushed = |subject: Subject| matches!(subject, Subject::Drumfire(mode) if mode.flush == flush);
        rows.iter().find(|(subject, _)| is_flushed(*subject)).map(|(_, arm)| arm)
    };
    let (Some(now), Some(tick)) = (flushed(Flush::Now), flushed(Flush::AtTick)) else { return };
    let compared: [(&str, Number); 4] = [
        // Messages per second and percent of a core.
        ("EER", |report| Some(1e7 / report.cpu_ns_per_packet?)),
        ("messages per second", |report| Some(report.pps)),
        ("TP50", |report| micros(report, |latency| latency.p50)),
        ("TP99", |report| micros(report, |latency| latency.p99)),
    ];
    for (what, number) in compared {
        let pairs = now.rounds.iter().zip(&tick.rounds);
        let pairs: Option<Vec<(f64, f64)>> =
            pairs.map(|(now, tick)| Some((number(now)?, number(tick)?))).collect();
        let paired = Paired::of(&pairs.unwrap_or_default());
        let words = [paired.map_or_else(String::new, |paired| paired.to_string()), ratio_note(&[now, tick])];
        let note = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join("; ");
        let name = format!("{}: flush now over flush at tick, {what}", load.name);
        results.figure(name, paired.map(|paired| paired.ratio), "x", Goal::Shown, &note);
    }
}
