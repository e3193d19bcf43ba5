//! Values by key, of which the newest must arrive: the value in flight and the waiting value of each key.
//!
//! A value that a newer one of its key replaces is dropped immediately, wherever it is. A lost value that is still
//! the newest waits again. This module does not decide the order of sending.

use std::collections::HashMap;

use drumfire_wire::{ChannelId, MessageId};

use super::charge;
use super::free_list::{FreeList, NO_INDEX};
use super::segment::QueuedMessage;
use crate::channel::Priority;
use crate::convert::to_usize;
use crate::ids::KeyedBuildHasher;

/// The first fate id of a value. Reliable messages never reach it, and receipts begin above.
const FIRST_ID: u64 = 1 << 61;

/// The low bits of a fate id are the index of the value. The high bits count its transmissions.
const INDEX_BITS: u32 = 32;

/// The count of transmissions wraps long after the fate of the first one is known.
const TRANSMISSIONS: u32 = 1 << 29;

/// All keys of one connection with a value that is not acknowledged.
#[derive(Debug)]
pub(super) struct LatestValues {
    /// The index of the newest value of each key.
    indices: HashMap<Key, u32, KeyedBuildHasher>,
    /// The values by index, in no order. The key table has small entries this way, and a value keeps its index until its fate is known.
    values: Vec<ValueEntry>,
    /// The indices of `values` that are free.
    free: FreeList,
}

type Key = (ChannelId, u64);

/// The value of a key, or a free entry.
#[derive(Debug)]
struct ValueEntry {
    /// The key. Without meaning for a free entry.
    key: Key,
    /// The place of the value.
    value: Value,
    /// The number of transmissions from this entry. An id with an older number belongs to an earlier value.
    transmission: u32,
}

/// The place of the newest value of a key.
#[derive(Debug)]
enum Value {
    /// The entry is free, and links to the next free one.
    None(u32),
    /// The value waits at this index of the message slab.
    Waiting(u32),
    /// The value was sent, and its fate is not known.
    InFlight(InFlightValue),
}

/// A value that was sent.
#[derive(Debug)]
struct InFlightValue {
    /// The value, as it waited.
    waiting: QueuedMessage,
    /// The priority of its queue, to which it returns after a loss.
    priority: Priority,
    /// The packet with the value. The fates of other packets are ignored.
    packet: u64,
}

/// The state of a key before a newer value arrived.
#[derive(Debug)]
pub(super) enum ReplacedValue {
    /// The key has no value.
    None,
    /// The older value waits at this index, where the newer one may replace it.
    Waiting(u32),
    /// The older value was in flight, and is dropped.
    InFlight(QueuedMessage),
}

/// Whether this fate id belongs to a value.
pub(super) const fn is_value(id: MessageId) -> bool {
    id.0 >= FIRST_ID && id.0 < FIRST_ID << 1
}

impl LatestValues {
    pub(super) fn new(hash: KeyedBuildHasher) -> Self {
        Self { indices: HashMap::with_hasher(hash), values: Vec::new(), free: FreeList::new() }
    }

    /// Whether no key has a value.
    pub(super) fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// Prepares for a newer value, which the caller must then queue.
    pub(super) fn supersede(&mut self, key: Key) -> ReplacedValue {
        // The caller queues the newer value in the same step, so no key is without a value between two steps.
        let Some(slot) = self.indices.get(&key).and_then(|index| self.values.get_mut(to_usize(*index)))
        else {
            return ReplacedValue::None;
        };
        match std::mem::replace(&mut slot.value, Value::Waiting(NO_INDEX)) {
            Value::Waiting(index) => {
                slot.value = Value::Waiting(index);
                ReplacedValue::Waiting(index)
            }
            // The older value may still arrive. The fate id of its packet belongs to no value any more.
            Value::InFlight(older) => ReplacedValue::InFlight(older.waiting),
            Value::None(_) => {
                debug_assert!(false, "{key:?} leads to a free entry");
                ReplacedValue::None
            }
        }
    }

    /// The charge of the value that [`Self::supersede`] would replace. `charge_at` returns that of a value that waits at
    /// an index.
    pub(super) fn replaced_bytes(&self, key: Key, charge_at: impl FnOnce(u32) -> usize) -> usize {
        let slot = self.indices.get(&key).and_then(|index| self.values.get(to_usize(*index)));
        match slot.map(|slot| &slot.value) {
            Some(Value::Waiting(index)) => charge_at(*index),
            Some(Value::InFlight(older)) => charge(older.waiting.payload.len()),
            Some(Value::None(_)) | None => 0,
        }
    }

    /// Registers that the newest value waits at this index.
    pub(super) fn on_queued(&mut self, key: Key, index: u32) {
        let slot = self.index_of(key);
        debug_assert!(to_usize(slot) < self.values.len(), "{key:?} has no entry");
        if let Some(slot) = self.values.get_mut(to_usize(slot)) {
            slot.value = Value::Waiting(index);
        }
    }

    /// Forgets a key: its newest value arrived, or was given up before it was sent.
    pub(super) fn forget(&mut self, key: Key) {
        debug_assert!(self.indices.contains_key(&key), "{key:?} has no value");
        if let Some(index) = self.indices.remove(&key)
            && let Some(slot) = self.values.get_mut(to_usize(index))
        {
            // The count of transmissions stays in the free entry, see `index_of`.
            slot.value = Value::None(self.free.release(index));
        }
    }

