//! The newest value of many keys: `ReliableLatest` on one channel against a `ReliableSequenced` channel per key.
//!
//! Each player has 500 keys, a tenth of which changes with every update. There are 40 updates per second, 1 % loss, and a round trip of
//! 40 ms. Both arms get the same changes. At the end, the last value of every key must have arrived everywhere.

use std::cell::RefCell;
use std::time::Duration;

use bytes::Bytes;
use drumfire_benches::{BUSY, Bench, Goal, Results, Rounds, Spread, Work};
use drumfire_proto::SendOptions;
use drumfire_tools::table::{Align, TextTable};

use super::updates::{PATH, UPDATE_TICKS};
use super::world::{Path, Share, World, random, send};
use super::{rounds, void_cell};

/// The seed of the keys that change.
pub(super) const SEED: u64 = 9;

const KEYS: u16 = 500;
/// Keys that change with one update.
const CHANGES: u16 = KEYS / 10;
const VALUE_BYTES: usize = 16;
/// Ticks after which the last values must have arrived.
const SETTLE_TICKS: u32 = 10_000;
pub(super) const NAMES: [(&str, bool); 2] =
    [("ReliableLatest, 1 channel", true), ("ReliableSequenced, 500 channels", false)];

/// A world, and the values that its clients should have and have.
pub(super) struct Values {
    pub(super) world: World,
    is_latest: bool,
    seed: u64,
    /// The newest version, and the tick at which each version was sent.
    version: u32,
    sent_at: Vec<u64>,
    tick: u64,
    age: Age,
    /// The last version sent and the last that arrived, by connection and key.
    pub(super) sent: Vec<u32>,
    pub(super) heard: Vec<u32>,
}

/// The age of values when they arrived. Values that a newer one overtook are left out.
#[derive(Clone, Copy, Debug, Default)]
struct Age {
    ticks: u64,
    count: u64,
    most: u64,
}

/// A change of one key of one connection.
type Change = (usize, u16, Bytes);

impl Values {
    pub(super) fn new(peers: u32, is_latest: bool, path: Path) -> Result<Self, String> {
        let world = World::new(peers, path)?;
        let none = vec![0; world.peers() * usize::from(KEYS)];
        let (sent_at, age) = (vec![0], Age::default());
        let (sent, heard) = (none.clone(), none);
        let (seed, version, tick) = (SEED, 0, 0);
        let mut values = Self { world, is_latest, seed, version, sent_at, tick, age, sent, heard };
        // Every key has a value before the first round.
        let all: Vec<u16> = (0..KEYS).collect();
        for keys in all.chunks(CHANGES.into()) {
            let changes = values.changes(|at, _| keys[at]);
            values.tick(&changes);
            values.settle()?;
        }
        Ok(values)
    }

    /// Makes the changes of an update. `key` selects the keys.
    fn changes(&mut self, mut key: impl FnMut(usize, &mut u64) -> u16) -> Vec<Change> {
        self.version += 1;
        self.sent_at.push(self.tick + 1);
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

    fn tick(&mut self, changes: &[Change]) -> Duration {
        self.tick += 1;
        let Self { is_latest, heard, sent_at, age, tick, .. } = self;
        let is_latest = *is_latest;
        self.world.tick(
            |server, now, links| {
                for (peer, key, value) in changes {
                    let (channel, options) = if is_latest {
                        (0, SendOptions::reliable_latest((*key).into()))
                    } else {
                        (*key, SendOptions::reliable_sequenced())
                    };
                    send(server, now, &links[*peer], channel, value.clone(), options);
                }
            },
            |peer, value| {
                let key = u16::from_be_bytes([value[0], value[1]]);
                let version = u32::from_be_bytes([value[2], value[3], value[4], value[5]]);
                let known = &mut heard[place(peer as usize, key)];
                if version > *known {
                    *known = version;
                    let ticks = *tick - sent_at[version as usize];
                    (age.ticks, age.count, age.most) =
                        (age.ticks + ticks, age.count + 1, age.most.max(ticks));
                }
            },
        )
    }

    /// Runs the next tick of a round. Every 25th tick is an update.
    pub(super) fn play(&mut self, tick: u64) -> Duration {
        let changes = if tick.is_multiple_of(UPDATE_TICKS) {
            self.changes(|_, seed| u16::try_from(random(seed) % u64::from(KEYS)).unwrap_or(0))
        } else {
            Vec::new()
        };
        self.tick(&changes)
    }

    /// Runs this number of ticks.
    fn round(&mut self, ticks: u64) -> (Share, Age) {
        self.age = Age::default();
        let before = self.world.counts();
        let mut took = Duration::ZERO;
        for tick in 0..ticks {
            took += self.play(tick);
        }
        (self.world.share(before, took, ticks), self.age)
    }

    /// Runs ticks until the last value of every key has arrived.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        for _ in 0..SETTLE_TICKS {
            if self.sent == self.heard {
                return Ok(());
            }
            self.tick(&[]);
        }
        let missing = self.sent.iter().zip(&self.heard).filter(|(sent, heard)| sent != heard).count();
        Err(format!("{missing} last values did not come"))
    }
}

