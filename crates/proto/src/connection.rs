//! One connection: wires keys, acks, loss detection, and channels together, and holds no algorithm of its own.
//!
//! The endpoint calls [`Connection::on_packet`] for each opened packet, `build` until it returns `Nothing`, and
//! [`Connection::on_timeout`] when [`Connection::deadline`] has passed.

mod deadlines;
mod flow;
mod liveness;
mod packet;
mod prefetch;
mod receive;
mod validate;

use std::net::IpAddr;
use std::sync::Arc;

use drumfire_crypto::Entropy;
use drumfire_wire::{ChannelId, CloseCode, ConnectionId, MessageId};

use crate::acks::Acks;
use crate::channel::receive::ReceiveQueue;
use crate::channel::send_state::SendState;
use crate::congestion::Congestion;
use crate::control::{Control, ControlQueue, is_control};
use crate::convert::saturated;
use crate::epoch::EpochLimits;
use crate::handshake::HandshakeResult;
use crate::handshake::admission::TokenGrant;
use crate::handshake::client::Attempt;
use crate::handshake::half_open::HalfOpen;
use crate::identity::{ConnectionIdState, KnownIds};
use crate::ids::KeyedBuildHasher;
use crate::limits::PASS_SHARE_FRAMES;
use crate::loss::{Loss, PacketFate};
use crate::memory_budget::{BudgetShare, MemoryBudget};
use crate::path::Path;
use crate::placement::HelloHash;
use crate::recorder::FlightEvent;
use crate::session::PacketProtection;
use crate::time::Moment;

pub(crate) use deadlines::EndCause;
pub(crate) use flow::ActiveState;
pub(crate) use liveness::Liveness;
pub(crate) use packet::PacketOutcome;
pub(crate) use receive::{Received, Sink};

/// The part of the configuration that connections need. All connections of an endpoint share it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionLimits {
    // Memory
    /// The maximum number of bytes, including charges, of messages that wait to be sent or acknowledged.
    pub(crate) send_memory_bytes: usize,
    /// The maximum number of bytes, including charges, of messages that wait for each other or for the application.
    pub(crate) receive_memory_bytes: usize,
    /// The longest reliable message in bytes that this end accepts.
    pub(crate) message_max_bytes: usize,
    /// Bytes of reliable messages that the peer may send at the start before the application has taken any of them.
    pub(crate) credit_bytes: u32,
    /// The same at most, once the application takes them fast.
    pub(crate) credit_max_bytes: u32,

    // Rates
    /// The maximum number of bytes in flight, whatever the congestion window allows.
    pub(crate) in_flight_bytes: usize,
    /// The maximum number of bytes in flight on a path of which nothing is known.
    pub(crate) in_flight_start_bytes: usize,
    /// The congestion controller of each connection.
    pub(crate) congestion: Congestion,
    /// The number of datagrams of one connection that are opened in one pass.
    pub(crate) pass_share_datagrams: u16,

    // Packets
    /// The largest UDP payload in bytes that this end sends.
    pub(crate) datagram_max_bytes: u16,
    /// The number of packet numbers that the replay window of a busy connection covers.
    pub(crate) replay_window: u32,
    /// The limits at which keys are replaced, and at which they are used up.
    pub(crate) epochs: EpochLimits,

    // Diagnostics and tables
    /// Whether busy connections have a flight recorder.
    pub(crate) has_recorder: bool,
    /// The keyed hash for tables whose keys come from the peer or from the application.
    pub(crate) hash: KeyedBuildHasher,
}

/// The state of a connection that is not open. An open connection has keys on both ends, and neither end has closed
/// it.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is on the heap, and connections are seldom in any of these phases"
)]
pub(crate) enum Phase {
    /// A client that has not received its Welcome.
    Connecting(Attempt),
    /// A server that has not received the first packet.
    HalfOpen(HalfOpen),
    /// This end has closed the connection. It repeats the close until the connection is forgotten.
    Closing(Closing),
}

