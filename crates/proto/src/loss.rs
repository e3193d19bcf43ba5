//! Packets under way: which were acknowledged, which are lost, and when to probe (after RFC 9002).
//!
//! It remembers packets that ask for an ack, in a ring that holds no more than is under way and a few beyond;
//! what is to be done about a lost message is the channels' business, and how fast packets may go is that of
//! `congestion`.

mod under_way;

use std::time::Duration;

use drumfire_wire::{Ack, MessageId, PacketNumber};

use self::under_way::UnderWay;
use crate::acks::Urgency;
use crate::limits::{
    ACK_DELAY_LATE, ACK_DELAY_MAX, KEY_CHANGE_PROBES, PERSISTENT_PROBES, PROBE_INTERVAL_MAX,
    PROBES_BEFORE_SILENCE, ROUND_TRIP_MAX,
};
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
    /// How soon the peer acknowledges it.
    pub(crate) urgency: Urgency,
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

/// What is under way, the round trip and the probe timer.
#[derive(Debug, Default)]
pub(crate) struct Loss {
    /// Boxed, because an idle connection has nothing under way.
    under_way: Option<Box<UnderWay>>,
    /// The number after the largest acknowledged one; 0 before the first.
    acked_end: u64,
    lost_count: u32,
    round_trip: RoundTrip,
}

impl Loss {
    /// Something of each part of it, for `Connection::fetch_parts`.
    #[inline]
    pub(crate) fn fetch(&self) -> impl Copy + use<> {
        self.under_way.as_deref().map(UnderWay::fetch)
    }

    pub(crate) const fn round_trip(&self) -> &RoundTrip {
        &self.round_trip
    }

    pub(crate) fn largest_acked(&self) -> Option<PacketNumber> {
        self.acked_end.checked_sub(1).map(PacketNumber)
    }

    pub(crate) fn in_flight_bytes(&self) -> usize {
        let bytes = self.under_way.as_ref().map_or(0, |under_way| under_way.in_flight.bytes);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    pub(crate) fn has_in_flight(&self) -> bool {
        self.under_way.as_ref().is_some_and(|under_way| under_way.in_flight.count > 0)
    }

    /// Whether packets under way, or what was, are remembered.
    pub(crate) const fn has_memory(&self) -> bool {
        self.under_way.is_some()
    }

    /// Whether any packet is remembered, with what it carried.
    pub(crate) fn has_packets(&self) -> bool {
        self.under_way.as_ref().is_some_and(|under_way| !under_way.ring.is_empty())
    }

    /// Packets found lost so far.
    pub(crate) fn lost_count(&self) -> u64 {
        self.lost_count.into()
    }

    /// Probes that went unanswered.
    pub(crate) fn probe_count(&self) -> u32 {
        self.under_way.as_ref().map_or(0, |under_way| under_way.probe_count)
    }

    /// Whether so many probes went unanswered that only probes may be sent.
    pub(crate) fn is_silenced(&self) -> bool {
        self.probe_count() >= PROBES_BEFORE_SILENCE
    }

    /// When the oldest packet without an ack was sent.
    pub(crate) fn oldest_sent_at(&self) -> Option<Moment> {
        self.under_way.as_ref()?.oldest_sent_at()
    }

    /// Notes a reliable message of the packet that is being built.
    pub(crate) fn carry(&mut self, id: MessageId) {
        self.under_way.get_or_insert_default().carried.get_or_insert_default().ids.push_back(id);
    }

    /// Notes a packet that asks for an ack, after the messages it carries.
    pub(crate) fn on_sent(&mut self, packet: SentPacket) {
        self.under_way.get_or_insert_default().on_sent(packet);
    }

    /// Notes a packet number that was used for nothing.
    pub(crate) fn on_skipped(&mut self, number: u64) {
        self.under_way.get_or_insert_default().skipped.get_or_insert_default().push(number);
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
        let mut under_way = self.under_way.as_deref_mut();
        if let Some(UnderWay { skipped: Some(skipped), .. }) = &under_way
            && skipped.is_any_in(ack.ranges.iter())
        {
            return Err(AckError::Skipped);
        }
        let mut news = AckNews::default();
        let mut sample = None;
        if let Some(under_way) = &mut under_way {
            under_way.acknowledge_all(ack, &mut news, &mut fate, |packet| {
                if packet.number == largest.0 {
                    sample = Some(now.since(packet.at));
                }
            });
        }
        let is_newer = self.acked_end <= largest.0;
        self.acked_end = self.acked_end.max(largest.0.saturating_add(1));
        if let Some(sample) = sample.filter(|sample| *sample <= ROUND_TRIP_MAX) {
            let waited = ack.delay.to_duration();
            self.round_trip.on_sample(sample, waited);
            news.round_trip = Some(sample.saturating_sub(waited));
        }
        // Also when it names only packets that asked for none: all before them may be found lost by it, and then no probe
        // would ever bring another ack.
        if let Some(under_way) = under_way
            && (news.acknowledged_count > 0 || is_newer)
        {
            under_way.progress_at = now;
            under_way.probe_count = 0;
        }
        self.check_acked(ack, next_number, news.acknowledged_count > 0 || is_newer);
        news.lost = self.find_lost(now, &mut fate);
        Ok(news)
    }

    /// Asserts what must hold after an ack was taken in. Each of these faults lets a peer be sent more than its path carries, or keeps
    /// a connection silent, and neither shows from outside for a long time.
    fn check_acked(&self, ack: &Ack<'_>, next_number: u64, has_progress: bool) {
        debug_assert!(self.acked_end <= next_number, "an ack of a packet that was never sent was taken in");
        let skipped = self.under_way.as_ref().and_then(|under_way| under_way.skipped.as_ref());
        debug_assert!(
            !skipped.is_some_and(|skipped| skipped.is_any_in(ack.ranges.iter())),
            "an ack of a skipped packet number was taken in"
        );
        debug_assert!(
            !has_progress || self.probe_count() == 0,
            "after an ack with news, {} probes still count as unanswered",
            self.probe_count()
        );
    }

    /// When something must be done: lost packets named, or a probe sent.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        let under_way = self.under_way.as_ref().filter(|under_way| under_way.in_flight.count > 0)?;
        if under_way.loss_at.is_some() {
            return under_way.loss_at;
        }
        let smoothed = self.round_trip.smoothed();
        let ack_delay = match under_way.in_flight.urgency() {
            Urgency::High => ACK_DELAY_MAX,
            Urgency::Low | Urgency::None => smoothed.max(ACK_DELAY_MAX),
            Urgency::Late => smoothed.max(ACK_DELAY_LATE),
        };
        // On a path slower than the cap, the cap gives way. How much its round trips vary does not count: after one that a hole
        // made long, few tries would be left before the connection is given up.
        let longest = PROBE_INTERVAL_MAX.max(smoothed.saturating_add(ack_delay));
        Some(under_way.probe_at(self.round_trip.probe_timeout(ack_delay), longest))
    }

