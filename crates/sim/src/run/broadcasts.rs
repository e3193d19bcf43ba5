//! The server's groups in a run: their members change, and receive messages.

use drumfire::{Audience, ChannelId, GroupId, Message, SendError};

use super::Run;
use super::send::draw_options;
use crate::client::Stage;
use crate::random::{between, index};
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
            let number = index(&mut self.random, GROUPS);
            let is_member = &mut client.is_member[number];
            if *is_member {
                self.world.server.leave(peer, GroupId(number as u64));
            } else if !self.world.server.join(peer, GroupId(number as u64)) {
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
        let group = index(&mut self.random, GROUPS);
        let channel = ChannelId(between(&mut self.random, 0, CHANNELS - 1));
        let (options, _) = draw_options(&mut self.random, reliable);
        let length = index(&mut self.random, message_max_bytes + 1).min(options.mode.message_max_bytes());
        let except = index(&mut self.random, 2 * self.clients.len());
        let excepted = self.clients.get(except).and_then(|client| client.peer);
        let number = self.broadcasts;
        let bytes = traffic::compose(options.mode, Some(Number::ToGroup(number)), length, &mut self.random);
        let all = Audience::group(GroupId(group as u64));
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
            let is_member = client.is_member[group];
            if is_member && except != at {
                client.down.on_broadcast(number, channel.0, options, bytes.clone());
            }
        }
        Ok(())
    }
}
