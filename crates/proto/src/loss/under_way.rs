//! The packets under way of one connection that is not idle: a ring, and the ids of what they carry.
//!
//! It knows no round trip: how long to wait is decided by whoever asks.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use drumfire_wire::{Ack, AckRange, MessageId, PacketNumber};

use super::{AckNews, Fate, LostNews, SentPacket};
use crate::acks::Urgency;
use crate::limits::{PACKET_THRESHOLD, PROBE_DOUBLINGS_MAX, PROBES_BEFORE_BACK_OFF, SKIPPED_KEPT};
use crate::path::Path;
use crate::time::Moment;

/// The packets of a connection that is not idle.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    /// By ascending number. A packet whose fate is known is marked, and leaves when it is the oldest.
    pub(super) ring: VecDeque<Entry>,
    /// Boxed, because few connections carry any.
    pub(super) carried: Option<Box<Carried>>,
    /// Boxed, because most have none.
    pub(super) skipped: Option<Box<Skipped>>,
    pub(super) in_flight: InFlight,
    /// When the oldest packet below the largest acknowledged one counts as lost.
    pub(super) loss_at: Option<Moment>,
    /// When an ack last brought something new, or a probe became due.
    pub(super) progress_at: Moment,
    pub(super) probe_count: u32,
}

/// Packets whose fate is not known, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct InFlight {
    pub(super) bytes: u32,
    pub(super) count: u32,
    /// Those of them with what is resent until it is acknowledged.
    carrying_count: u32,
    /// Those of them with unreliable messages alone.
    late_count: u32,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    packet: SentPacket,
    /// Where its ids begin, counted over all there ever were.
    carried_from: u64,
    is_settled: bool,
}

/// Ids of reliable messages in the packets of the ring, in the order of the packets.
#[derive(Debug, Default)]
pub(super) struct Carried {
    pub(super) ids: VecDeque<MessageId>,
    /// How many have left at the front.
    gone: u64,
}

/// The last packet numbers that were used for nothing.
#[derive(Debug, Default)]
pub(super) struct Skipped {
    numbers: [u64; SKIPPED_KEPT],
    count: usize,
}

impl UnderWay {
    /// Something of each part of it, for `Connection::fetch_parts`.
    #[inline]
    pub(super) fn fetch(&self) -> impl Copy + use<> {
        let ends = [self.ring.front(), self.ring.back()].map(|entry| entry.map(|entry| entry.is_settled));
        (ends, self.in_flight.bytes, self.progress_at)
    }

    pub(super) fn oldest_sent_at(&self) -> Option<Moment> {
        self.ring.front().map(|entry| entry.packet.at)
    }

    pub(super) fn oldest_number(&self) -> Option<u64> {
        self.ring.front().map(|entry| entry.packet.number)
    }

    pub(super) fn on_sent(&mut self, packet: SentPacket) {
        self.in_flight.on_sent(&packet);
        let all = self.carried.as_ref().map_or(0, |carried| carried.all());
        let carried_from = all.saturating_sub(u64::from(packet.carried));
        self.ring.push_back(Entry { packet, carried_from, is_settled: false });
    }

    pub(super) fn oldest_carried(&self) -> Option<impl Iterator<Item = MessageId>> {
        let oldest =
            self.ring.iter().find(|entry| !entry.is_settled && entry.packet.urgency == Urgency::High)?;
        Some(self.carried.as_ref()?.of(oldest))
    }

