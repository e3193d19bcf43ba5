//! The two addresses of a network path (PROTOCOL 11.4, "Paths").

use std::net::{IpAddr, SocketAddr};

/// The index of an address of this host, as the shell numbers them. A response should be sent from the address that
/// received the request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LocalAddress(pub u16);

impl LocalAddress {
    /// No particular address: the operating system chooses.
    pub const ANY: Self = Self(0);
}

/// The two ends of a path. A route that is converted from a peer's address has [`LocalAddress::ANY`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The address of the peer.
    pub peer: SocketAddr,
    /// The address of this host, or [`LocalAddress::ANY`] if any will do.
    pub local: LocalAddress,
}

impl Route {
    /// The address of the peer in the form for the application. An IPv4 address is never mapped to IPv6, and an IPv6
    /// address has no scope id, which only this host knows. Datagrams are sent to `peer`.
    pub(crate) fn canonical(self) -> SocketAddr {
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
