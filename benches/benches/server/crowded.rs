//! The cost of a message among many connections over its cost among few, at the same total rate. Two servers with as many client
//! sockets are measured in turn, window by window.

use std::time::Duration;

use drumfire_benches::traffic::Generator;
use drumfire_benches::{Bench, Child, Crowd, DropWatch, Goal, Spread, close_server, missing};
use drumfire_tools::clock;

use crate::at_limit::{EchoWindow, show_messages, traffic};
use crate::{show_own_usage, start_and_connect, workers_and_core};

/// CPU per message, many over few.
const CPU_RATIO: f64 = 1.25;

const SOCKETS: u32 = 8;

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
    windows: Vec<EchoWindow>,
}

impl Side {
    fn open(clients: u32, (workers, core): (u32, Option<usize>), per_second: u64) -> Result<Self, String> {
        let mut crowd = Crowd::bind(SOCKETS, clients)?;
        let (server, _, ramped) = start_and_connect((workers, core), clients, &mut crowd)?;
        println!("connected {ramped}");
        ramped.check()?;
        let traffic = traffic(crowd.peers().len(), 1);
        let generator = Generator::over(traffic, vec![crowd]).with_total_rate(per_second);
        Ok(Self { clients, server, generator, windows: Vec::new() })
    }

    fn window(&mut self, window: Duration, other: &mut Generator<Crowd>) -> Result<EchoWindow, String> {
        let mut emptied = clock::host_ns();
        EchoWindow::over(&mut self.generator, &self.server, window, |now| {
            if now.saturating_sub(emptied) < OTHER_EVERY_NS {
                return Ok(());
            }
            emptied = now;
            other.receive()
        })
    }
}

pub(crate) fn run(bench: &mut Bench) -> Result<(), String> {
    let ([few, many], per_second, windows, warm_up) = bench.extent().pick(
        ([100, 2_000], 2_000, 1, 0),
        ([1_000, 100_000], 40_000, 9, 3),
        ([1_000, 100_000], 40_000, 25, 3),
    );
    let place = workers_and_core(bench)?;
    let dropped = DropWatch::begin();
    let mut sides = [Side::open(many, place, per_second)?, Side::open(few, place, per_second)?];
    // In the warm-up each connection sends at least one message.
    for round in 0..warm_up + windows {
        let [many, few] = &mut sides;
        many.window(WARM_UP, &mut few.generator)?;
        let of_many = many.window(WINDOW, &mut few.generator)?;
        few.window(WARM_UP, &mut many.generator)?;
        let of_few = few.window(WINDOW, &mut many.generator)?;
        if round >= warm_up {
            many.windows.push(of_many);
            few.windows.push(of_few);
        }
    }
    let mut drops = dropped.count();
    let mut cpu = Vec::new();
    for side in sides {
        let part = format!("crowded, {} connections", side.clients);
        let Side { server, mut generator, windows, clients } = side;
        generator.settle()?;
        let [crowd] = generator.clients() else { return Err("no crowd".to_owned()) };
        let sent = crowd.carried().sent;
        let served = close_server(server, &mut [crowd], sent, drops)?;
        // Drops in front of one server do not excuse missing datagrams of the other.
        drops = drops.saturating_sub(missing(sent, &served));
        show_messages(&generator, &served, bench, &part)?;
        let of_side: Vec<f64> = windows.iter().map(EchoWindow::cpu_ns).collect();
        let name = format!("crowded: CPU per message, {clients} connections");
        bench.results.spread(name, Spread::of(of_side.iter().copied()), "ns", Goal::Shown, "");
        show_own_usage(windows.iter().map(|window| window.load), &mut bench.results, &part, "in one process");
        cpu.push(of_side);
    }
    let [many_ns, few_ns] = cpu.as_slice() else { return Ok(()) };
    let ratio = Spread::of(many_ns.iter().zip(few_ns).map(|(many, few)| many / few));
    let name = format!("crowded: CPU per message, {many} connections over {few}, {per_second}/s in all");
    bench.results.spread(name, ratio, "x", Goal::AtMost(CPU_RATIO), "");
    Ok(())
}
