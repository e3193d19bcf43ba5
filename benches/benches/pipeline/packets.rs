//! The receiving side of a server, per packet of 128 B: parse, look up, replay window, open, frames, ack bookkeeping, timers,
//! delivery, taking the event, and the acks that follow.
//!
//! The difference to an open alone is own code, without the cipher. Its goal is 0.6 of one ChaCha20-Poly1305 open. Sealing acks is part
//! of it. The bench `stages` measures the steps before the open.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use criterion::{BenchmarkId, Throughput};
use drumfire_benches::memory::{
    BATCH, Datagrams, Group, SealedPeers, UNLIMITED, client_address, server_address, take_messages,
};
use drumfire_benches::{ArmTable, Bench, Extent, Goal, OpenAlone, Rounds, Spread, Work, cell, median_cell};
use drumfire_crypto::Suite;
use drumfire_proto::{ChannelId, Config, Endpoint, Inbound, Now, SendOptions};
use drumfire_puppet::PacketSealer;
use drumfire_tools::clock;

use crate::{criterion, rounds};

const DATAGRAM_BYTES: usize = 128;
/// The virtual time between two batches. It gives a million packets per second.
const BATCH_INTERVAL: Duration = Duration::from_micros(32);
/// Packets made before the server receives the first of them. More may be in flight.
const PREPARED: usize = 8 * BATCH;
/// Packets after which connections are replaced. A sealer alone is not notified when keys change.
const CONNECTION_PACKETS: u64 = 1 << 20;
/// The virtual time within which the client may send again, in milliseconds.
const MAY_SEND_WITHIN_MS: u32 = 1_000;
/// The goal for own code over one ChaCha20-Poly1305 open.
const OWN_OVER_OPEN: f64 = 0.6;

const CHACHA: (&str, Suite) = ("ChaCha20-Poly1305", Suite::ChaCha20Poly1305);
const AES: (&str, Suite) = ("AES-128-GCM", Suite::Aes128Gcm);
const CASES: [PacketCase; 5] = [
    PacketCase { suite: CHACHA, is_reliable: false, connections: 1 },
    PacketCase { suite: AES, is_reliable: false, connections: 1 },
    PacketCase { suite: CHACHA, is_reliable: true, connections: 1 },
    PacketCase { suite: AES, is_reliable: true, connections: 1 },
    PacketCase { suite: CHACHA, is_reliable: false, connections: 200 },
];

/// The cipher, the kind of message, and the number of connections that send in turn.
#[derive(Clone, Copy, Debug)]
struct PacketCase {
    suite: (&'static str, Suite),
    is_reliable: bool,
    connections: u8,
}

impl PacketCase {
    fn name(self) -> String {
        let source = if self.is_reliable { "ReliableOrdered" } else { "Unreliable" };
        let plural = if self.connections == 1 { "" } else { "s" };
        format!("{source}, {}, {} connection{plural}", self.suite.0, self.connections)
    }

    fn connect(self) -> Ends {
        let config = Config::default().has_aes_gcm(self.suite == AES);
        if self.is_reliable {
            let group = Group::connect(1, &config.congestion(UNLIMITED)).expect("a connection");
            return Ends::Real { group: Box::new(group), payload_bytes: 97 };
        }
        let sealed = SealedPeers::of_server(config, self.connections, None).expect("connections");
        Ends::Sealed(Box::new(sealed))
    }
}

/// A server and its clients.
enum Ends {
    /// Sealers send packets of one unreliable message each.
    Sealed(Box<SealedPeers>),
    /// A client endpoint sends packets of one reliable message each, and receives the acks.
    Real { group: Box<Group>, payload_bytes: usize },
}

impl Ends {
    fn server(&mut self) -> (&mut Endpoint, &mut Now) {
        match self {
            Self::Sealed(sealed) => (&mut sealed.endpoint, &mut sealed.now),
            Self::Real { group, .. } => (&mut group.server, &mut group.now),
        }
    }
}

/// A packet with room for one that is longer than usual.
struct Packet {
    from: SocketAddr,
    memory: [u8; DATAGRAM_BYTES + 64],
    bytes: usize,
}

/// A case that runs.
struct Pipeline {
    case: PacketCase,
    ends: Ends,
    packets: Vec<Packet>,
    answers: Datagrams,
    /// Packets, messages sent, and messages delivered since the connections were made.
    packet_count: u64,
    message_count: u64,
    delivered_count: u64,
    /// Acks and bytes of all connections, replaced ones included.
    ack_count: u64,
    received_bytes: u64,
}

impl Pipeline {
    fn new(case: PacketCase) -> Self {
        let packet = || Packet { from: client_address(), memory: [0; DATAGRAM_BYTES + 64], bytes: 0 };
        let mut answers = Datagrams::default();
        answers.reserve(2 * BATCH);
        Self {
            case,
            ends: case.connect(),
            packets: std::iter::repeat_with(packet).take(PREPARED).collect(),
            answers,
            packet_count: 0,
            message_count: 0,
            delivered_count: 0,
            ack_count: 0,
            received_bytes: 0,
        }
    }

