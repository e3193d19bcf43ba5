//! The format of `target/reports/*.json`. A bench writes figures and runs. The receiver and the sender write a single run.
//!
//! A field that is missing, has another type, or is not listed here makes the file unreadable, and the error names its path.
//! Without that rule, a field that a writer renamed would silently disappear from the page.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

/// The content of a file.
#[derive(Debug, Deserialize)]
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
    pub(crate) runs: Vec<Run>,
    pub(crate) rates: Vec<Rates>,
}

/// The arguments of a bench. A single run has none.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BenchFlags {
    pub(crate) extent: Extent,
    /// The part that ran, if not all did.
    pub(crate) only: Option<String>,
    /// All arguments as they were typed.
    pub(crate) given: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Extent {
    /// A smoke run, whose figures mean little.
    Quick,
    #[default]
    Default,
    Full,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Versions {
    pub(crate) drumfire: String,
    pub(crate) build: String,
    pub(crate) rustc: Option<String>,
    #[serde(rename = "format")]
    _format: u32,
}

/// The machine. A field is absent where the system does not report it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Machine {
    pub(crate) cpu: Option<String>,
    pub(crate) cores: Option<u32>,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) kernel: Option<String>,
}

/// A figure and its goal.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figure {
    pub(crate) name: String,
    /// Absent where it was not measured.
    pub(crate) value: Option<f64>,
    /// The least and the most of the rounds of which `value` is the median.
    pub(crate) least: Option<f64>,
    pub(crate) most: Option<f64>,
    pub(crate) unit: String,
    pub(crate) goal: Option<f64>,
    pub(crate) bound: Option<Bound>,
    pub(crate) reached: Option<bool>,
    pub(crate) note: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    AtLeast,
    AtMost,
}

/// One run of one arm.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "fields that the page does not show are listed so that any other field is an error"
)]
pub(crate) struct Run {
    /// `BENCH PART: ARM`, or the name of the program.
    pub(crate) name: String,
    pub(crate) command: String,
    pub(crate) versions: Versions,
    pub(crate) machine: Machine,
    pub(crate) window_s: f64,
    /// Packets or messages per second.
    pub(crate) pps: f64,
    pub(crate) cpu_ns_per_packet: Option<f64>,
    pub(crate) latency_ns: Option<Latency>,
    pub(crate) threads: Vec<Thread>,
    /// The limit of the rate, where it was not the subject of the run: `client`, for instance.
    pub(crate) limited_by: Option<String>,
    #[serde(default)]
    pub(crate) notes: Vec<String>,
    /// A row for each second, with the rate of each thread.
    #[serde(default)]
    pub(crate) pps_per_second: Vec<Vec<f64>>,
    flags: BTreeMap<String, Value>,
    sent: IgnoredAny,
    received: IgnoredAny,
    drops: IgnoredAny,
    unexplained: IgnoredAny,
    granted: IgnoredAny,
    spread_max_over_mean: IgnoredAny,
    #[serde(default)]
    scope: IgnoredAny,
    #[serde(default)]
    interface: IgnoredAny,
    #[serde(default)]
    sender_cpu_s: IgnoredAny,
    #[serde(default)]
    foreign: IgnoredAny,
    #[serde(default)]
    offered: IgnoredAny,
    #[serde(default)]
    duplicated: IgnoredAny,
    #[serde(default)]
    reordered: IgnoredAny,
    #[serde(default)]
    run_delay_share: IgnoredAny,
    #[serde(default)]
    steal_share: IgnoredAny,
    #[serde(default)]
    messages: IgnoredAny,
}

/// Percentiles in nanoseconds.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
    #[serde(rename = "count")]
    _count: u64,
}

/// A thread over the whole window. Its other fields are counts that the page does not show.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Thread {
    pub(crate) pps: f64,
}

/// Rates of threads that were sampled together. The page draws its own boxes from the samples.
#[derive(Debug, Deserialize)]
pub(crate) struct Rates {
    pub(crate) name: String,
    pub(crate) samples: Vec<Sample>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Sample {
    pub(crate) thread: usize,
    pub(crate) pps: f64,
}

impl Results {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// The path of the first wrong field and the reason, or the place where the text stops being JSON.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|why| format!("is not JSON: {why}"))?;
        if value.get("figures").is_some() { typed(value) } else { typed(value).map(Self::of_run) }
    }

