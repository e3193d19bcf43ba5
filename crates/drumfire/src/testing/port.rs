//! The socket of one end: its receive queue, its readiness, its faults, and its clock.
//!
//! Readiness is edge-triggered, as with `EPOLLET`: an arrival is reported once, even if the end does not receive then. The
//! network decides which datagram goes to which end.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use drumfire_proto::Moment;
use drumfire_socket::{Fault, RecvAction, SendMode, recv_action};

use super::Datagram;
use super::skewed_clock::WorldClock;
use super::sockets::{SocketCounts, SocketFaults};
use crate::conditioner::Random;
use crate::worker::transport::REOPEN_AFTER;

/// The longest timeout with which an end that has datagrams but no edge still polls in time. With a longer timeout, the end
/// missed a wake-up.
const POLL_INTERVAL_MAX: Duration = Duration::from_millis(100);

/// The maximum number of bytes in a train.
const TRAIN_MAX_BYTES: usize = 65_535;

/// The maximum number of datagrams in a train.
const TRAIN_MAX: usize = 64;

/// The socket of one end.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) address: SocketAddr,
    pub(super) clock: WorldClock,
    pub(super) counts: SocketCounts,
    inbox: VecDeque<QueuedDatagram>,
    queue_datagrams: usize,
    random: Random,
    faults: SocketFaults,
    /// The number of receive calls that will still panic. A call panics only while the queue has datagrams.
    panics: u32,
    /// Whether a datagram arrived after the end's last turn.
    has_edge: bool,
    /// The timeout of the end's last wait, by its own clock. `None` means without limit.
    timeout: Option<Duration>,
    /// The world's time at which the end is due without any event, or `None` for never.
    wake_at: Option<Moment>,
    /// Whether the end watches the socket for room to send.
    watches_room: bool,
    /// Whether the end still has to be notified of room to send.
    is_owed_room: bool,
    /// The send buffer is full until this moment.
    blocked_until: Option<Moment>,
    /// The end has no turn before this moment.
    stalled_until: Option<Moment>,
    /// The last loss of the descriptor, by the end's clock.
    lost_at: Option<Moment>,
}

/// A datagram in the receive queue.
#[derive(Debug)]
struct QueuedDatagram {
    datagram: Datagram,
    /// Whether the datagram continues the train of the datagram before it.
    is_joined: bool,
}

/// The contents of one slot of a receive call: a datagram or a train.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) from: SocketAddr,
    pub(super) bytes: Vec<u8>,
    /// The length in bytes of the first datagram of a train. `None` for a single datagram.
    pub(super) segment_bytes: Option<usize>,
}

impl Port {
    pub(super) fn new(address: SocketAddr, queue_datagrams: usize, random: Random) -> Self {
        Self {
            address,
            clock: WorldClock::correct(),
            counts: SocketCounts::default(),
            inbox: VecDeque::new(),
            queue_datagrams,
            random,
            faults: SocketFaults::default(),
            panics: 0,
            has_edge: false,
            timeout: None,
            wake_at: None,
            watches_room: false,
            is_owed_room: false,
            blocked_until: None,
            stalled_until: None,
            lost_at: None,
        }
    }

    pub(super) fn set_socket_faults(&mut self, faults: SocketFaults) {
        self.faults = faults;
    }

    pub(super) const fn inject_panics(&mut self, panics: u32) {
        self.panics = panics;
    }

    /// Gives the end no turn before `until`.
    pub(super) fn stall(&mut self, until: Moment) {
        self.stalled_until = Some(until);
    }

    /// Puts a datagram into the queue. Returns false if the queue is full.
    pub(super) fn take(&mut self, datagram: Datagram, is_joined: bool) -> bool {
        let has_room = self.inbox.len() < self.queue_datagrams;
        if has_room {
            self.inbox.push_back(QueuedDatagram { datagram, is_joined });
            self.has_edge = true;
        } else {
            self.counts.overflowed += 1;
        }
        has_room
    }

