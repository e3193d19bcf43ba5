//! The server's time and bytes per tick by peers, channels created, and channels active.
//!
//! A channel is created when a reliable message on it was sent, delivered, and acknowledged. It is active when a message is sent on it
//! in every tick. No cell has fewer channels created than active.

use drumfire_benches::{BUSY, Bench, Extent, Goal, Results, Rounds, Spread, Work};
use drumfire_tools::table::{Align, TextTable, thousands};

use super::world::{Path, Share, World};
use super::{rounds, void_cell};

const ACTIVE: [u16; 3] = [0, 1, 8];
const PATH: Path = Path { delay_ticks: 2, lost_per_mille: 0 };
/// The goal for the time of a tick with 1,024 channels created over one with 1, both with 1 active.
const TIME_RATIO: f64 = 1.05;

/// The cells of one extent.
struct Cells {
    peers: &'static [u32],
    created: &'static [u16],
    /// Ticks times peers in a round.
    peer_ticks: u64,
}

impl Cells {
    const fn of(extent: Extent) -> Self {
        match extent {
            Extent::Quick => Self { peers: &[32], created: &[1, 1_024], peer_ticks: 32 * 50 },
            Extent::Default => Self { peers: &[300], created: &[1, 32, 64, 256, 1_024], peer_ticks: 150_000 },
            Extent::Full => {
                Self { peers: &[32, 300, 1_000], created: &[1, 32, 64, 256, 1_024], peer_ticks: 150_000 }
            }
        }
    }
}

struct Cell {
    created: u16,
    active: u16,
    rounds: Rounds<Share>,
}

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let all = Cells::of(bench.extent());
    let mut table = TextTable::new(&[
        ("peers", Align::Right),
        ("created", Align::Right),
        ("active", Align::Right),
        ("ns per tick", Align::Right),
        ("least-most", Align::Right),
        ("ns per peer", Align::Right),
        ("datagrams per tick", Align::Right),
        ("bytes per tick", Align::Right),
        ("void", Align::Right),
    ])
    .indented(2);
    for &peers in all.peers {
        let cells = cells(bench, &all, peers)?;
        for cell in &cells {
            row(&mut table, &mut bench.results, peers, cell);
        }
        compare(&mut bench.results, peers, &cells);
    }
    println!("{}", table.render());
    Ok(())
}

/// Measures all cells of this number of peers, interleaved. Each has worlds of its own, so that no cell changes another one's memory.
///
/// The memory of worlds that are made first is closer together, which saves up to a sixth of their time. Each cell therefore has two
/// worlds, one made in this order and one in the reverse order, and half of its ticks are in each.
fn cells(bench: &mut Bench, all: &Cells, peers: u32) -> Result<Vec<Cell>, String> {
    let ticks = all.peer_ticks / u64::from(peers) / 2;
    let created = |active: u16| all.created.iter().copied().filter(move |created| *created >= active);
    let names: Vec<(u16, u16)> =
        ACTIVE.into_iter().flat_map(|active| created(active).map(move |created| (created, active))).collect();
    let world = |(created, _): &(u16, u16)| {
        let mut world = World::new(peers, PATH)?;
        world.create(*created)?;
        Ok::<_, String>(world)
    };
    let worlds = names.iter().map(world).collect::<Result<Vec<_>, _>>()?;
    let mirrored = names.iter().rev().map(world).collect::<Result<Vec<_>, _>>()?;
    let pairs = worlds.into_iter().zip(mirrored.into_iter().rev());
    let arms = names.iter().zip(pairs).map(|(&(created, active), (mut one, mut other))| {
        let name = format!("{peers} peers, {created} created, {active} active");
        Work::new(name, move || Ok(one.ticks(ticks, active)?.plus(other.ticks(ticks, active)?)))
    });
    let rounds = rounds(bench, arms.collect())?;
    Ok(names
        .into_iter()
        .zip(rounds)
        .map(|((created, active), rounds)| Cell { created, active, rounds })
        .collect())
}

fn row(table: &mut TextTable, results: &mut Results, peers: u32, cell: &Cell) {
    let Cell { created, active, rounds } = cell;
    let Some(ns) = Spread::of(rounds.rounds.iter().map(Share::ns_per_tick)) else { return };
    let per_tick = |count: fn(&Share) -> u64| {
        let all: u64 = rounds.rounds.iter().map(count).sum();
        all as f64 / rounds.rounds.iter().map(|share| share.ticks).sum::<u64>() as f64
    };
    let (datagrams, bytes) = (per_tick(|share| share.datagrams), per_tick(|share| share.bytes));
    let note = if rounds.is_busy { BUSY } else { "" };
    results.spread(format!("{}, per tick", rounds.name), Some(ns), "ns", Goal::Shown, note);
    results.figure(format!("{}, bytes per tick", rounds.name), Some(bytes), "B", Goal::Shown, "");
    table.row([
        thousands(peers.into()),
        thousands((*created).into()),
        active.to_string(),
        format!("{:.0}", ns.median),
        format!("{:.0}-{:.0}", ns.least, ns.most),
        format!("{:.1}", ns.median / f64::from(peers)),
        format!("{datagrams:.1}"),
        format!("{bytes:.0}"),
        void_cell(rounds),
    ]);
}

/// Compares the time with the most channels created to the time with the fewest, for each number of active channels.
fn compare(results: &mut Results, peers: u32, cells: &[Cell]) {
    for active in ACTIVE {
        let mut of_active = cells.iter().filter(|cell| cell.active == active);
        let Some(few) = of_active.next() else { continue };
        let Some(many) = of_active.next_back() else { continue };
        let name = format!("{peers} peers, {active} active: {} over {} created", many.created, few.created);
        let note = if few.rounds.is_busy || many.rounds.is_busy { BUSY } else { "" };
        let pairs = || many.rounds.rounds.iter().zip(&few.rounds.rounds);
        let ratio = Spread::of(pairs().map(|(many, few)| many.ns_per_tick() / few.ns_per_tick()));
        let goal = if active == 1 { Goal::AtMost(TIME_RATIO) } else { Goal::Shown };
        // The time of a tick without messages depends on the keep-alives in it.
        if active > 0 {
            results.spread(format!("{name}, time"), ratio, "", goal, note);
        }
    }
}
