//! What a run saw, beside what it wanted: one line for each figure.
//!
//! It takes no figure itself and explains none.

use std::fmt::Display;
use std::time::Duration;

use crate::stop::Stop;

/// The figures of one run.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    lines: Vec<String>,
    reached: usize,
    missed: usize,
    skipped: usize,
    unjudged: usize,
}

/// What all figures of a run come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Every mark was reached.
    Passed,
    /// Every mark was reached that can be judged at this size, and there are others.
    Partly,
    /// One was not.
    Missed,
    /// None was missed, and a part could not be done here.
    Skipped,
}

impl Marks {
    /// A count that has one right value.
    pub(crate) fn equal(&mut self, name: &str, figure: u64, goal: u64) {
        self.add(name, figure, &format!("= {goal}"), figure == goal);
    }

    /// A count that may be this at most.
    pub(crate) fn at_most(&mut self, name: &str, figure: u64, goal: u64) {
        self.add(name, figure, &format!("<= {goal}"), figure <= goal);
    }

    /// A count that must be this at least, or nothing is proved.
    pub(crate) fn at_least(&mut self, name: &str, figure: u64, goal: u64) {
        self.add(name, figure, &format!(">= {goal}"), figure >= goal);
    }

    /// A time that may be this at most.
    pub(crate) fn within(&mut self, name: &str, figure: Duration, goal: Duration) {
        self.add(name, millis(figure), &format!("<= {}", millis(goal)), figure <= goal);
    }

    /// A share of a whole that must stay below so many in 100,000.
    pub(crate) fn share_below(&mut self, name: &str, part: u64, whole: u64, goal: u64) {
        let is_below = u128::from(part) * 100_000 < u128::from(whole) * u128::from(goal);
        let figure = format!("{part} of {whole}");
        self.add(name, figure, &format!("< {}.{:03} %", goal / 1_000, goal % 1_000), is_below);
    }

    /// Something seen on the way that has no goal.
    pub(crate) fn note(&mut self, text: impl Display) {
        self.lines.push(format!("     {text}"));
    }

    /// Takes note of a part of the run that was done, or that this machine cannot do: the run goes on with its other parts.
    ///
    /// # Errors
    /// What ended the part, where it is anything else.
    pub(crate) fn part(&mut self, name: &str, outcome: Result<(), Stop>) -> Result<(), Stop> {
        let Err(Stop::Needs(what)) = outcome else { return outcome };
        self.skipped += 1;
        self.lines.push(format!("SKIP {name}: needs {what}"));
        Ok(())
    }

    /// A mark that is for longer runs than this one.
    pub(crate) fn not_judged(&mut self, name: &str, why: impl Display) {
        self.unjudged += 1;
        self.lines.push(format!("SKIP {name}: not judged, {why}"));
    }

    /// Prints all, and answers what it comes to.
    pub(crate) fn print(&self, title: &str) -> Verdict {
        println!("{title}");
        self.lines.iter().for_each(|line| println!("{line}"));
        println!("{title}: {}", self.sum());
        match (self.missed, self.skipped, self.unjudged) {
            (0, 0, 0) => Verdict::Passed,
            (0, 0, _) => Verdict::Partly,
            (0, ..) => Verdict::Skipped,
            _ => Verdict::Missed,
        }
    }

    /// How many marks there were of each kind.
    fn sum(&self) -> String {
        let mut sum = format!("marks reached {}, missed {}", self.reached, self.missed);
        for (name, count) in [("not judged", self.unjudged), ("parts not done", self.skipped)] {
            if count > 0 {
                sum.push_str(&format!(", {name} {count}"));
            }
        }
        sum
    }

    fn add(&mut self, name: &str, figure: impl Display, goal: &str, is_reached: bool) {
        let word = if is_reached { "PASS" } else { "MISS" };
        self.reached += usize::from(is_reached);
        self.missed += usize::from(!is_reached);
        self.lines.push(format!("{word} {name}: {figure} (goal {goal})"));
    }
}

