//! One end's socket: its receive queue, what its end hears of it, and what goes wrong there.
//!
//! It has the manners of a kernel whose poll is edge-triggered: an arrival is told of once, whoever does not look then is
//! not told again. Which datagram comes to which end is the network's business.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use drumfire_socket::{Fault, RecvAction, SendMode, recv_action};

use super::skewed_clock::Clockwork;
use super::sockets::{SocketCounts, Trouble};
use crate::conditioner::{Datagram, Moment, Random};
use crate::worker::transport::REOPEN_AFTER;

/// A worker that has datagrams and neither hears of them nor looks again so soon has lost them.
const LOOKS_AGAIN_WITHIN: Duration = Duration::from_millis(100);

/// The longest train that is handed over whole: its bytes,
const TRAIN_MAX_BYTES: usize = 65_535;

/// and its datagrams.
const TRAIN_MAX: usize = 64;

/// One end's socket.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) address: SocketAddr,
    pub(super) clock: Clockwork,
    pub(super) counts: SocketCounts,
    inbox: VecDeque<Waiting>,
    queue_datagrams: usize,
    random: Random,
    trouble: Trouble,
    /// Receive calls that will panic.
    panics: u32,
    /// Something arrived, and its end has not heard of it.
    has_edge: bool,
    /// What its end waits for, by its own clock, and when that is.
    asked: Option<Duration>,
    wake_at: Option<Moment>,
    /// Its end wants to hear when there is room to send,
    watches_room: bool,
    /// and has not heard since there was none.
    is_owed_room: bool,
    blocked_until: Option<Moment>,
    stalled_until: Option<Moment>,
    /// When its descriptor was lost last, by its end's clock.
    lost_at: Option<Moment>,
}

/// A datagram in the queue.
#[derive(Debug)]
struct Waiting {
    datagram: Datagram,
    /// It came as one of a train with that in front of it.
    is_joined: bool,
}

/// What one slot of a receive call takes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) from: SocketAddr,
    pub(super) bytes: Vec<u8>,
    /// Of a train: bytes of its first datagram.
    pub(super) segment_bytes: Option<usize>,
}

impl Port {
    pub(super) fn new(address: SocketAddr, queue_datagrams: usize, random: Random) -> Self {
        Self {
            address,
            clock: Clockwork::right(),
            counts: SocketCounts::default(),
            inbox: VecDeque::new(),
            queue_datagrams,
            random,
            trouble: Trouble::default(),
            panics: 0,
            has_edge: false,
            asked: None,
            wake_at: None,
            watches_room: false,
            is_owed_room: false,
            blocked_until: None,
            stalled_until: None,
            lost_at: None,
        }
    }

    pub(super) fn set_trouble(&mut self, trouble: Trouble) {
        self.trouble = trouble;
    }

    pub(super) const fn plant_panics(&mut self, panics: u32) {
        self.panics = panics;
    }

    /// Its end does nothing until then.
    pub(super) fn stall(&mut self, until: Moment) {
        self.stalled_until = Some(until);
    }

