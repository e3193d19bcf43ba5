//! The goals of each load: ratios of two rows of the same run, taken round by round, and bounds of single rows.
//!
//! Where a goal compares encrypted libraries, both have the same cipher. A ratio that could not be measured is a figure with the reason.

use drumfire_benches::traffic::Shape;
use drumfire_benches::{Goal, Measured, Results, Spread, core_percent, micros, ratio_note};
use drumfire_tools::report::Report;

use crate::loads::Load;
use crate::round::Row;

/// A library with AES-128 and with ChaCha20. An empty name stands for a cipher that is not compared.
type Names = [&'static str; 2];

const DEFAULT: Names = ["drumfire, AES-128", "drumfire, ChaCha20"];
const GATHER_250: Names = ["drumfire, AES-128, 250 us", "drumfire, ChaCha20, 250 us"];
const GATHER_1000: Names = ["drumfire, AES-128, 1 ms", "drumfire, ChaCha20, 1 ms"];
const ENET: Names = ["ENet"; 2];
const QUINN: Names = ["quinn, AES-128", "quinn, ChaCha20"];
const RENET: Names = ["", "renet"];
const GNS: Names = ["GameNetworkingSockets", ""];
const RAW: Names = ["raw mio"; 2];
const RAW_250: Names = ["raw mmsg, 250 us"; 2];
const RAW_1000: Names = ["raw mmsg, 1 ms"; 2];

/// The value that is compared: its name, and how to read it from a round.
type What = (&'static str, fn(&Report) -> Option<f64>);

const CPU: What = ("CPU per message", |round| round.cpu_ns_per_packet);
const P50: What = ("p50", |round| micros(round, |latency| latency.p50));
const P90: What = ("p90", |round| micros(round, |latency| latency.p90));

use Goal::{AtLeast, AtMost};

const RELIABLE: &[bool] = &[true];
const UNRELIABLE: &[bool] = &[false];
const BOTH: &[bool] = &[true, false];

/// A comparison for both ciphers: load, value, ways of delivery, drumfire, and the other library. `AtLeast` is a bound of the other
/// library over drumfire. `AtMost` is a bound of drumfire over the other library.
type Ratio = (&'static str, What, &'static [bool], Names, Names, Goal);

const RATIOS: [Ratio; 29] = [
    ("A", P50, BOTH, DEFAULT, RAW, AtMost(1.3)),
    ("A", P90, BOTH, DEFAULT, RAW, AtMost(1.3)),
    ("B", CPU, BOTH, GATHER_1000, RAW_1000, AtMost(1.4)),
    ("B", CPU, RELIABLE, GATHER_1000, ENET, AtLeast(5.0)),
    ("B", CPU, RELIABLE, GATHER_1000, QUINN, AtLeast(4.0)),
    ("B", CPU, RELIABLE, GATHER_1000, GNS, AtLeast(2.0)),
    ("B", CPU, RELIABLE, GATHER_1000, RENET, AtLeast(8.0)),
    ("B", CPU, BOTH, GATHER_250, RAW_250, AtMost(1.25)),
    ("B", CPU, RELIABLE, GATHER_250, ENET, AtLeast(2.5)),
    ("B", CPU, RELIABLE, GATHER_250, QUINN, AtLeast(1.9)),
    ("B", CPU, RELIABLE, GATHER_250, RENET, AtLeast(3.6)),
    ("B", CPU, RELIABLE, GATHER_250, GNS, AtLeast(1.0)),
    ("B", P50, RELIABLE, GATHER_250, GNS, AtMost(0.25)),
    ("C", CPU, BOTH, DEFAULT, QUINN, AtLeast(1.5)),
    ("C", CPU, RELIABLE, DEFAULT, ENET, AtLeast(2.0)),
    ("C", CPU, RELIABLE, DEFAULT, GNS, AtLeast(2.3)),
    ("C", CPU, RELIABLE, DEFAULT, RENET, AtLeast(3.5)),
    ("D", CPU, BOTH, DEFAULT, QUINN, AtLeast(1.3)),
    ("D", CPU, RELIABLE, DEFAULT, ENET, AtLeast(2.0)),
    ("D", CPU, RELIABLE, DEFAULT, GNS, AtLeast(2.5)),
    ("D", CPU, RELIABLE, DEFAULT, RENET, AtLeast(4.0)),
    ("F", CPU, RELIABLE, DEFAULT, RAW, AtMost(1.35)),
    ("F", CPU, UNRELIABLE, DEFAULT, RAW, AtMost(1.20)),
    ("F", CPU, RELIABLE, DEFAULT, QUINN, AtLeast(2.8)),
    ("F", CPU, RELIABLE, DEFAULT, GNS, AtLeast(2.0)),
    ("F", CPU, RELIABLE, DEFAULT, ENET, AtLeast(1.8)),
    ("F", CPU, RELIABLE, DEFAULT, RENET, AtLeast(4.0)),
    ("S", CPU, UNRELIABLE, DEFAULT, ENET, AtLeast(5.0)),
    ("S", CPU, UNRELIABLE, GATHER_1000, ENET, AtLeast(5.0)),
];

/// The share of a core for 2,000 idle connections, in percent.
const IDLE_CORE_PERCENT: f64 = 0.8;

/// Memory per idle connection.
const IDLE_KIB: f64 = 1.0;

/// A row with its rounds, or the reason why there are none.
struct Outcome<'a> {
    row: &'a Row,
    measured: Result<&'a Measured, String>,
}

/// Adds all figures of a load.
pub(crate) fn figures(load: Load, rows: &[Row], measured: &[Measured], results: &mut Results) {
    let outcomes: Vec<Outcome<'_>> = rows.iter().map(|row| Outcome::of(row, measured)).collect();
    for outcome in &outcomes {
        if load.shape == Shape::IDLE {
            outcome.add_idle(results);
        } else if let Err(why) = &outcome.measured {
            let (delivery, title) = (outcome.row.delivery(), outcome.row.tested.title());
            let name = format!("{}: {}, {delivery}: {title}", load.name, CPU.0);
            results.figure(name, None::<f64>, "ns", Goal::Shown, why);
        }
    }
    for (_, what, deliveries, ours, others, goal) in RATIOS.into_iter().filter(|ratio| ratio.0 == load.name) {
        for is_reliable in deliveries {
            for (ours, other) in ours.into_iter().zip(others).filter(|(_, other)| !other.is_empty()) {
                let of = |name| outcome_of(name, *is_reliable, &outcomes);
                if let (Some(ours), Some(other)) = (of(ours), of(other)) {
                    add_ratio(load, what, (ours, other), goal, results);
                }
            }
        }
    }
}

impl<'a> Outcome<'a> {
    fn of(row: &'a Row, measured: &'a [Measured]) -> Self {
        let name = row.name();
        let failed = |arm: &Measured, line| format!("failed after {} rounds: {line}", arm.rounds.len());
        let measured = match measured.iter().find(|arm| arm.name == name) {
            Some(arm) => arm.failure.as_ref().map_or(Ok(arm), |line| Err(failed(arm, line))),
            None => Err(format!("missing: {}", row.tested.missing.as_deref().unwrap_or_default())),
        };
        Self { row, measured }
    }

    /// Adds share of a core and memory of idle connections.
    fn add_idle(&self, results: &mut Results) {
        let Row { load, tested: library, connections, .. } = self.row;
        let is_ours = library.family == "drumfire";
        let goal = |max| if is_ours { Goal::AtMost(max) } else { Goal::Shown };
        let name = format!("{}: {connections} idle connections, {}", load.name, library.title());
        let note = self.measured.as_ref().map_or_else(String::clone, |arm| {
            format!("keep-alive {}; {}", library.keep_alive, ratio_note(&[arm]))
        });
        let spread =
            |of: fn(&Measured) -> Option<Spread>| self.measured.as_ref().ok().and_then(|arm| of(arm));
        let core = spread(|arm| arm.spread(core_percent));
        results.figure(format!("{name}: core"), core, "%", goal(IDLE_CORE_PERCENT), &note);
        let kib = spread(|arm| arm.value("KiB"));
        results.figure(format!("{name}: memory of each"), kib, "KiB", goal(IDLE_KIB), &note);
    }

    /// The latency, or why there is none.
    fn note(&self) -> Option<String> {
        let name = self.row.tested.name;
        let arm = match &self.measured {
            Ok(arm) => arm,
            Err(why) => return Some(format!("{name}: {why}")),
        };
        let (p50, p99) = (arm.micros(|latency| latency.p50)?, arm.micros(|latency| latency.p99)?);
        Some(format!("{name}: p50 {:.0} us, p99 {:.0} us", p50.median, p99.median))
    }
}

/// The outcome of a library. Plain UDP has unreliable messages only, and reliable ones are compared with them too.
fn outcome_of<'a, 'b>(name: &str, is_reliable: bool, outcomes: &'b [Outcome<'a>]) -> Option<&'b Outcome<'a>> {
    let of_library = || outcomes.iter().filter(|outcome| outcome.row.tested.name == name);
    of_library().find(|outcome| outcome.row.setup.is_reliable == is_reliable).or_else(|| of_library().next())
}

