//! A program that runs beside this one, with its lines passed on and its output kept.
//!
//! How long it may run is its starter's business.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::run::{CommandLine, Stop, end, finished, within};

/// A program while it runs: its standard error is passed on line by line, its standard output is kept.
/// Dropping it kills the program.
pub(crate) struct Running {
    title: &'static str,
    child: Child,
    output: Option<JoinHandle<String>>,
    lines: Option<JoinHandle<()>>,
}

impl Running {
    /// Starts it; its lines are marked with `title`.
    ///
    /// # Errors
    /// [`Stop::Failed`] with the command and what the system says.
    pub(crate) fn start(title: &'static str, command: &CommandLine) -> Result<Self, Stop> {
        println!("{command}");
        let mut started = command.command();
        started.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = started.spawn().map_err(|why| Stop::failed(format!("{command}: {why}")))?;
        let output = child.stdout.take().map(|out| std::thread::spawn(move || read_all(out)));
        let lines = child.stderr.take().map(|err| std::thread::spawn(move || pass_on(title, err)));
        Ok(Self { title, child, output, lines })
    }

    /// Whether it has ended well.
    ///
    /// # Errors
    /// [`Stop::Failed`] when it has ended otherwise.
    pub(crate) fn is_done(&mut self) -> Result<bool, Stop> {
        match finished(&mut self.child)? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => Err(self.failed(status)),
        }
    }

    /// What it printed on standard output, to its end; the second time nothing.
    pub(crate) fn output(&mut self) -> String {
        let text = self.output.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        self.finish_lines();
        text
    }

    /// What its lines are marked with.
    pub(crate) fn title(&self) -> &'static str {
        self.title
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    fn failed(&mut self, status: ExitStatus) -> Stop {
        self.finish_lines();
        Stop::failed(format!("{} failed: {status}", self.title))
    }

    /// Waits until the lines of a program that has ended are printed.
    fn finish_lines(&mut self) {
        // A reader that panicked has nothing more to print.
        drop(self.lines.take().map(JoinHandle::join));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        end(&mut self.child);
        self.finish_lines();
    }
}

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

fn read_all(mut from: impl Read) -> String {
    let mut bytes = Vec::new();
    // What was read before an error is judged by whoever reads it.
    drop(from.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

fn pass_on(title: &str, from: impl Read) {
    for line in BufReader::new(from).lines().map_while(Result::ok) {
        println!("{title:>8} | {line}");
    }
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
