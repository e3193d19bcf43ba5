//! The packets in flight of one busy connection: a ring of packets, and the ids of the messages that they carried.
//!
//! This module knows no round trip. The caller decides how long to wait.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use drumfire_wire::{Ack, AckRange, MessageId, PacketNumber};

use super::{AckOutcome, LostPackets, PacketFate, SentPacket};
use crate::acks::AckUrgency;
use crate::convert::{nanos, saturated, to_u64};
use crate::limits::{
    BACK_OFF_AFTER, PACKET_THRESHOLD, PROBE_DOUBLINGS_MAX, PROBES_BEFORE_BACK_OFF, SKIPPED_KEPT,
};
use crate::path::Path;
use crate::time::Moment;

/// The packets in flight of a connection that is not idle.
#[derive(Debug, Default)]
pub(super) struct InFlightPackets {
    // Packets
    /// Packets by ascending number. A settled packet is marked, and leaves the ring when it is the oldest.
    pub(super) ring: VecDeque<RingEntry>,
    /// The messages in the packets of the ring. Boxed, because few connections carry reliable messages.
    pub(super) carried: Option<Box<CarriedIds>>,
    /// Numbers that were never sent. Boxed, because most connections have skipped no number.
    pub(super) skipped: Option<Box<SkippedNumbers>>,
    /// The totals of the packets in the ring that are not settled.
    pub(super) in_flight: InFlight,
    /// The index in the ring of the oldest packet with contents to be repeated that is not settled, or the length of the
    /// ring.
    oldest_carrying: usize,

    // Timers
    /// Packets that were sent before this moment used another path, and give no sample of the round trip.
    pub(super) sampled_from: Moment,
    /// The time at which the next packet below the largest acknowledged number will be declared lost. `None` when there is no
    /// such packet.
    pub(super) loss_at: Option<Moment>,
    /// The time at which a probe last became due. `None` before the first one.
    pub(super) probed_at: Option<Moment>,
    /// The number of probes since the last ack that made progress.
    pub(super) probe_count: u32,
}

/// Counts of packets whose fate is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct InFlight {
    /// The sum of their sizes in bytes.
    pub(super) bytes: u32,
    /// The number of packets.
    pub(super) count: u32,
    /// Packets with reliable messages.
    carrying_count: u32,
    /// Packets with only unreliable messages.
    late_count: u32,
}

/// A packet in the ring.
#[derive(Debug, Clone, Copy)]
pub(super) struct RingEntry {
    packet: SentPacket,
    /// The index of the packet's first id, counted over all ids that `carried` ever held.
    carried_from: u64,
    /// The packet was acknowledged or declared lost. It waits in the ring for older packets to be settled.
    is_settled: bool,
}

/// Ids of runs of messages and of other items in the packets of the ring, in the order of the packets.
#[derive(Debug, Default)]
pub(super) struct CarriedIds {
    /// One id for each run and each packet with it. The entries of the ring own consecutive parts.
    pub(super) ids: VecDeque<MessageId>,
    /// The number of ids that were removed at the front.
    removed_count: u64,
}

/// The most recent packet numbers that were skipped.
#[derive(Debug, Default)]
pub(super) struct SkippedNumbers {
    /// A ring buffer: the number that was skipped n-th is at n modulo its length.
    numbers: [u64; SKIPPED_KEPT],
    /// The number of pushes, not only of the numbers that are still remembered.
    count: usize,
}

impl InFlightPackets {
    /// Reads a field of each part, for `Connection::prefetch_parts`.
    #[inline]
    pub(super) fn prefetch(&self) -> impl Copy + use<> {
        let ends = [self.ring.front(), self.ring.back()].map(|entry| entry.map(|entry| entry.is_settled));
        (ends, self.in_flight.bytes, self.probed_at)
    }

    pub(super) fn oldest_sent_at(&self) -> Option<Moment> {
        self.ring.front().map(|entry| entry.packet.at)
    }

    pub(super) fn oldest_number(&self) -> Option<u64> {
        self.ring.front().map(|entry| entry.packet.number)
    }

    pub(super) fn on_sent(&mut self, packet: SentPacket) {
        debug_assert!(
            self.ring.back().is_none_or(|last| last.packet.number < packet.number),
            "packet {} was registered out of order",
            packet.number
        );
        self.in_flight.on_sent(&packet);
        // The ids of the packet were registered just before, so they are the last ones.
        let added_count = self.carried.as_ref().map_or(0, |carried| carried.added_count());
        debug_assert!(
            u64::from(packet.carried) <= added_count,
            "packet {} carries unknown messages",
            packet.number
        );
        let carried_from = added_count.saturating_sub(u64::from(packet.carried));
        self.ring.push_back(RingEntry { packet, carried_from, is_settled: false });
        self.find_oldest_carrying();
    }

