//! IPv4 packets made by hand (RFC 791, RFC 768, RFC 1191). Their sources may be forged, a router may translate their addresses, and it
//! may report packets that are too large.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use socket2::{Domain, Protocol, Socket, Type};

use crate::error::{Error, ErrorContext};

/// The lengths of headers without options.
const IP_HEADER_BYTES: usize = 20;
const UDP_HEADER_BYTES: usize = 8;

/// Offsets of fields in the IP header.
const FRAGMENT_AT: usize = 6;
const PROTOCOL_AT: usize = 9;
const CHECKSUM_AT: usize = 10;
const SOURCE_AT: usize = 12;
const DESTINATION_AT: usize = 16;

/// The offset of the checksum in the UDP header.
const UDP_CHECKSUM_AT: usize = 6;

/// Protocol numbers.
const ICMP: u8 = 1;
const UDP: u8 = 17;

const TIME_TO_LIVE: u8 = 64;

/// The flag of a packet that must not be fragmented.
const DONT_FRAGMENT: u8 = 0x40;

/// Returns a UDP packet without a UDP checksum, which RFC 768 permits, or `None` if it would be too long.
fn udp_packet(from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(UDP_HEADER_BYTES + payload.len()).ok()?;
    let mut body = Vec::with_capacity(usize::from(length));
    for field in [from.port(), to.port(), length, 0] {
        body.extend(field.to_be_bytes());
    }
    body.extend(payload);
    ip_packet(UDP, *from.ip(), *to.ip(), &body)
}

/// Returns the ICMP message for a UDP packet that is longer than `mtu` and must not be fragmented, and `None` for other packets.
fn too_large(packet: &[u8], mtu: u16) -> Option<Vec<u8>> {
    const UNREACHABLE: u8 = 3;
    const FRAGMENTATION_NEEDED: u8 = 4;
    let udp = udp_offset(packet)?;
    if packet.get(FRAGMENT_AT)? & DONT_FRAGMENT == 0 || packet.len() <= usize::from(mtu) {
        return None;
    }
    let mut message = vec![UNREACHABLE, FRAGMENTATION_NEEDED, 0, 0, 0, 0];
    message.extend(mtu.to_be_bytes());
    message.extend(packet.get(..udp + UDP_HEADER_BYTES)?);
    let sum = checksum(&message);
    message.get_mut(2..4)?.copy_from_slice(&sum.to_be_bytes());
    ip_packet(ICMP, address(packet, DESTINATION_AT)?, address(packet, SOURCE_AT)?, &message)
}

/// Returns the source and the destination of a whole UDP packet, and `None` for other packets.
fn endpoints(packet: &[u8]) -> Option<[SocketAddrV4; 2]> {
    let udp = udp_offset(packet)?;
    let [a, b, c, d] = *packet.get(udp..)?.first_chunk()?;
    let (from, to) = (address(packet, SOURCE_AT)?, address(packet, DESTINATION_AT)?);
    let port = u16::from_be_bytes;
    Some([SocketAddrV4::new(from, port([a, b])), SocketAddrV4::new(to, port([c, d]))])
}

/// Removes the checksum of a whole UDP packet. Otherwise the system would drop a corrupted packet, and not the protocol.
pub(crate) fn without_checksum(mut packet: Vec<u8>) -> Vec<u8> {
    if let Some(at) = udp_offset(&packet).map(|udp| udp + UDP_CHECKSUM_AT)
        && let Some(checksum) = packet.get_mut(at..at + 2)
    {
        checksum.fill(0);
    }
    packet
}

/// Returns the offset of the UDP header in an IPv4 packet that is not a fragment.
fn udp_offset(packet: &[u8]) -> Option<usize> {
    let &[first, _, _, _, _, _, fragment, offset, _, protocol, ..] = packet else { return None };
    let is_whole = fragment & 0x3f == 0 && offset == 0;
    (first >> 4 == 4 && protocol == UDP && is_whole).then(|| usize::from(first & 0x0f) * 4)
}

