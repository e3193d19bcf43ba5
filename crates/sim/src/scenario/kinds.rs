//! The other kinds of scenarios.
//!
//! - With several workers, their faults, and further faults of applications and clocks.
//! - Of an hour: many clients that send at low rates, and come and go. Some stay for most of the hour. The faults are those of short
//!   scenarios, and in addition outages of seconds, old keys and tokens, and connections that become idle and active again.

use std::time::Duration;

use drumfire::WhenFull;
use drumfire::conditioner::{LinkConfig, Loss, Random};
use drumfire::config::Cookie;
use drumfire::testing::ClockConfig;

use super::{Attack, ClockFault, Closing, GroupPlan, Plan, Scenario, Side};
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
            scenario.stall_applications(&mut random);
        }
        if random.below(4) == 0 {
            scenario.jump(&mut random);
        }
        scenario
    }

    /// Stalls applications until queues become full.
    fn stall_applications(&mut self, random: &mut Random) {
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
            let stall = pause(random);
            // A client that vanishes has no messages.
            if plan.vanishes.is_none() {
                plan.stall = if random.below(2) == 0 { stall } else { 0..0 };
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
            ClockFault { tick: random.below(ticks), ticks, config }
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

/// The time between two turns of the applications.
const TICK: Duration = Duration::from_millis(250);
const SECOND_TICKS: u64 = 4;
const MINUTE_TICKS: u64 = 60 * SECOND_TICKS;
const HOUR_TICKS: u64 = 60 * MINUTE_TICKS;

/// The silence and the stall repeat after this time.
const PERIOD_TICKS: u64 = 10 * MINUTE_TICKS;
const SILENCE_TICKS: u64 = MINUTE_TICKS;
const STALL_TICKS: u64 = 10 * SECOND_TICKS;

/// An end without an ack for ten seconds gives up. Most outages leave time for many retransmissions, and long ones may not.
const SHORT_OUTAGE_TICKS: u64 = 2 * SECOND_TICKS;
const LONG_OUTAGE_TICKS: u64 = 9 * SECOND_TICKS;

/// A clock that stops for longer ends connections.
const FROZEN_TICKS: u64 = 2 * SECOND_TICKS;

/// The longest time for which the server's wall clock is wrong. In it, no token is valid.
const WRONG_TICKS: u64 = MINUTE_TICKS;

/// The rate of messages, as a fraction of that in short scenarios.
const RATE: f64 = 0.65;

/// The rate of messages to groups, which have many members, as a fraction of that in short scenarios.
const GROUP_RATE: f64 = 0.02;

/// Addresses change less often by this factor. Each change costs a round trip or two.
const REBIND_TIMES: u64 = 10;

/// The loss that every connection survives for an hour. An idle connection sends a probe every two round trips or more, and one of
/// its ten probes within ten seconds is acknowledged.
const LOSS: f64 = 0.15;
const LOSS_IN_BURSTS: f64 = 0.4;
const LATE: Duration = Duration::from_millis(50);

/// The longest stay of a client with fragmented messages.
const SHORT_STAY_TICKS: u64 = 5 * MINUTE_TICKS;

impl Scenario {
    /// Returns the hour of a seed.
    #[must_use]
    pub fn of_an_hour(seed: u64) -> Self {
        let mut random = Random::part(seed, 6);
        let silent_from = random.below(PERIOD_TICKS);
        let stall_from = random.below(PERIOD_TICKS);
        let silence = silent_from..silent_from + random.below(SILENCE_TICKS);
        let stall = stall_from..stall_from + random.below(STALL_TICKS);
        let clock = ClockFault::draw(&mut random, HOUR_TICKS);
        let clock = clock.map(|clock| clock.bounded(WRONG_TICKS));
        let (has_tokens, is_under_load) = (random.below(2) == 0, random.below(3) == 0);
        let count = between(&mut random, 56, 64);
        let clients = (0..count).map(|at| Self::new_client(seed, at, 0, has_tokens)).collect();
        Self {
            seed,
            clients,
            tick: TICK,
            chaos_ticks: HOUR_TICKS,
            period_ticks: PERIOD_TICKS,
            silence,
            stall,
            is_hour: true,
            group: GroupPlan::draw(seed).map(|plan| GroupPlan { rate: plan.rate * GROUP_RATE, ..plan }),
            has_tokens,
            cookie: if is_under_load { Cookie::UnderLoad } else { Cookie::Always },
            clock,
            attack: Attack::draw(&mut random),
            ..Self::default()
        }
    }

    /// Returns the plan of the client that connects at an index in a tick.
    pub(crate) fn new_client(seed: u64, at: u64, tick: u64, has_tokens: bool) -> Plan {
        let mut random = Random::part(seed, ((7 + at) << 32) | tick);
        // Few clients stay for long, and at any time they are as many as the others.
        let stay = match random.below(96) {
            0 => between(&mut random, MINUTE_TICKS, HOUR_TICKS),
            _ => between(&mut random, 2 * SECOND_TICKS, 30 * SECOND_TICKS),
        };
        let mut plan = Plan::draw(&mut random, stay);
        plan.hostile = plan.hostile.filter(|_| !has_tokens);
        plan.rate *= RATE;
        plan.rebind_ticks *= REBIND_TIMES;
        (plan.up, plan.down) = (survivable(plan.up), survivable(plan.down));
        if stay > SHORT_STAY_TICKS {
            plan.message_max_bytes = plan.message_max_bytes.min(drumfire::config::MESSAGE_MAX_BYTES);
        }
        plan.clock = plan.clock.map(|clock| clock.bounded(HOUR_TICKS));
        if let Some(outage) = &mut plan.outage {
            let most = if random.below(4) == 0 { LONG_OUTAGE_TICKS } else { SHORT_OUTAGE_TICKS };
            outage.ticks.end = outage.ticks.end.min(outage.ticks.start + most);
        }
        // Every client leaves at some time. One that vanishes does so without a Close.
        if plan.closing.is_none() && plan.vanishes.is_none() {
            let by = pick(&mut random, &Side::BOTH);
            plan.closing = Some(Closing { tick: stay, by });
        }
        plan.shifted(tick)
    }
}

/// Returns the link with a loss that connections survive.
fn survivable(link: LinkConfig) -> LinkConfig {
    let loss = match link.loss {
        Loss::Random(loss) => Loss::Random(loss.min(LOSS)),
        Loss::Bursts { begin, end, inside, outside } => {
            Loss::Bursts { begin, end, inside: inside.min(LOSS_IN_BURSTS), outside }
        }
    };
    let (reorder, late) = (link.reorder, link.reorder_delay.min(LATE));
    link.loss(loss).reorder(reorder, late)
}

impl Plan {
    /// Returns the plan with all ticks later by `ticks`.
    fn shifted(mut self, ticks: u64) -> Self {
        if let Some(outage) = &mut self.outage {
            outage.ticks = outage.ticks.start + ticks..outage.ticks.end + ticks;
        }
        for tick in [
            self.clock.as_mut().map(|clock| &mut clock.tick),
            self.closing.as_mut().map(|closing| &mut closing.tick),
            self.vanishes.as_mut(),
        ]
        .into_iter()
        .flatten()
        {
            *tick += ticks;
        }
        self
    }

    /// Returns the end of an outage that begins in this tick and may end the connection.
    pub(crate) fn long_outage_end(&self, tick: u64) -> Option<u64> {
        let ticks = &self.outage.as_ref()?.ticks;
        (ticks.start == tick && ticks.end - ticks.start > SHORT_OUTAGE_TICKS).then_some(ticks.end)
    }
}

impl ClockFault {
    /// Limits the duration: to `ticks`, or to a shorter time for a clock that stops.
    fn bounded(mut self, ticks: u64) -> Self {
        let most = if self.config.rate_ppm == 0 { FROZEN_TICKS } else { ticks };
        self.ticks = self.ticks.clamp(1, most);
        self
    }
}
