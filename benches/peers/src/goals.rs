//! What drumfire is held against in each load: ratios of two rows of the same run, and bounds of one row. Only pairs of equal
//! suites are compared where the goal says so, and only what was measured is judged.

use drumfire_benches::{Goal, Results, Spread, micros};

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
const QUINN_AES: &[&str] = &["quinn, AES-128"];
const QUINN_CHACHA: &[&str] = &["quinn, ChaCha20"];
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

    fn of(self, row: &Row) -> Option<Spread> {
        let time = |pick| row.measured.spread(|report| micros(report, pick));
        match self {
            Self::Cpu => row.measured.cpu_ns(),
            Self::P50 => time(|latency| latency.p50),
            Self::P90 => time(|latency| latency.p90),
            Self::P99 => time(|latency| latency.p99),
            Self::P999 => time(|latency| latency.p999),
        }
    }
}

/// Adds all figures of a load.
pub(crate) fn figures(load: Load, rows: &[Row], results: &mut Results) {
    for pair in PAIRS.iter().filter(|pair| pair.load == load.name) {
        figure(pair, rows, results);
    }
    if load.name == "E" {
        for row in rows.iter().filter(|row| row.state == State::Measured) {
            let is_ours = row.rival.family == "drumfire";
            let goal = |most| if is_ours { Goal::AtMost(most) } else { Goal::Shown };
            let (name, note) = (row.rival.name, note(&[row]));
            let name = format!("E: {} idle connections, {name}", row.connections);
            let median = |spread: Option<Spread>| Some(spread?.median);
            results.figure(
                format!("{name}: core"),
                median(core_percent(row)),
                "%",
                goal(IDLE_CORE_PERCENT),
                &note,
            );
            results.figure(format!("{name}: memory of each"), median(kib(row)), "KiB", goal(IDLE_KIB), &note);
        }
    }
}

fn figure(pair: &Pair, rows: &[Row], results: &mut Results) {
    let of_way = |row: &&Row| row.setup.is_reliable == (pair.way == Reliable);
    let Some(ours) = named(rows, pair.ours).find(of_way) else { return };
    // The floor promises nothing: what is reliable is held against it too.
    let find = |name| named(rows, name).find(of_way).or_else(|| named(rows, name).next());
    let others: Vec<&Row> = pair.others.iter().copied().filter_map(find).collect();
    let is_measured = |row: &&&Row| row.state == State::Measured;
    let Some(other) = others.iter().find(is_measured).or(others.first()) else { return };
    let (value, goal, over) = match pair.bound {
        Least(least) => {
            (ratio(pair.what, other, ours), Goal::AtLeast(least), [other.rival.name, ours.rival.name])
        }
        Most(most) => {
            (ratio(pair.what, ours, other), Goal::AtMost(most), [ours.rival.name, other.rival.name])
        }
        Shown => (ratio(pair.what, ours, other), Goal::Shown, [ours.rival.name, other.rival.name]),
    };
    let way = if pair.way == Reliable { "reliable" } else { "unreliable" };
    let name = format!("{}: {}, {way}: {} over {}", pair.load, pair.what.name(), over[0], over[1]);
    results.figure(name, value, "x", goal, &note(&[ours, other]));
}

fn named<'a>(rows: &'a [Row], name: &'a str) -> impl Iterator<Item = &'a Row> {
    rows.iter().filter(move |row| row.rival.name == name)
}

fn ratio(what: What, over: &Row, under: &Row) -> Option<f64> {
    if over.state != State::Measured || under.state != State::Measured {
        return None;
    }
    Some(what.of(over)?.median / what.of(under)?.median)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::rows;
    use crate::rivals::all;

    #[test]
    fn every_goal_is_about_rows_that_there_are() {
        let rivals = all();
        for pair in PAIRS {
            let load = Load::named(pair.load).expect("a load");
            let rows = rows(load, &rivals, usize::MAX);
            let is_there = |name: &str| rows.iter().any(|row| row.rival.name == name);
            assert!(is_there(pair.ours), "{pair:?}");
            // A library that was left out of the build stands there under one name for all its settings.
            let is_library = |name: &&str| is_there(name) || !cfg!(all(feature = "quinn", feature = "enet"));
            assert!(pair.others.iter().all(is_library), "{pair:?}");
        }
    }
}
