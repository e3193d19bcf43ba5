//! The three programs, from their arguments to their exit code.
//!
//! Exit codes: 0 for a run whose books close, 1 for one without closed books, 2 for input that cannot be used.

mod keys;
mod receive;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fs::File;
use std::io::{Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Parser;

use crate::cli::{self, Traffic};
use crate::error::Error;
use crate::report::{Flags, Report, flags_of};
use crate::values::{self, Target};
use crate::{sender, table};
pub(crate) use keys::Top as TopArgs;

/// Set by Ctrl-C. A program then ends its run and writes its report.
pub(crate) static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Runs `receiver` with these arguments, the program's name first.
pub fn receiver(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    end(receive::run(args.into_iter().skip(1).collect()))
}

/// Runs `sender` with these arguments, the program's name first.
pub fn sender(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    end(send(args.into_iter().skip(1).collect()))
}

/// Runs `drumfire` with these arguments, the program's name first.
pub fn drumfire(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    end(cli::parse(args.into_iter().skip(1)).and_then(|(args, _)| keys::run(args)))
}

/// Sends numbered datagrams to a `receiver` and compares both books.
#[derive(Clone, Debug, PartialEq, Parser)]
#[command(name = "sender", version)]
pub(crate) struct SenderArgs {
    /// Where the receiver is
    #[arg(long, value_name = "HOST:PORT")]
    pub to: Target,
    #[command(flatten)]
    pub traffic: Traffic,
    /// Write the report as JSON; - is standard output
    #[arg(long, value_name = "FILE", value_parser = values::json_file)]
    pub json: Option<PathBuf>,
}

impl SenderArgs {
    /// Reads the command line, without the name of the program.
    pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, Error> {
        let (args, _) = cli::parse::<Self>(args)?;
        args.traffic.check("--threads")?;
        Ok(args)
    }

    /// Returns the flags for the report, defaults included. The destination of the report is no part of the measurement.
    pub(crate) fn flags(&self) -> Flags {
        let mut flags = flags_of(&self.traffic);
        flags.insert("to".to_owned(), self.to.text.as_str().into());
        flags
    }
}

fn send(args: Vec<OsString>) -> Result<(), Error> {
    let typed = command("sender", &args);
    let args = SenderArgs::parse(args)?;
    let json = OutputFile::create("--json", args.json.as_deref())?;
    watch_for_interrupt();
    let mut report = sender::run(&args.to.addresses, &args.traffic, &is_interrupted)?;
    (report.command, report.flags) = (typed, args.flags());
    write_report(&report, json)
}

/// Prints the report as a table, and writes it as JSON if that has a destination.
fn write_report(report: &Report, json: Option<OutputFile>) -> Result<(), Error> {
    print_line(json.as_ref(), &table::render(report)?);
    let text = report.to_json()?;
    json.map_or(Ok(()), |json| json.write(&text))
}

fn end(result: Result<(), Error>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    // A reader that closed the pipe is no reason to fail.
    let _ = match &error {
        Error::CommandLine(error) => error.print(),
        line => writeln!(stderr(), "error: {line}"),
    };
    ExitCode::from(error.exit_code())
}

/// Makes Ctrl-C end the run with its report instead of killing the program.
pub(crate) fn watch_for_interrupt() {
    // Without a handler Ctrl-C kills the program, which loses the report and nothing else.
    let _ = ctrlc::set_handler(|| IS_INTERRUPTED.store(true, Ordering::Release));
}

pub(crate) fn is_interrupted() -> bool {
    IS_INTERRUPTED.load(Ordering::Acquire)
}

/// The command as it was typed.
fn command(program: &str, args: &[OsString]) -> String {
    let words = args.iter().map(|arg| arg.to_string_lossy().into_owned());
    std::iter::once(program.to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// The file of a result, or standard output. It is created before the run, so that a mistyped path does not waste a run.
struct OutputFile {
    flag: &'static str,
    path: PathBuf,
    /// `None` is standard output.
    file: Option<File>,
}

impl OutputFile {
    /// Creates or truncates the file of a flag, if the flag is given. `-` is standard output.
    fn create(flag: &'static str, path: Option<&Path>) -> Result<Option<Self>, Error> {
        let create = |path: &Path| {
            let file = (path != Path::new("-")).then(|| File::create(path)).transpose();
            let file = file.map_err(|error| Error::for_file(flag, path, &error))?;
            Ok(Self { flag, path: path.to_owned(), file })
        };
        path.map(create).transpose()
    }

    fn write(self, text: &str) -> Result<(), Error> {
        let Some(mut file) = self.file else { return write_stdout(text) };
        let written = file.write_all(text.as_bytes()).and_then(|()| file.flush());
        written.map_err(|error| Error::for_file(self.flag, &self.path, &error))
    }
}

pub(crate) fn write_stdout(text: &str) -> Result<(), Error> {
    stdout().write_all(text.as_bytes()).map_err(|error| Error::run(format!("standard output: {error}")))
}

/// Prints a line: to standard output, or to standard error if the JSON report uses standard output.
fn print_line(json: Option<&OutputFile>, text: &str) {
    let is_taken = json.is_some_and(|json| json.file.is_none());
    // A reader that closed the pipe is no reason to fail.
    let _ = if is_taken { writeln!(stderr(), "{text}") } else { writeln!(stdout(), "{text}") };
}
