//! Packets under way: which were acknowledged, which are lost, and when to probe (after RFC 9002).
//!
//! It remembers packets that ask for an ack, in a ring that holds no more than is under way and a few beyond;
//! what is to be done about a lost message is the channels' business, and how fast packets may go is that of
//! `congestion`.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use drumfire_wire::{Ack, AckRange, MessageId, PacketNumber};

use crate::limits::{
    ACK_DELAY_MAX, KEY_CHANGE_PROBES, PACKET_THRESHOLD, PERSISTENT_PROBES, PROBE_DOUBLINGS_MAX,
    PROBE_INTERVAL_MAX, PROBES_BEFORE_SILENCE, SKIPPED_KEPT,
};
use crate::path::Path;
use crate::rtt::RoundTrip;
use crate::time::Moment;

/// A packet that was sent and asks for an ack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentPacket {
    pub(crate) number: u64,
    pub(crate) at: Moment,
    /// The newest packet that an ack inside speaks of.
    pub(crate) acks_up_to: Option<PacketNumber>,
    pub(crate) bytes: u16,
    /// Messages inside whose fate somebody waits for, noted before with [`Loss::carry`].
    pub(crate) carried: u16,
    /// Some of them are reliable: the peer acknowledges them sooner.
    pub(crate) is_reliable: bool,
    /// It only tries how large a packet may be: that it is lost says nothing else.
    pub(crate) is_mtu_probe: bool,
}

/// What became of a packet with a reliable message in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Acknowledged,
    Lost,
}

/// An ack that no honest peer sends; it closes the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckError {
    /// It names a packet that was never sent.
    Unsent,
    /// It names a packet number that was skipped to find out.
    Skipped,
}

/// What an ack said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AckNews {
    pub(crate) acknowledged_count: u64,
    pub(crate) acknowledged_bytes: u64,
    /// When the newest packet that it newly acknowledged was sent.
    pub(crate) newest_sent_at: Option<Moment>,
    /// The round trip it measured, without what the peer says it waited.
    pub(crate) round_trip: Option<Duration>,
    /// Bytes of the largest packet it newly acknowledged, and of the probe of the path's size.
    pub(crate) largest_bytes: u16,
    pub(crate) mtu_probe_bytes: Option<u16>,
    /// What it showed to be lost.
    pub(crate) lost: LostNews,
    /// The peer has an ack of ours up to here.
    pub(crate) knows_up_to: Option<PacketNumber>,
}

/// What was found lost at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LostNews {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    /// The numbers of the oldest and of the newest, where there are any.
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Those larger than every path carries.
    pub(crate) large_count: u32,
    /// A probe of the path's size was lost, which is in no other count.
    pub(crate) is_mtu_probe_lost: bool,
    /// When the newest of them was sent.
    pub(crate) newest_sent_at: Option<Moment>,
    /// Everything over several probe timeouts was lost (RFC 9002 section 7.6).
    pub(crate) is_persistent: bool,
}

/// What came of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// Packets counted as lost.
    Lost(LostNews),
    /// A probe must be sent.
    Probe,
}

/// The ring of packets under way, the round trip and the probe timer.
#[derive(Debug, Default)]
pub(crate) struct Loss {
    /// By ascending number. A packet whose fate is known is marked, and leaves when it is the oldest.
    ring: VecDeque<Entry>,
    /// Boxed, because few connections carry any.
    carried: Option<Box<Carried>>,
    /// Boxed, because an idle connection has none.
    skipped: Option<Box<Skipped>>,
    /// The number after the largest acknowledged one; 0 before the first.
    acked_end: u64,
    in_flight_bytes: u32,
    in_flight_count: u32,
    carrying_count: u32,
    /// When the oldest packet below the largest acknowledged one counts as lost.
    loss_at: Option<Moment>,
    /// When an ack last brought something new, or a probe became due.
    progress_at: Moment,
    probe_count: u32,
    lost_count: u32,
    round_trip: RoundTrip,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    packet: SentPacket,
    /// Where its ids begin, counted over all there ever were.
    carried_from: u64,
    is_settled: bool,
}

/// Ids of reliable messages in the packets of the ring, in the order of the packets.
#[derive(Debug, Default)]
struct Carried {
    ids: VecDeque<MessageId>,
    /// How many have left at the front.
    gone: u64,
}

/// The last packet numbers that were used for nothing.
#[derive(Debug, Default)]
struct Skipped {
    numbers: [u64; SKIPPED_KEPT],
    count: usize,
}

impl Loss {
    pub(crate) const fn round_trip(&self) -> &RoundTrip {
        &self.round_trip
    }

