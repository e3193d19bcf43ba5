//! The peers of a worker: the credit of each, and the messages for which its connection has no memory yet.
//!
//! A pass visits only peers with waiting messages, so its cost does not grow with the number of idle peers. Only broadcasts,
//! surveys, and the end of the worker visit others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use drumfire_proto::{ChannelId, Endpoint, Message, Now, PeerId, Placement, SendError, WhenFull};

use super::backlog::{Backlog, Outgoing};
use super::credit::Credit;
use super::fan_out::FanOut;
use super::groups::Groups;
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
    /// The peers with a backlog, each once. It may still contain peers that are gone.
    waiting: VecDeque<PeerId>,
    /// The peers with room again after a message was refused with `Full`, and that were not reported yet.
    writable: BTreeSet<PeerId>,
}

#[derive(Debug)]
struct Peer {
    credit: Arc<Credit>,
    /// `None` unless messages wait. Boxed to keep the table small, because few peers ever have a backlog.
    backlog: Option<Box<Backlog>>,
}

impl Peer {
    const fn new(credit: Arc<Credit>) -> Self {
        Self { credit, backlog: None }
    }

    fn waiting_count(&self) -> usize {
        self.backlog.as_ref().map_or(0, |backlog| backlog.len())
    }
}

/// The result of a message's hand-over to its connection.
enum Taken {
    /// The connection accepted the message.
    ByConnection,
    /// The connection has no memory for the message, which must wait.
    NotYet(Outgoing),
    /// The connection is over or refused the message, which is lost.
    ByNobody,
}

impl Peers {
    /// Adds a client's attempt to connect. Its id may be that of an earlier connection.
    pub(super) fn begin(&mut self, id: PeerId, credit: &Arc<Credit>) {
        self.waiting.retain(|waiting| *waiting != id);
        self.attempts.insert(id);
        self.peers.insert(id, Peer::new(Arc::clone(credit)));
    }

    /// Adds a connected peer, or marks a client's attempt as connected. Returns the credit of the peer.
    pub(super) fn connected(
        &mut self,
        id: PeerId,
        limit_bytes: usize,
        message_max_bytes: usize,
    ) -> Arc<Credit> {
        if let Some(peer) = self.peers.get(id) {
            self.attempts.remove(&id);
            peer.credit.set_connected();
            return Arc::clone(&peer.credit);
        }
        let credit = Arc::new(Credit::new(limit_bytes, message_max_bytes));
        self.peers.insert(id, Peer::new(Arc::clone(&credit)));
        credit
    }

    /// Removes a peer. Returns its credit, which the caller ends, and the number of its messages that waited.
    pub(super) fn gone(&mut self, id: PeerId) -> Option<(Arc<Credit>, u64)> {
        let peer = self.peers.remove(id)?;
        self.attempts.remove(&id);
        self.writable.remove(&id);
        self.groups.gone(id);
        let waiting_count = peer.waiting_count() as u64;
        Some((peer.credit, waiting_count))
    }

