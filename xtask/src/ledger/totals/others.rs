//! The sums of the other runs, and how the last run of each kind ended.

use std::collections::BTreeMap;
use std::fmt;

use super::super::other::{Ended, Other};
use super::{Goal, Sum, hours, scaled, share};

/// What several runs come to.
#[derive(Clone, Copy, Debug)]
enum Fold {
    All,
    /// The longest of them: each does the same from the beginning.
    Longest,
}

/// A figure: its name, whose it is, what that calls it, its goals, and how runs add up.
type Figure = (&'static str, &'static str, &'static str, Goal, Fold);

const FIGURES: [Figure; 8] = [
    ("packets of a soak (C1)", "C1", "packets", Goal { scaled: 8_000_000, beta: 300_000_000 }, Fold::All),
    (
        "seconds of a soak under the address sanitizer",
        "C1, sanitized",
        "seconds",
        Goal { scaled: 180, beta: 1_800 },
        Fold::All,
    ),
    ("restarts over real sockets (C6)", "C6", "restarts", Goal::whole(50), Fold::All),
    ("panics over real sockets (C9)", "C9", "panics", Goal::whole(1_000), Fold::All),
    ("rebinds over real sockets (C5)", "C5", "rebinds", Goal::whole(1_000), Fold::All),
    ("schedules at random", "shuttle", "schedules", Goal::whole(1_000_000), Fold::All),
    ("seeds of each test of the core", "core", "seeds", Goal { scaled: 1_000, beta: 10_000 }, Fold::Longest),
    ("seeds of each strategy of a hostile peer", "core", "strategy_seeds", Goal::whole(1_000), Fold::Longest),
];

/// What a beta wants of the coverage: the count, and how many percent.
const COVERED: [(&str, f64); 2] = [("lines", 95.0), ("regions", 98.0)];
/// The run that counts them.
const COVERAGE: &str = "coverage";

/// Sums, and the last run of each kind.
#[derive(Debug)]
pub(super) struct Others {
    figures: [Sum; FIGURES.len()],
    last: BTreeMap<(usize, String), Other>,
}

impl Others {
    pub(super) fn of(all: &[Other]) -> Self {
        let figures = FIGURES.map(|(_, what, key, _, fold)| {
            let held = all.iter().filter(|other| other.what == what && other.ended != Ended::Missed);
            let counts = held.filter_map(|other| Some((other.number(key)?, other.wall_seconds)));
            let mut sum = Sum::default();
            match fold {
                Fold::All => counts.for_each(|(count, seconds)| sum.add(count, Some(seconds))),
                Fold::Longest => {
                    let longest = counts.max_by_key(|(count, _)| *count);
                    longest.into_iter().for_each(|(count, seconds)| sum.add(count, Some(seconds)));
                }
            }
            sum
        });
        // `C2` before `C10`.
        let last = all.iter().map(|other| ((other.what.len(), other.what.clone()), other.clone())).collect();
        Self { figures, last }
    }
}

impl fmt::Display for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| other runs | total | scaled goal | | beta | | the whole takes |")?;
        writeln!(f, "| --- | --- | --- | --- | --- | --- | --- |")?;
        for ((name, _, _, goal, _), sum) in FIGURES.iter().zip(self.figures) {
            let (scaled, of_scaled) = scaled(sum.total, *goal, 1);
            let (total, beta, of_beta) = (sum.total, goal.beta, share(sum.total, goal.beta));
            let time = hours(sum.seconds_for(goal.beta), "h");
            writeln!(f, "| {name} | {total} | {scaled} | {of_scaled} | {beta} | {of_beta} | {time} |")?;
        }
        writeln!(f, "\n| last run of | date | commit | count | result |")?;
        writeln!(f, "| --- | --- | --- | --- | --- |")?;
        for Other { date, commit, what, counts, ended, .. } in self.last.values() {
            let counts: Vec<_> = counts.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let beta = if what == COVERAGE { covered(&counts) } else { String::new() };
            writeln!(f, "| {what} | {date} | {commit} | {}{beta} | {ended} |", counts.join(" "))?;
        }
        Ok(())
    }
}

/// What a beta wants of the coverage, and whether it has it.
fn covered(counts: &[String]) -> String {
    let of = |(key, goal): (&str, f64)| {
        let value = counts.iter().find_map(|count| count.strip_prefix(key)?.strip_prefix('=')?.parse().ok());
        let word = if value.is_some_and(|value: f64| value >= goal) { "reached" } else { "not reached" };
        format!("; beta: {goal} % of {key}, {word}")
    };
    COVERED.map(of).concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(what: &str, counts: &str, result: &str) -> Other {
        Other::parse(&format!("| 2026-01-02 | abc | `xtask it` | {what} | {counts} | 90 | {result} |"))
            .unwrap()
    }

    fn text(all: &[Other]) -> String {
        Others::of(all).to_string()
    }

    #[test]
    fn runs_that_held_add_up_and_no_other() {
        let all = [
            other("C9", "panics=400", "held"),
            other("C9", "panics=500", "held"),
            other("C9", "panics=700", "missed"),
        ];
        let line = "| panics over real sockets (C9) | 900 | whole |  | 1000 | 90.0 % | 0.1 h |";
        assert!(text(&all).contains(line), "{}", text(&all));
        assert!(text(&all).contains("| C9 | 2026-01-02 | abc | panics=700 | missed |"));
    }

    #[test]
    fn of_runs_that_do_the_same_the_longest_counts() {
        let all = [other("core", "seeds=900", "held"), other("core", "seeds=500", "held")];
        let line = "| seeds of each test of the core | 900 | 1000 | 90.0 % | 10000 | 9.0 % | 0.3 h |";
        assert!(text(&all).contains(line), "{}", text(&all));
    }

    #[test]
    fn coverage_stands_beside_what_a_beta_wants() {
        let all = [other(COVERAGE, "lines=95.00 regions=97.99", "held")];
        let line = "| lines=95.00 regions=97.99; beta: 95 % of lines, reached; beta: 98 % of regions, not reached | held |";
        assert!(text(&all).contains(line), "{}", text(&all));
    }

    #[test]
    fn the_last_runs_stand_in_the_order_of_their_numbers() {
        let text = text(&[other("C10", "", "held"), other("C2", "", "held in part")]);
        assert!(text.find("| C2 |").unwrap() < text.find("| C10 |").unwrap());
    }
}
