//! IPv4 packets (RFC 791, RFC 768, RFC 1191) with a forged source: datagrams, and a router's reports of datagrams that are too large.

use std::io::ErrorKind;
use std::net::{SocketAddr, SocketAddrV4};

use etherparse::icmpv4::DestUnreachableHeader;
use etherparse::{Icmpv4Type, PacketBuilder};
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::{Error, ErrorContext};

const TIME_TO_LIVE: u8 = 64;

/// Returns a UDP packet, or `None` if it would be too long.
fn udp_packet(from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Option<Vec<u8>> {
    let builder = PacketBuilder::ipv4(from.ip().octets(), to.ip().octets(), TIME_TO_LIVE);
    let mut packet = Vec::new();
    builder.udp(from.port(), to.port()).write(&mut packet, payload).ok().map(|()| packet)
}

/// Returns the ICMP message about a datagram that exceeds the MTU of its path. It contains the headers of the datagram.
fn too_large(from: SocketAddrV4, to: SocketAddrV4, mtu: u16) -> Option<Vec<u8>> {
    let headers = udp_packet(from, to, &[])?;
    let reason = DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: mtu };
    let builder = PacketBuilder::ipv4(to.ip().octets(), from.ip().octets(), TIME_TO_LIVE);
    let mut message = Vec::new();
    let written =
        builder.icmpv4(Icmpv4Type::DestinationUnreachable(reason)).write(&mut message, &headers).ok();
    written.map(|()| message)
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

    /// Reports to the sender of a datagram, as a router does, that the path carries no IP packets of more than `mtu` bytes. Returns
    /// whether the system accepted the report.
    pub(crate) fn report_too_large(&self, from: SocketAddrV4, to: SocketAddrV4, mtu: u16) -> bool {
        let message = too_large(from, to, mtu);
        message.is_some_and(|message| self.0.send_to(&message, &from.into()).is_ok())
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

#[cfg(test)]
mod tests {
    use etherparse::{IpNumber, Ipv4Header, UdpHeader};

    use super::*;

    #[test]
    fn the_sender_of_a_datagram_too_large_receives_a_message() {
        let [from, to] = [1, 2].map(|host| SocketAddrV4::new([10, 214, 0, host].into(), 4_000));
        let message = too_large(from, to, 1_280).expect("a message");
        let (ip, rest) = Ipv4Header::from_slice(&message).expect("an IP header");
        assert_eq!((ip.source, ip.destination), (to.ip().octets(), from.ip().octets()));
        assert_eq!((ip.protocol, &rest[..2]), (IpNumber::ICMP, &[3, 4][..]));
        assert_eq!(rest[6..8], 1_280_u16.to_be_bytes());
        let (inner, rest) = Ipv4Header::from_slice(&rest[8..]).expect("the header of the datagram");
        assert_eq!((inner.source, inner.destination), (from.ip().octets(), to.ip().octets()));
        let (udp, rest) = UdpHeader::from_slice(rest).expect("a UDP header");
        assert_eq!((inner.dont_fragment, udp.source_port, rest), (true, from.port(), &[][..]));
    }
}
