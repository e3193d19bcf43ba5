//! A connection that was sent a Welcome and has not received its first packet.
//!
//! An attacker may have copied the Hello and sent it from several addresses with valid cookies. Each address receives
//! the Welcome, and the first packet that opens shows which one is the client's.

use std::net::SocketAddr;

use super::admission::TokenGrant;
use crate::limits::{ADDRESSES_PER_HELLO, HANDSHAKE_DEADLINE, WELCOMES_PER_ADDRESS};
use crate::route::Route;
use crate::time::Moment;

/// The state until the first packet.
#[derive(Debug)]
pub(crate) struct HalfOpen {
    welcome: Box<[u8]>,
    expires_at: Moment,
    /// The address against which this half-open connection is counted: the first that asked, if it was proved.
    source: Option<SocketAddr>,
    addresses: [Option<AddressProof>; ADDRESSES_PER_HELLO],
    /// The rights that the token grants to the future connection.
    pub(crate) grant: Option<Box<TokenGrant>>,
    /// The application hello, until the connection is confirmed.
    pub(crate) application_hello: Box<[u8]>,
}

/// An address that sent the Hello. It has a valid cookie, except for the first address while the server is not under
/// load.
#[derive(Debug, Clone, Copy)]
struct AddressProof {
    route: Route,
    is_proved: bool,
    welcomes_left: u8,
}

/// The source of a Hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HelloSource {
    pub(crate) route: Route,
    /// Whether a valid cookie showed that the address receives datagrams.
    pub(crate) is_proved: bool,
}

impl HelloSource {
    /// The address, if it is proved.
    pub(crate) fn source(self) -> Option<SocketAddr> {
        self.is_proved.then_some(self.route.peer)
    }
}

impl HalfOpen {
    pub(crate) fn new(
        now: Moment,
        sender: HelloSource,
        welcome: Box<[u8]>,
        grant: Option<Box<TokenGrant>>,
        application_hello: Box<[u8]>,
    ) -> Self {
        let HelloSource { route, is_proved } = sender;
        let first = AddressProof { route, is_proved, welcomes_left: WELCOMES_PER_ADDRESS.saturating_sub(1) };
        let mut addresses = [None; ADDRESSES_PER_HELLO];
        if let Some(slot) = addresses.first_mut() {
            *slot = Some(first);
        }
        let expires_at = now.after(HANDSHAKE_DEADLINE);
        Self { welcome, expires_at, source: sender.source(), addresses, grant, application_hello }
    }

    pub(crate) const fn expires_at(&self) -> Moment {
        self.expires_at
    }

    pub(crate) const fn source(&self) -> Option<SocketAddr> {
        self.source
    }

    /// Returns whether the Welcome may be sent to `sender` once more, in which case the caller must send it. Every
    /// address except the first must be proved.
    pub(crate) fn take_welcome(&mut self, sender: HelloSource) -> bool {
        let HelloSource { route, is_proved } = sender;
        let is_same = |address: &Option<AddressProof>| address.is_none_or(|address| address.route == route);
        let Some(slot) = self.addresses.iter_mut().find(|address| is_same(address)) else { return false };
        if slot.is_none() && !is_proved {
            return false;
        }
        let address =
            slot.get_or_insert(AddressProof { route, is_proved, welcomes_left: WELCOMES_PER_ADDRESS });
        address.is_proved |= is_proved;
        let is_left = address.welcomes_left > 0;
        address.welcomes_left = address.welcomes_left.saturating_sub(1);
        is_left
    }

    /// The addresses at which the client may be, now that a packet opened: those that were proved by a cookie, or
    /// else the only address that received a Welcome. No packet opens without a Welcome.
    pub(crate) fn proved(&self) -> [Option<Route>; ADDRESSES_PER_HELLO] {
        let is_alone = self.addresses.iter().flatten().count() == 1;
        self.addresses.map(|address| {
            address.filter(|address| address.is_proved || is_alone).map(|address| address.route)
        })
    }

    pub(crate) const fn welcome(&self) -> &[u8] {
        &self.welcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    fn proved(port: u16) -> HelloSource {
        HelloSource { route: address(port).into(), is_proved: true }
    }

    fn unproved(port: u16) -> HelloSource {
        HelloSource { is_proved: false, ..proved(port) }
    }

    fn half_open(first: HelloSource) -> HalfOpen {
        HalfOpen::new(Moment::ORIGIN, first, Box::default(), None, Box::default())
    }

    #[test]
    fn four_addresses_get_five_welcomes_each_and_a_fifth_none() {
        let mut half_open = half_open(proved(1));
        for round in 0..7 {
            for port in 1..=5 {
                let is_first = (round, port) == (0, 1);
                let is_sent = is_first || half_open.take_welcome(proved(port));
                assert_eq!(is_sent, round < 5 && port < 5, "{round} {port}");
            }
        }
        assert_eq!(half_open.proved(), [1, 2, 3, 4].map(|port| Some(address(port).into())));
        assert_eq!(half_open.source(), Some(address(1)));
    }

    #[test]
    fn only_the_first_unproved_address_gets_welcomes() {
        let mut half_open = half_open(unproved(1));
        assert!(!half_open.take_welcome(unproved(2)));
        assert!((1..5).all(|_| half_open.take_welcome(unproved(1))));
        assert!(!half_open.take_welcome(unproved(1)));
        assert_eq!(half_open.proved(), [Some(address(1).into()), None, None, None]);
        assert_eq!(half_open.source(), None, "no source is charged");
    }

    #[test]
    fn an_unproved_address_is_dropped_once_another_is_proved() {
        let mut half_open = half_open(unproved(1));
        assert!(half_open.take_welcome(proved(2)));
        assert_eq!(half_open.proved(), [None, Some(address(2).into()), None, None]);
        assert!(half_open.take_welcome(proved(1)));
        assert_eq!(half_open.proved(), [Some(address(1).into()), Some(address(2).into()), None, None]);
    }
}
