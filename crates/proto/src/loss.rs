//! Loss detection: packets in flight, their acks and losses, and the probe timer (after RFC 9002).
//!
//! This module remembers ack-eliciting packets, in a ring that holds the packets in flight and a few more.
//! Channels decide how to repair a lost message. `congestion` decides how fast packets may be sent.

mod in_flight;

use std::time::Duration;

use drumfire_wire::{Ack, MessageId, PacketNumber};

use self::in_flight::InFlightPackets;
use crate::acks::{AckUrgency, reliable_ack_delay};
use crate::convert::{nanos, saturated};
use crate::limits::{
    ACK_DELAY_LATE, ACK_DELAY_MAX, KEY_CHANGE_PROBES, PERSISTENT_PROBES, PROBE_INTERVAL_MAX,
    PROBES_BEFORE_SILENCE, QUIET_PROBE_INTERVAL_MAX, ROUND_TRIP_MAX,
};
use crate::rtt::RoundTrip;
use crate::time::Moment;

/// A sent ack-eliciting packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentPacket {
    /// The packet number. It is larger than that of every packet registered before.
    pub(crate) number: u64,
    /// The time at which the packet was built.
    pub(crate) at: Moment,
    /// The largest packet number that an ack inside this packet acknowledges, or `None` without an ack.
    pub(crate) acks_up_to: Option<PacketNumber>,
    /// The size of the datagram in bytes, with header and authentication tag.
    pub(crate) bytes: u16,
    /// The number of ids whose fate must be reported, registered before with [`Loss::carry`]. A run of messages has one.
    pub(crate) carried: u16,
    /// Some of its contents are sent again until they arrive: reliable messages or control frames.
    pub(crate) is_repeated: bool,
    /// The urgency of the ack of the packet. The peer waits longer with control frames than with reliable messages.
    pub(crate) urgency: AckUrgency,
    /// The packet only tests a datagram size. Its loss is no sign of congestion.
    pub(crate) is_mtu_probe: bool,
}

/// The fate of a packet that carried a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PacketFate {
    /// The peer has received the packet.
    Acknowledged,
    /// The packet was declared lost. It may still arrive.
    Lost,
}

/// An ack that no honest peer sends. It closes the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckError {
    /// The ack names a packet that was never sent.
    Unsent,
    /// The ack names a packet number that was skipped to detect such acks.
    Skipped,
}

/// The result of processing an ack.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AckOutcome {
    // Packets that the ack newly acknowledged
    /// The number of packets, 0 for a repeated ack.
    pub(crate) acknowledged_count: u64,
    /// The sum of their sizes in bytes.
    pub(crate) acknowledged_bytes: u64,
    /// The time at which the newest of the packets was sent. `None` when there is no such packet.
    pub(crate) newest_sent_at: Option<Moment>,
    /// The measured round trip, minus the delay that the peer reported. `None` when the ack gives no sample.
    pub(crate) round_trip: Option<Duration>,
    /// The size of the largest of them in bytes, 0 when there is no such packet.
    pub(crate) largest_bytes: u16,
    /// The packet number and the size in bytes of the newest MTU probe that was newly acknowledged, if there was one.
    pub(crate) mtu_probe: Option<(u64, u16)>,

    // Conclusions from the ack
    /// The packets that the ack showed to be lost.
    pub(crate) lost: LostPackets,
    /// The peer has received an ack of packets up to this number. `None` when no acknowledged packet had an ack.
    pub(crate) knows_up_to: Option<PacketNumber>,
}

/// Packets that were declared lost in one step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LostPackets {
    /// The number of lost packets.
    pub(crate) count: u64,
    /// The sum of their sizes in bytes.
    pub(crate) bytes: u64,
    /// The smallest of their packet numbers. Without meaning when `count` is zero.
    pub(crate) first: u64,
    /// The largest of their packet numbers. Without meaning when `count` is zero.
    pub(crate) last: u64,
    /// The lost packets that were larger than the size every path carries.
    pub(crate) large_count: u32,
    /// The packet number of the newest MTU probe that was lost, if there was one. MTU probes are not included in the other
    /// counts.
    pub(crate) mtu_probe: Option<u64>,
    /// The time at which the newest of the lost packets was sent. `None` when `count` is zero.
    pub(crate) newest_sent_at: Option<Moment>,
    /// All packets over several probe timeouts were lost: persistent congestion (RFC 9002 section 7.6).
    pub(crate) is_persistent: bool,
}

/// The result of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimerOutcome {
    /// The timer was early.
    Nothing,
    /// Packets were declared lost.
    Lost(LostPackets),
    /// A probe must be sent.
    Probe,
}

