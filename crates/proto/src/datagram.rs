//! Datagrams as the shell passes them in and out.
//!
//! The caller owns all memory. Packets are opened and sealed in place.

use crate::handshake::half_open::HelloSource;
use crate::peer_id::PeerId;
use crate::placement::HelloHash;
use crate::route::Route;

/// A received datagram. It is decrypted in place, so its bytes are unspecified afterwards.
#[derive(Debug)]
pub struct Inbound<'a> {
    /// The source of the datagram.
    pub from: Route,
    /// The whole UDP payload.
    pub bytes: &'a mut [u8],
}

/// A datagram that was written to the front of the caller's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// The destination of the datagram.
    pub to: Route,
    /// The length of the datagram in bytes.
    pub bytes: usize,
    /// The connection of the datagram; `None` for a handshake response without a connection. The caller passes it on
    /// when the operating system refuses the datagram:
    /// [`Endpoint::handle_too_large`](crate::Endpoint::handle_too_large),
    /// [`Endpoint::handle_unreachable`](crate::Endpoint::handle_unreachable).
    pub peer: Option<PeerId>,
}

/// Work for another shard of the same server. Only an endpoint creates it, after its checks passed, so the other
/// endpoint does not repeat them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forwarded {
    pub(crate) shard: u16,
    pub(crate) work: ForwardedWork,
}

/// The work for another shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ForwardedWork {
    /// Process this Hello.
    Hello {
        /// The source of the Hello.
        sender: HelloSource,
        /// The whole datagram.
        bytes: Box<[u8]>,
    },
    /// Process this packet.
    Packet {
        /// The source of the packet.
        from: Route,
        /// The whole datagram.
        bytes: Box<[u8]>,
    },
    /// Closes the connection that this Hello made, because its player has a newer one.
    Replace(HelloHash),
}

impl Forwarded {
    /// Returns the index of the shard whose `handle_forwarded` must process it.
    #[must_use]
    pub const fn shard(&self) -> u16 {
        self.shard
    }
}
