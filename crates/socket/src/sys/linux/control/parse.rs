//! The parser for the control messages of a received message, as cmsg(3) describes them.
//!
//! It is safe code without dependencies, because the fuzz crate includes this file by path.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The length of `struct cmsghdr` as the kernel writes it: the message length as a `size_t`, the level, and the type.
const HEADER_BYTES: usize = LENGTH_BYTES + 8;
const LENGTH_BYTES: usize = size_of::<usize>();

/// The level and the type of each message: `SOL_UDP` and `UDP_GRO`, `IPPROTO_IP` and `IP_PKTINFO`, and `IPPROTO_IPV6` and
/// `IPV6_PKTINFO`. They are the same on every architecture.
const GRO: (i32, i32) = (17, 104);
const ADDRESS_V4: (i32, i32) = (0, 8);
const ADDRESS_V6: (i32, i32) = (41, 50);

/// The length of `struct in_pktinfo`, and the offset of its field `ipi_spec_dst`.
const INFO_V4_BYTES: usize = 12;
const SPEC_DST: usize = 4;

/// The length of `struct in6_pktinfo`, which begins with the address.
const INFO_V6_BYTES: usize = 20;

/// The data in the control messages of a received message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ControlData {
    /// The segment size of a train in bytes, or 0 if the kernel reported none.
    pub(crate) segment_bytes: usize,
    /// The local address that the message was sent to, or `None` if the kernel reported none.
    pub(crate) local: Option<IpAddr>,
}

/// Parses control messages. Parsing ends at the first message that is not complete.
pub(crate) fn parse(mut control: &[u8]) -> ControlData {
    let mut data = ControlData::default();
    while let Some(header) = control.first_chunk::<HEADER_BYTES>() {
        let [length @ .., _, _, _, _, _, _, _, _] = *header;
        let length = usize::from_ne_bytes(length);
        let Some(body) = control.get(HEADER_BYTES..length) else { break };
        let Some(kind) = int_at(header, LENGTH_BYTES).zip(int_at(header, LENGTH_BYTES + 4)) else { break };
        match kind {
            GRO => {
                let segment_bytes = int_at(body, 0).and_then(|bytes| usize::try_from(bytes).ok());
                data.segment_bytes = segment_bytes.unwrap_or(0);
            }
            ADDRESS_V4 => {
                let address = body.get(..INFO_V4_BYTES).and_then(|info| bytes_at(info, SPEC_DST));
                data.local = address.map(|address| Ipv4Addr::from_octets(address).into());
            }
            ADDRESS_V6 => {
                let address = body.get(..INFO_V6_BYTES).and_then(|info| bytes_at(info, 0));
                // Linux does not send from a multicast address, so a multicast destination cannot become the source of
                // a reply. For IPv4, `ipi_spec_dst` is a local address even then (ip(7)).
                let address = address.map(Ipv6Addr::from_octets).filter(|address| !address.is_multicast());
                data.local = address.map(IpAddr::from);
            }
            _ => {}
        }
        // The next message starts at a multiple of the word size, as `CMSG_ALIGN` returns. The body was complete, so
        // `length` is at most `control.len()`, and rounding it up cannot overflow.
        control = control.get(length.next_multiple_of(LENGTH_BYTES)..).unwrap_or_default();
    }
    data
}

fn int_at(bytes: &[u8], offset: usize) -> Option<i32> {
    bytes_at(bytes, offset).map(i32::from_ne_bytes)
}

fn bytes_at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}
