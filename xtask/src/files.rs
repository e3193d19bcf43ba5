//! The project's files as git sees them, and files on disk with errors that name them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::run::{CommandLine, Stop};

/// The contents of files by their paths below a folder, with `/`.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// Paths below the root, with `/`, that git tracks or would track.
///
/// # Errors
/// [`Stop::Failed`] when git cannot be asked.
pub(crate) fn listed(root: &Path) -> Result<Vec<String>, Stop> {
    let list = CommandLine::new("git", &["ls-files", "-co", "--exclude-standard", "-z"]).output(root)?;
    Ok(existing(root, &list))
}

/// Returns the project's files with their contents.
///
/// # Errors
/// [`Stop::Failed`] when git cannot be asked or a file cannot be read.
pub(crate) fn project(root: &Path) -> Result<Files, Stop> {
    listed(root)?.into_iter().map(|path| Ok((path.clone(), read(&root.join(&path))?))).collect()
}

/// Whether the file holds nothing but tests.
pub(crate) fn is_tests_alone(path: &str) -> bool {
    path.split('/').any(|part| ["tests", "tests.rs", "test_support.rs"].contains(&part))
}

/// The paths of a list separated by NUL bytes, sorted; git still lists a tracked file that was deleted.
fn existing(root: &Path, list: &str) -> Vec<String> {
    let mut paths: Vec<String> = list.split_terminator('\0').map(str::to_owned).collect();
    paths.retain(|path| root.join(path).is_file());
    paths.sort();
    paths.dedup();
    paths
}

/// Makes a folder have these files and no others. Files that are equal keep their time of change.
///
/// # Errors
/// [`Stop::Failed`] when a file cannot be written or removed.
pub(crate) fn make_equal(folder: &Path, files: &Files) -> Result<(), Stop> {
    for (path, bytes) in files {
        let path = folder.join(path);
        if fs::read(&path).ok().as_ref() != Some(bytes) {
            write(&path, bytes)?;
        }
    }
    remove_others(folder, folder, files)
}

/// Removes every file below `folder` that is none of these.
fn remove_others(root: &Path, folder: &Path, files: &Files) -> Result<(), Stop> {
    let failed = |why: std::io::Error| Stop::failed(format!("{}: {why}", folder.display()));
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
        if path.is_dir() {
            remove_others(root, &path, files)?;
        } else if !files.contains_key(&name) {
            fs::remove_file(&path).map_err(failed)?;
        }
    }
    Ok(())
}

/// Makes an empty folder.
///
/// # Errors
/// [`Stop::Failed`] when it cannot be made.
pub(crate) fn make_empty(folder: &Path) -> Result<(), Stop> {
    // A folder that does not exist yet is as good as one that is empty.
    drop(fs::remove_dir_all(folder));
    fs::create_dir_all(folder).map_err(|why| Stop::failed(format!("{}: {why}", folder.display())))
}

/// Reads a file.
///
/// # Errors
/// [`Stop::Failed`] with its path.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Stop> {
    fs::read(path).map_err(|why| Stop::failed(format!("{}: {why}", path.display())))
}

/// Writes a file, and makes its folder if there is none.
///
/// # Errors
/// [`Stop::Failed`] with its path.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), Stop> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, bytes))
        .map_err(|why| Stop::failed(format!("{}: {why}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_that_exist_are_listed() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let list = "src/files.rs\0src/gone.rs\0Cargo.toml\0Cargo.toml\0src\0";
        assert_eq!(existing(root, list), ["Cargo.toml", "src/files.rs"]);
    }
}
