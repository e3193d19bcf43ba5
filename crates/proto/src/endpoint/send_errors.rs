//! Reactions to a datagram that the operating system refused to send.
//!
//! The packet is not sent again from here. Loss detection finds it lost, like a packet dropped by the network, and
//! later packets repeat its contents.

use super::Endpoint;
use crate::connection::Phase;
use crate::convert::saturated;
use crate::error::{CloseReason, ConnectError};
use crate::peer_id::PeerId;
use crate::placement::Placement;
use crate::route::Route;
use crate::time::Now;

impl<P: Placement> Endpoint<P> {
    /// Handles the refusal of a connection's datagram because of its size of `bytes` bytes of UDP payload. The
    /// connection falls back to the size that every path carries, and searches for a larger size below `bytes`. A
    /// refusal of a datagram that every path carries changes nothing. Does nothing for a stale id.
    ///
    /// The shell calls this on `EMSGSIZE`; see RFC 8899, section 4.1.
    pub fn handle_too_large(&mut self, now: Now, peer: PeerId, bytes: usize) {
        let now = self.advance(now);
        if let Some(connection) = self.connections.get_mut(peer) {
            connection.on_too_large(now, saturated(bytes, u16::MAX));
            self.reschedule(peer);
        }
        self.clear_current();
    }

    /// Handles a permanent failure to send a connection's datagram to `to` from this socket. If `to` is the peer's
    /// address, or `None` because the socket has no other destination, the connection ends with
    /// [`CloseReason::Unreachable`], and an attempt with [`ConnectError::Unreachable`]. Any other address was only a
    /// candidate path, which an attacker who copies packets may have invented, and nothing changes. Does nothing for
    /// a stale id.
    ///
    /// The shell calls this on `EAFNOSUPPORT` and `EADDRNOTAVAIL`.
    pub fn handle_unreachable(&mut self, now: Now, peer: PeerId, to: Option<Route>) {
        self.advance(now);
        let connection = self.connections.get(peer);
        if let Some(connection) = connection.filter(|found| to.is_none_or(|to| to == found.path.route)) {
            match connection.phase.as_deref() {
                None => self.disconnected(peer, CloseReason::Unreachable, &[]),
                Some(Phase::Connecting(_)) => self.events.connect_failed(peer, ConnectError::Unreachable),
                // The application has no event for a half-open connection, and already has the end of a closing one.
                Some(Phase::HalfOpen(_) | Phase::Closing(_)) => {}
            }
            self.remove(peer);
        }
        self.clear_current();
    }
}
