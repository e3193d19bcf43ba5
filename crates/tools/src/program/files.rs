//! The files of a run's results. They are created before the run, so that a mistyped path does not waste a run.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::Failure;
use crate::cli::{Output, UsageError, create_file};

/// A file that was created and is still empty.
pub(super) struct OutputFile {
    flag: &'static str,
    path: PathBuf,
    file: File,
}

impl OutputFile {
    /// Creates the file of a flag, if the flag is given.
    pub(super) fn create(flag: &'static str, path: Option<&Path>) -> Result<Option<Self>, Failure> {
        let create = |path: &Path| Ok(Self { flag, path: path.to_owned(), file: create_file(flag, path)? });
        path.map(create).transpose()
    }

    pub(super) fn write(mut self, text: &str) -> Result<(), Failure> {
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.flush());
        Ok(written.map_err(|error| UsageError::for_file(self.flag, &self.path, &error))?)
    }
}

/// The destination of the JSON report.
pub(super) struct Json {
    pub(super) is_stdout: bool,
    file: Option<OutputFile>,
}

impl Json {
    pub(super) fn prepare(output: Option<&Output>) -> Result<Self, Failure> {
        let path = match output {
            Some(Output::File(path)) => Some(path.as_path()),
            _ => None,
        };
        Ok(Self { is_stdout: output == Some(&Output::Stdout), file: OutputFile::create("--json", path)? })
    }

    pub(super) fn write(self, text: &str) -> Result<(), Failure> {
        if self.is_stdout {
            let written = std::io::stdout().write_all(text.as_bytes());
            return written.map_err(|error| Failure::Run(format!("standard output: {error}")));
        }
        self.file.map_or(Ok(()), |file| file.write(text))
    }
}

/// Prints a line: to standard output, or to standard error if the JSON report uses standard output.
pub(super) fn print_line(json: &Json, text: &str) {
    // A reader that closed the pipe is no reason to fail.
    let _ = if json.is_stdout {
        writeln!(std::io::stderr(), "{text}")
    } else {
        writeln!(std::io::stdout(), "{text}")
    };
}
