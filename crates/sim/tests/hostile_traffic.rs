//! The production worker under random hostile traffic, in virtual time. It stays within its memory, an honest client notices nothing,
//! and one source causes only a limited number of questions to the application.
//!
//! The core has the same test with more seeds and more checks. `HOSTILE_SEEDS=N` runs the first N seeds, and `HOSTILE_SEEDS=A..B` those
//! from A up to B.

use drumfire_tries::tries;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use allocation_counter::measure;
use drumfire::conditioner::{Delay, LinkConfig};
use drumfire::testing::{self, World};
use drumfire::{
    ChannelId, ClientConfig, ClientEvent, ClientState, Event, PeerId, RefuseReason, SendOptions, Verdict,
};
use drumfire_puppet::{Connection, DrawnFrame, Handshake, HelloFlood, Random, Sender, Swarm};

/// The full number of seeds.
const SEEDS: u32 = 2_000;

/// The delay between the honest client and the server, in each direction.
const DELAY: Duration = Duration::from_millis(10);

/// Hostile packets of a seed, and those with one swarm.
const PACKETS: u64 = 1_200;
const PHASE_PACKETS: u64 = 300;

/// Between two swarms, so that the worker forgets the connection before.
const PAUSE: Duration = Duration::from_secs(2);

/// Hostile packets between two messages of the honest client, and its messages that the application has not polled, at most.
const HONEST_EVERY: u64 = 8;
const HONEST_AHEAD_MAX: u64 = 64;

/// The memory of a connection, for sending and for receiving.
const MEMORY_BYTES: usize = 64 * 1_024;

/// The memory of the hostile client's connection, and of the honest one's. It includes the worker's part, the queue to the application,
/// a tenth more, and pieces that messages share.
const CONNECTION_BYTES: i64 = 3 * 64 * 1_024 * 11 / 10 + 5 * 64 * 1_024;
const HONEST_BYTES: i64 = 192 * 1_024;

/// Memory of the queue between the worker and the application: 16,384 reports of all clients together.
const REPORTS_BYTES: i64 = 16_384 * 128;

/// Handshakes that a source may begin in open access: per second, and in a burst.
const SOURCE_HANDSHAKES: u64 = 20;

fn seeds() -> Range<u64> {
    let Ok(asked) = std::env::var("HOSTILE_SEEDS") else { return 0..tries(SEEDS).into() };
    let parse = |number: &str| number.parse().unwrap_or_else(|_| panic!("HOSTILE_SEEDS={asked}: N or A..B"));
    match asked.split_once("..") {
        Some((from, to)) => parse(from)..parse(to),
        None => 0..parse(&asked),
    }
}

/// A server of one worker with an honest client, and what the world holds.
struct Stage {
    world: World,
    held_bytes: i64,
    honest: Option<PeerId>,
    /// When each message left, to the server and to the client, and how many came.
    sent: [Vec<Duration>; 2],
    received: [usize; 2],
    /// The longest that two looks at the honest client are apart.
    look_every: Duration,
    asked: Arc<AtomicU64>,
}