    /// Registers the newest value in a packet. Returns the id by which its fate is reported.
    pub(super) fn on_sent(
        &mut self,
        key: Key,
        waiting: QueuedMessage,
        priority: Priority,
        packet: u64,
    ) -> MessageId {
        let index = self.index_of(key);
        let mut number = u64::from(index);
        debug_assert!(to_usize(index) < self.values.len(), "{key:?} has no entry");
        if let Some(slot) = self.values.get_mut(to_usize(index)) {
            slot.value = Value::InFlight(InFlightValue { waiting, priority, packet });
            // Another number for each transmission, because the entry may soon hold another value.
            slot.transmission = slot.transmission.wrapping_add(1) % TRANSMISSIONS;
            number |= u64::from(slot.transmission) << INDEX_BITS;
        }
        MessageId(FIRST_ID.saturating_add(number))
    }

    /// Removes a value whose packet arrived or was lost. Without `packet`, the value is sent again in any case. The
    /// caller must give it up or queue it again.
    pub(super) fn take(
        &mut self,
        id: MessageId,
        packet: Option<u64>,
    ) -> Option<(Key, QueuedMessage, Priority)> {
        let number = id.0.checked_sub(FIRST_ID)?;
        let index = usize::try_from(number & u64::from(u32::MAX)).ok()?;
        let slot = self.values.get_mut(index)?;
        let Value::InFlight(in_flight) = &slot.value else { return None };
        // Only the last transmission counts: an earlier one belongs to an older value, or was already repeated.
        let is_older = u64::from(slot.transmission) != number >> INDEX_BITS;
        if is_older || packet.is_some_and(|packet| packet != in_flight.packet) {
            return None;
        }
        // The key keeps its entry. The caller queues the value again, or forgets the key.
        let Value::InFlight(in_flight) = std::mem::replace(&mut slot.value, Value::Waiting(NO_INDEX)) else {
            return None;
        };
        Some((slot.key, in_flight.waiting, in_flight.priority))
    }

    /// Returns the index for a key, and allocates one if necessary.
    fn index_of(&mut self, key: Key) -> u32 {
        if let Some(index) = self.indices.get(&key) {
            return *index;
        }
        // A free entry keeps its count of transmissions, so that an id of an earlier value does not name the new one.
        let index = self.free.next();
        match self.values.get_mut(to_usize(index)) {
            Some(slot) => {
                debug_assert!(matches!(slot.value, Value::None(_)), "the entry {index} is in use");
                self.free.take(if let Value::None(link) = slot.value { link } else { NO_INDEX });
                slot.key = key;
            }
            None => {
                self.free.take_new();
                self.values.push(ValueEntry { key, value: Value::None(NO_INDEX), transmission: 0 });
            }
        }
        self.indices.insert(key, index);
        index
    }

    /// Asserts what must hold between two calls. Returns the number of waiting values, and the charges of those in
    /// flight in bytes.
    pub(super) fn assert_invariants(&self) -> (usize, usize) {
        // Each key has one entry, and each entry that is in use belongs to a key.
        debug_assert_eq!(
            to_usize(self.free.used_count()),
            self.indices.len(),
            "the values were counted wrong"
        );
        let (mut waiting_count, mut bytes) = (0_usize, 0_usize);
        for (key, index) in &self.indices {
            let slot = self.values.get(to_usize(*index)).filter(|slot| slot.key == *key);
            match slot.map(|slot| &slot.value) {
                Some(Value::Waiting(index)) => {
                    debug_assert_ne!(
                        *index, NO_INDEX,
                        "the value of {key:?} is neither queued nor in flight"
                    );
                    waiting_count = waiting_count.saturating_add(1);
                }
                Some(Value::InFlight(in_flight)) => {
                    bytes = bytes.saturating_add(charge(in_flight.waiting.payload.len()));
                }
                Some(Value::None(_)) | None => debug_assert!(false, "{key:?} has no value"),
            }
        }
        (waiting_count, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Mode;
    use crate::channel::send::segment::ExtraFields;
    use crate::time::Moment;
    use bytes::Bytes;

    fn waiting() -> QueuedMessage {
        QueuedMessage {
            channel: ChannelId(0),
            mode: Mode::ReliableLatest,
            payload: Bytes::new(),
            queued_at: Moment::ORIGIN,
            extras: ExtraFields::NONE,
        }
    }

    #[test]
    fn the_fate_of_an_old_transmission_does_not_affect_a_new_key() {
        let mut latest = LatestValues::new(KeyedBuildHasher::new(7));
        let [first, second] = [1, 2].map(|key| (ChannelId(0), key));
        let older = latest.on_sent(first, waiting(), Priority::default(), 10);
        assert!(latest.take(older, Some(10)).is_some_and(|(key, ..)| key == first));
        latest.forget(first);
        let newer = latest.on_sent(second, waiting(), Priority::default(), 11);
        assert_eq!(latest.values.len(), 1, "the second has the place of the first");
        assert!(latest.take(older, None).is_none());
        assert!(latest.take(newer, Some(10)).is_none(), "another packet");
        assert!(latest.take(newer, Some(11)).is_some_and(|(key, ..)| key == second));
        latest.forget(second);
        assert!(latest.is_empty());
    }
}