/// A time as milliseconds with one decimal.
pub(crate) fn millis(time: Duration) -> String {
    let tenths = time.as_micros() / 100;
    format!("{}.{} ms", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_reached(mark: impl Fn(&mut Marks)) -> bool {
        let mut marks = Marks::default();
        mark(&mut marks);
        marks.print("a run") == Verdict::Passed
    }

    #[test]
    fn a_figure_is_judged_at_its_goal_and_beside_it() {
        assert!(is_reached(|marks| marks.equal("losses", 0, 0)));
        assert!(!is_reached(|marks| marks.equal("losses", 1, 0)));
        assert!(is_reached(|marks| marks.at_most("losses", 7, 7)));
        assert!(!is_reached(|marks| marks.at_most("losses", 8, 7)));
        assert!(is_reached(|marks| marks.at_least("floods", 7, 7)));
        assert!(!is_reached(|marks| marks.at_least("floods", 6, 7)));
        let (goal, more) = (Duration::from_millis(5), Duration::from_micros(5_001));
        assert!(is_reached(|marks| marks.within("late", goal, goal)));
        assert!(!is_reached(|marks| marks.within("late", more, goal)));
    }

    #[test]
    fn a_share_is_below_its_goal_or_not() {
        assert!(is_reached(|marks| marks.share_below("lost", 9, 10_000, 100)));
        assert!(!is_reached(|marks| marks.share_below("lost", 10, 10_000, 100)));
        assert!(!is_reached(|marks| marks.share_below("lost", 0, 0, 100)), "of nothing nothing is proved");
    }

    #[test]
    fn one_miss_is_enough_and_a_note_is_none() {
        let mut marks = Marks::default();
        marks.note("calm");
        assert_eq!(marks.print("a run"), Verdict::Passed);
        marks.equal("a", 1, 0);
        marks.equal("b", 0, 0);
        assert_eq!(marks.print("a run"), Verdict::Missed);
        assert_eq!(marks.lines, ["     calm", "MISS a: 1 (goal = 0)", "PASS b: 0 (goal = 0)"]);
    }

    #[test]
    fn a_part_that_cannot_be_done_is_told_and_hides_no_miss() {
        let mut marks = Marks::default();
        assert!(marks.part("a part", Ok(())).is_ok());
        assert!(matches!(marks.part("a part", Err(Stop::failed("x", "y"))), Err(Stop::Failed(_))));
        assert_eq!(marks.print("a run"), Verdict::Passed);
        assert!(marks.part("a part", Err(Stop::Needs("a thing".to_owned()))).is_ok());
        assert_eq!(marks.print("a run"), Verdict::Skipped);
        assert_eq!(marks.lines, ["SKIP a part: needs a thing"]);
        marks.equal("a", 1, 0);
        assert_eq!(marks.print("a run"), Verdict::Missed);
    }

    #[test]
    fn a_mark_that_is_not_judged_is_told_and_neither_reached_nor_missed() {
        let mut marks = Marks::default();
        marks.equal("a", 0, 0);
        marks.not_judged("b", "which takes an hour");
        assert_eq!(marks.print("a run"), Verdict::Partly);
        assert_eq!(marks.lines[1], "SKIP b: not judged, which takes an hour");
        assert_eq!(marks.sum(), "marks reached 1, missed 0, not judged 1");
        assert!(marks.part("c", Err(Stop::Needs("a thing".to_owned()))).is_ok());
        assert_eq!(marks.print("a run"), Verdict::Skipped);
        marks.equal("d", 1, 0);
        assert_eq!(marks.print("a run"), Verdict::Missed);
        assert_eq!(marks.sum(), "marks reached 1, missed 1, not judged 1, parts not done 1");
    }

    #[test]
    fn a_time_is_told_in_milliseconds() {
        assert_eq!(millis(Duration::from_micros(12_345)), "12.3 ms");
    }
}