fn ip_packet(protocol: u8, from: Ipv4Addr, to: Ipv4Addr, body: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(IP_HEADER_BYTES + body.len()).ok()?;
    let mut packet = vec![0; IP_HEADER_BYTES];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    (packet[PROTOCOL_AT - 1], packet[PROTOCOL_AT]) = (TIME_TO_LIVE, protocol);
    packet[SOURCE_AT..DESTINATION_AT].copy_from_slice(&from.octets());
    packet[DESTINATION_AT..].copy_from_slice(&to.octets());
    update_checksum(&mut packet);
    packet.extend(body);
    Some(packet)
}

fn address(packet: &[u8], at: usize) -> Option<Ipv4Addr> {
    packet.get(at..)?.first_chunk().map(|octets: &[u8; 4]| Ipv4Addr::from(*octets))
}

fn set_address(packet: &mut [u8], at: usize, address: Ipv4Addr) {
    if let Some(field) = packet.get_mut(at..at + 4) {
        field.copy_from_slice(&address.octets());
        update_checksum(packet);
    }
}

fn update_checksum(packet: &mut [u8]) {
    let bytes = packet.first().map_or(0, |first| usize::from(first & 0x0f) * 4);
    let Some(header) = packet.get_mut(..bytes.max(IP_HEADER_BYTES)) else { return };
    header[CHECKSUM_AT..SOURCE_AT].fill(0);
    let sum = checksum(header);
    header[CHECKSUM_AT..SOURCE_AT].copy_from_slice(&sum.to_be_bytes());
}

/// Returns the internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

/// Sends datagrams with a forged source, as an attacker does whose network does not filter them. They stay in the run's network
/// namespaces.
pub(crate) struct SpoofingSender(Socket);

impl SpoofingSender {
    /// Opens a raw socket.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the privilege is missing.
    pub(crate) fn new() -> Result<Self, Error> {
        /// `IPPROTO_RAW`: the packets include their IP header, see raw(7).
        const RAW: i32 = 255;
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(RAW)));
        let socket = socket.map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => {
                Error::Unsupported(format!("the privilege to open raw sockets: {error}"))
            }
            _ => Error::failed("a raw socket", error),
        })?;
        socket.set_nonblocking(true).context("a nonblocking raw socket")?;
        Ok(Self(socket))
    }

    /// Sends a datagram that claims to come from `from`. Returns whether the system took it.
    pub(crate) fn send(&self, from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> bool {
        let packet = udp_packet(from, to, payload);
        packet.is_some_and(|packet| self.0.send_to(&packet, &to.into()).is_ok())
    }
}

/// Returns an IPv4 address.
///
/// # Errors
/// [`Error::Unsupported`] for IPv6, whose packets are not made here.
pub(crate) fn v4(address: SocketAddr) -> Result<SocketAddrV4, Error> {
    match address {
        SocketAddr::V4(address) => Ok(address),
        SocketAddr::V6(_) => Err(Error::Unsupported(format!("an address of IPv4 instead of {address}"))),
    }
}

/// The network of the addresses behind which a router hides its own side, and its first address.
pub(crate) const NAT_NETWORK: &str = "10.215.0.0/16";
const NAT_FIRST: Ipv4Addr = Ipv4Addr::new(10, 215, 0, 0);

/// The source of copied packets. No translation leads to it.
const COPY_SOURCE: Ipv4Addr = Ipv4Addr::new(10, 215, 255, 1);

/// A router with address translation at one end of a link. It changes the sources of packets, and forgets the ones before. It can send
/// copies of packets from another source, and report packets that are too large for the link.
#[derive(Debug)]
pub(crate) struct NatRouter {
    /// The address of the router's own side.
    inside: Ipv4Addr,
    moves: AtomicU32,
    is_copying: AtomicBool,
    is_reporting: AtomicBool,
    unroutable: AtomicU64,
    copied: AtomicU64,
    reported: AtomicU64,
}

impl NatRouter {
    /// Returns a router that changes nothing yet.
    pub(crate) const fn new(inside: Ipv4Addr) -> Self {
        Self {
            inside,
            moves: AtomicU32::new(0),
            is_copying: AtomicBool::new(false),
            is_reporting: AtomicBool::new(false),
            unroutable: AtomicU64::new(0),
            copied: AtomicU64::new(0),
            reported: AtomicU64::new(0),
        }
    }

    /// Moves the clients with odd ports to a new address, and in every second call those with even ports. Packets to an address from
    /// before are dropped.
    pub(crate) fn move_half(&self) {
        self.moves.fetch_add(1, Ordering::AcqRel);
    }