    pub(super) fn waiting_count(&self) -> usize {
        self.inbox.len()
    }

    pub(super) fn queued_bytes(&self) -> usize {
        self.inbox.iter().map(|waiting| waiting.datagram.bytes.len()).sum()
    }

    /// Discards the queue. Returns the number of datagrams that it had.
    pub(super) fn clear(&mut self) -> u64 {
        self.has_edge = false;
        let count = self.inbox.len();
        self.inbox.clear();
        count as u64
    }

    /// Gives the end a turn at this moment, regardless of its timeout. `None` cancels the turn.
    pub(super) fn wake(&mut self, at: Option<Moment>) {
        self.wake_at = at;
    }

    /// Begins a wait of `timeout` by the end's own clock. `None` means without limit.
    pub(super) fn wait(&mut self, now: Moment, timeout: Option<Duration>) {
        self.timeout = timeout;
        self.wake_at = timeout.and_then(|timeout| {
            // A timeout of zero ends even by a clock that is stopped.
            if timeout.is_zero() { Some(now) } else { self.clock.after(now, timeout) }
        });
    }

    /// Starts or stops the watch for room to send. If there is room already, the end is due immediately.
    pub(super) const fn watch_room(&mut self, is_blocked: bool) {
        (self.watches_room, self.is_owed_room) = (is_blocked, is_blocked);
    }

    /// Returns the time of the end's next turn, or `None` for never.
    pub(super) fn next_at(&self) -> Option<Moment> {
        // The default moment is before the start of every world, so it means now.
        let room_at = self.is_owed_room.then(|| self.blocked_until.unwrap_or_default());
        let edge_at = self.has_edge.then(Moment::default);
        let next = self.wake_at.into_iter().chain(room_at).chain(edge_at).min()?;
        Some(self.stalled_until.map_or(next, |until| next.max(until)))
    }

    /// Begins a turn of the end. Returns whether a datagram arrived since its last turn.
    pub(super) fn begin_turn(&mut self) -> bool {
        self.counts.wakeups += 1;
        self.wake_at = None;
        if self.blocked_until.is_none() {
            self.is_owed_room = false;
        }
        std::mem::take(&mut self.has_edge)
    }

    /// Counts a missed wake-up before the time advances from `now`.
    pub(super) fn count_missed_wakeup(&mut self, now: Moment) {
        let polls_soon = self.timeout.is_some_and(|timeout| timeout <= POLL_INTERVAL_MAX);
        let is_stalled = self.stalled_until.is_some_and(|until| until > now);
        if !self.inbox.is_empty() && !self.has_edge && !polls_soon && !is_stalled {
            self.counts.missed_wakeups += 1;
        }
    }

    /// Returns whether this receive call panics.
    pub(super) fn should_panic(&mut self) -> bool {
        let should_panic = self.panics > 0 && !self.inbox.is_empty();
        if should_panic {
            self.panics -= 1;
            self.counts.panics += 1;
        }
        should_panic
    }

    /// Returns the fault of a receive call, if it fails.
    pub(super) fn receive_fault(&mut self, now: Moment) -> Option<Fault> {
        let fault = draw(&mut self.random, self.faults.receive, &self.faults.receive_faults);
        let fault = fault.filter(|fault| self.may_occur(now, *fault))?;
        self.counts.receive_faults.add(fault);
        Some(fault)
    }

    /// Returns whether this fault may occur now. A worker gives its socket up after two lost descriptors within `REOPEN_AFTER`.
    fn may_occur(&mut self, now: Moment, fault: Fault) -> bool {
        if recv_action(fault) != RecvAction::Close {
            return true;
        }
        let own = self.clock.now(now).monotonic;
        let has_lasted = self.lost_at.is_none_or(|at| own.since(at) >= REOPEN_AFTER);
        if has_lasted {
            self.lost_at = Some(own);
        }
        has_lasted
    }

    /// Replaces the descriptor. The new one is watched for datagrams only.
    pub(super) const fn reopen(&mut self) {
        // Queued datagrams cause no edge here. A kernel may report them, but a worker must not rely on that.
        self.watch_room(false);
    }

