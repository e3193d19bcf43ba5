//! `cargo xtask bench`: compares the instruction counts of each stage with the baseline in `benches/counts.toml`, and with the limits
//! that some stages promise.
//!
//! The bench `counts` does the counting, and this module reads its report. Counts of another compiler or another valgrind are compared
//! and shown too, but fail nothing, because they say more about the tools than about the code.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::run::{CommandLine, Stop};
use crate::workspace::Workspace;

/// A stage that grew by more than this share fails the gate.
const GROWTH: f64 = 0.02;
/// Where the baseline is, below the root.
const BASELINE: &str = "benches/counts.toml";
/// The processor of a build that names none.
const GENERIC: &str = "generic";
/// Where the bench writes what it counted, below the target folder.
const COUNTED: &str = "reports/counts.json";

/// The tools and the target. The counts depend on them as well as on the code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct MadeWith {
    rustc: String,
    valgrind: String,
    target: String,
    target_cpu: String,
}

/// Counts, and what they were made with. Stages are in the order of the bench.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counts {
    made_with: MadeWith,
    stages: Vec<(String, u64)>,
}

/// Counts, and compares with the baseline, or replaces it if `is_blessed`.
///
/// # Errors
/// [`Stop::Failed`] with the stages that grew or broke a promise, [`Stop::Needs`] without valgrind.
pub(crate) fn run(is_blessed: bool) -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let mut made_with = MadeWith::of_this_machine(&workspace.root)?;
    let report = workspace.target.join(COUNTED);
    let count = CommandLine::new("cargo", &["bench", "-p", "drumfire-benches", "--bench", "counts"]);
    count.done(&workspace.root)?;
    let unusable = |what: String| Stop::failed(format!("{}: {what}", report.display()));
    let text = read(&report)?;
    made_with.target_cpu = target_cpu(&text).map_err(unusable)?;
    let stages = stages(&text).map_err(unusable)?;
    let broken = broken_promises(&text).map_err(unusable)?;
    let counts = Counts { made_with, stages };
    let path = workspace.root.join(BASELINE);
    if !broken.is_empty() {
        return Err(Stop::Failed(broken.join("\n")));
    }
    if is_blessed {
        std::fs::write(&path, counts.to_toml())
            .map_err(|why| Stop::failed(format!("{}: {why}", path.display())))?;
        println!("written to {}", path.display());
        return Ok(());
    }
    let baseline =
        Counts::from_toml(&read(&path)?).map_err(|what| Stop::failed(format!("{BASELINE}: {what}")))?;
    let compared = compare(&baseline, &counts);
    println!("\n{}", compared.table);
    let others = baseline.made_with.differences(&counts.made_with);
    if others.is_empty() {
        return compared.judged();
    }
    for line in &others {
        println!("warning: {line}");
    }
    match compared.judged() {
        Ok(()) => println!("the baseline was made with other tools; no stage grew all the same"),
        Err(Stop::Failed(lines)) => {
            println!("warning: the baseline was made with other tools, so this fails nothing:\n{lines}");
        }
        Err(other) => return Err(other),
    }
    Ok(())
}

fn read(path: &PathBuf) -> Result<String, Stop> {
    std::fs::read_to_string(path).map_err(|why| Stop::failed(format!("{}: {why}", path.display())))
}

impl MadeWith {
    fn of_this_machine(root: &Path) -> Result<Self, Stop> {
        let valgrind = CommandLine::new("valgrind", &["--version"]).output(root).map_err(|_| {
            Stop::Needs(
                "valgrind on the PATH, which counts the instructions: apt-get install valgrind".to_owned(),
            )
        })?;
        let rustc = CommandLine::new("rustc", &["-vV"]).output(root)?;
        Ok(Self::of(&rustc, valgrind.trim()))
    }

