//! A day of a game in virtual time, in parts: four of 1,024 channels get a message with every update, 40 updates per second, 1 %
//! loss; after each part everything must have been delivered, all is silent for ten seconds, and what both ends hold is counted
//! by the allocator.
//!
//! Virtual time is honest for what the protocol keeps: windows, rings, books of channels, keys that are changed by the hour. It
//! says nothing of the system's memory, of sockets or of threads. The link's own memory is in the figure.

use std::time::Duration;

use allocation_counter::measure as counted;
use drumfire_benches::{Extent, Goal, Results};
use drumfire_tools::clock;
use drumfire_tools::table::{Align, TextTable, thousands};

use super::updates::{PATH, round};
use super::world::{Share, World};

const CHANNELS: u16 = 1_024;

/// Ticks of a virtual second, and of an hour.
const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600 * SECOND;

const SILENT: u64 = 10 * SECOND;

/// Before the first part: every table and pool has grown to what this game needs.
const WARM_UP: u64 = 60 * SECOND;

/// Parts at least: the first half is what the second is held against.
const PARTS_LEAST: u64 = 6;

/// What the second half may hold at most over the first.
const GROWTH: f64 = 1.01;

pub(super) fn measure(extent: Extent, hours: Option<u32>, results: &mut Results) -> Result<(), String> {
    let (peers, ticks) = match (hours, extent) {
        (Some(hours), _) => (32, u64::from(hours) * HOUR),
        (None, Extent::Quick) => (8, 30 * SECOND),
        (None, Extent::Default) => (32, HOUR / 12),
        (None, Extent::Full) => (32, 2 * HOUR),
    };
    let parts = PARTS_LEAST.max(ticks / HOUR);
    let mut table = TextTable::new(&[
        ("virtual time", Align::Left),
        ("messages", Align::Right),
        ("lost datagrams", Align::Right),
        ("bytes held by both ends", Align::Right),
        ("of a core, %", Align::Right),
    ])
    .indented(2);
    println!("  {peers} peers, {CHANNELS} channels, 4 active, 40 updates/s, 1 kHz ticks, 1 % loss");
    let mut world = None;
    let mut held = counted(|| world = Some(World::new(peers, PATH))).bytes_current;
    let mut world = world.ok_or("no world")??;
    let (mut update, mut all, start) = (0, Vec::new(), clock::now());
    let mut warmed_up = Ok(Share::default());
    held += counted(|| warmed_up = one_part(&mut world, WARM_UP, &mut update)).bytes_current;
    warmed_up?;
    for part in 1..=parts {
        let mut share = Ok(Share::default());
        let info = counted(|| share = one_part(&mut world, ticks / parts, &mut update));
        let share = share?;
        held += info.bytes_current;
        all.push(held);
        let time = Duration::from_millis(ticks / parts * part);
        table.row([
            format!("{time:?}"),
            thousands(world.delivered),
            thousands(share.lost),
            thousands(u64::try_from(held).unwrap_or(0)),
            format!("{:.2}", share.core_percent()),
        ]);
    }
    println!("{}", table.render());
    println!("  in {:.0} s of real time", clock::now().duration_since(start).as_secs_f64());
    let most = |held: &[i64]| held.iter().copied().max().unwrap_or(0) as f64;
    let (first, second) = all.split_at(all.len() / 2);
    let name = format!("soak of {} virtual s: memory, second half over first", ticks / SECOND);
    let growth = most(second) / most(first);
    results.figure(name, Some(growth), "x", Goal::AtMost(GROWTH), "counted by the allocator");
    Ok(())
}

/// Plays, lets everything arrive, and is silent.
fn one_part(world: &mut World, ticks: u64, update: &mut u16) -> Result<Share, String> {
    let share = round(world, ticks, CHANNELS, update)?;
    world.drain()?;
    if world.delivered != world.sent {
        return Err(format!("soak: {} of {} messages delivered", world.delivered, world.sent));
    }
    for _ in 0..SILENT {
        world.tick(|_, _, _| {}, |_, _| {});
    }
    Ok(share)
}
