//! Unix domain sockets. On systems without them, every function returns an error of the kind `Unsupported`.

#[cfg(not(unix))]
mod elsewhere;
#[cfg(unix)]
mod unix;

#[cfg(not(unix))]
pub(crate) use elsewhere::{Listener, Place, PlainStream, Stream, bind, connect};
#[cfg(unix)]
pub(crate) use unix::{Listener, Place, PlainStream, Stream, bind, connect};