impl Stage {
    /// Opens the server, whose application refuses one source and counts the questions, and connects the honest client.
    fn open(seed: u64, refused: SocketAddr) -> Self {
        let asked = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&asked);
        let config =
            testing::server_config().memory_bytes(MEMORY_BYTES, MEMORY_BYTES).accept(move |applicant| {
                if applicant.address.ip() != refused.ip() {
                    return Verdict::Accept;
                }
                count.fetch_add(1, Ordering::Relaxed);
                Verdict::Refuse { reason: RefuseReason::Banned, retry_after: None }
            });
        let mut world = World::new(config, seed).unwrap();
        world.join(&ClientConfig::default()).unwrap();
        world.set_links(&LinkConfig::default().delay(Delay::Constant(DELAY))).unwrap();
        world.take_seen();
        let mut stage = Self {
            world,
            held_bytes: 0,
            honest: None,
            sent: [Vec::new(), Vec::new()],
            received: [0; 2],
            look_every: Duration::from_secs(1),
            asked,
        };
        stage.advance(Duration::from_millis(500));
        stage.look().unwrap();
        stage
    }

    fn advance(&mut self, duration: Duration) {
        let world = &mut self.world;
        self.held_bytes += measure(|| world.advance(duration)).bytes_current;
    }

    /// Hands the server a datagram. Returns what it sent to hostile addresses since the last call.
    fn hand(&mut self, from: SocketAddr, datagram: &[u8]) -> Vec<Vec<u8>> {
        let (world, mut answers) = (&mut self.world, Vec::new());
        let server = world.server.local_addr();
        let mut seen = Vec::new();
        let place = &mut seen;
        let counted = measure(|| {
            world.inject(from, server, datagram.to_vec());
            world.advance(Duration::ZERO);
            *place = world.take_seen();
        });
        answers.extend(
            seen.iter().filter(|it| it.from == server && is_hostile(it.to)).map(|it| it.bytes.clone()),
        );
        self.held_bytes += counted.bytes_current + measure(|| drop(seen)).bytes_current;
        answers
    }

    /// The honest client and the server each send a message to the other.
    fn talk(&mut self) {
        let now = self.world.elapsed();
        let ordered = SendOptions::reliable_ordered();
        let number = |at: usize, stage: &Self| (stage.sent[at].len() as u64).to_be_bytes().to_vec();
        let (to_server, to_client) = (number(0, self), number(1, self));
        let (world, peer) = (&mut self.world, self.honest.expect("it is connected"));
        let counted = measure(|| {
            world.clients[0].send(ChannelId(3), to_server, ordered).unwrap();
            world.server.send(peer, ChannelId(3), to_client, ordered).unwrap();
        });
        self.held_bytes += counted.bytes_current;
        self.sent.iter_mut().for_each(|sent| sent.push(now));
    }

    /// Messages of the honest client that the application has not polled.
    fn ahead(&self) -> u64 {
        (self.sent[0].len() - self.received[0]) as u64
    }

    /// Polls both applications. Returns what the honest client or its application noticed.
    fn look(&mut self) -> Result<(), String> {
        let world = &mut self.world;
        // Room for all that may come, so that nothing of the test's own is allocated while the allocator counts.
        let (mut to_server, mut to_client, mut noticed) =
            (Vec::with_capacity(256), Vec::with_capacity(256), None);
        let (at_server, at_client, end) = (&mut to_server, &mut to_client, &mut noticed);
        let honest = &mut self.honest;
        let counted = measure(|| {
            for event in world.server.poll() {
                match event {
                    Event::Connected { peer, .. } if honest.is_none() => *honest = Some(peer),
                    Event::Message { peer, bytes, .. } if Some(peer) == *honest => {
                        at_server.push(number_of(&bytes));
                    }
                    Event::Disconnected { peer, .. } if Some(peer) == *honest => {
                        *end = Some("it was disconnected");
                    }
                    _ => {}
                }
            }
            for event in world.clients[0].poll() {
                match event {
                    ClientEvent::Connected => {}
                    ClientEvent::Message { bytes, .. } => at_client.push(number_of(&bytes)),
                    _ => *end = Some("its connection is not as it was"),
                }
            }
        });
        self.held_bytes += counted.bytes_current;
        if let Some(noticed) = noticed {
            return Err(format!("the honest client: {noticed}"));
        }
        let now = self.world.elapsed();
        for (way, numbers) in [to_server, to_client].iter().enumerate() {
            for number in numbers {
                let due = self.sent[way].get(self.received[way]).map(|sent| *sent + DELAY);
                let is_next = *number == self.received[way] as u64;
                if !is_next || due.is_none_or(|due| now < due || now > due + self.look_every) {
                    return Err(format!(
                        "message {number} of the honest client came at {now:?}, due at {due:?}"
                    ));
                }
                self.received[way] += 1;
            }
        }
        Ok(())
    }
}

fn number_of(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(u64::MAX, u64::from_be_bytes)
}

fn is_hostile(address: SocketAddr) -> bool {
    matches!(address.ip(), std::net::IpAddr::V4(ip) if ip.octets()[0] == 192)
}

fn server_key() -> [u8; 32] {
    testing::server_config().key.public().to_bytes()
}

/// A hostile client that is connected.
struct Hostile {
    client: Connection,
    sender: Sender,
    address: SocketAddr,
}

impl Hostile {
    fn connect(stage: &mut Stage, random: &mut Random, port: u16) -> Option<Self> {
        let address = SocketAddr::from(([192, 0, 2, 1], port));
        let client_id = random.bits().to_be_bytes();
        let mut handshake = Handshake::begin(&server_key(), client_id, random.secret());
        let retry = stage.hand(address, &handshake.hello()).pop()?;
        handshake.on_retry(&retry).then_some(())?;
        let welcome = stage.hand(address, &handshake.hello()).pop()?;
        let mut client = handshake.on_welcome(&welcome)?;
        stage.hand(address, &client.datagram(&[1, 0, 0, 0]));
        let swarm = Swarm::draw(random);
        let sender = Sender::new(&swarm, Random::of_seed(random.bits()), client.peer_parameters());
        Some(Self { client, sender, address })
    }

    /// Sends the next packet, and reads what the server sent.
    fn step(&mut self, stage: &mut Stage) {
        let frames = self.sender.draw(self.client.next_number(), 1_170);
        let datagram = self.client.datagram(&frames);
        for answer in stage.hand(self.address, &datagram) {
            if let Some(heard) = self.client.open(answer) {
                self.sender.on_heard(&heard);
            }
        }
    }

    fn leave(&mut self, stage: &mut Stage) {
        // A Close with the code and the number 0, and no reason.
        stage.hand(self.address, &self.client.datagram(&[3, 0, 0, 0]));
    }
}

