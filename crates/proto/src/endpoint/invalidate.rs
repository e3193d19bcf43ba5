//! Invalidates all keys in one call, for a machine or a process of which a copy may exist.
//!
//! No packet is sealed under the old keys: the copy may have sealed another packet with the same key and number.

use drumfire_crypto::{Entropy, Secret};
use drumfire_wire::Hello;

use super::Endpoint;
use crate::connection::Phase;
use crate::datagram::{Forwarded, ForwardedWork};
use crate::error::{CloseReason, ConnectError};
use crate::peer_id::PeerId;
use crate::placement::{HelloHash, Placement};
use crate::time::Now;

impl<P: Placement> Endpoint<P> {
    /// Forgets the keys of all sessions, handshakes, and attempts, and derives randomness from `seed` from now on: 32
    /// bytes from a secure source, different in every copy of this endpoint.
    ///
    /// Every connection ends with [`CloseReason::KeysInvalidated`], every attempt with
    /// [`ConnectError::KeysInvalidated`]. Peers are not notified, but a server answers packets of the forgotten
    /// connections with a Reset. The record of used tokens is kept. This is the only call that visits all
    /// connections.
    pub fn invalidate_all_keys(&mut self, now: Now, seed: Secret<32>) {
        self.to_reschedule.clear();
        self.advance_clock(now);
        // First of all: what is drawn from here on must not repeat what a copy of this process draws.
        self.entropy = Entropy::from_seed(seed);
        self.replies.clear();
        for Forwarded { work, .. } in self.forwards.drain(..) {
            // The owner never receives this Hello, so the place that was reserved for it would stay reserved.
            if let ForwardedWork::Hello { bytes, .. } = work
                && let Ok(hello) = Hello::decode(&bytes)
            {
                self.placement.release(HelloHash(*hello.mac1));
            }
        }
        let mut index = 0;
        while index < self.connections.slot_count() {
            if let Some(peer) = self.connections.id_at(index) {
                self.invalidate(peer);
            }
            index = index.saturating_add(1);
        }
        self.active.clear();
        self.turn_count = 0;
        self.clear_current();
        self.assert_invariants();
    }

    fn invalidate(&mut self, peer: PeerId) {
        match self.connection(peer).map(|connection| connection.phase.as_deref()) {
            Some(None) => self.disconnected(peer, CloseReason::KeysInvalidated, &[]),
            Some(Some(Phase::Connecting(_))) => {
                self.events.connect_failed(peer, ConnectError::KeysInvalidated);
            }
            // The application has no event for a half-open connection, and already has the end of a closing one.
            Some(Some(Phase::HalfOpen(_) | Phase::Closing(_))) | None => {}
        }
        self.remove(peer);
    }
}
