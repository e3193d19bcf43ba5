//! What one connection brought and no task has taken yet: the bytes of messages in one piece of memory, and beside them what
//! there is to say of messages that do not come.
//!
//! It keeps the books of the connection's receive memory: what was taken out is given back in portions. Whom to wake, and how
//! the worker hears of it, is not its affair.

use std::collections::VecDeque;

use bytes::Bytes;
use drumfire_proto::{ChannelId, FlightRecord, PeerId};

use crate::message::event::{Closed, Event};
use crate::worker::credit::charge;

/// Entries other than messages that wait, at most: a peer brings them without having credit for them.
pub(super) const NOTICES_MAX: usize = 256;

/// Messages that tasks take in a row before one of them lets others run.
const STREAK_MAX: u32 = 128;

/// Entries for which memory is kept while nothing waits.
const ENTRIES_KEPT: usize = 128;

/// Bytes for which memory is kept while nothing waits.
const BYTES_KEPT: usize = 16 * 1_024;

/// Below this receive memory one message may need all of it, so nothing taken is kept back.
const MEMORY_TIGHT_BYTES: usize = 64 * 1_024;

/// What waits in one connection.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    entries: VecDeque<Entry>,
    /// Of the messages among the entries, the oldest first.
    bytes: VecDeque<u8>,
    notice_count: usize,
    /// Charges of messages that were taken and whose memory was not given back.
    taken_bytes: usize,
    streak: u32,
    /// The last events of a connection that broke, which come before its end.
    flight_record: Option<Box<FlightRecord>>,
    end: Option<Closed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Message { channel: ChannelId, bytes: usize },
    Skipped { channel: ChannelId, count: u32 },
    Missed { channel: ChannelId, count: u32 },
}

/// What a task finds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InboxPoll {
    Something(Event),
    Nothing,
    /// The connection is over, and nothing of it is left.
    Over(Closed),
    /// There is something, but this task had so much that it is others' turn.
    Enough,
}

impl Inbox {
    /// Puts a message behind the others. The connection's receive memory bounds how many there are.
    pub(super) fn push(&mut self, channel: ChannelId, payload: &[u8]) {
        self.bytes.extend(payload);
        self.entries.push_back(Entry::Message { channel, bytes: payload.len() });
    }

    /// Notes messages that the peer gave up; false when too much of that kind waits.
    pub(super) fn push_skipped(&mut self, channel: ChannelId, count: u32) -> bool {
        if let Some(Entry::Skipped { channel: last, count: sum }) = self.entries.back_mut()
            && *last == channel
        {
            *sum = sum.saturating_add(count);
            return true;
        }
        self.push_notice(Entry::Skipped { channel, count })
    }

    /// Notes messages to groups that the peer misses; false when too much of that kind waits.
    pub(super) fn push_missed(&mut self, channel: ChannelId, count: u32) -> bool {
        if let Some(Entry::Missed { channel: last, count: sum }) = self.entries.back_mut()
            && *last == channel
        {
            *sum = sum.saturating_add(count);
            return true;
        }
        self.push_notice(Entry::Missed { channel, count })
    }

    fn push_notice(&mut self, notice: Entry) -> bool {
        let has_room = self.notice_count < NOTICES_MAX;
        if has_room {
            self.notice_count += 1;
            self.entries.push_back(notice);
        }
        has_room
    }

    /// Keeps the flight record of a connection that ends.
    pub(super) fn set_flight_record(&mut self, record: Box<FlightRecord>) {
        self.flight_record = Some(record);
    }

    /// The connection is over; only the first reason counts.
    pub(super) fn end(&mut self, closed: Closed) {
        self.end.get_or_insert(closed);
    }

