//! Bans of addresses, networks, and players, each for a limited time.
//!
//! A server reads the list at the start of a handshake and when it is confirmed, never per packet. Bans end by the monotonic clock of
//! the workers, so a change of the wall clock does not end one early. The list holds at most [`BANS_MAX`] bans, and is lost when the
//! server ends.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drumfire_proto::{Moment, PlayerId};

use super::sources::{MAPPED_BITS, SourceNetwork, mapped_bits};
use crate::base::error::Error;

/// The maximum number of bans of a server: addresses, networks, and players together.
pub const BANS_MAX: usize = 65_536;

/// The peers that a ban refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ban {
    /// Peers with this IPv4 address, or with an address in the /64 of this IPv6 address. A home usually has a /64 of its own.
    Address(IpAddr),
    /// Peers whose address starts with the same bits.
    Prefix {
        /// Any address of the network.
        address: IpAddr,
        /// The length of the prefix in bits, 0 to 32 for an IPv4 address and 0 to 128 for an IPv6 address.
        bits: u8,
    },
    /// The player with this id, whatever token the player has.
    Player(PlayerId),
}

impl fmt::Display for Ban {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Prefix { address, bits } => write!(f, "{address}/{bits}"),
            Self::Player(player) => write!(f, "player {}", player.0),
        }
    }
}

/// The key of a ban in the list. All spellings of one ban have the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Network(SourceNetwork),
    Player(PlayerId),
}

impl Ban {
    fn key(self) -> Result<Key, Error> {
        let (address, bits) = match self {
            Self::Player(player) => return Ok(Key::Player(player)),
            Self::Address(address) => return Ok(Key::Network(SourceNetwork::of(address))),
            Self::Prefix { address, bits } => (address, bits),
        };
        let (min_bits, max_bits) = match (address, address.to_canonical()) {
            (IpAddr::V4(_), _) => (0, 32),
            (IpAddr::V6(_), IpAddr::V4(_)) => (MAPPED_BITS, 128),
            (IpAddr::V6(_), IpAddr::V6(_)) => (0, 128),
        };
        if !(min_bits..=max_bits).contains(&bits) {
            let problem = format!("a prefix of this address has {min_bits} to {max_bits} bits");
            return Err(Error::setting("bits", problem));
        }
        Ok(Key::Network(SourceNetwork::around(address, mapped_bits(address) + bits)))
    }
}

impl From<Key> for Ban {
    fn from(key: Key) -> Self {
        let network = match key {
            Key::Player(player) => return Self::Player(player),
            Key::Network(network) => network,
        };
        let address = network.address();
        if network == SourceNetwork::of(address) {
            Self::Address(address)
        } else {
            Self::Prefix { address, bits: network.bits - mapped_bits(address) }
        }
    }
}

/// The bans of one server.
#[derive(Debug, Default)]
pub(crate) struct Bans(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    ends: BTreeMap<Key, Moment>,
    by_end: BTreeSet<(Moment, Key)>,
    /// The number of banned networks by length. A lookup tries only these lengths.
    lengths: BTreeMap<u8, usize>,
}

impl Bans {
    /// Adds a ban that ends `duration` from now. It replaces an earlier ban of the same peers.
    pub(crate) fn add(&self, now: Moment, ban: Ban, duration: Duration) -> Result<(), Error> {
        let key = ban.key()?;
        let mut list = self.list(now);
        list.remove(key);
        if list.ends.len() >= BANS_MAX {
            return Err(Error::TooManyBans);
        }
        list.insert(key, now.after(duration));
        Ok(())
    }

    /// Lifts a ban. Returns whether there was one.
    pub(crate) fn remove(&self, now: Moment, ban: Ban) -> bool {
        ban.key().is_ok_and(|key| self.list(now).remove(key))
    }

    /// Returns all bans, and the time until each ends.
    pub(crate) fn all(&self, now: Moment) -> Vec<(Ban, Duration)> {
        self.list(now).ends.iter().map(|(key, end)| ((*key).into(), end.since(now))).collect()
    }

