//! Messages that arrived before the messages that they must be delivered after.
//!
//! Each message has an index, and is part of a linked list of the messages that wait for the same one. The slots of
//! the window hold the heads of the lists.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use drumfire_wire::ChannelId;

use super::Arrival;
use crate::limits::ITEM_CHARGE_BYTES;

/// The end of a list.
pub(super) const NONE: u16 = u16::MAX;

/// The payload of a message; `None` for a Skip.
type Payload = Option<Box<[u8]>>;

/// The stored messages of one connection.
#[derive(Debug, Default)]
pub(super) struct HeldMessages {
    /// Messages by index. A free index keeps the last message without its payload.
    places: Vec<HeldMessage>,
    /// Indices that are free.
    free: Vec<u16>,
    /// The payloads of all messages with their charges.
    bytes: usize,
    /// Messages that became due together, smallest id first. Empty between calls.
    due: BinaryHeap<Reverse<(u64, u16)>>,
}

/// A message that waits for another one, linked with the others that wait for the same.
#[derive(Debug)]
struct HeldMessage {
    /// The id of the message.
    id: u64,
    /// The channel of the message.
    channel: ChannelId,
    /// The payload. `None` for a Skip, and after the message was removed.
    payload: Payload,
    /// The index of the next message that waits for the same one, or `NONE`.
    next_waiting: u16,
}

impl HeldMessages {
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Stores a message at the head of the list that began at `next_waiting`. Returns its index.
    pub(super) fn put(&mut self, arrival: &Arrival<'_>, next_waiting: u16) -> u16 {
        self.bytes = self.bytes.saturating_add(charge(arrival.payload.map_or(0, <[u8]>::len)));
        let message = HeldMessage {
            id: arrival.id.0,
            channel: arrival.channel,
            payload: arrival.payload.map(Box::from),
            next_waiting,
        };
        // An index is used again as soon as it is free, so the memory follows the messages that wait.
        if let Some(place) = self.free.pop() {
            debug_assert!(usize::from(place) < self.places.len(), "there is no place {place}");
            if let Some(old) = self.places.get_mut(usize::from(place)) {
                *old = message;
            }
            return place;
        }
        // There are at most as many messages as ids in the window, far fewer than indices.
        debug_assert!(
            self.places.len() < usize::from(NONE),
            "{} messages wait for others",
            self.places.len()
        );
        let place = u16::try_from(self.places.len()).unwrap_or(NONE);
        self.places.push(message);
        place
    }

    /// Makes the list that begins at this index due.
    pub(super) fn make_due(&mut self, first: u16) {
        // `NONE` is beyond all places, and ends the list.
        let mut place = first;
        while let Some(message) = self.places.get(usize::from(place)) {
            // Several lists may become due together. The heap merges them into the order of the ids.
            self.due.push(Reverse((message.id, place)));
            place = message.next_waiting;
        }
    }

    /// Removes the due message with the smallest id. Returns its id, channel, and payload.
    pub(super) fn pop_due(&mut self) -> Option<(u64, ChannelId, Payload)> {
        let Reverse((id, place)) = self.due.pop()?;
        debug_assert!(
            self.places.get(usize::from(place)).is_some_and(|message| message.id == id),
            "message {id} is due, and not at {place}"
        );
        let message = self.places.get_mut(usize::from(place))?;
        // The entry stays until its index is used again. Only the payload is released.
        let payload = message.payload.take();
        let channel = message.channel;
        let bytes = charge(payload.as_ref().map_or(0, |payload| payload.len()));
        debug_assert!(bytes <= self.bytes, "message {id} was not charged");
        self.bytes = self.bytes.saturating_sub(bytes);
        self.free.push(place);
        Some((id, channel, payload))
    }

    /// Asserts what must hold between two calls. `count` is the number of stored messages according to the window, and
    /// `firsts` are the heads of its lists.
    pub(super) fn check(&self, count: usize, firsts: impl Iterator<Item = u16>) {
        debug_assert!(self.due.is_empty(), "{} messages are due, and not delivered", self.due.len());
        // Every stored message is in one list, or nothing would ever deliver it.
        let message_at = |place: u16| self.places.get(usize::from(place));
        let (mut listed_count, mut bytes) = (0_usize, 0_usize);
        for first in firsts {
            let mut next = message_at(first);
            while let Some(message) = next {
                listed_count = listed_count.saturating_add(1);
                debug_assert!(listed_count <= count, "a list of waiting messages has no end");
                let payload_bytes = message.payload.as_ref().map_or(0, |payload| payload.len());
                bytes = bytes.saturating_add(charge(payload_bytes));
                next = message_at(message.next_waiting);
            }
        }
        debug_assert_eq!(listed_count, count, "a message waits for nothing");
        debug_assert_eq!(self.bytes, bytes, "the bytes of waiting messages were counted wrong");
        debug_assert_eq!(
            self.places.len().saturating_sub(self.free.len()),
            count,
            "the places of waiting messages were counted wrong"
        );
    }
}

/// The memory of a message in bytes.
fn charge(payload_bytes: usize) -> usize {
    payload_bytes.saturating_add(ITEM_CHARGE_BYTES)
}
