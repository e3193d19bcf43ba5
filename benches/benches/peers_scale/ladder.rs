//! The load ladder: clients connect in batches while the others send, over as many plain datagrams of the same length.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::time::Duration;

use drumfire_benches::traffic::{Generator, KEEP_ALIVE_NS, at_intervals};
use drumfire_benches::{
    Arm, Bench, Child, ClientSocket, Goal, Measured, PLAIN, PLAIN_BYTES_MAX, Pace, PlainDatagrams, Reply,
    SocketCounters, count, interleave, median_cell, ratio_note,
};
use drumfire_tools::report::ThreadReport;

use crate::world::{BATCH, MESSAGE_BYTES, PER_SOCKET, RECEIVE_BUFFER_BYTES, World, ticking, traffic};

/// The goal for the CPU over that of a plain server that gathers for the same time, with the clients and answers of [`OVER_PLAIN_AT`].
const OVER_PLAIN: f64 = 1.4;

/// Ticks per second, clients, and bytes of answers.
const OVER_PLAIN_AT: (u32, u32, u16) = (1_000, 1_000, 64);

/// Bytes of each answer.
const DOWN_BYTES: [u16; 3] = [64, 256, 1_024];

/// Clients. The last step belongs to a full run.
const STEPS: [u32; 6] = [500, 1_000, 2_000, 4_000, 8_000, 16_000];

/// Datagrams that a plain socket receives or sends in one pass, for each of 16 clients.
const DATAGRAMS_EACH: usize = 16;

/// Bytes of the number that a plain datagram has in place of a message.
const NUMBER_BYTES: usize = 8;

/// The load runs this long before it is counted.
const WARM_UP: Duration = Duration::from_millis(200);

/// Messages that are lost with one drop of the kernel, at most: a train of 64 datagrams with several messages each.
const PER_DROP: u64 = 64 * 4;

pub(crate) fn run(bench: &mut Bench) -> Result<(), String> {
    let cores = bench.pin_load()?;
    let (steps, rates, counted): (&[u32], &[u32], _) = bench.extent().pick(
        (&STEPS[..1], &[1_000], Duration::from_millis(300)),
        (&STEPS[..5], &[1_000], Duration::from_millis(500)),
        (&STEPS[..], &[1_000, 100], Duration::from_secs(2)),
    );
    for &rate in rates {
        let (slots, interval) = (steps[steps.len() - 1], Duration::from_secs(1) / rate);
        let world = World::start(ticking(interval, slots), cores.server)?;
        let plain = (Pace::Every(interval), Reply::Asked, RECEIVE_BUFFER_BYTES);
        let plain = Child::role(PLAIN, Some(cores.server), &plain)?;
        let plain_address = plain.address()?;
        Ladder { rate, slots, world, plain, plain_address }.climb(bench, steps, counted)?;
    }
    Ok(())
}

/// Both servers of a ladder.
struct Ladder {
    rate: u32,
    slots: u32,
    world: World,
    plain: Child,
    plain_address: SocketAddr,
}

impl Ladder {
    fn climb(mut self, bench: &mut Bench, steps: &[u32], counted: Duration) -> Result<(), String> {
        for &clients in steps {
            self.step(bench, clients, counted)?;
        }
        self.refuse(bench, bench.extent().pick(BATCH / 10, BATCH, BATCH))?;
        let dropped = self.world.close()?;
        let plain = self.plain.finish_counts()?;
        bench.results.none_of(format!("ladder: {} Hz: clients that were dropped", self.rate), dropped);
        match (dropped, count(&plain, "refused")) {
            (0, 0) => Ok(()),
            (dropped, refused) => {
                Err(format!("{dropped} clients were dropped, {refused} plain answers refused"))
            }
        }
    }