    pub(crate) fn largest_acked(&self) -> Option<PacketNumber> {
        self.acked_end.checked_sub(1).map(PacketNumber)
    }

    pub(crate) fn in_flight_bytes(&self) -> usize {
        usize::try_from(self.in_flight_bytes).unwrap_or(usize::MAX)
    }

    pub(crate) const fn has_in_flight(&self) -> bool {
        self.in_flight_count > 0
    }

    /// Packets found lost so far.
    pub(crate) fn lost_count(&self) -> u64 {
        self.lost_count.into()
    }

    /// Probes that went unanswered.
    pub(crate) const fn probe_count(&self) -> u32 {
        self.probe_count
    }

    /// Whether so many probes went unanswered that only probes may be sent.
    pub(crate) const fn is_silenced(&self) -> bool {
        self.probe_count >= PROBES_BEFORE_SILENCE
    }

    /// When the oldest packet without an ack was sent.
    pub(crate) fn oldest_sent_at(&self) -> Option<Moment> {
        self.ring.front().map(|entry| entry.packet.at)
    }

    /// Notes a reliable message of the packet that is being built.
    pub(crate) fn carry(&mut self, id: MessageId) {
        self.carried.get_or_insert_default().ids.push_back(id);
    }

    /// Notes a packet that asks for an ack, after the messages it carries.
    pub(crate) fn on_sent(&mut self, packet: SentPacket) {
        self.in_flight_bytes = self.in_flight_bytes.saturating_add(packet.bytes.into());
        self.in_flight_count = self.in_flight_count.saturating_add(1);
        self.carrying_count = self.carrying_count.saturating_add(u32::from(packet.is_reliable));
        let all = self.carried.as_ref().map_or(0, |carried| carried.all());
        let carried_from = all.saturating_sub(u64::from(packet.carried));
        self.ring.push_back(Entry { packet, carried_from, is_settled: false });
    }

    /// Notes a packet number that was used for nothing.
    pub(crate) fn on_skipped(&mut self, number: u64) {
        self.skipped.get_or_insert_default().push(number);
    }

    /// Takes an ack in, when `next_number` is the first that was not sent. `fate` hears what became of each
    /// message carried, with the packet it was in.
    ///
    /// # Errors
    /// [`AckError`]; then nothing has changed.
    pub(crate) fn on_ack(
        &mut self,
        now: Moment,
        ack: &Ack<'_>,
        next_number: u64,
        mut fate: impl FnMut(Fate, MessageId, u64),
    ) -> Result<AckNews, AckError> {
        let largest = ack.ranges.largest();
        if largest.0 >= next_number {
            return Err(AckError::Unsent);
        }
        if let Some(skipped) = &self.skipped
            && ack.ranges.iter().any(|range| skipped.is_any_in(range))
        {
            return Err(AckError::Skipped);
        }
        let mut news = AckNews::default();
        let mut sample = None;
        for range in ack.ranges {
            // Ranges descend: what lies before the ring was settled long ago.
            if self.ring.front().is_none_or(|oldest| range.largest().0 < oldest.packet.number) {
                break;
            }
            self.acknowledge(range, &mut news, &mut fate, |packet| {
                if packet.number == largest.0 {
                    sample = Some(now.since(packet.at));
                }
            });
        }
        let is_newer = self.largest_acked() < Some(largest);
        self.acked_end = self.acked_end.max(largest.0.saturating_add(1));
        if let Some(sample) = sample {
            let waited = ack.delay.to_duration();
            self.round_trip.on_sample(sample, waited);
            news.round_trip = Some(sample.saturating_sub(waited));
        }
        // Also when it names only packets that asked for none: all before them may be found lost by it, and then no probe
        // would ever bring another ack.
        if news.acknowledged_count > 0 || is_newer {
            self.progress_at = now;
            self.probe_count = 0;
        }
        news.lost = self.find_lost(now, &mut fate);
        Ok(news)
    }

