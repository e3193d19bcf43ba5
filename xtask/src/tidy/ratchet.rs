//! The ratchet: the faults that the project still has, as numbers in `xtask/tidy-ratchet.toml` that may only fall.
//!
//! Each rule with old faults has a table, and each place with faults, a crate or a document, has a number in it. More faults fail, and so
//! do fewer, because a number that is too high would allow new faults. The ratchet does not know the rules.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Violation, place_of};

pub(super) const PATH: &str = "xtask/tidy-ratchet.toml";

/// The numbers: by rule, then by place.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Ratchet(BTreeMap<String, BTreeMap<String, usize>>);

impl Ratchet {
    /// Lowers each number to the faults that are left.
    pub(super) fn lower(&mut self, found: &[Violation]) {
        self.0.retain(|rule, places| {
            places.retain(|place, number| {
                *number = (*number).min(of(found, rule, place).count());
                *number > 0
            });
            !places.is_empty()
        });
    }

    /// Compares the numbers with the faults. Returns all of a place with more faults than its number, and none of other places.
    pub(super) fn check(&self, found: Vec<Violation>) -> Vec<Violation> {
        let listed =
            self.0.iter().flat_map(|(rule, places)| places.keys().map(move |place| (&**rule, &**place)));
        let broken = found.iter().filter_map(|violation| Some((violation.rule?, place_of(&violation.path))));
        let mut violations = Vec::new();
        for (rule, place) in listed.chain(broken).collect::<BTreeSet<_>>() {
            let now = of(&found, rule, place).count();
            let allowed = self.0.get(rule).and_then(|places| places.get(place)).copied().unwrap_or(0);
            if now < allowed {
                let lower = format!("lower its number from {allowed} with `cargo xtask tidy --bless`");
                violations.push(Violation::new(
                    PATH,
                    1,
                    format!("{place} has {now} of {rule} left: {lower}"),
                ));
            } else if now > allowed {
                violations.extend(of(&found, rule, place).cloned());
                let what = format!("{place} has {now} of {rule}, allowed are {allowed}");
                violations.push(Violation::new(place, 1, what));
            }
        }
        violations.extend(found.into_iter().filter(|violation| violation.rule.is_none()));
        violations
    }
}

/// Returns the violations of a rule in a place.
fn of<'a>(found: &'a [Violation], rule: &'a str, place: &'a str) -> impl Iterator<Item = &'a Violation> {
    found.iter().filter(move |violation| violation.rule == Some(rule) && place_of(&violation.path) == place)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: &str = "[names]\na = 1\n\n[prose]\na = 2\n";

    /// One fault of `names` in the place `a`, and `count` of `prose`.
    fn found(count: usize) -> Vec<Violation> {
        let prose = (1..=count).map(|line| Violation::new("a/b.md", line, "is long").of_rule("prose"));
        prose.chain([Violation::new("a/c.rs", 1, "is a name").of_rule("names")]).collect()
    }

    #[test]
    fn a_number_equals_the_faults_that_are_left() {
        let found = |numbers: &str, count| {
            let violations = toml::from_str::<Ratchet>(numbers).unwrap().check(found(count));
            violations.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(found(NUMBERS, 2), [""; 0]);
        let more = found(NUMBERS, 3);
        assert_eq!((more.len(), &*more[0]), (4, "a/b.md:1: is long"));
        assert_eq!(more[3], "a:1: a has 3 of prose, allowed are 2");
        let lower = "a has 1 of prose left: lower its number from 2 with `cargo xtask tidy --bless`";
        assert_eq!(found(NUMBERS, 1), [format!("{PATH}:1: {lower}")]);
        assert_eq!(found("[names]\na = 1\n", 1).len(), 2);
    }

    #[test]
    fn a_blessed_number_falls_and_never_rises() {
        let lowered = |count| {
            let mut ratchet: Ratchet = toml::from_str(NUMBERS).unwrap();
            ratchet.lower(&found(count));
            toml::to_string(&ratchet).unwrap()
        };
        assert_eq!(lowered(1), "[names]\na = 1\n\n[prose]\na = 1\n");
        assert_eq!(lowered(3), NUMBERS);
        assert_eq!(lowered(0), "[names]\na = 1\n");
    }
}
