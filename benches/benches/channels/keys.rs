//! The time until the newest value of every key arrives after a burst of losses, on one `ReliableLatest` channel.
//!
//! Each player has 500 keys, a tenth of which changes with every update. There are 40 updates per second and a round trip of 40 ms.

use std::time::Duration;

use bytes::Bytes;
use drumfire_benches::{Bench, Goal};
use drumfire_proto::SendOptions;

use super::ticks::UPDATE_TICKS;
use super::world::{LOSSY, Message, Path, TICK, World, random};

/// The seed of the keys that change.
pub(super) const SEED: u64 = 9;

const KEYS: u16 = 500;

/// Keys that change with one update.
const CHANGES: u16 = KEYS / 10;

/// The path outside of bursts. It loses no datagrams.
const CALM: Path = Path { lost_per_mille: 0, ..LOSSY };

const BURSTS_MS: [u64; 4] = [50, 200, 500, 1_000];

/// Ticks before the first burst. Every key has a value by then.
const WARM_UP_TICKS: u64 = 4_000;

/// Ticks before each burst. Round trips are known by then, and the burst before has no more effect.
const CALM_TICKS: u64 = 1_000;

/// A value that takes this long does not arrive.
const RECOVERY_TICKS: u64 = 10_000;

/// A world, and the values that its clients should have and have.
struct Values {
    world: World,
    seed: u64,
    /// The number of ticks so far, which is the version of a value that changes now.
    tick: u64,
    /// The last version sent and the last that arrived, by connection and key.
    sent: Vec<u64>,
    received: Vec<u64>,
}

impl Values {
    fn new(peers: u32) -> Result<Self, String> {
        let world = World::new(peers, CALM)?;
        let none = vec![0; world.peers() * usize::from(KEYS)];
        Ok(Self { world, seed: SEED, tick: 0, sent: none.clone(), received: none })
    }

    /// Runs this number of ticks. The first of 25 is an update.
    fn play(&mut self, ticks: u64) {
        for _ in 0..ticks {
            let is_update = self.tick.is_multiple_of(UPDATE_TICKS);
            self.tick += 1;
            let messages = if is_update { self.changes() } else { Vec::new() };
            let Self { world, received, .. } = self;
            world.tick_and_hear(messages.into_iter(), |peer, value| {
                let [version, key] = [&value[..8], &value[8..]]
                    .map(|bytes| bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)));
                let known = &mut received[place(peer as usize, key)];
                *known = version.max(*known);
            });
        }
    }

    /// Returns the changes of an update.
    fn changes(&mut self) -> Vec<Message> {
        let mut changes = Vec::new();
        for peer in 0..self.world.peers() {
            for _ in 0..CHANGES {
                let key = random(&mut self.seed) % u64::from(KEYS);
                let mut value = [0; 16];
                value[..8].copy_from_slice(&self.tick.to_be_bytes());
                value[8..].copy_from_slice(&key.to_be_bytes());
                self.sent[place(peer, key)] = self.tick;
                changes.push((peer, 0, Bytes::copy_from_slice(&value), SendOptions::reliable_latest(key)));
            }
        }
        changes
    }

    /// Loses all datagrams for this number of milliseconds. Returns the milliseconds from then until all values arrived that were sent
    /// before.
    fn burst(&mut self, ms: u64) -> Result<f64, String> {
        self.world.lose(1_000);
        self.play(ms);
        self.world.lose(0);
        let owed = self.sent.clone();
        for ticks in 0..RECOVERY_TICKS {
            if self.received.iter().zip(&owed).all(|(received, owed)| received >= owed) {
                return Ok(ticks as f64 * TICK.as_secs_f64() * 1e3);
            }
            self.play(1);
        }
        Err(format!("values that were lost in {ms} ms did not arrive in {RECOVERY_TICKS} ms"))
    }
}

fn place(peer: usize, key: u64) -> usize {
    peer * usize::from(KEYS) + usize::try_from(key).unwrap_or(usize::MAX)
}

/// Measures the time until the last value of every key arrives after a burst in which every datagram is lost.
///
/// The time counts from the end of the burst, in virtual time. The last value sent in the burst, or a newer one, must arrive within a
/// round trip and a probe timeout.
pub(super) fn burst(bench: &mut Bench) -> Result<(), String> {
    let (peers, repeats) = bench.extent().pick((8, 1), (32, 5), (300, 5));
    for burst in BURSTS_MS {
        let mut values = Values::new(peers)?;
        values.play(WARM_UP_TICKS);
        let (mut slowest, mut bound) = (0.0_f64, Duration::ZERO);
        for _ in 0..repeats {
            values.play(CALM_TICKS);
            bound = bound.max(values.world.round_trip_and_probe());
            slowest = slowest.max(values.burst(burst)?);
        }
        let what = format!("last values after {burst} ms of losses, slowest");
        let name = format!("{peers} peers, ReliableLatest, 1 channel: {what}");
        let goal = Goal::AtMost(bound.as_secs_f64() * 1e3);
        bench.results.figure(name, Some(slowest), "ms", goal, "a round trip and a probe's time");
    }
    Ok(())
}
