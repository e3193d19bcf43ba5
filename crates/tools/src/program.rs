//! The three programs, from their arguments to their exit code.
//!
//! Exit codes: 0 for a run whose books close, 1 for one without closed books, 2 for input that cannot be used.

mod files;
mod keys;
mod receive;
mod send;
mod sender_process;
#[cfg(feature = "top")]
mod view;
#[cfg(not(feature = "top"))]
#[path = "program/view_missing.rs"]
mod view;

pub use sender_process::{SenderFailure, SenderProcess};

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::error::ErrorKind;

use crate::cli::{KeysArgs, SENDER_MODE, USAGE_EXIT_CODE, UsageError};

/// Exit code for a run without closed books.
const RUN_EXIT_CODE: u8 = 1;

/// Set by Ctrl-C; programs end in order when it is.
static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Runs `receiver` with these arguments, the program's name first.
pub fn receiver(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter().skip(1).peekable();
    // One executable does both, so that one command can show everything.
    if args.peek().is_some_and(|first| first == SENDER_MODE) {
        return end(send::run(args.skip(1).collect(), send::TableOutput::Hidden));
    }
    end(receive::run(args.collect()))
}

/// Runs `sender` with these arguments, the program's name first.
pub fn sender(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    end(send::run(args.into_iter().skip(1).collect(), send::TableOutput::Printed))
}

/// Runs `drumfire` with these arguments, the program's name first.
pub fn drumfire(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = KeysArgs::parse(args.into_iter().skip(1));
    end(args.map_err(Failure::from).and_then(keys::run))
}

/// The reason why a program ends without success.
enum Failure {
    /// The help, the version, or an error of the command line.
    CommandLine(clap::Error),
    /// A setting that this machine cannot carry out.
    Setting(UsageError),
    /// The run itself failed, in one line.
    Run(String),
    /// The sender that this program started failed with this code and has printed its error.
    Reported(u8),
}

impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        Self::CommandLine(error)
    }
}

impl From<UsageError> for Failure {
    fn from(error: UsageError) -> Self {
        Self::Setting(error)
    }
}

fn end(result: Result<(), Failure>) -> ExitCode {
    let (line, code) = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::CommandLine(error)) => {
            // A reader that closed the pipe is no reason to fail.
            let _ = error.print();
            // A command line without a command gets the help, which is no failure.
            let is_help =
                !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
            return if is_help { ExitCode::SUCCESS } else { ExitCode::from(USAGE_EXIT_CODE) };
        }
        Err(Failure::Reported(code)) => return ExitCode::from(code),
        Err(Failure::Setting(error)) => (error.to_string(), USAGE_EXIT_CODE),
        Err(Failure::Run(line)) => (line, RUN_EXIT_CODE),
    };
    let _ = writeln!(std::io::stderr(), "error: {line}");
    ExitCode::from(code)
}

/// Lets Ctrl-C end the run in order instead of killing it.
fn watch_for_interrupt() {
    // Without a handler Ctrl-C kills the program, which loses the report and nothing else.
    let _ = ctrlc::set_handler(|| IS_INTERRUPTED.store(true, Ordering::Release));
}

fn is_interrupted() -> bool {
    IS_INTERRUPTED.load(Ordering::Acquire)
}

/// The command as it was typed.
fn command(program: &str, args: &[OsString]) -> String {
    let words = args.iter().map(|arg| arg.to_string_lossy().into_owned());
    std::iter::once(program.to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}