    /// When something must be done: lost packets named, or a probe sent.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        if self.in_flight_count == 0 {
            return None;
        }
        self.loss_at.or_else(|| Some(self.probe_at()))
    }

    /// Does what is due.
    pub(crate) fn on_timeout(&mut self, now: Moment, mut fate: impl FnMut(Fate, MessageId, u64)) -> Due {
        if self.deadline().is_none_or(|deadline| deadline > now) {
            return Due::Nothing;
        }
        if self.loss_at.is_some() {
            return Due::Lost(self.find_lost(now, &mut fate));
        }
        self.probe_count = self.probe_count.saturating_add(1);
        self.progress_at = now;
        Due::Probe
    }

    /// Forgets how many probes went unanswered: they went astray for a reason that is gone.
    pub(crate) const fn begin_anew(&mut self, now: Moment) {
        self.probe_count = 0;
        self.progress_at = now;
    }

    /// The messages of the oldest packet under way that has any: what a probe had best repeat.
    pub(crate) fn oldest_carried(&self) -> impl Iterator<Item = MessageId> {
        let oldest = self.ring.iter().find(|entry| !entry.is_settled && entry.packet.is_reliable);
        let carried = oldest.and_then(|entry| Some(self.carried.as_ref()?.of(entry)));
        carried.into_iter().flatten()
    }

    /// How long a change of keys or paths is given to settle.
    pub(crate) fn settling_time(&self) -> Duration {
        self.probe_timeout().saturating_mul(KEY_CHANGE_PROBES)
    }

    /// How long to wait for an ack now, without doublings.
    pub(crate) fn probe_timeout(&self) -> Duration {
        let ack_delay = if self.carrying_count > 0 {
            ACK_DELAY_MAX
        } else {
            self.round_trip.smoothed().max(ACK_DELAY_MAX)
        };
        self.round_trip.probe_timeout(ack_delay)
    }

    /// Gives back memory that an idle connection does not need.
    pub(crate) fn shrink(&mut self) {
        self.ring.shrink_to_fit();
        if self.ring.is_empty() {
            self.carried = None;
            // Whoever acknowledges them from now on gains nothing.
            self.skipped = None;
        }
    }

    fn probe_at(&self) -> Moment {
        let doublings = self.probe_count.min(PROBE_DOUBLINGS_MAX);
        let first = self.probe_timeout();
        let wait = first.saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX));
        // Counted from the last progress and not from the last packet, which RFC 9002 does: a game that sends all
        // the time would never find out that its path is dead.
        let since = self.oldest_sent_at().map_or(self.progress_at, |oldest| oldest.max(self.progress_at));
        // On a path slower than the cap, the cap gives way.
        since.after(wait.min(PROBE_INTERVAL_MAX.max(first)))
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
                self.in_flight_bytes = self.in_flight_bytes.saturating_sub(packet.bytes.into());
                self.in_flight_count = self.in_flight_count.saturating_sub(1);
                self.carrying_count = self.carrying_count.saturating_sub(u32::from(packet.is_reliable));
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

    /// Names the packets that are lost by now, lets go of what is settled, and notes when to look again.
    fn find_lost(&mut self, now: Moment, fate: &mut impl FnMut(Fate, MessageId, u64)) -> LostNews {
        let mut news = LostNews::default();
        let Some(largest) = self.largest_acked() else { return news };
        let delay = self.round_trip.loss_delay();
        // When the first of those was sent that were lost one after the other.
        let mut lost_since = None;
        let persistent = self.probe_timeout().saturating_mul(PERSISTENT_PROBES);
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
            self.in_flight_bytes = self.in_flight_bytes.saturating_sub(packet.bytes.into());
            self.in_flight_count = self.in_flight_count.saturating_sub(1);
            self.carrying_count = self.carrying_count.saturating_sub(u32::from(packet.is_reliable));
            if packet.is_mtu_probe {
                news.is_mtu_probe_lost = true;
                continue;
            }
            news.large_count = news.large_count.saturating_add((packet.bytes > Path::START_BYTES).into());
            self.lost_count = self.lost_count.saturating_add(1);
            news.first = if news.count == 0 { packet.number } else { news.first };
            news.last = packet.number;
            news.count = news.count.saturating_add(1);
            news.bytes = news.bytes.saturating_add(packet.bytes.into());
            news.newest_sent_at = news.newest_sent_at.max(Some(packet.at));
            let since = *lost_since.get_or_insert(packet.at);
            news.is_persistent |= packet.at.since(since) >= persistent;
        }
        while let Some(entry) = self.ring.pop_front_if(|entry| entry.is_settled) {
            if let Some(carried) = &mut self.carried {
                carried.forget(&entry);
            }
        }
        news
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
    fn push(&mut self, number: u64) {
        let place = self.count.checked_rem(SKIPPED_KEPT).unwrap_or(0);
        if let Some(oldest) = self.numbers.get_mut(place) {
            *oldest = number;
        }
        self.count = self.count.saturating_add(1);
    }

    fn is_any_in(&self, range: AckRange) -> bool {
        self.numbers.iter().take(self.count).any(|number| is_in(range, *number))
    }
}

fn is_in(range: AckRange, number: u64) -> bool {
    range.smallest().0 <= number && number <= range.largest().0
}

#[cfg(test)]
mod tests;
