//! Clients that stop after each step of a handshake, a hundred thousand times, and players who want in meanwhile.
//!
//! Other builds than optimized ones take a thirty-second part of everything: of the attempts, of those who make them, and of
//! what the server may do.

use crate::door_hellos::{COOKIE, Door, Hello, hello, source};
use crate::harness::{CLEAN, CLIENT, Random, SERVER, World, address, identity, server_config};
use drumfire_proto::{ClientConfig, Config, DropReason, Endpoint, Event, Inbound, Moment, Secret};
use drumfire_tries::tries;
use std::net::SocketAddr;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
/// Attempts that stop somewhere in a full run, and the time over which they are spread.
const ATTEMPTS: u32 = 100_000;
const SECONDS: u32 = 12;

/// The divisor of the attempts and of the server's limits. A server with smaller limits has no place for two sources.
fn part() -> u32 {
    (ATTEMPTS / tries(ATTEMPTS)).min(32)
}

/// Hellos of each hostile source: more than it may have half-open.
const HELLOS: u32 = 20;

/// Somebody who goes all the way.
struct Player {
    client: Endpoint,
    at: SocketAddr,
    began_at: Moment,
    connected_at: Option<Moment>,
}

struct Street {
    door: Door,
    players: Vec<Player>,
    /// Of each hostile source.
    hellos: Vec<Vec<Hello>>,
    random: Random,
    half_open_most: usize,
}

impl Street {
    /// With so many hostile sources.
    fn new(sources: u32) -> Self {
        let mut config = server_config();
        config.half_open = config.half_open.div_ceil(part());
        config.handshakes_per_second = config.handshakes_per_second.div_ceil(part());
        let door = Door::with_its_retries(config);
        let now = door.now;
        let of = |number: u32| (0..HELLOS).map(|nth| hello(now, number * HELLOS + nth, None)).collect();
        let hellos = (0..sources).map(of).collect();
        Self { door, players: Vec::new(), hellos, random: Random(sources.into()), half_open_most: 0 }
    }

    /// One more attempt, from any hostile source, that stops before the cookie or after the Welcome.
    fn attempt(&mut self) {
        let number = self.random.below(self.hellos.len() as u64) as u32;
        let (nth, stops_early) = (self.random.below(HELLOS.into()) as usize, self.random.happens(30));
        let from = source(number);
        let mut hello = self.hellos[number as usize][nth];
        if let Some(retry) = self.hand(from, &hello)
            && !stops_early
        {
            hello[COOKIE].copy_from_slice(&retry[9..41]);
            self.hand(from, &hello);
        }
    }

    /// Hands in a datagram, and everything that is sent to players to them; gives what is sent to `from`.
    fn hand(&mut self, from: SocketAddr, datagram: &[u8]) -> Option<Vec<u8>> {
        let (now, mut bytes, mut answer) = (self.door.now, datagram.to_vec(), None);
        self.door.server.handle_datagrams(now, [Inbound { from: from.into(), bytes: &mut bytes }]);
        let mut memory = [0; 1_200];
        while let Some(transmit) = self.door.server.poll_transmit(now, &mut memory) {
            let bytes = &mut memory[..transmit.bytes];
            if let Some(player) = self.players.iter_mut().find(|player| player.at == transmit.to.peer) {
                player.client.handle_datagrams(now, [Inbound { from: address(SERVER).into(), bytes }]);
            } else if transmit.to.peer == from {
                answer = Some(bytes.to_vec());
            }
        }
        answer
    }

    fn player_comes(&mut self) {
        let number = 0x00ff_0000 + self.players.len() as u32;
        let mut seed = [0x9a; 32];
        seed[..4].copy_from_slice(&number.to_be_bytes());
        let client = Endpoint::client(Config::default(), ClientConfig::default(), Secret::new(seed));
        let mut client = client.unwrap();
        client.connect(self.door.now, address(SERVER), &identity(), None).unwrap();
        let began_at = self.door.now.monotonic;
        self.players.push(Player { client, at: source(number), began_at, connected_at: None });
    }

