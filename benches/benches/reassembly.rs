//! What it costs to put a reliable message of 64 KiB together from its pieces, as they come in order, in reverse, and with
//! every second one first: `cargo bench --bench reassembly`.
//!
//! The pieces are packets of a real client, some 57 of 1,200 B; what is timed at the server is taking them in, opening
//! (AES-128-GCM) included, and taking the message. Sending acks, and all that the client does, is not.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group};
use drumfire_benches::group::{BATCH, Datagrams, Group, UNLIMITED, client_address};
use drumfire_benches::pair::server_address;
use drumfire_benches::{
    BUSY, Extent, Goal, Options, Results, Rounds, Spread, Work, criterion_extent, ending, interleave_work,
    pin,
};
use drumfire_proto::{ChannelId, Config, Event, SendOptions};
use drumfire_tools::table::{Align, TextTable};
use drumfire_tools::{clock, host};

const MESSAGE_BYTES: usize = 64 * 1_024;
/// How long a client may need to send all pieces: less than until it thinks them lost.
const PATIENCE_MS: u32 = 20;
/// Messages that come in order first, so that the client may have a whole one under way.
const FIRST_MESSAGES: u32 = 32;

/// In which order pieces come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Ascending,
    Descending,
    EverySecondFirst,
}

const ORDERS: [(Order, &str); 3] = [
    (Order::Ascending, "in order"),
    (Order::Descending, "in reverse"),
    (Order::EverySecondFirst, "every second first"),
];

impl Order {
    /// Where the piece at this place of so many comes.
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
struct Sender {
    group: Group,
    message: Bytes,
    pieces: Datagrams,
    answers: Datagrams,
}

impl Sender {
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

    /// The next message is given to the client.
    fn begin(&mut self) {
        let Group { client, links, now, .. } = &mut self.group;
        let options = SendOptions::reliable_ordered();
        client.send(*now, links[0].server, ChannelId(0), self.message.clone(), options).expect("room for it");
    }

    /// One message whose pieces come in this order; answers how long the server took, and how many they were.
    fn message(&mut self, order: Order) -> (Duration, usize) {
        self.begin();
        let sent = self.group.client.stats().messages_sent;
        for _ in 0..PATIENCE_MS {
            self.pieces.take_all_from(&mut self.group.client, self.group.now);
            if self.group.client.stats().messages_sent > sent {
                break;
            }
            self.group.pass(Duration::from_millis(1));
        }
        assert!(self.group.client.stats().messages_sent > sent, "a whole message may be under way");
        let count = self.pieces.count();
        if order != Order::Ascending {
            self.pieces.reorder(|at| order.place(at, count));
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

    /// All pieces arrive as they are sent, and acks at once.
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

    /// The client hears what the server has to say, when it is due.
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

fn parts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a message of 64 KiB, put together");
    group.sample_size(20).measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_secs(1));
    for (order, name) in ORDERS {
        let mut sender = Sender::new();
        let (_, pieces) = sender.message(order);
        group.throughput(Throughput::Elements(pieces as u64));
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter_custom(|count| (0..count).map(|_| sender.message(order).0).sum());
        });
    }
    group.finish();
}

/// Rounds of all orders in turns; prints what a message and a piece took.
fn derive(extent: Extent) -> Result<(), String> {
    pin();
    let (rounds, messages) = if extent == Extent::Quick { (1, 2) } else { (9, 1_000) };
    let arms = ORDERS.map(|(order, name)| {
        let mut sender = Sender::new();
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
    let arms = interleave_work(Vec::from(arms), 1, rounds, extent != Extent::Quick)?;
    let mut results = Results::new("reassembly", &Options { extent, only: None });
    let mut table = TextTable::new(&[
        ("pieces of 64 KiB", Align::Left),
        ("pieces", Align::Right),
        ("ns per message", Align::Right),
        ("least-most", Align::Right),
        ("ns per piece", Align::Right),
        ("over in order", Align::Right),
        ("void", Align::Right),
    ]);
    let of = |arm: &Rounds<[f64; 3]>, at: usize| Spread::of(arm.rounds.iter().map(|round| round[at]));
    let first = arms.first().and_then(|arm| of(arm, 0)).ok_or("there were no rounds")?;
    for arm in &arms {
        let note = if arm.is_busy { BUSY } else { "" };
        let [message, piece, pieces] = [0, 1, 2].map(|at| of(arm, at));
        let (Some(message), Some(piece), Some(pieces)) = (message, piece, pieces) else { continue };
        let name = format!("64 KiB, pieces {}", arm.name);
        results.figure(format!("{name}, per message"), Some(message.median), "ns", Goal::Shown, note);
        results.figure(format!("{name}, per piece"), Some(piece.median), "ns", Goal::Shown, note);
        table.row([
            arm.name.clone(),
            format!("{:.0}", pieces.median),
            format!("{:.0}", message.median),
            format!("{:.0}-{:.0}", message.least, message.most),
            format!("{:.1}", piece.median),
            format!("{:.2}", message.median / first.median),
            format!("{}{}", arm.voided, if arm.is_busy { " busy" } else { "" }),
        ]);
    }
    println!("\n{}", table.render());
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
