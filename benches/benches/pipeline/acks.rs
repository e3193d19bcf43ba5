//! The cost of one ack for the end that receives it, by its ranges and by the number of packets in flight.
//!
//! The work should grow with the ranges and with the newly acknowledged packets, never with those in flight. Each ack has a packet of
//! its own, whose parsing and opening (AES-128-GCM) is part of every figure. Acks come eight at a time. The acknowledged packets carry
//! one message each, unreliable or the value of a key. Reliable messages with ids are not measured here, because at most 4,096 of them
//! may be in flight, and no more than there is credit for.

use std::collections::VecDeque;
use std::time::Duration;

use criterion::{BenchmarkId, Throughput};
use drumfire_benches::memory::{SealedPeers, UNLIMITED};
use drumfire_benches::{ArmTable, Bench, Goal, Spread, Work, cell};
use drumfire_proto::{Config, Inbound, SendOptions};
use drumfire_tools::clock;
use drumfire_wire::{AckRange, PacketNumber};

use crate::{criterion, rounds};

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
/// The virtual time within which enough packets are in flight, in milliseconds.
const FILL_MS: u32 = 1_000;
/// The goal for 4,096 over 2,048 packets in flight.
const DOUBLE: f64 = 2.2;

#[derive(Clone, Copy, Debug)]
struct AckCase {
    /// Whether each packet carries the value of a key of its own, which is sent again when it is lost. Otherwise it carries an
    /// unreliable message.
    is_value: bool,
    /// Whether each range of an ack is one new packet, and the packets between are lost. Otherwise one range is new, and the others name
    /// packets that were acknowledged before, as from a peer whose acks were lost.
    is_each_new: bool,
    ranges: usize,
    in_flight: usize,
}

impl AckCase {
    fn name(self) -> String {
        let plural = if self.ranges == 1 { "" } else { "s" };
        let load = if self.is_value { ", values of keys" } else { "" };
        format!("{} range{plural}, {} in flight{load}", self.ranges, self.in_flight)
    }

    /// Acks of one call. At least half of the packets stay in flight.
    fn acks(self) -> usize {
        let each = if self.is_each_new { 2 * self.ranges } else { 1 };
        ACKS.min(self.in_flight / 2 / each).max(1)
    }

    /// The same packets with acks of the oldest ones.
    fn oldest_first(self) -> Self {
        Self { is_each_new: false, ranges: 1, in_flight: 2 * ACKS, ..self }
    }
}

/// A server with packets in flight.
struct AckSender {
    case: AckCase,
    sealed: SealedPeers,
    /// Numbers and lengths of packets in flight, oldest first.
    in_flight: VecDeque<(PacketNumber, usize)>,
    in_flight_bytes: usize,
    /// Acknowledged numbers, oldest first.
    acknowledged: VecDeque<PacketNumber>,
    ack_count: u64,
    sent_count: u64,
}

impl AckSender {
    fn new(case: AckCase) -> Self {
        let config = Config::default()
            .in_flight_bytes(64 << 20)
            .congestion(UNLIMITED)
            .memory_bytes(4 << 20, 4 << 20)
            .has_aes_gcm(true);
        let mut sender = Self {
            case,
            sealed: SealedPeers::of_server(config, 1, None).expect("a connection"),
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            acknowledged: VecDeque::new(),
            ack_count: 0,
            sent_count: 0,
        };
        sender.check(false);
        // Later acks name these packets again.
        sender.fill(case.in_flight + REMEMBERED);
        for _ in 0..REMEMBERED / ACKS {
            sender.receive(case.oldest_first());
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
            let (acks, of_them) = self.receive(self.case);
            // The last call has more acks than are left; its share counts.
            let counted = left.min(acks);
            took += of_them.mul_f64(counted as f64 / acks as f64);
            left -= counted;
        }
        took
    }

    /// Sends packets until this number is in flight. If fewer may be in flight, all but the newest are acknowledged first.
    fn fill(&mut self, count: usize) {
        for _ in 0..FILL_MS {
            while self.in_flight.len() < count && self.send_one() {}
            if self.in_flight.len() >= count {
                return;
            }
            self.sealed.pass(Duration::from_millis(1));
            while self.in_flight.len() >= 2 * ACKS {
                self.receive(self.case.oldest_first());
            }
        }
        panic!("{}: only {} packets may be in flight", self.case.name(), self.in_flight.len());
    }

    /// Sends a packet with one message. Returns false when no packet may be sent now.
    fn send_one(&mut self) -> bool {
        // The server sends a waiting message before it gets the next one.
        if self.sealed.endpoint.stats().messages_sent >= self.sent_count {
            self.sent_count += 1;
            let value = SendOptions::reliable_latest(self.sent_count % KEYS);
            self.sealed.send(&[7; 8], if self.case.is_value { value } else { SendOptions::unreliable() });
        }
        let Some((number, bytes)) = self.sealed.take_packet() else { return false };
        self.in_flight.push_back((number, bytes));
        self.in_flight_bytes += bytes;
        true
    }

