//! The raw datagram that `sender` writes and `receiver` reads.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0 | [`TRANSPORT`]: bit 7 clear (transport), bit 3 set |
//! | 1-8 | id, whose bytes 1-2 are the 16-bit routing tag |
//! | 9-12 | flow, `u32` |
//! | 13-20 | sequence within the flow, `u64`, from 0 |
//! | 21-28 | intended send time in nanoseconds, `u64`, 0 = none; only from [`STAMPED_BYTES`] on |
//! | the rest | filler, never read |
//!
//! Integers are big-endian. The first byte and the id are at the offsets of PROTOCOL 6.1, "Header", so the steering filter treats
//! these datagrams like real ones. They are neither encrypted nor authenticated.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::num::NonZeroU64;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Byte 0 of every raw datagram: transport, bit 3 set, key phase 0, shortest packet number.
pub const TRANSPORT: u8 = 0x08;

/// Length of the id in bytes.
pub const ID_BYTES: usize = 8;

/// Offset of the routing tag, where the steering filter reads its two bytes.
pub const TAG_OFFSET: usize = 1;

/// Length of the header that every datagram has: byte 0, id, flow, sequence.
pub const HEADER_BYTES: usize = 21;

/// The shortest datagram in bytes: the length from which the filter steers.
pub const MIN_BYTES: usize = 28;

/// The shortest datagram that has room for the send time, in bytes.
pub const STAMPED_BYTES: usize = 29;

/// The longest datagram in bytes: what UDP over IPv4 carries.
pub const MAX_BYTES: usize = 65_507;

/// The highest sequence; the one above it is refused so that "one past the highest" always fits.
pub const MAX_SEQUENCE: u64 = u64::MAX - 1;

const FIRST: Range<usize> = 0..1;
const ID: Range<usize> = TAG_OFFSET..9;
const FLOW: Range<usize> = 9..13;
const SEQUENCE: Range<usize> = 13..HEADER_BYTES;
const STAMP: Range<usize> = HEADER_BYTES..STAMPED_BYTES;

/// The fields of one raw datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The id the receiver gave to the flow.
    pub id: RouteId,
    /// The flow, from 0.
    pub flow: u32,
    /// The place in the flow, from 0, at most [`MAX_SEQUENCE`].
    pub sequence: u64,
    /// The intended time of sending, in nanoseconds of the sending host's monotonic clock.
    ///
    /// Only a receiver on the same host can use it.
    pub stamp: Option<NonZeroU64>,
}

/// The 8-byte id of a flow, made by the receiver; its first two bytes are the routing tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RouteId(pub [u8; ID_BYTES]);

/// The reason why the parse stage dropped a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// Shorter than [`MIN_BYTES`].
    TooShort,
    /// Longer than [`MAX_BYTES`], which IPv6 allows and the sender never makes.
    TooLong,
    /// Byte 0 is not [`TRANSPORT`].
    NotOurs,
    /// The sequence is above [`MAX_SEQUENCE`].
    BadSequence,
    /// The flow is not among those that were announced.
    UnknownFlow,
    /// The id is not the id of the flow: a datagram of an earlier run or of another program.
    WrongId,
}

/// Writes the header into `datagram`, whose whole length is that of the datagram. The filler is left as it is.
///
/// Returns `None`, and writes nothing, if the length or the sequence is out of range, or a send time has no room.
pub fn encode(datagram: &mut [u8], header: &Header) -> Option<()> {
    let length = datagram.len();
    let has_room = header.stamp.is_none() || length >= STAMPED_BYTES;
    if !(MIN_BYTES..=MAX_BYTES).contains(&length) || !has_room || header.sequence > MAX_SEQUENCE {
        return None;
    }
    put(datagram, FIRST, [TRANSPORT]);
    put(datagram, ID, header.id.0);
    put(datagram, FLOW, header.flow.to_be_bytes());
    put(datagram, SEQUENCE, header.sequence.to_be_bytes());
    put(datagram, STAMP, header.stamp.map_or(0, NonZeroU64::get).to_be_bytes());
    Some(())
}

