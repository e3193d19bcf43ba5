//! The ids given to a sender's flows: their routing tags spread the flows evenly over the sockets.
//!
//! What a tag means to the kernel is the socket crate's filter; here tags are only drawn.

use std::num::NonZeroU16;
use std::sync::Arc;

use drumfire_wire::{RoutingTag, SteeringError, SteeringSecret};

use crate::choices::Steer;
use crate::datagram::RouteId;

/// Bytes taken from the system in one call: a tag takes as many draws as there are sockets, on average.
const POOL_BYTES: usize = 4_096;

/// Draws secrets and ids from the system's entropy.
pub(super) struct IdMint {
    secret: SteeringSecret,
    sockets: NonZeroU16,
    pool: Pool,
}

/// Entropy of the system in larger helpings, each byte handed out once.
///
/// Candidates for a tag have to be drawn: the filter multiplies, so tags that lie in even steps may all go to
/// sockets in even steps, and never reach the one that is wanted.
struct Pool {
    bytes: [u8; POOL_BYTES],
    used: usize,
}

impl Pool {
    const fn new() -> Self {
        Self { bytes: [0; POOL_BYTES], used: POOL_BYTES }
    }

    /// The next bytes; should the system have none, zeros, from which no balanced secret can be drawn.
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

impl IdMint {
    /// A mint for a group of this many sockets, 1 to 1,024.
    pub(super) fn new(sockets: u32) -> Result<Self, SteeringError> {
        let sockets = u16::try_from(sockets).ok().and_then(NonZeroU16::new);
        let sockets = sockets.ok_or(SteeringError::TooManySockets)?;
        let mut pool = Pool::new();
        let secret = SteeringSecret::draw(sockets, || u32::from_be_bytes(pool.next()))?;
        Ok(Self { secret, sockets, pool })
    }

    /// The secret and how many sockets it spreads over.
    pub(super) fn steering(&self) -> (SteeringSecret, NonZeroU16) {
        (self.secret, self.sockets)
    }

    pub(super) fn secret(&self) -> u32 {
        self.secret.to_bits()
    }

    /// One id per flow. By tag, flow `i` goes to socket `i` modulo the sockets; by hash tags mean nothing.
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

/// A number that names one run in both reports.
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
            let mut mint = IdMint::new(sockets).unwrap();
            let ids = mint.ids(96, Steer::Tag).unwrap();
            let mut flows = vec![0; sockets as usize];
            for id in ids.iter() {
                let socket = mint.secret.socket_for(RoutingTag(id.tag()), mint.sockets);
                flows[usize::from(socket)] += 1;
            }
            assert_eq!(flows, vec![96 / sockets; sockets as usize]);
            let distinct: std::collections::HashSet<_> = ids.iter().collect();
            assert_eq!(distinct.len(), ids.len());
        }
    }

    #[test]
    fn no_secret_makes_the_search_for_a_tag_go_round_in_circles() {
        for _ in 0..300 {
            let mut mint = IdMint::new(4).unwrap();
            mint.ids(16, Steer::Tag).unwrap();
        }
    }

    #[test]
    fn a_group_of_no_sockets_has_no_mint() {
        assert!(IdMint::new(0).is_err());
        assert!(IdMint::new(1_024).is_ok());
        assert!(IdMint::new(1_025).is_err());
    }
}
