//! The body of the ack frame: the packets that arrived, as ranges from the newest to the oldest, and the ack delay. The layout
//! follows the ACK frame of QUIC (RFC 9000 section 19.3).
//!
//! Decoding checks every range, so iteration over a decoded ack cannot fail. Whether the acknowledged packets were ever sent
//! is checked by the sender of those packets.

use core::time::Duration;

use bytes::BufMut;

use crate::codec::{EncodeError, FrameError, Reader};
use crate::limits;
use crate::packet_number::PacketNumber;
use crate::varint;

/// The unit of the ack delay in microseconds.
const DELAY_UNIT_US: u64 = 8;

/// The time between the arrival of the newest packet and the sending of its ack, in units of 8 us, at most 16.8 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AckDelay(u32);

impl AckDelay {
    /// Converts a duration, rounded down to whole units. The largest value represents all longer durations.
    pub fn from_duration(delay: Duration) -> Self {
        let units = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX) / DELAY_UNIT_US;
        Self(u32::try_from(units).unwrap_or(u32::MAX).min(limits::ACK_DELAY_MAX_UNITS))
    }

    /// Returns the delay as a duration.
    pub fn to_duration(self) -> Duration {
        Duration::from_micros(u64::from(self.0).saturating_mul(DELAY_UNIT_US))
    }
}

/// A range of consecutive packet numbers that includes both of its ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AckRange {
    smallest: PacketNumber,
    largest: PacketNumber,
}

impl AckRange {
    /// Creates the range from `smallest` to `largest`, or returns `None` if `smallest` is greater.
    pub fn new(smallest: PacketNumber, largest: PacketNumber) -> Option<Self> {
        (smallest <= largest).then_some(Self { smallest, largest })
    }

    /// Returns the smallest packet number of the range.
    pub fn smallest(self) -> PacketNumber {
        self.smallest
    }

    /// Returns the largest packet number of the range.
    pub fn largest(self) -> PacketNumber {
        self.largest
    }

    /// Returns the number of packets in the range minus one, which is the length on the wire.
    fn distance(self) -> u64 {
        debug_assert!(self.smallest <= self.largest, "a range ends before it begins: {self:?}");
        self.largest.0.saturating_sub(self.smallest.0)
    }
}

/// An ack frame, borrowed from its packet (PROTOCOL 9.1, "Ack").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack<'a> {
    /// The time between the arrival of the newest packet and the sending of this ack.
    pub delay: AckDelay,
    /// The numbers of the packets that arrived, as 1 to 32 ranges in descending order.
    pub ranges: AckRanges<'a>,
}

impl<'a> Ack<'a> {
    /// Decodes the body and checks every range.
    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self, FrameError> {
        let largest = PacketNumber(reader.varint()?);
        let delay = u32::try_from(reader.varint()?).map_err(|_| FrameError::BadAckDelay)?;
        if delay > limits::ACK_DELAY_MAX_UNITS {
            return Err(FrameError::BadAckDelay);
        }
        let more = usize::try_from(reader.varint()?).map_err(|_| FrameError::TooManyAckRanges)?;
        if more >= limits::ACK_RANGES_SENT {
            return Err(FrameError::TooManyAckRanges);
        }
        let before = *reader;
        let mut previous = None;
        for _ in 0..=more {
            previous = Some(next_range(reader, largest, previous)?);
        }
        let ranges = AckRanges { largest, count: more.saturating_add(1), encoded: reader.since(before) };
        Ok(Self { delay: AckDelay(delay), ranges })
    }
}

/// The ranges of an ack: 1 to [`limits::ACK_RANGES_SENT`], newest first, with at least one missing packet between two ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckRanges<'a> {
    largest: PacketNumber,
    count: usize,
    encoded: &'a [u8],
}

impl<'a> AckRanges<'a> {
    /// Returns the largest acknowledged packet number.
    pub fn largest(&self) -> PacketNumber {
        self.largest
    }

