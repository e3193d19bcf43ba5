//! The application's commands to an endpoint: connect, send, close.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use drumfire_crypto::IssuedToken;
use drumfire_wire::{
    ChannelId, ClientParameters, Close, CloseCode, ConnectionId, ConnectionIdLength,
    limits::{APPLICATION_HELLO_MAX_BYTES, CLOSE_REASON_MAX_BYTES},
};

use super::lifecycle::on_changed;
use super::{Endpoint, Role};
use crate::channel::block::{BlockOptions, MessageBlock};
use crate::channel::message::Message;
use crate::channel::receipt::ReceiptId;
use crate::channel::send::PushResult;
use crate::channel::{ChannelOptions, IfFull, Mode, WhenFull};
use crate::config::{Config, ServerIdentity};
use crate::connection::{Connection, Liveness, Phase};
use crate::error::{CloseError, CloseReason, ConnectError, SendError};
use crate::handshake::client::{Attempt, Request, offer};
use crate::identity::ConnectionIdState;
use crate::path::Path;
use crate::peer_id::PeerId;
use crate::placement::Placement;
use crate::slab::Slab;
use crate::stats::add;
use crate::time::{Moment, Now};

/// A request of a client to connect.
#[derive(Debug, Clone, Copy)]
pub struct ConnectRequest<'a> {
    /// The address of the server.
    pub server: SocketAddr,
    /// The key of the server.
    pub identity: ServerIdentity,
    /// The token of the player, or `None` for open access.
    pub token: Option<&'a IssuedToken>,
    /// Bytes of the application for [`Event::Connected`](crate::Event::Connected) of the server, at most 256. They are encrypted, but an
    /// attacker who learns the secret key of the server later can read them (PROTOCOL 5.7, "Parameters").
    pub hello: &'a [u8],
    /// The time until the first Hello is sent. The attempt fails 5 s later. A client waits when the server asked it to come back
    /// later, or to spread the reconnects of many clients.
    pub wait: Duration,
    /// Whether the peer id stays reserved when the attempt or its connection has ended, for [`Endpoint::connect_again`]. The
    /// reserved id counts as a connection until [`Endpoint::forget_peer`].
    pub keeps_id: bool,
}

impl ConnectRequest<'_> {
    /// Creates a request without token, hello, and wait, whose peer id is not reserved.
    #[must_use]
    pub const fn new(server: SocketAddr, identity: ServerIdentity) -> Self {
        Self { server, identity, token: None, hello: &[], wait: Duration::ZERO, keeps_id: false }
    }
}

impl<P: Placement> Endpoint<P> {
    /// Starts to connect, with a token if the server requires one. An event reports the outcome: `Connected`, or
    /// `ConnectFailed` after at most 5 s. Messages may be sent immediately; they wait for the connection.
    ///
    /// # Errors
    /// Any [`ConnectError`] except `Timeout` and `Closed`. Nothing was started then.
    pub fn connect(
        &mut self,
        now: Now,
        server: SocketAddr,
        identity: &ServerIdentity,
        token: Option<&IssuedToken>,
    ) -> Result<PeerId, ConnectError> {
        self.connect_with(now, &ConnectRequest { token, ..ConnectRequest::new(server, *identity) })
    }

    /// Starts to connect as [`Endpoint::connect`] does, with all options.
    ///
    /// # Errors
    /// Returns the errors of [`Endpoint::connect`].
    pub fn connect_with(&mut self, now: Now, request: &ConnectRequest<'_>) -> Result<PeerId, ConnectError> {
        let now = self.advance(now);
        // A socket without connection ids has room for one connection. The rest of one that closes is dropped, as
        // `connect_again` does. With a reserved id, that would make no room, and the close would be lost for nothing.
        let is_replaceable =
            |connection: &Connection| connection.is_closing() && !connection.identity.keeps_id();
        if let Some(only) = self.only.filter(|only| self.connections.get(*only).is_some_and(is_replaceable)) {
            self.remove(only);
        }
        if self.connections.is_full() {
            return Err(ConnectError::TooManyConnections);
        }
        let (connection, keys) = self.attempt(now, request)?;
        let peer = self.connections.insert(connection).ok_or(ConnectError::TooManyConnections)?;
        self.begin_attempt(peer, keys);
        Ok(peer)
    }

