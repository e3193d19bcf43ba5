//! Packet numbers: truncation to 16, 24, or 32 bits for the header, and recovery of the full number by the receiver.
//!
//! The algorithms are those of RFC 9000 appendix A, for all of `u64` instead of 62 bits. No arithmetic in this file depends on
//! the width of an address: a number that wraps at 2^32 would repeat a nonce.

use core::fmt;

use bytes::BufMut;

use crate::codec::Reader;

/// The number of a packet in one direction of a connection. The first number is 0. No number repeats under a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketNumber(pub u64);

impl PacketNumber {
    /// Returns the number after this one, or `None` at the end of `u64`.
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }

    /// Returns the low bits of this number, as the header carries them.
    pub fn truncate(self, length: PacketNumberLength) -> TruncatedNumber {
        let low = self.0 & length.window().wrapping_sub(1);
        // The window has at most 32 bits, so the upper half is zero.
        let [a, b, c, d, ..] = low.to_le_bytes();
        TruncatedNumber { low: u32::from_le_bytes([a, b, c, d]), length }
    }
}

impl fmt::Display for PacketNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The length of the truncated packet number in the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PacketNumberLength {
    /// 16 bits, written as 1 in the header's first byte.
    Two,
    /// 24 bits, written as 2 in the header's first byte.
    Three,
    /// 32 bits, written as 3 in the header's first byte.
    Four,
}

impl PacketNumberLength {
    /// Returns the shortest length from which the peer can recover `number`, where `largest_acked` is the largest number that
    /// the peer acknowledged. The window must be at least twice the distance between them (RFC 9000 section A.2).
    ///
    /// Returns `None` if the distance is more than 2^31. Such a number must not be sent.
    pub fn needed(number: PacketNumber, largest_acked: Option<PacketNumber>) -> Option<Self> {
        let unacknowledged = match largest_acked {
            Some(acked) => number.0.saturating_sub(acked.0),
            None => number.0.saturating_add(1),
        };
        [Self::Two, Self::Three, Self::Four].into_iter().find(|length| unacknowledged <= length.window() / 2)
    }

    /// Returns the length in bytes, 2 to 4.
    pub fn bytes(self) -> u8 {
        match self {
            Self::Two => 2,
            Self::Three => 3,
            Self::Four => 4,
        }
    }

    /// Returns bits 0 and 1 of the transport header's first byte: the length in bytes minus one, so 0 is not used.
    pub(crate) fn to_bits(self) -> u8 {
        match self {
            Self::Two => 1,
            Self::Three => 2,
            Self::Four => 3,
        }
    }

    pub(crate) fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            1 => Some(Self::Two),
            2 => Some(Self::Three),
            3 => Some(Self::Four),
            _ => None,
        }
    }

    /// Returns the number of different values that this length can represent, a power of two.
    fn window(self) -> u64 {
        match self {
            Self::Two => 1 << 16,
            Self::Three => 1 << 24,
            Self::Four => 1 << 32,
        }
    }
}

/// The low bits of a packet number, and their length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TruncatedNumber {
    low: u32,
    length: PacketNumberLength,
}

impl TruncatedNumber {
    /// Returns the number with these low bits that is nearest to the next expected number (RFC 9000 section A.3).
    ///
    /// The expected number is the one after `largest`, the largest number that was received and authenticated, or 0 if there
    /// is none. Of two numbers that are equally near, the larger one is returned. The result is a guess until the packet was
    /// opened with it, and must not become the new `largest` before.
    pub fn expand(self, largest: Option<PacketNumber>) -> PacketNumber {
        let expected = largest.map_or(0, |number| number.0.saturating_add(1));
        PacketNumber(nearest(expected, u64::from(self.low), self.length.window(), u64::MAX))
    }

    /// Returns the length of these bits on the wire.
    pub fn length(self) -> PacketNumberLength {
        self.length
    }

    pub(crate) fn read(length: PacketNumberLength, reader: &mut Reader<'_>) -> Option<Self> {
        let low = match length {
            PacketNumberLength::Two => reader.array().map(|&[a, b]| [0, 0, a, b]),
            PacketNumberLength::Three => reader.array().map(|&[a, b, c]| [0, a, b, c]),
            PacketNumberLength::Four => reader.array().copied(),
        };
        low.map(|bytes| Self { low: u32::from_be_bytes(bytes), length })
    }

