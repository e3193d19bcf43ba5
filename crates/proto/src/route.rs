//! Between which two addresses datagrams travel (PROTOCOL, "Paths").

use std::net::SocketAddr;

/// One of the addresses of this end's host, as the shell numbers them. A host has few, and an answer should leave from
/// the one that was asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LocalAddress(pub u16);

impl LocalAddress {
    /// None in particular: the system chooses.
    pub const ANY: Self = Self(0);
}

/// The two ends of a path. Made of a peer's address alone, the own one is [`LocalAddress::ANY`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Where the peer is.
    pub peer: SocketAddr,
    /// Which address of its own this end has there.
    pub local: LocalAddress,
}

impl Route {
    /// Where the peer is, in the one form that is told: an IPv4 address always as such, and of an IPv6 address nothing that
    /// only the own host knows. Datagrams go to `peer`.
    pub(crate) fn told(self) -> SocketAddr {
        SocketAddr::new(self.peer.ip().to_canonical(), self.peer.port())
    }
}

impl From<SocketAddr> for Route {
    fn from(peer: SocketAddr) -> Self {
        Self { peer, local: LocalAddress::ANY }
    }
}
