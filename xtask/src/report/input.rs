//! The JSON files of `target/reports`, read field by field so that one that cannot be used is named by its field.
//!
//! Both kinds are taken: what a bench writes (figures and runs), and the report of one run as the receiver and the sender write
//! it. Fields that this page does not show are not looked at.

use std::fmt;

use serde_json::Value;

/// What one file holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Measured {
    pub(super) name: String,
    pub(super) command: String,
    /// `quick`, `default` or `full`; only for a bench.
    pub(super) extent: Option<String>,
    /// Which part alone was run.
    pub(super) part: Option<String>,
    /// What else the command was given, such as `--clients 300`; empty where it was nothing.
    pub(super) sizes: String,
    /// How it was built, over what, and pinned where; empty where the file does not say.
    pub(super) setup: String,
    pub(super) machine: String,
    pub(super) versions: String,
    pub(super) figures: Vec<Figure>,
    pub(super) runs: Vec<Run>,
    /// What single threads took, sample by sample.
    pub(super) rates: Vec<Rates>,
}

/// Packets per second of each thread, sampled together: a receiver's each second, a bench's more often.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rates {
    /// Empty where the file has one run alone.
    pub(super) name: String,
    pub(super) threads: Vec<Vec<f64>>,
}

/// One figure and what it is held against.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figure {
    pub(super) name: String,
    pub(super) value: Option<f64>,
    /// Of the rounds of which the value is the middle.
    pub(super) range: Option<Range>,
    pub(super) unit: String,
    pub(super) goal: Option<Goal>,
    pub(super) is_reached: Option<bool>,
    pub(super) note: String,
}

/// The least and the most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    pub(super) least: f64,
    pub(super) most: f64,
}

/// A bound, and on which side of it the figure should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

/// One run of one arm.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Run {
    pub(super) name: String,
    pub(super) pps: f64,
    pub(super) window_s: f64,
    pub(super) cpu_ns: Option<f64>,
    /// What the rival seals with, `no` where it does not; only where rivals are compared.
    pub(super) encrypted: Option<String>,
    /// Whether messages left by a schedule, so that latency counts from the intended time.
    pub(super) has_schedule: bool,
    /// 50, 90, 99 and 99.9 percent, and the slowest, in nanoseconds.
    pub(super) latency_ns: Option<[f64; 5]>,
    /// Of each thread over the whole window.
    pub(super) threads_pps: Vec<f64>,
    /// What held the rate down where it was not what the run is about, such as `client`.
    pub(super) limited_by: Option<String>,
    pub(super) notes: Vec<String>,
}

/// A field that is not what it should be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unreadable(String);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Measured {
    /// Reads a file's text.
    ///
    /// # Errors
    /// The first field that is not what it should be, or where the text stops being JSON.
    pub(super) fn read(text: &str) -> Result<Self, Unreadable> {
        let value: Value = serde_json::from_str(text).map_err(|why| Unreadable(format!("no JSON: {why}")))?;
        let file = Field { value: &value, path: String::new() };
        let versions = file.get("versions");
        let flags = file.get("flags");
        let is_bench = file.value.get("figures").is_some();
        let (name, command) = (file.get("name").text()?, file.get("command").text()?);
        Ok(Self {
            name,
            sizes: if is_bench { sizes(&command) } else { String::new() },
            setup: setup(&file)?,
            command,
            extent: if is_bench { Some(flags.get("extent").text()?) } else { None },
            part: if is_bench { flags.get("only").if_any(Field::text)? } else { None },
            machine: machine(&file.get("machine"))?,
            versions: {
                let rustc = versions.get("rustc").if_any(Field::text)?;
                let rustc = rustc.map_or_else(String::new, |rustc| format!(", rustc {rustc}"));
                let (drumfire, build) = (versions.get("drumfire").text()?, versions.get("build").text()?);
                format!("drumfire {drumfire}, {build} build{rustc}")
            },
            figures: if is_bench { file.get("figures").list(figure)? } else { Vec::new() },
            runs: if is_bench { file.get("runs").list(run)? } else { vec![run(&file)?] },
            rates: if is_bench {
                file.get("rates").if_any(|field| field.list(rates_of_bench))?.unwrap_or_default()
            } else {
                file.get("pps_per_second").if_any(rates_of_run)?.into_iter().collect()
            },
        })
    }
}

/// The arguments of a bench's command but those that extent and part tell.
fn sizes(command: &str) -> String {
    let Some((_, args)) = command.split_once(" -- ") else { return String::new() };
    let mut is_told = false;
    let others = args.split_whitespace().filter(|arg| {
        if arg.starts_with("--") {
            is_told = ["--quick", "--full", "--only", "--bench"].contains(arg);
        }
        !is_told
    });
    others.collect::<Vec<_>>().join(" ")
}

