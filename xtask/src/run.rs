//! Programs: command lines, programs in the background, and waiting with a deadline. This is the only module that reads the clock.
//!
//! It does not interpret the output of a program, and it does not retry. It does not handle Ctrl-C: the terminal sends it to the whole
//! process group, so that a task and all of its programs end together.

use std::borrow::Borrow;
use std::env::consts::EXE_SUFFIX;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::files;

/// Exit code of a task that the machine cannot run, because a privilege or a program is missing.
pub(crate) const EXIT_NEEDS: u8 = 3;

/// The deadline of a program that may take any amount of time, such as a build.
pub(crate) const FOREVER: Duration = Duration::MAX;

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The reason why a task ended without success. The text is the whole message, so callers only pass it on.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Something failed. The text names the file or the command.
    Failed(String),
    /// The machine lacks something. The text names it, and how to install it.
    Needs(String),
}

impl Stop {
    pub(crate) fn failed(why: impl Into<String>) -> Self {
        Self::Failed(why.into())
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(why) => f.write_str(why),
            Self::Needs(what) => write!(f, "skipped: needs {what}"),
        }
    }
}

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// A command line: environment, program, and arguments. `Display` prints it for a POSIX shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandLine {
    env: Vec<(String, String)>,
    program: String,
    args: Vec<String>,
    folder: PathBuf,
}

impl CommandLine {
    pub(crate) fn new<S: AsRef<str>>(program: impl AsRef<Path>, args: &[S]) -> Self {
        let (env, program, folder) = (Vec::new(), program.as_ref().display().to_string(), PathBuf::from("."));
        Self { env, program, args: Vec::new(), folder }.args(args)
    }

    /// Parses a command line in the syntax of a POSIX shell. Words such as `NAME=value` at its start are its environment.
    pub(crate) fn parse(line: &str) -> Self {
        let words = shlex::split(line).unwrap_or_default();
        let first = words.iter().position(|word| !word.contains('=')).unwrap_or(words.len());
        let (env, command) = words.split_at(first);
        let (program, args) = command.split_first().map_or(("", &[][..]), |(first, args)| (first, args));
        let env = env.iter().filter_map(|word| word.split_once('='));
        env.fold(Self::new(program, args), |command, (name, value)| command.env(name, value))
    }

    pub(crate) fn cargo(args: &str) -> Self {
        Self::parse(&format!("cargo {args}"))
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<Path>) -> Self {
        self.env.push((name.to_owned(), value.as_ref().display().to_string()));
        self
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<Path>) -> Self {
        self.args.push(arg.as_ref().display().to_string());
        self
    }

