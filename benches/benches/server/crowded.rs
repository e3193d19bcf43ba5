//! The cost of a message among many connections over its cost among few, at the same total rate. Two servers with as many client
//! sockets are measured in turn, window by window.

use std::cell::RefCell;
use std::time::Duration;

use drumfire_benches::roles::{EchoConfig, Interface};
use drumfire_benches::traffic::{Generator, Shape, Traffic, at_intervals};
use drumfire_benches::{
    Arm, Bench, Child, ClientSettings, ClientSocket, Goal, Plan, close, close_server, count, interleave,
    ratio_note,
};

/// The goal for the CPU per message with many connections over that with few.
const CPU_RATIO: f64 = 1.25;

const SOCKETS: usize = 8;

const MESSAGE_BYTES: usize = 64;

/// Messages that are lost with one drop of the kernel, at most.
const PER_DROP: u64 = 64;

/// The time before each window in which the datagrams that waited during the other window are handled.
const WARM_UP: Duration = Duration::from_millis(300);

/// The length of a window. It is so short that no connection is due for a keep-alive during the other window.
const WINDOW: Duration = Duration::from_millis(1_200);

/// The interval in which the sockets of the other side are emptied, so that they do not overflow, and its acknowledgments and probes are
/// sent. Rounds are repeated while the machine is busy, and a silent side would then reach its timeouts.
const OTHER_EVERY_NS: u64 = 50_000_000;

/// A server and its clients.
struct Side {
    server: Child,
    generator: Generator<ClientSocket>,
}

impl Side {
    fn open(clients: u32, core: usize, per_second: u64) -> Result<RefCell<Self>, String> {
        let (server, address) = EchoConfig::new(Interface::Poll, clients).start(core)?;
        let (connections, per_client) = (clients as usize, (clients as usize).div_ceil(SOCKETS));
        let sockets = ClientSocket::connect_all(&ClientSettings::new(address), connections, per_client)?;
        let traffic = Traffic::echo(Shape::Open { rate: 1 }, connections, MESSAGE_BYTES);
        let mut generator = Generator::over(Traffic { per_client, ..traffic }, sockets);
        generator.change(per_second, MESSAGE_BYTES);
        Ok(RefCell::new(Self { server, generator }))
    }

    /// Ends the server and closes its books.
    fn close(self) -> Result<(), String> {
        let served = close_server(self.server, &mut self.generator.into_clients())?;
        close([("clients that left", count(&served, "left"), 0..=0)])
    }
}

pub(crate) fn run(bench: &mut Bench) -> Result<(), String> {
    // In the warm-up each connection sends at least one message.
    let (clients, per_second, rounds, warm_up) = bench.extent().pick(
        ([2_000, 100], 2_000, 1, 0),
        ([100_000, 1_000], 40_000, 9, 3),
        ([100_000, 1_000], 40_000, 25, 3),
    );
    let core = bench.pin_load()?.server;
    let sides = [Side::open(clients[0], core, per_second)?, Side::open(clients[1], core, per_second)?];
    let arm = |place: usize| {
        let [own, other] = [&sides[place], &sides[1 - place]];
        Arm::new(format!("{} connections", clients[place]), move || {
            let Side { server, generator } = &mut *own.borrow_mut();
            let empty_other = at_intervals(OTHER_EVERY_NS, || other.borrow_mut().generator.poll());
            generator.measure(server, (WARM_UP, WINDOW), PER_DROP, empty_other)
        })
    };
    let plan = Plan { warm_up, rounds, ..bench.plan() };
    let measured = interleave(vec![arm(0), arm(1)], plan)?;
    bench.show_echoes("crowded", &measured, &[])?;
    if let [many, few] = measured.as_slice() {
        let ratio = many.over(few, |report| report.cpu_ns_per_packet);
        let [of_many, of_few] = clients;
        let name =
            format!("crowded: CPU per message, {of_many} connections over {of_few}, {per_second}/s in all");
        bench.results.figure(name, ratio, "x", Goal::AtMost(CPU_RATIO), &ratio_note(&[many, few]));
    }
    sides.into_iter().try_for_each(|side| side.into_inner().close())
}
