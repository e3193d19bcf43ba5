//! The receiving side of a server, per packet of 128 B: parse, look up, replay window, open, frames, ack bookkeeping, timers,
//! delivery, taking the event, and the acks that follow.
//!
//! The difference to an open alone is own code, without the cipher. Its goal is 0.6 of one ChaCha20-Poly1305 open. Sealing acks is part
//! of it. The bench `stages` measures the steps before the open.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use criterion::{BenchmarkId, Throughput};
use drumfire_benches::group::{BATCH, Datagrams, Group, UNLIMITED, client_address};
use drumfire_benches::pair::{Crowd, server_address, take_messages};
use drumfire_benches::{Bench, Extent, Goal, OpenAlone, Rounds, Spread, Work};
use drumfire_crypto::Suite;
use drumfire_proto::{ChannelId, Config, Inbound, SendOptions};
use drumfire_puppet::PacketSealer;
use drumfire_tools::clock;
use drumfire_tools::table::{Align, TextTable};

use crate::{busy_note, criterion, rounds, spread, void_cell};

const DATAGRAM_BYTES: usize = 128;
/// Between two batches, in virtual time: a million packets per second.
const BATCH_INTERVAL: Duration = Duration::from_micros(32);
/// Packets made before the server receives the first of them. More may be in flight.
const PREPARED: usize = 8 * BATCH;
/// Packets after which connections are replaced. A sealer alone is not notified when keys change.
const CONNECTION_PACKETS: u64 = 1 << 20;
/// How long a client may have nothing to send.
const PATIENCE_MS: u32 = 1_000;
/// The goal for own code over one ChaCha20-Poly1305 open.
const OWN_OVER_OPEN: f64 = 0.6;

const CHACHA: (&str, bool) = ("ChaCha20-Poly1305", false);
const AES: (&str, bool) = ("AES-128-GCM", true);
const CASES: [PipelineCase; 5] = [
    PipelineCase { suite: CHACHA, source: "Unreliable", connections: 1 },
    PipelineCase { suite: AES, source: "Unreliable", connections: 1 },
    PipelineCase { suite: CHACHA, source: RELIABLE, connections: 1 },
    PipelineCase { suite: AES, source: RELIABLE, connections: 1 },
    PipelineCase { suite: CHACHA, source: "Unreliable", connections: 200 },
];
const RELIABLE: &str = "ReliableOrdered";

/// The kind of message, and the number of connections that send in turn.
#[derive(Clone, Copy, Debug)]
struct PipelineCase {
    suite: (&'static str, bool),
    source: &'static str,
    connections: u8,
}

impl PipelineCase {
    fn name(self) -> String {
        let plural = if self.connections == 1 { "" } else { "s" };
        format!("{}, {}, {} connection{plural}", self.source, self.suite.0, self.connections)
    }
}

/// A server and its senders.
enum Ends {
    /// Packets of one unreliable message each, from sealers that receive nothing.
    Sealed(Box<Crowd>),
    /// Packets of a client's endpoint, which receives the acks.
    Real { group: Box<Group>, payload_bytes: usize },
}

/// A case under way.
struct Pipeline {
    case: PipelineCase,
    ends: Ends,
    packets: Vec<(SocketAddr, [u8; DATAGRAM_BYTES + 64], usize)>,
    answers: Datagrams,
    /// The connection of the last packet.
    turn: usize,
    /// Packets since the connections were made.
    packet_count: u64,
    message_count: u64,
    delivered_count: u64,
    /// Acks of all connections, replaced ones included.
    ack_count: u64,
    received_bytes: u64,
}

impl Pipeline {
    fn new(case: PipelineCase) -> Self {
        let packets = vec![(client_address(), [0; DATAGRAM_BYTES + 64], 0); PREPARED];
        let mut answers = Datagrams::default();
        answers.reserve(2 * BATCH);
        let ends = connect(case);
        Self {
            case,
            ends,
            packets,
            answers,
            turn: 0,
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
                self.ends = connect(self.case);
                (self.packet_count, self.message_count, self.delivered_count) = (0, 0, 0);
            }
            let wanted = usize::try_from(left).unwrap_or(PREPARED).min(PREPARED);
            let mut prepared = self.prepare(wanted);
            for _ in 0..PATIENCE_MS {
                if prepared == 0 {
                    self.wait();
                    prepared = self.prepare(wanted);
                }
            }
            assert!(prepared > 0, "{}: a client that may send nothing", self.case.name());
            for start in (0..prepared).step_by(BATCH) {
                took += self.take_in(start, prepared.min(start + BATCH));
            }
            self.hand_over_answers();
            left -= prepared as u64;
            self.packet_count += prepared as u64;
        }
        self.check();
        took
    }

