//! A game of 300 players with 64 channels each, of which 4 get a message with every update. There are 40 updates per second, a tick
//! per millisecond, 1 % loss, and a round trip of 40 ms.
//!
//! The server's share of a core contains sealing and opening, and no system calls.

use std::time::Duration;

use bytes::Bytes;
use drumfire_benches::{BUSY, Bench, Goal, Spread, Work};
use drumfire_proto::SendOptions;
use drumfire_tools::table::{Align, TextTable};

use super::rounds;
use super::world::{Path, Share, World, send};

pub(super) const PATH: Path = Path { delay_ticks: 20, lost_per_mille: 10 };
/// Ticks between two updates. There are 40 updates per second.
pub(super) const UPDATE_TICKS: u64 = 25;
const CHANNELS: u16 = 64;
const ACTIVE: u16 = 4;
/// The goal for the server's share of a core without ciphers. The share with ciphers has the same goal.
const CORE_PERCENT: f64 = 5.0;

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let (peers, ticks) = bench.extent().pick((32, 200), (300, 4_000), (300, 4_000));
    let mut world = World::new(peers, PATH)?;
    world.create(CHANNELS)?;
    let mut update = 0;
    let arm = Work::new("updates", || round(&mut world, ticks, CHANNELS, &mut update));
    let arms = rounds(bench, vec![arm])?;
    world.drain()?;
    if world.delivered != world.sent {
        return Err(format!("updates: {} of {} messages delivered", world.delivered, world.sent));
    }
    let Some(arm) = arms.first() else { return Ok(()) };
    let of = |value: &dyn Fn(&Share) -> f64| Spread::of(arm.rounds.iter().map(value));
    let seconds = ticks as f64 / 1_000.0;
    let rows = [
        ("share of a core, %", of(&Share::core_percent), 2),
        ("datagrams to clients per second", of(&|share| share.datagrams as f64 / seconds), 0),
        ("bytes to clients per second", of(&|share| share.bytes as f64 / seconds), 0),
        ("datagrams lost per second, both ways", of(&|share| share.lost as f64 / seconds), 0),
        (
            "void",
            Some(Spread { median: arm.voided.into(), least: arm.voided.into(), most: arm.voided.into() }),
            0,
        ),
    ];
    let mut table = TextTable::new(&[
        ("the server, sealing and opening (AES-128-GCM) included, no system calls", Align::Left),
        ("median", Align::Right),
        ("least-most", Align::Right),
    ])
    .indented(2);
    println!(
        "  {peers} peers, {CHANNELS} channels created, {ACTIVE} active, 40 updates/s, 1 kHz ticks, 1 % loss"
    );
    for (name, spread, digits) in rows {
        let Some(Spread { median, least, most }) = spread else { continue };
        table.row([
            name.to_owned(),
            format!("{median:.digits$}"),
            format!("{least:.digits$}-{most:.digits$}"),
        ]);
    }
    println!("{}", table.render());
    let name = format!(
        "{peers} peers, {CHANNELS} created, {ACTIVE} active, 40 updates/s, 1 % loss: share of a core"
    );
    let note = if arm.is_busy { BUSY } else { "with ciphers, without system calls" };
    bench.results.spread(name, of(&Share::core_percent), "%", Goal::AtMost(CORE_PERCENT), note);
    Ok(())
}

/// Runs this number of ticks. Every 25th is an update on the next four of `channels`.
pub(super) fn round(world: &mut World, ticks: u64, channels: u16, update: &mut u16) -> Result<Share, String> {
    let before = world.counts();
    let mut took = Duration::ZERO;
    for tick in 0..ticks {
        let is_update = tick % UPDATE_TICKS == 0;
        let first = *update * ACTIVE;
        took += world.tick(
            |server, now, links| {
                for link in links.iter().filter(|_| is_update) {
                    for channel in first..first + ACTIVE {
                        let (bytes, options) =
                            (Bytes::from_static(&[7; 16]), SendOptions::reliable_ordered());
                        send(server, now, link, channel, bytes, options);
                    }
                }
            },
            |_, _| {},
        );
        if is_update {
            world.sent += world.peers() as u64 * u64::from(ACTIVE);
            *update = (*update + 1) % (channels / ACTIVE);
        }
    }
    Ok(world.share(before, took, ticks))
}
