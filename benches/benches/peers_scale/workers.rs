//! Two workers instead of the two processes of the report: CPU per message over one worker. At the same cost per message, twice the cores
//! serve twice the clients.

use std::cell::RefCell;
use std::time::Duration;

use drumfire_benches::traffic::{KEEP_ALIVE_NS, at_intervals};
use drumfire_benches::{Arm, Bench, Goal, interleave, ratio_note};

use crate::world::{PER_DROP, PER_SECOND, WARM_UP, World, handler};

/// The goal for the CPU per message with two workers over that with one.
const CPU_RATIO: f64 = 1.05;

/// With fewer cores, the two threads and the load share cores.
const CORES_LEAST: usize = 4;

pub(crate) fn run(bench: &mut Bench) -> Result<(), String> {
    let (clients, counted) = bench.extent().pick(
        (500, Duration::from_millis(300)),
        (2_000, Duration::from_secs(1)),
        (2_000, Duration::from_secs(3)),
    );
    let (cores, plan) = (bench.pin_load()?, bench.plan());
    let core = (cores.count < CORES_LEAST).then_some(cores.server);
    let start = |workers| -> Result<_, String> {
        let mut world = World::start(handler(workers, clients), core, PER_SECOND)?;
        world.connect(clients)?;
        Ok(RefCell::new(world))
    };
    let worlds: [RefCell<World>; 2] = [start(1)?, start(2)?];
    let arm = |place: usize| {
        let [own, other] = [&worlds[place], &worlds[1 - place]];
        Arm::new(format!("{} worker(s)", place + 1), move || {
            let World { server, load, .. } = &mut *own.borrow_mut();
            let keep_alive = at_intervals(KEEP_ALIVE_NS, || other.borrow_mut().load.poll());
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
    worlds.into_iter().try_for_each(|world| world.into_inner().close().map(drop))
}
