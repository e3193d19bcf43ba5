//! The limits on sending data: those of the congestion window, the pacer, and unanswered probes, and their updates by
//! acks and losses.
//!
//! The algorithms are in `congestion`. Acks, probes, and closes are sent regardless of these limits.

use super::{Connection, ConnectionLimits};
use crate::channel::credit::CreditWindow;
use crate::congestion::{AckSummary, LossSummary, Rate};
use crate::convert::{saturated, to_u64};
use crate::error::CloseReason;
use crate::limits::PACKETS_IN_FLIGHT_MAX;
use crate::loss::{AckOutcome, LostPackets};
use crate::meter::Meter;
use crate::mtu::MtuSearch;
use crate::path::Path;
use crate::recorder::{FlightEvent, FlightRecord, FlightState, Recorder};
use crate::stats::DropReason;
use crate::time::Moment;

/// The state that only a connection with traffic needs: path estimates, statistics, and the flight recorder.
#[derive(Debug)]
pub(crate) struct ActiveState {
    /// The congestion controller and the pacer.
    pub(crate) rate: Rate,
    /// The credit that the peer may have.
    pub(crate) credit: CreditWindow,
    /// The statistics of the connection.
    pub(crate) meter: Meter,
    /// The search for the largest datagram that the path carries.
    pub(crate) mtu: MtuSearch,
    /// The flight recorder. `None` when the configuration switches it off.
    pub(crate) recorder: Option<Recorder>,
}

impl ActiveState {
    fn new(limits: &ConnectionLimits) -> Self {
        let bytes = |limit| saturated(limit, u32::MAX);
        let in_flight_bytes = bytes(limits.in_flight_start_bytes)..=bytes(limits.in_flight_bytes);
        Self {
            rate: Rate::new(limits.congestion, &in_flight_bytes),
            credit: CreditWindow::new(limits.credit_bytes),
            meter: Meter::new(),
            mtu: MtuSearch::new(),
            recorder: limits.has_recorder.then(Recorder::new),
        }
    }

    /// Reads a field of each part, for `Connection::prefetch_parts`.
    #[inline]
    pub(super) fn prefetch(&self) -> impl Copy + use<> {
        (self.rate.prefetch(), self.meter.prefetch(), self.recorder.as_ref().map(Recorder::prefetch))
    }
}

impl Connection {
    /// Returns the state of a busy connection, and creates it if the connection was idle.
    pub(super) fn activate(&mut self) -> &mut ActiveState {
        self.active.get_or_insert_with(|| Box::new(ActiveState::new(&self.bounds)))
    }

    /// Records an event, if the connection is busy and has a flight recorder.
    #[inline]
    pub(crate) fn record(&mut self, now: Moment, event: FlightEvent) {
        if let Some(ActiveState { recorder: Some(recorder), .. }) = self.active.as_deref_mut() {
            recorder.push(now, event);
        }
    }

    /// Records a packet that was opened and then dropped.
    #[cold]
    pub(crate) fn record_drop(&mut self, now: Moment, number: u64, payload_bytes: usize, reason: DropReason) {
        let payload_bytes = saturated(payload_bytes, u16::MAX);
        self.record(now, FlightEvent::Dropped { number, payload_bytes, reason });
    }

    /// Returns the contents of the flight recorder. `reason` is set when the connection ends.
    #[cold]
    pub(crate) fn flight_record(&self, now: Moment, reason: Option<CloseReason>) -> Option<FlightRecord> {
        let recorder = self.active.as_ref()?.recorder.as_ref()?;
        let state = FlightState {
            is_server: !self.liveness.is_client(),
            now,
            reason,
            round_trip: self.loss.round_trip().smoothed(),
            window_bytes: self.window_bytes(),
            in_flight_bytes: self.loss.in_flight_bytes(),
            queued_bytes: self.sending.used_bytes(),
        };
        Some(FlightRecord::new(recorder, &state))
    }

    /// Whether data waits that is subject to the congestion window and the pacer.
    pub(crate) fn has_data(&self) -> bool {
        self.sending.has_sendable() || self.control.has_waiting()
    }

