//! The parser of control messages against a second reading of the same bytes.

use std::net::IpAddr;

// The socket crate keeps its parser private.
#[path = "../../../socket/src/sys/linux/control/parse.rs"]
mod parse;

/// Asserts that the socket crate's parser and the second reading agree.
pub(super) fn check(control: &[u8]) {
    let facts = parse::parse(control);
    assert_eq!((facts.segment_bytes, facts.local), expected(control), "{control:?}");
}

/// Bytes of a control message's head: its length, its level, its kind.
const HEAD_BYTES: usize = 16;

/// The numbers of `linux/in.h`, `linux/in6.h` and `linux/udp.h`.
const GRO: (i32, i32) = (17, 104);
const ADDRESS_V4: (i32, i32) = (0, 8);
const ADDRESS_V6: (i32, i32) = (41, 50);

/// Returns the stride and the local address that control messages state, read as `cmsg(3)` describes, with the numbers of a
/// 64-bit Linux.
fn expected(mut control: &[u8]) -> (usize, Option<IpAddr>) {
    let (mut stride, mut local) = (0, None);
    while let (Some(length), Some(level), Some(kind)) =
        (control.first_chunk::<8>(), control.get(8..12), control.get(12..16))
    {
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, i32::from_ne_bytes);
        let length = usize::try_from(u64::from_ne_bytes(*length)).unwrap_or(usize::MAX);
        let Some(body) = control.get(HEAD_BYTES..length) else { break };
        match (number(level), number(kind)) {
            GRO => stride = body.get(..4).map_or(0, |bytes| usize::try_from(number(bytes)).unwrap_or(0)),
            // The index of the interface, the address it came to, the one it named.
            ADDRESS_V4 => {
                let address = body.get(..12).and_then(|info| info.get(4..8)?.first_chunk::<4>());
                local = address.map(|bytes| IpAddr::from(*bytes));
            }
            ADDRESS_V6 => {
                let address = body.get(..20).and_then(<[u8]>::first_chunk::<16>);
                // A multicast destination is no address of the host.
                local = address.map(|bytes| IpAddr::from(*bytes)).filter(|address| !address.is_multicast());
            }
            _ => {}
        }
        control = control.get(length.next_multiple_of(8)..).unwrap_or_default();
    }
    (stride, local)
}