    /// Starts another attempt under a reserved id (see [`ConnectRequest::keeps_id`]), whose attempt or connection has ended. Its rest
    /// is dropped: a close that the peer did not acknowledge is not repeated.
    ///
    /// # Errors
    /// Returns the errors of [`Endpoint::connect`], or `Closed` if the id is not reserved. Nothing was started then,
    /// and the id stays reserved.
    pub fn connect_again(
        &mut self,
        now: Now,
        peer: PeerId,
        request: &ConnectRequest<'_>,
    ) -> Result<(), ConnectError> {
        let now = self.advance(now);
        if self.connections.get(peer).is_some_and(Connection::is_closing) {
            self.remove(peer);
        }
        if !self.reserved.contains_key(&peer) {
            return Err(ConnectError::Closed);
        }
        let (connection, keys) = self.attempt(now, request)?;
        self.reserved.remove(&peer);
        self.connections.refill(peer, connection);
        // The id may still be in the queue, where it would be a second entry of the new connection.
        self.active.retain(|queued| *queued != peer);
        self.begin_attempt(peer, keys);
        Ok(())
    }

    /// Gives up a reserved id, whose attempt or connection has ended. Does nothing for other ids.
    pub fn forget_peer(&mut self, peer: PeerId) {
        if self.reserved.remove(&peer).is_some() {
            self.connections.release(peer);
        } else if let Some(connection) = self.connections.get_mut(peer) {
            // It still sends its close. The id is given up with it.
            connection.identity.set_keeps_id(false);
        }
    }

    /// Creates the connection of an attempt, and the keys by which its packets find it: the client id, and the connection id if
    /// the socket uses ids.
    fn attempt(
        &mut self,
        now: Moment,
        request: &ConnectRequest<'_>,
    ) -> Result<(Connection, (u64, Option<ConnectionId>)), ConnectError> {
        let &ConnectRequest { server, identity, token, hello, wait, keeps_id } = request;
        // All checks come before anything is stored, so a request that fails leaves nothing behind.
        if hello.len() > APPLICATION_HELLO_MAX_BYTES {
            return Err(ConnectError::HelloTooLong);
        }
        if matches!(self.role, Role::Server(_)) {
            return Err(ConnectError::NotAClient);
        }
        let local_id = match self.id_length {
            // The only connection of a socket needs no id, which makes each packet to it 8 bytes shorter.
            ConnectionIdLength::Zero => None,
            ConnectionIdLength::Eight => Some(self.draw_id().map_err(|_| ConnectError::BadEntropy)?),
        };
        let request = Request {
            identity,
            token,
            protocol_id: self.config.protocol_id,
            offer: offer(self.config.has_aes_gcm),
            parameters: ClientParameters { connection_id: local_id, shared: self.shared, hello },
        };
        let attempt = Attempt::new(now.after(wait), &request, &mut self.entropy)?;
        let client_id = u64::from_be_bytes(attempt.client_id().0);
        let path = Path::new(server.into(), None);
        let liveness = Liveness::new(now, true, self.shared.idle_timeout, self.shared.unacknowledged_timeout);
        let (bounds, phase) = (Arc::clone(&self.bounds), Phase::Connecting(attempt));
        let identity = ConnectionIdState::client(local_id, keeps_id);
        Ok((Connection::new(phase, path, liveness, identity, bounds), (client_id, local_id)))
    }

    /// Registers a new attempt, and queues its first Hello.
    fn begin_attempt(&mut self, peer: PeerId, (client_id, local_id): (u64, Option<ConnectionId>)) {
        // Packets find the connection by its own id. Until the Welcome, responses find it by the client id, which is
        // the only id that both ends know.
        self.register_id(peer, local_id);
        self.by_client_id.insert(client_id, peer);
        self.reschedule(peer);
        self.assert_invariants();
    }

    /// Prepares a client's connection for a change of its own address. The connection takes a spare id, so that no id
    /// links both paths; packet numbers, which are not hidden, still may. Returns whether a spare id was left.
    /// Without one, the connection keeps its id. A server follows the new address in either case.
    pub fn change_path(&mut self, now: Now, peer: PeerId) -> bool {
        let now = self.advance(now);
        // The connection is rescheduled in either case. With another id, a ping is due, which shows the server the new
        // address.
        let has_changed =
            self.connections.get_mut(peer).is_some_and(|connection| connection.change_path(now));
        // An id that was retired must not be looked up any more.
        if self.connections.get_mut(peer).is_some_and(Connection::has_id_changes) {
            self.update_ids(peer);
        }
        self.reschedule(peer);
        has_changed
    }

    /// Returns, on a client, the token with which it can reconnect to this server as the same player, and the moment at
    /// which the token expires. `None` before the server has sent one. The token of a reserved id is kept after the end
    /// of the connection.
    #[must_use]
    pub fn resume_token(&self, peer: PeerId) -> Option<(&IssuedToken, Moment)> {
        let token = match self.connections.get(peer) {
            Some(connection) => connection.identity.known()?.resume.as_ref(),
            None => self.reserved.get(&peer)?.as_ref(),
        };
        token.map(|(token, until)| (token, *until))
    }