    /// Passes this number of packets to the server. Returns the time that the server took.
    fn run(&mut self, count: u64) -> Duration {
        let (mut took, mut left) = (Duration::ZERO, count);
        while left > 0 {
            if self.packet_count >= CONNECTION_PACKETS {
                self.check();
                self.ends = self.case.connect();
                (self.packet_count, self.message_count, self.delivered_count) = (0, 0, 0);
            }
            let wanted = usize::try_from(left).unwrap_or(PREPARED).min(PREPARED);
            let mut prepared = self.prepare(wanted);
            for _ in 0..MAY_SEND_WITHIN_MS {
                if prepared == 0 {
                    self.wait();
                    prepared = self.prepare(wanted);
                }
            }
            assert!(prepared > 0, "{}: the client may not send", self.case.name());
            for start in (0..prepared).step_by(BATCH) {
                took += self.receive(start, prepared.min(start + BATCH));
            }
            self.pass_answers();
            left -= prepared as u64;
            self.packet_count += prepared as u64;
        }
        self.check();
        took
    }

    /// Makes this number of packets, or as many as may be in flight.
    fn prepare(&mut self, count: usize) -> usize {
        let mut made = 0;
        for packet in self.packets.iter_mut().take(count) {
            match &mut self.ends {
                Ends::Sealed(sealed) => {
                    let payload = [7; DATAGRAM_BYTES];
                    let length = PacketSealer::payload_bytes(DATAGRAM_BYTES).expect("room for a message");
                    self.message_count += 1;
                    // The clients take turns.
                    sealed.peers.rotate_left(1);
                    let peer = &mut sealed.peers[0];
                    let datagram = &mut packet.memory[..DATAGRAM_BYTES];
                    peer.sealer.seal(datagram, &payload[..length]).expect("numbers are left");
                    (packet.from, packet.bytes) = (peer.address, DATAGRAM_BYTES);
                }
                Ends::Real { group, payload_bytes } => {
                    if !send_one(group, *payload_bytes, &mut self.message_count, packet) {
                        break;
                    }
                    // Message ids grow longer. A packet that carries an ack is an exception.
                    if packet.bytes.abs_diff(DATAGRAM_BYTES) <= 3 {
                        *payload_bytes = *payload_bytes + DATAGRAM_BYTES - packet.bytes;
                    }
                }
            }
            self.received_bytes += packet.bytes as u64;
            made += 1;
        }
        made
    }

    /// Advances by a millisecond in which the client may not send.
    fn wait(&mut self) {
        if let Ends::Real { group, .. } = &mut self.ends {
            group.pass(Duration::from_millis(1));
            group.server.handle_timeout(group.now);
            self.answers.take_all_from(&mut group.server, group.now);
        }
        self.pass_answers();
    }

    /// Passes one batch to the server. Returns the time that it took.
    fn receive(&mut self, start: usize, end: usize) -> Duration {
        let (server, now) = self.ends.server();
        now.monotonic = now.monotonic.after(BATCH_INTERVAL);
        let batch = self.packets[start..end]
            .iter_mut()
            .map(|packet| Inbound { from: packet.from.into(), bytes: &mut packet.memory[..packet.bytes] });
        let before = self.answers.count();
        let start = clock::now();
        server.handle_datagrams(*now, batch);
        server.handle_timeout(*now);
        self.delivered_count += take_messages(server);
        self.answers.take_all_from(server, *now);
        let took = start.elapsed();
        self.ack_count += (self.answers.count() - before) as u64;
        took
    }

    /// Passes the server's datagrams to the client.
    fn pass_answers(&mut self) {
        if let Ends::Real { group, .. } = &mut self.ends {
            group.client.handle_datagrams(group.now, self.answers.inbound(server_address()));
            group.client.handle_timeout(group.now);
            while group.client.poll_event().is_some() {}
        }
        self.answers.clear();
    }

