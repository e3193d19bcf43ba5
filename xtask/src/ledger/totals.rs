//! All rows of the ledger together, beside what a beta is to reach, what was set as a goal where that takes too long, and how
//! long it would take.
//!
//! The goals are those of the project's test programme; what a row says is not doubted here.

mod others;

use std::collections::BTreeMap;
use std::fmt;

use super::Book;
use super::row::{Row, hundredths};
use others::Others;

/// What is to be reached.
#[derive(Clone, Copy, Debug)]
struct Goal {
    /// What was set because the whole takes more machine time than there is; the whole, where it does not.
    scaled: u64,
    beta: u64,
}

impl Goal {
    const fn whole(beta: u64) -> Self {
        Self { scaled: beta, beta }
    }
}

/// A figure that every run of the simulator adds to: its name, its goals, and how much a row has of it.
type Figure = (&'static str, Goal, fn(&Row) -> Option<u64>);

const FIGURES: [Figure; 7] = [
    ("seeds", Goal::whole(100_000), |row| row.seeds.as_ref().map(|it| it.end - it.start)),
    // In hundredths.
    ("connection-hours", Goal { scaled: 2_500_000, beta: 5_000_000 }, |row| row.hours),
    ("packets", Goal { scaled: 500_000_000, beta: 1_000_000_000 }, |row| row.packets),
    ("faults", Goal::whole(100_000_000), |row| row.faults),
    ("handshakes", Goal::whole(1_000_000), |row| row.handshakes),
    ("hostile datagrams", Goal::whole(100_000_000), |row| row.hostile),
    ("audited packets", Goal { scaled: 500_000_000, beta: 1_000_000_000 }, |row| row.audited),
];
/// The figure in hundredths.
const IN_HUNDREDTHS: &str = "connection-hours";

/// Seconds of processor time for each target.
const FUZZ_SECONDS: Goal = Goal { scaled: 300, beta: 7_200 };
/// Inputs of targets that read one thing.
const FUZZ_INPUTS: u64 = 1_000_000_000;
/// Inputs of targets that hold connections or servers.
const STATEFUL_INPUTS: u64 = 50_000_000;
/// Which those are: F4 shows its token to a server of a world of its own, F10 and F11 hold a live connection beside their set
/// and their map of bytes, F15 a receiver with its buffers; the others say it by their names.
const STATEFUL: [&str; 11] = ["F3", "F4", "F5", "F6", "F7", "F8", "F9", "F10", "F11", "F15", "F18"];

/// How much, and the seconds that it took as far as they are known, with how much came of those.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    total: u64,
    timed: u64,
    seconds: u64,
}

/// Sums of rows.
#[derive(Debug)]
pub(super) struct Totals {
    figures: [Sum; FIGURES.len()],
    /// By target, in their order: inputs.
    targets: BTreeMap<(usize, String), Sum>,
    planted: Option<String>,
    findings: u64,
    others: Others,
}

impl Totals {
    pub(super) fn of(book: &Book) -> Self {
        let mut targets = BTreeMap::<_, Sum>::new();
        for row in &book.rows {
            if let Some(target) = &row.target {
                let sum = targets.entry((target.len(), target.clone())).or_default();
                sum.add(row.inputs.unwrap_or(0), row.cpu_seconds);
            }
        }
        let sum = |of: fn(&Row) -> Option<u64>| {
            let mut sum = Sum::default();
            for row in &book.rows {
                of(row).into_iter().for_each(|count| sum.add(count, row.cpu_seconds));
            }
            sum
        };
        Self {
            figures: FIGURES.map(|(_, _, of)| sum(of)),
            targets,
            planted: book.rows.iter().rev().find_map(|row| row.planted.clone()),
            findings: book.rows.iter().map(|row| row.findings).sum(),
            others: Others::of(&book.others),
        }
    }
}

impl Sum {
    fn add(&mut self, count: u64, seconds: Option<u64>) {
        self.total += count;
        if let Some(seconds) = seconds.filter(|seconds| *seconds > 0) {
            self.timed += count;
            self.seconds += seconds;
        }
    }

