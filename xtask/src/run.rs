//! Programs: commands that print as a shell takes them, programs that run in the background, waiting with a deadline, and the only
//! place of this package that reads the clock.
//!
//! It does not interpret what a program prints, and it does not retry.

use std::env::consts::EXE_SUFFIX;
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Exit code of a task that the machine cannot run: a privilege or a program is missing.
pub(crate) const EXIT_NEEDS: u8 = 3;

/// How often a waiting task looks at its children.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Why a task ended without success.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Something went wrong; the text says what.
    Failed(String),
    /// The machine lacks what the text names, and how to get it.
    Needs(String),
    /// Ctrl-C.
    Interrupted,
}

impl Stop {
    /// A failure with this text.
    pub(crate) fn failed(why: impl Into<String>) -> Self {
        Self::Failed(why.into())
    }
}

/// A command line: environment, program and arguments. `Display` gives it as a POSIX shell takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandLine {
    env: Vec<(String, String)>,
    program: String,
    args: Vec<String>,
}

impl CommandLine {
    /// The program with its arguments.
    pub(crate) fn new<S: AsRef<str>>(program: &str, args: &[S]) -> Self {
        let args = args.iter().map(|arg| arg.as_ref().to_owned()).collect();
        Self { env: Vec::new(), program: program.to_owned(), args }
    }

    /// The same with one more environment variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same with one more argument.
    pub(crate) fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Runs to the end with output passed through, killing the program after `deadline` when there is one.
    ///
    /// # Errors
    /// [`Stop::Failed`] when the program cannot be started or is killed at the deadline.
    pub(crate) fn run(&self, folder: &Path, deadline: Option<Duration>) -> Result<ExitStatus, Stop> {
        let mut child = self.command().current_dir(folder).spawn().map_err(|why| self.not_started(&why))?;
        let Some(deadline) = deadline else {
            return child.wait().map_err(|why| Stop::failed(format!("{self}: {why}")));
        };
        within(&mut child, deadline)
    }

    /// Runs to the end and returns what it printed on standard output.
    ///
    /// # Errors
    /// [`Stop::Failed`] with what it printed on standard error when it cannot be started or does not succeed.
    pub(crate) fn output(&self, folder: &Path) -> Result<String, Stop> {
        let output = self
            .command()
            .current_dir(folder)
            .stdin(Stdio::null())
            .output()
            .map_err(|why| self.not_started(&why))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(Stop::failed(format!("{self}: {}: {}", output.status, said.trim())))
    }

    /// Runs to the end, where a failure means that the machine lacks something.
    ///
    /// # Errors
    /// [`Stop::Needs`] with `what` is lacking, and what the program printed on standard error.
    pub(crate) fn needed(&self, folder: &Path, what: &str) -> Result<(), Stop> {
        println!("{self}");
        match self.output(folder) {
            Ok(_) => Ok(()),
            Err(Stop::Failed(why)) => Err(Stop::Needs(format!("{what}: {why}"))),
            Err(other) => Err(other),
        }
    }

    /// Shows itself, and runs to the end with output passed through.
    ///
    /// # Errors
    /// [`Stop::Failed`] when the program cannot be started or does not succeed.
    pub(crate) fn done(&self, folder: &Path) -> Result<(), Stop> {
        self.shown(folder, None)
    }

    /// The same, but kills the program after `deadline`.
    ///
    /// # Errors
    /// [`Stop::Failed`] also when the program is killed.
    pub(crate) fn done_within(&self, folder: &Path, deadline: Duration) -> Result<(), Stop> {
        self.shown(folder, Some(deadline))
    }

    fn shown(&self, folder: &Path, deadline: Option<Duration>) -> Result<(), Stop> {
        println!("{self}");
        match self.run(folder, deadline)? {
            status if status.success() => Ok(()),
            status => Err(Stop::failed(format!("{self}: {status}"))),
        }
    }

    /// The command for `std::process`, not started. It does not inherit the variables that cargo sets for
    /// this package: a build script that asks for `CARGO_MANIFEST_DIR`, as ring's does, would be rebuilt with its dependents each time that
    /// a task and a user take turns.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_package(&name.to_string_lossy())) {
            command.env_remove(name);
        }
        command.args(&self.args).envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    fn not_started(&self, why: &std::io::Error) -> Stop {
        Stop::failed(format!("cannot start `{}`: {why}", self.program))
    }
}

