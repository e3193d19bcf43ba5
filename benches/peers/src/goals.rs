//! The goals of each load: ratios of two rows of the same run, taken round by round, and bounds of single rows.
//!
//! Where a goal compares encrypted libraries, both have the same cipher. A ratio that could not be measured is a figure with the reason.

use drumfire_benches::traffic::Shape;
use drumfire_benches::{Goal, Measured, Results, Spread, micros, ratio_note};
use drumfire_tools::report::Report;

use crate::loads::Load;
use crate::round::Row;
use crate::why_missing;

const AES: &str = "drumfire, AES-128";
const CHACHA: &str = "drumfire, ChaCha20";
const AES_250: &str = "drumfire, AES-128, 250 us";
const CHACHA_250: &str = "drumfire, ChaCha20, 250 us";
const AES_1000: &str = "drumfire, AES-128, 1 ms";
const CHACHA_1000: &str = "drumfire, ChaCha20, 1 ms";

/// The C library, or the same transpiled to Rust where the C library is missing.
const ENET: &[&str] = &["ENet", "ENet in Rust"];
/// A library that was left out of the build has one name for all its settings.
const QUINN_AES: &[&str] = &["quinn, AES-128", "quinn"];
const QUINN_CHACHA: &[&str] = &["quinn, ChaCha20", "quinn"];
const RENET: &[&str] = &["renet"];
const GNS: &[&str] = &["GameNetworkingSockets"];
const RAW: &[&str] = &["raw mio"];
const RAW_250: &[&str] = &["raw mmsg, 250 us"];
const RAW_1000: &[&str] = &["raw mmsg, 1 ms"];

/// The value that is compared: its name, and how to read it from a round.
type What = (&'static str, fn(&Report) -> Option<f64>);

const CPU: What = ("CPU per message", |round| round.cpu_ns_per_packet);
const P50: What = ("p50", |round| micros(round, |latency| latency.p50));
const P90: What = ("p90", |round| micros(round, |latency| latency.p90));
const P99: What = ("p99", |round| micros(round, |latency| latency.p99));
const P999: What = ("p99.9", |round| micros(round, |latency| latency.p999));

use Goal::{AtLeast, AtMost, Shown};

const RELIABLE: bool = true;
const UNRELIABLE: bool = false;

/// A comparison: load, value, delivery, drumfire, and the other library, which is the first of its names that was measured. `AtLeast`
/// is a bound of the other library over drumfire. The other goals are bounds of drumfire over the other library.
type Ratio = (&'static str, What, bool, &'static str, &'static [&'static str], Goal);

