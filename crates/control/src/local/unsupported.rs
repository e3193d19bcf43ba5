//! The replacement on systems without Unix domain sockets.

use std::io;
use std::path::Path;

/// No value of this type exists.
pub(crate) type Listener = mio::net::TcpListener;
/// No value of this type exists.
pub(crate) type Stream = mio::net::TcpStream;
/// No value of this type exists.
pub(crate) type PlainStream = std::net::TcpStream;
/// No value of this type exists.
pub(crate) struct SocketFile;

pub(crate) fn bind(_: &Path) -> io::Result<(Listener, SocketFile)> {
    Err(unsupported())
}

pub(crate) fn connect(_: &Path) -> io::Result<PlainStream> {
    Err(unsupported())
}

fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "this system has no local control sockets")
}
