//! Clients that come in place of those that have gone, and what all who were there came to.
//!
//! Who comes is drawn with the scenario.

use super::{Outcome, Run};
use crate::books::Gone;
use crate::client::{Client, Stage};
use crate::scenario::Scenario;
use drumfire::WhenFull;
use drumfire::testing::ClockConfig;

/// A place stays empty for six seconds: handshakes and packets of who was there may still be on their way.
const EMPTY_TICKS: u64 = 24;

/// Who was at each place before.
#[derive(Debug)]
pub(super) struct Turnover {
    gone: Vec<Gone>,
    /// In which tick each place was first seen empty.
    empty_since: Vec<Option<u64>>,
    outcome: Outcome,
}

impl Turnover {
    pub(super) fn new(places: usize) -> Self {
        Self {
            gone: vec![Gone::default(); places],
            empty_since: vec![None; places],
            outcome: Outcome::default(),
        }
    }

    /// What those did that have gone, by place.
    pub(super) fn gone(&self) -> &[Gone] {
        &self.gone
    }

    /// What all whose part is over came to.
    pub(super) const fn outcome(&self) -> Outcome {
        self.outcome
    }
}

impl Run<'_> {
    /// Places that were empty for long enough are taken again.
    pub(super) fn turn_over(&mut self, tick: u64) -> Result<(), String> {
        if self.is_stalled {
            // What the server's application has not heard of may be that somebody came.
            self.turnover.empty_since.fill(None);
            return Ok(());
        }
        for at in 0..self.clients.len() {
            self.clients[at].end_excuse(tick);
            let empty_since = &mut self.turnover.empty_since[at];
            if !self.clients[at].is_gone() {
                *empty_since = None;
            } else if tick >= *empty_since.get_or_insert(tick) + EMPTY_TICKS {
                *empty_since = None;
                self.replace(at, tick).map_err(|reason| format!("in tick {tick}, {reason}"))?;
            }
        }
        Ok(())
    }

    /// Another client comes to this place.
    fn replace(&mut self, at: usize, tick: u64) -> Result<(), String> {
        self.count(at)?;
        self.toll.handshakes += 1;
        self.turnover.gone[at].add(&self.world.clients[at].stats());
        let plan = Scenario::comer(self.scenario.seed, at as u64, tick, self.scenario.has_tokens);
        self.door.admit(&mut self.world, at, &plan)?;
        self.world.set_client_clock(at, &ClockConfig::default());
        self.toll.others += plan.faults();
        self.clients[at] = Client::of(&plan, self.scenario.memory_bytes.is_some());
        self.plans[at] = plan;
        self.begin(at)
    }

    /// The part of a client is over: it is judged, and counts.
    pub(super) fn count(&mut self, at: usize) -> Result<(), String> {
        let (client, stats) = (&self.clients[at], self.world.clients[at].stats());
        client.judge(&stats).map_err(|reason| format!("client {at}: {reason}"))?;
        let is_failed = client.at_client == Stage::Failed;
        let outcome = &mut self.turnover.outcome;
        outcome.failed += u64::from(is_failed);
        outcome.connected += u64::from(!is_failed);
        outcome.hostile += u64::from(client.is_hostile && client.was_connected());
        outcome.closed += u64::from(client.at_client == Stage::Over);
        outcome.sent += client.up.sent() + client.down.sent();
        outcome.delivered += client.up.delivered + client.down.delivered;
        let covered = &mut self.doer.covered;
        covered.overflows += u64::from(client.has_overflowed);
        covered.missed += client.down.missed;
        match self.plans[at].when_full {
            WhenFull::DropOldest => covered.dropped_oldest += stats.protocol.messages_dropped,
            WhenFull::DropNewest => covered.dropped_newest += stats.protocol.messages_dropped,
            WhenFull::Block | WhenFull::Disconnect => {}
        }
        Ok(())
    }
}
