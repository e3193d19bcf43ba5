//! Rates on a shared link: its utilization, the length of its queue, and the shares of the connections.
//!
//! These are whole endpoints with handshakes, acks, and credit. The tests of the algorithms alone, next to their
//! code, cover many more networks.

use crate::harness::{CLEAN, CLIENT, Link, SERVER, World, address, identity, server_config};
use drumfire_proto::{
    ChannelId, ClientConfig, Close, CloseCode, Config, Congestion, Endpoint, Event, Inbound, Message, Moment,
    Now, PeerId, Priority, Secret, SendError, SendOptions, SingleWorker,
};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// The time step of the simulation.
const STEP: Duration = Duration::from_millis(1);

/// The delay of a path in each direction, unless a test sets another one.
const ONE_WAY: Duration = Duration::from_millis(25);

/// The way to the server, which all clients share: a bottleneck with a queue.
struct Bottleneck {
    bytes_per_second: u64,
    one_way: Duration,
    /// One datagram in this many is lost, or none for zero.
    loss_interval: u64,
    sent_count: u64,
    queue: Duration,
    free_at: Moment,
    in_flight: VecDeque<(Moment, SocketAddr, Vec<u8>)>,
    /// The queueing delay of each datagram in microseconds, and its arrival time.
    waits: Vec<(Moment, u64)>,
}

impl Bottleneck {
    fn push(&mut self, now: Moment, from: SocketAddr, bytes: &[u8]) {
        let begins = self.free_at.max(now);
        let wait = begins.since(now);
        self.sent_count += 1;
        if wait > self.queue || self.sent_count.checked_rem(self.loss_interval) == Some(0) {
            return;
        }
        let nanos = (bytes.len() as u64 + 28) * 1_000_000_000 / self.bytes_per_second;
        self.free_at = begins.after(Duration::from_nanos(nanos));
        self.waits.push((now, wait.as_micros() as u64));
        self.in_flight.push_back((self.free_at.after(self.one_way), from, bytes.to_vec()));
    }

    fn p95_wait_millis(&self, from: Moment) -> u64 {
        let mut waits: Vec<_> =
            self.waits.iter().filter(|(at, _)| *at >= from).map(|(_, wait)| *wait).collect();
        waits.sort_unstable();
        waits[waits.len() * 95 / 100] / 1_000
    }
}

struct Shared {
    now: Moment,
    server: Endpoint<SingleWorker>,
    clients: Vec<(Endpoint<SingleWorker>, PeerId)>,
    bottleneck: Bottleneck,
    back: VecDeque<(Moment, SocketAddr, Vec<u8>)>,
    /// Bytes of received messages, by second and client.
    received_bytes: Vec<Vec<u64>>,
    peers: Vec<PeerId>,
}

fn client_address(client: usize) -> SocketAddr {
    SocketAddr::new("192.0.2.1".parse().unwrap(), 5_000 + client as u16)
}

impl Shared {
    fn new(megabits: u64, queue: u64, congestion: Congestion) -> Self {
        Self::with(megabits, queue, Config::default().congestion(congestion))
    }

    fn with(megabits: u64, queue: u64, config: Config) -> Self {
        let seed = Secret::new([9; 32]);
        Self {
            now: Moment::from_nanos(1_000_000_000),
            server: Endpoint::server(config, server_config(), SingleWorker::default(), seed).unwrap(),
            clients: Vec::new(),
            bottleneck: Bottleneck {
                bytes_per_second: megabits * 125_000,
                one_way: ONE_WAY,
                loss_interval: 0,
                sent_count: 0,
                queue: Duration::from_millis(queue),
                free_at: Moment::ORIGIN,
                in_flight: VecDeque::new(),
                waits: Vec::new(),
            },
            back: VecDeque::new(),
            received_bytes: Vec::new(),
            peers: Vec::new(),
        }
    }

    fn now(&self) -> Now {
        Now { monotonic: self.now, wall: Duration::ZERO }
    }

    fn join(&mut self, congestion: Congestion) {
        self.join_with(Config::default().congestion(congestion));
    }

    fn join_with(&mut self, config: Config) {
        let seed = Secret::new([10 + self.clients.len() as u8; 32]);
        let mut client = Endpoint::client(config, ClientConfig::default(), seed).unwrap();
        let peer = client.connect(self.now(), address(SERVER), &identity(), None).unwrap();
        self.clients.push((client, peer));
    }

