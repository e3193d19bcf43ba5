//! The production worker under random hostile traffic, in virtual time. It stays within its memory, an honest client keeps its
//! connection, and one source causes only a limited number of questions to the application.
//!
//! The core has the same test with more seeds and more checks. Scenarios have hostile ends too, and check every message of the honest
//! ones. `HOSTILE_SEEDS=A..B` runs the seeds from A up to B.

use drumfire_tries::tries;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use allocation_counter::measure;
use drumfire::admission::Verdict;
use drumfire::conditioner::{Delay, LinkConfig};
use drumfire::error::RefuseReason;
use drumfire::testing::{self, World};
use drumfire::{ClientConfig, Event};
use drumfire_puppet::{Connection, Handshake, HelloFlood, Random, Sender, Swarm};

/// The full number of seeds.
const SEEDS: u32 = 2_000;

/// The delay between the honest client and the server, in each direction.
const DELAY: Duration = Duration::from_millis(10);

/// Swarms of a seed, and hostile packets with each.
const PHASES: u16 = 4;
const PHASE_PACKETS: u64 = 300;

/// Between two swarms, so that the worker forgets the connection before.
const PAUSE: Duration = Duration::from_secs(2);

/// The memory of a connection, for sending and for receiving.
const MEMORY_BYTES: usize = 64 * 1_024;

/// The memory of the hostile client's connection, and that of the honest client's. It includes the worker's part, the
/// queue to the application, a tenth more, and pieces that messages share.
const CONNECTION_BYTES: u64 = 3 * 64 * 1_024 * 11 / 10 + 5 * 64 * 1_024;
const HONEST_BYTES: u64 = 192 * 1_024;

/// Memory of the queue between the worker and the application: 16,384 reports of all clients together.
const REPORTS_BYTES: u64 = 16_384 * 128;

/// Handshakes that a source may begin in open access: per second, and in a burst.
const SOURCE_HANDSHAKES: u64 = 20;

/// The source that the application refuses.
const REFUSED: ([u8; 4], u16) = ([192, 0, 2, 9], 4_000);

/// A server of one worker with an honest client.
struct Fixture {
    world: World,
    /// Questions to the application about the refused source.
    asked: Arc<AtomicU64>,
}

impl Fixture {
    /// Opens the server, and connects the honest client.
    fn open(seed: u64) -> Self {
        let asked = Arc::<AtomicU64>::default();
        let count = Arc::clone(&asked);
        let config =
            testing::server_config().memory_bytes(MEMORY_BYTES, MEMORY_BYTES).accept(move |applicant| {
                if applicant.address != SocketAddr::from(REFUSED) {
                    return Verdict::Accept;
                }
                count.fetch_add(1, Ordering::Relaxed);
                Verdict::Refuse { reason: RefuseReason::Banned, retry_after: None }
            });
        let mut fixture = Self { world: World::new(config, seed).unwrap(), asked };
        fixture.join();
        fixture.world.take_captured();
        fixture.world.advance(Duration::from_secs(1));
        fixture.poll();
        fixture
    }

    /// Connects an honest client.
    fn join(&mut self) {
        self.world.join(&ClientConfig::default()).unwrap();
        self.world.set_links(&LinkConfig::default().delay(Delay::Constant(DELAY))).unwrap();
    }

    /// Passes a datagram to the server. Returns the datagrams that the server has sent to its source since the last
    /// call.
    fn hand(&mut self, from: SocketAddr, datagram: &[u8]) -> Vec<Vec<u8>> {
        self.world.inject(from, self.world.server.local_addr(), datagram.to_vec());
        self.world.advance(Duration::ZERO);
        let seen = self.world.take_captured().into_iter();
        seen.filter(|answer| answer.to == from).map(|answer| answer.bytes).collect()
    }

    /// Fails if the honest client has lost its connection.
    fn check_honest(&self) -> Result<(), String> {
        let client = &self.world.clients[0];
        let is_connected = client.peers().any(|peer| client.is_connected(peer));
        if is_connected { Ok(()) } else { Err("the honest client is not connected".to_owned()) }
    }

    /// Polls both applications.
    fn poll(&mut self) {
        let World { server, clients, .. } = &mut self.world;
        server.poll(Duration::ZERO);
        server.events().for_each(drop);
        clients[0].poll(Duration::ZERO);
        clients[0].events().for_each(drop);
    }
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
    fn connect(fixture: &mut Fixture, random: &mut Random, port: u16) -> Option<Self> {
        let address = SocketAddr::from(([192, 0, 2, 1], port));
        let client_id = random.bits().to_be_bytes();
        let mut handshake = Handshake::begin(&server_key(), client_id, random.secret());
        let retry = fixture.hand(address, &handshake.hello()).pop()?;
        handshake.on_retry(&retry).then_some(())?;
        let welcome = fixture.hand(address, &handshake.hello()).pop()?;
        let mut client = handshake.on_welcome(&welcome)?;
        fixture.hand(address, &client.datagram(&[1, 0, 0, 0]));
        let swarm = Swarm::draw(random);
        let sender = Sender::new(&swarm, Random::of_seed(random.bits()), client.peer_parameters());
        Some(Self { client, sender, address })
    }

