//! Produces datagrams, fair between connections: handshake responses first, then each connection with data, a few
//! datagrams per turn.
//!
//! Connections without data are not visited.

use drumfire_wire::{ClientId, ConnectionId, Reset, Retry, limits as wire_limits};

use super::{Endpoint, Reply};
use crate::connection::{PacketOutcome, Phase};
use crate::convert::to_u64;
use crate::datagram::Transmit;
use crate::handshake::server::RefuseBytes;
use crate::limits::{DATAGRAM_SENT_MAX_BYTES, SEND_TURN_DATAGRAMS};
use crate::peer_id::PeerId;
use crate::placement::Placement;
use crate::route::Route;
use crate::stats::add;
use crate::time::{Moment, Now};
use crate::visits::{self, Visit};

impl<P: Placement> Endpoint<P> {
    /// Finishes a batch of datagrams that ended before [`Self::poll_transmit`] returned `None`, for example because the
    /// socket had no room. Connections get their timers, and the events of sent messages are queued.
    pub fn finish_transmit(&mut self) {
        self.reschedule_changed();
        self.clear_current();
    }

    /// Returns whether [`Self::poll_transmit`] may return a datagram now. Asking costs much less than an attempt that returns
    /// `None`, and a call of [`Self::finish_transmit`] can take the place of that attempt.
    #[inline]
    #[must_use]
    pub fn has_transmit(&self) -> bool {
        // The queue can be emptied after a Credit became due, when connections end. `poll_timeout` asks for an attempt until
        // there was one.
        !self.active.is_empty() || !self.replies.is_empty() || self.is_transmit_due
    }

    /// Writes the next datagram to the front of `out`, which must hold 1,200 bytes, or 1,472 to use paths with a
    /// larger MTU. Returns `None` when there is nothing to send, or when `out` is too short.
    pub fn poll_transmit(&mut self, now: Now, out: &mut [u8]) -> Option<Transmit> {
        let earlier = self.now;
        let now = self.advance_clock(now);
        if now > earlier {
            // A connection may have become able to send in between. The last call of the batch would find it too late.
            self.reschedule_changed();
        }
        self.is_transmit_due = false;
        if out.len() < DATAGRAM_SENT_MAX_BYTES {
            return None;
        }
        // Handshake responses come first: they are few, and a client that waits for one repeats its Hello.
        let next = self.next_reply(out).or_else(|| self.next_packet(now, out));
        // A panic from here on is not the fault of a connection.
        self.clear_current();
        let transmit = next?;
        add(&mut self.stats.datagrams_sent, 1);
        add(&mut self.stats.bytes_sent, to_u64(transmit.bytes));
        Some(transmit)
    }

    fn next_reply(&mut self, out: &mut [u8]) -> Option<Transmit> {
        while let Some(reply) = self.replies.pop_front() {
            let (written, peer) = match reply {
                Reply::Retry { to, client_id, cookie } => {
                    (self.write_retry(to, client_id, &cookie, out), None)
                }
                Reply::Refuse { to, refuse } => (self.write_refuse(to, &refuse, out), None),
                Reply::Reset { to, id } => (self.write_reset(to, id, out), None),
                Reply::Welcome { to, peer } => (self.write_welcome(to, peer, out), Some(peer)),
            };
            debug_assert!(
                written.is_some() || peer.is_some(),
                "a response of fixed size does not fit the smallest buffer"
            );
            // The connection of a Welcome may have been confirmed or forgotten since.
            if let Some((to, bytes)) = written {
                return Some(Transmit { to, bytes, peer });
            }
        }
        None
    }

    fn write_retry(
        &mut self,
        to: Route,
        client_id: ClientId,
        cookie: &[u8; wire_limits::COOKIE_BYTES],
        mut out: &mut [u8],
    ) -> Option<(Route, usize)> {
        Retry { client_id, cookie }.encode(&mut out).ok()?;
        let bytes = wire_limits::RETRY_MIN_BYTES;
        add(&mut self.stats.retry_bytes, to_u64(bytes));
        Some((to, bytes))
    }

