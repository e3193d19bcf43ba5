//! Rules for the top level, the README's commands, the lengths of documents, and references to the standard and to tests. No file contains
//! a path of the machine on which it was written.

use std::collections::HashMap;

use serde::Deserialize;

use super::{File, ProjectRules, Violation, line_at};
use crate::files::regex;
use crate::workspace::{Package, Workspace};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TopLevel {
    known: Vec<String>,
    required: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Limits {
    path: String,
    lines_max: usize,
    words_max: Option<usize>,
    #[serde(default)]
    contains: Vec<String>,
}

/// Folders that exist under this name on one machine only. They are concatenated, so that this file does not contain them.
const PRIVATE: [&str; 2] = [concat!("/ho", "me/"), concat!("/ro", "ot/")];
/// The standard. References to it are such as `PROTOCOL 8.6, "Fragments"`.
const STANDARD: &str = "crates/wire/PROTOCOL.md";
/// A reference to the standard: by a title alone, or by number and title. It may continue on the next lines of a comment.
const REFERENCE: &str = r#"(?x) PROTOCOL (?:\.md)?
    (?: (?<unnumbered> ,\x20" | \x20section\x20" | \x20\(" )
      | (?: \x20 | \n[\x20\t/!]* ) (?<number> \d[\d.]* ) (?: , [\s/!]+ "(?<title> [^"]* )" )? )"#;

/// The document whose proofs are tests.
const EVIDENCE: &str = "crates/drumfire/docs/EVIDENCE.md";
/// A lower-case name in backticks with at least four words is a test. No setting, feature, or program has such a name.
const NAME: &str = r"`([a-z0-9]+(?:_[a-z0-9]*){3,})`";
/// The folder of tests that only the simulator's copy of the project has, and the task that runs them.
const COPIED: (&str, &str) = ("crates/sim/patches/", "`cargo xtask sim --tests`");
/// A function, with the place of the feature in the attributes right before it.
const FUNCTION: &str =
    r"(?:#\[cfg\(feature = (?<feature>[^)]*)\)\]\s*|#\[[^\]]*\]\s*)*(?:\w+ )*\bfn (?<name>\w+)\(";
/// A name in the list of a test program without such functions.
const LISTED: &str = r#""([a-z0-9]+(?:_[a-z0-9]*){3,})""#;

/// Checks all rules except those of the top level.
pub(super) fn check(rules: &ProjectRules, files: &[File], workspace: &Workspace) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in files {
        let limits = rules.document.iter().find(|limits| limits.path == file.path);
        violations.extend(limits.into_iter().flat_map(|limits| limits.violations(file)));
    }
    violations.extend(machine_paths(files, &workspace.root.to_string_lossy()));
    violations.extend(references(files));
    violations.extend(proofs(files, &workspace.packages));
    violations
}

impl TopLevel {
    pub(super) fn violations(&self, files: &[File]) -> Vec<Violation> {
        let mut tops: Vec<&str> = files.iter().filter_map(|file| file.path.split('/').next()).collect();
        tops.dedup();
        let what =
            "the top level contains only the workspace, its documents, and dotfiles: move it into a package";
        let is_known = |top: &str| top.starts_with('.') || self.known.iter().any(|known| known == top);
        let stray = tops.into_iter().filter(|top| !is_known(top));
        let is_missing = |required: &&String| !files.iter().any(|file| file.path == **required);
        let missing = self.required.iter().filter(is_missing);
        let stray = stray.map(|top| Violation::new(top, 1, what));
        stray.chain(missing.map(|required| Violation::new(required, 1, "is missing"))).collect()
    }
}

impl Limits {
    fn violations(&self, file: &File) -> Vec<Violation> {
        let missing = self.contains.iter().filter(|text| !file.text.contains(*text));
        let missing = missing.map(|text| format!("show `{text}`"));
        let lengths = [
            (file.text.lines().count(), self.lines_max, "lines"),
            (file.text.split_whitespace().count(), self.words_max.unwrap_or(usize::MAX), "words"),
        ];
        let long = lengths.into_iter().filter(|(length, max, _)| length > max);
        let remedy = "move details into a document that it links to";
        let long = long.map(|(length, max, unit)| format!("{length} {unit}, at most {max}: {remedy}"));
        missing.chain(long).map(|what| file.violation(1, what)).collect()
    }
}

/// Finds absolute paths of a private folder or of this checkout.
fn machine_paths(files: &[File], checkout: &str) -> Vec<Violation> {
    // The path of a checkout directly below the root may have other meanings.
    let own = (checkout.matches('/').count() > 1).then_some(checkout);
    let paths: Vec<String> = PRIVATE.into_iter().chain(own).map(regex::escape).collect();
    // A match in the middle of a longer path or of an address does not count.
    let path = regex(&format!(r"(?:^|[^\w.-])(?:{})", paths.join("|")));
    let found = files.iter().flat_map(|file| {
        path.find_iter(&file.text).map(|found| {
            let text = found.as_str().trim_start_matches(|c| c != '/');
            file.violation(line_at(&file.text, found.end()), format!("`{text}` is a path of one machine"))
        })
    });
    found.collect()
}

/// Checks that each reference to the standard names an existing section by number and title.
fn references(files: &[File]) -> Vec<Violation> {
    let Some(standard) = files.iter().find(|file| file.path == STANDARD) else { return Vec::new() };
    let headings = standard.text.lines().filter_map(|line| line.strip_prefix("##"));
    let sections: HashMap<&str, &str> =
        headings.filter_map(|heading| heading.trim_start_matches('#').trim().split_once(' ')).collect();
    let reference = regex(REFERENCE);
    let is_checked = |file: &&File| file.path != STANDARD && (file.is_rust() || file.path.ends_with(".md"));
    let mut violations = Vec::new();
    for file in files.iter().filter(is_checked) {
        for found in reference.captures_iter(&file.text) {
            let [number, title] = ["number", "title"].map(|name| found.name(name).map(|text| text.as_str()));
            let title = title.map(|title| {
                let words = title.split_whitespace().filter(|word| !["//", "///", "//!"].contains(word));
                words.collect::<Vec<_>>().join(" ")
            });
            let what = match number.map(|number| (number, sections.get(number))) {
                None => "name a section of PROTOCOL by number and title".to_owned(),
                Some((_, Some(section))) if title.as_deref() == Some(section) => continue,
                Some((number, Some(section))) => format!("PROTOCOL {number} is \"{section}\""),
                Some((number, None)) => format!("PROTOCOL has no section {number}"),
            };
            violations.push(file.violation(line_at(&file.text, found.get_match().start()), what));
        }
    }
    violations
}

/// Checks that every test that EVIDENCE.md names as a proof exists, and that the tests of the whole workspace run it: its feature, if it has
/// one, is enabled there. A test that only the simulator's copy of the project has counts only where the document names the task that runs
/// it. A reviewer judges whether a test proves its promise.
fn proofs(files: &[File], packages: &[Package]) -> Vec<Violation> {
    let Some(document) = files.iter().find(|file| file.path == EVIDENCE) else { return Vec::new() };
    let (name, tests) = (regex(NAME), tests(files));
    let has = |file: &File, feature: &str| {
        let own = packages.iter().find(|package| file.is_in_module(&package.folder));
        own.is_some_and(|own| own.has(&feature.to_owned(), packages))
    };
    let mut violations = Vec::new();
    for (line, number) in document.text.lines().zip(1..) {
        for name in name.captures_iter(line).map(|found| found.extract().1).map(|[name]| name) {
            let what = match tests.get(name) {
                None => format!("there is no test `{name}`"),
                Some((file, _)) if file.path.starts_with(COPIED.0) && !line.contains(COPIED.1) => {
                    format!("`{name}` is not a test of a package: write {} next to it", COPIED.1)
                }
                Some((file, Some(feature))) if !has(file, feature) => {
                    format!("`{name}` needs `{feature}`, which no package enables")
                }
                Some(_) => continue,
            };
            violations.push(document.violation(number, what));
        }
    }
    violations
}

/// Returns the file of each test, and its feature if it has one. In the code, literals such as features are blank.
fn tests(files: &[File]) -> HashMap<&str, (&File, Option<&str>)> {
    let (function, listed) = (regex(FUNCTION), regex(LISTED));
    let mut tests = HashMap::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        for found in function.captures_iter(&file.code) {
            let feature = found.name("feature").map(|feature| file.text[feature.range()].trim_matches('"'));
            tests
                .entry(&file.text[found.name("name").map_or(0..0, |name| name.range())])
                .or_insert((file, feature));
        }
        if file.path.contains("/tests/") {
            for found in listed.captures_iter(&file.text) {
                tests.entry(found.extract::<1>().1[0]).or_insert((file, None));
            }
        }
    }
    tests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_level_and_documents_have_limits() {
        let rules = ProjectRules::read();
        let found = |more: &str, left_out| {
            let paths = rules.top_level.required.iter().skip(left_out).map(String::as_str).chain([more]);
            rules.top_level.violations(&paths.map(|path| File::new(path, "")).collect::<Vec<_>>())
        };
        assert_eq!(found(".github/workflows/ci.yml", 0), []);
        assert_eq!(found("scripts/run.sh", 0)[0].path, "scripts");
        assert_eq!(found(".github", 1)[0].to_string(), "Cargo.toml:1: is missing");

        let readme = &rules.document[0];
        let found = |text: String| readme.violations(&File::new("README.md", &text));
        let commands = readme.contains.join("\n");
        assert_eq!((found(commands.clone()), found(String::new()).len()), (vec![], 2));
        let long = found(format!("{commands}{}", "\na".repeat(readme.lines_max)));
        assert!(long.len() == 1 && long[0].what.contains(" lines, at most 150: move details"), "{long:?}");
        let wordy = found(format!("{commands} {}", "a ".repeat(1_100)));
        assert!(wordy[0].what.contains(" words, at most 1100: move details"), "{wordy:?}");
    }

    #[test]
    fn paths_of_this_checkout_are_found() {
        let found = |text: &str, checkout| machine_paths(&[File::new("a.md", text)], checkout).len();
        assert_eq!(found("cd /builds/one/crates", "/builds/one"), 1);
        assert_eq!(found("cd /builds/other", "/builds/one"), 0);
        assert_eq!(found("look into /src", "/src"), 0, "a checkout directly below the root");
    }
}
