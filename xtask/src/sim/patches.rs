//! The copy of the project that the simulator is built from: all files, those of `crates/sim/patches/files`, and the patches of
//! `crates/sim/patches/audit`. A planted bug is one more patch on top.
//!
//! The copy is in `target/sim/tree`. Only files that differ are written, so that cargo rebuilds little.

use std::path::{Path, PathBuf};

use crate::files::{Files, make_empty, make_equal, project, read, regex, write};
use crate::ledger;
use crate::run::{CommandLine, Stop};

const PATCHES: &str = "crates/sim/patches";
const README: &str = "crates/sim/patches/README.md";

#[derive(Clone, Debug)]
struct Patch {
    path: String,
    text: String,
}

/// A patch that plants a bug.
#[derive(Clone, Debug)]
pub(super) struct Bug {
    /// The number at the start of the patch's name, without leading zeros.
    pub(super) number: String,
    /// The line `Bug: ..` of the patch.
    pub(super) title: String,
    /// The simulator's flags for the scenarios that show it, from the line `Run: sim ..`. The last one is the range of seeds.
    pub(super) flags: Vec<String>,
    patch: Patch,
}

/// The files of the copy, and the patches for them.
#[derive(Debug)]
pub(super) struct PatchedCopy {
    /// `target/sim`.
    base: PathBuf,
    /// The files before any patch.
    files: Files,
    /// The patches of every build, in the order in which they apply.
    audits: Vec<Patch>,
    pub(super) bugs: Vec<Bug>,
}

impl Patch {
    /// Applies the patch to files. Git requires the exact context, and only line numbers may differ.
    fn apply(&self, files: &mut Files, stage: &Path) -> Result<(), Stop> {
        let paths: Vec<&str> = self.text.lines().filter_map(|line| line.strip_prefix("+++ b/")).collect();
        make_empty(stage)?;
        for path in &paths {
            // Git reports a file that does not exist.
            files.get(*path).map_or(Ok(()), |bytes| write(&stage.join(path), bytes))?;
        }
        write(&stage.join(".patch"), &self.text)?;
        // Inside a repository, `git apply` ignores files outside of it.
        let apply = CommandLine::new("git", &["apply", ".patch"]).in_folder(stage);
        let apply = apply.env("GIT_CEILING_DIRECTORIES", stage.parent().unwrap_or(stage)).output();
        apply.map_err(|why| format!("{} does not apply, {README} says how to renew it: {why}", self.path))?;
        for path in paths {
            files.insert(path.to_owned(), read(&stage.join(path))?);
        }
        Ok(())
    }
}

impl Bug {
    fn of(patch: Patch) -> Result<Self, Stop> {
        let write = |what: &str| format!("{}: write {what}", patch.path);
        let number = regex(r"/0*(\d+)-[^/]*$").captures(&patch.path).map(|number| number[1].to_owned());
        let number = number.ok_or_else(|| write("a number and a hyphen at the start of the name"))?;
        let header = regex(r"(?m)\ABug: (.+)\nRun: sim (.*--seeds (\S+))$").captures(&patch.text);
        let header = header
            .ok_or_else(|| write("the lines `Bug: ..` and `Run: sim [--worker] --seeds A..B` first"))?;
        ledger::parse_seeds(&header[3]).map_err(|why| write(&format!("other seeds, {why}")))?;
        let (title, flags) = (header[1].to_owned(), header[2].split(' ').map(str::to_owned).collect());
        Ok(Self { number, title, flags, patch })
    }
}

impl PatchedCopy {
    pub(super) fn of(root: &Path, target: &Path) -> Result<Self, Stop> {
        let mut files = project(root)?;
        let begin = format!("{PATCHES}/files/");
        let added = files.iter().filter_map(|(path, bytes)| Some((path.strip_prefix(&begin)?, bytes)));
        let added: Files = added.map(|(path, bytes)| (path.to_owned(), bytes.clone())).collect();
        files.extend(added);
        let bugs = patches(&files, "bugs").into_iter().map(Bug::of).collect::<Result<_, _>>()?;
        Ok(Self { base: target.join("sim"), audits: patches(&files, "audit"), bugs, files })
    }

    /// Checks that every bug can be planted.
    pub(super) fn check(&self) -> Result<(), Stop> {
        let audited = self.patched(None)?;
        self.bugs.iter().try_for_each(|bug| bug.patch.apply(&mut audited.clone(), &self.base.join("stage")))
    }

    /// Returns the folder of the copy, in which commands run.
    pub(super) fn folder(&self) -> PathBuf {
        self.base.join("tree")
    }

