//! Scenarios with several workers, their faults, and further faults of applications and clocks.

use drumfire::WhenFull;
use drumfire::conditioner::Random;
use drumfire::testing::ClockConfig;

use super::{Plan, Scenario, WrongClock};
use crate::random::{between, pick};
use crate::workers::WorkerPlan;

/// The memory of each end where queues must become full, in each direction. The longest message takes at most a quarter of it.
const TIGHT_BYTES: usize = 64 * 1_024;

/// The least probability of one more message there.
const TIGHT_RATE: f64 = 0.7;

/// The least size of the largest message there.
const TIGHT_MESSAGE_BYTES: usize = 2_000;

const YEAR_SECONDS: i64 = 365 * 24 * 3_600;
const YEAR_NANOS: i64 = YEAR_SECONDS * 1_000_000_000;

impl Scenario {
    /// Returns the scenario of a seed with several workers and their faults. In every second one, applications take no events for a
    /// while, and small queues become full. In every fourth one, clocks jump by a year.
    #[must_use]
    pub fn with_workers(seed: u64) -> Self {
        let scenario = Self::from_seed(seed);
        let workers = WorkerPlan::draw(&mut Random::part(seed, 4), scenario.chaos_ticks);
        // Faults of workers drop packets too.
        let mut scenario = Self { workers: Some(workers), is_clean: false, ..scenario };
        let mut random = Random::part(seed, 5);
        if random.below(2) == 0 {
            scenario.starve(&mut random);
        }
        if random.below(4) == 0 {
            scenario.jump(&mut random);
        }
        scenario
    }

    /// Makes applications take no messages for so long that queues become full.
    fn starve(&mut self, random: &mut Random) {
        self.memory_bytes = Some(TIGHT_BYTES);
        let ticks = self.chaos_ticks;
        let pause = |random: &mut Random| {
            let from = random.below(ticks / 3);
            from..from + between::<u64>(random, ticks / 4, ticks / 2)
        };
        self.stall = pause(random);
        let policies = [WhenFull::Block, WhenFull::DropOldest, WhenFull::DropNewest, WhenFull::Disconnect];
        for plan in &mut self.clients {
            plan.when_full = pick(random, &policies);
            let deaf = pause(random);
            // A client that vanishes has no messages.
            if plan.vanishes.is_none() {
                plan.deaf = if random.below(2) == 0 { deaf } else { 0..0 };
                plan.rate = plan.rate.max(TIGHT_RATE);
                plan.message_max_bytes = plan.message_max_bytes.clamp(TIGHT_MESSAGE_BYTES, TIGHT_BYTES / 4);
            }
        }
    }

    /// Sets the clocks of some ends forward by a year, and wall clocks of others back or forward.
    fn jump(&mut self, random: &mut Random) {
        let ticks = self.chaos_ticks;
        let draw = |random: &mut Random| {
            let right = ClockConfig::default();
            let step = right.step_nanos(YEAR_NANOS);
            let offsets = [YEAR_SECONDS, -YEAR_SECONDS].map(|offset| right.wall_offset_seconds(offset));
            let config = pick(random, &[step, step, offsets[0], offsets[1]]);
            WrongClock { tick: random.below(ticks), ticks, config }
        };
        if random.below(2) == 0 {
            self.clock = Some(draw(random));
        }
        let may_jump = |plan: &&mut Plan| plan.vanishes.is_none();
        for plan in self.clients.iter_mut().filter(may_jump) {
            if random.below(4) == 0 {
                plan.clock = Some(draw(random));
            }
        }
    }
}
