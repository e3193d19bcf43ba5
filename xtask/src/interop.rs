//! `cargo xtask interop`: the second implementation, in Python, checks the standard's vectors, sends the malformed ones to the
//! server of the example `echo`, and holds sessions with it.
//!
//! Its packages go into a virtual environment of their own below the target directory.

use std::path::Path;
use std::time::Duration;

use crate::example;
use crate::run::{CommandLine, Interrupt, Stop, word};
use crate::running::Running;
use crate::workspace::Workspace;

const EXAMPLE: &str = "echo";
/// A session takes a quarter of a second; at this age the client is killed.
const SESSION_DEADLINE: Duration = Duration::from_secs(3);
/// What the sessions get on top.
const START_DEADLINE: Duration = Duration::from_secs(30);

/// Checks the vectors, then holds `sessions` sessions.
///
/// # Errors
/// [`Stop::Needs`] where Python or its packages cannot be had, [`Stop::Interrupted`] on Ctrl-C, [`Stop::Failed`] when a
/// vector or a session fails.
pub(crate) fn run(sessions: u32) -> Result<(), Stop> {
    let interrupt = Interrupt::on_ctrl_c()?;
    let workspace = Workspace::load()?;
    let scripts = workspace.root.join("xtask/interop");
    let python = environment(&workspace, &scripts)?;

    let vectors = [word(&scripts.join("vectors.py")), word(&workspace.root.join("crates/wire/vectors"))];
    let vectors = CommandLine::new(&python, &vectors).env("PYTHONWARNINGS", "ignore");
    print!("{vectors}\n{}", vectors.output(&workspace.root)?);

    example::build(&workspace, EXAMPLE)?;
    let (mut server, address, public) = example::serve(&workspace, EXAMPLE)?;
    let malformed = [
        word(&scripts.join("malformed.py")),
        word(&workspace.root.join("crates/wire/vectors/malformed.json")),
        address.to_string(),
        public.clone(),
    ];
    let malformed = CommandLine::new(&python, &malformed).env("PYTHONWARNINGS", "ignore");
    print!("{malformed}\n{}", malformed.output(&workspace.root)?);

    let client = [
        &word(&scripts.join("client.py")),
        &address.to_string(),
        &public,
        "--sessions",
        &sessions.to_string(),
    ];
    let mut client = Running::start("client", &CommandLine::new(&python, &client))?;
    let deadline = START_DEADLINE.saturating_add(SESSION_DEADLINE.saturating_mul(sessions));
    example::wait_for_client(&mut client, &mut server, deadline, &interrupt)?;
    print!("{}", client.output());
    Ok(())
}

/// The Python of an environment with the packages, made if need be.
fn environment(workspace: &Workspace, scripts: &Path) -> Result<String, Stop> {
    let folder = workspace.target.join("interop");
    let python = word(&folder.join("bin/python"));
    let make = CommandLine::new("python3", &["-m", "venv", &word(&folder)]);
    make.needed(&workspace.root, "python3 with its venv module")?;
    let requirements = word(&scripts.join("requirements.txt"));
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", &requirements];
    CommandLine::new(&python, &install).needed(&workspace.root, "a Python package index")?;
    Ok(python)
}
