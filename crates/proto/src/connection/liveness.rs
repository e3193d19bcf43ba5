//! The timeouts of a connection, the keep-alives of a client, and the release of memory by an idle connection.
//!
//! Only packets that were opened count. Forged packets never reach this module.

use std::time::Duration;

use crate::error::CloseReason;
use crate::limits::{IDLE_AFTER, KEEP_ALIVE_INTERVAL};
use crate::time::{Millis, Moment, part};

/// The timers of one connection that depend on silence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Liveness {
    /// The time without a packet from the peer after which the connection ends.
    idle_timeout: Millis,
    /// The time for which a packet may be unacknowledged before the connection ends.
    unacknowledged_timeout: Millis,
    /// The time at which a packet was last opened.
    received_at: Moment,
    /// The time at which a packet was last sent.
    sent_at: Moment,
    /// Whether this is the client's end. Only clients send keep-alives.
    is_client: bool,
    /// A keep-alive is due and waits to be sent.
    is_ping_pending: bool,
    /// All packets sent since a keep-alive contained nothing but a ping.
    is_quiet: bool,
    /// Memory was released, and no memory was allocated since.
    is_shrunk: bool,
}

impl Liveness {
    pub(crate) const fn new(now: Moment, is_client: bool, idle: Duration, unacknowledged: Duration) -> Self {
        Self {
            idle_timeout: Millis::new(idle),
            unacknowledged_timeout: Millis::new(unacknowledged),
            received_at: now,
            sent_at: now,
            is_client,
            is_ping_pending: false,
            is_quiet: false,
            is_shrunk: false,
        }
    }

    /// Whether this is the client's end.
    pub(crate) const fn is_client(&self) -> bool {
        self.is_client
    }

    /// Sets the timeouts that the handshake agreed on.
    pub(crate) const fn set_timeouts(&mut self, idle: Duration, unacknowledged: Duration) {
        self.idle_timeout = Millis::new(idle);
        self.unacknowledged_timeout = Millis::new(unacknowledged);
    }

    /// Registers a packet that was opened. Returns whether it arrived within `IDLE_AFTER` of the previous one.
    pub(crate) fn on_received(&mut self, now: Moment) -> bool {
        let is_soon = now.since(self.received_at) < IDLE_AFTER;
        self.received_at = now;
        is_soon
    }

    /// Registers that memory was allocated which an idle connection must release.
    pub(crate) const fn on_grown(&mut self) {
        self.is_shrunk = false;
    }

    /// Registers a packet that was sent. `has_content` is false for a packet with only a ping.
    pub(crate) const fn on_sent(&mut self, now: Moment, has_content: bool) {
        self.sent_at = now;
        // A ping for another reason, such as a probe, does not make a busy connection quiet.
        self.is_quiet = !has_content && (self.is_quiet || self.is_ping_pending);
        self.is_ping_pending = false;
    }

    /// Returns the time at which the connection times out if nothing else happens. `oldest` is when the oldest packet
    /// without an ack was sent.
    pub(crate) fn expires_at(&self, oldest: Option<Moment>) -> Moment {
        // A path may fail in one direction only. Then packets still arrive, and the missing acks end the connection.
        let idle = self.idle_timeout.after(self.received_at);
        oldest.map_or(idle, |oldest| idle.min(self.unacknowledged_timeout.after(oldest)))
    }

    /// Returns the time at which half of the timeout for a missing ack has passed. `oldest` is when the oldest packet
    /// without an ack was sent.
    pub(crate) fn half_expired_at(&self, oldest: Moment) -> Moment {
        oldest.after(part(self.unacknowledged_timeout.to_duration(), 2))
    }

    /// Returns why the connection has timed out, or `None`.
    pub(crate) fn reason_at(&self, now: Moment, oldest: Option<Moment>) -> Option<CloseReason> {
        if oldest.is_some_and(|oldest| self.unacknowledged_timeout.after(oldest) <= now) {
            Some(CloseReason::Unacknowledged)
        } else if self.idle_timeout.after(self.received_at) <= now {
            Some(CloseReason::IdleTimeout)
        } else {
            None
        }
    }

    /// Returns the time at which the next keep-alive or release of memory is due.
    pub(crate) fn next_at(&self) -> Option<Moment> {
        // A keep-alive that waits to be sent needs no timer, and memory is released once.
        let keep_alive = (self.is_client && !self.is_ping_pending).then(|| self.keep_alive_at());
        let idle = (!self.is_shrunk).then(|| self.idle_at());
        keep_alive.map_or(idle, |keep_alive| Some(idle.map_or(keep_alive, |idle| idle.min(keep_alive))))
    }

    /// Returns whether a keep-alive is due, once per keep-alive.
    pub(crate) fn is_keep_alive_due(&mut self, now: Moment) -> bool {
        let is_due = self.is_client && !self.is_ping_pending && self.keep_alive_at() <= now;
        self.is_ping_pending |= is_due;
        is_due
    }

