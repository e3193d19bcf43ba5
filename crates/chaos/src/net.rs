//! IPv4 packets (RFC 791, RFC 768, RFC 1191): a sender with forged sources, and a NAT router that can report packets
//! that are too large.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use etherparse::icmpv4::DestUnreachableHeader;
use etherparse::{Icmpv4Type, IpNumber, Ipv4Header, PacketBuilder, UdpHeader};
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::{Error, ErrorContext};

const TIME_TO_LIVE: u8 = 64;

/// The offset of the checksum in the UDP header.
const UDP_CHECKSUM_AT: usize = 6;

/// Returns a UDP packet, or `None` if it would be too long.
fn udp_packet(from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Option<Vec<u8>> {
    let builder = PacketBuilder::ipv4(from.ip().octets(), to.ip().octets(), TIME_TO_LIVE);
    let mut packet = Vec::new();
    builder.udp(from.port(), to.port()).write(&mut packet, payload).ok().map(|()| packet)
}

/// Returns the ICMP message for a UDP packet that is longer than `mtu` and must not be fragmented, and `None` for other packets.
fn too_large(packet: &[u8], mtu: u16) -> Option<Vec<u8>> {
    let (ip, _) = headers(packet)?;
    if !ip.dont_fragment || packet.len() <= usize::from(mtu) {
        return None;
    }
    let reason = DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: mtu };
    let builder = PacketBuilder::ipv4(ip.destination, ip.source, TIME_TO_LIVE);
    let mut message = Vec::new();
    builder
        .icmpv4(Icmpv4Type::DestinationUnreachable(reason))
        .write(&mut message, packet.get(..ip.header_len() + UdpHeader::LEN)?)
        .ok()
        .map(|()| message)
}

/// Returns the headers of a UDP packet over IPv4 that is not a fragment, and `None` for other packets.
fn headers(packet: &[u8]) -> Option<(Ipv4Header, UdpHeader)> {
    let (ip, rest) = Ipv4Header::from_slice(packet).ok()?;
    let is_udp = ip.protocol == IpNumber::UDP && !ip.is_fragmenting_payload();
    is_udp.then_some((ip, UdpHeader::from_slice(rest).ok()?.0))
}

/// Replaces the IP header of a packet, with a new checksum.
fn set_ip_header(packet: &mut [u8], ip: &Ipv4Header) {
    // A packet has room for the header that was read from it.
    let _ = ip.write(&mut &mut *packet);
}

/// Removes the checksum of a whole UDP packet. With the checksum, the system instead of the protocol would drop a
/// corrupted packet.
pub(crate) fn without_checksum(mut packet: Vec<u8>) -> Vec<u8> {
    if let Some((ip, _)) = headers(&packet) {
        let at = ip.header_len() + UDP_CHECKSUM_AT;
        packet[at..at + 2].fill(0);
    }
    packet
}

/// Sends datagrams with a forged source, like an attacker in a network without source address validation. The datagrams
/// stay in the run's network namespaces.
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

    /// Sends a datagram that claims to come from `from`. Returns whether the system accepted it.
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

/// The address of the router's own side.
pub(crate) const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 214, 0, 1);

/// The network of the addresses behind which a router hides its own side, and its first address.
pub(crate) const NAT_NETWORK: &str = "10.215.0.0/16";
const NAT_FIRST: Ipv4Addr = Ipv4Addr::new(10, 215, 0, 0);

/// The source of copied packets. No translation leads to it.
const COPY_SOURCE: Ipv4Addr = Ipv4Addr::new(10, 215, 255, 1);

/// A router with address translation at one end of a link. It changes the sources of packets, and forgets the ones before. It can send
/// copies of packets from another source, and report packets that are too large for the link.
#[derive(Debug, Default)]
pub(crate) struct NatRouter {
    moves: u32,
    /// Whether a copy of each packet follows it, from another source.
    pub(crate) is_copying: bool,
    /// Whether the sender of a packet that is too large receives an ICMP message.
    pub(crate) is_reporting: bool,
    /// The number of packets for an address without a translation.
    pub(crate) unroutable: u64,
    /// The number of copies.
    pub(crate) copied: u64,
    /// The number of ICMP messages.
    pub(crate) reported: u64,
}

impl NatRouter {
    /// Moves the clients with odd ports to a new address, and in every second call those with even ports. Packets to an address from
    /// before are dropped.
    pub(crate) const fn move_half(&mut self) {
        self.moves += 1;
    }

    /// Translates a packet that leaves the router's own side. Returns the copy that follows it.
    pub(crate) fn on_leaving(&mut self, packet: &mut [u8]) -> Option<Vec<u8>> {
        let (mut ip, udp) = headers(packet)?;
        if ip.source != INSIDE.octets() {
            return None;
        }
        let copy = self.is_copying.then(|| {
            let mut copy = packet.to_vec();
            set_ip_header(&mut copy, &Ipv4Header { source: COPY_SOURCE.octets(), ..ip.clone() });
            self.copied += 1;
            copy
        });
        ip.source = self.outside(udp.source_port).octets();
        set_ip_header(packet, &ip);
        copy
    }

