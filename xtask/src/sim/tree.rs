//! The copy of the project that the simulator is built from: the files as they are, those of `crates/sim/patches/files`, and the
//! patches of `crates/sim/patches/audit`. A planted bug is one more patch on top.
//!
//! The copy lives in `target/sim/tree`. Only files that differ are written, so that cargo rebuilds little.

use std::path::{Path, PathBuf};

use super::bugs::Bug;
use crate::files::{Files, make_empty, make_equal, project, read, write};
use crate::run::{CommandLine, Stop};

/// The folder of the patches, from the root.
const PATCHES: &str = "crates/sim/patches";

/// A patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Patch {
    /// Its path below the root.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// The copy and the patches for it.
#[derive(Debug)]
pub(crate) struct Tree {
    /// `target/sim`.
    folder: PathBuf,
    /// The files before any patch.
    files: Files,
    /// Patches that every build of the simulator has, in the order in which they apply.
    audits: Vec<Patch>,
    /// Bugs that can be planted, by their numbers.
    pub(crate) bugs: Vec<Bug>,
}

impl Patch {
    /// Returns the part of the path that names the patch: `07-junk-keeps-alive`.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path).trim_end_matches(".patch")
    }

    /// Returns the text before the difference.
    pub(crate) fn header(&self) -> &str {
        self.text.split("diff --git").next().unwrap_or_default()
    }

    /// Returns the paths that it changes.
    fn paths(&self) -> impl Iterator<Item = &str> {
        self.text.lines().filter_map(|line| line.strip_prefix("+++ b/"))
    }

    /// Applies it to files. Git accepts no context but the right one; only line numbers may be off.
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
        write(&stage.join(".patch"), self.text.as_bytes())?;
        match git(stage, &["apply", ".patch"]).output(stage) {
            Ok(_) => {}
            Err(Stop::Failed(why)) => return Err(refused(&why)),
            Err(other) => return Err(other),
        }
        for path in self.paths() {
            files.insert(path.to_owned(), read(&stage.join(path))?);
        }
        Ok(())
    }
}

impl Tree {
    /// Reads the project with its patches.
    ///
    /// # Errors
    /// [`Stop::Failed`] when git does not run, a file cannot be read, or a bug's patch has no number, title, or scenarios.
    pub(crate) fn of(root: &Path, target: &Path) -> Result<Self, Stop> {
        let mut files = project(root)?;
        let begin = format!("{PATCHES}/files/");
        let added = files.iter().filter_map(|(path, bytes)| Some((path.strip_prefix(&begin)?, bytes)));
        let added: Files = added.map(|(path, bytes)| (path.to_owned(), bytes.clone())).collect();
        files.extend(added);
        let bugs = patches(&files, "bugs").into_iter().map(Bug::of).collect::<Result<_, _>>()?;
        Ok(Self { folder: target.join("sim"), audits: patches(&files, "audit"), bugs, files })
    }

    /// Checks that every bug can be planted.
    ///
    /// # Errors
    /// [`Stop::Failed`] names the first patch that does not apply.
    pub(crate) fn check(&self) -> Result<(), Stop> {
        let audited = self.with(&self.audits)?;
        self.bugs.iter().try_for_each(|bug| bug.patch.apply(&mut audited.clone(), &self.stage()))
    }

