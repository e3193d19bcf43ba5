//! The idle matrix: what room for connections costs that nobody takes, and what connections cost that say nothing.

use std::cell::RefCell;
use std::time::Duration;

use drumfire_benches::group::Group;
use drumfire_benches::{
    BUSY, Child, Cores, Extent, Goal, Results, Rounds, Spread, Usage, UsageWatch, Work, interleave_work,
    memory,
};
use drumfire_proto::Config;
use drumfire_tools::clock;
use drumfire_tools::report::RUN_DELAY_LIMIT;
use drumfire_tools::table::{Align, TextTable, thousands};

use crate::Plan;
use crate::books;
use crate::ends::{Ends, Players};
use crate::server::Does;

const SLOTS: [u32; 4] = [64, 2_048, 8_192, 65_536];
const RATES: [u32; 2] = [100, 1_000];

/// A server is left to itself for so long before it is looked at.
const QUIET: Duration = Duration::from_millis(100);

/// Rows of [`SLOTS`] that are held against its first, by their names.
const OVER_FEW: [(&str, usize); 2] = [("8,192", 2), ("64k", 3)];

/// CPU of (many slots, nobody) over (64, nobody): the spread of rounds on a quiet machine.
const NOISE: f64 = 1.1;

/// Bytes of resident memory for each silent connection.
const BYTES_GOAL: f64 = 1_024.0;

/// Connections begun in a second: a server takes 2,000.
const RAMP_PER_SECOND: u64 = 1_600;

/// After the last connect: working memory is given back, and keep-alives have begun.
const SILENT_AFTER: Duration = Duration::from_secs(6);

/// Passes in virtual time: one round of keep-alives.
const PASSES: u64 = 10_000;

const PASS: Duration = Duration::from_millis(1);

pub(crate) fn measure(plan: &Plan, results: &mut Results) -> Result<(), String> {
    let Plan { extent, cores, .. } = *plan;
    let (rounds, window) = match extent {
        Extent::Quick => (1, Duration::from_millis(200)),
        Extent::Default => (5, Duration::from_millis(500)),
        Extent::Full => (7, Duration::from_secs(2)),
    };
    let mut arms = Vec::new();
    for slots in SLOTS {
        for rate in RATES {
            let name = format!("{} slots, {rate} Hz", thousands(slots.into()));
            arms.push(Work::new(name, move || empty(slots, rate, window, cores)));
        }
    }
    // What waits for a core is the server's process, and is looked at in each round.
    let measured = interleave_work(arms, u32::from(rounds > 1), rounds, false)?;
    show_empty(&measured, results);
    silent(extent, cores, results)
}

/// One window of a server without clients.
fn empty(slots: u32, rate: u32, window: Duration, cores: Cores) -> Result<Usage, String> {
    let (server, _) = Does::Tick(rate).start(slots, Some(cores.server))?;
    clock::pause(QUIET);
    let watch = UsageWatch::begin(server.id());
    clock::pause(window);
    let used = watch.used().ok_or("the server's clock cannot be read")?;
    server.finish_counts()?;
    Ok(used)
}

fn show_empty(measured: &[Rounds<Usage>], results: &mut Results) {
    let mut table = TextTable::new(&[
        ("nobody connected", Align::Left),
        ("% of a core", Align::Right),
        ("least-most", Align::Right),
        ("waited for a core, %", Align::Right),
    ])
    .indented(2);
    let share = |arm: &Rounds<Usage>| Spread::of(arm.rounds.iter().map(|used| used.core_share() * 100.0));
    let is_busy =
        |arm: &Rounds<Usage>| delay(arm).is_some_and(|delay| delay.median > RUN_DELAY_LIMIT * 100.0);
    for arm in measured {
        let Some(core) = share(arm) else { continue };
        table.row([
            arm.name.clone(),
            format!("{:.2}", core.median),
            format!("{:.2}-{:.2}", core.least, core.most),
            delay(arm).map_or_else(|| "-".to_owned(), |delay| format!("{:.1}", delay.median)),
        ]);
        let note = if is_busy(arm) { BUSY } else { "" };
        let name = format!("idle: nobody, {}", arm.name);
        results.spread(name, Some(core), "% of a core", Goal::Shown, note);
    }
    println!("{}", table.render());
    for (place, rate) in RATES.into_iter().enumerate() {
        for (slots, row) in OVER_FEW {
            let (few, many) = (&measured[place], &measured[row * RATES.len() + place]);
            let pairs = many.rounds.iter().zip(&few.rounds);
            let ratio = Spread::of(pairs.map(|(many, few)| many.core_share() / few.core_share()));
            let note = if is_busy(few) || is_busy(many) { BUSY } else { "" };
            let name = format!("idle: nobody, {rate} Hz: {slots} slots over 64");
            results.spread(name, ratio, "x", Goal::AtMost(NOISE), note);
        }
    }
}

fn delay(arm: &Rounds<Usage>) -> Option<Spread> {
    let delays = arm.rounds.iter().map(|used| used.cpu.run_delay_share(used.window));
    Spread::of(delays.flatten().map(|delay| delay * 100.0))
}

