//! The sockets of a client, of which it has one at a time.
//!
//! A client with one connection connects each socket to its server, so that packets to it need no connection id. Other clients bind a
//! socket for all their connections.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use drumfire_socket::{GroupConfig, ReuseportGroup, Socket};

use super::network_watch::NetworkWatch;
use crate::base::error::Error;
use crate::config::RECEIVE_BUFFER_LEAST_BYTES;
use crate::config::client::ClientConfig;

/// The receive buffer per connection in bytes if the settings contain no size. It holds the datagrams that a server sends in 50 ms at
/// 10 Mbit/s.
const BUFFER_PER_CONNECTION_BYTES: usize = 64 * 1_024;

/// The smallest receive buffer in bytes if the settings contain no size. It also covers a game that stops for some frames.
const BUFFER_LEAST_BYTES: usize = 4 * BUFFER_PER_CONNECTION_BYTES;

/// The source of the sockets of one client.
pub(crate) struct ClientSockets {
    pub(crate) config: ClientConfig,
    /// The IP address of all sockets, or `None` if each is connected to the server of the only session.
    bound_to: Option<IpAddr>,
    /// The address of the present socket. `None` before the first connect of a client with a connected socket.
    local: Option<SocketAddr>,
    /// The size in bytes to which a smaller receive buffer is raised if the settings contain none.
    least_bytes: usize,
    pub(super) watch: NetworkWatch,
}

impl ClientSockets {
    /// Creates the source, and the first socket.
    ///
    /// # Errors
    /// The error of the system, about [`ClientConfig::address`] if there is one.
    pub(crate) fn new(config: ClientConfig) -> Result<(Self, Socket), Error> {
        let connections = usize::try_from(config.connections).unwrap_or(usize::MAX);
        let least_bytes = connections.saturating_mul(BUFFER_PER_CONNECTION_BYTES);
        let mut sockets = Self {
            bound_to: None,
            local: None,
            least_bytes: least_bytes.clamp(BUFFER_LEAST_BYTES, RECEIVE_BUFFER_LEAST_BYTES),
            watch: NetworkWatch::default(),
            config,
        };
        if sockets.config.has_connected_socket() {
            // The server is not known yet, but the poll and its descriptor must exist. This socket never sends, and the
            // endpoint ignores what other programs of this host send to it.
            let either = sockets.bind(Ipv4Addr::LOCALHOST).or_else(|_| sockets.bind(Ipv6Addr::LOCALHOST));
            return Ok((sockets, either?));
        }
        let socket = match sockets.config.address {
            Some(address) => sockets.bind_to(address).map_err(|error| Error::from_bind(error, address))?,
            // A host without IPv6 refuses the first address.
            None => sockets.bind(Ipv6Addr::UNSPECIFIED).or_else(|_| sockets.bind(Ipv4Addr::UNSPECIFIED))?,
        };
        let local = socket.local_addr()?;
        (sockets.bound_to, sockets.local) = (Some(local.ip()), Some(local));
        Ok((sockets, socket))
    }

    /// Returns the address of the present socket, or `None` before the first connect of a client with a connected socket.
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        self.local
    }

    /// Whether the sockets are bound to an IPv6 address.
    pub(crate) fn are_ipv6(&self) -> bool {
        self.bound_to.is_some_and(|ip| ip.is_ipv6())
    }

    /// Whether each socket is connected to the server of the only session.
    pub(super) fn are_connected(&self) -> bool {
        self.bound_to.is_none()
    }

    fn bind(&self, ip: impl Into<IpAddr>) -> io::Result<Socket> {
        self.bind_to((ip, 0).into())
    }

    fn bind_to(&self, address: SocketAddr) -> io::Result<Socket> {
        let mut config = GroupConfig::new(address);
        config.receive_buffer_bytes = self.config.receive_buffer_bytes;
        let bound = ReuseportGroup::bind(&config)?.into_sockets().pop();
        self.with_options(bound.ok_or(io::ErrorKind::Other)?)
    }

    /// Sets the options that all sockets of the client have.
    fn with_options(&self, mut socket: Socket) -> io::Result<Socket> {
        // The first socket shows whether the platform can do this. Without the option, the search for a larger MTU of the
        // path would find one at which datagrams are fragmented.
        socket.never_fragment();
        if self.config.receive_buffer_bytes.is_none() {
            socket.raise_receive_buffer(self.least_bytes)?;
        }
        Ok(socket)
    }

    /// Creates a socket with another port, which is connected to the server unless all sockets are bound. Returns `None` if it
    /// would be connected and there is no server.
    fn open(&self, server: Option<SocketAddr>) -> io::Result<Option<Socket>> {
        match (self.bound_to, server) {
            (Some(ip), _) => self.bind(ip).map(Some),
            (None, Some(server)) => Socket::connect(server, self.config.receive_buffer_bytes)
                .and_then(|socket| self.with_options(socket))
                .map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Creates a socket that is connected to this server, if it has another IP address than the present one. Returns `None` for a
    /// client that does not follow its network, and on a host between two networks, which has no address.
    pub(super) fn open_elsewhere(&self, server: SocketAddr) -> Option<Socket> {
        let present = self.local.filter(|_| self.config.follow_network)?.ip();
        // Connecting a UDP socket sends nothing. The system only chooses the route and the local address, which is
        // what this call needs to know.
        let socket = self.open(Some(server)).ok()??;
        (socket.local_addr().ok()?.ip() != present).then_some(socket)
    }

    /// Replaces the present socket by a new one of [`ClientSockets::open`], if there is one.
    pub(super) fn renew(
        &mut self,
        server: Option<SocketAddr>,
        put: impl FnOnce(Socket) -> io::Result<()>,
    ) -> io::Result<()> {
        self.open(server)?.map_or(Ok(()), |socket| self.replace(socket, put))
    }

    /// Replaces the present socket by `put`. If that fails, the present socket and its address remain.
    pub(super) fn replace(
        &mut self,
        socket: Socket,
        put: impl FnOnce(Socket) -> io::Result<()>,
    ) -> io::Result<()> {
        let local = socket.local_addr()?;
        put(socket)?;
        self.local = Some(local);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replacement_that_fails_is_tried_again() {
        let (mut sockets, _) = ClientSockets::new(ClientConfig::default()).unwrap();
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
        sockets.renew(Some(server), |_| Ok(())).unwrap();
        // As if the present socket were of another network.
        let present = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 9));
        sockets.local = Some(present);
        let socket = sockets.open_elsewhere(server).expect("the system chooses another address");
        assert!(sockets.replace(socket, |_| Err(io::ErrorKind::Other.into())).is_err());
        assert_eq!(sockets.local_addr(), Some(present));
        let socket = sockets.open_elsewhere(server).expect("the system chooses another address");
        sockets.replace(socket, |_| Ok(())).unwrap();
        assert!(
            sockets.open_elsewhere(server).is_none(),
            "the socket has the address that the system chooses"
        );
    }
}