    /// Puts a datagram into the queue; false when it is full.
    pub(super) fn take(&mut self, datagram: Datagram, is_joined: bool) -> bool {
        let has_room = self.inbox.len() < self.queue_datagrams;
        if has_room {
            self.inbox.push_back(Waiting { datagram, is_joined });
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

    /// What waited is gone; answers how much that was.
    pub(super) fn clear(&mut self) -> u64 {
        self.has_edge = false;
        let count = self.inbox.len();
        self.inbox.clear();
        count as u64
    }

    /// Its end has a turn at that moment, whatever it waits for; `None` for never.
    pub(super) fn wake(&mut self, at: Option<Moment>) {
        self.wake_at = at;
    }

    /// Its end waits for this long by its own clock, `None` for as long as it takes.
    pub(super) fn wait(&mut self, now: Moment, timeout: Option<Duration>) {
        self.asked = timeout;
        self.wake_at = timeout.and_then(|timeout| {
            // Who does not wait needs no clock, and not one that goes.
            if timeout.is_zero() { Some(now) } else { self.clock.after(now, timeout) }
        });
    }

    /// Its end wants to hear when there is room, or no longer. Where there is room it hears so at once.
    pub(super) const fn watch_room(&mut self, is_blocked: bool) {
        (self.watches_room, self.is_owed_room) = (is_blocked, is_blocked);
    }

    /// When its end has its next turn.
    pub(super) fn next_at(&self) -> Option<Moment> {
        let room_at = self.is_owed_room.then(|| self.blocked_until.unwrap_or_default());
        let edge_at = self.has_edge.then(Moment::default);
        let next = self.wake_at.into_iter().chain(room_at).chain(edge_at).min()?;
        Some(self.stalled_until.map_or(next, |until| next.max(until)))
    }

    /// Its end has its turn; answers whether it hears that something arrived.
    pub(super) fn begin_turn(&mut self) -> bool {
        self.counts.turns += 1;
        self.wake_at = None;
        if self.blocked_until.is_none() {
            self.is_owed_room = false;
        }
        std::mem::take(&mut self.has_edge)
    }

    /// Time goes on from `now`: room comes back, and what waits without anybody knowing is written down.
    pub(super) fn leave(&mut self, now: Moment) {
        let looks_again = self.asked.is_some_and(|asked| asked <= LOOKS_AGAIN_WITHIN);
        let is_stalled = self.stalled_until.is_some_and(|until| until > now);
        if !self.inbox.is_empty() && !self.has_edge && !looks_again && !is_stalled {
            self.counts.stranded += 1;
        }
    }

    /// Whether a receive call is to panic.
    pub(super) fn is_to_panic(&mut self) -> bool {
        let is_to_panic = self.panics > 0 && !self.inbox.is_empty();
        if is_to_panic {
            self.panics -= 1;
            self.counts.panics += 1;
        }
        is_to_panic
    }

    /// The fault of a receive call, if it is to have one.
    pub(super) fn receive_fault(&mut self, now: Moment) -> Option<Fault> {
        let fault = draw(&mut self.random, self.trouble.receive, &self.trouble.receive_faults);
        let fault = fault.filter(|fault| self.may_come(now, *fault))?;
        self.counts.receive_faults.add(fault);
        Some(fault)
    }

    /// Whether this fault may come now: a descriptor that is lost again too soon ends its worker, which nobody asked for.
    fn may_come(&mut self, now: Moment, fault: Fault) -> bool {
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

    /// Its end goes on with another descriptor, which is watched for datagrams alone. What waits by then is not told of: a
    /// system may do so, and whoever relies on it would not be found out.
    pub(super) const fn reopen(&mut self) {
        self.watch_room(false);
    }

    /// Whether a wait is to fail.
    pub(super) fn wait_fault(&mut self) -> bool {
        let is_to_fail = self.trouble.wait > 0.0 && self.random.happens(self.trouble.wait);
        self.counts.wait_faults += u64::from(is_to_fail);
        is_to_fail
    }

    /// What a send call of so many datagrams does: how many it takes, or its fault.
    pub(super) fn sends(&mut self, now: Moment, offered: usize, mode: SendMode) -> Result<usize, Fault> {
        self.blocked_until = self.blocked_until.filter(|until| *until > now);
        if self.blocked_until.is_none()
            && self.trouble.blocked > 0.0
            && self.random.happens(self.trouble.blocked)
        {
            let least = Duration::from_nanos(1);
            self.blocked_until = Some(now.after(self.random.duration(self.trouble.blocked_for).max(least)));
        }
        let fault = if self.blocked_until.is_some() {
            self.is_owed_room |= self.watches_room;
            Some(Fault::WouldBlock)
        } else {
            let fault = draw(&mut self.random, self.trouble.send, &self.trouble.send_faults);
            fault.filter(|fault| self.may_come(now, *fault))
        };
        if let Some(fault) = fault {
            self.counts.send_faults.add(fault);
            return Err(fault);
        }
        let is_partial = mode == SendMode::Sendmmsg && offered > 1 && self.trouble.partial > 0.0;
        if is_partial && self.random.happens(self.trouble.partial) {
            self.counts.partial_sends += 1;
            let most = u64::try_from(offered).unwrap_or(u64::MAX);
            return Ok(usize::try_from(self.random.below(most.saturating_sub(1))).unwrap_or(0) + 1);
        }
        Ok(offered)
    }

    /// The buffer that was full at `now` has room.
    pub(super) fn make_room(&mut self, now: Moment) {
        self.blocked_until = self.blocked_until.filter(|until| *until > now);
    }

    /// The oldest message: a datagram, or those that came as one train.
    pub(super) fn receive(&mut self) -> Option<Message> {
        let Waiting { datagram, .. } = self.inbox.pop_front()?;
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

/// Where a packet says which connection it is of; none for all other datagrams.
fn id_of(datagram: &[u8]) -> Option<&[u8]> {
    let is_packet = datagram.first().is_some_and(|first| first & 0x80 == 0);
    datagram.get(1..9).filter(|_| is_packet)
}

/// One of these faults, so often.
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
    fn an_arrival_is_told_of_once_and_who_does_not_look_then_has_lost_it() {
        let mut port = port(2);
        assert!(port.take(datagram(b"one"), false));
        assert_eq!(port.next_at(), Some(Moment::default()));
        assert!(port.begin_turn() && !port.begin_turn());
        port.wait(NOW, Some(LOOKS_AGAIN_WITHIN));
        port.leave(NOW);
        assert_eq!(port.counts.stranded, 0, "it looks again by itself");
        port.wait(NOW, None);
        port.leave(NOW);
        assert_eq!(port.counts.stranded, 1);
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
        port.leave(Moment::default());
        assert_eq!((port.next_at(), port.counts.stranded), (Some(NOW), 0));
    }

    #[test]
    fn a_full_buffer_blocks_for_its_time_and_then_tells_who_asked() {
        let mut port = port(2);
        let trouble = Trouble { blocked: 1.0, blocked_for: Duration::from_millis(1), ..Trouble::default() };
        port.set_trouble(trouble);
        assert_eq!(port.sends(NOW, 3, SendMode::Sendmmsg), Err(Fault::WouldBlock));
        port.watch_room(true);
        let until = port.next_at().unwrap();
        assert!(until > NOW && until <= NOW.after(Duration::from_millis(1)));
        port.set_trouble(Trouble::default());
        port.make_room(until);
        port.begin_turn();
        assert_eq!(port.next_at(), None, "told once");
        assert_eq!(port.sends(until, 3, SendMode::Sendmmsg), Ok(3));
    }

    #[test]
    fn a_descriptor_is_lost_once_in_a_second_whichever_call_finds_out() {
        let mut port = port(2);
        let faults = vec![Fault::BadDescriptor, Fault::NotSocket];
        let (receive_faults, send_faults) = (faults.clone(), faults);
        port.set_trouble(Trouble {
            receive: 1.0,
            receive_faults,
            send: 1.0,
            send_faults,
            ..Trouble::default()
        });
        assert!(port.receive_fault(NOW).is_some());
        let soon = NOW.after(REOPEN_AFTER - Duration::from_nanos(1));
        assert_eq!((port.receive_fault(soon), port.sends(soon, 3, SendMode::Sendmmsg)), (None, Ok(3)));
        assert!(port.sends(NOW.after(REOPEN_AFTER), 3, SendMode::Sendmmsg).is_err());
        assert_eq!(port.counts.receive_faults.total() + port.counts.send_faults.total(), 2);
    }

    #[test]
    fn a_train_is_handed_over_whole_and_says_how_it_is_cut() {
        let mut port = port(4);
        for (bytes, is_joined) in [(&b"\x01aaaaaaaa"[..], false), (b"\x01bbbbbbbb", true), (b"\x01", true)] {
            assert!(port.take(datagram(bytes), is_joined));
        }
        let Message { bytes, segment_bytes, .. } = port.receive().unwrap();
        assert_eq!((bytes.len(), segment_bytes), (19, Some(9)));
        assert_eq!((port.counts.trains, port.counts.mixed_trains), (1, 1));
    }
}