    /// Whether data may be sent now.
    pub(super) fn may_send_data(&self, now: Moment) -> bool {
        self.may_send_after(now, 0)
    }

    /// Whether data may be sent now, after a packet of `bytes` bytes that is not registered yet.
    pub(super) fn may_send_after(&self, now: Moment, bytes: usize) -> bool {
        let may_send = |active: &ActiveState| active.rate.may_send_after(now, to_u64(bytes));
        self.has_window_after(bytes) && self.active.as_deref().is_none_or(may_send)
    }

    /// Returns the time at which the pacer allows the next packet, if only the pacer delays one.
    pub(super) fn paced_until(&self, now: Moment) -> Option<Moment> {
        // Most of the time nothing waits, and the pacer need not be computed.
        if !self.has_data() || !self.has_window_after(0) {
            return None;
        }
        self.active.as_ref()?.rate.next_at(now)
    }

    /// The number of bytes that may be in flight: the congestion window, or the limit that follows the path if that is
    /// smaller.
    pub(crate) fn window_bytes(&self) -> usize {
        let of_path = self.active.as_ref().map(|active| active.rate.window_bytes());
        of_path.map_or(self.bounds.in_flight_start_bytes, |bytes| saturated(bytes, usize::MAX))
    }

    /// Whether the congestion window has room after `bytes` more bytes, and enough of the recent probes were
    /// acknowledged.
    fn has_window_after(&self, bytes: usize) -> bool {
        // The window is open as long as a byte is left. The last packet may exceed it by less than its own size. Small
        // packets are limited by their number, because an ack costs time for each packet that it settles.
        let has_place = self.loss.in_flight_count() < PACKETS_IN_FLIGHT_MAX;
        has_place
            && !self.loss.is_silenced()
            && self.loss.in_flight_bytes().saturating_add(bytes) < self.window_bytes()
    }

    /// Registers a packet that counts as in flight.
    pub(super) fn on_data_sent(&mut self, now: Moment, bytes: u16) {
        let active = self.activate();
        active.rate.on_sent(now, bytes.into());
        active.meter.on_ack_eliciting_sent();
    }

    /// Updates the path estimates from an ack. `is_app_limited` says that no data waited when the ack arrived.
    pub(super) fn on_acked(&mut self, now: Moment, outcome: &AckOutcome, is_app_limited: bool) {
        let settled_count =
            saturated(outcome.acknowledged_count.saturating_add(outcome.lost.count), usize::MAX);
        let before_count = self.loss.in_flight_count().saturating_add(settled_count);
        let is_count_limited = before_count >= PACKETS_IN_FLIGHT_MAX;
        let (smoothed, measured) = (self.loss.round_trip().smoothed(), self.loss.round_trip().measured());
        // An idle connection has no estimates. It starts with the initial window when it becomes busy (RFC 9002
        // section 7.2).
        if let (Some(active), Some(sent_at)) = (&mut self.active, outcome.newest_sent_at) {
            if let Some(round_trip) = outcome.round_trip {
                active.meter.on_round_trip(round_trip);
            }
            // Before the first sample the round trip is only assumed. The delay-based controller would take a shorter
            // one for the empty path, and everything above it for a queue.
            if let Some(round_trip) = outcome.round_trip.or(measured) {
                active.rate.on_acked(&AckSummary {
                    now,
                    bytes: outcome.acknowledged_bytes,
                    sent_at,
                    round_trip,
                    smoothed,
                    is_app_limited,
                    is_count_limited,
                });
            }
            if outcome.largest_bytes > Path::START_BYTES {
                active.mtu.on_large_arrived();
            }
            // The probe shows that its size passes, and larger packets follow (RFC 8899 section 4.2).
            if let Some((number, bytes)) = outcome.mtu_probe
                && active.mtu.on_probe_arrived(now, number)
            {
                let datagram_max_bytes = self.path.datagram_max_bytes.max(bytes);
                self.path.datagram_max_bytes = datagram_max_bytes;
                self.record(now, FlightEvent::PathSize { datagram_max_bytes });
            }
        }
        // The lost packets are older than the one that showed their loss. A large packet in the same ack shows that the path
        // still carries its size, so an overflow is not taken for a black hole.
        let has_large = outcome.largest_bytes > Path::START_BYTES;
        let large_count = if has_large { 0 } else { outcome.lost.large_count };
        self.on_lost(now, &LostPackets { large_count, ..outcome.lost });
    }