    fn of_run(run: Run) -> Self {
        let threads = run.pps_per_second.iter().flat_map(|row| row.iter().enumerate());
        let samples: Vec<Sample> = threads.map(|(thread, pps)| Sample { thread, pps: *pps }).collect();
        let rates = Rates { name: "each second".to_owned(), samples };
        Self {
            name: run.name.clone(),
            command: run.command.clone(),
            flags: BenchFlags::default(),
            versions: run.versions.clone(),
            machine: run.machine.clone(),
            build: None,
            network: None,
            pinning: None,
            seed: None,
            figures: Vec::new(),
            rates: if rates.samples.is_empty() { Vec::new() } else { vec![rates] },
            runs: vec![run],
        }
    }
}

fn typed<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|why| format!("{}: {}", why.path(), why.inner()))
}

/// Files as the programs write them, for the tests of the report.
#[cfg(test)]
pub(crate) mod samples {
    use serde_json::{Value, json};

    /// The report of a receiver or a sender.
    pub(crate) fn run(name: &str) -> Value {
        json!({
            "name": name, "command": "receiver --with-sender", "flags": { "threads": 2 },
            "versions": versions(), "machine": machine(), "window_s": 2.0,
            "sent": 30, "received": 30, "drops": {}, "unexplained": 0, "pps": 15.0,
            "threads": [
                { "index": 0, "received": 20, "pps": 10.0, "kernel_drops": null, "cpu_user_s": 0.5, "cpu_sys_s": 0.5 },
                { "index": 1, "received": 10, "pps": 5.0, "kernel_drops": 0, "cpu_user_s": null, "cpu_sys_s": null },
            ],
            "spread_max_over_mean": 1.33, "cpu_ns_per_packet": 700.0, "granted": {},
            "latency_ns": { "p50": 1000, "p90": 2000, "p99": 3000, "p999": 4000, "max": 5000, "count": 6 },
            "pps_per_second": [[10, 5], [11, 4]], "notes": ["a note"],
        })
    }

    /// The report of a bench.
    pub(crate) fn bench(extent: &str, figures: &[Value], runs: &[Value]) -> Value {
        json!({
            "name": "echo", "command": "cargo bench --bench echo",
            "flags": { "extent": extent, "only": null, "given": [] },
            "versions": versions(), "machine": machine(), "build": "opt-level 3", "network": null,
            "pinning": "server to core 0", "seed": null, "figures": figures, "runs": runs, "rates": [],
        })
    }

    /// A figure with a goal.
    pub(crate) fn figure(name: &str, value: Option<f64>, is_reached: Option<bool>) -> Value {
        json!({
            "name": name, "value": value, "least": null, "most": null, "unit": "x",
            "goal": 1.35, "bound": "at_most", "reached": is_reached, "note": "",
        })
    }

    fn versions() -> Value {
        json!({ "drumfire": "0.1.0", "rustc": null, "build": "release", "format": 1 })
    }

    fn machine() -> Value {
        json!({ "cpu": "Some <CPU>", "cores": 2, "kernel": "6.18", "memory_bytes": 1_073_741_824 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_kinds_of_files_are_read() {
        let bench =
            samples::bench("full", &[samples::figure("a", Some(1.5), Some(false))], &[samples::run("r")]);
        let bench = Results::read(&bench.to_string()).unwrap();
        assert_eq!((bench.flags.extent, bench.runs.len()), (Extent::Full, 1));
        assert_eq!((bench.figures[0].goal, bench.figures[0].bound), (Some(1.35), Some(Bound::AtMost)));
        let run = Results::read(&samples::run("receiver").to_string()).unwrap();
        let pps: Vec<_> = run.rates[0].samples.iter().map(|sample| (sample.thread, sample.pps)).collect();
        assert_eq!(pps, [(0, 10.0), (1, 5.0), (0, 11.0), (1, 4.0)]);
        assert_eq!((run.runs[0].latency_ns.unwrap().p999, run.runs[0].threads[1].pps), (4_000.0, 5.0));
    }

    #[test]
    fn a_wrong_field_is_named_with_its_path() {
        let error = |value: &Value| Results::read(&value.to_string()).unwrap_err();
        let mut run = samples::run("r");
        run["threads"][1]["pps"] = json!("fast");
        assert!(error(&run).starts_with("threads[1].pps: invalid type"), "{}", error(&run));
        let bench = samples::bench("full", &[], &[samples::run("a"), run]);
        assert!(error(&bench).starts_with("runs[1].threads[1].pps: "), "{}", error(&bench));
        let mut renamed = samples::run("r");
        renamed["lucky"] = json!(7);
        assert!(error(&renamed).contains("unknown field `lucky`"), "{}", error(&renamed));
        assert!(error(&json!({})).contains("missing field `name`"));
        assert!(Results::read("{ \"name\": ").unwrap_err().starts_with("is not JSON: "));
    }
}
