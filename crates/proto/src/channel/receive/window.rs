//! The ids above the floor that were received, as bits, and the messages that wait for earlier ones.

use std::collections::VecDeque;

use drumfire_wire::ChannelId;

use super::held::HeldMessages;
use super::{Contents, IdRange, ReceivedMessages};
use crate::convert::{saturated, to_usize};
use crate::limits::MESSAGE_IDS_AHEAD;

/// The ids of one word.
const WORD_IDS: u64 = 64;

/// The maximum number of words of the window: those of the floor and of all ids that can be ahead of it.
const WORDS_MAX: usize = (MESSAGE_IDS_AHEAD / WORD_IDS) as usize + 1;

/// The number of stored messages and runs up to which `assert_invariants` examines all of them.
const CHECKED_RUNS_MAX: usize = 64;

/// The state of the ids from the floor on. Each id has one bit in `received` and one in `waiting`.
#[derive(Debug, Default)]
pub(super) struct ReceiveWindow {
    /// The word of the floor, and all words up to the largest received id. Empty while no id above the floor was
    /// received. Bits of ids below the floor have no meaning.
    words: VecDeque<Word>,
    /// Messages that wait for earlier ones.
    pub(super) held: HeldMessages,
}

/// The state of 64 consecutive ids, of which the first is a multiple of 64.
#[derive(Debug, Clone, Copy, Default)]
struct Word {
    /// The messages, or their Skips, that have arrived.
    received: u64,
    /// The messages among them that wait for another one.
    waiting: u64,
}

impl ReceiveWindow {
    /// Whether no id above the floor was received.
    pub(super) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Bytes in use for ids and for stored messages, including charges.
    pub(super) fn used_bytes(&self) -> usize {
        self.held.bytes().saturating_add(self.words.len().saturating_mul(size_of::<Word>()))
    }

    /// Whether the message `id`, which is not below `floor`, was received.
    pub(super) fn is_received(&self, floor: u64, id: u64) -> bool {
        // The window has no words beyond the largest received id, so a missing word is an id that has not arrived.
        self.word(floor, id).is_some_and(|word| word.received & bit(id) != 0)
    }

    /// Whether any message of `ids`, which are not below `floor`, was received.
    pub(super) fn has_any(&self, floor: u64, ids: IdRange) -> bool {
        masks(ids).any(|(id, mask)| self.word(floor, id).is_some_and(|word| word.received & mask != 0))
    }

