//! The parser of the control messages that the kernel writes for a received message.
//!
//! It is safe code that depends on `libc` alone, because the fuzz crate includes this file by path.

use std::mem::{offset_of, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of `struct cmsghdr` as the kernel writes it: the length as a `size_t`, the level, and the type.
const HEADER_BYTES: usize = LENGTH_BYTES + 8;
const LENGTH_BYTES: usize = size_of::<usize>();

/// The facts about a received message that its control messages state.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ControlFacts {
    /// The length of each datagram of a train in bytes, or 0 if the kernel stated none.
    pub(crate) segment_bytes: usize,
    /// The local address that the message was sent to, or `None` if the kernel stated none.
    pub(crate) local: Option<IpAddr>,
}

/// Returns what these control messages state. Reading ends at the first one that does not lie whole in `control`.
pub(crate) fn parse(mut control: &[u8]) -> ControlFacts {
    let mut facts = ControlFacts::default();
    while let Some(header) = control.first_chunk::<HEADER_BYTES>() {
        let [length @ .., _, _, _, _, _, _, _, _] = *header;
        let length = usize::from_ne_bytes(length);
        let Some(body) = control.get(HEADER_BYTES..length) else { break };
        match (int_at(header, LENGTH_BYTES), int_at(header, LENGTH_BYTES + 4)) {
            (Some(libc::SOL_UDP), Some(libc::UDP_GRO)) => {
                let stride = int_at(body, 0).and_then(|stride| usize::try_from(stride).ok());
                facts.segment_bytes = stride.unwrap_or(0);
            }
            (Some(libc::IPPROTO_IP), Some(libc::IP_PKTINFO)) => {
                let info = body.get(..size_of::<libc::in_pktinfo>());
                let address =
                    info.and_then(|info| bytes_at(info, offset_of!(libc::in_pktinfo, ipi_spec_dst)));
                facts.local = address.map(|address| Ipv4Addr::from_octets(address).into());
            }
            (Some(libc::IPPROTO_IPV6), Some(libc::IPV6_PKTINFO)) => {
                let info = body.get(..size_of::<libc::in6_pktinfo>());
                let address = info.and_then(|info| bytes_at(info, offset_of!(libc::in6_pktinfo, ipi6_addr)));
                // Linux does not send from a multicast address, so the destination of a multicast datagram is not kept.
                let address = address.map(Ipv6Addr::from_octets).filter(|address| !address.is_multicast());
                facts.local = address.map(IpAddr::from);
            }
            _ => {}
        }
        // As `CMSG_ALIGN`. The body was found, so `length` is no more than `control.len()`.
        control = control.get(length.next_multiple_of(LENGTH_BYTES)..).unwrap_or_default();
    }
    facts
}

fn int_at(bytes: &[u8], at: usize) -> Option<libc::c_int> {
    bytes_at(bytes, at).map(libc::c_int::from_ne_bytes)
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}
