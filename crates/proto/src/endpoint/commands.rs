//! What the application asks of an endpoint: connect, send, close.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use drumfire_crypto::IssuedToken;
use drumfire_wire::{
    ChannelId, ClientParameters, Close, CloseCode, ConnectionIdLength, limits::CLOSE_REASON_MAX_BYTES,
};

use super::{Endpoint, Role};
use crate::channel::receipt::ReceiptId;
use crate::channel::send::{Outgoing, Pushed};
use crate::channel::{ChannelOptions, SendOptions, WhenFull};
use crate::config::ServerIdentity;
use crate::connection::{Connection, Liveness, Phase};
use crate::error::{CloseError, CloseReason, ConnectError, SendError};
use crate::handshake::client::{Attempt, Request, offer};
use crate::identity::Identity;
use crate::path::Path;
use crate::placement::Placement;
use crate::slab::PeerId;
use crate::stats::add;
use crate::time::{Moment, Now};

impl<P: Placement> Endpoint<P> {
    /// Begins to connect, with a token where the server wants one. An event tells what comes of it: `Connected`, or `ConnectFailed` after 5 s at most.
    /// Messages may be sent at once; they wait for the connection.
    ///
    /// # Errors
    /// [`ConnectError`], all but `Timeout` and `Closed`; nothing has begun then.
    pub fn connect(
        &mut self,
        now: Now,
        server: SocketAddr,
        identity: &ServerIdentity,
        token: Option<&IssuedToken>,
    ) -> Result<PeerId, ConnectError> {
        self.connect_after(now, Duration::ZERO, server, identity, token)
    }

    /// [`Endpoint::connect`] that sends its first Hello after `wait`, and counts its 5 s from then: for who was told to come
    /// back later, or comes back together with many others.
    ///
    /// # Errors
    /// As [`Endpoint::connect`].
    pub fn connect_after(
        &mut self,
        now: Now,
        wait: Duration,
        server: SocketAddr,
        identity: &ServerIdentity,
        token: Option<&IssuedToken>,
    ) -> Result<PeerId, ConnectError> {
        let now = self.advance(now);
        if matches!(self.role, Role::Server(_)) {
            return Err(ConnectError::NotAClient);
        }
        if self.connections.is_full() {
            return Err(ConnectError::TooManyConnections);
        }
        let local_id = match self.id_length {
            ConnectionIdLength::Zero => None,
            ConnectionIdLength::Eight => Some(self.draw_id().map_err(|_| ConnectError::BadEntropy)?),
        };
        let request = Request {
            identity: *identity,
            token,
            protocol_id: self.config.protocol_id,
            offer: offer(self.config.has_aes_gcm),
            parameters: ClientParameters { connection_id: local_id, shared: self.shared },
        };
        let attempt = Attempt::new(now.after(wait), &request, &mut self.entropy)?;
        let client_id = u64::from_be_bytes(attempt.client_id().0);
        let path = Path::new(server.into(), None);
        let liveness =
            Liveness::new(now, true, self.shared.silent_timeout, self.shared.unacknowledged_timeout);
        let (bounds, phase) = (Arc::clone(&self.bounds), Phase::Connecting(attempt));
        let peer = self
            .connections
            .insert(Connection::new(phase, path, liveness, Identity::client(local_id), bounds))
            .ok_or(ConnectError::TooManyConnections)?;
        self.name(peer, local_id);
        self.by_client_id.insert(client_id, peer);
        self.settle(peer);
        Ok(peer)
    }

    /// Tells a client's connection that its packets leave from another address from now on: it takes a spare id, so that
    /// no id ties both paths together; packet numbers, which are not hidden, still may. Answers whether there was one; without one the
    /// connection goes on with the id it has. A server follows in any case.
    pub fn change_path(&mut self, now: Now, peer: PeerId) -> bool {
        let now = self.advance(now);
        let has_changed = self.connections.get_mut(peer).is_some_and(|connection| connection.change_id(now));
        self.settle(peer);
        has_changed
    }

    /// At a client, what lets it come back to this server as the same player: good until the moment with it. `None`
    /// before the server has sent one.
    #[must_use]
    pub fn resume_token(&self, peer: PeerId) -> Option<(&IssuedToken, Moment)> {
        let known = self.connections.get(peer)?.identity.known()?;
        known.resume.as_ref().map(|(token, until)| (token, *until))
    }

    /// How the messages of a channel are sent from now on. A channel with other options than the default ones is remembered
    /// until the connection ends. Does nothing for a stale id.
    pub fn set_channel_options(&mut self, peer: PeerId, channel: ChannelId, options: ChannelOptions) {
        if let Some(connection) = self.connections.get_mut(peer) {
            connection.sending.set_options(connection.bounds.hash, channel, options);
        }
    }

