//! The work of a connection that no packet causes: its deadline, and the work that is due then.
//!
//! The parts of the connection compute their own times. The endpoint arms one timer per connection.

use super::{Connection, Phase, route_fate};
use crate::control::Control;
use crate::error::{CloseReason, ConnectError};
use crate::identity::{ConnectionIdState, KnownIds};
use crate::limits::{LAST_PROBE_INTERVAL, PROBE_INTERVAL_MAX};
use crate::loss::TimerOutcome;
use crate::session::PacketProtection;
use crate::time::Moment;

/// The end of a connection without a close of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EndCause {
    /// The client's attempt to connect failed.
    NotConnected(ConnectError),
    /// The connection ends without an event: it was half-open or already closed.
    Forgotten,
    /// The lifetime that the token allows for a session is over.
    SessionEnded,
    /// An open connection timed out.
    TimedOut(CloseReason),
}

impl Connection {
    /// Returns the time at which [`Self::on_timeout`] must be called next. A connection that only waits for its turn to
    /// send has no deadline for that.
    pub(crate) fn deadline(&self, now: Moment) -> Moment {
        let end_at = match self.phase.as_deref() {
            Some(Phase::Connecting(attempt)) => attempt.expires_at(),
            Some(Phase::HalfOpen(half_open)) => half_open.expires_at(),
            Some(Phase::Closing(closing)) => closing.until,
            None => {
                let end_at = self.liveness.expires_at(self.loss.oldest_sent_at());
                self.session_ends_at().map_or(end_at, |ends| ends.min(end_at))
            }
        };
        // A queued connection is rescheduled when it leaves the queue. Until then only its end needs a timer.
        if self.is_queued {
            return end_at;
        }
        match self.phase.as_deref() {
            Some(Phase::Connecting(attempt)) => end_at.min(attempt.send_at()),
            // Each part names its own next time. The connection has one timer, for the earliest of them.
            None => {
                let forget_at = self.session.as_ref().and_then(PacketProtection::forget_at);
                let retire_at = self.identity.retire_at();
                let (ack_at, paced_until) = (self.acks.due(), self.paced_until(now));
                let (loss_at, liveness_at) = (self.loss.deadline(), self.liveness.next_at());
                let keys_at = if self.liveness.is_shrunk() { self.keys_forgotten_at() } else { None };
                let (path_at, credit_at) = (self.path.repeat_at(), self.sending.credit_deadline());
                let dues = [
                    ack_at,
                    loss_at,
                    self.early_probe_at(),
                    liveness_at,
                    forget_at,
                    retire_at,
                    paced_until,
                    keys_at,
                    path_at,
                    credit_at,
                ];
                // Unlike an iterator over the present ones, this becomes a chain of comparisons without branches.
                dues.into_iter().fold(end_at, |next, due| due.map_or(next, |due| next.min(due)))
            }
            Some(_) => end_at,
        }
    }

    /// Performs everything that is due. Returns `Some` when the connection ends without a close to the peer.
    pub(crate) fn on_timeout(&mut self, now: Moment) -> Option<EndCause> {
        match self.phase.as_deref() {
            Some(Phase::Connecting(attempt)) => {
                return (attempt.expires_at() <= now).then(|| EndCause::NotConnected(attempt.failure(now)));
            }
            Some(Phase::HalfOpen(half_open)) => {
                return (half_open.expires_at() <= now).then_some(EndCause::Forgotten);
            }
            Some(Phase::Closing(closing)) => return (closing.until <= now).then_some(EndCause::Forgotten),
            None => {}
        }
        // The ends of the connection come first: a dead connection sends no probe.
        if self.session_ends_at().is_some_and(|ends| ends <= now) {
            return Some(EndCause::SessionEnded);
        }
        if let Some(reason) = self.liveness.reason_at(now, self.loss.oldest_sent_at()) {
            return Some(EndCause::TimedOut(reason));
        }
        // Old keys and ids are dropped once the peer has had time to notice the change.
        if let Some(session) = &mut self.session {
            session.forget_due(now);
        }
        if self.identity.retire_at().is_some_and(|at| at <= now) {
            self.retire_previous_id();
        }
        self.path.repeat_due(now);
        self.sending.on_timeout(now);
        // While a probe waits to be sent, another timeout would count the same silence twice.
        if !self.is_probe_due {
            let (sending, control) = (&mut self.sending, &mut self.control);
            match self.loss.on_timeout(now, |fate, id, packet| route_fate(sending, control, fate, id, packet))
            {
                TimerOutcome::Nothing => {}
                TimerOutcome::Lost(lost) => self.on_lost(now, &lost),
                TimerOutcome::Probe => {
                    self.on_probe_timeout(now);
                    self.prepare_probe();
                }
            }
        }
        if !self.is_probe_due && self.early_probe_at().is_some_and(|at| at <= now) {
            self.probe_early(now);
        }
        // A ping makes the peer send an ack, which shows that both directions of the path work.
        if self.liveness.is_keep_alive_due(now) {
            self.is_ping_due = true;
        }
        // An idle connection keeps the versions of values longer than the rest of its memory, see `keys_forgotten_at`.
        let are_keys_due =
            self.liveness.is_shrunk() && self.keys_forgotten_at().is_some_and(|due| due <= now);
        if self.liveness.is_idle_due(now) || are_keys_due {
            self.shrink(now);
        }
        None
    }

    /// Returns the time at which a probe is sent although the probe timer has backed off further.
    fn early_probe_at(&self) -> Option<Moment> {
        // With reliable messages in flight, the probe timer itself is frequent enough.
        let probed_at = self.loss.silenced_probe_at().filter(|_| self.loss.is_quiet())?;
        let probe_timeout = self.loss.probe_timeout();
        // Few probes were sent in the first half of the timeout, and each may be lost. In the second half, they are so frequent
        // that a connection survives on a link that loses 40 % in each direction.
        let frequent_at = probed_at.after(LAST_PROBE_INTERVAL.max(probe_timeout));
        let last_at = frequent_at.max(self.liveness.half_expired_at(self.loss.oldest_sent_at()?));
        // Data waits, and only an ack lets it leave. A server has thousands of such connections when its own network fails, so
        // it waits for the probes of the clients.
        let has_waiting = self.liveness.is_client() && self.has_data();
        let waiting_at = has_waiting.then(|| probed_at.after(PROBE_INTERVAL_MAX.max(probe_timeout)));
        Some(waiting_at.map_or(last_at, |at| at.min(last_at)))
    }

    /// Returns the time at which an idle connection forgets which values it received. Until an ack reaches the peer,
    /// the peer may send a value again. No path stays silent for longer than both timeouts together, because then
    /// either end gives up.
    pub(super) fn keys_forgotten_at(&self) -> Option<Moment> {
        let last_value_at = self.receiving.last_value_at()?;
        Some(last_value_at.after(self.liveness.longest_resend_time()))
    }

    /// Returns the time at which the session ends according to the player's token.
    fn session_ends_at(&self) -> Option<Moment> {
        self.grant.as_ref().and_then(|grant| grant.ends_at)
    }

    /// Retires the id of the previous path.
    #[cold]
    fn retire_previous_id(&mut self) {
        debug_assert!(self.liveness.is_client(), "only a client changes and retires ids");
        let ConnectionIdState::Client(ids) = &mut self.identity else { return };
        ids.retire_at = None;
        if let Some(sequence) = ids.known.as_mut().and_then(KnownIds::take_previous) {
            self.control.push(Control::RetireConnectionId(sequence));
            self.has_id_changes = true;
        }
    }
}