    /// Does what is due.
    pub(crate) fn on_timeout(&mut self, now: Moment, mut fate: impl FnMut(Fate, MessageId, u64)) -> Due {
        if self.deadline().is_none_or(|deadline| deadline > now) {
            return Due::Nothing;
        }
        match self.under_way.as_deref_mut() {
            None => Due::Nothing,
            Some(under_way) if under_way.loss_at.is_some() => Due::Lost(self.find_lost(now, &mut fate)),
            Some(under_way) => {
                under_way.probe_count = under_way.probe_count.saturating_add(1);
                under_way.progress_at = now;
                Due::Probe
            }
        }
    }

    /// Forgets how many probes went unanswered: they went astray for a reason that is gone.
    pub(crate) fn begin_anew(&mut self, now: Moment) {
        if let Some(under_way) = &mut self.under_way {
            under_way.probe_count = 0;
            under_way.progress_at = now;
        }
    }

    /// The messages of the oldest packet under way that has any: what a probe had best repeat.
    pub(crate) fn oldest_carried(&self) -> impl Iterator<Item = MessageId> {
        self.under_way.iter().filter_map(|under_way| under_way.oldest_carried()).flatten()
    }

    /// How long a change of keys or paths is given to settle.
    pub(crate) fn settling_time(&self) -> Duration {
        self.probe_timeout().saturating_mul(KEY_CHANGE_PROBES)
    }

    /// Returns the probe timeout (PROTOCOL 9.3, "Probe timeout and loss detection").
    pub(crate) fn probe_timeout(&self) -> Duration {
        self.round_trip.probe_timeout(ACK_DELAY_MAX)
    }

    /// Gives back memory that an idle connection does not need.
    pub(crate) fn shrink(&mut self) {
        // Whoever acknowledges numbers that were skipped gains nothing from now on.
        self.under_way.take_if(|under_way| under_way.ring.is_empty());
        if let Some(under_way) = &mut self.under_way {
            under_way.ring.shrink_to_fit();
        }
    }

    /// Names the packets that are lost by now.
    fn find_lost(&mut self, now: Moment, fate: &mut impl FnMut(Fate, MessageId, u64)) -> LostNews {
        let (Some(largest), Some(under_way)) = (self.largest_acked(), &mut self.under_way) else {
            return LostNews::default();
        };
        under_way.forget_settled();
        if under_way.oldest_number().is_none_or(|oldest| oldest >= largest.0) {
            under_way.loss_at = None;
            return LostNews::default();
        }
        let (persistent, delay) =
            (self.probe_timeout().saturating_mul(PERSISTENT_PROBES), self.round_trip.loss_delay());
        let Some(under_way) = &mut self.under_way else { return LostNews::default() };
        let news = under_way.find_lost(now, largest, delay, persistent, fate);
        under_way.forget_settled();
        self.lost_count = self.lost_count.saturating_add(u32::try_from(news.count).unwrap_or(u32::MAX));
        news
    }
}

#[cfg(test)]
mod tests;
