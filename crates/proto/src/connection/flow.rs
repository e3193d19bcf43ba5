//! When data may go: what the window, the pacer and unanswered probes leave, and what acks and losses teach them.
//!
//! The algorithms are `congestion`'s; acks, probes and closes ask nobody.

use super::Connection;
use crate::congestion::{Acked, Congestion, Lost, Rate};
use crate::error::CloseReason;
use crate::loss::{AckNews, LostNews};
use crate::meter::Meter;
use crate::mtu::MtuSearch;
use crate::path::Path;
use crate::recorder::{FlightEvent, FlightRecord, FlightState, Recorder, small};
use crate::stats::DropReason;
use crate::time::Moment;

/// What is known of the path of a busy connection.
#[derive(Debug)]
pub(crate) struct Activity {
    pub(crate) rate: Rate,
    pub(crate) meter: Meter,
    pub(crate) mtu: MtuSearch,
    pub(crate) recorder: Option<Recorder>,
}

impl Activity {
    fn new(congestion: Congestion, has_recorder: bool) -> Self {
        Self {
            rate: Rate::new(congestion),
            meter: Meter::new(),
            mtu: MtuSearch::new(),
            recorder: has_recorder.then(Recorder::new),
        }
    }
}

impl Activity {
    /// Something of each part of it, for `Connection::fetch_parts`.
    #[inline]
    pub(super) fn fetch(&self) -> impl Copy + use<> {
        (self.rate.fetch(), self.meter.fetch(), self.recorder.as_ref().map(Recorder::fetch))
    }
}

impl Connection {
    /// What is known of its path, made if it was idle.
    pub(super) fn activity(&mut self) -> &mut Activity {
        let (congestion, has_recorder) = (self.bounds.congestion, self.bounds.has_recorder);
        self.activity.get_or_insert_with(|| Box::new(Activity::new(congestion, has_recorder)))
    }

    /// Writes down what happened, if it is busy and has a recorder.
    #[inline]
    pub(crate) fn record(&mut self, now: Moment, event: FlightEvent) {
        if let Some(Activity { recorder: Some(recorder), .. }) = self.activity.as_deref_mut() {
            recorder.push(now, event);
        }
    }

    /// Writes down a packet that was opened and not taken in.
    #[cold]
    pub(crate) fn record_drop(&mut self, now: Moment, number: u64, payload_bytes: usize, reason: DropReason) {
        let payload_bytes = u16::try_from(payload_bytes).unwrap_or(u16::MAX);
        self.record(now, FlightEvent::Dropped { number, payload_bytes, reason });
    }