    /// Removes and returns all peers, and whether each was connected.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = (PeerId, bool)> {
        self.waiting.clear();
        self.groups.clear();
        self.missed.clear();
        self.writable.clear();
        let attempts = std::mem::take(&mut self.attempts);
        self.peers.take_all().map(move |(id, peer)| {
            peer.credit.close();
            (id, !attempts.contains(&id))
        })
    }

    /// Returns the bytes of messages to a peer that wait for room in its connection or for the worker, charges included.
    pub(super) fn waiting_bytes(&self, id: PeerId) -> usize {
        self.peers.get(id).map_or(0, |peer| peer.credit.used_bytes())
    }

    /// Whether the peer is present: it was added, and its last event has not been reported yet.
    pub(super) fn has(&self, id: PeerId) -> bool {
        self.peers.get(id).is_some()
    }

    /// The number of slots, including empty ones.
    pub(super) fn slot_count(&self) -> usize {
        self.peers.slot_count()
    }

    /// Visits the peers in `count` slots from `from` on, with the [`Peers::waiting_bytes`] of each.
    pub(super) fn look(&mut self, from: usize, count: usize, mut look: impl FnMut(PeerId, usize)) {
        self.peers.walk(from, count, |id, peer| look(id, peer.credit.used_bytes()));
    }

    /// Returns the ids of all peers, including attempts.
    pub(super) fn ids(&self) -> Vec<PeerId> {
        self.peers.iter().map(|(id, _)| *id).collect()
    }

    /// Whether messages wait for room in a connection.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Gives a message, for which room was taken, to the connection, or appends it to the backlog. Returns false if the
    /// message is lost.
    pub(super) fn send<P: Placement>(
        &mut self,
        endpoint: &mut Endpoint<P>,
        now: Now,
        id: PeerId,
        outgoing: Outgoing,
    ) -> bool {
        // Another thread may have got room at the connection before this attempt. The attempt does not know of that room.
        let Some(peer) = self.peers.get_mut(id).filter(|peer| !peer.credit.is_connecting()) else {
            return false;
        };
        // A message must not overtake others of its channel, or others that are at least as urgent. It does not wait behind
        // them unless its channel blocks when full.
        if let Some(backlog) = &mut peer.backlog
            && backlog.holds_up(&outgoing)
            && endpoint.when_full(id, outgoing.message.channel) == WhenFull::Block
        {
            backlog.push(outgoing);
            return true;
        }
        match push(endpoint, now, id, outgoing, &peer.credit, &mut self.writable) {
            Taken::ByConnection => true,
            Taken::ByNobody => false,
            Taken::NotYet(outgoing) => {
                if peer.backlog.is_none() {
                    self.waiting.push_back(id);
                }
                peer.backlog.get_or_insert_default().push(outgoing);
                true
            }
        }
    }

    /// Takes room for a message and sends it.
    pub(super) fn offer<P: Placement>(
        &mut self,
        endpoint: &mut Endpoint<P>,
        now: Now,
        id: PeerId,
        message: Message,
    ) -> Result<(), SendError> {
        let peer = self.peers.get(id).ok_or(SendError::UnknownPeer)?;
        let must_wait = endpoint.when_full(id, message.channel) == WhenFull::Block;
        peer.credit.admit(message.payload.len(), &message.options, must_wait)?;
        let is_taken = self.send(endpoint, now, id, Outgoing { message, receipt: None });
        if is_taken { Ok(()) } else { Err(SendError::Closed) }
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
        while let Some(id) = self.next_receiver(fan_out) {
            for message in fan_out.to(id) {
                match self.offer(endpoint, now, id, message.clone()) {
                    Ok(()) => {}
                    Err(SendError::Full | SendError::TooLarge { .. }) => {
                        let count = self.missed.entry((id, message.channel)).or_default();
                        *count = count.saturating_add(1);
                    }
                    Err(_) => *undelivered += 1,
                }
            }
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

    /// Removes and returns a connected peer that has room again after a refused message.
    pub(super) fn pop_writable(&mut self) -> Option<PeerId> {
        let id = self.next_writable()?;
        self.writable.remove(&id);
        Some(id)
    }

    /// Whether [`Peers::pop_writable`] returns a peer.
    pub(super) fn has_writable(&self) -> bool {
        self.next_writable().is_some()
    }

    /// Returns the first writable peer that is connected. No event precedes `Connected`, so attempts are skipped.
    fn next_writable(&self) -> Option<PeerId> {
        self.writable.iter().copied().find(|id| !self.attempts.contains(id))
    }

    /// Moves waiting messages into connections with room for them. Returns the number of lost messages.
    pub(super) fn send_waiting<P: Placement>(&mut self, endpoint: &mut Endpoint<P>, now: Now) -> u64 {
        let mut lost = 0;
        for _ in 0..self.waiting.len() {
            // The peer stays in the queue until it is done, so that a panic does not strand its remaining messages.
            let Some(&id) = self.waiting.front() else { break };
            let mut is_waiting = false;
            if let Some(peer) = self.peers.get_mut(id) {
                while let Some(outgoing) = peer.backlog.as_mut().and_then(|backlog| backlog.pop()) {
                    match push(endpoint, now, id, outgoing, &peer.credit, &mut self.writable) {
                        Taken::ByConnection => {}
                        Taken::ByNobody => lost += 1,
                        Taken::NotYet(outgoing) => {
                            peer.backlog.get_or_insert_default().put_back(outgoing);
                            is_waiting = true;
                            break;
                        }
                    }
                }
                if !is_waiting {
                    peer.backlog = None;
                }
            }
            self.waiting.pop_front();
            if is_waiting {
                self.waiting.push_back(id);
            }
        }
        lost
    }
}

/// Gives a message to its connection. Unless the message must wait, returns its room to `credit`, and adds the peer to `writable`
/// if a refused sender must be notified.
fn push<P: Placement>(
    endpoint: &mut Endpoint<P>,
    now: Now,
    id: PeerId,
    outgoing: Outgoing,
    credit: &Credit,
    writable: &mut BTreeSet<PeerId>,
) -> Taken {
    let Outgoing { message, receipt } = &outgoing;
    let payload_bytes = message.payload.len();
    let answer = endpoint.send_with_receipt(now, id, message.clone(), *receipt);
    if answer == Err(SendError::Full) {
        return Taken::NotYet(outgoing);
    }
    // `Writable` for a closed connection would be useless.
    let is_over = matches!(answer, Err(SendError::Closed | SendError::UnknownPeer));
    if credit.give(payload_bytes) && !is_over {
        writable.insert(id);
    }
    if answer.is_ok() { Taken::ByConnection } else { Taken::ByNobody }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_takes_24_bytes_of_the_table() {
        assert_eq!(size_of::<Option<(PeerId, Peer)>>(), 24);
    }
}
