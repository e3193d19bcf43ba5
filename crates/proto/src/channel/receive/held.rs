//! Messages that arrived before the messages that they must be delivered after, alone or in runs.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};

use drumfire_wire::{Bodies, ChannelId};

use super::{Contents, IdRange, ReceivedMessages};
use crate::convert::{saturated, to_usize};
use crate::limits::{ITEM_CHARGE_BYTES, MESSAGE_IDS_AHEAD};

// A node of the map is at least half full, so an entry takes at most twice its size.
const _: () =
    assert!(2 * size_of::<(u64, HeldRun)>() <= ITEM_CHARGE_BYTES, "an entry takes more than it is charged");

/// The bits of a key for the distance of the first id from the id that the messages wait for. It is at most
/// `MESSAGE_IDS_AHEAD`.
const DISTANCE_BITS: u32 = 15;
const DISTANCE_MASK: u64 = (1 << DISTANCE_BITS) - 1;

const _: () = assert!(MESSAGE_IDS_AHEAD <= DISTANCE_MASK, "a distance does not fit its bits");

/// The number of due messages and runs whose memory is kept for the next delivery.
const DUE_KEPT: usize = 64;

/// The stored messages of one connection.
#[derive(Debug, Default)]
pub(super) struct HeldMessages {
    /// The stored messages by the [`key`] of the id that they wait for and their first id. The messages that wait for a
    /// run are therefore a range.
    waiting: BTreeMap<u64, HeldRun>,
    /// The charges of all messages in `waiting` and `due`, in bytes.
    bytes: usize,
    /// Messages that became due together, smallest id first. Empty between calls.
    due: BinaryHeap<DueRun>,
}

/// Consecutive messages that wait for another one.
#[derive(Debug)]
struct HeldRun {
    /// The channel of the messages.
    channel: ChannelId,
    /// The number of messages.
    count: u16,
    /// The meaning of `bytes`.
    kind: HeldKind,
    /// The bytes of a run that are not payloads. With a `u16`, an entry has 32 bytes. A half-full node of the map
    /// then takes no more than its messages are charged.
    length_bytes: u16,
    /// The payload of a message, or the bodies of a run. Empty for a Skip.
    bytes: Box<[u8]>,
}

/// The frame that a [`HeldRun`] came in.
#[derive(Debug, Clone, Copy)]
enum HeldKind {
    Message,
    Run,
    Skipped,
}

/// Messages whose predecessor was delivered, ordered so that the smallest id is the greatest.
#[derive(Debug)]
pub(super) struct DueRun {
    first: u64,
    run: HeldRun,
}

impl HeldRun {
    fn contents(&self) -> Contents<'_> {
        let Self { count, kind, length_bytes, ref bytes, .. } = *self;
        match kind {
            HeldKind::Message => Contents::Message(bytes),
            HeldKind::Run => {
                let payload_bytes = bytes.len().saturating_sub(length_bytes.into());
                Contents::Run(Bodies { bytes, count, payload_bytes: saturated(payload_bytes, u32::MAX) })
            }
            HeldKind::Skipped => Contents::Skipped(count),
        }
    }
}

impl DueRun {
    pub(super) fn ids(&self) -> IdRange {
        IdRange::new(self.first, self.run.count)
    }

    pub(super) fn channel(&self) -> ChannelId {
        self.run.channel
    }

    pub(super) fn contents(&self) -> Contents<'_> {
        self.run.contents()
    }
}

impl PartialEq for DueRun {
    fn eq(&self, other: &Self) -> bool {
        self.first == other.first
    }
}

impl Eq for DueRun {}