/// Connections that say nothing: real time for CPU and memory, virtual time for timers.
fn silent(extent: Extent, cores: Cores, results: &mut Results) -> Result<(), String> {
    let (clients, rounds, window) = match extent {
        Extent::Quick => (1_000, 1, Duration::from_millis(500)),
        Extent::Default => (8_192, 5, Duration::from_secs(2)),
        Extent::Full => (8_192, 7, Duration::from_secs(8)),
    };
    let rate = 1_000;
    let (server, address) = Does::Tick(rate).start(clients, Some(cores.server))?;
    let (beside, _) = Does::Tick(rate).start(clients, Some(cores.server))?;
    clock::pause(QUIET);
    let bytes = |child: &Child| memory(child.id()).map(|memory| memory.resident_bytes);
    let empty = bytes(&server).ok_or("the server's memory cannot be read")?;
    let mut players = Players::bind(address, clients)?;
    let to = (address, crate::server::key().public());
    let ramped = players.crowd.connect(to, clients.into(), RAMP_PER_SECOND, |_, _| {})?;
    if ramped.failed_count() > 0 {
        return Err(format!("connects failed: {:?}", ramped.failed));
    }
    let players = RefCell::new(players);
    let rest = |time| silence(&mut players.borrow_mut(), time);
    rest(if extent == Extent::Quick { SILENT_AFTER / 4 } else { SILENT_AFTER })?;
    let idle = bytes(&server).ok_or("the server's memory cannot be read")?;
    let sent = || {
        let carried = players.borrow().carried();
        carried.sent + carried.received
    };
    let mut costs = Vec::new();
    for _ in 0..rounds {
        let (then, watches) = (sent(), [&server, &beside].map(|child| UsageWatch::begin(child.id())));
        rest(window)?;
        let [Some(full), Some(empty)] = watches.map(|watch| watch.used()) else {
            return Err("the servers' clocks cannot be read".to_owned());
        };
        let ns = (full.cpu_s() - empty.cpu_s()) * 1e9;
        let ns_per_tick = ns / (window.as_secs_f64() * f64::from(rate));
        costs.push(Cost { ns_per_tick, ns, datagrams: sent() - then, core_share: full.core_share() });
    }
    let bytes = (idle as f64 - empty as f64) / f64::from(clients);
    // A smoke run does not wait until working memory is given back.
    let goal = if extent == Extent::Quick { Goal::Shown } else { Goal::AtMost(BYTES_GOAL) };
    show_silent(clients, &costs, (bytes, goal), results);
    let mut players = players.into_inner();
    players.check()?;
    books::close(server, &mut [&mut players.crowd])?;
    // Nobody was there, and nothing may have come.
    books::close(beside, &mut [])?;
    silent_timers(clients, results)
}

/// Lets time pass; only keep-alives are carried.
fn silence(players: &mut Players, time: Duration) -> Result<(), String> {
    let until = clock::now() + time;
    while clock::now() < until {
        players.look(|_| {})?;
        clock::pause(PASS);
    }
    Ok(())
}

/// What one window of silence cost.
struct Cost {
    /// Beyond a server without clients.
    ns_per_tick: f64,
    /// The same of the whole window.
    ns: f64,
    datagrams: u64,
    core_share: f64,
}

fn show_silent(clients: u32, costs: &[Cost], (bytes, bytes_goal): (f64, Goal), results: &mut Results) {
    let spread = |of: &dyn Fn(&Cost) -> f64| Spread::of(costs.iter().map(of));
    let datagrams = costs.iter().map(|cost| cost.datagrams).sum::<u64>();
    let ns: f64 = costs.iter().map(|cost| cost.ns).sum();
    let name = |what| format!("idle: {} silent clients, 1,000 Hz: {what}", thousands(clients.into()));
    let tick = spread(&|cost| cost.ns_per_tick);
    results.spread(name("a tick, beyond one without clients"), tick, "ns", Goal::Shown, "");
    let core = spread(&|cost| cost.core_share * 100.0);
    results.spread(name("server"), core, "% of a core", Goal::Shown, "");
    let mut figure = |what, value, unit, goal| results.figure(name(what), value, unit, goal, "");
    figure("datagrams of keep-alives and their acks", Some(datagrams as f64), "", Goal::Shown);
    let per_datagram = (datagrams > 0).then(|| ns / datagrams as f64);
    figure("CPU for each of these", per_datagram, "ns", Goal::Shown);
    figure("resident memory of each", Some(bytes), "B", bytes_goal);
}

/// Measures the timers of a tick while all connections are silent, for as long as one round of keep-alives, without sockets.
fn silent_timers(clients: u32, results: &mut Results) -> Result<(), String> {
    let mut group = Group::connect(clients, &Config::default().connections(clients))?;
    let mut took = Duration::ZERO;
    for _ in 0..PASSES {
        group.pass(PASS);
        let start = clock::now();
        group.server.handle_timeout(group.now);
        took += start.elapsed();
        group.client.handle_timeout(group.now);
        group.settle();
    }
    let name = format!("idle: {} silent clients, virtual time: timers of a tick", thousands(clients.into()));
    let ns = took.as_nanos() as f64 / PASSES as f64;
    results.figure(name, Some(ns), "ns", Goal::Shown, "datagrams not included");
    Ok(())
}
