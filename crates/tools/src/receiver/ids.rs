//! The ids given to a sender's flows: their routing tags spread the flows evenly over the sockets.
//!
//! What a tag means to the kernel is the socket crate's filter; here tags are only drawn.

use std::num::NonZeroU16;
use std::sync::Arc;

use drumfire_wire::{RoutingTag, SteeringError, SteeringSecret};

use crate::choices::Steer;
use crate::datagram::RouteId;

/// From one candidate for a tag to the next.
const TAG_STEP: u16 = 0x9E37;

/// Draws secrets and ids from the system's entropy.
pub(super) struct IdMint {
    secret: SteeringSecret,
    sockets: NonZeroU16,
}

impl IdMint {
    /// A mint for a group of this many sockets, 1 to 1,024.
    pub(super) fn new(sockets: u32) -> Result<Self, SteeringError> {
        let sockets = u16::try_from(sockets).ok().and_then(NonZeroU16::new);
        let sockets = sockets.ok_or(SteeringError::TooManySockets)?;
        Ok(Self { secret: SteeringSecret::draw(sockets, random_u32)?, sockets })
    }

    pub(super) fn secret(&self) -> u32 {
        self.secret.to_bits()
    }

    /// One id per flow. By tag, flow `i` goes to socket `i` modulo the sockets; by hash tags mean nothing.
    pub(super) fn ids(&self, flows: u32, steer: Steer) -> Result<Arc<[RouteId]>, SteeringError> {
        (0..flows).map(|flow| self.id(flow, steer)).collect()
    }

    fn id(&self, flow: u32, steer: Steer) -> Result<RouteId, SteeringError> {
        let mut id = random_u64().to_be_bytes();
        if steer == Steer::Tag {
            let socket = flow % u32::from(self.sockets.get());
            // The remainder is below a u16.
            let socket = u16::try_from(socket).map_err(|_| SteeringError::TooManySockets)?;
            // One draw, then odd steps, which visit every tag: thousands of draws would be as many system calls.
            let mut tag = random_u16();
            let mut next = || {
                tag = tag.wrapping_add(TAG_STEP);
                tag
            };
            let RoutingTag(tag) = self.secret.tag_for(socket, self.sockets, &mut next)?;
            let [high, low] = tag.to_be_bytes();
            id[0] = high;
            id[1] = low;
        }
        Ok(RouteId(id))
    }
}

/// A number that names one run in both reports.
pub(super) fn session_number() -> u64 {
    random_u64()
}

/// Random bits; should the system have none, 0, from which no balanced secret can be drawn.
fn random_u32() -> u32 {
    getrandom::u32().unwrap_or(0)
}

fn random_u16() -> u16 {
    let [first, second, ..] = random_u64().to_be_bytes();
    u16::from_be_bytes([first, second])
}

fn random_u64() -> u64 {
    getrandom::u64().unwrap_or(0)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
mod tests {
    use super::*;

    #[test]
    fn flows_go_round_the_sockets_by_tag_and_no_two_share_an_id() {
        for sockets in [1, 6, 16] {
            let mint = IdMint::new(sockets).unwrap();
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
    fn a_group_of_no_sockets_has_no_mint() {
        assert!(IdMint::new(0).is_err());
        assert!(IdMint::new(1_024).is_ok());
        assert!(IdMint::new(1_025).is_err());
    }
}
