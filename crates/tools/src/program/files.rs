//! The files of a run's results. They are created before the run, so that a mistyped path does not waste a run.

use std::fs::File;
use std::io::{Write, stderr, stdout};
use std::path::{Path, PathBuf};

use crate::error::Error;

/// A file that was created and is still empty, or standard output.
pub(super) struct OutputFile {
    flag: &'static str,
    path: PathBuf,
    /// `None` is standard output.
    file: Option<File>,
}

impl OutputFile {
    /// Creates or truncates the file of a flag, if the flag is given. `-` is standard output.
    pub(super) fn create(flag: &'static str, path: Option<&Path>) -> Result<Option<Self>, Error> {
        let create = |path: &Path| {
            let file = (path != Path::new("-")).then(|| File::create(path)).transpose();
            let file = file.map_err(|error| Error::for_file(flag, path, &error))?;
            Ok(Self { flag, path: path.to_owned(), file })
        };
        path.map(create).transpose()
    }

    pub(super) fn write(self, text: &str) -> Result<(), Error> {
        let Some(mut file) = self.file else { return write_stdout(text) };
        let written = file.write_all(text.as_bytes()).and_then(|()| file.flush());
        written.map_err(|error| Error::for_file(self.flag, &self.path, &error))
    }
}

pub(super) fn write_stdout(text: &str) -> Result<(), Error> {
    stdout().write_all(text.as_bytes()).map_err(|error| Error::run(format!("standard output: {error}")))
}

/// Prints a line: to standard output, or to standard error if the JSON report uses standard output.
pub(super) fn print_line(json: Option<&OutputFile>, text: &str) {
    let is_taken = json.is_some_and(|json| json.file.is_none());
    // A reader that closed the pipe is no reason to fail.
    let _ = if is_taken { writeln!(stderr(), "{text}") } else { writeln!(stdout(), "{text}") };
}
