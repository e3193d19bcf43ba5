//! The ratchet: the faults that the project still has, as numbers in `xtask/tidy-ratchet.toml` that may only fall.
//!
//! Each rule with old faults has a table, and each place with faults (a file or a crate) has a number in it. More faults fail, and so do
//! fewer, because a number that is too high would allow new faults. The ratchet does not know the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{File, Violation};
use crate::run::CommandLine;

/// The file of the numbers.
pub(super) const PATH: &str = "xtask/tidy-ratchet.toml";
const HEADER: &str = "\
# Faults that are left, by rule and place. `cargo xtask tidy` fails when there are more, or fewer than a number here.
# `cargo xtask tidy --bless` lowers the numbers. None may rise.
";
/// The most faults that are shown of a place with too many.
const SHOWN_MAX: usize = 10;

/// The faults of one rule in one place.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// The number that the ratchet compares.
    pub(super) count: usize,
    /// The violations to show when the number is too high.
    pub(super) found: Vec<Violation>,
}

/// The faults of one rule, by place.
pub(super) type Places = BTreeMap<String, Faults>;
/// The faults of all rules, by the name of the rule's table.
pub(super) type Rules = BTreeMap<&'static str, Places>;

/// The lines, by file, that were added since the numbers were last committed.
#[derive(Debug, Default)]
pub(super) struct AddedLines(BTreeMap<String, BTreeSet<usize>>);

/// The numbers: by rule, then by place.
#[derive(Debug)]
pub(super) struct Ratchet {
    allowed: BTreeMap<String, BTreeMap<String, usize>>,
    file: File,
}

impl Ratchet {
    /// Reads the numbers, or returns the fault of their file.
    pub(super) fn read(files: &[File]) -> Result<Self, Violation> {
        let file = files.iter().find(|file| file.path == PATH);
        let file =
            file.ok_or_else(|| Violation::new(PATH, 1, "is missing: it counts the faults that are left"))?;
        Self::from_toml(&file.text)
            .map_err(|why| file.violation(1, format!("{why}: write `\"place\" = number`")))
    }

    fn from_toml(text: &str) -> Result<Self, String> {
        let allowed = toml::from_str(text).map_err(|why| why.message().to_owned())?;
        Ok(Self { allowed, file: File::new(PATH, text) })
    }

    /// Returns the text of the file with each number lowered to the faults that are left.
    pub(super) fn lowered(&self, rules: &Rules) -> Result<String, String> {
        let mut allowed = self.allowed.clone();
        for (rule, places) in &mut allowed {
            for (place, number) in places.iter_mut() {
                *number = (*number).min(count(rules, rule, place));
            }
            places.retain(|_, number| *number > 0);
        }
        allowed.retain(|_, places| !places.is_empty());
        let tables = toml::to_string(&allowed).map_err(|why| why.to_string())?;
        Ok(format!("{HEADER}\n{tables}"))
    }

    /// Compares the numbers with the faults. A place with more faults shows those on added lines, or else the first ones.
    pub(super) fn check(&self, rules: &Rules, added: &AddedLines) -> Vec<Violation> {
        let mut violations = Vec::new();
        for (rule, places) in &self.allowed {
            for (place, allowed) in places {
                let now = count(rules, rule, place);
                if now < *allowed {
                    let lower = format!("lower its number from {allowed} with `cargo xtask tidy --bless`");
                    let what = format!("{place} has {now} of {rule} left: {lower}");
                    violations.push(self.file.violation(self.line(rule, place), what));
                }
            }
        }
        for (rule, places) in rules {
            for (place, faults) in places {
                let allowed = self.allowed.get(*rule).and_then(|places| places.get(place)).copied();
                if faults.count > allowed.unwrap_or(0) {
                    violations.extend(shown(rule, place, faults, allowed, added));
                }
            }
        }
        violations
    }

    /// Returns the line of a place's number.
    fn line(&self, rule: &str, place: &str) -> usize {
        let key = |line: &str| line.split(" =").next().map(|key| key.trim_matches('"').to_owned());
        let table = self.file.text.lines().position(|line| line == format!("[{rule}]")).unwrap_or(0);
        let mut lines = self.file.text.lines().skip(table);
        table + lines.position(|line| key(line).as_deref() == Some(place)).unwrap_or(0) + 1
    }
}

impl AddedLines {
    /// Asks git. Without a history, no line counts as added.
    pub(super) fn load(root: &Path) -> Self {
        let git = |args: &[&str]| CommandLine::new("git", args).output(root).unwrap_or_default();
        let committed = git(&["log", "-1", "--format=%H", "--", PATH]);
        let since = if committed.is_empty() { "HEAD" } else { committed.trim() };
        let mut added = Self::from_diff(&git(&["diff", "-U0", "--no-color", "--no-ext-diff", since]));
        for path in git(&["ls-files", "-o", "--exclude-standard", "-z"]).split_terminator('\0') {
            let lines = std::fs::read_to_string(root.join(path)).map_or(0, |text| text.lines().count());
            added.0.insert(path.to_owned(), (1..=lines).collect());
        }
        added
    }

