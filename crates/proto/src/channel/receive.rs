//! Received messages. A reliable message is accepted once, and kept until all messages before it were delivered. A
//! sequenced message is never delivered after a newer one.
//!
//! Received ids are stored as a floor and a window above it (PROTOCOL 8.2, "Message ids"). A message that is due is
//! delivered immediately and not stored. A run of messages is accepted, stored, and delivered in one step, unless a part
//! of it was received before. Packets, acks, and the application's queue are in other modules.

mod held;
mod latest;
mod reassembly;
mod received_messages;
mod sequenced;
mod window;

use std::mem::{Discriminant, discriminant};

use drumfire_wire::{ChannelId, Delivery, Fragment, MessageId};

use self::latest::LatestKeys;
use self::reassembly::ReassemblyTable;
use self::received_messages::RunPart;
use self::sequenced::SequencedChannels;
use self::window::ReceiveWindow;
use super::credit::ReceiveCredit;
use crate::convert::to_usize;
use crate::event::{charge, charge_all};
use crate::ids::KeyedBuildHasher;
use crate::limits::MESSAGE_IDS_AHEAD;
use crate::time::Moment;

pub(crate) use self::reassembly::FragmentCheck;
pub(crate) use self::received_messages::{Contents, IdRange, ReceivedMessages};

/// The received reliable messages of one connection.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    /// The smallest id that is not yet received, or whose message waits for another one.
    floor: u64,
    /// The ids from the floor on. Boxed, because it is empty while messages arrive in order.
    window: Option<Box<ReceiveWindow>>,
    /// The newest message of each sequenced channel, and the newest value of each key.
    newest: SequencedChannels,
    /// Messages of which some fragments are missing. Boxed, because most connections use only short messages.
    reassembly: Option<Box<ReassemblyTable>>,
    /// The credit that the peer may still spend.
    pub(crate) credit: ReceiveCredit,
}

/// The properties that all frames about a reliable message share: its fragments, the whole message, and its Skip.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageShape {
    /// The channel of the message.
    pub(crate) channel: ChannelId,
    /// The delivery mode. `None` in a Skip, which does not carry the mode.
    pub(crate) mode: Option<Discriminant<Delivery>>,
    /// The length of the whole message.
    pub(crate) total_bytes: u32,
}

