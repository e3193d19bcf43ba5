//! The simulated links between a worker and its socket, one for each direction (feature `conditioner`).
//!
//! Outbound datagrams of the endpoint enter a link, and those that arrive at its end are handed to the socket. Inbound datagrams of
//! the socket enter the other link, and those that arrive are handed to the endpoint. So a link is a part of the network: the endpoint
//! cannot distinguish them. A socket without the setting has no links, which costs one branch for a batch. Without the feature, no value
//! of [`LiveLinks`] exists.

#[cfg(not(feature = "conditioner"))]
mod off;
#[cfg(feature = "conditioner")]
mod on;

#[cfg(not(feature = "conditioner"))]
use off as chosen;
#[cfg(feature = "conditioner")]
use on as chosen;

use drumfire_proto::{PeerId, Route};

use crate::base::entropy;
use crate::base::error::Error;

pub(crate) use chosen::{LinkSettings, LiveLinks};
#[cfg(feature = "conditioner")]
pub(crate) use on::{command, no_links};

/// Creates the links of a socket with this configuration. The seeds come from the system, so that no two sockets lose the same
/// datagrams. A real socket could not repeat a run anyway, because the threads and the kernel decide the times.
pub(crate) fn with_system_seeds(config: Option<&LinkSettings>) -> Result<Option<Box<LiveLinks>>, Error> {
    LiveLinks::new(config, || Ok(u64::from_le_bytes(entropy::bytes()?)))
}

/// A datagram at the end of a link.
pub(crate) struct Arrival {
    /// The remote address and the local one.
    pub(crate) route: Route,
    /// The connection of an outbound datagram, if it has one.
    pub(crate) peer: Option<PeerId>,
    pub(crate) bytes: Vec<u8>,
}
