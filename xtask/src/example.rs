//! `cargo xtask example NAME`: the server and the client of an example, with the commands from the head of its file. They run on the
//! loopback, or with `--two-hosts` in two network namespaces.
//!
//! The client's exit code decides. Other tasks use the parts of this module for their own clients.

use std::fs;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;

use crate::netns::{Pair, Side};
use crate::run::{CommandLine, Interrupt, Running, Stop, wait_until, word};
use crate::workspace::Workspace;

/// The two ends, as the commands in a head name them.
const ROLES: [&str; 2] = ["server", "client"];
/// The number of ports to try until one is free for both datagrams and streams.
const PORTS_TRIED: usize = 32;
/// A client ends within 10 s on an idle machine. The server does not end.
const END_DEADLINE: Duration = Duration::from_secs(60);

/// Runs both commands of an example.
///
/// # Errors
/// [`Stop::Interrupted`] on Ctrl-C, [`Stop::Failed`] when the head does not have both commands or a program fails. On two hosts also
/// [`Stop::Needs`] when the machine cannot make namespaces.
pub(crate) fn run(name: &str, two_hosts: bool) -> Result<(), Stop> {
    let interrupt = Interrupt::on_ctrl_c()?;
    let workspace = Workspace::load()?;
    let program = program(&workspace, name);
    let ([server, client], _pair) = if two_hosts {
        let [server, client] = commands(&workspace, name)?;
        // Before the build, so that a machine that cannot make namespaces is skipped without one.
        let pair = Pair::new()?;
        let commands = [pair.inside(Side::A, &program, &server), pair.inside(Side::B, &program, &client)];
        (commands, Some(pair))
    } else {
        let commands = commands_at(&workspace, name, free_address()?)?;
        (commands.map(|args| CommandLine::new(&program, &args)), None)
    };
    build(&workspace, name)?;
    let mut server = Running::start("server", &server)?;
    // The client may start first, because it repeats its hello.
    let mut client = Running::start("client", &client)?;
    wait_for_client(&mut client, &mut server, END_DEADLINE, &interrupt)?;
    print!("{}", client.output());
    Ok(())
}

/// Returns the path of the program of an example that was built.
pub(crate) fn program(workspace: &Workspace, name: &str) -> String {
    word(&workspace.target.join("release/examples").join(name))
}

/// Returns the arguments of the two commands in the head of an example, the server's first, with the server at side A.
fn commands(workspace: &Workspace, name: &str) -> Result<[Vec<String>; 2], Stop> {
    let at_side_a = |word: &str| word.replace("127.0.0.1", &Side::A.address().to_string());
    commands_with(workspace, name, at_side_a)
}

/// Returns the same arguments with the server at `address`. A server whose command has no address, because it is in a file, stays
/// there.
pub(crate) fn commands_at(
    workspace: &Workspace,
    name: &str,
    address: SocketAddr,
) -> Result<[Vec<String>; 2], Stop> {
    let [server, client] = commands_with(workspace, name, str::to_owned)?;
    if server.iter().all(|word| word.parse::<SocketAddr>().is_err()) {
        return Ok([server, client]);
    }
    let moved = |words: Vec<String>| words.iter().map(|word| at(word, address)).collect();
    Ok([moved(server), moved(client)])
}

/// Returns whether the head of an example has a command for a server or a client. An example that cannot be read has none.
pub(crate) fn has_commands(workspace: &Workspace, name: &str) -> bool {
    text(workspace, name).is_ok_and(|text| ROLES.iter().any(|role| words(&text, name, role).is_ok()))
}

/// Returns an address on the loopback that is free for datagrams and for streams.
pub(crate) fn free_address() -> Result<SocketAddr, Stop> {
    let free = || {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        UdpSocket::bind(address)?.local_addr()
    };
    let mut tries = std::iter::repeat_with(free).take(PORTS_TRIED);
    tries.find_map(Result::ok).ok_or_else(|| Stop::failed("no free port on the loopback"))
}

fn commands_with(
    workspace: &Workspace,
    name: &str,
    change: impl Fn(&str) -> String,
) -> Result<[Vec<String>; 2], Stop> {
    let text = text(workspace, name)?;
    let [server, client] = ROLES.map(|role| words(&text, name, role).map_err(Stop::Failed));
    let changed = |words: Vec<&str>| words.into_iter().map(&change).collect();
    Ok([changed(server?), changed(client?)])
}