/// The packets in flight, the round trip estimate, and the probe timer of one connection.
#[derive(Debug, Default)]
pub(crate) struct Loss {
    /// The packets whose fate is not known. Boxed, because an idle connection has nothing in flight.
    packets: Option<Box<InFlightPackets>>,
    /// The largest acknowledged number plus one, or 0 before the first ack.
    acked_end: u64,
    /// The number of packets declared lost over the life of the connection. It stops at the limit of its type.
    lost_count: u32,
    /// The estimate that loss delay and probe timeout are computed from.
    round_trip: RoundTrip,
}

impl Loss {
    /// Reads a field of each part, for `Connection::prefetch_parts`.
    #[inline]
    pub(crate) fn prefetch(&self) -> impl Copy + use<> {
        self.packets.as_deref().map(InFlightPackets::prefetch)
    }

    pub(crate) const fn round_trip(&self) -> &RoundTrip {
        &self.round_trip
    }

    pub(crate) fn largest_acked(&self) -> Option<PacketNumber> {
        self.acked_end.checked_sub(1).map(PacketNumber)
    }

    pub(crate) fn in_flight_bytes(&self) -> usize {
        let bytes = self.packets.as_ref().map_or(0, |packets| packets.in_flight.bytes);
        saturated(bytes, usize::MAX)
    }

    /// The number of packets in flight.
    pub(crate) fn in_flight_count(&self) -> usize {
        let count = self.packets.as_ref().map_or(0, |packets| packets.in_flight.count);
        saturated(count, usize::MAX)
    }

    pub(crate) fn has_in_flight(&self) -> bool {
        self.in_flight_count() > 0
    }

    /// Whether memory for packets in flight is allocated.
    pub(crate) const fn has_memory(&self) -> bool {
        self.packets.is_some()
    }

    /// Whether any packet is remembered, with the messages it carried.
    pub(crate) fn has_packets(&self) -> bool {
        self.packets.as_ref().is_some_and(|packets| !packets.ring.is_empty())
    }

    /// The number of packets declared lost so far.
    pub(crate) fn lost_count(&self) -> u64 {
        self.lost_count.into()
    }

    /// The number of consecutive probes without an ack.
    pub(crate) fn probe_count(&self) -> u32 {
        self.packets.as_ref().map_or(0, |packets| packets.probe_count)
    }

    /// Whether too many probes were not acknowledged, so that only probes may be sent.
    pub(crate) fn is_silenced(&self) -> bool {
        self.probe_count() >= PROBES_BEFORE_SILENCE
    }

    /// Returns the time at which the last probe was sent, if only probes may be sent.
    pub(crate) fn silenced_probe_at(&self) -> Option<Moment> {
        self.packets.as_ref().filter(|_| self.is_silenced())?.probed_at
    }

    /// Whether no packet with reliable messages is in flight, so that probes back off further.
    pub(crate) fn is_quiet(&self) -> bool {
        self.packets.as_ref().is_none_or(|packets| packets.in_flight.urgency() != AckUrgency::High)
    }

    /// Returns the time at which the oldest packet without an ack was sent.
    pub(crate) fn oldest_sent_at(&self) -> Option<Moment> {
        self.packets.as_ref()?.oldest_sent_at()
    }

    /// Registers the id of a run of reliable messages, or of another item, in the packet that is being built.
    pub(crate) fn carry(&mut self, id: MessageId) {
        self.packets.get_or_insert_default().carried.get_or_insert_default().ids.push_back(id);
    }

    /// Registers an ack-eliciting packet, after the messages it carries.
    pub(crate) fn on_sent(&mut self, packet: SentPacket) {
        self.packets.get_or_insert_default().on_sent(packet);
    }

    /// Registers a packet number that was skipped.
    pub(crate) fn on_skipped(&mut self, number: u64) {
        self.packets.get_or_insert_default().skipped.get_or_insert_default().push(number);
    }

