//! Values by key, of which the newest arrives: what is under way of each, and which of them waits.
//!
//! A value that a newer one of its key takes the place of is forgotten at once, wherever it is; a lost one that is still
//! the newest waits again. In which order they are sent is not decided here.

use std::collections::HashMap;

use drumfire_wire::{ChannelId, MessageId};

use super::waiting::Waiting;
use crate::channel::Priority;
use crate::ids::FoldBuild;

/// The first id in the books of `loss` that is a value's; reliable messages never come so far, receipts begin above.
const FIRST_ID: u64 = 1 << 61;

/// All keys of one connection that have a value which was not acknowledged.
#[derive(Debug)]
pub(super) struct Latest {
    values: HashMap<Key, Value, FoldBuild>,
    /// Whose value has this number in the books.
    booked: HashMap<u64, Key, FoldBuild>,
    next_number: u64,
}

type Key = (ChannelId, u64);

/// Where the newest value of a key is.
#[derive(Debug)]
enum Value {
    /// At this place in its line.
    Waiting(u32),
    UnderWay(UnderWay),
}

#[derive(Debug)]
struct UnderWay {
    waiting: Waiting,
    priority: Priority,
    number: u64,
    packet: u64,
}

/// What there was of a key before a newer value came.
#[derive(Debug)]
pub(super) enum Older {
    Nothing,
    /// It waits at this place, which the newer one may have.
    Waits(u32),
    /// It was under way, and is forgotten.
    Forgotten(Waiting),
}

/// Whether this id in the books of `loss` is a value's.
pub(super) const fn is_value(id: MessageId) -> bool {
    id.0 >= FIRST_ID && id.0 < FIRST_ID << 1
}

impl Latest {
    pub(super) fn new(hash: FoldBuild) -> Self {
        Self { values: HashMap::with_hasher(hash), booked: HashMap::with_hasher(hash), next_number: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// A newer value comes.
    pub(super) fn supersede(&mut self, key: Key) -> Older {
        match self.values.get(&key) {
            None => return Older::Nothing,
            Some(Value::Waiting(place)) => return Older::Waits(*place),
            Some(Value::UnderWay(_)) => {}
        }
        let Some(Value::UnderWay(older)) = self.values.remove(&key) else { return Older::Nothing };
        self.booked.remove(&older.number);
        Older::Forgotten(older.waiting)
    }

    /// The newest value stands at this place.
    pub(super) fn on_waiting(&mut self, key: Key, place: u32) {
        self.values.insert(key, Value::Waiting(place));
    }

    /// The newest value was given up before it was sent.
    pub(super) fn on_given_up(&mut self, key: Key) {
        self.values.remove(&key);
    }

    /// The newest value went into a packet; answers the id by which its fate is told.
    pub(super) fn on_sent(
        &mut self,
        key: Key,
        waiting: Waiting,
        priority: Priority,
        packet: u64,
    ) -> MessageId {
        let number = self.next_number;
        // Counted again from the beginning long after everything is settled.
        self.next_number = number.wrapping_add(1) % FIRST_ID;
        self.values.insert(key, Value::UnderWay(UnderWay { waiting, priority, number, packet }));
        self.booked.insert(number, key);
        MessageId(FIRST_ID.saturating_add(number))
    }

    /// Takes a value out whose packet arrived or is lost, or which is to be sent again anyway: then without `packet`.
    pub(super) fn take(&mut self, id: MessageId, packet: Option<u64>) -> Option<(Key, Waiting, Priority)> {
        let number = id.0.checked_sub(FIRST_ID)?;
        let key = *self.booked.get(&number)?;
        let Some(Value::UnderWay(under_way)) = self.values.get(&key) else { return None };
        if under_way.number != number || packet.is_some_and(|packet| packet != under_way.packet) {
            return None;
        }
        self.booked.remove(&number);
        let Some(Value::UnderWay(under_way)) = self.values.remove(&key) else { return None };
        Some((key, under_way.waiting, under_way.priority))
    }
}
