//! Steering: each datagram goes to the worker that owns its connection.
//!
//! Workers draw connection ids that contain a routing tag, and the filter in the kernel selects the socket by this tag. Both use
//! the same formula: `drumfire_wire` implements it for ids, and `drumfire_socket` as a filter program. This module gives both
//! the same secret and the same number of workers.

use std::num::NonZeroU16;

use drumfire_proto::limits::{ROUTING_TAG_OFFSET, TRANSPORT_MIN_BYTES};
use drumfire_proto::{Shard, SteeringSecret};
use drumfire_socket::SteeringFilter;

use crate::base::entropy;
use crate::base::error::Error;

/// Draws a random secret for this number of workers. Returns the parameters for the endpoints of all workers, with the index 0.
///
/// # Errors
///
/// The operating system has no random numbers, the number of workers is too large, or no draw gives a balanced secret.
pub(crate) fn draw(workers: NonZeroU16) -> Result<Shard, Error> {
    let mut failure = None;
    let result = draw_from(workers, || {
        entropy::bits().unwrap_or_else(|error| {
            failure = Some(error);
            0
        })
    });
    failure.map_or(result, |error| Err(error.into()))
}

/// Draws a secret from the numbers that `bits` returns.
///
/// # Errors
///
/// The number of workers is too large, or no draw gives a balanced secret.
pub(crate) fn draw_from(workers: NonZeroU16, bits: impl FnMut() -> u32) -> Result<Shard, Error> {
    if workers == NonZeroU16::MIN {
        return Ok(Shard::ONLY);
    }
    let steering = SteeringSecret::draw(workers, bits);
    let steering = steering.map_err(|_| Error::setting("workers", "must be 1 to 1024"))?;
    Ok(Shard { index: 0, count: workers, steering })
}

/// Returns the filter for the sockets, or `None` for a single worker, which needs none.
pub(crate) fn filter(shard: Shard) -> Result<Option<SteeringFilter>, Error> {
    if shard.count == NonZeroU16::MIN {
        return Ok(None);
    }
    let (secret, sockets) = (shard.steering.to_bits(), usize::from(shard.count.get()));
    Ok(Some(SteeringFilter::new(ROUTING_TAG_OFFSET, TRANSPORT_MIN_BYTES, secret, sockets)?))
}
