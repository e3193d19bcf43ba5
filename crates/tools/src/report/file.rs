//! Writes a finished text to a file, and names the file when it cannot.
//!
//! It replaces what was there and writes nothing in parts; folders are not created, for a mistyped path should
//! be seen and not be filled.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Writes `text` to the file at `path`, replacing what it held.
///
/// # Errors
/// [`FileError`] with the path when the file cannot be made or written.
pub fn write_file(path: &Path, text: &str) -> Result<(), FileError> {
    std::fs::write(path, text).map_err(|source| FileError { path: path.to_path_buf(), source })
}

/// A file that could not be written.
#[derive(Debug)]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write {}: {}", self.path.display(), self.source)
    }
}

impl std::error::Error for FileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_not_added_to() {
        let path = std::env::temp_dir().join(format!("drumfire-report-file-{}", std::process::id()));
        write_file(&path, "a longer text").unwrap();
        write_file(&path, "short").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "short");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn an_error_names_the_path() {
        let error = write_file(Path::new("no-such-folder/report.csv"), "").unwrap_err();
        assert!(error.to_string().starts_with("cannot write no-such-folder/report.csv: "), "{error}");
    }
}