    /// Returns whether a wait fails.
    pub(super) fn wait_fault(&mut self) -> bool {
        let is_to_fail = self.faults.wait > 0.0 && self.random.happens(self.faults.wait);
        self.counts.wait_faults += u64::from(is_to_fail);
        is_to_fail
    }

    /// Returns how many of the `offered` datagrams a send call accepts, or its fault.
    pub(super) fn sends(&mut self, now: Moment, offered: usize, mode: SendMode) -> Result<usize, Fault> {
        self.blocked_until = self.blocked_until.filter(|until| *until > now);
        if self.blocked_until.is_none()
            && self.faults.blocked > 0.0
            && self.random.happens(self.faults.blocked)
        {
            let least = Duration::from_nanos(1);
            self.blocked_until = Some(now.after(self.random.duration(self.faults.blocked_for).max(least)));
        }
        let fault = if self.blocked_until.is_some() {
            self.is_owed_room |= self.watches_room;
            Some(Fault::WouldBlock)
        } else {
            let fault = draw(&mut self.random, self.faults.send, &self.faults.send_faults);
            fault.filter(|fault| self.may_occur(now, *fault))
        };
        if let Some(fault) = fault {
            self.counts.send_faults.add(fault);
            return Err(fault);
        }
        let is_partial = mode == SendMode::Sendmmsg && offered > 1 && self.faults.partial > 0.0;
        if is_partial && self.random.happens(self.faults.partial) {
            self.counts.partial_sends += 1;
            let most = u64::try_from(offered).unwrap_or(u64::MAX);
            return Ok(usize::try_from(self.random.below(most.saturating_sub(1))).unwrap_or(0) + 1);
        }
        Ok(offered)
    }

    /// Ends the blockage of the send buffer if its time is over at `now`.
    pub(super) fn make_room(&mut self, now: Moment) {
        self.blocked_until = self.blocked_until.filter(|until| *until > now);
    }

    /// Removes the oldest message from the queue: a datagram, or all datagrams of a train.
    pub(super) fn receive(&mut self) -> Option<Message> {
        let QueuedDatagram { datagram, .. } = self.inbox.pop_front()?;
        let (from, mut bytes) = (datagram.from, datagram.bytes);
        let (segment, mut count) = (bytes.len(), 1);
        let (id, mut is_mixed) = (id_of(&bytes).map(<[u8]>::to_vec), false);
        while let Some(next) = self.inbox.front().filter(|next| next.is_joined)
            && bytes.len() + next.datagram.bytes.len() <= TRAIN_MAX_BYTES
            && count < TRAIN_MAX
        {
            is_mixed |= id_of(&next.datagram.bytes) != id.as_deref();
            bytes.extend_from_slice(&next.datagram.bytes);
            count += 1;
            self.inbox.pop_front();
        }
        let is_train = count > 1;
        self.counts.trains += u64::from(is_train);
        self.counts.mixed_trains += u64::from(is_train && is_mixed);
        Some(Message { from, bytes, segment_bytes: is_train.then_some(segment) })
    }
}

/// Returns the connection id of a packet, or `None` for other datagrams.
fn id_of(datagram: &[u8]) -> Option<&[u8]> {
    let is_packet = datagram.first().is_some_and(|first| first & 0x80 == 0);
    datagram.get(1..9).filter(|_| is_packet)
}