    /// Makes this number of packets, or as many as may be in flight.
    fn prepare(&mut self, count: usize) -> usize {
        let mut made = 0;
        for (from, memory, bytes) in self.packets.iter_mut().take(count) {
            (*bytes, *from) = match &mut self.ends {
                Ends::Sealed(crowd) => {
                    let payload = [7; DATAGRAM_BYTES];
                    let length = PacketSealer::payload_bytes(DATAGRAM_BYTES).expect("room for a message");
                    self.turn = (self.turn + 1) % crowd.sealers.len();
                    let (address, sealer) = &mut crowd.sealers[self.turn];
                    sealer.seal(&mut memory[..DATAGRAM_BYTES], &payload[..length]).expect("numbers are left");
                    self.message_count += 1;
                    (DATAGRAM_BYTES, *address)
                }
                Ends::Real { group, payload_bytes } => {
                    let Some(bytes) = real_packet(group, *payload_bytes, &mut self.message_count, memory)
                    else {
                        break;
                    };
                    // Message ids grow longer. A packet that carries an ack is an exception.
                    if bytes.abs_diff(DATAGRAM_BYTES) <= 3 {
                        *payload_bytes = *payload_bytes + DATAGRAM_BYTES - bytes;
                    }
                    (bytes, client_address())
                }
            };
            self.received_bytes += *bytes as u64;
            made += 1;
        }
        made
    }

    /// Lets a millisecond pass in which the client may send nothing.
    fn wait(&mut self) {
        if let Ends::Real { group, .. } = &mut self.ends {
            group.pass(Duration::from_millis(1));
            group.server.handle_timeout(group.now);
            self.answers.take_all_from(&mut group.server, group.now);
        }
        self.hand_over_answers();
    }

    /// Passes one batch to the server. Returns the time that it took.
    fn take_in(&mut self, start: usize, end: usize) -> Duration {
        let (server, now) = match &mut self.ends {
            Ends::Sealed(crowd) => (&mut crowd.server, &mut crowd.now),
            Ends::Real { group, .. } => (&mut group.server, &mut group.now),
        };
        now.monotonic = now.monotonic.after(BATCH_INTERVAL);
        let batch = self.packets[start..end]
            .iter_mut()
            .map(|(from, memory, bytes)| Inbound { from: (*from).into(), bytes: &mut memory[..*bytes] });
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
    fn hand_over_answers(&mut self) {
        if let Ends::Real { group, .. } = &mut self.ends {
            group.client.handle_datagrams(group.now, self.answers.inbound(server_address()));
            group.client.handle_timeout(group.now);
            while group.client.poll_event().is_some() {}
        }
        self.answers.clear();
    }

    fn check(&self) {
        let server = match &self.ends {
            Ends::Sealed(crowd) => &crowd.server,
            Ends::Real { group, .. } => &group.server,
        };
        assert_eq!(self.delivered_count, self.message_count, "{}: delivered and sent", self.case.name());
        assert_eq!(server.stats().dropped_count(), 0, "{}: dropped", self.case.name());
    }
}

fn connect(case: PipelineCase) -> Ends {
    let has_aes_gcm = case.suite.1;
    if case.source == RELIABLE {
        let config = Config::default().has_aes_gcm(has_aes_gcm).congestion(UNLIMITED);
        let group = Group::connect(1, &config).expect("a connection");
        return Ends::Real { group: Box::new(group), payload_bytes: 97 };
    }
    Ends::Sealed(Box::new(Crowd::connect(case.connections, has_aes_gcm).expect("connections")))
}

/// Writes the next packet of a client, usually with one message. Returns its length, or `None` when the client must wait.
fn real_packet(group: &mut Group, bytes: usize, sent: &mut u64, memory: &mut [u8]) -> Option<usize> {
    const PAYLOAD: &[u8] = &[7; 2 * DATAGRAM_BYTES];
    let Group { client, links, now, .. } = group;
    // The client sends a waiting message before it gets the next one.
    if client.stats().messages_sent == *sent {
        let payload = Bytes::from_static(&PAYLOAD[..bytes]);
        client.send(*now, links[0].server, ChannelId(0), payload, SendOptions::reliable_ordered()).ok()?;
    }
    let mut datagram = [0; 1_200];
    let transmit = client.poll_transmit(*now, &mut datagram)?;
    *sent = client.stats().messages_sent;
    memory[..transmit.bytes].copy_from_slice(&datagram[..transmit.bytes]);
    Some(transmit.bytes)
}

type Cipher = OpenAlone<DATAGRAM_BYTES>;

/// Opens this number of packets. Returns the time that it took.
fn open_alone(open: &mut Cipher, count: u64) -> Duration {
    let mut took = Duration::ZERO;
    open.run(count, |open| {
        let start = clock::now();
        open();
        took += start.elapsed();
    });
    took
}

fn suite_of(suite: (&str, bool)) -> Suite {
    if suite.1 { Suite::Aes128Gcm } else { Suite::ChaCha20Poly1305 }
}

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
    for suite in [CHACHA, AES] {
        let mut open = Cipher::new(suite_of(suite));
        group.bench_function(BenchmarkId::new("open alone", suite.0), |bencher| {
            bencher.iter_custom(|count| open_alone(&mut open, count));
        });
    }
    group.finish();
    figures(bench)
}

