//! The load ladder: clients connect in batches while the others send, over as many plain datagrams of the same length.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::time::Duration;

use drumfire_benches::traffic::{Generator, KEEP_ALIVE_NS, at_intervals, client_counts};
use drumfire_benches::{
    Arm, Bench, Child, Counts, Goal, Measured, PLAIN, PLAIN_BYTES_MAX, Pace, PlainDatagrams, Reply,
    core_percent, count, interleave, median_cell, ratio_note,
};
use drumfire_tools::report::ThreadReport;

use crate::population::{
    BATCH, MESSAGE_BYTES, PER_SOCKET, Population, RECEIVE_BUFFER_BYTES, ticking, traffic,
};

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
        let population = Population::start(ticking(interval, slots), cores.server)?;
        let plain = (Pace::Every(interval), Reply::Asked, RECEIVE_BUFFER_BYTES);
        let plain = Child::role(PLAIN, Some(cores.server), &plain)?;
        let plain_address = plain.address()?;
        Ladder { rate, slots, population, plain, plain_address }.climb(bench, steps, counted)?;
    }
    Ok(())
}

/// Both servers of a ladder.
struct Ladder {
    rate: u32,
    slots: u32,
    population: Population,
    plain: Child,
    plain_address: SocketAddr,
}

impl Ladder {
    fn climb(mut self, bench: &mut Bench, steps: &[u32], counted: Duration) -> Result<(), String> {
        for &clients in steps {
            self.step(bench, clients, counted)?;
        }
        self.refuse(bench, bench.extent().pick(BATCH / 10, BATCH, BATCH))?;
        let dropped = self.population.close()?;
        let plain = self.plain.finish_counts()?;
        let name = format!("ladder: {} Hz: clients that were dropped", self.rate);
        bench.results.figure(name, Some(dropped as f64), "", Goal::AtMost(0.0), "");
        match (dropped, count(&plain, "refused")) {
            (0, 0) => Ok(()),
            (dropped, refused) => {
                Err(format!("{dropped} clients were dropped, {refused} plain answers refused"))
            }
        }
    }

    /// Connects clients until there are as many as this, and measures them.
    fn step(&mut self, bench: &mut Bench, clients: u32, counted: Duration) -> Result<(), String> {
        self.population.connect(clients)?;
        let sockets = (clients as usize).div_ceil(PER_SOCKET);
        let plain = |_| PlainDatagrams::connect(self.plain_address, PER_SOCKET, DATAGRAMS_EACH);
        let plain = (0..sockets).map(plain).collect::<Result<_, _>>()?;
        let mut plain_traffic = traffic(clients);
        (plain_traffic.bytes, plain_traffic.answer_bytes) = (NUMBER_BYTES, NUMBER_BYTES);
        let plain_load = RefCell::new(Generator::over(plain_traffic, plain));
        let (population, lengths) = (RefCell::new(&mut self.population), Cell::new([0; 2]));
        let mut arms = Vec::new();
        for down_bytes in DOWN_BYTES {
            let (population, plain_load, lengths) = (&population, &plain_load, &lengths);
            let plain = &self.plain;
            arms.push(Arm::new(format!("{clients} clients, {down_bytes} B down"), move || {
                let population = &mut **population.borrow_mut();
                population.answer_with(down_bytes.into())?;
                let before = client_counts(population.load.clients());
                let times = (WARM_UP, counted);
                let outcome = population.load.measure(&population.server, times, PER_DROP, |_| Ok(()))?;
                let now = client_counts(population.load.clients());
                lengths.set(["socket sent", "socket received"].map(|name| mean_bytes(name, &before, &now)));
                Ok(outcome)
            }));
            arms.push(Arm::new(format!("{clients} plain, {down_bytes} B down"), move || {
                let plain_load = &mut *plain_load.borrow_mut();
                let [up_bytes, down_bytes] = lengths.get();
                plain_load.clients().iter_mut().for_each(|client| client.ask(up_bytes.into(), down_bytes));
                let keep_alive = at_intervals(KEEP_ALIVE_NS, || population.borrow_mut().load.poll());
                plain_load.measure(plain, (WARM_UP, counted), PER_DROP, keep_alive)
            }));
        }
        let measured = interleave(arms, bench.plan())?;
        show_step(bench, (self.slots, self.rate, clients), &measured)
    }

    /// Connects a batch for which there is no room. Each client must be refused because the server is full.
    fn refuse(&mut self, bench: &mut Bench, count: u32) -> Result<(), String> {
        let Self { rate, slots, population, .. } = self;
        let failed = population.connect_batch(count)?;
        let full = failed.get("refused: Full").copied().unwrap_or(0);
        let name = format!("ladder: {rate} Hz: refused by the full server, of {count} beyond {slots}");
        bench.results.figure(name, Some(full as f64), "", Goal::AtLeast(f64::from(count)), "");
        if full == u64::from(count) { Ok(()) } else { Err(format!("{count} beyond the limit: {failed:?}")) }
    }
}

/// Returns the mean length of the datagrams that are counted under this name, from these counts to those.
fn mean_bytes(name: &str, before: &Counts, now: &Counts) -> u16 {
    let grown = |name: &str| count(now, name) - count(before, name);
    let mean = grown(&format!("{name} bytes")) / grown(name).max(1);
    let mean = usize::try_from(mean).unwrap_or(0).clamp(MESSAGE_BYTES, PLAIN_BYTES_MAX);
    u16::try_from(mean).unwrap_or(u16::MAX)
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
        let core = ours.spread(core_percent);
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
        bench.results.figure(format!("{name}: server"), core, "% of a core", Goal::Shown, &note);
        bench.results.figure(format!("{name}: CPU over plain datagrams"), over, "x", goal, &note);
    }
    Ok(())
}