    fn check(&mut self) {
        let dropped = self.ends.server().0.stats().dropped_count();
        let name = self.case.name();
        assert_eq!((self.delivered_count, dropped), (self.message_count, 0), "{name}: delivered and dropped");
    }
}

/// Writes the next packet of a client, usually with one message. Returns false when the client must wait.
fn send_one(group: &mut Group, payload_bytes: usize, sent: &mut u64, packet: &mut Packet) -> bool {
    const PAYLOAD: &[u8] = &[7; 2 * DATAGRAM_BYTES];
    let Group { client, links, now, .. } = group;
    // The client sends a waiting message before it gets the next one.
    if client.stats().messages_sent == *sent {
        let payload = Bytes::from_static(&PAYLOAD[..payload_bytes]);
        let options = SendOptions::reliable_ordered();
        if client.send(*now, links[0].server, ChannelId(0), payload, options).is_err() {
            return false;
        }
    }
    let mut datagram = [0; 1_200];
    let Some(transmit) = client.poll_transmit(*now, &mut datagram) else { return false };
    *sent = client.stats().messages_sent;
    packet.bytes = transmit.bytes;
    packet.memory[..transmit.bytes].copy_from_slice(&datagram[..transmit.bytes]);
    true
}

type Cipher = OpenAlone<DATAGRAM_BYTES>;

/// Measures each case with Criterion, then rounds of all cases and of both ciphers alone.
pub(crate) fn measure(bench: &mut Bench) -> Result<(), String> {
    let mut criterion = criterion(bench, Duration::from_secs(2));
    let mut group = criterion.benchmark_group(format!("pipeline, {DATAGRAM_BYTES} B"));
    group.throughput(Throughput::ElementsAndBytes { elements: 1, bytes: DATAGRAM_BYTES as u64 });
    for case in CASES {
        let mut pipeline = Pipeline::new(case);
        group.bench_function(BenchmarkId::from_parameter(case.name()), |bencher| {
            bencher.iter_custom(|count| pipeline.run(count));
        });
    }
    for (name, suite) in [CHACHA, AES] {
        let mut open = Cipher::new(suite);
        group.bench_function(BenchmarkId::new("open alone", name), |bencher| {
            bencher.iter_custom(|count| open.time(count));
        });
    }
    group.finish();
    figures(bench)
}

/// The nanoseconds, acks, and bytes per packet in a round.
type PacketRounds = Rounds<[f64; 3]>;

/// The ciphers alone, and then every case.
fn arms(packets: u64) -> Vec<Work<'static, [f64; 3]>> {
    let per_packet = move |took: Duration| took.as_nanos() as f64 / packets as f64;
    let mut arms = Vec::new();
    for (name, suite) in [CHACHA, AES] {
        let mut open = Cipher::new(suite);
        arms.push(Work::new(format!("open alone, {name}"), move || {
            Ok([per_packet(open.time(packets)), 0.0, DATAGRAM_BYTES as f64])
        }));
    }
    for case in CASES {
        let mut pipeline = Pipeline::new(case);
        arms.push(Work::new(case.name(), move || {
            (pipeline.ack_count, pipeline.received_bytes) = (0, 0);
            let ns = per_packet(pipeline.run(packets));
            Ok([
                ns,
                pipeline.ack_count as f64 / packets as f64,
                pipeline.received_bytes as f64 / packets as f64,
            ])
        }));
    }
    arms
}

fn figures(bench: &mut Bench) -> Result<(), String> {
    let arms = rounds(bench, arms(bench.extent().pick(1_024, 200_000, 200_000)))?;
    let [chacha, aes, pipelines @ ..] = &arms[..] else { return Err("there were no rounds".to_owned()) };
    let of = |arm: &PacketRounds, at: usize| arm.spread(|round| Some(round[at]));
    let own_of = |arm: &PacketRounds| {
        let case = CASES.iter().find(|case| case.name() == arm.name)?;
        Some(own_code(arm, if case.suite == AES { aes } else { chacha }, chacha))
    };
    for arm in &arms {
        let (ns, note) = (of(arm, 0), arm.busy_or(""));
        bench.results.spread(format!("{}, per packet", arm.name), ns, "ns", Goal::Shown, note);
        if let Some([own, over]) = own_of(arm) {
            let name = |what: &str| format!("{}, own code {what}", arm.name);
            bench.results.spread(name("per packet"), own, "ns", Goal::Shown, note);
            let goal = Goal::AtMost(OWN_OVER_OPEN);
            bench.results.spread(name("over one ChaCha20-Poly1305 open"), over, "", goal, note);
        }
    }
    let own_cell =
        |arm: &PacketRounds, at: usize| own_of(arm).map_or_else(String::new, |own| median_cell(own[at], 2));
    ArmTable::new("per packet of 128 B", &arms)
        .column("ns", |arm| cell(of(arm, 0), 1))
        .column("acks", |arm| median_cell(of(arm, 1), 3))
        .column("own code, ns", |arm| own_cell(arm, 0))
        .column("own over one ChaCha20-Poly1305 open", |arm| own_cell(arm, 1))
        .print();
    for arm in pipelines {
        let bytes = of(arm, 2).ok_or("there were no rounds")?.median;
        if bench.extent() != Extent::Quick && (bytes - DATAGRAM_BYTES as f64).abs() > 0.5 {
            return Err(format!("{}: packets of {bytes:.1} B", arm.name));
        }
    }
    Ok(())
}

/// The time without the cipher, and its ratio to one ChaCha20-Poly1305 open. Both are computed round by round, so that a change of the
/// machine's speed affects both sides.
fn own_code(arm: &PacketRounds, open: &PacketRounds, chacha: &PacketRounds) -> [Option<Spread>; 2] {
    let own = arm.rounds.iter().zip(&open.rounds).map(|(whole, open)| whole[0] - open[0]);
    let over = own.clone().zip(&chacha.rounds).map(|(own, chacha)| own / chacha[0]);
    [Spread::of(own), Spread::of(over)]
}
