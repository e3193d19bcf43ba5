//! Clients that take the place of clients that have left.

use drumfire::WhenFull;
use drumfire::testing::ClockConfig;

use super::Run;
use crate::client::{Client, Stage};
use crate::scenario::Scenario;
use crate::stats::Counts;

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
        self.counts.add(Counts::HANDSHAKES, 1);
        self.earlier[at].add(&self.world.clients[at].stats());
        let plan = Scenario::newcomer(self.scenario.seed, at as u64, tick, self.scenario.has_tokens);
        self.admission.admit(&mut self.world, at, &plan)?;
        self.world.set_client_clock(at, &ClockConfig::default());
        self.counts.add(Counts::OTHER_FAULTS, plan.faults());
        self.clients[at] = Client::new(&plan, self.scenario.server_buffers_events());
        self.plans[at] = plan;
        self.begin(at)
    }

    /// Judges a client, and counts it.
    pub(super) fn judge_client(&mut self, at: usize) -> Result<(), String> {
        let (client, stats) = (&self.clients[at], self.world.clients[at].stats());
        client.judge(&stats).map_err(|reason| format!("client {at}: {reason}"))?;
        let is_failed = client.at_client == Stage::Failed;
        let counts = &mut self.counts;
        counts.add(Counts::FAILED, is_failed.into());
        counts.add(Counts::CONNECTED, (!is_failed).into());
        counts.add(Counts::HOSTILE, (client.is_hostile && client.was_connected()).into());
        counts.add(Counts::CLOSED, (client.at_client == Stage::Over).into());
        counts.add(Counts::SENT, client.up.sent() + client.down.sent());
        counts.add(Counts::DELIVERED, client.up.delivered + client.down.delivered);
        counts.add("closed for want of room", client.has_overflowed.into());
        counts.add("missed for want of room", client.down.missed);
        match self.plans[at].when_full {
            WhenFull::DropOldest => counts.add("dropped as the oldest", stats.protocol.messages_dropped),
            WhenFull::DropNewest => counts.add("dropped as the newest", stats.protocol.messages_dropped),
            WhenFull::Block | WhenFull::Disconnect => {}
        }
        Ok(())
    }
}
