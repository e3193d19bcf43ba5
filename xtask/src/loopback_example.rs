//! `cargo xtask example NAME`: an example's server and client on the loopback, called with the two commands that stand in the
//! example's head, but on a port that is free.
//!
//! Whether they got along is the client's word: its exit code.

use std::time::Duration;

use crate::example;
use crate::run::{CommandLine, Interrupt, Stop};
use crate::running::Running;
use crate::workspace::Workspace;

/// The client ends within 10 s, on a machine that is busy within this time; the server never does.
const END_DEADLINE: Duration = Duration::from_secs(60);

/// Runs both commands.
///
/// # Errors
/// [`Stop::Interrupted`] on Ctrl-C, [`Stop::Failed`] when the head holds no two commands, or one of the programs fails.
pub(crate) fn run(name: &str) -> Result<(), Stop> {
    let interrupt = Interrupt::on_ctrl_c()?;
    let workspace = Workspace::load()?;
    let [server, client] = example::commands_at(&workspace, name, example::free_address()?)?;
    example::build(&workspace, name)?;

    let program = workspace.target.join("release/examples").join(name);
    let program = program.to_string_lossy();
    let mut server = Running::start("server", &CommandLine::new(&program, &server))?;
    // It may come first: a client tries again.
    let mut client = Running::start("client", &CommandLine::new(&program, &client))?;
    example::wait_for_client(&mut client, &mut server, END_DEADLINE, &interrupt)?;
    print!("{}", client.output());
    Ok(())
}
