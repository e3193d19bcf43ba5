//! The cost of a message among many connections over its cost among few, at the same total rate. Two servers with as many client
//! sockets are measured in turn, window by window.

use std::time::Duration;

use drumfire_benches::roles::{Interface, start_echo};
use drumfire_benches::traffic::{Generator, Shape, Traffic, at_intervals};
use drumfire_benches::{Bench, Child, Crowd, Goal, Joining, Spread, close, close_server, count};

use crate::connect;

/// CPU per message, many over few.
const CPU_RATIO: f64 = 1.25;

const SOCKETS: u32 = 8;

const MESSAGE_BYTES: usize = 64;

/// The time before each window in which the datagrams that waited during the other window are handled.
const WARM_UP: Duration = Duration::from_millis(300);

/// The length of a window. It is so short that no connection is due for a keep-alive during the other window.
const WINDOW: Duration = Duration::from_millis(1_200);

/// The interval in which the sockets of the other side are emptied, so that they do not overflow.
const OTHER_EVERY_NS: u64 = 50_000_000;

/// A server and its clients.
struct Side {
    clients: u32,
    server: Child,
    generator: Generator<Crowd>,
    /// CPU of the server per message in each window, in nanoseconds.
    cpu_ns: Vec<f64>,
}

impl Side {
    fn open(bench: &mut Bench, clients: u32, core: usize, per_second: u64) -> Result<Self, String> {
        let (server, to) = start_echo(Interface::Poll, 1, clients, Some(core))?;
        let mut crowd = Crowd::bind(Joining::new(to), SOCKETS, clients)?;
        let part = format!("crowded, {clients} connections");
        connect(&mut crowd, clients, &part, &mut bench.results)?.check()?;
        let traffic = Traffic::echo(Shape::Open { rate: 1 }, crowd.peers(), MESSAGE_BYTES);
        let mut generator = Generator::over(traffic, vec![crowd]);
        generator.change(per_second, MESSAGE_BYTES);
        Ok(Self { clients, server, generator, cpu_ns: Vec::new() })
    }

    fn window(&mut self, other: &mut Self) -> Result<f64, String> {
        let mut empty_other = at_intervals(OTHER_EVERY_NS, || other.generator.receive());
        let round = self.generator.round(&self.server, (WARM_UP, WINDOW), |_, now| empty_other(now))?;
        close([("messages that were not outstanding", round.counts.strangers, 0..=0)])?;
        Ok(round.usage.server.cpu_s() * 1e9 / round.counts.sent.max(1) as f64)
    }

    /// Ends the server and closes its books.
    fn close(mut self, bench: &mut Bench) -> Result<(), String> {
        let strangers = self.generator.settle()?.strangers;
        let [crowd] = self.generator.clients() else { return Err("no crowd".to_owned()) };
        let served = close_server(self.server, &mut [crowd])?;
        close([
            ("clients that left", count(&served, "left"), 0..=0),
            ("messages that were not outstanding", strangers, 0..=0),
        ])?;
        let name = format!("crowded: CPU per message, {} connections", self.clients);
        bench.results.spread(name, Spread::of(self.cpu_ns), "ns", Goal::Shown, "");
        Ok(())
    }
}

pub(crate) fn run(bench: &mut Bench) -> Result<(), String> {
    let ([few, many], per_second, windows, warm_up) = bench.extent().pick(
        ([100, 2_000], 2_000, 1, 0),
        ([1_000, 100_000], 40_000, 9, 3),
        ([1_000, 100_000], 40_000, 25, 3),
    );
    let core = bench.pin_load()?.server;
    let mut of_many = Side::open(bench, many, core, per_second)?;
    let mut of_few = Side::open(bench, few, core, per_second)?;
    // In the warm-up each connection sends at least one message.
    for round in 0..warm_up + windows {
        let cpu_ns = [of_many.window(&mut of_few)?, of_few.window(&mut of_many)?];
        if round >= warm_up {
            of_many.cpu_ns.push(cpu_ns[0]);
            of_few.cpu_ns.push(cpu_ns[1]);
        }
    }
    let ratio = Spread::of(of_many.cpu_ns.iter().zip(&of_few.cpu_ns).map(|(many, few)| many / few));
    of_many.close(bench)?;
    of_few.close(bench)?;
    let name = format!("crowded: CPU per message, {many} connections over {few}, {per_second}/s in all");
    bench.results.spread(name, ratio, "x", Goal::AtMost(CPU_RATIO), "");
    Ok(())
}
