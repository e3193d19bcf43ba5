//! The marks of a run: figures that are compared with goals, one line for each.

use std::fmt::Display;
use std::time::Duration;

use crate::error::Error;
use crate::players::Players;
use crate::process::Report;
use crate::traffic::millis;

/// The marks of one run.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    lines: Vec<String>,
    /// The name of the current section, which all its marks begin with.
    prefix: String,
    reached: usize,
    missed: usize,
    skipped: usize,
    unjudged: usize,
}

/// The result of all marks of a run, by its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Every mark was reached.
    Passed = 0,
    /// A mark was missed.
    Missed = 1,
    /// No mark was missed, and this machine cannot do a part of the run.
    Skipped = 3,
    /// Every mark was reached that this size judges, and there are others.
    Partly = 4,
}

impl Marks {
    /// Begins a section: the names of its marks begin with `name`. An empty name ends the section.
    pub(crate) fn section(&mut self, name: &str) {
        self.prefix = if name.is_empty() { String::new() } else { format!("{name}: ") };
    }

    /// Adds a count that must be `goal`.
    pub(crate) fn equal(&mut self, name: &str, figure: u64, goal: u64) {
        self.add(name, figure, &format!("= {goal}"), figure == goal);
    }

    /// Adds a count that must not exceed `goal`.
    pub(crate) fn at_most(&mut self, name: &str, figure: u64, goal: u64) {
        self.add(name, figure, &format!("<= {goal}"), figure <= goal);
    }

    /// Adds a count that must be at least `goal`, because a lower one proves nothing.
    pub(crate) fn at_least(&mut self, name: &str, figure: u64, goal: u64) {
        self.add(name, figure, &format!(">= {goal}"), figure >= goal);
    }

    /// Adds a time that must not exceed `goal`.
    pub(crate) fn within(&mut self, name: &str, figure: Duration, goal: Duration) {
        self.add(name, millis(figure), &format!("<= {}", millis(goal)), figure <= goal);
    }

    /// Adds a share that must stay below `goal` parts in 100,000. A share of nothing is a miss, because it proves nothing.
    pub(crate) fn share_below(&mut self, name: &str, part: u64, whole: u64, goal: u64) {
        let is_below = u128::from(part) * 100_000 < u128::from(whole) * u128::from(goal);
        let figure = format!("{part} of {whole}");
        self.add(name, figure, &format!("< {}.{:03} %", goal / 1_000, goal % 1_000), is_below);
    }

    /// Adds the marks of players whose connections must survive a run without a lost reliable message.
    pub(crate) fn unharmed(&mut self, players: &Players) {
        self.equal("players gone", players.gone(), 0);
        self.equal("reliable messages lost", players.reliable_missing(), 0);
        self.equal("messages twice or out of order", players.wrong(), 0);
    }

    /// Adds the mark of the server's books: each datagram is in one counter.
    pub(crate) fn books(&mut self, report: &Report) {
        self.equal("datagrams in no counter", report.value("/unexplained"), 0);
    }

    /// Adds a line without a goal.
    pub(crate) fn note(&mut self, text: impl Display) {
        self.lines.push(format!("     {}{text}", self.prefix));
    }

    /// Executes a part of the run. A part that this machine does not support is noted, and the run continues.
    ///
    /// # Errors
    /// The part's error, unless it is [`Error::Unsupported`].
    pub(crate) fn part(
        &mut self,
        name: &str,
        part: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let outcome = part(self);
        self.section("");
        let Err(Error::Unsupported(what)) = outcome else { return outcome };
        self.skipped += 1;
        self.lines.push(format!("SKIP {name}: needs {what}"));
        Ok(())
    }

    /// Adds a mark that this size of the run does not judge.
    pub(crate) fn not_judged(&mut self, name: &str, reason: impl Display) {
        self.unjudged += 1;
        self.lines.push(format!("SKIP {}{name}: not judged, {reason}", self.prefix));
    }

    /// Prints all lines, and returns the result.
    pub(crate) fn print(&self, title: &str) -> Verdict {
        println!("{title}");
        self.lines.iter().for_each(|line| println!("{line}"));
        println!("{title}: {}", self.totals());
        match (self.missed, self.skipped, self.unjudged) {
            (0, 0, 0) => Verdict::Passed,
            (0, 0, _) => Verdict::Partly,
            (0, ..) => Verdict::Skipped,
            _ => Verdict::Missed,
        }
    }

    /// Returns the number of marks of each kind.
    fn totals(&self) -> String {
        let mut totals = format!("marks reached {}, missed {}", self.reached, self.missed);
        for (name, count) in [("not judged", self.unjudged), ("parts not done", self.skipped)] {
            if count > 0 {
                totals.push_str(&format!(", {name} {count}"));
            }
        }
        totals
    }

    fn add(&mut self, name: &str, figure: impl Display, goal: &str, is_reached: bool) {
        let word = if is_reached { "PASS" } else { "MISS" };
        self.reached += usize::from(is_reached);
        self.missed += usize::from(!is_reached);
        self.lines.push(format!("{word} {}{name}: {figure} (goal {goal})", self.prefix));
    }
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
    fn a_figure_is_judged_at_its_goal_and_next_to_it() {
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
    fn a_share_is_below_its_goal_or_missed() {
        assert!(is_reached(|marks| marks.share_below("lost", 9, 10_000, 100)));
        assert!(!is_reached(|marks| marks.share_below("lost", 10, 10_000, 100)));
        assert!(!is_reached(|marks| marks.share_below("lost", 0, 0, 100)), "nothing was sent");
    }

    #[test]
    fn one_miss_decides_and_a_note_does_not() {
        let mut marks = Marks::default();
        marks.note("calm");
        assert_eq!(marks.print("a run"), Verdict::Passed);
        marks.section("part");
        marks.equal("a", 1, 0);
        marks.section("");
        marks.equal("b", 0, 0);
        assert_eq!(marks.print("a run"), Verdict::Missed);
        assert_eq!(marks.lines, ["     calm", "MISS part: a: 1 (goal = 0)", "PASS b: 0 (goal = 0)"]);
    }

    #[test]
    fn a_part_that_cannot_be_done_is_reported_and_hides_no_miss() {
        let unsupported = |_: &mut Marks| Err(Error::Unsupported("a thing".to_owned()));
        let mut marks = Marks::default();
        assert!(marks.part("a part", |_| Ok(())).is_ok());
        assert!(matches!(marks.part("a part", |_| Err(Error::failed("x", "y"))), Err(Error::Failed(_))));
        marks.equal("a", 0, 0);
        marks.not_judged("b", "which takes an hour");
        assert_eq!(marks.print("a run"), Verdict::Partly);
        assert_eq!(marks.lines[1], "SKIP b: not judged, which takes an hour");
        assert!(marks.part("a part", unsupported).is_ok());
        assert_eq!(marks.print("a run"), Verdict::Skipped);
        assert_eq!(marks.lines[2], "SKIP a part: needs a thing");
        marks.equal("d", 1, 0);
        assert_eq!(marks.print("a run"), Verdict::Missed);
        assert_eq!(marks.totals(), "marks reached 1, missed 1, not judged 1, parts not done 1");
    }
}
