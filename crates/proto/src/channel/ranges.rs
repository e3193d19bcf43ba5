//! A set of byte ranges of a fragmented message: the bytes that are present, or missing.
//!
//! The caller limits the number of ranges.

/// A set of bytes of one message.
///
/// Each query finds its place by binary search and visits only the ranges that it touches. The peer controls the
/// number of ranges, and must not control the cost of a packet.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges {
    /// Begin and end of each range, ascending. Ranges never touch.
    ranges: Vec<(u32, u32)>,
    /// The number of bytes in `ranges`.
    bytes: u32,
}

impl Ranges {
    pub(super) const fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(super) const fn count(&self) -> usize {
        self.ranges.len()
    }

    /// Whether the set is exactly the bytes from 0 to `end`.
    pub(super) fn is_whole(&self, end: u32) -> bool {
        self.ranges.as_slice() == [(0, end)]
    }

    pub(super) fn first(&self) -> Option<(u32, u32)> {
        self.ranges.first().copied()
    }

    /// Returns how many ranges there would be with one more, and how many bytes [`Self::insert`] would add.
    pub(super) fn with(&self, begin: u32, end: u32) -> (usize, u32) {
        let touched = self.touched(begin, end);
        let count = self.count().saturating_sub(touched.len()).saturating_add(1);
        (count, end.saturating_sub(begin).saturating_sub(self.bytes_in(touched, begin, end)))
    }

    /// The number of bytes in the set.
    pub(super) const fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Asserts what must hold between two calls.
    pub(super) fn assert_invariants(&self) {
        debug_assert!(
            self.ranges.iter().all(|(begin, end)| begin < end)
                && self.ranges.is_sorted_by(|one, next| one.1 < next.0),
            "the ranges are empty, touch, or are not in order"
        );
        let bytes = self.ranges.iter().map(|(begin, end)| end.saturating_sub(*begin)).sum::<u32>();
        debug_assert_eq!(self.bytes, bytes, "the bytes of the ranges were counted wrong");
    }

    /// The number of bytes from `begin` to `end` in the ranges at these indices.
    fn bytes_in(&self, places: std::ops::Range<usize>, begin: u32, end: u32) -> u32 {
        debug_assert!(places.end <= self.count(), "there are no ranges {places:?}");
        let ranges = self.ranges.get(places).unwrap_or_default();
        let bytes_of = |(from, to): (u32, u32)| to.min(end).saturating_sub(from.max(begin));
        ranges.iter().fold(0, |sum, range| sum.saturating_add(bytes_of(*range)))
    }

    pub(super) fn insert(&mut self, begin: u32, end: u32) {
        if begin >= end {
            return;
        }
        let touched = self.touched(begin, end);
        // The ranges that overlap or touch the new one become one range, which begins and ends where the outermost do.
        let there = self.bytes_in(touched.clone(), begin, end);
        self.bytes = self.bytes.saturating_add(end.saturating_sub(begin).saturating_sub(there));
        let last = touched.end.checked_sub(1).and_then(|last| self.ranges.get(last)).map(|range| range.1);
        match self.ranges.get_mut(touched.clone()).and_then(<[_]>::first_mut) {
            None => self.ranges.insert(touched.start, (begin, end)),
            Some(first) => {
                *first = (first.0.min(begin), last.map_or(end, |last| last.max(end)));
                let rest = touched.start.saturating_add(1)..touched.end;
                if !rest.is_empty() {
                    self.ranges.drain(rest);
                }
            }
        }
    }

    pub(super) fn remove(&mut self, begin: u32, end: u32) {
        let start = self.ranges.partition_point(|range| range.1 <= begin);
        let stop = self.ranges.partition_point(|range| range.0 < end);
        if begin >= end || start >= stop {
            return;
        }
        self.bytes = self.bytes.saturating_sub(self.bytes_in(start..stop, begin, end));
        // The first range may keep a part before the removed bytes, and the last one a part behind them. They may be
        // the same range, which is then split.
        let before = self.ranges.get(start).map(|range| (range.0, begin));
        let after = stop.checked_sub(1).and_then(|last| self.ranges.get(last)).map(|range| (end, range.1));
        let rest = before.into_iter().chain(after).filter(|(from, to)| from < to);
        let rest: [Option<(u32, u32)>; 2] = {
            let mut rest = rest;
            [rest.next(), rest.next()]
        };
        self.ranges.splice(start..stop, rest.into_iter().flatten());
    }

    /// Adds the bytes from `begin` to `end` that are not in `others`.
    pub(super) fn insert_without(&mut self, begin: u32, end: u32, others: &Self) {
        // The gaps between the other ranges are inserted one by one, then the part behind the last of them.
        let mut from = begin;
        for &(start, stop) in others.ranges.get(others.touched(begin, end)).unwrap_or_default() {
            self.insert(from, start.min(end));
            from = from.max(stop);
        }
        self.insert(from, end);
    }

