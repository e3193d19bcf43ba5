//! The application's side of the links to all workers.
//!
//! It decides immediately whether a message is accepted, collects commands until the next flush, and takes the events of the
//! workers. It belongs to one thread and does no I/O.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use drumfire_proto::{ChannelId, ChannelOptions, Message, Outcome, PeerId, ReceiptId, SendError};

use super::invalidate::{self, SeedSource};
use super::peer_state::Known;
use crate::base::error::Error;
use crate::base::peer_map::PeerMap;
use crate::base::sync::Pending;
use crate::config::CLOSE_TEXT_MAX_BYTES;
use crate::message::event::Event;
use crate::message::group::GroupId;
use crate::observe::stats::Stats;
use crate::worker::channel::{Batch, WorkerChannel};
use crate::worker::command::{Broadcast, Command};
use crate::worker::credit::Credit;

/// The state of the application's thread: the peers, the commands for the workers, and the events from them.
#[derive(Debug)]
pub(crate) struct Front {
    /// The link to each worker, by index.
    links: Arc<[Arc<WorkerChannel>]>,
    /// The peers of each worker. A peer is added with its `Connected` event, or when a client starts to connect. It is removed
    /// with its last event.
    peers: Vec<PeerMap<Known>>,
    /// The commands for each worker since the last flush.
    staged: Vec<Vec<Command>>,
    /// The events that were taken from the workers. Empty between two calls, and kept for its memory.
    incoming: Batch,
    /// The length in bytes of the longest reliable message that this end sends.
    message_max_bytes: usize,
}

impl Front {
    pub(crate) fn new(links: Arc<[Arc<WorkerChannel>]>, message_max_bytes: usize) -> Self {
        let staged = links.iter().map(|_| Vec::new()).collect();
        let peers = links.iter().map(|_| PeerMap::default()).collect();
        Self { links, peers, staged, incoming: Batch::default(), message_max_bytes }
    }

    /// Adds the peer of a client that starts to connect, so that messages are accepted before `Connected`.
    pub(crate) fn add(&mut self, peer: PeerId, credit: Arc<Credit>) {
        if let Some(peers) = self.peers.get_mut(peer.worker()) {
            peers.insert(peer, Known::new(credit));
        }
    }

    /// Accepts a message for a peer.
    pub(crate) fn send(&mut self, peer: PeerId, message: Message) -> Result<(), SendError> {
        self.admit(peer, &message)?;
        self.stage(Command::Send { peer, message, receipt: None }, peer);
        Ok(())
    }

    /// Accepts a message for a peer. Returns the receipt that identifies its outcome.
    pub(crate) fn send_with_receipt(
        &mut self,
        peer: PeerId,
        message: Message,
    ) -> Result<ReceiptId, SendError> {
        let receipt = self.admit(peer, &message)?.draw_receipt();
        self.stage(Command::Send { peer, message, receipt: Some(receipt) }, peer);
        Ok(receipt)
    }

    /// Reserves memory for a message to a peer.
    fn admit(&mut self, peer: PeerId, message: &Message) -> Result<&mut Known, SendError> {
        let known = self.known(peer).ok_or(SendError::UnknownPeer)?;
        known.admit(message.channel, message.payload.len(), &message.options)?;
        Ok(known)
    }

    /// Returns the peers of all workers.
    pub(crate) fn peers(&self) -> impl ExactSizeIterator<Item = PeerId> {
        let ids = self.peers.iter().flat_map(|peers| peers.iter().map(|(peer, _)| *peer));
        Counted { left: self.peers.iter().map(PeerMap::len).sum(), iter: ids }
    }

    /// Whether messages to a peer may be accepted: it is connected, and this end has not closed the connection.
    pub(crate) fn is_connected(&self, peer: PeerId) -> bool {
        self.credit(peer).is_some_and(|credit| !credit.is_closed())
    }

    /// Closes the connection of a peer, and cuts the text to [`CLOSE_TEXT_MAX_BYTES`]. Returns false for a peer that is gone.
    pub(crate) fn close(&mut self, peer: PeerId, code: u32, text: &str) -> bool {
        let Some(credit) = self.credit(peer) else { return false };
        if !credit.is_closed() {
            credit.close();
            self.stage(close_command(peer, code, text), peer);
        }
        true
    }

    /// Sets the options of a channel. A peer that is gone is ignored.
    pub(crate) fn set_channel_options(&mut self, peer: PeerId, channel: ChannelId, options: ChannelOptions) {
        if let Some(known) = self.known(peer) {
            known.set_when_full(channel, options.when_full);
            self.stage(Command::Options { peer, channel, options }, peer);
        }
    }

    /// Requests the statistics of a peer, which arrive as an event. A peer that is gone has no such event.
    pub(crate) fn request_stats(&mut self, peer: PeerId) {
        if self.credit(peer).is_some() {
            self.stage(Command::Measure { peer }, peer);
        }
    }

    /// Requests the flight record of a peer, which arrives as an event. A peer that is gone or idle has no such event.
    pub(crate) fn request_flight_record(&mut self, peer: PeerId) {
        if self.credit(peer).is_some() {
            self.stage(Command::Record { peer }, peer);
        }
    }

    /// Commands the worker to forget the last value of `key` in a channel. A peer that is gone is ignored.
    pub(crate) fn forget_key(&mut self, peer: PeerId, channel: ChannelId, key: u64) {
        if self.credit(peer).is_some() {
            self.stage(Command::Forget { peer, channel, key }, peer);
        }
    }

