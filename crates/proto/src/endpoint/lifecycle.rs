//! The scheduling of connections, and their end.

use std::collections::hash_map::Entry;

use drumfire_wire::{CloseCode, ConnectionId};

use super::receive::owner_of;
use super::{Endpoint, Role};
use crate::connection::{Connection, EndCause, Phase};
use crate::error::{CloseReason, ConnectError, ProtocolError};
use crate::event::Events;
use crate::identity::{ConnectionIdState, KnownIds};
use crate::ids::{NoConnectionId, PeerMap};
use crate::limits::{DEFERS_BEFORE_WAIT, RESUME_LIFETIME, STAGE_DATAGRAMS};
use crate::memory_budget::MemoryBudget;
use crate::peer_id::PeerId;
use crate::placement::{HelloHash, Placement};
use crate::recorder::is_abnormal;
use crate::stats::add;
use crate::time::{Moment, Now, part};

impl<P: Placement> Endpoint<P> {
    /// Performs everything that is due.
    pub fn handle_timeout(&mut self, now: Now) {
        let now = self.advance(now);
        while let Some(index) = self.timers.pop_due(now) {
            let peer = self.connections.id_at(index);
            debug_assert!(peer.is_some(), "the timer of slot {index} was not disarmed with its connection");
            let Some(peer) = peer else { continue };
            let Some(connection) = self.connections.get_mut(peer) else { continue };
            let lost_before = connection.loss.lost_count();
            let end = connection.on_timeout(now);
            let has_id_changes = connection.has_id_changes();
            add(&mut self.stats.packets_lost, connection.loss.lost_count().saturating_sub(lost_before));
            match end {
                // A timer may be early, see `timers`. The connection is armed again for what is due next.
                None => {
                    if has_id_changes {
                        self.update_ids(peer);
                    }
                    self.reschedule(peer);
                }
                Some(EndCause::Forgotten) => self.remove(peer),
                Some(EndCause::NotConnected(error)) => {
                    self.events.connect_failed(peer, error);
                    self.remove(peer);
                }
                Some(EndCause::SessionEnded) => self.close_for(peer, CloseCode::SessionEnded),
                Some(EndCause::TimedOut(reason)) => {
                    self.disconnected(peer, reason, &[]);
                    self.remove(peer);
                }
            }
        }
        self.clear_current();
        self.assert_invariants();
    }

    /// Registers that a connection changed. It is rescheduled once for several changes in a row.
    ///
    /// Several connections are rescheduled together. Otherwise the code that handles packets and the code that arms
    /// timers would replace each other in the instruction cache with every packet.
    pub(super) fn reschedule_later(&mut self, peer: PeerId) {
        if self.to_reschedule.back() == Some(&peer) {
            return;
        }
        if self.to_reschedule.len() == STAGE_DATAGRAMS {
            self.reschedule_changed();
        }
        self.to_reschedule.push_back(peer);
    }

    /// Reschedules the connections that changed, except those that have ended since.
    #[inline(never)]
    pub(super) fn reschedule_changed(&mut self) {
        while let Some(peer) = self.to_reschedule.pop_front() {
            self.reschedule(peer);
        }
    }

    /// Finishes a batch of datagrams.
    pub(super) fn end_batch(&mut self) {
        self.reschedule_changed();
        self.clear_current();
        self.assert_invariants();
    }

    /// Reschedules a connection after any change that may give it something to do: queues it if it has something to send, and arms its
    /// timer.
    pub(super) fn reschedule(&mut self, peer: PeerId) {
        let Some(connection) = self.connections.get_mut(peer) else { return };
        on_changed(peer, connection, &mut self.events, &mut self.budget);
        if connection.is_open() && connection.sending.take_writable() {
            self.events.writable(peer);
        }
        if self.reports_freed && connection.sending.has_freed() && !connection.sending.set_listed(true) {
            self.freed.push_back(peer);
        }
        if !connection.is_queued && connection.has_to_send(self.now) {
            connection.is_queued = true;
            self.active.push_back(peer);
        }
        // A queued connection is rescheduled when it leaves the queue. Until then any timer is early enough.
        if connection.is_queued && self.timers.is_armed(peer.slot()) {
            return;
        }
        let deadline = connection.deadline(self.now);
        self.timers.arm(self.now, peer.slot(), deadline);
    }

