//! The parser of the control messages that the kernel writes for a received message.
//!
//! It is safe code without dependencies, because the fuzz crate includes this file by path.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of `struct cmsghdr` as the kernel writes it: the length as a `size_t`, the level, and the type.
const HEADER_BYTES: usize = LENGTH_BYTES + 8;
const LENGTH_BYTES: usize = size_of::<usize>();

/// The level and the type of each message, the same on every architecture: `SOL_UDP` and `UDP_GRO`, `IPPROTO_IP` and `IP_PKTINFO`,
/// and `IPPROTO_IPV6` and `IPV6_PKTINFO`.
const GRO: (i32, i32) = (17, 104);
const ADDRESS_V4: (i32, i32) = (0, 8);
const ADDRESS_V6: (i32, i32) = (41, 50);

/// Bytes of `struct in_pktinfo`, and the offset of `ipi_spec_dst`.
const INFO_V4_BYTES: usize = 12;
const SPEC_DST: usize = 4;

/// Bytes of `struct in6_pktinfo`, which begins with the address.
const INFO_V6_BYTES: usize = 20;

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
        let Some(kind) = int_at(header, LENGTH_BYTES).zip(int_at(header, LENGTH_BYTES + 4)) else { break };
        match kind {
            GRO => {
                let stride = int_at(body, 0).and_then(|stride| usize::try_from(stride).ok());
                facts.segment_bytes = stride.unwrap_or(0);
            }
            ADDRESS_V4 => {
                let address = body.get(..INFO_V4_BYTES).and_then(|info| bytes_at(info, SPEC_DST));
                facts.local = address.map(|address| Ipv4Addr::from_octets(address).into());
            }
            ADDRESS_V6 => {
                let address = body.get(..INFO_V6_BYTES).and_then(|info| bytes_at(info, 0));
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

fn int_at(bytes: &[u8], at: usize) -> Option<i32> {
    bytes_at(bytes, at).map(i32::from_ne_bytes)
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}