    /// Connects clients until there are as many as this, and measures them.
    fn step(&mut self, bench: &mut Bench, clients: u32, counted: Duration) -> Result<(), String> {
        self.world.connect(clients)?;
        let sockets = (clients as usize).div_ceil(PER_SOCKET);
        let plain = |_| PlainDatagrams::connect(self.plain_address, PER_SOCKET, DATAGRAMS_EACH);
        let plain = (0..sockets).map(plain).collect::<Result<_, _>>()?;
        let mut plain_traffic = traffic(clients);
        (plain_traffic.bytes, plain_traffic.answer_bytes) = (NUMBER_BYTES, NUMBER_BYTES);
        let plain_load = RefCell::new(Generator::over(plain_traffic, plain));
        let (world, counters) = (RefCell::new(&mut self.world), Cell::new(SocketCounters::default()));
        let mut arms = Vec::new();
        for down_bytes in DOWN_BYTES {
            let (world, plain_load, counters) = (&world, &plain_load, &counters);
            let plain = &self.plain;
            arms.push(Arm::new(format!("{clients} clients, {down_bytes} B down"), move || {
                let world = &mut **world.borrow_mut();
                world.answer_with(down_bytes.into())?;
                let sum = |clients: &[ClientSocket]| -> SocketCounters {
                    clients.iter().map(ClientSocket::counters).sum()
                };
                let before = sum(world.load.clients());
                let times = (WARM_UP, counted);
                let outcome = world.load.measure(&world.server, times, PER_DROP, |_| Ok(()))?;
                counters.set(sum(world.load.clients()).since(before));
                Ok(outcome)
            }));
            arms.push(Arm::new(format!("{clients} plain, {down_bytes} B down"), move || {
                let plain_load = &mut *plain_load.borrow_mut();
                plain_load.clients().iter_mut().for_each(|client| imitate(client, counters.get()));
                let keep_alive = at_intervals(KEEP_ALIVE_NS, || world.borrow_mut().load.poll());
                plain_load.measure(plain, (WARM_UP, counted), PER_DROP, keep_alive)
            }));
        }
        let measured = interleave(arms, bench.plan())?;
        show_step(bench, (self.slots, self.rate, clients), &measured)
    }

    /// Connects a batch for which there is no room. Each client must be refused because the server is full.
    fn refuse(&mut self, bench: &mut Bench, count: u32) -> Result<(), String> {
        let Self { rate, slots, world, .. } = self;
        let failed = world.connect_batch(count)?;
        let full = failed.get("refused: Full").copied().unwrap_or(0);
        let name = format!("ladder: {rate} Hz: told that the server is full, of {count} beyond {slots}");
        bench.results.figure(name, Some(full as f64), "", Goal::AtLeast(f64::from(count)), "");
        if full == u64::from(count) { Ok(()) } else { Err(format!("{count} beyond the limit: {failed:?}")) }
    }
}

/// Sends plain datagrams of the average lengths of these from now on.
fn imitate(client: &mut PlainDatagrams, counters: SocketCounters) {
    let mean = |bytes: u64, count: u64| {
        usize::try_from(bytes / count.max(1)).unwrap_or(0).clamp(MESSAGE_BYTES, PLAIN_BYTES_MAX)
    };
    let down_bytes = mean(counters.received_bytes, counters.received);
    client.ask(mean(counters.sent_bytes, counters.sent), u16::try_from(down_bytes).unwrap_or(u16::MAX));
}

/// The share of the server's CPU time that it spent in the program, in percent. The kernel counts it in ticks of 10 ms, so only the
/// sum over all rounds says something.
fn program_percent(arm: &Measured) -> f64 {
    let threads = || arm.rounds.iter().flat_map(|report| &report.threads);
    let user: f64 = threads().filter_map(|thread| thread.cpu_user_s).sum();
    user / threads().filter_map(ThreadReport::cpu_s).sum::<f64>() * 100.0
}

/// Prints a step of the ladder in prose, as in the report on ENet, and adds its figures. Each arm is followed by that of as many plain
/// datagrams.
fn show_step(
    bench: &mut Bench,
    (slots, rate, clients): (u32, u32, u32),
    measured: &[Measured],
) -> Result<(), String> {
    bench.show_echoes(&format!("ladder, {rate} Hz"), measured, &[])?;
    for (pair, down_bytes) in measured.chunks_exact(2).zip(DOWN_BYTES) {
        let [ours, plain] = pair else { continue };
        let core = ours.core_percent();
        println!(
            "  With {slots} slots and a service call rate of {rate} Hz, {clients} clients with {down_bytes} B back take {} % of a \
             core,\n  {:.0} % of it in the program (library, ciphers, application) and the rest in the kernel.",
            median_cell(core, 1),
            program_percent(ours),
        );
        let name = format!("ladder: {rate} Hz, {clients} clients, {down_bytes} B down");
        let note = ratio_note(&[ours, plain]);
        let is_judged = (rate, clients, down_bytes) == OVER_PLAIN_AT;
        let goal = if is_judged { Goal::AtMost(OVER_PLAIN) } else { Goal::Shown };
        let over = ours.over(plain, |report| report.cpu_ns_per_packet);
        bench.results.spread(format!("{name}: server"), core, "% of a core", Goal::Shown, &note);
        bench.results.spread(format!("{name}: CPU over plain datagrams"), over, "x", goal, &note);
    }
    Ok(())
}