    /// Writes the bits. The caller has checked that they fit.
    pub(crate) fn put(self, out: &mut impl BufMut) {
        let [a, b, c, d] = self.low.to_be_bytes();
        match self.length {
            PacketNumberLength::Two => out.put_slice(&[c, d]),
            PacketNumberLength::Three => out.put_slice(&[b, c, d]),
            PacketNumberLength::Four => out.put_slice(&[a, b, c, d]),
        }
    }
}

/// Returns the number from 0 to `last` that equals `low` modulo `window` and is nearest to `expected`. Of two such numbers, the
/// larger one is returned.
///
/// `window` is a power of two, `low` is below `window`, `expected` is at most `last`, and `last + 1` is a multiple of `window`.
/// `last` is a parameter so that a test can try every state of a space of eight bits.
fn nearest(expected: u64, low: u64, window: u64, last: u64) -> u64 {
    let half = window / 2;
    let candidate = (expected & !window.wrapping_sub(1)) | low;
    if candidate <= expected {
        let above = candidate.checked_add(window).filter(|&above| above <= last);
        let is_too_low = expected.abs_diff(candidate) >= half;
        above.filter(|_| is_too_low).unwrap_or(candidate)
    } else {
        let below = candidate.checked_sub(window);
        let is_too_high = expected.abs_diff(candidate) > half;
        below.filter(|_| is_too_high).unwrap_or(candidate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LENGTHS: [PacketNumberLength; 3] =
        [PacketNumberLength::Two, PacketNumberLength::Three, PacketNumberLength::Four];

    /// The definition of [`nearest`]: a search over every number of the space.
    fn nearest_by_search(expected: u64, low: u64, window: u64, last: u64) -> u64 {
        (0..=last).rev().filter(|n| n % window == low).min_by_key(|n| n.abs_diff(expected)).unwrap()
    }

    #[test]
    fn the_last_number_has_no_successor() {
        assert_eq!(PacketNumber(7).next(), Some(PacketNumber(8)));
        assert_eq!(PacketNumber(u64::MAX).next(), None);
        assert_eq!(PacketNumber(7).to_string(), "7");
    }

    #[test]
    fn expansion_equals_its_definition_in_every_state_of_eight_bits() {
        let mut states = 0;
        for window in (1..=8).map(|bits| 1_u64 << bits) {
            for expected in 0..=255 {
                for low in 0..window {
                    let found = nearest(expected, low, window, 255);
                    let wanted = nearest_by_search(expected, low, window, 255);
                    assert_eq!(found, wanted, "window {window}, expected {expected}, low {low}");
                    states += 1;
                }
            }
        }
        assert_eq!(states, 256 * 510);
    }

    #[test]
    fn the_example_of_rfc_9000_expands_to_its_number() {
        let number = PacketNumber(0xa82f_9b32).truncate(PacketNumberLength::Two);
        assert_eq!(number.expand(Some(PacketNumber(0xa82f_30ea))), PacketNumber(0xa82f_9b32));
    }

    #[test]
    fn the_length_grows_where_half_a_window_ends() {
        let acked = PacketNumber(0x00ab_e8b3);
        let needed = |distance| PacketNumberLength::needed(PacketNumber(acked.0 + distance), Some(acked));
        for (half, up_to, beyond) in [
            (1_u64 << 15, Some(PacketNumberLength::Two), Some(PacketNumberLength::Three)),
            (1 << 23, Some(PacketNumberLength::Three), Some(PacketNumberLength::Four)),
            (1 << 31, Some(PacketNumberLength::Four), None),
        ] {
            assert_eq!(needed(half - 1), up_to);
            assert_eq!(needed(half), up_to);
            assert_eq!(needed(half + 1), beyond);
        }
    }

    #[test]
    fn without_an_ack_the_distance_includes_packet_zero() {
        let needed = |number| PacketNumberLength::needed(PacketNumber(number), None);
        assert_eq!(needed(0), Some(PacketNumberLength::Two));
        assert_eq!(needed((1 << 15) - 1), Some(PacketNumberLength::Two));
        assert_eq!(needed(1 << 15), Some(PacketNumberLength::Three));
        assert_eq!(needed(u64::MAX), None);
    }

    #[test]
    fn numbers_at_the_ends_of_u64_do_not_wrap() {
        for length in LENGTHS {
            let half = length.window() / 2;
            for distance in 0..3 {
                let top = PacketNumber(u64::MAX - distance);
                for largest in [u64::MAX, u64::MAX - 1, u64::MAX - half + 1] {
                    assert_eq!(top.truncate(length).expand(Some(PacketNumber(largest))), top);
                }
                let low = PacketNumber(distance);
                assert_eq!(low.truncate(length).expand(None), low);
                assert_eq!(low.truncate(length).expand(Some(PacketNumber(half - 2))), low);
            }
        }
    }

    #[test]
    fn numbers_up_to_half_a_window_ahead_are_recovered() {
        for length in LENGTHS {
            let half = length.window() / 2;
            let largest = PacketNumber(1 << 40);
            let expected = (1 << 40) + 1;
            let seen = |n| PacketNumber(n).truncate(length).expand(Some(largest)).0;
            assert_eq!(seen(expected + half), expected + half);
            assert_ne!(seen(expected + half + 1), expected + half + 1);
            assert_eq!(seen(expected - half + 1), expected - half + 1);
            assert_ne!(seen(expected - half), expected - half);
        }
    }

    #[test]
    fn the_bits_of_a_length_are_one_less_than_its_bytes() {
        assert_eq!(PacketNumberLength::from_bits(0), None);
        for length in LENGTHS {
            assert_eq!(length.to_bits() + 1, length.bytes());
            assert_eq!(PacketNumberLength::from_bits(length.to_bits()), Some(length));
        }
    }

    proptest! {
        #[test]
        fn a_truncated_number_is_recovered_by_its_receiver(
            acked: u64, ahead in 0_u64..=1 << 31, shift in 0_u32..32, seen in 0_u64..=1 << 31,
        ) {
            // The receiver has seen something from the acknowledged packet up to the one before this.
            let ahead = ahead >> shift;
            let number = PacketNumber(acked.saturating_add(ahead));
            let Some(length) = PacketNumberLength::needed(number, Some(PacketNumber(acked))) else {
                return Ok(());
            };
            let largest = PacketNumber(number.0.saturating_sub(seen.min(number.0 - acked)));
            prop_assert_eq!(number.truncate(length).expand(Some(largest)), number);
        }

        #[test]
        fn expansion_equals_its_definition_at_every_length(
            bits: u64, shift in 0_u32..64, is_high: bool, low: u32, edge in prop::option::of(0_u64..5),
        ) {
            // All magnitudes, from either end of u64.
            let expected = if is_high { u64::MAX - (bits >> shift) } else { bits >> shift };
            for length in LENGTHS {
                // Any number, or a number about half a window away, where the nearer of two candidates changes.
                let half_away = |edge| expected.wrapping_add(length.window() / 2 - 2).wrapping_add(edge);
                let low = edge.map_or(u64::from(low), half_away) & (length.window() - 1);
                let window = i128::from(length.window());
                let nearby = i128::from(expected) / window * window + i128::from(low);
                // The larger of two equally near numbers comes first.
                let possible = [nearby + window, nearby, nearby - window].into_iter();
                let possible = possible.filter_map(|number| u64::try_from(number).ok());
                let wanted = possible.min_by_key(|number| number.abs_diff(expected));
                let truncated = TruncatedNumber { low: u32::try_from(low).unwrap(), length };
                let largest = expected.checked_sub(1).map(PacketNumber);
                prop_assert_eq!(Some(truncated.expand(largest).0), wanted);
            }
        }

        #[test]
        fn truncated_numbers_round_trip(number: u64, tail: Vec<u8>) {
            for length in LENGTHS {
                let truncated = PacketNumber(number).truncate(length);
                let mut bytes = Vec::new();
                truncated.put(&mut bytes);
                prop_assert_eq!(u8::try_from(bytes.len()), Ok(length.bytes()));
                prop_assert_eq!(TruncatedNumber::read(length, &mut Reader::new(&bytes[1..])), None);
                bytes.extend(&tail);
                let mut reader = Reader::new(&bytes);
                prop_assert_eq!(TruncatedNumber::read(length, &mut reader), Some(truncated));
                prop_assert_eq!(reader.rest(), &tail[..]);
            }
        }
    }
}
