//! What a handler can do while it is called: everything it does is done at once, on its own thread.

use std::sync::Arc;

use bytes::Bytes;
use drumfire_proto::{
    ChannelId, ChannelOptions, CloseError, Moment, PeerId, Placement, ReceiptId, SendError, SendOptions,
};

use crate::base::peer_map::PeerMap;
use crate::engine::app_side::CLOSE_TEXT_MAX_BYTES;
use crate::engine::peer_state::Known;
use crate::message::group::{BroadcastError, GroupError, GroupId};
use crate::worker::arena::Arena;
use crate::worker::backlog::Message;
use crate::worker::channel::Link;
use crate::worker::command::{Broadcast, Command};
use crate::worker::core::Core;

/// The worker, as its handler sees it. It knows the peers of this worker; a [`Remote`](crate::Remote) reaches all.
pub struct Context<'a>(pub(super) &'a mut dyn Actions);

impl Context<'_> {
    /// Takes a message for a peer of this worker; it leaves when the handler has seen all that happened. Answers the receipt,
    /// if one was asked for.
    ///
    /// # Errors
    ///
    /// [`SendError`], as [`Server::send`](crate::Server::send) says; nothing of the message was taken then. `UnknownPeer` for
    /// peers of other workers too.
    pub fn send<'b>(
        &mut self,
        peer: PeerId,
        channel: ChannelId,
        bytes: impl Into<Payload<'b>>,
        options: SendOptions,
    ) -> Result<Option<ReceiptId>, SendError> {
        self.0.send(peer, channel, bytes.into(), options)
    }

    /// Puts a peer of this worker into a group. Groups reach over all workers.
    ///
    /// # Errors
    ///
    /// [`GroupError`]; nothing has changed then.
    pub fn join(&mut self, group: GroupId, peer: PeerId) -> Result<(), GroupError> {
        self.0.join(group, peer)
    }

    /// Takes a peer out of a group. Does nothing where it is not in.
    pub fn leave(&mut self, group: GroupId, peer: PeerId) {
        self.0.leave(group, peer);
    }

    /// Takes a message for all members of a group, as [`Server::broadcast`](crate::Server::broadcast) does: those of this
    /// worker hear it with this flush, those of others with their workers' next.
    ///
    /// # Errors
    ///
    /// [`BroadcastError`]; nothing of the message was taken then.
    pub fn broadcast<'b>(
        &mut self,
        group: GroupId,
        channel: ChannelId,
        bytes: impl Into<Payload<'b>>,
        options: SendOptions,
    ) -> Result<(), BroadcastError> {
        self.0.broadcast(group, None, channel, bytes.into(), options)
    }

    /// [`Context::broadcast`] to all members but one: to those around who spoke.
    ///
    /// # Errors
    ///
    /// [`BroadcastError`]; nothing of the message was taken then.
    pub fn broadcast_except<'b>(
        &mut self,
        except: PeerId,
        group: GroupId,
        channel: ChannelId,
        bytes: impl Into<Payload<'b>>,
        options: SendOptions,
    ) -> Result<(), BroadcastError> {
        self.0.broadcast(group, Some(except), channel, bytes.into(), options)
    }

    /// Sets how the messages of a channel are sent. Does nothing for a peer that is gone.
    pub fn set_channel_options(&mut self, peer: PeerId, channel: ChannelId, options: ChannelOptions) {
        self.0.set_channel_options(peer, channel, options);
    }

    /// Asks what a peer's connection and its path are like; [`Handler::on_stats`](super::Handler::on_stats) brings it, unless
    /// the peer is gone.
    pub fn request_stats(&mut self, peer: PeerId) {
        self.0.carry_out(Command::Measure { peer });
    }

    /// Asks what happened last to a peer's connection; [`Handler::on_flight_record`](super::Handler::on_flight_record) brings
    /// it, unless the peer is gone or was silent for five seconds.
    pub fn request_flight_record(&mut self, peer: PeerId) {
        self.0.carry_out(Command::Record { peer });
    }

    /// Forgets what came last of a key, as [`Server::forget_key`](crate::Server::forget_key) does.
    pub fn forget_key(&mut self, peer: PeerId, channel: ChannelId, key: u64) {
        self.0.carry_out(Command::Forget { peer, channel, key });
    }

    /// Closes a peer's connection with a code of the application's own and a line for the peer's log. What its connection has
    /// taken before leaves once more as far as it may; `on_disconnect` follows.
    ///
    /// # Errors
    ///
    /// [`CloseError`]: the text is longer than [`CLOSE_TEXT_MAX_BYTES`], or the peer is gone.
    pub fn close(&mut self, peer: PeerId, code: u32, text: &str) -> Result<(), CloseError> {
        self.0.close(peer, code, text)
    }

    /// What the server's clock shows: the same for everything that is handled in one pass.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.0.now()
    }

    /// The index of this worker.
    #[must_use]
    pub fn worker(&self) -> usize {
        self.0.worker()
    }
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("worker", &self.worker()).finish_non_exhaustive()
    }
}

/// Bytes to send: borrowed ones are copied into memory that is used again and again, shared ones are shared.
#[derive(Clone, Debug)]
pub enum Payload<'a> {
    /// Copied once.
    Borrowed(&'a [u8]),
    /// Shared.
    Shared(Bytes),
}