    /// Sets whether a copy of each packet follows it, from another source.
    pub(crate) fn set_copying(&self, is_copying: bool) {
        self.is_copying.store(is_copying, Ordering::Release);
    }

    /// Sets whether the sender of a packet that is too large receives an ICMP message.
    pub(crate) fn set_reporting(&self, is_reporting: bool) {
        self.is_reporting.store(is_reporting, Ordering::Release);
    }

    /// Returns the number of packets for an address that leads nowhere.
    pub(crate) fn unroutable(&self) -> u64 {
        self.unroutable.load(Ordering::Acquire)
    }

    /// Returns the number of copies.
    pub(crate) fn copied(&self) -> u64 {
        self.copied.load(Ordering::Acquire)
    }

    /// Returns the number of ICMP messages.
    pub(crate) fn reported(&self) -> u64 {
        self.reported.load(Ordering::Acquire)
    }

    /// Translates a packet that leaves the router's own side. Returns the copy that follows it.
    pub(crate) fn on_leaving(&self, packet: &mut [u8]) -> Option<Vec<u8>> {
        let [from, _] = endpoints(packet)?;
        if *from.ip() != self.inside {
            return None;
        }
        let copy = self.is_copying.load(Ordering::Acquire).then(|| {
            let mut copy = packet.to_vec();
            set_address(&mut copy, SOURCE_AT, COPY_SOURCE);
            self.copied.fetch_add(1, Ordering::AcqRel);
            copy
        });
        set_address(packet, SOURCE_AT, self.outside(from.port()));
        copy
    }

    /// Translates a packet for the router's own side. Returns whether its destination leads there.
    pub(crate) fn on_arriving(&self, packet: &mut [u8]) -> bool {
        let Some([_, to]) = endpoints(packet) else { return true };
        let is_routable = *to.ip() == self.outside(to.port());
        if is_routable {
            set_address(packet, DESTINATION_AT, self.inside);
        } else {
            self.unroutable.fetch_add(1, Ordering::AcqRel);
        }
        is_routable
    }

    /// Returns the ICMP message for a packet that a link of `longest` bytes does not carry, if the router reports such packets.
    pub(crate) fn on_length(&self, packet: &[u8], longest: usize) -> Option<Vec<u8>> {
        if !self.is_reporting.load(Ordering::Acquire) {
            return None;
        }
        let message = too_large(packet, u16::try_from(longest).ok()?)?;
        self.reported.fetch_add(1, Ordering::AcqRel);
        Some(message)
    }

    /// Returns the current outside address of a client with this port.
    fn outside(&self, port: u16) -> Ipv4Addr {
        match (self.moves.load(Ordering::Acquire) + u32::from(port % 2)) / 2 {
            0 => self.inside,
            number => Ipv4Addr::from(u32::from(NAT_FIRST) + number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 214, 0, 1);
    const FROM: SocketAddrV4 = SocketAddrV4::new(INSIDE, 4_000);
    const TO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 214, 0, 2), 53);

    fn bytes(first: u8, fragment: u8, protocol: u8) -> Vec<u8> {
        let mut packet = vec![0xff; 40];
        (packet[0], packet[6], packet[7], packet[9]) = (first, fragment, 0, protocol);
        packet
    }

    #[test]
    fn only_the_checksum_of_a_whole_udp_packet_is_removed() {
        let mut packet = without_checksum(bytes(0x45, 0x40, 17));
        assert_eq!(packet[26..28], [0, 0]);
        packet[26..28].fill(0xff);
        assert_eq!(packet, bytes(0x45, 0x40, 17));
        assert_eq!(without_checksum(bytes(0x46, 0, 17))[30..32], [0, 0], "a longer IP header");
        for kept in [bytes(0x45, 0x20, 17), bytes(0x45, 0, 6), bytes(0x60, 0, 17), vec![0x45; 3]] {
            assert_eq!(without_checksum(kept.clone()), kept);
            assert_eq!((endpoints(&kept), too_large(&kept, 1)), (None, None));
        }
    }