    /// Processes an ack. `next_number` is the first number that was not sent. `fate` is called for each message whose
    /// packet was acknowledged or lost.
    ///
    /// # Errors
    /// [`AckError`] when the ack names a packet that was not sent. Nothing has changed then.
    pub(crate) fn on_ack(
        &mut self,
        now: Moment,
        ack: &Ack<'_>,
        next_number: u64,
        mut fate: impl FnMut(PacketFate, MessageId, u64),
    ) -> Result<AckOutcome, AckError> {
        // The whole ack is validated before anything changes. A peer that acknowledges packets it cannot have received
        // wants a higher rate than its path carries (RFC 9000 section 21.4).
        let largest = ack.ranges.largest();
        if largest.0 >= next_number {
            return Err(AckError::Unsent);
        }
        let mut packets = self.packets.as_deref_mut();
        if let Some(InFlightPackets { skipped: Some(skipped), .. }) = &packets
            && skipped.is_any_in(ack.ranges.iter())
        {
            return Err(AckError::Skipped);
        }
        // The acknowledged packets are settled before losses are detected, so that a message with copies in two packets is
        // acknowledged and not repeated.
        let mut outcome = AckOutcome::default();
        let mut sample = None;
        if let Some(packets) = &mut packets {
            let sampled_from = packets.sampled_from;
            packets.acknowledge_all(ack, &mut outcome, &mut fate, |packet| {
                // Only the largest number gives a sample, and only when it is newly acknowledged: the delay that the
                // peer reports belongs to it (RFC 9002 section 5.1). A packet of another path gives none (RFC 9000 section
                // 9.4).
                if packet.number == largest.0 && packet.at >= sampled_from {
                    sample = Some(now.since(packet.at));
                }
            });
        }
        // Acks may arrive out of order, so the largest number never falls.
        let is_newer = self.acked_end <= largest.0;
        self.acked_end = self.acked_end.max(largest.0.saturating_add(1));
        // A longer sample means that this end was suspended, or that its clock jumped.
        if let Some(sample) = sample.filter(|sample| *sample <= ROUND_TRIP_MAX) {
            let ack_delay = ack.delay.to_duration();
            self.round_trip.on_sample(sample, ack_delay);
            outcome.round_trip = Some(sample.saturating_sub(ack_delay));
        }
        // An ack with a new largest number is progress even if it names only packets that are not ack-eliciting. It may
        // declare all earlier packets lost, and then no probe would bring another ack.
        if let Some(packets) = packets
            && (outcome.acknowledged_count > 0 || is_newer)
        {
            packets.probe_count = 0;
        }
        self.check_acked(ack, next_number, outcome.acknowledged_count > 0 || is_newer);
        // A higher largest number or a longer round trip changes which packets count as lost.
        outcome.lost = self.find_lost(now, &mut fate);
        Ok(outcome)
    }

    /// Asserts what must hold after an ack was processed. A violation either sends a peer more than its path carries
    /// or silences a connection, and both stay invisible from outside for a long time.
    fn check_acked(&self, ack: &Ack<'_>, next_number: u64, has_progress: bool) {
        debug_assert!(self.acked_end <= next_number, "an ack of a packet that was never sent was accepted");
        let skipped = self.packets.as_ref().and_then(|packets| packets.skipped.as_ref());
        debug_assert!(
            !skipped.is_some_and(|skipped| skipped.is_any_in(ack.ranges.iter())),
            "an ack of a skipped packet number was accepted"
        );
        debug_assert!(
            !has_progress || self.probe_count() == 0,
            "after an ack of new packets, {} probes still count as unanswered",
            self.probe_count()
        );
    }

