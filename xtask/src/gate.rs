//! `cargo xtask bench`: compares the instructions of each stage with the baseline in `benches/counts.toml`.
//!
//! The bench `counts` counts, and fails when a stage exceeds its limit. This module reads its report. Counts of another compiler or another valgrind are compared and shown,
//! but never fail, because they depend more on the tools than on the code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use comfy_table::{CellAlignment, Table, presets};
use serde::{Deserialize, Serialize};

use crate::files;
use crate::report::results::{Extent, Figure, Results};
use crate::run::{CommandLine, Stop, fail_with};
use crate::workspace::Workspace;

/// A stage that grew by more than this share fails.
const GROWTH_MAX: f64 = 0.02;
const BASELINE: &str = "benches/counts.toml";

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// Fail when a stage grew by more than 2 % over `benches/counts.toml`.
    #[arg(long, group = "action", required_unless_present = "bless")]
    gate: bool,
    /// Write the counts to `benches/counts.toml`.
    #[arg(long, group = "action")]
    bless: bool,
}

/// The counts of all stages, as the file of the baseline has them.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Counts {
    /// The versions of the tools and the target, by name. The counts depend on them as well as on the code.
    made_with: BTreeMap<String, String>,
    instructions: BTreeMap<String, u64>,
}

/// Counts, and compares with the baseline or replaces it.
pub(crate) fn run(workspace: &Workspace, args: BenchArgs) -> Result<(), Stop> {
    let valgrind = CommandLine::new("valgrind", &["--version"]);
    let valgrind =
        valgrind.needed("valgrind, which counts the instructions (on Debian: apt-get install valgrind)")?;
    let rustc = CommandLine::new("rustc", &["--version"]).output()?;
    // The limits of some stages apply independently of the baseline.
    CommandLine::cargo("bench -p drumfire-benches --bench counts -- --judge").done()?;
    let report = workspace.target.join("reports/counts.json");
    let results =
        Results::read(&files::text(&report)?).map_err(|why| format!("{}: {why}", report.display()))?;
    let made_with = [
        ("rustc", rustc.trim().to_owned()),
        ("valgrind", valgrind.trim().to_owned()),
        ("target", workspace.host()?),
        ("target_cpu", target_cpu(results.build.as_deref().unwrap_or_default())),
    ]
    .map(|(name, value)| (name.to_owned(), value));
    let counts = Counts { made_with: made_with.into(), instructions: instructions(&results)? };
    if args.bless {
        files::write_tables(Path::new(BASELINE), &counts)?;
        println!("written to {BASELINE}");
        return Ok(());
    }
    counts.compare(&files::parsed(&workspace.root.join(BASELINE))?)
}

/// Returns the last `target-cpu` in the flags of a build, or that of a build without one. The report has the flags as cargo gave them,
/// including those of configuration files.
fn target_cpu(build: &str) -> String {
    let cpu = build.split_whitespace().rev().find_map(|word| word.split_once("target-cpu="));
    cpu.map_or("generic", |(_, cpu)| cpu).to_owned()
}

fn instructions(results: &Results) -> Result<BTreeMap<String, u64>, String> {
    if results.flags.extent != Extent::Default {
        return Err("flags.extent: is not `default`, so these are not the counts of the baseline".to_owned());
    }
    let counted = results.figures.iter().filter(|figure| figure.unit == "instructions");
    let stage = |figure: &Figure| {
        // A count is whole, and prints as a whole number.
        let count = figure.value.and_then(|value| format!("{value:.0}").parse().ok());
        Ok((figure.name.clone(), count.ok_or_else(|| format!("{}: has no count", figure.name))?))
    };
    counted.map(stage).collect()
}

impl Counts {
    /// Prints both counts of each stage and fails when a stage grew, unless the baseline was made with other tools.
    fn compare(&self, baseline: &Self) -> Result<(), Stop> {
        let (table, faults) = self.table_and_faults(baseline);
        println!("\n{table}");
        if self.made_with == baseline.made_with {
            return fail_with(&faults);
        }
        println!(
            "warning: the baseline was made with {:?}, and this machine has {:?}",
            baseline.made_with, self.made_with
        );
        faults.iter().for_each(|line| println!("warning: the baseline was made with other tools: {line}"));
        Ok(())
    }

