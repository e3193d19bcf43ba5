//! nbio's server, built by Go where there is one. The module is in `benches/peers-go/nbio`; nothing of nbio itself is kept here.

use std::path::{Path, PathBuf};
use std::process::Command;

use drumfire_benches::{Child, Extent};
use drumfire_tools::host;

/// Where the module is, below this package.
const MODULE: &str = "peers-go/nbio";

/// Stands in the row where there is no server to measure.
const NO_GO: &str = "missing: no Go toolchain";

/// Builds the server and answers where it is, or why there is none. A smoke run has no time to build all of it, and measures it
/// only where another run has done so.
pub(crate) fn program(extent: Extent) -> Result<PathBuf, String> {
    let version = Command::new("go").arg("version").output();
    if !version.is_ok_and(|output| output.status.success()) {
        return Err(NO_GO.to_owned());
    }
    let program = folder().ok_or("missing: no target folder")?.join("nbio");
    if extent == Extent::Quick && !program.exists() {
        return Err("missing: not built yet, which --quick has no time for".to_owned());
    }
    let built = Command::new("go")
        .args(["build", "-trimpath", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(MODULE))
        // The toolchain there is, and the versions that are written down.
        .envs([("GOTOOLCHAIN", "local"), ("GOFLAGS", "-mod=readonly -buildvcs=false")])
        .output()
        .map_err(|error| format!("missing: go build: {error}"))?;
    if built.status.success() {
        return Ok(program);
    }
    let text = String::from_utf8_lossy(&built.stderr);
    Err(format!("missing: go build: {}", text.lines().last().unwrap_or("it failed")))
}

/// Which Go there is.
pub(crate) fn go_version() -> String {
    let version = Command::new("go").arg("version").output();
    version.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Starts the server on this core; this thread goes on on another.
pub(crate) fn start(program: &Path, server_core: usize, client_core: usize) -> Result<Child, String> {
    // A program that knows nothing of cores stays where it was started.
    host::pin_current_thread(server_core).map_err(|error| error.to_string())?;
    let child = Child::start_program("nbio's server", program, &[]);
    host::pin_current_thread(client_core).map_err(|error| error.to_string())?;
    child
}

/// `target/peers-go`, found from this program's own place in `target/<profile>/deps`.
fn folder() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    program.ancestors().nth(3).map(|target| target.join("peers-go"))
}