    pub(crate) fn args<S: AsRef<str>>(mut self, args: &[S]) -> Self {
        self.args.extend(args.iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets the folder in which the program runs, instead of the current one.
    pub(crate) fn in_folder(self, folder: &Path) -> Self {
        Self { folder: folder.to_owned(), ..self }
    }

    /// Starts the program with these standard streams: input, output, and errors.
    pub(crate) fn spawn(&self, streams: [Stdio; 3]) -> Result<Child, Stop> {
        let [input, output, errors] = streams;
        let mut command = self.command();
        command.stdin(input).stdout(output).stderr(errors);
        command.spawn().map_err(|why| self.failed(&why))
    }

    /// Runs the program with inherited output, and kills it after `deadline`.
    pub(crate) fn run(&self, deadline: Duration) -> Result<ExitStatus, Stop> {
        within(&mut self.spawn([Stdio::inherit(), Stdio::inherit(), Stdio::inherit()])?, deadline)
    }

    /// Runs the program with its whole output in a file, and kills it after `deadline`.
    pub(crate) fn run_logged(&self, log: &Path, deadline: Duration) -> Result<ExitStatus, Stop> {
        let file = File::create(log).and_then(|file| Ok((file.try_clone()?, file)));
        let (output, errors) = file.map_err(|why| files::failed(log, &why))?;
        within(&mut self.spawn([Stdio::null(), output.into(), errors.into()])?, deadline)
    }

    /// Runs the program with `errors` as its standard error. Passes its process id and each line of its standard output to `each`, and
    /// kills it when that fails, or `deadline` after its last line.
    pub(crate) fn each_line(
        &self,
        errors: Stdio,
        deadline: Duration,
        mut each: impl FnMut(u32, &str) -> Result<(), Stop>,
    ) -> Result<ExitStatus, Stop> {
        let mut child = self.spawn([Stdio::null(), Stdio::piped(), errors])?;
        let (id, output) = (child.id(), child.stdout.take().map(BufReader::new));
        let mut lines = output.into_iter().flat_map(BufRead::lines);
        let read = lines.try_for_each(|line| each(id, &line.map_err(|why| self.failed(&why))?));
        if read.is_err() {
            end(&mut child);
        }
        read.and_then(|()| within(&mut child, deadline))
    }

    pub(crate) fn output(&self) -> Result<String, Stop> {
        let output = self.command().stdin(Stdio::null()).output();
        let output = output.map_err(|why| self.failed(&why))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let message = String::from_utf8_lossy(&output.stderr);
        Err(self.failed(&format!("{}: {}", output.status, message.trim())))
    }

    /// Like [`Self::output`], for a program whose failure means that the machine lacks `what`.
    pub(crate) fn needed(&self, what: &str) -> Result<String, Stop> {
        println!("{self}");
        self.output().map_err(|why| Stop::Needs(format!("{what}: {why}")))
    }

    /// Prints itself and runs the program with inherited output.
    pub(crate) fn done(&self) -> Result<(), Stop> {
        self.done_within(FOREVER)
    }

    /// Like [`Self::done`], but kills the program after `deadline`.
    pub(crate) fn done_within(&self, deadline: Duration) -> Result<(), Stop> {
        println!("{self}");
        let status = self.run(deadline)?;
        if status.success() { Ok(()) } else { Err(self.failed(&status)) }
    }

    /// Returns the command for `std::process`, not started. Variables that cargo sets for this package are removed: a build script
    /// that depends on `CARGO_MANIFEST_DIR`, such as ring's, would be rebuilt whenever a task and a user take turns.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        for (name, _) in std::env::vars_os() {
            if ["CARGO_MANIFEST_", "CARGO_PKG_"].iter().any(|begin| name.to_string_lossy().starts_with(begin))
            {
                command.env_remove(name);
            }
        }
        command
            .current_dir(&self.folder)
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    pub(crate) fn failed(&self, why: &dyn fmt::Display) -> Stop {
        Stop::failed(format!("{self}: {why}"))
    }
}

impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only a word with a NUL byte cannot be quoted, and no program takes one.
        let quoted = |word| shlex::try_quote(word).unwrap_or_default();
        for (name, value) in &self.env {
            write!(f, "{name}={} ", quoted(value))?;
        }
        write!(f, "{}", quoted(&self.program))?;
        self.args.iter().try_for_each(|arg| write!(f, " {}", quoted(arg)))
    }
}

/// Returns whether a folder of `PATH` has a program of this name.
pub(crate) fn is_installed(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.join(format!("{program}{EXE_SUFFIX}")).is_file())
    })
}

#[expect(clippy::disallowed_methods, reason = "the only place of this package that reads the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits until `result` returns one, and fails with `otherwise` after `deadline`.
pub(crate) fn wait_for<T>(
    otherwise: &str,
    deadline: Duration,
    mut result: impl FnMut() -> Result<Option<T>, Stop>,
) -> Result<T, Stop> {
    let start = now();
    loop {
        if let Some(result) = result()? {
            return Ok(result);
        }
        if start.elapsed() >= deadline {
            return Err(Stop::failed(format!("{otherwise} after {} s: killed", deadline.as_secs())));
        }
        std::thread::park_timeout(POLL_INTERVAL);
    }
}

fn within(child: &mut Child, deadline: Duration) -> Result<ExitStatus, Stop> {
    wait_for("it still runs", deadline, || finished(child)).inspect_err(|_| end(child))
}

fn finished(child: &mut Child) -> Result<Option<ExitStatus>, Stop> {
    child.try_wait().map_err(|why| Stop::failed(format!("cannot wait for a child: {why}")))
}

/// Kills the child if it still runs, and waits for its status, so that no zombie remains.
pub(crate) fn end(child: &mut Child) {
    // Both calls fail only if the child has ended and was waited for.
    drop(child.kill());
    drop(child.wait());
}

