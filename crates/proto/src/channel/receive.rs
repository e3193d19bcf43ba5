//! Received messages. A reliable message is accepted once, and kept until all messages before it were delivered. A
//! sequenced message is never delivered after a newer one.
//!
//! Received ids are stored as a floor and a window above it (PROTOCOL 8.2, "Message ids"). A message that is due is
//! delivered immediately and not stored. Packets, acks, and the application's queue are in other modules.

mod kept;
mod latest;
mod pieces;
mod sequenced;

use std::collections::VecDeque;
use std::mem::{Discriminant, discriminant};

use drumfire_wire::{ChannelId, Delivery, Fragment, MessageId};

use self::kept::{HeldMessages, NONE};
use self::latest::LatestKeys;
use self::pieces::Pieces;
use self::sequenced::SequencedChannels;
use super::credit::ReceiveCredit;
use crate::convert::to_usize;
use crate::ids::FoldBuild;
use crate::limits::{ITEM_CHARGE_BYTES, MESSAGE_IDS_AHEAD};
use crate::time::Moment;

pub(crate) use self::pieces::FragmentCheck;

/// The charge for an id of the window, in bytes.
const SLOT_CHARGE_BYTES: usize = size_of::<WindowSlot>();

/// The received reliable messages of one connection.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    /// The smallest id that is not yet received, or whose message waits for another one.
    floor: u64,
    /// The ids from the floor on. Boxed, because it is empty while messages arrive in order.
    ahead: Option<Box<ReceiveWindow>>,
    /// The newest message of each sequenced channel, and the newest value of each key.
    newest: SequencedChannels,
    /// Messages of which some fragments are missing. Boxed, because most connections use only short messages.
    pieces: Option<Box<Pieces>>,
    /// The credit that the peer may still spend.
    pub(crate) credit: ReceiveCredit,
}

/// The state of the ids from the floor on.
#[derive(Debug, Default)]
struct ReceiveWindow {
    /// One slot for each id from the floor up to the largest received one.
    window: VecDeque<WindowSlot>,
    /// Messages that wait for earlier ones.
    kept: HeldMessages,
}

/// The state of one id.
#[derive(Debug, Clone, Copy)]
struct WindowSlot {
    /// The message, or its Skip, has arrived.
    is_received: bool,
    /// The index in `kept` while the message waits for another one, and otherwise `NONE`.
    kept: u16,
    /// The index in `kept` of the first of the messages that wait for this one, or `NONE`.
    first_waiting: u16,
}

/// A reliable message from a packet, or its Skip.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival<'a> {
    /// The id of the message.
    pub(crate) id: MessageId,
    /// The message that must be delivered before it, with a smaller id. `None` when the message is due immediately.
    pub(crate) after: Option<MessageId>,
    /// The channel of the message.
    pub(crate) channel: ChannelId,
    /// `None` for a Skip.
    pub(crate) payload: Option<&'a [u8]>,
}

/// The slots of the window: the lowest missing id, and all ids that can be ahead of it.
#[expect(clippy::cast_possible_truncation, reason = "4,096 fits every usize")]
const WINDOW_SLOTS_MAX: usize = MESSAGE_IDS_AHEAD as usize + 1;

/// The number of slots up to which `check` examines all of them.
const CHECKED_SLOTS_MAX: usize = 512;

/// The properties that all frames about a reliable message share: its fragments, the whole message, and its Skip.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outline {
    /// The channel of the message.
    pub(crate) channel: ChannelId,
    /// The delivery mode. `None` in a Skip, which does not carry the mode.
    pub(crate) mode: Option<Discriminant<Delivery>>,
    /// The length of the whole message.
    pub(crate) total_bytes: u32,
}

impl Outline {
    fn of(fragment: &Fragment<'_>) -> Self {
        Self {
            channel: fragment.piece.channel,
            mode: Some(discriminant(&fragment.piece.delivery)),
            total_bytes: fragment.total_bytes,
        }
    }

    /// Returns whether two frames can be about one message.
    fn agrees_with(&self, other: &Self) -> bool {
        let is_same_mode = self.mode.zip(other.mode).is_none_or(|(one, other)| one == other);
        self.channel == other.channel && self.total_bytes == other.total_bytes && is_same_mode
    }
}

