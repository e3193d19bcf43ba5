//! Scenarios of an hour: many clients who play at low rates and come and go, some of them for most of it.
//!
//! What may go wrong is that of short ones, and beside it holes that last for seconds, keys and tokens that grow old, and
//! connections that fall idle and wake up.

use std::time::Duration;

use drumfire::Cookie;
use drumfire::conditioner::{LinkConfig, Loss, Random};

use super::{Attack, CALM, Closing, GroupPlan, Plan, Scenario, Side, WrongClock};
use crate::dice::between;

/// Between two looks of the applications.
const TICK: Duration = Duration::from_millis(250);
const SECOND_TICKS: u64 = 4;
const MINUTE_TICKS: u64 = 60 * SECOND_TICKS;
const HOUR_TICKS: u64 = 60 * MINUTE_TICKS;

/// Silence and stall come again.
const PERIOD_TICKS: u64 = 10 * MINUTE_TICKS;
const SILENCE_TICKS: u64 = MINUTE_TICKS;
const STALL_TICKS: u64 = 10 * SECOND_TICKS;

/// Who gets no ack for ten seconds gives up: most holes leave time for many tries, and after a long one it may come to that.
const SHORT_HOLE_TICKS: u64 = 2 * SECOND_TICKS;
const LONG_HOLE_TICKS: u64 = 9 * SECOND_TICKS;

/// A clock that stands still for longer ends connections.
const FROZEN_TICKS: u64 = 2 * SECOND_TICKS;

/// The wall clock of the server is wrong for this long at most: nobody with a token gets in meanwhile.
const WRONG_TICKS: u64 = MINUTE_TICKS;

/// Messages are sent this often, compared to short scenarios.
const RATE: f64 = 0.65;

/// Addresses change so many times less often: each change takes a round trip or two, in which nothing gets on.
const REBIND_TIMES: u64 = 10;

/// Losses that everybody outlives for an hour. Probes of a connection that is idle are two round trips apart, and more where
/// those vary: of ten tries within ten seconds one gets an answer.
const LOSS: f64 = 0.15;
const LOSS_IN_BURSTS: f64 = 0.4;
const LATE: Duration = Duration::from_millis(50);

/// Who stays for longer than this sends nothing that must be cut in pieces.
const SHORT_STAY_TICKS: u64 = 5 * MINUTE_TICKS;

impl Scenario {
    /// An hour of this seed.
    #[must_use]
    pub fn of_an_hour(seed: u64) -> Self {
        let mut random = Random::part(seed, 6);
        let silent_from = random.below(PERIOD_TICKS);
        let stall_from = random.below(PERIOD_TICKS);
        let silence = (silent_from, silent_from + random.below(SILENCE_TICKS));
        let stall = (stall_from, stall_from + random.below(STALL_TICKS));
        let clock = WrongClock::draw(&mut random, HOUR_TICKS);
        let clock = clock.map(|clock| clock.bounded(WRONG_TICKS));
        let (has_tokens, is_under_load) = (random.below(2) == 0, random.below(3) == 0);
        let count = between(&mut random, 56, 64);
        let clients = (0..count).map(|at| Self::comer(seed, at, 0, has_tokens)).collect();
        Self {
            seed,
            clients,
            tick: TICK,
            chaos_ticks: HOUR_TICKS,
            period_ticks: PERIOD_TICKS,
            silence,
            stall,
            is_hour: true,
            group: GroupPlan::of_an_hour(seed),
            memory_bytes: None,
            has_tokens,
            cookie: if is_under_load { Cookie::UnderLoad } else { Cookie::Always },
            clock,
            attack: Attack::draw(&mut random),
            is_clean: false,
            calm: CALM,
            swap: None,
            swarm: None,
        }
    }

    /// Who comes to this place in this tick.
    pub(crate) fn comer(seed: u64, at: u64, tick: u64, has_tokens: bool) -> Plan {
        let mut random = Random::part(seed, ((7 + at) << 32) | tick);
        // The few who stay for long are as many at a time as those who do not.
        let stay = match random.below(96) {
            0 => between(&mut random, MINUTE_TICKS, HOUR_TICKS),
            _ => between(&mut random, 2 * SECOND_TICKS, 30 * SECOND_TICKS),
        };
        let mut plan = Plan::draw(&mut random, stay);
        plan.hostile = plan.hostile.filter(|_| !has_tokens);
        plan.rate *= RATE;
        plan.rebind_ticks *= REBIND_TIMES;
        (plan.up, plan.down) = (bearable(plan.up), bearable(plan.down));
        if stay > SHORT_STAY_TICKS {
            plan.message_max_bytes = plan.message_max_bytes.min(drumfire::MESSAGE_MAX_BYTES);
        }
        plan.clock = plan.clock.map(|clock| clock.bounded(HOUR_TICKS));
        if let Some(hole) = &mut plan.hole {
            let most = if random.below(4) == 0 { LONG_HOLE_TICKS } else { SHORT_HOLE_TICKS };
            hole.ticks.end = hole.ticks.end.min(hole.ticks.start + most);
        }
        // Everybody goes some time; who vanishes does it without a word.
        if plan.closing.is_none() && plan.vanishes.is_none() {
            let by = if random.below(2) == 0 { Side::Client } else { Side::Server };
            plan.closing = Some(Closing { tick: stay, by });
        }
        plan.shifted(tick)
    }
}

/// The same link with losses that are outlived.
fn bearable(link: LinkConfig) -> LinkConfig {
    let loss = match link.loss {
        Loss::Even(loss) => Loss::Even(loss.min(LOSS)),
        Loss::Bursts { begin, end, inside, outside } => {
            Loss::Bursts { begin, end, inside: inside.min(LOSS_IN_BURSTS), outside }
        }
    };
    let (reorder, late) = (link.reorder, link.reorder_late.min(LATE));
    link.loss(loss).reorder(reorder, late)
}

impl Plan {
    /// The same, so many ticks later.
    fn shifted(mut self, ticks: u64) -> Self {
        if let Some(hole) = &mut self.hole {
            hole.ticks = hole.ticks.start + ticks..hole.ticks.end + ticks;
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

    /// Whether its hole lasts so long that its connection may end of it.
    pub(crate) fn has_long_hole(&self) -> bool {
        self.hole.as_ref().is_some_and(|hole| hole.ticks.end - hole.ticks.start > SHORT_HOLE_TICKS)
    }
}

impl WrongClock {
    /// The same for no longer than this, and for a moment only where it stands still.
    fn bounded(mut self, ticks: u64) -> Self {
        let most = if self.config.rate_ppm == 0 { FROZEN_TICKS } else { ticks };
        self.ticks = self.ticks.clamp(1, most);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_goes_within_the_hour_that_they_came_and_no_hole_outlasts_what_connections_do() {
        for (at, tick) in (0..200).zip([0, 100, 14_000].into_iter().cycle()) {
            let plan = Scenario::comer(3, at, tick, false);
            let end = plan.closing.map(|closing| closing.tick).or(plan.vanishes).expect("it goes");
            assert!((tick..=tick + HOUR_TICKS).contains(&end), "{plan:?}");
            let hole = plan.hole.as_ref().map_or(0, |hole| hole.ticks.end - hole.ticks.start);
            assert!(hole <= LONG_HOLE_TICKS && plan.has_long_hole() == (hole > SHORT_HOLE_TICKS));
        }
    }
}
