//! One line for bad input, also for what only the system can find out: a port in use, a file that cannot be
//! written.
//!
//! It words the line; whether the program ends is the caller's decision.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;

use crate::limits::{DESCRIPTORS_PER_THREAD, OTHER_DESCRIPTORS};
use crate::text::printable;

/// Something that was asked for on the command line and cannot be done.
///
/// It displays as one line, `--size 20: a datagram needs at least 28 bytes; give --size 28 to 65507`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageError {
    flag: String,
    value: Option<String>,
    problem: String,
    way_out: String,
}

impl UsageError {
    /// A line about a flag: what is wrong, and what to give instead.
    #[must_use]
    pub fn new(flag: &str, problem: impl Into<String>, way_out: impl Into<String>) -> Self {
        Self { flag: flag.to_owned(), value: None, problem: problem.into(), way_out: way_out.into() }
    }

    /// Adds the value that was given, to be shown behind the flag.
    #[must_use]
    pub fn with_value(mut self, value: impl Into<String>) -> Self {
        self.value = Some(value.into());
        self
    }

    /// The address of a flag, `--bind` or `--metrics-address`, could not be bound as it was given.
    #[must_use]
    pub fn for_bind(flag: &str, bind: &str, error: &io::Error) -> Self {
        let (problem, way_out) = match error.kind() {
            io::ErrorKind::AddrInUse => {
                ("the port is in use".to_owned(), "choose another port, or 0 for a free one".to_owned())
            }
            io::ErrorKind::PermissionDenied => (
                "ports below 1024 need privilege".to_owned(),
                "choose a port from 1024 up, or 0 for a free one".to_owned(),
            ),
            io::ErrorKind::AddrNotAvailable => (
                "that address is not on this host".to_owned(),
                "give one of its own, or 0.0.0.0 and the port for all of them".to_owned(),
            ),
            _ => (
                format!("it cannot be bound ({error})"),
                "give another address, such as 127.0.0.1:9000".to_owned(),
            ),
        };
        Self::new(flag, problem, way_out).with_value(bind)
    }

    /// The sockets of `flows` flows, one each, could not be opened.
    #[must_use]
    pub fn for_sockets(flows: u32, error: &io::Error) -> Self {
        let limit = u64::from(flows) + OTHER_DESCRIPTORS;
        let way_out = format!("give fewer flows, or raise the limit with `ulimit -n {limit}`");
        Self::new(
            "--flows",
            format!("each flow takes a socket, and one could not be opened ({error})"),
            way_out,
        )
        .with_value(flows.to_string())
    }

    /// The descriptors of `threads` receiver threads could not be opened.
    #[must_use]
    pub fn for_threads(threads: u32, error: &io::Error) -> Self {
        let limit = u64::from(threads) * DESCRIPTORS_PER_THREAD + OTHER_DESCRIPTORS;
        Self::new(
            "--threads",
            format!("each thread takes {DESCRIPTORS_PER_THREAD} descriptors, and one could not be opened ({error})"),
            format!("give fewer threads, or raise the limit with `ulimit -n {limit}`"),
        )
        .with_value(threads.to_string())
    }

    /// The file of a flag cannot be written.
    #[must_use]
    pub fn for_file(flag: &str, path: &Path, error: &io::Error) -> Self {
        let problem = match error.kind() {
            io::ErrorKind::NotFound => "its folder does not exist".to_owned(),
            io::ErrorKind::PermissionDenied => "no permission to write there".to_owned(),
            io::ErrorKind::IsADirectory => "that is a folder".to_owned(),
            io::ErrorKind::ReadOnlyFilesystem => "that file system is read-only".to_owned(),
            io::ErrorKind::StorageFull => "no space is left there".to_owned(),
            _ => format!("it cannot be written ({error})"),
        };
        Self::new(
            flag,
            problem,
            format!("give {flag} a file in a folder that exists and that you may write to"),
        )
        .with_value(path.to_string_lossy())
    }

    /// The flag the line is about.
    #[must_use]
    pub fn flag(&self) -> &str {
        &self.flag
    }
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.flag))?;
        if let Some(value) = &self.value {
            write!(f, " {}", if value.is_empty() { "\"\"".to_owned() } else { printable(value) })?;
        }
        write!(f, ": {}; {}", printable(&self.problem), printable(&self.way_out))
    }
}

impl Error for UsageError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_the_flag_the_value_the_problem_and_the_way_out() {
        let error =
            UsageError::new("--size", "a datagram needs at least 28 bytes", "give --size 28 to 65507");
        assert_eq!(error.to_string(), "--size: a datagram needs at least 28 bytes; give --size 28 to 65507");
        let error = error.with_value("20");
        assert_eq!(
            error.to_string(),
            "--size 20: a datagram needs at least 28 bytes; give --size 28 to 65507"
        );
    }

    #[test]
    fn a_failed_bind_says_which_of_the_usual_reasons_it_was() {
        let line =
            |kind: io::ErrorKind| UsageError::for_bind("--bind", "127.0.0.1:9000", &kind.into()).to_string();
        assert_eq!(
            line(io::ErrorKind::AddrInUse),
            "--bind 127.0.0.1:9000: the port is in use; choose another port, or 0 for a free one"
        );
        assert!(line(io::ErrorKind::PermissionDenied).contains("ports below 1024 need privilege; choose"));
        assert!(line(io::ErrorKind::AddrNotAvailable).contains("not on this host; give"));
        assert!(line(io::ErrorKind::Other).contains("; give"));
    }

    #[test]
    fn a_file_that_cannot_be_written_says_why() {
        for (kind, reason) in [
            (io::ErrorKind::NotFound, "its folder does not exist"),
            (io::ErrorKind::PermissionDenied, "no permission"),
            (io::ErrorKind::IsADirectory, "is a folder"),
            (io::ErrorKind::ReadOnlyFilesystem, "read-only"),
            (io::ErrorKind::StorageFull, "no space"),
            (io::ErrorKind::Other, "cannot be written"),
        ] {
            let line = UsageError::for_file("--csv", Path::new("a/b.csv"), &kind.into()).to_string();
            assert!(line.starts_with("--csv a/b.csv: ") && line.contains(reason), "{line}");
            assert!(line.contains("; give --csv a file in a folder"), "{line}");
        }
    }

    #[test]
    fn too_many_sockets_say_how_to_raise_the_limit() {
        let line = UsageError::for_sockets(5_000, &io::ErrorKind::Other.into()).to_string();
        assert!(line.starts_with("--flows 5000: ") && line.contains("ulimit -n 5064"), "{line}");
        let line = UsageError::for_threads(100, &io::ErrorKind::Other.into()).to_string();
        assert!(line.starts_with("--threads 100: ") && line.contains("ulimit -n 464"), "{line}");
    }

    #[test]
    fn a_value_with_line_breaks_stays_on_one_line() {
        let line = UsageError::new("--bind", "bad", "give another").with_value("a\nb").to_string();
        assert!(!line.contains('\n'), "{line:?}");
        assert_eq!(UsageError::new("--csv", "bad", "x").with_value("").to_string(), "--csv \"\": bad; x");
    }
}
