//! `cargo xtask example NAME`: the server and the client of an example, with the commands at the head of its file, on the loopback or in
//! two network namespaces.
//!
//! The client's exit code decides. Other tasks use the functions of this module for their own clients.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use crate::files::{self, regex};
use crate::netns::{Pair, Side};
use crate::run::{CommandLine, Running, Stop, wait_for};
use crate::workspace::Workspace;

/// The two ends, as the commands in a head name them.
const ROLES: [&str; 2] = ["server", "client"];
/// The number of ports to try until one is free for both datagrams and streams.
const PORTS_TRIED: usize = 32;
/// A client ends within 10 s on an idle machine. The server does not end.
const END_DEADLINE: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
pub(crate) struct ExampleArgs {
    /// The name of the example.
    name: String,
    /// Run in two network namespaces joined by a veth pair, instead of over the loopback interface.
    #[arg(long)]
    two_hosts: bool,
}

pub(crate) fn run(workspace: &Workspace, args: &ExampleArgs) -> Result<(), Stop> {
    let program = program(workspace, &args.name);
    let ([server, client], _pair) = if args.two_hosts {
        let [server, client] = read(workspace, &args.name)?;
        // Before the build, so that a machine that cannot make namespaces is skipped without one.
        let pair = Pair::new()?;
        let at = |side, words: &[String]| {
            let address = Side::A.address().to_string();
            let words: Vec<String> = words.iter().map(|word| word.replace("127.0.0.1", &address)).collect();
            pair.inside(side, &program.display().to_string(), &words)
        };
        ([at(Side::A, &server), at(Side::B, &client)], Some(pair))
    } else {
        let ends = on_loopback(workspace, &args.name)?;
        (ends.map(|words| CommandLine::new(&program, &words)), None)
    };
    CommandLine::cargo(&format!("build --example {}", args.name)).done()?;
    print!("{}", run_both(server, client, END_DEADLINE)?);
    Ok(())
}

/// Returns the program of an example with the profile and the features of `cargo test --workspace`, which has built all libraries for it.
fn program(workspace: &Workspace, name: &str) -> PathBuf {
    workspace.target.join("debug/examples").join(name)
}

/// Returns the arguments of both commands in the head of an example, the server's first.
fn read(workspace: &Workspace, name: &str) -> Result<[Vec<String>; 2], Stop> {
    let text = text(workspace, name)?;
    let [server, client] = ROLES.map(|role| {
        let words = words(&text, name, role);
        words.ok_or_else(|| {
            Stop::failed(format!("examples/{name}.rs: its head has no command for the {role}"))
        })
    });
    Ok([server?, client?])
}

/// Returns the arguments of both commands with a free address. A server whose command has no address, because its address is in a file,
/// stays there.
fn on_loopback(workspace: &Workspace, name: &str) -> Result<[Vec<String>; 2], Stop> {
    let (mut ends, address) = (read(workspace, name)?, free_address()?.to_string());
    let is_address = |word: &String| word.parse::<SocketAddr>().is_ok();
    if ends[0].iter().any(is_address) {
        let addresses = ends.iter_mut().flatten().filter(|word| is_address(word));
        addresses.for_each(|word| word.clone_from(&address));
    }
    Ok(ends)
}

/// Returns whether the head of an example has a command for a server or a client. An example that cannot be read has none.
pub(crate) fn has_commands(workspace: &Workspace, name: &str) -> bool {
    text(workspace, name).is_ok_and(|text| ROLES.iter().any(|role| words(&text, name, role).is_some()))
}

fn text(workspace: &Workspace, name: &str) -> Result<String, Stop> {
    files::text(&workspace.root.join("examples").join(format!("{name}.rs")))
}

fn words(example: &str, name: &str, role: &str) -> Option<Vec<String>> {
    let command = regex(&format!("(?m)^//! cargo run --release --example {name} -- ({role} .*)"));
    Some(command.captures(example)?[1].split_whitespace().map(str::to_owned).collect())
}

/// Returns an address on the loopback that is free for datagrams and for streams.
pub(crate) fn free_address() -> Result<SocketAddr, Stop> {
    let free = || UdpSocket::bind(TcpListener::bind("127.0.0.1:0")?.local_addr()?)?.local_addr();
    let mut tries = std::iter::repeat_with(free).take(PORTS_TRIED);
    tries.find_map(Result::ok).ok_or_else(|| Stop::failed("no port is free for UDP and TCP"))
}

/// Runs another client next to the server of an example, with the arguments of the example's client, and prints its output.
pub(crate) fn run_client(
    workspace: &Workspace,
    name: &str,
    client: CommandLine,
    deadline: Duration,
) -> Result<(), Stop> {
    let [server, client_words] = on_loopback(workspace, name)?;
    let server = CommandLine::new(program(workspace, name), &server);
    print!("{}", run_both(server, client.args(&client_words[1..]), deadline)?);
    Ok(())
}

/// Runs a server and its client until the client is done, and returns the client's output. The server must outlive the client.
pub(crate) fn run_both(server: CommandLine, client: CommandLine, deadline: Duration) -> Result<String, Stop> {
    let mut server = Running::start(server)?;
    // The client may start first, because it repeats its hello.
    let mut client = Running::start(client)?;
    wait_for("the client still runs", deadline, || {
        let is_done = client.is_done()?;
        if !is_done && server.is_done()? {
            return Err(Stop::failed("the server ended before its client"));
        }
        Ok(is_done.then_some(()))
    })?;
    Ok(client.output())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_with_two_ends_are_moved_to_an_address() {
        let workspace = &Workspace::load().unwrap();
        let [server, client] = on_loopback(workspace, "echo").unwrap();
        assert_eq!((&*server[0], &*client[0], &server[1]), ("server", "client", &client[1]));
        assert!(server[1].starts_with("127.0.0.1:") && server[1] != "127.0.0.1:7777");
        assert!(server[2].starts_with("drumfire_secret_") && client[2].starts_with("drumfire_public_"));
        let [server, _] = on_loopback(workspace, "configured").unwrap();
        assert_eq!(server, ["server", "examples/configured.toml"]);
        let examples = workspace.package_in("examples").unwrap().targets_of("example");
        let both: Vec<_> = examples.filter(|name| has_commands(workspace, name)).collect();
        assert!(both.contains(&"chat") && !both.contains(&"shared_port"), "{both:?}");
        assert!(both.iter().all(|name| read(workspace, name).is_ok()), "{both:?}");
        assert!(!has_commands(workspace, "no_such_example"));
    }

    #[test]
    fn the_client_decides_and_the_server_must_not_end_first() {
        let run = |client: &str, server: &str| {
            let shell = |script| CommandLine::new("sh", &["-c", script]);
            run_both(shell(server), shell(client), Duration::from_secs(30))
        };
        assert_eq!(run("echo done", "exec sleep 600").unwrap(), "done\n");
        assert!(run("exec sleep 600", "exit 0").is_err() && run("exit 3", "exec sleep 600").is_err());
    }
}
