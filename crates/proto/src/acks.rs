//! Received packets that must be acknowledged: their ranges, and when an ack is due (PROTOCOL 9.2, "When an Ack is
//! due").
//!
//! This module writes no frames and sends nothing. The packet builder asks whether an ack is due or can be added to a
//! packet.

use std::time::Duration;

use drumfire_wire::{AckDelay, AckRange, PacketNumber, limits::ACK_RANGES_KEPT};

use crate::convert::nanos;
use crate::limits::{
    ACK_AFTER_ANY, ACK_AFTER_RELIABLE, ACK_DELAY_LATE, ACK_DELAY_MAX, ACK_DELAY_MIN, ACK_GAP_INTERVAL,
    ACK_SOON_FROM,
};
use crate::time::Moment;

/// The urgency with which the sender of a packet needs its ack. A later variant is more urgent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AckUrgency {
    /// The packet is not ack-eliciting (RFC 9000 section 13.2.1).
    None,
    /// The packet is ack-eliciting, and no retransmission depends on its ack: unreliable messages.
    Late,
    /// The packet is ack-eliciting, and its ack may wait: pings and control frames.
    Low,
    /// The packet carries reliable messages, which are retransmitted until they are acknowledged.
    High,
}

/// The longest delay of an ack for reliable data, in nanoseconds as the round trip: short against the round trip, after
/// which the sender probes.
#[inline]
pub(crate) fn reliable_ack_delay(round_trip: u64) -> u64 {
    (round_trip / 4).clamp(nanos(ACK_DELAY_MIN), nanos(ACK_DELAY_MAX))
}

/// An inclusive range of packet numbers.
type Span = (u64, u64);

/// An empty range, before any packet has arrived.
const EMPTY: Span = (1, 0);

/// The ranges of received packets, and the state of the ack that the peer waits for.
#[derive(Debug)]
pub(crate) struct Acks {
    /// The range with the largest numbers. It is the only range when nothing is lost.
    newest: Span,
    /// The older ranges. Boxed, because an idle connection has no gaps.
    gaps: Option<Box<Gaps>>,
    /// The time at which the packet with the largest number arrived. It has no meaning before the first packet.
    largest_at: Moment,
    /// The time at which an ack must be sent. `None` when all ack-eliciting packets were acknowledged.
    due: Option<Moment>,
    /// The number of ack-eliciting packets that arrived since the last ack was sent.
    pending_count: u16,
    /// The number of packets among them with reliable data.
    pending_reliable_count: u16,
}

/// The ranges below the newest one, and the pace of acks for gaps.
#[derive(Debug, Default)]
struct Gaps {
    /// The ranges below the newest, in ascending order. They never touch, and there are fewer than
    /// [`ACK_RANGES_KEPT`].
    older: Vec<Span>,
    /// The time at which the last ack for a gap was sent, or at which the next one is planned. `None` before the first gap.
    ack_at: Option<Moment>,
}

impl Default for Acks {
    fn default() -> Self {
        let largest_at = Moment::ORIGIN;
        Self { newest: EMPTY, gaps: None, largest_at, due: None, pending_count: 0, pending_reliable_count: 0 }
    }
}

impl Acks {
    /// The largest packet number that was received and opened.
    #[inline]
    pub(crate) fn largest(&self) -> Option<PacketNumber> {
        let (smallest, largest) = self.newest;
        (smallest <= largest).then_some(PacketNumber(largest))
    }