    /// When to probe; `first` is how long to wait for an ack before the first, `longest` before any.
    pub(super) fn probe_at(&self, first: Duration, longest: Duration) -> Moment {
        let doublings = self.probe_count.saturating_sub(PROBES_BEFORE_BACK_OFF).min(PROBE_DOUBLINGS_MAX);
        let wait = first.saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX));
        // Counted from the last progress and not from the last packet, which RFC 9002 does: a game that sends all
        // the time would never find out that its path is dead.
        let since = self.oldest_sent_at().map_or(self.progress_at, |oldest| oldest.max(self.progress_at));
        since.after(wait.min(longest))
    }

    /// Settles the packets that an ack names.
    pub(super) fn acknowledge_all(
        &mut self,
        ack: &Ack<'_>,
        news: &mut AckNews,
        fate: &mut impl FnMut(Fate, MessageId, u64),
        mut on_packet: impl FnMut(&SentPacket),
    ) {
        for range in ack.ranges {
            // Ranges descend: what lies before the ring was settled long ago.
            if self.ring.front().is_none_or(|oldest| range.largest().0 < oldest.packet.number) {
                break;
            }
            self.acknowledge(range, news, fate, &mut on_packet);
        }
    }

    /// Settles the packets of one range.
    fn acknowledge(
        &mut self,
        range: AckRange,
        news: &mut AckNews,
        fate: &mut impl FnMut(Fate, MessageId, u64),
        mut on_packet: impl FnMut(&SentPacket),
    ) {
        let end = self.ring.partition_point(|entry| entry.packet.number <= range.largest().0);
        let start = self.ring.partition_point(|entry| entry.packet.number < range.smallest().0);
        for entry in self.ring.range_mut(start..end) {
            if !entry.is_settled {
                entry.is_settled = true;
                let packet = entry.packet;
                for id in self.carried.iter().flat_map(|carried| carried.of(entry)) {
                    fate(Fate::Acknowledged, id, packet.number);
                }
                self.in_flight.on_settled(&packet);
                news.acknowledged_count = news.acknowledged_count.saturating_add(1);
                news.acknowledged_bytes = news.acknowledged_bytes.saturating_add(packet.bytes.into());
                news.newest_sent_at = news.newest_sent_at.max(Some(packet.at));
                news.largest_bytes = news.largest_bytes.max(packet.bytes);
                if packet.is_mtu_probe {
                    news.mtu_probe_bytes = Some(packet.bytes);
                }
                news.knows_up_to = news.knows_up_to.max(packet.acks_up_to);
                on_packet(&packet);
            }
        }
    }

    /// Names the packets that are lost by now, and notes when to look again.
    pub(super) fn find_lost(
        &mut self,
        now: Moment,
        largest: PacketNumber,
        delay: Duration,
        persistent: Duration,
        fate: &mut impl FnMut(Fate, MessageId, u64),
    ) -> LostNews {
        let mut news = LostNews::default();
        // When the first of those was sent that were lost one after the other.
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
            let is_overtaken = entry.packet.number.saturating_add(PACKET_THRESHOLD) <= largest.0;
            if !is_overtaken && lost_at > now {
                self.loss_at = Some(self.loss_at.map_or(lost_at, |earlier| earlier.min(lost_at)));
                continue;
            }
            entry.is_settled = true;
            let packet = entry.packet;
            for id in self.carried.iter().flat_map(|carried| carried.of(entry)) {
                fate(Fate::Lost, id, packet.number);
            }
            self.in_flight.on_settled(&packet);
            if packet.is_mtu_probe {
                news.is_mtu_probe_lost = true;
                continue;
            }
            news.large_count = news.large_count.saturating_add((packet.bytes > Path::START_BYTES).into());
            news.first = if news.count == 0 { packet.number } else { news.first };
            news.last = packet.number;
            news.count = news.count.saturating_add(1);
            news.bytes = news.bytes.saturating_add(packet.bytes.into());
            news.newest_sent_at = news.newest_sent_at.max(Some(packet.at));
            let since = *lost_since.get_or_insert(packet.at);
            news.is_persistent |= packet.at.since(since) >= persistent;
        }
        news
    }

    /// Lets go of the oldest packets whose fate is known.
    pub(super) fn forget_settled(&mut self) {
        while let Some(entry) = self.ring.pop_front_if(|entry| entry.is_settled) {
            if let Some(carried) = &mut self.carried {
                carried.forget(&entry);
            }
        }
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
        self.bytes = self.bytes.saturating_sub(packet.bytes.into());
        self.count = self.count.saturating_sub(1);
        if let Some(count) = self.of(packet.urgency) {
            *count = count.saturating_sub(1);
        }
    }

    /// The count of those that are as urgent, where there is one.
    const fn of(&mut self, urgency: Urgency) -> Option<&mut u32> {
        match urgency {
            Urgency::High => Some(&mut self.carrying_count),
            Urgency::Late => Some(&mut self.late_count),
            Urgency::Low | Urgency::None => None,
        }
    }

    /// The greatest urgency among them.
    pub(super) const fn urgency(self) -> Urgency {
        if self.carrying_count > 0 {
            Urgency::High
        } else if self.late_count < self.count {
            Urgency::Low
        } else if self.late_count > 0 {
            Urgency::Late
        } else {
            Urgency::None
        }
    }
}

impl Carried {
    /// All there ever were.
    fn all(&self) -> u64 {
        self.gone.saturating_add(u64::try_from(self.ids.len()).unwrap_or(u64::MAX))
    }

    /// Those of a packet of the ring.
    fn of(&self, entry: &Entry) -> impl Iterator<Item = MessageId> {
        self.ids.range(self.range(entry)).copied()
    }

    /// Forgets those of the oldest packet.
    fn forget(&mut self, entry: &Entry) {
        self.ids.drain(self.range(entry));
        self.gone = self.gone.saturating_add(u64::from(entry.packet.carried));
    }

    fn range(&self, entry: &Entry) -> Range<usize> {
        let start = usize::try_from(entry.carried_from.saturating_sub(self.gone)).unwrap_or(usize::MAX);
        let end = start.saturating_add(usize::from(entry.packet.carried));
        start.min(self.ids.len())..end.min(self.ids.len())
    }
}

impl Skipped {
    pub(super) fn push(&mut self, number: u64) {
        let place = self.count.checked_rem(SKIPPED_KEPT).unwrap_or(0);
        if let Some(oldest) = self.numbers.get_mut(place) {
            *oldest = number;
        }
        self.count = self.count.saturating_add(1);
    }

    /// Whether any of the numbers lies in one of `ranges`, which come newest first as in an ack.
    pub(super) fn is_any_in(&self, mut ranges: impl Iterator<Item = AckRange>) -> bool {
        // The numbers newest first too, so that one walk over both is enough.
        let places = (0..self.count).rev().take(SKIPPED_KEPT);
        let numbers = places.filter_map(|place| self.numbers.get(place.checked_rem(SKIPPED_KEPT)?));
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