    /// Defers timers at the head of the queue whose connections have nothing due, most often because the ack that
    /// they were armed for was sent with other data. A wake-up for nothing costs more than the rest of the work for a
    /// packet.
    pub(super) fn defer_head(&mut self) {
        for _ in 0..DEFERS_BEFORE_WAIT {
            let Some((index, armed)) = self.timers.front() else { return };
            let peer = self.connections.id_at(index);
            // A queued connection is rescheduled when it leaves the queue.
            let connection =
                peer.and_then(|peer| self.connections.get(peer)).filter(|connection| !connection.is_queued);
            match connection.map(|connection| connection.deadline(self.now)) {
                Some(deadline) if deadline > armed => self.timers.defer(index, deadline),
                _ => return,
            }
        }
    }

    /// Applies a packet's changes to the ids of a connection: forgets retired ids, issues others in their place, and
    /// registers new ones so that a Reset for them is recognized.
    pub(super) fn update_ids(&mut self, peer: PeerId) {
        let Some(connection) = self.connections.get_mut(peer) else { return };
        match &mut connection.identity {
            ConnectionIdState::Server(issued) => {
                let mut is_any_retired = false;
                while let Some(id) = issued.pop_retired() {
                    self.by_id.remove(u64::from_be_bytes(id.to_bytes()), peer.slot());
                    is_any_retired = true;
                }
                // The client must have a spare id when it moves next, so a retired one is replaced (RFC 9000 section
                // 5.1.1).
                if is_any_retired {
                    self.issue_spare_ids(peer);
                }
            }
            ConnectionIdState::Client(ids) => {
                let Some(known) = &mut ids.known else { return };
                // Servers choose the ids, so two connections may have the same, and one may have the same id twice.
                while let Some(id) = known.pop_retired() {
                    forget_server_id(&mut self.by_server_id, id, peer);
                }
                // A Reset names one of the server's ids. With a single connection there is nothing to look up.
                if self.only.is_none() {
                    for id in known.ids() {
                        self.by_server_id.insert(u64::from_be_bytes(id.id.to_bytes()), peer);
                    }
                }
            }
        }
    }

    /// Gives a player another resume token when the last one has used up half its lifetime.
    pub(super) fn issue_resume_token(&mut self, now: Moment, peer: PeerId) {
        let (Role::Server(responder), Some(connection)) = (&self.role, self.connections.get_mut(peer)) else {
            return;
        };
        let Some(session) = connection.hello else { return };
        let Some(grant) = connection.grant.as_mut().filter(|grant| grant.renew_at <= now) else { return };
        // At half of the lifetime, so that a connection that fails at any time leaves a token with at least the other
        // half.
        grant.renew_at = now.after(part(RESUME_LIFETIME, 2));
        if let Some(token) = responder.resume_token(self.wall, session, grant, &mut self.entropy) {
            connection.control.push_resume(token);
        }
    }

    /// Draws a connection id that no connection uses.
    pub(super) fn draw_id(&mut self) -> Result<ConnectionId, NoConnectionId> {
        let Self { ids, entropy, by_id, connections, .. } = self;
        ids.draw(entropy, |id| owner_of(id, by_id, connections).is_some())
    }

    /// Registers the id in packets to a connection.
    pub(super) fn register_id(&mut self, peer: PeerId, local_id: Option<ConnectionId>) {
        match local_id {
            Some(id) => {
                self.by_id.insert(u64::from_be_bytes(id.to_bytes()), peer.slot());
            }
            None => self.only = Some(peer),
        }
    }

    /// Queues the last event of an open connection.
    pub(super) fn disconnected(&mut self, peer: PeerId, reason: CloseReason, text: &[u8]) {
        // The receipts and the flight record come before `Disconnected`, which is the last event of a connection.
        self.report_receipts(peer);
        add(&mut self.stats.connections_closed, 1);
        self.report_flight_record(peer, reason);
        self.events.disconnected(peer, reason, text);
    }

    /// Queues the flight record of a connection that ends abnormally.
    fn report_flight_record(&mut self, peer: PeerId, reason: CloseReason) {
        if is_abnormal(reason)
            && let Some(record) =
                self.connection(peer).and_then(|connection| connection.flight_record(self.now, Some(reason)))
            && !self.events.flight_record(peer, record)
        {
            add(&mut self.stats.flight_records_dropped, 1);
        }
    }

