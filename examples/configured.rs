//! A server that reads its settings from a TOML file, together with the game's own, and says what the system gave it.
//!
//! ```text
//! cargo run --release --example configured -- server examples/configured.toml
//! cargo run --release --example configured -- client 127.0.0.1:7780 drumfire_public_9kDVg5jubJx_baXUFDIivl7kFU-tNlQLqsM11qonCkw
//! ```
//!
//! The client gets the welcome that stands in the file, and leaves. Without arguments both ends run in one process.
#![forbid(unsafe_code)]

use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use drumfire::{
    ChannelId, Client, ClientConfig, ClientEvent, Event, SendOptions, Server, ServerConfig, ServerPublicKey,
};
use serde::Deserialize;

/// What the client has to have in its own settings.
const CLIENT: &str = "protocol_id = 7\nsilent_timeout = \"10s\"";

/// The whole file. Names that are not here are refused, so that a mistyped one does not go unnoticed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    welcome: String,
    server: ServerConfig,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["server", path] => {
            let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
            let settings: Settings = toml::from_str(&text).map_err(|error| format!("{path}: {error}"))?;
            serve(bind(settings.server)?, &settings.welcome, || false);
        }
        ["client", server, key] => println!("{}", welcome(server.parse()?, key.parse()?)?),
        [] => println!("{}", both(include_str!("configured.toml"))?),
        _ => return Err("say `server FILE` or `client ADDRESS PUBLIC KEY`".into()),
    }
    Ok(())
}

/// Both ends in this process, on the loopback; answers what the client was told.
fn both(text: &str) -> Result<String, Box<dyn Error>> {
    let mut settings: Settings = toml::from_str(text)?;
    settings.server.address = "127.0.0.1:0".parse()?;
    let key = settings.server.key.public();
    let server = bind(settings.server)?;
    let (address, is_done) = (server.local_addr(), AtomicBool::new(false));
    let told = std::thread::scope(|scope| {
        scope.spawn(|| serve(server, &settings.welcome, || is_done.load(Ordering::Acquire)));
        let told = welcome(address, key).map_err(|error| error.to_string());
        is_done.store(true, Ordering::Release);
        told
    });
    Ok(told?)
}

/// Starts the server and says what it was told and what it got.
fn bind(config: ServerConfig) -> Result<Server, Box<dyn Error>> {
    // Without its keys, so it may stand in a log.
    let (told, public) = (toml::to_string(&config)?, config.key.public());
    let server = Server::bind(config)?;
    println!("{told}");
    for (worker, granted) in server.granted().iter().enumerate() {
        println!("worker {worker}: {granted}");
    }
    println!("cargo run --release --example configured -- client {} {public}", server.local_addr());
    Ok(server)
}

/// Welcomes players until it is told to stop.
fn serve(mut server: Server, welcome: &str, should_stop: impl Fn() -> bool) {
    while !should_stop() {
        server.wait(Duration::from_millis(100));
        for event in server.poll() {
            if let Event::Connected { peer, .. } = event {
                // Who is gone again needs no welcome.
                let _ = server.send(peer, ChannelId(0), welcome.to_owned(), SendOptions::reliable_ordered());
            }
        }
        server.flush();
    }
}

/// What the server at this address says first.
fn welcome(server: SocketAddr, key: ServerPublicKey) -> Result<String, Box<dyn Error>> {
    let config: ClientConfig = toml::from_str(CLIENT)?;
    let mut client = Client::connect(server, key, &config)?;
    while client.wait(Duration::from_secs(10)) {
        for event in client.poll() {
            match event {
                ClientEvent::Message { bytes, .. } => return Ok(String::from_utf8(bytes.to_vec())?),
                ClientEvent::ConnectFailed { error } => return Err(error.into()),
                ClientEvent::Disconnected { reason, .. } => return Err(reason.name().into()),
                _ => {}
            }
        }
    }
    Err("the server says nothing".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_is_told_what_stands_in_the_file() {
        assert_eq!(both(include_str!("configured.toml")).expect("a welcome"), "Welcome to the arena");
    }

    #[test]
    fn the_commands_of_the_head_belong_to_the_file() {
        let settings: Settings = toml::from_str(include_str!("configured.toml")).expect("settings");
        let head = include_str!("configured.rs");
        let client = format!(
            "-- client 127.0.0.1:{} {}",
            settings.server.address.port(),
            settings.server.key.public()
        );
        assert!(head.lines().any(|line| line.ends_with(&client)), "{client}");
        assert!(head.contains("-- server examples/configured.toml"));
    }

    #[test]
    fn a_mistyped_name_is_refused_with_its_line() {
        let text = include_str!("configured.toml").replace("workers = ", "worker = ");
        let error = toml::from_str::<Settings>(&text).expect_err("no such setting").to_string();
        assert!(error.contains("worker = \"auto\"") && error.contains("unknown field `worker`"), "{error}");
    }
}