    /// Forgets what came last of a key of a ReliableLatest channel, for a thing that is gone: its place in memory is free. A value
    /// that comes of it later is delivered again, unless it was sent before. Does nothing for a stale id.
    pub fn forget_key(&mut self, peer: PeerId, channel: ChannelId, key: u64) {
        if let Some(connection) = self.connections.get_mut(peer) {
            connection.forget_key(channel, key);
        }
    }

    /// Queues a message. It leaves with the next `poll_transmit`, together with others.
    ///
    /// # Errors
    /// [`SendError`]; nothing of the message was taken then.
    pub fn send(
        &mut self,
        now: Now,
        peer: PeerId,
        channel: ChannelId,
        bytes: Bytes,
        options: SendOptions,
    ) -> Result<(), SendError> {
        self.send_with_receipt(now, peer, channel, bytes, options, None)
    }

    /// [`Endpoint::send`], with a receipt of the caller's choice: one event tells what became of the message, unless the
    /// connection ends first.
    ///
    /// # Errors
    /// [`SendError`]; nothing of the message was taken then, and no event comes.
    pub fn send_with_receipt(
        &mut self,
        now: Now,
        peer: PeerId,
        channel: ChannelId,
        bytes: Bytes,
        options: SendOptions,
        receipt: Option<ReceiptId>,
    ) -> Result<(), SendError> {
        let told = now;
        let now = self.advance(told);
        let connection = self.connections.get_mut(peer).ok_or(SendError::UnknownPeer)?;
        match connection.phase.as_deref() {
            Some(Phase::Connecting(_)) | None => {}
            Some(Phase::Closing(_)) => return Err(SendError::Closed),
            Some(Phase::HalfOpen(_)) => return Err(SendError::UnknownPeer),
        }
        let limit_bytes = if options.mode.needs_id() {
            self.config.message_max_bytes.min(connection.sending.message_max_bytes())
        } else {
            options.mode.message_max_bytes()
        };
        if bytes.len() > limit_bytes {
            return Err(SendError::TooLarge { limit_bytes });
        }
        let (memory_bytes, hash) = (connection.bounds.send_memory_bytes, connection.bounds.hash);
        let message = Outgoing { channel, options, receipt, payload: bytes };
        match connection.sending.push(hash, memory_bytes, now, message) {
            Pushed::Taken(dropped) | Pushed::Dropped(dropped) => {
                add(&mut self.stats.messages_dropped, dropped.into());
            }
            Pushed::Full => return Err(SendError::Full),
            Pushed::Overflow => {
                let close = Close { code: CloseCode::Overflow, application_code: 0, reason: b"" };
                // It is open or connecting, and so can be closed.
                let _ = self.close(told, peer, &close);
                return Err(SendError::Closed);
            }
        }
        self.settle(peer);
        Ok(())
    }

    /// What becomes of messages of a channel when the memory is full; that of the default for a stale id.
    #[must_use]
    pub fn when_full(&self, peer: PeerId, channel: ChannelId) -> WhenFull {
        self.connections
            .get(peer)
            .map(|connection| connection.sending.options_of(channel).when_full)
            .unwrap_or_default()
    }

    /// Ends a connection. What waits to be sent goes out once, as far as it may, and then the reason; the
    /// `Disconnected` event follows at once.
    ///
    /// # Errors
    /// [`CloseError`]; nothing has changed then.
    pub fn close(&mut self, now: Now, peer: PeerId, reason: &Close<'_>) -> Result<(), CloseError> {
        let now = self.advance(now);
        if reason.reason.len() > CLOSE_REASON_MAX_BYTES {
            return Err(CloseError::TextTooLong { limit_bytes: CLOSE_REASON_MAX_BYTES });
        }
        let connection = self.connections.get_mut(peer).ok_or(CloseError::UnknownPeer)?;
        match connection.phase.as_deref() {
            Some(Phase::HalfOpen(_)) => return Err(CloseError::UnknownPeer),
            // It is on its way out already, and its event was given.
            Some(Phase::Closing(_)) => return Ok(()),
            Some(Phase::Connecting(_)) => {
                self.events.connect_failed(peer, ConnectError::Closed);
                self.remove(peer);
                return Ok(());
            }
            None => {}
        }
        connection.begin_closing(now, reason.code, reason.application_code, reason.reason);
        let local = CloseReason::Local { code: reason.code, application_code: reason.application_code };
        self.disconnected(peer, local, reason.reason);
        self.settle(peer);
        Ok(())
    }
}