    /// Updates the path estimates from packets that were declared lost.
    pub(super) fn on_lost(&mut self, now: Moment, lost: &LostPackets) {
        if lost.count > 0 {
            let span = saturated(lost.last.saturating_sub(lost.first), u32::MAX);
            self.record(
                now,
                FlightEvent::Lost { first: lost.first, span, count: saturated(lost.count, u16::MAX) },
            );
        }
        if let Some(active) = &mut self.active {
            if let Some(number) = lost.mtu_probe {
                active.mtu.on_probe_lost(number);
            }
            // Losses of large packets alone hint at a router that drops them without a notice: a black hole (RFC 8899
            // section 4.3).
            if lost.large_count > 0 && active.mtu.on_large_lost(now, lost.large_count) {
                self.fall_back(now);
            }
        }
        // MTU probes are not part of these counts: their loss says nothing about congestion (RFC 9000 section 14.4).
        if let (Some(active), Some(sent_at)) = (&mut self.active, lost.newest_sent_at) {
            active.meter.on_lost(lost.count);
            active.rate.on_lost(&LossSummary {
                now,
                bytes: lost.bytes,
                sent_at,
                is_persistent: lost.is_persistent,
            });
        }
    }

    /// Returns the size of the MTU probe to send now, if one is due.
    pub(super) fn mtu_probe_due(&mut self, now: Moment) -> Option<u16> {
        // An MTU probe must not take the place of a probe that repeats lost data, of a ping that shows a new address, nor
        // of a close.
        let has_precedence = self.is_probe_due || self.is_ping_due || !self.is_open();
        if has_precedence || !self.active.as_ref()?.mtu.is_wanted() {
            return None;
        }
        // A probe counts as in flight like any packet, and its loss must not be confused with a move of the peer.
        let limit = self.bounds.datagram_max_bytes.min(self.peer_datagram_max_bytes);
        if self.path.is_searching() || self.path.datagram_max_bytes >= limit || !self.may_send_data(now) {
            return None;
        }
        self.active.as_mut()?.mtu.due(now, self.path.datagram_max_bytes, limit)
    }

    /// Lowers the datagram size after the operating system refused a datagram of `bytes` bytes.
    pub(crate) fn on_too_large(&mut self, now: Moment, bytes: u16) {
        // Every path carries the minimum, so a refusal of such a datagram has another cause.
        if bytes <= Path::START_BYTES {
            return;
        }
        if let Some(active) = &mut self.active {
            active.mtu.on_refused(bytes);
        }
        if bytes <= self.path.datagram_max_bytes {
            self.fall_back(now);
        }
    }

    /// Falls back to the datagram size that every path carries.
    pub(super) fn fall_back(&mut self, now: Moment) {
        let before = self.path.datagram_max_bytes;
        self.path.fall_back();
        let datagram_max_bytes = self.path.datagram_max_bytes;
        if datagram_max_bytes < before {
            self.record(now, FlightEvent::PathSize { datagram_max_bytes });
        }
    }

    /// Handles a probe timeout. The path may have stopped carrying large datagrams.
    pub(super) fn on_probe_timeout(&mut self, now: Moment) {
        self.record(now, FlightEvent::ProbeTimeout { count: self.loss.probe_count() });
        // Two timeouts in a row hint at a black hole for large datagrams rather than at one lost packet (RFC 8899
        // section 4.3).
        if self.loss.probe_count() >= 2 && self.path.datagram_max_bytes > Path::START_BYTES {
            self.fall_back(now);
            if let Some(active) = &mut self.active {
                active.mtu.on_fallen_back(now);
            }
        }
    }
}
