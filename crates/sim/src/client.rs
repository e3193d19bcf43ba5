//! One client as both ends see it: what may follow on what, and what must be true of it in the end.

use drumfire::{ClientEvent, CloseCode, CloseReason, Event, FlightRecord, PeerId, WhenFull, WorkerStats};

use crate::flow::Flow;
use crate::scenario::{GROUPS, Plan};

/// How far one end of a connection has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    #[default]
    Before,
    Connected,
    Failed,
    Over,
}

/// Both ends of one connection.
#[derive(Debug, Default)]
pub(crate) struct Client {
    pub(crate) at_client: Stage,
    pub(crate) at_server: Stage,
    pub(crate) peer: Option<PeerId>,
    /// Of each group.
    pub(crate) is_member: [bool; GROUPS],
    /// One of its ends breaks the rules: what they say to each other is worth nothing.
    pub(crate) is_hostile: bool,
    /// Somebody closed it, or it vanished.
    pub(crate) is_closed: bool,
    /// Nothing comes to it or from it any more, for good.
    pub(crate) has_vanished: bool,
    /// Something happened to its worker or to the server that may end it.
    pub(crate) may_end: bool,
    /// In which tick that is over, if it is then still there; 0 for never.
    excused_until: u64,
    /// Either end closes it rather than lose a message for want of room.
    pub(crate) may_overflow: bool,
    /// That happened.
    pub(crate) has_overflowed: bool,
    pub(crate) up: Flow,
    pub(crate) down: Flow,
    /// Why it ends, as a flight record says that came just now.
    recorded: Option<CloseReason>,
}

impl Client {
    /// A client with this part, before anything has happened.
    pub(crate) fn of(plan: &Plan, is_short_of_memory: bool) -> Self {
        let may_drop = matches!(plan.when_full, WhenFull::DropOldest | WhenFull::DropNewest);
        let may_overflow = plan.when_full == WhenFull::Disconnect;
        let flow = || Flow::new(may_drop, is_short_of_memory);
        let is_hostile = plan.hostile.is_some();
        Self { may_overflow, is_hostile, up: flow(), down: flow(), ..Self::default() }
    }

    /// The client heard something.
    pub(crate) fn on_client(&mut self, event: ClientEvent) -> Result<(), String> {
        match (event, self.at_client) {
            (ClientEvent::Connected, Stage::Before) => {
                self.at_client = Stage::Connected;
                Ok(())
            }
            // A handshake may lose all its tries; whether the server agrees is looked at in the end.
            (ClientEvent::ConnectFailed { .. }, Stage::Before) => {
                self.at_client = Stage::Failed;
                Ok(())
            }
            (ClientEvent::Message { .. }, Stage::Connected) if self.is_hostile => Ok(()),
            (ClientEvent::Message { channel, bytes }, Stage::Connected) => {
                self.down.on_delivered(channel, &bytes)
            }
            (ClientEvent::Receipt { .. } | ClientEvent::Skipped { .. }, Stage::Connected)
                if self.is_hostile =>
            {
                Ok(())
            }
            // Before it is connected, a client may send, and what it sent may expire.
            (ClientEvent::Receipt { receipt, outcome }, Stage::Before | Stage::Connected) => {
                // An attempt that fails is over too, and one that the server has forgotten by the time it succeeds.
                let is_over = self.may_be_over() || [self.at_client, self.at_server].contains(&Stage::Before);
                self.up.on_receipt(receipt, outcome, is_over)
            }
            (ClientEvent::Skipped { .. }, Stage::Connected) => Ok(()),
            (ClientEvent::Writable, Stage::Connected) => self.up.on_writable(),
            (ClientEvent::FlightRecord { record }, Stage::Connected) => self.on_record(&record),
            (ClientEvent::Disconnected { reason, .. }, Stage::Connected) => {
                self.at_client = Stage::Over;
                // Its first packet came when the server's half of the handshake was over: a slow clock has longer.
                self.is_closed |= reason == CloseReason::Reset && self.at_server == Stage::Before;
                self.ended(reason)
            }
            (event, stage) => Err(format!("at {stage:?} came {event:?}")),
        }
    }

    /// The server heard something of this client.
    pub(crate) fn on_server(&mut self, event: Event) -> Result<(), String> {
        match (event, self.at_server) {
            (Event::Connected { peer, .. }, Stage::Before) => {
                (self.at_server, self.peer) = (Stage::Connected, Some(peer));
                Ok(())
            }
            (Event::Message { .. }, Stage::Connected) if self.is_hostile => Ok(()),
            (Event::Message { channel, bytes, .. }, Stage::Connected) => {
                self.up.on_delivered(channel, &bytes)
            }
            (Event::Receipt { .. } | Event::Skipped { .. }, Stage::Connected) if self.is_hostile => Ok(()),
            (Event::Receipt { receipt, outcome, .. }, Stage::Connected) => {
                self.down.on_receipt(receipt, outcome, self.may_be_over())
            }
            (Event::Skipped { .. }, Stage::Connected) => Ok(()),
            (Event::Missed { count, .. }, Stage::Connected) => {
                self.down.on_missed(count);
                Ok(())
            }
            (Event::Writable { .. }, Stage::Connected) => self.down.on_writable(),
            (Event::FlightRecord { record, .. }, Stage::Connected) => self.on_record(&record),
            (Event::Disconnected { reason, .. }, Stage::Connected) => {
                (self.at_server, self.is_member) = (Stage::Over, [false; GROUPS]);
                self.ended(reason)
            }
            (event, stage) => Err(format!("at {stage:?} came {event:?}")),
        }
    }

