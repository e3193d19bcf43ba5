//! What follows when the system refuses to send a datagram.
//!
//! Its packet is not sent again from here: like any other that the network drops it is found lost, and what it carried goes
//! with later ones.

use super::Endpoint;
use crate::connection::Phase;
use crate::error::{CloseReason, ConnectError};
use crate::placement::Placement;
use crate::route::Route;
use crate::slab::PeerId;
use crate::time::Now;

impl<P: Placement> Endpoint<P> {
    /// The system refused a datagram of a connection for its `bytes` bytes of UDP payload: its packets are no longer than every
    /// path carries from now on, and what more the path carries is looked for below that size. One that every path carries
    /// teaches nothing. Does nothing for a stale id.
    ///
    /// What the shell does about `EMSGSIZE`; see RFC 8899, section 4.1.
    pub fn handle_too_large(&mut self, now: Now, peer: PeerId, bytes: usize) {
        let now = self.advance(now);
        if let Some(connection) = self.connections.get_mut(peer) {
            connection.on_too_large(now, u16::try_from(bytes).unwrap_or(u16::MAX));
            self.settle(peer);
        }
        self.put_down();
    }

    /// The system cannot send to `to` from this socket, nor will it, for a datagram of a connection. Where that is the peer's
    /// address, or `None` because the socket leads nowhere else, the connection ends with
    /// [`CloseReason::Unreachable`], an attempt with [`ConnectError::Unreachable`]. Another address
    /// was only asked whether the peer is there, and whoever copies packets may have invented it: nothing follows. Does nothing
    /// for a stale id.
    ///
    /// What the shell does about `EAFNOSUPPORT` and `EADDRNOTAVAIL`.
    pub fn handle_unreachable(&mut self, now: Now, peer: PeerId, to: Option<Route>) {
        self.advance(now);
        let connection = self.connections.get(peer);
        if let Some(connection) = connection.filter(|it| to.is_none_or(|to| to == it.path.route)) {
            match connection.phase.as_deref() {
                None => self.disconnected(peer, CloseReason::Unreachable, &[]),
                Some(Phase::Connecting(_)) => self.events.connect_failed(peer, ConnectError::Unreachable),
                // Nobody has heard of it, or everybody that it ended.
                Some(Phase::HalfOpen(_) | Phase::Closing(_)) => {}
            }
            self.remove(peer);
        }
        self.put_down();
    }
}
