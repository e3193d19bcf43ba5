//! Ticks of a game server: time by peers and channels, and a game with losses.

use std::time::Duration;

use drumfire_benches::{
    Arm, Bench, Goal, busy_note, core_percent, interleave, measure_work, pin_to_last_core,
};

use super::world::{LOSSY, SHORT, TICK, World};

/// Ticks between two updates. There are 40 updates per second.
const UPDATE_TICKS: u64 = 25;

/// Channels of a player in a game, and those that get a message with every update.
const CHANNELS: u16 = 64;
const ACTIVE: u16 = 4;

/// Channels created in the two cells that are compared.
const CREATED: [u16; 2] = [1, 1_024];

/// The goal for the time of a tick with 1,024 channels created over one with 1, both with 1 active.
const TIME_RATIO: f64 = 1.05;

/// The goal for the server's share of a core without ciphers. The share with ciphers has the same goal.
const CORE_PERCENT: f64 = 5.0;

/// Measures ticks with some channels created and some active.
///
/// A channel is created when a reliable message on it was sent, delivered, and acknowledged. It is active when a message is sent on it
/// in every tick. Each cell has worlds of its own, so that no cell changes another one's memory.
///
/// The memory of worlds that are made first is closer together, which saves up to a sixth of their time. Each cell therefore has two
/// worlds, one made in this order and one in the reverse order, and half of its ticks are in each.
pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    pin_to_last_core();
    let peers: &[u32] = bench.extent().pick(&[32], &[300], &[32, 300, 1_000]);
    // Ticks times peers in a round.
    let peer_ticks = bench.extent().pick(32 * 50, 150_000, 150_000);
    for &peers in peers {
        let ticks = peer_ticks / u64::from(peers) / 2;
        let world = |created: &u16| {
            let mut world = World::new(peers, SHORT)?;
            world.create(*created)?;
            Ok::<_, String>(world)
        };
        let worlds = CREATED.iter().map(world).collect::<Result<Vec<_>, _>>()?;
        let mirrored = CREATED.iter().rev().map(world).collect::<Result<Vec<_>, _>>()?;
        let pairs = worlds.into_iter().zip(mirrored.into_iter().rev());
        let arms = CREATED.iter().zip(pairs).map(|(created, (one, other))| {
            let mut worlds = [one, other];
            Arm::new(format!("{peers} peers, {created} created, 1 active"), move || {
                let steps = ticks * worlds.len() as u64;
                measure_work(steps, TICK.mul_f64(steps as f64), || {
                    let mut elapsed = Duration::ZERO;
                    for world in &mut worlds {
                        elapsed += (0..ticks).map(|_| world.tick(0..1)).sum::<Duration>();
                        world.drain()?;
                    }
                    Ok(elapsed)
                })
            })
        });
        let arms = interleave(arms.collect(), bench.plan())?;
        let [few, many] = arms.as_slice() else { continue };
        let ratio = many.over(few, |report| report.cpu_ns_per_packet);
        let name = format!("{peers} peers, 1 active: {} over {} created, time", CREATED[1], CREATED[0]);
        bench.results.figure(name, ratio, "", Goal::AtMost(TIME_RATIO), busy_note(&arms));
    }
    Ok(())
}

/// Measures a game of 300 players with 64 channels each, of which 4 get a message with every update. There are 40 updates per second, a
/// tick per millisecond, 1 % loss, and a round trip of 40 ms. Sealing and opening count, and there are no system calls.
pub(super) fn updates(bench: &mut Bench) -> Result<(), String> {
    pin_to_last_core();
    let (peers, ticks) = bench.extent().pick((32, 200), (300, 4_000), (300, 4_000));
    let mut world = World::new(peers, LOSSY)?;
    world.create(CHANNELS)?;
    let mut game = Game { world, channels: CHANNELS, update: 0 };
    let name = format!("{peers} peers, {CHANNELS} created, {ACTIVE} active, 40 updates/s, 1 % loss");
    let round = || measure_work(ticks, TICK.mul_f64(ticks as f64), || Ok(game.play(ticks)));
    let arms = interleave(vec![Arm::new(name.as_str(), round)], bench.plan())?;
    game.world.drain()?;
    for arm in &arms {
        // In a game, a tick takes real time.
        let name = format!("{name}: share of a core");
        let share = arm.spread(core_percent);
        bench.results.figure(name, share, "%", Goal::AtMost(CORE_PERCENT), busy_note([arm]));
    }
    Ok(())
}

/// A world in which four channels of every player get a message with every update.
pub(super) struct Game {
    pub(super) world: World,
    pub(super) channels: u16,
    pub(super) update: u16,
}

impl Game {
    /// Runs this number of ticks. Every 25th is an update on the next four channels. Returns the server's time.
    pub(super) fn play(&mut self, ticks: u64) -> Duration {
        let mut elapsed = Duration::ZERO;
        for tick in 0..ticks {
            let first = self.update * ACTIVE;
            if tick % UPDATE_TICKS == 0 {
                elapsed += self.world.tick(first..first + ACTIVE);
                self.update = (self.update + 1) % (self.channels / ACTIVE);
            } else {
                elapsed += self.world.tick(0..0);
            }
        }
        elapsed
    }
}