    fn from_diff(diff: &str) -> Self {
        let mut added = Self::default();
        let mut path = "";
        for line in diff.lines() {
            if let Some(next) = line.strip_prefix("+++ b/") {
                path = next;
            } else if let Some(hunk) = line.strip_prefix("@@ -") {
                let range = hunk.split(['+', ' ']).nth(2).unwrap_or_default();
                let (first, length) = range.split_once(',').unwrap_or((range, "1"));
                let [first, length] = [first, length].map(|number| number.parse::<usize>().unwrap_or(0));
                added.0.entry(path.to_owned()).or_default().extend(first..first + length);
            }
        }
        added
    }

    fn contains(&self, violation: &Violation) -> bool {
        self.0.get(&violation.path).is_some_and(|lines| lines.contains(&violation.line))
    }
}

fn count(rules: &Rules, rule: &str, place: &str) -> usize {
    rules.get(rule).and_then(|places| places.get(place)).map_or(0, |faults| faults.count)
}

/// Returns the violations to show of a place with too many faults. New faults are most likely on the added lines.
fn shown(
    rule: &str,
    place: &str,
    faults: &Faults,
    allowed: Option<usize>,
    added: &AddedLines,
) -> Vec<Violation> {
    let is_any_added = faults.found.iter().any(|fault| added.contains(fault));
    let candidates = faults.found.iter().filter(|fault| !is_any_added || added.contains(fault));
    let numbers = allowed
        .map(|allowed| format!(" ({place} has {} of {rule}, allowed are {allowed})", faults.count))
        .unwrap_or_default();
    let with_numbers =
        |fault: &Violation| Violation::new(&fault.path, fault.line, format!("{}{numbers}", fault.what));
    candidates.take(SHOWN_MAX).map(with_numbers).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: &str = "[lines]\n\"a\" = 9\n\n[prose]\na = 2\n";

    /// This many faults of `prose` in the place `a`, one on each line of a file.
    fn prose(count: usize) -> Rules {
        let found = (1..=count).map(|line| Violation::new("a.md", line, "is long")).collect();
        let lines = Faults { count: 9, found: Vec::new() };
        let places = |faults| Places::from([("a".to_owned(), faults)]);
        Rules::from([("lines", places(lines)), ("prose", places(Faults { count, found }))])
    }

    fn found(numbers: &str, rules: &Rules, added: &AddedLines) -> Vec<String> {
        let ratchet = Ratchet::from_toml(numbers).unwrap();
        ratchet.check(rules, added).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_number_equals_the_faults_that_are_left() {
        let none = AddedLines::default();
        assert_eq!(found(NUMBERS, &prose(2), &none), [""; 0]);
        let more = found(NUMBERS, &prose(3), &none);
        assert_eq!(more.len(), 3);
        assert_eq!(more[0], "a.md:1: is long (a has 3 of prose, allowed are 2)");
        let lower = "a has 1 of prose left: lower its number from 2 with `cargo xtask tidy --bless`";
        assert_eq!(found(NUMBERS, &prose(1), &none), [format!("{PATH}:5: {lower}")]);
        assert_eq!(found("", &prose(1), &none), ["a.md:1: is long"]);
    }

    #[test]
    fn only_faults_on_added_lines_are_shown() {
        let diff = "+++ b/b.md\n@@ -1 +1 @@\n+++ b/a.md\n@@ -3,0 +4,2 @@ # A\n@@ -9,4 +30,0 @@\n";
        let shown = found(NUMBERS, &prose(40), &AddedLines::from_diff(diff));
        assert_eq!(shown.len(), 2);
        assert!(shown[0].starts_with("a.md:4: ") && shown[1].starts_with("a.md:5: "), "{shown:?}");
        assert_eq!(found(NUMBERS, &prose(40), &AddedLines::default()).len(), SHOWN_MAX);
    }

    #[test]
    fn a_blessed_number_falls_and_never_rises() {
        let lowered = |count| Ratchet::from_toml(NUMBERS).unwrap().lowered(&prose(count)).unwrap();
        assert_eq!(lowered(1), format!("{HEADER}\n[lines]\na = 9\n\n[prose]\na = 1\n"));
        assert_eq!(lowered(3), format!("{HEADER}\n[lines]\na = 9\n\n[prose]\na = 2\n"));
        assert_eq!(lowered(0), format!("{HEADER}\n[lines]\na = 9\n"));
    }

    #[test]
    fn a_missing_or_damaged_file_is_named() {
        let what = |files: &[File]| Ratchet::read(files).unwrap_err().to_string();
        assert!(what(&[]).starts_with("xtask/tidy-ratchet.toml:1: is missing"));
        assert!(what(&[File::new(PATH, "[prose]\na = \"few\"\n")]).contains("write `\"place\" = number`"));
        assert!(Ratchet::read(&[File::new(PATH, HEADER)]).is_ok());
    }
}
