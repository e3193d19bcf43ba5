//! The actions of a handler during a call. They take effect immediately, on the thread of the handler.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;
use drumfire_proto::{ChannelId, ChannelOptions, Message, Moment, PeerId, Placement, ReceiptId, SendError};

use crate::message::group::{Audience, GroupId};
use crate::worker::actions::Actions;
use crate::worker::arena::Arena;
use crate::worker::channel::WorkerChannel;
use crate::worker::command::{Broadcast, Command};
use crate::worker::core::Core;

/// The actions of a handler during a call. They reach the peers of this worker. A [`Remote`](crate::handler::Remote) reaches the peers of
/// all workers.
pub struct Context<'a> {
    core: &'a mut dyn Actions,
    arena: &'a RefCell<Arena>,
    /// The channels to all workers.
    links: &'a [Arc<WorkerChannel>],
    now: Moment,
    worker: usize,
}

impl<'a> Context<'a> {
    /// Creates the context of calls at this core. Servers and clients have cores of different types.
    pub(super) fn new<P: Placement>(
        core: &'a mut Core<P>,
        arena: &'a RefCell<Arena>,
        links: &'a [Arc<WorkerChannel>],
    ) -> Self {
        let (now, worker) = (core.now.monotonic, usize::from(core.index));
        Self { core, arena, links, now, worker }
    }

    /// Queues a message for a peer of this worker. It is sent when the handler has processed all events of this pass.
    ///
    /// # Errors
    ///
    /// [`SendError`], as [`Server::send`](crate::Server::send) says. The message was not accepted. The error is `UnknownPeer` for the peers
    /// of other workers too.
    pub fn send(&mut self, peer: PeerId, message: Message) -> Result<(), SendError> {
        self.core.send(peer, message)
    }

    /// Queues a message as [`Context::send`] does. [`Event::Receipt`](crate::Event::Receipt) reports its outcome once, before
    /// `Disconnected`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Context::send`].
    pub fn send_with_receipt(&mut self, peer: PeerId, message: Message) -> Result<ReceiptId, SendError> {
        self.core.send_with_receipt(peer, message)
    }

    /// Copies a borrowed payload, such as the one of `on_message`, so that it can be sent. The copy is in memory that the worker reuses.
    #[must_use]
    pub fn copy(&self, payload: &[u8]) -> Bytes {
        self.arena.borrow_mut().copy(payload)
    }

    /// Adds a peer of this worker to a group. Groups have members at all workers. Returns whether the peer is a member now: `false` if it
    /// has disconnected, belongs to another worker, or is in [`GROUPS_PER_PEER_MAX`](crate::config::GROUPS_PER_PEER_MAX) groups.
    pub fn join(&mut self, peer: PeerId, group: GroupId) -> bool {
        self.core.join(peer, group)
    }

    /// Removes a peer from a group. Does nothing if the peer is not a member.
    pub fn leave(&mut self, peer: PeerId, group: GroupId) {
        self.core.command(peer, Command::Leave { peer, group });
    }

    /// Queues a message for many peers, as [`Server::broadcast`](crate::Server::broadcast) does. The
    /// messages to peers of this worker are sent after the current pass. Another worker sends to its own peers after
    /// its next pass.
    ///
    /// # Errors
    ///
    /// `TooLarge` or `Full`, as [`Server::broadcast`](crate::Server::broadcast) says.
    pub fn broadcast(&mut self, to: impl Into<Audience>, message: Message) -> Result<(), SendError> {
        let broadcast = Broadcast { audience: to.into(), message };
        // The other workers come first, because one without room refuses the broadcast.
        WorkerChannel::broadcast_elsewhere(self.links, self.worker, &broadcast)?;
        self.core.broadcast(broadcast)
    }

    /// Sets how the messages of a channel are sent. Does nothing if the peer has disconnected.
    pub fn set_channel_options(&mut self, peer: PeerId, channel: ChannelId, options: ChannelOptions) {
        self.core.command(peer, Command::Options { peer, channel, options });
    }

    /// Requests the statistics of a peer's connection and its path. [`Event::Stats`](crate::Event::Stats) contains them, unless the peer
    /// has disconnected.
    pub fn request_stats(&mut self, peer: PeerId) {
        self.core.command(peer, Command::Measure { peer });
    }

    /// Requests the flight record of a peer's connection. [`Event::FlightRecord`](crate::Event::FlightRecord) contains it, unless the peer
    /// has disconnected or was silent for five seconds.
    pub fn request_flight_record(&mut self, peer: PeerId) {
        self.core.command(peer, Command::Record { peer });
    }

    /// Forgets the last value of a key, as [`Server::forget_key`](crate::Server::forget_key) does.
    pub fn forget_key(&mut self, peer: PeerId, channel: ChannelId, key: u64) {
        self.core.command(peer, Command::Forget { peer, channel, key });
    }

    /// Closes the connection of a peer with an application code and a text for the log of the peer, which is cut to 128 bytes. Messages
    /// that still wait are sent once, as far as congestion control allows, and are not retransmitted.
    /// [`Event::Disconnected`](crate::Event::Disconnected) follows. Does nothing if the peer has disconnected.
    pub fn close(&mut self, peer: PeerId, code: u32, text: &str) {
        self.core.close(peer, code, text);
    }

    /// Returns the time of the server's clock, which is the same during a pass.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.now
    }

    /// Returns the index of this worker, from 0.
    #[must_use]
    pub fn worker(&self) -> usize {
        self.worker
    }
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("worker", &self.worker).finish_non_exhaustive()
    }
}