    /// Returns a cargo command for the copy, whose build shares nothing with other builds.
    pub(super) fn cargo(&self, args: &str) -> CommandLine {
        CommandLine::cargo(args)
            .in_folder(&self.folder())
            .env("CARGO_TARGET_DIR", self.base.join("build"))
            // A bug changes a few lines of one crate, and the rest is reused.
            .env("CARGO_INCREMENTAL", "1")
            // A bug can leave code unused or unreachable.
            .env("RUSTFLAGS", "-Awarnings")
    }

    pub(super) fn simulator(&self) -> CommandLine {
        CommandLine::new(self.base.join("build/sim/drumfire-sim"), &[""; 0]).in_folder(&self.folder())
    }

    pub(super) fn write(&self, bug: Option<&Bug>) -> Result<(), Stop> {
        make_equal(&self.folder(), &self.patched(bug)?)
    }

    /// Writes the copy, with or without a bug, and builds the simulator.
    pub(super) fn build(&self, bug: Option<&Bug>) -> Result<(), Stop> {
        self.write(bug)?;
        let build = self.cargo("build --profile sim --quiet -p drumfire-sim --bin drumfire-sim");
        build.output().map(drop)
    }

    /// Returns the files with the patches of every build, and with a bug.
    fn patched(&self, bug: Option<&Bug>) -> Result<Files, Stop> {
        let (mut files, bug) = (self.files.clone(), bug.map(|bug| &bug.patch));
        self.audits
            .iter()
            .chain(bug)
            .try_for_each(|patch| patch.apply(&mut files, &self.base.join("stage")))?;
        Ok(files)
    }
}

fn patches(files: &Files, folder: &str) -> Vec<Patch> {
    let begin = format!("{PATCHES}/{folder}/");
    let of_folder = files.iter().filter(|(path, _)| path.starts_with(&begin) && path.ends_with(".patch"));
    let patch = |(path, bytes): (&String, &Vec<u8>)| Patch {
        path: path.clone(),
        text: String::from_utf8_lossy(bytes).into_owned(),
    };
    of_folder.map(patch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const PATH: &str = "bugs/01-two.patch";

    /// A copy of one file, with a bug that changes its second line from `line`.
    fn copy(folder: &Path, text: &str, line: &str) -> PatchedCopy {
        let diff = "diff --git a/src/a.rs b/src/a.rs\n--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1,3 +1,3 @@\n";
        let patch =
            format!("Bug: two is a number\nRun: sim --seeds 0..9\n\n{diff} one\n-{line}\n+2\n three\n");
        let bug = Bug::of(Patch { path: PATH.to_owned(), text: patch }).unwrap();
        let files = [("src/a.rs".to_owned(), text.into())].into();
        PatchedCopy { base: folder.to_owned(), files, audits: Vec::new(), bugs: vec![bug] }
    }

    #[test]
    fn a_bug_is_planted_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let copy = copy(folder, "one\ntwo\nthree\n", "two");
        let read = || fs::read_to_string(copy.folder().join("src/a.rs")).unwrap();
        copy.write(None).unwrap();
        fs::write(copy.folder().join("src/stray.rs"), "").unwrap();
        copy.write(copy.bugs.first()).unwrap();
        assert_eq!(read(), "one\n2\nthree\n");
        assert!(!copy.folder().join("src/stray.rs").exists());
        copy.write(None).unwrap();
        assert_eq!(read(), "one\ntwo\nthree\n");
    }

    #[test]
    fn a_patch_needs_its_exact_context() {
        let folder = tempfile::tempdir().unwrap();
        for text in ["one\nzwei\nthree\n", "one\n"] {
            let Err(Stop::Failed(why)) = copy(folder.path(), text, "two").check() else { panic!("{text}") };
            assert!(
                why.starts_with("bugs/01-two.patch does not apply, crates/sim/patches/README.md"),
                "{why}"
            );
        }
        let mut copy = copy(folder.path(), "one\ntwo\nthree\n", "two");
        copy.files.clear();
        assert!(copy.check().is_err(), "its file does not exist");
    }

    #[test]
    fn an_incomplete_header_is_refused() {
        let bug = |name: &str, text: &str| {
            Bug::of(Patch { path: format!("bugs/{name}.patch"), text: text.to_owned() })
        };
        assert!(bug("01-a", "Bug: a\nRun: sim --worker --seeds 0..9\n\ndiff --git\n").is_ok());
        for (name, text) in [
            ("a", "Bug: a\nRun: sim --seeds 0..9\n"),
            ("01-a", "Run: sim --seeds 0..9\n"),
            ("01-a", "Bug: a\n"),
            ("01-a", "Bug: a\nRun: sim 0..9\n"),
            ("01-a", "Bug: a\nRun: sim --seeds 9..0\n"),
            ("01-a", "diff --git\nBug: a\nRun: sim --seeds 0..9\n"),
        ] {
            assert!(
                matches!(bug(name, text), Err(Stop::Failed(why)) if why.contains("write")),
                "{name} {text}"
            );
        }
    }
}