/// The nanoseconds, acks, and bytes per packet in a round.
#[derive(Clone, Copy, Debug)]
struct PacketRound {
    ns: f64,
    acks: f64,
    bytes: f64,
}

/// The ciphers alone, and then every case.
fn arms(packets: u64) -> Vec<Work<'static, PacketRound>> {
    let mut arms = Vec::new();
    for suite in [CHACHA, AES] {
        let mut open = Cipher::new(suite_of(suite));
        arms.push(Work::new(format!("open alone, {}", suite.0), move || {
            let ns = open_alone(&mut open, packets).as_nanos() as f64 / packets as f64;
            Ok(PacketRound { ns, acks: 0.0, bytes: DATAGRAM_BYTES as f64 })
        }));
    }
    for case in CASES {
        let mut pipeline = Pipeline::new(case);
        arms.push(Work::new(case.name(), move || {
            let (acks, bytes) = (pipeline.ack_count, pipeline.received_bytes);
            let ns = pipeline.run(packets).as_nanos() as f64 / packets as f64;
            let acks = (pipeline.ack_count - acks) as f64 / packets as f64;
            let bytes = (pipeline.received_bytes - bytes) as f64 / packets as f64;
            Ok(PacketRound { ns, acks, bytes })
        }));
    }
    arms
}

fn figures(bench: &mut Bench) -> Result<(), String> {
    let arms = rounds(bench, arms(bench.extent().pick(1_024, 200_000, 200_000)))?;
    let [chacha, aes, pipelines @ ..] = &arms[..] else { return Err("there were no rounds".to_owned()) };
    let right = |heading| (heading, Align::Right);
    let mut table = TextTable::new(&[
        ("per packet of 128 B", Align::Left),
        right("ns"),
        right("least-most"),
        right("acks"),
        right("own code, ns"),
        right("own over one ChaCha20-Poly1305 open"),
        right("void"),
    ]);
    for (at, arm) in arms.iter().enumerate() {
        let (ns, note) = (spread(arm, |round| round.ns)?, busy_note(arm));
        bench.results.spread(format!("{}, per packet", arm.name), Some(ns), "ns", Goal::Shown, note);
        let case = at.checked_sub(2).and_then(|at| CASES.get(at));
        let own = case.map(|case| own_code(arm, if case.suite == AES { aes } else { chacha }, chacha));
        if let Some([own, over]) = own {
            let name = |what: &str| format!("{}, own code {what}", arm.name);
            bench.results.spread(name("per packet"), own, "ns", Goal::Shown, note);
            let goal = Goal::AtMost(OWN_OVER_OPEN);
            bench.results.spread(name("over one ChaCha20-Poly1305 open"), over, "", goal, note);
        }
        let [own, over] = own.unwrap_or_default();
        let cell = |spread: Option<Spread>| {
            spread.map_or_else(String::new, |spread| format!("{:.2}", spread.median))
        };
        table.row([
            arm.name.clone(),
            format!("{:.1}", ns.median),
            format!("{:.1}-{:.1}", ns.least, ns.most),
            format!("{:.3}", spread(arm, |round| round.acks)?.median),
            cell(own),
            cell(over),
            void_cell(arm),
        ]);
    }
    println!("\n{}", table.render());
    for arm in pipelines {
        let bytes = spread(arm, |round| round.bytes)?.median;
        if bench.extent() != Extent::Quick && (bytes - DATAGRAM_BYTES as f64).abs() > 0.5 {
            return Err(format!("{}: packets of {bytes:.1} B", arm.name));
        }
    }
    Ok(())
}

/// The time without the cipher, and its ratio to one ChaCha20-Poly1305 open. Both are computed round by round, so that a change of the
/// machine's speed affects both sides.
fn own_code(
    arm: &Rounds<PacketRound>,
    open: &Rounds<PacketRound>,
    chacha: &Rounds<PacketRound>,
) -> [Option<Spread>; 2] {
    let own = arm.rounds.iter().zip(&open.rounds).map(|(whole, open)| whole.ns - open.ns);
    let over = own.clone().zip(&chacha.rounds).map(|(own, chacha)| own / chacha.ns);
    [Spread::of(own), Spread::of(over)]
}
