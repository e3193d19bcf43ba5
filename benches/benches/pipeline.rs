//! The whole receiving side of a server in memory, per packet of 128 B: parse, look up, replay window, open, frames, ack
//! bookkeeping, timers, delivery, taking the event, and the acks that follow. `cargo bench --bench pipeline`.
//!
//! Criterion measures the parts. Then rounds of the whole and of an open alone take turns in one run, and the difference is
//! our own code per packet: what is not the cipher. Goal: 0.6 of one ChaCha20-Poly1305 open of 128 B. Acks are sealed within
//! it. The work of the clients is not timed, and there is no socket. `stages` measures the steps before the open.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group};
use drumfire_benches::group::{BATCH, Datagrams, Group, UNLIMITED, client_address};
use drumfire_benches::pair::{Crowd, server_address, take_messages};
use drumfire_benches::{
    Extent, Goal, OpenAlone, Options, Results, Rounds, Spread, Work, criterion_extent, ending,
    interleave_work, pin,
};
use drumfire_crypto::Suite;
use drumfire_proto::{ChannelId, Config, Inbound, SendOptions};
use drumfire_puppet::PacketSealer;
use drumfire_tools::table::{Align, TextTable};
use drumfire_tools::{clock, host};

const DATAGRAM_BYTES: usize = 128;
/// Between two batches, in virtual time: a million packets per second.
const BATCH_INTERVAL: Duration = Duration::from_micros(32);
/// Packets made before the first of them is taken in: less than may be under way.
const PREPARED: usize = 8 * BATCH;
/// Packets after which connections are made anew: those that only seal do not hear when to change keys.
const CONNECTION_PACKETS: u64 = 1 << 20;
/// How long a client may have nothing to send.
const PATIENCE_MS: u32 = 1_000;
/// Goal for our own code, over one ChaCha20-Poly1305 open.
const OWN_OVER_OPEN: f64 = 0.6;

const CHACHA: (&str, bool) = ("ChaCha20-Poly1305", false);
const AES: (&str, bool) = ("AES-128-GCM", true);
const CASES: [Case; 5] = [
    Case { suite: CHACHA, source: "Unreliable", connections: 1 },
    Case { suite: AES, source: "Unreliable", connections: 1 },
    Case { suite: CHACHA, source: RELIABLE, connections: 1 },
    Case { suite: AES, source: RELIABLE, connections: 1 },
    Case { suite: CHACHA, source: "Unreliable", connections: 200 },
];
const RELIABLE: &str = "ReliableOrdered";

