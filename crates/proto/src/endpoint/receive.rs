//! Receives datagrams in three stages over a batch: parses all headers, opens all packets, delivers all frames.
//!
//! Each datagram advances or is dropped with a counted reason, and no datagram stops another. Handshake datagrams
//! wait for the last stage, so that events keep the order of the batch.

use drumfire_wire::limits::TAG_BYTES;
use drumfire_wire::{ConnectionId, ConnectionIdLength, DatagramKind, TransportHeader};

use super::{Endpoint, Reply, Role};
use crate::connection::{Connection, Phase, Received, Sink};
use crate::datagram::{Forwarded, ForwardedWork, Inbound};
use crate::error::{CloseReason, ProtocolError};
use crate::hash_index::HashIndex;
use crate::ids::IdVerdict;
use crate::limits::{FORWARDS_WAITING, REPLIES_WAITING, STAGE_DATAGRAMS};
use crate::peer_id::PeerId;
use crate::placement::Placement;
use crate::route::Route;
use crate::session::{Opened, Refusal};
use crate::slab::Slab;
use crate::stats::{DropReason, add};
use crate::time::{Moment, Now};

/// The number of connections from which on connections are prefetched, because most are likely not in the cache.
const PREFETCH_MIN_CONNECTIONS: usize = 256;

/// The shortest header of a packet to a server, in bytes.
const HEADER_MIN_BYTES: usize = 1 + ConnectionId::BYTES + 2;

/// A datagram in the stages.
struct Staged<'a> {
    from: Route,
    bytes: &'a mut [u8],
    state: DatagramState,
}

enum DatagramState {
    Handshake(DatagramKind),
    /// A packet of this connection that is not opened yet.
    Parsed(PeerId, TransportHeader),
    Opened(PeerId, Opened),
    Forward(u16),
    /// A packet with an id of this shard that no connection has.
    Unknown(ConnectionId),
    Dropped(DropReason),
}

