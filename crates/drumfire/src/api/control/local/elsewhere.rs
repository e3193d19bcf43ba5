//! No local sockets here: nothing can be bound or reached.

use std::io;
use std::path::Path;

/// Never made.
pub(in crate::api::control) type Listener = mio::net::TcpListener;
/// Never made.
pub(in crate::api::control) type Stream = mio::net::TcpStream;
/// Never made.
pub(in crate::api::control) type PlainStream = std::net::TcpStream;
/// Never made.
pub(in crate::api::control) struct Place;

pub(in crate::api::control) fn bind(_: &Path) -> io::Result<(Listener, Place)> {
    Err(unsupported())
}

pub(in crate::api::control) fn connect(_: &Path) -> io::Result<PlainStream> {
    Err(unsupported())
}

fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "this system has no Unix domain sockets for it")
}