    /// Sends the next packet, and reads what the server sent.
    fn step(&mut self, fixture: &mut Fixture) {
        let frames = self.sender.draw(self.client.next_number(), 1_170);
        let datagram = self.client.datagram(&frames);
        for answer in fixture.hand(self.address, &datagram) {
            if let Some(packet) = self.client.open(answer) {
                self.sender.on_packet(&packet);
            }
        }
    }
}

/// One seed of packets.
fn run_packets(seed: u64) -> Result<(), String> {
    let mut fixture = Fixture::open(seed);
    let mut outcome = Ok(());
    let held = measure(|| outcome = attack(&mut fixture, seed)).bytes_max;
    outcome?;
    if held > CONNECTION_BYTES + HONEST_BYTES + REPORTS_BYTES {
        return Err(format!("{held} bytes were held"));
    }
    fixture.check_honest()
}

/// Sends the hostile packets of a seed.
fn attack(fixture: &mut Fixture, seed: u64) -> Result<(), String> {
    let mut random = Random::of_seed(seed);
    let pace = Duration::from_micros(random.pick(&[100, 2_000]));
    for port in 6_000..6_000 + PHASES {
        fixture.world.advance(PAUSE);
        fixture.poll();
        let polls_every = random.pick(&[1, 1, 20, 100]);
        let hostile = Hostile::connect(fixture, &mut random, port);
        let mut hostile = hostile.ok_or("the server did not accept the client")?;
        for packet in 0..PHASE_PACKETS {
            hostile.step(fixture);
            fixture.world.advance(pace);
            if packet.is_multiple_of(polls_every) {
                fixture.poll();
            }
        }
        // A Close with the code and the number 0, and no reason.
        fixture.hand(hostile.address, &hostile.client.datagram(&[3, 0, 0, 0]));
    }
    Ok(())
}

/// One seed of Hellos, for a second of virtual time.
fn run_hellos(seed: u64) -> Result<(), String> {
    let mut random = Random::of_seed(seed);
    let source = SocketAddr::from(REFUSED);
    let mut fixture = Fixture::open(seed);
    let mut flood = HelloFlood::draw(Random::of_seed(random.bits()), server_key());
    let per_second = random.pick(&[200, 1_000, 5_000]);
    let joins_at = random.below(per_second.into());
    let begun_at = fixture.world.elapsed();
    for hello in 0..u64::from(per_second) {
        if hello == joins_at {
            fixture.join();
        }
        let (_, datagram) = flood.next_hello();
        for answer in fixture.hand(source, &datagram) {
            if let Some((_, datagram)) = flood.on_answer(&answer) {
                fixture.hand(source, &datagram);
            }
        }
        fixture.world.advance(Duration::from_secs(1) / per_second);
        let elapsed = fixture.world.elapsed() - begun_at;
        let allowed =
            SOURCE_HANDSHAKES + SOURCE_HANDSHAKES * u64::try_from(elapsed.as_millis()).unwrap() / 1_000 + 1;
        let asked = fixture.asked.load(Ordering::Relaxed);
        if asked > allowed {
            return Err(format!("the application was asked {asked} times of {allowed} within {elapsed:?}"));
        }
    }
    // A little longer than two round trips, for one that joined at the end.
    fixture.world.advance(5 * DELAY);
    fixture.world.clients[1].poll(Duration::ZERO);
    let has_connected =
        fixture.world.clients[1].events().any(|event| matches!(event, Event::Connected { .. }));
    let reason = "the honest client did not connect within two round trips";
    if has_connected { fixture.check_honest() } else { Err(reason.to_owned()) }
}

/// Runs all seeds, and names those that do not hold.
fn all_hold(test: &str, run: fn(u64) -> Result<(), String>) {
    let asked = std::env::var("HOSTILE_SEEDS").ok();
    let asked = asked.as_deref().and_then(|seeds| seeds.split_once("..")).map(|(from, to)| {
        let parse = |number: &str| number.parse().unwrap_or_else(|_| panic!("HOSTILE_SEEDS is A..B"));
        parse(from)..parse(to)
    });
    let mut failed = Vec::new();
    for seed in asked.unwrap_or(0..tries(SEEDS).into()) {
        if let Err(what) = run(seed) {
            println!("seed {seed}: {what}\nreplay it with: HOSTILE_SEEDS={seed}..{} {test}", seed + 1);
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "seeds that do not hold: {failed:?}");
}

#[test]
fn a_worker_holds_no_more_than_it_may_under_hostile_traffic() {
    all_hold("cargo test -p drumfire-sim a_worker_holds", run_packets);
}

#[test]
fn a_source_asks_the_application_no_more_than_it_may() {
    all_hold("cargo test -p drumfire-sim a_source_asks", run_hellos);
}
