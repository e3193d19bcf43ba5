//! The state of one client at both ends: the permitted order of events, and the checks at the end.

use drumfire::error::CloseCode;
use drumfire::stats::{FlightRecord, WorkerStats};
use drumfire::{CloseReason, ConnectToken, Event, PeerId, WhenFull};

use crate::hostile::HostileEnd;
use crate::scenario::{GROUPS, Plan, Side};
use crate::traffic::Flow;

/// The state of one end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    #[default]
    Connecting,
    Connected,
    Failed,
    Closed,
}

/// Both ends of one connection.
#[derive(Default)]
pub(crate) struct Client {
    pub(crate) plan: Plan,
    /// The token of the client, or `None` in open access.
    pub(crate) token: Option<ConnectToken>,
    /// The end that breaks the rules, if one does. The messages of this connection prove nothing.
    pub(crate) hostile: Option<HostileEnd>,
    /// The tick in which the client was first found to have left.
    pub(crate) empty_since: Option<u64>,
    pub(crate) at_client: ConnectionState,
    pub(crate) at_server: ConnectionState,
    pub(crate) peer: Option<PeerId>,
    /// Whether the client is a member of each group.
    pub(crate) is_member: [bool; GROUPS],
    /// Whether an application closed the connection, or the client vanished.
    pub(crate) is_closed: bool,
    /// Whether the client's links are cut for good.
    pub(crate) has_vanished: bool,
    /// Whether a fault may end the connection.
    pub(crate) may_end: bool,
    /// The tick after which `may_end` is reset if the connection still exists. 0 for never.
    may_end_until: u64,
    /// Whether an end has closed the connection rather than lose a message.
    pub(crate) has_overflowed: bool,
    pub(crate) up: Flow,
    pub(crate) down: Flow,
    /// The reason in the flight record that precedes the end of the connection.
    recorded: Option<CloseReason>,
}

impl Client {
    /// Returns a client that has not connected yet.
    pub(crate) fn new(plan: Plan, token: Option<ConnectToken>, server_buffers_events: bool) -> Self {
        let may_drop = matches!(plan.when_full, WhenFull::DropOldest | WhenFull::DropNewest);
        // Without a worker's channel, messages use the receive memory of their connection until the application takes them.
        let (up, down) = (Flow::new(may_drop, !server_buffers_events), Flow::new(may_drop, true));
        Self { plan, token, up, down, ..Self::default() }
    }

    /// Handles an event of one end.
    pub(crate) fn on_event(&mut self, by: Side, event: Event) -> Result<(), String> {
        // A failed attempt is over too, and so is a connection that the server has forgotten when it succeeds.
        let is_half_open =
            by == Side::Client && [self.at_client, self.at_server].contains(&ConnectionState::Connecting);
        let is_over = self.may_be_over() || is_half_open;
        let (state, sent, received) = match by {
            Side::Client => (&mut self.at_client, &mut self.up, &mut self.down),
            Side::Server => (&mut self.at_server, &mut self.down, &mut self.up),
        };
        match (event, *state) {
            (Event::Connected { .. }, ConnectionState::Connecting) => *state = ConnectionState::Connected,
            // All attempts may be lost. Whether the server agrees is checked at the end.
            (Event::ConnectFailed { .. }, ConnectionState::Connecting) => *state = ConnectionState::Failed,
            (Event::Message { .. } | Event::Receipt { .. }, ConnectionState::Connected)
                if self.hostile.is_some() => {}
            (Event::Message { channel, payload, .. }, ConnectionState::Connected) => {
                return received.on_delivered(channel, &payload);
            }
            // A client may send before it is connected, and its messages may expire.
            (Event::Receipt { receipt, outcome, .. }, state)
                if state == ConnectionState::Connected
                    || by == Side::Client && state == ConnectionState::Connecting =>
            {
                return sent.on_receipt(receipt, outcome, is_over);
            }
            (Event::Skipped { .. }, ConnectionState::Connected) => {}
            // The simulated client has no socket, so only the server sees that an address changes.
            (Event::PathChanged { .. }, ConnectionState::Connected) if by == Side::Server => {}
            (Event::Missed { count, .. }, ConnectionState::Connected) if by == Side::Server => {
                sent.missed += u64::from(count);
            }
            (Event::Writable { .. }, ConnectionState::Connected) => return sent.on_writable(),
            (Event::FlightRecord { record, .. }, ConnectionState::Connected) => {
                return self.on_record(&record);
            }
            (Event::Disconnected { closed, .. }, ConnectionState::Connected) => {
                *state = ConnectionState::Closed;
                match by {
                    // The client's first packet arrived after the server's half of the handshake had expired. A slow clock of
                    // the client makes that likely.
                    Side::Client => {
                        self.is_closed |= closed.reason == CloseReason::Reset
                            && self.at_server == ConnectionState::Connecting;
                    }
                    Side::Server => self.is_member = [false; GROUPS],
                }
                return self.on_end(closed.reason);
            }
            (event, state) => return Err(format!("{event:?} in the state {state:?}")),
        }
        Ok(())
    }

