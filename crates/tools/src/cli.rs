//! The command lines of `receiver`, `sender` and `drumfire`: what they accept, and one clear line for whatever they do
//! not.
//!
//! Bad input never shows a usage block, a panic or a backtrace: it is `error: <flag> <value>: <problem>; <way
//! out>` on standard error and exit code 2. Parsing opens no socket and no file; it asks the resolver for
//! names that are not addresses, and nothing else of the system.

use std::io::Write;
use std::process::ExitCode;

mod address;
mod keys;
mod output;
mod receiver;
mod refusal;
mod sender;
mod usage;
mod values;

pub use address::{BindAddress, Target, resolve_by_system};
pub use keys::{Keygen, KeysArgs, Token as TokenArgs, Top as TopArgs};
pub use output::{Output, create_file};
pub use receiver::ReceiverArgs;
pub use sender::{SenderArgs, Traffic};
pub use usage::UsageError;

/// First argument of `receiver` that makes the executable a sender; the flags of [`SenderArgs::to_flags`]
/// follow it.
pub const SENDER_MODE: &str = "__sender";

/// Exit code for bad input.
pub const USAGE_EXIT_CODE: u8 = 2;

/// Why a program ends after looking at its command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The help or the version was asked for: this is it.
    Shown(String),
    /// Something on the command line cannot be done.
    Usage(UsageError),
}

impl Stop {
    /// 0 for what was asked for, [`USAGE_EXIT_CODE`] for bad input.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Shown(_) => 0,
            Self::Usage(_) => USAGE_EXIT_CODE,
        }
    }

    /// Prints what there is to say, to standard output or standard error, and returns the exit code.
    #[must_use]
    pub fn report(&self) -> ExitCode {
        // A reader that has gone away is no reason to fail on the way out.
        let _ = match self {
            Self::Shown(text) => std::io::stdout().write_all(text.as_bytes()),
            Self::Usage(error) => writeln!(std::io::stderr(), "error: {error}"),
        };
        ExitCode::from(self.exit_code())
    }
}

impl From<UsageError> for Stop {
    fn from(error: UsageError) -> Self {
        Self::Usage(error)
    }
}

#[cfg(test)]
mod tests;
