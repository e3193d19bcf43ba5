//! What a run sets up in its own network namespaces, by the programs that every system has for it.
//!
//! Nothing is taken back: it ends with the namespaces.

use std::io::ErrorKind;
use std::process::{Command, Stdio};

use crate::stop::Stop;

/// The name of the link's device in either namespace.
pub(crate) const LINK: &str = "veth0";

/// Runs a program of the system to its end; answers what it said.
///
/// # Errors
/// [`Stop::Needs`] when it is not there or may not do that, [`Stop::Failed`] when it fails otherwise.
pub(crate) fn call(program: &str, arguments: &str) -> Result<String, Stop> {
    let mut command = Command::new(program);
    command.args(arguments.split_whitespace()).env("LC_ALL", "C").stdin(Stdio::null());
    let output = command.output().map_err(|why| match why.kind() {
        ErrorKind::NotFound => Stop::Needs(format!("the program `{program}`")),
        _ => Stop::failed(program, why),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if said.contains("not permitted") || said.contains("Permission denied") {
        return Err(Stop::Needs(format!("the privilege for `{program} {arguments}`, which said: {said}")));
    }
    Err(Stop::failed(&format!("{program} {arguments}"), said))
}

/// Which threads come before all others of the system, who first.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Precedence {
    /// That of a server's players: what else runs on the machine is not to make them late,
    Players = 1,
    /// nor the server, whose worker they may share a core with.
    Worker = 2,
    /// One that hardly runs, and sees whether anything could.
    Witness = 3,
}

/// From now on this thread comes before all others of its core that have no such precedence; those that it starts have none.
///
/// # Errors
/// As [`call`].
pub(crate) fn put_first(thread: u32, precedence: Precedence) -> Result<(), Stop> {
    call("chrt", &format!("--fifo --reset-on-fork --pid {} {thread}", precedence as u8)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_is_needed() {
        assert!(
            matches!(call("no-such-program", ""), Err(Stop::Needs(what)) if what.contains("no-such-program"))
        );
    }

    #[test]
    fn what_a_program_says_comes_back_and_so_does_its_failure() {
        assert_eq!(call("echo", "a  b").expect("echo"), "a b\n");
        assert!(
            matches!(call("cat", "/no/such/file"), Err(Stop::Failed(why)) if why.contains("No such file"))
        );
    }
}