    /// Registers a packet that was opened for the first time.
    pub(crate) fn on_packet(&mut self, now: Moment, number: u64, urgency: AckUrgency, round_trip: Duration) {
        let expected = self.largest().map_or(0, |largest| largest.0.saturating_add(1));
        // The ack delay is measured from the arrival of the largest packet, as in RFC 9000 section 13.2.5.
        if number >= expected {
            self.largest_at = now;
        }
        self.insert(number);
        // The content of a packet decides how long its ack may wait, so the ends negotiate no delay. An ack for data
        // that is retransmitted must arrive well before the sender's probe timeout.
        let count = u32::from(self.pending_count).saturating_add(1);
        let wait = match urgency {
            AckUrgency::None => return,
            AckUrgency::Late if count < ACK_SOON_FROM => round_trip.max(ACK_DELAY_LATE),
            AckUrgency::Late | AckUrgency::Low => round_trip.max(ACK_DELAY_MAX),
            AckUrgency::High => Duration::from_nanos(reliable_ack_delay(nanos(round_trip))),
        };
        self.pending_count = self.pending_count.saturating_add(1);
        let mut due = now.after(wait);
        if urgency == AckUrgency::High {
            self.pending_reliable_count = self.pending_reliable_count.saturating_add(1);
            // A gap, or a late packet that its sender may soon declare lost, is acknowledged immediately (RFC 9000
            // section 13.2.1). The interval limits what reordering can cost.
            if number != expected {
                let gaps = self.gaps.get_or_insert_default();
                // The planned ack also covers this packet. After an ack that was sent, the interval has to pass.
                let at = match gaps.ack_at {
                    Some(planned) if planned > now => planned,
                    Some(last) => last.after(ACK_GAP_INTERVAL).max(now),
                    None => now,
                };
                gaps.ack_at = Some(at);
                due = due.min(at);
            }
        }
        // The counts bound how much the sender learns late on a fast path (compare RFC 9000 section 13.2.2).
        if u32::from(self.pending_reliable_count) >= ACK_AFTER_RELIABLE || count >= ACK_AFTER_ANY {
            due = now;
        }
        // A later packet never postpones the ack of an earlier one.
        self.due = Some(self.due.map_or(due, |earlier| earlier.min(due)));
    }

    /// Returns the time at which an ack must be sent, alone if necessary.
    pub(crate) const fn due(&self) -> Option<Moment> {
        self.due
    }

    /// Schedules an ack immediately, at the peer's request.
    pub(crate) fn on_request(&mut self, now: Moment) {
        self.due = Some(now);
    }

    /// Whether an ack would report a packet that the peer waits for.
    pub(crate) const fn is_pending(&self) -> bool {
        self.pending_count > 0
    }

    /// The ranges, largest numbers first.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = AckRange> + Clone {
        let newest = self.largest().map(|_| self.newest);
        let ranges = newest.into_iter().chain(self.older().iter().rev().copied());
        ranges.filter_map(|(smallest, largest)| AckRange::new(PacketNumber(smallest), PacketNumber(largest)))
    }

    /// The number of ranges.
    pub(crate) fn range_count(&self) -> usize {
        self.older().len().saturating_add(self.largest().is_some().into())
    }

    /// Returns the time since the packet with the largest number arrived.
    pub(crate) fn delay(&self, now: Moment) -> AckDelay {
        AckDelay::from_duration(now.since(self.largest_at))
    }

    /// Registers that an ack of all ranges was sent.
    pub(crate) const fn on_sent(&mut self) {
        self.pending_count = 0;
        self.pending_reliable_count = 0;
        self.due = None;
    }

    /// Forgets ranges up to `number`, whose ack the peer is known to have received (RFC 9000 section 13.2.4). The
    /// newest range is always kept.
    pub(crate) fn forget_up_to(&mut self, number: u64) {
        // A range that ends above `number` stays whole. Its lower part is acknowledged again, at next to no cost.
        if let Some(gaps) = &mut self.gaps {
            let acked_count = gaps.older.partition_point(|&(_, largest)| largest <= number);
            gaps.older.drain(..acked_count);
        }
    }

    /// Asserts what must hold between two calls.
    pub(crate) fn assert_invariants(&self) {
        let follow = |one: &Span, next: &Span| one.1.checked_add(1).is_some_and(|end| end < next.0);
        debug_assert!(
            self.older().iter().all(|range| range.0 <= range.1) && self.older().is_sorted_by(follow),
            "the ranges of received packets overlap or are not in order"
        );
        debug_assert!(
            self.older().last().is_none_or(|last| follow(last, &self.newest)),
            "an older range of received packets reaches the newest one"
        );
        debug_assert!(self.range_count() <= ACK_RANGES_KEPT, "an ack has {} ranges", self.range_count());
        debug_assert!(
            self.pending_reliable_count <= self.pending_count,
            "more packets with reliable data wait for an ack than packets in all"
        );
        debug_assert!(!self.is_pending() || self.due.is_some(), "an ack is pending, and no timer covers it");
    }

    /// Releases memory that an idle connection does not need.
    pub(crate) fn shrink(&mut self) {
        self.gaps.take_if(|gaps| gaps.older.is_empty());
        if let Some(gaps) = &mut self.gaps {
            gaps.older.shrink_to_fit();
        }
    }

    fn older(&self) -> &[Span] {
        self.gaps.as_ref().map_or(&[], |gaps| &gaps.older)
    }

    #[inline]
    fn insert(&mut self, number: u64) {
        // Nearly always the packet directly follows the newest one.
        if self.newest.1.checked_add(1) == Some(number) && self.newest != EMPTY {
            self.newest.1 = number;
        } else {
            self.insert_with_gap(number);
        }
    }

    fn insert_with_gap(&mut self, number: u64) {
        if self.newest == EMPTY {
            self.newest = (number, number);
        } else if number > self.newest.1 {
            // Packets before this one are missing, so a new range begins.
            let before = std::mem::replace(&mut self.newest, (number, number));
            self.gaps.get_or_insert_default().push(before);
        } else if number.checked_add(1) == Some(self.newest.0) {
            // The packet directly precedes the newest range, and may close the gap to the range below.
            let joined =
                self.gaps.as_mut().and_then(|gaps| gaps.older.pop_if(|range| follows(range, number)));
            self.newest.0 = joined.map_or(number, |(smallest, _)| smallest);
        } else if number < self.newest.0 {
            self.gaps.get_or_insert_default().insert(number);
        }
    }
}

