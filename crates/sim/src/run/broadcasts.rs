//! What the server says to groups of its clients in a run, and who is in them.
//!
//! What becomes of it is judged elsewhere.

use drumfire::{BroadcastError, ChannelId, GroupId};

use super::Run;
use super::talk::options;
use crate::client::Stage;
use crate::message::{self, Number};
use crate::scenario::{GROUPS, GroupPlan};

/// Channels on which something is said to groups; clients have as many.
const CHANNELS: u64 = 4;

impl Run<'_> {
    /// Clients join groups and leave them, as the dice say.
    pub(super) fn regroup(&mut self) -> Result<(), String> {
        let Some(group) = self.scenario.group.filter(|_| !self.is_stalled) else { return Ok(()) };
        for at in 0..self.clients.len() {
            let (client, plan) = (&mut self.clients[at], &self.plans[at]);
            // Who vanishes hears nothing before.
            let may_join = client.at_server == Stage::Connected && plan.vanishes.is_none();
            let Some(peer) = client.peer.filter(|_| may_join && self.random.happens(group.turnover)) else {
                continue;
            };
            let number = self.random.below(GROUPS as u64);
            let is_member = &mut client.is_member[usize::try_from(number).unwrap_or(0)];
            if *is_member {
                self.world.server.leave(GroupId(number), peer);
            } else {
                let answer = self.world.server.join(GroupId(number), peer);
                answer.map_err(|error| format!("client {at} cannot join a group: {error}"))?;
            }
            *is_member = !*is_member;
        }
        Ok(())
    }

    /// Something is said to a group, if the dice say so.
    pub(super) fn say_to_group(&mut self) -> Result<(), String> {
        let plan = self.scenario.group.filter(|_| !self.is_stalled);
        let Some(plan) = plan.filter(|plan| self.random.happens(plan.rate)) else { return Ok(()) };
        let GroupPlan { reliable, message_max_bytes, .. } = plan;
        let group = self.random.below(GROUPS as u64);
        let channel = ChannelId(u16::try_from(self.random.below(CHANNELS)).unwrap_or(0));
        let mut options = options(&mut self.random, reliable);
        options.wants_receipt = false;
        let length = usize::try_from(self.random.below(message_max_bytes as u64 + 1)).unwrap_or(0);
        let length = length.min(options.mode.message_max_bytes());
        let except = usize::try_from(self.random.below(2 * self.clients.len() as u64)).unwrap_or(0);
        let left_out = self.clients.get(except).and_then(|client| client.peer);
        let number = self.said_to_groups;
        let bytes = message::compose(options.mode, Some(Number::ToGroup(number)), length, &mut self.random);
        let server = &mut self.world.server;
        let answer = match left_out {
            Some(peer) => server.broadcast_except(peer, GroupId(group), channel, bytes.clone(), options),
            None => server.broadcast(GroupId(group), channel, bytes.clone(), options),
        };
        match answer {
            Ok(()) => {}
            // Some worker stands still, and much was said meanwhile.
            Err(BroadcastError::Full) => return Ok(()),
            Err(error) => return Err(format!("nothing can be said to a group: {error}")),
        }
        self.said_to_groups += 1;
        for (at, client) in self.clients.iter_mut().enumerate() {
            let is_member = client.is_member[usize::try_from(group).unwrap_or(0)];
            if is_member && except != at {
                client.down.on_said_to_group(number, channel.0, options, bytes.clone());
            }
        }
        Ok(())
    }
}
