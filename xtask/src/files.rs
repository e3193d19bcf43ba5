//! The project's files as git sees them: which there are, and a copy of them all in another folder.
//!
//! It does not look into them, and it does not ask for any state but the present one.

use std::fs;
use std::path::Path;

use crate::run::{CommandLine, Stop};

/// Paths below the root, with `/`, that git tracks or would track.
///
/// # Errors
/// [`Stop::Failed`] when git cannot be asked.
pub(crate) fn listed(root: &Path) -> Result<Vec<String>, Stop> {
    let list = CommandLine::new("git", &["ls-files", "-co", "--exclude-standard", "-z"]).output(root)?;
    Ok(existing(root, &list))
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

/// Makes `to` a folder with a copy of all these files and nothing else.
///
/// # Errors
/// [`Stop::Failed`] when a file cannot be read or written.
pub(crate) fn copy(root: &Path, paths: &[String], to: &Path) -> Result<(), Stop> {
    let failed = |path: &Path, why: &std::io::Error| Stop::failed(format!("{}: {why}", path.display()));
    if to.exists() {
        fs::remove_dir_all(to).map_err(|why| failed(to, &why))?;
    }
    for path in paths {
        let (from, to) = (root.join(path), to.join(path));
        let folder = to.parent().unwrap_or(&to);
        fs::create_dir_all(folder).map_err(|why| failed(folder, &why))?;
        fs::copy(&from, &to).map_err(|why| failed(&from, &why))?;
    }
    Ok(())
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
