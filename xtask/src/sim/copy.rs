//! The copy of the project that the simulator is built from: the files as they are, those of `crates/sim/patches/files`, and the
//! patches of `crates/sim/patches/audit`. A planted bug is one more patch on top.
//!
//! The copy lives in `target/sim/tree`. Only files that differ are written, so that cargo rebuilds little.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::files::listed;
use crate::run::{CommandLine, Stop};

/// Where the patches are, from the root.
const PATCHES: &str = "crates/sim/patches";

/// Files by their path below the root, with `/`.
type Files = BTreeMap<String, Vec<u8>>;

/// A patch file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Patch {
    /// Its path below the root.
    pub(crate) path: String,
    text: String,
}

/// The project with everything that every build of the simulator has.
#[derive(Debug)]
pub(crate) struct Copy {
    /// `target/sim`.
    folder: PathBuf,
    files: Files,
    /// Patches that plant a bug, in the order of their numbers.
    pub(crate) bugs: Vec<Patch>,
}

impl Patch {
    /// Returns the value of a header line, such as `Bug: acks of unsent packets are accepted`.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let header = self.text.lines().take_while(|line| !line.starts_with("diff "));
        header.filter_map(|line| line.split_once(": ")).find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// Returns the paths that it changes.
    fn paths(&self) -> impl Iterator<Item = &str> {
        self.text.lines().filter_map(|line| line.strip_prefix("+++ b/"))
    }