/// The server's share and the age of values in a round.
#[derive(Clone, Copy, Debug)]
struct KeysRound {
    share: Share,
    age: Age,
}

fn place(peer: usize, key: u16) -> usize {
    peer * usize::from(KEYS) + usize::from(key)
}

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let (peers, ticks) = bench.extent().pick((32, 200), (300, 1_000), (300, 1_000));
    let mut worlds = Vec::new();
    for (_, is_latest) in NAMES {
        worlds.push(RefCell::new(Values::new(peers, is_latest, PATH)?));
    }
    let mut arms = Vec::new();
    for ((name, _), values) in NAMES.iter().zip(&worlds) {
        arms.push(Work::new(*name, move || {
            let mut values = values.borrow_mut();
            let (share, age) = values.round(ticks);
            values.settle()?;
            Ok(KeysRound { share, age })
        }));
    }
    let arms = rounds(bench, arms)?;
    println!(
        "  {peers} peers, {KEYS} keys, {CHANGES} change per update, 40 updates/s, 1 kHz ticks, 1 % loss, 16 B"
    );
    show(&arms, peers, &mut bench.results);
    Ok(())
}

fn show(arms: &[Rounds<KeysRound>], peers: u32, results: &mut Results) {
    let mut table = TextTable::new(&[
        ("the newest value of each key", Align::Left),
        ("share of a core, %", Align::Right),
        ("least-most", Align::Right),
        ("ns per change", Align::Right),
        ("bytes/s per peer", Align::Right),
        ("bytes per change", Align::Right),
        ("datagrams/s", Align::Right),
        ("ms to arrive: mean", Align::Right),
        ("most", Align::Right),
        ("void", Align::Right),
    ])
    .indented(2);
    for arm in arms {
        let of =
            |value: &dyn Fn(&Share) -> f64| Spread::of(arm.rounds.iter().map(|round| value(&round.share)));
        let changes =
            |share: &Share| (share.ticks / UPDATE_TICKS) as f64 * f64::from(peers) * f64::from(CHANGES);
        let seconds = |share: &Share| share.ticks as f64 / 1_000.0;
        let (Some(core), Some(ns), Some(bytes), Some(each), Some(datagrams)) = (
            of(&Share::core_percent),
            of(&|share| share.took.as_nanos() as f64 / changes(share)),
            of(&|share| share.bytes as f64 / seconds(share) / f64::from(peers)),
            of(&|share| share.bytes as f64 / changes(share)),
            of(&|share| share.datagrams as f64 / seconds(share)),
        ) else {
            continue;
        };
        let age = arm.rounds.iter().fold(Age::default(), |all, round| Age {
            ticks: all.ticks + round.age.ticks,
            count: all.count + round.age.count,
            most: all.most.max(round.age.most),
        });
        table.row([
            arm.name.clone(),
            format!("{:.2}", core.median),
            format!("{:.2}-{:.2}", core.least, core.most),
            format!("{:.1}", ns.median),
            format!("{:.0}", bytes.median),
            format!("{:.2}", each.median),
            format!("{:.0}", datagrams.median),
            format!("{:.1}", age.ticks as f64 / age.count as f64),
            age.most.to_string(),
            void_cell(arm),
        ]);
        let note = if arm.is_busy { BUSY } else { "with ciphers, without system calls" };
        let name = format!("{peers} peers, 500 keys, 10 % change at 40/s, {}", arm.name);
        results.spread(format!("{name}: share of a core"), Some(core), "%", Goal::Shown, note);
        results.spread(format!("{name}: per change"), Some(each), "B", Goal::Shown, "headers included");
    }
    println!("{}", table.render());
    let [latest, sequenced] = arms else { return };
    let pairs = || latest.rounds.iter().zip(&sequenced.rounds);
    let time = Spread::of(
        pairs().map(|(latest, sequenced)| latest.share.ns_per_tick() / sequenced.share.ns_per_tick()),
    );
    let bytes = Spread::of(
        pairs().map(|(latest, sequenced)| latest.share.bytes as f64 / sequenced.share.bytes as f64),
    );
    let name = "ReliableLatest over 500 ReliableSequenced channels";
    results.spread(format!("{name}, CPU"), time, "", Goal::Shown, "");
    results.spread(format!("{name}, bytes"), bytes, "", Goal::Shown, "");
}