/// A close that is being sent to the peer.
#[derive(Debug)]
pub(crate) struct Closing {
    /// The reason given to the peer.
    pub(crate) code: CloseCode,
    /// The application's own code. Its meaning depends on `code`.
    pub(crate) application_code: u32,
    /// The application's text, empty without one.
    pub(crate) text: Box<[u8]>,
    /// The time at which the connection is forgotten.
    pub(crate) until: Moment,
    /// Whether the close waits to be sent, for the first time or again.
    pub(crate) is_due: bool,
    /// Packets received since the close. The close is repeated after the 1st, 2nd, 4th, 8th, and so on, so that a
    /// peer that keeps sending is answered ever more rarely (RFC 9000 section 10.2.1).
    pub(crate) received_count: u32,
}

/// One connection of an endpoint.
#[derive(Debug)]
pub(crate) struct Connection {
    // Handshake and identity
    /// `None` when the connection is open. Boxed, because most connections are open and need no phase.
    pub(crate) phase: Option<Box<Phase>>,
    /// On a server, the Hello that made the connection. `None` on a client.
    pub(crate) hello: Option<HelloHash>,
    /// The rights that the player's token grants. `None` on a client, and on a server without tokens.
    pub(crate) grant: Option<Box<TokenGrant>>,
    /// The connection ids by which packets reach each end.
    pub(crate) identity: ConnectionIdState,

    // Packets
    /// The keys and the packet numbers of both directions. `None` on a client that has not received its Welcome.
    pub(crate) session: Option<PacketProtection>,
    /// The peer's address, and the search for a new one.
    pub(crate) path: Path,
    /// The packets that were received, and the pending ack.
    pub(crate) acks: Acks,
    /// The packets in flight, and the probe timer.
    pub(crate) loss: Loss,
    /// The path estimates, statistics, and flight recorder. `None` while the connection is idle, so that it costs no
    /// memory.
    pub(crate) active: Option<Box<ActiveState>>,
    /// The timers that depend on silence.
    pub(crate) liveness: Liveness,
    /// The largest datagram that the peer accepts, in bytes. 0 before the handshake.
    peer_datagram_max_bytes: u16,

    // Messages and frames
    /// The messages that wait to be sent or acknowledged.
    pub(crate) sending: SendState,
    /// The messages that wait for earlier ones or for their fragments.
    pub(crate) receiving: ReceiveQueue,
    /// Frames about the connection itself that wait to be sent or acknowledged.
    pub(crate) control: ControlQueue,
    /// Charges, in bytes, of this connection's messages that wait in the endpoint's event queue.
    pub(crate) events_bytes: u32,

    // Limits
    /// The part of this connection's queues that is counted in the endpoint's memory budget.
    pub(crate) share: BudgetShare,
    /// The configuration.
    pub(crate) bounds: Arc<ConnectionLimits>,
    /// The time of the last pass with a datagram of this connection, which identifies the pass.
    pass: Moment,
    /// The number of datagrams in that pass. A datagram with many frames counts several times.
    pass_count: u16,

    // Work that is due
    /// Whether the connection is in the endpoint's queue of connections that have something to send.
    pub(crate) is_queued: bool,
    /// The next packet is a probe: it is ack-eliciting, and may exceed the congestion window.
    is_probe_due: bool,
    /// The next packet must be ack-eliciting, if necessary by a ping.
    is_ping_due: bool,
    /// A connection id was issued or retired, and the endpoint has not yet updated its tables.
    has_id_changes: bool,
    /// The window is full, and an Ack request was sent.
    is_ack_requested: bool,
}

