//! `cargo xtask example NAME`: the server and the client of an example, with the commands at the head of its file, on the loopback or in
//! two network namespaces.
//!
//! The client's exit code decides. Other tasks use the functions of this module for their own clients.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use crate::files;
use crate::netns::{Pair, Side};
use crate::run::{CommandLine, Running, Stop, handle_ctrl_c, wait_until, word};
use crate::workspace::Workspace;

/// The two ends, as the commands in a head name them.
const ROLES: [&str; 2] = ["server", "client"];
/// The number of ports to try until one is free for both datagrams and streams.
const PORTS_TRIED: usize = 32;
/// A client ends within 10 s on an idle machine. The server does not end.
const END_DEADLINE: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
pub(crate) struct ExampleArgs {
    /// The example's name.
    name: String,
    /// Run in two network namespaces joined by a veth pair, instead of on the loopback.
    #[arg(long)]
    two_hosts: bool,
}

/// Runs both commands of an example.
///
/// # Errors
/// [`Stop::Failed`] when the head does not have both commands or a program fails. On two hosts also
/// [`Stop::Needs`] when the machine cannot make namespaces.
pub(crate) fn run(args: &ExampleArgs) -> Result<(), Stop> {
    handle_ctrl_c()?;
    let workspace = Workspace::load()?;
    let program = program(&workspace, &args.name);
    let ([server, client], _pair) = if args.two_hosts {
        let [server, client] = commands(&workspace, &args.name)?;
        let at_side_a = |words: Vec<String>| -> Vec<String> {
            words.iter().map(|word| word.replace("127.0.0.1", &Side::A.address().to_string())).collect()
        };
        // Before the build, so that a machine that cannot make namespaces is skipped without one.
        let pair = Pair::new()?;
        let program = word(&program);
        let server = pair.inside(Side::A, &program, &at_side_a(server));
        let client = pair.inside(Side::B, &program, &at_side_a(client));
        ([server, client], Some(pair))
    } else {
        let commands = commands_at(&workspace, &args.name, free_address()?)?;
        (commands.map(|args| CommandLine::new(&program, &args)), None)
    };
    build(&workspace, &args.name)?;
    print!("{}", run_both(&server, &client, END_DEADLINE)?);
    Ok(())
}

/// Returns whether the head of an example has a command for a server or a client. An example that cannot be read has none.
pub(crate) fn has_commands(workspace: &Workspace, name: &str) -> bool {
    text(workspace, name).is_ok_and(|text| ROLES.iter().any(|role| words(&text, name, role).is_ok()))
}

/// Returns the arguments of both commands in the head of an example, with the server at `address`. A server whose command has no
/// address, because its address is in a file, stays there.
pub(crate) fn commands_at(
    workspace: &Workspace,
    name: &str,
    address: SocketAddr,
) -> Result<[Vec<String>; 2], Stop> {
    let is_address = |word: &String| word.parse::<SocketAddr>().is_ok();
    let mut commands = commands(workspace, name)?;
    if commands[0].iter().any(is_address) {
        for word in commands.iter_mut().flatten().filter(|word| is_address(word)) {
            *word = address.to_string();
        }
    }
    Ok(commands)
}

/// Returns the arguments of both commands in the head of an example, the server's first.
fn commands(workspace: &Workspace, name: &str) -> Result<[Vec<String>; 2], Stop> {
    let text = text(workspace, name)?;
    let [server, client] = ROLES.map(|role| words(&text, name, role).map_err(Stop::Failed));
    Ok([server?, client?])
}

fn text(workspace: &Workspace, name: &str) -> Result<String, Stop> {
    files::text(&workspace.root.join("examples").join(format!("{name}.rs")))
}

