//! The tables, in the columns of nbio's benchmark for its loads, and the figures with their goals.

use drumfire_benches::traffic::Shape;
use drumfire_benches::{ArmTable, Bench, Goal, Measured, Results, Spread, ratio_note};
use drumfire_crypto::Suite;

use crate::subject::{Subject, default_suite};

/// The goal for delivered messages over those of plain UDP: at least this.
const DELIVERED_AES: f64 = 0.8;
const DELIVERED_CHACHA: f64 = 0.7;

/// Where plain UDP delivers this share of the offered messages, drumfire must deliver all of it.
const ALL: f64 = 0.999;

/// The goal for TP99 over TP50: at most this.
const TAIL: f64 = 2.0;

/// The goal for EER over nbio's: at least this.
const OVER_NBIO: f64 = 3.0;

/// The columns of nbio's BenchEcho and BenchRate. The second has also the offered turns and the skipped ones. A turn is skipped when its
/// connection has too many outstanding messages, or when its next turn is due (late).
const OF_ECHO: &str = "TPS|EER|Min|Avg|Max|TP50|TP75|TP90|TP95|TP99|TP99.9|Usage|Total|Success|Failed|Conns|Concurrency|Payload";
const OF_RATE: &str = "Duration|EchoEER|Offered|skipped because full|skipped because late|Packet Sent|Bytes Sent|Packet Recv|\
                       Bytes Recv|Recv/s|Conns|SendRate|Payload";
/// CPU is that of the server's process over the window, in percent of a core. Its Min and Max, and MEM, are samples of one second.
const OF_BOTH: &str = "CPU Min|CPU Avg|CPU Max|MEM Min|MEM Avg|MEM Max";

/// The columns that nbio's benchmark does not have.
const MORE: &str = "TP50|TP99|TP99.9|undelivered|client's CPU";

/// The subjects of a part with their rounds.
pub(crate) struct Rows {
    /// The name of the part.
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
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

/// The cell of a value in a table, as nbio's benchmark formats it.
fn text(name: &str, spread: Option<Spread>) -> String {
    let Some(value) = spread.map(|spread| spread.median) else { return "-".to_owned() };
    match name {
        "TPS" => format!("{value:.0}"),
        "Min" | "Avg" | "Max" if value < 1e3 => format!("{value:.2}us"),
        "Min" | "Avg" | "Max" => format!("{:.2}ms", value / 1e3),
        _ if name.starts_with("TP") && value < 1e3 => format!("{value:.2}us"),
        _ if name.starts_with("TP") => format!("{:.2}ms", value / 1e3),
        "Bytes Sent" | "Bytes Recv" => format!("{value:.2}M"),
        _ if name.starts_with("MEM") => format!("{value:.2}M"),
        "Usage" | "Duration" => format!("{value:.2}s"),
        "EER" | "EchoEER" => format!("{value:.2}"),
        _ if name.contains("CPU") => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

fn median(arm: &Measured, name: &str) -> Option<f64> {
    arm.value(name).map(|spread| spread.median)
}

/// Shows the tables of a load, and adds its figures.
pub(crate) fn show(rows: &Rows, bench: &mut Bench) {
    let columns = if matches!(rows.shape, Shape::Closed { .. }) { OF_ECHO } else { OF_RATE };
    for names in [[columns, OF_BOTH].join("|").as_str(), MORE] {
        let mut table = ArmTable::new("Framework", &rows.measured);
        for name in names.split('|') {
            table = table.column(name, |arm| text(name, arm.value(name)));
        }
        table.print_with_limits();
    }
    let results = &mut bench.results;
    for (subject, arm) in rows.iter() {
        for (what, unit) in [("TPS", "/s"), ("EER", "")] {
            let name = format!("{}: {}: {what}", rows.name, subject.name());
            results.figure(name, arm.value(what), unit, Goal::Shown, &ratio_note(&[arm]));
        }
    }
    for (subject, arm) in rows.iter() {
        if let Subject::Drumfire(suite) = subject {
            goals(rows, suite, arm, results);
        }
    }
}

/// Adds the figures of one row with their goals.
fn goals(rows: &Rows, suite: Suite, ours: &Measured, results: &mut Results) {
    let (raw, nbio) = (rows.of(Subject::Raw), rows.of(Subject::Nbio));
    let named = |what: &str| format!("{}: {what}, {}", rows.name, ours.name);
    let ratio = |other: Option<&Measured>, what| Some(median(ours, what)? / median(other?, what)?);
    let note =
        |other: Option<&Measured>| ratio_note(&[Some(ours), other].into_iter().flatten().collect::<Vec<_>>());
    let tail = median(ours, "TP99").zip(median(ours, "TP50")).map(|(tail, half)| tail / half);
    results.figure(named("TP99 over TP50"), tail, "x", Goal::AtMost(TAIL), &note(None));
    let undelivered = ours.value("undelivered").map(|spread| spread.max);
    results.figure(named("undelivered after a second"), undelivered, "", Goal::AtMost(0.0), "");
    if matches!(rows.shape, Shape::Open { .. }) {
        let is_enough = raw.and_then(|raw| median(raw, "answered")).is_some_and(|share| share >= ALL);
        let delivered = if suite == Suite::ChaCha20Poly1305 { DELIVERED_CHACHA } else { DELIVERED_AES };
        let (what, value, goal) = if is_enough {
            ("delivered over offered", median(ours, "answered"), Goal::AtLeast(1.0))
        } else {
            ("delivered over raw", ratio(raw, "TPS"), Goal::AtLeast(delivered))
        };
        results.figure(named(what), value, "x", goal, &note(raw));
    }
    let goal = if suite == default_suite() { Goal::AtLeast(OVER_NBIO) } else { Goal::Shown };
    let note = rows.missing.clone().unwrap_or_else(|| note(nbio));
    results.figure(named("EER over nbio"), ratio(nbio, "EER"), "x", goal, &note);
}
