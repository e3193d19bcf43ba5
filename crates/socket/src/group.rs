//! Groups of sockets that share one UDP address through `SO_REUSEPORT` (socket(7)), and a watch for other sockets on it.
//!
//! The sockets are bound in order, so that the index from the steering filter is the index in the group. The kernel
//! also lets every other process of the same user bind to the address, and gives it a part of the datagrams.
//! [`PortWatch`] finds such sockets. The caller decides what to do about them.

use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::error::ConfigError;
use crate::socket::Socket;
use crate::steering::{MAX_SOCKETS, SteeringFilter};
use crate::sys;

/// Settings of a [`ReuseportGroup`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GroupConfig {
    /// The address to bind to. With port 0 the system selects a free port, the same for all sockets.
    pub address: SocketAddr,
    /// The number of sockets, 1 to 1,024. The default is 1.
    pub sockets: usize,
    /// The receive buffer to request for each socket, in bytes. `None`, the default, keeps the system's default.
    pub receive_buffer_bytes: Option<usize>,
    /// The send buffer to request for each socket, in bytes. `None`, the default, keeps the system's default.
    pub send_buffer_bytes: Option<usize>,
    /// Whether an IPv6 address receives no IPv4 traffic (`IPV6_V6ONLY`, see ipv6(7)). The default is `false`.
    pub only_v6: bool,
    /// The filter that selects the socket for each datagram. With `None`, the default, the kernel selects it by a hash
    /// of addresses and ports.
    pub steering: Option<SteeringFilter>,
}

impl GroupConfig {
    /// Returns the settings of one socket at `address`.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            sockets: 1,
            receive_buffer_bytes: None,
            send_buffer_bytes: None,
            only_v6: false,
            steering: None,
        }
    }

    /// Sets the number of sockets that share the address.
    #[must_use]
    pub fn sockets(mut self, sockets: usize) -> Self {
        self.sockets = sockets;
        self
    }

    /// Sets the receive buffer to request, in bytes.
    #[must_use]
    pub fn receive_buffer_bytes(mut self, bytes: usize) -> Self {
        self.receive_buffer_bytes = Some(bytes);
        self
    }

    /// Sets the send buffer to request, in bytes.
    #[must_use]
    pub fn send_buffer_bytes(mut self, bytes: usize) -> Self {
        self.send_buffer_bytes = Some(bytes);
        self
    }

    /// Sets whether an IPv6 address receives no IPv4 traffic.
    #[must_use]
    pub fn only_v6(mut self, only_v6: bool) -> Self {
        self.only_v6 = only_v6;
        self
    }

    /// Sets the steering filter. It must have as many sockets as the group.
    #[must_use]
    pub fn steering(mut self, filter: SteeringFilter) -> Self {
        self.steering = Some(filter);
        self
    }

    fn check(&self) -> Result<(), ConfigError> {
        if !(1..=MAX_SOCKETS).contains(&self.sockets) {
            return Err(ConfigError::new("sockets", "must be 1 to 1024"));
        }
        if self.sockets > 1 && !sys::HAS_GROUPS {
            return Err(ConfigError::new("sockets", "sockets cannot share a port on this platform; use 1"));
        }
        if self.steering.is_some() && !sys::HAS_GROUPS {
            return Err(ConfigError::new("steering", "is not available on this platform; leave it out"));
        }
        if self.steering.as_ref().is_some_and(|filter| filter.sockets() != self.sockets) {
            return Err(ConfigError::new(
                "steering",
                "has another number of sockets than the group; make them equal",
            ));
        }
        Ok(())
    }
}

/// Sockets that share one UDP address. The kernel, or a steering filter, selects the socket of each datagram.
pub struct ReuseportGroup {
    sockets: Vec<Socket>,
    address: SocketAddr,
    is_only_v6: bool,
}

impl ReuseportGroup {
    /// The maximum number of sockets that can share a port on this platform.
    pub const MAX_SOCKETS: usize = if sys::HAS_GROUPS { MAX_SOCKETS } else { 1 };