impl Connection {
    pub(crate) fn new(
        phase: Phase,
        path: Path,
        liveness: Liveness,
        identity: ConnectionIdState,
        bounds: Arc<ConnectionLimits>,
    ) -> Self {
        Self {
            phase: Some(Box::new(phase)),
            hello: None,
            grant: None,
            identity,
            session: None,
            path,
            acks: Acks::default(),
            loss: Loss::default(),
            active: None,
            liveness,
            peer_datagram_max_bytes: 0,
            sending: SendState::new(),
            receiving: ReceiveQueue::new(bounds.hash),
            control: ControlQueue::default(),
            events_bytes: 0,
            share: BudgetShare::default(),
            bounds,
            pass: Moment::ORIGIN,
            pass_count: 0,
            is_queued: false,
            is_probe_due: false,
            is_ping_due: false,
            has_id_changes: false,
            is_ack_requested: false,
        }
    }

    /// Stores the keys and the agreed parameters. Packets of the peer can be opened from now on.
    pub(crate) fn on_handshake(
        &mut self,
        now: Moment,
        agreement: HandshakeResult,
        remote_id: Option<ConnectionId>,
        entropy: &mut Entropy,
    ) {
        let HandshakeResult { seal_keys, open_keys, timeouts, peer } = agreement;
        self.session =
            Some(PacketProtection::new(now, seal_keys, open_keys, self.bounds.replay_window, entropy));
        self.path.remote_id = remote_id;
        // Every path is assumed to carry 1,200 bytes (RFC 9000 section 14). More must be proved by a probe.
        self.path.datagram_max_bytes = peer.datagram_max_bytes.min(Path::START_BYTES);
        self.peer_datagram_max_bytes = peer.datagram_max_bytes;
        self.sending.set_parameters(peer.message_max_bytes, peer.credit_bytes);
        self.receiving.credit.set_parameters(self.bounds.credit_bytes);
        self.liveness.set_timeouts(timeouts.idle_timeout, timeouts.unacknowledged_timeout);
    }

    /// Whether both ends may send packets with messages.
    pub(crate) const fn is_open(&self) -> bool {
        self.phase.is_none()
    }

    /// Whether this end has closed the connection.
    pub(crate) fn is_closing(&self) -> bool {
        matches!(self.phase.as_deref(), Some(Phase::Closing(_)))
    }

    /// Ends the handshake. With `must_send`, a ping is due: a client must send a packet, because a server confirms the
    /// connection on the first one.
    pub(crate) fn open(&mut self, now: Moment, must_send: bool) {
        self.phase = None;
        self.is_ping_due = must_send;
        self.liveness.on_received(now);
    }

    /// Counts a datagram against this connection's share of the pass. Returns false when the share is used up.
    pub(crate) fn take_share(&mut self, now: Moment) -> bool {
        // A pass is identified by its time.
        if self.pass != now {
            self.pass = now;
            self.pass_count = 0;
        }
        let is_left = self.pass_count < self.bounds.pass_share_datagrams;
        self.pass_count = self.pass_count.saturating_add(1);
        is_left
    }

    /// Counts the frames of a packet against this connection's share of the pass.
    fn count_frames(&mut self, frame_count: usize) {
        let more = saturated(frame_count / PASS_SHARE_FRAMES, u16::MAX);
        self.pass_count = self.pass_count.saturating_add(more);
    }

    /// Starts to close. Messages that wait are sent once, as far as the limits allow, and are never retransmitted,
    /// because acks are ignored from now on. The close follows them.
    pub(crate) fn begin_closing(&mut self, now: Moment, code: CloseCode, application_code: u32, text: &[u8]) {
        // As long as RFC 9000 section 10.2 asks for: late packets of the peer still find a connection that repeats
        // the close.
        let linger = self.loss.probe_timeout().saturating_mul(crate::limits::CLOSE_LINGER_PROBES);
        let until = now.after(linger);
        let text = text.into();
        let closing = Closing { code, application_code, text, until, is_due: true, received_count: 0 };
        self.phase = Some(Box::new(Phase::Closing(closing)));
        // A closing connection accepts no more messages. The charges of delivered ones stay until they are taken.
        self.receiving = ReceiveQueue::new(self.bounds.hash);
    }

    /// Whether a packet can be built now.
    pub(crate) fn has_to_send(&self, now: Moment) -> bool {
        self.has_to_send_if(now, || self.may_send_data(now))
    }