    /// Lets time pass. Every client sends all that its connection accepts, except the `quiet` last ones.
    fn run(&mut self, duration: Duration) {
        let end = self.now.after(duration);
        let message = bytes::Bytes::from(vec![7; 1_000]);
        while self.now < end {
            let now = self.now();
            let mut memory = [0; 1_200];
            for (at, (client, peer)) in self.clients.iter_mut().enumerate() {
                client.handle_timeout(now);
                let bulk = SendOptions::reliable_unordered().priority(Priority::Bulk);
                while client.send(now, *peer, Message::new(ChannelId(1), message.clone(), bulk)) == Ok(()) {}
                while let Some(sent) = client.poll_transmit(now, &mut memory) {
                    self.bottleneck.push(self.now, client_address(at), &memory[..sent.bytes]);
                }
                while client.poll_event().is_some() {}
            }
            while let Some((at, ..)) = self.bottleneck.in_flight.front()
                && *at <= self.now
            {
                let (_, from, mut bytes) = self.bottleneck.in_flight.pop_front().unwrap();
                self.server.handle_datagrams(now, [Inbound { from: from.into(), bytes: &mut bytes }]);
            }
            self.server.handle_timeout(now);
            self.take_events();
            while let Some(sent) = self.server.poll_transmit(now, &mut memory) {
                self.back.push_back((
                    self.now.after(self.bottleneck.one_way),
                    sent.to.peer,
                    memory[..sent.bytes].to_vec(),
                ));
            }
            while let Some((at, ..)) = self.back.front()
                && *at <= self.now
            {
                let (_, to, mut bytes) = self.back.pop_front().unwrap();
                let client = &mut self.clients[usize::from(to.port() - 5_000)].0;
                client.handle_datagrams(now, [Inbound { from: address(SERVER).into(), bytes: &mut bytes }]);
            }
            self.now = self.now.after(STEP);
        }
    }

    fn take_events(&mut self) {
        let second = (self.now.as_nanos() / 1_000_000_000) as usize;
        while let Some(event) = self.server.poll_event() {
            match event {
                Event::Connected { peer, .. } => self.peers.push(peer),
                Event::Message { peer, payload, .. } => {
                    let client = self.peers.iter().position(|of| *of == peer).unwrap();
                    self.received_bytes.resize(self.received_bytes.len().max(second + 1), Vec::new());
                    let received_bytes = &mut self.received_bytes[second];
                    received_bytes.resize(received_bytes.len().max(client + 1), 0);
                    received_bytes[client] += payload.len() as u64;
                }
                _ => {}
            }
        }
    }

    /// Bytes of a client's messages that arrived in these seconds.
    fn received_bytes(&self, client: usize, seconds: std::ops::Range<usize>) -> u64 {
        self.received_bytes[seconds]
            .iter()
            .map(|received_bytes| received_bytes.get(client).copied().unwrap_or(0))
            .sum()
    }
}

#[test]
fn one_transfer_uses_the_link_and_only_cubic_fills_the_queue() {
    for congestion in [Congestion::Delay, Congestion::Cubic] {
        let mut world = Shared::new(10, 500, congestion);
        world.join(congestion);
        world.run(Duration::from_secs(25));
        // Messages alone, without headers, tags, and acks: 1,000 of about 1,070 bytes.
        let used = world.received_bytes(0, 6..26) * 100 / (20 * 1_250_000);
        let wait = world.bottleneck.p95_wait_millis(Moment::from_nanos(6_000_000_000));
        println!("{congestion:?}: {used} % of 10 Mbit/s at 50 ms are messages; p95 in the queue {wait} ms");
        assert!(used >= 90, "{congestion:?} {used}");
        let is_short = wait <= 30;
        assert_eq!(is_short, congestion == Congestion::Delay, "{wait}");
    }
}

/// Returns the share of 100 Mbit/s that are messages of one transfer, in percent, and the 95th percentile of the
/// queueing delay in milliseconds.
fn fast_transfer(round_trip: Duration, loss_interval: u64, config: Config) -> (u64, u64) {
    let mut world = Shared::with(100, 200, config.clone());
    (world.bottleneck.one_way, world.bottleneck.loss_interval) = (round_trip / 2, loss_interval);
    world.join_with(config);
    world.run(Duration::from_secs(12));
    let used = world.received_bytes(0, 8..13) * 100 / (5 * 12_500_000);
    let wait = world.bottleneck.p95_wait_millis(Moment::from_nanos(8_000_000_000));
    println!(
        "{round_trip:?}, lost 1/{loss_interval}: {used} % of 100 Mbit/s are messages; p95 in the queue {wait} ms"
    );
    (used, wait)
}

#[test]
fn a_transfer_reaches_100_mbit_at_50_ms() {
    let (used, wait) = fast_transfer(2 * ONE_WAY, 0, Config::default());
    assert!(used >= 90 && wait <= 30, "{used} % and {wait} ms");
}

#[test]
fn a_transfer_with_more_memory_reaches_100_mbit_at_100_ms() {
    let (used, wait) = fast_transfer(4 * ONE_WAY, 0, Config::default().memory_bytes(4 << 20, 4 << 20));
    assert!(used >= 90 && wait <= 30, "{used} % and {wait} ms");
}

#[test]
fn a_transfer_that_loses_one_percent_still_uses_a_fast_path() {
    let (used, wait) = fast_transfer(2 * ONE_WAY, 100, Config::default());
    assert!(used >= 90 && wait <= 30, "{used} % and {wait} ms");
}

