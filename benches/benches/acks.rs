//! What one ack costs the end that hears it, by how many ranges it has and how many packets are under way:
//! `cargo bench --bench acks`.
//!
//! The work should grow with the ranges and with what is newly acknowledged, never with what is under way. Each ack comes in
//! a packet of its own, whose parsing and opening (AES-128-GCM) is part of every figure; acks come eight at a time. The
//! acknowledged packets carry one message each, unreliable or the value of a key. Reliable messages with ids, of which no
//! more than 4,096 and no more than there is credit for may be under way, are not measured here.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group};
use drumfire_benches::group::UNLIMITED;
use drumfire_benches::pair::Crowd;
use drumfire_benches::{
    BUSY, Extent, Goal, Options, Results, Spread, Work, criterion_extent, ending, interleave_work, pin,
};
use drumfire_proto::{ChannelId, Config, Inbound, PeerId, SendOptions};
use drumfire_tools::table::{Align, TextTable};
use drumfire_tools::{clock, host};
use drumfire_wire::{AckRange, ConnectionIdLength, PacketNumber, TransportHeader};

/// What each packet under way carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    /// Nothing that anybody waits for.
    Unreliable,
    /// A value of a key of its own, whose fate is followed.
    Value,
}

/// More keys than are ever under way.
const KEYS: u64 = 1 << 14;

const RANGES: [usize; 3] = [1, 8, 32];
const IN_FLIGHT: [usize; 3] = [32, 512, 4_096];
/// Acks of one call, where enough is under way.
const ACKS: usize = 8;
/// Packets acknowledged before that are remembered, so that ranges can name them again.
const REMEMBERED: usize = 128;
/// Acks after which the connection is made anew: its sealing half does not hear when to change keys.
const CONNECTION_ACKS: u64 = 1 << 20;
/// Room for 32 ranges and for what is around an ack.
const DATAGRAM_BYTES: usize = 256;
/// How long it may take until enough is under way.
const PATIENCE_MS: u32 = 1_000;
/// Goal for 4,096 over 2,048 under way.
const DOUBLE: f64 = 2.2;

/// What the ranges of an ack name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    /// One packet that is new, and ones that were acknowledged before: acks of a peer that did not hear of its own.
    First,
    /// One packet that is new in each; those between are found lost.
    Each,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    load: Load,
    news: News,
    ranges: usize,
    in_flight: usize,
}

impl Case {
    fn name(self) -> String {
        let ranges = match self.ranges {
            1 => "1 range".to_owned(),
            ranges => format!("{ranges} ranges"),
        };
        let load = if self.load == Load::Value { ", values of keys" } else { "" };
        format!("{ranges}, {} in flight{load}", self.in_flight)
    }

    /// Acks of one call: no more than leave half of the packets under way.
    fn acks(self) -> usize {
        let each = if self.news == News::Each { 2 * self.ranges } else { 1 };
        ACKS.min(self.in_flight / 2 / each).max(1)
    }
}

/// A server with packets under way.
struct Sender {
    case: Case,
    crowd: Crowd,
    peer: PeerId,
    /// Numbers and lengths of packets under way, oldest first.
    in_flight: VecDeque<(u64, usize)>,
    in_flight_bytes: usize,
    newest: Option<PacketNumber>,
    /// Numbers acknowledged before, oldest first.
    acknowledged: VecDeque<u64>,
    ack_count: u64,
    sent_count: u64,
}

impl Sender {
    fn new(case: Case) -> Self {
        let memory_bytes = 4 << 20;
        let settings = Config::default()
            .in_flight_bytes(64 << 20)
            .congestion(UNLIMITED)
            .memory_bytes(memory_bytes, memory_bytes)
            .has_aes_gcm(true);
        let mut crowd = Crowd::connect_to(settings, 1, true).expect("a connection");
        let peer = crowd.peers[0];
        let in_flight_bytes = in_flight_bytes(&mut crowd, peer);
        assert_eq!(in_flight_bytes, 0, "a connection with nothing under way");
        let mut sender = Self {
            case,
            crowd,
            peer,
            in_flight: VecDeque::new(),
            in_flight_bytes,
            newest: None,
            acknowledged: VecDeque::new(),
            ack_count: 0,
            sent_count: 0,
        };
        // So that there are packets to name again.
        sender.fill(case.in_flight + REMEMBERED);
        for _ in 0..REMEMBERED / ACKS {
            sender.hear(Case { news: News::First, ranges: 1, in_flight: 2 * ACKS, ..case });
        }
        sender
    }

