//! All rows of the ledger together, beside what each submission and a beta are to reach.
//!
//! The goals are those of the project's test programme; what a row says is not doubted here.

use std::collections::BTreeMap;
use std::fmt;

use super::row::{Row, hundredths};

/// What is to be reached.
#[derive(Clone, Copy, Debug)]
struct Goal {
    submission: u64,
    beta: u64,
}

/// A figure that every run of the simulator adds to: its name, its goals, and how much a row has of it.
type Figure = (&'static str, Goal, fn(&Row) -> Option<u64>);

const FIGURES: [Figure; 7] = [
    ("seeds", Goal { submission: 2_000, beta: 100_000 }, |row| {
        row.seeds.as_ref().map(|it| it.end - it.start)
    }),
    // In hundredths.
    ("connection-hours", Goal { submission: 100_000, beta: 5_000_000 }, |row| row.hours),
    ("packets", Goal { submission: 20_000_000, beta: 1_000_000_000 }, |row| row.packets),
    ("faults", Goal { submission: 2_000_000, beta: 100_000_000 }, |row| row.faults),
    ("handshakes", Goal { submission: 100_000, beta: 1_000_000 }, |row| row.handshakes),
    ("hostile datagrams", Goal { submission: 1_000_000, beta: 100_000_000 }, |row| row.hostile),
    ("audited packets", Goal { submission: 20_000_000, beta: 1_000_000_000 }, |row| row.audited),
];
/// The figure in hundredths.
const IN_HUNDREDTHS: &str = "connection-hours";

/// Seconds of processor time for each target.
const FUZZ_SECONDS: Goal = Goal { submission: 20, beta: 7_200 };
/// Inputs of targets that read one thing.
const FUZZ_INPUTS: Goal = Goal { submission: 5_000_000, beta: 1_000_000_000 };
/// Inputs of targets that hold connections or servers.
const STATEFUL_INPUTS: Goal = Goal { submission: 200_000, beta: 50_000_000 };
/// Which those are.
const STATEFUL: [&str; 7] = ["F3", "F5", "F6", "F7", "F8", "F9", "F18"];

/// Sums of rows.
#[derive(Debug)]
pub(super) struct Totals {
    figures: [u64; FIGURES.len()],
    /// By target, in their order: seconds and inputs.
    targets: BTreeMap<(usize, String), (u64, u64)>,
    planted: Option<String>,
    findings: u64,
}

impl Totals {
    pub(super) fn of(rows: &[Row]) -> Self {
        let sum = |of: fn(&Row) -> Option<u64>| rows.iter().filter_map(of).sum();
        let mut targets = BTreeMap::new();
        for row in rows {
            if let Some(target) = &row.target {
                let (seconds, inputs) = targets.entry((target.len(), target.clone())).or_insert((0, 0));
                *seconds += row.cpu_seconds.unwrap_or(0);
                *inputs += row.inputs.unwrap_or(0);
            }
        }
        Self {
            figures: FIGURES.map(|(_, _, of)| sum(of)),
            targets,
            planted: rows.iter().rev().find_map(|row| row.planted.clone()),
            findings: rows.iter().map(|row| row.findings).sum(),
        }
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## Totals\n\n| figure | total | each submission | | beta | |")?;
        writeln!(f, "| --- | --- | --- | --- | --- | --- |")?;
        for ((name, goal, _), total) in FIGURES.iter().zip(self.figures) {
            let is_hundredths = *name == IN_HUNDREDTHS;
            let (shown, unit) = if is_hundredths { (hundredths(total), 100) } else { (total.to_string(), 1) };
            let (submission, beta) = (goal.submission / unit, goal.beta / unit);
            let shares = [share(total, goal.submission), share(total, goal.beta)];
            writeln!(f, "| {name} | {shown} | {submission} | {} | {beta} | {} |", shares[0], shares[1])?;
        }
        writeln!(f, "\n| target | CPU s | of 20 | of 7200 (beta) | inputs | each submission | beta |")?;
        writeln!(f, "| --- | --- | --- | --- | --- | --- | --- |")?;
        for ((_, target), (seconds, inputs)) in &self.targets {
            let goal = if STATEFUL.contains(&target.as_str()) { STATEFUL_INPUTS } else { FUZZ_INPUTS };
            let of_seconds = [share(*seconds, FUZZ_SECONDS.submission), share(*seconds, FUZZ_SECONDS.beta)];
            let of_inputs = [share(*inputs, goal.submission), share(*inputs, goal.beta)];
            writeln!(
                f,
                "| {target} | {seconds} | {} | {} | {inputs} | {} | {} |",
                of_seconds[0], of_seconds[1], of_inputs[0], of_inputs[1]
            )?;
        }
        let planted = self.planted.as_deref().unwrap_or("not tried");
        writeln!(f, "\nFound of the planted bugs: {planted}. Findings in all: {}.", self.findings)
    }
}

/// How much of a goal that is, rounded down.
fn share(total: u64, goal: u64) -> String {
    if total >= goal {
        return "reached".to_owned();
    }
    let tenths = u128::from(total) * 1_000 / u128::from(goal.max(1));
    format!("{}.{} %", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_never_rounded_up() {
        for (total, goal, said) in
            [(0, 7, "0.0 %"), (999, 1_000, "99.9 %"), (9_999, 10_000, "99.9 %"), (7, 7, "reached")]
        {
            assert_eq!(share(total, goal), said);
        }
    }

    #[test]
    fn targets_stand_in_the_order_of_their_numbers_each_with_its_own_goal() {
        let row = |said: &str| Row::said("", "", "", said).unwrap();
        let rows = [
            row("target=F10 inputs=200000 cpu=1s"),
            row("target=F9 inputs=200000 cpu=2s"),
            row("target=F9 cpu=2s"),
        ];
        let text = Totals::of(&rows).to_string();
        assert!(text.find("| F9 | 4 |").unwrap() < text.find("| F10 | 1 |").unwrap());
        assert!(
            text.contains("| 200000 | reached | 0.4 % |") && text.contains("| 200000 | 4.0 % | 0.0 % |"),
            "{text}"
        );
    }
}
