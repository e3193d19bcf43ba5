//! The cost of a reliable message of 64 KiB by the order of its fragments.
//!
//! The fragments are packets of a real client, about 57 of 1,200 B. The time of the server to receive them, opening (AES-128-GCM)
//! included, and to take the message is measured. Sending acks is not.

use std::time::Duration;

use bytes::Bytes;
use criterion::{BenchmarkId, Throughput};
use drumfire_benches::memory::{BATCH, Datagrams, Group, UNLIMITED, client_address, server_address};
use drumfire_benches::{ArmTable, Bench, Goal, Rounds, Spread, Work, cell, median_cell};
use drumfire_proto::{ChannelId, Config, Event, SendOptions};
use drumfire_tools::clock;

use crate::{criterion, rounds};

const MESSAGE_BYTES: usize = 64 * 1_024;
/// The virtual time within which the client sends all fragments. It is shorter than the time after which they count as lost.
const SEND_MS: u32 = 20;
/// Messages that come in order first, until the client may have a whole message in flight.
const FIRST_MESSAGES: u32 = 32;

/// The order in which fragments arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FragmentOrder {
    Ascending,
    Descending,
    EverySecondFirst,
}

const ORDERS: [(FragmentOrder, &str); 3] = [
    (FragmentOrder::Ascending, "in order"),
    (FragmentOrder::Descending, "in reverse"),
    (FragmentOrder::EverySecondFirst, "every second first"),
];

impl FragmentOrder {
    /// Returns the place in this order of the fragment at `at`, of `count` fragments.
    const fn place(self, at: usize, count: usize) -> usize {
        match self {
            Self::Ascending => at,
            Self::Descending => count - 1 - at,
            Self::EverySecondFirst if at.is_multiple_of(2) => at / 2,
            Self::EverySecondFirst => count.div_ceil(2) + at / 2,
        }
    }
}

/// A client that sends long messages.
struct MessageSender {
    group: Group,
    message: Bytes,
    pieces: Datagrams,
    answers: Datagrams,
}

impl MessageSender {
    fn new() -> Self {
        let config = Config::default().in_flight_bytes(1 << 20).has_aes_gcm(true).congestion(UNLIMITED);
        let group = Group::connect(1, &config).expect("a connection");
        let message = (0..=250_u8).cycle().take(MESSAGE_BYTES).collect();
        let (pieces, answers) = (Datagrams::default(), Datagrams::default());
        let mut sender = Self { group, message, pieces, answers };
        for _ in 0..FIRST_MESSAGES {
            sender.begin();
            sender.finish_in_order();
        }
        sender
    }

    /// Queues the next message at the client.
    fn begin(&mut self) {
        let Group { client, links, now, .. } = &mut self.group;
        let options = SendOptions::reliable_ordered();
        client.send(*now, links[0].server, ChannelId(0), self.message.clone(), options).expect("room for it");
    }

    /// Sends a message whose fragments arrive in this order. Returns the time that the server took, and the number of fragments.
    fn message(&mut self, order: FragmentOrder) -> (Duration, usize) {
        self.begin();
        let sent = self.group.client.stats().messages_sent;
        for _ in 0..SEND_MS {
            self.pieces.take_all_from(&mut self.group.client, self.group.now);
            if self.group.client.stats().messages_sent > sent {
                break;
            }
            self.group.pass(Duration::from_millis(1));
        }
        assert!(self.group.client.stats().messages_sent > sent, "a whole message may be in flight");
        let count = self.pieces.count();
        if order != FragmentOrder::Ascending {
            self.pieces.sort_by_index(|at| order.place(at, count));
        }
        let mut took = Duration::ZERO;
        let mut whole_count = 0;
        for start in (0..count).step_by(BATCH) {
            self.group.pass(Duration::from_micros(10));
            let batch = self.pieces.part(start, start + BATCH, client_address());
            let begin = clock::now();
            self.group.server.handle_datagrams(self.group.now, batch);
            took += begin.elapsed();
            loop {
                let begin = clock::now();
                let event = self.group.server.poll_event();
                took += begin.elapsed();
                match event {
                    Some(Event::Message { bytes, .. }) => {
                        whole_count += u32::from(*bytes == self.message[..]);
                    }
                    Some(other) => panic!("{other:?}"),
                    None => break,
                }
            }
        }
        assert_eq!(whole_count, 1, "{order:?}: the message came whole");
        self.pieces.clear();
        self.hand_over_answers();
        (took, count)
    }

