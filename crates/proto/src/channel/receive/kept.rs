//! Messages that came before those they must be delivered after.
//!
//! Each has a place, and hangs in the list of those that wait for the same message; which list that is, the ids of the
//! window say.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use drumfire_wire::ChannelId;

use super::Arrival;
use crate::limits::ITEM_CHARGE_BYTES;

/// Ends a list of places.
pub(super) const NONE: u16 = u16::MAX;

/// Its bytes; `None` for one that will not come.
type Payload = Option<Box<[u8]>>;

/// The messages of one connection that wait for others.
#[derive(Debug, Default)]
pub(super) struct Kept {
    places: Vec<Message>,
    /// Places that are free.
    free: Vec<u16>,
    bytes: usize,
    /// Messages that became due together, smallest id first; empty between calls.
    due: BinaryHeap<Reverse<(u64, u16)>>,
}

/// A message that waits for another, in a list with the others that wait for the same.
#[derive(Debug)]
struct Message {
    id: u64,
    channel: ChannelId,
    payload: Payload,
    next_waiting: u16,
}

impl Kept {
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps a message at the head of the list that began at `next_waiting`; answers its place.
    pub(super) fn put(&mut self, arrival: &Arrival<'_>, next_waiting: u16) -> u16 {
        self.bytes = self.bytes.saturating_add(charge(arrival.payload.map_or(0, <[u8]>::len)));
        let message = Message {
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
        // There are at most as many as the window has ids, far fewer than places have numbers.
        let place = u16::try_from(self.places.len()).unwrap_or(NONE);
        self.places.push(message);
        place
    }

    /// Makes the whole list that begins at this place due.
    pub(super) fn make_due(&mut self, first: u16) {
        let mut place = first;
        while let Some(message) = self.places.get(usize::from(place)) {
            self.due.push(Reverse((message.id, place)));
            place = message.next_waiting;
        }
    }

    /// Takes out the due message with the smallest id: its id, channel and payload.
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
