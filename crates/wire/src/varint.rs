//! Variable-length integers: LEB128 for u64, the lowest group of seven bits first (PROTOCOL 2.1, "Integers").
//!
//! Every value has exactly one encoding here: a longer one than needed is refused. Deliberately unsigned only.

use core::fmt;

use bytes::BufMut;

use crate::encode_error::{EncodeError, check_room};

/// Bytes of the longest varint: nine groups of seven bits and the top bit.
pub const MAX_BYTES: usize = 10;

/// The last group of a u64 starts at this bit; only one bit is left for it.
const LAST_SHIFT: u32 = 63;

/// Why bytes are not a varint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VarintError {
    /// The bytes end inside it.
    Truncated,
    /// It has more bytes than its value needs.
    Overlong,
    /// It is larger than a u64.
    TooLarge,
}

impl VarintError {
    /// A stable name for counters and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::Overlong => "overlong",
            Self::TooLarge => "too_large",
        }
    }
}

impl fmt::Display for VarintError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the bytes end inside a varint",
            Self::Overlong => "a varint has more bytes than its value needs",
            Self::TooLarge => "a varint is larger than 64 bits",
        })
    }
}

impl core::error::Error for VarintError {}

/// Reads the varint at the front of `bytes`; gives its value and the bytes after it.
///
/// # Errors
///
/// When the bytes end inside it, when it is longer than its value needs, or larger than a u64.
#[inline]
pub fn decode(bytes: &[u8]) -> Result<(u64, &[u8]), VarintError> {
    match bytes {
        // Most values are small.
        [byte @ 0..=0x7f, rest @ ..] => Ok((u64::from(*byte), rest)),
        [first, second @ 1..=0x7f, rest @ ..] => {
            Ok((u64::from(first & 0x7f) | u64::from(*second) << 7, rest))
        }
        _ => decode_long(bytes),
    }
}

fn decode_long(bytes: &[u8]) -> Result<(u64, &[u8]), VarintError> {
    let (mut value, mut shift) = (0_u64, 0_u32);
    for (place, &byte) in bytes.iter().enumerate().take(MAX_BYTES) {
        value |= u64::from(byte & 0x7f).wrapping_shl(shift);
        if byte & 0x80 == 0 {
            return match byte {
                0 if shift > 0 => Err(VarintError::Overlong),
                2.. if shift == LAST_SHIFT => Err(VarintError::TooLarge),
                _ => Ok((value, bytes.get(place.wrapping_add(1)..).unwrap_or_default())),
            };
        }
        shift = shift.wrapping_add(7);
    }
    Err(if bytes.len() < MAX_BYTES { VarintError::Truncated } else { VarintError::TooLarge })
}

/// Writes `value`.
///
/// # Errors
///
/// [`EncodeError::NoRoom`] when `out` is too short; then nothing is written.
pub fn encode(value: u64, out: &mut impl BufMut) -> Result<(), EncodeError> {
    check_room(encoded_bytes(value), out.remaining_mut())?;
    put(value, out);
    Ok(())
}

/// Bytes `value` takes, 1 to [`MAX_BYTES`].
pub const fn encoded_bytes(value: u64) -> usize {
    // Or-ing one changes no length but zero's, which takes one byte too.
    ((value | 1).ilog2() as usize / 7).saturating_add(1)
}

/// Writes `value` where the caller has already made sure of the room.
pub(crate) fn put(value: u64, out: &mut impl BufMut) {
    let mut rest = value;
    while rest > 0x7f {
        out.put_u8(low_group(rest) | 0x80);
        rest >>= 7;
    }
    out.put_u8(low_group(rest));
}

fn low_group(value: u64) -> u8 {
    value.to_le_bytes()[0] & 0x7f
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        encode(value, &mut out).unwrap();
        out
    }

    #[test]
    fn lengths_change_exactly_at_the_powers_of_128() {
        for groups in 1..=9_u32 {
            let first_longer = 1_u64 << (7 * groups);
            for (value, bytes) in
                [(first_longer - 1, groups), (first_longer, groups + 1), (first_longer + 1, groups + 1)]
            {
                assert_eq!(encoded_bytes(value), bytes as usize, "{value}");
                assert_eq!(encoded(value).len(), bytes as usize, "{value}");
            }
        }
        assert_eq!((encoded_bytes(0), encoded_bytes(1)), (1, 1));
        assert_eq!((encoded_bytes(u64::MAX), encoded(u64::MAX).len()), (MAX_BYTES, MAX_BYTES));
    }

    #[test]
    fn a_longer_encoding_than_needed_is_refused() {
        for overlong in [&[0x80, 0x00][..], &[0xff, 0x00], &[0x81, 0x80, 0x00]] {
            assert_eq!(decode(overlong), Err(VarintError::Overlong));
        }
        assert_eq!(decode(&[0x00]), Ok((0, &[][..])));
    }

    #[test]
    fn the_largest_u64_fits_and_one_bit_more_does_not() {
        let mut bytes = encoded(u64::MAX);
        assert_eq!(decode(&bytes), Ok((u64::MAX, &[][..])));
        bytes[9] = 2;
        assert_eq!(decode(&bytes), Err(VarintError::TooLarge));
        assert_eq!(decode(&[0xff; 11]), Err(VarintError::TooLarge));
        assert_eq!(decode(&[0x80; 9]), Err(VarintError::Truncated));
        assert_eq!(decode(&[0x80; 10]), Err(VarintError::TooLarge));
    }

    #[test]
    fn without_room_nothing_is_written() {
        let mut buffer = [0xaa; 1];
        let mut out = &mut buffer[..];
        assert_eq!(encode(128, &mut out), Err(EncodeError::NoRoom { needed_bytes: 2 }));
        assert_eq!(out.len(), 1);
        assert_eq!(encode(127, &mut out), Ok(()));
        assert_eq!(encode(0, &mut out), Err(EncodeError::NoRoom { needed_bytes: 1 }));
        assert_eq!(buffer, [0x7f]);
    }

    proptest! {
        #[test]
        fn every_value_comes_back_and_leaves_the_rest(shift in 0_u32..64, bits: u64, tail: Vec<u8>) {
            let value = bits >> shift;
            let mut bytes = encoded(value);
            prop_assert_eq!(bytes.len(), encoded_bytes(value));
            for end in 0..bytes.len() {
                prop_assert_eq!(decode(&bytes[..end]), Err(VarintError::Truncated));
            }
            bytes.extend(&tail);
            prop_assert_eq!(decode(&bytes), Ok((value, &tail[..])));
        }

        #[test]
        fn what_decodes_encodes_to_the_same_bytes(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            if let Ok((value, rest)) = decode(&bytes) {
                prop_assert_eq!(&encoded(value)[..], &bytes[..bytes.len() - rest.len()]);
            }
        }
    }
}
