//! The handle by which other threads send messages to peers, and notes to handlers. No call waits, and all queues are bounded.

use std::sync::Arc;

use drumfire_proto::{Message, PeerId, SendError};

use crate::base::sync::Mailbox;
use crate::config::NOTES_MAX;
use crate::message::group::Audience;
use crate::worker::channel::WorkerChannel;
use crate::worker::command::{Broadcast, Command};
use crate::worker::send_edge::check_length;

/// A handle that sends to the handlers and to all peers of a server, from any thread. Clones belong to the same server.
///
/// A message goes to the worker that owns the peer. A `Remote` does not know whether the peer is still connected. A message to a peer that
/// has disconnected is counted as [`messages_undelivered`](crate::stats::WorkerStats::messages_undelivered).
///
/// ```
/// # use std::time::Duration;
/// # use drumfire::*;
/// struct Announcer;
///
/// impl Handler for Announcer {
///     type Note = &'static str;
///
///     fn on_message(&mut self, _: &mut Context<'_>, _: PeerId, _: ChannelId, _: &[u8]) {}
///
///     fn on_event(&mut self, context: &mut Context<'_>, event: Event) {
///         if let Event::Connected { peer, .. } = event {
///             context.join(peer, GroupId(0));
///             let _ = context.send(peer, Message::reliable_ordered(ChannelId(0), "welcome"));
///         }
///     }
///
///     fn on_note(&mut self, context: &mut Context<'_>, note: &'static str) {
///         let _ = context.broadcast(Audience::ALL, Message::reliable_ordered(ChannelId(0), note));
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
/// let server = handler::Server::bind(config.workers(Workers::Count(1)), |_worker| Announcer)?;
/// # let mut client = Client::new(ClientConfig::default())?;
/// # client.connect((server.local_addr(), ServerKey::dev().public()))?;
/// # while !client.events().any(|event| matches!(event, Event::Message { .. })) {
/// #     client.poll(Duration::from_millis(1));
/// # }
/// # while server.control().stats().workers[0].protocol.connections_opened == 0 {
/// #     client.poll(Duration::from_millis(1));
/// # }
/// let remote = server.remote();
/// std::thread::spawn(move || remote.send_note(0, "the storm is coming"));
/// # while !client.events().any(|event| matches!(event, Event::Message { .. })) {
/// #     client.poll(Duration::from_millis(1));
/// # }
/// # Ok(())
/// # }
/// ```
pub struct Remote<N> {
    links: Arc<[Arc<WorkerChannel>]>,
    mailboxes: Arc<[Arc<Mailbox<N>>]>,
}

impl<N> Clone for Remote<N> {
    fn clone(&self) -> Self {
        Self { links: Arc::clone(&self.links), mailboxes: Arc::clone(&self.mailboxes) }
    }
}

impl<N> Remote<N> {
    pub(super) fn new(links: Arc<[Arc<WorkerChannel>]>, mailboxes: Arc<[Arc<Mailbox<N>>]>) -> Self {
        Self { links, mailboxes }
    }

    /// Sends a message to a peer of any worker. It has no receipt.
    ///
    /// # Errors
    ///
    /// [`SendError`]. The message was not accepted. `TooLarge`: the message is longer than its mode or the configuration allows. `Full`:
    /// too many messages wait for the worker. `UnknownPeer`: the id names a worker that this server does not have. Only the worker knows
    /// whether the peer itself exists and has room, so those errors are counted there and not returned.
    pub fn send(&self, peer: PeerId, message: Message) -> Result<(), SendError> {
        let link = self.links.get(peer.worker()).ok_or(SendError::UnknownPeer)?;
        let payload_bytes = message.payload.len();
        check_length(payload_bytes, message.options.mode, link.limits.message_max_bytes)?;
        if !link.take_room(payload_bytes) {
            return Err(SendError::Full);
        }
        link.send_command(Command::Post { peer, message });
        Ok(())
    }

    /// Sends a message to many peers.
    ///
    /// # Errors
    ///
    /// `TooLarge` or `Full`, as [`Server::broadcast`](crate::Server::broadcast) says.
    pub fn broadcast(&self, to: impl Into<Audience>, message: Message) -> Result<(), SendError> {
        let broadcast = Broadcast { audience: to.into(), message };
        WorkerChannel::broadcast_elsewhere(&self.links, usize::MAX, &broadcast)
    }

    /// Closes the connection of a peer with an application code and a text for the log of the peer, which is cut to 128 bytes. Does nothing
    /// if the peer has disconnected.
    pub fn close(&self, peer: PeerId, code: u32, text: &str) {
        if let Some(link) = self.links.get(peer.worker()) {
            link.send_command(Command::close(peer, code, text));
        }
    }

    /// Sends a note to the handler of the worker with this index, and wakes the worker. Its next pass calls
    /// [`Handler::on_note`](crate::Handler::on_note).
    ///
    /// # Errors
    ///
    /// Returns the note if [`NOTES_MAX`] notes wait for the worker, or if there is no such worker.
    pub fn send_note(&self, worker: usize, note: N) -> Result<(), N> {
        let (Some(mailbox), Some(link)) = (self.mailboxes.get(worker), self.links.get(worker)) else {
            return Err(note);
        };
        mailbox.put(note, NOTES_MAX)?;
        link.notify_worker();
        Ok(())
    }

    /// Returns the number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.links.len()
    }
}

impl<N> std::fmt::Debug for Remote<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("workers", &self.workers()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    #[test]
    fn notes_come_in_their_order_and_end_at_the_bound() {
        let links: Arc<[_]> =
            Arc::from([Arc::new(WorkerChannel::new(Arc::default(), crate::worker::channel::tests::LIMITS))]);
        let mailbox = Arc::new(Mailbox::default());
        let remote = Remote::new(links, Arc::from([Arc::clone(&mailbox)]));
        for number in 0..NOTES_MAX {
            remote.send_note(0, number).unwrap();
        }
        assert_eq!(remote.send_note(0, NOTES_MAX), Err(NOTES_MAX), "a note that does not fit is returned");
        assert_eq!(remote.send_note(1, 1), Err(1), "there is no such worker");
        let mut taken = VecDeque::new();
        mailbox.take(&mut taken);
        assert!(taken.iter().copied().eq(0..NOTES_MAX));
        remote.send_note(0, 1).unwrap();
        mailbox.take(&mut taken);
        assert_eq!((taken.len(), taken.back()), (NOTES_MAX + 1, Some(&1)));
    }
}
