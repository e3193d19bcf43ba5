//! Peers by channels created by channels active: the server's time and bytes per tick.
//!
//! Created means that a reliable message was sent on the channel, delivered and acknowledged, one channel after the other;
//! active, that one is sent in every tick. Cells with fewer channels created than active are none.

use drumfire_benches::{BUSY, Extent, Goal, Results, Rounds, Spread, Work, interleave_work};
use drumfire_tools::table::{Align, TextTable, thousands};

use super::world::{Path, Share, World};

const ACTIVE: [u16; 3] = [0, 1, 8];
const PATH: Path = Path { delay_ticks: 2, lost_per_mille: 0 };
/// Goal for the time of a tick with 1,024 channels created over one with 1, both with 1 active.
const TIME_RATIO: f64 = 1.05;

/// The cells of one extent.
struct Cells {
    peers: &'static [u32],
    created: &'static [u16],
    /// Ticks of all peers together in a round.
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

pub(super) fn measure(extent: Extent, results: &mut Results) -> Result<(), String> {
    let all = Cells::of(extent);
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
        let cells = cells(extent, &all, peers)?;
        for cell in &cells {
            row(&mut table, results, peers, cell);
        }
        compare(results, peers, &cells);
    }
    println!("{}", table.render());
    Ok(())
}

/// All cells of so many peers, in turns, each with worlds of its own: what one cell did to a world's memory must not be
/// another's. Worlds that are made first lie closer together, which is worth up to a sixth of their time; so each cell has two, one
/// made in this order and one in the other, and its ticks are half of the one and half of the other.
fn cells(extent: Extent, all: &Cells, peers: u32) -> Result<Vec<Cell>, String> {
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
    let arms = arms.collect();
    let (warm_up, rounds) = super::rounds(extent);
    let rounds = interleave_work(arms, warm_up, rounds, extent != Extent::Quick)?;
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
        format!("{}{}", rounds.voided, if rounds.is_busy { " busy" } else { "" }),
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
        // A tick without work takes as long as its keep-alives happen to.
        if active > 0 {
            results.spread(format!("{name}, time"), ratio, "", goal, note);
        }
    }
}