    /// Checks that acknowledged messages were delivered, for each direction whose receiver has taken all its events.
    pub(crate) fn check_receipts(&mut self, by_client: bool, by_server: bool) -> Result<(), String> {
        if self.hostile.is_some() {
            return Ok(());
        }
        let down = if by_client { self.down.false_receipt() } else { None };
        let up = if by_server { self.up.false_receipt() } else { None };
        down.or(up).map_or(Ok(()), Err)
    }

    /// Silences the hostile end, if there is one.
    pub(crate) const fn silence(&mut self) {
        if let Some(end) = &mut self.hostile {
            end.is_silent = true;
        }
    }

    /// Permits the connection to end until a tick.
    pub(crate) fn allow_end_until(&mut self, tick: u64) {
        if !self.may_end || self.may_end_until > 0 {
            self.may_end = true;
            self.may_end_until = self.may_end_until.max(tick);
        }
    }

    /// Resets `may_end` for a connection that survived its fault.
    pub(crate) fn revoke_end(&mut self, tick: u64) {
        let is_connected = [self.at_client, self.at_server] == [ConnectionState::Connected; 2];
        if is_connected && self.may_end_until > 0 && tick >= self.may_end_until {
            (self.may_end, self.may_end_until) = (false, 0);
        }
    }

    /// Returns whether the connection may be over for one end only.
    pub(crate) const fn may_be_over(&self) -> bool {
        self.is_closed || self.may_end || self.may_overflow()
    }

    /// Returns whether an end closes the connection rather than lose a message.
    const fn may_overflow(&self) -> bool {
        matches!(self.plan.when_full, WhenFull::Disconnect)
    }

    /// Returns whether either end was connected.
    pub(crate) const fn was_connected(&self) -> bool {
        matches!(self.at_client, ConnectionState::Connected | ConnectionState::Closed)
            || matches!(self.at_server, ConnectionState::Connected | ConnectionState::Closed)
    }

    /// Returns whether the connection is over for both ends, or was never established.
    pub(crate) const fn has_left(&self) -> bool {
        matches!(self.at_client, ConnectionState::Closed | ConnectionState::Failed)
            && matches!(self.at_server, ConnectionState::Closed | ConnectionState::Connecting)
    }

    /// Checks a flight record: its entries are in order, and it precedes the end of its connection.
    fn on_record(&mut self, record: &FlightRecord) -> Result<(), String> {
        self.recorded = record.reason;
        if self.recorded.is_some() && record.entries.is_sorted_by_key(|entry| entry.at) {
            Ok(())
        } else {
            Err(format!("a flight record out of place: {record}"))
        }
    }

    /// Checks the end of the connection. No link is bad enough to end a connection that no application closed.
    fn on_end(&mut self, reason: CloseReason) -> Result<(), String> {
        if self.recorded.take().is_some_and(|recorded| recorded != reason) {
            return Err(format!("the flight record has another reason than {reason:?}"));
        }
        let is_lost_close =
            matches!(reason, CloseReason::IdleTimeout | CloseReason::Unacknowledged | CloseReason::Reset);
        let is_close = matches!(reason, CloseReason::Local { .. } | CloseReason::Remote { .. });
        if self.may_overflow() {
            // The other end may have lost the Close. A stalled application receives its event late.
            self.has_overflowed |= matches!(
                reason,
                CloseReason::Local { code: CloseCode::Overflow, .. }
                    | CloseReason::Remote { code: CloseCode::Overflow, .. }
            );
            self.is_closed |= self.has_overflowed || is_lost_close;
        }
        if self.hostile.is_some() || (self.is_closed || self.may_end) && (is_close || is_lost_close) {
            Ok(())
        } else {
            Err(format!("the connection ended by itself: {reason:?}"))
        }
    }

    /// Checks the state at the end of the calm, or after both ends have left. `stats` are the client's.
    pub(crate) fn check_end(&self, stats: &WorkerStats) -> Result<(), String> {
        match (self.at_client, self.at_server) {
            _ if self.hostile.is_some() => Ok(()),
            (ConnectionState::Connected, ConnectionState::Connected) if !self.is_closed => {
                for (name, flow) in [("up", &self.up), ("down", &self.down)] {
                    if let Some(missing) = flow.missing() {
                        return Err(format!("missing {name}: {missing}"));
                    }
                    if flow.awaits_writable {
                        return Err(format!("no Writable event {name} after the last refusal"));
                    }
                }
                let (undelivered, protocol) = (self.up.undelivered(), &stats.protocol);
                let given_up = protocol.messages_dropped + protocol.messages_expired;
                if undelivered > given_up {
                    return Err(format!(
                        "{undelivered} undelivered messages up, and {given_up} were given up"
                    ));
                }
                Ok(())
            }
            (ConnectionState::Closed, ConnectionState::Closed) if self.is_closed => Ok(()),
            // Closed before the server accepted it.
            (ConnectionState::Closed, ConnectionState::Connecting) if self.is_closed => Ok(()),
            (ConnectionState::Failed, ConnectionState::Connecting) => Ok(()),
            // After any fault, both ends agree that there is no connection.
            (
                ConnectionState::Closed | ConnectionState::Failed,
                ConnectionState::Closed | ConnectionState::Connecting,
            ) if self.may_end => Ok(()),
            (client, server) => {
                let is_closed = self.is_closed;
                Err(format!("{client:?} at the client, {server:?} at the server, closed: {is_closed}"))
            }
        }
    }
}
