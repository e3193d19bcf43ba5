//! The effects on a connection of a datagram that the system did not send, by the table of socket errors.
//!
//! Loss detection finds the packet lost, like a packet that the network dropped. The transport counts the fault.

use drumfire_proto::{Endpoint, LocalAddress, Now, PeerId, Placement, Route};
use drumfire_socket::{Fault, LostDatagram, SendAction, send_action};

/// Whether the host may have lost the address or the network of the socket. For a source address that it has lost, Linux returns
/// `EINVAL`.
pub(super) fn is_of_path(fault: Fault) -> bool {
    matches!(fault, Fault::AddressNotAvailable | Fault::NetworkUnreachable | Fault::InvalidArgument)
}

/// Notifies the connection of this peer of a fault that can last. Other faults, such as a firewall that refuses or a host that is reported
/// as unreachable, may end with the next datagram, so they have no effect.
pub(super) fn report<P: Placement>(
    endpoint: &mut Endpoint<P>,
    now: Now,
    peer: Option<PeerId>,
    lost: &LostDatagram,
) {
    // A datagram of no connection, such as a refusal, has no state that the fault could change.
    let Some(peer) = peer else { return };
    // The path carries less than assumed (RFC 8899). The connection continues with smaller datagrams.
    if lost.fault == Fault::MessageTooLong {
        endpoint.handle_too_large(now, peer, lost.bytes);
    } else if send_action(lost.fault, false) == SendAction::Unreachable {
        let local = LocalAddress(lost.local.to_number());
        endpoint.handle_unreachable(now, peer, lost.to.map(|peer| Route { peer, local }));
    }
}
