//! The peers of a worker, from `Connected` to their last event, and the broadcasts to them.
//!
//! A pass visits only peers with changes, so its cost does not grow with the number of idle peers. Only broadcasts, surveys, and the end of
//! the worker visit others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use drumfire_proto::{ChannelId, Endpoint, IfFull, Message, Now, PeerId, Placement, ReceiptId};

use super::fan_out::FanOut;
use super::groups::Groups;
use super::send_edge::{SendEdge, charge};
use crate::base::peer_map::PeerMap;

/// The peers of one worker, from `Connected` to their last event. On a client, also its attempts to connect.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    peers: PeerMap<Peer>,
    /// The peers in `peers` that are a client's attempts. A separate set costs a server nothing per peer, because it has none.
    attempts: BTreeSet<PeerId>,
    pub(super) groups: Groups,
    /// The number of broadcasts that a peer missed on a channel and that were not reported yet.
    missed: BTreeMap<(PeerId, ChannelId), u32>,
    /// The peers with room again after a message was refused on another thread, and that were not reported yet.
    writable: BTreeSet<PeerId>,
}

/// The state of a peer for senders on other threads.
#[derive(Debug, Default)]
struct Peer {
    /// `None` if all senders are on the worker's thread.
    edge: Option<Arc<SendEdge>>,
    /// The sum of the bytes that arrived from senders on other threads, charges included.
    received_bytes: u64,
}

impl Peer {
    fn waiting_bytes(&self) -> usize {
        self.edge.as_ref().map_or(0, |edge| edge.on_the_way_bytes(self.received_bytes))
    }
}

impl Peers {
    /// Adds a client's attempt to connect. Its id may be that of an earlier connection.
    pub(super) fn begin(&mut self, id: PeerId, edge: Option<Arc<SendEdge>>) {
        self.attempts.insert(id);
        self.peers.insert(id, Peer { edge, received_bytes: 0 });
    }

    /// Adds a connected peer, or marks a client's attempt as connected. Returns the edge of the peer, which `make` creates for a new
    /// peer.
    pub(super) fn connected(
        &mut self,
        id: PeerId,
        make: impl FnOnce() -> Option<Arc<SendEdge>>,
    ) -> Option<Arc<SendEdge>> {
        if let Some(peer) = self.peers.get(id) {
            // Messages may already count in the edge of the attempt, so the connection continues with it.
            self.attempts.remove(&id);
            peer.edge.iter().for_each(|edge| edge.set_connected());
            return peer.edge.clone();
        }
        let edge = make();
        self.peers.insert(id, Peer { edge: edge.clone(), received_bytes: 0 });
        edge
    }

    /// Removes a peer. Returns its edge, which the caller ends.
    pub(super) fn remove(&mut self, id: PeerId) -> Option<Arc<SendEdge>> {
        let peer = self.peers.remove(id)?;
        self.attempts.remove(&id);
        self.writable.remove(&id);
        // Only the entries in `missed` stay, and `pop_missed` skips them.
        self.groups.remove_peer(id);
        peer.edge
    }