/// Returns the arguments of the command for a role.
fn words(example: &str, name: &str, role: &str) -> Result<Vec<String>, String> {
    let command = format!("//! cargo run --release --example {name} -- ");
    let commands = example.lines().filter_map(|line| line.strip_prefix(&command));
    let mut found = commands.filter(|line| line.split_whitespace().next() == Some(role));
    let line = found.next().ok_or_else(|| format!("{name}: no command for the {role} in its head"))?;
    Ok(line.split_whitespace().map(str::to_owned).collect())
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

/// Builds an example with the profile and the features of `cargo test --workspace`, which has built all libraries for it.
pub(crate) fn build(workspace: &Workspace, name: &str) -> Result<(), Stop> {
    CommandLine::cargo(&format!("build --example {name}")).done(&workspace.root)
}

/// Returns the path of an example's program.
pub(crate) fn program(workspace: &Workspace, name: &str) -> PathBuf {
    workspace.target.join("debug/examples").join(name)
}

/// Returns the command of the server of an example on a free address with the key of its head, and the address and the public key for
/// its clients.
pub(crate) fn server(workspace: &Workspace, name: &str) -> Result<(CommandLine, [String; 2]), Stop> {
    let [server, client] = commands(workspace, name)?;
    let key = |words: Vec<String>| words.into_iter().find(|word| word.starts_with("drumfire_"));
    let keys = key(server).zip(key(client));
    let (secret, public) = keys.ok_or_else(|| Stop::failed(format!("{name}: no keys in its head")))?;
    let address = free_address()?.to_string();
    let server = CommandLine::new(program(workspace, name), &["server", &address, &secret]);
    Ok((server, [address, public]))
}

/// Runs a server and its client until the client is done, and returns the client's output. The server must outlive the client.
pub(crate) fn run_both(
    server: &CommandLine,
    client: &CommandLine,
    deadline: Duration,
) -> Result<String, Stop> {
    let mut server = Running::start("server", server)?;
    // The client may start first, because it repeats its hello.
    let mut client = Running::start("client", client)?;
    wait_until("the client still runs", deadline, || {
        let is_done = client.is_done()?;
        if !is_done && server.is_done()? {
            return Err(Stop::failed("the server ended before its client"));
        }
        Ok(is_done)
    })?;
    Ok(client.output())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_of_a_head_are_read_word_by_word() {
        let head = "//! One.\n//!\n//! cargo run --release --example a -- server 0.0.0.0:7 k\n\
            //! cargo run --release --example a -- client 127.0.0.1:7 p\n";
        assert_eq!(words(head, "a", "server").unwrap(), ["server", "0.0.0.0:7", "k"]);
        assert_eq!(words(head, "a", "client").unwrap(), ["client", "127.0.0.1:7", "p"]);
        for (name, role) in [("a", "referee"), ("b", "client")] {
            let why = words(head, name, role).unwrap_err();
            assert!(why.contains(name) && why.contains(role), "{why}");
        }
    }

    #[test]
    fn examples_with_two_ends_are_moved_to_an_address() {
        let workspace = Workspace::load().unwrap();
        let address = "127.0.0.1:9".parse().unwrap();
        let [server, client] = commands_at(&workspace, "echo", address).unwrap();
        assert_eq!((&server[1][..], &client[1][..]), ("127.0.0.1:9", "127.0.0.1:9"));
        assert!(server[2].starts_with("drumfire_secret_") && client[2].starts_with("drumfire_public_"));
        let examples = workspace.package_in("examples").unwrap().targets_of("example");
        let both: Vec<_> = examples.filter(|name| has_commands(&workspace, name)).collect();
        assert!(both.contains(&"chat") && !both.contains(&"shared_port"), "{both:?}");
        assert!(both.iter().all(|name| commands(&workspace, name).is_ok()), "{both:?}");
        assert!(!has_commands(&workspace, "no_such_example"));
    }

    #[test]
    fn the_client_decides_and_the_server_must_not_end_first() {
        let run = |client: &str, server: &str| {
            let shell = |script| CommandLine::new("sh", &["-c", script]);
            run_both(&shell(server), &shell(client), Duration::from_secs(30))
        };
        assert_eq!(run("echo done", "exec sleep 600").unwrap(), "done\n");
        assert!(run("exec sleep 600", "exit 0").is_err() && run("exit 3", "exec sleep 600").is_err());
    }
}