    /// Moves [`Self::oldest_carrying`] to the next packet after a change of the ring. All packets before it are settled or
    /// without contents to be repeated, and stay so. Each is passed once.
    fn find_oldest_carrying(&mut self) {
        while let Some(entry) = self.ring.get(self.oldest_carrying)
            && (entry.is_settled || !entry.packet.is_repeated)
        {
            self.oldest_carrying = self.oldest_carrying.saturating_add(1);
        }
    }

    pub(super) fn oldest_carried(&self) -> Option<impl Iterator<Item = MessageId>> {
        // The oldest data is the likeliest to be lost, and the most urgent for the peer: later data may wait for it.
        let oldest = self.ring.get(self.oldest_carrying)?;
        Some(self.carried.as_ref()?.of(oldest))
    }

    pub(super) fn newest_carried(&self) -> Option<impl Iterator<Item = MessageId>> {
        let newest = self.ring.iter().rev().find(|entry| !entry.is_settled && entry.packet.is_repeated)?;
        Some(self.carried.as_ref()?.of(newest))
    }

    /// Returns the time at which a probe is due. `first` is the wait before the first probe, `longest` the limit for
    /// any probe, in nanoseconds.
    pub(super) fn probe_at(&self, first: u64, longest: u64) -> Moment {
        // Without unanswered probes, which is the rule, nothing is backed off.
        let wait = if self.probe_count == 0 { first } else { self.backed_off(first) };
        // Counted from the oldest packet, where RFC 9002 section 6.2.1 counts from the last one. A game sends all the time,
        // and would never notice that its path is dead.
        let oldest = self.ring.get(self.oldest_carrying).or(self.ring.front()).map(|entry| entry.packet.at);
        let since = oldest.max(self.probed_at).unwrap_or_default();
        Moment::from_nanos(since.as_nanos().saturating_add(wait.min(longest)))
    }

    /// Returns the wait after the last probe in nanoseconds, when the wait before the first one was `first`.
    fn backed_off(&self, first: u64) -> u64 {
        // Pings and unreliable messages lose nothing by a later probe. If their waits stayed equal too, all quiet connections of
        // a server that is overloaded for a moment would probe it ten times per second, and keep it overloaded.
        let even = match self.in_flight.urgency() {
            AckUrgency::High => nanos(BACK_OFF_AFTER).checked_div(first).unwrap_or(u64::MAX),
            AckUrgency::Low | AckUrgency::Late | AckUrgency::None => 0,
        };
        let even = saturated(even, PROBES_BEFORE_BACK_OFF).min(PROBES_BEFORE_BACK_OFF);
        let doublings = self.probe_count.saturating_sub(even).min(PROBE_DOUBLINGS_MAX);
        const { assert!(PROBE_DOUBLINGS_MAX < u64::BITS, "a wait that is doubled too often starts over") };
        first.saturating_mul(1_u64.wrapping_shl(doublings))
    }

    /// Settles the packets that an ack names.
    pub(super) fn acknowledge_all(
        &mut self,
        ack: &Ack<'_>,
        outcome: &mut AckOutcome,
        fate: &mut impl FnMut(PacketFate, MessageId, u64),
        mut on_packet: impl FnMut(&SentPacket),
    ) {
        for range in ack.ranges {
            // Ranges descend. Numbers below the ring were settled long ago.
            if self.ring.front().is_none_or(|oldest| range.largest().0 < oldest.packet.number) {
                break;
            }
            self.acknowledge(range, outcome, fate, &mut on_packet);
        }
        self.find_oldest_carrying();
    }

    /// Settles the packets of one range.
    fn acknowledge(
        &mut self,
        range: AckRange,
        outcome: &mut AckOutcome,
        fate: &mut impl FnMut(PacketFate, MessageId, u64),
        mut on_packet: impl FnMut(&SentPacket),
    ) {
        // A peer may send many ranges, so each is found by binary search. Numbers are missing from the ring where a
        // packet was not ack-eliciting.
        let end = self.ring.partition_point(|entry| entry.packet.number <= range.largest().0);
        let start = self.ring.partition_point(|entry| entry.packet.number < range.smallest().0);
        for entry in self.ring.range_mut(start..end) {
            // A packet that was declared lost stays settled when its ack arrives late: its messages are already being
            // repeated, and its bytes were taken out of the window.
            if !entry.is_settled {
                entry.is_settled = true;
                let packet = entry.packet;
                for id in self.carried.iter().flat_map(|carried| carried.of(entry)) {
                    fate(PacketFate::Acknowledged, id, packet.number);
                }
                self.in_flight.on_settled(&packet);
                outcome.acknowledged_count = outcome.acknowledged_count.saturating_add(1);
                outcome.acknowledged_bytes = outcome.acknowledged_bytes.saturating_add(packet.bytes.into());
                outcome.newest_sent_at = outcome.newest_sent_at.max(Some(packet.at));
                outcome.largest_bytes = outcome.largest_bytes.max(packet.bytes);
                if packet.is_mtu_probe {
                    outcome.mtu_probe = outcome.mtu_probe.max(Some((packet.number, packet.bytes)));
                }
                outcome.knows_up_to = outcome.knows_up_to.max(packet.acks_up_to);
                on_packet(&packet);
            }
        }
    }

