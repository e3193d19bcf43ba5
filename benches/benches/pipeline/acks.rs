//! The cost of one ack for the end that receives it, by its ranges and by the number of packets in flight.
//!
//! The work should grow with the ranges and with the newly acknowledged packets, never with those in flight. Each ack has a packet of
//! its own, whose parsing and opening (AES-128-GCM) is part of every figure. Acks come eight at a time. The acknowledged packets carry
//! one message each, unreliable or the value of a key. Reliable messages with ids are not measured here, because at most 4,096 of them
//! may be in flight, and no more than there is credit for.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use criterion::{BenchmarkId, Throughput};
use drumfire_benches::group::UNLIMITED;
use drumfire_benches::pair::Crowd;
use drumfire_benches::{Bench, Goal, Spread, Work};
use drumfire_proto::{ChannelId, Config, Inbound, PeerId, SendOptions};
use drumfire_tools::clock;
use drumfire_tools::table::{Align, TextTable};
use drumfire_wire::{AckRange, ConnectionIdLength, PacketNumber, TransportHeader};

use crate::{busy_note, criterion, rounds, spread, void_cell};

/// The message in each packet in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AckLoad {
    /// An unreliable message.
    Unreliable,
    /// The value of a key of its own, which is sent again when it is lost.
    Value,
}

/// More keys than are ever in flight.
const KEYS: u64 = 1 << 14;

const RANGES: [usize; 3] = [1, 8, 32];
const IN_FLIGHT: [usize; 3] = [32, 512, 4_096];
/// Acks of one call, where enough packets are in flight.
const ACKS: usize = 8;
/// Acknowledged packets that are remembered, so that ranges can name them again.
const REMEMBERED: usize = 128;
/// Acks after which the connection is replaced. Its sealer is not notified when keys change.
const CONNECTION_ACKS: u64 = 1 << 20;
/// Room for an ack of 32 ranges in a packet.
const DATAGRAM_BYTES: usize = 256;
/// The virtual time within which enough packets are in flight.
const PATIENCE_MS: u32 = 1_000;
/// The goal for 4,096 over 2,048 packets in flight.
const DOUBLE: f64 = 2.2;

/// The packets that the ranges of an ack name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    /// One new packet, and packets that were acknowledged before, as from a peer whose acks were lost.
    First,
    /// One new packet in each range. The packets between are lost.
    Each,
}

#[derive(Clone, Copy, Debug)]
struct AckCase {
    load: AckLoad,
    news: News,
    ranges: usize,
    in_flight: usize,
}

impl AckCase {
    fn name(self) -> String {
        let ranges = match self.ranges {
            1 => "1 range".to_owned(),
            ranges => format!("{ranges} ranges"),
        };
        let load = if self.load == AckLoad::Value { ", values of keys" } else { "" };
        format!("{ranges}, {} in flight{load}", self.in_flight)
    }

    /// Acks of one call. At least half of the packets stay in flight.
    fn acks(self) -> usize {
        let each = if self.news == News::Each { 2 * self.ranges } else { 1 };
        ACKS.min(self.in_flight / 2 / each).max(1)
    }
}

/// A server with packets in flight.
struct AckSender {
    case: AckCase,
    crowd: Crowd,
    peer: PeerId,
    /// Numbers and lengths of packets in flight, oldest first.
    in_flight: VecDeque<(u64, usize)>,
    in_flight_bytes: usize,
    newest: Option<PacketNumber>,
    /// Acknowledged numbers, oldest first.
    acknowledged: VecDeque<u64>,
    ack_count: u64,
    sent_count: u64,
}

impl AckSender {
    fn new(case: AckCase) -> Self {
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
        // Later acks name these packets again.
        sender.fill(case.in_flight + REMEMBERED);
        for _ in 0..REMEMBERED / ACKS {
            sender.hear(AckCase { news: News::First, ranges: 1, in_flight: 2 * ACKS, ..case });
        }
        sender
    }

    /// Passes this number of acks to the server. Returns the time that the server took.
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

    /// Sends packets until this number is in flight. If fewer may be in flight, all but the newest are acknowledged first.
    fn fill(&mut self, count: usize) {
        for _ in 0..PATIENCE_MS {
            while self.in_flight.len() < count && self.send_one() {}
            if self.in_flight.len() >= count {
                return;
            }
            self.crowd.now.monotonic = self.crowd.now.monotonic.after(Duration::from_millis(1));
            while self.in_flight.len() >= 2 * ACKS {
                self.hear(AckCase { news: News::First, ranges: 1, in_flight: 2 * ACKS, ..self.case });
            }
        }
        panic!("{}: {} packets may be under way", self.case.name(), self.in_flight.len());
    }