    fn write_refuse(&mut self, to: Route, refuse: &RefuseBytes, out: &mut [u8]) -> Option<(Route, usize)> {
        out.get_mut(..refuse.len())?.copy_from_slice(refuse);
        add(&mut self.stats.refuse_bytes, to_u64(refuse.len()));
        Some((to, refuse.len()))
    }

    fn write_reset(
        &mut self,
        to: Route,
        connection_id: ConnectionId,
        mut out: &mut [u8],
    ) -> Option<(Route, usize)> {
        // The token is derived from the id again, so that nothing need be kept of the connection (RFC 9000 section
        // 10.3.2).
        Reset { connection_id, token: self.ids.reset_token(connection_id) }.encode(&mut out).ok()?;
        add(&mut self.stats.resets_sent, 1);
        Some((to, wire_limits::RESET_BYTES))
    }

    /// Writes a Welcome. Returns `None` when the connection is no longer half-open: the client has its Welcome, or
    /// gave up.
    fn write_welcome(&mut self, to: Route, peer: PeerId, out: &mut [u8]) -> Option<(Route, usize)> {
        let connection = self.connections.get(peer)?;
        let Some(Phase::HalfOpen(half_open)) = connection.phase.as_deref() else { return None };
        let welcome = half_open.welcome();
        out.get_mut(..welcome.len())?.copy_from_slice(welcome);
        add(&mut self.stats.welcome_bytes, to_u64(welcome.len()));
        Some((to, welcome.len()))
    }

    fn next_packet(&mut self, now: Moment, out: &mut [u8]) -> Option<Transmit> {
        while let Some(&peer) = self.active.front() {
            visits::count(Visit::Connection);
            // A connection that ends stays in the queue until its turn. Its id is stale by then, also if another
            // connection uses its slot.
            let Some(connection) = self.connections.get_mut(peer) else {
                self.end_turn();
                continue;
            };
            let ends_turn = self.turn_count.saturating_add(1) >= SEND_TURN_DATAGRAMS;
            match connection.build(now, ends_turn, out, &mut self.entropy, &mut self.stats) {
                PacketOutcome::Datagram(bytes, to) => {
                    self.turn_count = self.turn_count.saturating_add(1);
                    // Most connections send one datagram. Asking now costs less than an attempt to build another one.
                    if !connection.has_to_send(now) {
                        self.leave_queue(peer);
                    } else if self.turn_count >= SEND_TURN_DATAGRAMS {
                        // A connection with much data goes to the back, so that the others wait for a bounded time.
                        self.end_turn();
                        self.active.push_back(peer);
                    }
                    return Some(Transmit { to, bytes, peer: Some(peer) });
                }
                PacketOutcome::Nothing => self.leave_queue(peer),
                PacketOutcome::KeyLimit => {
                    self.end_turn();
                    self.end_at_key_limit(peer);
                }
            }
        }
        self.reschedule_changed();
        None
    }

    /// Removes the connection at the front of the queue. It gets a timer for what is due later.
    fn leave_queue(&mut self, peer: PeerId) {
        if let Some(connection) = self.connections.get_mut(peer) {
            connection.is_queued = false;
        }
        self.end_turn();
        self.reschedule_later(peer);
    }

    fn end_turn(&mut self) {
        self.active.pop_front();
        self.turn_count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ClientConfig, Config};
    use drumfire_crypto::Secret;

    #[test]
    fn a_credit_that_is_due_without_a_connection_keeps_no_worker_awake() {
        let seed = Secret::new([1; 32]);
        let mut endpoint = Endpoint::client(Config::default(), ClientConfig::default(), seed).unwrap();
        assert!(!endpoint.has_transmit());
        // An event was taken, and then all connections ended, which empties the queue.
        endpoint.is_transmit_due = true;
        assert!(endpoint.poll_timeout().is_some() && endpoint.has_transmit());
        assert!(endpoint.poll_transmit(Now::default(), &mut [0; DATAGRAM_SENT_MAX_BYTES]).is_none());
        assert_eq!((endpoint.poll_timeout(), endpoint.has_transmit()), (None, false));
    }
}