impl<'a> From<&'a [u8]> for Payload<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Borrowed(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Payload<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Self::Borrowed(bytes)
    }
}

impl<'a> From<&'a str> for Payload<'a> {
    fn from(text: &'a str) -> Self {
        Self::Borrowed(text.as_bytes())
    }
}

impl From<Bytes> for Payload<'_> {
    fn from(bytes: Bytes) -> Self {
        Self::Shared(bytes)
    }
}

impl From<Vec<u8>> for Payload<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Shared(bytes.into())
    }
}

impl From<String> for Payload<'_> {
    fn from(text: String) -> Self {
        Self::Shared(text.into())
    }
}

impl Payload<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Borrowed(bytes) => bytes.len(),
            Self::Shared(bytes) => bytes.len(),
        }
    }

    fn into_bytes(self, arena: &mut Arena) -> Bytes {
        match self {
            Self::Borrowed(bytes) => arena.copy(bytes),
            Self::Shared(bytes) => bytes,
        }
    }
}

/// What a context does, whatever kind of endpoint stands behind it.
pub(super) trait Actions {
    fn send(
        &mut self,
        peer: PeerId,
        channel: ChannelId,
        bytes: Payload<'_>,
        options: SendOptions,
    ) -> Result<Option<ReceiptId>, SendError>;
    fn join(&mut self, group: GroupId, peer: PeerId) -> Result<(), GroupError>;
    fn leave(&mut self, group: GroupId, peer: PeerId);
    fn broadcast(
        &mut self,
        group: GroupId,
        except: Option<PeerId>,
        channel: ChannelId,
        bytes: Payload<'_>,
        options: SendOptions,
    ) -> Result<(), BroadcastError>;
    fn set_channel_options(&mut self, peer: PeerId, channel: ChannelId, options: ChannelOptions);
    fn close(&mut self, peer: PeerId, code: u32, text: &str) -> Result<(), CloseError>;
    fn carry_out(&mut self, command: Command);
    fn now(&self) -> Moment;
    fn worker(&self) -> usize;
}

/// A worker's core with what the handler's side knows of its peers.
pub(super) struct Desk<'a, P> {
    pub(super) core: &'a mut Core<P>,
    pub(super) known: &'a mut PeerMap<Known>,
    pub(super) arena: &'a mut Arena,
    pub(super) links: &'a [Arc<Link>],
}

impl<P: Placement> Desk<'_, P> {
    /// Whether a peer lives here; those of another worker may stand at the same place.
    fn known(&mut self, peer: PeerId) -> Option<&mut Known> {
        self.known.get_mut(peer)
    }
}

impl<P: Placement> Actions for Desk<'_, P> {
    fn send(
        &mut self,
        peer: PeerId,
        channel: ChannelId,
        bytes: Payload<'_>,
        options: SendOptions,
    ) -> Result<Option<ReceiptId>, SendError> {
        let known = self.known(peer).ok_or(SendError::UnknownPeer)?;
        let receipt = known.admit(channel, bytes.len(), &options)?;
        let bytes = bytes.into_bytes(self.arena);
        self.core.send(peer, Message { channel, bytes, options, receipt });
        Ok(receipt)
    }

    fn join(&mut self, group: GroupId, peer: PeerId) -> Result<(), GroupError> {
        if self.known(peer).ok_or(GroupError::UnknownPeer)?.join(group)? {
            self.carry_out(Command::Join { peer, group });
        }
        Ok(())
    }

    fn leave(&mut self, group: GroupId, peer: PeerId) {
        if self.known(peer).is_some_and(|known| known.leave(group)) {
            self.carry_out(Command::Leave { peer, group });
        }
    }

    fn broadcast(
        &mut self,
        group: GroupId,
        except: Option<PeerId>,
        channel: ChannelId,
        bytes: Payload<'_>,
        options: SendOptions,
    ) -> Result<(), BroadcastError> {
        let bytes = bytes.into_bytes(self.arena);
        let broadcast = Broadcast { group, except, channel, bytes, options };
        broadcast.check(self.core.message_max_bytes)?;
        Link::broadcast_elsewhere(self.links, self.worker(), &broadcast)?;
        self.core.broadcast(&broadcast);
        Ok(())
    }

    fn set_channel_options(&mut self, peer: PeerId, channel: ChannelId, options: ChannelOptions) {
        if let Some(known) = self.known(peer) {
            known.set_when_full(channel, options.when_full);
            self.carry_out(Command::Options { peer, channel, options });
        }
    }

    fn close(&mut self, peer: PeerId, code: u32, text: &str) -> Result<(), CloseError> {
        let credit = &self.known(peer).ok_or(CloseError::UnknownPeer)?.credit;
        if text.len() > CLOSE_TEXT_MAX_BYTES {
            return Err(CloseError::TextTooLong { limit_bytes: CLOSE_TEXT_MAX_BYTES });
        }
        if !credit.is_closed() {
            credit.close();
            self.carry_out(Command::Close { peer, code, text: Bytes::copy_from_slice(text.as_bytes()) });
        }
        Ok(())
    }

    fn carry_out(&mut self, command: Command) {
        self.core.carry_out(command);
    }

    fn now(&self) -> Moment {
        self.core.now.monotonic
    }

    fn worker(&self) -> usize {
        usize::from(self.core.index)
    }
}