    /// Returns how long this address or player remains banned, or `None` if there is no ban of either.
    pub(crate) fn remaining(
        &self,
        now: Moment,
        address: IpAddr,
        player: Option<PlayerId>,
    ) -> Option<Duration> {
        let list = self.list(now);
        let address = address.to_canonical();
        // No IPv6 network contains an IPv4 address, although some contain its mapped form.
        let lengths = list.lengths.range(mapped_bits(address)..).map(|(bits, _)| *bits);
        let networks = lengths.map(|bits| Key::Network(SourceNetwork::around(address, bits)));
        let ends = networks.chain(player.map(Key::Player)).filter_map(|key| list.ends.get(&key));
        ends.max().map(|end| end.since(now))
    }

    /// Locks the list and removes the bans that have ended.
    fn list(&self, now: Moment) -> MutexGuard<'_, List> {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((_, key)) = list.by_end.first().copied().filter(|(end, _)| *end <= now) {
            list.remove(key);
        }
        list
    }
}

impl List {
    fn insert(&mut self, key: Key, end: Moment) {
        self.ends.insert(key, end);
        self.by_end.insert((end, key));
        if let Key::Network(network) = key {
            *self.lengths.entry(network.bits).or_default() += 1;
        }
    }

    fn remove(&mut self, key: Key) -> bool {
        let Some(end) = self.ends.remove(&key) else { return false };
        self.by_end.remove(&(end, key));
        if let Key::Network(network) = key
            && let Some(count) = self.lengths.get_mut(&network.bits)
        {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&network.bits);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumfire_tries::tries;
    use std::net::{Ipv4Addr, Ipv6Addr};

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Moment {
        Moment::ORIGIN.after(Duration::from_secs(seconds))
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn is_banned(bans: &Bans, text: &str) -> bool {
        bans.remaining(at(1), ip(text), None).is_some()
    }

    #[test]
    fn a_ban_of_an_address_covers_one_ipv4_address_or_an_ipv6_64() {
        let bans = Bans::default();
        bans.add(at(0), Ban::Address(ip("192.0.2.1")), MINUTE).unwrap();
        bans.add(at(0), Ban::Address(ip("2001:db8:1:2:3::4")), MINUTE).unwrap();
        for text in ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8:1:2:3::4", "2001:db8:1:2:ffff::"] {
            assert!(is_banned(&bans, text), "{text}");
        }
        for text in ["192.0.2.0", "192.0.2.2", "2001:db8:1:3:3::4", "2001:db8:1:1:ffff::", "::c000:201"] {
            assert!(!is_banned(&bans, text), "{text}");
        }
    }

    #[test]
    fn a_prefix_is_exact_at_every_length() {
        for (text, most) in [("203.0.113.77", 32), ("2001:db8:5:6:7:8:9:a", 128)] {
            let address = ip(text);
            for bits in 0..=most {
                let bans = Bans::default();
                bans.add(at(0), Ban::Prefix { address, bits }, MINUTE).unwrap();
                for flipped in 0..most {
                    let other: IpAddr = match address {
                        IpAddr::V4(address) => {
                            Ipv4Addr::from_bits(address.to_bits() ^ (1 << (31 - flipped))).into()
                        }
                        IpAddr::V6(address) => {
                            Ipv6Addr::from_bits(address.to_bits() ^ (1 << (127 - flipped))).into()
                        }
                    };
                    let is_inside = flipped >= bits;
                    assert_eq!(bans.remaining(at(1), other, None).is_some(), is_inside, "{other} /{bits}");
                }
            }
            let long = Ban::Prefix { address, bits: most + 1 };
            let error = Bans::default().add(at(0), long, MINUTE).unwrap_err().to_string();
            assert_eq!(error, format!("bits: a prefix of this address has 0 to {most} bits"));
        }
        let bans = Bans::default();
        let mapped = |bits| Ban::Prefix { address: ip("::ffff:192.0.2.7"), bits };
        for bits in [95, 129] {
            let error = bans.add(at(0), mapped(bits), MINUTE).unwrap_err().to_string();
            assert_eq!(error, "bits: a prefix of this address has 96 to 128 bits");
        }
        bans.add(at(0), mapped(120), MINUTE).unwrap();
        assert_eq!((is_banned(&bans, "192.0.2.99"), is_banned(&bans, "192.0.3.7")), (true, false));
        assert_eq!(bans.all(at(0)), [(Ban::Prefix { address: ip("192.0.2.0"), bits: 24 }, MINUTE)]);
    }

    #[test]
    fn equal_bans_are_shown_in_one_form() {
        let v4 =
            [0, 1, 0x7f00_0001, 0xc000_0207, 0xcb00_71ff, 0xe000_0001, u32::MAX].map(Ipv4Addr::from_bits);
        let v6 =
            ["::", "::1", "::c000:207", "64:ff9b::c000:207", "2001:db8:1:2:3:4:5:6", "fe80::7", "ff02::1"];
        let written = v4.map(IpAddr::V4).into_iter().chain(v4.map(|v4| v4.to_ipv6_mapped().into()));
        let written: Vec<IpAddr> = written.chain(v6.map(ip)).collect();
        let mut bans = 0;
        for &address in &written {
            let prefixes = (0..=u8::MAX).map(|bits| Ban::Prefix { address, bits });
            for ban in prefixes.chain([Ban::Address(address)]) {
                let Ok(key) = ban.key() else { continue };
                let shown = Ban::from(key);
                assert_eq!(shown.key().ok(), Some(key), "{ban:?}");
                if let Ban::Address(address) | Ban::Prefix { address, .. } = shown {
                    assert_eq!(address.to_canonical(), address, "{ban:?}");
                }
                bans += 1;
            }
        }
        assert_eq!(bans, 7 * (33 + 1) + 7 * (33 + 1) + 7 * (129 + 1));
    }

    #[test]
    fn a_ban_ends_on_time_and_a_newer_ban_replaces_it() {
        let (bans, player) = (Bans::default(), PlayerId(7));
        let left = |seconds| bans.remaining(at(seconds), ip("192.0.2.1"), Some(player));
        bans.add(at(10), Ban::Player(player), MINUTE).unwrap();
        assert_eq!(left(10), Some(MINUTE));
        assert_eq!(left(69), Some(Duration::from_secs(1)));
        bans.add(at(69), Ban::Address(ip("192.0.2.1")), MINUTE).unwrap();
        assert_eq!(left(69), Some(MINUTE), "the ban that lasts longer counts");
        assert!(bans.remove(at(69), Ban::Address(ip("::ffff:192.0.2.1"))));
        assert_eq!((left(69), left(70)), (Some(Duration::from_secs(1)), None));
        bans.add(at(70), Ban::Player(player), Duration::MAX).unwrap();
        assert!(left(1 << 33).is_some());
        bans.add(at(71), Ban::Player(player), Duration::from_secs(1)).unwrap();
        assert_eq!((bans.all(at(71)).len(), left(72), bans.all(at(72)).len()), (1, None, 0));
        assert!(!bans.remove(at(72), Ban::Player(player)));
        assert_eq!(bans.0.lock().unwrap().lengths.len(), 0);
    }

    #[test]
    fn a_full_list_refuses_bans_until_others_end() {
        let bans = Bans::default();
        let mut full = 0_usize;
        let (beyond, most) = (tries(1_000_000), u32::try_from(BANS_MAX).unwrap());
        for number in 0..most + beyond {
            let address = Ipv4Addr::from_bits(number.wrapping_mul(0x9e37_79b9)).into();
            match bans.add(at(1), Ban::Address(address), MINUTE) {
                Ok(()) => assert_eq!(full, 0),
                Err(error) => {
                    assert!(matches!(error, Error::TooManyBans), "{error}");
                    full += 1;
                }
            }
        }
        assert_eq!(full, beyond as usize);
        let list = bans.0.lock().unwrap();
        assert_eq!((list.ends.len(), list.by_end.len(), list.lengths.len()), (BANS_MAX, BANS_MAX, 1));
        drop(list);
        bans.add(at(2), Ban::Address(ip("0.0.0.0")), MINUTE).expect("it replaces a ban");
        bans.add(at(61), Ban::Player(PlayerId(1)), MINUTE).unwrap();
        assert_eq!(bans.all(at(61)).len(), 2);
    }
}
