//! The error of the tools: one line that says what to do, and an exit code.

use std::fmt::{self, Display};
use std::io::{self, ErrorKind};
use std::path::Path;

use clap::error::ErrorKind as ClapErrorKind;

use crate::limits::{DESCRIPTORS_PER_THREAD, OTHER_DESCRIPTORS};

/// The reason why a program, a sender, or a receiver ends without success.
#[derive(Debug)]
pub enum Error {
    /// The help, the version, or an error of the command line.
    CommandLine(clap::Error),
    /// A value that this machine or the peer cannot use. The line names the flag, the problem, and what to give instead.
    Usage(String),
    /// A run without closed books.
    Run(String),
    /// A receiver thread that ended on its own.
    Thread(String),
}

impl Error {
    /// The exit code of a program that ends with this error: 2 for bad input, 1 for a run without closed books.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            // A command line without a command gets the help, which is no failure.
            Self::CommandLine(error)
                if !error.use_stderr()
                    || error.kind() == ClapErrorKind::DisplayHelpOnMissingArgumentOrSubcommand =>
            {
                0
            }
            Self::CommandLine(_) | Self::Usage(_) => 2,
            Self::Run(_) | Self::Thread(_) => 1,
        }
    }

    /// Makes the line `subject: problem; advice`. The subject is the flag, with its value if there is one.
    pub fn usage(subject: &str, problem: impl Display, advice: impl Display) -> Self {
        Self::Usage(printable(&format!("{subject}: {problem}; {advice}")))
    }

    /// Makes an error of the run.
    pub(crate) fn run(text: impl Display) -> Self {
        Self::Run(text.to_string())
    }

    /// Describes why an `address`, the value of `flag`, cannot be bound.
    pub(crate) fn for_bind(flag: &str, address: impl Display, error: &io::Error) -> Self {
        let cannot = format!("it cannot be bound ({error})");
        let (problem, advice) = match error.kind() {
            ErrorKind::AddrInUse => ("the port is in use", "choose another port, or 0 for a free one"),
            ErrorKind::PermissionDenied => {
                ("ports below 1024 need privilege", "choose a port from 1024 up, or 0 for a free one")
            }
            ErrorKind::AddrNotAvailable => (
                "that address is not on this host",
                "give one of its own, or 0.0.0.0 and the port for all of them",
            ),
            _ => (cannot.as_str(), "give another address, such as 127.0.0.1:9000"),
        };
        Self::usage(&format!("{flag} {address}"), problem, advice)
    }

    /// Describes why the sockets of `flows` flows cannot be opened.
    pub(crate) fn for_sockets(flows: u32, error: &io::Error) -> Self {
        Self::for_descriptors("flow", flows, 1, error)
    }

    /// Describes why the descriptors of `threads` receiver threads cannot be opened.
    pub(crate) fn for_threads(threads: u32, error: &io::Error) -> Self {
        Self::for_descriptors("thread", threads, DESCRIPTORS_PER_THREAD, error)
    }

    fn for_descriptors(what: &str, count: u32, each: u64, error: &io::Error) -> Self {
        let limit = u64::from(count) * each + OTHER_DESCRIPTORS;
        let problem =
            format!("each {what} takes {each} descriptor(s), and one could not be opened ({error})");
        let advice = format!("give fewer {what}s, or raise the limit with `ulimit -n {limit}`");
        Self::usage(&format!("--{what}s {count}"), problem, advice)
    }

    /// Describes why the file of `flag` cannot be written.
    pub(crate) fn for_file(flag: &str, path: &Path, error: &io::Error) -> Self {
        let cannot = format!("it cannot be written ({error})");
        let problem = match error.kind() {
            ErrorKind::NotFound => "its folder does not exist",
            ErrorKind::PermissionDenied => "no permission to write there",
            ErrorKind::IsADirectory => "that is a folder",
            ErrorKind::ReadOnlyFilesystem => "that file system is read-only",
            ErrorKind::StorageFull => "no space is left there",
            _ => &cannot,
        };
        let advice = format!("give {flag} a file in a folder that exists and that you may write to");
        Self::usage(&format!("{flag} {}", path.display()), problem, advice)
    }
}

impl From<clap::Error> for Error {
    fn from(error: clap::Error) -> Self {
        Self::CommandLine(error)
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CommandLine(error) => error.fmt(f),
            Self::Usage(line) | Self::Run(line) | Self::Thread(line) => f.write_str(line),
        }
    }
}

impl std::error::Error for Error {}

/// The maximum number of characters of a text from outside.
const MAX_CHARS: usize = 300;

/// Makes a text from outside safe to print as one line: replaces characters that control a terminal, and cuts the text after [`MAX_CHARS`] characters.
pub(crate) fn printable(text: &str) -> String {
    let mut shown: String =
        text.chars().take(MAX_CHARS).map(|c| if is_visible(c) { c } else { '\u{fffd}' }).collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        shown.push_str("...");
    }
    shown
}

/// Returns whether a character neither controls a terminal nor breaks, hides, or reverses a line.
fn is_visible(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_name_the_flag_and_the_usual_reasons() {
        for (kind, reason) in [
            (ErrorKind::AddrInUse, "the port is in use; choose another port, or 0 for a free one"),
            (ErrorKind::PermissionDenied, "ports below 1024 need privilege; choose"),
            (ErrorKind::AddrNotAvailable, "that address is not on this host; give"),
            (ErrorKind::Other, "it cannot be bound"),
        ] {
            let text = Error::for_bind("--bind", "127.0.0.1:9000", &kind.into()).to_string();
            assert!(text.starts_with(&format!("--bind 127.0.0.1:9000: {reason}")), "{text}");
        }
        for (kind, reason) in [
            (ErrorKind::NotFound, "its folder does not exist"),
            (ErrorKind::PermissionDenied, "no permission"),
            (ErrorKind::IsADirectory, "that is a folder"),
            (ErrorKind::ReadOnlyFilesystem, "that file system is read-only"),
            (ErrorKind::StorageFull, "no space"),
            (ErrorKind::Other, "it cannot be written"),
        ] {
            let text = Error::for_file("--csv", Path::new("a/b.csv"), &kind.into()).to_string();
            assert!(text.starts_with(&format!("--csv a/b.csv: {reason}")), "{text}");
        }
        assert!(Error::for_sockets(5_000, &ErrorKind::Other.into()).to_string().contains("ulimit -n 5064"));
        assert!(Error::for_threads(100, &ErrorKind::Other.into()).to_string().contains("ulimit -n 464"));
    }

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(
            printable("a\nb\r\u{1b}[31m\u{202e}c\u{7f}é"),
            "a\u{fffd}b\u{fffd}\u{fffd}[31m\u{fffd}c\u{fffd}é"
        );
    }

    #[test]
    fn a_text_is_cut_after_300_characters() {
        for (length, expected) in [(299, 299), (300, 300), (301, 303)] {
            assert_eq!(printable(&"x".repeat(length)).len(), expected);
        }
    }
}
