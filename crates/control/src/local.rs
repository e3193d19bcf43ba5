//! Unix domain sockets. On systems without them, every function returns an error of the kind `Unsupported`.

#[cfg(unix)]
mod unix;
#[cfg(not(unix))]
mod unsupported;

#[cfg(unix)]
pub(crate) use unix::{Listener, PlainStream, SocketFile, Stream, bind, connect};
#[cfg(not(unix))]
pub(crate) use unsupported::{Listener, PlainStream, SocketFile, Stream, bind, connect};