#[rustfmt::skip]
const RATIOS: &[Ratio] = &[
    ("A", P50, RELIABLE, AES, RAW, AtMost(1.3)),
    ("A", P90, RELIABLE, AES, RAW, AtMost(1.3)),
    ("A", P99, RELIABLE, AES, RAW, Shown),
    ("A", P999, RELIABLE, AES, RAW, Shown),
    ("A", P50, RELIABLE, CHACHA, RAW, AtMost(1.3)),
    ("A", P90, RELIABLE, CHACHA, RAW, AtMost(1.3)),
    ("A", P99, RELIABLE, CHACHA, RAW, Shown),
    ("A", P999, RELIABLE, CHACHA, RAW, Shown),
    ("B", CPU, UNRELIABLE, AES_1000, RAW_1000, AtMost(1.4)),
    ("B", CPU, UNRELIABLE, CHACHA_1000, RAW_1000, AtMost(1.4)),
    ("B", CPU, RELIABLE, AES_1000, RAW_1000, AtMost(1.4)),
    ("B", CPU, RELIABLE, CHACHA_1000, RAW_1000, AtMost(1.4)),
    ("B", CPU, RELIABLE, AES_1000, ENET, AtLeast(5.0)),
    ("B", CPU, RELIABLE, CHACHA_1000, ENET, AtLeast(5.0)),
    ("B", CPU, RELIABLE, AES_1000, QUINN_AES, AtLeast(4.0)),
    ("B", CPU, RELIABLE, CHACHA_1000, QUINN_CHACHA, AtLeast(4.0)),
    ("B", CPU, RELIABLE, AES_1000, GNS, AtLeast(2.0)),
    ("B", CPU, RELIABLE, CHACHA_1000, RENET, AtLeast(8.0)),
    ("B", CPU, UNRELIABLE, AES_250, RAW_250, AtMost(1.25)),
    ("B", CPU, UNRELIABLE, CHACHA_250, RAW_250, AtMost(1.25)),
    ("B", CPU, RELIABLE, AES_250, RAW_250, AtMost(1.25)),
    ("B", CPU, RELIABLE, CHACHA_250, RAW_250, AtMost(1.25)),
    ("B", CPU, RELIABLE, AES_250, ENET, AtLeast(2.5)),
    ("B", CPU, RELIABLE, CHACHA_250, ENET, AtLeast(2.5)),
    ("B", CPU, RELIABLE, AES_250, QUINN_AES, AtLeast(1.9)),
    ("B", CPU, RELIABLE, CHACHA_250, QUINN_CHACHA, AtLeast(1.9)),
    ("B", CPU, RELIABLE, CHACHA_250, RENET, AtLeast(3.6)),
    ("B", CPU, RELIABLE, AES_250, GNS, AtLeast(1.0)),
    ("B", P50, RELIABLE, AES_250, GNS, AtMost(0.25)),
    ("C", CPU, RELIABLE, AES, QUINN_AES, AtLeast(1.5)),
    ("C", CPU, UNRELIABLE, AES, QUINN_AES, AtLeast(1.5)),
    ("C", CPU, RELIABLE, CHACHA, QUINN_CHACHA, AtLeast(1.5)),
    ("C", CPU, UNRELIABLE, CHACHA, QUINN_CHACHA, AtLeast(1.5)),
    ("C", CPU, RELIABLE, AES, ENET, AtLeast(2.0)),
    ("C", CPU, RELIABLE, CHACHA, ENET, AtLeast(2.0)),
    ("C", CPU, RELIABLE, AES, GNS, AtLeast(2.3)),
    ("C", CPU, RELIABLE, CHACHA, RENET, AtLeast(3.5)),
    ("D", CPU, RELIABLE, AES, QUINN_AES, AtLeast(1.3)),
    ("D", CPU, UNRELIABLE, AES, QUINN_AES, AtLeast(1.3)),
    ("D", CPU, RELIABLE, CHACHA, QUINN_CHACHA, AtLeast(1.3)),
    ("D", CPU, UNRELIABLE, CHACHA, QUINN_CHACHA, AtLeast(1.3)),
    ("D", CPU, RELIABLE, AES, ENET, AtLeast(2.0)),
    ("D", CPU, RELIABLE, CHACHA, ENET, AtLeast(2.0)),
    ("D", CPU, RELIABLE, AES, GNS, AtLeast(2.5)),
    ("D", CPU, RELIABLE, CHACHA, RENET, AtLeast(4.0)),
    ("F", CPU, RELIABLE, AES, RAW, AtMost(1.35)),
    ("F", CPU, UNRELIABLE, AES, RAW, AtMost(1.20)),
    ("F", CPU, RELIABLE, CHACHA, RAW, AtMost(1.35)),
    ("F", CPU, UNRELIABLE, CHACHA, RAW, AtMost(1.20)),
    ("F", CPU, RELIABLE, AES, QUINN_AES, AtLeast(2.8)),
    ("F", CPU, RELIABLE, CHACHA, QUINN_CHACHA, AtLeast(2.8)),
    ("F", CPU, RELIABLE, AES, GNS, AtLeast(2.0)),
    ("F", CPU, RELIABLE, AES, ENET, AtLeast(1.8)),
    ("F", CPU, RELIABLE, CHACHA, ENET, AtLeast(1.8)),
    ("F", CPU, RELIABLE, CHACHA, RENET, AtLeast(4.0)),
    ("S", CPU, UNRELIABLE, AES, ENET, AtLeast(5.0)),
    ("S", CPU, UNRELIABLE, CHACHA, ENET, AtLeast(5.0)),
    ("S", CPU, UNRELIABLE, AES_1000, ENET, AtLeast(5.0)),
    ("S", CPU, UNRELIABLE, CHACHA_1000, ENET, AtLeast(5.0)),
    ("S", CPU, UNRELIABLE, AES, RAW, Shown),
    ("S", CPU, UNRELIABLE, AES_1000, RAW_1000, Shown),
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
    let outcomes: Vec<Outcome<'_>> = rows.iter().map(|row| Outcome::of(load, row, measured)).collect();
    for outcome in &outcomes {
        if load.shape == Shape::Idle {
            outcome.add_idle(results);
        } else if let Err(why) = &outcome.measured {
            let (delivery, title) = (outcome.row.delivery(), outcome.row.tested.title());
            let name = format!("{}: {}, {delivery}: {title}", load.name, CPU.0);
            results.figure(name, None, "ns", Goal::Shown, why);
        }
    }
    for ratio in RATIOS.iter().filter(|ratio| ratio.0 == load.name) {
        add_ratio(ratio, &outcomes, results);
    }
}

