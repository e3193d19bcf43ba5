//! A hundred thousand attempts that stall after a step of the handshake, and players who connect at the same time.
//!
//! Builds that are not optimized divide the attempts, their sources, and the limits of the server by 32.

use crate::handshake::hello_server::{COOKIE, Hello, HelloServer, hello, source};
use crate::harness::{CLEAN, CLIENT, Random, SERVER, World, address, identity, server_config};
use drumfire_proto::{ClientConfig, Config, DropReason, Endpoint, Event, Inbound, Moment, Secret};
use drumfire_tries::tries;
use std::net::SocketAddr;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
/// The attempts of a full run that stall somewhere, and the time over which they are spread.
const ATTEMPTS: u32 = 100_000;
const SECONDS: u32 = 12;

/// The divisor of the attempts and of the server's limits. Smaller limits would leave no room for two sources.
fn part() -> u32 {
    (ATTEMPTS / tries(ATTEMPTS)).min(32)
}

/// Hellos of each hostile source: more than its limit of half-open connections.
const HELLOS: u32 = 20;

/// An honest player.
struct Player {
    client: Endpoint,
    at: SocketAddr,
    began_at: Moment,
    connected_at: Option<Moment>,
}

struct Simulation {
    harness: HelloServer,
    players: Vec<Player>,
    /// The number of Hellos of each hostile source.
    hellos: Vec<Vec<Hello>>,
    random: Random,
    half_open_max: usize,
}

impl Simulation {
    /// Creates the world with this many hostile sources.
    fn new(sources: u32) -> Self {
        let mut config = server_config();
        config.half_open = config.half_open.div_ceil(part());
        config.handshakes_per_second = config.handshakes_per_second.div_ceil(part());
        let harness = HelloServer::with_its_retries(config);
        let now = harness.now;
        let of = |number: u32| (0..HELLOS).map(|nth| hello(now, number * HELLOS + nth, None)).collect();
        let hellos = (0..sources).map(of).collect();
        Self { harness, players: Vec::new(), hellos, random: Random(sources.into()), half_open_max: 0 }
    }

    /// Makes another attempt, from any hostile source, that stalls before the cookie or after the Welcome.
    fn attempt(&mut self) {
        let number = self.random.below(self.hellos.len() as u64) as u32;
        let (nth, stops_early) = (self.random.below(HELLOS.into()) as usize, self.random.happens(30));
        let from = source(number);
        let mut hello = self.hellos[number as usize][nth];
        if let Some(retry) = self.deliver(from, &hello)
            && !stops_early
        {
            hello[COOKIE].copy_from_slice(&retry[9..41]);
            self.deliver(from, &hello);
        }
    }

    /// Passes a datagram to the server, and its responses to the players. Returns the responses to `from`.
    fn deliver(&mut self, from: SocketAddr, datagram: &[u8]) -> Option<Vec<u8>> {
        let (now, mut bytes, mut answer) = (self.harness.now, datagram.to_vec(), None);
        self.harness.server.handle_datagrams(now, [Inbound { from: from.into(), bytes: &mut bytes }]);
        let mut memory = [0; 1_200];
        while let Some(transmit) = self.harness.server.poll_transmit(now, &mut memory) {
            let bytes = &mut memory[..transmit.bytes];
            if let Some(player) = self.players.iter_mut().find(|player| player.at == transmit.to.peer) {
                player.client.handle_datagrams(now, [Inbound { from: address(SERVER).into(), bytes }]);
            } else if transmit.to.peer == from {
                answer = Some(bytes.to_vec());
            }
        }
        answer
    }

    fn add_player(&mut self) {
        let number = 0x00ff_0000 + self.players.len() as u32;
        let mut seed = [0x9a; 32];
        seed[..4].copy_from_slice(&number.to_be_bytes());
        let client = Endpoint::client(Config::default(), ClientConfig::default(), Secret::new(seed));
        let mut client = client.unwrap();
        client.connect(self.harness.now, address(SERVER), &identity(), None).unwrap();
        let began_at = self.harness.now.monotonic;
        self.players.push(Player { client, at: source(number), began_at, connected_at: None });
    }

