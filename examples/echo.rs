//! A server that answers every message with itself, a task for each connection, and a client that measures how long that
//! takes. Both ends are encrypted, and the two may be on two hosts.
//!
//! ```text
//! cargo run --release --example echo -- server 0.0.0.0:7777 drumfire_secret_XxwOerTSk4xuDxorPE1eb3CBkqO0xdbn-AkaKzxNXm8
//! cargo run --release --example echo -- client 127.0.0.1:7777 drumfire_public_9kDVg5jubJx_baXUFDIivl7kFU-tNlQLqsM11qonCkw
//! ```
//!
//! Between two hosts put the server's address in place of 127.0.0.1. The secret key above stands in this file for
//! everybody to read: leave it out, and the server draws one and prints the client's command. Without arguments
//! both ends run in one process.
#![forbid(unsafe_code)]

use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use drumfire::{
    Access, AsyncClient, AsyncServer, ChannelId, ClientConfig, Closed, Connection, Incoming, SendOptions,
    ServerConfig, ServerKey, ServerPublicKey, Workers,
};
use tokio::time::{sleep, timeout};

const CHANNEL: ChannelId = ChannelId(0);
/// What comes here is answered unreliably.
const LOSSY: ChannelId = ChannelId(1);
const MESSAGES: u32 = 200;
/// Between two messages of the client.
const PAUSE: Duration = Duration::from_millis(5);
/// The client gives up when an answer takes this long.
const PATIENCE: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["server", address] => serve(bind(address.parse()?, ServerKey::generate()?)?).await,
        ["server", address, secret] => serve(bind(address.parse()?, secret.parse()?)?).await,
        ["client", server, key] => show(&measure(server.parse()?, key.parse()?).await?),
        [] => show(&both(ServerKey::generate()?).await?),
        _ => return Err("say `server ADDRESS [SECRET KEY]` or `client ADDRESS PUBLIC KEY`".into()),
    }
    Ok(())
}

fn show(times: &[Duration]) {
    let (half, most) = (percentile(times, 50), percentile(times, 100));
    println!("{} answers, {half:?} at half of them, {most:?} at most", times.len());
}

/// Both ends in this process, on the loopback.
async fn both(key: ServerKey) -> Result<Vec<Duration>, Box<dyn Error>> {
    let public = key.public();
    let server = bind("127.0.0.1:0".parse()?, key)?;
    let address = server.local_addr();
    let server = tokio::spawn(serve(server));
    let times = measure(address, public).await;
    server.abort();
    times
}

fn bind(address: SocketAddr, key: ServerKey) -> Result<AsyncServer, Box<dyn Error>> {
    let public = key.public();
    let config = ServerConfig::new(address, key, Access::Open).workers(Workers::Auto);
    let server = AsyncServer::bind(config)?;
    let address = server.local_addr();
    println!("cargo run --release --example echo -- client {address} {public}");
    Ok(server)
}

/// Takes in everybody, until it is dropped.
async fn serve(server: AsyncServer) {
    while let Some(connection) = server.accept().await {
        println!("{} is here", connection.address());
        tokio::spawn(async move {
            let Closed { reason, .. } = answer(&connection).await;
            println!("a client left: {}", reason.name());
        });
    }
}

/// Answers until the connection is over. A client that does not take its answers holds up nobody else.
async fn answer(connection: &Connection) -> Closed {
    loop {
        match connection.recv().await {
            Ok(Incoming::Message { channel, bytes }) => {
                let options = if channel == LOSSY {
                    SendOptions::unreliable()
                } else {
                    SendOptions::reliable_ordered()
                };
                // What cannot be answered is over: the next `recv` says why.
                let _ = connection.send(channel, bytes, options).await;
            }
            Ok(_) => {}
            Err(closed) => return closed,
        }
    }
}

/// Sends one message after the other; answers how long each took there and back, sorted.
async fn measure(server: SocketAddr, key: ServerPublicKey) -> Result<Vec<Duration>, Box<dyn Error>> {
    let connection = AsyncClient::connect(server, key, &ClientConfig::default()).await?;
    let mut times = Vec::new();
    for number in 0..MESSAGES {
        let start = now();
        let message = number.to_be_bytes().to_vec();
        connection.send(CHANNEL, message, SendOptions::reliable_ordered()).await?;
        let answered = timeout(PATIENCE, heard(&connection, &number.to_be_bytes())).await;
        answered.map_err(|_| "the server does not answer any more")??;
        times.push(now() - start);
        sleep(PAUSE).await;
    }
    connection.close(0, "done")?;
    times.sort_unstable();
    Ok(times)
}

/// Waits for this answer.
async fn heard(connection: &Connection, answer: &[u8]) -> Result<(), Box<dyn Error>> {
    loop {
        if let Incoming::Message { bytes, .. } = connection.recv().await?
            && *bytes == *answer
        {
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

    /// The last words of the two commands in the head.
    fn keys() -> (ServerKey, ServerPublicKey) {
        let head = include_str!("echo.rs");
        let last_word = |of: &str| {
            let line = head.lines().find(|line| line.contains(of)).expect("a command");
            line.split_whitespace().last().expect("a word").to_owned()
        };
        let parts = (last_word("-- server 0.0.0.0"), last_word("-- client 127.0.0.1"));
        (parts.0.parse().expect("a secret key"), parts.1.parse().expect("a public key"))
    }

    #[tokio::test]
    async fn the_keys_of_the_head_belong_together_and_every_message_comes_back() {
        let (secret, public) = keys();
        assert_eq!(secret.public(), public);
        assert_eq!(both(secret).await.expect("answers").len(), MESSAGES as usize);
    }
}
