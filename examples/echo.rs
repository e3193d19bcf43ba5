//! A server that answers every message with itself, and a client that measures how long that takes. Both ends
//! are encrypted, and the two may be on two hosts.
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
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use drumfire::{
    Access, ChannelId, Client, ClientConfig, ClientEvent, Event, SendOptions, Server, ServerConfig,
    ServerKey, ServerPublicKey, Workers,
};

const CHANNEL: ChannelId = ChannelId(0);
/// What comes here is answered unreliably.
const LOSSY: ChannelId = ChannelId(1);
const MESSAGES: u32 = 200;
/// Between two messages of the client.
const PAUSE: Duration = Duration::from_millis(5);
/// The client gives up when an answer takes this long.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["server", address] => serve(bind(address.parse()?, ServerKey::generate()?)?, || false),
        ["server", address, secret] => serve(bind(address.parse()?, secret.parse()?)?, || false),
        ["client", server, key] => show(&measure(server.parse()?, key.parse()?)?),
        [] => show(&both(ServerKey::generate()?)?),
        _ => return Err("say `server ADDRESS [SECRET KEY]` or `client ADDRESS PUBLIC KEY`".into()),
    }
    Ok(())
}

fn show(times: &[Duration]) {
    let (half, most) = (percentile(times, 50), percentile(times, 100));
    println!("{} answers, {half:?} at half of them, {most:?} at most", times.len());
}

/// Both ends in this process, on the loopback.
fn both(key: ServerKey) -> Result<Vec<Duration>, Box<dyn Error>> {
    let public = key.public();
    let server = bind("127.0.0.1:0".parse()?, key)?;
    let (address, is_done) = (server.local_addr(), AtomicBool::new(false));
    let times = std::thread::scope(|scope| {
        scope.spawn(|| serve(server, || is_done.load(Ordering::Acquire)));
        let times = measure(address, public).map_err(|error| error.to_string());
        is_done.store(true, Ordering::Release);
        times
    });
    Ok(times?)
}

fn bind(address: SocketAddr, key: ServerKey) -> Result<Server, Box<dyn Error>> {
    let public = key.public();
    let server = Server::bind(ServerConfig::new(address, key, Access::Open).workers(Workers::Auto))?;
    let address = server.local_addr();
    println!("cargo run --release --example echo -- client {address} {public}");
    Ok(server)
}

/// Answers until it is told to stop.
fn serve(mut server: Server, should_stop: impl Fn() -> bool) {
    while !should_stop() {
        server.wait(Duration::from_millis(100));
        for event in server.poll() {
            match event {
                Event::Connected { address, .. } => println!("{address} is here"),
                Event::Message { peer, channel, bytes } => {
                    let options = if channel == LOSSY {
                        SendOptions::unreliable()
                    } else {
                        SendOptions::reliable_ordered()
                    };
                    // A client that does not take its answers gets fewer of them.
                    let _ = server.send(peer, channel, bytes, options);
                }
                Event::Disconnected { reason, .. } => println!("a client left: {}", reason.name()),
                _ => {}
            }
        }
        server.flush();
    }
}

/// Sends one message after the other; answers how long each took there and back, sorted.
fn measure(server: SocketAddr, key: ServerPublicKey) -> Result<Vec<Duration>, Box<dyn Error>> {
    let mut client = Client::connect(server, key, &ClientConfig::default())?;
    let mut times = Vec::new();
    for number in 0..MESSAGES {
        let start = now();
        client.send(CHANNEL, number.to_be_bytes().to_vec(), SendOptions::reliable_ordered())?;
        client.flush();
        while times.len() == number as usize {
            if !client.wait(PATIENCE.saturating_sub(now() - start)) {
                return Err("the server does not answer any more".into());
            }
            for event in client.poll() {
                match event {
                    ClientEvent::Message { bytes, .. } if *bytes == number.to_be_bytes() => {
                        times.push(now() - start);
                    }
                    ClientEvent::ConnectFailed { error } => return Err(error.into()),
                    ClientEvent::Disconnected { reason, .. } => return Err(reason.name().into()),
                    _ => {}
                }
            }
        }
        // It also takes care of the connection meanwhile.
        client.wait(PAUSE);
    }
    client.close(0, "done")?;
    client.poll();
    times.sort_unstable();
    Ok(times)
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

    #[test]
    fn the_keys_of_the_head_belong_together_and_every_message_comes_back() {
        let (secret, public) = keys();
        assert_eq!(secret.public(), public);
        assert_eq!(both(secret).expect("answers").len(), MESSAGES as usize);
    }
}