    /// Runs a millisecond with this many attempts. Datagrams take no time.
    fn step(&mut self, attempts: u32) {
        self.harness.pass(MS);
        (0..attempts).for_each(|_| self.attempt());
        let now = self.harness.now;
        for number in 0..self.players.len() {
            let (at, mut memory) = (self.players[number].at, [0; 1_200]);
            self.players[number].client.handle_timeout(now);
            while let Some(transmit) = self.players[number].client.poll_transmit(now, &mut memory) {
                self.deliver(at, &memory[..transmit.bytes]);
            }
            let player = &mut self.players[number];
            while let Some(event) = player.client.poll_event() {
                match event {
                    Event::Connected { .. } => player.connected_at = Some(now.monotonic),
                    Event::ConnectFailed { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        while self.harness.server.poll_event().is_some() {}
        let open = self.players.iter().filter(|player| player.connected_at.is_some()).count();
        self.half_open_max =
            self.half_open_max.max(self.harness.server.connection_count().saturating_sub(open));
    }

    /// Makes all attempts, with a player each 700 ms.
    fn make_all_attempts(&mut self) {
        let (attempts, milliseconds) = (ATTEMPTS / part(), SECONDS * 1_000);
        for number in 0..milliseconds {
            if number % 700 == 0 {
                self.add_player();
            }
            self.step(attempts * (number + 1) / milliseconds - attempts * number / milliseconds);
        }
        assert_eq!(self.harness.server.stats().unexplained(), 0);
    }

    /// How long each player took; `None` for a player who is not connected.
    fn connect_times(&self) -> Vec<Option<Duration>> {
        let connect_times = |player: &Player| player.connected_at.map(|at| at.since(player.began_at));
        self.players.iter().map(connect_times).collect()
    }
}

/// The half-open connections of the server.
fn half_open() -> u32 {
    server_config().half_open.div_ceil(part())
}

/// The number of hostile sources that fill the server's half-open connections, except for one source's share.
fn sources() -> u32 {
    half_open() / u32::from(server_config().half_open_per_source) - 1
}

#[test]
fn stalled_clients_delay_no_player_by_two_seconds() {
    let mut simulation = Simulation::new(sources());
    simulation.make_all_attempts();
    // The last player has two seconds too.
    (0..2_000).for_each(|_| simulation.step(0));
    let connect_times = simulation.connect_times();
    println!("{} half-open connections at most; players took {connect_times:?}", simulation.half_open_max);
    assert!(simulation.half_open_max > half_open() as usize / 2, "{}", simulation.half_open_max);
    let is_in_time = |connect_times: &Option<Duration>| {
        connect_times.is_some_and(|connect_times| connect_times <= Duration::from_secs(2))
    };
    assert!(connect_times.iter().all(is_in_time), "{connect_times:?}");
    assert!(simulation.harness.computed_and(DropReason::SourceLimit).1 > 0);
}

#[test]
fn stalled_clients_from_many_sources_retain_no_memory() {
    let mut simulation = Simulation::new(8 * sources());
    simulation.make_all_attempts();
    let (_, rejected_count) = simulation.harness.computed_and(DropReason::HalfOpenLimit);
    let (connect_times, max) = (simulation.connect_times(), half_open() as usize);
    let in_time = connect_times.iter().flatten().count();
    println!(
        "{in_time} of {} players connected in time; {rejected_count} Hellos were refused",
        connect_times.len()
    );
    assert_eq!(simulation.half_open_max, max);
    assert!(rejected_count > 0);
    // Five seconds after the last attempt all is as before, and a new client connects.
    (0..5_000).for_each(|_| simulation.step(0));
    let open = simulation.connect_times().iter().flatten().count();
    assert_eq!(simulation.harness.server.connection_count(), open);
    simulation.add_player();
    simulation.step(0);
    assert!(simulation.connect_times().last().unwrap().is_some());
}

#[test]
fn a_half_open_connection_always_ends_after_five_seconds() {
    let mut world = World::new(1, CLEAN);
    world.connect();
    world.run(Duration::from_millis(45));
    let made_at = world.sent.iter().find(|(_, _, bytes)| bytes[0] == 0x8c).unwrap().0;
    let of_client = world.sent.iter().filter(|(_, end, _)| *end == CLIENT).map(|(_, _, bytes)| bytes);
    let recorded: Vec<Vec<u8>> = of_client.cloned().collect();
    let [_, hello, packets @ ..] = recorded.as_slice() else { panic!("{recorded:?}") };
    world.link.loss = 100;
    world.in_flight.clear();
    for _ in 0..490 {
        // The Hello is repeated, from its own address and from others, and so is the confirming packet with a bit
        // flipped.
        for from in [address(CLIENT), source(1)] {
            world.deliver(SERVER, from, hello);
            for packet in packets {
                let mut forged = packet.clone();
                let bit = world.random.below(8 * (packet.len() as u64 - 9)) as usize;
                forged[9 + bit / 8] ^= 1 << (bit % 8);
                world.deliver(SERVER, from, &forged);
            }
        }
        world.run(Duration::from_millis(10));
    }
    assert!(!packets.is_empty() && world.ends[SERVER].stats().dropped(DropReason::Forged) > 400);
    let gone_at = made_at.after(Duration::from_secs(5));
    world.run(gone_at.since(world.now) - Duration::from_nanos(1));
    assert_eq!(world.ends[SERVER].connection_count(), 1);
    world.run(Duration::from_nanos(1));
    assert_eq!((world.ends[SERVER].connection_count(), world.peers(SERVER).len()), (0, 0));
}
