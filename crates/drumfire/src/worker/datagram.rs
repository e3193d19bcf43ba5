//! Datagrams between the socket and the endpoint.

use drumfire_proto::{Inbound, LocalAddress as CoreLocal, PeerId, Route};
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
    debug_assert!(has_room, "{bytes} bytes were written to a batch, and do not fit it");
    peers.push(peer);
}
