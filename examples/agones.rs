//! A game server for an Agones fleet. It reports to Agones that it is ready, that it is healthy, that it has players,
//! and, when all players have left or it receives SIGTERM, that it is done.
//!
//! ```text
//! cargo run --release --example agones -- server 0.0.0.0:7786 drumfire_secret_XxwOerTSk4xuDxorPE1eb3CBkqO0xdbn-AkaKzxNXm8
//! cargo run --release --example agones -- client 127.0.0.1:7786 drumfire_public_9kDVg5jubJx_baXUFDIivl7kFU-tNlQLqsM11qonCkw
//! ```
//!
//! In a fleet, Agones sets `AGONES_SDK_HTTP_PORT`, and the server uses the REST interface of its SDK there. If the SDK
//! does not answer for 30 seconds, the server exits with an error, so that Kubernetes restarts it. A server in a fleet
//! plays one round. Without the variable, the server runs until SIGTERM or Ctrl-C. `examples/agones/fleet.yaml` is the
//! manifest and describes the image. To try the server without a cluster, use `sdk-server --local` of Agones:
//!
//! ```text
//! AGONES_SDK_HTTP_PORT=9358 cargo run --release --example agones -- server 0.0.0.0:7786
//! sh examples/agones/round.sh   # starts `sdk-server`, plays a round, and checks that no call was refused
//! ```
//!
//! The secret key above is public, so use it only for tests. Without a key the server generates one and prints the
//! client's command. Without arguments, the server and a client run in one process, without Agones.
#![forbid(unsafe_code)]

#[path = "agones/sdk.rs"]
mod sdk;
#[cfg(test)]
#[path = "agones/tests.rs"]
mod tests;

use std::collections::BTreeSet;
use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use drumfire::control::Undelivered;
use drumfire::error::CloseCode;
use drumfire::{
    Access, ChannelId, Client, ClientConfig, CloseReason, Event, Message, PeerId, Server, ServerConfig,
    ServerKey, ServerPublicKey, Workers,
};
use sdk::{AgonesReporter, Sdk};

const CHANNEL: ChannelId = ChannelId(0);
/// The server sends this message to all players when it has to stop.
const STOPPING: &[u8] = b"the server stops: finish and leave";
const MESSAGES: u32 = 100;
const SERVER_WAIT: Duration = Duration::from_millis(50);
const CLIENT_WAIT: Duration = Duration::from_millis(10);

/// How long a round may continue after SIGTERM. It is shorter than `terminationGracePeriodSeconds` in the manifest.
const DRAIN_TIME: Duration = Duration::from_secs(20);
/// How long the last messages may take to arrive.
const SHUTDOWN_TIME: Duration = Duration::from_secs(2);

/// Set by SIGTERM, which Kubernetes sends first, and by Ctrl-C.
static SHOULD_STOP: AtomicBool = AtomicBool::new(false);

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
        [] => run_both()?,
        ["server", address] => serve(address.parse()?, ServerKey::generate()?)?,
        ["server", address, secret] => serve(address.parse()?, secret.parse()?)?,
        ["client", server, key] => {
            let outcome = play(server.parse()?, key.parse()?, |echoes| echoes < MESSAGES, true)?;
            println!("{outcome:?}");
        }
        _ => {
            let usage = "usage: no arguments, `server ADDRESS [SECRET_KEY]`, or `client ADDRESS PUBLIC_KEY`";
            return Err(usage.into());
        }
    }
    Ok(())
}

/// Runs a server of the fleet. It is bound before it reports that it is ready, so that its port is open when players
/// come.
fn serve(address: SocketAddr, key: ServerKey) -> Result<(), Box<dyn Error>> {
    ctrlc::set_handler(|| SHOULD_STOP.store(true, Ordering::Release))?;
    let public = key.public();
    let round = Round::new(bind(address, key)?, DRAIN_TIME);
    println!("cargo run --release --example agones -- client {} {public}", round.server.local_addr());
    let sdk = Sdk::from_env()?;
    if sdk.is_none() {
        println!("{} is not set: running without Agones", sdk::PORT_VARIABLE);
    }
    run_round(round, sdk, sdk::HEALTH_PERIOD, &SHOULD_STOP)
}

fn bind(address: SocketAddr, key: ServerKey) -> Result<Server, Box<dyn Error>> {
    // All pods of a fleet share the key and the port, so the name of the pod is what tells their servers apart.
    let server_id = std::env::var("HOSTNAME").unwrap_or_default();
    let config = ServerConfig::new(address, key, Access::Open).server_id(server_id);
    Ok(Server::bind(config.workers(Workers::Auto))?)
}

/// Runs a round, and reports its state to Agones.
fn run_round(
    mut round: Round,
    sdk: Option<Sdk>,
    health_period: Duration,
    should_stop: &AtomicBool,
) -> Result<(), Box<dyn Error>> {
    let reporter = sdk.map(|sdk| AgonesReporter::start(sdk, health_period)).transpose()?;
    while round.is_running(reporter.is_some()) {
        round.tick(reporter.as_ref());
        if should_stop.load(Ordering::Acquire) {
            round.drain();
        }
    }
    println!("{} players came; the round is over", round.total_players);
    let undelivered = round.shut_down();
    if !undelivered.is_empty() {
        println!("{} players did not acknowledge the last messages", undelivered.len());
    }
    // This is the last step, because Agones may stop the pod after it.
    reporter.map_or(Ok(()), AgonesReporter::shut_down)
}

