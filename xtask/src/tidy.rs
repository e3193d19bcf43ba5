//! `cargo xtask tidy`: house rules that the compiler and clippy do not check, over every file that git tracks or would track.
//!
//! Each check is a function from text to violations, or to faults whose number may only fall. `xtask/tidy.toml` has the rules that are
//! data. Tidy repairs nothing.

mod code;
mod documents;
mod modules;
mod packages;
mod proofs;
mod prose;
mod ratchet;
mod structure;
mod unsafety;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use regex::Regex;
use serde::Deserialize;

use self::modules::Crate;
use self::ratchet::{PATH, Places, Ratchet, Rules};
use self::structure::FACADE;
use crate::files;
use crate::ledger;
use crate::run::Stop;
use crate::sim;
use crate::workspace::{Package, Workspace};

/// The content of `xtask/tidy.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HouseRules {
    top_level: documents::TopLevel,
    document: Vec<documents::Limits>,
    pattern: Vec<code::Pattern>,
    cfg: code::Conditions,
    #[serde(rename = "unsafe")]
    places: Vec<unsafety::Place>,
    layers: structure::Layers,
    packages: packages::Arrows,
    /// Phrases of prose, with their replacements.
    avoided: BTreeMap<String, String>,
    /// Starts of sentences, with their replacements.
    starts: BTreeMap<String, String>,
}

/// A text file of the project.
#[derive(Debug)]
struct File {
    /// The path below the root, with `/`.
    path: String,
    text: String,
    /// The text of a Rust file with comments and literals blanked, of the same length. Empty for other files.
    code: String,
}

/// A broken rule and its place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    path: String,
    line: usize,
    what: String,
}

/// Checks the project around the current folder and prints every violation. With `is_blessed`, lowers the numbers of the ratchet first.
pub(crate) fn run(is_blessed: bool) -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let (root, packages) = (&workspace.root, &workspace.packages);
    let project = files::project(root)?;
    let paths: Vec<&str> = project.keys().map(String::as_str).collect();
    // A file with a NUL byte is not text.
    let texts = project.iter().filter(|(_, bytes)| !bytes.contains(&0));
    let mut files: Vec<File> =
        texts.map(|(path, bytes)| File::new(path, &String::from_utf8_lossy(bytes))).collect();
    let house = HouseRules::read();
    let facade = Crate::read(FACADE, &files).map_err(|violation| Stop::Failed(violation.to_string()))?;
    let rules =
        rules(&house, &files, packages, &facade).map_err(|violation| Stop::Failed(violation.to_string()))?;
    if is_blessed {
        bless(root, &mut files, &rules)?;
    }

    let mut violations = documents::check(&house, &files, &paths, &root.to_string_lossy());
    violations.extend(packages::check(&house.packages, root, packages, &paths)?);
    violations.extend(code::check(&house, &files));
    violations.extend(structure::upward_uses(&house.layers, &facade));
    violations.extend(proofs::check(&files, packages));
    violations.extend(check_ledger(&files));
    violations.extend(check_patches(&workspace)?);
    let (unsafety, stray) = unsafety::check(&house.places, &files);
    violations.extend(stray);
    let (crates, heavy) = packages::check_weight(&house.packages, root, packages)?;
    violations.extend(heavy);
    match Ratchet::read(&files) {
        Ok(ratchet) => violations.extend(ratchet.check(&rules)),
        Err(violation) => violations.push(violation),
    }

    violations.sort();
    violations.iter().for_each(|violation| println!("{violation}"));
    println!(
        "{} files, unsafe: {unsafety}, external crates: {crates:?} (default, without features)",
        files.len()
    );
    match violations.len() {
        0 => Ok(()),
        count => Err(Stop::Failed(format!("tidy: {count} violations"))),
    }
}

/// Counts the faults of the rules that the project does not keep everywhere yet.
fn rules(
    house: &HouseRules,
    files: &[File],
    packages: &[Package],
    facade: &Crate,
) -> Result<Rules, Violation> {
    let (mut circles, mut names) = (Places::new(), Places::new());
    for package in packages {
        let crates = modules::crates(package, files)?;
        circles.insert(package.folder.clone(), structure::circles(&crates));
        names.insert(package.folder.clone(), structure::repeated_names(&crates, files));
    }
    Ok(Rules::from([
        ("circles", circles),
        ("lines", code::long_files(files)),
        ("names", names),
        ("prose", prose::check(house, files)),
        ("root names", Places::from([("crates/drumfire".to_owned(), structure::root_names(facade))])),
    ]))
}

/// Lowers the numbers of the ratchet, on disk and among the files that were read.
fn bless(root: &Path, files: &mut [File], rules: &Rules) -> Result<(), Stop> {
    let ratchet = Ratchet::read(files).map_err(|violation| Stop::Failed(violation.to_string()))?;
    let text = ratchet.lowered(rules).map_err(Stop::Failed)?;
    if let Some(file) = files.iter_mut().find(|file| file.path == PATH) {
        *file = File::new(PATH, &text);
    }
    files::write(&root.join(PATH), text)
}

/// Checks that the ledger adds up.
fn check_ledger(files: &[File]) -> Option<Violation> {
    let ledger = files.iter().find(|file| file.path == ledger::PATH)?;
    ledger::check(&ledger.text).err().map(|why| ledger.violation(1, why))
}

/// Checks that the simulator's patches apply to the present files.
fn check_patches(workspace: &Workspace) -> Result<Option<Violation>, Stop> {
    match sim::check_patches(workspace) {
        Err(Stop::Failed(what)) => Ok(Some(Violation::new("crates/sim/patches", 1, what))),
        outcome => outcome.map(|()| None),
    }
}

impl HouseRules {
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

/// Returns the line of a position, counted from 1.
fn line_at(text: &str, position: usize) -> usize {
    text.bytes().take(position).filter(|byte| *byte == b'\n').count() + 1
}

/// Returns the line and the text of each match.
fn matches<'a>(regex: &Regex, text: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    regex.find_iter(text).map(|found| (line_at(text, found.start()), found.as_str()))
}

#[expect(
    clippy::expect_used,
    reason = "the expressions are a part of this program, and tests use each of them"
)]
fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a regular expression")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_its_file_and_its_folder() {
        let is_in = |path: &str| File::new(path, "").is_in_module("crates/socket/src/sys");
        assert!(is_in("crates/socket/src/sys.rs") && is_in("crates/socket/src/sys/linux/gro.rs"));
        assert!(!is_in("crates/socket/src/system.rs") && !is_in("crates/socket/src/group.rs"));
    }

    #[test]
    fn a_match_has_its_line() {
        assert_eq!([0, 1, 2, 3].map(|position| line_at("a\nb\n", position)), [1, 1, 2, 2]);
        let file = File::new("crates/wire/src/lib.rs", "// a\na\n");
        assert_eq!(matches(&regex(r"\ba\b"), &file.code).collect::<Vec<_>>(), [(2, "a")]);
        assert_eq!(file.violation(3, "is long").to_string(), "crates/wire/src/lib.rs:3: is long");
        assert_eq!(File::new("a.md", "a // b").code, "");
    }
}
