//! Datagrams between the socket and the endpoint.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use drumfire_proto::{Endpoint, Inbound, LocalAddress as CoreLocal, Now, PeerId, Placement, Route};
use drumfire_socket::{DatagramMut, LocalAddress, SendBatch};

/// Converts a datagram of the socket for the endpoint.
pub fn inbound(datagram: DatagramMut<'_>) -> Inbound<'_> {
    let DatagramMut { from: peer, local, bytes } = datagram;
    Inbound { from: Route { peer, local: CoreLocal(local.to_number()) }, bytes }
}

/// Adds a datagram of the endpoint to a batch. It leaves from the address that its peer knows. Returns false if there is no room.
#[must_use]
pub fn push(batch: &mut SendBatch, to: Route, datagram: &[u8]) -> bool {
    batch.push_from(LocalAddress::from_number(to.local.0), to.peer, datagram)
}

/// Adds the datagram of this connection that was written to the spare memory of a batch. `to` is `None` on a connected
/// socket.
pub(super) fn commit(
    batch: &mut SendBatch,
    peers: &mut Vec<Option<PeerId>>,
    to: Option<Route>,
    peer: Option<PeerId>,
    bytes: usize,
) {
    // The receiver's kernel filter steers a GSO batch by its first packet, and the connections of one address may
    // belong to different workers.
    if peer.is_none() || peers.last() != Some(&peer) {
        batch.cut();
    }
    let local = to.map_or(LocalAddress::ANY, |to| LocalAddress::from_number(to.local.0));
    let has_room = batch.commit(to.map(|to| to.peer), local, bytes);
    debug_assert!(has_room, "a datagram of {bytes} bytes fits the batch that it was written to");
    peers.push(peer);
}

/// Passes a batch to the endpoint, and returns the number of panics. A panic in the code of a connection ends that connection. The
/// batch continues after the datagrams that the endpoint had already taken.
pub(super) fn handle_batch<'a, P: Placement>(
    endpoint: &mut Endpoint<P>,
    now: Now,
    mut datagrams: impl Iterator<Item = Inbound<'a>>,
) -> u64 {
    for panics in 0.. {
        let rest = AssertUnwindSafe(|| endpoint.handle_datagrams(now, &mut datagrams));
        let Err(panic) = catch_unwind(rest) else { return panics };
        // Each panic ends a connection, so the loop ends. A panic outside of a connection may have broken the endpoint
        // itself, so `Worker::recover` handles it.
        if endpoint.end_panicked().is_none() {
            resume_unwind(panic);
        }
    }
    0
}
