//! The times at which a client checks whether the system would now use another local address for its server.
//!
//! A connected socket keeps the address that it had when it was connected, so a device that changes its network is silently cut off.
//! The system has no portable notification of that. A new socket shows the address that the system would use now.

use std::time::Duration;

use drumfire_proto::Moment;

/// The time without datagrams after which a path is checked, and the interval of further checks while the path stays silent. It is longer
/// than a usual round trip, so a healthy path is never checked.
const QUIET: Duration = Duration::from_secs(1);

/// The shortest time between two checks when the system refuses to send.
const REFUSED: Duration = Duration::from_millis(100);

/// The state of the watch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NetworkWatch {
    arrivals: u64,
    /// The time of the last arrival that the client noticed, or of its last check.
    since: Moment,
    /// The time of the last check. `None` before the first check.
    checked_at: Option<Moment>,
}

impl NetworkWatch {
    /// Returns whether the client must check in this pass. `arrivals` is the number of datagrams that have ever arrived. `awaits_ack` says
    /// whether the client has sent something that the server must acknowledge: without that, silence means nothing. `is_refused` says
    /// whether the system has refused to send.
    pub(super) fn is_due(&mut self, now: Moment, arrivals: u64, awaits_ack: bool, is_refused: bool) -> bool {
        // An arrival proves that the path works. Without a packet in flight, the server has no reason to send.
        if arrivals != self.arrivals || !awaits_ack {
            (self.arrivals, self.since) = (arrivals, now);
        }
        // After a refusal, the client does not wait for silence. Refusals repeat with each datagram, so these checks have an interval of
        // their own.
        let is_due = now.since(self.since) >= QUIET
            || (is_refused && self.checked_at.is_none_or(|at| now.since(at) >= REFUSED));
        if is_due {
            (self.since, self.checked_at) = (now, Some(now));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn only_a_path_without_any_answer_is_checked() {
        let mut watch = NetworkWatch::default();
        let mut is_due = |millis, arrivals, awaits_ack| watch.is_due(at(millis), arrivals, awaits_ack, false);
        assert!(!is_due(5_000, 1, true), "a datagram arrived since the last check");
        assert!(!is_due(5_999, 1, true));
        assert!(!is_due(6_500, 2, true), "another datagram restarts the silence");
        assert!(!is_due(7_499, 2, true));
        assert!(is_due(7_500, 2, true));
        assert!(!is_due(8_499, 2, true), "the network is checked once per second");
        assert!(is_due(8_500, 2, true));
        assert!(!is_due(99_000, 2, false), "no packet awaits an ack");
        assert!(!is_due(99_999, 2, true), "silence counts from the last moment without such a packet");
        assert!(is_due(100_000, 2, true));
    }

    #[test]
    fn a_refused_send_starts_a_check_but_not_in_each_pass() {
        let mut watch = NetworkWatch::default();
        let mut is_due = |millis, is_refused| watch.is_due(at(millis), 1, true, is_refused);
        assert!(!is_due(10, false) && is_due(20, true));
        assert!(!is_due(119, true) && is_due(120, true));
        assert!(!is_due(300, false));
    }
}