    /// A millisecond, with so many attempts in it; datagrams take no time.
    fn step(&mut self, attempts: u32) {
        self.door.pass(MS);
        (0..attempts).for_each(|_| self.attempt());
        let now = self.door.now;
        for number in 0..self.players.len() {
            let (at, mut memory) = (self.players[number].at, [0; 1_200]);
            self.players[number].client.handle_timeout(now);
            while let Some(transmit) = self.players[number].client.poll_transmit(now, &mut memory) {
                self.hand(at, &memory[..transmit.bytes]);
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
        while self.door.server.poll_event().is_some() {}
        let open = self.players.iter().filter(|player| player.connected_at.is_some()).count();
        self.half_open_most =
            self.half_open_most.max(self.door.server.connection_count().saturating_sub(open));
    }

    /// All attempts, and a player each 700 ms.
    fn attack(&mut self) {
        let (attempts, milliseconds) = (ATTEMPTS / part(), SECONDS * 1_000);
        for number in 0..milliseconds {
            if number % 700 == 0 {
                self.player_comes();
            }
            self.step(attempts * (number + 1) / milliseconds - attempts * number / milliseconds);
        }
        assert_eq!(self.door.server.stats().unexplained(), 0);
    }

    /// How long each player took; `None` who is still outside.
    fn took(&self) -> Vec<Option<Duration>> {
        let took = |player: &Player| player.connected_at.map(|at| at.since(player.began_at));
        self.players.iter().map(took).collect()
    }
}

/// Half-open connections of the server.
fn half_open() -> u32 {
    server_config().half_open.div_ceil(part())
}

/// As many hostile sources as fill the server's half-open connections all but for one source's.
fn sources() -> u32 {
    half_open() / u32::from(server_config().half_open_per_source) - 1
}

#[test]
fn clients_that_stop_after_each_step_keep_nobody_waiting_for_two_seconds() {
    let mut street = Street::new(sources());
    street.attack();
    // The last of them has its two seconds too.
    (0..2_000).for_each(|_| street.step(0));
    let took = street.took();
    println!("{} half-open connections at most; players took {took:?}", street.half_open_most);
    assert!(street.half_open_most > half_open() as usize / 2, "{}", street.half_open_most);
    let is_in_time = |took: &Option<Duration>| took.is_some_and(|took| took <= Duration::from_secs(2));
    assert!(took.iter().all(is_in_time), "{took:?}");
    assert!(street.door.computed_and(DropReason::SourceLimit).1 > 0);
}

#[test]
fn clients_from_everywhere_that_stop_after_each_step_fill_the_door_and_leave_nothing_behind() {
    let mut street = Street::new(8 * sources());
    street.attack();
    let (_, turned_away) = street.door.computed_and(DropReason::HalfOpenLimit);
    let (took, most) = (street.took(), half_open() as usize);
    let in_time = took.iter().flatten().count();
    println!("{in_time} of {} players came in meanwhile; {turned_away} Hellos were turned away", took.len());
    assert_eq!(street.half_open_most, most);
    assert!(turned_away > 0);
    // Five seconds after the last attempt all is as it was, and who comes is in.
    (0..5_000).for_each(|_| street.step(0));
    let open = street.took().iter().flatten().count();
    assert_eq!(street.door.server.connection_count(), open);
    street.player_comes();
    street.step(0);
    assert!(street.took().last().unwrap().is_some());
}

#[test]
fn a_half_open_connection_ends_after_five_seconds_whatever_arrives() {
    let mut world = World::new(1, CLEAN);
    world.connect();
    world.run(Duration::from_millis(45));
    let made_at = world.sent.iter().find(|(_, _, bytes)| bytes[0] == 0x8c).unwrap().0;
    let of_client = world.sent.iter().filter(|(_, end, _)| *end == CLIENT).map(|(_, _, bytes)| bytes);
    let recorded: Vec<Vec<u8>> = of_client.cloned().collect();
    let [_, hello, packets @ ..] = recorded.as_slice() else { panic!("{recorded:?}") };
    world.link.loss = 100;
    world.flying.clear();
    for _ in 0..490 {
        // The Hello comes again, from where it came and from elsewhere, and what would end the wait but for a bit.
        for from in [address(CLIENT), source(1)] {
            world.hand(SERVER, from, hello);
            for packet in packets {
                let mut forged = packet.clone();
                let bit = world.random.below(8 * (packet.len() as u64 - 9)) as usize;
                forged[9 + bit / 8] ^= 1 << (bit % 8);
                world.hand(SERVER, from, &forged);
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
