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
    places: Vec<HeldMessage>,
    /// Indices that are free.
    free: Vec<u16>,
    bytes: usize,
    /// Messages that became due together, smallest id first. Empty between calls.
    due: BinaryHeap<Reverse<(u64, u16)>>,
}

/// A message that waits for another one, linked with the others that wait for the same.
#[derive(Debug)]
struct HeldMessage {
    id: u64,
    channel: ChannelId,
    payload: Payload,
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
        if let Some(place) = self.free.pop() {
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
        let mut place = first;
        while let Some(message) = self.places.get(usize::from(place)) {
            self.due.push(Reverse((message.id, place)));
            place = message.next_waiting;
        }
    }

    /// Removes the due message with the smallest id. Returns its id, channel, and payload.
    pub(super) fn pop_due(&mut self) -> Option<(u64, ChannelId, Payload)> {
        let Reverse((id, place)) = self.due.pop()?;
        let message = self.places.get_mut(usize::from(place))?;
        let payload = message.payload.take();
        let channel = message.channel;
        self.bytes = self.bytes.saturating_sub(charge(payload.as_ref().map_or(0, |payload| payload.len())));
        self.free.push(place);
        Some((id, channel, payload))
    }
}

fn charge(payload_bytes: usize) -> usize {
    payload_bytes.saturating_add(ITEM_CHARGE_BYTES)
}
