//! A game world with 60 ticks per second. Players send inputs, and the server moves them and sends each player a
//! snapshot of all positions.
//!
//! ```text
//! cargo run --release --example tick_server -- server 0.0.0.0:7778 drumfire_secret_XxwOerTSk4xuDxorPE1eb3CBkqO0xdbn-AkaKzxNXm8
//! cargo run --release --example tick_server -- client 127.0.0.1:7778 drumfire_public_9kDVg5jubJx_baXUFDIivl7kFU-tNlQLqsM11qonCkw
//! ```
//!
//! On two hosts, replace 127.0.0.1 by the server's address. The secret key above is public, so use it only for tests.
//! Without a key the server generates one and prints the client's command. Without arguments, the server and a client
//! run in one process for three seconds.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use drumfire::{
    Access, ChannelId, Client, ClientConfig, Event, Message, PeerId, Server, ServerConfig, ServerKey,
    ServerPublicKey, Workers,
};

const TICK: Duration = Duration::from_nanos(1_000_000_000 / 60);
/// A newer input or snapshot replaces an older one, so lost ones are not resent.
const INPUTS: ChannelId = ChannelId(0);
const SNAPSHOTS: ChannelId = ChannelId(1);
/// The number of ticks that a client plays.
const PLAY_TICKS: u32 = 180;

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
        [] => println!("{:?}", run_both(PLAY_TICKS)?),
        ["server", address] => serve(address.parse()?, ServerKey::generate()?)?,
        ["server", address, secret] => serve(address.parse()?, secret.parse()?)?,
        ["client", server, key] => println!("{:?}", play(server.parse()?, key.parse()?, PLAY_TICKS)?),
        _ => {
            let usage = "usage: no arguments, `server ADDRESS [SECRET_KEY]`, or `client ADDRESS PUBLIC_KEY`";
            return Err(usage.into());
        }
    }
    Ok(())
}

/// Runs only the server.
fn serve(address: SocketAddr, key: ServerKey) -> Result<(), Box<dyn Error>> {
    let public = key.public();
    let mut world = World::bind(address, key)?;
    let address = world.server.local_addr();
    println!("cargo run --release --example tick_server -- client {address} {public}");
    run_ticks(u32::MAX, |tick, until| {
        world.tick(tick, until);
        true
    });
    Ok(())
}

/// Calls `tick` 60 times per second with its number and its end, until it returns false.
fn run_ticks(ticks: u32, mut tick: impl FnMut(u32, Instant) -> bool) {
    let start = now();
    // Each end is relative to the start, so that one late tick does not delay the following ones.
    let _ = (0..ticks).all(|number| tick(number, start + TICK * (number + 1)));
}

/// Runs the server and one client in one process.
fn run_both(ticks: u32) -> Result<Summary, Box<dyn Error>> {
    let mut world = World::bind("127.0.0.1:0".parse()?, ServerKey::dev())?;
    let address = world.server.local_addr();
    std::thread::scope(|scope| {
        let player = scope.spawn(move || {
            play(address, ServerKey::dev().public(), ticks).map_err(|error| error.to_string())
        });
        run_ticks(u32::MAX, |tick, until| {
            world.tick(tick, until);
            !player.is_finished()
        });
        player.join().map_err(|_| "the player panicked")?.map_err(Into::into)
    })
}

/// The server and the players.
struct World {
    server: Server,
    players: BTreeMap<PeerId, Player>,
}

#[derive(Default)]
struct Player {
    position: [i16; 2],
    direction: [i8; 2],
    newest_input: u32,
}

impl World {
    fn bind(address: SocketAddr, key: ServerKey) -> Result<Self, Box<dyn Error>> {
        let config = ServerConfig::new(address, key, Access::Open).workers(Workers::Auto);
        Ok(Self { server: Server::bind(config)?, players: BTreeMap::new() })
    }

