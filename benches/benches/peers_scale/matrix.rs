//! The idle matrix: the cost of room for connections, and of connections that are silent.

use std::time::{Duration, Instant};

use drumfire_benches::memory::Group;
use drumfire_benches::{
    BUSY, Bench, Child, Cores, Extent, Goal, Spread, Usage, UsageWatch, Window, Work, interleave_work,
    memory, usage_of,
};
use drumfire_proto::Config;
use drumfire_tools::clock;
use drumfire_tools::report::RUN_DELAY_LIMIT;
use drumfire_tools::table::thousands;

use crate::server::TICK;
use crate::world::World;

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

/// Ticks of 1 ms in virtual time. They last for one round of keep-alives.
const PASSES: u32 = 10_000;

pub(crate) fn run(bench: &mut Bench) -> Result<(), String> {
    let millis = Duration::from_millis;
    let window = bench.extent().pick(millis(200), millis(500), millis(2_000));
    let (cores, plan) = (bench.pin_load()?, bench.plan());
    let mut arms = Vec::new();
    for slots in SLOTS {
        for rate in RATES {
            let name = format!("{} slots, {rate} Hz", thousands(slots.into()));
            arms.push(Work::new(name, move || without_clients(slots, rate, window, cores)));
        }
    }
    // The server waits for a core and not this thread, so its delay is judged below.
    let measured = interleave_work(arms, plan.warm_up, plan.rounds, false)?;
    let is_busy = |rounds: &[Usage]| {
        let delays = Spread::of(rounds.iter().filter_map(Usage::run_delay_share));
        delays.is_some_and(|delay| delay.median > RUN_DELAY_LIMIT)
    };
    for arm in &measured {
        let share = Spread::of(arm.rounds.iter().map(|used| used.core_share() * 100.0));
        let name = format!("idle: nobody, {}", arm.name);
        let note = if is_busy(&arm.rounds) { BUSY } else { "" };
        bench.results.spread(name, share, "% of a core", Goal::Shown, note);
    }
    for (place, rate) in RATES.into_iter().enumerate() {
        for (slots, row) in OVER_FEW {
            let [few, many] = [0, row].map(|row| &measured[row * RATES.len() + place].rounds);
            let ratios = many.iter().zip(few).map(|(many, few)| many.core_share() / few.core_share());
            let name = format!("idle: nobody, {rate} Hz: {slots} slots over 64");
            let note = if is_busy(few) || is_busy(many) { BUSY } else { "" };
            bench.results.spread(name, Spread::of(ratios), "x", Goal::AtMost(NOISE), note);
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
    let [used] = usage_of([watch])?;
    world.server.finish_counts()?;
    Ok(used)
}

/// Measures CPU and memory of silent connections next to a server without any.
fn silent(bench: &mut Bench, cores: Cores) -> Result<(), String> {
    let millis = Duration::from_millis;
    let (clients, window) =
        bench.extent().pick((1_000, millis(500)), (8_192, millis(2_000)), (8_192, millis(8_000)));
    let (rate, is_quick) = (1_000, bench.extent() == Extent::Quick);
    let start = || World::start((TICK, rate), clients, Some(cores.server), 0);
    let (mut world, empty_world) = (start()?, start()?);
    let resident = |child: &Child| {
        let memory = memory(child.id()).ok_or("the server's memory cannot be read");
        memory.map(|memory| memory.resident_bytes as f64)
    };
    clock::pause(QUIET);
    let before = resident(&world.server)?;
    world.connect(clients)?;
    let rest =
        |world: &mut World, time| world.load.run(Window::beginning_at(clock::host_ns(), time), |_| Ok(()));
    rest(&mut world, if is_quick { SILENT_AFTER / 4 } else { SILENT_AFTER })?;
    let bytes = (resident(&world.server)? - before) / f64::from(clients);
    let (mut ticks, mut shares, mut ns, mut datagrams) = (Vec::new(), Vec::new(), 0.0, 0);
    for _ in 0..bench.plan().rounds {
        let carried = world.carried();
        let watches = [&world.server, &empty_world.server].map(|child| UsageWatch::begin(child.id()));
        rest(&mut world, window)?;
        let [full, empty] = usage_of(watches)?;
        let more_ns = (full.cpu_s() - empty.cpu_s()) * 1e9;
        let carried = world.carried().since(carried);
        ticks.push(more_ns / (window.as_secs_f64() * f64::from(rate)));
        shares.push(full.core_share() * 100.0);
        ns += more_ns;
        datagrams += carried.sent + carried.received;
    }
    world.close()?;
    // No datagram may have come to the server without clients.
    empty_world.close()?;
    let name = |what| format!("idle: {} silent clients, {what}", thousands(clients.into()));
    let mut spread = |what, values, unit, goal| {
        bench.results.spread(name(what), Spread::of(values), unit, goal, "");
    };
    spread("1,000 Hz: a tick, beyond one without clients", ticks, "ns", Goal::Shown);
    spread("1,000 Hz: server", shares, "% of a core", Goal::Shown);
    let mut figure = |what, value, unit, goal| bench.results.figure(name(what), value, unit, goal, "");
    let counted = Some(datagrams as f64);
    figure("1,000 Hz: datagrams of keep-alives and their acks", counted, "", Goal::Shown);
    let each = counted.filter(|count| *count > 0.0).map(|count| ns / count);
    figure("1,000 Hz: CPU for each of these", each, "ns", Goal::Shown);
    // A smoke run does not wait until working memory is given back.
    let goal = if is_quick { Goal::Shown } else { Goal::AtMost(BYTES_GOAL) };
    figure("1,000 Hz: resident memory of each", Some(bytes), "B", goal);
    let timers = timers_of_a_tick(clients)?.as_nanos() as f64;
    figure("virtual time: timers of a tick", Some(timers), "ns", Goal::Shown);
    Ok(())
}

/// Measures the timers of a tick in virtual time, without datagrams.
fn timers_of_a_tick(clients: u32) -> Result<Duration, String> {
    let mut group = Group::connect(clients, &Config::default().connections(clients))?;
    let mut took = Duration::ZERO;
    for _ in 0..PASSES {
        group.pass(Duration::from_millis(1));
        let start: Instant = clock::now();
        group.server.handle_timeout(group.now);
        took += start.elapsed();
        group.client.handle_timeout(group.now);
        group.settle();
    }
    Ok(took / PASSES)
}