    /// From what `rustc -vV` and `valgrind --version` print. The processor that was built for is known once the bench has run.
    fn of(rustc: &str, valgrind: &str) -> Self {
        let host = rustc.lines().find_map(|line| line.strip_prefix("host: "));
        Self {
            rustc: rustc.lines().next().unwrap_or_default().to_owned(),
            valgrind: valgrind.to_owned(),
            target: host.unwrap_or_default().to_owned(),
            target_cpu: GENERIC.to_owned(),
        }
    }

    fn fields(&self) -> [(&'static str, &str); 4] {
        [
            ("rustc", &self.rustc),
            ("valgrind", &self.valgrind),
            ("target", &self.target),
            ("target_cpu", &self.target_cpu),
        ]
    }

    /// A line for each field in which the other one differs.
    fn differences(&self, now: &Self) -> Vec<String> {
        let both = self.fields().into_iter().zip(now.fields());
        let others = both.filter(|((_, before), (_, now))| before != now);
        others.map(|((name, before), (_, now))| format!("{name}: baseline {before}, here {now}")).collect()
    }
}

impl Counts {
    fn to_toml(&self) -> String {
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let mut text = "# Instructions per call of each stage. Written by `cargo xtask bench --bless`, compared by\n\
                        # `cargo xtask bench --gate`, which fails when a stage grew by more than 2 %.\n\n[made_with]\n"
            .to_owned();
        for (name, value) in self.made_with.fields() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name} = {}", quoted(value));
        }
        text.push_str("\n[instructions]\n");
        for (stage, count) in &self.stages {
            let _ = writeln!(text, "{} = {count}", quoted(stage));
        }
        text
    }

    fn from_toml(text: &str) -> Result<Self, String> {
        let table: toml::Table = text.parse().map_err(|why: toml::de::Error| why.message().to_owned())?;
        let made_with = |name: &str| {
            let value = table.get("made_with").and_then(|made_with| made_with.get(name)?.as_str());
            value.map(str::to_owned).ok_or_else(|| format!("made_with.{name}: is not a string"))
        };
        let instructions = table.get("instructions").and_then(toml::Value::as_table);
        let stages = instructions.ok_or("instructions: is not a table")?.iter().map(|(stage, count)| {
            let count = count.as_integer().and_then(|count| u64::try_from(count).ok());
            Ok((stage.clone(), count.ok_or_else(|| format!("instructions.{stage:?}: is not a count"))?))
        });
        Ok(Self {
            made_with: MadeWith {
                rustc: made_with("rustc")?,
                valgrind: made_with("valgrind")?,
                target: made_with("target")?,
                target_cpu: made_with("target_cpu")?,
            },
            stages: stages.collect::<Result<_, String>>()?,
        })
    }
}

/// The processor that the bench was built for. Its report has the flags as cargo gave them, those of configuration files included.
fn target_cpu(text: &str) -> Result<String, String> {
    let report: Value = serde_json::from_str(text).map_err(|why| why.to_string())?;
    let build = report["build"].as_str().ok_or("build: is not a string")?;
    // The last one counts.
    let cpu = build.split_whitespace().rev().find_map(|word| word.split_once("target-cpu="));
    Ok(cpu.map_or(GENERIC, |(_, cpu)| cpu).to_owned())
}

/// The stages of the bench's report.
fn stages(text: &str) -> Result<Vec<(String, u64)>, String> {
    let report: Value = serde_json::from_str(text).map_err(|why| why.to_string())?;
    if report["flags"]["extent"] != "default" {
        return Err("flags.extent: is not `default`, so these are not the counts of the baseline".to_owned());
    }
    let figures = report["figures"].as_array().ok_or("figures: is not a list")?;
    let counted = figures.iter().enumerate().filter(|(_, figure)| figure["unit"] == "instructions");
    let stage = |(at, figure): (usize, &Value)| {
        let name = figure["name"].as_str().ok_or_else(|| format!("figures[{at}].name: is not a string"))?;
        let value =
            figure["value"].as_f64().ok_or_else(|| format!("figures[{at}].value: is not a number"))?;
        // A count is whole, and prints as such.
        let count = format!("{value:.0}").parse().map_err(|_| format!("figures[{at}].value: is no count"))?;
        Ok((name.to_owned(), count))
    };
    counted.map(stage).collect()
}