/// One seed of packets.
fn run_packets(seed: u64) -> Result<(), String> {
    let mut random = Random::of_seed(seed);
    let mut stage = Stage::open(seed, SocketAddr::from(([192, 0, 2, 200], 1)));
    stage.talk();
    stage.advance(Duration::from_secs(1));
    stage.look()?;
    let base_bytes = stage.held_bytes;
    let mut hostile: Option<Hostile> = None;
    let mut polls_every = 1_u32;
    let pace = Duration::from_micros(random.pick(&[100, 2_000]));
    for packet in 0..PACKETS {
        if packet.is_multiple_of(PHASE_PACKETS) {
            if let Some(mut hostile) = hostile.take() {
                hostile.leave(&mut stage);
            }
            stage.look_every = PAUSE + pace * polls_every;
            stage.look()?;
            stage.advance(PAUSE);
            stage.look()?;
            polls_every = random.pick(&[1, 1, 20, 100]);
            let port = 6_000 + u16::try_from(packet / PHASE_PACKETS).expect("few phases");
            hostile = Hostile::connect(&mut stage, &mut random, port);
            stage.look_every = pace * polls_every;
        }
        let Some(hostile) = &mut hostile else { return Err("the server did not take the client".to_owned()) };
        hostile.step(&mut stage);
        if packet.is_multiple_of(HONEST_EVERY) && stage.ahead() < HONEST_AHEAD_MAX {
            stage.talk();
        }
        stage.advance(pace);
        let held = stage.held_bytes - base_bytes;
        if held > CONNECTION_BYTES + HONEST_BYTES + REPORTS_BYTES {
            let kinds: Vec<_> =
                hostile.sender.drawn().take(8).map(|frame| DrawnFrame::KINDS[frame.kind()]).collect();
            return Err(format!("packet {packet} of {kinds:?}: {held} bytes are held"));
        }
        if packet.is_multiple_of(polls_every.into()) {
            stage.look()?;
        }
    }
    stage.look_every = PAUSE + pace * polls_every;
    stage.look()?;
    stage.advance(Duration::from_secs(1));
    stage.look()?;
    let (sent, received) = (stage.sent.each_ref().map(Vec::len), stage.received);
    if sent != received {
        return Err(format!("{received:?} of {sent:?} messages of the honest client arrived"));
    }
    let is_connected = stage.world.clients[0].state() == ClientState::Connected;
    if is_connected { Ok(()) } else { Err("the honest client is not connected any more".to_owned()) }
}

/// One seed of Hellos, for a second of virtual time.
fn run_hellos(seed: u64) -> Result<(), String> {
    let mut random = Random::of_seed(seed);
    let source = SocketAddr::from(([192, 0, 2, 9], 4_000));
    let mut stage = Stage::open(seed, source);
    let mut flood = HelloFlood::draw(Random::of_seed(random.bits()), server_key());
    let per_second = random.pick(&[200, 1_000, 5_000]);
    let joins_at = random.below(per_second.into());
    let begun_at = stage.world.elapsed();
    for hello in 0..u64::from(per_second) {
        if hello == joins_at {
            stage.world.join(&ClientConfig::default()).unwrap();
            stage.world.set_links(&LinkConfig::default().delay(Delay::Constant(DELAY))).unwrap();
        }
        let (_, datagram) = flood.next_hello();
        for answer in stage.hand(source, &datagram) {
            if let Some((_, datagram)) = flood.on_answer(&answer) {
                stage.hand(source, &datagram);
            }
        }
        stage.advance(Duration::from_secs(1) / per_second);
        let elapsed = stage.world.elapsed() - begun_at;
        let allowed =
            SOURCE_HANDSHAKES + SOURCE_HANDSHAKES * u64::try_from(elapsed.as_millis()).unwrap() / 1_000 + 1;
        let asked = stage.asked.load(Ordering::Relaxed);
        if asked > allowed {
            return Err(format!(
                "the application was asked {asked} times within {elapsed:?}, {allowed} are allowed"
            ));
        }
    }
    // A little longer than two round trips, for one that joined at the end.
    stage.advance(5 * DELAY);
    let has_connected = stage.world.clients[1].poll().any(|event| matches!(event, ClientEvent::Connected));
    stage.look()?;
    if has_connected {
        Ok(())
    } else {
        Err("the honest client did not connect within two round trips".to_owned())
    }
}

/// Runs all seeds, and names those that do not hold.
fn all_hold(test: &str, run: fn(u64) -> Result<(), String>) {
    let mut failed = Vec::new();
    for seed in seeds() {
        if let Err(what) = run(seed) {
            let next = seed + 1;
            println!("seed {seed}: {what}");
            println!(
                "replay it with: HOSTILE_SEEDS={seed}..{next} cargo test -p drumfire-sim --test hostile_traffic {test}"
            );
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "seeds that do not hold: {failed:?}");
}

#[test]
fn a_worker_holds_no_more_than_it_may_under_hostile_traffic() {
    all_hold("a_worker_holds", run_packets);
}

#[test]
fn a_source_asks_the_application_no_more_than_it_may() {
    all_hold("a_source_asks", run_hellos);
}
