//! Invariants of the endpoint's tables between two calls: the indices, the timers, the send queue, and the totals.
//!
//! Only builds with debug assertions check them.

use drumfire_wire::ConnectionId;

use super::{Endpoint, Role};
use crate::connection::{Connection, Phase};
use crate::identity::ConnectionIdState;
use crate::limits::REPLIES_WAITING;
use crate::peer_id::PeerId;
use crate::placement::Placement;

/// The fewest calls between two checks of the tables. Most calls process one packet of one connection.
const CALLS_BETWEEN_MIN: u32 = 16;

/// The number of slots for which one more call passes between two checks.
const PLACES_PER_CALL: u32 = 8;

impl<P: Placement> Endpoint<P> {
    /// Asserts what must hold between two calls, in builds with debug assertions.
    pub(super) fn assert_invariants(&mut self) {
        // Other builds do not even count.
        if !cfg!(debug_assertions) {
            return;
        }
        // Each check visits all connections, so it becomes rarer as their number grows. The cost of a call is then the
        // same on average, and tests with many connections do not take quadratic time.
        match self.calls_before_check.checked_sub(1) {
            Some(left) => self.calls_before_check = left,
            None => {
                let more = self.connections.slot_count() / PLACES_PER_CALL;
                self.calls_before_check = CALLS_BETWEEN_MIN.saturating_add(more);
                self.check_tables();
            }
        }
    }

    fn check_tables(&self) {
        self.connections.assert_invariants();
        debug_assert_eq!(
            self.reserved.len(),
            self.connections.vacated_count(),
            "a reserved id without a place"
        );
        self.timers.assert_invariants();
        self.events.assert_invariants();
        debug_assert!(self.replies.len() <= REPLIES_WAITING, "{} responses wait", self.replies.len());
        let places = 0..self.connections.slot_count();
        let peers = places.clone().filter_map(|place| self.connections.id_at(place));
        let connections = peers.clone().filter_map(|peer| Some((peer, self.connections.get(peer)?)));

        self.check_indices();
        let (mut id_count, mut hello_count, mut attempt_count, mut half_open_count) = (0, 0, 0, 0_u32);
        let (mut queued_count, mut held_units, mut events_bytes) = (0, 0_u64, 0_usize);
        for (peer, connection) in connections {
            id_count = own_ids(connection).count().saturating_add(id_count);
            hello_count = usize::from(connection.hello.is_some()).saturating_add(hello_count);
            queued_count = usize::from(connection.is_queued).saturating_add(queued_count);
            held_units = held_units.saturating_add(connection.share.units());
            events_bytes = events_bytes.saturating_add(connection.events_bytes());
            match connection.phase.as_deref() {
                Some(Phase::Connecting(attempt)) => {
                    attempt_count = usize::saturating_add(attempt_count, 1);
                    let client_id = u64::from_be_bytes(attempt.client_id().0);
                    debug_assert_eq!(
                        self.by_client_id.get(&client_id),
                        Some(&peer),
                        "responses to the attempt {peer:?} do not find it"
                    );
                }
                Some(Phase::HalfOpen(_)) => half_open_count = half_open_count.saturating_add(1),
                Some(Phase::Closing(_)) | None => {}
            }
            let armed = self.timers.deadline(peer.slot());
            debug_assert!(armed.is_some(), "{peer:?} has no timer, and would never end");
            // Otherwise data that waits for the pacer, a probe, or an ack would be late.
            debug_assert!(
                connection.is_queued || armed <= Some(connection.deadline(self.now)),
                "the timer of {peer:?} is late: {armed:?}, and something is due at {:?}",
                connection.deadline(self.now)
            );
            debug_assert!(
                own_ids(connection).next().is_some() || self.only == Some(peer),
                "{peer:?} has no id, and is not the only connection of its socket"
            );
        }
        // With equal counts, no entry is left of a connection that has ended. Servers choose the ids in `by_server_id`,
        // so two connections may have the same, and its entries are not counted.
        debug_assert_eq!(
            (self.by_id.count(), self.by_hello.count(), self.by_client_id.len()),
            (id_count, hello_count, attempt_count),
            "the indices by connection id, by Hello, or by client id do not match the connections"
        );
        debug_assert!(
            self.only.is_none_or(|only| self.connections.get(only).is_some()),
            "the only connection of the socket has ended"
        );
        if let Role::Server(responder) = &self.role {
            debug_assert_eq!(
                responder.half_open_count(),
                half_open_count,
                "the half-open connections were counted wrong"
            );
        }

        // A timer without a connection would fire for the next one in its slot.
        let is_stale = |place: &u32| self.timers.is_armed(*place) && self.connections.id_at(*place).is_none();
        debug_assert_eq!(places.clone().find(is_stale), None, "a slot without a connection has a timer");

        // A connection that counts as queued and is not in the queue would never send again. The queue may also name
        // connections that have ended.
        let in_queue = self.active.iter().filter_map(|peer| self.connections.get(*peer));
        debug_assert!(
            in_queue.clone().all(|connection| connection.is_queued) && in_queue.count() == queued_count,
            "the queue of connections with something to send does not hold each of them once"
        );
        self.budget.assert_invariants(held_units, events_bytes);
    }

    fn check_indices(&self) {
        // Every connection is found by each of its ids, and by the Hello that made it. Otherwise its packets would be
        // answered with a Reset, and a copy of its Hello would make a second connection.
        let at_place = |place| self.connections.get(self.connections.id_at(place)?);
        self.by_id.assert_invariants(|place, is_key| {
            at_place(place).is_some_and(|connection| own_ids(connection).any(|id| is_key(key(id))))
        });
        // An entry of an id that is no longer used would never be removed.
        let knows = |peer: &PeerId, id: u64| {
            self.connections
                .get(*peer)
                .and_then(|connection| connection.identity.known())
                .is_some_and(|known| known.ids().any(|known| key(known.id) == id))
        };
        debug_assert!(
            self.by_server_id.iter().all(|(id, peer)| knows(peer, *id)),
            "an id of a server leads to a connection that does not use it"
        );
        self.by_hello.assert_invariants(|place, is_key| {
            at_place(place)
                .and_then(|connection| connection.hello)
                .is_some_and(|hello| is_key(hello.to_key()))
        });
    }
}

/// The ids in packets to this connection that the endpoint must recognize.
fn own_ids(connection: &Connection) -> impl Iterator<Item = ConnectionId> {
    let (issued, own) = match &connection.identity {
        ConnectionIdState::Server(issued) => (Some(issued.all()), None),
        ConnectionIdState::Client(ids) => (None, ids.own),
    };
    issued.into_iter().flatten().chain(own)
}

fn key(id: ConnectionId) -> u64 {
    u64::from_be_bytes(id.to_bytes())
}