    /// Removes and returns all peers, and whether each was connected.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = (PeerId, bool)> {
        self.groups.clear();
        self.missed.clear();
        self.writable.clear();
        let attempts = std::mem::take(&mut self.attempts);
        self.peers.take_all().map(move |(id, peer)| {
            peer.edge.iter().for_each(|edge| edge.close());
            (id, !attempts.contains(&id))
        })
    }

    /// Whether the peer is present: it was added, and its last event has not been reported yet.
    pub(super) fn has(&self, id: PeerId) -> bool {
        self.peers.get(id).is_some()
    }

    /// Whether the peer is present and is not a client's attempt.
    pub(super) fn is_connected(&self, id: PeerId) -> bool {
        self.has(id) && !self.attempts.contains(&id)
    }

    /// The number of slots, including empty ones.
    pub(super) fn slot_count(&self) -> usize {
        self.peers.slot_count()
    }

    /// Returns the bytes of messages to a peer that wait for the worker, charges included.
    pub(super) fn waiting_bytes(&self, id: PeerId) -> usize {
        self.peers.get(id).map_or(0, Peer::waiting_bytes)
    }

    /// Visits the peers in `count` slots from `from` on, with the [`Peers::waiting_bytes`] of each.
    pub(super) fn visit(&self, from: usize, count: usize, mut visit: impl FnMut(PeerId, usize)) {
        self.peers.range(from, count).for_each(|(id, peer)| visit(*id, peer.waiting_bytes()));
    }

    /// Returns the ids of all peers, including attempts.
    pub(crate) fn ids(&self) -> impl Iterator<Item = PeerId> {
        self.peers.iter().map(|(id, _)| *id)
    }

    /// The number of peers, including attempts.
    pub(crate) const fn len(&self) -> usize {
        self.peers.len()
    }

    /// Gives a message that a [`SendAccount`](super::send_edge::SendAccount) has admitted to its connection. Returns false if the
    /// message is lost, because the connection is over or its peer accepts only shorter messages.
    pub(super) fn send<P: Placement>(
        &mut self,
        endpoint: &mut Endpoint<P>,
        now: Now,
        id: PeerId,
        message: Message,
        receipt: Option<ReceiptId>,
    ) -> bool {
        let Some(peer) = self.peers.get_mut(id) else { return false };
        let Some(edge) = &peer.edge else { return false };
        // The message was admitted for an earlier connection of a client. The edge of this attempt does not count it.
        if edge.is_not_connected() {
            return false;
        }
        // The sender has counted the message in any case. Both sums must stay equal, so it is counted here before the
        // endpoint decides.
        peer.received_bytes = peer.received_bytes.saturating_add(charge(message.payload.len()));
        let is_taken = endpoint.send_with(now, id, message, receipt, IfFull::Accept).is_ok();
        // The endpoint reports no freed memory for a message that it did not take, so its room is returned here.
        if !is_taken {
            self.publish_edge(endpoint, id);
        }
        is_taken
    }

    /// Publishes the send edge of a peer after a change of its send memory.
    pub(super) fn publish_edge<P: Placement>(&mut self, endpoint: &Endpoint<P>, id: PeerId) {
        let Some(peer) = self.peers.get(id) else { return };
        let Some(edge) = &peer.edge else { return };
        if edge.publish(peer.received_bytes, endpoint.undelivered_bytes(id)) {
            self.writable.insert(id);
        }
    }

    /// Publishes the send edges of all peers whose send queues have freed memory.
    pub(super) fn publish_freed<P: Placement>(&mut self, endpoint: &mut Endpoint<P>) {
        while let Some(id) = endpoint.poll_freed() {
            self.publish_edge(endpoint, id);
        }
    }

    /// Sends broadcasts to their audience. A peer misses a message that it has no room for or that is too long for it. Adds
    /// the number of messages to closed connections to `undelivered`.
    pub(super) fn fan_out<P: Placement>(
        &mut self,
        endpoint: &mut Endpoint<P>,
        now: Now,
        fan_out: &mut FanOut,
        undelivered: &mut u64,
    ) {
        fan_out.sort();
        while let Some(id) = self.next_receiver(fan_out) {
            fan_out.each_part(id, |part, mut range| {
                // One call sends what there is room for. Each message for which there is no room has a call of its own, because
                // there may be room for a shorter one after it.
                while !range.is_empty() {
                    match part.send(endpoint, now, id, range.clone()) {
                        // A slow receiver misses messages and does not delay the others. `Missed` reports their number.
                        Ok(0) => {
                            let count = self.missed.entry((id, part.channel())).or_default();
                            *count = count.saturating_add(1);
                            range.start += 1;
                        }
                        Ok(count) => range.start += count,
                        // The connection is over, and the application has not taken its last event yet.
                        Err(_) => {
                            *undelivered += range.len() as u64;
                            return;
                        }
                    }
                }
            });
            // One publication serves all messages to this receiver.
            self.publish_edge(endpoint, id);
        }
        fan_out.clear();
    }

    /// Returns the next receiver of the broadcasts.
    fn next_receiver(&self, fan_out: &mut FanOut) -> Option<PeerId> {
        match fan_out.audience()? {
            Some(group) => fan_out.next_of(|at| self.groups.members(group).get(at).map(|id| (at, *id))),
            None => fan_out.next_of(|at| {
                // An attempt is not a connected peer yet.
                let mut later = self.peers.iter_from(at);
                later.find(|(_, id)| !self.attempts.contains(id))
            }),
        }
    }

    /// Removes and returns a peer that missed broadcasts, their channel, and their number.
    pub(super) fn pop_missed(&mut self) -> Option<(PeerId, ChannelId, u32)> {
        loop {
            let ((id, channel), count) = self.missed.pop_first()?;
            // No event follows the last one of a peer.
            if self.has(id) {
                return Some((id, channel, count));
            }
        }
    }

    /// Removes and returns a connected peer that has room again after a refused message. No event precedes `Connected`, so attempts
    /// are skipped.
    pub(super) fn pop_writable(&mut self) -> Option<PeerId> {
        let id = self.writable.iter().copied().find(|id| !self.attempts.contains(id))?;
        self.writable.remove(&id);
        Some(id)
    }

    /// Whether there are entries of missed messages, also of peers that have disconnected, or peers whose senders can continue.
    pub(super) fn may_have_notices(&self) -> bool {
        !self.missed.is_empty() || !self.writable.is_empty()
    }

    /// Whether [`Peers::pop_missed`] or [`Peers::pop_writable`] may return a peer.
    pub(super) fn has_notices(&self) -> bool {
        self.missed.keys().any(|(id, _)| self.has(*id)) || !self.writable.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_takes_32_bytes_of_the_table() {
        assert_eq!(size_of::<Option<(PeerId, Peer)>>(), 32);
    }
}
