//! Rivals whose server is a program of another language: ENet in C, whose source is in this package, and nbio in Go, which another
//! bench measures too. They are built once before the rounds, with whatever compiler the machine has; where there is none, the
//! rival is listed with the reason. A server's process becomes the program, so that its pins, its pipes and its number stay what
//! they are.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use drumfire_benches::nbio;

use crate::face::Setup;

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// `enet/server.c`, with the system's libenet.
    Enet,
    /// `../go/nbio`, a Go module.
    Nbio,
}

impl Program {
    const fn name(self) -> &'static str {
        match self {
            Self::Enet => "enet-server",
            Self::Nbio => "nbio-server",
        }
    }

    /// Where it is built.
    fn path(self) -> Result<PathBuf, String> {
        let here = std::env::current_exe().map_err(|error| error.to_string())?;
        Ok(here.parent().unwrap_or(Path::new(".")).join("peers-programs").join(self.name()))
    }
}

/// Builds it, and answers the version of the library in it.
///
/// # Errors
///
/// One line: why it cannot be built here.
pub(crate) fn build(program: Program) -> Result<String, String> {
    let path = program.path()?;
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    match program {
        Program::Enet => {
            let flags =
                output("pkg-config", Command::new("pkg-config").args(["--cflags", "--libs", "libenet"]))
                    .map_err(|_| "pkg-config knows no libenet (Debian: libenet-dev)".to_owned())?;
            let mut compile = Command::new("cc");
            compile
                .args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
                .arg(&path)
                .arg(source.join("enet/server.c"));
            output("cc", compile.args(flags.split_whitespace()))?;
            output("the ENet server", Command::new(&path).arg("version")).map(|line| line.trim().to_owned())
        }
        Program::Nbio => nbio::build(&path).map(|()| nbio::version().to_owned()),
    }
}

/// What a command that ends well says.
fn output(name: &str, command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{name} cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name}: {}", errors.lines().last().unwrap_or("it said nothing")))
}

/// Becomes the program; comes back only with the reason why not.
pub(crate) fn become_server(program: Program, setup: &Setup) -> String {
    let path = match program.path() {
        Ok(path) => path,
        Err(line) => return line,
    };
    let delivery = if setup.is_reliable { "reliable" } else { "unreliable" };
    let args = match program {
        Program::Enet => [delivery.to_owned(), setup.answer_bytes.to_string()],
        // What TCP delivers is no choice.
        Program::Nbio => nbio::for_one_core(setup.answer_bytes),
    };
    let error = Command::new(&path).args(args).exec();
    format!("{}: {error}", path.display())
}
