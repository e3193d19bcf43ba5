//! What drumfire is held against in each load: ratios of two rows of the same run, taken round by round, and bounds of one row.
//! Only pairs of equal suites are compared where the goal says so, and only what was measured is judged; what was not stands
//! among the figures with the reason.

use drumfire_benches::traffic::Shape;
use drumfire_benches::{Goal, Results, Spread, micros};
use drumfire_tools::report::Report;

use crate::load::Load;
use crate::measure::{Row, State};
use crate::show::{core_percent, kib, note};

const AES: &str = "drumfire, AES-128";
const CHACHA: &str = "drumfire, ChaCha20";
const AES_250: &str = "drumfire, AES-128, 250 us";
const CHACHA_250: &str = "drumfire, ChaCha20, 250 us";
const AES_1000: &str = "drumfire, AES-128, 1 ms";
const CHACHA_1000: &str = "drumfire, ChaCha20, 1 ms";

/// The C library, or where it is missing the same in Rust.
const ENET: &[&str] = &["ENet", "ENet in Rust"];
/// Where it was left out of the build it has one name for all its settings.
const QUINN_AES: &[&str] = &["quinn, AES-128", "quinn"];
const QUINN_CHACHA: &[&str] = &["quinn, ChaCha20", "quinn"];
const RENET: &[&str] = &["renet"];
const GNS: &[&str] = &["GameNetworkingSockets"];
const RAW: &[&str] = &["raw mio"];
const RAW_250: &[&str] = &["raw mmsg, 250 us"];
const RAW_1000: &[&str] = &["raw mmsg, 1 ms"];

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Cpu,
    P50,
    P90,
    P99,
    P999,
}

/// Which way of delivery a comparison is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Reliable,
    Unreliable,
}

/// A bound of a ratio.
#[derive(Clone, Copy, Debug)]
enum Bound {
    /// drumfire over the other, at most.
    Most(f64),
    /// The other over drumfire, at least.
    Least(f64),
    /// drumfire over the other is only shown.
    Shown,
}

/// One comparison.
#[derive(Clone, Copy, Debug)]
struct Pair {
    load: &'static str,
    what: What,
    way: Way,
    ours: &'static str,
    /// The first of these that was measured.
    others: &'static [&'static str],
    bound: Bound,
}

