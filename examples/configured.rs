//! A server that reads its settings and those of the game from a TOML file, and prints what the system granted.
//!
//! ```text
//! cargo run --release --example configured -- server examples/configured.toml
//! cargo run --release --example configured -- client 127.0.0.1:7780 drumfire_public_9kDVg5jubJx_baXUFDIivl7kFU-tNlQLqsM11qonCkw
//! ```
//!
//! The client receives the welcome text of the file and disconnects. Without arguments, the server and the client run
//! in one process.
#![forbid(unsafe_code)]

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use drumfire::{ChannelId, Client, ClientConfig, Event, Message, Server, ServerConfig, ServerPublicKey};
use serde::Deserialize;

/// The settings of the client. The protocol id must equal that of the server.
const CLIENT_CONFIG: &str = "protocol_id = 7\nidle_timeout = \"10s\"";

/// The contents of the file. Unknown names are errors, so that a typo is noticed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    welcome: String,
    server: ServerConfig,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["server", path] => {
            let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
            let settings: Settings = toml::from_str(&text).map_err(|error| format!("{path}: {error}"))?;
            serve(bind(settings.server)?, &settings.welcome, || false);
        }
        ["client", server, key] => println!("{}", receive_welcome(server.parse()?, key.parse()?)?),
        [] => println!("{}", run_both(include_str!("configured.toml"))?),
        _ => return Err("usage: `server FILE` or `client ADDRESS PUBLIC_KEY`".into()),
    }
    Ok(())
}

/// Runs the server and the client in this process over loopback. Returns the welcome text that the client received.
fn run_both(text: &str) -> Result<String, Box<dyn Error>> {
    let mut settings: Settings = toml::from_str(text)?;
    settings.server.address = "127.0.0.1:0".parse()?;
    let key = settings.server.key.public();
    let server = bind(settings.server)?;
    let (address, is_done) = (server.local_addr(), AtomicBool::new(false));
    let welcome = std::thread::scope(|scope| {
        scope.spawn(|| serve(server, &settings.welcome, || is_done.load(Ordering::Acquire)));
        let welcome = receive_welcome(address, key).map_err(|error| error.to_string());
        is_done.store(true, Ordering::Release);
        welcome
    });
    Ok(welcome?)
}

/// Starts the server. Prints its settings and what the system granted.
fn bind(config: ServerConfig) -> Result<Server, Box<dyn Error>> {
    // The serialized settings contain no keys, so they may be logged.
    let (settings, public) = (toml::to_string(&config)?, config.key.public());
    let server = Server::bind(config)?;
    println!("{settings}");
    for (worker, granted) in server.control().stats().sockets.iter().enumerate() {
        println!("worker {worker}: {granted}");
    }
    println!("cargo run --release --example configured -- client {} {public}", server.local_addr());
    Ok(server)
}

/// Sends the welcome text to each new player until `should_stop` returns true.
fn serve(mut server: Server, welcome: &str, should_stop: impl Fn() -> bool) {
    while !should_stop() {
        server.poll(Duration::from_millis(100));
        while let Some(event) = server.next_event() {
            if let Event::Connected { peer, .. } = event {
                // A send fails only if the player is already gone.
                let _ = server.send(peer, Message::reliable_ordered(ChannelId(0), welcome.to_owned()));
            }
        }
        server.flush();
    }
}

/// Returns the first message of the server at this address.
fn receive_welcome(server: SocketAddr, key: ServerPublicKey) -> Result<String, Box<dyn Error>> {
    let config: ClientConfig = toml::from_str(CLIENT_CONFIG)?;
    let mut client = Client::new(config)?;
    client.connect((server, key))?;
    while client.poll(Duration::from_secs(10)) {
        while let Some(event) = client.next_event() {
            match event {
                Event::Message { payload, .. } => return Ok(String::from_utf8(payload.to_vec())?),
                Event::ConnectFailed { error, .. } => return Err(error.into()),
                Event::Disconnected { closed, .. } => return Err(closed.reason.name().into()),
                _ => {}
            }
        }
    }
    Err("the server sent no message".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_receives_the_welcome_text_of_the_file() {
        assert_eq!(run_both(include_str!("configured.toml")).expect("welcome"), "Welcome to the arena");
    }

    #[test]
    fn the_documented_commands_match_the_file() {
        let settings: Settings = toml::from_str(include_str!("configured.toml")).expect("settings");
        let source = include_str!("configured.rs");
        let client = format!(
            "-- client 127.0.0.1:{} {}",
            settings.server.address.port(),
            settings.server.key.public()
        );
        assert!(source.lines().any(|line| line.ends_with(&client)), "{client}");
        assert!(source.contains("-- server examples/configured.toml"));
    }

    #[test]
    fn an_unknown_name_is_an_error_with_its_line() {
        let text = include_str!("configured.toml").replace("workers = ", "worker = ");
        let error = toml::from_str::<Settings>(&text).expect_err("unknown setting").to_string();
        assert!(error.contains("worker = \"auto\"") && error.contains("unknown field `worker`"), "{error}");
    }
}