    /// Returns the folder in which commands run once [`Self::write`] was called.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join("tree")
    }

    /// Returns a cargo command for the copy, whose build shares nothing with other builds.
    pub(crate) fn cargo(&self, arguments: &str) -> CommandLine {
        let target = self.folder.join("build");
        let arguments: Vec<_> = arguments.split_whitespace().collect();
        CommandLine::new("cargo", &arguments)
            .env("CARGO_TARGET_DIR", &target.to_string_lossy())
            // A bug changes a few lines of one crate: what the compiler knows of the rest stays.
            .env("CARGO_INCREMENTAL", "1")
            // A bug leaves code unused or unreachable.
            .env("RUSTFLAGS", "-Awarnings")
    }

    /// Returns the simulator that a build of the copy leaves.
    pub(crate) fn program(&self) -> CommandLine {
        let program = self.folder.join("build/sim/drumfire-sim");
        CommandLine::new::<&str>(&program.to_string_lossy(), &[])
    }

    /// Makes the folder agree with the copy, with a bug planted or none.
    ///
    /// # Errors
    /// [`Stop::Failed`] when a patch does not apply or a file cannot be written.
    pub(crate) fn write(&self, bug: Option<&Bug>) -> Result<(), Stop> {
        let bug = bug.map(|bug| &bug.patch);
        make_equal(&self.path(), &self.with(self.audits.iter().chain(bug))?)
    }

    /// Renews the patch of this name. One that applies is rewritten for the present lines. For one that does not apply, its change
    /// has to be made by hand in the copy; then that difference becomes the patch.
    ///
    /// # Errors
    /// [`Stop::Failed`] when there is no such patch, or its change was not made by hand yet. In the latter case the copy has the
    /// parts of the patch that apply, and a `.rej` file with the others.
    pub(crate) fn refresh(&self, root: &Path, name: &str) -> Result<(), Stop> {
        let bug = self.bugs.iter().map(|bug| &bug.patch).find(|patch| patch.name() == name);
        let earlier = self.audits.iter().take_while(|patch| patch.name() != name);
        let patch = bug.or_else(|| self.audits.iter().find(|patch| patch.name() == name));
        let patch = patch.ok_or_else(|| Stop::failed(format!("there is no {PATCHES}/*/{name}.patch")))?;
        let (before, tree) = (self.with(earlier)?, self.path());
        let mut after = before.clone();
        if let Err(why) = patch.apply(&mut after, &self.stage()) {
            after = read_back(&tree, &before)?;
            if after == before {
                make_equal(&tree, &before)?;
                // It ends with an error, because the patch does not apply as a whole.
                drop(
                    git(&tree, &["apply", "--reject", &root.join(&patch.path).to_string_lossy()])
                        .output(&tree),
                );
                println!("make the change by hand in {}, then repeat this command", tree.display());
                return Err(why);
            }
        }
        let text = format!("{}{}", patch.header(), self.difference(&before, &after)?);
        write(&root.join(&patch.path), text.as_bytes())?;
        println!("renewed {}", patch.path);
        make_equal(&tree, &before)
    }

    /// Returns the difference between two states of the same files as git prints it.
    fn difference(&self, before: &Files, after: &Files) -> Result<String, Stop> {
        let stage = self.stage();
        make_empty(&stage)?;
        for (path, bytes) in before {
            if let Some(changed) = after.get(path).filter(|after| *after != bytes) {
                write(&stage.join("a").join(path), bytes)?;
                write(&stage.join("b").join(path), changed)?;
            }
        }
        let command = git(&stage, &["diff", "--no-index", "--no-prefix", "a", "b"]);
        // Git ends with an error where there is a difference.
        let output = command.command().current_dir(&stage).output();
        let output = output.map_err(|why| Stop::failed(format!("{command}: {why}")))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns the files with these patches applied.
    fn with<'a>(&self, patches: impl IntoIterator<Item = &'a Patch>) -> Result<Files, Stop> {
        let mut files = self.files.clone();
        patches.into_iter().try_for_each(|patch| patch.apply(&mut files, &self.stage()))?;
        Ok(files)
    }

    /// Returns the folder in which patches are applied.
    fn stage(&self) -> PathBuf {
        self.folder.join("stage")
    }
}

/// Returns the patches of a folder, in the order of their names.
fn patches(files: &Files, folder: &str) -> Vec<Patch> {
    let begin = format!("{PATCHES}/{folder}/");
    let of_folder = files.iter().filter(|(path, _)| path.starts_with(&begin) && path.ends_with(".patch"));
    let patch = |(path, bytes): (&String, &Vec<u8>)| Patch {
        path: path.clone(),
        text: String::from_utf8_lossy(bytes).into_owned(),
    };
    of_folder.map(patch).collect()
}

/// Returns the files as they are in the folder now, and as they should be where it does not have them.
fn read_back(tree: &Path, files: &Files) -> Result<Files, Stop> {
    let now = |(path, bytes): (&String, &Vec<u8>)| {
        let place = tree.join(path);
        Ok((path.clone(), if place.exists() { read(&place)? } else { bytes.clone() }))
    };
    files.iter().map(now).collect()
}