    /// So many acks; answers how long the server took.
    fn run(&mut self, count: u64) -> Duration {
        let (mut took, mut left) = (Duration::ZERO, count);
        while left > 0 {
            if self.ack_count >= CONNECTION_ACKS {
                *self = Self::new(self.case);
            }
            self.fill(self.case.in_flight);
            let (acks, of_them) = self.hear(self.case);
            // The last call has more acks than are left; its share counts.
            let counted = left.min(acks);
            took += of_them.mul_f64(counted as f64 / acks as f64);
            left -= counted;
        }
        took
    }

    /// Sends packets until so many are under way. Where fewer may be, all but the newest are acknowledged, so that more may.
    fn fill(&mut self, count: usize) {
        for _ in 0..PATIENCE_MS {
            while self.in_flight.len() < count && self.send_one() {}
            if self.in_flight.len() >= count {
                return;
            }
            self.crowd.now.monotonic = self.crowd.now.monotonic.after(Duration::from_millis(1));
            while self.in_flight.len() >= 2 * ACKS {
                self.hear(Case { news: News::First, ranges: 1, in_flight: 2 * ACKS, ..self.case });
            }
        }
        panic!("{}: {} packets may be under way", self.case.name(), self.in_flight.len());
    }

    /// Sends a packet with one message; false when none may be sent now.
    fn send_one(&mut self) -> bool {
        let mut datagram = [0; 1_200];
        let now = self.crowd.now;
        let server = &mut self.crowd.server;
        // A message that waits goes before the next is given.
        if server.stats().messages_sent >= self.sent_count {
            self.sent_count += 1;
            let options = match self.case.load {
                Load::Unreliable => SendOptions::unreliable(),
                Load::Value => SendOptions::reliable_latest(self.sent_count % KEYS),
            };
            let payload = Bytes::from_static(&[7; 8]);
            server.send(now, self.peer, ChannelId(0), payload, options).expect("room for a message");
        }
        let Some(transmit) = server.poll_transmit(now, &mut datagram) else { return false };
        let header = TransportHeader::decode(&datagram[..transmit.bytes], ConnectionIdLength::Zero);
        let number = header.expect("a packet").number.expand(self.newest);
        self.newest = Some(number);
        self.in_flight.push_back((number.0, transmit.bytes));
        self.in_flight_bytes += transmit.bytes;
        true
    }

    /// One call with acks of this kind; answers how many there were, and how long it took.
    fn hear(&mut self, case: Case) -> (u64, Duration) {
        let mut datagrams = [([0; DATAGRAM_BYTES], 0); ACKS];
        let acks = case.acks();
        let mut ranges = Vec::with_capacity(case.ranges);
        let mut lost = None;
        for (datagram, bytes) in &mut datagrams[..acks] {
            ranges.clear();
            match case.news {
                News::First => {
                    ranges.push(self.settle());
                    // Every second of those before, so that no two ranges touch.
                    let before = self.acknowledged.iter().rev().skip(2).step_by(2).copied();
                    ranges.extend(before.take(case.ranges - 1));
                }
                News::Each => {
                    for _ in 0..case.ranges {
                        lost = Some(self.settle());
                        ranges.push(self.settle());
                    }
                    ranges.reverse();
                }
            }
            let (_, sealer) = &mut self.crowd.sealers[0];
            let singles = ranges.iter().filter_map(|&number| {
                let number = PacketNumber(number);
                AckRange::new(number, number)
            });
            let sealed = sealer.seal_ack(datagram, Duration::ZERO, singles);
            *bytes = sealed.expect("numbers and room are left");
        }
        let now = &mut self.crowd.now;
        now.monotonic = now.monotonic.after(Duration::from_nanos(1));
        let from = self.crowd.sealers[0].0;
        let batch = datagrams[..acks]
            .iter_mut()
            .map(|(datagram, bytes)| Inbound { from: from.into(), bytes: &mut datagram[..*bytes] });
        let start = clock::now();
        self.crowd.server.handle_datagrams(self.crowd.now, batch);
        let took = start.elapsed();
        self.ack_count += acks as u64;
        self.check(lost);
        (acks as u64, took)
    }

    /// The oldest packet under way is settled now: its number.
    fn settle(&mut self) -> u64 {
        let (number, bytes) = self.in_flight.pop_front().expect("enough is under way");
        self.in_flight_bytes -= bytes;
        self.acknowledged.push_back(number);
        if self.acknowledged.len() > REMEMBERED {
            self.acknowledged.pop_front();
        }
        number
    }