    /// Passes acks of this kind in one call. Returns their number and the time that it took.
    fn receive(&mut self, case: AckCase) -> (u64, Duration) {
        let mut datagrams = [([0; DATAGRAM_BYTES], 0); ACKS];
        let acks = case.acks();
        for (datagram, bytes) in &mut datagrams[..acks] {
            let ranges = self.ranges(case).into_iter().filter_map(|number| AckRange::new(number, number));
            let ack = self.sealed.peers[0].sealer.seal_ack(datagram, Duration::ZERO, ranges);
            *bytes = ack.expect("numbers and room are left");
        }
        self.sealed.pass(Duration::from_nanos(1));
        let from = self.sealed.peers[0].address;
        let batch = datagrams[..acks]
            .iter_mut()
            .map(|(datagram, bytes)| Inbound { from: from.into(), bytes: &mut datagram[..*bytes] });
        let start = clock::now();
        self.sealed.endpoint.handle_datagrams(self.sealed.now, batch);
        let took = start.elapsed();
        self.ack_count += acks as u64;
        self.check(case.is_each_new);
        (acks as u64, took)
    }

    /// Returns the packets that an ack names, the newest first. No two of them are neighbors.
    fn ranges(&mut self, case: AckCase) -> Vec<PacketNumber> {
        if case.is_each_new {
            let mut ranges = Vec::with_capacity(case.ranges);
            for _ in 0..case.ranges {
                self.settle();
                ranges.push(self.settle());
            }
            ranges.reverse();
            return ranges;
        }
        let newest = self.settle();
        let before = self.acknowledged.iter().rev().skip(2).step_by(2).copied();
        [newest].into_iter().chain(before.take(case.ranges - 1)).collect()
    }

    /// Removes the oldest packet in flight, which is acknowledged or lost. Returns its number.
    fn settle(&mut self) -> PacketNumber {
        let (number, bytes) = self.in_flight.pop_front().expect("enough packets are in flight");
        self.in_flight_bytes -= bytes;
        self.acknowledged.push_back(number);
        if self.acknowledged.len() > REMEMBERED {
            self.acknowledged.pop_front();
        }
        number
    }

    /// Compares the bytes in flight with those of the server. A packet just below the newest acknowledged one is not lost yet.
    fn check(&mut self, has_losses: bool) {
        let SealedPeers { endpoint, peers, now } = &mut self.sealed;
        let known = endpoint.peer_stats(*now, peers[0].id).expect("the connection is open").in_flight_bytes;
        let most = self.in_flight_bytes + if has_losses { DATAGRAM_BYTES } else { 0 };
        assert!((self.in_flight_bytes..=most).contains(&known), "{known} B in flight, not {most}");
        assert_eq!(endpoint.stats().dropped_count(), 0, "acks were dropped");
    }
}

/// The cases that are possible. With a new packet in each range, two acks take a quarter of the packets in flight at most.
fn cases(is_value: bool, is_each_new: bool) -> impl Iterator<Item = AckCase> {
    let all = RANGES.into_iter().flat_map(move |ranges| {
        IN_FLIGHT.into_iter().map(move |in_flight| AckCase { is_value, is_each_new, ranges, in_flight })
    });
    all.filter(|case| !case.is_each_new || (case.ranges > 1 && 4 * case.ranges <= case.in_flight))
        .filter(|case| !case.is_value || case.ranges == 1)
}

/// Measures each case with Criterion, then rounds of acks with one new packet, with more and more packets in flight and ranges.
pub(crate) fn measure(bench: &mut Bench) -> Result<(), String> {
    let mut criterion = criterion(bench, Duration::from_secs(1));
    for (is_value, is_each_new, name) in [
        (false, false, "an ack with one new packet"),
        (true, false, "an ack with one new packet of a value"),
        (false, true, "an ack with a new packet in each range"),
    ] {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(1));
        for case in cases(is_value, is_each_new) {
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
    let case = |is_value, ranges, in_flight| AckCase { is_value, is_each_new: false, ranges, in_flight };
    let unreliable = [32, 512, 1_024, HALF, WHOLE, 8_192].map(|count| case(false, 1, count));
    let values = [512, HALF, WHOLE].map(|count| case(true, 1, count));
    let ranges = [8, 32].map(|ranges| case(false, ranges, 512));
    let mut arms = Vec::new();
    for case in [&unreliable[..], &values, &ranges].concat() {
        let mut sender = AckSender::new(case);
        arms.push(Work::new(case.name(), move || Ok(sender.run(acks).as_nanos() as f64 / acks as f64)));
    }
    let arms = rounds(bench, arms)?;
    for arm in &arms {
        let name = format!("an ack with one new packet: {}", arm.name);
        bench.results.spread(name, arm.spread(|ns| Some(*ns)), "ns", Goal::Shown, arm.busy_or(""));
    }
    let rounds_of = |case: AckCase| arms.iter().find(|arm| arm.name == case.name());
    for (is_value, name) in [(false, ""), (true, ", values of keys")] {
        let both = rounds_of(case(is_value, 1, WHOLE)).zip(rounds_of(case(is_value, 1, HALF)));
        let (whole, half) = both.ok_or("there were no rounds")?;
        let ratio = Spread::of(whole.rounds.iter().zip(&half.rounds).map(|(whole, half)| whole / half));
        let note = half.busy_or(whole.busy_or(""));
        let name = format!("cost of an ack, 4,096 over 2,048 in flight{name}");
        bench.results.spread(name, ratio, "", Goal::AtMost(DOUBLE), note);
    }
    ArmTable::new("an ack with one new packet", &arms)
        .column("ns", |arm| cell(arm.spread(|ns| Some(*ns)), 1))
        .print();
    Ok(())
}
