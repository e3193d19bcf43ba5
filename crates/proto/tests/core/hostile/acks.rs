//! Clients that acknowledge packets they did not receive, to be sent more: how soon they are closed, and their gain.

use crate::harness::{Random, SERVER};
use crate::puppet::Puppet;
use drumfire_proto::{AckError, CloseReason, ProtocolError, SendOptions};
use drumfire_tries::tries;
use drumfire_wire::{AckDelay, AckRange, PacketNumber};
use std::collections::VecDeque;
use std::time::Duration;

/// The round trip to the server in milliseconds.
const TRIP: u64 = 50;
/// The percentage of lost packets from the server.
const LOSS: u64 = 5;
/// The time in milliseconds within which such a client is closed.
const LONGEST: u64 = 20_000;

/// The packets that a client acknowledges.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Client {
    /// The packets that arrived.
    Honest,
    /// All packets up to the newest that arrived, lost or not.
    FillsGaps,
    /// All packets sent so far, as if the path had no delay.
    KnowsPacketsInFlight,
    /// A few more than arrived, as if they were in flight.
    Guesses,
}

/// The amount of data that a game sends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Game {
    /// More than the path carries.
    Endless,
    /// A message each sixteen milliseconds.
    Steady,
}

impl Game {
    fn messages(self, at: u64) -> u64 {
        match self {
            Self::Endless => 4,
            Self::Steady => u64::from(at.is_multiple_of(16)),
        }
    }
}

/// The number of clients of each kind.
fn clients() -> u64 {
    tries(400).into()
}

/// A server with a running game, and the fate of its packets.
struct Path {
    puppet: Puppet,
    random: Random,
    /// The numbers that are not lost, by arrival time.
    in_flight: VecDeque<(u64, u64)>,
    /// Packets in flight, oldest first.
    arrived: Vec<(u64, u64)>,
    newest_sent: u64,
    packets: u64,
    /// The milliseconds that have passed.
    passes: u64,
}

impl Path {
    fn new(seed: u64) -> Self {
        Self {
            puppet: Puppet::connected(seed),
            random: Random(seed),
            in_flight: VecDeque::new(),
            arrived: Vec::new(),
            newest_sent: 0,
            packets: 0,
            passes: 0,
        }
    }

    /// Runs another millisecond, in which the server sends what it may.
    fn pass(&mut self, game: Game) {
        let at = self.passes;
        let world = &mut self.puppet.world;
        let peer = world.peers(SERVER)[0];
        world.now = world.now.after(Duration::from_millis(1));
        let now = world.now();
        world.ends[SERVER].handle_timeout(now);
        world.flush();
        for _ in 0..game.messages(at) {
            // Packets beyond the capacity are dropped here.
            let _ = world.send(SERVER, peer, 0, &[7; 1_000], SendOptions::unreliable());
            world.flush();
        }
        for (number, _) in self.puppet.take_packets() {
            self.packets += 1;
            self.newest_sent = number;
            if !self.random.happens(LOSS) {
                self.in_flight.push_back((at + TRIP, number));
            }
        }
        while let Some(&(_, number)) = self.in_flight.front().filter(|(due, _)| *due <= at) {
            self.in_flight.pop_front();
            match self.arrived.last_mut() {
                Some((_, last)) if *last + 1 == number => *last = number,
                _ => self.arrived.push((number, number)),
            }
        }
        self.passes += 1;
    }

    fn bytes(&self) -> u64 {
        self.puppet.world.ends[SERVER].stats().bytes_sent
    }

    fn acknowledge(&mut self, client: Client) {
        let Some(&(_, newest)) = self.arrived.last() else { return };
        let ranges = match client {
            Client::Honest => self.arrived.clone(),
            Client::FillsGaps => vec![(0, newest)],
            Client::KnowsPacketsInFlight => vec![(0, self.newest_sent)],
            Client::Guesses => vec![(0, newest + 3)],
        };
        let newest_first = ranges.into_iter().rev().take(64);
        let ranges =
            newest_first.map(|(from, to)| AckRange::new(PacketNumber(from), PacketNumber(to)).unwrap());
        let ranges: Vec<_> = ranges.collect();
        self.puppet
            .send_frames(|writer| writer.ack(AckDelay::from_duration(Duration::ZERO), ranges.into_iter()));
    }
}

/// Runs until the client is closed, or for this long.
fn run(seed: u64, client: Client, game: Game, longest: u64) -> Path {
    let mut path = Path::new(seed);
    while path.puppet.ending().is_none() && path.passes < longest {
        path.pass(game);
        if path.passes.is_multiple_of(5) {
            path.acknowledge(client);
        }
    }
    path
}

/// Returns the bytes that were sent to all clients of a kind until they were closed, and the bytes to honest clients in
/// the same time. The last number is the maximum number of packets to one client.
fn compare(client: Client, game: Game) -> (u64, u64, u64) {
    let (mut to_cheats, mut to_honest, mut max) = (0, 0, 0);
    for seed in 0..clients() {
        let cheat = run(seed, client, game, LONGEST);
        let reason = cheat.puppet.ending();
        let is_caught = matches!(reason, Some(CloseReason::Protocol(ProtocolError::Ack(_))));
        assert!(is_caught, "{client:?} of seed {seed}: {reason:?}");
        if client != Client::Guesses {
            let skipped = CloseReason::Protocol(ProtocolError::Ack(AckError::Skipped));
            assert_eq!(reason, Some(skipped), "{client:?} of seed {seed} knows what was sent");
        }
        let honest = run(seed, Client::Honest, game, cheat.passes);
        assert_eq!(honest.puppet.ending(), None);
        max = max.max(cheat.packets);
        to_cheats += cheat.bytes();
        to_honest += honest.bytes();
    }
    println!("{client:?}, {game:?}: {to_cheats} B, honest ones {to_honest} B, {max} packets at most");
    (to_cheats, to_honest, max)
}

#[test]
fn a_thousand_optimistic_ackers_are_closed_within_640_packets() {
    for (client, game) in [
        (Client::FillsGaps, Game::Endless),
        (Client::FillsGaps, Game::Steady),
        (Client::KnowsPacketsInFlight, Game::Steady),
        (Client::Guesses, Game::Endless),
    ] {
        let (to_cheats, to_honest, max) = compare(client, game);
        // At most 384 packets to the next skipped number, and what the path holds behind it.
        assert!(max <= 640, "{client:?}, {game:?}: {max} packets");
        assert!(to_cheats * 10 <= to_honest * 11, "{client:?}, {game:?}: {to_cheats} B for {to_honest} B");
    }
    // A client that knows an endless game in advance gets it sooner, and no more of it.
    let (.., max) = compare(Client::KnowsPacketsInFlight, Game::Endless);
    assert!(max <= 512, "{max} packets");
}
