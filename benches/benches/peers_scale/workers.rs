//! Two workers instead of the two processes of the report: CPU per message over one worker, and clients per thread where there are
//! cores for both.

use std::cell::RefCell;
use std::time::Duration;

use drumfire_benches::traffic::{KEEP_ALIVE_NS, at_intervals};
use drumfire_benches::{Arm, Bench, Goal, interleave, ratio_note};

use crate::world::{ANSWER_BYTES, HANDLER, PER_DROP, PER_SECOND, WARM_UP, World};

/// CPU per message, two workers over one.
const CPU_RATIO: f64 = 1.05;

/// Clients of two threads over those of one.
const CLIENTS_RATIO: f64 = 1.9;

/// With fewer cores, two threads and the load share theirs.
const CORES_LEAST: usize = 4;

/// A server bears a load while this share of it comes back, with a p99 of at most [`BORNE_NS`].
const BORNE: f64 = 0.99;

const BORNE_NS: u64 = 100_000_000;

/// The rate grows by this part of it, at most [`RAISES_MAX`] times.
const RAISED_BY: u64 = 4;
const RAISES_MAX: u32 = 24;

pub(crate) fn run(bench: &mut Bench) -> Result<(), String> {
    let (clients, counted) = bench.extent().pick(
        (500, Duration::from_millis(300)),
        (2_000, Duration::from_secs(1)),
        (2_000, Duration::from_secs(3)),
    );
    let (cores, plan) = (bench.pin_load()?, bench.plan());
    let core = (cores.count < CORES_LEAST).then_some(cores.server);
    let start = |workers| -> Result<_, String> {
        let mut world = World::start((HANDLER, workers), clients, core, PER_SECOND)?;
        world.connect(clients)?;
        Ok(RefCell::new(world))
    };
    let worlds: [RefCell<World>; 2] = [start(1)?, start(2)?];
    let arm = |place: usize| {
        let [own, other] = [&worlds[place], &worlds[1 - place]];
        Arm::new(format!("{} worker(s)", place + 1), move || {
            let World { server, load, .. } = &mut *own.borrow_mut();
            let keep_alive = at_intervals(KEEP_ALIVE_NS, || other.borrow_mut().load.receive());
            // Two workers on one core wait for each other, which is no disturbance.
            load.measure(server, (WARM_UP, counted), (false, PER_DROP), keep_alive)
        })
    };
    let measured = interleave(vec![arm(0), arm(1)], plan)?;
    bench.show_echoes("workers", &measured, &[])?;
    let [one, two] = measured.as_slice() else { return Ok(()) };
    let mut words = vec![if core.is_some() { "on one core" } else { "on cores of their own" }.to_owned()];
    words.extend(Some(ratio_note(&[one, two])).filter(|note| !note.is_empty()));
    let ratio = two.over(one, |report| report.cpu_ns_per_packet);
    let name = "workers: CPU per message, 2 over 1";
    bench.results.spread(name, ratio, "x", Goal::AtMost(CPU_RATIO), &words.join("; "));
    let [mut one, mut two] = worlds.map(RefCell::into_inner);
    let (mut clients, mut note) = (None, format!("not measurable on {} cores", cores.count));
    if core.is_none() {
        let [(of_one, _), (of_two, is_load_limit)] = [bears(&mut one, counted)?, bears(&mut two, counted)?];
        note = if is_load_limit { "client-limited" } else { "" }.to_owned();
        clients = (of_one > 0.0).then(|| of_two / of_one);
    }
    let name = "workers: clients that 2 threads bear over those of 1";
    bench.results.figure(name, clients, "x", Goal::AtLeast(CLIENTS_RATIO), &note);
    one.close()?;
    two.close()?;
    Ok(())
}

/// Returns the highest rate that comes back in time, and whether the client limited it.
fn bears(world: &mut World, counted: Duration) -> Result<(f64, bool), String> {
    let (mut rate, mut borne) = (world.load.rate(), 0.0);
    for _ in 0..RAISES_MAX {
        world.load.change(rate, ANSWER_BYTES);
        let times = (WARM_UP, counted);
        let (report, values) = world.load.measure(&world.server, times, (false, PER_DROP), |_| Ok(()))?;
        let tried = report.books.sent as f64 + values["refused"];
        let is_in_time = report.latency_ns.is_some_and(|latency| latency.p99 <= BORNE_NS);
        if (report.books.received as f64) < BORNE * tried || !is_in_time {
            return Ok((borne, report.limited_by.is_some()));
        }
        borne = rate as f64;
        rate += rate / RAISED_BY;
    }
    Ok((borne, true))
}