    /// Adds a peer to a group. Returns whether it is a member now.
    pub(crate) fn join(&mut self, peer: PeerId, group: GroupId) -> bool {
        let Some(is_new) = self.known(peer).and_then(|known| known.join(group)) else { return false };
        if is_new {
            self.stage(Command::Join { peer, group }, peer);
        }
        true
    }

    /// Removes a peer from a group.
    pub(crate) fn leave(&mut self, peer: PeerId, group: GroupId) {
        if self.known(peer).is_some_and(|known| known.leave(group)) {
            self.stage(Command::Leave { peer, group }, peer);
        }
    }

    /// Accepts a message for the audience on all workers.
    pub(crate) fn broadcast(&mut self, broadcast: Broadcast) -> Result<(), SendError> {
        broadcast.check(self.message_max_bytes)?;
        WorkerChannel::take_room_of_all(self.links.iter(), broadcast.message.payload.len())?;
        let broadcast = Arc::new(broadcast);
        for staged in &mut self.staged {
            staged.push(Command::Broadcast(Arc::clone(&broadcast)));
        }
        Ok(())
    }

    /// Commands the workers to invalidate all keys. Staged messages stay here, because they could be sent with these keys.
    pub(crate) fn invalidate_keys(&self, seed_source: &mut SeedSource) -> Pending<Result<(), Error>> {
        invalidate::command(&self.links, seed_source)
    }

    fn known(&mut self, peer: PeerId) -> Option<&mut Known> {
        self.peers.get_mut(peer.worker())?.get_mut(peer)
    }

    fn credit(&self, peer: PeerId) -> Option<&Credit> {
        self.peers.get(peer.worker())?.get(peer).map(|known| known.credit.as_ref())
    }

    fn stage(&mut self, command: Command, peer: PeerId) {
        // Always `Some`, because only workers with a link have peers.
        if let Some(staged) = self.staged.get_mut(peer.worker()) {
            staged.push(command);
        }
    }

    /// Whether commands wait for a flush, or events wait for the application.
    pub(crate) fn has_work(&self) -> bool {
        self.staged.iter().any(|staged| !staged.is_empty())
            || self.links.iter().any(|link| link.has_reports())
    }

    /// Hands the staged commands to the workers. Returns whether there were any.
    pub(crate) fn flush(&mut self) -> bool {
        let mut has_flushed = false;
        for (link, staged) in self.links.iter().zip(&mut self.staged) {
            if !staged.is_empty() {
                link.command(staged);
                has_flushed = true;
            }
        }
        has_flushed
    }

    /// Takes the events of all workers. The caller must read all of them.
    pub(crate) fn gather(&mut self) -> impl Iterator<Item = Event> {
        for link in self.links.iter() {
            link.take_reports(&mut self.incoming);
        }
        let Batch { events, credits, .. } = &mut self.incoming;
        let mut at = 0;
        while let Some(event) = events.get(at) {
            // Receipts that are open when the connection ends are reported as lost, before the event of the end.
            for (peer, receipt) in note(&mut self.peers, credits, event) {
                events.insert(at, Event::Receipt { peer, receipt, outcome: Outcome::Lost });
                at += 1;
            }
            at += 1;
        }
        self.incoming.drain()
    }

    /// Returns the statistics of all workers.
    pub(crate) fn stats(&self) -> Stats {
        Stats { workers: self.links.iter().map(|link| link.stats()).collect(), ..Stats::default() }
    }
}

/// An iterator with a known number of items.
struct Counted<I> {
    iter: I,
    left: usize,
}

impl<I: Iterator> Iterator for Counted<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let item = self.iter.next()?;
        self.left -= 1;
        Some(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<I: Iterator> ExactSizeIterator for Counted<I> {}

/// Returns the command that closes the connection of a peer. Cuts the text to [`CLOSE_TEXT_MAX_BYTES`].
pub(crate) fn close_command(peer: PeerId, code: u32, text: &str) -> Command {
    let text = &text[..text.floor_char_boundary(CLOSE_TEXT_MAX_BYTES)];
    Command::Close { peer, code, text: Bytes::copy_from_slice(text.as_bytes()) }
}

/// Updates the peers with an event. Returns the open receipts of a peer if the event ends its connection. `credits` has the
/// credit of each peer that connects or reconnects, in the order of the events.
fn note(
    peers: &mut [PeerMap<Known>],
    credits: &mut VecDeque<Arc<Credit>>,
    event: &Event,
) -> Vec<(PeerId, ReceiptId)> {
    let peer = event.peer();
    let Some(peers) = peers.get_mut(peer.worker()) else { return Vec::new() };
    match event {
        Event::Connected { .. } => {
            let credit = credits.pop_front();
            debug_assert!(credit.is_some(), "a new peer without credit");
            // A client is a peer since it started to connect. Its state has receipts and options that must be kept.
            if let Some(credit) = credit.filter(|_| peers.get(peer).is_none()) {
                peers.insert(peer, Known::new(credit));
            }
        }
        Event::Reconnecting { .. } => {
            let credit = credits.pop_front();
            debug_assert!(credit.is_some(), "an attempt without credit");
            let (Some(credit), Some(known)) = (credit, peers.get_mut(peer)) else { return Vec::new() };
            return known.reconnect(credit).into_iter().map(|receipt| (peer, receipt)).collect();
        }
        Event::ConnectFailed { .. } | Event::Disconnected { .. } => {
            let gone = peers.remove(peer);
            return gone.into_iter().flat_map(Known::into_open).map(|receipt| (peer, receipt)).collect();
        }
        Event::Receipt { receipt, .. } => {
            if let Some(known) = peers.get_mut(peer) {
                known.answered(*receipt);
            }
        }
        _ => {}
    }
    Vec::new()
}
