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
    pub(super) fn create(flag: &'static str, path: &Path) -> Result<Self, Failure> {
        Ok(Self { flag, path: path.to_owned(), file: create_file(flag, path)? })
    }

    pub(super) fn write(mut self, text: &str) -> Result<(), Failure> {
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.flush());
        Ok(written.map_err(|error| UsageError::for_file(self.flag, &self.path, &error))?)
    }
}

/// The destination of the JSON report.
pub(super) enum Json {
    Nowhere,
    Stdout,
    File(OutputFile),
}

impl Json {
    pub(super) fn prepare(output: Option<&Output>) -> Result<Self, Failure> {
        match output {
            None => Ok(Self::Nowhere),
            Some(Output::Stdout) => Ok(Self::Stdout),
            Some(Output::File(path)) => OutputFile::create("--json", path).map(Self::File),
        }
    }

    pub(super) fn is_stdout(&self) -> bool {
        matches!(self, Self::Stdout)
    }

    pub(super) fn write(self, text: &str) -> Result<(), Failure> {
        match self {
            Self::Nowhere => Ok(()),
            Self::Stdout => std::io::stdout()
                .write_all(text.as_bytes())
                .map_err(|error| Failure::Run(format!("standard output: {error}"))),
            Self::File(file) => file.write(text),
        }
    }
}

/// Prints a line: to standard output, or to standard error if the JSON report uses standard output.
pub(super) fn print_line(json: &Json, text: &str) {
    // A reader that closed the pipe is no reason to fail.
    let _ = if json.is_stdout() {
        writeln!(std::io::stderr(), "{text}")
    } else {
        writeln!(std::io::stdout(), "{text}")
    };
}