impl ReceiveQueue {
    /// Creates an empty queue. `hash` is the keyed hash for tables whose keys the peer controls.
    pub(crate) fn new(hash: FoldBuild) -> Self {
        Self {
            floor: 0,
            ahead: None,
            newest: SequencedChannels::new(hash),
            pieces: None,
            credit: ReceiveCredit::default(),
        }
    }

    /// Whether an id is within the range that a receiver must track. An id beyond it violates the protocol.
    pub(crate) const fn is_in_reach(&self, id: MessageId) -> bool {
        id.0 <= self.floor.saturating_add(MESSAGE_IDS_AHEAD)
    }

    /// The smallest id that was not received.
    #[cfg(test)]
    pub(crate) const fn floor(&self) -> MessageId {
        MessageId(self.floor)
    }

    /// Bytes in use, including charges.
    pub(crate) fn used_bytes(&self) -> usize {
        let ahead = self.ahead.as_ref().map_or(0, |ahead| {
            ahead.kept.bytes().saturating_add(ahead.window.len().saturating_mul(SLOT_CHARGE_BYTES))
        });
        // Memory is charged for what the peer can cause: payloads, slots of the window, keys, and declared lengths.
        let loose = self.pieces.as_ref().map_or(0, |pieces| pieces.loose_bytes());
        let pieces = self.pieces.as_ref().map_or(0, |pieces| pieces.reliable_bytes());
        ahead
            .saturating_add(self.newest.keys().map_or(0, LatestKeys::used_bytes))
            .saturating_add(loose)
            .saturating_add(pieces)
    }

    /// Charges of reliable messages that wait for earlier ones or for their fragments.
    pub(crate) fn held_bytes(&self) -> usize {
        let pieces = self.pieces.as_ref().map_or(0, |pieces| pieces.reliable_bytes());
        self.kept_bytes().saturating_add(pieces)
    }

    /// Validates a fragment of the reliable message `id`, as part of the validation of a packet.
    pub(crate) fn survey_piece(&mut self, id: MessageId, fragment: &Fragment<'_>) -> FragmentCheck {
        if self.is_received(id) { FragmentCheck::Fits } else { self.pieces().survey(id, fragment) }
    }

    /// Validates a fragment of an unreliable message, as part of the validation of a packet. Returns the charge for
    /// its message, or `None` when the fragment is dropped.
    pub(crate) fn survey_loose_piece(&mut self, fragment: &Fragment<'_>) -> Option<usize> {
        self.pieces().survey_loose(fragment)
    }

    /// Drops the oldest incomplete unreliable message if it began before packet `before`. Returns whether it did.
    pub(crate) fn forget_oldest_loose(&mut self, before: u64) -> bool {
        self.pieces.as_mut().is_some_and(|pieces| pieces.forget_oldest_loose(before))
    }

    /// Returns whether the whole message `id`, or its Skip, is consistent with its fragments. Fragments are charged
    /// by the declared length, so a longer message would hold memory that was not charged.
    #[inline]
    pub(crate) fn agrees_with_pieces(&self, id: MessageId, outline: &Outline) -> bool {
        self.pieces.as_ref().is_none_or(|pieces| pieces.agrees_with(id, outline))
    }

    /// Ends the validation of a packet.
    #[inline]
    pub(crate) fn end_survey(&mut self) {
        if let Some(pieces) = &mut self.pieces {
            pieces.end_survey();
        }
    }

    fn pieces(&mut self) -> &mut Pieces {
        self.pieces.get_or_insert_with(|| Box::new(Pieces::new()))
    }

    /// Whether a fragment of an unreliable message is consistent with the received ones.
    pub(crate) fn takes_loose_piece(&self, fragment: &Fragment<'_>) -> bool {
        self.pieces.as_ref().is_none_or(|pieces| pieces.takes_loose(fragment))
    }

    /// Returns the charge for a fragment of an unreliable message at present.
    pub(crate) fn loose_charge(&self, fragment: &Fragment<'_>) -> usize {
        match &self.pieces {
            Some(pieces) => pieces.loose_charge(fragment),
            None => Pieces::new().loose_charge(fragment),
        }
    }

