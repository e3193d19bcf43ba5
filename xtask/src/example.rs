//! An example's server and client as other tasks run them: the commands that stand in its head, its build, and the wait for
//! its client.
//!
//! Where the two run is the task's business.

use std::fs;
use std::time::Duration;

use crate::netns::Side;
use crate::run::{CommandLine, Interrupt, Stop, Stopwatch};
use crate::running::Running;
use crate::workspace::Workspace;

/// The arguments of the two commands in the head of an example, the server's first.
pub(crate) fn commands(workspace: &Workspace, name: &str) -> Result<[Vec<String>; 2], Stop> {
    let path = workspace.root.join("examples").join(format!("{name}.rs"));
    let text = fs::read_to_string(&path)
        .map_err(|why| Stop::failed(format!("{name}: cannot read {}: {why}", path.display())))?;
    let [server, client] =
        ["server", "client"].map(|role| arguments(&text, name, role).map_err(Stop::Failed));
    Ok([server?, client?])
}

/// The keys that stand in the head of an example, the server's secret one first.
pub(crate) fn keys(workspace: &Workspace, name: &str) -> Result<[String; 2], Stop> {
    let [server, client] = commands(workspace, name)?;
    let key = |words: Vec<String>| words.into_iter().find(|word| word.starts_with("drumfire_"));
    key(server)
        .zip(key(client))
        .map(|(secret, public)| [secret, public])
        .ok_or_else(|| Stop::failed(format!("{name}: no keys in its head")))
}

/// The arguments of the command for this role in the head of an example, with the server at side A.
fn arguments(example: &str, name: &str, role: &str) -> Result<Vec<String>, String> {
    let command = format!("//! cargo run --release --example {name} -- ");
    let heads = example.lines().filter_map(|line| line.strip_prefix(&command));
    let words = heads.map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut found = words.filter(|words| words.first() == Some(&role));
    let words = found.next().ok_or_else(|| format!("{name}: no command for the {role} in its head"))?;
    Ok(words.iter().map(|word| word.replace("127.0.0.1", &Side::A.address().to_string())).collect())
}

/// Builds the example.
pub(crate) fn build(workspace: &Workspace, name: &str) -> Result<(), Stop> {
    let args = ["build", "--release", "-p", "drumfire-examples", "--example", name];
    let command = CommandLine::new("cargo", &args);
    println!("{command}");
    match command.run(&workspace.root, None)? {
        status if status.success() => Ok(()),
        status => Err(Stop::failed(format!("{command}: {status}"))),
    }
}

/// Waits until the client is done. The server must outlive it.
pub(crate) fn wait_for_client(
    client: &mut Running,
    server: &mut Running,
    deadline: Duration,
    ctrl_c: &Interrupt,
) -> Result<(), Stop> {
    let stopwatch = Stopwatch::start();
    while !client.is_done()? {
        if server.is_done()? {
            return Err(Stop::failed("the server ended before its client"));
        }
        if stopwatch.elapsed() >= deadline {
            let limit = deadline.as_secs();
            return Err(Stop::failed(format!("the client still runs after {limit} s: killed")));
        }
        ctrl_c.pause()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(30);

    const HEAD: &str = "//! One.\n//!\n//! cargo run --release --example a -- server 0.0.0.0:7 k\n\
        //! cargo run --release --example a -- client 127.0.0.1:7 p\n";

    fn shell(title: &'static str, script: &str) -> Running {
        Running::start(title, &CommandLine::new("sh", &["-c", script])).unwrap()
    }

    #[test]
    fn the_commands_of_the_head_are_taken_with_the_servers_address() {
        assert_eq!(arguments(HEAD, "a", "server").unwrap(), ["server", "0.0.0.0:7", "k"]);
        assert_eq!(arguments(HEAD, "a", "client").unwrap(), ["client", "10.213.0.1:7", "p"]);
    }

    #[test]
    fn an_example_without_such_a_command_is_named() {
        for (name, role) in [("a", "referee"), ("b", "client")] {
            let why = arguments(HEAD, name, role).unwrap_err();
            assert!(why.contains(name) && why.contains(role), "{why}");
        }
    }

    #[test]
    fn the_clients_end_is_the_end_and_the_servers_is_a_failure() {
        let (mut client, mut server) = (shell("client", "echo done"), shell("server", "exec sleep 600"));
        wait_for_client(&mut client, &mut server, DEADLINE, &Interrupt::never()).unwrap();
        assert_eq!(client.output(), "done\n");
        let (mut client, mut server) = (shell("client", "exec sleep 600"), shell("server", "exit 0"));
        assert!(wait_for_client(&mut client, &mut server, DEADLINE, &Interrupt::never()).is_err());
        let (mut client, mut server) = (shell("client", "exit 3"), shell("server", "exec sleep 600"));
        assert!(wait_for_client(&mut client, &mut server, DEADLINE, &Interrupt::never()).is_err());
    }
}
