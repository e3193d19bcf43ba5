//! The project's files as git lists them, files on disk with errors that name them, and searches in text.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use regex::Regex;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::run::{CommandLine, Stop};

/// The contents of files by their paths below a folder, with `/`.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// Returns the project's files with their contents: those that git tracks, and new ones that it does not ignore.
pub(crate) fn project(root: &Path) -> Result<Files, Stop> {
    let list =
        CommandLine::new("git", &["ls-files", "-co", "--exclude-standard", "-z"]).in_folder(root).output()?;
    // Git still lists a tracked file that was deleted.
    let paths = list.split_terminator('\0').filter(|path| root.join(path).is_file());
    paths.map(|path| Ok((path.to_owned(), read(&root.join(path))?))).collect()
}

/// Makes a folder contain exactly these files. Unchanged files keep their modification time, so that cargo rebuilds
/// little.
pub(crate) fn make_equal(folder: &Path, files: &Files) -> Result<(), Stop> {
    for (path, bytes) in files {
        let path = folder.join(path);
        if fs::read(&path).ok().as_ref() != Some(bytes) {
            write(&path, bytes)?;
        }
    }
    remove_others(folder, folder, files)
}

fn remove_others(root: &Path, folder: &Path, files: &Files) -> Result<(), Stop> {
    for entry in fs::read_dir(folder).map_err(|why| failed(folder, &why))? {
        let path = entry.map_err(|why| failed(folder, &why))?.path();
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
        if path.is_dir() {
            remove_others(root, &path, files)?;
        } else if !files.contains_key(&name) {
            fs::remove_file(&path).map_err(|why| failed(&path, &why))?;
        }
    }
    Ok(())
}

pub(crate) fn make_empty(folder: &Path) -> Result<(), Stop> {
    // The call fails if the folder does not exist.
    drop(fs::remove_dir_all(folder));
    fs::create_dir_all(folder).map_err(|why| failed(folder, &why))
}

/// Returns the sorted names of a folder's entries.
pub(crate) fn names(folder: &Path) -> Result<Vec<String>, Stop> {
    let entries = fs::read_dir(folder).map_err(|why| failed(folder, &why))?;
    let names = entries.map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<Result<Vec<_>, _>>().map_err(|why| failed(folder, &why))?;
    names.sort();
    Ok(names)
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Stop> {
    fs::read(path).map_err(|why| failed(path, &why))
}

pub(crate) fn text(path: &Path) -> Result<String, Stop> {
    fs::read_to_string(path).map_err(|why| failed(path, &why))
}

/// Reads a file of TOML.
pub(crate) fn parsed<T: DeserializeOwned>(path: &Path) -> Result<T, Stop> {
    let value = toml::from_str(&text(path)?);
    Ok(value.map_err(|why| format!("{}: {}", path.display(), why.message()))?)
}

/// Replaces the tables of a file of TOML, and keeps the comments before them.
pub(crate) fn write_tables(path: &Path, tables: &impl Serialize) -> Result<(), Stop> {
    write(path, with_tables(&text(path)?, tables)?)
}

/// Returns a text of TOML with these tables instead of its own, after the comments before them.
pub(crate) fn with_tables(before: &str, tables: &impl Serialize) -> Result<String, String> {
    let comments =
        if before.starts_with('[') { 0 } else { before.find("\n[").map_or(before.len(), |at| at + 1) };
    let tables = toml::to_string(tables).map_err(|why| why.to_string())?;
    Ok(format!("{}{tables}", &before[..comments]))
}

/// Writes a file, and creates its folder if it does not exist.
pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), Stop> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).and_then(|()| fs::write(path, bytes)).map_err(|why| failed(path, &why))
}

pub(crate) fn failed(path: &Path, why: &std::io::Error) -> Stop {
    Stop::failed(format!("{}: {why}", path.display()))
}

#[expect(clippy::expect_used, reason = "each expression is a part of this program, and a test uses it")]
pub(crate) fn regex(expression: &str) -> Regex {
    Regex::new(expression).expect("a regular expression")
}

#[cfg(test)]
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}