    /// Accepts a consistent fragment of an unreliable message. Returns the message when it is complete.
    pub(crate) fn accept_loose_piece(&mut self, fragment: &Fragment<'_>) -> Option<Vec<u8>> {
        self.pieces().put_loose(fragment)
    }

    /// Accepts a validated fragment of a reliable message. `after` is the message that must be delivered before it.
    /// `deliver` is called for every message that becomes due. Returns false when the peer had no credit for the
    /// message, and nothing has changed then.
    pub(crate) fn accept_piece(
        &mut self,
        id: MessageId,
        after: Option<MessageId>,
        fragment: &Fragment<'_>,
        deliver: impl FnMut(ChannelId, Option<&[u8]>),
    ) -> bool {
        if self.is_received(id) {
            return true;
        }
        // The first fragment spends the credit for the whole message, so a message that was begun can always be
        // completed.
        let total = to_usize(fragment.total_bytes);
        if !self.pieces().has(id) && !self.credit.take(total.saturating_add(ITEM_CHARGE_BYTES)) {
            return false;
        }
        if let Some(whole) = self.pieces().put(id, fragment) {
            let arrival = Arrival { id, after, channel: fragment.piece.channel, payload: Some(&whole) };
            self.accept(&arrival, deliver);
        }
        true
    }

    /// Counts fragments that contradict each other. Returns whether that happened too often.
    pub(crate) fn strike(&mut self) -> bool {
        self.pieces().strike()
    }

    /// Whether the message `id`, or its Skip, has arrived as a whole.
    fn is_received(&self, id: MessageId) -> bool {
        let Some(place) = id.0.checked_sub(self.floor) else { return true };
        let slot = usize::try_from(place).ok().and_then(|at| self.ahead.as_ref()?.window.get(at));
        slot.is_some_and(|slot| slot.is_received)
    }

    /// Whether the newest version of this key is remembered.
    pub(crate) fn is_known_key(&self, channel: ChannelId, key: u64) -> bool {
        self.newest.keys().is_some_and(|keys| keys.is_known(channel, key))
    }

    /// Whether packet `number` may bring values, `new_count` of them for unknown keys. `largest` is the largest
    /// packet number received. Without room for the new keys, all keys are forgotten.
    pub(crate) fn admits_values(&mut self, new_count: usize, number: u64, largest: u64) -> bool {
        // The table is grown before the packet is acknowledged, so that no value of it lacks room afterwards.
        if new_count > 0 && !self.newest.keys_mut().has_room(new_count) {
            self.forget_keys(largest);
        }
        if new_count > 0 {
            self.newest.keys_mut().reserve(new_count);
        }
        new_count == 0 || self.newest.is_after_floor(number)
    }

    /// Forgets one key.
    pub(crate) fn forget_key(&mut self, channel: ChannelId, key: u64, largest: u64) {
        self.newest.forget_key(channel, key, largest);
    }

    /// Forgets all keys. Returns whether there were any.
    pub(crate) fn forget_keys(&mut self, largest: u64) -> bool {
        self.newest.forget_keys(largest)
    }

    /// Whether a value from an admitted packet may be delivered, in which case the caller must deliver it.
    pub(crate) fn take_value(&mut self, now: Moment, channel: ChannelId, key: u64, version: u64) -> bool {
        self.newest.keys_mut().take(now, channel, key, version)
    }

    /// When a value last arrived, while any key is remembered.
    pub(crate) fn value_heard_at(&self) -> Option<Moment> {
        self.newest.keys()?.heard_at()
    }