/// Returns a failure with these lines, if there are any.
pub(crate) fn fail_with(lines: &[String]) -> Result<(), Stop> {
    if lines.is_empty() { Ok(()) } else { Err(Stop::Failed(lines.join("\n"))) }
}

/// Returns a failure that lists these names after a title, if there are any.
pub(crate) fn fail_for<S: Borrow<str>>(title: &str, names: &[S]) -> Result<(), Stop> {
    if names.is_empty() { Ok(()) } else { Err(Stop::failed(format!("{title}: {}", names.join(", ")))) }
}

/// A program that runs in the background. Its standard output is kept. Dropping it kills the program.
pub(crate) struct Running {
    command: CommandLine,
    child: Child,
    output: Option<JoinHandle<io::Result<String>>>,
}

impl Running {
    pub(crate) fn start(command: CommandLine) -> Result<Self, Stop> {
        println!("{command}");
        let mut child = command.spawn([Stdio::null(), Stdio::piped(), Stdio::inherit()])?;
        let output = child.stdout.take();
        let output = output.map(|output| std::thread::spawn(|| io::read_to_string(output)));
        Ok(Self { command, child, output })
    }

    /// Returns whether the program has ended with success.
    pub(crate) fn is_done(&mut self) -> Result<bool, Stop> {
        match finished(&mut self.child)? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => Err(self.command.failed(&status)),
        }
    }

    /// Waits for the end of the standard output and returns it. A second call returns nothing.
    pub(crate) fn output(&mut self) -> String {
        let output = self.output.take().and_then(|reader| reader.join().ok());
        output.and_then(Result::ok).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> CommandLine {
        CommandLine::new("sh", &["-c", script])
    }

    #[test]
    fn a_command_is_printed_for_a_shell() {
        let line = CommandLine::new("cargo", &["doc", "it's"]).env("RUSTDOCFLAGS", "-D warnings").arg("");
        assert_eq!(line.to_string(), r#"RUSTDOCFLAGS='-D warnings' cargo doc "it's" ''"#);
        let line = "A='1 2' B=x cargo test --config 'a=b'";
        assert_eq!(CommandLine::parse(line).to_string(), line);
    }

    #[test]
    fn status_output_and_message_are_returned() {
        assert_eq!(shell("exit 7").run(FOREVER).unwrap().code(), Some(7));
        assert_eq!(shell("echo word").output().unwrap(), "word\n");
        let failed = shell("echo why >&2; exit 1").output();
        assert!(matches!(failed, Err(Stop::Failed(message)) if message.ends_with(": why")));
        let missing = CommandLine::new("no-such-program", &[""; 0]).output();
        assert!(matches!(missing, Err(Stop::Failed(message)) if message.starts_with("no-such-program")));
        assert!(is_installed("sh") && !is_installed("no-such-program"));
    }

    #[test]
    fn a_program_does_not_inherit_the_variables_of_this_package() {
        // Cargo sets both for the tests of this package.
        assert!(["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME"].iter().all(|name| std::env::var_os(name).is_some()));
        assert_eq!(shell("echo $CARGO_MANIFEST_DIR$CARGO_PKG_NAME").output().unwrap(), "\n");
    }

    #[test]
    fn a_program_that_does_not_end_is_killed_at_its_deadline() {
        let killed = shell("exec sleep 600").run(Duration::ZERO);
        assert!(matches!(killed, Err(Stop::Failed(why)) if why == "it still runs after 0 s: killed"));
    }

    #[test]
    fn output_is_passed_on_or_kept_in_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let deadline = Duration::from_secs(60);
        let mut lines = Vec::new();
        let each = |script| {
            shell(script).each_line(Stdio::null(), deadline, |_, line| {
                lines.push(line.to_owned());
                if line == "bad" { Err(Stop::failed("bad")) } else { Ok(()) }
            })
        };
        let outcomes = ["echo a; echo b; exit 3", "echo bad; exec sleep 600"].map(each);
        assert_eq!(outcomes[0].as_ref().unwrap().code(), Some(3));
        assert!(outcomes[1].is_err());
        assert_eq!(lines, ["a", "b", "bad"]);
        let log = folder.join("log");
        let status = shell("echo a; echo b >&2; exit 3").run_logged(&log, deadline).unwrap();
        assert_eq!((files::text(&log).unwrap(), status.code()), ("a\nb\n".to_owned(), Some(3)));
    }
}
