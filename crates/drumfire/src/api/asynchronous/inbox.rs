//! The events that one connection has received and that no task has taken yet. The payloads of all messages share one buffer.
//!
//! The inbox also counts the receive memory of messages that tasks have taken, and decides when to return it to the connection.
//! The caller wakes the tasks and passes the memory to the worker.

use std::collections::VecDeque;

use bytes::Bytes;
use drumfire_proto::limits::ITEM_CHARGE_BYTES;
use drumfire_proto::{ChannelId, PeerId};

use crate::message::event::{Closed, Event};

/// The maximum number of entries in an inbox that are not messages. The receive memory does not limit these. The flight record of a
/// connection that broke has a place of its own.
pub(super) const NOTICES_MAX: usize = 256;

/// The number of events that tasks take in a row before one of them yields to the executor.
const STREAK_MAX: u32 = 128;

/// The number of entries whose memory an empty inbox keeps.
const ENTRIES_KEPT: usize = 128;

/// The payload bytes whose memory an empty inbox keeps.
const BYTES_KEPT: usize = 16 * 1_024;

/// The receive memory in bytes below which a single message may need nearly all of it. An empty inbox then retains nothing.
const MEMORY_TIGHT_BYTES: usize = 64 * 1_024;

/// The events of one connection that wait for a task.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// The messages and notices, oldest first.
    entries: VecDeque<Entry>,
    /// The payloads of the messages in `entries`, in the same order.
    bytes: VecDeque<u8>,
    /// The charges in bytes of messages that tasks have taken and whose memory is not returned yet.
    taken_bytes: usize,
    /// See [`Inbox::attempt`].
    attempt: u32,
    /// The number of messages, at the front of `entries`, of earlier connections. Their memory does not return.
    stale_count: usize,
    /// The events of the [`Entry::Event`]s, in the same order. At most [`NOTICES_MAX`], and a flight record.
    events: VecDeque<Event>,
    /// The number of events taken since the inbox was last found empty or a task yielded.
    streak: u32,
    /// The reason for the end of the connection. `None` while it is open.
    end: Option<Closed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Message {
        channel: ChannelId,
        bytes: usize,
    },
    /// The first of [`Inbox::events`].
    Event,
}

/// The result of [`Inbox::take`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InboxPoll {
    /// The next event.
    Event(Event),
    /// The inbox is empty, and the connection is open.
    Empty,
    /// The connection is over, and all its events have been taken.
    Closed(Closed),
    /// Events wait, but the task must first yield to other tasks.
    Yield,
}

impl Inbox {
    /// Appends a message. The connection's receive memory limits the number of messages.
    pub(super) fn push(&mut self, channel: ChannelId, payload: &[u8]) {
        self.bytes.extend(payload);
        self.entries.push_back(Entry::Message { channel, bytes: payload.len() });
    }

    /// Appends an event that is not a message. Returns false if too many wait.
    pub(super) fn push_event(&mut self, event: Event) -> bool {
        if let (Some(Entry::Event), Some(last)) = (self.entries.back(), self.events.back_mut())
            && add_count(last, &event)
        {
            return true;
        }
        let is_record = matches!(event, Event::FlightRecord { .. });
        let has_room = self.events.len() < NOTICES_MAX + usize::from(is_record);
        if has_room {
            self.entries.push_back(Entry::Event);
            self.events.push_back(event);
        }
        has_room
    }

    /// Marks all messages as those of an earlier connection, because the client connects again, and appends `Reconnecting`. Returns false
    /// if too many notices wait.
    pub(super) fn reconnect(&mut self, event: Event) -> bool {
        self.attempt = self.attempt.wrapping_add(1);
        self.taken_bytes = 0;
        let is_message = |entry: &&Entry| matches!(entry, Entry::Message { .. });
        self.stale_count = self.entries.iter().filter(is_message).count();
        self.push_event(event)
    }

    /// Returns the number of times that the client has started to connect again. The worker counts too, and ignores returned memory of
    /// earlier connections.
    pub(super) const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Marks the connection as over. Only the first call has an effect.
    pub(super) fn end(&mut self, closed: Closed) {
        self.end.get_or_insert(closed);
    }

    /// Returns the reason for the end of the connection, or `None` while it is open.
    pub(super) fn closed(&self) -> Option<&Closed> {
        self.end.as_ref()
    }

