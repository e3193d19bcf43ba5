//! The copy of the project that the simulator is built from: all files, those of `crates/sim/patches/files`, and the patches of
//! `crates/sim/patches/audit`. A planted bug is one more patch on top.
//!
//! The copy lives in `target/sim/tree`. Only files that differ are written, so that cargo rebuilds little.

use std::fs;
use std::path::{Path, PathBuf};

use crate::files::{Files, make_empty, make_equal, project, read, regex, write};
use crate::ledger;
use crate::run::{CommandLine, Stop};

const PATCHES: &str = "crates/sim/patches";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Patch {
    path: String,
    text: String,
}

/// A patch that plants a bug.
#[derive(Clone, Debug)]
pub(super) struct Bug {
    /// The number at the start of the patch's name.
    pub(super) number: u32,
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
    /// Returns the name without the extension: `07-junk-keeps-alive`.
    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path).trim_end_matches(".patch")
    }

    /// Returns the text before the difference.
    fn header(&self) -> &str {
        self.text.split("diff --git").next().unwrap_or_default()
    }

    /// Returns the paths that it changes.
    fn paths(&self) -> impl Iterator<Item = &str> {
        self.text.lines().filter_map(|line| line.strip_prefix("+++ b/"))
    }

    /// Applies the patch to files. Git requires the exact context, and only line numbers may differ.
    fn apply(&self, files: &mut Files, stage: &Path) -> Result<(), Stop> {
        let (path, name) = (&self.path, self.name());
        let refused = |why: &str| {
            let renew = format!("renew it with `cargo xtask sim --refresh {name}`");
            Stop::failed(format!("{path} does not apply, {renew}: {why}"))
        };
        make_empty(stage)?;
        for path in self.paths() {
            let bytes = files.get(path).ok_or_else(|| refused(&format!("there is no {path}")))?;
            write(&stage.join(path), bytes)?;
        }
        write(&stage.join(".patch"), &self.text)?;
        // Inside a repository, `git apply` ignores files outside of it.
        let apply = CommandLine::new("git", &["apply", ".patch"]);
        match apply.in_folder(stage).env("GIT_CEILING_DIRECTORIES", stage.parent().unwrap_or(stage)).output()
        {
            Err(Stop::Failed(why)) => return Err(refused(&why)),
            outcome => drop(outcome?),
        }
        for path in self.paths() {
            files.insert(path.to_owned(), read(&stage.join(path))?);
        }
        Ok(())
    }
}

impl Bug {
    fn of(patch: Patch) -> Result<Self, Stop> {
        let write = |what: &str| format!("{}: write {what}", patch.path);
        let number = patch.name().split_once('-').and_then(|(number, _)| number.parse().ok());
        let number = number.ok_or_else(|| write("a number and a hyphen at the start of the name"))?;
        let header = regex(r"(?m)\ABug: (.+)\nRun: sim (.*--seeds (\S+))$").captures(patch.header());
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
        let audited = self.with(&self.audits)?;
        self.bugs.iter().try_for_each(|bug| bug.patch.apply(&mut audited.clone(), &self.stage()))
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
        let bug = bug.map(|bug| &bug.patch);
        make_equal(&self.folder(), &self.with(self.audits.iter().chain(bug))?)
    }

    /// Writes the copy, with or without a bug, and builds the simulator.
    pub(super) fn build(&self, bug: Option<&Bug>) -> Result<(), Stop> {
        self.write(bug)?;
        let build = self.cargo("build --profile sim --quiet -p drumfire-sim --bin drumfire-sim");
        build.output().map(drop)
    }

    /// Renews a patch. A patch that applies is rewritten for the present lines. For one that does not apply, the copy has the hunks that
    /// apply, and a `.rej` file with the others, which have to be made by hand. Then a second call makes the difference the patch.
    pub(super) fn refresh(&self, root: &Path, name: &str) -> Result<(), Stop> {
        let bugs = self.bugs.iter().map(|bug| &bug.patch);
        let patch = self.audits.iter().chain(bugs).find(|patch| patch.name() == name);
        let patch = patch.ok_or_else(|| format!("there is no {PATCHES}/*/{name}.patch"))?;
        let earlier = self.audits.iter().take_while(|earlier| *earlier != patch);
        let (before, folder) = (self.with(earlier)?, self.folder());
        let git = |args: &[&str]| CommandLine::new("git", args).in_folder(&folder);
        // The index of git has the files without the change, from the first call until the patch is renewed.
        if !folder.join(".git/index").exists() {
            make_equal(&folder, &before)?;
            git(&["init", "--quiet"]).output()?;
            git(&["add", "--all"]).output()?;
            // It fails where it rejects a hunk.
            drop(git(&["apply", "--reject"]).arg(root.join(&patch.path)).output());
        }
        let others = git(&["ls-files", "--others"]).output()?;
        if let Some(rejected) = others.lines().find(|path| path.ends_with(".rej")) {
            let rejected = folder.join(rejected);
            let how = "make its change by hand, remove it, then repeat this command";
            return Err(Stop::failed(format!("{}: {how}", rejected.display())));
        }
        let difference = git(&["diff"]).output()?;
        if difference.is_empty() {
            return Err(Stop::failed(format!("{}: without any change", folder.display())));
        }
        write(&root.join(&patch.path), format!("{}{difference}", patch.header()))?;
        println!("renewed {}", patch.path);
        drop(fs::remove_dir_all(folder.join(".git")));
        make_equal(&folder, &before)
    }

    fn with<'a>(&self, patches: impl IntoIterator<Item = &'a Patch>) -> Result<Files, Stop> {
        let mut files = self.files.clone();
        patches.into_iter().try_for_each(|patch| patch.apply(&mut files, &self.stage()))?;
        Ok(files)
    }

    fn stage(&self) -> PathBuf {
        self.base.join("stage")
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
    fn a_patch_that_does_not_apply_is_renewed_by_hand() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let mut copy = copy(folder, "one\nzwei\nthree\n", "two");
        let root = folder.join("root");
        let Err(Stop::Failed(why)) = copy.check() else { panic!("it applied") };
        let begin = "bugs/01-two.patch does not apply, renew it with `cargo xtask sim --refresh 01-two`: ";
        assert!(why.starts_with(begin), "{why}");
        write(&root.join(PATH), &copy.bugs[0].patch.text).unwrap();
        for _ in 0..2 {
            assert!(copy.refresh(&root, "01-two").is_err(), "the change has to be made by hand");
        }
        fs::write(copy.folder().join("src/a.rs"), "one\n2\nthree\n").unwrap();
        fs::remove_file(copy.folder().join("src/a.rs.rej")).unwrap();
        copy.refresh(&root, "01-two").unwrap();
        let text = fs::read_to_string(root.join(PATH)).unwrap();
        copy.bugs = vec![Bug::of(Patch { path: PATH.to_owned(), text }).unwrap()];
        copy.write(copy.bugs.first()).unwrap();
        assert_eq!(fs::read_to_string(copy.folder().join("src/a.rs")).unwrap(), "one\n2\nthree\n");
        assert!(matches!(copy.refresh(&root, "02"), Err(Stop::Failed(why)) if why.contains("02.patch")));
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