    /// Returns the number of ranges.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns an iterator over the ranges, newest first.
    pub fn iter(&self) -> AckRangesIter<'a> {
        AckRangesIter {
            reader: Reader::new(self.encoded),
            largest: self.largest,
            previous: None,
            remaining: self.count,
        }
    }
}

impl<'a> IntoIterator for AckRanges<'a> {
    type Item = AckRange;
    type IntoIter = AckRangesIter<'a>;

    fn into_iter(self) -> AckRangesIter<'a> {
        self.iter()
    }
}

/// An iterator over the ranges of an ack, newest first.
#[derive(Debug, Clone)]
pub struct AckRangesIter<'a> {
    reader: Reader<'a>,
    largest: PacketNumber,
    previous: Option<AckRange>,
    remaining: usize,
}

impl Iterator for AckRangesIter<'_> {
    type Item = AckRange;

    fn next(&mut self) -> Option<AckRange> {
        self.remaining = self.remaining.checked_sub(1)?;
        let range = next_range(&mut self.reader, self.largest, self.previous);
        debug_assert!(range.is_ok(), "`Ack::decode` accepted a range that cannot be read again: {range:?}");
        self.previous = Some(range.ok()?);
        self.previous
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl ExactSizeIterator for AckRangesIter<'_> {}

/// Decodes the range after `previous`, or the first range, which ends at `largest`.
fn next_range(
    reader: &mut Reader<'_>,
    largest: PacketNumber,
    previous: Option<AckRange>,
) -> Result<AckRange, FrameError> {
    let largest = match previous {
        None => largest.0,
        Some(previous) => {
            let newest_missing = previous.smallest.0.checked_sub(1).ok_or(FrameError::BadAckRange)?;
            let gap = reader.varint()?.checked_add(1).ok_or(FrameError::BadAckRange)?;
            newest_missing.checked_sub(gap).ok_or(FrameError::BadAckRange)?
        }
    };
    let smallest = largest.checked_sub(reader.varint()?).ok_or(FrameError::BadAckRange)?;
    Ok(AckRange { smallest: PacketNumber(smallest), largest: PacketNumber(largest) })
}

/// The size of a body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodySize {
    /// The length in bytes.
    pub(crate) bytes: usize,
    /// The number of ranges after the first one.
    more: u64,
}

/// Measures a body with the newest [`limits::ACK_RANGES_SENT`] of these ranges.
pub(crate) fn measure_body(
    delay: AckDelay,
    ranges: impl Iterator<Item = AckRange>,
) -> Result<BodySize, EncodeError> {
    const { assert!(limits::ACK_RANGES_SENT <= 0x80, "the number of ranges has the length of zero") };
    let (mut bytes, mut count) = (0_usize, 0_u64);
    let counted = ranges.take(limits::ACK_RANGES_SENT).inspect(|_| count = count.saturating_add(1));
    body(delay, counted, 0, |value| bytes = bytes.saturating_add(varint::encoded_bytes(value)))?;
    Ok(BodySize { bytes, more: count.saturating_sub(1) })
}

/// Writes the body that [`measure_body`] measured. The caller has checked that it fits.
pub(crate) fn put_body(
    delay: AckDelay,
    ranges: impl Iterator<Item = AckRange>,
    size: BodySize,
    out: &mut impl BufMut,
) -> Result<(), EncodeError> {
    body(delay, ranges.take(limits::ACK_RANGES_SENT), size.more, |value| varint::put(value, out))
}