fn text(workspace: &Workspace, name: &str) -> Result<String, Stop> {
    let path = workspace.root.join("examples").join(format!("{name}.rs"));
    fs::read_to_string(&path)
        .map_err(|why| Stop::failed(format!("{name}: cannot read {}: {why}", path.display())))
}

/// Returns a word of a command, or `address` if the word is an address.
fn at(word: &str, address: SocketAddr) -> String {
    word.parse::<SocketAddr>().map_or_else(|_| word.to_owned(), |_| address.to_string())
}

/// Returns the keys in the head of an example, the server's secret key first.
fn keys(workspace: &Workspace, name: &str) -> Result<[String; 2], Stop> {
    let [server, client] = commands(workspace, name)?;
    let key = |words: Vec<String>| words.into_iter().find(|word| word.starts_with("drumfire_"));
    key(server)
        .zip(key(client))
        .map(|(secret, public)| [secret, public])
        .ok_or_else(|| Stop::failed(format!("{name}: no keys in its head")))
}

/// Returns the arguments of the command for a role in the head of an example.
fn words<'a>(example: &'a str, name: &str, role: &str) -> Result<Vec<&'a str>, String> {
    let command = format!("//! cargo run --release --example {name} -- ");
    let heads = example.lines().filter_map(|line| line.strip_prefix(&command));
    let words = heads.map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut found = words.filter(|words| words.first() == Some(&role));
    found.next().ok_or_else(|| format!("{name}: no command for the {role} in its head"))
}

/// Builds the example.
pub(crate) fn build(workspace: &Workspace, name: &str) -> Result<(), Stop> {
    let args = ["build", "--release", "-p", "drumfire-examples", "--example", name];
    CommandLine::new("cargo", &args).done(&workspace.root)
}

/// Starts the server of an example that was built, with the keys of its head. Returns it with its address and its public key.
pub(crate) fn serve(workspace: &Workspace, name: &str) -> Result<(Running, SocketAddr, String), Stop> {
    let [secret, public] = keys(workspace, name)?;
    let address = free_address()?;
    let command = CommandLine::new(&program(workspace, name), &["server", &address.to_string(), &secret]);
    Ok((Running::start("server", &command)?, address, public))
}

/// Waits until the client is done. The server must outlive it.
pub(crate) fn wait_for_client(
    client: &mut Running,
    server: &mut Running,
    deadline: Duration,
    ctrl_c: &Interrupt,
) -> Result<(), Stop> {
    wait_until("the client still runs", deadline, ctrl_c, || {
        let is_done = client.is_done()?;
        if !is_done && server.is_done()? {
            return Err(Stop::failed("the server ended before its client"));
        }
        Ok(is_done)
    })
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

    fn here() -> Workspace {
        Workspace::load().unwrap()
    }

    #[test]
    fn the_commands_of_the_head_are_taken_word_by_word() {
        assert_eq!(words(HEAD, "a", "server").unwrap(), ["server", "0.0.0.0:7", "k"]);
        assert_eq!(words(HEAD, "a", "client").unwrap(), ["client", "127.0.0.1:7", "p"]);
    }

    #[test]
    fn the_servers_address_is_put_in_its_place() {
        let [server, client] = commands(&here(), "echo").unwrap();
        assert_eq!((&server[1][..], &client[1][..]), ("0.0.0.0:7777", "10.213.0.1:7777"));
        let address = "127.0.0.1:9".parse().unwrap();
        let [server, client] = commands_at(&here(), "echo", address).unwrap();
        assert_eq!((&server[1][..], &client[1][..]), ("127.0.0.1:9", "127.0.0.1:9"));
        assert!(server[2].starts_with("drumfire_secret_") && client[2].starts_with("drumfire_public_"));
    }

    #[test]
    fn examples_with_two_ends_are_known_by_their_heads() {
        for name in [
            "agones",
            "backend",
            "bots",
            "bulk",
            "chat",
            "custom_transport",
            "echo",
            "prometheus",
            "rooms",
            "tick_server",
        ] {
            assert!(has_commands(&here(), name) && commands(&here(), name).is_ok(), "{name}");
        }
        for name in ["shared_port", "unit_test_your_game", "no_such_example"] {
            assert!(!has_commands(&here(), name), "{name}");
        }
    }

    #[test]
    fn a_free_address_is_free_for_datagrams_and_for_streams() {
        let address = free_address().unwrap();
        assert!(address.ip().is_loopback() && address.port() != 0);
    }

    #[test]
    fn an_example_without_such_a_command_is_named() {
        for (name, role) in [("a", "referee"), ("b", "client")] {
            let why = words(HEAD, name, role).unwrap_err();
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