    /// Receives inputs until the tick is over, moves all players, and sends snapshots.
    fn tick(&mut self, tick: u32, until: Instant) {
        loop {
            self.server.poll(Duration::ZERO);
            while let Some(event) = self.server.next_event() {
                self.on_event(event);
            }
            let left = until.saturating_duration_since(now());
            if left.is_zero() {
                break;
            }
            self.server.poll(left);
        }
        for player in self.players.values_mut() {
            let [x, y] = &mut player.position;
            let [dx, dy] = player.direction;
            (*x, *y) = (x.wrapping_add(dx.into()), y.wrapping_add(dy.into()));
        }
        let snapshot = self.snapshot(tick);
        for peer in self.players.keys() {
            // A player whose connection is full misses this snapshot and receives the next one.
            let _ = self.server.send(*peer, Message::unreliable(SNAPSHOTS, snapshot.clone()));
        }
        self.server.flush();
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Connected { peer, .. } => {
                self.players.insert(peer, Player::default());
            }
            Event::Message { peer, payload, .. } => {
                // Inputs may arrive out of order, and a modified client may send anything.
                if let (Some(player), Some(input)) = (self.players.get_mut(&peer), Input::decode(&payload))
                    && input.number > player.newest_input
                {
                    player.newest_input = input.number;
                    player.direction = input.direction.map(|step| step.clamp(-1, 1));
                }
            }
            Event::Disconnected { peer, .. } => {
                self.players.remove(&peer);
            }
            _ => {}
        }
    }

    /// Returns the tick and the positions of as many players as fit an unreliable message.
    fn snapshot(&self, tick: u32) -> Vec<u8> {
        let positions = self.players.values().flat_map(|player| player.position);
        let bytes = tick.to_be_bytes().into_iter().chain(positions.flat_map(i16::to_be_bytes));
        bytes.take(drumfire::config::MESSAGE_MAX_BYTES / 4 * 4).collect()
    }
}

/// The direction in which a player moves.
struct Input {
    number: u32,
    direction: [i8; 2],
}

impl Input {
    fn encode(&self) -> Vec<u8> {
        let [dx, dy] = self.direction.map(|step| step.to_be_bytes()[0]);
        [self.number.to_be_bytes().as_slice(), &[dx, dy]].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (number, direction) = bytes.split_first_chunk()?;
        let direction: [u8; 2] = direction.try_into().ok()?;
        Some(Self {
            number: u32::from_be_bytes(*number),
            direction: direction.map(|step| i8::from_be_bytes([step])),
        })
    }
}

/// The observations of a player.
#[derive(Debug, Default)]
struct Summary {
    snapshots: u32,
    newest_tick: u32,
    /// The position of the first player in the newest snapshot.
    position: [i16; 2],
}

/// Connects to the server and walks to the right.
fn play(server: SocketAddr, key: ServerPublicKey, ticks: u32) -> Result<Summary, Box<dyn Error>> {
    let mut client = Client::new(ClientConfig::default())?;
    let peer = client.connect((server, key))?;
    let mut summary = Summary::default();
    let mut failure = None;
    run_ticks(ticks, |number, until| {
        loop {
            client.poll(Duration::ZERO);
            while let Some(event) = client.next_event() {
                match event {
                    Event::Message { payload, .. } => summary.update(&payload),
                    Event::ConnectFailed { error, .. } => failure = Some(error.to_string()),
                    Event::Disconnected { closed, .. } => failure = Some(closed.reason.name().to_owned()),
                    _ => {}
                }
            }
            let left = until.saturating_duration_since(now());
            if left.is_zero() || failure.is_some() {
                break;
            }
            client.poll(left);
        }
        let input = Input { number: number + 1, direction: [1, 0] };
        // While the client connects, inputs wait. If there is no room for more, this one is dropped.
        let _ = client.send(peer, Message::unreliable(INPUTS, input.encode()));
        client.flush();
        failure.is_none()
    });
    failure.map_or(Ok(summary), |failure| Err(failure.into()))
}

impl Summary {
    fn update(&mut self, snapshot: &[u8]) {
        let Some((tick, positions)) = snapshot.split_first_chunk() else { return };
        let tick = u32::from_be_bytes(*tick);
        self.snapshots += 1;
        if tick < self.newest_tick {
            return;
        }
        self.newest_tick = tick;
        let mut numbers =
            positions.chunks_exact(2).filter_map(|two| two.try_into().ok()).map(i16::from_be_bytes);
        self.position = [numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)];
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the example's only clock")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_player_receives_snapshots_and_moves() {
        let summary = run_both(60).expect("summary");
        assert!(summary.snapshots > 0 && summary.position[0] > 0 && summary.position[1] == 0, "{summary:?}");
    }

    #[test]
    fn an_input_is_decoded_only_from_its_encoding() {
        let input = Input { number: 7, direction: [-1, 1] };
        let decoded = Input::decode(&input.encode()).expect("input");
        assert_eq!((decoded.number, decoded.direction), (7, [-1, 1]));
        for length in [0, 1, 5, 7] {
            assert!(Input::decode(&vec![0; length]).is_none());
        }
    }
}