    /// Sets how messages of a channel are sent from now on. Options that differ from the default are remembered until
    /// the connection ends. Does nothing for a stale id.
    pub fn set_channel_options(&mut self, peer: PeerId, channel: ChannelId, options: ChannelOptions) {
        if let Some(connection) = self.connections.get_mut(peer) {
            connection.sending.set_options(connection.bounds.hash, channel, options);
        }
    }

    /// Forgets the last value of a key of a ReliableLatest channel, for an object that no longer exists. This frees
    /// its memory. A later value of the key is delivered again, unless it was sent before. Does nothing for a stale
    /// id.
    pub fn forget_key(&mut self, peer: PeerId, channel: ChannelId, key: u64) {
        if let Some(connection) = self.connections.get_mut(peer) {
            connection.forget_key(channel, key);
        }
    }

    /// Queues a message. It is sent by the next `poll_transmit`, together with others.
    ///
    /// # Errors
    /// [`SendError`]. The message was not queued then.
    pub fn send(&mut self, now: Now, peer: PeerId, message: Message) -> Result<(), SendError> {
        self.send_with_receipt(now, peer, message, None)
    }

    /// Sends a message like [`Endpoint::send`], with a receipt id that the caller chooses. One event reports the fate
    /// of the message, unless the connection ends first.
    ///
    /// # Errors
    /// [`SendError`]. The message was not queued then, and no event follows.
    pub fn send_with_receipt(
        &mut self,
        now: Now,
        peer: PeerId,
        message: Message,
        receipt: Option<ReceiptId>,
    ) -> Result<(), SendError> {
        self.send_with(now, peer, message, receipt, IfFull::Notify)
    }

    /// Sends a message like [`Endpoint::send_with_receipt`]. `if_full` decides about a message for which there is no
    /// room, unless the channel has a rule of its own in [`ChannelOptions::when_full`].
    ///
    /// # Errors
    /// [`SendError`]. The message was not queued then, and no receipt follows.
    pub fn send_with(
        &mut self,
        now: Now,
        peer: PeerId,
        message: Message,
        receipt: Option<ReceiptId>,
        if_full: IfFull,
    ) -> Result<(), SendError> {
        let called_at = now;
        let now = self.advance(called_at);
        let (connection, limit_bytes) =
            sendable(&mut self.connections, &self.config, peer, message.options.mode)?;
        let bytes = message.payload.len();
        if bytes > limit_bytes {
            return Err(SendError::TooLarge { bytes, limit_bytes });
        }
        // Data that waited before is queued, or has a timer or an ack to wait for. One message more changes none of
        // that, so only the first message in a row pays for the queue and the timer.
        let is_scheduled = connection.is_queued || connection.has_data();
        let (memory_bytes, hash) = (connection.bounds.send_memory_bytes, connection.bounds.hash);
        let has_dropped = match connection.sending.push(hash, memory_bytes, now, message, receipt, if_full) {
            PushResult::Taken(dropped) | PushResult::Dropped(dropped) => {
                add(&mut self.stats.messages_dropped, dropped.into());
                dropped > 0
            }
            PushResult::Full => return Err(SendError::Full),
            PushResult::Overflow => {
                let close = Close { code: CloseCode::Overflow, application_code: 0, reason: b"" };
                // The connection is open or connecting, so closing it cannot fail.
                let closed = self.close(called_at, peer, &close);
                debug_assert!(closed.is_ok(), "an open connection could not be closed: {closed:?}");
                return Err(SendError::Closed);
            }
        };
        // The caller has counted the memory of the dropped messages.
        if has_dropped && self.reports_freed && !connection.sending.set_listed(true) {
            self.freed.push_back(peer);
        }
        if is_scheduled {
            on_changed(peer, connection, &mut self.events, &mut self.budget);
        } else {
            self.reschedule(peer);
        }
        Ok(())
    }

