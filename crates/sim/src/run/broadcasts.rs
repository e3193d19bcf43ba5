//! The server's groups in a run: their members change, and receive messages.

use drumfire::{Audience, ChannelId, GroupId, Message, SendError};

use super::Run;
use super::send::draw_options;
use crate::client::Stage;
use crate::scenario::{GROUPS, GroupPlan};
use crate::traffic::{self, Number};

/// Channels of messages to groups.
const CHANNELS: u64 = 4;

impl Run<'_> {
    /// Lets clients join and leave groups at random.
    pub(super) fn change_groups(&mut self) -> Result<(), String> {
        let Some(group) = self.scenario.group.filter(|_| !self.is_stalled) else { return Ok(()) };
        for at in 0..self.clients.len() {
            let (client, plan) = (&mut self.clients[at], &self.plans[at]);
            // A client that vanishes has no messages on their way when it does.
            let may_join = client.at_server == Stage::Connected && plan.vanishes.is_none();
            let Some(peer) = client.peer.filter(|_| may_join && self.random.happens(group.turnover)) else {
                continue;
            };
            let number = self.random.below(GROUPS as u64);
            let is_member = &mut client.is_member[usize::try_from(number).unwrap_or(0)];
            if *is_member {
                self.world.server.leave(peer, GroupId(number));
            } else if !self.world.server.join(peer, GroupId(number)) {
                return Err(format!("client {at} cannot join a group"));
            }
            *is_member = !*is_member;
        }
        Ok(())
    }

    /// Sends a message to a group, at random.
    pub(super) fn broadcast(&mut self) -> Result<(), String> {
        let plan = self.scenario.group.filter(|_| !self.is_stalled);
        let Some(plan) = plan.filter(|plan| self.random.happens(plan.rate)) else { return Ok(()) };
        let GroupPlan { reliable, message_max_bytes, .. } = plan;
        let group = self.random.below(GROUPS as u64);
        let channel = ChannelId(u16::try_from(self.random.below(CHANNELS)).unwrap_or(0));
        let (options, _) = draw_options(&mut self.random, reliable);
        let length = usize::try_from(self.random.below(message_max_bytes as u64 + 1)).unwrap_or(0);
        let length = length.min(options.mode.message_max_bytes());
        let except = usize::try_from(self.random.below(2 * self.clients.len() as u64)).unwrap_or(0);
        let excepted = self.clients.get(except).and_then(|client| client.peer);
        let number = self.broadcasts;
        let bytes = traffic::compose(options.mode, Some(Number::ToGroup(number)), length, &mut self.random);
        let all = Audience::group(GroupId(group));
        let audience = excepted.map_or(all, |peer| all.except(peer));
        match self.world.server.broadcast(audience, Message::new(channel, bytes.clone(), options)) {
            Ok(()) => {}
            // A worker is stalled, and its queue of broadcasts is full.
            Err(SendError::Full) => return Ok(()),
            Err(error) => return Err(format!("a broadcast failed: {error}")),
        }
        self.broadcasts += 1;
        self.counts.add("said to groups", 1);
        for (at, client) in self.clients.iter_mut().enumerate() {
            let is_member = client.is_member[usize::try_from(group).unwrap_or(0)];
            if is_member && except != at {
                client.down.on_broadcast(number, channel.0, options, bytes.clone());
            }
        }
        Ok(())
    }
}