/// Passes every varint of a body with `more` ranges after the first one to `emit`, in order.
fn body(
    delay: AckDelay,
    mut ranges: impl Iterator<Item = AckRange>,
    more: u64,
    mut emit: impl FnMut(u64),
) -> Result<(), EncodeError> {
    let first = ranges.next().ok_or(EncodeError::NoRanges)?;
    emit(first.largest.0);
    emit(u64::from(delay.0));
    emit(more);
    emit(first.distance());
    let mut previous = first;
    for range in ranges {
        // A gap of 0 means one missing packet, because two ranges without a missing packet between them are one range
        // (RFC 9000 section 19.3.1).
        let distance = previous.smallest.0.checked_sub(range.largest.0);
        let gap = distance.and_then(|distance| distance.checked_sub(2));
        emit(gap.ok_or(EncodeError::RangesOutOfOrder)?);
        emit(range.distance());
        previous = range;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn range(smallest: u64, largest: u64) -> AckRange {
        AckRange::new(PacketNumber(smallest), PacketNumber(largest)).unwrap()
    }

    fn encoded(delay: AckDelay, ranges: &[AckRange]) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::new();
        let size = measure_body(delay, ranges.iter().copied())?;
        put_body(delay, ranges.iter().copied(), size, &mut out)?;
        assert_eq!(out.len(), size.bytes);
        Ok(out)
    }

    fn decoded(bytes: &[u8]) -> Result<Ack<'_>, FrameError> {
        let mut reader = Reader::new(bytes);
        let ack = Ack::decode(&mut reader)?;
        assert_eq!(reader.rest(), [0u8; 0]);
        Ok(ack)
    }

    /// Returns the ranges of a set, newest first, as a model.
    fn ranges_of(set: &BTreeSet<u64>) -> Vec<AckRange> {
        let mut ranges: Vec<AckRange> = Vec::new();
        for &number in set.iter().rev() {
            match ranges.last_mut() {
                Some(last) if last.smallest.0 == number + 1 => last.smallest = PacketNumber(number),
                _ => ranges.push(range(number, number)),
            }
        }
        ranges
    }

    #[test]
    fn more_than_32_ranges_are_a_protocol_error() {
        for ranges in [31_u8, 32, 33] {
            // Largest 200, delay 0, then single packets with single gaps.
            let mut bytes = vec![0xc8, 0x01, 0x00, ranges - 1, 0x00];
            bytes.extend(vec![0; 2 * (usize::from(ranges) - 1)]);
            let expected =
                if ranges <= 32 { Ok(usize::from(ranges)) } else { Err(FrameError::TooManyAckRanges) };
            let found = Ack::decode(&mut Reader::new(&bytes)).map(|ack| ack.ranges.iter().count());
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn only_the_newest_32_ranges_are_written() {
        let ranges: Vec<_> = (0..40).rev().map(|n| range(4 * n, 4 * n + 1)).collect();
        let bytes = encoded(AckDelay(0), &ranges).unwrap();
        let ack = decoded(&bytes).unwrap();
        assert_eq!(ack.ranges.count(), 32);
        assert_eq!(ack.ranges.iter().len(), 32);
        assert_eq!(ack.ranges.into_iter().collect::<Vec<_>>(), ranges[..32]);
    }

    #[test]
    fn invalid_sequences_of_ranges_are_not_written() {
        for wrong in [[range(5, 6), range(3, 4)], [range(5, 6), range(3, 5)], [range(5, 6), range(8, 9)]] {
            assert_eq!(encoded(AckDelay(0), &wrong), Err(EncodeError::RangesOutOfOrder));
        }
        assert!(encoded(AckDelay(0), &[range(5, 6), range(2, 3)]).is_ok());
        assert_eq!(encoded(AckDelay(0), &[]), Err(EncodeError::NoRanges));
        assert_eq!(AckRange::new(PacketNumber(2), PacketNumber(1)), None);
    }

    #[test]
    fn a_range_ends_at_packet_zero_or_above() {
        assert!(decoded(&[5, 0, 0, 5]).is_ok());
        assert_eq!(decoded(&[5, 0, 0, 6]), Err(FrameError::BadAckRange));
        // Largest 5 down to 3, then a gap: 2 missing, 1 to 0.
        let ack = decoded(&[5, 0, 1, 2, 0, 1]).unwrap();
        assert_eq!(ack.ranges.iter().collect::<Vec<_>>(), [range(3, 5), range(0, 1)]);
        assert_eq!(decoded(&[5, 0, 1, 2, 0, 2]), Err(FrameError::BadAckRange));
        assert_eq!(decoded(&[5, 0, 1, 2, 2, 0]), Err(FrameError::BadAckRange));
        assert_eq!(decoded(&[5, 0, 1, 5, 0, 0]), Err(FrameError::BadAckRange));
    }

    #[test]
    fn a_gap_of_the_largest_u64_does_not_wrap() {
        let mut bytes = vec![5, 0, 1, 2];
        varint::put(u64::MAX, &mut bytes);
        bytes.push(0);
        assert_eq!(decoded(&bytes), Err(FrameError::BadAckRange));
    }

    #[test]
    fn the_delay_is_bounded_and_rounded_down() {
        let units = |us| AckDelay::from_duration(Duration::from_micros(us)).0;
        assert_eq!((units(7), units(8), units(15), units(16)), (0, 1, 1, 2));
        let longest = limits::ACK_DELAY_MAX_UNITS;
        assert_eq!(AckDelay::from_duration(Duration::MAX), AckDelay(longest));
        assert_eq!(AckDelay(25).to_duration(), Duration::from_micros(200));
        for (delay, fits) in [(longest - 1, true), (longest, true), (longest + 1, false)] {
            let mut bytes = vec![5];
            varint::put(u64::from(delay), &mut bytes);
            bytes.extend([0, 0]);
            let expected = if fits { Ok(AckDelay(delay)) } else { Err(FrameError::BadAckDelay) };
            assert_eq!(decoded(&bytes).map(|ack| ack.delay), expected);
        }
    }

    proptest! {
        #[test]
        fn a_set_of_packets_round_trips_as_its_newest_ranges(
            base in prop_oneof![Just(0_u64), Just(u64::MAX - 300), any::<u64>().prop_map(|n| n / 2)],
            offsets in prop::collection::btree_set(0_u64..300, 1..150),
            delay in 0..=limits::ACK_DELAY_MAX_UNITS,
        ) {
            let set: BTreeSet<u64> = offsets.iter().map(|offset| base + offset).collect();
            let mut ranges = ranges_of(&set);
            let bytes = encoded(AckDelay(delay), &ranges).unwrap();
            let ack = decoded(&bytes).unwrap();
            prop_assert_eq!(ack.delay, AckDelay(delay));
            prop_assert_eq!(Some(ack.ranges.largest().0), set.last().copied());
            ranges.truncate(limits::ACK_RANGES_SENT);
            let mut found = BTreeSet::new();
            for range in ack.ranges {
                found.extend(range.smallest().0..=range.largest().0);
            }
            let oldest = ranges.last().unwrap().smallest.0;
            prop_assert_eq!(found, set.into_iter().filter(|n| *n >= oldest).collect::<BTreeSet<_>>());
            for end in 0..bytes.len() {
                prop_assert_eq!(Ack::decode(&mut Reader::new(&bytes[..end])), Err(FrameError::Truncated));
            }
        }

        #[test]
        fn any_bytes_are_descending_ranges_or_an_error(
            head in prop::collection::vec(0_u8..40, 0..6),
            tail in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            let bytes = [head, tail].concat();
            let mut reader = Reader::new(&bytes);
            if let Ok(ack) = Ack::decode(&mut reader) {
                let ranges: Vec<_> = ack.ranges.iter().collect();
                prop_assert!((1..=limits::ACK_RANGES_SENT).contains(&ranges.len()));
                prop_assert_eq!(ranges[0].largest, ack.ranges.largest());
                prop_assert!(ranges.iter().all(|range| range.smallest <= range.largest));
                prop_assert!(ranges.windows(2).all(|pair| pair[1].largest.0 + 1 < pair[0].smallest.0));
                let again = encoded(ack.delay, &ranges).unwrap();
                prop_assert_eq!(&again[..], &bytes[..bytes.len() - reader.rest().len()]);
            }
        }
    }
}