/// A round. It is over when all players have left.
struct Round {
    server: Server,
    players: BTreeSet<PeerId>,
    total_players: u32,
    has_requested_allocation: bool,
    drain_time: Duration,
    /// When the connections of the remaining players are closed. It is set when the round is drained.
    ends_at: Option<Instant>,
}

impl Round {
    fn new(server: Server, drain_time: Duration) -> Self {
        Self {
            server,
            players: BTreeSet::new(),
            total_players: 0,
            has_requested_allocation: false,
            drain_time,
            ends_at: None,
        }
    }

    /// Returns whether the round continues. A server in a fleet plays one round, because Agones starts a new server for
    /// the next.
    fn is_running(&self, is_in_fleet: bool) -> bool {
        match self.ends_at {
            Some(ends_at) => !self.players.is_empty() && now() < ends_at,
            None => !is_in_fleet || !self.players.is_empty() || self.total_players == 0,
        }
    }

    fn tick(&mut self, reporter: Option<&AgonesReporter>) {
        self.server.poll(SERVER_WAIT);
        while let Some(event) = self.server.next_event() {
            match event {
                Event::Connected { peer, .. } => {
                    self.players.insert(peer);
                    self.total_players += 1;
                }
                Event::Disconnected { peer, .. } => {
                    self.players.remove(&peer);
                }
                Event::Message { peer, channel, payload } => {
                    // A client that does not read its echoes receives no more of them.
                    let _ = self.server.send(peer, Message::reliable_ordered(channel, payload));
                }
                _ => {}
            }
        }
        self.server.flush();
        if let Some(reporter) = reporter {
            reporter.on_tick();
            // A matchmaker may have allocated the server already. Otherwise the server does it itself, because Agones
            // may remove servers that are not allocated.
            if self.total_players > 0 && !self.has_requested_allocation && !reporter.is_allocated() {
                self.has_requested_allocation = true;
                reporter.allocate();
            }
        }
    }

    /// Closes all connections. Returns the players that did not acknowledge everything.
    fn shut_down(&mut self) -> Vec<Undelivered> {
        let mut shutdown = self.server.control().shut_down(SHUTDOWN_TIME);
        loop {
            self.server.poll(SERVER_WAIT);
            self.server.events().for_each(drop);
            if let Some(undelivered) = shutdown.try_take() {
                return undelivered;
            }
        }
    }

    /// Refuses new players, notifies the others, and gives them time to finish.
    fn drain(&mut self) {
        if self.ends_at.is_some() {
            return;
        }
        self.ends_at = Some(now() + self.drain_time);
        self.server.control().close_gate(None);
        println!("stopping: {} players have {} s to finish", self.players.len(), self.drain_time.as_secs());
        for peer in &self.players {
            // A player whose connection is full does not receive the message, and is closed at the deadline.
            let _ = self.server.send(*peer, Message::reliable_ordered(CHANNEL, STOPPING));
        }
        self.server.flush();
    }
}

/// How a client ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It left after enough messages, or because the server stops.
    Left { echoes: u32 },
    /// The server closed its connection.
    Closed,
}

/// Runs a client that sends one message after the other.
///
/// It leaves when `wants_more` returns false for the number of echoes, or, with `leaves_on_stop`, when the server
/// stops.
fn play(
    server: SocketAddr,
    key: ServerPublicKey,
    wants_more: impl Fn(u32) -> bool,
    leaves_on_stop: bool,
) -> Result<Outcome, Box<dyn Error>> {
    let mut client = Client::new(ClientConfig::default())?;
    let peer = client.connect((server, key))?;
    let (mut echoes, mut is_stopping) = (0, false);
    client.send(peer, Message::reliable_ordered(CHANNEL, "hello"))?;
    while !(is_stopping && leaves_on_stop) && wants_more(echoes) {
        client.poll(CLIENT_WAIT);
        let mut is_echoed = false;
        while let Some(event) = client.next_event() {
            match event {
                Event::Message { payload, .. } if payload == STOPPING => is_stopping = true,
                Event::Message { .. } => is_echoed = true,
                Event::ConnectFailed { error, .. } => return Err(error.into()),
                Event::Disconnected { closed, .. } => {
                    return match closed.reason {
                        CloseReason::Remote { code: CloseCode::Shutdown, .. } => Ok(Outcome::Closed),
                        _ => Err(closed.into()),
                    };
                }
                _ => {}
            }
        }
        if is_echoed {
            echoes += 1;
            client.send(peer, Message::reliable_ordered(CHANNEL, "again"))?;
            client.flush();
        }
    }
    client.close(peer, 0, "done");
    while client.peers().len() > 0 {
        client.poll(CLIENT_WAIT);
        client.events().count();
    }
    Ok(Outcome::Left { echoes })
}

/// Runs the server and a client in one process, without Agones.
fn run_both() -> Result<(), Box<dyn Error>> {
    let round = Round::new(bind("127.0.0.1:0".parse()?, ServerKey::dev())?, DRAIN_TIME);
    let address = round.server.local_addr();
    let client = std::thread::spawn(move || {
        let outcome = play(address, ServerKey::dev().public(), |echoes| echoes < MESSAGES, true);
        SHOULD_STOP.store(true, Ordering::Release);
        outcome.map_err(|error| error.to_string())
    });
    run_round(round, None, sdk::HEALTH_PERIOD, &SHOULD_STOP)?;
    println!("{:?}", client.join().map_err(|_| "the client panicked")??);
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "this is the example's only clock")]
fn now() -> Instant {
    Instant::now()
}
