//! Clients that take the place of clients that have left.

use drumfire::WhenFull;
use drumfire::testing::ClockConfig;

use super::Run;
use crate::client::{Client, Stage};
use crate::scenario::Scenario;

/// A place stays empty for six seconds, while handshakes and packets of the earlier client may still be on their way.
const EMPTY_TICKS: u64 = 24;

impl Run<'_> {
    /// Fills places that have been empty for long enough.
    pub(super) fn replace_clients(&mut self, tick: u64) -> Result<(), String> {
        if self.is_stalled {
            // The server's application may not have taken the event of a connection yet.
            self.empty_since.fill(None);
            return Ok(());
        }
        for at in 0..self.clients.len() {
            self.clients[at].end_excuse(tick);
            let empty_since = &mut self.empty_since[at];
            if !self.clients[at].has_left() {
                *empty_since = None;
            } else if tick >= *empty_since.get_or_insert(tick) + EMPTY_TICKS {
                *empty_since = None;
                self.replace(at, tick).map_err(|reason| format!("in tick {tick}, {reason}"))?;
            }
        }
        Ok(())
    }

    fn replace(&mut self, at: usize, tick: u64) -> Result<(), String> {
        self.judge_client(at)?;
        self.totals.handshakes += 1;
        self.earlier[at].add(&self.world.clients[at].stats());
        let plan = Scenario::newcomer(self.scenario.seed, at as u64, tick, self.scenario.has_tokens);
        self.admission.admit(&mut self.world, at, &plan)?;
        self.world.set_client_clock(at, &ClockConfig::default());
        self.totals.others += plan.faults();
        self.clients[at] = Client::new(&plan, self.scenario.memory_bytes.is_some());
        self.plans[at] = plan;
        self.begin(at)
    }

    /// Judges a client, and adds it to the totals.
    pub(super) fn judge_client(&mut self, at: usize) -> Result<(), String> {
        let (client, stats) = (&self.clients[at], self.world.clients[at].stats());
        client.judge(&stats).map_err(|reason| format!("client {at}: {reason}"))?;
        let is_failed = client.at_client == Stage::Failed;
        let totals = &mut self.totals;
        totals.failed += u64::from(is_failed);
        totals.connected += u64::from(!is_failed);
        totals.hostile += u64::from(client.is_hostile && client.was_connected());
        totals.closed += u64::from(client.at_client == Stage::Over);
        totals.sent += client.up.sent() + client.down.sent();
        totals.delivered += client.up.delivered + client.down.delivered;
        let coverage = &mut self.faults.coverage;
        coverage.add("closed for want of room", client.has_overflowed.into());
        coverage.add("missed for want of room", client.down.missed);
        match self.plans[at].when_full {
            WhenFull::DropOldest => coverage.add("dropped as the oldest", stats.protocol.messages_dropped),
            WhenFull::DropNewest => coverage.add("dropped as the newest", stats.protocol.messages_dropped),
            WhenFull::Block | WhenFull::Disconnect => {}
        }
        Ok(())
    }
}