    /// Binds the sockets in order.
    ///
    /// A port that is in use is refused, although `SO_REUSEPORT` allows sockets of the same user to share it. Two servers
    /// that share a port by mistake each lose half of their clients. While a group of several sockets is open, other
    /// sockets can still join it, which [`Self::watch`] reports. On Linux, no socket can join a group of one, because its
    /// socket does not share its port.
    ///
    /// # Errors
    ///
    /// `InvalidInput` with a [`ConfigError`] inside if a field cannot be used. Every other error comes from the system:
    /// the port is in use, the address is not local, permission is denied, or no descriptors are left.
    pub fn bind(config: &GroupConfig) -> io::Result<Self> {
        config.check()?;
        // Bind the first socket before it sets `SO_REUSEPORT`. The kernel then refuses a port that is in use, and
        // selects an unused port for port 0. If the socket shared its port from the start, the kernel could select the
        // port of another group of the same user.
        let first = sys::open(config.address)?;
        set_options(&first, config)?;
        first.bind(&config.address.into())?;
        let local = first.local_addr()?.as_socket();
        let address = local.ok_or_else(|| io::Error::other("the socket has no internet address"))?;
        if config.sockets > 1 {
            sys::set_reuse_port(&first)?;
        }

        // Bind the other sockets. The kernel numbers them in this order.
        let mut bound = Vec::with_capacity(config.sockets);
        bound.push(first);
        for _ in 1..config.sockets {
            let socket = sys::open(address)?;
            set_options(&socket, config)?;
            sys::set_reuse_port(&socket)?;
            socket.bind(&address.into())?;
            bound.push(socket);
        }

        // Attach the filter to the group. A group of one has no choice of a socket, and no reuseport group in the
        // kernel to attach a filter to.
        let has_filter = config.steering.is_some() && config.sockets > 1;
        if let (true, Some(filter), Some(first)) = (has_filter, &config.steering, bound.first()) {
            sys::attach_filter(first, &filter.program())?;
        }

        let locals = sys::LocalAddresses::default();
        let sockets = bound.into_iter().map(|socket| {
            // With a specific address, the kernel has no choice of the source address of replies.
            let has_locals =
                address.ip().is_unspecified() && sys::enable_packet_info(&socket, address.is_ipv6());
            let locals = has_locals.then(|| locals.share());
            Socket::from_bound(socket, false, has_filter, config.receive_buffer_bytes, locals)
        });
        let sockets = sockets.collect::<io::Result<_>>()?;
        let group = Self { sockets, address, is_only_v6: config.only_v6 };

        // A socket that joined while the group was bound has an index between those of the group, which the filter
        // selects. Sockets that join later have higher indices.
        if config.sockets > 1
            && let Ok(watch) = group.watch()
        {
            watch.ensure_exclusive()?;
        }
        Ok(group)
    }

    /// Returns the address that all sockets share, with its port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns a watch for other sockets on the port. Any thread may use it while the sockets are open.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the platform does not list its sockets, else the error of the system call, usually because no
    /// descriptors are left.
    pub fn watch(&self) -> io::Result<PortWatch> {
        PortWatch::new(self.address, self.is_only_v6, &self.sockets)
    }

    /// Returns the sockets in the order of their index.
    ///
    /// Keep all of them open while the filter is in use. When a socket closes, the kernel moves the last socket to its
    /// index, and tags then select the wrong sockets. Each socket has a second descriptor for [`crate::Poller::reopen`],
    /// so it stays open if other code in the process closes the first one. A [`crate::DropMeter`] keeps its socket open
    /// too.
    #[must_use]
    pub fn into_sockets(self) -> Vec<Socket> {
        self.sockets
    }
}

fn set_options(socket: &socket2::Socket, config: &GroupConfig) -> io::Result<()> {
    if config.address.is_ipv6() {
        socket.set_only_v6(config.only_v6)?;
    }
    if let Some(bytes) = config.receive_buffer_bytes {
        sys::request_receive_buffer(socket, bytes)?;
    }
    if let Some(bytes) = config.send_buffer_bytes {
        sys::request_send_buffer(socket, bytes)?;
    }
    Ok(())
}

/// Finds sockets on a group's port that do not belong to the group. From [`ReuseportGroup::watch`].
///
/// ```
/// use drumfire_socket::{GroupConfig, ReuseportGroup};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let group = ReuseportGroup::bind(&GroupConfig::new("127.0.0.1:0".parse()?))?;
/// match group.watch().and_then(|watch| watch.scan()) {
///     Ok(others) => assert!(others.is_empty()),
///     Err(error) => eprintln!("cannot list the sockets of this system: {error}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PortWatch {
    address: SocketAddr,
    is_only_v6: bool,
    /// The inodes of the group's sockets.
    own_inodes: Vec<u64>,
}

impl PortWatch {
    /// The maximum number of sockets that one scan returns.
    pub const MAX_FOUND: usize = 1_024;

    /// The maximum number of times that one scan reads the list. The kernel writes the list in parts, and a socket that
    /// closes between two parts can hide the sockets behind it.
    const MAX_READS: usize = 5;