fn add_ratio(
    load: Load,
    what: What,
    (ours, other): (&Outcome<'_>, &Outcome<'_>),
    goal: Goal,
    results: &mut Results,
) {
    let is_theirs_over_ours = matches!(goal, AtLeast(_));
    let (over, under) = if is_theirs_over_ours { (other, ours) } else { (ours, other) };
    let titles = format!("{} over {}", over.row.tested.title(), under.row.tested.title());
    let name = format!("{}: {}, {}: {titles}", load.name, what.0, ours.row.delivery());
    let mut words: Vec<String> = [ours, other].into_iter().filter_map(Outcome::note).collect();
    let mut spread = None;
    if let (Ok(over), Ok(under)) = (&over.measured, &under.measured) {
        spread = over.over(under, |report| (what.1)(report));
        words.extend(Some(ratio_note(&[over, under])).filter(|note| !note.is_empty()));
    }
    results.figure(name, spread, "x", goal, &words.join("; "));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{adapter, rows_of};
    use drumfire_benches::Extent;

    fn rows(load: Load) -> Vec<Row> {
        let libraries = adapter::all().leak();
        let rounds = load.rounds(Extent::Default);
        libraries.iter().flat_map(|library| rows_of(load, library, &rounds)).collect()
    }

    #[test]
    fn each_ratio_compares_rows_that_exist() {
        for (load, _, _, ours, others, _) in RATIOS {
            let load = Load::named(load).expect("a load");
            let rows = rows(load);
            let outcomes: Vec<Outcome<'_>> = rows.iter().map(|row| Outcome::of(row, &[])).collect();
            for name in ours.into_iter().chain(others).filter(|name| !name.is_empty()) {
                assert!(outcome_of(name, true, &outcomes).is_some(), "{}: {name}", load.name);
            }
        }
    }

    #[test]
    fn a_missing_library_is_a_figure_with_the_reason() {
        let load = Load::named("F").expect("a load");
        let mut results = Results::new("peers", Extent::Quick, &[], None);
        let failed = |row: &Row| Measured {
            name: row.name(),
            failure: Some("no instructions".to_owned()),
            ..Measured::default()
        };
        let rows = rows(load);
        let measured: Vec<Measured> = rows.iter().map(failed).collect();
        figures(load, &rows, &measured, &mut results);
        let table = results.table();
        let figures = table.lines().filter(|line| line.contains("failed after 0 rounds: no instructions"));
        assert!(figures.count() > 10, "{table}");
    }
}
