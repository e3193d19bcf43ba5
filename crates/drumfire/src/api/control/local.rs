//! A socket that only programs of this host can reach, as a file that only its owner may open. Where a system has none, everything
//! here answers so.

#[cfg(not(unix))]
mod elsewhere;
#[cfg(unix)]
mod unix;

#[cfg(not(unix))]
pub(super) use elsewhere::{Listener, Place, PlainStream, Stream, bind, connect};
#[cfg(unix)]
pub(super) use unix::{Listener, Place, PlainStream, Stream, bind, connect};