    /// The indices of the ranges that overlap or touch this range.
    fn touched(&self, begin: u32, end: u32) -> std::ops::Range<usize> {
        let start = self.ranges.partition_point(|range| range.1 < begin);
        let others = self.ranges.get(start..).unwrap_or_default();
        let count = others.iter().take_while(|range| range.0 <= end).count();
        start..start.saturating_add(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn bytes(ranges: &Ranges) -> BTreeSet<u32> {
        ranges.ranges.iter().flat_map(|&(from, to)| from..to).collect()
    }

    /// The set with these bits.
    fn of_bits(bits: u32) -> Ranges {
        let mut ranges = Vec::new();
        let mut at = 0;
        while bits >> at != 0 {
            let begin = at + (bits >> at).trailing_zeros();
            at = begin + (bits >> begin).trailing_ones();
            ranges.push((begin, at));
        }
        Ranges { ranges, bytes: bits.count_ones() }
    }

    fn bits_of(begin: u32, end: u32) -> u32 {
        (begin..end).fold(0, |bits, byte| bits | 1 << byte)
    }

    /// Every begin and end in a message of this many bytes.
    fn subranges(length: u32) -> impl Iterator<Item = (u32, u32)> {
        (0..=length).flat_map(move |begin| (begin..=length).map(move |end| (begin, end)))
    }

    #[test]
    fn every_change_of_every_set_of_12_bytes_agrees_with_its_bits() {
        for bits in 0_u32..1 << 12 {
            let ranges = of_bits(bits);
            assert_eq!((ranges.bytes(), ranges.is_empty()), (bits.count_ones(), bits == 0));
            assert_eq!(ranges.is_whole(12), bits == 0xfff);
            assert_eq!(ranges.first().map(|(begin, _)| begin), (bits != 0).then(|| bits.trailing_zeros()));
            for (begin, end) in subranges(12) {
                let subrange = bits_of(begin, end);
                let (mut more, mut less) = (of_bits(bits), of_bits(bits));
                more.insert(begin, end);
                less.remove(begin, end);
                assert_eq!(more, of_bits(bits | subrange), "{ranges:?} and {begin}..{end}");
                assert_eq!(less, of_bits(bits & !subrange), "{ranges:?} without {begin}..{end}");
                let (count, missing) = ranges.with(begin, end);
                assert_eq!(missing, (subrange & !bits).count_ones());
                assert!(begin == end || count == more.count(), "{ranges:?}");
            }
        }
    }

    #[test]
    fn every_range_is_added_to_every_set_of_six_bytes_minus_others() {
        for (own, others) in (0_u32..1 << 6).flat_map(|own| (0_u32..1 << 6).map(move |others| (own, others)))
        {
            for (begin, end) in subranges(6) {
                let mut ranges = of_bits(own);
                ranges.insert_without(begin, end, &of_bits(others));
                assert_eq!(
                    ranges,
                    of_bits(own | bits_of(begin, end) & !others),
                    "{own:b} {others:b} {begin}..{end}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn ranges_agree_with_a_set_of_bytes(steps in prop::collection::vec((any::<bool>(), 0_u32..64, 0_u32..20), 0..60)) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for (is_insert, begin, length) in steps {
                let end = begin + length;
                if is_insert {
                    let missing = (begin..end).filter(|byte| !set.contains(byte)).count();
                    let (count, missing_bytes) = ranges.with(begin, end);
                    prop_assert_eq!(missing_bytes as usize, missing);
                    ranges.insert(begin, end);
                    prop_assert!(length == 0 || ranges.count() == count);
                    set.extend(begin..end);
                } else {
                    ranges.remove(begin, end);
                    set.retain(|byte| *byte < begin || *byte >= end);
                }
                prop_assert_eq!(&bytes(&ranges), &set);
                ranges.assert_invariants();
                prop_assert_eq!(ranges.bytes() as usize, set.len());
            }
        }

        #[test]
        fn insert_without_leaves_out_the_excluded_bytes(
            holes in prop::collection::vec((0_u32..64, 0_u32..10), 0..8), begin in 0_u32..64, length in 0_u32..40,
        ) {
            let (mut others, mut ranges) = (Ranges::default(), Ranges::default());
            holes.iter().for_each(|(from, length)| others.insert(*from, from + length));
            ranges.insert_without(begin, begin + length, &others);
            let expected: BTreeSet<_> = (begin..begin + length).filter(|byte| !bytes(&others).contains(byte)).collect();
            prop_assert_eq!(bytes(&ranges), expected);
            ranges.assert_invariants();
        }
    }
}
