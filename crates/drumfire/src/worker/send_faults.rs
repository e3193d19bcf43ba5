//! What a connection is told of a datagram that the system did not send (the table of socket errors).
//!
//! Its packet is found lost like any that the network drops, and the socket's side has counted it by its fault; nothing of
//! that is here.

use drumfire_proto::{Endpoint, LocalAddress, Now, PeerId, Placement, Route};
use drumfire_socket::{Fault, LostDatagram, SendAction, send_action};

/// Whether the host may have lost the address or the network of the socket. For a source address that it has lost, Linux returns
/// `EINVAL`.
pub(super) fn is_of_path(fault: Fault) -> bool {
    matches!(fault, Fault::AddressNotAvailable | Fault::NetworkUnreachable | Fault::InvalidArgument)
}

/// Tells the connection of this peer what follows for it. Most faults may be over with the next datagram, so nothing does:
/// firewalls that refuse, hosts and networks that are said to be out of reach.
pub(super) fn tell<P: Placement>(
    endpoint: &mut Endpoint<P>,
    now: Now,
    peer: Option<PeerId>,
    lost: &LostDatagram,
) {
    let Some(peer) = peer else { return };
    if lost.fault == Fault::MessageTooLong {
        endpoint.handle_too_large(now, peer, lost.bytes);
    } else if send_action(lost.fault, false) == SendAction::Unreachable {
        let local = LocalAddress(lost.local.to_number());
        endpoint.handle_unreachable(now, peer, lost.to.map(|peer| Route { peer, local }));
    }
}
