//! The application's side of workers that run on other threads.
//!
//! It decides immediately whether a message is accepted, collects commands until the next flush, and takes the events of the
//! workers. It belongs to one thread and does no I/O.

use std::sync::Arc;

use drumfire_proto::{Message, PeerId, ReceiptId, SendError};

use super::peer_state::PeerState;
use crate::base::peer_map::PeerMap;
use crate::message::event::Event;
use crate::message::group::GroupId;
use crate::worker::actions::Actions;
use crate::worker::channel::{Batch, WorkerChannel};
use crate::worker::command::{Broadcast, Command};
use crate::worker::direct::KnownLength;
use crate::worker::receipts::OpenReceipts;

/// The state of the application's thread: the peers, the commands for the workers, and the events from them.
#[derive(Debug)]
pub(crate) struct AppSide {
    /// The channel to each worker, by index.
    links: Arc<[Arc<WorkerChannel>]>,
    /// The peers of each worker, from their `Connected` event to their last event.
    peers: Vec<PeerMap<PeerState>>,
    /// The receipts that have no outcome yet.
    receipts: OpenReceipts,
    /// The commands for each worker since the last flush.
    staged: Vec<Vec<Command>>,
    /// The events that were taken from the workers, and not by the application.
    incoming: Batch,
}

impl AppSide {
    pub(crate) fn new(links: Arc<[Arc<WorkerChannel>]>) -> Self {
        let staged = links.iter().map(|_| Vec::new()).collect();
        let peers = links.iter().map(|_| PeerMap::default()).collect();
        let receipts = OpenReceipts::default();
        Self { links, peers, receipts, staged, incoming: Batch::default() }
    }

    /// Returns the peers of all workers.
    pub(crate) fn peers(&self) -> impl ExactSizeIterator<Item = PeerId> {
        let ids = self.peers.iter().flat_map(|peers| peers.iter().map(|(peer, _)| *peer));
        KnownLength { left: self.peers.iter().map(PeerMap::len).sum(), ids }
    }

    fn peer(&mut self, peer: PeerId) -> Option<&mut PeerState> {
        self.peers.get_mut(peer.worker())?.get_mut(peer)
    }

    /// Counts a message to a peer, if there is room for it.
    fn admit(&mut self, peer: PeerId, message: &Message) -> Result<(), SendError> {
        let state = self.peer(peer).ok_or(SendError::UnknownPeer)?;
        state.admit(message.channel, message.payload.len(), &message.options)
    }

    fn stage(&mut self, command: Command, peer: PeerId) {
        let staged = self.staged.get_mut(peer.worker());
        debug_assert!(staged.is_some(), "{peer} belongs to a worker");
        if let Some(staged) = staged {
            staged.push(command);
        }
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

    /// Returns the oldest event.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.incoming.events.pop_front()
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.incoming.events.is_empty()
    }

    /// Takes the events of all workers.
    pub(crate) fn take_events(&mut self) {
        let mut at = self.incoming.events.len();
        for link in self.links.iter() {
            link.take_reports(&mut self.incoming);
        }
        let Self { peers, receipts, incoming, .. } = self;
        let Batch { events, edges, bytes } = incoming;
        // Events that were taken from the channel do not count there any more.
        *bytes = 0;
        while let Some(event) = events.get(at) {
            let peer = event.peer();
            let peers = peers.get_mut(peer.worker());
            match event {
                Event::Connected { .. } => {
                    let edge = edges.pop_front();
                    debug_assert!(edge.is_some(), "a new peer has a send edge");
                    if let Some((peers, edge)) = peers.zip(edge) {
                        peers.insert(peer, PeerState::new(edge));
                    }
                }
                Event::Disconnected { .. } => {
                    peers.into_iter().for_each(|peers| _ = peers.remove(peer));
                    // Receipts that are open when the connection ends are reported as lost, before the event of the end.
                    for lost in receipts.lose(peer) {
                        events.insert(at, lost);
                        at += 1;
                    }
                }
                Event::Receipt { receipt, .. } => receipts.close(peer, *receipt),
                _ => {}
            }
            at += 1;
        }
        debug_assert!(edges.is_empty(), "a send edge without its event");
    }
}

impl Actions for AppSide {
    fn send(&mut self, peer: PeerId, message: Message) -> Result<(), SendError> {
        self.admit(peer, &message)?;
        self.stage(Command::Send { peer, message, receipt: None }, peer);
        Ok(())
    }

    fn send_with_receipt(&mut self, peer: PeerId, message: Message) -> Result<ReceiptId, SendError> {
        self.admit(peer, &message)?;
        let receipt = self.receipts.issue(peer);
        self.stage(Command::Send { peer, message, receipt: Some(receipt) }, peer);
        Ok(receipt)
    }

    fn broadcast(&mut self, broadcast: Broadcast) -> Result<(), SendError> {
        WorkerChannel::take_room_of_all(self.links.iter(), &broadcast)?;
        // The copies share the payload.
        for staged in &mut self.staged {
            staged.push(Command::Broadcast(broadcast.clone()));
        }
        Ok(())
    }

    fn join(&mut self, peer: PeerId, group: GroupId) -> bool {
        let Some(is_new) = self.peer(peer).and_then(|state| state.join(group)) else { return false };
        if is_new {
            self.stage(Command::Join { peer, group }, peer);
        }
        true
    }

    fn command(&mut self, peer: PeerId, command: Command) {
        if self.peer(peer).is_some_and(|state| state.apply(&command)) {
            self.stage(command, peer);
        }
    }

    fn is_connected(&self, peer: PeerId) -> bool {
        let state = self.peers.get(peer.worker()).and_then(|peers| peers.get(peer));
        state.is_some_and(|state| !state.account.is_closed())
    }
}