/// Reads the header of `datagram`, whose whole length is that of the datagram.
///
/// The flow table compares flow and id.
///
/// # Errors
/// The [`DropReason`] to count.
#[inline]
pub fn decode(datagram: &[u8]) -> Result<Header, DropReason> {
    if datagram.len() < MIN_BYTES {
        return Err(DropReason::TooShort);
    }
    if datagram.len() > MAX_BYTES {
        return Err(DropReason::TooLong);
    }
    if !is_ours(datagram) {
        return Err(DropReason::NotOurs);
    }
    let id = RouteId(field(datagram, ID).ok_or(DropReason::TooShort)?);
    let flow = u32::from_be_bytes(field(datagram, FLOW).ok_or(DropReason::TooShort)?);
    let sequence = u64::from_be_bytes(field(datagram, SEQUENCE).ok_or(DropReason::TooShort)?);
    if sequence > MAX_SEQUENCE {
        return Err(DropReason::BadSequence);
    }
    let stamp = field(datagram, STAMP).and_then(|bytes| NonZeroU64::new(u64::from_be_bytes(bytes)));
    Ok(Header { id, flow, sequence, stamp })
}

/// Returns whether byte 0 shows that a datagram, or the first of a train, can be the sender's.
#[inline]
pub fn is_ours(datagram: &[u8]) -> bool {
    datagram.first() == Some(&TRANSPORT)
}

impl DropReason {
    /// The name in reports and counters, which never changes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooShort => "too_short",
            Self::TooLong => "too_long",
            Self::NotOurs => "not_ours",
            Self::BadSequence => "bad_sequence",
            Self::UnknownFlow => "unknown_flow",
            Self::WrongId => "wrong_id",
        }
    }
}

#[inline]
fn field<const N: usize>(datagram: &[u8], at: Range<usize>) -> Option<[u8; N]> {
    datagram.get(at)?.try_into().ok()
}

/// Writes a field if there is room for it.
fn put<const N: usize>(datagram: &mut [u8], at: Range<usize>, bytes: [u8; N]) {
    if let Some(place) = datagram.get_mut(at) {
        place.copy_from_slice(&bytes);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics is a test that fails")]
mod tests {
    use super::*;

    const HEADER: Header = Header {
        id: RouteId([0xab, 0xcd, 1, 2, 3, 4, 5, 6]),
        flow: 0x0102_0304,
        sequence: 0x1112_1314_1516_1718,
        stamp: NonZeroU64::new(0x2122_2324_2526_2728),
    };

    #[test]
    fn every_field_has_its_place() {
        let mut datagram = [0xee; 30];
        encode(&mut datagram, &HEADER).unwrap();
        let fields =
            [&[0x08][..], &HEADER.id.0, &[1, 2, 3, 4], &[0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]];
        assert_eq!(datagram[..21], fields.concat());
        assert_eq!(datagram[21..], [0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0xee]);
    }

    #[test]
    fn a_header_comes_back_at_every_valid_length() {
        let mut datagram = vec![0; 65_508];
        for length in [28, 29, 30, 65_506, 65_507] {
            let header = Header { stamp: HEADER.stamp.filter(|_| length >= 29), ..HEADER };
            encode(&mut datagram[..length], &header).unwrap();
            assert_eq!(decode(&datagram[..length]), Ok(header), "{length} bytes");
        }
        let without = Header { stamp: None, ..HEADER };
        assert_eq!((encode(&mut datagram[..27], &without), encode(&mut datagram, &without)), (None, None));
        assert!((0..28).all(|length| decode(&datagram[..length]) == Err(DropReason::TooShort)));
        assert_eq!(decode(&datagram), Err(DropReason::TooLong));
        let mut short = [0xff; 28];
        assert_eq!(encode(&mut short, &HEADER), None, "a send time needs 29 bytes");
        assert_eq!(short, [0xff; 28], "a refusal writes nothing");
    }

    #[test]
    fn only_the_transport_byte_of_the_sender_is_ours() {
        let mut datagram = [0; 29];
        encode(&mut datagram, &HEADER).unwrap();
        for first in 0..=255 {
            datagram[0] = first;
            assert_eq!(is_ours(&datagram), first == 0x08);
            assert_eq!(decode(&datagram).is_ok(), first == 0x08);
        }
        assert!(!is_ours(&[]));
    }

    #[test]
    fn the_sequence_ends_below_the_largest_integer() {
        let mut datagram = [0; 29];
        for (sequence, is_good) in [(MAX_SEQUENCE, true), (u64::MAX, false)] {
            let header = Header { sequence, ..HEADER };
            assert_eq!(encode(&mut datagram, &header).is_some(), is_good);
            datagram[13..21].copy_from_slice(&sequence.to_be_bytes());
            assert_eq!(decode(&datagram), if is_good { Ok(header) } else { Err(DropReason::BadSequence) });
        }
    }
}