    /// The server knows the same of what is under way. A packet just below the newest acknowledged one is not lost yet.
    fn check(&mut self, last_lost: Option<u64>) {
        let known = in_flight_bytes(&mut self.crowd, self.peer);
        let most =
            if last_lost.is_some() { self.in_flight_bytes + DATAGRAM_BYTES } else { self.in_flight_bytes };
        assert!((self.in_flight_bytes..=most).contains(&known), "{known} B under way, not {most}");
        assert_eq!(self.crowd.server.stats().dropped_count(), 0, "acks were dropped");
    }
}

/// Returns the bytes that the server has in flight on this connection.
fn in_flight_bytes(crowd: &mut Crowd, peer: PeerId) -> usize {
    let Crowd { server, now, .. } = crowd;
    server.peer_stats(*now, peer).expect("the connection is open").in_flight_bytes
}

/// Those that fit: of a new packet in each range, twice as many must be under way as two acks settle.
fn cases(load: Load, news: News) -> impl Iterator<Item = Case> {
    let all = RANGES.into_iter().flat_map(move |ranges| {
        IN_FLIGHT.into_iter().map(move |in_flight| Case { load, news, ranges, in_flight })
    });
    all.filter(|case| case.news == News::First || (case.ranges > 1 && 4 * case.ranges <= case.in_flight))
        .filter(|case| case.load == Load::Unreliable || case.ranges == 1)
}

fn parts(criterion: &mut Criterion) {
    for (load, news, name) in [
        (Load::Unreliable, News::First, "an ack with one new packet"),
        (Load::Value, News::First, "an ack with one new packet of a value"),
        (Load::Unreliable, News::Each, "an ack with a new packet in each range"),
    ] {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(1));
        group
            .sample_size(20)
            .measurement_time(Duration::from_secs(1))
            .warm_up_time(Duration::from_millis(500));
        for case in cases(load, news) {
            let mut sender = Sender::new(case);
            group.bench_function(BenchmarkId::from_parameter(case.name()), |bencher| {
                bencher.iter_custom(|count| sender.run(count));
            });
        }
        group.finish();
    }
}

/// Rounds of acks with one new packet, with more and more under way and of more ranges, in turns; prints how the cost grows.
fn derive(extent: Extent) -> Result<(), String> {
    const HALF: usize = 2_048;
    const WHOLE: usize = 4_096;
    pin();
    let (rounds, acks) = if extent == Extent::Quick { (1, 64) } else { (9, 50_000) };
    let case = |load, ranges, in_flight| Case { load, news: News::First, ranges, in_flight };
    let unreliable = [32, 512, 1_024, HALF, WHOLE, 8_192].map(|count| case(Load::Unreliable, 1, count));
    let values = [512, HALF, WHOLE].map(|count| case(Load::Value, 1, count));
    let ranges = [8, 32].map(|ranges| case(Load::Unreliable, ranges, 512));
    let mut arms = Vec::new();
    for case in [&unreliable[..], &values, &ranges].concat() {
        let mut sender = Sender::new(case);
        arms.push(Work::new(case.name(), move || Ok(sender.run(acks).as_nanos() as f64 / acks as f64)));
    }
    let arms = interleave_work(arms, 1, rounds, extent != Extent::Quick)?;
    let mut results = Results::new("acks", &Options { extent, only: None });
    let mut table = TextTable::new(&[
        ("an ack with one new packet", Align::Left),
        ("ns", Align::Right),
        ("least-most", Align::Right),
        ("void", Align::Right),
    ]);
    for arm in &arms {
        let ns = Spread::of(arm.rounds.iter().copied()).ok_or("there were no rounds")?;
        let note = if arm.is_busy { BUSY } else { "" };
        let name = format!("an ack with one new packet: {}", arm.name);
        results.figure(name, Some(ns.median), "ns", Goal::Shown, note);
        table.row([
            arm.name.clone(),
            format!("{:.1}", ns.median),
            format!("{:.1}-{:.1}", ns.least, ns.most),
            format!("{}{}", arm.voided, if arm.is_busy { " busy" } else { "" }),
        ]);
    }
    let rounds_of = |case: Case| arms.iter().find(|arm| arm.name == case.name());
    for (load, name) in [(Load::Unreliable, ""), (Load::Value, ", values of keys")] {
        let both = rounds_of(case(load, 1, WHOLE)).zip(rounds_of(case(load, 1, HALF)));
        let (whole, half) = both.ok_or("there were no rounds")?;
        let ratio = Spread::of(whole.rounds.iter().zip(&half.rounds).map(|(whole, half)| whole / half));
        let note = if whole.is_busy || half.is_busy { BUSY } else { "" };
        let name = format!("cost of an ack, 4,096 over 2,048 in flight{name}");
        results.figure(name, ratio.map(|ratio| ratio.median), "", Goal::AtMost(DOUBLE), note);
    }
    println!("\n{}\n{}", table.render(), results.table());
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
