//! The calls of an application that concern one peer or a broadcast.
//!
//! A handler and a tick server without threads call the core of the worker. With threads, the application's side of the workers
//! collects commands.

use drumfire_proto::{Message, PeerId, Placement, ReceiptId, SendError};

use super::command::{Broadcast, Command};
use super::core::Core;
use crate::message::group::GroupId;

/// The calls of an application. The documentation of `Server` describes them.
pub(crate) trait Actions {
    fn send(&mut self, peer: PeerId, message: Message) -> Result<(), SendError>;

    fn send_with_receipt(&mut self, peer: PeerId, message: Message) -> Result<ReceiptId, SendError>;

    fn broadcast(&mut self, broadcast: Broadcast) -> Result<(), SendError>;

    fn join(&mut self, peer: PeerId, group: GroupId) -> bool;

    /// Carries out a command that concerns a peer and has no result. Does nothing if the peer has disconnected.
    fn command(&mut self, peer: PeerId, command: Command);

    fn close(&mut self, peer: PeerId, code: u32, text: &str) {
        self.command(peer, Command::close(peer, code, text));
    }

    /// Whether messages to a peer may be accepted: it is connected, or a client connects to it, and this end has not closed the
    /// connection.
    fn is_connected(&self, peer: PeerId) -> bool;
}

impl<P: Placement> Actions for Core<P> {
    fn send(&mut self, peer: PeerId, message: Message) -> Result<(), SendError> {
        self.send_here(peer, message, None)
    }

    fn send_with_receipt(&mut self, peer: PeerId, message: Message) -> Result<ReceiptId, SendError> {
        // The endpoint stores the receipt with the message, so it exists before the send. A refusal closes it again.
        let receipt = self.receipts.issue(peer);
        let sent = self.send_here(peer, message, Some(receipt));
        if sent.is_err() {
            self.receipts.close(peer, receipt);
        }
        sent.map(|()| receipt)
    }

    fn broadcast(&mut self, broadcast: Broadcast) -> Result<(), SendError> {
        broadcast.check(self.limits.message_max_bytes)?;
        self.add_broadcast(&broadcast);
        Ok(())
    }

    fn join(&mut self, peer: PeerId, group: GroupId) -> bool {
        self.fan_out();
        self.join_group(peer, group)
    }

    fn command(&mut self, _: PeerId, command: Command) {
        self.carry_out(command);
    }

    fn is_connected(&self, peer: PeerId) -> bool {
        self.peers.has(peer) && (self.endpoint.is_open(peer) || self.endpoint.is_connecting(peer))
    }
}

impl<P: Placement> Core<P> {
    /// Gives a message of the worker's own thread to its connection.
    fn send_here(
        &mut self,
        peer: PeerId,
        message: Message,
        receipt: Option<ReceiptId>,
    ) -> Result<(), SendError> {
        // Earlier broadcasts are sent first, so that all messages of a peer keep their order.
        self.fan_out();
        if !self.peers.has(peer) {
            return Err(SendError::UnknownPeer);
        }
        if self.reconnects() && self.endpoint.is_connecting(peer) {
            return Err(SendError::NotConnected);
        }
        let sent = self.endpoint.send_with_receipt(self.now, peer, message, receipt);
        // A panic after this point does not belong to a connection.
        self.endpoint.clear_current();
        match sent {
            // The application has not taken the last event of the connection yet.
            Err(SendError::Closed | SendError::UnknownPeer) if self.connects_again(peer) => {
                Err(SendError::NotConnected)
            }
            Err(SendError::UnknownPeer) => Err(SendError::Closed),
            sent => sent,
        }
    }
}