impl Gaps {
    fn push(&mut self, range: Span) {
        self.older.push(range);
        self.forget_oldest();
    }

    fn insert(&mut self, number: u64) {
        // The first range that does not end before `number` contains it, directly follows it, or lies above a gap.
        let at = self.older.partition_point(|&(_, largest)| largest < number);
        if self.older.get(at).is_some_and(|&(smallest, _)| smallest <= number) {
            return;
        }
        let before = at.checked_sub(1);
        let before = before.filter(|&at| self.older.get(at).is_some_and(|range| follows(range, number)));
        let precedes = |range: &Span| number.checked_add(1) == Some(range.0);
        let joins_next = self.older.get(at).is_some_and(precedes);
        match (before, joins_next) {
            (Some(before), true) => {
                let (_, largest) = self.older.remove(at);
                self.set(before, |range| range.1 = largest);
            }
            (Some(before), false) => self.set(before, |range| range.1 = number),
            (None, true) => self.set(at, |range| range.0 = number),
            (None, false) => {
                self.older.insert(at, (number, number));
                self.forget_oldest();
            }
        }
    }

    /// Drops the oldest range when there are too many. The newest range is stored separately and counts as one.
    fn forget_oldest(&mut self) {
        if self.older.len() >= ACK_RANGES_KEPT {
            // The peer may repeat data that has arrived, but the ack stays bounded (RFC 9000 section 13.2.3).
            self.older.remove(0);
        }
    }

    fn set(&mut self, at: usize, change: impl FnOnce(&mut Span)) {
        debug_assert!(at < self.older.len(), "a packet was added to range {at} of {}", self.older.len());
        if let Some(range) = self.older.get_mut(at) {
            change(range);
        }
    }
}

