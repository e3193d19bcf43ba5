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

use std::error::Error;
use std::fmt;
use std::num::NonZeroU64;
use std::ops::Range;
use std::str::FromStr;

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
    /// When the datagram was meant to leave, in nanoseconds of the sending host's monotonic clock.
    ///
    /// Only a receiver on the same host can use it.
    pub stamp: Option<NonZeroU64>,
}

/// The 8-byte id of a flow, made by the receiver; its first two bytes are the routing tag.
///
/// Its text form is 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct RouteId(pub [u8; ID_BYTES]);

/// The reason why a datagram ended in the parse stage.
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

/// Why a datagram could not be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// The buffer is shorter than [`MIN_BYTES`] or longer than [`MAX_BYTES`].
    Length(usize),
    /// There is a send time and the buffer is shorter than [`STAMPED_BYTES`].
    NoRoomForStamp,
    /// The sequence is above [`MAX_SEQUENCE`].
    BadSequence,
}

/// Writes the header into `datagram`, whose whole length is that of the datagram; the filler is left as it
/// is.
///
/// # Errors
///
/// [`EncodeError`] when the length or the sequence is out of range, or a send time has no room; nothing is
/// written.
pub fn encode(datagram: &mut [u8], header: &Header) -> Result<(), EncodeError> {
    let length = datagram.len();
    if !(MIN_BYTES..=MAX_BYTES).contains(&length) {
        return Err(EncodeError::Length(length));
    }
    if header.stamp.is_some() && length < STAMPED_BYTES {
        return Err(EncodeError::NoRoomForStamp);
    }
    if header.sequence > MAX_SEQUENCE {
        return Err(EncodeError::BadSequence);
    }
    put(datagram, FIRST, [TRANSPORT]);
    put(datagram, ID, header.id.0);
    put(datagram, FLOW, header.flow.to_be_bytes());
    write_sequence(datagram, header.sequence);
    write_stamp(datagram, header.stamp.map_or(0, NonZeroU64::get));
    Ok(())
}

/// Reads the header of `datagram`, whose whole length is that of the datagram.
///
/// Flow and id are not compared with anything: that is the flow table's part.
///
/// # Errors
///
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

/// Whether byte 0 says that a datagram, or the first of a train, can be the sender's.
#[inline]
#[must_use]
pub fn is_ours(datagram: &[u8]) -> bool {
    datagram.first() == Some(&TRANSPORT)
}

/// Writes another sequence into an encoded datagram; false, and nothing written, when it is too short.
#[inline]
pub fn write_sequence(datagram: &mut [u8], sequence: u64) -> bool {
    put(datagram, SEQUENCE, sequence.to_be_bytes())
}

/// Writes another send time, in nanoseconds with 0 for none; false, and nothing written, when there is no
/// room.
#[inline]
pub fn write_stamp(datagram: &mut [u8], stamp_ns: u64) -> bool {
    put(datagram, STAMP, stamp_ns.to_be_bytes())
}

impl RouteId {
    /// The routing tag, which the steering filter reads.
    #[must_use]
    pub fn tag(self) -> u16 {
        let [high, low, ..] = self.0;
        u16::from_be_bytes([high, low])
    }
}

impl DropReason {
    /// Every reason, in the order of [`DropReason::index`].
    pub const ALL: [Self; 6] =
        [Self::TooShort, Self::TooLong, Self::NotOurs, Self::BadSequence, Self::UnknownFlow, Self::WrongId];

    /// The name in reports and counters, which never changes.
    #[must_use]
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

    /// The place in [`DropReason::ALL`], for an array of counters.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Error for DropReason {}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(length) => {
                write!(f, "a datagram has {MIN_BYTES} to {MAX_BYTES} bytes, not {length}")
            }
            Self::NoRoomForStamp => write!(f, "a send time needs {STAMPED_BYTES} bytes"),
            Self::BadSequence => write!(f, "the sequence is above {MAX_SEQUENCE}"),
        }
    }
}

impl Error for EncodeError {}

impl fmt::Display for RouteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl FromStr for RouteId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        // from_str_radix also takes a sign, which an id has not.
        if text.len() != 16 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(NotAnId);
        }
        u64::from_str_radix(text, 16).map(|bits| Self(bits.to_be_bytes())).map_err(|_| NotAnId)
    }
}

impl TryFrom<String> for RouteId {
    type Error = NotAnId;

    fn try_from(text: String) -> Result<Self, NotAnId> {
        text.parse()
    }
}

impl From<RouteId> for String {
    fn from(id: RouteId) -> Self {
        id.to_string()
    }
}

/// The text is not an id of 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAnId;

impl fmt::Display for NotAnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id has 16 hexadecimal digits")
    }
}

impl Error for NotAnId {}

#[inline]
fn field<const N: usize>(datagram: &[u8], at: Range<usize>) -> Option<[u8; N]> {
    datagram.get(at)?.try_into().ok()
}