    /// Returns the time at which packets must be declared lost or a probe must be sent.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        let packets = self.packets.as_ref().filter(|packets| packets.in_flight.count > 0)?;
        // The loss timer takes precedence over the probe timer (RFC 9002 section 6.2.1).
        if packets.loss_at.is_some() {
            return packets.loss_at;
        }
        // The peer delays an ack by the content of its packet, so the probe waits for as long as the peer may (the
        // `max_ack_delay` of RFC 9002 section 6.2.1). With reliable data in flight, only such packets count.
        let smoothed = self.round_trip.smoothed_nanos();
        let urgency = packets.in_flight.urgency();
        let ack_delay = match urgency {
            // The ack of the first probe must not be overtaken by a second one.
            AckUrgency::High if packets.probe_count > 0 => nanos(ACK_DELAY_MAX),
            AckUrgency::High => reliable_ack_delay(smoothed),
            AckUrgency::Low | AckUrgency::None => smoothed.max(nanos(ACK_DELAY_MAX)),
            // Nothing is repeated, so the wait also covers a peer whose timers are late because it is busy. A probe would
            // make it even busier.
            AckUrgency::Late => smoothed.max(nanos(ACK_DELAY_LATE)).saturating_mul(2),
        };
        let longest = match urgency {
            AckUrgency::High => PROBE_INTERVAL_MAX,
            AckUrgency::Low | AckUrgency::Late | AckUrgency::None => QUIET_PROBE_INTERVAL_MAX,
        };
        // On a path that is slower than the cap, the path's own delay is the cap. The variation of the round trip is
        // left out: after one long sample, few probes would fit before the connection times out.
        let longest = nanos(longest).max(smoothed.saturating_add(ack_delay));
        Some(packets.probe_at(self.round_trip.probe_timeout_nanos(ack_delay), longest))
    }

    /// Performs what is due.
    pub(crate) fn on_timeout(
        &mut self,
        now: Moment,
        mut fate: impl FnMut(PacketFate, MessageId, u64),
    ) -> TimerOutcome {
        if self.deadline().is_none_or(|deadline| deadline > now) {
            return TimerOutcome::Nothing;
        }
        match self.packets.as_deref_mut() {
            None => TimerOutcome::Nothing,
            Some(packets) if packets.loss_at.is_some() => TimerOutcome::Lost(self.find_lost(now, &mut fate)),
            Some(packets) => {
                // No packet is declared lost: a probe timeout alone is no evidence of a loss (RFC 9002 section 6.2).
                packets.probe_count = packets.probe_count.saturating_add(1);
                packets.probed_at = Some(now);
                TimerOutcome::Probe
            }
        }
    }

    /// Starts the round trip estimate over on another path. Packets that were sent before now give no sample.
    pub(crate) fn on_path_changed(&mut self, now: Moment) {
        // The timeouts of a fast path would repeat everything on a slow one, and those of a slow path would wait too long.
        self.round_trip = RoundTrip::default();
        self.ignore_sent_before(now);
    }

    /// Packets that were sent before now say nothing about the path that is used from now on.
    pub(crate) fn ignore_sent_before(&mut self, now: Moment) {
        if let Some(packets) = &mut self.packets {
            packets.sampled_from = now;
        }
    }

    /// Resets the count of unanswered probes, because the cause of the losses is gone.
    pub(crate) fn restart_probing(&mut self, now: Moment) {
        if let Some(packets) = &mut self.packets {
            packets.probe_count = 0;
            packets.probed_at = Some(now);
        }
    }

    /// Registers a probe that is sent before the probe timer expires. The timer starts again.
    pub(crate) fn on_early_probe(&mut self, now: Moment) {
        if let Some(packets) = &mut self.packets {
            packets.probed_at = Some(now);
        }
    }

    /// The messages that a probe repeats: those of the oldest packet in flight that has any, and after the first probe
    /// also those of the newest one.
    pub(crate) fn carried_for_probe(&self) -> impl Iterator<Item = MessageId> {
        // A value or a fragment is repeated under another id. The last probe has it, and the oldest packet no longer
        // does.
        let newest = self.packets.iter().filter(|packets| packets.probe_count != 1);
        let oldest = self.packets.iter().filter_map(|packets| packets.oldest_carried()).flatten();
        oldest.chain(newest.filter_map(|packets| packets.newest_carried()).flatten())
    }

    /// The time that a change of keys or paths needs to take effect on both ends (RFC 9001 section 6.5 uses three
    /// probe timeouts).
    pub(crate) fn settling_time(&self) -> Duration {
        self.probe_timeout().saturating_mul(KEY_CHANGE_PROBES)
    }

    /// Returns the probe timeout (PROTOCOL 9.3, "Probe timeout and loss detection").
    pub(crate) fn probe_timeout(&self) -> Duration {
        self.round_trip.probe_timeout(ACK_DELAY_MAX)
    }

    /// Asserts what must hold between two calls.
    pub(crate) fn assert_invariants(&self) {
        let Some(packets) = &self.packets else { return };
        packets.assert_invariants(self.largest_acked());
        debug_assert!(
            packets.in_flight.count == 0 || self.deadline().is_some(),
            "{} packets are in flight, and no timer covers them",
            packets.in_flight.count
        );
    }

    /// Releases memory that an idle connection does not need.
    pub(crate) fn shrink(&mut self) {
        // The skipped numbers go too. A peer that acknowledges one of them later gains nothing by it.
        self.packets.take_if(|packets| packets.ring.is_empty());
        if let Some(packets) = &mut self.packets {
            packets.ring.shrink_to_fit();
        }
    }

    /// Declares lost the packets that are lost by now.
    fn find_lost(&mut self, now: Moment, fate: &mut impl FnMut(PacketFate, MessageId, u64)) -> LostPackets {
        let (Some(largest), Some(packets)) = (self.largest_acked(), &mut self.packets) else {
            return LostPackets::default();
        };
        packets.forget_settled();
        // Only a packet below the largest acknowledged one can be lost (RFC 9002 section 6.1). Without reordering there
        // is none, and the ring is not searched.
        if packets.oldest_number().is_none_or(|oldest| oldest >= largest.0) {
            packets.loss_at = None;
            return LostPackets::default();
        }
        let delay = self.round_trip.loss_delay();
        let persistent = self.round_trip.probe_timeout(ACK_DELAY_MAX).saturating_mul(PERSISTENT_PROBES);
        let lost = packets.find_lost(now, largest, delay, persistent, fate);
        packets.forget_settled();
        self.lost_count = self.lost_count.saturating_add(saturated(lost.count, u32::MAX));
        lost
    }
}

#[cfg(test)]
mod tests;
