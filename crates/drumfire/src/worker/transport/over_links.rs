//! The path of datagrams through the simulated links of a socket.

use drumfire_proto::{Endpoint, Inbound, Now, Placement};

use super::{BATCH_DATAGRAMS, BUDGET_DATAGRAMS, DATAGRAM_BYTES, Transport};
use crate::worker::datagram::{commit, handle_batch};

impl Transport {
    /// Moves datagrams of the endpoint to the outbound link, and those that have arrived at its end to the empty batch. Returns false
    /// if there were none.
    pub(super) fn fill_from_links<P: Placement>(&mut self, endpoint: &mut Endpoint<P>, now: Now) -> bool {
        let Some(links) = &mut self.links else { return false };
        let mut taken = 0;
        // The links copy a datagram, so the batch stays empty and each datagram is written to the same memory.
        while endpoint.has_transmit()
            && taken < BATCH_DATAGRAMS
            && let Some(memory) = self.batch.spare(DATAGRAM_BYTES)
            && let Some(transmit) = endpoint.poll_transmit(now, memory)
        {
            links.push_outbound(now.monotonic, &transmit, memory.get(..transmit.bytes).unwrap_or_default());
            taken += 1;
        }
        // A corrupted datagram can be longer than any that the endpoint writes. With half of the datagrams there is room for all.
        while self.batch.len() < BATCH_DATAGRAMS / 2
            && let Some((route, peer, bytes)) = links.pop_outbound(now.monotonic)
            && let Some(memory) = self.batch.spare(bytes.len())
        {
            memory.copy_from_slice(&bytes);
            let to = (!self.is_connected).then_some(route);
            commit(&mut self.batch, &mut self.peers, to, peer, bytes.len());
        }
        taken > 0 || !self.batch.is_empty()
    }

    /// Passes datagrams that have arrived at the end of the inbound link to the endpoint, within the budget of a pass. Returns the
    /// number of panics that ended a connection.
    pub(super) fn receive_from_links<P: Placement>(&mut self, endpoint: &mut Endpoint<P>, now: Now) -> u64 {
        let Some(links) = &mut self.links else { return 0 };
        let mut panics = 0;
        for _ in 0..BUDGET_DATAGRAMS {
            let Some((from, mut bytes)) = links.pop_inbound(now.monotonic) else { break };
            let datagram = Inbound { from, bytes: &mut bytes };
            panics += handle_batch(endpoint, now, std::iter::once(datagram));
        }
        panics
    }
}
