//! Two workers instead of the mail's two processes: CPU per message beside one worker, and clients per thread where there are
//! cores for both.

use std::cell::RefCell;
use std::time::Duration;

use drumfire_benches::{
    Arm, Child, Cores, Extent, Goal, Measured, Results, Spread, cell, interleave, median_cell,
};
use drumfire_tools::clock;
use drumfire_tools::table::{Align, TextTable};

use crate::Plan;
use crate::books;
use crate::drive::{Drive, Load};
use crate::ends::{Ends, Players};
use crate::round::{self, Beside, Row};
use crate::server::Does;
use crate::show::note;

const PER_SECOND: u64 = 10;

const DOWN_BYTES: u16 = 64;

const WORKERS: [u16; 2] = [1, 2];

/// CPU per message of two workers over one.
const CPU_RATIO: f64 = 1.05;

/// Clients that two threads bear over those that one bears.
const CLIENTS_RATIO: f64 = 1.9;

/// With so few cores, two threads and their load have none of their own.
const CORES_LEAST: usize = 4;

/// A server bears a load of which so much comes back within [`BORNE_NS`].
const BORNE: f64 = 0.99;

const BORNE_NS: u64 = 100_000_000;

/// The rate is raised by this part of it at a time, and so often at most.
const RAISED_BY: u64 = 4;
const RAISES_MAX: u32 = 24;

/// A server, its clients, and what they have out.
struct World {
    server: Child,
    players: Players,
    drive: Drive,
}

pub(crate) fn measure(plan: &Plan, results: &mut Results) -> Result<(), String> {
    let Plan { extent, cores, .. } = *plan;
    let (clients, warm_up, rounds, counted) = match extent {
        Extent::Quick => (500, 0, 1, Duration::from_millis(300)),
        Extent::Default => (2_000, 1, 5, Duration::from_secs(1)),
        Extent::Full => (2_000, 1, 9, Duration::from_secs(3)),
    };
    let core = (cores.count < CORES_LEAST).then_some(cores.server);
    let mut worlds = Vec::new();
    for workers in WORKERS {
        let (server, address) = Does::Handle(workers).start(clients, core)?;
        let mut players = Players::bind(address, clients)?;
        crate::fair::connect(&mut players, clients)?;
        worlds.push(RefCell::new(World { server, players, drive: Drive::default() }));
    }
    let load = Load { per_second: PER_SECOND, down_bytes: DOWN_BYTES, counted };
    let row = Row { who: "drumfire", slots: clients, has_one_thread: false };
    let beside = WORKERS.map(|_| RefCell::new(Vec::new()));
    let mut arms = Vec::new();
    for (place, workers) in WORKERS.into_iter().enumerate() {
        let (worlds, beside) = (&worlds, &beside[place]);
        arms.push(Arm::new(format!("{workers} worker(s)"), move || {
            let World { server, players, drive } = &mut *worlds[place].borrow_mut();
            let mut looked = clock::now();
            let others = || {
                let now = clock::now();
                if now.duration_since(looked) < Duration::from_millis(100) {
                    return Ok(());
                }
                looked = now;
                let others = worlds.iter().enumerate().filter(|(other, _)| *other != place);
                others.map(|(_, world)| world).try_for_each(|world| world.borrow_mut().players.look(|_| {}))
            };
            let (report, window) = round::run(row, server, drive, players, load, others)?;
            beside.borrow_mut().push(window);
            Ok(report)
        }));
    }
    let measured = interleave(arms, warm_up, rounds, extent != Extent::Quick)?;
    println!("  {clients} clients, {PER_SECOND}/s each, {DOWN_BYTES} B back");
    show(&measured, &beside.map(RefCell::into_inner), results)?;
    let [one, two] = measured.as_slice() else { return Ok(()) };
    let pairs = one.rounds.iter().zip(&two.rounds);
    let ratios = pairs.filter_map(|(one, two)| Some(two.cpu_ns_per_packet? / one.cpu_ns_per_packet?));
    let on = if core.is_some() { "on one core" } else { "on cores of their own" };
    let words = [on.to_owned(), note(&[one, two])];
    let words: Vec<String> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let name = "workers: CPU per message, 2 over 1";
    results.spread(name, Spread::of(ratios), "x", Goal::AtMost(CPU_RATIO), &words.join("; "));
    let mut worlds: Vec<World> = worlds.into_iter().map(RefCell::into_inner).collect();
    clients_per_thread(&mut worlds, cores, counted, results)?;
    close(worlds)
}

fn show(measured: &[Measured], beside: &[Vec<Beside>], results: &mut Results) -> Result<(), String> {
    let mut table = TextTable::new(&[
        ("", Align::Left),
        ("messages/s", Align::Right),
        ("CPU ns/message", Align::Right),
        ("load, % of a core", Align::Right),
        ("void", Align::Right),
    ])
    .indented(2);
    for (arm, beside) in measured.iter().zip(beside) {
        // Warm-ups and rounds that were repeated came first.
        let counted = beside.iter().rev().take(arm.rounds.len());
        table.row([
            arm.name.clone(),
            median_cell(arm.pps(), 0),
            cell(arm.cpu_ns(), 0),
            median_cell(Spread::of(counted.map(Beside::load_percent)), 1),
            arm.void_cell(),
        ]);
        for round in &arm.rounds {
            results.run(&format!("workers: {}", arm.name), round)?;
        }
    }
    println!("{}", table.render());
    Ok(())
}

/// How much more two threads bear than one.
fn clients_per_thread(
    worlds: &mut [World],
    cores: Cores,
    counted: Duration,
    results: &mut Results,
) -> Result<(), String> {
    let name = "workers: clients that 2 threads bear over those of 1";
    let goal = Goal::AtLeast(CLIENTS_RATIO);
    if cores.count < CORES_LEAST {
        results.figure(name, None, "x", goal, &format!("not measurable on {} cores", cores.count));
        return Ok(());
    }
    let mut borne = Vec::new();
    for world in worlds {
        borne.push(bears(world, counted)?);
    }
    let [(one, _), (two, is_load_limit)] = borne[..] else { return Ok(()) };
    let note = if is_load_limit { "load-limited: the load's thread could offer no more" } else { "" };
    results.figure(name, (one > 0.0).then(|| two / one), "x", goal, note);
    Ok(())
}

/// The highest load that comes back in time, in clients that say something ten times a second; and whether it was the load's
/// own thread that was late first.
fn bears(world: &mut World, counted: Duration) -> Result<(f64, bool), String> {
    let World { server, players, drive } = world;
    let (mut per_second, mut borne) = (PER_SECOND, 0.0);
    for _ in 0..RAISES_MAX {
        let load = Load { per_second, down_bytes: DOWN_BYTES, counted };
        let row = Row { who: "drumfire", slots: 0, has_one_thread: false };
        let (report, beside) = round::run(row, server, drive, players, load, || Ok(()))?;
        let tally = beside.tally;
        let is_in_time = tally.latency.value_at_quantile(BORNE) <= BORNE_NS;
        if (tally.back as f64) < BORNE * (tally.sent + tally.refused) as f64 || !is_in_time {
            return Ok((borne, report.limited_by.is_some()));
        }
        borne = players.count() as f64 * load.per_second as f64 / PER_SECOND as f64;
        per_second += per_second / RAISED_BY;
    }
    Ok((borne, true))
}

fn close(worlds: Vec<World>) -> Result<(), String> {
    for World { server, mut players, .. } in worlds {
        players.check()?;
        books::close(server, &mut [&mut players.crowd])?;
    }
    Ok(())
}
