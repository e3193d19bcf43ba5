//! nbio's server as this bench has it: built where there is time for it, and started on the server's core.

use std::path::{Path, PathBuf};

use drumfire_benches::{Child, Cores, Extent, nbio};
use drumfire_tools::host;

/// Builds the server and answers where it is, or why there is none. A smoke run has no time to build all of it, and measures it
/// only where another run has done so.
pub(crate) fn program(extent: Extent) -> Result<PathBuf, String> {
    let missing = |line: &str| format!("missing: {line}");
    nbio::go_version().map_err(|line| missing(&line))?;
    let program = folder().ok_or_else(|| missing("no target folder"))?.join("nbio");
    if extent == Extent::Quick && !program.exists() {
        return Err(missing("not built yet, which --quick has no time for"));
    }
    nbio::build(&program).map_err(|line| missing(&line))?;
    Ok(program)
}

/// Starts the server on its core; this thread goes on on the load's.
pub(crate) fn start(program: &Path, cores: Cores) -> Result<Child, String> {
    // A program that knows nothing of cores stays where it was started.
    host::pin_current_thread(cores.server).map_err(|error| error.to_string())?;
    let child = Child::start_program("nbio's server", program, &nbio::AS_BENCHMARKED);
    host::pin_current_thread(cores.load).map_err(|error| error.to_string())?;
    child
}

/// `target/go`, found from this program's own place in `target/<profile>/deps`.
fn folder() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    program.ancestors().nth(3).map(|target| target.join("go"))
}