    /// Declares lost the packets that are lost by now, and schedules the next check.
    pub(super) fn find_lost(
        &mut self,
        now: Moment,
        largest: PacketNumber,
        delay: Duration,
        persistent: Duration,
        fate: &mut impl FnMut(PacketFate, MessageId, u64),
    ) -> LostPackets {
        let mut lost = LostPackets::default();
        // When the first packet of the current run of consecutive losses was sent. A run ends at an acknowledged
        // packet, because some packet got through during the period (RFC 9002 section 7.6.2).
        let mut lost_since = None;
        self.loss_at = None;
        for entry in &mut self.ring {
            if entry.packet.number >= largest.0 {
                break;
            }
            if entry.is_settled {
                lost_since = None;
                continue;
            }
            let lost_at = entry.packet.at.after(delay);
            // The packet threshold and the time threshold of RFC 9002 section 6.1.
            let is_overtaken = entry.packet.number.saturating_add(PACKET_THRESHOLD) <= largest.0;
            if !is_overtaken && lost_at > now {
                // All packets wait equally long, so the oldest of them is due first.
                self.loss_at.get_or_insert(lost_at);
                continue;
            }
            entry.is_settled = true;
            let packet = entry.packet;
            // Packets are never resent. Their messages go back to their channels, which decide how to repeat them.
            for id in self.carried.iter().flat_map(|carried| carried.of(entry)) {
                fate(PacketFate::Lost, id, packet.number);
            }
            self.in_flight.on_settled(&packet);
            if packet.is_mtu_probe {
                // The loss of an MTU probe is no sign of congestion (RFC 9000 section 14.4).
                lost.mtu_probe = Some(packet.number);
                continue;
            }
            if packet.bytes > Path::START_BYTES && packet.at >= self.sampled_from {
                lost.large_count = lost.large_count.saturating_add(1);
            }
            lost.first = if lost.count == 0 { packet.number } else { lost.first };
            lost.last = packet.number;
            lost.count = lost.count.saturating_add(1);
            lost.bytes = lost.bytes.saturating_add(packet.bytes.into());
            lost.newest_sent_at = lost.newest_sent_at.max(Some(packet.at));
            // Consecutive losses over this time are persistent congestion (RFC 9002 section 7.6.2).
            let since = *lost_since.get_or_insert(packet.at);
            lost.is_persistent |= packet.at.since(since) >= persistent;
        }
        self.find_oldest_carrying();
        lost
    }

    /// Removes the oldest packets whose fate is known.
    pub(super) fn forget_settled(&mut self) {
        // A settled packet behind an older one stays, so that the ids of both can be removed at the front.
        while let Some(entry) = self.ring.pop_front_if(|entry| entry.is_settled) {
            self.oldest_carrying = self.oldest_carrying.saturating_sub(1);
            if let Some(carried) = &mut self.carried {
                carried.forget(&entry);
            }
        }
    }

    /// Asserts what must hold between two calls. `largest` is the largest acknowledged number.
    pub(super) fn assert_invariants(&self, largest: Option<PacketNumber>) {
        // The totals are counted twice: here, and with each packet.
        let mut in_flight = InFlight::default();
        let unsettled = self.ring.iter().filter(|entry| !entry.is_settled);
        unsettled.clone().for_each(|entry| in_flight.on_sent(&entry.packet));
        debug_assert_eq!(self.in_flight, in_flight, "the packets in flight were counted wrong");
        debug_assert!(
            self.ring
                .iter()
                .map(|entry| (entry.packet.number, entry.packet.at))
                .is_sorted_by(|(number, at), (next, next_at)| number < next && at <= next_at),
            "the packets in flight are not in order"
        );
        debug_assert!(
            self.ring.front().is_none_or(|oldest| !oldest.is_settled),
            "the oldest packet is settled, and still remembered"
        );
        let is_carrying = |entry: &RingEntry| !entry.is_settled && entry.packet.is_repeated;
        debug_assert_eq!(
            self.oldest_carrying,
            self.ring.iter().position(is_carrying).unwrap_or(self.ring.len()),
            "the probe timer counts from a packet that is not the oldest one with contents to be repeated"
        );
        // Each id belongs to one packet, and the ids are in the order of the packets.
        let mut next = self.carried.as_ref().map_or(0, |carried| carried.removed_count);
        for entry in self.ring.iter().filter(|entry| entry.packet.carried > 0) {
            debug_assert_eq!(entry.carried_from, next, "packet {} has other messages", entry.packet.number);
            next = next.saturating_add(entry.packet.carried.into());
        }
        let added_count = self.carried.as_ref().map_or(0, |carried| carried.added_count());
        debug_assert_eq!(next, added_count, "messages are registered that no packet carries");
        // A packet that an ack has passed over waits for its loss, and only such a packet does.
        let is_passed = |entry: &RingEntry| largest.is_some_and(|largest| entry.packet.number < largest.0);
        debug_assert_eq!(
            self.loss_at.is_some(),
            unsettled.clone().any(is_passed),
            "the loss timer does not match the packets below {largest:?}"
        );
    }
}