    /// Accepts messages that were not received, and whose ids are in the window. Returns the new floor.
    pub(super) fn accept(
        &mut self,
        floor: u64,
        received: &ReceivedMessages<'_>,
        mut deliver: impl FnMut(ChannelId, Contents<'_>),
    ) -> u64 {
        let ids = received.ids();
        debug_assert!(
            !self.has_any(floor, ids) && ids.first >= floor,
            "{ids:?} was accepted twice, above floor {floor}"
        );
        // Only the message before it in its channel can hold a message back. The sender names that message, so nothing
        // needs to be remembered per channel, and a gap in one channel does not delay another.
        match received.after {
            Some(after) if !self.is_delivered(floor, after.0) => {
                self.mark_received(floor, ids, true);
                self.held.put(received, after.0);
            }
            _ => {
                self.mark_received(floor, ids, false);
                deliver(received.channel, received.contents);
                self.deliver_waiting(floor, ids, deliver);
            }
        }
        self.raise_floor(floor)
    }

    /// Delivers all messages that waited for one of `ids`, which were just delivered, and the messages that waited for
    /// those.
    fn deliver_waiting(
        &mut self,
        floor: u64,
        ids: IdRange,
        mut deliver: impl FnMut(ChannelId, Contents<'_>),
    ) {
        // The search costs more than all else for a message, and mostly nothing waits.
        if self.held.run_count() == 0 {
            return;
        }
        // By ascending id, as the sender queued the messages.
        self.held.make_due(ids);
        while let Some(due) = self.held.pop_due() {
            deliver(due.channel(), due.contents());
            for (id, mask) in masks(due.ids()) {
                if let Some(word) = self.word_mut(floor, id) {
                    debug_assert_eq!(word.waiting & mask, mask, "{:?} was delivered twice", due.ids());
                    word.waiting &= !mask;
                }
            }
            self.held.make_due(due.ids());
        }
        self.held.shrink_due();
    }

    /// Raises the floor past the messages that were delivered, and returns it.
    fn raise_floor(&mut self, mut floor: u64) -> u64 {
        while let Some(word) = self.words.front() {
            let delivered = word.received & !word.waiting;
            // Zeros move in from the left, so the run ends at the end of the word.
            let count = delivered.wrapping_shr(place(floor)).trailing_ones();
            floor = floor.saturating_add(count.into());
            if count == 0 || place(floor) != 0 {
                break;
            }
            self.words.pop_front();
        }
        if let ([word], []) = self.words.as_slices()
            && word.received.wrapping_shr(place(floor)) == 0
        {
            self.words.clear();
        }
        floor
    }

    /// Whether the message `id` was delivered, or skipped in its turn.
    fn is_delivered(&self, floor: u64, id: u64) -> bool {
        id < floor || self.word(floor, id).is_some_and(|word| word.received & !word.waiting & bit(id) != 0)
    }

    /// Marks messages as received, and as waiting for another one if `is_waiting`.
    fn mark_received(&mut self, floor: u64, ids: IdRange, is_waiting: bool) {
        self.grow(floor, ids.last);
        for (id, mask) in masks(ids) {
            if let Some(word) = self.word_mut(floor, id) {
                word.received |= mask;
                word.waiting |= if is_waiting { mask } else { 0 };
            }
        }
    }

    /// Appends words up to that of `id`.
    fn grow(&mut self, floor: u64, id: u64) {
        let Some(wanted) = index(floor, id).map(|at| at.saturating_add(1)) else { return };
        debug_assert!(wanted <= WORDS_MAX, "an id {id} above floor {floor} was accepted");
        if wanted > self.words.len() {
            if wanted > self.words.capacity() {
                // The capacity is not charged to the connection, so it is limited to the ids that can be ahead.
                let capacity = wanted.saturating_mul(2).min(WORDS_MAX).max(wanted);
                self.words.reserve_exact(capacity.saturating_sub(self.words.len()));
            }
            self.words.resize(wanted, Word::default());
        }
    }

    /// Returns the word of `id`. `None` for an id below the first word or beyond the window.
    fn word(&self, floor: u64, id: u64) -> Option<&Word> {
        self.words.get(index(floor, id)?)
    }

    fn word_mut(&mut self, floor: u64, id: u64) -> Option<&mut Word> {
        self.words.get_mut(index(floor, id)?)
    }

    /// Asserts what must hold between two calls.
    pub(super) fn assert_invariants(&self, floor: u64) {
        debug_assert!(self.words.len() <= WORDS_MAX, "{} words of ids are ahead", self.words.len());
        debug_assert!(
            !self.is_received(floor, floor),
            "message {floor} was received, and the floor has not risen"
        );
        debug_assert!(
            self.words.back().is_none_or(|word| word.received != 0),
            "the window reaches beyond the largest received id"
        );
        let mut waiting_count = 0_usize;
        for (at, word) in self.words.iter().enumerate() {
            let below = if at == 0 { !u64::MAX.wrapping_shl(place(floor)) } else { 0 };
            debug_assert_eq!(word.waiting & !word.received, 0, "a message is stored that did not arrive");
            debug_assert_eq!(word.waiting & below, 0, "a message below the floor waits");
            waiting_count = waiting_count.saturating_add(to_usize(word.waiting.count_ones()));
        }
        // A walk through many messages would cost more than the packet after which it is made.
        if self.held.run_count() <= CHECKED_RUNS_MAX {
            self.held.assert_invariants(waiting_count, |id| self.is_delivered(floor, id));
        }
    }
}

/// Returns the index of the word of `id` in a window with this floor. `None` for an id before the first word.
fn index(floor: u64, id: u64) -> Option<usize> {
    let at = (id / WORD_IDS).checked_sub(floor / WORD_IDS)?;
    usize::try_from(at).ok()
}

/// Returns the place of `id` in its word.
fn place(id: u64) -> u32 {
    saturated(id % WORD_IDS, u32::MAX)
}

/// Returns the bit of `id` in its word.
fn bit(id: u64) -> u64 {
    1_u64.wrapping_shl(place(id))
}

/// Returns an id of each word that has some of `ids`, and the bits of those.
fn masks(ids: IdRange) -> impl Iterator<Item = (u64, u64)> {
    let IdRange { first, last } = ids;
    (first / WORD_IDS..=last / WORD_IDS).map(move |word| {
        let begin = first.max(word.saturating_mul(WORD_IDS));
        let end = last.min(begin | (WORD_IDS - 1));
        let from_begin = u64::MAX.wrapping_shl(place(begin));
        let up_to_end = u64::MAX.wrapping_shr(place(u64::MAX).saturating_sub(place(end)));
        (begin, from_begin & up_to_end)
    })
}
