//! An echo server with a task per connection, and a client that measures the round trip of each message.
//!
//! ```text
//! cargo run --release --example echo -- server 0.0.0.0:7777 drumfire_secret_XxwOerTSk4xuDxorPE1eb3CBkqO0xdbn-AkaKzxNXm8
//! cargo run --release --example echo -- client 127.0.0.1:7777 drumfire_public_9kDVg5jubJx_baXUFDIivl7kFU-tNlQLqsM11qonCkw
//! ```
//!
//! On two hosts, replace 127.0.0.1 by the server's address. The secret key above is public, so use it only for tests.
//! Without a key the server generates one and prints the client's command. Without arguments, the server and the client
//! run in one process.
#![forbid(unsafe_code)]

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use drumfire::asynchronous::Connection;
use drumfire::{
    Access, ChannelId, ClientConfig, Closed, Message, SendOptions, ServerConfig, ServerKey, ServerPublicKey,
    Workers, asynchronous,
};
use tokio::time::{sleep, timeout};

const CHANNEL: ChannelId = ChannelId(0);
/// The server echoes messages on this channel unreliably.
const UNRELIABLE_CHANNEL: ChannelId = ChannelId(1);
const MESSAGES: u32 = 200;
/// The client's pause between two messages.
const PAUSE: Duration = Duration::from_millis(5);
/// The client fails if an echo takes longer.
const ECHO_TIMEOUT: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["server", address] => serve(bind(address.parse()?, ServerKey::generate()?)?).await,
        ["server", address, secret] => serve(bind(address.parse()?, secret.parse()?)?).await,
        ["client", server, key] => print_round_trips(&measure(server.parse()?, key.parse()?).await?),
        [] => print_round_trips(&run_both(ServerKey::generate()?).await?),
        _ => return Err("usage: `server ADDRESS [SECRET_KEY]` or `client ADDRESS PUBLIC_KEY`".into()),
    }
    Ok(())
}

fn print_round_trips(sorted: &[Duration]) {
    let (median, longest) = (percentile(sorted, 50), percentile(sorted, 100));
    println!("{} echoes, median {median:?}, maximum {longest:?}", sorted.len());
}

/// Runs the server and the client in this process over loopback.
async fn run_both(key: ServerKey) -> Result<Vec<Duration>, Box<dyn Error>> {
    let public = key.public();
    let server = bind("127.0.0.1:0".parse()?, key)?;
    let address = server.local_addr();
    let server = tokio::spawn(serve(server));
    let round_trips = measure(address, public).await;
    server.abort();
    round_trips
}

fn bind(address: SocketAddr, key: ServerKey) -> Result<asynchronous::Server, Box<dyn Error>> {
    let public = key.public();
    let config = ServerConfig::new(address, key, Access::Open).workers(Workers::Auto);
    let server = asynchronous::Server::bind(config)?;
    let address = server.local_addr();
    println!("cargo run --release --example echo -- client {address} {public}");
    Ok(server)
}

/// Accepts connections until the server is dropped.
async fn serve(server: asynchronous::Server) {
    while let Some(connection) = server.accept().await {
        println!("{} connected", connection.info().address);
        tokio::spawn(async move {
            let Closed { reason, .. } = echo(&connection).await;
            println!("a client disconnected: {}", reason.name());
        });
    }
}

/// Echoes messages until the connection ends. A client that does not read its echoes blocks only its own task.
async fn echo(connection: &Connection) -> Closed {
    loop {
        match connection.recv().await {
            Ok((channel, payload)) => {
                let options = if channel == UNRELIABLE_CHANNEL {
                    SendOptions::unreliable()
                } else {
                    SendOptions::reliable_ordered()
                };
                // A send fails only if the connection ended. The next `recv` returns the reason.
                let _ = connection.send(Message::new(channel, payload, options)).await;
            }
            Err(closed) => return closed,
        }
    }
}

/// Sends messages one after the other and returns the sorted round-trip times.
async fn measure(server: SocketAddr, key: ServerPublicKey) -> Result<Vec<Duration>, Box<dyn Error>> {
    let client = asynchronous::Client::new(ClientConfig::default())?;
    let connection = client.connect((server, key)).await?;
    let mut round_trips = Vec::new();
    for number in 0..MESSAGES {
        let start = now();
        let message = number.to_be_bytes().to_vec();
        connection.send(Message::reliable_ordered(CHANNEL, message)).await?;
        let echoed = timeout(ECHO_TIMEOUT, receive(&connection, &number.to_be_bytes())).await;
        echoed.map_err(|_| "the server stopped echoing")??;
        round_trips.push(now() - start);
        sleep(PAUSE).await;
    }
    connection.close(0, "done");
    round_trips.sort_unstable();
    Ok(round_trips)
}

/// Waits for the echo of this message.
async fn receive(connection: &Connection, message: &[u8]) -> Result<(), Box<dyn Error>> {
    loop {
        let (_, payload) = connection.recv().await?;
        if *payload == *message {
            return Ok(());
        }
    }
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let last = sorted.len().saturating_sub(1);
    sorted.get(last * percent / 100).copied().unwrap_or_default()
}

#[expect(clippy::disallowed_methods, reason = "this is the example's only clock")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the keys of the two commands at the top of this file.
    fn keys() -> (ServerKey, ServerPublicKey) {
        let source = include_str!("echo.rs");
        let last_word = |command: &str| {
            let line = source.lines().find(|line| line.contains(command)).expect("command");
            line.split_whitespace().last().expect("word").to_owned()
        };
        let parts = (last_word("-- server 0.0.0.0"), last_word("-- client 127.0.0.1"));
        (parts.0.parse().expect("secret key"), parts.1.parse().expect("public key"))
    }

    #[tokio::test]
    async fn the_documented_keys_match_and_every_message_is_echoed() {
        let (secret, public) = keys();
        assert_eq!(secret.public(), public);
        assert_eq!(run_both(secret).await.expect("echoes").len(), MESSAGES as usize);
    }
}