    /// Bytes of the stored payloads, including charges: an upper bound of what one delivery can release.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.ahead.as_ref().map_or(0, |ahead| ahead.kept.bytes())
    }

    /// Accepts a message that is within reach. `deliver` is called for it and for all messages that waited for it, in
    /// order. Returns whether nothing of it arrived before: a fragmented message was charged with its first fragment,
    /// and is consistent with it.
    pub(crate) fn accept(
        &mut self,
        arrival: &Arrival<'_>,
        mut deliver: impl FnMut(ChannelId, Option<&[u8]>),
    ) -> bool {
        debug_assert!(
            self.is_in_reach(arrival.id),
            "the survey refuses {:?}, which is too far ahead",
            arrival.id
        );
        // A Skip or the whole message replaces fragments that arrived before. They were charged when they arrived.
        let was_begun = self.pieces.as_mut().is_some_and(|pieces| pieces.remove(arrival.id).is_some());
        // Without gaps nothing is stored: the floor alone describes what was received.
        let is_next = arrival.id.0 == self.floor && arrival.after.is_none_or(|after| after.0 < self.floor);
        if is_next && self.ahead.as_ref().is_none_or(|ahead| ahead.window.is_empty()) {
            deliver(arrival.channel, arrival.payload);
            self.floor = self.floor.saturating_add(1);
            return !was_begun;
        }
        let Some(place) = arrival.id.0.checked_sub(self.floor).filter(|place| *place <= MESSAGE_IDS_AHEAD)
        else {
            return false;
        };
        // Something is missing before this message, or the message was received before.
        let (is_new, passed) = self.ahead.get_or_insert_default().accept(self.floor, place, arrival, deliver);
        self.floor = self.floor.saturating_add(passed);
        is_new && !was_begun
    }

    /// Whether a message of a sequenced channel from packet `number` may be delivered, in which case the caller must
    /// deliver it. `largest` is the largest packet number received.
    pub(crate) fn take_sequenced(&mut self, channel: ChannelId, number: u64, largest: u64) -> bool {
        let may = self.newest.take(channel, number, largest);
        // Incomplete older messages of the channel can never be delivered now.
        if may && let Some(pieces) = &mut self.pieces {
            pieces.forget_older(channel, number);
        }
        may
    }

    /// Releases memory that an idle connection does not need, and the keys unless `keeps_keys`. `largest` is the
    /// largest packet number received.
    pub(crate) fn shrink(&mut self, largest: u64, keeps_keys: bool) {
        // Reliable messages that wait for others stay: the peer has their acks, and does not send them again.
        self.ahead.take_if(|ahead| ahead.window.is_empty());
        self.newest.shrink(largest, keeps_keys);
        self.forget_loose();
        self.pieces.take_if(|pieces| pieces.is_empty());
    }

    /// Asserts what must hold between two calls.
    pub(crate) fn check(&self) {
        if let Some(ahead) = &self.ahead {
            ahead.check(self.floor);
        }
        if let Some(pieces) = &self.pieces {
            pieces.check();
        }
        self.newest.check();
    }

    /// Drops incomplete unreliable messages.
    pub(crate) fn forget_loose(&mut self) {
        if let Some(pieces) = &mut self.pieces {
            pieces.forget_loose();
        }
    }
}

impl ReceiveWindow {
    /// Accepts the message whose id is `place` beyond `floor`. Returns whether it was new, and by how much the floor
    /// rises.
    fn accept(
        &mut self,
        floor: u64,
        place: u64,
        arrival: &Arrival<'_>,
        mut deliver: impl FnMut(ChannelId, Option<&[u8]>),
    ) -> (bool, u64) {
        debug_assert!(place <= MESSAGE_IDS_AHEAD, "an id {place} beyond the floor was accepted");
        let Some(slot) = self.slot_for(place) else { return (false, 0) };
        if slot.is_received {
            return (false, 0);
        }
        slot.is_received = true;
        // Only the message before it in its channel can hold a message back. The sender names that message, so nothing
        // needs to be remembered per channel, and a gap in one channel does not delay another.
        match arrival.after {
            Some(after) if !self.is_delivered(floor, after.0) => {
                self.keep(floor, arrival, after.0);
            }
            _ => {
                deliver(arrival.channel, arrival.payload);
                self.deliver_waiting(floor, arrival.id.0, deliver);
            }
        }
        let mut passed = 0_u64;
        // The floor rises past ids that were received and are not stored.
        while self.window.pop_front_if(|slot| slot.is_received && slot.kept == NONE).is_some() {
            passed = passed.saturating_add(1);
        }
        (true, passed)
    }