    /// What its recorder holds; `reason` is why it ends, if it does.
    #[cold]
    pub(crate) fn flight_record(&self, now: Moment, reason: Option<CloseReason>) -> Option<FlightRecord> {
        let recorder = self.activity.as_ref()?.recorder.as_ref()?;
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

    /// Whether something waits that window and pacer have a say in.
    pub(super) fn has_data(&self) -> bool {
        self.sending.has_sendable() || self.control.has_waiting()
    }

    /// Whether data may go now.
    pub(super) fn may_send_data(&self, now: Moment) -> bool {
        self.has_window() && self.activity.as_ref().is_none_or(|activity| activity.rate.may_send(now))
    }

    /// When the pacer lets the next packet go, if there is one and only the pacer holds it back.
    pub(super) fn paced_until(&self, now: Moment) -> Option<Moment> {
        // Most of the time nothing waits.
        if !self.has_data() || !self.has_window() {
            return None;
        }
        self.activity.as_ref()?.rate.next_at(now)
    }

    /// Bytes that may be under way.
    pub(crate) fn window_bytes(&self) -> usize {
        let limit_bytes = self.bounds.in_flight_bytes;
        let of_path = self.activity.as_ref().map_or(u64::MAX, |activity| activity.rate.window_bytes());
        usize::try_from(of_path).unwrap_or(usize::MAX).min(limit_bytes)
    }

    fn has_window(&self) -> bool {
        !self.loss.is_silenced() && self.loss.in_flight_bytes() < self.window_bytes()
    }

    /// Notes a packet that counts as under way.
    pub(super) fn on_data_sent(&mut self, now: Moment, bytes: u16) {
        let activity = self.activity();
        activity.rate.on_sent(now, bytes.into());
        activity.meter.on_asked();
    }

    /// Takes in what an ack brought.
    pub(super) fn on_acked(&mut self, now: Moment, news: &AckNews) {
        let is_app_limited = !self.has_data();
        let smoothed = self.loss.round_trip().smoothed();
        if let (Some(activity), Some(sent_at)) = (&mut self.activity, news.newest_sent_at) {
            if let Some(round_trip) = news.round_trip {
                activity.meter.on_round_trip(round_trip);
            }
            activity.rate.on_acked(&Acked {
                now,
                bytes: news.acknowledged_bytes,
                sent_at,
                round_trip: news.round_trip.unwrap_or(smoothed),
                smoothed,
                is_app_limited,
            });
            if news.largest_bytes > Path::START_BYTES {
                activity.mtu.on_large_arrived();
            }
            if let Some(bytes) = news.mtu_probe_bytes {
                activity.mtu.on_probe_arrived(now);
                let datagram_max_bytes = self.path.datagram_max_bytes.max(bytes);
                self.path.datagram_max_bytes = datagram_max_bytes;
                self.record(now, FlightEvent::PathSize { datagram_max_bytes });
            }
        }
        self.on_lost(now, &news.lost);
    }

    /// Takes in what was found lost.
    pub(super) fn on_lost(&mut self, now: Moment, news: &LostNews) {
        if news.count > 0 {
            let span = small(news.last.saturating_sub(news.first), u32::MAX);
            self.record(
                now,
                FlightEvent::Lost { first: news.first, span, count: small(news.count, u16::MAX) },
            );
        }
        if let Some(activity) = &mut self.activity {
            if news.is_mtu_probe_lost {
                activity.mtu.on_probe_lost();
            }
            if news.large_count > 0 && activity.mtu.on_large_lost(now, news.large_count) {
                self.fall_back(now);
            }
        }
        if let (Some(activity), Some(sent_at)) = (&mut self.activity, news.newest_sent_at) {
            activity.meter.on_lost(news.count);
            activity.rate.on_lost(&Lost {
                now,
                bytes: news.bytes,
                sent_at,
                is_persistent: news.is_persistent,
            });
        }
    }

    /// How large a datagram should try the path now, if one should.
    pub(super) fn mtu_probe_due(&mut self, now: Moment) -> Option<u16> {
        // It must not take the place of a probe that repeats what is lost, nor of a close.
        if !self.activity.as_ref()?.mtu.is_wanted() || self.is_probe_due || !self.is_open() {
            return None;
        }
        let limit = self.bounds.datagram_max_bytes.min(self.peer_datagram_max_bytes);
        if self.path.is_searching() || self.path.datagram_max_bytes >= limit || !self.may_send_data(now) {
            return None;
        }
        self.activity.as_mut()?.mtu.due(now, self.path.datagram_max_bytes, limit)
    }

    /// The system refused a datagram of so many bytes: the path does not carry them.
    pub(crate) fn on_too_large(&mut self, now: Moment, bytes: u16) {
        if bytes <= Path::START_BYTES {
            return;
        }
        if let Some(activity) = &mut self.activity {
            activity.mtu.on_refused(bytes);
        }
        if bytes <= self.path.datagram_max_bytes {
            self.fall_back(now);
        }
    }

    /// Goes back to what every path carries.
    pub(super) fn fall_back(&mut self, now: Moment) {
        let before = self.path.datagram_max_bytes;
        self.path.fall_back();
        let datagram_max_bytes = self.path.datagram_max_bytes;
        if datagram_max_bytes < before {
            self.record(now, FlightEvent::PathSize { datagram_max_bytes });
        }
    }

    /// Nothing is heard: it may be that the path carries no more what it did.
    pub(super) fn on_probe_timeout(&mut self, now: Moment) {
        self.record(now, FlightEvent::ProbeTimeout { count: self.loss.probe_count() });
        if self.loss.probe_count() >= 2 && self.path.datagram_max_bytes > Path::START_BYTES {
            self.fall_back(now);
            if let Some(activity) = &mut self.activity {
                activity.mtu.on_fallen_back(now);
            }
        }
    }
}
