//! A rule for the names of types that two files of a crate use: each word is in the glossary, or is a plain word of programming.
//!
//! A reader often sees such a name without its docs. The rule checks words and not meanings. A reviewer judges whether
//! a name fits its type.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::modules::Crate;
use super::{CONFIG, File, Violation, place_of};
use crate::files::regex;

/// The file with the glossary in its module docs: tables with a term at the start of each row.
const GLOSSARY: &str = "crates/wire/src/lib.rs";
const TERM: &str = r"(?m)^//! \| ([^|]+) \|";
/// A word in the name of a type. A single letter is not a word, and a number belongs to the word before it.
const WORD: &str = "[A-Z][a-z0-9]+";
/// The endings of the forms of a known word that are known too.
const ENDINGS: [&str; 6] = ["", "s", "d", "ed", "r", "er"];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TypeNames {
    /// The folders of the crates with the rule.
    crates: Vec<String>,
    /// Words that need no explanation.
    plain: Vec<String>,
    /// Names that violate the rule or have another meaning than their words suggest. A name is removed when its type is
    /// renamed.
    unexplained: BTreeSet<String>,
}

pub(super) fn check(rule: &TypeNames, crates: &[Crate], files: &[File]) -> BTreeSet<Violation> {
    let Some(glossary) = files.iter().find(|file| file.path == GLOSSARY) else { return BTreeSet::new() };
    let mut known: BTreeSet<String> = rule.plain.iter().cloned().collect();
    for term in regex(TERM).captures_iter(&glossary.text) {
        known.extend(term[1].split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase));
    }
    let is_known = |word: &str| {
        let mut begins = ENDINGS.iter().filter_map(|ending| word.strip_suffix(ending));
        begins.any(|begin| !begin.is_empty() && known.contains(begin))
    };
    let (word, name) = (regex(WORD), regex(r"\w+"));
    let (mut violations, mut listed) = (BTreeSet::new(), BTreeSet::new());
    for place in &rule.crates {
        let mut users: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for file in files.iter().filter(|file| place_of(&file.path) == place) {
            for line in file.code.lines().take(file.lines_before_tests()) {
                name.find_iter(line).for_each(|name| {
                    users.entry(name.as_str()).or_default().insert(&file.path);
                });
            }
        }
        let modules = crates.iter().flat_map(|one| &one.modules);
        for module in modules.filter(|module| place_of(&module.file) == place) {
            let is_shared = |name: &&String| users.get(name.as_str()).is_some_and(|users| users.len() > 1);
            for name in module.types.iter().filter(is_shared) {
                let words = word.find_iter(name).map(|word| word.as_str().to_lowercase());
                let unknown = words.filter(|word| !is_known(word)).collect::<Vec<_>>().join(", ");
                if rule.unexplained.contains(name) {
                    listed.insert(name);
                } else if !unknown.is_empty() {
                    let remedy = "rename it, or add a term to the glossary in crates/wire";
                    let what = format!("two files use {name}, and nothing explains {unknown}: {remedy}");
                    violations.insert(Violation::new(&module.file, 1, what));
                }
            }
        }
    }
    let gone = rule.unexplained.iter().filter(|name| !listed.contains(name));
    let gone = gone.map(|name| {
        Violation::new(CONFIG, 1, format!("remove {name} from `unexplained`: at most one file uses it"))
    });
    violations.extend(gone);
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leaves_the_list_with_its_type() {
        let rule = toml::from_str("crates = []\nplain = []\nunexplained = ['Gone']\n").unwrap();
        let found = check(&rule, &[], &[File::new(GLOSSARY, "")]);
        assert_eq!(
            found.first().unwrap().to_string(),
            "xtask/tidy.toml:1: remove Gone from `unexplained`: at most one file uses it"
        );
    }
}