fn follows(range: &Span, number: u64) -> bool {
    range.1.checked_add(1) == Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const TRIP: Duration = Duration::from_millis(40);

    fn ms(milliseconds: u64) -> Moment {
        Moment::from_nanos(milliseconds * 1_000_000)
    }

    fn packets(acks: &mut Acks, at: u64, numbers: std::ops::Range<u64>, urgency: AckUrgency) {
        for number in numbers {
            acks.on_packet(ms(at), number, urgency, TRIP);
        }
    }

    #[test]
    fn reliable_content_is_acked_after_a_quarter_round_trip() {
        for (trip, wait) in [(4, 5), (40, 10), (60, 15), (400, 25)] {
            let mut acks = Acks::default();
            acks.on_packet(ms(100), 0, AckUrgency::High, Duration::from_millis(trip));
            assert_eq!(acks.due(), Some(ms(100 + wait)), "{trip}");
        }
    }

    #[test]
    fn acks_of_pings_and_unreliable_content_wait_a_round_trip() {
        for (trip, low, late) in [(4, 25, 150), (25, 25, 150), (60, 60, 150), (200, 200, 200)] {
            for (urgency, wait) in [(AckUrgency::Low, low), (AckUrgency::Late, late)] {
                let mut acks = Acks::default();
                acks.on_packet(ms(100), 0, urgency, Duration::from_millis(trip));
                assert_eq!(acks.due(), Some(ms(100 + wait)), "{trip}, {urgency:?}");
            }
        }
        let mut acks = Acks::default();
        acks.on_packet(ms(100), 0, AckUrgency::None, TRIP);
        assert_eq!((acks.due(), acks.is_pending()), (None, false));
    }

    #[test]
    fn the_32nd_reliable_packet_and_the_64th_of_any_are_acked_now() {
        let mut acks = Acks::default();
        packets(&mut acks, 1, 0..31, AckUrgency::High);
        assert_eq!(acks.due(), Some(ms(11)));
        packets(&mut acks, 2, 31..32, AckUrgency::High);
        assert_eq!(acks.due(), Some(ms(2)));
        acks.on_sent();
        assert_eq!((acks.due(), acks.is_pending()), (None, false));
        packets(&mut acks, 3, 32..95, AckUrgency::Low);
        assert_eq!(acks.due(), Some(ms(43)));
        packets(&mut acks, 4, 95..96, AckUrgency::Low);
        assert_eq!(acks.due(), Some(ms(4)));
    }

    #[test]
    fn the_eighth_unreliable_packet_waits_no_longer_than_a_ping() {
        let mut acks = Acks::default();
        packets(&mut acks, 1, 0..7, AckUrgency::Late);
        assert_eq!(acks.due(), Some(ms(151)));
        packets(&mut acks, 2, 7..8, AckUrgency::Late);
        assert_eq!(acks.due(), Some(ms(42)));
        acks.on_sent();
        packets(&mut acks, 3, 8..9, AckUrgency::Late);
        assert_eq!(acks.due(), Some(ms(153)));
        packets(&mut acks, 4, 9..10, AckUrgency::High);
        assert_eq!(acks.due(), Some(ms(14)), "whichever comes first");
    }

    #[test]
    fn a_gap_in_reliable_content_is_acked_immediately_but_rarely() {
        let mut acks = Acks::default();
        packets(&mut acks, 1, 0..1, AckUrgency::High);
        acks.on_sent();
        packets(&mut acks, 10, 2..3, AckUrgency::High);
        assert_eq!(acks.due(), Some(ms(10)));
        acks.on_sent();
        packets(&mut acks, 14, 4..5, AckUrgency::High);
        packets(&mut acks, 14, 6..7, AckUrgency::High);
        assert_eq!(acks.due(), Some(ms(15)), "5 ms after the last");
        acks.on_sent();
        packets(&mut acks, 21, 8..9, AckUrgency::High);
        assert_eq!(acks.due(), Some(ms(21)), "5 ms after the planned one have passed");
        acks.on_sent();
        packets(&mut acks, 30, 10..11, AckUrgency::Low);
        assert_eq!(acks.due(), Some(ms(70)), "unreliable content never for a gap");
    }

    #[test]
    fn a_packet_that_fills_a_gap_is_acked_immediately() {
        let mut acks = Acks::default();
        packets(&mut acks, 1, 0..1, AckUrgency::High);
        packets(&mut acks, 1, 3..4, AckUrgency::High);
        acks.on_sent();
        packets(&mut acks, 50, 2..3, AckUrgency::High);
        assert_eq!(acks.due(), Some(ms(50)));
    }

    #[test]
    fn the_oldest_range_is_dropped_above_the_limit() {
        let mut acks = Acks::default();
        for number in 0..65 {
            acks.insert(2 * number);
        }
        assert_eq!(acks.range_count(), ACK_RANGES_KEPT);
        assert_eq!(acks.ranges().last().map(|range| range.smallest().0), Some(2));
    }

    #[test]
    fn ranges_known_to_the_peer_are_dropped_except_the_newest() {
        let mut acks = Acks::default();
        for number in [0, 2, 3, 5, 6, 9] {
            acks.insert(number);
        }
        acks.forget_up_to(5);
        let left: Vec<_> = acks.ranges().map(|range| (range.smallest().0, range.largest().0)).collect();
        assert_eq!(left, [(9, 9), (5, 6)]);
        acks.forget_up_to(100);
        assert_eq!((acks.range_count(), acks.largest()), (1, Some(PacketNumber(9))));
    }

    #[test]
    fn received_numbers_without_gaps_use_no_heap() {
        let mut acks = Acks::default();
        for number in [0, 3, 5] {
            acks.on_packet(ms(1), number, AckUrgency::High, TRIP);
        }
        acks.shrink();
        assert_eq!(acks.range_count(), 3, "they are to be acknowledged");
        for number in [1, 2, 4] {
            acks.on_packet(ms(2), number, AckUrgency::High, TRIP);
        }
        acks.shrink();
        assert!(acks.gaps.is_none() && acks.range_count() == 1, "{acks:?}");
    }

    /// The received and remembered packets, oldest range first.
    fn spans(acks: &Acks) -> Vec<Span> {
        acks.older().iter().copied().chain(acks.largest().map(|_| acks.newest)).collect()
    }

    /// The ranges of the set with these bits, counted from `lowest`.
    fn spans_of(bits: u32, lowest: u64) -> Vec<Span> {
        let is_in = |place: u32| bits >> place & 1 == 1;
        let starts = (0..12).filter(|&place| is_in(place) && (place == 0 || !is_in(place - 1)));
        let range = |first: u32| (first, first + (bits >> first).trailing_ones() - 1);
        starts.map(range).map(|(first, last)| (lowest + u64::from(first), lowest + u64::from(last))).collect()
    }

    #[test]
    fn every_change_of_every_set_of_12_packets_agrees_with_its_bits() {
        for (bits, lowest) in (0_u32..1 << 12).flat_map(|bits| [(bits, 0), (bits, u64::MAX - 11)]) {
            let made = || {
                let mut acks = Acks::default();
                let places = (0..12_u32).filter(|place| bits >> place & 1 == 1);
                places.for_each(|place| acks.insert(lowest + u64::from(place)));
                acks
            };
            assert_eq!(spans(&made()), spans_of(bits, lowest));
            for place in 0..12_u32 {
                let number = lowest + u64::from(place);
                let mut acks = made();
                acks.insert(number);
                assert_eq!(spans(&acks), spans_of(bits | 1 << place, lowest), "{bits:b} and {place}");
                assert_eq!(acks.range_count(), acks.ranges().count());
                let mut acks = made();
                acks.forget_up_to(number);
                let mut left = spans_of(bits, lowest);
                let newest = left.pop();
                left.retain(|&(_, largest)| largest > number);
                left.extend(newest);
                assert_eq!(spans(&acks), left, "{bits:b} from {place}");
            }
        }
    }

    proptest! {
        #[test]
        fn ranges_agree_with_a_set(numbers in prop::collection::vec(0_u64..90, 0..120), top: bool) {
            let (mut acks, mut set) = (Acks::default(), BTreeSet::new());
            for number in numbers {
                let number = if top { u64::MAX - number } else { number };
                acks.insert(number);
                set.insert(number);
            }
            let mut found = BTreeSet::new();
            for range in acks.ranges() {
                found.extend(range.smallest().0..=range.largest().0);
            }
            prop_assert_eq!(found, set);
            acks.assert_invariants();
        }
    }
}
