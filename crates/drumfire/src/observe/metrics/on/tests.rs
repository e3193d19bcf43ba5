//! That publishing allocates nothing, and that the list in the documentation is the code's.

use super::*;
use allocation_counter::measure;
use drumfire_proto::{ClientConfig, Config, Endpoint, Secret};

const LIST: &str = include_str!("../../../../docs/guide/metrics.md");

/// An endpoint without connections.
fn endpoint() -> Endpoint<impl Placement> {
    Endpoint::client(Config::default(), ClientConfig::default(), Secret::new([7; 32])).unwrap()
}

#[test]
fn without_a_recorder_nothing_is_allocated() {
    let (mut metrics, stats, endpoint) = (Metrics::new(Some(7)), WorkerStats::default(), endpoint());
    let info = measure(|| {
        for _ in 0..100 {
            metrics.publish(&stats, &endpoint, 50);
        }
        metrics.finish(&stats);
    });
    assert_eq!(info.count_total, 0);
}

/// The table's rows as the code has them, by name.
fn rows() -> Vec<String> {
    let row = |name: &str, kind: &str, unit: Option<Unit>, labels: &str, description: &str| {
        let unit = unit.map_or("none", |unit| unit.as_str());
        format!("| `{name}` | {kind} | {unit} | {labels} | {description} |")
    };
    let counters = COUNTERS.iter().map(|c| row(c.name, "counter", Some(c.unit), "worker", c.description));
    let by_reason = BY_REASON
        .map(|(name, description)| row(name, "counter", Some(Unit::Count), "worker, reason", description));
    let gauges = GAUGES.iter().map(|g| row(g.name, "gauge", g.unit, "worker", g.description));
    let histogram = row(ROUND_TRIPS, "histogram", Some(Unit::Seconds), "worker", ROUND_TRIPS_DESCRIPTION);
    let mut rows: Vec<String> = counters.chain(by_reason).chain(gauges).chain([histogram]).collect();
    rows.sort_unstable();
    rows
}

#[test]
fn the_documentation_lists_every_metric_and_no_other() {
    let rows = rows();
    let listed: Vec<&str> = LIST.lines().filter(|line| line.starts_with("| `drumfire_")).collect();
    assert!(listed == rows, "docs/guide/metrics.md should say\n{}", rows.join("\n"));
}

#[test]
fn metric_names_are_unique_and_contain_their_unit() {
    let rows = rows();
    let names: Vec<&str> = rows.iter().filter_map(|row| row.split('`').nth(1)).collect();
    let mut once = names.clone();
    once.dedup();
    assert_eq!(names, once);
    for (name, row) in names.iter().zip(&rows) {
        assert_eq!(row.contains("| counter |"), name.ends_with("_total"), "{name}");
        assert_eq!(row.contains("| bytes |"), name.contains("_bytes"), "{name}");
    }
}

#[test]
fn the_documentation_names_every_reason() {
    for name in DropReason::ALL.map(DropReason::name) {
        assert!(LIST.contains(&format!("`{name}`")), "{name}");
    }
    for name in SocketDropReason::ALL.map(SocketDropReason::name) {
        assert!(LIST.contains(&format!("`{name}`")), "{name}");
    }
}
