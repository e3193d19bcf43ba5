//! The ids of a sender's flows. Their routing tags spread the flows evenly over the sockets.

use std::num::NonZeroU16;
use std::sync::Arc;

use drumfire_wire::{RoutingTag, SteeringError, SteeringSecret};

use crate::choices::Steer;
use crate::datagram::RouteId;

/// Bytes taken from the system in one call: a tag takes as many draws as there are sockets, on average.
const POOL_BYTES: usize = 4_096;

/// Draws secrets and ids from the system's entropy.
pub(super) struct IdGenerator {
    secret: SteeringSecret,
    sockets: NonZeroU16,
    pool: EntropyPool,
}

/// Random bytes of the system, read in large blocks. Each byte is used once.
///
/// Candidates for a tag have to be random. The filter multiplies, so evenly spaced tags may never reach some sockets.
struct EntropyPool {
    bytes: [u8; POOL_BYTES],
    used: usize,
}

impl EntropyPool {
    const fn new() -> Self {
        Self { bytes: [0; POOL_BYTES], used: POOL_BYTES }
    }

    /// Returns the next bytes. They are zero if the system has none; no balanced secret can be drawn from those.
    fn next<const LENGTH: usize>(&mut self) -> [u8; LENGTH] {
        if self.bytes.len() - self.used < LENGTH {
            if getrandom::fill(&mut self.bytes).is_err() {
                self.bytes.fill(0);
            }
            self.used = 0;
        }
        let mut taken = [0; LENGTH];
        taken.copy_from_slice(&self.bytes[self.used..self.used + LENGTH]);
        self.used += LENGTH;
        taken
    }
}

impl IdGenerator {
    /// Draws a secret for a group of 1 to 1,024 sockets.
    pub(super) fn new(sockets: u32) -> Result<Self, SteeringError> {
        let sockets = u16::try_from(sockets).ok().and_then(NonZeroU16::new);
        let sockets = sockets.ok_or(SteeringError::TooManySockets)?;
        let mut pool = EntropyPool::new();
        let secret = SteeringSecret::draw(sockets, || u32::from_be_bytes(pool.next()))?;
        Ok(Self { secret, sockets, pool })
    }

    /// The secret and the number of sockets.
    pub(super) fn steering(&self) -> (SteeringSecret, NonZeroU16) {
        (self.secret, self.sockets)
    }

    pub(super) fn secret(&self) -> u32 {
        self.secret.to_bits()
    }

    /// Draws one id per flow. By tag, flow `i` goes to socket `i` modulo the number of sockets. By hash, tags have no meaning.
    pub(super) fn ids(&mut self, flows: u32, steer: Steer) -> Result<Arc<[RouteId]>, SteeringError> {
        (0..flows).map(|flow| self.id(flow, steer)).collect()
    }

    fn id(&mut self, flow: u32, steer: Steer) -> Result<RouteId, SteeringError> {
        let mut id: [u8; 8] = self.pool.next();
        if steer == Steer::Tag {
            let socket = flow % u32::from(self.sockets.get());
            // The remainder is below a u16.
            let socket = u16::try_from(socket).map_err(|_| SteeringError::TooManySockets)?;
            let mut draw = || u16::from_be_bytes(self.pool.next());
            let RoutingTag(tag) = self.secret.tag_for(socket, self.sockets, &mut draw)?;
            let [high, low] = tag.to_be_bytes();
            id[0] = high;
            id[1] = low;
        }
        Ok(RouteId(id))
    }
}

/// A random number that identifies a run.
pub(super) fn session_number() -> u64 {
    getrandom::u64().unwrap_or(0)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
mod tests {
    use super::*;

    #[test]
    fn flows_go_round_the_sockets_by_tag_and_no_two_share_an_id() {
        for sockets in [1, 6, 16] {
            let mut generator = IdGenerator::new(sockets).unwrap();
            let ids = generator.ids(96, Steer::Tag).unwrap();
            let mut flows = vec![0; sockets as usize];
            for id in ids.iter() {
                let socket = generator.secret.socket_for(RoutingTag(id.tag()), generator.sockets);
                flows[usize::from(socket)] += 1;
            }
            assert_eq!(flows, vec![96 / sockets; sockets as usize]);
            let distinct: std::collections::HashSet<_> = ids.iter().collect();
            assert_eq!(distinct.len(), ids.len());
        }
    }

    #[test]
    fn the_search_for_a_tag_ends_with_every_secret() {
        for _ in 0..300 {
            let mut generator = IdGenerator::new(4).unwrap();
            generator.ids(16, Steer::Tag).unwrap();
        }
    }

    #[test]
    fn a_group_of_no_sockets_has_no_mint() {
        assert!(IdGenerator::new(0).is_err());
        assert!(IdGenerator::new(1_024).is_ok());
        assert!(IdGenerator::new(1_025).is_err());
    }
}
