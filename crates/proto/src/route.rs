//! The two addresses between which datagrams travel (PROTOCOL 11.4, "Paths").

use std::net::{IpAddr, SocketAddr};

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

    /// Returns whether a datagram can be sent to the peer's address. Linux refuses port 0. No single host has an unspecified,
    /// multicast, or broadcast address.
    pub(crate) fn is_answerable(self) -> bool {
        let is_of_one_host = match self.peer.ip().to_canonical() {
            IpAddr::V4(ip) => !(ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast()),
            IpAddr::V6(ip) => !(ip.is_unspecified() || ip.is_multicast()),
        };
        is_of_one_host && self.peer.port() != 0
    }
}

impl From<SocketAddr> for Route {
    fn from(peer: SocketAddr) -> Self {
        Self { peer, local: LocalAddress::ANY }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_one_host_are_answerable() {
        let is_answerable = |text: &str| Route::from(text.parse::<SocketAddr>().unwrap()).is_answerable();
        for text in ["192.0.2.1:1", "127.0.0.1:65535", "[2001:db8::1]:1", "[::1]:1", "[fe80::1]:1"] {
            assert!(is_answerable(text), "{text}");
        }
        for text in [
            "192.0.2.1:0",
            "0.0.0.0:1",
            "255.255.255.255:1",
            "224.0.0.1:1",
            "239.255.255.255:1",
            "[2001:db8::1]:0",
            "[::]:1",
            "[ff02::1]:1",
            "[::ffff:0.0.0.0]:1",
            "[::ffff:255.255.255.255]:1",
            "[::ffff:224.0.0.1]:1",
        ] {
            assert!(!is_answerable(text), "{text}");
        }
    }
}
