//! A connection that was welcomed and has not spoken yet.
//!
//! Its Hello may have been copied on the way, and come from several addresses that all proved themselves: each is
//! answered, and the first packet that opens says which is the client's.

use std::net::SocketAddr;

use super::admission::Grant;
use crate::limits::{ADDRESSES_PER_HELLO, HANDSHAKE_DEADLINE, WELCOMES_PER_ADDRESS};
use crate::time::Moment;

/// What is kept until the first packet.
#[derive(Debug)]
pub(crate) struct HalfOpen {
    welcome: Box<[u8]>,
    expires_at: Moment,
    /// The address by which this one is counted: the first that asked.
    source: SocketAddr,
    addresses: [Option<Asked>; ADDRESSES_PER_HELLO],
    /// What the token grants, for the connection to come.
    pub(crate) grant: Option<Box<Grant>>,
}

/// An address that asked with a good cookie.
#[derive(Debug, Clone, Copy)]
struct Asked {
    address: SocketAddr,
    welcomes_left: u8,
}

impl HalfOpen {
    pub(crate) fn new(
        now: Moment,
        source: SocketAddr,
        welcome: Box<[u8]>,
        grant: Option<Box<Grant>>,
    ) -> Self {
        Self {
            welcome,
            expires_at: now.after(HANDSHAKE_DEADLINE),
            source,
            addresses: [None; ADDRESSES_PER_HELLO],
            grant,
        }
    }

    pub(crate) const fn expires_at(&self) -> Moment {
        self.expires_at
    }

    pub(crate) const fn source(&self) -> SocketAddr {
        self.source
    }

    /// Whether the Welcome may be sent once more to this address, which proved itself; the caller then must.
    pub(crate) fn take_welcome(&mut self, to: SocketAddr) -> bool {
        let is_same = |asked: &Option<Asked>| asked.is_none_or(|asked| asked.address == to);
        let Some(place) = self.addresses.iter_mut().find(|asked| is_same(asked)) else { return false };
        let asked = place.get_or_insert(Asked { address: to, welcomes_left: WELCOMES_PER_ADDRESS });
        let is_left = asked.welcomes_left > 0;
        asked.welcomes_left = asked.welcomes_left.saturating_sub(1);
        is_left
    }

    /// The addresses that asked with a good cookie.
    pub(crate) fn proved(&self) -> [Option<SocketAddr>; ADDRESSES_PER_HELLO] {
        self.addresses.map(|asked| asked.map(|asked| asked.address))
    }

    pub(crate) const fn welcome(&self) -> &[u8] {
        &self.welcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_addresses_get_five_welcomes_each_and_a_fifth_address_none() {
        let address = |port| SocketAddr::from(([192, 0, 2, 1], port));
        let mut half_open = HalfOpen::new(Moment::ORIGIN, address(1), Box::default(), None);
        for round in 0..7 {
            for port in 1..=5 {
                assert_eq!(half_open.take_welcome(address(port)), round < 5 && port < 5, "{round} {port}");
            }
        }
        assert_eq!(half_open.proved(), [1, 2, 3, 4].map(|port| Some(address(port))));
        assert_eq!(half_open.source(), address(1));
    }
}