impl<'a> Outcome<'a> {
    fn of(load: Load, row: &'a Row, measured: &'a [Measured]) -> Self {
        let name = row.name();
        let failed = |arm: &Measured, line| format!("failed after {} rounds: {line}", arm.rounds.len());
        let measured = match measured.iter().find(|arm| arm.name == name) {
            Some(arm) => arm.failure.as_ref().map_or(Ok(arm), |line| Err(failed(arm, line))),
            None => Err(format!("missing: {}", why_missing(load, row.tested).unwrap_or_default())),
        };
        Self { row, measured }
    }

    /// Adds share of a core and memory of idle connections.
    fn add_idle(&self, results: &mut Results) {
        let Row { load, tested: library, connections, .. } = self.row;
        let is_ours = library.family == "drumfire";
        let goal = |most| if is_ours { Goal::AtMost(most) } else { Goal::Shown };
        let name = format!("{}: {connections} idle connections, {}", load.name, library.title());
        let note = self.measured.as_ref().map_or_else(String::clone, |arm| {
            let words = [format!("keep-alive {}", library.keep_alive), ratio_note(&[arm])];
            words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join("; ")
        });
        let median = |of: fn(&Measured) -> Option<Spread>| {
            self.measured.as_ref().ok().and_then(|arm| of(arm)).map(|spread| spread.median)
        };
        let core = median(Measured::core_percent);
        results.figure(format!("{name}: core"), core, "%", goal(IDLE_CORE_PERCENT), &note);
        let kib = median(|arm| arm.value("KiB"));
        results.figure(format!("{name}: memory of each"), kib, "KiB", goal(IDLE_KIB), &note);
    }

    /// The latency, or why there is none.
    fn note(&self) -> Option<String> {
        let name = self.row.tested.name;
        let arm = match &self.measured {
            Ok(arm) => arm,
            Err(why) => return Some(format!("{name}: {why}")),
        };
        let time = |pick| Some(arm.spread(|report| micros(report, pick))?.median);
        let (p50, p99) = (time(|latency| latency.p50)?, time(|latency| latency.p99)?);
        Some(format!("{name}: p50 {p50:.0} us, p99 {p99:.0} us"))
    }
}

fn add_ratio(ratio: &Ratio, outcomes: &[Outcome<'_>], results: &mut Results) {
    let (load, what, is_reliable, ours, others, goal) = *ratio;
    let named = |name| outcomes.iter().filter(move |outcome| outcome.row.tested.name == name);
    let is_alike = |outcome: &&Outcome<'_>| outcome.row.setup.is_reliable == is_reliable;
    let Some(ours) = named(ours).find(is_alike) else { return };
    // Plain UDP has unreliable messages only. Reliable ones are compared with them too.
    let find = |name| named(name).find(is_alike).or_else(|| named(name).next());
    let others: Vec<&Outcome<'_>> = others.iter().copied().filter_map(find).collect();
    let Some(&other) = others.iter().find(|other| other.measured.is_ok()).or(others.first()) else { return };
    let is_theirs_over_ours = matches!(goal, AtLeast(_));
    let (over, under) = if is_theirs_over_ours { (other, ours) } else { (ours, other) };
    let titles = format!("{} over {}", over.row.tested.title(), under.row.tested.title());
    let name = format!("{load}: {}, {}: {titles}", what.0, ours.row.delivery());
    let mut words: Vec<String> = [ours, other].into_iter().filter_map(Outcome::note).collect();
    let mut spread = None;
    if let (Ok(over), Ok(under)) = (&over.measured, &under.measured) {
        spread = over.over(under, |report| (what.1)(report));
        words.extend(Some(ratio_note(&[over, under])).filter(|note| !note.is_empty()));
    }
    results.spread(name, spread, "x", goal, &words.join("; "));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{adapter, rows_of};
    use drumfire_benches::{Extent, Options};

    fn rows(load: Load) -> Vec<Row> {
        let libraries = adapter::all().leak();
        let rounds = load.rounds(Extent::Default);
        libraries.iter().flat_map(|library| rows_of(load, library, &rounds)).collect()
    }

    #[test]
    fn each_ratio_compares_rows_that_exist() {
        for ratio in RATIOS {
            let rows = rows(Load::named(ratio.0).expect("a load"));
            let has = |name: &str| rows.iter().any(|row| row.tested.name == name);
            // A library that was left out of the build has a row too.
            assert!(has(ratio.3) && ratio.4.iter().any(|name| has(name)), "{ratio:?}");
        }
    }

    #[test]
    fn a_missing_library_is_a_figure_with_the_reason() {
        let load = Load::named("F").expect("a load");
        let mut results = Results::new("peers", &Options { extent: Extent::Quick, only: None });
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
        assert!(figures.count() > RATIOS.iter().filter(|ratio| ratio.0 == "F").count(), "{table}");
    }
}
