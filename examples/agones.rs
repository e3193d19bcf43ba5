//! A game server for a fleet of Agones: it says when it is ready, that it is well, that players have it, and, when all have left
//! or it is told to go, that it is done.
//!
//! ```text
//! cargo run --release --example agones -- server 0.0.0.0:7786 drumfire_secret_XxwOerTSk4xuDxorPE1eb3CBkqO0xdbn-AkaKzxNXm8
//! cargo run --release --example agones -- client 127.0.0.1:7786 drumfire_public_9kDVg5jubJx_baXUFDIivl7kFU-tNlQLqsM11qonCkw
//! ```
//!
//! In a fleet Agones sets `AGONES_SDK_HTTP_PORT` (9358), and the server speaks its SDK's REST interface there; an SDK that does not
//! answer within 30 s ends the server with one line, so that Kubernetes starts it anew. A server of a fleet plays one round; without
//! the variable it is a server like any other, and plays until it is told to go. `examples/agones/fleet.yaml` is the manifest, with what an image needs. Agones' own `sdk-server --local` is a
//! stand-in to try it with:
//!
//! ```text
//! AGONES_SDK_HTTP_PORT=9358 cargo run --release --example agones -- server 0.0.0.0:7786
//! ```
//!
//! The secret key above stands in this file for everybody to read: leave it out, and the server draws one and prints the
//! client's command. Without arguments both ends run in one process, without Agones.
#![forbid(unsafe_code)]

#[path = "agones/sdk.rs"]
mod sdk;
#[cfg(test)]
#[path = "agones/tests.rs"]
mod tests;

use std::collections::BTreeSet;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use drumfire::{
    Access, ChannelId, Client, ClientConfig, ClientEvent, ClientState, CloseCode, CloseReason, Event, PeerId,
    SendOptions, Server, ServerConfig, ServerKey, ServerPublicKey, Workers,
};
use sdk::{Keeper, Sdk};

const CHANNEL: ChannelId = ChannelId(0);
/// What the server says to everybody when it is told to go.
const GOING: &[u8] = b"the server goes: finish and leave";
const MESSAGES: u32 = 100;
const SERVER_WAIT: Duration = Duration::from_millis(50);
const CLIENT_WAIT: Duration = Duration::from_millis(10);

/// How long a round may go on after the server was told to go; below `terminationGracePeriodSeconds` of the manifest.
const DRAIN_TIME: Duration = Duration::from_secs(20);
/// How long what was said last may take to arrive.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Set by SIGTERM, which Kubernetes sends first, and by Ctrl-C.
static IS_TOLD_TO_GO: AtomicBool = AtomicBool::new(false);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [] => show()?,
        ["server", address] => serve(address.parse()?, ServerKey::generate()?)?,
        ["server", address, secret] => serve(address.parse()?, secret.parse()?)?,
        ["client", server, key] => {
            let played = play(server.parse()?, key.parse()?, |answers| answers < MESSAGES, true)?;
            println!("{played:?}");
        }
        _ => return Err("say nothing, `server ADDRESS [SECRET_KEY]` or `client ADDRESS PUBLIC_KEY`".into()),
    }
    Ok(())
}

/// One server of the fleet: bound first, so that nobody is sent to a port that is not there yet.
fn serve(address: SocketAddr, key: ServerKey) -> Result<(), Box<dyn Error>> {
    ctrlc::set_handler(|| IS_TOLD_TO_GO.store(true, Ordering::Release))?;
    let public = key.public();
    let round = Round::new(bind(address, key)?, DRAIN_TIME);
    println!("cargo run --release --example agones -- client {} {public}", round.server.local_addr());
    let sdk = Sdk::of_this_pod()?;
    if sdk.is_none() {
        println!("no Agones here ({} is not set): playing without", sdk::PORT_VARIABLE);
    }
    run(round, sdk, sdk::HEALTH_EVERY, &IS_TOLD_TO_GO)
}

fn bind(address: SocketAddr, key: ServerKey) -> Result<Server, Box<dyn Error>> {
    Ok(Server::bind(ServerConfig::new(address, key, Access::Open).workers(Workers::Auto))?)
}

/// From ready to shutdown.
fn run(
    mut round: Round,
    sdk: Option<Sdk>,
    health_every: Duration,
    is_told_to_go: &AtomicBool,
) -> Result<(), Box<dyn Error>> {
    let keeper = sdk.map(|sdk| Keeper::start(sdk, health_every)).transpose()?;
    while round.goes_on(keeper.is_some()) {
        round.tick(keeper.as_ref());
        if is_told_to_go.load(Ordering::Acquire) {
            round.drain();
        }
    }
    println!("{} players came; the round is over", round.players_in_all);
    let undelivered = round.server.shut_down(LAST_WORDS);
    if !undelivered.is_empty() {
        println!("{} players did not hear the last words", undelivered.len());
    }
    // Last of all: from here on Agones may end this pod.
    keeper.map_or(Ok(()), Keeper::shut_down)
}