    #[test]
    fn a_known_header_has_its_known_checksum() {
        let known = [0x45, 0, 0, 0x3c, 0x1c, 0x46, 0x40, 0, 0x40, 6, 0, 0, 0xac, 0x10, 0x0a, 0x63];
        assert_eq!(checksum(&[&known[..], &[0xac, 0x10, 0x0a, 0x0c]].concat()), 0xb1e6);
        assert_eq!(checksum(&[1]), !0x0100);
    }

    #[test]
    fn a_packet_has_the_endpoints_it_was_given() {
        let mut packet = udp_packet(FROM, TO, b"hello").expect("a packet");
        assert_eq!((packet.len(), checksum(&packet[..20])), (33, 0));
        assert_eq!(packet[28..], *b"hello");
        assert_eq!(endpoints(&packet), Some([FROM, TO]));
        let other = Ipv4Addr::new(192, 0, 2, 7);
        set_address(&mut packet, SOURCE_AT, other);
        set_address(&mut packet, DESTINATION_AT, *FROM.ip());
        let changed = [SocketAddrV4::new(other, FROM.port()), SocketAddrV4::new(*FROM.ip(), TO.port())];
        assert_eq!((endpoints(&packet), checksum(&packet[..20])), (Some(changed), 0));
        assert_eq!(udp_packet(FROM, TO, &[0; 65_508]), None);
    }

    #[test]
    fn the_sender_of_a_packet_too_large_receives_a_message() {
        let mut packet = udp_packet(FROM, TO, &[7; 1_000]).expect("a packet");
        assert_eq!(too_large(&packet, 500), None, "it may be fragmented");
        packet[6] = DONT_FRAGMENT;
        update_checksum(&mut packet);
        assert_eq!(too_large(&packet, 1_028), None, "it fits");
        let message = too_large(&packet, 1_027).expect("a message");
        assert_eq!((message[9], checksum(&message[..20]), checksum(&message[20..])), (ICMP, 0, 0));
        let [from, to] = [SOURCE_AT, DESTINATION_AT].map(|at| address(&message, at));
        assert_eq!((from, to), (Some(*TO.ip()), Some(*FROM.ip())));
        assert_eq!(message[20..22], [3, 4]);
        assert_eq!(message[26..28], 1_027_u16.to_be_bytes());
        assert_eq!(message[28..], packet[..28]);
        let router = NatRouter::new(INSIDE);
        assert_eq!(router.on_length(&packet, 1_000), None);
        router.set_reporting(true);
        assert!(router.on_length(&packet, 1_000).is_some());
        assert_eq!((router.on_length(&packet, 1_028), router.reported()), (None, 1));
    }

    #[test]
    fn half_of_all_ports_move_and_their_old_addresses_are_forgotten() {
        let router = NatRouter::new(INSIDE);
        let leave = |port: u16| {
            let mut packet = udp_packet(SocketAddrV4::new(INSIDE, port), TO, b"x").expect("a packet");
            assert_eq!(router.on_leaving(&mut packet), None);
            *endpoints(&packet).expect("endpoints")[0].ip()
        };
        let outside = |last| Ipv4Addr::new(10, 215, 0, last);
        for expected in [[INSIDE, outside(1)], [outside(1), outside(1)], [outside(1), outside(2)]] {
            router.move_half();
            assert_eq!([10, 11].map(leave), expected);
        }
        let arrive = |ip, port| {
            let mut packet = udp_packet(TO, SocketAddrV4::new(ip, port), b"x").expect("a packet");
            router.on_arriving(&mut packet).then(|| endpoints(&packet).expect("endpoints")[1])
        };
        assert_eq!(arrive(outside(2), 11), Some(SocketAddrV4::new(INSIDE, 11)));
        assert_eq!((arrive(outside(1), 11), arrive(INSIDE, 10), router.unroutable()), (None, None, 2));
    }

    #[test]
    fn a_copy_has_another_source() {
        let router = NatRouter::new(INSIDE);
        router.set_copying(true);
        let mut packet = udp_packet(FROM, TO, b"x").expect("a packet");
        let mut copy = router.on_leaving(&mut packet).expect("a copy");
        assert_eq!(endpoints(&copy), Some([SocketAddrV4::new(COPY_SOURCE, FROM.port()), TO]));
        assert_eq!((endpoints(&packet), router.copied()), (Some([FROM, TO]), 1));
        assert_eq!(router.on_leaving(&mut copy), None, "a copy is not copied");
    }
}
