//! The dashboard for Grafana uses only metrics that the guide lists. Its looks are not tested.

use std::collections::BTreeSet;

use serde_json::Value;

const DASHBOARD: &str = include_str!("../grafana/drumfire.json");
const LIST: &str = include_str!("../../drumfire/docs/guide/metrics.md");

/// The expressions of all panels. Each panel but rows has a target, and takes it from the selected source.
fn expressions() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let targets = panels.filter(|panel| panel["type"] != "row").flat_map(|panel| {
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{panel:#}");
        panel["targets"].as_array().expect("targets")
    });
    targets.map(|target| target["expr"].as_str().expect("an expression").to_owned()).collect()
}

/// The metrics in an expression.
fn names(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("drumfire_"))
}

/// The kind of a metric, as the guide lists it.
fn kind(name: &str) -> Option<&'static str> {
    let row = LIST.lines().find_map(|line| line.strip_prefix(&format!("| `{name}` | ")))?;
    row.split(" | ").next()
}

#[test]
fn every_metric_is_in_the_guide_and_queried_by_its_kind() {
    for expression in expressions() {
        assert!(names(&expression).next().is_some(), "{expression}");
        for name in names(&expression) {
            let is_rate =
                ["rate(", "increase("].iter().any(|of| expression.contains(&format!("{of}{name}{{")));
            let listed = name.strip_suffix("_bucket").unwrap_or(name);
            let expected = match kind(listed) {
                Some("counter") => is_rate,
                Some("gauge") => !is_rate,
                Some("histogram") => is_rate && expression.contains("histogram_quantile("),
                other => panic!("{name} in `{expression}`: {other:?} in the list"),
            };
            assert!(expected, "{name} in `{expression}`");
        }
    }
}

#[test]
fn the_dashboard_has_the_most_important_metrics() {
    let expressions = expressions();
    let asked: BTreeSet<&str> = expressions.iter().flat_map(|expression| names(expression)).collect();
    for name in [
        "drumfire_packets_received_total",
        "drumfire_busy_ratio",
        "drumfire_datagrams_dropped_total",
        "drumfire_receive_queue_bytes",
        "drumfire_datagrams_kernel_dropped_total",
        "drumfire_round_trip_seconds_bucket",
        "drumfire_connections",
    ] {
        assert!(asked.contains(name), "{name}");
    }
}

#[test]
fn named_reasons_exist_and_refusals_are_those_of_the_guide() {
    let expressions = expressions();
    let named: Vec<BTreeSet<&str>> = expressions
        .iter()
        .filter_map(|expression| expression.split_once("reason=~\"")?.1.split('"').next())
        .map(|reasons| reasons.split('|').collect())
        .collect();
    let known = drumfire_proto::DropReason::ALL.map(drumfire_proto::DropReason::name);
    let refusals = LIST.split("Hellos that were refused or not answered:").nth(1).expect("the guide's list");
    let refusals = refusals.split("All other datagrams:").next().expect("its end");
    let refusals: BTreeSet<&str> = refusals.split('`').filter(|word| known.contains(word)).collect();
    assert_eq!(named, [refusals]);
}
