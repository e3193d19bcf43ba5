//! IPv4 packets by hand: with any source, as a router changes them, and what a router says of one that is too large for it.
//!
//! It sends nothing, and knows no more of other protocols than it takes for that.

use std::net::{Ipv4Addr, SocketAddrV4};

/// Bytes of a header without options.
const HEADER_BYTES: usize = 20;
const UDP_HEADER_BYTES: usize = 8;

/// Where things stand: in the header of IPv4 (RFC 791), and in that of UDP behind it (RFC 768).
const FRAGMENT_AT: usize = 6;
const PROTOCOL_AT: usize = 9;
const HEADER_CHECKSUM_AT: usize = 10;
const SOURCE_AT: usize = 12;
const DESTINATION_AT: usize = 16;
const UDP_CHECKSUM_AT: usize = 6;

/// Protocols by their numbers.
const ICMP: u8 = 1;
const UDP: u8 = 17;

/// Routers that a packet may pass.
const TIME_TO_LIVE: u8 = 64;

/// Set where a packet may not be cut.
const NEVER_CUT: u8 = 0x40;

/// A whole UDP packet without the checksum of UDP, as the standard allows; `None` when it would be too long.
pub(crate) fn udp(from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(UDP_HEADER_BYTES + payload.len()).ok()?;
    let mut body = Vec::with_capacity(usize::from(length));
    for field in [from.port(), to.port(), length, 0] {
        body.extend(field.to_be_bytes());
    }
    body.extend(payload);
    whole(UDP, *from.ip(), *to.ip(), &body)
}

/// What a router says of a UDP packet that may not be cut and is longer than `mtu` (RFC 1191, section 4), to who sent it; `None`
/// of all other packets.
pub(crate) fn too_large(packet: &[u8], mtu: u16) -> Option<Vec<u8>> {
    const UNREACHABLE: u8 = 3;
    const MUST_BE_CUT: u8 = 4;
    let at = udp_at(packet)?;
    let may_be_cut = packet.get(FRAGMENT_AT)? & NEVER_CUT == 0;
    if may_be_cut || packet.len() <= usize::from(mtu) {
        return None;
    }
    let mut message = vec![UNREACHABLE, MUST_BE_CUT, 0, 0, 0, 0];
    message.extend(mtu.to_be_bytes());
    message.extend(packet.get(..at + UDP_HEADER_BYTES)?);
    let sum = checksum(&message);
    message.get_mut(2..4)?.copy_from_slice(&sum.to_be_bytes());
    whole(ICMP, address(packet, DESTINATION_AT)?, address(packet, SOURCE_AT)?, &message)
}

/// Where a whole UDP packet comes from and where it goes; `None` for all other packets.
pub(crate) fn ends(packet: &[u8]) -> Option<[SocketAddrV4; 2]> {
    let at = udp_at(packet)?;
    let [a, b, c, d] = *packet.get(at..)?.first_chunk()?;
    let (from, to) = (address(packet, SOURCE_AT)?, address(packet, DESTINATION_AT)?);
    let port = u16::from_be_bytes;
    Some([SocketAddrV4::new(from, port([a, b])), SocketAddrV4::new(to, port([c, d]))])
}

/// Lets it come from there, by the same port.
pub(crate) fn set_source(packet: &mut [u8], address: Ipv4Addr) {
    set_address(packet, SOURCE_AT, address);
}

/// Lets it go there, to the same port.
pub(crate) fn set_destination(packet: &mut [u8], address: Ipv4Addr) {
    set_address(packet, DESTINATION_AT, address);
}

/// Takes the checksum from a whole UDP packet, as the standard allows: else the system would find what was spoiled, and not the
/// protocol.
pub(crate) fn without_checksum(mut packet: Vec<u8>) -> Vec<u8> {
    if let Some(at) = udp_at(&packet).map(|at| at + UDP_CHECKSUM_AT)
        && let Some(checksum) = packet.get_mut(at..at + 2)
    {
        checksum.fill(0);
    }
    packet
}

/// Where the header of UDP begins in a packet of IPv4 that was not cut.
fn udp_at(packet: &[u8]) -> Option<usize> {
    let &[first, _, _, _, _, _, fragment, offset, _, protocol, ..] = packet else { return None };
    let is_whole = fragment & 0x3f == 0 && offset == 0;
    (first >> 4 == 4 && protocol == UDP && is_whole).then(|| usize::from(first & 0x0f) * 4)
}

fn whole(protocol: u8, from: Ipv4Addr, to: Ipv4Addr, body: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(HEADER_BYTES + body.len()).ok()?;
    let mut packet = vec![0; HEADER_BYTES];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    (packet[PROTOCOL_AT - 1], packet[PROTOCOL_AT]) = (TIME_TO_LIVE, protocol);
    packet[SOURCE_AT..DESTINATION_AT].copy_from_slice(&from.octets());
    packet[DESTINATION_AT..].copy_from_slice(&to.octets());
    seal(&mut packet);
    packet.extend(body);
    Some(packet)
}

