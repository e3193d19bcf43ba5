//! The end of all keys at once, for a machine or a process of which there may be a copy.
//!
//! It writes nothing under the keys that end: the copy may have sealed the very packet that would say so.

use drumfire_crypto::{Entropy, Secret};
use drumfire_wire::Hello;

use super::Endpoint;
use crate::connection::Phase;
use crate::datagram::{Errand, Forwarded};
use crate::error::{CloseReason, ConnectError};
use crate::placement::{HelloHash, Placement};
use crate::slab::PeerId;
use crate::time::Now;

impl<P: Placement> Endpoint<P> {
    /// Forgets the keys of all sessions, of handshakes and attempts under way too, and takes randomness from `seed` from now
    /// on: 32 bytes from a secure source, other ones in every copy of this endpoint.
    ///
    /// Every connection ends with [`CloseReason::KeysInvalidated`], every attempt with [`ConnectError::KeysInvalidated`]. No
    /// peer is told; a server answers packets of what it forgot with a Reset. What it remembers of tokens that were used stays.
    /// The only call that looks at all connections.
    pub fn invalidate_all_keys(&mut self, now: Now, seed: Secret<32>) {
        self.advance(now);
        self.unsettled = None;
        self.entropy = Entropy::from_seed(seed);
        self.replies.clear();
        for Forwarded { errand, .. } in self.forwards.drain(..) {
            // The owner never hears of this Hello, so that the place this shard promised it would stay reserved.
            if let Errand::Hello { bytes, .. } = errand
                && let Ok(hello) = Hello::decode(&bytes)
            {
                self.placement.release(HelloHash(*hello.mac1));
            }
        }
        let mut index = 0;
        while index < self.connections.places() {
            if let Some(peer) = self.connections.id_at(index) {
                self.invalidate(peer);
            }
            index = index.saturating_add(1);
        }
        self.active.clear();
        self.turn_count = 0;
        self.put_down();
    }

    fn invalidate(&mut self, peer: PeerId) {
        match self.connection(peer).map(|connection| connection.phase.as_deref()) {
            Some(None) => self.disconnected(peer, CloseReason::KeysInvalidated, &[]),
            Some(Some(Phase::Connecting(_))) => {
                self.events.connect_failed(peer, ConnectError::KeysInvalidated);
            }
            // Of those nobody has heard yet, or has heard the last.
            Some(Some(Phase::HalfOpen(_) | Phase::Closing(_))) | None => {}
        }
        self.remove(peer);
    }
}