/// Whether cargo sets a variable of this name to tell a program of its own package.
fn is_of_package(name: &str) -> bool {
    ["CARGO_MANIFEST_", "CARGO_PKG_"].iter().any(|begin| name.starts_with(begin))
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.env {
            write!(f, "{name}={} ", quoted(value))?;
        }
        write!(f, "{}", quoted(&self.program))?;
        self.args.iter().try_for_each(|arg| write!(f, " {}", quoted(arg)))
    }
}

/// A monotonic clock started once.
#[derive(Clone, Copy)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts at zero.
    #[expect(clippy::disallowed_methods, reason = "the one place of this package that reads the clock")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the start.
    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// Ctrl-C as something to wait for between two looks at a child.
pub(crate) struct Interrupt {
    pressed: Receiver<()>,
    /// Keeps the channel open when no handler holds its other end.
    _open: Option<Sender<()>>,
}

impl Interrupt {
    /// Takes over Ctrl-C for this process.
    ///
    /// # Errors
    /// [`Stop::Failed`] when the handler cannot be installed.
    pub(crate) fn on_ctrl_c() -> Result<Self, Stop> {
        let (press, pressed) = channel();
        // A send fails only after the receiver is gone. Then the task is already ending.
        let handler = move || {
            let _ = press.send(());
        };
        ctrlc::set_handler(handler).map_err(|why| Stop::failed(format!("cannot watch for Ctrl-C: {why}")))?;
        Ok(Self { pressed, _open: None })
    }

    /// One that never comes: Ctrl-C keeps its usual effect.
    pub(crate) fn never() -> Self {
        let (open, pressed) = channel();
        Self { pressed, _open: Some(open) }
    }

    /// Waits one short step.
    ///
    /// # Errors
    /// [`Stop::Interrupted`] as soon as Ctrl-C was pressed.
    pub(crate) fn pause(&self) -> Result<(), Stop> {
        match self.pressed.recv_timeout(LOOK_EVERY) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => Err(Stop::Interrupted),
        }
    }
}

/// Waits for the child, and kills it at this age.
///
/// # Errors
/// [`Stop::Failed`] when it was killed.
pub(crate) fn within(child: &mut Child, deadline: Duration) -> Result<ExitStatus, Stop> {
    let (stopwatch, quiet) = (Stopwatch::start(), Interrupt::never());
    loop {
        if let Some(status) = finished(child)? {
            return Ok(status);
        }
        if stopwatch.elapsed() >= deadline {
            end(child);
            return Err(Stop::failed(format!("killed: still running after {} s", deadline.as_secs())));
        }
        quiet.pause()?;
    }
}

/// The child's status once it has ended.
///
/// # Errors
/// [`Stop::Failed`] when the system cannot say.
pub(crate) fn finished(child: &mut Child) -> Result<Option<ExitStatus>, Stop> {
    child.try_wait().map_err(|why| Stop::failed(format!("cannot wait for a child: {why}")))
}

/// Kills the child and takes its status, so that none is left behind. One that has already ended is fine.
pub(crate) fn end(child: &mut Child) {
    // Both fail only when the child is gone, which is what is wanted.
    drop(child.kill());
    drop(child.wait());
}

/// Waits until `is_so`.
///
/// # Errors
/// [`Stop::Failed`] with `otherwise` after `deadline`, [`Stop::Interrupted`] on Ctrl-C, and the failures of `is_so`.
pub(crate) fn wait_until(
    otherwise: &str,
    deadline: Duration,
    interrupt: &Interrupt,
    mut is_so: impl FnMut() -> Result<bool, Stop>,
) -> Result<(), Stop> {
    let stopwatch = Stopwatch::start();
    while !is_so()? {
        if stopwatch.elapsed() >= deadline {
            return Err(Stop::failed(format!("{otherwise} after {} s: killed", deadline.as_secs())));
        }
        interrupt.pause()?;
    }
    Ok(())
}

/// A program that runs in the background. Its standard error is passed on line by line, and its standard output is kept.
/// Dropping it kills the program.
pub(crate) struct Running {
    title: &'static str,
    child: Child,
    output: Option<JoinHandle<String>>,
    lines: Option<JoinHandle<()>>,
}