/// What is sent, to how many connections in turn.
#[derive(Clone, Copy, Debug)]
struct Case {
    suite: (&'static str, bool),
    source: &'static str,
    connections: u8,
}

impl Case {
    fn name(self) -> String {
        let plural = if self.connections == 1 { "" } else { "s" };
        format!("{}, {}, {} connection{plural}", self.source, self.suite.0, self.connections)
    }
}

/// A server and who sends to it.
enum Ends {
    /// Packets of one unreliable message each, from nobody who listens.
    Sealed(Box<Crowd>),
    /// Packets of a client's endpoint, which hears the acks.
    Real { group: Box<Group>, payload_bytes: usize },
}

/// A case under way.
struct Pipeline {
    case: Case,
    ends: Ends,
    packets: Vec<(SocketAddr, [u8; DATAGRAM_BYTES + 64], usize)>,
    answers: Datagrams,
    /// Whose packet was made last.
    turn: usize,
    /// Since the connections were made.
    packet_count: u64,
    message_count: u64,
    delivered_count: u64,
    /// Over all connections there were.
    ack_count: u64,
    received_bytes: u64,
}

impl Pipeline {
    fn new(case: Case) -> Self {
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

    /// Takes in so many packets; answers how long the server took.
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

    /// Makes so many packets, or as many as may be under way.
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
                    // Numbers grow longer; a packet with an ack inside is an exception.
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

    /// A millisecond in which the client may send nothing.
    fn wait(&mut self) {
        if let Ends::Real { group, .. } = &mut self.ends {
            group.pass(Duration::from_millis(1));
            group.server.handle_timeout(group.now);
            self.answers.take_all_from(&mut group.server, group.now);
        }
        self.hand_over_answers();
    }

    /// One batch at a server; answers how long it took.
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

    /// The client hears what the server had to say, and goes on at the same time.
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

fn connect(case: Case) -> Ends {
    let has_aes_gcm = case.suite.1;
    if case.source == RELIABLE {
        let config = Config::default().has_aes_gcm(has_aes_gcm).congestion(UNLIMITED);
        let group = Group::connect(1, &config).expect("a connection");
        return Ends::Real { group: Box::new(group), payload_bytes: 97 };
    }
    Ends::Sealed(Box::new(Crowd::connect(case.connections, has_aes_gcm).expect("connections")))
}

/// The next packet of a client, with one message as a rule; answers its length, or `None` when it must wait.
fn real_packet(group: &mut Group, bytes: usize, sent: &mut u64, memory: &mut [u8]) -> Option<usize> {
    const PAYLOAD: &[u8] = &[7; 2 * DATAGRAM_BYTES];
    let Group { client, links, now, .. } = group;
    // A message that waits goes before the next is given.
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

/// Opens so many packets; answers how long that took.
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

fn parts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group(format!("pipeline, {DATAGRAM_BYTES} B"));
    group.throughput(Throughput::ElementsAndBytes { elements: 1, bytes: DATAGRAM_BYTES as u64 });
    group.sample_size(20).measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_secs(1));
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
}

/// What one arm took per packet in a round, in nanoseconds, and what else it saw.
#[derive(Clone, Copy, Debug)]
struct Round {
    ns: f64,
    acks: f64,
    bytes: f64,
}

/// Rounds of every case and of both ciphers alone, in turns: the ciphers first.
fn rounds(extent: Extent) -> Result<Vec<Rounds<Round>>, String> {
    let (rounds, packets) = if extent == Extent::Quick { (1, 1_024) } else { (9, 200_000) };
    let mut arms = Vec::new();
    for suite in [CHACHA, AES] {
        let mut open = Cipher::new(suite_of(suite));
        arms.push(Work::new(format!("open alone, {}", suite.0), move || {
            let ns = open_alone(&mut open, packets).as_nanos() as f64 / packets as f64;
            Ok(Round { ns, acks: 0.0, bytes: DATAGRAM_BYTES as f64 })
        }));
    }
    for case in CASES {
        let mut pipeline = Pipeline::new(case);
        arms.push(Work::new(case.name(), move || {
            let (acks, bytes) = (pipeline.ack_count, pipeline.received_bytes);
            let ns = pipeline.run(packets).as_nanos() as f64 / packets as f64;
            let acks = (pipeline.ack_count - acks) as f64 / packets as f64;
            let bytes = (pipeline.received_bytes - bytes) as f64 / packets as f64;
            Ok(Round { ns, acks, bytes })
        }));
    }
    interleave_work(arms, 1, rounds, extent != Extent::Quick)
}

fn spread(arm: &Rounds<Round>, value: impl Fn(&Round) -> f64) -> Spread {
    Spread::of(arm.rounds.iter().map(value)).expect("there was a round")
}

/// Prints what is left of each case without its cipher, over one ChaCha20-Poly1305 open, and writes the report.
fn derive(extent: Extent) -> Result<(), String> {
    pin();
    let arms = rounds(extent)?;
    let [chacha, aes, pipelines @ ..] = &arms[..] else { return Err("there were no rounds".to_owned()) };
    let mut results = Results::new("pipeline", &Options { extent, only: None });
    let mut table = TextTable::new(&[
        ("per packet of 128 B", Align::Left),
        ("ns", Align::Right),
        ("least-most", Align::Right),
        ("acks", Align::Right),
        ("own code, ns", Align::Right),
        ("own over one ChaCha20-Poly1305 open", Align::Right),
        ("void", Align::Right),
    ]);
    for (at, arm) in arms.iter().enumerate() {
        let ns = spread(arm, |round| round.ns);
        let note = if arm.is_busy { drumfire_benches::BUSY } else { "" };
        results.figure(format!("{}, per packet", arm.name), Some(ns.median), "ns", Goal::Shown, note);
        let mut cells = vec![
            arm.name.clone(),
            format!("{:.1}", ns.median),
            format!("{:.1}-{:.1}", ns.least, ns.most),
            format!("{:.3}", spread(arm, |round| round.acks).median),
        ];
        if let Some(case) = at.checked_sub(2).and_then(|at| CASES.get(at)) {
            let open = if case.suite == AES { aes } else { chacha };
            // Round by round, so that a machine that drifts does so on both sides.
            let own = arm.rounds.iter().zip(&open.rounds).map(|(whole, open)| whole.ns - open.ns);
            let over = own.clone().zip(&chacha.rounds).map(|(own, chacha)| own / chacha.ns);
            let own = Spread::of(own).map(|own| own.median);
            let over = Spread::of(over).map(|over| over.median);
            results.figure(format!("{}, own code per packet", arm.name), own, "ns", Goal::Shown, note);
            results.figure(
                format!("{}, own code over one ChaCha20-Poly1305 open", arm.name),
                over,
                "",
                Goal::AtMost(OWN_OVER_OPEN),
                note,
            );
            cells.extend(
                [own, over].map(|value| value.map_or_else(String::new, |value| format!("{value:.2}"))),
            );
        } else {
            cells.extend([String::new(), String::new()]);
        }
        cells.push(format!("{}{}", arm.voided, if arm.is_busy { " busy" } else { "" }));
        table.row(cells);
    }
    println!("\n{}", table.render());
    for arm in pipelines {
        let bytes = spread(arm, |round| round.bytes).median;
        if extent != Extent::Quick && (bytes - DATAGRAM_BYTES as f64).abs() > 0.5 {
            return Err(format!("{}: packets of {bytes:.1} B", arm.name));
        }
    }
    println!("{}", results.table());
    println!("written to {}", results.write()?.display());
    Ok(())
}

criterion_group!(criterion_parts, parts);

fn main() -> ExitCode {
    println!("machine   {}", host::machine());
    criterion_parts();
    Criterion::default().configure_from_args().final_summary();
    ending(derive(criterion_extent()))
}
