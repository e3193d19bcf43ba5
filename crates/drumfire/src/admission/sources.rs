//! The number of connections of each source, including half-open ones. A source is an IPv4 address, or the /64 of an IPv6 address,
//! which usually belongs to one home.
//!
//! The counts are exact. Only sources with connections have an entry, so the number of connections bounds the memory, and a refused
//! connection leaves no entry. Loopback addresses have no limit. Without a limit, nothing is stored.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use crate::base::address::is_loopback;

/// The limit of connections per source, and the connections of each source.
#[derive(Debug)]
pub(crate) struct SourceLimits {
    /// The largest number of connections of one source. `None` is no limit.
    limit: Option<u32>,
    counts: HashMap<SourceNetwork, SourceCounts>,
}

/// A network, as the first bits of its addresses. An IPv4 network has the IPv6-mapped form of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SourceNetwork {
    /// The length of the prefix. It is [`MAPPED_BITS`] more than that of an IPv4 prefix.
    pub(super) bits: u8,
    /// The bits after the prefix are zero.
    address: u128,
}

/// The usual length of the IPv6 prefix of one home.
const HOME_BITS: u8 = 64;

/// The bits before the IPv4 address in an IPv4-mapped IPv6 address (RFC 4291, section 2.5.5.2).
pub(super) const MAPPED_BITS: u8 = 96;

/// Returns how many bits a prefix of this address has in front of its own bits in a [`SourceNetwork`].
pub(super) const fn mapped_bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { MAPPED_BITS } else { 0 }
}

impl SourceNetwork {
    /// Returns the source of an address: an IPv4 address alone, or the /64 of an IPv6 address.
    pub(super) fn of(address: IpAddr) -> Self {
        Self::around(address, if address.to_canonical().is_ipv4() { 128 } else { HOME_BITS })
    }

    /// Returns the network whose addresses have the first `bits` bits in common with this one.
    pub(super) fn around(address: IpAddr, bits: u8) -> Self {
        let address = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
        Self { bits, address: address.to_bits() & mask }
    }

    /// Returns the first address.
    pub(super) fn address(self) -> IpAddr {
        Ipv6Addr::from_bits(self.address).to_canonical()
    }
}

/// The connections of one source.
///
/// An unproved connection may have a forged source address. It therefore uses no place of the source: while unproved connections
/// fill the limit, the source has to prove its address with a cookie, and is then accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SourceCounts {
    proved: u32,
    unproved: u32,
}

impl SourceLimits {
    pub(crate) fn new(limit: Option<u32>) -> Self {
        Self { limit, counts: HashMap::new() }
    }

    /// Counts a new connection from this address. Returns false, without counting it, if its source is at the limit.
    pub(crate) fn add(&mut self, address: IpAddr, is_proved: bool) -> bool {
        let Some((source, limit)) = self.source_and_limit(address) else { return true };
        let SourceCounts { proved, unproved } = self.counts.get(&source).copied().unwrap_or_default();
        let before = if is_proved { proved } else { proved.saturating_add(unproved) };
        if before >= limit {
            return false;
        }
        *self.counts.entry(source).or_default().count_mut(is_proved) += 1;
        true
    }

    /// Records that a counted connection has proved its address.
    pub(crate) fn prove(&mut self, address: IpAddr) {
        if let Some(count) =
            self.source_and_limit(address).and_then(|(source, _)| self.counts.get_mut(&source))
        {
            count.unproved = count.unproved.saturating_sub(1);
            count.proved += 1;
        }
    }

    /// Removes a connection that ended from the counts.
    pub(crate) fn remove(&mut self, address: IpAddr, is_proved: bool) {
        let Some((source, _)) = self.source_and_limit(address) else { return };
        if let Some(count) = self.counts.get_mut(&source) {
            let left = count.count_mut(is_proved);
            *left = left.saturating_sub(1);
            if *count == SourceCounts::default() {
                self.counts.remove(&source);
            }
        }
    }

    /// Returns the source of an address and its limit, or `None` if there is no limit.
    fn source_and_limit(&self, address: IpAddr) -> Option<(SourceNetwork, u32)> {
        self.limit.filter(|_| !is_loopback(address)).map(|limit| (SourceNetwork::of(address), limit))
    }

    /// Returns the number of sources with connections, and the number of sources that the allocated memory has room for.
    #[cfg(test)]
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.counts.len(), self.counts.capacity())
    }
}

impl SourceCounts {
    fn count_mut(&mut self, is_proved: bool) -> &mut u32 {
        if is_proved { &mut self.proved } else { &mut self.unproved }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_source_is_an_ipv4_address_or_an_ipv6_64_except_loopback() {
        let mut sources = SourceLimits::new(Some(2));
        for text in ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8:1:2::1", "2001:db8:1:2:ffff::2"] {
            assert!(sources.add(ip(text), true), "{text}");
        }
        for text in ["192.0.2.1", "2001:db8:1:2:3::"] {
            assert!(!sources.add(ip(text), true), "{text}");
        }
        for text in ["192.0.2.2", "2001:db8:1:3::1"] {
            assert!(sources.add(ip(text), true), "{text}");
        }
        for text in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert!((0..100).all(|_| sources.add(ip(text), true)), "{text}");
        }
        sources.remove(ip("192.0.2.1"), true);
        assert!(sources.add(ip("::ffff:192.0.2.1"), true));
        assert_eq!(sources.size().0, 4);
    }

    #[test]
    fn without_a_limit_nothing_is_stored() {
        let mut sources = SourceLimits::new(None);
        assert!((0..1_000).all(|_| sources.add(ip("192.0.2.1"), true)));
        assert_eq!(sources.size(), (0, 0));
    }

    #[test]
    fn unproved_addresses_take_no_place_of_proved_connections() {
        let mut sources = SourceLimits::new(Some(3));
        let address = ip("192.0.2.1");
        assert!((0..3).all(|_| sources.add(address, false)));
        assert!(!sources.add(address, false), "unproved connections fill the limit");
        assert!((0..2).all(|_| sources.add(address, true)));
        sources.prove(address);
        assert!(!sources.add(address, true), "three proved connections are the limit");
        for is_proved in [true, true, true, false, false] {
            sources.remove(address, is_proved);
        }
        assert_eq!(sources.size().0, 0);
    }
}