    /// All events were taken in of the ends of which it is so said: what was acknowledged must be there.
    pub(crate) fn check_told(&mut self, by_client: bool, by_server: bool) -> Result<(), String> {
        if self.is_hostile {
            return Ok(());
        }
        let down = if by_client { self.down.untrue() } else { None };
        let up = if by_server { self.up.untrue() } else { None };
        down.or(up).map_or(Ok(()), Err)
    }

    /// Something happens to it that may end it until then.
    pub(crate) fn excuse_until(&mut self, tick: u64) {
        if !self.may_end || self.excused_until > 0 {
            self.may_end = true;
            self.excused_until = self.excused_until.max(tick);
        }
    }

    /// Whether it outlived what happened to it is known by now.
    pub(crate) fn end_excuse(&mut self, tick: u64) {
        let is_there = [self.at_client, self.at_server] == [Stage::Connected; 2];
        if is_there && self.excused_until > 0 && tick >= self.excused_until {
            (self.may_end, self.excused_until) = (false, 0);
        }
    }

    /// Whether it may be over for one end and not for the other.
    pub(crate) const fn may_be_over(&self) -> bool {
        self.is_closed || self.may_end || self.may_overflow
    }

    /// Whether either end took the connection for open.
    pub(crate) const fn was_connected(&self) -> bool {
        matches!(self.at_client, Stage::Connected | Stage::Over)
            || matches!(self.at_server, Stage::Connected | Stage::Over)
    }

    /// Whether it is over at both ends, or came to nothing.
    pub(crate) const fn is_gone(&self) -> bool {
        matches!(self.at_client, Stage::Over | Stage::Failed)
            && matches!(self.at_server, Stage::Over | Stage::Before)
    }

    /// What happened is written down in its order, and only of a connection that ends.
    fn on_record(&mut self, record: &FlightRecord) -> Result<(), String> {
        self.recorded = record.reason;
        if self.recorded.is_some() && record.entries.is_sorted_by_key(|entry| entry.at) {
            Ok(())
        } else {
            Err(format!("a flight record out of place: {record}"))
        }
    }

    /// A connection that nobody closed must not end: no link is bad enough for that.
    fn ended(&mut self, reason: CloseReason) -> Result<(), String> {
        if self.recorded.take().is_some_and(|recorded| recorded != reason) {
            return Err(format!("the flight record says another reason than {reason:?}"));
        }
        let is_lost_close =
            matches!(reason, CloseReason::Silent | CloseReason::Unacknowledged | CloseReason::Reset);
        let is_word = matches!(reason, CloseReason::Local { .. } | CloseReason::Remote { .. });
        if self.may_overflow {
            // Who hears of it second may have lost the word; a stalled application hears of it late.
            self.has_overflowed |= matches!(
                reason,
                CloseReason::Local { code: CloseCode::Overflow, .. }
                    | CloseReason::Remote { code: CloseCode::Overflow, .. }
            );
            self.is_closed |= self.has_overflowed || is_lost_close;
        }
        if self.is_hostile || (self.is_closed || self.may_end) && (is_word || is_lost_close) {
            Ok(())
        } else {
            Err(format!("the connection ended by itself: {reason:?}"))
        }
    }

    /// What must hold when all is calm, or when both ends have gone; `stats` are the client's.
    pub(crate) fn judge(&self, stats: &WorkerStats) -> Result<(), String> {
        match (self.at_client, self.at_server) {
            _ if self.is_hostile => Ok(()),
            (Stage::Connected, Stage::Connected) if !self.is_closed => {
                for (name, flow) in [("up", &self.up), ("down", &self.down)] {
                    if let Some(arrived) = flow.missing() {
                        return Err(format!("reliable messages {name} are missing, there were {arrived}"));
                    }
                    if flow.waits_for_room() {
                        return Err(format!(
                            "who was refused {name} was never told that there is room again"
                        ));
                    }
                }
                let given_up = stats.protocol.messages_dropped + stats.protocol.messages_expired;
                if self.up.left_out() > given_up {
                    let left_out = self.up.left_out();
                    return Err(format!("{left_out} messages up are nowhere, and {given_up} were given up"));
                }
                Ok(())
            }
            (Stage::Over, Stage::Over) if self.is_closed => Ok(()),
            // Closed before the server knew of it, or never connected at all.
            (Stage::Over, Stage::Before) if self.is_closed => Ok(()),
            (Stage::Failed, Stage::Before) => Ok(()),
            // Whatever happened to it, in the end nobody takes it for more than the other does.
            (Stage::Over | Stage::Failed, Stage::Over | Stage::Before) if self.may_end => Ok(()),
            (client, server) => {
                let is_closed = self.is_closed;
                Err(format!("{client:?} at the client, {server:?} at the server, closed: {is_closed}"))
            }
        }
    }
}
