//! The worker's side of its peers: the credit that `send` looks at, and messages for which a connection has no
//! memory at the moment.
//!
//! Only peers with something waiting are visited; all of them only when the worker ends.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use drumfire_proto::{ChannelId, Endpoint, Message, Now, PeerId, Placement, SendError, WhenFull};

use super::backlog::{Backlog, Outgoing};
use super::credit::Credit;
use super::fan_out::FanOut;
use super::groups::Groups;
use crate::base::peer_map::PeerMap;

/// The peers of one worker: those whose `Connected` was reported and whose last report was not yet, and a
/// client's attempt.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    peers: PeerMap<Peer>,
    /// Those of them that are a client's attempts: kept apart, for a server has many peers and none of these.
    attempts: BTreeSet<PeerId>,
    pub(super) groups: Groups,
    /// Broadcasts for which a peer had no room, and nobody was told of yet.
    missed: BTreeMap<(PeerId, ChannelId), u32>,
    /// Those with a backlog, each once, and some that are gone.
    waiting: VecDeque<PeerId>,
    /// Those who were refused for want of room and have some again.
    writable: BTreeSet<PeerId>,
}

#[derive(Debug)]
struct Peer {
    credit: Arc<Credit>,
    /// Only while messages wait, for few peers ever need it.
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

/// What became of a message.
enum Taken {
    ByConnection,
    NotYet(Outgoing),
    ByNobody,
}

impl Peers {
    /// A client's attempt begins.
    pub(super) fn begin(&mut self, id: PeerId, credit: &Arc<Credit>) {
        self.attempts.insert(id);
        self.peers.insert(id, Peer::new(Arc::clone(credit)));
    }

    /// A peer is connected; answers its credit, made if it is new.
    pub(super) fn connected(
        &mut self,
        id: PeerId,
        limit_bytes: usize,
        message_max_bytes: usize,
    ) -> Arc<Credit> {
        if let Some(peer) = self.peers.get(id) {
            self.attempts.remove(&id);
            return Arc::clone(&peer.credit);
        }
        let credit = Arc::new(Credit::new(limit_bytes, message_max_bytes));
        self.peers.insert(id, Peer::new(Arc::clone(&credit)));
        credit
    }

    /// A peer is gone; answers how many of its messages waited.
    pub(super) fn gone(&mut self, id: PeerId) -> u64 {
        let Some(peer) = self.peers.remove(id) else { return 0 };
        self.attempts.remove(&id);
        self.writable.remove(&id);
        self.groups.gone(id);
        peer.credit.close();
        peer.waiting_count() as u64
    }

    /// All peers, which are gone from now on, and whether each was connected.
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

    /// Bytes of messages that wait for room in a peer's connection, or for their worker, charges included.
    pub(super) fn waiting_bytes(&self, id: PeerId) -> usize {
        self.peers.get(id).map_or(0, |peer| peer.credit.used_bytes())
    }

    /// Whether a peer is there and its last report was not made.
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

    /// All peers, to be closed.
    pub(super) fn ids(&self) -> Vec<PeerId> {
        self.peers.iter().map(|(id, _)| *id).collect()
    }

    /// Whether messages wait for room in a connection.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Sends a message behind those that wait and it may not overtake, unless its channel's do not wait; false when the peer
    /// is gone.
    pub(super) fn send<P: Placement>(
        &mut self,
        endpoint: &mut Endpoint<P>,
        now: Now,
        id: PeerId,
        outgoing: Outgoing,
    ) -> bool {
        let Some(peer) = self.peers.get_mut(id) else { return false };
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

    /// Sends a message for which no room was taken yet.
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

    /// Sends broadcasts to their audience. A peer without room for a message misses it. Counts the messages to peers
    /// that have no connection any more.
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

    /// The next peer that broadcasts go to.
    fn next_receiver(&self, fan_out: &mut FanOut) -> Option<PeerId> {
        match fan_out.audience()? {
            Some(group) => fan_out.next_of(|at| self.groups.members(group).get(at).map(|id| (at, *id))),
            None => fan_out.next_of(|at| {
                // A client's attempt is no connected peer.
                let mut later = self.peers.iter_from(at);
                later.find(|(_, id)| !self.attempts.contains(id))
            }),
        }
    }

    /// A peer that missed broadcasts, on which channel, and how many.
    pub(super) fn pop_missed(&mut self) -> Option<(PeerId, ChannelId, u32)> {
        loop {
            let ((id, channel), count) = self.missed.pop_first()?;
            // Nothing comes after its last report.
            if self.has(id) {
                return Some((id, channel, count));
            }
        }
    }

    /// A peer that was refused for want of room and has some again.
    pub(super) fn pop_writable(&mut self) -> Option<PeerId> {
        let id = self.next_writable()?;
        self.writable.remove(&id);
        Some(id)
    }

    /// Whether there is one to tell of.
    pub(super) fn has_writable(&self) -> bool {
        self.next_writable().is_some()
    }

    /// Nothing comes before `Connected`, so attempts wait for it.
    fn next_writable(&self) -> Option<PeerId> {
        self.writable.iter().copied().find(|id| !self.attempts.contains(id))
    }

    /// Sends what waited, as far as there is room by now; answers how many messages nobody took.
    pub(super) fn send_waiting<P: Placement>(&mut self, endpoint: &mut Endpoint<P>, now: Now) -> u64 {
        let mut lost = 0;
        for _ in 0..self.waiting.len() {
            // It leaves the queue when it is done, so that a panic does not leave its messages behind.
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

/// Gives a message to its connection, and its room back unless it must wait; notes who has been refused and has room now.
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
    // Room in a connection that is over is no news.
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