impl<P: Placement> Endpoint<P> {
    /// Processes datagrams. Packets are decrypted in place.
    pub fn handle_datagrams<'a>(&mut self, now: Now, batch: impl IntoIterator<Item = Inbound<'a>>) {
        let now = self.advance(now);
        let mut batch = batch.into_iter();
        if batch.size_hint() == (1, Some(1)) {
            // A single datagram, as a client usually receives, needs no array for a whole stage.
            for datagram in batch {
                let mut staged = self.parse(datagram);
                self.open(now, &mut staged);
                self.deliver(now, &mut staged);
            }
            return self.end_batch();
        }
        loop {
            // Stages over a batch let the prefetches of different packets overlap.
            let mut stage: [Option<Staged<'a>>; STAGE_DATAGRAMS] = std::array::from_fn(|_| None);
            let mut count = 0_usize;
            for (place, datagram) in stage.iter_mut().zip(&mut batch) {
                *place = Some(self.parse(datagram));
                count = count.saturating_add(1);
            }
            if self.connections.len() >= PREFETCH_MIN_CONNECTIONS {
                stage.iter().flatten().for_each(|staged| self.prefetch_parts(staged));
            }
            for staged in stage.iter_mut().flatten() {
                self.open(now, staged);
            }
            for staged in stage.iter_mut().flatten() {
                self.deliver(now, staged);
            }
            self.reschedule_changed();
            if count < STAGE_DATAGRAMS {
                return self.end_batch();
            }
        }
    }

    /// Processes a datagram that another shard returned from `poll_forward`.
    pub fn handle_forwarded(&mut self, now: Now, forwarded: Forwarded) {
        let now = self.advance(now);
        let (from, mut bytes) = match forwarded.work {
            ForwardedWork::Packet { from, bytes } => (from, bytes),
            ForwardedWork::Hello { sender, bytes } => {
                add(&mut self.stats.datagrams_received, 1);
                let verdict = self.on_forwarded_hello(now, sender, &bytes);
                return self.count_handshake(verdict);
            }
            ForwardedWork::Replace(hello) => return self.close_replaced(hello),
        };
        let mut staged = self.parse(Inbound { from, bytes: &mut bytes });
        if matches!(staged.state, DatagramState::Forward(_)) {
            // A datagram is forwarded only once, so that two shards that disagree cannot bounce it.
            staged.state = DatagramState::Dropped(DropReason::Misrouted);
        }
        self.open(now, &mut staged);
        self.deliver(now, &mut staged);
        self.end_batch();
    }

    fn parse<'a>(&mut self, datagram: Inbound<'a>) -> Staged<'a> {
        add(&mut self.stats.datagrams_received, 1);
        let Inbound { from, bytes } = datagram;
        let state = match DatagramKind::of(bytes) {
            Ok(DatagramKind::Transport) => self.parse_packet(bytes).unwrap_or_else(DatagramState::Dropped),
            Ok(kind) => DatagramState::Handshake(kind),
            Err(error) => DatagramState::Dropped(error.into()),
        };
        let state = match state {
            DatagramState::Dropped(reason) => DatagramState::Dropped(reason),
            // A path could lead to this address, and the operating system would refuse everything sent there. This check is
            // last, because most invalid datagrams fail another check and must stay cheap.
            _ if !from.is_answerable() => DatagramState::Dropped(DropReason::UnanswerableSource),
            state => state,
        };
        Staged { from, bytes, state }
    }

    /// Finds the connection of a packet, and prefetches it.
    fn parse_packet(&self, bytes: &[u8]) -> Result<DatagramState, DropReason> {
        let header = TransportHeader::decode(bytes, self.id_length)?;
        let peer = match (self.id_length, header.connection_id) {
            (ConnectionIdLength::Eight, Some(id)) => match owner_of(id, &self.by_id, &self.connections) {
                Some(peer) => Some(peer),
                // An id is authenticated only when no connection has it. The check costs more than the lookup, and an
                // attacker cannot cause collisions in its keyed hash.
                None => match self.ids.check(id) {
                    IdVerdict::Forged => return Err(DropReason::ForgedId),
                    IdVerdict::Elsewhere(shard) => return Ok(DatagramState::Forward(shard)),
                    IdVerdict::Ours => return Ok(DatagramState::Unknown(id)),
                },
            },
            _ => self.only,
        };
        let peer = peer.ok_or(DropReason::UnknownConnection)?;
        debug_assert!(self.connections.get(peer).is_some(), "an id leads to {peer:?}, which has ended");
        let connection = self.connections.get(peer).ok_or(DropReason::UnknownConnection)?;
        if connection.session.is_none() {
            return Err(DropReason::NoKeys);
        }
        if self.connections.len() >= PREFETCH_MIN_CONNECTIONS {
            connection.prefetch();
        }
        Ok(DatagramState::Parsed(peer, header))
    }

    /// Prefetches the parts of the connection that a packet needs.
    fn prefetch_parts(&self, staged: &Staged<'_>) {
        if let DatagramState::Parsed(peer, _) = staged.state
            && let Some(connection) = self.connections.get(peer)
        {
            connection.prefetch_parts();
        }
    }

    fn open(&mut self, now: Moment, staged: &mut Staged<'_>) {
        let DatagramState::Parsed(peer, header) = &staged.state else { return };
        let (peer, header) = (*peer, *header);
        staged.state = match self.open_packet(now, peer, &header, staged.bytes) {
            Ok(opened) => DatagramState::Opened(peer, opened),
            Err(Refusal::Drop(DropReason::Duplicate)) => {
                self.on_packet_copy(now, peer, staged.from, &header, staged.bytes);
                DatagramState::Dropped(DropReason::Duplicate)
            }
            Err(Refusal::Drop(reason)) => DatagramState::Dropped(reason),
            // Enough forged packets were tried that one might soon be accepted (RFC 9001 section 6.6). No packet is
            // opened under these keys any more, so not even a close could be exchanged.
            Err(Refusal::KeyLimit) => {
                self.end_at_key_limit(peer);
                DatagramState::Dropped(DropReason::Forged)
            }
            Err(Refusal::KeyChange) => {
                self.close_broken(peer, ProtocolError::KeyChange);
                DatagramState::Dropped(DropReason::Protocol)
            }
        };
    }

    fn open_packet(
        &mut self,
        now: Moment,
        peer: PeerId,
        header: &TransportHeader,
        bytes: &mut [u8],
    ) -> Result<Opened, Refusal> {
        let gone = Refusal::Drop(DropReason::UnknownConnection);
        let connection = self.connections.get_mut(peer).ok_or(gone)?;
        // Checked before decryption, so that a flood to one connection costs the others little.
        if !connection.take_share(now) {
            return Err(Refusal::Drop(DropReason::PassShare));
        }
        let Connection { session, loss, .. } = connection;
        session.as_mut().ok_or(gone)?.open(now, || loss.settling_time(), header, bytes)
    }

    fn deliver(&mut self, now: Moment, staged: &mut Staged<'_>) {
        match &staged.state {
            DatagramState::Dropped(reason) => self.stats.on_drop(*reason),
            DatagramState::Unknown(id) => {
                self.stats.on_drop(DropReason::UnknownConnection);
                self.reset(now, staged.from, *id);
            }
            DatagramState::Forward(shard) => {
                self.forward(*shard, || ForwardedWork::Packet {
                    from: staged.from,
                    bytes: (&*staged.bytes).into(),
                });
            }
            DatagramState::Handshake(kind) => {
                let verdict = self.on_handshake(now, *kind, staged.from, staged.bytes);
                self.count_handshake(verdict);
            }
            DatagramState::Opened(peer, opened) => {
                let (peer, number, from) = (*peer, opened.number, staged.from);
                debug_assert!(
                    opened.frames.end <= staged.bytes.len(),
                    "frames were opened outside of their packet"
                );
                let frames = staged.bytes.get_mut(opened.frames.clone()).unwrap_or_default();
                match self.deliver_packet(now, peer, from, number, frames) {
                    Ok(()) => add(&mut self.stats.packets_received, 1),
                    Err(reason) => self.stats.on_drop(reason),
                }
                self.reschedule_later(peer);
            }
            // Every parsed packet was opened or dropped in the previous stage.
            DatagramState::Parsed(..) => {
                debug_assert!(false, "a parsed packet was neither opened nor dropped");
                self.stats.on_drop(DropReason::NoKeys);
            }
        }
    }

    fn deliver_packet(
        &mut self,
        now: Moment,
        peer: PeerId,
        from: Route,
        number: u64,
        frames: &mut [u8],
    ) -> Result<(), DropReason> {
        let connection = self.connections.get_mut(peer).ok_or(DropReason::ConnectionClosed)?;
        // A packet that opens proves that the client has the keys. The connection opens before the packet is processed,
        // because it may already carry messages.
        if matches!(connection.phase.as_deref(), Some(Phase::HalfOpen(_))) {
            self.confirm(now, peer, from);
        }
        let connection = self.connections.get_mut(peer).ok_or(DropReason::ConnectionClosed)?;
        let (events, budget, stats) = (&mut self.events, &mut self.budget, &mut self.stats);
        let sink = &mut Sink { peer, events, budget, stats };
        let received = connection.on_packet(now, number, frames, sink);
        // Only a server follows a peer that moves.
        if !connection.path.is_current(from) && matches!(self.role, Role::Server(_)) {
            let is_newest = connection.session.as_ref().is_some_and(|session| session.is_newest(number));
            // At most the size of the datagram: these bytes are what may be sent to an address without a proof (RFC
            // 9000 section 8.1).
            let bytes = frames.len().saturating_add(HEADER_MIN_BYTES).saturating_add(TAG_BYTES);
            connection.path.on_packet(now, from, bytes, is_newest, &mut self.entropy);
        }
        match received {
            Received::Delivered => {
                let has_id_changes = connection.has_id_changes();
                if connection.grant.as_ref().is_some_and(|grant| grant.renew_at <= now) {
                    self.issue_resume_token(now, peer);
                }
                if has_id_changes {
                    // A resume token holds a secret, and this memory is not overwritten before the slot is used
                    // again.
                    frames.fill(0);
                    self.update_ids(peer);
                }
                Ok(())
            }
            Received::Dropped(reason) => {
                connection.record_drop(now, number, frames.len(), reason);
                Err(reason)
            }
            Received::Broken(error) => {
                connection.record_drop(now, number, frames.len(), DropReason::Protocol);
                self.close_broken(peer, error);
                Err(DropReason::Protocol)
            }
            // The peer needs no answer, so nothing is kept for it. RFC 9000 section 10.2.2 would drain the connection.
            // Here its late packets find no connection, and at most a Reset answers them.
            Received::Closed(close) => {
                let reason =
                    CloseReason::Remote { code: close.code, application_code: close.application_code };
                self.disconnected(peer, reason, close.reason);
                self.remove(peer);
                Ok(())
            }
        }
    }

    /// Registers where another copy of the newest packet came from, while the path is uncertain.
    fn on_packet_copy(
        &mut self,
        now: Moment,
        peer: PeerId,
        from: Route,
        header: &TransportHeader,
        bytes: &mut [u8],
    ) {
        let Some(connection) = self.connections.get_mut(peer) else { return };
        let Connection { path, session: Some(session), .. } = connection else { return };
        if path.is_searching() && session.is_copy_of_newest(header, bytes) {
            path.on_copy(now, from, bytes.len(), &mut self.entropy);
            // The copy may allow a challenge that had to wait.
            self.reschedule(peer);
        }
    }

    /// Queues a Reset for the sender of a packet whose connection is forgotten.
    fn reset(&mut self, now: Moment, to: Route, id: ConnectionId) {
        // Only clients process Resets. The limit is needed because any observer can send packets with an id that it saw.
        let Role::Server(responder) = &mut self.role else { return };
        if self.replies.len() < REPLIES_WAITING && responder.may_reset(now, id) {
            self.replies.push_back(Reply::Reset { to, id });
        }
    }

    /// Queues a datagram for another shard.
    pub(super) fn forward(&mut self, shard: u16, work: impl FnOnce() -> ForwardedWork) {
        // A flood of packets with ids of another shard must not grow memory. A datagram that is dropped here counts as
        // lost, and its sender repeats it.
        if self.forwards.len() >= FORWARDS_WAITING {
            self.stats.on_drop(DropReason::ForwardFull);
            return;
        }
        add(&mut self.stats.forwarded, 1);
        self.forwards.push_back(Forwarded { shard, work: work() });
    }

    fn count_handshake(&mut self, verdict: Result<HandshakeStatus, DropReason>) {
        match verdict {
            Ok(HandshakeStatus::Processed) => add(&mut self.stats.handshakes_received, 1),
            Ok(HandshakeStatus::Counted) => {}
            Err(reason) => self.stats.on_drop(reason),
        }
    }
}

/// Returns the connection whose packets carry this id.
#[inline]
pub(super) fn owner_of(
    id: ConnectionId,
    by_id: &HashIndex,
    connections: &Slab<Connection>,
) -> Option<PeerId> {
    // The index stores only a part of the hash, so the connection confirms the id.
    by_id.find(u64::from_be_bytes(id.to_bytes()), |place| {
        let peer = connections.id_at(place)?;
        connections.get(peer).filter(|connection| connection.identity.is_own(id)).map(|_| peer)
    })
}

/// Whether a handshake datagram was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HandshakeStatus {
    /// The datagram was processed, and is not counted yet.
    Processed,
    /// The datagram was already counted, as forwarded or as dropped.
    Counted,
}
