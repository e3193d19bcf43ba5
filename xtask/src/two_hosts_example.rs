//! `cargo xtask two-hosts-example NAME`: an example's server and client in two network namespaces joined by a veth pair,
//! called with the two commands that stand in the example's head.
//!
//! Whether they got along is the client's word: its exit code.

use std::time::Duration;

use crate::example;
use crate::netns::{Pair, Side, remove_leftovers};
use crate::run::{Interrupt, Stop};
use crate::running::Running;
use crate::workspace::Workspace;

/// The client ends within this time; the server never does.
const END_DEADLINE: Duration = Duration::from_secs(30);

/// Runs both commands.
///
/// # Errors
/// [`Stop::Needs`] when the machine cannot make namespaces, [`Stop::Interrupted`] on Ctrl-C, [`Stop::Failed`] when the
/// head holds no two commands, or one of the programs fails. The namespaces are removed in every case.
pub(crate) fn run(name: &str) -> Result<(), Stop> {
    let interrupt = Interrupt::on_ctrl_c()?;
    let workspace = Workspace::load()?;
    let [server, client] = example::commands(&workspace, name)?;
    remove_leftovers()?;
    // Made before the build, so that a machine that cannot do it says so at once.
    let pair = Pair::create(std::process::id())?;
    example::build(&workspace, name)?;

    let program = workspace.target.join("release/examples").join(name);
    let program = program.to_string_lossy();
    let mut server = Running::start("server", &pair.inside(Side::A, &program, &server))?;
    // It may come first: a client repeats its hello.
    let mut client = Running::start("client", &pair.inside(Side::B, &program, &client))?;
    example::wait_for_client(&mut client, &mut server, END_DEADLINE, &interrupt)?;
    print!("{}", client.output());
    Ok(())
}