    /// Translates a packet for the router's own side. Returns whether its destination leads there.
    pub(crate) fn on_arriving(&mut self, packet: &mut [u8]) -> bool {
        let Some((mut ip, udp)) = headers(packet) else { return true };
        let is_routable = ip.destination == self.outside(udp.destination_port).octets();
        if is_routable {
            ip.destination = INSIDE.octets();
            set_ip_header(packet, &ip);
        } else {
            self.unroutable += 1;
        }
        is_routable
    }

    /// Returns the ICMP message for a packet that a link of `longest` bytes does not carry, if the router reports such packets.
    pub(crate) fn on_length(&mut self, packet: &[u8], longest: usize) -> Option<Vec<u8>> {
        if !self.is_reporting {
            return None;
        }
        let message = too_large(packet, u16::try_from(longest).ok()?)?;
        self.reported += 1;
        Some(message)
    }

    /// Returns the current outside address of a client with this port.
    fn outside(&self, port: u16) -> Ipv4Addr {
        match (self.moves + u32::from(port % 2)) / 2 {
            0 => INSIDE,
            number => Ipv4Addr::from(u32::from(NAT_FIRST) + number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: SocketAddrV4 = SocketAddrV4::new(INSIDE, 4_000);
    const TO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 214, 0, 2), 53);

    /// Returns the source and the destination of a packet whose IP header has the right checksum.
    fn endpoints(packet: &[u8]) -> [SocketAddrV4; 2] {
        let (ip, udp) = headers(packet).expect("a UDP packet");
        assert_eq!(ip.header_checksum, ip.calc_header_checksum());
        [(ip.source, udp.source_port), (ip.destination, udp.destination_port)]
            .map(|(address, port)| SocketAddrV4::new(address.into(), port))
    }

    #[test]
    fn only_whole_udp_packets_are_changed() {
        let packet = udp_packet(FROM, TO, b"hello").expect("a packet");
        assert_eq!((endpoints(&packet), &packet[28..]), ([FROM, TO], &b"hello"[..]));
        let changed = without_checksum(packet.clone());
        assert_eq!((&changed[26..28], &changed[..26]), (&[0, 0][..], &packet[..26]));
        assert_eq!(udp_packet(FROM, TO, &[0; 65_508]), None);
        for (at, byte) in [(0, 0x60), (6, 0x20), (9, 6)] {
            let mut other = packet.clone();
            other[at] = byte;
            assert_eq!((without_checksum(other.clone()), too_large(&other, 1)), (other, None));
        }
    }

    #[test]
    fn the_sender_of_a_packet_too_large_receives_a_message() {
        let mut packet = udp_packet(FROM, TO, &[7; 1_000]).expect("a packet");
        let message = too_large(&packet, 1_027).expect("a message");
        let (ip, rest) = Ipv4Header::from_slice(&message).expect("an IP header");
        assert_eq!((ip.source, ip.destination), (TO.ip().octets(), INSIDE.octets()));
        assert_eq!((ip.protocol, &rest[..2]), (IpNumber::ICMP, &[3, 4][..]));
        assert_eq!((&rest[6..8], &rest[8..]), (&1_027_u16.to_be_bytes()[..], &packet[..28]));
        let mut router = NatRouter::default();
        assert_eq!(router.on_length(&packet, 1_000), None);
        router.is_reporting = true;
        assert!(router.on_length(&packet, 1_000).is_some());
        assert_eq!((router.on_length(&packet, 1_028), router.reported), (None, 1));
        packet[6] = 0;
        assert_eq!(too_large(&packet, 500), None, "it may be fragmented");
    }

    #[test]
    fn half_of_all_ports_move_and_their_old_addresses_are_forgotten() {
        let mut router = NatRouter::default();
        let leave = |router: &mut NatRouter, port: u16| {
            let mut packet = udp_packet(SocketAddrV4::new(INSIDE, port), TO, b"x").expect("a packet");
            assert_eq!(router.on_leaving(&mut packet), None);
            *endpoints(&packet)[0].ip()
        };
        let outside = |last| Ipv4Addr::new(10, 215, 0, last);
        for expected in [[INSIDE, outside(1)], [outside(1), outside(1)], [outside(1), outside(2)]] {
            router.move_half();
            assert_eq!([10, 11].map(|port| leave(&mut router, port)), expected);
        }
        let arrive = |router: &mut NatRouter, ip, port| {
            let mut packet = udp_packet(TO, SocketAddrV4::new(ip, port), b"x").expect("a packet");
            router.on_arriving(&mut packet).then(|| endpoints(&packet)[1])
        };
        assert_eq!(arrive(&mut router, outside(2), 11), Some(SocketAddrV4::new(INSIDE, 11)));
        let lost = [(outside(1), 11), (INSIDE, 10)].map(|(ip, port)| arrive(&mut router, ip, port));
        assert_eq!((lost, router.unroutable), ([None, None], 2));
    }

    #[test]
    fn a_copy_has_another_source() {
        let mut router = NatRouter { is_copying: true, ..NatRouter::default() };
        let mut packet = udp_packet(FROM, TO, b"x").expect("a packet");
        let mut copy = router.on_leaving(&mut packet).expect("a copy");
        assert_eq!(endpoints(&copy), [SocketAddrV4::new(COPY_SOURCE, FROM.port()), TO]);
        assert_eq!((endpoints(&packet), router.copied), ([FROM, TO], 1));
        assert_eq!(router.on_leaving(&mut copy), None, "a copy is not copied");
    }
}