impl InFlight {
    fn on_sent(&mut self, packet: &SentPacket) {
        self.bytes = self.bytes.saturating_add(packet.bytes.into());
        self.count = self.count.saturating_add(1);
        if let Some(count) = self.of(packet.urgency) {
            *count = count.saturating_add(1);
        }
    }

    fn on_settled(&mut self, packet: &SentPacket) {
        debug_assert!(
            self.count > 0 && self.bytes >= packet.bytes.into(),
            "packet {} was settled, and is not counted as in flight",
            packet.number
        );
        self.bytes = self.bytes.saturating_sub(packet.bytes.into());
        self.count = self.count.saturating_sub(1);
        if let Some(count) = self.of(packet.urgency) {
            *count = count.saturating_sub(1);
        }
    }

    /// The counter for this urgency, if there is one.
    const fn of(&mut self, urgency: AckUrgency) -> Option<&mut u32> {
        match urgency {
            AckUrgency::High => Some(&mut self.carrying_count),
            AckUrgency::Late => Some(&mut self.late_count),
            AckUrgency::Low | AckUrgency::None => None,
        }
    }

    /// The most urgent packet among those in flight.
    pub(super) const fn urgency(self) -> AckUrgency {
        if self.carrying_count > 0 {
            AckUrgency::High
        } else if self.late_count < self.count {
            AckUrgency::Low
        } else if self.late_count > 0 {
            AckUrgency::Late
        } else {
            AckUrgency::None
        }
    }
}

impl CarriedIds {
    /// The number of ids that were ever added.
    fn added_count(&self) -> u64 {
        self.removed_count.saturating_add(to_u64(self.ids.len()))
    }

    /// The ids of a packet in the ring.
    fn of(&self, entry: &RingEntry) -> impl Iterator<Item = MessageId> {
        self.ids.range(self.range(entry)).copied()
    }

    /// Removes the ids of the oldest packet.
    fn forget(&mut self, entry: &RingEntry) {
        self.ids.drain(self.range(entry));
        self.removed_count = self.removed_count.saturating_add(u64::from(entry.packet.carried));
    }

    fn range(&self, entry: &RingEntry) -> Range<usize> {
        debug_assert!(
            entry.carried_from >= self.removed_count,
            "the messages of packet {} were removed before it",
            entry.packet.number
        );
        let start = saturated(entry.carried_from.saturating_sub(self.removed_count), usize::MAX);
        let end = start.saturating_add(usize::from(entry.packet.carried));
        debug_assert!(end <= self.ids.len(), "packet {} lacks messages", entry.packet.number);
        start.min(self.ids.len())..end.min(self.ids.len())
    }
}

impl SkippedNumbers {
    pub(super) fn push(&mut self, number: u64) {
        debug_assert!(
            self.numbers.iter().all(|earlier| *earlier < number),
            "number {number} was skipped out of order"
        );
        // The oldest number is overwritten. Acks of packets that old are no longer checked.
        if let Some(oldest) = self.numbers.get_mut(self.count % SKIPPED_KEPT) {
            *oldest = number;
        }
        self.count = self.count.saturating_add(1);
    }

    /// Whether any of the numbers lies in one of `ranges`, which are in descending order as in an ack.
    pub(super) fn is_any_in(&self, mut ranges: impl Iterator<Item = AckRange>) -> bool {
        // The numbers are in descending order too, so one pass over both is enough.
        let places = (0..self.count).rev().take(SKIPPED_KEPT);
        let numbers = places.filter_map(|place| self.numbers.get(place % SKIPPED_KEPT));
        let mut numbers = numbers.copied().peekable();
        ranges.any(|range| {
            while numbers.next_if(|number| *number > range.largest().0).is_some() {}
            numbers.peek().is_some_and(|number| is_in(range, *number))
        })
    }
}

fn is_in(range: AckRange, number: u64) -> bool {
    range.smallest().0 <= number && number <= range.largest().0
}