    /// Returns the slot at this index, and creates it if necessary.
    fn slot_for(&mut self, place: u64) -> Option<&mut WindowSlot> {
        // The window grows up to the largest id that arrived. Missing ids in between have slots too.
        let at = usize::try_from(place).ok()?;
        if at >= self.window.len() {
            let wanted = at.saturating_add(1);
            if wanted > self.window.capacity() {
                // Slots are not charged to the connection, so the capacity is limited to the ids that can be ahead.
                let capacity = wanted.saturating_mul(2).min(WINDOW_SLOTS_MAX).max(wanted);
                self.window.reserve_exact(capacity.saturating_sub(self.window.len()));
            }
            let empty = WindowSlot { is_received: false, kept: NONE, first_waiting: NONE };
            self.window.resize(wanted, empty);
        }
        self.window.get_mut(at)
    }

    /// Returns the slot of `id`. `None` for an id below the floor or beyond the window.
    fn existing(&mut self, floor: u64, id: u64) -> Option<&mut WindowSlot> {
        let at = usize::try_from(id.checked_sub(floor)?).ok()?;
        self.window.get_mut(at)
    }

    /// Whether the message `id` was delivered, or skipped in its turn.
    fn is_delivered(&mut self, floor: u64, id: u64) -> bool {
        id < floor || self.existing(floor, id).is_some_and(|slot| slot.is_received && slot.kept == NONE)
    }

    /// Stores a message until `after` was delivered.
    fn keep(&mut self, floor: u64, arrival: &Arrival<'_>, after: u64) {
        // The slot of `arrival` exists, and `after` is between the floor and it: the decoder refuses larger ids.
        // Without a slot, the message would be lost.
        debug_assert!(
            self.existing(floor, after).is_some() && self.existing(floor, arrival.id.0).is_some(),
            "{:?} waits for {after}, which has no slot",
            arrival.id
        );
        let Some(first_waiting) = self.existing(floor, after).map(|slot| slot.first_waiting) else { return };
        // The message becomes the head of the list. The order within the list does not matter, see `deliver_waiting`.
        let place = self.kept.put(arrival, first_waiting);
        if let Some(waits_for) = self.existing(floor, after) {
            waits_for.first_waiting = place;
        }
        if let Some(slot) = self.existing(floor, arrival.id.0) {
            slot.kept = place;
        }
    }

    /// Delivers all messages that waited for `id`, which was just delivered, and the messages that waited for those.
    fn deliver_waiting(&mut self, floor: u64, id: u64, mut deliver: impl FnMut(ChannelId, Option<&[u8]>)) {
        // By ascending id over all lists, as the sender queued the messages.
        self.make_due(floor, id);
        while let Some((id, channel, payload)) = self.kept.pop_due() {
            deliver(channel, payload.as_deref());
            if let Some(slot) = self.existing(floor, id) {
                debug_assert_ne!(slot.kept, NONE, "message {id} was delivered twice");
                slot.kept = NONE;
            }
            self.make_due(floor, id);
        }
    }

    /// Moves the messages that wait for `id` to the due messages.
    fn make_due(&mut self, floor: u64, id: u64) {
        debug_assert!(self.existing(floor, id).is_some(), "message {id} was delivered, and has no slot");
        let Some(slot) = self.existing(floor, id) else { return };
        let first = std::mem::replace(&mut slot.first_waiting, NONE);
        self.kept.make_due(first);
    }

    /// Asserts what must hold between two calls.
    fn check(&self, floor: u64) {
        debug_assert!(self.window.len() <= WINDOW_SLOTS_MAX, "{} ids are ahead", self.window.len());
        debug_assert!(
            self.window.front().is_none_or(|slot| !slot.is_received || slot.kept != NONE),
            "message {floor} was delivered, and the floor has not risen"
        );
        // A walk through a long window would cost more than the packet after which it is made.
        if self.window.len() > CHECKED_SLOTS_MAX {
            return;
        }
        let mut held_count = 0_usize;
        for slot in &self.window {
            held_count = held_count.saturating_add((slot.kept != NONE).into());
            debug_assert!(slot.is_received || slot.kept == NONE, "a message is stored that did not arrive");
            debug_assert!(
                slot.first_waiting == NONE || !slot.is_received || slot.kept != NONE,
                "messages wait for a message that was delivered"
            );
        }
        self.kept.check(held_count, self.window.iter().map(|slot| slot.first_waiting));
    }
}

#[cfg(test)]
mod tests;
