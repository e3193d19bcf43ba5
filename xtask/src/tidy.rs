//! `cargo xtask tidy`: project rules that the compiler and clippy do not check, over every file that git tracks or
//! would track.
//!
//! Each check is a function from the project to violations, and every violation fails. `xtask/tidy.toml` has the rules that are data, and
//! `xtask/tidy-samples.toml` a deliberate violation of each rule. Tidy repairs nothing.

mod code;
mod documents;
mod glossary;
mod modules;
mod packages;
mod prose;
mod structure;

use std::collections::BTreeMap;
use std::fmt;

use regex::Regex;
use serde::Deserialize;

use self::modules::Crate;
use crate::files::{self, regex};
use crate::ledger;
use crate::run::Stop;
use crate::sim;
use crate::workspace::Workspace;

const CONFIG: &str = "xtask/tidy.toml";

/// The content of `xtask/tidy.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProjectRules {
    /// Modules whose code needs comments.
    commented: Vec<String>,
    type_names: glossary::TypeNames,
    top_level: documents::TopLevel,
    document: Vec<documents::Limits>,
    pattern: Vec<code::Pattern>,
    cfg: code::Conditions,
    #[serde(rename = "unsafe")]
    unsafe_limits: Vec<code::UnsafeLimit>,
    layers: structure::Layers,
    packages: packages::DependencyRules,
    /// Phrases of prose, with their replacements.
    avoided: BTreeMap<String, String>,
    /// Starts of sentences, with their replacements.
    starts: BTreeMap<String, String>,
}

#[derive(Debug)]
struct File {
    /// The path below the root, with `/`.
    path: String,
    text: String,
    /// The text of a Rust file with comments and literals blanked, of the same length. Empty for other files.
    code: String,
}

/// The text of the project and its packages.
struct Project<'a> {
    rules: ProjectRules,
    workspace: &'a Workspace,
    files: Vec<File>,
    /// The crates without their tests.
    crates: Vec<Crate>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    path: String,
    line: usize,
    what: String,
}

/// Checks the project of the current folder and prints every violation.
pub(crate) fn run(workspace: &Workspace) -> Result<(), Stop> {
    let all = files::project(&workspace.root)?;
    let file = |(path, bytes): (&String, &Vec<u8>)| {
        // A file with a NUL byte has no text.
        let text = if bytes.contains(&0) { &[][..] } else { bytes };
        File::new(path, &String::from_utf8_lossy(text))
    };
    let files = all.iter().map(file).collect();
    let project = Project::new(workspace, files).map_err(|violation| Stop::Failed(violation.to_string()))?;

    let mut violations = project.check();
    violations.extend(project.rules.top_level.violations(&project.files));
    violations.extend(packages::check(&project.rules.packages, workspace, &project.files)?);
    let refused = sim::check_patches(workspace).err();
    violations.extend(refused.map(|why| Violation::new("crates/sim/patches", 1, why.to_string())));
    violations.sort();
    violations.iter().for_each(|violation| println!("{violation}"));
    println!("{} files", project.files.len());
    match violations.len() {
        0 => Ok(()),
        count => Err(Stop::Failed(format!("tidy: {count} violations"))),
    }
}

impl<'a> Project<'a> {
    /// Reads the crates. An error is a violation in a file that is not valid Rust.
    fn new(workspace: &'a Workspace, files: Vec<File>) -> Result<Self, Violation> {
        let targets = workspace.packages.iter().flat_map(|package| &package.targets);
        let targets = targets.filter(|target| !["test", "custom-build"].contains(&target.kind()));
        let crates = targets.map(|target| Crate::read(&target.source, &files)).collect::<Result<_, _>>()?;
        Ok(Self { rules: ProjectRules::read(), workspace, files, crates })
    }

    /// Checks all rules that need nothing but text.
    fn check(&self) -> Vec<Violation> {
        let Self { rules, workspace, files, crates } = self;
        let mut violations = code::check(rules, files);
        violations.extend(documents::check(rules, files, workspace));
        violations.extend(prose::check(rules, files));
        violations.extend(structure::check(rules, crates, files));
        violations.extend(glossary::check(&rules.type_names, crates, files));
        let ledger = files.iter().find(|file| file.path == ledger::PATH);
        violations.extend(ledger.and_then(|file| Some(file.violation(1, ledger::check(&file.text).err()?))));
        violations
    }
}

impl ProjectRules {
    #[expect(clippy::expect_used, reason = "the file is a part of this program, and tests read it")]
    fn read() -> Self {
        toml::from_str(include_str!("../tidy.toml")).expect("xtask/tidy.toml")
    }
}

impl File {
    fn new(path: &str, text: &str) -> Self {
        let code = if path.ends_with(".rs") { code::masked(text) } else { String::new() };
        Self { path: path.to_owned(), text: text.to_owned(), code }
    }

    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Returns the number of lines before the first module of tests in the file. A file of tests has none.
    fn lines_before_tests(&self) -> usize {
        let is_test = |part| ["tests", "tests.rs", "test_support.rs"].contains(&part);
        let tests = regex(r"(?m)^#\[cfg\(test\)\][^;{]*\bmod \w+ \{").find(&self.code);
        let code = tests.map_or(&*self.code, |tests| &self.code[..tests.start()]);
        if self.path.split('/').any(is_test) { 0 } else { code.lines().count() }
    }

    /// Returns whether the file belongs to a module, such as `crates/socket/src/sys`: the file of that name, or one in its folder.
    fn is_in_module(&self, module: &str) -> bool {
        let rest = self.path.strip_prefix(module);
        rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    }

    fn violation(&self, line: usize, what: impl Into<String>) -> Violation {
        Violation::new(&self.path, line, what)
    }
}

impl Violation {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Returns the folder of a crate, such as `crates/wire`, or the first part of any other path.
fn place_of(path: &str) -> &str {
    let parts = if path.starts_with("crates/") { 2 } else { 1 };
    let end = path.match_indices('/').nth(parts - 1).map_or(path.len(), |(at, _)| at);
    &path[..end]
}

/// Returns the line of a position, counted from 1.
fn line_at(text: &str, position: usize) -> usize {
    text.bytes().take(position).filter(|byte| *byte == b'\n').count() + 1
}

fn matches<'a>(regex: &Regex, text: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    regex.find_iter(text).map(|found| (line_at(text, found.start()), found.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files with deliberate faults, and all violations in them.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        files: BTreeMap<String, String>,
        #[serde(default)]
        found: Vec<String>,
    }

    #[test]
    fn each_rule_finds_its_deliberate_faults() {
        let workspace = &Workspace::load().unwrap();
        let samples: BTreeMap<String, Vec<Sample>> =
            toml::from_str(include_str!("../tidy-samples.toml")).unwrap();
        for Sample { files, found } in &samples["sample"] {
            let texts = files.iter().map(|(path, text)| File::new(path, text)).collect();
            let mut violations = Project::new(workspace, texts).unwrap().check();
            violations.sort();
            let of_sample = violations.iter().filter(|violation| files.contains_key(&violation.path));
            assert_eq!(&of_sample.map(ToString::to_string).collect::<Vec<_>>(), found, "{files:#?}");
        }
    }
}
