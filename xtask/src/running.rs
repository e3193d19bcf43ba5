//! A program that runs to its end, with its output passed on and kept.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use crate::run::{CommandLine, Stop, within};

/// Runs a program to its end, or to this age, with what it prints passed on and its standard output kept: that, and how it
/// ended.
pub(crate) fn heard(
    command: &CommandLine,
    folder: &Path,
    deadline: Duration,
) -> (String, Result<ExitStatus, Stop>) {
    let mut started = command.command();
    started.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = match started.spawn() {
        Ok(child) => child,
        Err(why) => return (String::new(), Err(Stop::failed(format!("{command}: {why}")))),
    };
    let output = child.stdout.take().map(|out| std::thread::spawn(move || read_and_show(out)));
    let status = within(&mut child, deadline);
    let said = output.and_then(|reader| reader.join().ok()).unwrap_or_default();
    (said, status)
}

fn read_and_show(from: impl Read) -> String {
    let mut said = String::new();
    for line in BufReader::new(from).lines().map_while(Result::ok) {
        println!("{line}");
        said.push_str(&line);
        said.push('\n');
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_is_kept_however_it_ends() {
        let shell = |script: &str| CommandLine::new("sh", &["-c", script]);
        let (said, status) = heard(&shell("echo a; echo b; exit 4"), Path::new("."), Duration::from_secs(60));
        assert_eq!((said.as_str(), status.unwrap().code()), ("a\nb\n", Some(4)));
        let (said, status) = heard(&shell("exec sleep 600"), Path::new("."), Duration::ZERO);
        assert!(said.is_empty() && matches!(status, Err(Stop::Failed(why)) if why.starts_with("killed")));
    }
}
