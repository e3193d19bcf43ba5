//! The control connection: TCP between sender and receiver, on the same port number as the UDP port.
//!
//! One JSON object per line. The order is fixed:
//!
//! | from | message | when |
//! | --- | --- | --- |
//! | sender | `hello` | connected |
//! | receiver | `welcome` or `refused` | it has a table for the flows, or says why not |
//! | sender | `started` | its sockets are ready and it is about to send |
//! | sender | `finished` | it has sent its last datagram |
//! | receiver | `books` | it has drained what was under way |
//!
//! Every line has a length cap, every field a range that is checked on receipt, every text from the peer is
//! made printable before it is shown. Nothing here starts a thread or reads a clock: waiting goes in steps of
//! the stream's read timeout, and the caller says after each whether to go on. Neither side proves who it is,
//! so the port belongs on a network whose hosts are trusted.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

mod channel;
mod ends;
mod error;
mod message;
mod messages;

pub use channel::Channel;
pub use ends::{ReceiverEnd, SenderEnd, Visitor};
pub use error::ControlError;
pub use message::{Books, Finished, Hello, PublicKey, Sealed, Welcome};
pub use messages::SentMessages;

/// The version of the messages; two sides with different versions refuse each other by name.
pub const VERSION: u32 = 3;

/// The longest line in bytes, its newline not counted: room for 65,536 ids, or twice as many 64-bit counts.
pub const MAX_LINE_BYTES: usize = 3 * 1024 * 1024;

/// How long a write may stall before the connection counts as broken: the peer may be busy between two looks.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects to the first of `addresses` that answers within `connect_timeout`.
///
/// `read_timeout` is the step in which the connection waits for the peer; use 50 to 500 ms. The UDP
/// sockets belong to the address that answered: [`TcpStream::peer_addr`] on [`Channel::stream`].
///
/// # Errors
///
/// [`ControlError::Unreachable`] with the last address tried, or [`ControlError::Io`].
pub fn connect(
    addresses: &[SocketAddr],
    connect_timeout: Duration,
    read_timeout: Duration,
) -> Result<Channel<TcpStream>, ControlError> {
    let mut failure = ControlError::Io(io::Error::from(io::ErrorKind::InvalidInput));
    for address in addresses {
        match TcpStream::connect_timeout(address, connect_timeout) {
            Ok(stream) => return prepare(stream, read_timeout).map_err(ControlError::Io),
            Err(source) => failure = ControlError::Unreachable { address: *address, source },
        }
    }
    Err(failure)
}

/// Listens on the address of the UDP group, without blocking in [`accept`].
///
/// # Errors
///
/// What the system says; with a UDP port chosen by the kernel the TCP port of that number may be taken.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Takes the next sender that has connected, if there is one, and where it connected from.
///
/// # Errors
///
/// What the system says; a connection that was given up before it was taken is not an error but `None`.
pub fn accept(
    listener: &TcpListener,
    read_timeout: Duration,
) -> io::Result<Option<(Channel<TcpStream>, SocketAddr)>> {
    match listener.accept() {
        Ok((stream, peer)) => Ok(Some((prepare(stream, read_timeout)?, peer))),
        Err(error) if is_nobody(error.kind()) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_nobody(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted)
}

fn prepare(stream: TcpStream, read_timeout: Duration) -> io::Result<Channel<TcpStream>> {
    // Some systems hand the listener's mode down to the accepted stream.
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(read_timeout))?;
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    Ok(Channel::new(stream))
}

#[cfg(test)]
mod tests;
