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

/// Adds a datagram of this connection to a batch with room for it. `to` is `None` on a connected socket.
pub(super) fn add(
    batch: &mut SendBatch,
    peers: &mut Vec<Option<PeerId>>,
    to: Option<Route>,
    peer: Option<PeerId>,
    datagram: &[u8],
) {
    // The receiver's kernel filter steers a GSO batch by its first packet, and the connections of one address may
    // belong to different workers.
    if peer.is_none() || peers.last() != Some(&peer) {
        batch.cut();
    }
    // There is room: the batch was empty, and it holds this number of datagrams of the maximum size.
    let _ = match to {
        Some(to) => push(batch, to, datagram),
        None => batch.push(None, datagram),
    };
    peers.push(peer);
}