impl Running {
    /// Starts a program. `title` marks its lines.
    ///
    /// # Errors
    /// [`Stop::Failed`] when it cannot be started.
    pub(crate) fn start(title: &'static str, command: &CommandLine) -> Result<Self, Stop> {
        println!("{command}");
        let mut started = command.command();
        started.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = started.spawn().map_err(|why| Stop::failed(format!("{command}: {why}")))?;
        let output = child.stdout.take().map(|out| std::thread::spawn(move || read_all(out)));
        let lines = child.stderr.take().map(|err| std::thread::spawn(move || pass_on(title, err)));
        Ok(Self { title, child, output, lines })
    }

    /// Returns whether the program has ended with success.
    ///
    /// # Errors
    /// [`Stop::Failed`] when it has ended without.
    pub(crate) fn is_done(&mut self) -> Result<bool, Stop> {
        match finished(&mut self.child)? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => {
                self.finish_lines();
                Err(Stop::failed(format!("{} failed: {status}", self.title)))
            }
        }
    }

    /// Waits for the end of its standard output and returns all of it. A second call returns nothing.
    pub(crate) fn output(&mut self) -> String {
        let text = self.output.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        self.finish_lines();
        text
    }

    /// The mark of its lines.
    pub(crate) fn title(&self) -> &'static str {
        self.title
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
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

fn read_all(mut from: impl Read) -> String {
    let mut bytes = Vec::new();
    // After an error, the caller judges what was read before it.
    drop(from.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

fn pass_on(title: &str, from: impl Read) {
    for line in BufReader::new(from).lines().map_while(Result::ok) {
        println!("{title:>8} | {line}");
    }
}

/// Returns whether a program of this name is in a folder of `PATH`.
pub(crate) fn is_installed(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.join(format!("{program}{EXE_SUFFIX}")).is_file())
    })
}

/// A path as a word of a command.
pub(crate) fn word(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// A word as a POSIX shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> CommandLine {
        CommandLine::new("sh", &["-c", script])
    }

    #[test]
    fn a_command_prints_as_a_shell_takes_it() {
        let line = CommandLine::new("cargo", &["doc", "it's"]).env("RUSTDOCFLAGS", "-D warnings").arg("");
        assert_eq!(line.to_string(), r"RUSTDOCFLAGS='-D warnings' cargo doc 'it'\''s' ''");
    }

    #[test]
    fn a_status_and_an_output_come_back() {
        let here = Path::new(".");
        assert_eq!(shell("exit 7").run(here, None).unwrap().code(), Some(7));
        assert_eq!(shell("exit 7").run(here, Some(Duration::from_secs(60))).unwrap().code(), Some(7));
        assert_eq!(shell("echo word").output(here).unwrap(), "word\n");
    }

    #[test]
    fn a_program_hears_nothing_of_this_package() {
        // Cargo sets both for the tests of this package.
        assert!(
            std::env::var_os("CARGO_MANIFEST_DIR").is_some() && std::env::var_os("CARGO_PKG_NAME").is_some()
        );
        assert_eq!(shell("echo $CARGO_MANIFEST_DIR$CARGO_PKG_NAME").output(Path::new(".")).unwrap(), "\n");
    }

    #[test]
    fn a_program_that_does_not_end_is_killed_at_its_deadline() {
        let killed = shell("exec sleep 600").run(Path::new("."), Some(Duration::ZERO));
        assert!(matches!(killed, Err(Stop::Failed(why)) if why.starts_with("killed")));
    }

    #[test]
    fn a_failure_carries_what_the_program_said() {
        let failed = shell("echo why >&2; exit 1").output(Path::new("."));
        assert!(matches!(failed, Err(Stop::Failed(said)) if said.ends_with(": why")));
    }

    #[test]
    fn a_shell_is_installed() {
        assert!(is_installed("sh") && !is_installed("no-such-program"));
    }

    #[test]
    fn a_missing_program_is_named() {
        let missing = CommandLine::new("no-such-program", &[""; 0]).output(Path::new("."));
        assert!(matches!(missing, Err(Stop::Failed(said)) if said.contains("`no-such-program`")));
    }
}
