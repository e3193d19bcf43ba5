//! The time until the newest value of every key arrives after a burst of losses, on one `ReliableLatest` channel.
//!
//! Each player has 500 keys, a tenth of which changes with every update. There are 40 updates per second and a round trip of 40 ms.

use std::time::Duration;

use bytes::Bytes;
use drumfire_benches::{Bench, Goal, Spread};
use drumfire_proto::SendOptions;

use super::ticks::UPDATE_TICKS;
use super::world::{LOSSY, Path, TICK, World, random};

/// The seed of the keys that change.
pub(super) const SEED: u64 = 9;

const KEYS: u16 = 500;

/// Keys that change with one update.
const CHANGES: u16 = KEYS / 10;
const VALUE_BYTES: usize = 16;

/// Ticks after which the last values must have arrived.
const SETTLE_TICKS: u32 = 10_000;

/// A world, and the values that its clients should have and have.
struct Values {
    world: World,
    seed: u64,
    /// The newest version.
    version: u32,
    /// The last version sent and the last that arrived, by connection and key.
    sent: Vec<u32>,
    received: Vec<u32>,
}

/// A change of one key of one connection.
type Change = (usize, u16, Bytes);

impl Values {
    fn new(peers: u32) -> Result<Self, String> {
        let world = World::new(peers, CALM)?;
        let none = vec![0; world.peers() * usize::from(KEYS)];
        let mut values = Self { world, seed: SEED, version: 0, sent: none.clone(), received: none };
        // Every key has a value before the first burst.
        let all: Vec<u16> = (0..KEYS).collect();
        for keys in all.chunks(CHANGES.into()) {
            let changes = values.changes(|at, _| keys[at]);
            values.tick(changes);
            values.settle()?;
        }
        Ok(values)
    }

    /// Makes the changes of an update. `key` selects the keys.
    fn changes(&mut self, mut key: impl FnMut(usize, &mut u64) -> u16) -> Vec<Change> {
        self.version += 1;
        let mut changes = Vec::new();
        for peer in 0..self.world.peers() {
            for at in 0..usize::from(CHANGES) {
                let key = key(at, &mut self.seed);
                let mut value = [0; VALUE_BYTES];
                value[..2].copy_from_slice(&key.to_be_bytes());
                value[2..6].copy_from_slice(&self.version.to_be_bytes());
                self.sent[place(peer, key)] = self.version;
                changes.push((peer, key, Bytes::copy_from_slice(&value)));
            }
        }
        changes
    }

    fn tick(&mut self, changes: Vec<Change>) {
        let Self { world, received, .. } = self;
        let message = |(peer, key, value): Change| (peer, 0, value, SendOptions::reliable_latest(key.into()));
        world.tick_and_hear(changes.into_iter().map(message), |peer, value| {
            let key = u16::from_be_bytes([value[0], value[1]]);
            let version = u32::from_be_bytes([value[2], value[3], value[4], value[5]]);
            let known = &mut received[place(peer as usize, key)];
            *known = version.max(*known);
        });
    }

    /// Runs the next tick. Every 25th tick is an update.
    fn play(&mut self, tick: u64) {
        let changes = if tick.is_multiple_of(UPDATE_TICKS) {
            self.changes(|_, seed| u16::try_from(random(seed) % u64::from(KEYS)).unwrap_or(0))
        } else {
            Vec::new()
        };
        self.tick(changes);
    }

    fn settle(&mut self) -> Result<(), String> {
        for _ in 0..SETTLE_TICKS {
            if self.sent == self.received {
                return Ok(());
            }
            self.tick(Vec::new());
        }
        let missing = self.sent.iter().zip(&self.received).filter(|(sent, received)| sent != received);
        Err(format!("{} last values did not arrive", missing.count()))
    }
}

fn place(peer: usize, key: u16) -> usize {
    peer * usize::from(KEYS) + usize::from(key)
}

/// The path outside of bursts. It loses no datagrams.
const CALM: Path = Path { lost_per_mille: 0, ..LOSSY };

const BURSTS_MS: [u64; 4] = [50, 200, 500, 1_000];

/// Ticks before each burst. Round trips are known by then, and the burst before has no more effect.
const CALM_TICKS: u64 = 1_000;

/// A value that takes this long does not arrive.
const RECOVERY_TICKS: u64 = 10_000;

/// Measures the time until the last value of every key arrives after a burst in which every datagram is lost.
///
/// The time counts from the end of the burst, in virtual time. The last value sent in the burst, or a newer one, must arrive within a
/// round trip and a probe timeout. After more than three probe timeouts it takes two or three round trips longer. The losses are
/// then persistent congestion, and the window opens from two packets again (RFC 9002 section 7.6.2). After more than eight, probes back
/// off, because eight seconds without a path may cost forty packets at most.
pub(super) fn burst(bench: &mut Bench) -> Result<(), String> {
    super::pin(bench);
    let (peers, repeats) = bench.extent().pick((8, 1), (32, 5), (300, 5));
    for burst in BURSTS_MS {
        let (ms, bound) = recoveries(Values::new(peers)?, burst, repeats)?;
        let name = format!(
            "{peers} peers, ReliableLatest, 1 channel: last values after {burst} ms of losses, slowest"
        );
        let most = Spread::of(ms).map(|ms| ms.most);
        let note = "a round trip and a probe's time";
        bench.results.figure(name, most, "ms", Goal::AtMost(bound), note);
    }
    Ok(())
}

/// Returns the milliseconds after the end of each burst, and their bound.
fn recoveries(mut values: Values, burst: u64, repeats: u64) -> Result<(Vec<f64>, f64), String> {
    let (mut ms, mut bound) = (Vec::new(), Duration::ZERO);
    let mut tick = 0;
    let mut play = |values: &mut Values, ticks: u64| {
        for _ in 0..ticks {
            values.play(tick);
            tick += 1;
        }
    };
    for _ in 0..repeats {
        play(&mut values, CALM_TICKS);
        bound = bound.max(values.world.round_trip_and_probe());
        values.world.lose(1_000);
        play(&mut values, burst);
        values.world.lose(0);
        let owed = values.sent.clone();
        let mut ticks = 0;
        while values.received.iter().zip(&owed).any(|(received, owed)| received < owed) {
            play(&mut values, 1);
            ticks += 1;
            if ticks == RECOVERY_TICKS {
                return Err(format!("values that were lost in {burst} ms did not arrive in {ticks} ms"));
            }
        }
        ms.push(ticks as f64 * TICK.as_secs_f64() * 1e3);
    }
    values.settle()?;
    Ok((ms, bound.as_secs_f64() * 1e3))
}