    /// Whether no message and no notice waits. The end may still be untaken.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes the next event of this peer for a task, with a payload that `arena` copies from its two parts.
    ///
    /// If `may_yield` is set, [`InboxPoll::Yield`] follows [`STREAK_MAX`] events in a row, so that other tasks run.
    pub(super) fn take(
        &mut self,
        peer: PeerId,
        arena: impl FnOnce(&[u8], &[u8]) -> Bytes,
        may_yield: bool,
    ) -> InboxPoll {
        if self.entries.is_empty() {
            self.streak = 0;
            return self.end.clone().map_or(InboxPoll::Empty, InboxPoll::Closed);
        }
        if may_yield && self.streak >= STREAK_MAX {
            self.streak = 0;
            return InboxPoll::Yield;
        }
        self.streak = self.streak.saturating_add(1);
        let event = match self.entries.pop_front() {
            Some(Entry::Message { channel, bytes }) => {
                match self.stale_count.checked_sub(1) {
                    Some(left) => self.stale_count = left,
                    None => self.taken_bytes = self.taken_bytes.saturating_add(charge(bytes)),
                }
                Event::Message { peer, channel, payload: self.take_bytes(bytes, arena) }
            }
            Some(Entry::Event) => match self.events.pop_front() {
                Some(event) => event,
                None => return InboxPoll::Empty,
            },
            None => return InboxPoll::Empty,
        };
        if self.entries.is_empty() {
            // Otherwise a single burst would hold its memory until the connection ends.
            self.entries.shrink_to(ENTRIES_KEPT);
            self.bytes.shrink_to(BYTES_KEPT);
        }
        InboxPoll::Event(event)
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

    /// Returns the charges to return to the connection now, in bytes, or `None` if too few have accumulated.
    ///
    /// They are returned in portions of at least a quarter of the receive memory of `memory_bytes`. If the inbox is empty, a sixteenth
    /// suffices. Below [`MEMORY_TIGHT_BYTES`], an empty inbox returns all of them.
    pub(super) fn due_bytes(&mut self, memory_bytes: usize) -> Option<usize> {
        // Each return wakes the worker, hence the portions. An empty inbox must leave room for the longest message: only another
        // message would cause the next return.
        let share = match (self.is_empty(), memory_bytes < MEMORY_TIGHT_BYTES) {
            (true, true) => 1,
            (true, false) => memory_bytes / 16,
            (false, _) => memory_bytes / 4,
        };
        if self.taken_bytes >= share { self.taken_bytes() } else { None }
    }

    /// Returns all charges that can be returned, in bytes, or `None` if there are none. For a caller that runs on the worker.
    pub(super) fn taken_bytes(&mut self) -> Option<usize> {
        Some(std::mem::take(&mut self.taken_bytes)).filter(|bytes| *bytes > 0)
    }
}

/// Adds the count of an event to that of the last one, if both are [`Event::Skipped`] or [`Event::Missed`] of one channel.
fn add_count(last: &mut Event, event: &Event) -> bool {
    match (last, event) {
        (Event::Skipped { channel: last, count: sum, .. }, Event::Skipped { channel, count, .. })
        | (Event::Missed { channel: last, count: sum, .. }, Event::Missed { channel, count, .. })
            if last == channel =>
        {
            *sum = sum.saturating_add(*count);
            true
        }
        _ => false,
    }
}

/// Returns the receive memory that a message of this length takes, in bytes.
const fn charge(payload_bytes: usize) -> usize {
    payload_bytes.saturating_add(ITEM_CHARGE_BYTES)
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

    fn push_skipped(inbox: &mut Inbox, channel: ChannelId, count: u32) -> bool {
        inbox.push_event(Event::Skipped { peer: peer(), channel, count })
    }

    fn push_missed(inbox: &mut Inbox, channel: ChannelId, count: u32) -> bool {
        inbox.push_event(Event::Missed { peer: peer(), channel, count })
    }

    fn message(channel: u16, payload: &[u8]) -> InboxPoll {
        let payload = Bytes::copy_from_slice(payload);
        InboxPoll::Event(Event::Message { peer: peer(), channel: ChannelId(channel), payload })
    }

    #[test]
    fn events_keep_their_order_and_the_end_comes_last() {
        let mut inbox = Inbox::default();
        let closed = Closed::new(CloseReason::IdleTimeout, Bytes::new());
        inbox.push(ChannelId(1), b"one");
        assert!(push_skipped(&mut inbox, ChannelId(1), 2) && push_skipped(&mut inbox, ChannelId(1), 3));
        inbox.push(ChannelId(2), b"");
        assert!(push_missed(&mut inbox, ChannelId(2), 1) && push_skipped(&mut inbox, ChannelId(2), 1));
        inbox.end(closed.clone());
        inbox.end(Closed::new(CloseReason::KeyLimit, Bytes::new()));
        assert_eq!(take(&mut inbox), message(1, b"one"));
        let skipped = |channel, count| InboxPoll::Event(Event::Skipped { peer: peer(), channel, count });
        assert_eq!(take(&mut inbox), skipped(ChannelId(1), 5));
        assert_eq!(take(&mut inbox), message(2, b""));
        let missed = Event::Missed { peer: peer(), channel: ChannelId(2), count: 1 };
        assert_eq!(take(&mut inbox), InboxPoll::Event(missed));
        assert_eq!(take(&mut inbox), skipped(ChannelId(2), 1));
        assert_eq!(take(&mut inbox), InboxPoll::Closed(closed.clone()));
        assert_eq!(take(&mut inbox), InboxPoll::Closed(closed));
    }

    #[test]
    fn payloads_that_wrap_around_the_buffer_stay_intact() {
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
    fn notices_are_limited_and_messages_are_not() {
        let mut inbox = Inbox::default();
        for number in 0..NOTICES_MAX {
            assert!(push_skipped(&mut inbox, ChannelId(u16::try_from(number % 2).unwrap()), 1), "{number}");
        }
        assert!(!push_missed(&mut inbox, ChannelId(1), 1));
        inbox.push(ChannelId(7), b"message");
        assert!(!push_skipped(&mut inbox, ChannelId(1), 1));
        take(&mut inbox);
        assert!(push_skipped(&mut inbox, ChannelId(1), 1), "taking a notice makes room for another");
    }

    #[test]
    fn memory_returns_in_quarters_or_sooner_from_an_empty_inbox() {
        let mut inbox = Inbox::default();
        for _ in 0..200 {
            inbox.push(ChannelId(0), &[0; 936]);
        }
        let mut returned = Vec::new();
        for _ in 0..200 {
            take(&mut inbox);
            returned.extend(inbox.due_bytes(MEMORY));
        }
        assert_eq!(returned, [66_000, 66_000, 66_000], "the last 2,000 bytes wait for a full quarter");
        inbox.push(ChannelId(0), &vec![0; MEMORY / 16 - 2_064]);
        take(&mut inbox);
        assert_eq!(inbox.due_bytes(MEMORY), Some(MEMORY / 16));
        inbox.push(ChannelId(0), b"");
        take(&mut inbox);
        assert_eq!(inbox.due_bytes(MEMORY), None);
        assert_eq!(inbox.taken_bytes(), Some(64));
        inbox.push(ChannelId(0), b"");
        take(&mut inbox);
        assert_eq!(inbox.due_bytes(4_096), Some(64), "an empty inbox returns all of a small memory");
        assert_eq!((inbox.due_bytes(4_096), inbox.taken_bytes()), (None, None));
    }

    #[test]
    fn a_task_yields_after_a_streak_and_loses_no_message() {
        let mut inbox = Inbox::default();
        let count = 3 * STREAK_MAX;
        for number in 0..count {
            inbox.push(ChannelId(0), &number.to_be_bytes());
        }
        let (mut taken, mut yields) = (0_u32, 0);
        loop {
            match inbox.take(peer(), |head, tail| [head, tail].concat().into(), true) {
                InboxPoll::Event(Event::Message { payload, .. }) => {
                    assert_eq!(payload, &taken.to_be_bytes()[..]);
                    taken += 1;
                }
                InboxPoll::Yield => yields += 1,
                found => {
                    assert_eq!(found, InboxPoll::Empty);
                    break;
                }
            }
        }
        assert_eq!((taken, yields), (count, 2));
    }

    #[test]
    fn an_empty_inbox_releases_the_memory_of_a_burst() {
        let mut inbox = Inbox::default();
        for _ in 0..4_000 {
            inbox.push(ChannelId(0), &[1; 50]);
        }
        while take(&mut inbox) != InboxPoll::Empty {}
        assert!(inbox.entries.capacity() <= 2 * ENTRIES_KEPT, "{}", inbox.entries.capacity());
        assert!(inbox.bytes.capacity() <= 2 * BYTES_KEPT, "{}", inbox.bytes.capacity());
    }
}