    fn table_and_faults(&self, baseline: &Self) -> (Table, Vec<String>) {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(["stage", "baseline", "now", "growth"]);
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut faults = Vec::new();
        let stages = self.instructions.keys().chain(baseline.instructions.keys());
        for stage in stages.collect::<BTreeSet<_>>() {
            let [old, now] = [baseline, self].map(|counts| counts.instructions.get(stage).copied());
            let growth = old.zip(now).map(|(old, now)| (now as f64 - old as f64) / (old.max(1) as f64));
            let percent = growth.map_or("-".to_owned(), |growth| format!("{:+.2} %", 100.0 * growth));
            let [old, now] = [old, now].map(|count| count.map_or("-".to_owned(), |count| count.to_string()));
            table.add_row([stage, &old, &now, &percent]);
            let fault = match growth {
                None => "one of the counts is missing: `cargo xtask bench --bless` adds or removes the stage",
                Some(growth) if growth > GROWTH_MAX => "grew by more than 2 %",
                Some(_) => continue,
            };
            faults.push(format!("{stage}: {old} -> {now} instructions, {percent}, {fault}"));
        }
        (table, faults)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::results::samples;
    use serde_json::json;

    fn counts(stages: &[(&str, u64)]) -> Counts {
        let instructions = stages.iter().map(|(stage, count)| ((*stage).to_owned(), *count)).collect();
        Counts { made_with: [("rustc".to_owned(), "1.95.0".to_owned())].into(), instructions }
    }

    fn report(value: Option<f64>) -> Results {
        let mut figure = samples::figure("parse", value, None);
        figure["unit"] = json!("instructions");
        let ratio = samples::figure("one over the other", Some(2.0), None);
        Results::read(&samples::bench("default", &[figure, ratio]).to_string()).unwrap()
    }

    #[test]
    fn growth_beyond_two_percent_fails_and_names_both_counts() {
        let faults = |before: &[_], now: &[_]| counts(now).table_and_faults(&counts(before)).1;
        assert_eq!(faults(&[("parse", 1_000)], &[("parse", 1_020)]), [""; 0]);
        let grown = faults(&[("parse", 1_000), ("seal", 7)], &[("parse", 1_021), ("seal", 1)]);
        assert_eq!(grown, ["parse: 1000 -> 1021 instructions, +2.10 %, grew by more than 2 %"]);
        let other = faults(&[("gone", 5)], &[("new", 5)]);
        assert!(other[0].starts_with("gone: 5 -> - ") && other[1].starts_with("new: - -> 5 "), "{other:?}");
    }

    #[test]
    fn other_tools_turn_a_fault_into_a_warning() {
        let (before, now) = (counts(&[("parse", 1_000)]), counts(&[("parse", 2_000)]));
        assert!(now.compare(&before).is_err());
        let made_with = [("rustc".to_owned(), "1.96.0".to_owned())].into();
        assert!(Counts { made_with, ..now }.compare(&before).is_ok());
    }

    #[test]
    fn the_report_and_the_baseline_have_counts() {
        assert_eq!(instructions(&report(Some(253.0))), Ok([("parse".to_owned(), 253)].into()));
        assert!(instructions(&report(None)).is_err());
        let quick = Results::read(&samples::bench("quick", &[]).to_string()).unwrap();
        assert!(instructions(&quick).unwrap_err().starts_with("flags.extent:"));
        assert_eq!(target_cpu("rustc 1, RUSTFLAGS none"), "generic");
        assert_eq!(target_cpu("opt-level 3, RUSTFLAGS -C target-cpu=x86-64 -Ctarget-cpu=native"), "native");
        let baseline: Counts = files::parsed(&files::root().join(BASELINE)).unwrap();
        assert!(baseline.instructions.len() > 20);
        assert!(toml::from_str::<Counts>("[instructions]\n").is_err());
    }
}
