//! The idle matrix: the cost of room for connections, and of connections that are silent.

use std::time::Duration;

use drumfire_benches::{
    Arm, BUSY, Bench, Cores, Extent, Goal, Plan, Rounds, Spread, Usage, UsageWatch, Window, interleave_work,
    resident_bytes,
};
use drumfire_tools::clock;
use drumfire_tools::report::RUN_DELAY_LIMIT;
use drumfire_tools::table::thousands;

use crate::world::{TICK, World};

const SLOTS: [u32; 4] = [64, 2_048, 8_192, 65_536];

/// Ticks per second.
const RATES: [u32; 2] = [100, 1_000];

/// Rows of [`SLOTS`] that are compared with the first one, by their names.
const OVER_FEW: [(&str, usize); 2] = [("8,192", 2), ("64k", 3)];

/// CPU with many slots over that with 64. A quiet machine has this spread.
const NOISE: f64 = 1.1;

/// Resident memory per silent connection.
const BYTES_GOAL: f64 = 1_024.0;

/// The time after which a new server is measured.
const QUIET: Duration = Duration::from_millis(100);

/// The time after which working memory of new connections is given back, and keep-alives have begun.
const SILENT_AFTER: Duration = Duration::from_secs(6);

pub(crate) fn run(bench: &mut Bench) -> Result<(), String> {
    let millis = Duration::from_millis;
    let window = bench.extent().pick(millis(200), millis(500), millis(2_000));
    let (cores, plan) = (bench.pin_load()?, bench.plan());
    let mut arms = Vec::new();
    for slots in SLOTS {
        for rate in RATES {
            let name = format!("{} slots, {rate} Hz", thousands(slots.into()));
            arms.push(Arm::new(name, move || without_clients(slots, rate, window, cores)));
        }
    }
    // The server waits for a core and not this thread, so its delay is judged below.
    let measured = interleave_work(arms, Plan { may_void: false, ..plan })?;
    let note = |arms: &[&Rounds<Usage>]| {
        let delay = |arm: &&Rounds<Usage>| arm.spread(Usage::run_delay_share);
        let is_busy = arms.iter().filter_map(delay).any(|delay| delay.median > RUN_DELAY_LIMIT);
        if is_busy { BUSY } else { "" }
    };
    let share = |used: &Usage| Some(used.core_share() * 100.0);
    for arm in &measured {
        let name = format!("idle: nobody, {}", arm.name);
        bench.results.spread(name, arm.spread(share), "% of a core", Goal::Shown, note(&[arm]));
    }
    for (place, rate) in RATES.into_iter().enumerate() {
        for (slots, row) in OVER_FEW {
            let [few, many] = [0, row].map(|row| &measured[row * RATES.len() + place]);
            let name = format!("idle: nobody, {rate} Hz: {slots} slots over 64");
            bench.results.spread(name, many.over(few, share), "x", Goal::AtMost(NOISE), note(&[few, many]));
        }
    }
    silent(bench, cores)
}

/// Measures a server without clients.
fn without_clients(slots: u32, rate: u32, window: Duration, cores: Cores) -> Result<Usage, String> {
    let world = World::start((TICK, rate), slots, Some(cores.server), 0)?;
    clock::pause(QUIET);
    let watch = UsageWatch::begin(world.server.id());
    clock::pause(window);
    let used = watch.used()?;
    world.server.finish_counts()?;
    Ok(used)
}

/// Measures CPU and memory of silent connections.
fn silent(bench: &mut Bench, cores: Cores) -> Result<(), String> {
    let millis = Duration::from_millis;
    let (clients, window) =
        bench.extent().pick((1_000, millis(500)), (8_192, millis(2_000)), (8_192, millis(8_000)));
    let is_quick = bench.extent() == Extent::Quick;
    let mut world = World::start((TICK, 1_000), clients, Some(cores.server), 0)?;
    let resident = |world: &World| {
        resident_bytes(world.server.id())
            .ok_or("the server's memory cannot be read")
            .map(|bytes| bytes as f64)
    };
    clock::pause(QUIET);
    let before = resident(&world)?;
    world.connect(clients)?;
    let rest =
        |world: &mut World, time| world.load.run(Window::beginning_at(clock::host_ns(), time), |_| Ok(()));
    rest(&mut world, if is_quick { SILENT_AFTER / 4 } else { SILENT_AFTER })?;
    let bytes = (resident(&world)? - before) / f64::from(clients);
    let mut shares = Vec::new();
    for _ in 0..bench.plan().rounds {
        let watch = UsageWatch::begin(world.server.id());
        rest(&mut world, window)?;
        shares.push(watch.used()?.core_share() * 100.0);
    }
    world.close()?;
    let name = |what| format!("idle: {} silent clients, 1,000 Hz: {what}", thousands(clients.into()));
    bench.results.spread(name("server"), Spread::of(shares), "% of a core", Goal::Shown, "");
    // A smoke run does not wait until working memory is given back.
    let goal = if is_quick { Goal::Shown } else { Goal::AtMost(BYTES_GOAL) };
    bench.results.figure(name("resident memory of each"), Some(bytes), "B", goal, "");
    Ok(())
}
