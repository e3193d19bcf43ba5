//! Variable-length integers: unsigned LEB128 for `u64`, least significant group of seven bits first (PROTOCOL 2.1, "Integers").
//!
//! Every value has exactly one encoding. An encoding that is longer than necessary is an error here, unlike in QUIC
//! (RFC 9000 section 16).

use core::fmt;

use bytes::BufMut;

use crate::codec::{EncodeError, check_room};

/// The length of the longest varint in bytes: nine groups of seven bits, and one byte for the top bit.
pub const MAX_BYTES: usize = 10;

/// The position of the tenth group, which has only one bit.
const LAST_SHIFT: u32 = 63;

/// The reason why bytes are not a varint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VarintError {
    /// The bytes end inside the varint.
    Truncated,
    /// The encoding has more bytes than the value needs.
    Overlong,
    /// The value is larger than a `u64`.
    TooLarge,
}

impl VarintError {
    /// Returns a stable name for counters and logs.
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

/// Reads the varint at the front of `bytes`. Returns its value and the bytes after it.
///
/// # Errors
///
/// Returns an error if the bytes end inside the varint, or the encoding is longer than necessary or larger than a `u64`.
#[inline]
pub fn decode(bytes: &[u8]) -> Result<(u64, &[u8]), VarintError> {
    match bytes {
        // Most values are small: channels, lengths, and the distances between ids.
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

/// Writes the encoding of `value`, 1 to [`MAX_BYTES`] bytes.
///
/// # Errors
///
/// [`EncodeError::NoRoom`] if `out` is too short. Nothing is written then.
pub fn encode(value: u64, out: &mut impl BufMut) -> Result<(), EncodeError> {
    check_room(encoded_bytes(value), out.remaining_mut())?;
    put(value, out);
    Ok(())
}

/// Returns the encoded length of `value` in bytes, 1 to [`MAX_BYTES`].
pub const fn encoded_bytes(value: u64) -> usize {
    // Setting the lowest bit changes no length, and avoids the logarithm of zero.
    ((value | 1).ilog2() as usize / 7).saturating_add(1)
}

/// Writes `value`. The caller has checked that it fits.
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
    fn lengths_change_at_the_powers_of_128() {
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
    fn an_overlong_encoding_is_rejected() {
        for overlong in [&[0x80, 0x00][..], &[0xff, 0x00], &[0x81, 0x80, 0x00]] {
            assert_eq!(decode(overlong), Err(VarintError::Overlong));
        }
        assert_eq!(decode(&[0x00]), Ok((0, &[][..])));
    }

    #[test]
    fn the_largest_u64_fits_and_larger_values_do_not() {
        let mut bytes = encoded(u64::MAX);
        assert_eq!(decode(&bytes), Ok((u64::MAX, &[][..])));
        bytes[9] = 2;
        assert_eq!(decode(&bytes), Err(VarintError::TooLarge));
        assert_eq!(decode(&[0xff; 11]), Err(VarintError::TooLarge));
        assert_eq!(decode(&[0x80; 9]), Err(VarintError::Truncated));
        assert_eq!(decode(&[0x80; 10]), Err(VarintError::TooLarge));
    }

    #[test]
    fn nothing_is_written_without_room() {
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
        fn every_value_round_trips_and_leaves_the_rest(shift in 0_u32..64, bits: u64, tail: Vec<u8>) {
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
        fn a_decoded_value_encodes_to_the_same_bytes(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            if let Ok((value, rest)) = decode(&bytes) {
                prop_assert_eq!(&encoded(value)[..], &bytes[..bytes.len() - rest.len()]);
            }
        }
    }
}