impl PartialOrd for DueRun {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DueRun {
    fn cmp(&self, other: &Self) -> Ordering {
        other.first.cmp(&self.first)
    }
}

impl HeldMessages {
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Stores messages until `after` was delivered.
    pub(super) fn put(&mut self, received: &ReceivedMessages<'_>, after: u64) {
        let ReceivedMessages { id, channel, contents, .. } = *received;
        let (kind, length_bytes, bytes): (_, _, Box<[u8]>) = match contents {
            Contents::Message(payload) => (HeldKind::Message, 0, payload.into()),
            Contents::Run(bodies) => {
                // At most 512 lengths of at most three bytes each.
                let length_bytes = bodies.bytes.len().saturating_sub(to_usize(bodies.payload_bytes));
                debug_assert!(
                    u16::try_from(length_bytes).is_ok(),
                    "a run with {length_bytes} bytes of lengths"
                );
                (HeldKind::Run, saturated(length_bytes, u16::MAX), bodies.bytes.into())
            }
            Contents::Skipped(_) => (HeldKind::Skipped, 0, Box::default()),
        };
        self.bytes = self.bytes.saturating_add(contents.charge());
        let run = HeldRun { channel, count: contents.count(), kind, length_bytes, bytes };
        let replaced = self.waiting.insert(key(after, id.0.saturating_sub(after)), run);
        debug_assert!(replaced.is_none(), "message {} is stored twice", id.0);
    }

    /// Makes the messages due that wait for any of `ids`.
    pub(super) fn make_due(&mut self, ids: IdRange) {
        let range = key(ids.first, 0)..=key(ids.last, DISTANCE_MASK);
        // Messages that wait for several others may become due together. The heap merges them into the order of the
        // ids.
        let due = self.waiting.extract_if(range, |_, _| true);
        self.due.extend(due.map(|(key, run)| DueRun { first: ids_of(key).1, run }));
    }

    /// Removes the due messages with the smallest id.
    pub(super) fn pop_due(&mut self) -> Option<DueRun> {
        let due = self.due.pop()?;
        let bytes = due.contents().charge();
        debug_assert!(bytes <= self.bytes, "message {} was not charged", due.first);
        self.bytes = self.bytes.saturating_sub(bytes);
        Some(due)
    }

    /// Releases the memory of many due messages, after all of them were delivered.
    #[inline]
    pub(super) fn shrink_due(&mut self) {
        debug_assert!(self.due.is_empty(), "{} due messages were not delivered", self.due.len());
        // No limit counts this memory. A peer whose messages all wait for one could make it large with a single packet.
        if self.due.capacity() > DUE_KEPT {
            self.due.shrink_to(DUE_KEPT);
        }
    }

    /// The number of stored messages and runs.
    pub(super) fn run_count(&self) -> usize {
        self.waiting.len()
    }

    /// Asserts what must hold between two calls. `count` is the number of stored messages according to the window, and
    /// `is_delivered` is whether a message was delivered.
    pub(super) fn assert_invariants(&self, count: usize, is_delivered: impl Fn(u64) -> bool) {
        debug_assert!(self.due.is_empty(), "{} messages are due, and not delivered", self.due.len());
        debug_assert!(
            self.due.capacity() <= DUE_KEPT,
            "memory is kept for {} due messages",
            self.due.capacity()
        );
        let (mut held_count, mut bytes) = (0_usize, 0_usize);
        for (&key, run) in &self.waiting {
            let (after, first) = ids_of(key);
            debug_assert!(
                after < first && !is_delivered(after),
                "message {first} waits for {after}, which is not an undelivered predecessor"
            );
            held_count = held_count.saturating_add(run.count.into());
            bytes = bytes.saturating_add(run.contents().charge());
        }
        debug_assert_eq!(held_count, count, "the window and the stored messages differ");
        debug_assert_eq!(self.bytes, bytes, "the bytes of waiting messages were counted wrong");
    }
}

/// Returns the key of messages that wait for `after`, and whose first id is `distance` greater. One integer makes
/// comparisons cheap. Ids grow by one per message, so that none gets near the 49 bits that are left for it.
fn key(after: u64, distance: u64) -> u64 {
    debug_assert!(
        after >> (u64::BITS - DISTANCE_BITS) == 0 && distance <= DISTANCE_MASK,
        "{after}, {distance}"
    );
    after << DISTANCE_BITS | distance
}

/// Returns the id that messages with this key wait for, and their first id.
fn ids_of(key: u64) -> (u64, u64) {
    let after = key >> DISTANCE_BITS;
    (after, after.saturating_add(key & DISTANCE_MASK))
}