/// How it was built, over what, and pinned where, as far as the file says.
fn setup(file: &Field<'_>) -> Result<String, Unreadable> {
    let mut words = Vec::new();
    for name in ["build", "network", "pinning"] {
        words.extend(file.get(name).if_any(Field::text)?);
    }
    words.extend(file.get("seed").if_any(Field::text)?.map(|seed| format!("seed {seed}")));
    Ok(words.join(" · "))
}

fn machine(machine: &Field<'_>) -> Result<String, Unreadable> {
    let mut words = Vec::new();
    words.extend(machine.get("cpu").if_any(Field::text)?);
    words.extend(machine.get("cores").if_any(Field::number)?.map(|cores| format!("{cores} cores")));
    let gib = |bytes: f64| format!("{:.1} GiB", bytes / f64::from(1 << 30));
    words.extend(machine.get("memory_bytes").if_any(Field::number)?.map(gib));
    words.extend(machine.get("kernel").if_any(Field::text)?.map(|kernel| format!("kernel {kernel}")));
    Ok(if words.is_empty() { "unknown".to_owned() } else { words.join(", ") })
}

fn figure(figure: &Field<'_>) -> Result<Figure, Unreadable> {
    let bound = figure.get("bound");
    let goal = match bound.if_any(Field::text)?.as_deref() {
        None => None,
        Some("at_least") => Some(Goal::AtLeast(figure.get("goal").number()?)),
        Some("at_most") => Some(Goal::AtMost(figure.get("goal").number()?)),
        Some(_) => return Err(bound.is_not("at_least, at_most or null")),
    };
    let [least, most] = ["least", "most"].map(|name| figure.get(name).if_any(Field::number));
    Ok(Figure {
        name: figure.get("name").text()?,
        value: figure.get("value").if_any(Field::number)?,
        range: least?.zip(most?).map(|(least, most)| Range { least, most }),
        unit: figure.get("unit").text()?,
        goal,
        is_reached: figure.get("reached").if_any(Field::truth)?,
        note: figure.get("note").text()?,
    })
}

fn run(run: &Field<'_>) -> Result<Run, Unreadable> {
    let percentiles = |latency: &Field<'_>| -> Result<[f64; 5], Unreadable> {
        let at = |name| latency.get(name).number();
        Ok([at("p50")?, at("p90")?, at("p99")?, at("p999")?, at("max")?])
    };
    Ok(Run {
        name: run.get("name").text()?,
        pps: run.get("pps").number()?,
        window_s: run.get("window_s").number()?,
        cpu_ns: run.get("cpu_ns_per_packet").if_any(Field::number)?,
        encrypted: run.get("flags").get("encrypted").if_any(Field::text)?,
        has_schedule: run.get("offered").if_any(Field::number)?.is_some(),
        latency_ns: run.get("latency_ns").if_any(percentiles)?,
        threads_pps: run.get("threads").list(|thread| thread.get("pps").number())?,
        limited_by: run.get("limited_by").if_any(Field::text)?,
        notes: run.get("notes").if_any(|field| field.list(Field::text))?.unwrap_or_default(),
    })
}

/// Samples as a bench writes them, each with its thread.
fn rates_of_bench(rates: &Field<'_>) -> Result<Rates, Unreadable> {
    let sample = |sample: &Field<'_>| Ok((sample.get("thread").number()?, sample.get("pps").number()?));
    let samples = rates.get("samples").list(sample)?;
    let mut threads: Vec<f64> = samples.iter().map(|(thread, _)| *thread).collect();
    threads.sort_by(f64::total_cmp);
    threads.dedup();
    let of = |thread: f64| samples.iter().filter(|(of, _)| *of == thread).map(|(_, pps)| *pps).collect();
    Ok(Rates { name: rates.get("name").text()?, threads: threads.into_iter().map(of).collect() })
}

/// Seconds as the receiver writes them, each with all threads.
fn rates_of_run(seconds: &Field<'_>) -> Result<Rates, Unreadable> {
    let seconds = seconds.list(|second| second.list(Field::number))?;
    let count = seconds.iter().map(Vec::len).max().unwrap_or(0);
    let of = |thread: usize| seconds.iter().filter_map(|second| second.get(thread).copied()).collect();
    Ok(Rates { name: String::new(), threads: (0..count).map(of).collect() })
}

