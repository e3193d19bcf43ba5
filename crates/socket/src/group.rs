//! A group of sockets on one address: bound in order, so that the index the steering filter names is the place
//! in the list.
//!
//! It makes sockets and hands them out; threads are the caller's.

use std::io;
use std::net::SocketAddr;

use crate::config_error::ConfigError;
use crate::steering::MAX_SOCKETS;
use crate::{PortWatch, Socket, SteeringFilter, sys};

/// Settings of a [`ReuseportGroup`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GroupConfig {
    /// Where to bind; port 0 takes a free one, the same for all sockets.
    pub address: SocketAddr,
    /// How many sockets, 1 to 1,024.
    pub sockets: usize,
    /// Receive buffer to ask for, per socket, in bytes; `None` = the system's default.
    pub receive_buffer_bytes: Option<usize>,
    /// Send buffer to ask for, per socket, in bytes; `None` = the system's default.
    pub send_buffer_bytes: Option<usize>,
    /// Whether an IPv6 address takes no IPv4 traffic.
    pub only_v6: bool,
    /// Which socket gets which datagram; `None` leaves it to the kernel's hash of addresses and ports.
    pub steering: Option<SteeringFilter>,
}

impl GroupConfig {
    /// One socket at `address`.
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

    /// Sets how many sockets share the address.
    #[must_use]
    pub fn sockets(mut self, sockets: usize) -> Self {
        self.sockets = sockets;
        self
    }

    /// Sets the receive buffer to ask for, in bytes.
    #[must_use]
    pub fn receive_buffer_bytes(mut self, bytes: usize) -> Self {
        self.receive_buffer_bytes = Some(bytes);
        self
    }

    /// Sets the send buffer to ask for, in bytes.
    #[must_use]
    pub fn send_buffer_bytes(mut self, bytes: usize) -> Self {
        self.send_buffer_bytes = Some(bytes);
        self
    }

    /// Sets whether an IPv6 address takes no IPv4 traffic.
    #[must_use]
    pub fn only_v6(mut self, only_v6: bool) -> Self {
        self.only_v6 = only_v6;
        self
    }

    /// Sets the steering filter; it must steer between as many sockets as the group has.
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
            return Err(ConfigError::new("sockets", "this platform shares no port; use 1"));
        }
        if self.steering.is_some() && !sys::HAS_GROUPS {
            return Err(ConfigError::new("steering", "is not available on this platform; leave it out"));
        }
        if self.steering.as_ref().is_some_and(|filter| filter.sockets() != self.sockets) {
            return Err(ConfigError::new(
                "steering",
                "steers between another number of sockets than the group has",
            ));
        }
        Ok(())
    }
}

/// Sockets that share one UDP address through `SO_REUSEPORT`.
pub struct ReuseportGroup {
    sockets: Vec<Socket>,
    address: SocketAddr,
    is_only_v6: bool,
}

impl ReuseportGroup {
    /// The most sockets that share a port on this platform.
    pub const MAX_SOCKETS: usize = if sys::HAS_GROUPS { MAX_SOCKETS } else { 1 };

    /// Binds the sockets in order.
    ///
    /// A port somebody else has is refused, even though `SO_REUSEPORT` would let sockets of the same user in:
    /// two servers that silently share a port each lose half of their clients. While a group of several sockets is
    /// open, such sockets can still come to it: [`Self::watch`] tells. Nobody comes to a group of one on Linux, whose
    /// socket shares nothing.
    ///
    /// # Errors
    ///
    /// `InvalidInput` with a [`ConfigError`] inside names a field that cannot be used; anything else is what
    /// the system answered: the port is in use, the address is not this host's, no permission, no descriptors.
    pub fn bind(config: &GroupConfig) -> io::Result<Self> {
        config.check()?;
        let first = sys::open(config.address)?;
        prepare(&first, config)?;
        // Bound before it shares: the kernel refuses a port somebody has, and draws a free one for port 0. A
        // socket that shares from the start may be given the port of another group of the same user.
        first.bind(&config.address.into())?;
        let local = first.local_addr()?.as_socket();
        let address = local.ok_or_else(|| io::Error::other("the socket has no internet address"))?;
        if config.sockets > 1 {
            sys::share_port(&first)?;
        }
        let mut bound = Vec::with_capacity(config.sockets);
        bound.push(first);
        for _ in 1..config.sockets {
            let socket = sys::open(address)?;
            prepare(&socket, config)?;
            sys::share_port(&socket)?;
            socket.bind(&address.into())?;
            bound.push(socket);
        }
        if let (Some(filter), Some(first)) = (&config.steering, bound.first()) {
            // A group of one has nothing to steer, and no reuseport group to attach to.
            if config.sockets > 1 {
                sys::attach(first, &filter.program())?;
            }
        }
        let has_filter = config.steering.is_some() && config.sockets > 1;
        let locals = sys::LocalAddresses::default();
        let sockets = bound.into_iter().map(|socket| {
            // Bound to one address, the kernel has no choice where answers leave from.
            let tells = address.ip().is_unspecified() && sys::tell_local_address(&socket, address.is_ipv6());
            Socket::from_bound(socket, false, has_filter, tells.then(|| locals.share()))
        });
        let sockets = sockets.collect::<io::Result<_>>()?;
        let group = Self { sockets, address, is_only_v6: config.only_v6 };
        if config.sockets > 1
            && let Ok(watch) = group.watch()
        {
            watch.refuse_others()?;
        }
        Ok(group)
    }

    /// The address all sockets share, its port resolved.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Looks for sockets of others on the port, from any thread and as long as the sockets are open.
    ///
    /// # Errors
    ///
    /// `Unsupported` where the platform does not tell, else what the system answers, usually that no descriptors are left.
    pub fn watch(&self) -> io::Result<PortWatch> {
        PortWatch::new(self.address, self.is_only_v6, &self.sockets)
    }

    /// The sockets, in the order of their index.
    ///
    /// Keep all of them open as long as the filter steers: when one closes, the kernel moves the last into its
    /// place, and tags then lead elsewhere. Each holds a second descriptor, so that it does not close when something closes the
    /// first one: [`crate::Poller::reopen`]. A [`crate::DropMeter`] keeps its socket open too.
    #[must_use]
    pub fn into_sockets(self) -> Vec<Socket> {
        self.sockets
    }
}

fn prepare(socket: &socket2::Socket, config: &GroupConfig) -> io::Result<()> {
    if config.address.is_ipv6() {
        socket.set_only_v6(config.only_v6)?;
    }
    if let Some(bytes) = config.receive_buffer_bytes {
        sys::ask_receive_buffer(socket, bytes)?;
    }
    if let Some(bytes) = config.send_buffer_bytes {
        sys::ask_send_buffer(socket, bytes)?;
    }
    Ok(())
}
