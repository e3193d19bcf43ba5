//! The applications of a run: they send at random to connections and to groups, join and leave groups, and close
//! connections.

use std::time::Duration;

use drumfire::conditioner::Random;
use drumfire::{Audience, ChannelId, GroupId, Message, Mode, Priority, SendError, SendOptions};

use super::ScenarioRun;
use crate::client::ConnectionState;
use crate::random::{between, index, pick};
use crate::scenario::{GROUPS, GroupPlan, Side};
use crate::traffic::{self, Number};

/// The maximum number of messages of one end in one tick.
const BURST_MESSAGES: u32 = 8;

/// The number of channels of messages to groups.
const GROUP_CHANNELS: u64 = 4;

/// The modes of reliable and of other messages. A mode with more entries is drawn more often.
const RELIABLE: [Mode; 4] =
    [Mode::ReliableUnordered, Mode::ReliableSequenced, Mode::ReliableLatest, Mode::ReliableOrdered];
const UNRELIABLE: [Mode; 4] =
    [Mode::UnreliableSequenced, Mode::Unreliable, Mode::Unreliable, Mode::Unreliable];

impl ScenarioRun<'_> {
    /// Sends messages of both ends of all connections.
    pub(super) fn send_all(&mut self, tick: u64) -> Result<(), String> {
        self.change_groups()?;
        for at in 0..self.clients.len() {
            self.broadcast()?;
            let plan = &self.clients[at].plan;
            let (rate, is_puppet) = (plan.rate, plan.hostile == Some(Side::Client));
            // An application that takes no events does not know the state of its connection.
            let is_client_stalled = tick.checked_sub(1).is_some_and(|before| plan.stall.contains(&before));
            for _ in 0..BURST_MESSAGES {
                if !self.random.happens(rate) {
                    break;
                }
                if !is_client_stalled && !is_puppet {
                    self.send(at, Side::Client)?;
                }
                if !self.is_stalled {
                    self.send(at, Side::Server)?;
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, at: usize, by: Side) -> Result<(), String> {
        let client = &mut self.clients[at];
        let channel = ChannelId(between(&mut self.random, 0, u64::from(client.plan.channels) - 1));
        let length = index(&mut self.random, client.plan.message_max_bytes + 1);
        let (options, wants_receipt) = draw_options(&mut self.random, client.plan.reliable);
        let length = length.min(options.mode.message_max_bytes());
        let (may_be_over, peer) = (client.may_be_over(), client.peer);
        let (flow, state) = match by {
            Side::Client => (&mut client.up, client.at_client),
            Side::Server => (&mut client.down, client.at_server),
        };
        let bytes = flow.next(options, length, &mut self.random);
        let message = Message::new(channel, bytes.clone(), options);
        let (client, server) = (&mut self.world.clients[at], &mut self.world.server);
        let to = client.peers().next().ok_or(SendError::UnknownPeer);
        let sent = match (by, peer, wants_receipt) {
            (Side::Client, _, true) => to.and_then(|to| client.send_with_receipt(to, message)).map(Some),
            (Side::Client, _, false) => to.and_then(|to| client.send(to, message)).map(|()| None),
            (Side::Server, Some(peer), true) => server.send_with_receipt(peer, message).map(Some),
            (Side::Server, Some(peer), false) => server.send(peer, message).map(|()| None),
            (Side::Server, None, _) => return Ok(()),
        };
        let is_over = may_be_over || matches!(state, ConnectionState::Failed | ConnectionState::Closed);
        match sent {
            Ok(receipt) => flow.on_sent(channel.0, options, bytes, receipt),
            Err(SendError::Full) => {
                flow.on_refused();
                self.counts.add("refused for want of room", 1);
            }
            Err(SendError::UnknownPeer | SendError::Closed) if is_over => {}
            Err(error) => return Err(format!("{by:?} {at} at {state:?} cannot send: {error}")),
        }
        Ok(())
    }

    /// Adds clients to groups and removes them at random.
    fn change_groups(&mut self) -> Result<(), String> {
        let Some(group) = self.scenario.group.filter(|_| !self.is_stalled) else { return Ok(()) };
        for at in 0..self.clients.len() {
            let client = &mut self.clients[at];
            // A client that vanishes has no messages on their way when it does.
            let may_join = client.at_server == ConnectionState::Connected && client.plan.vanishes.is_none();
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
    fn broadcast(&mut self) -> Result<(), String> {
        let plan = self.scenario.group.filter(|_| !self.is_stalled);
        let Some(plan) = plan.filter(|plan| self.random.happens(plan.rate)) else { return Ok(()) };
        let GroupPlan { reliable, message_max_bytes, .. } = plan;
        let group = index(&mut self.random, GROUPS);
        let channel = ChannelId(between(&mut self.random, 0, GROUP_CHANNELS - 1));
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
        self.counts.add("sent to groups", 1);
        for (at, client) in self.clients.iter_mut().enumerate() {
            let is_member = client.is_member[group];
            if is_member && except != at {
                client.down.on_broadcast(number, channel.0, options, bytes.clone());
            }
        }
        Ok(())
    }

    /// Closes the connections whose tick has come, and retries those that could not be closed before.
    pub(super) fn close(&mut self, tick: u64) {
        for (at, client) in self.clients.iter_mut().enumerate() {
            let Some(closing) =
                client.plan.closing.filter(|closing| closing.tick <= tick && !client.is_closed)
            else {
                continue;
            };
            let to = self.world.clients[at].peers().next();
            client.is_closed = match (closing.by, to, client.peer) {
                (Side::Client, Some(to), _) => {
                    self.world.clients[at].close(to, 7, "bye");
                    true
                }
                (Side::Server, _, Some(peer)) if self.world.server.peers().any(|other| other == peer) => {
                    self.world.server.close(peer, 8, "out");
                    true
                }
                _ => false,
            };
        }
    }
}

/// Draws how a message is sent, and whether it has a receipt. `reliable` is the fraction of reliable messages.
fn draw_options(random: &mut Random, reliable: f64) -> (SendOptions, bool) {
    let is_reliable = random.happens(reliable);
    let mode = pick(random, if is_reliable { &RELIABLE } else { &UNRELIABLE });
    let classes = [Priority::Urgent, Priority::Normal, Priority::Low, Priority::Bulk];
    let priority = classes.get(index(random, 8)).copied().unwrap_or_default();
    let mut options = SendOptions::new(mode).priority(priority);
    if mode == Mode::ReliableLatest {
        options.key = random.below(20);
    }
    if random.below(8) == 0 {
        options = options.lifetime(Duration::from_millis(random.below(600)));
    }
    (options, random.below(8) == 0)
}