    /// The same, for a caller that knows whether data may be sent now.
    fn has_to_send_if(&self, now: Moment, may_send_data: impl FnOnce() -> bool) -> bool {
        match self.phase.as_deref() {
            Some(Phase::Connecting(attempt)) => attempt.send_at() <= now,
            Some(Phase::HalfOpen(_)) => false,
            Some(Phase::Closing(closing)) => closing.is_due,
            // Only data is subject to the congestion window and the pacer.
            None => {
                self.is_probe_due
                    || self.is_ping_due
                    || self.path.has_to_send()
                    || self.acks.due().is_some_and(|due| due <= now)
                    || (self.has_data() && may_send_data())
            }
        }
    }

    /// Returns whether an id was issued or retired since the last call.
    pub(crate) const fn has_id_changes(&mut self) -> bool {
        std::mem::replace(&mut self.has_id_changes, false)
    }

    /// Prepares for a change of this end's own address. Returns whether the new path has another id.
    pub(crate) fn change_path(&mut self, now: Moment) -> bool {
        // Nothing is known about the size that the other path carries.
        if let Some(active) = &mut self.active {
            active.mtu.on_path_changed();
        }
        self.loss.ignore_sent_before(now);
        self.fall_back(now);
        self.change_id(now)
    }

    /// Takes a spare id for a new path, if there is one, so that an observer cannot link both paths (RFC 9000 section
    /// 9.5). The previous id is retired after packets that were sent to it have had time to arrive.
    fn change_id(&mut self, now: Moment) -> bool {
        let retire_at = now.after(self.loss.settling_time());
        // Only clients move. A server follows the address of its client, and the client brings the id.
        let ConnectionIdState::Client(ids) = &mut self.identity else { return false };
        // The next packet shows the server the client's new address, also when no spare id is left.
        self.is_ping_due = true;
        let Some((id, retired)) = ids.known.as_mut().and_then(KnownIds::change) else { return false };
        ids.retire_at = Some(retire_at);
        self.path.remote_id = Some(id);
        self.record(now, FlightEvent::IdChanged);
        // Only the id of the previous path is kept for late packets. An older one is retired now.
        if let Some(sequence) = retired {
            self.control.push(Control::RetireConnectionId(sequence));
            self.has_id_changes = true;
        }
        true
    }

    /// Restarts loss detection after packets began to go to another address. Packets to the previous address are
    /// likely lost, and must not wait for a probe timer that has backed off.
    fn on_moved(&mut self, now: Moment, from: IpAddr) {
        // A change of only the port is most often a NAT rebinding on the same path, so estimates are kept (RFC 9000
        // section 9.4).
        let is_same_host = from == self.path.route.peer.ip();
        self.record(now, FlightEvent::PathMigrated { is_same_host });
        if !is_same_host {
            self.loss.on_path_changed(now);
        }
        if let Some(active) = self.active.as_mut().filter(|_| !is_same_host) {
            active.rate.on_path_changed(now);
            active.mtu.on_path_changed();
        }
        // An idle connection has no estimates, but it remembers the size.
        if !is_same_host {
            self.fall_back(now);
        }
        // A response proved that the new address receives, so data in flight is repeated there now.
        if self.loss.has_in_flight() {
            self.loss.restart_probing(now);
            self.prepare_probe();
        }
    }

    /// Prepares a probe that the probe timer would send later. It does not count as another timeout.
    fn probe_early(&mut self, now: Moment) {
        self.loss.on_early_probe(now);
        self.prepare_probe();
    }

    /// Prepares a probe, which repeats messages in flight (RFC 9002 section 6.2.4).
    fn prepare_probe(&mut self) {
        self.is_probe_due = true;
        for id in self.loss.carried_for_probe() {
            if is_control(id) {
                self.control.repeat(id);
            } else {
                self.sending.repeat(id);
            }
        }
    }