const fn pair(
    load: &'static str,
    what: What,
    way: Way,
    (ours, others): (&'static str, &'static [&'static str]),
    bound: Bound,
) -> Pair {
    Pair { load, what, way, ours, others, bound }
}

const fn cpu(
    load: &'static str,
    way: Way,
    pair_of: (&'static str, &'static [&'static str]),
    bound: Bound,
) -> Pair {
    pair(load, What::Cpu, way, pair_of, bound)
}

const fn latency(what: What, ours: &'static str, bound: Bound) -> Pair {
    pair("A", what, Way::Reliable, (ours, RAW), bound)
}

use Bound::{Least, Most, Shown};
use Way::{Reliable, Unreliable};

const PAIRS: &[Pair] = &[
    latency(What::P50, AES, Most(1.3)),
    latency(What::P90, AES, Most(1.3)),
    latency(What::P99, AES, Shown),
    latency(What::P999, AES, Shown),
    latency(What::P50, CHACHA, Most(1.3)),
    latency(What::P90, CHACHA, Most(1.3)),
    latency(What::P99, CHACHA, Shown),
    latency(What::P999, CHACHA, Shown),
    cpu("B", Unreliable, (AES_1000, RAW_1000), Most(1.4)),
    cpu("B", Unreliable, (CHACHA_1000, RAW_1000), Most(1.4)),
    cpu("B", Reliable, (AES_1000, RAW_1000), Most(1.4)),
    cpu("B", Reliable, (CHACHA_1000, RAW_1000), Most(1.4)),
    cpu("B", Reliable, (AES_1000, ENET), Least(5.0)),
    cpu("B", Reliable, (CHACHA_1000, ENET), Least(5.0)),
    cpu("B", Reliable, (AES_1000, QUINN_AES), Least(4.0)),
    cpu("B", Reliable, (CHACHA_1000, QUINN_CHACHA), Least(4.0)),
    cpu("B", Reliable, (AES_1000, GNS), Least(2.0)),
    cpu("B", Reliable, (CHACHA_1000, RENET), Least(8.0)),
    cpu("B", Unreliable, (AES_250, RAW_250), Most(1.25)),
    cpu("B", Unreliable, (CHACHA_250, RAW_250), Most(1.25)),
    cpu("B", Reliable, (AES_250, RAW_250), Most(1.25)),
    cpu("B", Reliable, (CHACHA_250, RAW_250), Most(1.25)),
    cpu("B", Reliable, (AES_250, ENET), Least(2.5)),
    cpu("B", Reliable, (CHACHA_250, ENET), Least(2.5)),
    cpu("B", Reliable, (AES_250, QUINN_AES), Least(1.9)),
    cpu("B", Reliable, (CHACHA_250, QUINN_CHACHA), Least(1.9)),
    cpu("B", Reliable, (CHACHA_250, RENET), Least(3.6)),
    cpu("B", Reliable, (AES_250, GNS), Least(1.0)),
    pair("B", What::P50, Reliable, (AES_250, GNS), Most(0.25)),
    cpu("C", Reliable, (AES, QUINN_AES), Least(1.5)),
    cpu("C", Unreliable, (AES, QUINN_AES), Least(1.5)),
    cpu("C", Reliable, (CHACHA, QUINN_CHACHA), Least(1.5)),
    cpu("C", Unreliable, (CHACHA, QUINN_CHACHA), Least(1.5)),
    cpu("C", Reliable, (AES, ENET), Least(2.0)),
    cpu("C", Reliable, (CHACHA, ENET), Least(2.0)),
    cpu("C", Reliable, (AES, GNS), Least(2.3)),
    cpu("C", Reliable, (CHACHA, RENET), Least(3.5)),
    cpu("D", Reliable, (AES, QUINN_AES), Least(1.3)),
    cpu("D", Unreliable, (AES, QUINN_AES), Least(1.3)),
    cpu("D", Reliable, (CHACHA, QUINN_CHACHA), Least(1.3)),
    cpu("D", Unreliable, (CHACHA, QUINN_CHACHA), Least(1.3)),
    cpu("D", Reliable, (AES, ENET), Least(2.0)),
    cpu("D", Reliable, (CHACHA, ENET), Least(2.0)),
    cpu("D", Reliable, (AES, GNS), Least(2.5)),
    cpu("D", Reliable, (CHACHA, RENET), Least(4.0)),
    cpu("F", Reliable, (AES, RAW), Most(1.35)),
    cpu("F", Unreliable, (AES, RAW), Most(1.20)),
    cpu("F", Reliable, (CHACHA, RAW), Most(1.35)),
    cpu("F", Unreliable, (CHACHA, RAW), Most(1.20)),
    cpu("F", Reliable, (AES, QUINN_AES), Least(2.8)),
    cpu("F", Reliable, (CHACHA, QUINN_CHACHA), Least(2.8)),
    cpu("F", Reliable, (AES, GNS), Least(2.0)),
    cpu("F", Reliable, (AES, ENET), Least(1.8)),
    cpu("F", Reliable, (CHACHA, ENET), Least(1.8)),
    cpu("F", Reliable, (CHACHA, RENET), Least(4.0)),
    cpu("S", Unreliable, (AES, ENET), Least(5.0)),
    cpu("S", Unreliable, (CHACHA, ENET), Least(5.0)),
    cpu("S", Unreliable, (AES_1000, ENET), Least(5.0)),
    cpu("S", Unreliable, (CHACHA_1000, ENET), Least(5.0)),
    cpu("S", Unreliable, (AES, RAW), Shown),
    cpu("S", Unreliable, (AES_1000, RAW_1000), Shown),
];

/// Of one core, in percent, for 2,000 idle connections.
const IDLE_CORE_PERCENT: f64 = 0.8;

/// KiB for each idle connection.
const IDLE_KIB: f64 = 1.0;

impl What {
    const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "CPU per message",
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
        }
    }

    fn of(self, round: &Report) -> Option<f64> {
        match self {
            Self::Cpu => round.cpu_ns_per_packet,
            Self::P50 => micros(round, |latency| latency.p50),
            Self::P90 => micros(round, |latency| latency.p90),
            Self::P99 => micros(round, |latency| latency.p99),
            Self::P999 => micros(round, |latency| latency.p999),
        }
    }
}

/// Adds all figures of a load.
pub(crate) fn figures(load: Load, rows: &[Row], results: &mut Results) {
    if load.shape == Shape::Idle {
        rows.iter().for_each(|row| idle(load, row, results));
        return;
    }
    for row in rows {
        if let Some(why) = row.why_not() {
            let name = format!("{}: {}, {}: {}", load.name, What::Cpu.name(), way(row), row.rival.title());
            results.figure(name, None, "ns", Goal::Shown, &why);
        }
    }
    for pair in PAIRS.iter().filter(|pair| pair.load == load.name) {
        figure(pair, rows, results);
    }
}

fn idle(load: Load, row: &Row, results: &mut Results) {
    let is_ours = row.rival.family == "drumfire";
    let goal = |most| if is_ours { Goal::AtMost(most) } else { Goal::Shown };
    let name = format!("{}: {} idle connections, {}", load.name, row.connections, row.rival.title());
    let is_measured = row.state == State::Measured;
    let note = note(is_measured.then(|| format!("keep-alive {}", row.rival.keep_alive)), &[row]);
    let median = |spread: Option<Spread>| spread.filter(|_| is_measured).map(|of| of.median);
    results.figure(format!("{name}: core"), median(core_percent(row)), "%", goal(IDLE_CORE_PERCENT), &note);
    results.figure(format!("{name}: memory of each"), median(kib(row)), "KiB", goal(IDLE_KIB), &note);
}

fn figure(pair: &Pair, rows: &[Row], results: &mut Results) {
    let of_way = |row: &&Row| row.setup.is_reliable == (pair.way == Reliable);
    let Some(ours) = named(rows, pair.ours).find(of_way) else { return };
    // The floor promises nothing: what is reliable is held against it too.
    let find = |name| named(rows, name).find(of_way).or_else(|| named(rows, name).next());
    let others: Vec<&Row> = pair.others.iter().copied().filter_map(find).collect();
    let is_measured = |row: &&&Row| row.state == State::Measured;
    let Some(&other) = others.iter().find(is_measured).or(others.first()) else { return };
    let (over, under, goal) = match pair.bound {
        Least(least) => (other, ours, Goal::AtLeast(least)),
        Most(most) => (ours, other, Goal::AtMost(most)),
        Shown => (ours, other, Goal::Shown),
    };
    let ratio = ratio(pair.what, over, under);
    let titles = format!("{} over {}", over.rival.title(), under.rival.title());
    let name = format!("{}: {}, {}: {titles}", pair.load, pair.what.name(), way(ours));
    let of_rounds = ratio.map(|Spread { least, most, .. }| {
        format!("round by round {least:.2} to {most:.2}, rounds: {}", ours.measured.rounds.len())
    });
    let note = note(of_rounds, &[ours, other]);
    results.figure(name, ratio.map(|ratio| ratio.median), "x", goal, &note);
}

fn named<'a>(rows: &'a [Row], name: &'a str) -> impl Iterator<Item = &'a Row> {
    rows.iter().filter(move |row| row.rival.name == name)
}

const fn way(row: &Row) -> &'static str {
    if row.setup.is_reliable { "reliable" } else { "unreliable" }
}

/// Of each round, in which whatever the machine did was done to both.
fn ratio(what: What, over: &Row, under: &Row) -> Option<Spread> {
    if over.state != State::Measured || under.state != State::Measured {
        return None;
    }
    let values =
        |row: &Row| row.measured.rounds.iter().map(|round| what.of(round)).collect::<Option<Vec<f64>>>();
    paired(&values(over)?, &values(under)?)
}

/// Of each value over that in the same place.
fn paired(over: &[f64], under: &[f64]) -> Option<Spread> {
    Spread::of(over.iter().zip(under).map(|(over, under)| over / under))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Missing, rows};
    use crate::rivals::all;
    use drumfire_benches::{Extent, Options};

    #[test]
    fn every_goal_is_about_rows_that_there_are() {
        let rivals = all();
        for pair in PAIRS {
            let load = Load::named(pair.load).expect("a load");
            let rows = rows(load, &rivals, usize::MAX, &Missing::new());
            let is_there = |name: &str| rows.iter().any(|row| row.rival.name == name);
            assert!(is_there(pair.ours), "{pair:?}");
            // A library that was left out of the build stands there too.
            assert!(pair.others.iter().any(|name| is_there(name)), "{pair:?}");
        }
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        // The medians are 3 and 2, in rounds that have nothing to do with each other.
        let ratio = paired(&[1.0, 3.0, 10.0], &[2.0, 1.0, 10.0]).expect("three rounds");
        assert_eq!((ratio.median, ratio.least, ratio.most), (1.0, 0.5, 3.0));
        assert_eq!(paired(&[], &[]), None);
    }

    #[test]
    fn a_rival_that_is_missing_is_among_the_figures_with_the_reason() {
        let load = Load::named("F").expect("a load");
        let missing = Missing::from([("drumfire, AES-128", "no instructions".to_owned())]);
        let rows = rows(load, &all(), usize::MAX, &missing);
        let mut results = Results::new("peers", &Options { extent: Extent::Quick, only: None });
        figures(load, &rows, &mut results);
        let table = results.table();
        let is_told = |line: &&str| line.contains("; drumfire, AES-128: missing: no");
        assert_eq!(
            table.lines().filter(|line| line.contains("missing: no instructions")).count(),
            7,
            "{table}"
        );
        assert!(table.lines().filter(is_told).count() > 1, "{table}");
    }
}