    fn new(address: SocketAddr, is_only_v6: bool, sockets: &[Socket]) -> io::Result<Self> {
        let own_inodes = sockets.iter().map(Socket::inode).collect::<io::Result<_>>()?;
        Ok(Self { address, is_only_v6, own_inodes })
    }

    /// Returns `AddrInUse` if other sockets are on the port. A failed scan is no error: not every system lists its
    /// sockets, and without the list there is no reason to refuse the port.
    fn ensure_exclusive(&self) -> io::Result<()> {
        match self.scan() {
            Ok(others) if !others.is_empty() => Err(io::ErrorKind::AddrInUse.into()),
            _ => Ok(()),
        }
    }

    /// Returns the address of the group.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the addresses of other sockets that are bound to the group's port, one for each socket and at most
    /// [`Self::MAX_FOUND`].
    ///
    /// The sockets may belong to other processes or to this one. They are not affected and do not notice the scan. Only
    /// sockets that could receive the group's datagrams count. They have the same address, or one of the two addresses
    /// is unspecified and covers the other one. For a group on an IPv4 address, a socket on the unspecified IPv6
    /// address does not count, because IPv4 sockets receive IPv4 datagrams first. The scan ignores that a socket may be
    /// bound to a network device (`SO_BINDTODEVICE`).
    ///
    /// The kernel lists all UDP sockets of the host for each scan, so scan every few seconds and not in every pass.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the system has no such list, or if the list does not contain the group's own sockets and
    /// therefore cannot show others. Otherwise the error of the system call.
    pub fn scan(&self) -> io::Result<Vec<IpAddr>> {
        for _ in 0..Self::MAX_READS {
            let (mut has_own, mut others) = (false, Vec::new());
            sys::for_each_socket_on(self.address.port(), |inode, address| {
                if self.own_inodes.contains(&inode) {
                    has_own = true;
                } else if others.len() < Self::MAX_FOUND
                    && overlaps(self.address.ip(), self.is_only_v6, address)
                {
                    others.push((inode, address));
                }
            })?;
            // A list without the group's own sockets is incomplete.
            if has_own {
                // A socket can appear in two parts of the list.
                others.sort_unstable();
                others.dedup();
                return Ok(others.into_iter().map(|(_, address)| address).collect());
            }
        }
        let why = "the system's list of sockets does not contain those of this process";
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }
}

/// Returns whether a socket at `other` could receive datagrams of a socket at `own`, if both are bound to the same port.
fn overlaps(own: IpAddr, is_only_v6: bool, other: IpAddr) -> bool {
    match (own.to_canonical(), other.to_canonical()) {
        (IpAddr::V6(own), IpAddr::V4(_)) => own.is_unspecified() && !is_only_v6,
        (IpAddr::V4(_), IpAddr::V6(_)) => false,
        (own, other) => own == other || own.is_unspecified() || other.is_unspecified(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_overlap(own: &str, other: &str) -> bool {
        overlaps(own.parse().unwrap(), false, other.parse().unwrap())
    }

    #[test]
    fn equal_addresses_and_unspecified_ones_overlap() {
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
            assert!(is_overlap(own, other), "{own} {other}");
        }
        for (own, other) in [
            ("127.0.0.1", "127.0.0.2"),
            ("192.0.2.7", "::ffff:192.0.2.8"),
            ("::1", "127.0.0.1"),
            ("::1", "::2"),
            ("127.0.0.1", "::1"),
            // Two servers, one for each family.
            ("0.0.0.0", "::"),
        ] {
            assert!(!is_overlap(own, other), "{own} {other}");
        }
        assert!(!overlaps("::".parse().unwrap(), true, "0.0.0.0".parse().unwrap()));
        assert!(overlaps("::".parse().unwrap(), true, "::1".parse().unwrap()));
    }

    #[test]
    fn a_socket_that_joins_during_the_bind_is_refused() {
        if !sys::HAS_GROUPS {
            return;
        }
        let config = GroupConfig::new("127.0.0.1:0".parse().unwrap()).sockets(2);
        let group = ReuseportGroup::bind(&config).unwrap();
        let watch = group.watch().unwrap();
        watch.ensure_exclusive().unwrap();
        let other = sys::open(group.local_addr()).unwrap();
        sys::set_reuse_port(&other).unwrap();
        other.bind(&group.local_addr().into()).unwrap();
        // The system's list can lack a socket while other tests close theirs.
        let error = (0..100).find_map(|_| watch.ensure_exclusive().err()).expect("refused");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(other);
        // A child that another test starts has a copy of each descriptor until it executes its program.
        assert!((0..10_000).any(|_| watch.ensure_exclusive().is_ok()), "the socket is still listed");
    }
}
