//! nbio's server: the Go program in `go/nbio` of this package. It is built where there is a Go toolchain.

use std::path::{Path, PathBuf};
use std::process::Command;

use drumfire_tools::host;

use crate::host::Cores;
use crate::process::Child;
use crate::rounds::Extent;

const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/go/nbio");

const GO_MOD: &str = include_str!("../go/nbio/go.mod");

const NO_GO: &str = "no Go toolchain";

/// The version of nbio, without the `v` that Go puts before it.
#[must_use]
pub fn version() -> &'static str {
    let of_line = |line: &'static str| line.trim().strip_prefix("require github.com/lesismal/nbio v");
    GO_MOD.lines().find_map(of_line).unwrap_or_default()
}

/// The version of the Go toolchain.
///
/// # Errors
///
/// One line, when there is no toolchain.
pub fn go_version() -> Result<String, String> {
    let output = Command::new("go").arg("version").output().map_err(|_| NO_GO.to_owned())?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() { Ok(text) } else { Err(NO_GO.to_owned()) }
}

/// Builds the server as `program`, with the installed toolchain and the versions of `go.mod`.
///
/// # Errors
///
/// One line with the reason why it cannot be built.
pub fn build(program: &Path) -> Result<(), String> {
    go_version()?;
    let built = Command::new("go")
        .args(["build", "-trimpath", "-o"])
        .arg(program)
        .arg(".")
        .current_dir(MODULE)
        .envs([("GOTOOLCHAIN", "local"), ("GOFLAGS", "-mod=readonly -buildvcs=false")])
        .output()
        .map_err(|error| format!("go build: {error}"))?;
    if built.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&built.stderr);
    Err(format!("go build: {}", text.lines().last().unwrap_or("it failed")))
}

/// Builds the server in `target/go` and returns its path. A smoke run has no time to build it and uses an earlier build.
///
/// # Errors
///
/// One line with the reason why it is missing.
pub fn build_for(extent: Extent) -> Result<PathBuf, String> {
    go_version()?;
    // This program is in `target/<profile>/deps`.
    let executable = std::env::current_exe().map_err(|error| error.to_string())?;
    let target = executable.ancestors().nth(3).ok_or("no target folder")?;
    let program = target.join("go").join("nbio");
    if extent == Extent::Quick && !program.exists() {
        return Err("not built yet, and --quick has no time for it".to_owned());
    }
    build(&program)?;
    Ok(program)
}

/// Starts the server on its core, with the settings of nbio's own benchmark. The calling thread stays on the core of the load.
///
/// # Errors
///
/// One line with the error of the system.
pub fn start(program: &Path, cores: Cores) -> Result<Child, String> {
    // A child process inherits the cores of the thread that starts it.
    host::pin_current_thread(cores.server).map_err(|error| error.to_string())?;
    let child = Child::start_program("nbio's server", program, &["benchmark"]);
    host::pin_current_thread(cores.load).map_err(|error| error.to_string())?;
    child
}

/// The arguments of a server for one core, with answers of this many bytes. With 0 an answer is as long as its message.
#[must_use]
pub fn for_one_core(answer_bytes: usize) -> [String; 2] {
    ["one-core".to_owned(), answer_bytes.to_string()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_module() {
        let parts: Vec<u32> = version().split('.').filter_map(|part| part.parse().ok()).collect();
        assert_eq!(parts.len(), 3, "{}", version());
    }
}