/// Returns a git command for a folder that belongs to no repository: inside one, `git apply` ignores what lies outside of it.
fn git(folder: &Path, arguments: &[&str]) -> CommandLine {
    let above = folder.parent().unwrap_or(folder);
    CommandLine::new("git", arguments).env("GIT_CEILING_DIRECTORIES", &above.to_string_lossy())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::workspace::Workspace;
    use std::fs;

    /// Returns the project, with a folder of its own for the copy.
    pub(in super::super) fn tree_of_project(name: &str) -> Tree {
        let target = std::env::temp_dir().join(format!("drumfire-{name}-{}", std::process::id()));
        Tree::of(&Workspace::load().unwrap().root, &target).unwrap()
    }

    /// Returns a copy of one file, with a bug that changes its second line from `line`.
    fn copy(name: &str, text: &str, line: &str) -> Tree {
        let folder = std::env::temp_dir().join(format!("drumfire-{name}-{}", std::process::id()));
        make_empty(&folder).unwrap();
        let diff = "diff --git a/src/a.rs b/src/a.rs\n--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1,3 +1,3 @@\n";
        let text_of_bug =
            format!("Bug: two is a number\nRun: sim --seeds 0..9\n\n{diff} one\n-{line}\n+2\n three\n");
        let patch = Patch { path: "bugs/01-two.patch".to_owned(), text: text_of_bug };
        let files = [("src/a.rs".to_owned(), text.into())].into();
        Tree { folder, files, audits: Vec::new(), bugs: vec![Bug::of(patch).unwrap()] }
    }

    #[test]
    fn a_bug_is_planted_and_taken_away() {
        let tree = copy("planted", "one\ntwo\nthree\n", "two");
        let read = || fs::read_to_string(tree.path().join("src/a.rs")).unwrap();
        tree.write(None).unwrap();
        fs::write(tree.path().join("src/stray.rs"), "").unwrap();
        tree.write(tree.bugs.first()).unwrap();
        assert_eq!(read(), "one\n2\nthree\n");
        assert!(!tree.path().join("src/stray.rs").exists());
        tree.write(None).unwrap();
        assert_eq!(read(), "one\ntwo\nthree\n");
        fs::remove_dir_all(&tree.folder).unwrap();
    }

    #[test]
    fn a_patch_that_does_not_apply_is_named() {
        let tree = copy("refused", "one\ntwo\nthree\n", "zwei");
        let Err(Stop::Failed(why)) = tree.check() else { panic!("it applied") };
        let begin = "bugs/01-two.patch does not apply, renew it with `cargo xtask sim --refresh 01-two`: ";
        assert!(why.starts_with(begin), "{why}");
        fs::remove_dir_all(&tree.folder).unwrap();
    }

    #[test]
    fn a_change_made_by_hand_renews_its_patch() {
        let mut tree = copy("renewed", "one\nzwei\nthree\n", "two");
        let root = tree.folder.join("root");
        write(&root.join("bugs/01-two.patch"), tree.bugs[0].patch.text.as_bytes()).unwrap();
        assert!(tree.refresh(&root, "01-two").is_err(), "the change has to be made by hand");
        fs::write(tree.path().join("src/a.rs"), "one\n2\nthree\n").unwrap();
        tree.refresh(&root, "01-two").unwrap();
        let text = fs::read_to_string(root.join("bugs/01-two.patch")).unwrap();
        tree.bugs = vec![Bug::of(Patch { path: "bugs/01-two.patch".to_owned(), text }).unwrap()];
        tree.write(tree.bugs.first()).unwrap();
        assert_eq!(fs::read_to_string(tree.path().join("src/a.rs")).unwrap(), "one\n2\nthree\n");
        assert!(matches!(tree.refresh(&root, "02"), Err(Stop::Failed(why)) if why.contains("02.patch")));
        fs::remove_dir_all(&tree.folder).unwrap();
    }

    #[test]
    fn all_bugs_of_the_project_can_be_planted() {
        let tree = tree_of_project("bugs");
        tree.check().unwrap();
        let numbers: Vec<_> = tree.bugs.iter().map(|bug| bug.number).collect();
        assert_eq!(numbers, (1..=24).collect::<Vec<_>>());
    }
}