    /// Releases the memory that an idle connection does not need. A server with many silent connections pays only for
    /// the few that speak.
    fn shrink(&mut self, now: Moment) {
        self.liveness.on_shrunk();
        self.path.shrink();
        self.shrink_loss();
        self.acks.shrink();
        self.active = None;
        // Ids of receipts start again after this, as those of control frames do.
        if !self.loss.has_packets() {
            self.sending.shrink();
        }
        let largest = self.newest_received();
        let keeps_keys = self.keys_forgotten_at().is_some_and(|due| due > now);
        self.receiving.shrink(largest, keeps_keys);
        if let Some(session) = &mut self.session {
            session.shrink();
        }
    }

    /// Releases the memory of loss detection and of control frames, if no packet is in flight.
    fn shrink_loss(&mut self) {
        self.loss.shrink();
        // The fate ids of control frames start again after this, so `loss` must not hold any.
        if !self.loss.has_packets() {
            self.control.shrink();
        }
    }

    /// Forgets the version of a key that will not be used again.
    pub(crate) fn forget_key(&mut self, channel: ChannelId, key: u64) {
        let largest = self.newest_received();
        self.receiving.forget_key(channel, key, largest);
    }

    /// Asserts what must hold between two calls, in builds with debug assertions.
    pub(crate) fn assert_invariants(&self) {
        // Other builds do not even walk the queues.
        if !cfg!(debug_assertions) {
            return;
        }
        // Only `send` adds to these queues, and it refuses messages beyond the limit. A caller that counts memory itself may have
        // taken as much again before it learns of the messages of others.
        let (waits_bytes, limit_bytes) = (self.sending.used_bytes(), self.bounds.send_memory_bytes);
        debug_assert!(waits_bytes <= limit_bytes.saturating_mul(2), "{waits_bytes} bytes wait to be sent");
        self.acks.assert_invariants();
        self.loss.assert_invariants();
        self.path.assert_invariants();
        self.sending.assert_invariants();
        self.receiving.assert_invariants();
        self.control.assert_invariants();
        self.identity.assert_invariants();
        self.active.iter().for_each(|active| active.rate.assert_invariants());
        if self.is_open() {
            debug_assert!(self.session.is_some(), "a connection without keys is open");
            debug_assert!(
                self.path.datagram_max_bytes <= self.peer_datagram_max_bytes,
                "the peer is sent datagrams of {} bytes, and accepts {}",
                self.path.datagram_max_bytes,
                self.peer_datagram_max_bytes
            );
            // A peer that violates the rules of key changes may leave the keys of a closing connection in any state.
            self.session.iter().for_each(PacketProtection::assert_invariants);
        }
    }

    /// Updates the endpoint's memory budget with the bytes that both directions' queues hold now.
    pub(crate) fn update_budget(&mut self, budget: &mut MemoryBudget) {
        budget.count(&mut self.share, self.receiving.used_bytes().saturating_add(self.sending.used_bytes()));
    }

    /// Removes this connection from the endpoint's memory budget.
    pub(crate) fn leave_budget(&mut self, budget: &mut MemoryBudget) {
        budget.count(&mut self.share, 0);
        budget.on_taken(self.events_bytes());
    }

    /// The largest packet number that was opened.
    fn newest_received(&self) -> u64 {
        let largest = self.session.as_ref().and_then(crate::session::PacketProtection::largest);
        largest.map_or(0, |largest| largest.0)
    }
}

/// Reports the fate of a packet to the queue whose message or frame it carried.
fn route_fate(
    sending: &mut SendState,
    control: &mut ControlQueue,
    fate: PacketFate,
    id: MessageId,
    packet: u64,
) {
    if is_control(id) {
        control.on_fate(fate, id, packet);
    } else {
        sending.on_fate(fate, id, packet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_connection_is_bounded() {
        // An idle connection holds nothing else on the heap.
        let bytes = size_of::<Connection>();
        assert!(bytes <= 680, "{bytes}");
    }
}
