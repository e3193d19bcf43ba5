//! Hours of a game in virtual time, in sections. Four of 1,024 channels get a message with every update, with 40 updates per second and
//! 1 % loss. After each section all messages must have been delivered. Then the connections are silent for ten seconds, and the
//! allocator counts the memory of both ends.
//!
//! Virtual time is sufficient for the state that the protocol keeps: windows, rings, channels, and keys that change within an hour. It does
//! not cover the system's memory, sockets, or threads. The link's own memory is part of the figure.

use allocation_counter::measure as counted;
use drumfire_benches::{Bench, Goal};

use super::ticks::Game;
use super::world::{LOSSY, World};

const CHANNELS: u16 = 1_024;

/// Ticks of a virtual second, and of an hour.
const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600 * SECOND;

const SILENT: u64 = 10 * SECOND;

/// Ticks before the first section, in which every table and pool grows to its size.
const WARM_UP: u64 = 60 * SECOND;

/// Sections at least. The second half of them is compared with the first.
const SECTIONS_MIN: u64 = 6;

/// The goal for the memory of the second half over that of the first: at most this.
const GROWTH: f64 = 1.01;

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let (peers, ticks) = match bench.number() {
        Some(hours) => (32, u64::from(hours) * HOUR),
        None => bench.extent().pick((8, 30 * SECOND), (32, HOUR / 12), (32, 2 * HOUR)),
    };
    let sections = SECTIONS_MIN.max(ticks / HOUR);
    let mut world = None;
    let mut held = counted(|| world = Some(World::new(peers, LOSSY))).bytes_current;
    let mut game = Game { world: world.ok_or("no world")??, channels: CHANNELS, update: 0 };
    let mut all = Vec::new();
    for section in 0..=sections {
        let length = if section == 0 { WARM_UP } else { ticks / sections };
        let mut drained = Ok(());
        let counts = counted(|| {
            game.play(length);
            drained = game.world.drain();
            game.world.be_silent(SILENT);
        });
        drained?;
        held += counts.bytes_current;
        all.push(held);
    }
    let all = &all[1..];
    let max = |held: &[i64]| held.iter().copied().max().unwrap_or(0) as f64;
    let (first, second) = all.split_at(all.len() / 2);
    let name = format!("soak of {} virtual s: memory, second half over first", ticks / SECOND);
    let growth = max(second) / max(first);
    if growth > GROWTH {
        return Err(format!("memory grows: {name} is {growth:.4}, at most {GROWTH}: {all:?}"));
    }
    bench.results.figure(name, Some(growth), "x", Goal::AtMost(GROWTH), "counted by the allocator");
    Ok(())
}