impl MessageShape {
    fn of(fragment: &Fragment<'_>) -> Self {
        Self {
            channel: fragment.message.channel,
            mode: Some(discriminant(&fragment.message.delivery)),
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
    pub(crate) fn new(hash: KeyedBuildHasher) -> Self {
        Self {
            floor: 0,
            window: None,
            newest: SequencedChannels::new(hash),
            reassembly: None,
            credit: ReceiveCredit::default(),
        }
    }

    /// Whether an id is in the receive window, which the receiver must track. An id beyond it violates the protocol.
    pub(crate) const fn is_in_window(&self, id: MessageId) -> bool {
        id.0 <= self.floor.saturating_add(MESSAGE_IDS_AHEAD)
    }

    /// The smallest id that was not received.
    #[cfg(test)]
    pub(crate) const fn floor(&self) -> MessageId {
        MessageId(self.floor)
    }

    /// Bytes in use, including charges.
    pub(crate) fn used_bytes(&self) -> usize {
        let window = self.window.as_ref().map_or(0, |window| window.used_bytes());
        // Memory is charged for what the peer can cause: payloads, words of the window, keys, and declared lengths.
        let unreliable = self.reassembly.as_ref().map_or(0, |reassembly| reassembly.unreliable_bytes());
        let reassembly = self.reassembly.as_ref().map_or(0, |reassembly| reassembly.reliable_bytes());
        window
            .saturating_add(self.newest.keys().map_or(0, LatestKeys::used_bytes))
            .saturating_add(unreliable)
            .saturating_add(reassembly)
    }

    /// Charges of reliable messages that wait for earlier ones or for their fragments.
    pub(crate) fn held_bytes(&self) -> usize {
        let reassembly = self.reassembly.as_ref().map_or(0, |reassembly| reassembly.reliable_bytes());
        self.held_message_bytes().saturating_add(reassembly)
    }

    /// Validates a fragment of the reliable message `id`, before the packet with it is applied.
    pub(crate) fn validate_fragment(&mut self, id: MessageId, fragment: &Fragment<'_>) -> FragmentCheck {
        if self.is_received(id) { FragmentCheck::Fits } else { self.reassembly().validate(id, fragment) }
    }

    /// Validates a fragment of an unreliable message, before the packet with it is applied. Returns the charge for
    /// its message, or `None` when the fragment is dropped.
    pub(crate) fn validate_unreliable_fragment(&mut self, fragment: &Fragment<'_>) -> Option<usize> {
        self.reassembly().validate_unreliable(fragment)
    }

    /// Drops the oldest incomplete unreliable message if it began before packet `before`. Returns whether it did.
    pub(crate) fn forget_oldest_unreliable(&mut self, before: u64) -> bool {
        self.reassembly.as_mut().is_some_and(|reassembly| reassembly.forget_oldest_unreliable(before))
    }

    /// Returns whether the whole message `id`, or its Skip, is consistent with its fragments. Fragments are charged
    /// by the declared length, so a longer message would hold memory that was not charged.
    #[inline]
    pub(crate) fn agrees_with_fragments(&self, id: MessageId, shape: &MessageShape) -> bool {
        self.reassembly.as_ref().is_none_or(|reassembly| reassembly.agrees_with(id, shape))
    }

    /// Returns whether `agrees_with_fragments` must be asked about some of these ids.
    #[inline]
    pub(crate) fn has_fragments_of(&self, ids: IdRange) -> bool {
        self.reassembly.as_ref().is_some_and(|reassembly| reassembly.has_any(ids))
    }

    /// Ends the validation of a packet.
    #[inline]
    pub(crate) fn end_validation(&mut self) {
        if let Some(reassembly) = &mut self.reassembly {
            reassembly.end_validation();
        }
    }

    fn reassembly(&mut self) -> &mut ReassemblyTable {
        self.reassembly.get_or_insert_with(|| Box::new(ReassemblyTable::new()))
    }

    /// Whether a fragment of an unreliable message is consistent with the received ones.
    pub(crate) fn accepts_unreliable_fragment(&self, fragment: &Fragment<'_>) -> bool {
        self.reassembly.as_ref().is_none_or(|reassembly| reassembly.accepts_unreliable(fragment))
    }

    /// Returns the charge for a fragment of an unreliable message at present.
    pub(crate) fn unreliable_charge(&self, fragment: &Fragment<'_>) -> usize {
        match &self.reassembly {
            Some(reassembly) => reassembly.unreliable_charge(fragment),
            None => ReassemblyTable::new().unreliable_charge(fragment),
        }
    }

    /// Accepts a consistent fragment of an unreliable message. Returns the message when it is complete.
    pub(crate) fn accept_unreliable_fragment(&mut self, fragment: &Fragment<'_>) -> Option<Vec<u8>> {
        self.reassembly().put_unreliable(fragment)
    }

    /// Accepts a validated fragment of a reliable message. `after` is the message that must be delivered before it.
    /// `deliver` is called for every message that becomes due. Returns false when the peer had no credit for the
    /// message, and nothing has changed then.
    pub(crate) fn accept_fragment(
        &mut self,
        id: MessageId,
        after: Option<MessageId>,
        fragment: &Fragment<'_>,
        deliver: impl FnMut(ChannelId, Contents<'_>),
    ) -> bool {
        if self.is_received(id) {
            return true;
        }
        // The first fragment spends the credit for the whole message, so a message that was begun can always be
        // completed.
        let total = to_usize(fragment.total_bytes);
        if !self.reassembly().has(id) && !self.credit.take(charge(total)) {
            return false;
        }
        if let Some(whole) = self.reassembly().put(id, fragment) {
            let received = ReceivedMessages {
                id,
                after,
                channel: fragment.message.channel,
                contents: Contents::Message(&whole),
            };
            self.accept(&received, deliver);
        }
        true
    }

    /// Counts fragments that contradict each other. Returns whether that happened too often.
    pub(crate) fn count_contradiction(&mut self) -> bool {
        self.reassembly().count_contradiction()
    }

    /// Whether the message `id`, or its Skip, has arrived as a whole.
    fn is_received(&self, id: MessageId) -> bool {
        id.0 < self.floor || self.window.as_ref().is_some_and(|window| window.is_received(self.floor, id.0))
    }

    /// Whether any of these messages, or a fragment of one, has arrived.
    fn has_any(&self, ids: IdRange) -> bool {
        ids.first < self.floor
            || self.window.as_ref().is_some_and(|window| window.has_any(self.floor, ids))
            || self.has_fragments_of(ids)
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
    pub(crate) fn accept_value(&mut self, now: Moment, channel: ChannelId, key: u64, version: u64) -> bool {
        self.newest.keys_mut().accept(now, channel, key, version)
    }

    /// Returns the time at which a value last arrived, while any key is remembered.
    pub(crate) fn last_value_at(&self) -> Option<Moment> {
        self.newest.keys()?.last_value_at()
    }

    /// Bytes of the stored payloads, including charges: an upper bound of what one delivery can release.
    pub(crate) fn held_message_bytes(&self) -> usize {
        self.window.as_ref().map_or(0, |window| window.held.bytes())
    }

    /// Accepts a single message whose id is in the window. `deliver` is called for it and for all messages that waited for
    /// it, in order. Returns whether nothing of it arrived before: a fragmented message was charged with its first
    /// fragment, and is consistent with it.
    pub(crate) fn accept(
        &mut self,
        received: &ReceivedMessages<'_>,
        deliver: impl FnMut(ChannelId, Contents<'_>),
    ) -> bool {
        debug_assert!(received.contents.count() == 1, "{received:?} is not a single message");
        // A Skip or the whole message replaces fragments that arrived before. They were charged when they arrived.
        let was_begun =
            self.reassembly.as_mut().is_some_and(|reassembly| reassembly.remove(received.id).is_some());
        let is_new = !self.is_received(received.id);
        if is_new {
            self.place(received, deliver);
        }
        is_new && !was_begun
    }

    /// Accepts a run of messages whose ids are in the window, as [`Self::accept`] does for each of them. `payload_bytes` is the
    /// sum of their lengths. `messages` returns for each message its length, and the bodies from it on. It is used only
    /// when a part of the run arrived before. `is_chain` is whether each message after the first must be delivered after
    /// the one before it. Returns false when the peer had no credit for a message.
    pub(crate) fn accept_run<'a>(
        &mut self,
        run: &ReceivedMessages<'a>,
        payload_bytes: usize,
        is_chain: bool,
        messages: impl Iterator<Item = (usize, &'a [u8])>,
        mut deliver: impl FnMut(ChannelId, Contents<'_>),
    ) -> bool {
        if !self.has_any(run.ids()) {
            let count = run.contents.count();
            let whole =
                RunPart { id: run.id, after: run.after, count, payload_bytes, bodies: &[], is_begun: false };
            return self.accept_part(&whole, run.channel, run.contents, deliver);
        }
        // Runs that are cut differently when they are sent again overlap. Each gap that this run fills is one part, so
        // that a peer cannot turn a run into as many deliveries as it has messages.
        let has_fragments = self.has_fragments_of(run.ids());
        let (mut next, mut after, mut open) = (Some(run.id), run.after, None::<RunPart<'a>>);
        for (bytes, bodies) in messages {
            let Some(id) = next else { break };
            let is_new = !self.is_received(id);
            let is_begun = is_new && has_fragments && self.reassembly().has(id);
            match &mut open {
                Some(part) if is_new && !is_begun && !part.is_begun => {
                    part.count = part.count.saturating_add(1);
                    part.payload_bytes = part.payload_bytes.saturating_add(bytes);
                }
                _ => {
                    if let Some(part) = open.take()
                        && !self.accept_part(&part, run.channel, part.contents(run, bodies), &mut deliver)
                    {
                        return false;
                    }
                    open = is_new.then_some(RunPart {
                        id,
                        after,
                        count: 1,
                        payload_bytes: bytes,
                        bodies,
                        is_begun,
                    });
                }
            }
            after = is_chain.then_some(id);
            next = id.next();
        }
        open.is_none_or(|part| self.accept_part(&part, run.channel, part.contents(run, &[]), deliver))
    }

    /// Accepts a part of a run of which nothing arrived before, except fragments of its only message if it `is_begun`.
    /// Returns false when the peer had no credit for it.
    fn accept_part(
        &mut self,
        part: &RunPart<'_>,
        channel: ChannelId,
        contents: Contents<'_>,
        deliver: impl FnMut(ChannelId, Contents<'_>),
    ) -> bool {
        let received = ReceivedMessages { id: part.id, after: part.after, channel, contents };
        if part.is_begun {
            // The message was charged with its first fragment.
            self.accept(&received, deliver);
            return true;
        }
        let has_credit = self.credit.take(charge_all(part.count, part.payload_bytes));
        if has_credit {
            self.place(&received, deliver);
        }
        has_credit
    }

    /// Delivers or stores messages of which nothing arrived before. Then delivers the messages that waited for them.
    fn place(&mut self, received: &ReceivedMessages<'_>, mut deliver: impl FnMut(ChannelId, Contents<'_>)) {
        let IdRange { first, last } = received.ids();
        debug_assert!(
            self.is_in_window(MessageId(last)),
            "validation rejects {:?}, which is too far ahead",
            received.id
        );
        // Without gaps nothing is stored: the floor alone describes what was received.
        let is_next = first == self.floor && received.after.is_none_or(|after| after.0 < self.floor);
        if is_next && self.window.as_ref().is_none_or(|window| window.is_empty()) {
            deliver(received.channel, received.contents);
            self.floor = last.saturating_add(1);
        } else if self.is_in_window(MessageId(last)) {
            // Something is missing before these messages.
            self.floor = self.window.get_or_insert_default().accept(self.floor, received, deliver);
        }
    }

    /// Whether a message of a sequenced channel from packet `number` may be delivered, in which case the caller must
    /// deliver it. `largest` is the largest packet number received.
    pub(crate) fn accept_sequenced(&mut self, channel: ChannelId, number: u64, largest: u64) -> bool {
        let may = self.newest.take(channel, number, largest);
        // Incomplete older messages of the channel can never be delivered now.
        if may && let Some(reassembly) = &mut self.reassembly {
            reassembly.forget_older(channel, number);
        }
        may
    }

    /// Releases memory that an idle connection does not need, and the keys unless `keeps_keys`. `largest` is the
    /// largest packet number received.
    pub(crate) fn shrink(&mut self, largest: u64, keeps_keys: bool) {
        // Reliable messages that wait for others stay: the peer has their acks, and does not send them again.
        self.window.take_if(|window| window.is_empty());
        self.newest.shrink(largest, keeps_keys);
        self.forget_unreliable();
        self.reassembly.take_if(|reassembly| reassembly.is_empty());
    }

    /// Asserts what must hold between two calls.
    pub(crate) fn assert_invariants(&self) {
        if let Some(window) = &self.window {
            window.assert_invariants(self.floor);
        }
        if let Some(reassembly) = &self.reassembly {
            reassembly.assert_invariants();
        }
        self.newest.assert_invariants();
    }

    /// Drops incomplete unreliable messages.
    pub(crate) fn forget_unreliable(&mut self) {
        if let Some(reassembly) = &mut self.reassembly {
            reassembly.forget_unreliable();
        }
    }
}

#[cfg(test)]
mod tests;
