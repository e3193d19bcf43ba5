//! Who else has sockets on the port of a group: with `SO_REUSEPORT` the kernel lets every process of the same user in, and
//! gives it a part of what comes.
//!
//! It looks when it is asked to, changes nothing and stops nobody. What follows from it is the caller's.

use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::{Socket, sys};

/// Looks for sockets on a group's port that are not the group's. From [`crate::ReuseportGroup::watch`].
///
/// ```
/// use drumfire_socket::{GroupConfig, ReuseportGroup};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let group = ReuseportGroup::bind(&GroupConfig::new("127.0.0.1:0".parse()?))?;
/// match group.watch().and_then(|watch| watch.look()) {
///     Ok(others) => assert!(others.is_empty()),
///     Err(error) => eprintln!("this system does not tell: {error}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PortWatch {
    address: SocketAddr,
    is_only_v6: bool,
    /// The kernel's numbers of the group's sockets.
    own: Vec<u64>,
}

impl PortWatch {
    /// The most sockets that one look tells of.
    pub const MAX_FOUND: usize = 1_024;

    /// The number of times that one look reads the list. The kernel writes the list in parts, and a socket that closes between two
    /// parts can hide sockets behind it.
    const READS: usize = 5;

    pub(crate) fn new(address: SocketAddr, is_only_v6: bool, sockets: &[Socket]) -> io::Result<Self> {
        let own = sockets.iter().map(Socket::number).collect::<io::Result<_>>()?;
        Ok(Self { address, is_only_v6, own })
    }

    /// Refuses a port that others have come to while the group was made. They would stand between its sockets, where the
    /// filter leads; who comes later stands behind them.
    pub(crate) fn refuse_others(&self) -> io::Result<()> {
        match self.look() {
            Ok(others) if !others.is_empty() => Err(io::ErrorKind::AddrInUse.into()),
            // Where nobody knows, nobody is refused.
            _ => Ok(()),
        }
    }

    /// The address of the group.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The addresses of the sockets bound to the group's port that are not the group's, each as often as there are sockets,
    /// [`Self::MAX_FOUND`] of them at most: other processes' and other sockets of this one. Nobody comes to know of the look.
    ///
    /// Only those count that can meet the group's datagrams: the same address, one of those that an unspecified address
    /// stands for, or the other way round. Beside a group on an IPv4 address the unspecified IPv6 address does not count,
    /// since IPv4 datagrams go to IPv4 sockets first. Devices to which sockets may be bound are not looked at.
    ///
    /// The kernel walks over all UDP sockets of the host for it: look every few seconds, not in a pass.
    ///
    /// # Errors
    ///
    /// What the system answers, `Unsupported` where it keeps no such list or the list does not show the group's own
    /// sockets: then nobody knows whether there are others.
    pub fn look(&self) -> io::Result<Vec<IpAddr>> {
        for _ in 0..Self::READS {
            let (mut has_own, mut others) = (false, Vec::new());
            sys::bound_to(self.address.port(), |number, address| {
                if self.own.contains(&number) {
                    has_own = true;
                } else if others.len() < Self::MAX_FOUND && meets(self.address.ip(), self.is_only_v6, address)
                {
                    others.push((number, address));
                }
            })?;
            if has_own {
                // A socket can appear in two parts of the list.
                others.sort_unstable();
                others.dedup();
                return Ok(others.into_iter().map(|(_, address)| address).collect());
            }
        }
        let why = "the system's list of sockets does not show those of this process";
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }
}

/// Whether datagrams to a socket at `own` could come to one at `other`, both bound to the same port.
fn meets(own: IpAddr, is_only_v6: bool, other: IpAddr) -> bool {
    match (own.to_canonical(), other.to_canonical()) {
        (IpAddr::V6(own), IpAddr::V4(_)) => own.is_unspecified() && !is_only_v6,
        (IpAddr::V4(_), IpAddr::V6(_)) => false,
        (own, other) => own == other || own.is_unspecified() || other.is_unspecified(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meet(own: &str, other: &str) -> bool {
        meets(own.parse().unwrap(), false, other.parse().unwrap())
    }

    #[test]
    fn addresses_meet_when_they_are_the_same_or_one_stands_for_the_other() {
        for (own, other) in [
            ("127.0.0.1", "127.0.0.1"),
            ("127.0.0.1", "0.0.0.0"),
            ("0.0.0.0", "192.0.2.7"),
            ("0.0.0.0", "::ffff:192.0.2.7"),
            ("192.0.2.7", "::ffff:192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("192.0.2.7", "::ffff:0.0.0.0"),
            ("::", "::1"),
            ("::1", "::"),
            ("::", "0.0.0.0"),
            ("::", "192.0.2.7"),
            ("::", "::ffff:192.0.2.7"),
        ] {
            assert!(meet(own, other), "{own} {other}");
        }
        for (own, other) in [
            ("127.0.0.1", "127.0.0.2"),
            ("192.0.2.7", "::ffff:192.0.2.8"),
            ("::1", "127.0.0.1"),
            ("::1", "::2"),
            ("127.0.0.1", "::1"),
            // Of two servers, one for each family.
            ("0.0.0.0", "::"),
        ] {
            assert!(!meet(own, other), "{own} {other}");
        }
        assert!(!meets("::".parse().unwrap(), true, "0.0.0.0".parse().unwrap()));
        assert!(meets("::".parse().unwrap(), true, "::1".parse().unwrap()));
    }
    #[test]
    fn a_group_that_somebody_came_to_while_it_was_made_is_refused() {
        if !sys::HAS_GROUPS {
            return;
        }
        let config = crate::GroupConfig::new("127.0.0.1:0".parse().unwrap()).sockets(2);
        let group = crate::ReuseportGroup::bind(&config).unwrap();
        let watch = group.watch().unwrap();
        watch.refuse_others().unwrap();
        let other = sys::open(group.local_addr()).unwrap();
        sys::share_port(&other).unwrap();
        other.bind(&group.local_addr().into()).unwrap();
        assert_eq!(watch.refuse_others().unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(other);
        watch.refuse_others().unwrap();
    }
}
