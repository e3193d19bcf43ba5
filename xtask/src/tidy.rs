//! `cargo xtask tidy`: what the compiler and clippy do not check, over every file that git tracks or would.
//!
//! Each check is a plain function from text to violations, or to faults whose number may only fall. Tidy repairs nothing.
//! It looks at the files as they are; history decides only which of too many faults it shows.

mod arrows;
mod circles;
mod layout;
mod lengths;
mod mask;
mod modules;
mod names;
mod proofs;
mod prose;
mod ratchet;
mod references;
mod unsafety;
mod weight;
mod widths;
mod words;

use std::fmt;
use std::fs;
use std::path::Path;

use self::ratchet::{Added, PATH, Places, Ratchet, Rules};
use crate::files::{self, listed};
use crate::ledger;
use crate::run::{CommandLine, Stop};
use crate::sim;
use crate::workspace::{Package, Workspace};

/// A text file of the project.
#[derive(Debug)]
struct File {
    /// Path below the root, with `/`.
    path: String,
    text: String,
    /// For Rust: the text with comments and literals blanked, line by line as long. Else empty.
    code: String,
}

/// Something that does not hold, and where.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    path: String,
    line: usize,
    what: String,
}

/// Checks the project around the current folder and prints every violation. Lowers the numbers of faults that are left where
/// `is_blessed`.
///
/// # Errors
/// [`Stop::Failed`] when there is one, or when git, cargo or rustc cannot be asked.
pub(crate) fn run(is_blessed: bool) -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let root = &workspace.root;
    let paths = listed(root)?;
    let mut files = read(root, &paths)?;
    let rules =
        rules(&files, &workspace.packages).map_err(|violation| Stop::Failed(violation.to_string()))?;
    if is_blessed {
        bless(root, &mut files, &rules)?;
    }
    let rustc = CommandLine::new("rustc", &["--version"]).output(root)?;

    let mut violations = layout::top_level(&paths);
    violations.extend(layout::documents(&files));
    violations.extend(layout::document_lengths(&files));
    violations.extend(layout::rust_version(&workspace.packages, &rustc));
    violations.extend(layout::published(&workspace.packages, &paths));
    violations.extend(layout::machine_paths(&files, &root.to_string_lossy()));
    violations.extend(arrows::check(&workspace.packages));
    violations.extend(lengths::without_docs(&files));
    violations.extend(words::check(&files));
    violations.extend(widths::check(&files));
    violations.extend(proofs::check(&files));
    violations.extend(references::check(&files));
    violations.extend(runs(&files));
    violations.extend(patches(&workspace)?);
    let (amounts, stray) = unsafety::check(&files, &workspace.packages);
    violations.extend(stray);
    let (crates, heavy) = weight::check(root, &workspace.packages)?;
    violations.extend(heavy);

    match Ratchet::read(&files) {
        Ok(ratchet) => violations.extend(ratchet.check(&rules, &Added::load(root))),
        Err(violation) => violations.push(violation),
    }

    violations.sort();
    violations.iter().for_each(|violation| println!("{violation}"));
    println!(
        "{} files, unsafe: {}, crates of others: {crates:?} (default, without features)",
        files.len(),
        unsafety::described(&amounts)
    );
    match violations.len() {
        0 => Ok(()),
        count => Err(Stop::Failed(format!("tidy: {count} violations"))),
    }
}

/// The faults of the rules that the project does not keep everywhere yet.
fn rules(files: &[File], packages: &[Package]) -> Result<Rules, Violation> {
    let (mut circles, mut names) = (Places::new(), Places::new());
    for package in packages {
        let crates = modules::crates(package, files)?;
        circles.insert(package.folder.clone(), circles::check(&crates));
        names.insert(package.folder.clone(), names::check(&crates, files));
    }
    Ok(Rules::from([
        ("circles", circles),
        ("lines", lengths::too_long(files)),
        ("names", names),
        ("prose", prose::check(files)),
    ]))
}

