//! Scenarios with several workers: what is beside that wrong with them, with the applications, and with the clocks.

use drumfire::WhenFull;
use drumfire::conditioner::Random;
use drumfire::testing::ClockConfig;

use super::{Plan, Scenario, WrongClock};
use crate::dice::between;
use crate::swarm::Swarm;

/// Memory of each end where queues are to be full, both ways: the longest message takes a quarter of it at most.
const TIGHT_BYTES: usize = 64 * 1_024;

/// How likely one more message is sent there, at least.
const TIGHT_RATE: f64 = 0.7;

/// Bytes of the largest message there, at least; at most a quarter of the memory.
const TIGHT_MESSAGE_BYTES: usize = 2_000;

const YEAR_SECONDS: i64 = 365 * 24 * 3_600;
const YEAR_NANOS: i64 = YEAR_SECONDS * 1_000_000_000;

impl Scenario {
    /// The same with several workers, and with all that goes wrong with them. In every second one applications take no events for
    /// a while, and queues with little room fill up; in every fourth clocks jump by a year.
    #[must_use]
    pub fn with_swarm(seed: u64) -> Self {
        let scenario = Self::from_seed(seed);
        let swarm = Swarm::draw(&mut Random::part(seed, 4), scenario.chaos_ticks);
        // What is wrong with the workers drops packets too.
        let mut scenario = Self { swarm: Some(swarm), is_clean: false, ..scenario };
        let mut random = Random::part(seed, 5);
        if random.below(2) == 0 {
            scenario.starve(&mut random);
        }
        if random.below(4) == 0 {
            scenario.jump(&mut random);
        }
        scenario
    }

    /// Whoever is to take messages does not, for so long that there is no room for what is sent.
    fn starve(&mut self, random: &mut Random) {
        self.memory_bytes = Some(TIGHT_BYTES);
        let ticks = self.chaos_ticks;
        let pause = |random: &mut Random| {
            let from = random.below(ticks / 3);
            from..from + between(random, ticks / 4, ticks / 2)
        };
        let stall = pause(random);
        self.stall = (stall.start, stall.end);
        for plan in &mut self.clients {
            plan.when_full = match random.below(4) {
                0 => WhenFull::Block,
                1 => WhenFull::DropOldest,
                2 => WhenFull::DropNewest,
                _ => WhenFull::Disconnect,
            };
            let deaf = pause(random);
            // Who vanishes says nothing and hears nothing.
            if plan.vanishes.is_none() {
                plan.deaf = if random.below(2) == 0 { deaf } else { 0..0 };
                plan.rate = plan.rate.max(TIGHT_RATE);
                plan.message_max_bytes = plan.message_max_bytes.clamp(TIGHT_MESSAGE_BYTES, TIGHT_BYTES / 4);
            }
        }
    }

    /// Clocks of some ends are set forward by a year, wall clocks of others back or forward.
    fn jump(&mut self, random: &mut Random) {
        let ticks = self.chaos_ticks;
        let draw = |random: &mut Random| {
            let right = ClockConfig::default();
            let config = match random.below(4) {
                0 | 1 => right.step_nanos(YEAR_NANOS),
                2 => right.wall_offset_seconds(YEAR_SECONDS),
                _ => right.wall_offset_seconds(-YEAR_SECONDS),
            };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_and_every_jump_is_drawn() {
        let swarms: Vec<_> = (0..40).map(Scenario::with_swarm).collect();
        let plans = || swarms.iter().flat_map(|scenario| &scenario.clients);
        for policy in [WhenFull::Block, WhenFull::DropOldest, WhenFull::DropNewest, WhenFull::Disconnect] {
            let is_deaf = |plan: &&Plan| plan.when_full == policy && !plan.deaf.is_empty();
            assert!(plans().any(|plan| is_deaf(&plan)), "{policy:?}");
        }
        let clocks = || plans().filter_map(|plan| plan.clock).map(|clock| clock.config);
        assert!(clocks().any(|clock| clock.step_nanos == YEAR_NANOS));
        for seconds in [YEAR_SECONDS, -YEAR_SECONDS] {
            assert!(clocks().any(|clock| clock.wall_offset_seconds == seconds));
        }
        assert!(swarms.iter().any(|scenario| scenario.clock.is_some_and(|clock| clock.ends_connections())));
    }
}