/// A round, which is over when all who came have left.
struct Round {
    server: Server,
    players: BTreeSet<PeerId>,
    players_in_all: u32,
    /// Agones was asked to leave the server to its players.
    has_asked: bool,
    drain_time: Duration,
    /// When those who are still there are closed, once the server was told to go.
    ends_at: Option<Instant>,
}

impl Round {
    fn new(server: Server, drain_time: Duration) -> Self {
        Self {
            server,
            players: BTreeSet::new(),
            players_in_all: 0,
            has_asked: false,
            drain_time,
            ends_at: None,
        }
    }

    /// In a fleet one round is all: the next one has a new server.
    fn goes_on(&self, is_in_fleet: bool) -> bool {
        match self.ends_at {
            Some(ends_at) => !self.players.is_empty() && now() < ends_at,
            None => !is_in_fleet || !self.players.is_empty() || self.players_in_all == 0,
        }
    }

    fn tick(&mut self, keeper: Option<&Keeper>) {
        self.server.wait(SERVER_WAIT);
        for event in self.server.poll() {
            match event {
                Event::Connected { peer, .. } => {
                    self.players.insert(peer);
                    self.players_in_all += 1;
                }
                Event::Disconnected { peer, .. } => {
                    self.players.remove(&peer);
                }
                Event::Message { peer, channel, bytes } => {
                    // Who does not take its answers gets no more of them.
                    let _ = self.server.send(peer, channel, bytes, SendOptions::reliable_ordered());
                }
                _ => {}
            }
        }
        self.server.flush();
        if let Some(keeper) = keeper {
            keeper.on_tick();
            // However players found it: a server that has some is not to be taken when the fleet shrinks.
            if self.players_in_all > 0 && !self.has_asked && !keeper.is_allocated() {
                self.has_asked = true;
                keeper.allocate();
            }
        }
    }

    /// Takes nobody new, tells everybody, and gives them time to finish.
    fn drain(&mut self) {
        if self.ends_at.is_some() {
            return;
        }
        self.ends_at = Some(now() + self.drain_time);
        self.server.gate().close(None);
        println!("told to go: {} players have {} s", self.players.len(), self.drain_time.as_secs());
        for peer in &self.players {
            // Who has no room for it is closed at the deadline.
            let _ = self.server.send(*peer, CHANNEL, GOING, SendOptions::reliable_ordered());
        }
        self.server.flush();
    }
}

/// What became of a player.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Played {
    /// It went when it had enough, or was told that the server goes.
    Left { answers: u32 },
    /// It stayed until the server closed.
    WasClosed,
}

/// The client's side: one message after the other while it wants more, being told how many were answered, and until it is told that
/// the server goes, if it heeds that.
fn play(
    server: SocketAddr,
    key: ServerPublicKey,
    wants_more: impl Fn(u32) -> bool,
    heeds: bool,
) -> Result<Played, Box<dyn Error>> {
    let mut client = Client::connect(server, key, &ClientConfig::default())?;
    let (mut answers, mut is_told) = (0, false);
    client.send(CHANNEL, "hello", SendOptions::reliable_ordered())?;
    while !(is_told && heeds) && wants_more(answers) {
        client.wait(CLIENT_WAIT);
        let mut is_answered = false;
        for event in client.poll() {
            match event {
                ClientEvent::Message { bytes, .. } if bytes == GOING => is_told = true,
                ClientEvent::Message { .. } => is_answered = true,
                ClientEvent::ConnectFailed { error } => return Err(error.into()),
                ClientEvent::Disconnected {
                    reason: CloseReason::Remote { code: CloseCode::Shutdown, .. },
                    ..
                } => return Ok(Played::WasClosed),
                ClientEvent::Disconnected { reason, .. } => return Err(reason.name().into()),
                _ => {}
            }
        }
        if is_answered {
            answers += 1;
            client.send(CHANNEL, "and again", SendOptions::reliable_ordered())?;
            client.flush();
        }
    }
    client.close(0, "enough")?;
    while client.state() != ClientState::Closed {
        client.wait(CLIENT_WAIT);
        client.poll().count();
    }
    Ok(Played::Left { answers })
}

/// Both ends in one process, without Agones.
fn show() -> Result<(), Box<dyn Error>> {
    let round = Round::new(bind("127.0.0.1:0".parse()?, ServerKey::dev())?, DRAIN_TIME);
    let address = round.server.local_addr();
    let player = std::thread::spawn(move || {
        let played = play(address, ServerKey::dev().public(), |answers| answers < MESSAGES, true);
        IS_TOLD_TO_GO.store(true, Ordering::Release);
        played.map_err(|error| error.to_string())
    });
    run(round, None, sdk::HEALTH_EVERY, &IS_TOLD_TO_GO)?;
    println!("{:?}", player.join().map_err(|_| "the player panicked")??);
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "this is the example's only clock")]
fn now() -> Instant {
    Instant::now()
}