    fn report_receipts(&mut self, peer: PeerId) {
        let Some(connection) = self.connections.get_mut(peer) else { return };
        while let Some((receipt, outcome)) = connection.sending.pop_receipt() {
            self.events.receipt(peer, receipt, outcome);
        }
    }

    /// Closes a connection whose peer violated the protocol, and notifies the peer.
    pub(super) fn close_broken(&mut self, peer: PeerId, error: ProtocolError) {
        match self.connections.get(peer).map(|connection| connection.phase.as_deref()) {
            Some(None) => {}
            // The application has not received an event for it yet.
            Some(Some(Phase::HalfOpen(_))) => return self.remove(peer),
            // The connection is already closing.
            _ => return,
        }
        self.disconnected(peer, CloseReason::Protocol(error), error.name().as_bytes());
        if let Some(connection) = self.connections.get_mut(peer) {
            // A peer that violates the protocol cannot be trusted to count messages, so none are sent to it.
            connection.sending.clear();
            connection.begin_closing(self.now, CloseCode::Protocol, 0, error.name().as_bytes());
        }
        self.reschedule(peer);
    }

    /// Closes the connection that this Hello made, because its player has a newer one.
    pub(super) fn close_replaced(&mut self, hello: HelloHash) {
        if let Some(peer) = self.connection_of_hello(hello) {
            self.close_for(peer, CloseCode::Replaced);
        }
    }

    /// Closes an open connection for a reason of the protocol, and notifies both sides.
    pub(super) fn close_for(&mut self, peer: PeerId, code: CloseCode) {
        let Some(connection) = self.connections.get_mut(peer) else { return };
        if !connection.is_open() {
            return;
        }
        connection.begin_closing(self.now, code, 0, &[]);
        self.disconnected(peer, CloseReason::Local { code, application_code: 0 }, &[]);
        self.reschedule(peer);
    }

    /// Ends a connection whose keys are used up. Nothing can be sealed or opened any more.
    pub(super) fn end_at_key_limit(&mut self, peer: PeerId) {
        if self.connections.get(peer).is_some_and(Connection::is_open) {
            self.disconnected(peer, CloseReason::KeyLimit, &[]);
        }
        self.remove(peer);
    }

    /// Ends the connection in whose code a call of this endpoint panicked, and returns its id. No further code of
    /// that connection runs. Returns `None` when the panic was outside of any connection. The peer is not notified,
    /// but receives a Reset where that is possible. All other connections continue.
    pub fn end_panicked(&mut self) -> Option<PeerId> {
        let peer = self.connections.clear_current()?;
        // Receipts and flight records are left out: collecting them would run more of the code that panicked.
        match self.connections.get(peer)?.phase.as_deref() {
            None => {
                let reason = CloseReason::Local { code: CloseCode::Internal, application_code: 0 };
                add(&mut self.stats.connections_closed, 1);
                self.events.disconnected(peer, reason, &[]);
            }
            Some(Phase::Connecting(_)) => self.events.connect_failed(peer, ConnectError::Closed),
            Some(Phase::HalfOpen(_) | Phase::Closing(_)) => {}
        }
        self.remove(peer);
        Some(peer)
    }

    /// Marks that no connection's code is running.
    pub fn clear_current(&mut self) {
        self.connections.clear_current();
    }