    pub(crate) fn is_idle_due(&self, now: Moment) -> bool {
        !self.is_shrunk && self.idle_at() <= now
    }

    pub(crate) const fn on_shrunk(&mut self) {
        self.is_shrunk = true;
    }

    /// Whether memory was released and none was allocated since.
    pub(crate) const fn is_shrunk(&self) -> bool {
        self.is_shrunk
    }

    /// A time after which no peer still repeats data from before a failure of the path. An end that receives no acks
    /// gives up after one timeout, and an end that receives nothing gives up after the other. Data that was lost
    /// before the failure has the rest.
    pub(crate) fn longest_resend_time(&self) -> Duration {
        self.idle_timeout.to_duration().saturating_add(self.unacknowledged_timeout.to_duration())
    }

    /// Returns the time at which the client must send something. A server whose data goes to an address that the client
    /// no longer has gives up after its unacknowledged timeout. The client's next packet must show the new address
    /// before that. Soon after the client sent data, the server is likely to answer, so the interval is shorter.
    fn keep_alive_at(&self) -> Moment {
        // Three keep-alives fit into the idle timeout, so that two may be lost (compare RFC 9000 section 10.1.2).
        let of_idle = part(self.idle_timeout.to_duration(), 3);
        let quarters = if self.is_quiet { 3 } else { 1 };
        let of_unacknowledged = part(self.unacknowledged_timeout.to_duration(), 4).saturating_mul(quarters);
        self.sent_at.after(KEEP_ALIVE_INTERVAL.min(of_idle).min(of_unacknowledged))
    }

    fn idle_at(&self) -> Moment {
        self.sent_at.max(self.received_at).after(IDLE_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Moment {
        Moment::from_nanos(milliseconds * 1_000_000)
    }

    fn liveness(is_client: bool) -> Liveness {
        Liveness::new(ms(0), is_client, Duration::from_secs(30), Duration::from_secs(10))
    }

    #[test]
    fn a_connection_ends_exactly_at_its_timeouts() {
        let mut liveness = liveness(false);
        liveness.on_received(ms(1_000));
        assert_eq!(liveness.expires_at(None), ms(31_000));
        assert_eq!(liveness.reason_at(ms(30_999), None), None);
        assert_eq!(liveness.reason_at(ms(31_000), None), Some(CloseReason::IdleTimeout));
        assert_eq!(liveness.expires_at(Some(ms(2_000))), ms(12_000));
        assert_eq!(liveness.reason_at(ms(11_999), Some(ms(2_000))), None);
        assert_eq!(liveness.reason_at(ms(12_000), Some(ms(2_000))), Some(CloseReason::Unacknowledged));
    }

    #[test]
    fn only_clients_keep_alive_and_less_often_when_quiet() {
        let (mut client, mut server) = (liveness(true), liveness(false));
        for end in [&mut client, &mut server] {
            end.on_sent(ms(500), true);
            end.on_shrunk();
        }
        assert_eq!((client.next_at(), server.next_at()), (Some(ms(3_000)), None));
        assert!(!client.is_keep_alive_due(ms(2_999)) && client.is_keep_alive_due(ms(3_000)));
        assert!(!client.is_keep_alive_due(ms(3_000)), "asked for once");
        assert_eq!(client.next_at(), None);
        for round in 0..3 {
            let at = 3_000 + 7_500 * round;
            client.on_sent(ms(at), false);
            client.on_shrunk();
            assert_eq!(client.next_at(), Some(ms(at + 7_500)));
            assert!(client.is_keep_alive_due(ms(at + 7_500)));
        }
        client.on_sent(ms(40_000), true);
        client.on_shrunk();
        assert_eq!(client.next_at(), Some(ms(42_500)), "it spoke");
    }

    #[test]
    fn a_short_idle_timeout_shortens_the_keep_alive() {
        let mut client = liveness(true);
        client.set_timeouts(Duration::from_secs(3), Duration::from_secs(3));
        client.on_shrunk();
        assert_eq!(client.next_at(), Some(ms(750)));
        assert!(client.is_keep_alive_due(ms(750)));
        client.on_sent(ms(750), false);
        client.on_shrunk();
        assert_eq!(client.next_at(), Some(ms(1_750)));
    }

    #[test]
    fn memory_is_released_once_after_five_idle_seconds() {
        let mut liveness = liveness(false);
        assert!(liveness.on_received(ms(100)));
        assert_eq!(liveness.next_at(), Some(ms(5_100)));
        assert!(!liveness.is_idle_due(ms(5_099)) && liveness.is_idle_due(ms(5_100)));
        liveness.on_shrunk();
        assert!(!liveness.is_idle_due(ms(9_000)));
        assert!(!liveness.on_received(ms(9_000)), "the first for long");
        assert!(!liveness.is_idle_due(ms(20_000)), "nothing has grown");
        liveness.on_grown();
        assert!(!liveness.is_idle_due(ms(13_999)) && liveness.is_idle_due(ms(14_000)));
    }
}
