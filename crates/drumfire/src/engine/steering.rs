//! One secret, three users: the kernel's filter, the ids every worker draws, and the index of its socket.
//!
//! The formula lives in the protocol and, as a program, with the sockets; here both get the same numbers.

use std::num::NonZeroU16;

use drumfire_proto::limits::{ROUTING_TAG_OFFSET, TRANSPORT_MIN_BYTES};
use drumfire_proto::{Shard, SteeringSecret};
use drumfire_socket::SteeringFilter;

use crate::base::entropy;
use crate::base::error::Error;

/// How datagrams and ids of one server find its workers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steering {
    secret: SteeringSecret,
    workers: NonZeroU16,
}

impl Steering {
    /// Draws the secret for this many workers.
    pub(crate) fn draw(workers: NonZeroU16) -> Result<Self, Error> {
        let mut failure = None;
        let drawn = Self::draw_from(workers, || {
            entropy::bits().unwrap_or_else(|error| {
                failure = Some(error);
                0
            })
        });
        failure.map_or(drawn, |error| Err(error.into()))
    }

    /// The same from these numbers.
    pub(crate) fn draw_from(workers: NonZeroU16, bits: impl FnMut() -> u32) -> Result<Self, Error> {
        if workers == NonZeroU16::MIN {
            return Ok(Self { secret: SteeringSecret::NONE, workers });
        }
        match SteeringSecret::draw(workers, bits) {
            Ok(secret) => Ok(Self { secret, workers }),
            Err(_) => Err(Error::setting("workers", "must be 1 to 1024")),
        }
    }

    /// What the kernel is told; one socket has nothing to steer.
    pub(crate) fn filter(self) -> Result<Option<SteeringFilter>, Error> {
        if self.workers == NonZeroU16::MIN {
            return Ok(None);
        }
        let (secret, sockets) = (self.secret.to_bits(), usize::from(self.workers.get()));
        SteeringFilter::new(ROUTING_TAG_OFFSET, TRANSPORT_MIN_BYTES, secret, sockets)
            .map(Some)
            .map_err(Error::from)
    }

    /// What the worker at this index is told.
    pub(crate) const fn shard(self, index: u16) -> Shard {
        Shard { index, count: self.workers, steering: self.secret }
    }
}
