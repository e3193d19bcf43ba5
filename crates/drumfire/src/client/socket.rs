//! The sockets of clients: connected to one server, or bound for many, with the buffers that the settings ask for.

use std::io;
use std::net::SocketAddr;

use drumfire_socket::{GroupConfig, ReuseportGroup, Socket};

/// A socket that no worker has yet.
pub(crate) struct ClientSocket {
    pub(crate) socket: Socket,
    pub(crate) is_connected: bool,
    /// See [`ClientConfig::receive_buffer_bytes`](crate::ClientConfig::receive_buffer_bytes).
    pub(crate) receive_buffer_asked_bytes: Option<usize>,
}

impl ClientSocket {
    /// One that leads to this server and nowhere else.
    pub(crate) fn connect(server: SocketAddr, receive_buffer_bytes: Option<usize>) -> io::Result<Self> {
        let socket = Socket::connect(server, receive_buffer_bytes)?;
        Ok(Self { socket, is_connected: true, receive_buffer_asked_bytes: receive_buffer_bytes })
    }

    /// One at this address, and which address that is, the port resolved.
    pub(crate) fn bind(
        address: SocketAddr,
        receive_buffer_bytes: Option<usize>,
    ) -> io::Result<(Self, SocketAddr)> {
        let mut config = GroupConfig::new(address);
        config.receive_buffer_bytes = receive_buffer_bytes;
        let group = ReuseportGroup::bind(&config)?;
        let address = group.local_addr();
        let socket = group.into_sockets().pop().ok_or(io::ErrorKind::Other)?;
        let bound = Self { socket, is_connected: false, receive_buffer_asked_bytes: receive_buffer_bytes };
        Ok((bound, address))
    }
}
