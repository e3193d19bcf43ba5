//! The ratchet: the faults that the project still has, as numbers in `xtask/tidy-ratchet.toml` that may only fall.
//!
//! Each rule with old faults has a table, and each place with faults (a file or a crate) has a number in it. More faults fail, and so do
//! fewer, because a number that is too high would allow new faults. The ratchet does not know the rules.

use std::collections::BTreeMap;

use super::{File, Violation};

/// The file of the numbers.
pub(super) const PATH: &str = "xtask/tidy-ratchet.toml";
const HEADER: &str = "\
# Faults that are left, by rule and place. `cargo xtask tidy` fails when there are more, or fewer than a number here.
# `cargo xtask tidy --bless` lowers the numbers. None may rise.
";
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

/// The numbers: by rule, then by place.
#[derive(Debug)]
pub(super) struct Ratchet {
    allowed: BTreeMap<String, BTreeMap<String, usize>>,
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
        Ok(Self { allowed })
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

    /// Compares the numbers with the faults. A place with more faults shows all of them.
    pub(super) fn check(&self, rules: &Rules) -> Vec<Violation> {
        let mut violations = Vec::new();
        for (rule, places) in &self.allowed {
            for (place, allowed) in places {
                let now = count(rules, rule, place);
                if now < *allowed {
                    let lower = format!("lower its number from {allowed} with `cargo xtask tidy --bless`");
                    let what = format!("{place} has {now} of {rule} left: {lower}");
                    violations.push(Violation::new(PATH, 1, what));
                }
            }
        }
        for (rule, places) in rules {
            for (place, faults) in places {
                let allowed = self.allowed.get(*rule).and_then(|places| places.get(place)).unwrap_or(&0);
                if faults.count > *allowed {
                    violations.extend(faults.found.iter().cloned());
                    let what = format!("{place} has {} of {rule}, allowed are {allowed}", faults.count);
                    violations.push(Violation::new(place, 1, what));
                }
            }
        }
        violations
    }
}

fn count(rules: &Rules, rule: &str, place: &str) -> usize {
    rules.get(rule).and_then(|places| places.get(place)).map_or(0, |faults| faults.count)
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

    #[test]
    fn a_number_equals_the_faults_that_are_left() {
        let found = |numbers: &str, count| {
            let violations = Ratchet::from_toml(numbers).unwrap().check(&prose(count));
            violations.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(found(NUMBERS, 2), [""; 0]);
        let more = found(NUMBERS, 3);
        assert_eq!((more.len(), &*more[0]), (4, "a.md:1: is long"));
        assert_eq!(more[3], "a:1: a has 3 of prose, allowed are 2");
        let lower = "a has 1 of prose left: lower its number from 2 with `cargo xtask tidy --bless`";
        assert_eq!(found(NUMBERS, 1), [format!("{PATH}:1: {lower}")]);
        assert_eq!(found("[lines]\na = 9\n", 1).len(), 2);
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