fn address(packet: &[u8], at: usize) -> Option<Ipv4Addr> {
    packet.get(at..)?.first_chunk().map(|octets: &[u8; 4]| Ipv4Addr::from(*octets))
}

fn set_address(packet: &mut [u8], at: usize, address: Ipv4Addr) {
    if let Some(place) = packet.get_mut(at..at + 4) {
        place.copy_from_slice(&address.octets());
        seal(packet);
    }
}

/// Makes the header's checksum good.
fn seal(packet: &mut [u8]) {
    let bytes = packet.first().map_or(0, |first| usize::from(first & 0x0f) * 4);
    let Some(header) = packet.get_mut(..bytes.max(HEADER_BYTES)) else { return };
    header[HEADER_CHECKSUM_AT..SOURCE_AT].fill(0);
    let sum = checksum(header);
    header[HEADER_CHECKSUM_AT..SOURCE_AT].copy_from_slice(&sum.to_be_bytes());
}

/// Of the internet protocols (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 4_000);
    const TO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 53);

    fn bytes(first: u8, fragment: u8, protocol: u8) -> Vec<u8> {
        let mut packet = vec![0xff; 40];
        (packet[0], packet[6], packet[7], packet[9]) = (first, fragment, 0, protocol);
        packet
    }

    #[test]
    fn the_checksum_of_a_whole_udp_packet_is_taken_and_nothing_else() {
        let taken = without_checksum(bytes(0x45, 0x40, 17));
        assert_eq!(taken[26..28], [0, 0]);
        let mut restored = taken;
        restored[26..28].fill(0xff);
        assert_eq!(restored, bytes(0x45, 0x40, 17));
        let longer_head = without_checksum(bytes(0x46, 0, 17));
        assert_eq!(longer_head[30..32], [0, 0]);
    }

    #[test]
    fn fragments_other_protocols_and_ipv6_keep_theirs_and_have_no_ends() {
        for kept in [bytes(0x45, 0x20, 17), bytes(0x45, 0, 6), bytes(0x60, 0, 17), vec![0x45; 3]] {
            assert_eq!(without_checksum(kept.clone()), kept);
            assert_eq!(ends(&kept), None);
            assert_eq!(too_large(&kept, 1), None);
        }
    }

    #[test]
    fn a_header_is_one_that_the_standard_knows() {
        // A header and its checksum that stand in many a text book.
        let mut known = [0x45, 0, 0, 0x3c, 0x1c, 0x46, 0x40, 0, 0x40, 6, 0, 0, 0xac, 0x10, 0x0a, 0x63];
        assert_eq!(checksum(&[&known[..], &[0xac, 0x10, 0x0a, 0x0c]].concat()), 0xb1e6);
        known[9] = 7;
        assert_ne!(checksum(&[&known[..], &[0xac, 0x10, 0x0a, 0x0c]].concat()), 0xb1e6);
        assert_eq!(checksum(&[1]), !0x0100);
    }

    #[test]
    fn a_packet_has_the_ends_it_was_given_and_those_it_is_given_later() {
        let mut packet = udp(FROM, TO, b"hello").expect("a packet");
        assert_eq!((packet.len(), checksum(&packet[..20])), (33, 0));
        assert_eq!(packet[28..], *b"hello");
        assert_eq!(ends(&packet), Some([FROM, TO]));
        let other = Ipv4Addr::new(192, 0, 2, 7);
        set_source(&mut packet, other);
        set_destination(&mut packet, *FROM.ip());
        let now = [SocketAddrV4::new(other, FROM.port()), SocketAddrV4::new(*FROM.ip(), TO.port())];
        assert_eq!((ends(&packet), checksum(&packet[..20])), (Some(now), 0));
        assert_eq!(udp(FROM, TO, &[0; 65_508]), None);
    }

    #[test]
    fn who_sent_a_packet_too_large_is_told_and_nobody_else() {
        let mut packet = udp(FROM, TO, &[7; 1_000]).expect("a packet");
        assert_eq!(too_large(&packet, 500), None, "it may be cut");
        packet[6] = NEVER_CUT;
        seal(&mut packet);
        assert_eq!(too_large(&packet, 1_028), None, "it fits");
        let told = too_large(&packet, 1_027).expect("a message");
        assert_eq!((told[9], checksum(&told[..20]), checksum(&told[20..])), (ICMP, 0, 0));
        assert_eq!(
            (address(&told, SOURCE_AT), address(&told, DESTINATION_AT)),
            (Some(*TO.ip()), Some(*FROM.ip()))
        );
        assert_eq!(told[20..22], [3, 4]);
        assert_eq!(told[26..28], 1_027_u16.to_be_bytes());
        assert_eq!(told[28..], packet[..28]);
    }
}