/// Lowers the numbers of faults that are left, in the file and among the files that were read.
fn bless(root: &Path, files: &mut [File], rules: &Rules) -> Result<(), Stop> {
    let ratchet = Ratchet::read(files).map_err(|violation| Stop::Failed(violation.to_string()))?;
    let text = ratchet.lowered(rules).map_err(Stop::Failed)?;
    files::write(&root.join(PATH), text.as_bytes())?;
    if let Some(file) = files.iter_mut().find(|file| file.path == PATH) {
        *file = File::new(PATH, &text);
    }
    Ok(())
}

/// The ledger of runs, which must add up.
fn runs(files: &[File]) -> Option<Violation> {
    let ledger = files.iter().find(|file| file.path == ledger::PATH)?;
    ledger::check(&ledger.text).err().map(|(line, why)| ledger.violation(line, why))
}

/// The patches for the simulator, which must apply to the files as they are.
fn patches(workspace: &Workspace) -> Result<Option<Violation>, Stop> {
    match sim::check_patches(workspace) {
        Err(Stop::Failed(what)) => {
            Ok(Some(Violation { path: "crates/sim/patches".to_owned(), line: 1, what }))
        }
        outcome => outcome.map(|()| None),
    }
}

/// The text files among them; one with a NUL byte is no text.
fn read(root: &Path, paths: &[String]) -> Result<Vec<File>, Stop> {
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        let bytes = fs::read(root.join(path)).map_err(|why| Stop::failed(format!("{path}: {why}")))?;
        if !bytes.contains(&0) {
            files.push(File::new(path, &String::from_utf8_lossy(&bytes)));
        }
    }
    Ok(files)
}

impl File {
    fn new(path: &str, text: &str) -> Self {
        let code = if path.ends_with(".rs") { mask::code(text) } else { String::new() };
        Self { path: path.to_owned(), text: text.to_owned(), code }
    }

    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether it is this module (`crates/socket/src/sys`): the file of that name, or one in the folder of that name.
    fn is_in_module(&self, module: &str) -> bool {
        let rest = self.path.strip_prefix(module);
        rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    }

    fn violation(&self, line: usize, what: impl Into<String>) -> Violation {
        Violation { path: self.path.clone(), line, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// The line, counted from 1, of a position in a text.
fn line_at(text: &str, position: usize) -> usize {
    text.bytes().take(position).filter(|byte| *byte == b'\n').count() + 1
}

/// Positions where `word` stands and no identifier goes on before it.
fn starts_of<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_own = |position: &usize| !code[..*position].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    code.match_indices(word).map(|(position, _)| position).filter(is_own)
}

/// Positions where `word` stands by itself, no part of a longer identifier.
fn words_of<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    starts_of(code, word).filter(|at| {
        let next = code[at + word.len()..].chars().next();
        !next.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_prints_where_it_is() {
        let file = File::new("crates/wire/src/lib.rs", "");
        assert_eq!(file.violation(3, "is long").to_string(), "crates/wire/src/lib.rs:3: is long");
    }

    #[test]
    fn a_module_is_its_file_and_its_folder_and_no_namesake() {
        let is_in = |path: &str| File::new(path, "").is_in_module("crates/socket/src/sys");
        assert!(is_in("crates/socket/src/sys.rs"));
        assert!(is_in("crates/socket/src/sys/linux/gro.rs"));
        assert!(!is_in("crates/socket/src/system.rs"));
        assert!(!is_in("crates/socket/src/group.rs"));
    }

    #[test]
    fn lines_are_counted_from_one() {
        assert_eq!([0, 1, 2, 3].map(|position| line_at("a\nb\n", position)), [1, 1, 2, 2]);
    }

    #[test]
    fn a_word_inside_an_identifier_is_another_word() {
        assert_eq!(starts_of("cfg(a) my_cfg(b) (cfg(c))", "cfg(").collect::<Vec<_>>(), [0, 18]);
        assert_eq!(words_of("as a_as as_a as", "as").collect::<Vec<_>>(), [0, 13]);
    }

    #[test]
    fn code_is_masked_in_rust_alone() {
        assert_eq!(File::new("a.rs", "a // b").code, "a     ");
        assert_eq!(File::new("a.md", "a // b").code, "");
    }
}