/// A value and where it stands in its file.
struct Field<'a> {
    value: &'a Value,
    path: String,
}

impl<'a> Field<'a> {
    fn get(&self, name: &str) -> Field<'a> {
        let dot = if self.path.is_empty() { "" } else { "." };
        Field {
            value: self.value.get(name).unwrap_or(&Value::Null),
            path: format!("{}{dot}{name}", self.path),
        }
    }

    fn is_not(&self, what: &str) -> Unreadable {
        Unreadable(format!("{}: is not {what}", self.path))
    }

    fn text(&self) -> Result<String, Unreadable> {
        self.value.as_str().map(str::to_owned).ok_or_else(|| self.is_not("a text"))
    }

    fn number(&self) -> Result<f64, Unreadable> {
        self.value.as_f64().ok_or_else(|| self.is_not("a number"))
    }

    fn truth(&self) -> Result<bool, Unreadable> {
        self.value.as_bool().ok_or_else(|| self.is_not("true or false"))
    }

    /// Every item of a list.
    fn list<T>(&self, item: impl Fn(&Field<'a>) -> Result<T, Unreadable>) -> Result<Vec<T>, Unreadable> {
        let items = self.value.as_array().ok_or_else(|| self.is_not("a list"))?;
        let at =
            |(at, value): (usize, &'a Value)| item(&Field { value, path: format!("{}[{at}]", self.path) });
        items.iter().enumerate().map(at).collect()
    }

    /// `None` for what is absent or null.
    fn if_any<T>(&self, read: impl FnOnce(&Self) -> Result<T, Unreadable>) -> Result<Option<T>, Unreadable> {
        if self.value.is_null() { Ok(None) } else { read(self).map(Some) }
    }
}

/// Files as the programs write them, for the tests of this page.
#[cfg(test)]
pub(super) mod samples {
    use serde_json::{Value, json};

    /// What the receiver and the sender write.
    pub(in crate::report) fn run(name: &str) -> Value {
        json!({
            "name": name, "command": "receiver --with-sender", "flags": { "threads": 2 },
            "versions": versions(), "machine": machine(), "window_s": 2.0,
            "sent": 30, "received": 30, "drops": {}, "unexplained": 0, "pps": 15.0,
            "threads": [
                { "index": 0, "received": 20, "pps": 10.0, "kernel_drops": null, "cpu_user_s": 0.5, "cpu_sys_s": 0.5 },
                { "index": 1, "received": 10, "pps": 5.0, "kernel_drops": 0, "cpu_user_s": null, "cpu_sys_s": null },
            ],
            "spread_max_over_mean": 1.33, "cpu_ns_per_packet": 700.0, "granted": {},
            "latency_ns": { "p50": 1, "p90": 2, "p99": 3, "p999": 4, "max": 5, "count": 6 },
            "pps_per_second": [[10, 5], [11, 4]], "notes": ["a note"],
        })
    }

    /// What a bench writes.
    pub(in crate::report) fn bench(figures: &Value, runs: &[Value]) -> Value {
        json!({
            "name": "echo", "command": "cargo bench --bench echo", "flags": { "extent": "default", "only": null },
            "versions": versions(), "machine": machine(), "figures": figures, "runs": runs,
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

    fn error(value: &Value) -> String {
        Measured::read(&value.to_string()).unwrap_err().to_string()
    }

    #[test]
    fn what_a_bench_writes_is_read() {
        let figures = json!([
            { "name": "a", "value": 1.5, "least": 1.4, "most": 1.6, "unit": "x", "goal": 1.35, "bound": "at_most", "reached": false, "note": "n" },
            { "name": "b", "value": null, "unit": "ns", "goal": null, "bound": null, "reached": null, "note": "" },
        ]);
        let read =
            Measured::read(&samples::bench(&figures, &[samples::run("echo F: raw")]).to_string()).unwrap();
        assert_eq!((read.name.as_str(), read.extent.as_deref(), read.part), ("echo", Some("default"), None));
        assert_eq!(read.machine, "Some <CPU>, 2 cores, 1.0 GiB, kernel 6.18");
        assert_eq!(read.versions, "drumfire 0.1.0, release build");
        assert_eq!(read.figures[0].goal, Some(Goal::AtMost(1.35)));
        assert_eq!((read.figures[0].value, read.figures[0].is_reached), (Some(1.5), Some(false)));
        assert_eq!(read.figures[0].range, Some(Range { least: 1.4, most: 1.6 }));
        assert_eq!(
            (read.figures[1].value, read.figures[1].goal, read.figures[1].range),
            (None, None, None),
            "a report from before there was a range is read too"
        );
        assert_eq!(read.runs.len(), 1);
    }

    #[test]
    fn the_report_of_one_run_is_read_with_its_seconds() {
        let read = Measured::read(&samples::run("receiver").to_string()).unwrap();
        assert_eq!((read.extent, read.figures.len()), (None, 0));
        let run = &read.runs[0];
        assert_eq!(run.latency_ns, Some([1.0, 2.0, 3.0, 4.0, 5.0]));
        assert_eq!((run.cpu_ns, run.pps, run.window_s), (Some(700.0), 15.0, 2.0));
        assert_eq!(run.threads_pps, [10.0, 5.0]);
        assert_eq!(read.rates.len(), 1);
        assert_eq!(read.rates[0].threads, [[10.0, 11.0], [5.0, 4.0]]);
        assert_eq!(run.notes, ["a note"]);
    }

    #[test]
    fn a_benchs_samples_are_put_to_their_threads_and_its_runs_seconds_left_out() {
        let mut bench = samples::bench(&json!([]), &[samples::run("pps a: b")]);
        let sample = |thread, run, pps| json!({ "thread": thread, "run": run, "pps": pps });
        let samples = [sample(1, 0, 5), sample(0, 0, 10), sample(1, 1, 6), sample(0, 1, 11)];
        bench["rates"] = json!([{ "name": "12 flows by hash", "samples": samples }]);
        let read = Measured::read(&bench.to_string()).unwrap();
        let threads = vec![vec![10.0, 11.0], vec![5.0, 6.0]];
        assert_eq!(read.rates, [Rates { name: "12 flows by hash".to_owned(), threads }]);
    }

    #[test]
    fn arguments_that_neither_extent_nor_part_tells_are_sizes() {
        let of = |args: &str| sizes(&format!("cargo bench --bench chat{args}"));
        assert_eq!(of(" -- --only ladder --clients 300 --quick"), "--clients 300");
        assert_eq!(of(" -- --only A F --peers enet raw --full"), "--peers enet raw");
        assert_eq!((of(" -- --quick"), of(" -- --full --bench"), of("")), Default::default());
    }

    #[test]
    fn the_setup_and_how_a_run_was_loaded_are_read() {
        let mut run = samples::run("peers A: quinn");
        run["flags"]["encrypted"] = json!("AES-256");
        run["offered"] = json!(30);
        run["limited_by"] = json!("client");
        let mut bench = samples::bench(&json!([]), &[run, samples::run("peers C: quinn")]);
        bench["build"] = json!("opt-level 3");
        bench["pinning"] = json!("server to core 0");
        let read = Measured::read(&bench.to_string()).unwrap();
        assert_eq!(read.setup, "opt-level 3 · server to core 0");
        assert_eq!((read.runs[0].encrypted.as_deref(), read.runs[0].has_schedule), (Some("AES-256"), true));
        assert_eq!((&read.runs[1].encrypted, read.runs[1].has_schedule), (&None, false));
        assert_eq!((read.runs[0].limited_by.as_deref(), &read.runs[1].limited_by), (Some("client"), &None));
    }

    #[test]
    fn what_may_be_absent_may_be() {
        let mut file = samples::run("sender");
        let object = file.as_object_mut().unwrap();
        for name in ["latency_ns", "pps_per_second", "notes", "cpu_ns_per_packet"] {
            object.remove(name);
        }
        let mut read = Measured::read(&file.to_string()).unwrap();
        let run = read.runs.remove(0);
        assert_eq!((run.latency_ns, run.cpu_ns, read.rates.len(), run.notes.len()), (None, None, 0, 0));
    }

    #[test]
    fn a_field_that_cannot_be_used_is_named() {
        let mut run = samples::run("r");
        run["threads"][1]["pps"] = json!("fast");
        assert_eq!(error(&run), "threads[1].pps: is not a number");
        assert_eq!(
            error(&samples::bench(&json!([]), &[samples::run("a"), run])),
            "runs[1].threads[1].pps: is not a number"
        );
        let figure =
            json!([{ "name": "a", "value": 1.5, "unit": "x", "goal": 1, "bound": "near", "note": "" }]);
        assert_eq!(
            error(&samples::bench(&figure, &[])),
            "figures[0].bound: is not at_least, at_most or null"
        );
        assert_eq!(error(&json!({})), "name: is not a text");
        let cut = Measured::read("{ \"name\": ").unwrap_err().to_string();
        assert!(cut.starts_with("no JSON: ") && cut.lines().count() == 1, "{cut}");
    }
}
