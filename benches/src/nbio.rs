//! nbio's server: a Go program, `go/nbio` below this package, built where there is Go. Nothing of nbio itself is kept here, and
//! nothing is started.

use std::path::Path;
use std::process::Command;

/// Where the module is.
const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/go/nbio");

/// What the module asks for.
const GO_MOD: &str = include_str!("../go/nbio/go.mod");

/// Where there is no server to measure.
const NO_GO: &str = "no Go toolchain";

/// The version of nbio, without the `v` that Go puts before it.
#[must_use]
pub fn version() -> &'static str {
    let of_line = |line: &'static str| line.trim().strip_prefix("require github.com/lesismal/nbio v");
    GO_MOD.lines().find_map(of_line).unwrap_or_default()
}

/// Which Go there is, as it says it.
///
/// # Errors
///
/// One line, where there is none.
pub fn go_version() -> Result<String, String> {
    let output = Command::new("go").arg("version").output().map_err(|_| NO_GO.to_owned())?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() { Ok(text) } else { Err(NO_GO.to_owned()) }
}

/// Builds the server as `program`, with the toolchain there is and the versions that are written down.
///
/// # Errors
///
/// One line: why it cannot be built here.
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

/// The arguments of a server with the settings that nbio's own benchmark gives it.
pub const AS_BENCHMARKED: [&str; 1] = ["benchmark"];

/// The arguments of a server for one core, with answers of so many bytes, or 0 for those of the message.
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