#[inline]
fn put<const N: usize>(datagram: &mut [u8], at: Range<usize>, bytes: [u8; N]) -> bool {
    match datagram.get_mut(at).and_then(|place| <&mut [u8; N]>::try_from(place).ok()) {
        Some(place) => {
            *place = bytes;
            true
        }
        None => false,
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
    fn every_field_stands_at_its_place() {
        let mut datagram = [0xee; 30];
        encode(&mut datagram, &HEADER).unwrap();
        assert_eq!(datagram[0], 0x08);
        assert_eq!(datagram[1..3], [0xab, 0xcd]);
        assert_eq!(datagram[1..9], HEADER.id.0);
        assert_eq!(datagram[9..13], [1, 2, 3, 4]);
        assert_eq!(datagram[13..21], [0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]);
        assert_eq!(datagram[21..29], [0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28]);
        assert_eq!(datagram[29], 0xee, "the filler is left alone");
        assert_eq!(HEADER.id.tag(), 0xabcd);
    }

    #[test]
    fn a_header_comes_back_as_it_was_at_every_length_around_the_bounds() {
        for length in [28, 29, 30, 65_506, 65_507] {
            let header = Header { stamp: HEADER.stamp.filter(|_| length >= 29), ..HEADER };
            let mut datagram = vec![0; length];
            encode(&mut datagram, &header).unwrap();
            assert_eq!(decode(&datagram), Ok(header), "{length} bytes");
        }
    }

    #[test]
    fn a_length_out_of_range_is_refused_both_ways() {
        let without = Header { stamp: None, ..HEADER };
        let mut datagram = vec![0; 65_508];
        encode(&mut datagram[..28], &without).unwrap();
        assert_eq!(encode(&mut datagram[..27], &without), Err(EncodeError::Length(27)));
        assert_eq!(encode(&mut datagram, &without), Err(EncodeError::Length(65_508)));
        for length in 0..28 {
            assert_eq!(decode(&datagram[..length]), Err(DropReason::TooShort), "{length} bytes");
        }
        assert_eq!(decode(&datagram), Err(DropReason::TooLong));
    }

    #[test]
    fn a_send_time_without_room_is_refused_and_its_absence_reads_as_none() {
        let mut datagram = [0xff; 29];
        assert_eq!(encode(&mut datagram[..28], &HEADER), Err(EncodeError::NoRoomForStamp));
        assert!(!write_stamp(&mut datagram[..28], 7));
        assert_eq!(datagram, [0xff; 29], "a refusal writes nothing");
        encode(&mut datagram, &Header { stamp: None, ..HEADER }).unwrap();
        assert_eq!(decode(&datagram).unwrap().stamp, None);
        assert!(write_stamp(&mut datagram, 7));
        assert_eq!(decode(&datagram).unwrap().stamp, NonZeroU64::new(7));
        assert_eq!(decode(&datagram[..28]).unwrap().stamp, None, "bytes 21-27 of 28 are filler");
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
    fn the_sequence_can_be_rewritten_alone() {
        let mut datagram = [0; 29];
        encode(&mut datagram, &HEADER).unwrap();
        assert!(write_sequence(&mut datagram, 9));
        assert_eq!(decode(&datagram), Ok(Header { sequence: 9, ..HEADER }));
        assert!(!write_sequence(&mut datagram[..20], 10));
        assert!(write_sequence(&mut datagram[..21], 10));
    }

    #[test]
    fn the_sequence_ends_one_below_the_largest_integer() {
        let mut datagram = [0; 29];
        for (sequence, is_good) in [(MAX_SEQUENCE - 1, true), (MAX_SEQUENCE, true), (u64::MAX, false)] {
            let header = Header { sequence, ..HEADER };
            assert_eq!(encode(&mut datagram, &header).is_ok(), is_good);
            write_sequence(&mut datagram, sequence);
            assert_eq!(decode(&datagram), if is_good { Ok(header) } else { Err(DropReason::BadSequence) });
        }
    }

    #[test]
    fn drop_reasons_have_distinct_names_and_index_their_list() {
        let mut names: Vec<_> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(
            names,
            ["too_short", "too_long", "not_ours", "bad_sequence", "unknown_flow", "wrong_id"],
            "reports depend on these names"
        );
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), DropReason::ALL.len());
        for (place, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(reason.index(), place);
        }
    }

    #[test]
    fn an_id_is_written_with_16_digits_and_nothing_else_is_read() {
        let id = RouteId([0, 1, 0xfe, 0, 0, 0, 0, 9]);
        assert_eq!(id.to_string(), "0001fe0000000009");
        assert_eq!("0001fe0000000009".parse(), Ok(id));
        assert_eq!(serde_json::to_string(&id).unwrap(), "\"0001fe0000000009\"");
        for bad in [
            "",
            "0001fe000000000",
            "0001fe00000000099",
            "+001fe0000000009",
            "0001fe000000000g",
            "0001fe000000é9",
        ] {
            assert_eq!(bad.parse::<RouteId>(), Err(NotAnId), "{bad}");
        }
    }
}