    /// Forgets a connection. Its id is stale from now on, unless the application has reserved it.
    pub(super) fn remove(&mut self, peer: PeerId) {
        let Some(connection) = self.connections.get_mut(peer) else { return };
        // All entries of the connection in tables are removed first, and then the connection with its keys. Only its id in
        // `active` stays, because a search would cost more. The id is stale then, and is skipped.
        let mut reserved = None;
        connection.leave_budget(&mut self.budget);
        self.timers.disarm(peer.slot());
        match &mut connection.identity {
            ConnectionIdState::Server(issued) => {
                for id in issued.all() {
                    self.by_id.remove(u64::from_be_bytes(id.to_bytes()), peer.slot());
                }
            }
            ConnectionIdState::Client(ids) => {
                if ids.keeps_id {
                    reserved = Some(ids.known.as_mut().and_then(|known| known.resume.take()));
                }
                match ids.own {
                    Some(id) => {
                        self.by_id.remove(u64::from_be_bytes(id.to_bytes()), peer.slot());
                    }
                    None => self.only = None,
                }
                for id in ids.known.iter().flat_map(KnownIds::ids) {
                    forget_server_id(&mut self.by_server_id, id.id, peer);
                }
            }
        }
        if let Some(hash) = connection.hello {
            self.by_hello.remove(hash.to_key(), peer.slot());
            self.placement.release(hash);
        }
        // Connections in these phases are listed or counted in one more place.
        match (connection.phase.as_deref(), &mut self.role) {
            (Some(Phase::Connecting(attempt)), _) => {
                self.by_client_id.remove(&u64::from_be_bytes(attempt.client_id().0));
            }
            (Some(Phase::HalfOpen(half_open)), Role::Server(responder)) => {
                responder.end_half_open(half_open.source());
            }
            _ => {}
        }
        match reserved {
            Some(token) => {
                self.connections.vacate(peer);
                self.reserved.insert(peer, token);
            }
            None => {
                self.connections.remove(peer);
            }
        }
    }
}

/// Forgets that a server's id belongs to this connection.
fn forget_server_id(by_server_id: &mut PeerMap, id: ConnectionId, peer: PeerId) {
    if let Entry::Occupied(entry) = by_server_id.entry(u64::from_be_bytes(id.to_bytes()))
        && *entry.get() == peer
    {
        entry.remove();
    }
}

/// Queues the receipts that a change of the connection decided, and counts the memory that its queues hold now.
pub(super) fn on_changed(
    peer: PeerId,
    connection: &mut Connection,
    events: &mut Events,
    budget: &mut MemoryBudget,
) {
    connection.assert_invariants();
    while let Some((receipt, outcome)) = connection.sending.pop_receipt() {
        // A closing connection still gives up messages. The application has already received the end of the
        // connection.
        if !connection.is_closing() {
            events.receipt(peer, receipt, outcome);
        }
    }
    // The budget follows the queues only here. One step may fill and empty them several times.
    connection.update_budget(budget);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ClientConfig, Config, ServerConfig, ServerIdentity};
    use crate::datagram::Inbound;
    use crate::placement::SingleWorker;
    use drumfire_crypto::{Secret, ServerKeyPair};
    use std::net::SocketAddr;
    use std::time::Duration;

    #[test]
    fn a_client_forgets_the_ids_that_it_retired() {
        let (here, there): (SocketAddr, SocketAddr) =
            (([192, 0, 2, 1], 5_000).into(), ([198, 51, 100, 1], 7_777).into());
        let seed = |byte| Secret::new([byte; 32]);
        let keys = ServerKeyPair::from_secret(seed(1));
        let identity = ServerIdentity { public_key: *keys.public(), key_id: 0 };
        let config = ServerConfig::new(keys, seed(2), seed(3));
        let mut server =
            Endpoint::server(Config::default(), config, SingleWorker::default(), seed(4)).unwrap();
        let mut client = Endpoint::client(Config::default(), ClientConfig::many(), seed(5)).unwrap();
        let mut now = Now { monotonic: Moment::from_nanos(1_000_000_000), wall: Duration::ZERO };
        let peer = client.connect(now, there, &identity, None).unwrap();
        let (mut memory, mut changes) = ([0; 1_200], 0);
        for millisecond in 0..20_000 {
            now.monotonic = now.monotonic.after(Duration::from_millis(1));
            if millisecond % 1_000 == 500 {
                changes += u32::from(client.change_path(now, peer));
            }
            client.handle_timeout(now);
            server.handle_timeout(now);
            while let Some(sent) = client.poll_transmit(now, &mut memory) {
                let bytes = &mut memory[..sent.bytes];
                server.handle_datagrams(now, [Inbound { from: here.into(), bytes }]);
            }
            while let Some(sent) = server.poll_transmit(now, &mut memory) {
                let bytes = &mut memory[..sent.bytes];
                client.handle_datagrams(now, [Inbound { from: there.into(), bytes }]);
            }
        }
        assert!(changes >= 10, "{changes}");
        let known = client.connections.get(peer).unwrap().identity.known().unwrap();
        assert_eq!(client.by_server_id.len(), known.ids().count());
    }
}
