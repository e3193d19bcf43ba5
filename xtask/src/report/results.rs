//! The format of `target/reports/*.json`. A bench writes figures. The receiver and the sender write a single run, whose values become
//! figures here. The runs of a bench stay in its file.
//!
//! In the file of a bench, a field that is missing, has another type, or is not listed here is an error with its path. Without that rule,
//! a field that a writer renamed would silently disappear from the page.

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Results {
    pub(crate) name: String,
    pub(crate) command: String,
    pub(crate) flags: BenchFlags,
    pub(crate) versions: Versions,
    pub(crate) machine: Machine,
    /// Compiler, optimization, and `RUSTFLAGS`.
    pub(crate) build: Option<String>,
    /// The interface and the default socket buffers.
    pub(crate) network: Option<String>,
    pub(crate) pinning: Option<String>,
    pub(crate) seed: Option<String>,
    pub(crate) figures: Vec<Figure>,
    #[serde(rename = "runs", skip_serializing)]
    _runs: IgnoredAny,
    #[serde(rename = "rates", skip_serializing)]
    _rates: IgnoredAny,
}

/// The arguments of a bench. A single run has none.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BenchFlags {
    pub(crate) extent: Extent,
    /// The part that ran, if not all did.
    pub(crate) only: Option<String>,
    /// All arguments as they were typed.
    pub(crate) given: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Extent {
    /// A smoke run, whose figures mean little.
    Quick,
    Default,
    Full,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Versions {
    pub(crate) drumfire: String,
    pub(crate) build: String,
    pub(crate) rustc: Option<String>,
    #[serde(rename = "format")]
    _format: u32,
}

/// The machine. A field is absent where the system does not report it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Machine {
    pub(crate) cpu: Option<String>,
    pub(crate) cores: Option<u32>,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) kernel: Option<String>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figure {
    pub(crate) name: String,
    /// Absent where it was not measured.
    pub(crate) value: Option<f64>,
    /// The minimum and the maximum of the rounds of which `value` is the median.
    pub(crate) least: Option<f64>,
    pub(crate) most: Option<f64>,
    pub(crate) unit: String,
    pub(crate) goal: Option<f64>,
    pub(crate) bound: Option<Bound>,
    pub(crate) reached: Option<bool>,
    pub(crate) note: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    AtLeast,
    AtMost,
}

impl Results {
    /// Reads the text of a file, or returns the path of the first wrong field and the reason.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|why| format!("is not JSON: {why}"))?;
        let bench = if value.get("figures").is_some() { value } else { of_run(&value) };
        serde_path_to_error::deserialize(bench).map_err(|why| format!("{}: {}", why.path(), why.inner()))
    }
}

/// Returns the run of a receiver or a sender in the format of a bench, with a figure for each value that the page shows.
fn of_run(run: &Value) -> Value {
    let latency = |percentile: &str| run["latency_ns"][percentile].as_f64().map(|ns| ns / 1e3);
    let figures = [
        ("packets per second", run["pps"].as_f64(), ""),
        ("CPU per packet", run["cpu_ns_per_packet"].as_f64(), "ns"),
        ("p50 of the latency", latency("p50"), "µs"),
        ("p99 of the latency", latency("p99"), "µs"),
    ];
    let measured = figures.into_iter().filter(|(_, value, _)| value.is_some());
    let figure = |(name, value, unit)| json!({ "name": name, "value": value, "unit": unit, "note": "" });
    json!({
        "name": run["name"], "command": run["command"], "versions": run["versions"], "machine": run["machine"],
        "flags": { "extent": "default", "given": [] }, "runs": [], "rates": [],
        "figures": measured.map(figure).collect::<Vec<_>>(),
    })
}

/// Files as the programs write them, for the tests of the report.
#[cfg(test)]
pub(crate) mod samples {
    use serde_json::{Value, json};

    /// Returns the report of a bench or a run.
    pub(crate) fn report(kind: &str) -> Value {
        let reports: Value = serde_json::from_str(include_str!("samples.json")).unwrap();
        reports[kind].clone()
    }

    /// Returns the report of a bench with these figures.
    pub(crate) fn bench(extent: &str, figures: &[Value]) -> Value {
        let mut bench = report("bench");
        (bench["flags"]["extent"], bench["figures"]) = (json!(extent), json!(figures));
        bench
    }

    /// Returns a figure with a goal.
    pub(crate) fn figure(name: &str, value: Option<f64>, is_reached: Option<bool>) -> Value {
        let mut figure = report("bench")["figures"][0].take();
        (figure["name"], figure["value"], figure["reached"]) = (json!(name), json!(value), json!(is_reached));
        figure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_files_are_read() {
        let bench = Results::read(&samples::report("bench").to_string()).unwrap();
        assert_eq!(bench.flags.extent, Extent::Default);
        assert_eq!((bench.figures[0].goal, bench.figures[0].bound), (Some(1.35), Some(Bound::AtMost)));
        let run = Results::read(&samples::report("run").to_string()).unwrap();
        let values: Vec<_> = run.figures.iter().map(|figure| figure.value).collect();
        assert_eq!(values, [15.0, 700.0, 1.0, 3.0].map(Some));
    }

    #[test]
    fn a_wrong_field_is_named_with_its_path() {
        let error = |value: &Value| Results::read(&value.to_string()).unwrap_err();
        let mut bench = samples::report("bench");
        bench["figures"][0]["value"] = json!("fast");
        assert!(error(&bench).starts_with("figures[0].value: invalid type"), "{}", error(&bench));
        let mut renamed = samples::report("bench");
        renamed["lucky"] = json!(7);
        assert!(error(&renamed).contains("unknown field `lucky`"), "{}", error(&renamed));
        assert!(error(&json!({})).contains("invalid type: null"));
        assert!(Results::read("{ \"name\": ").unwrap_err().starts_with("is not JSON: "));
    }
}