    /// Queues the messages `range` of a block for one peer, as [`IfFull::Refuse`] does for one message. Returns how many from
    /// the front of the range were accepted. There was no room for the next message, or the peer accepts only shorter ones.
    ///
    /// # Errors
    /// [`SendError`], as [`Endpoint::send`], except for the two cases above. No message was queued then.
    pub fn send_block(
        &mut self,
        now: Now,
        peer: PeerId,
        options: &BlockOptions,
        block: &Arc<MessageBlock>,
        range: Range<usize>,
    ) -> Result<usize, SendError> {
        let called_at = now;
        let now = self.advance(called_at);
        let (connection, limit_bytes) =
            sendable(&mut self.connections, &self.config, peer, options.options.mode)?;
        let range = range.start.min(block.len())..range.end.min(block.len());
        let is_scheduled = connection.is_queued || connection.has_data();
        let (memory_bytes, hash) = (connection.bounds.send_memory_bytes, connection.bounds.hash);
        // In the usual case all messages are one segment. Before the handshake, the peer's limit is not known: single messages are
        // checked again when they are sent, and segments are not.
        let fast_count = if connection.is_open() && block.longest_bytes() <= limit_bytes {
            connection.sending.push_block(hash, memory_bytes, now, options, block, range.clone())
        } else {
            0
        };
        if is_scheduled {
            on_changed(peer, connection, &mut self.events, &mut self.budget);
        } else {
            self.reschedule(peer);
        }
        // The channel's options decide about the others one by one, for example which older messages are dropped.
        for (accepted, index) in range.clone().enumerate().skip(fast_count) {
            let payload = Bytes::copy_from_slice(block.payload(index));
            let message = Message::new(options.channel, payload, options.options);
            match self.send_with(called_at, peer, message, None, IfFull::Refuse) {
                Ok(()) => {}
                Err(SendError::Full | SendError::TooLarge { .. }) => return Ok(accepted),
                Err(error) if accepted == 0 => return Err(error),
                // A full queue has closed the connection. The caller learns that from the next message.
                Err(_) => return Ok(accepted),
            }
        }
        Ok(range.len())
    }

    /// Makes [`Endpoint::poll_freed`] report connections, which it does not by default.
    pub const fn report_freed(&mut self) {
        self.reports_freed = true;
    }

    /// Returns a connection that has freed send memory since it was returned last. Its id can be stale. Callers that count the
    /// memory of their messages themselves ([`IfFull::Accept`]) look at [`Endpoint::undelivered_bytes`] then.
    pub fn poll_freed(&mut self) -> Option<PeerId> {
        let peer = self.freed.pop_front()?;
        if let Some(connection) = self.connections.get_mut(peer) {
            connection.sending.set_listed(false);
        }
        Some(peer)
    }

    /// Returns how messages of a channel are treated when the send memory is full. The default for a stale id.
    #[must_use]
    pub fn when_full(&self, peer: PeerId, channel: ChannelId) -> WhenFull {
        self.connections
            .get(peer)
            .map(|connection| connection.sending.options_of(channel).when_full)
            .unwrap_or_default()
    }

    /// Closes a connection. Messages that wait are sent once, as far as the limits allow, and are never retransmitted.
    /// The close with the reason follows them. The `Disconnected` event is queued immediately.
    ///
    /// # Errors
    /// [`CloseError`]. Nothing has changed then.
    pub fn close(&mut self, now: Now, peer: PeerId, reason: &Close<'_>) -> Result<(), CloseError> {
        let now = self.advance(now);
        if reason.reason.len() > CLOSE_REASON_MAX_BYTES {
            return Err(CloseError::TextTooLong { limit_bytes: CLOSE_REASON_MAX_BYTES });
        }
        let connection = self.connections.get_mut(peer).ok_or(CloseError::UnknownPeer)?;
        match connection.phase.as_deref() {
            Some(Phase::HalfOpen(_)) => return Err(CloseError::UnknownPeer),
            // The connection is already closing, and its event was queued.
            Some(Phase::Closing(_)) => return Ok(()),
            Some(Phase::Connecting(_)) => {
                self.events.connect_failed(peer, ConnectError::Closed);
                self.remove(peer);
                return Ok(());
            }
            None => {}
        }
        // The application needs no answer of the peer to be done with the connection, so its last event does not wait.
        // The connection itself stays, and repeats the close (RFC 9000 section 10.2.1).
        connection.begin_closing(now, reason.code, reason.application_code, reason.reason);
        let local = CloseReason::Local { code: reason.code, application_code: reason.application_code };
        self.disconnected(peer, local, reason.reason);
        self.reschedule(peer);
        self.assert_invariants();
        Ok(())
    }
}

/// Returns a connection that accepts messages, and the length in bytes of the longest message of this mode.
#[inline]
fn sendable<'a>(
    connections: &'a mut Slab<Connection>,
    config: &Config,
    peer: PeerId,
    mode: Mode,
) -> Result<(&'a mut Connection, usize), SendError> {
    let connection = connections.get_mut(peer).ok_or(SendError::UnknownPeer)?;
    match connection.phase.as_deref() {
        // Messages may be queued before the handshake ends. The peer's limits are not known then, and are checked
        // when a message is first sent.
        Some(Phase::Connecting(_)) | None => {}
        Some(Phase::Closing(_)) => return Err(SendError::Closed),
        Some(Phase::HalfOpen(_)) => return Err(SendError::UnknownPeer),
    }
    // The receiver holds memory for a message with an id, so the limits of both ends apply. The protocol limits all
    // others.
    let limit_bytes = if mode.needs_id() {
        config.message_max_bytes.min(connection.sending.message_max_bytes())
    } else {
        mode.message_max_bytes()
    };
    Ok((connection, limit_bytes))
}