    /// The seconds that so much takes, rounded up.
    fn seconds_for(self, goal: u64) -> Option<u64> {
        let seconds = u128::from(goal) * u128::from(self.seconds);
        let seconds = seconds.checked_div(u128::from(self.timed)).filter(|_| self.timed > 0)?;
        u64::try_from(seconds).ok()
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "## Totals\n\n| figure | total | scaled goal | | beta | | the whole takes |")?;
        writeln!(f, "| --- | --- | --- | --- | --- | --- | --- |")?;
        for ((name, goal, _), sum) in FIGURES.iter().zip(self.figures) {
            let shown = |number: u64| {
                if *name == IN_HUNDREDTHS { hundredths(number) } else { number.to_string() }
            };
            let unit = if *name == IN_HUNDREDTHS { 100 } else { 1 };
            let (scaled, of_scaled) = scaled(sum.total, *goal, unit);
            let (beta, of_beta) = (goal.beta / unit, share(sum.total, goal.beta));
            let time = hours(sum.seconds_for(goal.beta), "CPU h");
            writeln!(
                f,
                "| {name} | {} | {scaled} | {of_scaled} | {beta} | {of_beta} | {time} |",
                shown(sum.total)
            )?;
        }
        writeln!(
            f,
            "\n| target | CPU s | of {} (scaled) | of {} (beta) | inputs | of {FUZZ_INPUTS}, stateful {STATEFUL_INPUTS} \
             (beta) | the whole takes |",
            FUZZ_SECONDS.scaled, FUZZ_SECONDS.beta
        )?;
        writeln!(f, "| --- | --- | --- | --- | --- | --- | --- |")?;
        for ((_, target), sum) in &self.targets {
            let goal = if STATEFUL.contains(&target.as_str()) { STATEFUL_INPUTS } else { FUZZ_INPUTS };
            let [scaled, beta] =
                [FUZZ_SECONDS.scaled, FUZZ_SECONDS.beta].map(|goal| share(sum.seconds, goal));
            let whole = sum.seconds_for(goal).map(|seconds| seconds.max(FUZZ_SECONDS.beta));
            let (inputs, of_inputs, time) = (sum.total, share(sum.total, goal), hours(whole, "CPU h"));
            writeln!(
                f,
                "| {target} | {} | {scaled} | {beta} | {inputs} | {of_inputs} | {time} |",
                sum.seconds
            )?;
        }
        write!(f, "\n{}", self.others)?;
        let planted = self.planted.as_deref().unwrap_or("not tried");
        writeln!(f, "\nFound of the planted bugs: {planted}. Findings in all: {}.", self.findings)
    }
}

/// A scaled goal in units of so much, and how much of it that is; a word where the whole is the goal.
fn scaled(total: u64, goal: Goal, unit: u64) -> (String, String) {
    if goal.scaled == goal.beta {
        return ("whole".to_owned(), String::new());
    }
    ((goal.scaled / unit).to_string(), share(total, goal.scaled))
}

/// How much of a goal that is, rounded down.
fn share(total: u64, goal: u64) -> String {
    if total >= goal {
        return "reached".to_owned();
    }
    let tenths = u128::from(total) * 1_000 / u128::from(goal.max(1));
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// A time in hours, rounded up.
fn hours(seconds: Option<u64>, unit: &str) -> String {
    let Some(seconds) = seconds else { return "not measured".to_owned() };
    let tenths = seconds.div_ceil(360);
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_never_rounded_up_and_a_time_never_down() {
        for (total, goal, said) in
            [(0, 7, "0.0 %"), (999, 1_000, "99.9 %"), (9_999, 10_000, "99.9 %"), (7, 7, "reached")]
        {
            assert_eq!(share(total, goal), said);
        }
        for (seconds, said) in [(Some(0), "0.0 h"), (Some(1), "0.1 h"), (Some(3_601), "1.1 h")] {
            assert_eq!(hours(seconds, "h"), said);
        }
        assert_eq!(hours(None, "h"), "not measured");
    }

    #[test]
    fn what_was_not_timed_counts_and_says_nothing_on_the_time() {
        let mut sum = Sum::default();
        sum.add(1_000, None);
        assert_eq!((sum.total, sum.seconds_for(1)), (1_000, None));
        sum.add(10, Some(5));
        assert_eq!((sum.total, sum.seconds_for(100)), (1_010, Some(50)));
        sum.add(10, Some(0));
        assert_eq!((sum.total, sum.seconds_for(100)), (1_020, Some(50)));
    }

    #[test]
    fn targets_stand_in_the_order_of_their_numbers_each_with_its_own_goal() {
        let row = |said: &str| Row::said("", "", "", said).unwrap();
        let rows = [
            row("target=F12 inputs=200000 cpu=1s"),
            row("target=F10 inputs=200000 cpu=1s"),
            row("target=F9 inputs=200000 cpu=2s"),
            row("target=F9 cpu=2s"),
        ];
        let text = Totals::of(&Book { rows: rows.into(), ..Book::default() }).to_string();
        assert!(text.find("| F9 | 4 |").unwrap() < text.find("| F10 | 1 |").unwrap());
        for line in [
            "| F9 | 4 | 1.3 % | 0.0 % | 200000 | 0.4 % | 2.0 CPU h |",
            "| F10 | 1 | 0.3 % | 0.0 % | 200000 | 0.4 % | 2.0 CPU h |",
            "| F12 | 1 | 0.3 % | 0.0 % | 200000 | 0.0 % | 2.0 CPU h |",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
