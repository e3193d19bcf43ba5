//! The sockets of clients: connected to one server, or bound for many, with the buffers that the settings ask for.

use std::io;
use std::net::SocketAddr;

use drumfire_socket::{GroupConfig, ReuseportGroup, Socket};

use super::threads::RECEIVE_BUFFER_LEAST_BYTES;
use crate::config::client::ClientConfig;

/// The receive buffer per connection in bytes if the settings contain no size. It holds the datagrams that a server sends in 50 ms at
/// 10 Mbit/s.
const BUFFER_PER_CONNECTION_BYTES: usize = 64 * 1_024;

/// The smallest receive buffer in bytes if the settings contain no size. It also covers a game that stops for some frames.
const BUFFER_LEAST_BYTES: usize = 4 * BUFFER_PER_CONNECTION_BYTES;

/// The receive buffer of a client's socket.
#[derive(Clone, Copy, Default)]
pub(crate) struct ReceiveBuffer {
    /// See [`ClientConfig::receive_buffer_bytes`](crate::ClientConfig::receive_buffer_bytes).
    pub(crate) asked_bytes: Option<usize>,
    /// The size in bytes to which a smaller buffer is raised if the settings contain none.
    least_bytes: usize,
}

impl ReceiveBuffer {
    /// Returns the buffer for a socket with at most `connections` connections.
    pub(crate) fn new(config: &ClientConfig, connections: u32) -> Self {
        let connections = usize::try_from(connections).unwrap_or(usize::MAX);
        let least_bytes = connections
            .saturating_mul(BUFFER_PER_CONNECTION_BYTES)
            .clamp(BUFFER_LEAST_BYTES, RECEIVE_BUFFER_LEAST_BYTES);
        Self { asked_bytes: config.receive_buffer_bytes, least_bytes }
    }

    fn raise(self, socket: &mut Socket) -> io::Result<()> {
        if self.asked_bytes.is_some() { Ok(()) } else { socket.raise_receive_buffer(self.least_bytes) }
    }
}

/// A socket that no worker has yet.
pub(crate) struct ClientSocket {
    pub(crate) socket: Socket,
    pub(crate) is_connected: bool,
    pub(crate) buffer: ReceiveBuffer,
}

impl ClientSocket {
    /// Creates a socket that is connected to this server.
    pub(crate) fn connect(server: SocketAddr, buffer: ReceiveBuffer) -> io::Result<Self> {
        let mut socket = Socket::connect(server, buffer.asked_bytes)?;
        buffer.raise(&mut socket)?;
        Ok(Self { socket, is_connected: true, buffer })
    }

    /// Creates a socket that is bound to this address. Also returns the address with the port that the system chose.
    pub(crate) fn bind(address: SocketAddr, buffer: ReceiveBuffer) -> io::Result<(Self, SocketAddr)> {
        let mut config = GroupConfig::new(address);
        config.receive_buffer_bytes = buffer.asked_bytes;
        let group = ReuseportGroup::bind(&config)?;
        let address = group.local_addr();
        let mut socket = group.into_sockets().pop().ok_or(io::ErrorKind::Other)?;
        buffer.raise(&mut socket)?;
        Ok((Self { socket, is_connected: false, buffer }, address))
    }
}