/// A line for each figure that misses its goal: those are promises, and hold whatever the baseline says.
fn broken_promises(text: &str) -> Result<Vec<String>, String> {
    let report: Value = serde_json::from_str(text).map_err(|why| why.to_string())?;
    let figures = report["figures"].as_array().ok_or("figures: is not a list")?;
    let broken = figures.iter().filter(|figure| figure["reached"] == false);
    let line = |figure: &Value| {
        let (name, unit) =
            (figure["name"].as_str().unwrap_or_default(), figure["unit"].as_str().unwrap_or_default());
        format!("{name}: {} {unit}, more than the {} that are promised", figure["value"], figure["goal"])
    };
    Ok(broken.map(line).collect())
}

/// A table of both sides, and the faults.
struct Compared {
    table: String,
    faults: Vec<String>,
}

impl Compared {
    fn judged(self) -> Result<(), Stop> {
        if self.faults.is_empty() { Ok(()) } else { Err(Stop::Failed(self.faults.join("\n"))) }
    }
}

fn compare(baseline: &Counts, counts: &Counts) -> Compared {
    let before: BTreeMap<&str, u64> =
        baseline.stages.iter().map(|(stage, count)| (stage.as_str(), *count)).collect();
    let width = counts.stages.iter().map(|(stage, _)| stage.len()).max().unwrap_or_default();
    let mut table = format!("{:width$}  {:>10}  {:>10}\n", "stage", "baseline", "now");
    let mut faults = Vec::new();
    for (stage, now) in &counts.stages {
        let Some(&old) = before.get(stage.as_str()) else {
            let _ = writeln!(table, "{stage:width$}  {:>10}  {now:>10}", "-");
            faults.push(format!("{stage}: is not in {BASELINE}; `cargo xtask bench --bless` puts it there"));
            continue;
        };
        let growth = (*now as f64 - old as f64) / (old.max(1) as f64);
        let _ = writeln!(table, "{stage:width$}  {old:>10}  {now:>10}  {:+.2} %", 100.0 * growth);
        if growth > GROWTH {
            faults.push(format!(
                "{stage}: {old} -> {now} instructions, {:+.2} %, more than +2 %",
                100.0 * growth
            ));
        }
    }
    let is_counted = |stage: &str| counts.stages.iter().any(|(name, _)| name == stage);
    for (stage, _) in baseline.stages.iter().filter(|(stage, _)| !is_counted(stage)) {
        faults.push(format!("{stage}: is in {BASELINE} and was not counted"));
    }
    Compared { table, faults }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const RUSTC: &str = "rustc 1.95.0 (5980 2026-04-14)\nbinary: rustc\nhost: x86_64-unknown-linux-gnu\n";

    fn counts(stages: &[(&str, u64)]) -> Counts {
        let stages = stages.iter().map(|(stage, count)| ((*stage).to_owned(), *count)).collect();
        Counts { made_with: MadeWith::of(RUSTC, "valgrind-3.19.0"), stages }
    }

    fn faults(before: &[(&str, u64)], now: &[(&str, u64)]) -> Vec<String> {
        compare(&counts(before), &counts(now)).faults
    }

    #[test]
    fn growth_beyond_two_percent_fails_and_names_stage_counts_and_percent() {
        assert_eq!(faults(&[("parse", 1_000)], &[("parse", 1_020)]), [""; 0]);
        assert_eq!(
            faults(&[("parse", 1_000), ("seal", 7)], &[("parse", 1_021), ("seal", 1)]),
            ["parse: 1000 -> 1021 instructions, +2.10 %, more than +2 %"]
        );
    }

    #[test]
    fn stages_that_only_one_side_has_are_named() {
        let faults = faults(&[("gone", 5)], &[("new", 5)]);
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(
            faults[0].starts_with("new: is not in") && faults[1].starts_with("gone: is in"),
            "{faults:?}"
        );
    }

    #[test]
    fn a_baseline_comes_back_as_it_was_written() {
        let counts = counts(&[("open, AES-128-GCM", 1_172), ("a \"b\" = c", 3)]);
        let mut read = Counts::from_toml(&counts.to_toml()).unwrap();
        read.stages.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        assert_eq!(read, counts);
    }

    #[test]
    fn a_baseline_that_cannot_be_read_names_the_field() {
        let error = |text: &str| Counts::from_toml(text).unwrap_err();
        let head = "[made_with]\nrustc = 'a'\nvalgrind = 'b'\ntarget = 'c'\ntarget_cpu = 'd'\n";
        assert!(error("[instructions]\n").starts_with("made_with.rustc:"));
        assert!(error(head).starts_with("instructions:"));
        assert!(error(&format!("{head}[instructions]\nparse = 'x'")).contains("\"parse\": is not a count"));
        assert!(!error("= =").contains('\n'));
    }

    #[test]
    fn the_report_of_the_bench_is_read_and_a_quick_one_refused() {
        let mut report = json!({
            "flags": { "extent": "default" },
            "figures": [
                { "name": "parse", "value": 253.0, "unit": "instructions" },
                { "name": "one over the other", "value": 2.0, "unit": "" },
            ],
        });
        assert_eq!(stages(&report.to_string()), Ok(vec![("parse".to_owned(), 253)]));
        report["figures"][0]["value"] = Value::Null;
        assert_eq!(stages(&report.to_string()).unwrap_err(), "figures[0].value: is not a number");
        report["flags"]["extent"] = json!("quick");
        assert!(stages(&report.to_string()).unwrap_err().starts_with("flags.extent:"));
    }

    #[test]
    fn a_promise_that_is_broken_is_named_with_what_it_cost() {
        let figure = |value: f64| json!({ "name": "a forged id", "value": value, "unit": "instructions", "goal": 500.0, "reached": value <= 500.0 });
        let broken = |value: f64| broken_promises(&json!({ "figures": [figure(value)] }).to_string());
        assert_eq!(broken(500.0), Ok(Vec::new()));
        assert_eq!(
            broken(501.0),
            Ok(vec!["a forged id: 501.0 instructions, more than the 500.0 that are promised".to_owned()])
        );
        let shown = json!({ "figures": [{ "name": "parse", "value": 1.0, "reached": null }] });
        assert_eq!(broken_promises(&shown.to_string()), Ok(Vec::new()));
    }

    #[test]
    fn the_processor_is_that_of_the_build_in_the_report() {
        let of = |report: Value| target_cpu(&report.to_string());
        assert_eq!(of(json!({ "build": "rustc 1, RUSTFLAGS none" })), Ok("generic".to_owned()));
        assert_eq!(of(json!({ "build": "RUSTFLAGS -Ctarget-cpu=native" })), Ok("native".to_owned()));
        assert_eq!(of(json!({})).unwrap_err(), "build: is not a string");
    }

    #[test]
    fn other_tools_are_named_field_by_field() {
        let before = MadeWith::of(RUSTC, "valgrind-3.19.0");
        assert_eq!(
            (before.target.as_str(), before.target_cpu.as_str()),
            ("x86_64-unknown-linux-gnu", "generic")
        );
        let report = json!({ "build": "opt-level 3, RUSTFLAGS -C target-cpu=x86-64 -Ctarget-cpu=native" });
        let target_cpu = target_cpu(&report.to_string()).unwrap();
        let now = MadeWith { target_cpu, ..MadeWith::of(RUSTC, "valgrind-3.22.0") };
        assert_eq!(
            before.differences(&now),
            [
                "valgrind: baseline valgrind-3.19.0, here valgrind-3.22.0",
                "target_cpu: baseline generic, here native"
            ]
        );
        assert!(before.differences(&before).is_empty());
    }
}
