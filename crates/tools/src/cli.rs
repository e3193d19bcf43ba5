//! The command lines of `receiver`, `sender`, and `drumfire`.
//!
//! Parsing opens no socket and no file. It resolves host names. For bad input a program prints an error that names the flag and
//! the accepted values, and exits with code 2.

mod keys;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;
mod values;

use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::iter;
use std::path::Path;

use clap::Parser;
use clap::error::ErrorKind;

use crate::limits::{DESCRIPTORS_PER_THREAD, OTHER_DESCRIPTORS};
use crate::text::printable;

pub use keys::{Keygen, KeysArgs, Token as TokenArgs, Top as TopArgs};
pub use receiver::ReceiverArgs;
pub use sender::{SenderArgs, Traffic};
pub use values::{BindAddress, Output, Target};

/// The first argument that makes `receiver` a sender. The flags of [`SenderArgs::to_flags`] follow it.
pub const SENDER_MODE: &str = "__sender";

/// The exit code for bad input.
pub const USAGE_EXIT_CODE: u8 = 2;

/// An error in one line that names the flag and what to give instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageError(String);

impl UsageError {
    /// Makes the line `subject: problem; advice`. The subject is the flag, with its value if there is one.
    #[must_use]
    pub fn new(subject: &str, problem: impl fmt::Display, advice: impl fmt::Display) -> Self {
        Self(printable(&format!("{subject}: {problem}; {advice}")))
    }

    /// Describes why `address`, the value of `flag`, cannot be bound.
    #[must_use]
    pub fn for_bind(flag: &str, address: &str, error: &io::Error) -> Self {
        let subject = format!("{flag} {address}");
        let (problem, advice) = match error.kind() {
            io::ErrorKind::AddrInUse => ("the port is in use", "choose another port, or 0 for a free one"),
            io::ErrorKind::PermissionDenied => {
                ("ports below 1024 need privilege", "choose a port from 1024 up, or 0 for a free one")
            }
            io::ErrorKind::AddrNotAvailable => (
                "that address is not on this host",
                "give one of its own, or 0.0.0.0 and the port for all of them",
            ),
            _ => {
                let problem = format!("it cannot be bound ({error})");
                return Self::new(&subject, problem, "give another address, such as 127.0.0.1:9000");
            }
        };
        Self::new(&subject, problem, advice)
    }

    /// Describes why the sockets of `flows` flows cannot be opened.
    #[must_use]
    pub fn for_sockets(flows: u32, error: &io::Error) -> Self {
        let limit = u64::from(flows) + OTHER_DESCRIPTORS;
        let problem = format!("each flow takes a socket, and one could not be opened ({error})");
        let advice = format!("give fewer flows, or raise the limit with `ulimit -n {limit}`");
        Self::new(&format!("--flows {flows}"), problem, advice)
    }

    /// Describes why the descriptors of `threads` receiver threads cannot be opened.
    #[must_use]
    pub fn for_threads(threads: u32, error: &io::Error) -> Self {
        let limit = u64::from(threads) * DESCRIPTORS_PER_THREAD + OTHER_DESCRIPTORS;
        let problem = format!(
            "each thread takes {DESCRIPTORS_PER_THREAD} descriptors, and one could not be opened ({error})"
        );
        let advice = format!("give fewer threads, or raise the limit with `ulimit -n {limit}`");
        Self::new(&format!("--threads {threads}"), problem, advice)
    }

    /// Describes why the file of `flag` cannot be written.
    #[must_use]
    pub fn for_file(flag: &str, path: &Path, error: &io::Error) -> Self {
        let problem = match error.kind() {
            io::ErrorKind::NotFound => "its folder does not exist",
            io::ErrorKind::PermissionDenied => "no permission to write there",
            io::ErrorKind::IsADirectory => "that is a folder",
            io::ErrorKind::ReadOnlyFilesystem => "that file system is read-only",
            io::ErrorKind::StorageFull => "no space is left there",
            _ => &format!("it cannot be written ({error})"),
        };
        let advice = format!("give {flag} a file in a folder that exists and that you may write to");
        Self::new(&format!("{flag} {}", path.display()), problem, advice)
    }

    /// The error as one of the command line of `P`.
    fn of_command<P: Parser>(self) -> clap::Error {
        P::command().error(ErrorKind::ValueValidation, self)
    }
}

impl From<String> for UsageError {
    fn from(line: String) -> Self {
        Self(printable(&line))
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for UsageError {}

/// Creates or truncates the file of `flag`.
///
/// # Errors
///
/// [`UsageError`] with the flag and the path.
pub fn create_file(flag: &str, path: &Path) -> Result<File, UsageError> {
    File::create(path).map_err(|error| UsageError::for_file(flag, path, &error))
}

/// Reads a command line that does not begin with the name of the program.
fn parse<P: Parser>(args: impl IntoIterator<Item = OsString>) -> Result<P, clap::Error> {
    let name = OsString::from(P::command().get_name());
    P::try_parse_from(iter::once(name).chain(args))
}