#[test]
fn two_transfers_share_a_slow_link() {
    for congestion in [Congestion::Delay, Congestion::Cubic] {
        let mut world = Shared::new(1, 200, congestion);
        world.join(congestion);
        world.run(Duration::from_secs(3));
        world.join(congestion);
        world.run(Duration::from_secs(57));
        let [one, other] = [0, 1].map(|client| world.received_bytes(client, 30..60));
        let share = one * 100 / (one + other);
        println!("{congestion:?}: the first of two has {share} % of 1 Mbit/s");
        assert!((40..=60).contains(&share), "{congestion:?}: {one} {other}");
    }
}

#[test]
fn a_fixed_rate_is_not_exceeded() {
    let fixed = Congestion::Fixed { bytes_per_second: 250_000 };
    let mut world = Shared::new(10, 200, fixed);
    world.join(fixed);
    world.run(Duration::from_secs(12));
    let received_bytes = world.received_bytes(0, 2..12);
    assert!((2_200_000..=2_500_000).contains(&received_bytes), "{received_bytes}");
}

#[test]
fn an_urgent_message_does_not_wait_for_a_transfer() {
    let mut world = World::new(3, CLEAN);
    let (client, _) = world.connected();
    let bulk = SendOptions::reliable_ordered().priority(Priority::Bulk);
    loop {
        match world.send(CLIENT, client, 1, &[7; 60_000], bulk) {
            Ok(()) => {}
            Err(SendError::Full) => break,
            Err(error) => panic!("{error}"),
        }
    }
    world.run(Duration::from_millis(30));
    let urgent = SendOptions::reliable_ordered().priority(Priority::Urgent);
    // The rest of the memory, too small for another bulk message, is enough for it.
    world.send(CLIENT, client, 2, b"now", urgent).unwrap();
    let asked_at = world.now;
    while !world.messages(SERVER).contains(&(2, b"now".to_vec())) {
        world.run(Duration::from_millis(1));
    }
    assert!(world.now.since(asked_at) <= Duration::from_millis(40), "{:?}", world.now.since(asked_at));
}

#[test]
fn an_mtu_probe_does_not_precede_a_close() {
    let mut world = World::new(4, CLEAN);
    let (client, _) = world.connected();
    world.run(Duration::from_millis(200));
    world.send(CLIENT, client, 1, &[7; 2_000], SendOptions::unreliable()).unwrap();
    let (now, mut memory) = (world.now(), [0; 1_472]);
    assert_eq!(world.ends[CLIENT].poll_transmit(now, &mut memory).map(|sent| sent.bytes), Some(1_200));
    let bye = Close { code: CloseCode::Application, application_code: 0, reason: b"" };
    world.ends[CLIENT].close(now, client, &bye).unwrap();
    let sent = world.ends[CLIENT].poll_transmit(now, &mut memory).unwrap();
    assert!(sent.bytes < 1_200, "the rest of the message and the close, and no probe: {} B", sent.bytes);
}

/// The bytes that one end may have in flight.
fn window_bytes(world: &mut World, end: usize, peer: PeerId) -> usize {
    let now = world.now();
    world.ends[end].flight_record(now, peer).expect("it has a recorder").window_bytes
}

#[test]
fn an_ack_without_a_sample_is_no_shorter_round_trip() {
    let mut world = World::new(1, Link { delay: Duration::from_millis(100), ..CLEAN });
    let client = world.connect();
    while world.peers(CLIENT).is_empty() {
        world.run(Duration::from_millis(1));
    }
    // The server's packet with a new id is acknowledged together with a later ack alone, which gives no sample.
    world.run(Duration::from_millis(10));
    world.reliable(CLIENT, client, b"ready").unwrap();
    world.run(Duration::from_millis(800));
    let server = world.peers(SERVER)[0];
    let start_bytes = window_bytes(&mut world, SERVER, server);
    assert!(start_bytes >= 12_000, "{start_bytes}");
    // A download uses the window, which grows while there is no queue.
    for _ in 0..2_000 {
        let bulk = SendOptions::reliable_unordered();
        while world.send(SERVER, server, 1, &[7; 1_000], bulk).is_ok() {}
        world.run(Duration::from_millis(1));
    }
    let bytes = window_bytes(&mut world, SERVER, server);
    assert!(bytes > 4 * start_bytes, "the window is {bytes} of {start_bytes} bytes after ten round trips");
}

#[test]
fn a_message_that_waits_for_an_ack_does_not_open_the_window() {
    let mut world = World::new(1, CLEAN);
    let (client, _) = world.connected();
    world.reliable(CLIENT, client, b"ready").unwrap();
    world.run(Duration::from_millis(100));
    let start_bytes = window_bytes(&mut world, CLIENT, client);
    // A newer position always waits until the last one is acknowledged. The state next to it needs no ack.
    for _ in 0..1_200 {
        world.send(CLIENT, client, 1, &[7; 100], SendOptions::reliable_sequenced()).unwrap();
        world.send(CLIENT, client, 2, &[7; 200], SendOptions::unreliable()).unwrap();
        world.run(Duration::from_millis(16));
    }
    assert_eq!(window_bytes(&mut world, CLIENT, client), start_bytes);
}