    /// Passes on all fragments as they are sent, and acks immediately.
    fn finish_in_order(&mut self) {
        let sent = self.group.client.stats().messages_sent;
        for _ in 0..1_000 {
            self.group.settle();
            while self.group.server.poll_event().is_some() {}
            self.hand_over_answers();
            if self.group.client.stats().messages_sent > sent {
                return;
            }
        }
    }

    /// Passes the server's datagrams to the client when they are due.
    fn hand_over_answers(&mut self) {
        self.group.pass(Duration::from_millis(5));
        for _ in 0..10 {
            let Group { server, client, now, .. } = &mut self.group;
            server.handle_timeout(*now);
            self.answers.clear();
            self.answers.take_all_from(server, *now);
            client.handle_datagrams(*now, self.answers.inbound(server_address()));
            client.handle_timeout(*now);
            self.group.pass(Duration::from_millis(1));
        }
        self.group.settle();
        while self.group.client.poll_event().is_some() {}
    }
}

/// Measures each order with Criterion, then rounds of all orders.
pub(crate) fn measure(bench: &mut Bench) -> Result<(), String> {
    let mut criterion = criterion(bench, Duration::from_secs(2));
    let mut group = criterion.benchmark_group("a message of 64 KiB, put together");
    for (order, name) in ORDERS {
        let mut sender = MessageSender::new();
        let (_, pieces) = sender.message(order);
        group.throughput(Throughput::Elements(pieces as u64));
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter_custom(|count| (0..count).map(|_| sender.message(order).0).sum());
        });
    }
    group.finish();
    figures(bench)
}

fn figures(bench: &mut Bench) -> Result<(), String> {
    let messages = bench.extent().pick(2, 1_000, 1_000);
    let arms = ORDERS.map(|(order, name)| {
        let mut sender = MessageSender::new();
        Work::new(name, move || {
            let (mut took, mut pieces) = (Duration::ZERO, 0);
            for _ in 0..messages {
                let of_one = sender.message(order);
                took += of_one.0;
                pieces += of_one.1;
            }
            let ns = took.as_nanos() as f64;
            Ok([ns / f64::from(messages), ns / pieces as f64, pieces as f64 / f64::from(messages)])
        })
    });
    let arms = rounds(bench, arms.into())?;
    let of = |arm: &Rounds<[f64; 3]>, at: usize| arm.spread(|round| Some(round[at]));
    for arm in &arms {
        for (what, at) in [("message", 0), ("piece", 1)] {
            let name = format!("64 KiB, pieces {}, per {what}", arm.name);
            bench.results.spread(name, of(arm, at), "ns", Goal::Shown, arm.busy_or(""));
        }
    }
    let in_order = arms.first().and_then(|arm| of(arm, 0)).ok_or("there were no rounds")?;
    let over = |Spread { median, .. }: Spread| format!("{:.2}", median / in_order.median);
    ArmTable::new("pieces of 64 KiB", &arms)
        .column("pieces", |arm| median_cell(of(arm, 2), 0))
        .column("ns per message", |arm| cell(of(arm, 0), 0))
        .column("ns per piece", |arm| median_cell(of(arm, 1), 1))
        .column("over in order", |arm| of(arm, 0).map_or_else(String::new, over))
        .print();
    Ok(())
}