    /// Applies it to files. Git accepts no context but the right one; only line numbers may be off.
    ///
    /// # Errors
    /// [`Stop::Failed`] with what git says, and how to renew the patch.
    fn apply(&self, files: &mut Files, stage: &Path) -> Result<(), Stop> {
        let refused = |why: &str| Stop::failed(format!("{} does not apply: {why}", self.path));
        renew(stage)?;
        for path in self.paths() {
            let bytes = files.get(path).ok_or_else(|| refused(&format!("there is no {path}")))?;
            write(&stage.join(path), bytes)?;
        }
        let patch = stage.join(".patch");
        write(&patch, self.text.as_bytes())?;
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

impl Copy {
    /// Reads the project and applies all patches of `audit` to it in memory.
    ///
    /// # Errors
    /// [`Stop::Failed`] when git does not run, a file cannot be read, or a patch does not apply.
    pub(crate) fn of(root: &Path, target: &Path) -> Result<Self, Stop> {
        let folder = target.join("sim");
        let mut files = Files::new();
        for path in listed(root)? {
            let bytes = read(&root.join(&path))?;
            files.insert(path, bytes);
        }
        let begin = format!("{PATCHES}/files/");
        let added = files.iter().filter_map(|(path, bytes)| Some((path.strip_prefix(&begin)?, bytes)));
        let added: Files = added.map(|(path, bytes)| (path.to_owned(), bytes.clone())).collect();
        files.extend(added);
        let (audits, bugs) = (patches(&files, "audit"), patches(&files, "bugs"));
        for audit in audits {
            audit.apply(&mut files, &folder.join("stage"))?;
        }
        Ok(Self { folder, files, bugs })
    }

    /// Checks that every bug can be planted.
    ///
    /// # Errors
    /// [`Stop::Failed`] names the first patch that does not apply, or that lacks a header line.
    pub(crate) fn check_bugs(&self) -> Result<(), Stop> {
        self.bugs.iter().try_for_each(|bug| {
            for name in ["Bug", "Run"] {
                bug.header(name)
                    .ok_or_else(|| Stop::failed(format!("{}: no line `{name}: ..`", bug.path)))?;
            }
            self.with(Some(bug)).map(drop)
        })
    }

    /// The folder in which commands run once [`Copy::write`] was called.
    pub(crate) fn tree(&self) -> PathBuf {
        self.folder.join("tree")
    }

    /// Returns a cargo command for the copy, whose build shares nothing with other builds.
    pub(crate) fn cargo(&self, arguments: &str) -> CommandLine {
        let target = self.folder.join("build");
        let arguments: Vec<_> = arguments.split_whitespace().collect();
        // A bug changes a few lines of one crate: what the compiler knows of the rest stays.
        CommandLine::new("cargo", &arguments)
            .env("CARGO_TARGET_DIR", &target.to_string_lossy())
            .env("CARGO_INCREMENTAL", "1")
    }

    /// The simulator that a build of the copy leaves.
    pub(crate) fn program(&self) -> CommandLine {
        let program = self.folder.join("build/sim/drumfire-sim");
        CommandLine::new::<&str>(&program.to_string_lossy(), &[])
    }

    /// Makes the folder agree with the copy, with a bug planted or none.
    ///
    /// # Errors
    /// [`Stop::Failed`] when the bug's patch does not apply or a file cannot be written.
    pub(crate) fn write(&self, bug: Option<&Patch>) -> Result<(), Stop> {
        let (tree, files) = (self.tree(), self.with(bug)?);
        for (path, bytes) in &files {
            let path = tree.join(path);
            if fs::read(&path).ok().as_ref() != Some(bytes) {
                write(&path, bytes)?;
            }
        }
        remove_others(&tree, &tree, &files)
    }

    /// Renews a bug's patch. One that applies is rewritten for the present lines. For one that does not apply, the bug has to be
    /// planted by hand in the copy; then that difference becomes the patch.
    ///
    /// # Errors
    /// [`Stop::Failed`] when the bug is not planted by hand yet. The copy then has the parts of the patch that apply, and a `.rej`
    /// file with the others.
    pub(crate) fn refresh(&self, root: &Path, bug: &Patch) -> Result<(), Stop> {
        let tree = self.tree();
        let planted = match self.with(Some(bug)) {
            Ok(files) => files,
            Err(why) => {
                let by_hand = self.read_back()?;
                if by_hand == self.files {
                    self.write(None)?;
                    let patch = root.join(&bug.path);
                    // It succeeds only where the patch applies.
                    drop(git(&tree, &["apply", "--reject", &patch.to_string_lossy()]).output(&tree));
                    println!("plant the bug by hand in {}, then repeat this command", tree.display());
                    return Err(why);
                }
                by_hand
            }
        };
        let header = ["Bug", "Run"].map(|name| format!("{name}: {}\n", bug.header(name).unwrap_or("")));
        let text = format!("{}\n{}", header.concat(), self.difference(&planted)?);
        write(&root.join(&bug.path), text.as_bytes())?;
        println!("renewed {}", bug.path);
        self.write(None)
    }

    /// Returns the files as they are in the folder now; those that are missing there as they should be.
    fn read_back(&self) -> Result<Files, Stop> {
        let tree = self.tree();
        let now = |(path, bytes): (&String, &Vec<u8>)| {
            let place = tree.join(path);
            Ok((path.clone(), if place.exists() { read(&place)? } else { bytes.clone() }))
        };
        self.files.iter().map(now).collect()
    }

    /// Returns the difference between the copy and these files as git prints it.
    fn difference(&self, changed: &Files) -> Result<String, Stop> {
        let stage = self.folder.join("stage");
        renew(&stage)?;
        for (path, bytes) in self.files.iter().filter(|(path, bytes)| changed.get(*path) != Some(*bytes)) {
            write(&stage.join("a").join(path), bytes)?;
            write(&stage.join("b").join(path), changed.get(path).map_or(&[][..], Vec::as_slice))?;
        }
        let command = git(&stage, &["diff", "--no-index", "--no-prefix", "a", "b"]);
        // Git ends with an error where there is a difference.
        let output = command.command().current_dir(&stage).output();
        let output = output.map_err(|why| Stop::failed(format!("{command}: {why}")))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn with(&self, bug: Option<&Patch>) -> Result<Files, Stop> {
        let mut files = self.files.clone();
        bug.map_or(Ok(()), |bug| bug.apply(&mut files, &self.folder.join("stage")))?;
        Ok(files)
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

/// Returns a git command for a folder that belongs to no repository: inside one, `git apply` ignores what lies outside of it.
fn git(folder: &Path, arguments: &[&str]) -> CommandLine {
    let above = folder.parent().unwrap_or(folder);
    CommandLine::new("git", arguments).env("GIT_CEILING_DIRECTORIES", &above.to_string_lossy())
}

/// Removes every file that is not one of these, because cargo might take it for a target.
fn remove_others(root: &Path, folder: &Path, files: &Files) -> Result<(), Stop> {
    let failed = |why: std::io::Error| Stop::failed(format!("{}: {why}", folder.display()));
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            remove_others(root, &path, files)?;
            continue;
        }
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
        if !files.contains_key(&name) {
            fs::remove_file(&path).map_err(failed)?;
        }
    }
    Ok(())
}

/// Makes a folder empty.
fn renew(folder: &Path) -> Result<(), Stop> {
    // A folder that does not exist yet is as good as one that is empty.
    drop(fs::remove_dir_all(folder));
    fs::create_dir_all(folder).map_err(|why| Stop::failed(format!("{}: {why}", folder.display())))
}

fn read(path: &Path) -> Result<Vec<u8>, Stop> {
    fs::read(path).map_err(|why| Stop::failed(format!("{}: {why}", path.display())))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Stop> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, bytes))
        .map_err(|why| Stop::failed(format!("{}: {why}", path.display())))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::workspace::Workspace;

    /// Returns the copy of the project, in a folder of its own.
    pub(in super::super) fn project(name: &str) -> Copy {
        let target = std::env::temp_dir().join(format!("drumfire-{name}-{}", std::process::id()));
        Copy::of(&Workspace::load().unwrap().root, &target).unwrap()
    }

    /// Returns a copy of one file, without patches.
    fn copy(name: &str, text: &str) -> Copy {
        let folder = std::env::temp_dir().join(format!("drumfire-{name}-{}", std::process::id()));
        renew(&folder).unwrap();
        Copy { folder, files: [("src/a.rs".to_owned(), text.into())].into(), bugs: Vec::new() }
    }

    fn bug(line: &str) -> Patch {
        let hunk = format!("@@ -1,3 +1,3 @@\n one\n-{line}\n+2\n three\n");
        let header = "Bug: two is a number\nRun: sim --seeds 0..9\n\n";
        let text = format!("{header}--- a/src/a.rs\n+++ b/src/a.rs\n{hunk}");
        Patch { path: "bugs/01-two.patch".to_owned(), text }
    }

    #[test]
    fn a_bug_is_planted_and_taken_away() {
        let copy = copy("planted", "one\ntwo\nthree\n");
        let read = || fs::read_to_string(copy.tree().join("src/a.rs")).unwrap();
        copy.write(None).unwrap();
        fs::write(copy.tree().join("src/stray.rs"), "").unwrap();
        copy.write(Some(&bug("two"))).unwrap();
        assert_eq!(read(), "one\n2\nthree\n");
        assert!(!copy.tree().join("src/stray.rs").exists());
        copy.write(None).unwrap();
        assert_eq!(read(), "one\ntwo\nthree\n");
        fs::remove_dir_all(&copy.folder).unwrap();
    }

    #[test]
    fn a_patch_that_does_not_apply_is_named() {
        let copy = copy("refused", "one\ntwo\nthree\n");
        let Err(Stop::Failed(why)) = copy.write(Some(&bug("zwei"))) else { panic!("it applied") };
        assert!(why.starts_with("bugs/01-two.patch does not apply: "), "{why}");
        fs::remove_dir_all(&copy.folder).unwrap();
    }

    #[test]
    fn a_bug_planted_by_hand_renews_its_patch() {
        let copy = copy("renewed", "one\nzwei\nthree\n");
        let root = copy.folder.join("root");
        write(&root.join("bugs/01-two.patch"), bug("two").text.as_bytes()).unwrap();
        assert!(copy.refresh(&root, &bug("two")).is_err(), "it has to be planted by hand");
        fs::write(copy.tree().join("src/a.rs"), "one\n2\nthree\n").unwrap();
        copy.refresh(&root, &bug("two")).unwrap();
        let text = fs::read_to_string(root.join("bugs/01-two.patch")).unwrap();
        let renewed = Patch { path: "bugs/01-two.patch".to_owned(), text };
        assert_eq!(renewed.header("Run"), Some("sim --seeds 0..9"));
        copy.write(Some(&renewed)).unwrap();
        assert_eq!(fs::read_to_string(copy.tree().join("src/a.rs")).unwrap(), "one\n2\nthree\n");
        fs::remove_dir_all(&copy.folder).unwrap();
    }

    #[test]
    fn all_bugs_of_the_project_can_be_planted() {
        let copy = project("bugs");
        copy.check_bugs().unwrap();
        let numbers = copy.bugs.iter().filter_map(super::super::bugs::number);
        assert_eq!(numbers.collect::<Vec<_>>(), (1..=24).collect::<Vec<_>>());
    }
}