    /// Why the connection is over, if it is.
    pub(super) fn closed(&self) -> Option<&Closed> {
        self.end.as_ref()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes the next event of this peer for a task. A task that `may_rest` receives [`InboxPoll::Enough`] after [`STREAK_MAX`] events, so
    /// that other tasks run.
    pub(super) fn take(
        &mut self,
        peer: PeerId,
        arena: impl FnOnce(&[u8], &[u8]) -> Bytes,
        may_rest: bool,
    ) -> InboxPoll {
        if self.entries.is_empty() {
            self.streak = 0;
            if let Some(record) = self.flight_record.take() {
                return InboxPoll::Something(Event::FlightRecord { peer, record });
            }
            return self.end.clone().map_or(InboxPoll::Nothing, InboxPoll::Over);
        }
        if may_rest && self.streak >= STREAK_MAX {
            self.streak = 0;
            return InboxPoll::Enough;
        }
        self.streak = self.streak.saturating_add(1);
        let event = match self.entries.pop_front() {
            Some(Entry::Message { channel, bytes }) => {
                self.taken_bytes = self.taken_bytes.saturating_add(charge(bytes));
                Event::Message { peer, channel, payload: self.take_bytes(bytes, arena) }
            }
            Some(Entry::Skipped { channel, count }) => {
                self.notice_count -= 1;
                Event::Skipped { peer, channel, count }
            }
            Some(Entry::Missed { channel, count }) => {
                self.notice_count -= 1;
                Event::Missed { peer, channel, count }
            }
            None => return InboxPoll::Nothing,
        };
        if self.entries.is_empty() {
            // One burst is no reason to keep its memory for as long as the connection lasts.
            self.entries.shrink_to(ENTRIES_KEPT);
            self.bytes.shrink_to(BYTES_KEPT);
        }
        InboxPoll::Something(event)
    }

    fn take_bytes(&mut self, bytes: usize, arena: impl FnOnce(&[u8], &[u8]) -> Bytes) -> Bytes {
        let (head, tail) = self.bytes.as_slices();
        let (head, tail) = match head.split_at_checked(bytes) {
            Some((head, _)) => (head, &[][..]),
            None => (head, tail.get(..bytes - head.len()).unwrap_or_default()),
        };
        let payload = arena(head, tail);
        self.bytes.drain(..bytes.min(self.bytes.len()));
        payload
    }

    /// Charges that are to be given back to the connection now, of a receive memory of so many bytes: a quarter of it, or less
    /// when nothing is left to take.
    ///
    /// What is kept back is so little that the longest message there may be fits beside it, or its sender would wait for ever.
    pub(super) fn due_bytes(&mut self, memory_bytes: usize) -> Option<usize> {
        let share = match (self.is_empty(), memory_bytes < MEMORY_TIGHT_BYTES) {
            (true, true) => 1,
            (true, false) => memory_bytes / 16,
            (false, _) => memory_bytes / 4,
        };
        if self.taken_bytes >= share { self.taken_bytes() } else { None }
    }

    /// Charges that may be given back, for who is there anyway.
    pub(super) fn taken_bytes(&mut self) -> Option<usize> {
        Some(std::mem::take(&mut self.taken_bytes)).filter(|bytes| *bytes > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumfire_proto::CloseReason;

    const MEMORY: usize = 256 * 1_024;

    fn peer() -> PeerId {
        "0.0.0".parse().unwrap()
    }

    fn take(inbox: &mut Inbox) -> InboxPoll {
        inbox.take(peer(), |head, tail| [head, tail].concat().into(), false)
    }

    fn message(channel: u16, payload: &[u8]) -> InboxPoll {
        let payload = Bytes::copy_from_slice(payload);
        InboxPoll::Something(Event::Message { peer: peer(), channel: ChannelId(channel), payload })
    }

    #[test]
    fn things_come_in_their_order_and_the_end_comes_last_and_stays() {
        let mut inbox = Inbox::default();
        let closed = Closed::new(CloseReason::Silent, Bytes::new());
        inbox.push(ChannelId(1), b"one");
        assert!(inbox.push_skipped(ChannelId(1), 2) && inbox.push_skipped(ChannelId(1), 3));
        inbox.push(ChannelId(2), b"");
        assert!(inbox.push_missed(ChannelId(2), 1) && inbox.push_skipped(ChannelId(2), 1));
        inbox.end(closed.clone());
        inbox.end(Closed::new(CloseReason::KeyLimit, Bytes::new()));
        assert_eq!(take(&mut inbox), message(1, b"one"));
        let skipped = |channel, count| InboxPoll::Something(Event::Skipped { peer: peer(), channel, count });
        assert_eq!(take(&mut inbox), skipped(ChannelId(1), 5));
        assert_eq!(take(&mut inbox), message(2, b""));
        let missed = Event::Missed { peer: peer(), channel: ChannelId(2), count: 1 };
        assert_eq!(take(&mut inbox), InboxPoll::Something(missed));
        assert_eq!(take(&mut inbox), skipped(ChannelId(2), 1));
        assert_eq!(take(&mut inbox), InboxPoll::Over(closed.clone()));
        assert_eq!(take(&mut inbox), InboxPoll::Over(closed));
    }

    #[test]
    fn bytes_stay_whole_wherever_they_lie_in_the_ring() {
        let mut inbox = Inbox::default();
        let payload = |number: u32| number.to_be_bytes().repeat(usize::try_from(number % 97).unwrap());
        for number in 0..20 {
            inbox.push(ChannelId(0), &payload(number));
        }
        for number in 0..5_000 {
            inbox.push(ChannelId(0), &payload(number + 20));
            assert_eq!(take(&mut inbox), message(0, &payload(number)), "{number}");
        }
    }

    #[test]
    fn notices_are_bounded_and_messages_are_not_refused_for_them() {
        let mut inbox = Inbox::default();
        for number in 0..NOTICES_MAX {
            assert!(inbox.push_skipped(ChannelId(u16::try_from(number % 2).unwrap()), 1), "{number}");
        }
        assert!(!inbox.push_missed(ChannelId(1), 1));
        inbox.push(ChannelId(7), b"message");
        assert!(!inbox.push_skipped(ChannelId(1), 1));
        take(&mut inbox);
        assert!(inbox.push_skipped(ChannelId(1), 1), "one was taken");
    }

    #[test]
    fn memory_goes_back_in_quarters_and_sooner_when_nothing_is_left() {
        let mut inbox = Inbox::default();
        for _ in 0..200 {
            inbox.push(ChannelId(0), &[0; 936]);
        }
        let mut given = Vec::new();
        for _ in 0..200 {
            take(&mut inbox);
            given.extend(inbox.due_bytes(MEMORY));
        }
        assert_eq!(given, [66_000, 66_000, 66_000], "and 2,000 bytes are kept back");
        inbox.push(ChannelId(0), &vec![0; MEMORY / 16 - 2_064]);
        take(&mut inbox);
        assert_eq!(inbox.due_bytes(MEMORY), Some(MEMORY / 16));
        inbox.push(ChannelId(0), b"");
        take(&mut inbox);
        assert_eq!(inbox.due_bytes(MEMORY), None);
        assert_eq!(inbox.taken_bytes(), Some(64));
        inbox.push(ChannelId(0), b"");
        take(&mut inbox);
        assert_eq!(inbox.due_bytes(4_096), Some(64), "nothing is kept back of a small memory");
        assert_eq!((inbox.due_bytes(4_096), inbox.taken_bytes()), (None, None));
    }

    #[test]
    fn a_task_that_takes_much_is_told_to_rest_and_loses_nothing() {
        let mut inbox = Inbox::default();
        let count = 3 * STREAK_MAX;
        for number in 0..count {
            inbox.push(ChannelId(0), &number.to_be_bytes());
        }
        let (mut taken, mut rests) = (0_u32, 0);
        loop {
            match inbox.take(peer(), |head, tail| [head, tail].concat().into(), true) {
                InboxPoll::Something(Event::Message { payload, .. }) => {
                    assert_eq!(payload, &taken.to_be_bytes()[..]);
                    taken += 1;
                }
                InboxPoll::Enough => rests += 1,
                found => {
                    assert_eq!(found, InboxPoll::Nothing);
                    break;
                }
            }
        }
        assert_eq!((taken, rests), (count, 2));
    }

    #[test]
    fn a_burst_leaves_no_memory_behind() {
        let mut inbox = Inbox::default();
        for _ in 0..4_000 {
            inbox.push(ChannelId(0), &[1; 50]);
        }
        while take(&mut inbox) != InboxPoll::Nothing {}
        assert!(inbox.entries.capacity() <= 2 * ENTRIES_KEPT, "{}", inbox.entries.capacity());
        assert!(inbox.bytes.capacity() <= 2 * BYTES_KEPT, "{}", inbox.bytes.capacity());
    }
}
