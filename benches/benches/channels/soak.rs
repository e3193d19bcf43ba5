//! Hours of a game in virtual time, in sections. Four of 1,024 channels get a message with every update, with 40 updates per second and
//! 1 % loss. After each section all messages must have been delivered. Then the connections are silent for ten seconds, and the
//! allocator counts the memory of both ends.
//!
//! Virtual time is sufficient for what the protocol keeps: windows, rings, state of channels, and keys that change by the hour. It does
//! not cover the system's memory, sockets, or threads. The link's own memory is part of the figure.

use std::time::Duration;

use allocation_counter::measure as counted;
use drumfire_benches::{Bench, Goal};
use drumfire_tools::clock;
use drumfire_tools::table::{Align, TextTable, thousands};

use super::updates::{PATH, round};
use super::world::{Share, World};

const CHANNELS: u16 = 1_024;

/// Ticks of a virtual second, and of an hour.
const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600 * SECOND;

const SILENT: u64 = 10 * SECOND;

/// Ticks before the first section, in which every table and pool grows to its size.
const WARM_UP: u64 = 60 * SECOND;

/// Sections at least. The second half of them is compared with the first.
const SECTIONS_LEAST: u64 = 6;

/// The memory of the second half over that of the first, at most.
const GROWTH: f64 = 1.01;

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    super::pin(bench);
    let (peers, ticks) = match bench.number("--soak") {
        Some(hours) => (32, u64::from(hours) * HOUR),
        None => bench.extent().pick((8, 30 * SECOND), (32, HOUR / 12), (32, 2 * HOUR)),
    };
    let parts = SECTIONS_LEAST.max(ticks / HOUR);
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
    if growth > GROWTH {
        return Err(format!("memory grows: {name} is {growth:.4}, at most {GROWTH}"));
    }
    bench.results.figure(name, Some(growth), "x", Goal::AtMost(GROWTH), "counted by the allocator");
    Ok(())
}

/// Runs the game, waits for all messages, and is silent.
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
