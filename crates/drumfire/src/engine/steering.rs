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

/// The steering secret and the number of workers of one server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steering {
    secret: SteeringSecret,
    workers: NonZeroU16,
}

impl Steering {
    /// Draws a random secret for this number of workers.
    ///
    /// # Errors
    ///
    /// The operating system has no random numbers, the number of workers is too large, or no draw gives a balanced secret.
    pub(crate) fn draw(workers: NonZeroU16) -> Result<Self, Error> {
        let mut failure = None;
        let result = Self::draw_from(workers, || {
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
    pub(crate) fn draw_from(workers: NonZeroU16, bits: impl FnMut() -> u32) -> Result<Self, Error> {
        if workers == NonZeroU16::MIN {
            return Ok(Self { secret: SteeringSecret::NONE, workers });
        }
        match SteeringSecret::draw(workers, bits) {
            Ok(secret) => Ok(Self { secret, workers }),
            Err(_) => Err(Error::setting("workers", "must be 1 to 1024")),
        }
    }

    /// Returns the filter for the sockets, or `None` for a single worker, which needs none.
    pub(crate) fn filter(self) -> Result<Option<SteeringFilter>, Error> {
        if self.workers == NonZeroU16::MIN {
            return Ok(None);
        }
        let (secret, sockets) = (self.secret.to_bits(), usize::from(self.workers.get()));
        SteeringFilter::new(ROUTING_TAG_OFFSET, TRANSPORT_MIN_BYTES, secret, sockets)
            .map(Some)
            .map_err(Error::from)
    }

    /// Returns the parameters for the endpoint of the worker with this index.
    pub(crate) const fn shard(self, index: u16) -> Shard {
        Shard { index, count: self.workers, steering: self.secret }
    }
}
