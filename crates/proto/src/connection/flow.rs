//! When data may go: what the window, the pacer and unanswered probes leave, and what acks and losses teach them.
//!
//! The algorithms are `congestion`'s; acks, probes and closes ask nobody.

use super::Connection;
use crate::congestion::{Acked, Lost, Rate};
use crate::loss::{AckNews, LostNews};
use crate::time::Moment;

impl Connection {
    /// Whether something waits that window and pacer have a say in.
    pub(super) fn has_data(&self) -> bool {
        self.sending.has_sendable() || self.control.has_waiting()
    }

    /// Whether data may go now.
    pub(super) fn may_send_data(&self, now: Moment) -> bool {
        self.has_window() && self.rate.as_ref().is_none_or(|rate| rate.may_send(now))
    }

    /// When the pacer lets the next packet go, if there is one and only the pacer holds it back.
    pub(super) fn paced_until(&self, now: Moment) -> Option<Moment> {
        let next_at = self.rate.as_ref()?.next_at(now)?;
        (self.has_data() && self.has_window()).then_some(next_at)
    }

    /// Bytes that may be under way.
    pub(crate) fn window_bytes(&self) -> usize {
        let limit_bytes = self.bounds.in_flight_bytes;
        let of_path =
            self.rate.as_ref().map(|rate| usize::try_from(rate.window_bytes()).unwrap_or(usize::MAX));
        of_path.map_or(limit_bytes, |window_bytes| window_bytes.min(limit_bytes))
    }

    fn has_window(&self) -> bool {
        !self.loss.is_silenced() && self.loss.in_flight_bytes() < self.window_bytes()
    }

    /// Notes a packet that counts as under way.
    pub(super) fn on_data_sent(&mut self, now: Moment, bytes: u16) {
        let congestion = self.bounds.congestion;
        self.rate.get_or_insert_with(|| Box::new(Rate::new(congestion))).on_sent(now, bytes.into());
    }

    /// Takes in what an ack brought.
    pub(super) fn on_acked(&mut self, now: Moment, news: &AckNews) {
        let is_app_limited = !self.has_data();
        let smoothed = self.loss.round_trip().smoothed();
        if let (Some(rate), Some(sent_at)) = (&mut self.rate, news.newest_sent_at) {
            rate.on_acked(&Acked {
                now,
                bytes: news.acknowledged_bytes,
                sent_at,
                round_trip: news.round_trip.unwrap_or(smoothed),
                smoothed,
                is_app_limited,
            });
        }
        self.on_lost(now, &news.lost);
    }

    /// Takes in what was found lost.
    pub(super) fn on_lost(&mut self, now: Moment, news: &LostNews) {
        if let (Some(rate), Some(sent_at)) = (&mut self.rate, news.newest_sent_at) {
            rate.on_lost(&Lost { now, bytes: news.bytes, sent_at, is_persistent: news.is_persistent });
        }
    }
}