/// Returns one of `faults` for this fraction of all calls.
fn draw(random: &mut Random, fraction: f64, faults: &[Fault]) -> Option<Fault> {
    if fraction <= 0.0 || !random.happens(fraction) {
        return None;
    }
    let place = random.below(u64::try_from(faults.len()).unwrap_or(0));
    faults.get(usize::try_from(place).unwrap_or(0)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_nanos(5_000_000_000);

    fn port(queue_datagrams: usize) -> Port {
        Port::new(SocketAddr::from(([192, 0, 2, 1], 1)), queue_datagrams, Random::new(1))
    }

    fn datagram(bytes: &[u8]) -> Datagram {
        let address = SocketAddr::from(([192, 0, 2, 2], 1));
        Datagram { from: address, to: address, bytes: bytes.to_vec() }
    }

    #[test]
    fn an_arrival_is_reported_once_and_then_stranded() {
        let mut port = port(2);
        assert!(port.take(datagram(b"one"), false));
        assert_eq!(port.next_at(), Some(Moment::default()));
        assert!(port.begin_turn() && !port.begin_turn());
        port.wait(NOW, Some(POLL_INTERVAL_MAX));
        port.count_missed_wakeup(NOW);
        assert_eq!(port.counts.missed_wakeups, 0, "the timeout ends soon enough");
        port.wait(NOW, None);
        port.count_missed_wakeup(NOW);
        assert_eq!(port.counts.missed_wakeups, 1);
        assert!(port.take(datagram(b"two"), false) && !port.take(datagram(b"three"), false));
        assert!(port.begin_turn() && port.receive().is_some());
        assert_eq!((port.counts.overflowed, port.waiting_count()), (1, 1));
    }

    #[test]
    fn a_stalled_end_has_its_turn_when_the_stall_is_over() {
        let mut port = port(2);
        port.stall(NOW);
        port.wait(Moment::default(), Some(Duration::from_secs(1)));
        assert_eq!(port.next_at(), Some(NOW));
        assert!(port.take(datagram(b"one"), false));
        port.count_missed_wakeup(Moment::default());
        assert_eq!((port.next_at(), port.counts.missed_wakeups), (Some(NOW), 0));
    }

    #[test]
    fn a_full_buffer_blocks_for_its_time_and_then_reports_room() {
        let mut port = port(2);
        let faults =
            SocketFaults { blocked: 1.0, blocked_for: Duration::from_millis(1), ..SocketFaults::default() };
        port.set_socket_faults(faults);
        assert_eq!(port.sends(NOW, 3, SendMode::Sendmmsg), Err(Fault::WouldBlock));
        port.watch_room(true);
        let until = port.next_at().unwrap();
        assert!(until > NOW && until <= NOW.after(Duration::from_millis(1)));
        port.set_socket_faults(SocketFaults::default());
        port.make_room(until);
        port.begin_turn();
        assert_eq!(port.next_at(), None, "free room is reported once");
        assert_eq!(port.sends(until, 3, SendMode::Sendmmsg), Ok(3));
    }

    #[test]
    fn a_descriptor_is_lost_at_most_once_per_second_in_all_calls() {
        let mut port = port(2);
        let faults = vec![Fault::BadDescriptor, Fault::NotSocket];
        let (receive_faults, send_faults) = (faults.clone(), faults);
        port.set_socket_faults(SocketFaults {
            receive: 1.0,
            receive_faults,
            send: 1.0,
            send_faults,
            ..SocketFaults::default()
        });
        assert!(port.receive_fault(NOW).is_some());
        let soon = NOW.after(REOPEN_AFTER - Duration::from_nanos(1));
        assert_eq!((port.receive_fault(soon), port.sends(soon, 3, SendMode::Sendmmsg)), (None, Ok(3)));
        assert!(port.sends(NOW.after(REOPEN_AFTER), 3, SendMode::Sendmmsg).is_err());
        assert_eq!(port.counts.receive_faults.total() + port.counts.send_faults.total(), 2);
    }

    #[test]
    fn a_train_is_received_whole_with_its_segment_length() {
        let mut port = port(4);
        for (bytes, is_joined) in [(&b"\x01aaaaaaaa"[..], false), (b"\x01bbbbbbbb", true), (b"\x01", true)] {
            assert!(port.take(datagram(bytes), is_joined));
        }
        let Message { bytes, segment_bytes, .. } = port.receive().unwrap();
        assert_eq!((bytes.len(), segment_bytes), (19, Some(9)));
        assert_eq!((port.counts.trains, port.counts.mixed_trains), (1, 1));
    }
}