    /// Sends a packet with one message. Returns false when no packet may be sent now.
    fn send_one(&mut self) -> bool {
        let mut datagram = [0; 1_200];
        let now = self.crowd.now;
        let server = &mut self.crowd.server;
        // The server sends a waiting message before it gets the next one.
        if server.stats().messages_sent >= self.sent_count {
            self.sent_count += 1;
            let options = match self.case.load {
                AckLoad::Unreliable => SendOptions::unreliable(),
                AckLoad::Value => SendOptions::reliable_latest(self.sent_count % KEYS),
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

    /// Passes acks of this kind in one call. Returns their number and the time that it took.
    fn hear(&mut self, case: AckCase) -> (u64, Duration) {
        let mut datagrams = [([0; DATAGRAM_BYTES], 0); ACKS];
        let acks = case.acks();
        let mut ranges = Vec::with_capacity(case.ranges);
        let mut lost = None;
        for (datagram, bytes) in &mut datagrams[..acks] {
            ranges.clear();
            match case.news {
                News::First => {
                    ranges.push(self.settle());
                    // No two ranges touch, because every second packet is left out.
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

    /// Removes the oldest packet in flight, which is acknowledged or lost. Returns its number.
    fn settle(&mut self) -> u64 {
        let (number, bytes) = self.in_flight.pop_front().expect("enough is under way");
        self.in_flight_bytes -= bytes;
        self.acknowledged.push_back(number);
        if self.acknowledged.len() > REMEMBERED {
            self.acknowledged.pop_front();
        }
        number
    }

    /// Compares the bytes in flight with those of the server. A packet just below the newest acknowledged one is not lost yet.
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

/// The cases that are possible. With a new packet in each range, two acks take a quarter of the packets in flight at most.
fn cases(load: AckLoad, news: News) -> impl Iterator<Item = AckCase> {
    let all = RANGES.into_iter().flat_map(move |ranges| {
        IN_FLIGHT.into_iter().map(move |in_flight| AckCase { load, news, ranges, in_flight })
    });
    all.filter(|case| case.news == News::First || (case.ranges > 1 && 4 * case.ranges <= case.in_flight))
        .filter(|case| case.load == AckLoad::Unreliable || case.ranges == 1)
}

/// Measures each case with Criterion, then rounds of acks with one new packet, with more and more packets in flight and ranges.
pub(crate) fn measure(bench: &mut Bench) -> Result<(), String> {
    let mut criterion = criterion(bench, Duration::from_secs(1));
    for (load, news, name) in [
        (AckLoad::Unreliable, News::First, "an ack with one new packet"),
        (AckLoad::Value, News::First, "an ack with one new packet of a value"),
        (AckLoad::Unreliable, News::Each, "an ack with a new packet in each range"),
    ] {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(1));
        for case in cases(load, news) {
            let mut sender = AckSender::new(case);
            group.bench_function(BenchmarkId::from_parameter(case.name()), |bencher| {
                bencher.iter_custom(|count| sender.run(count));
            });
        }
        group.finish();
    }
    figures(bench)
}

fn figures(bench: &mut Bench) -> Result<(), String> {
    const HALF: usize = 2_048;
    const WHOLE: usize = 4_096;
    let acks = bench.extent().pick(64, 50_000, 50_000);
    let case = |load, ranges, in_flight| AckCase { load, news: News::First, ranges, in_flight };
    let unreliable = [32, 512, 1_024, HALF, WHOLE, 8_192].map(|count| case(AckLoad::Unreliable, 1, count));
    let values = [512, HALF, WHOLE].map(|count| case(AckLoad::Value, 1, count));
    let ranges = [8, 32].map(|ranges| case(AckLoad::Unreliable, ranges, 512));
    let mut arms = Vec::new();
    for case in [&unreliable[..], &values, &ranges].concat() {
        let mut sender = AckSender::new(case);
        arms.push(Work::new(case.name(), move || Ok(sender.run(acks).as_nanos() as f64 / acks as f64)));
    }
    let arms = rounds(bench, arms)?;
    let right = |heading| (heading, Align::Right);
    let headings =
        [("an ack with one new packet", Align::Left), right("ns"), right("least-most"), right("void")];
    let mut table = TextTable::new(&headings);
    for arm in &arms {
        let ns = spread(arm, |ns| *ns)?;
        let name = format!("an ack with one new packet: {}", arm.name);
        bench.results.spread(name, Some(ns), "ns", Goal::Shown, busy_note(arm));
        table.row([
            arm.name.clone(),
            format!("{:.1}", ns.median),
            format!("{:.1}-{:.1}", ns.least, ns.most),
            void_cell(arm),
        ]);
    }
    let rounds_of = |case: AckCase| arms.iter().find(|arm| arm.name == case.name());
    for (load, name) in [(AckLoad::Unreliable, ""), (AckLoad::Value, ", values of keys")] {
        let both = rounds_of(case(load, 1, WHOLE)).zip(rounds_of(case(load, 1, HALF)));
        let (whole, half) = both.ok_or("there were no rounds")?;
        let ratio = Spread::of(whole.rounds.iter().zip(&half.rounds).map(|(whole, half)| whole / half));
        let note = if half.is_busy { busy_note(half) } else { busy_note(whole) };
        let name = format!("cost of an ack, 4,096 over 2,048 in flight{name}");
        bench.results.spread(name, ratio, "", Goal::AtMost(DOUBLE), note);
    }
    println!("\n{}", table.render());
    Ok(())
}
