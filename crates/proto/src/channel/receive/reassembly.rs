//! Reassembly of fragmented messages (PROTOCOL 8.6, "Fragments").
//!
//! This module bounds the cost of a fragment: the number of messages, the number of holes, and memory up to the
//! declared length, allocated as bytes arrive. Flow control and the connection decide whether there is room for the
//! declared length.

use std::collections::{HashMap, VecDeque};
use std::mem::discriminant;

use drumfire_wire::{ChannelId, Delivery, Fragment, MessageId};

use super::{IdRange, MessageShape};
use crate::channel::ranges::Ranges;
use crate::convert::to_usize;
use crate::ids::KeyedBuildHasher;
use crate::limits::{
    CONTRADICTIONS_MAX, FRAGMENT_RANGES_MAX, ITEM_CHARGE_BYTES, RELIABLE_FRAGMENTED_MAX,
    UNRELIABLE_FRAGMENTED_MAX, UNRELIABLE_RANGES_MAX,
};

/// The number of messages for which a validation keeps its memory. Most packets have fragments of one or two messages.
const VALIDATED_KEPT: usize = 4;

/// The incomplete messages of one connection.
#[derive(Debug)]
pub(super) struct ReassemblyTable {
    // Messages
    /// Incomplete reliable messages, by id.
    reliable: HashMap<u64, Reassembly, KeyedBuildHasher>,
    /// Incomplete unreliable messages, by ascending number.
    unreliable: VecDeque<(u64, Reassembly)>,

    // Totals
    /// Charges for the declared lengths of the reliable messages, in bytes.
    reliable_bytes: usize,
    /// Charges for the declared lengths of the unreliable messages, in bytes.
    unreliable_bytes: usize,
    /// The number of byte ranges of all reliable messages.
    range_count: usize,

    // Validation
    /// The number of times that fragments contradicted each other.
    contradiction_count: u8,
    /// The totals of the packet that is being validated. Empty between packets.
    validation: Validation,
}

/// The total that the fragments of one packet add, while the packet is validated as a whole. Each fragment is
/// compared with the received ones and with those before it in its packet, so the limits hold within a packet too.
#[derive(Debug, Default)]
struct Validation {
    /// The reliable messages with fragments in the packet, by ascending id.
    messages: Vec<ValidatedMessage>,
    /// The number of messages among them that are new.
    begun_count: usize,
    /// An upper bound of the ranges that the fragments of reliable messages add.
    range_count: usize,
}

/// A reliable message with fragments in the packet that is validated.
#[derive(Debug)]
struct ValidatedMessage {
    /// The id of the message.
    id: u64,
    /// The properties that its frames share.
    shape: MessageShape,
    /// An upper bound of the bytes that the message has with these fragments.
    bytes: u32,
}

/// An incomplete message.
#[derive(Debug)]
struct Reassembly {
    /// The properties that all its frames share.
    shape: MessageShape,
    /// The bytes of the message up to the last fragment that arrived. Missing bytes are 0.
    bytes: Vec<u8>,
    /// The bytes that arrived.
    received: Ranges,
}

/// The result of validating a fragment of a reliable message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FragmentCheck {
    /// The fragment can be accepted.
    Fits,
    /// The fragment completes a message with this charge.
    Completes(usize),
    /// The fragment contradicts earlier fragments of its message.
    Disagrees,
    /// There are too many holes.
    Holes,
    /// There are too many incomplete messages.
    TooMany,
}

impl Reassembly {
    fn new(shape: MessageShape) -> Self {
        Self { shape, bytes: Vec::new(), received: Ranges::default() }
    }

    fn charge(&self) -> usize {
        charge(self.shape.total_bytes)
    }

    /// Stores bytes that lie inside the message. Allocates no more than the message's length.
    fn put(&mut self, fragment: &Fragment<'_>) {
        debug_assert!(
            fragment.end_bytes().is_some_and(|end| end <= self.shape.total_bytes),
            "validation rejects fragments that exceed their message"
        );
        let (begin, Some(end)) = (fragment.offset_bytes, fragment.end_bytes()) else { return };
        let (from, to, total) = (to_usize(begin), to_usize(end), to_usize(self.shape.total_bytes));
        if to > self.bytes.len() {
            // Memory is allocated as bytes arrive, and not for the declared length, which costs the peer nothing.
            // Doubling keeps the number of copies small.
            if to > self.bytes.capacity() {
                let wanted = self.bytes.capacity().saturating_mul(2).clamp(to, total.max(to));
                self.bytes.reserve_exact(wanted.saturating_sub(self.bytes.len()));
            }
            self.bytes.resize(to, 0);
        }
        if let Some(place) = self.bytes.get_mut(from..to) {
            place.copy_from_slice(fragment.message.payload);
        }
        self.received.insert(begin, end);
    }

    fn is_whole(&self) -> bool {
        self.received.is_whole(self.shape.total_bytes)
    }
}

impl ReassemblyTable {
    pub(super) fn new() -> Self {
        Self {
            // At most 64 ids, so the peer cannot make the table slow, and the hash needs no key.
            reliable: HashMap::with_hasher(KeyedBuildHasher::new(0)),
            unreliable: VecDeque::new(),
            reliable_bytes: 0,
            unreliable_bytes: 0,
            range_count: 0,
            contradiction_count: 0,
            validation: Validation::default(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.reliable.is_empty() && self.unreliable.is_empty()
    }

    /// Counts a contradicting fragment. Returns whether there were too many.
    pub(super) const fn count_contradiction(&mut self) -> bool {
        self.contradiction_count = self.contradiction_count.saturating_add(1);
        self.contradiction_count >= CONTRADICTIONS_MAX
    }

    pub(super) const fn reliable_bytes(&self) -> usize {
        self.reliable_bytes
    }

    pub(super) const fn unreliable_bytes(&self) -> usize {
        self.unreliable_bytes
    }

    /// Validates a fragment of the reliable message `id`, and adds its effect to the totals of the packet.
    pub(super) fn validate(&mut self, id: MessageId, fragment: &Fragment<'_>) -> FragmentCheck {
        let (begin, Some(end)) = (fragment.offset_bytes, fragment.end_bytes()) else {
            return FragmentCheck::Disagrees;
        };
        // All frames about one message must state the same channel, mode, and length.
        let shape = MessageShape::of(fragment);
        let reassembly = self.reliable.get(&id.0);
        let place = self.validation.messages.partition_point(|validated| validated.id < id.0);
        let validated = self.validation.messages.get(place).filter(|validated| validated.id == id.0);
        let known =
            reassembly.map(|reassembly| reassembly.shape).or(validated.map(|validated| validated.shape));
        if known.is_some_and(|known| !known.agrees_with(&shape)) {
            return FragmentCheck::Disagrees;
        }
        // Two limits bound what the peer can make this end store for fragments: the messages, and the holes in them.
        if known.is_none()
            && self.reliable.len().saturating_add(self.validation.begun_count) >= RELIABLE_FRAGMENTED_MAX
        {
            return FragmentCheck::TooMany;
        }
        let received = reassembly.map(|reassembly| &reassembly.received);
        let (count, new_bytes) =
            received.map_or((1, end.saturating_sub(begin)), |received| received.with(begin, end));
        let adds_range = count > received.map_or(0, Ranges::count);
        if adds_range && self.range_count.saturating_add(self.validation.range_count) >= FRAGMENT_RANGES_MAX {
            return FragmentCheck::Holes;
        }
        // Bytes that two fragments of the packet share are counted twice here. The message then counts as complete too
        // early, which only reserves room for its event.
        let had_bytes = validated.map_or(received.map_or(0, Ranges::bytes), |validated| validated.bytes);
        let bytes = had_bytes.saturating_add(new_bytes);
        match self.validation.messages.get_mut(place).filter(|validated| validated.id == id.0) {
            Some(validated) => validated.bytes = bytes,
            None => self.validation.messages.insert(place, ValidatedMessage { id: id.0, shape, bytes }),
        }
        self.validation.begun_count = self.validation.begun_count.saturating_add(known.is_none().into());
        self.validation.range_count = self.validation.range_count.saturating_add(adds_range.into());
        let total = shape.total_bytes;
        if had_bytes < total && bytes >= total {
            FragmentCheck::Completes(charge(total))
        } else {
            FragmentCheck::Fits
        }
    }

    /// Whether a whole message, or a Skip, is consistent with the fragments of its id, including those in the packet
    /// that is validated.
    pub(super) fn agrees_with(&self, id: MessageId, shape: &MessageShape) -> bool {
        let reassembly = self.reliable.get(&id.0).map(|reassembly| reassembly.shape);
        let known = reassembly.or_else(|| {
            let place =
                self.validation.messages.binary_search_by_key(&id.0, |validated| validated.id).ok()?;
            self.validation.messages.get(place).map(|validated| validated.shape)
        });
        known.is_none_or(|known| known.agrees_with(shape))
    }

    /// Whether fragments of any of these messages were received, or are in the packet that is validated.
    pub(super) fn has_any(&self, ids: IdRange) -> bool {
        let is_inside = |id: u64| (ids.first..=ids.last).contains(&id);
        self.reliable.keys().any(|id| is_inside(*id))
            || self.validation.messages.iter().any(|validated| is_inside(validated.id))
    }

    /// Ends the validation of a packet.
    pub(super) fn end_validation(&mut self) {
        // Most packets of a large message have one fragment each, and must not allocate for it.
        let mut messages = std::mem::take(&mut self.validation.messages);
        messages.clear();
        messages.shrink_to(VALIDATED_KEPT);
        self.validation = Validation { messages, ..Validation::default() };
    }

    /// Whether fragments of the reliable message `id` were received.
    pub(super) fn has(&self, id: MessageId) -> bool {
        self.reliable.contains_key(&id.0)
    }

    /// Stores a validated fragment of the reliable message `id`. Returns the message when it is complete.
    pub(super) fn put(&mut self, id: MessageId, fragment: &Fragment<'_>) -> Option<Vec<u8>> {
        let shape = MessageShape::of(fragment);
        let reassembly = self.reliable.entry(id.0).or_insert_with(|| {
            self.reliable_bytes = self.reliable_bytes.saturating_add(charge(shape.total_bytes));
            Reassembly::new(shape)
        });
        debug_assert!(reassembly.shape.agrees_with(&shape), "validation rejects fragments that disagree");
        let before = reassembly.received.count();
        reassembly.put(fragment);
        let after = reassembly.received.count();
        self.range_count = self.range_count.saturating_add(after).saturating_sub(before);
        if reassembly.is_whole() { self.remove(id) } else { None }
    }

    /// Removes the fragments of the reliable message `id`. Returns them.
    pub(super) fn remove(&mut self, id: MessageId) -> Option<Vec<u8>> {
        let reassembly = self.reliable.remove(&id.0)?;
        debug_assert!(
            reassembly.charge() <= self.reliable_bytes && reassembly.received.count() <= self.range_count,
            "the fragments of {id:?} were not counted"
        );
        self.reliable_bytes = self.reliable_bytes.saturating_sub(reassembly.charge());
        self.range_count = self.range_count.saturating_sub(reassembly.received.count());
        Some(reassembly.bytes)
    }

    /// Validates a fragment of an unreliable message. Returns the charge for its message, or `None` when the fragment
    /// is dropped.
    pub(super) fn validate_unreliable(&self, fragment: &Fragment<'_>) -> Option<usize> {
        self.accepts_unreliable(fragment).then(|| self.unreliable_charge(fragment))
    }

    /// Whether a fragment of an unreliable message is consistent with those received, and need not be dropped.
    pub(super) fn accepts_unreliable(&self, fragment: &Fragment<'_>) -> bool {
        // The number of the first packet identifies an unreliable message. A new one must be newer than the one that
        // makes room for it. Otherwise a late fragment would evict a message that can still complete.
        match self.unreliable.iter().find(|(number, _)| *number == fragment.number) {
            Some((_, reassembly)) => {
                reassembly.received.count() < UNRELIABLE_RANGES_MAX
                    && reassembly.shape.agrees_with(&MessageShape::of(fragment))
            }
            None => self.oldest_unreliable().is_none_or(|(oldest, _)| fragment.number >= *oldest),
        }
    }

    /// Returns the charge for a fragment of an unreliable message: that of its message for the first fragment, and 0
    /// for later ones.
    pub(super) fn unreliable_charge(&self, fragment: &Fragment<'_>) -> usize {
        if self.has_unreliable(fragment.number) { 0 } else { charge(fragment.total_bytes) }
    }

    fn has_unreliable(&self, number: u64) -> bool {
        self.unreliable.iter().any(|(other, _)| *other == number)
    }

    /// The unreliable message that is dropped for the next one, when the limit is reached.
    fn oldest_unreliable(&self) -> Option<&(u64, Reassembly)> {
        self.unreliable.front().filter(|_| self.unreliable.len() >= UNRELIABLE_FRAGMENTED_MAX)
    }

    /// Stores a fragment of an unreliable message for which [`Self::accepts_unreliable`] is true. Returns the message when it is
    /// complete.
    pub(super) fn put_unreliable(&mut self, fragment: &Fragment<'_>) -> Option<Vec<u8>> {
        let number = fragment.number;
        let mut place = self.unreliable.partition_point(|(other, _)| *other < number);
        if self.unreliable.get(place).is_none_or(|(other, _)| *other != number) {
            if self.unreliable.len() >= UNRELIABLE_FRAGMENTED_MAX {
                // The oldest message is the least likely to complete.
                self.remove_unreliable(0);
                place = place.saturating_sub(1);
            }
            let reassembly = Reassembly::new(MessageShape::of(fragment));
            self.unreliable_bytes = self.unreliable_bytes.saturating_add(reassembly.charge());
            self.unreliable.insert(place, (number, reassembly));
        }
        debug_assert!(self.has_unreliable(number), "the message of packet {number} was not stored");
        let (_, reassembly) = self.unreliable.get_mut(place)?;
        reassembly.put(fragment);
        if reassembly.is_whole() { self.remove_unreliable(place) } else { None }
    }

    /// Drops older messages of a sequenced channel, after a message of it was delivered.
    pub(super) fn forget_older(&mut self, channel: ChannelId, number: u64) {
        // They can no longer be delivered, and would hold memory until newer messages replace them.
        let sequenced = Some(discriminant(&Delivery::UnreliableSequenced));
        while let Some(place) = self.unreliable.iter().position(|(other, reassembly)| {
            *other < number && (reassembly.shape.channel, reassembly.shape.mode) == (channel, sequenced)
        }) {
            self.remove_unreliable(place);
        }
    }

    /// Drops the oldest unreliable message if it began before packet `before`. Returns whether it did.
    pub(super) fn forget_oldest_unreliable(&mut self, before: u64) -> bool {
        let is_older = self.unreliable.front().is_some_and(|(number, _)| *number < before);
        is_older && self.remove_unreliable(0).is_some()
    }

    /// Drops all unreliable messages.
    pub(super) fn forget_unreliable(&mut self) {
        self.unreliable = VecDeque::new();
        self.unreliable_bytes = 0;
    }

    fn remove_unreliable(&mut self, place: usize) -> Option<Vec<u8>> {
        let (_, reassembly) = self.unreliable.remove(place)?;
        debug_assert!(reassembly.charge() <= self.unreliable_bytes, "an unreliable message was not charged");
        self.unreliable_bytes = self.unreliable_bytes.saturating_sub(reassembly.charge());
        Some(reassembly.bytes)
    }

    /// Asserts what must hold between two packets.
    pub(super) fn assert_invariants(&self) {
        let Validation { messages, begun_count, range_count } = &self.validation;
        debug_assert!(
            messages.is_empty() && *begun_count == 0 && *range_count == 0,
            "the validation of a packet has not ended"
        );
        let reliable_bytes = self.reliable.values().map(Reassembly::charge).sum::<usize>();
        let unreliable_bytes =
            self.unreliable.iter().map(|(_, reassembly)| reassembly.charge()).sum::<usize>();
        let range_count = self.reliable.values().map(|reassembly| reassembly.received.count()).sum::<usize>();
        debug_assert_eq!(
            (self.reliable_bytes, self.unreliable_bytes, self.range_count),
            (reliable_bytes, unreliable_bytes, range_count),
            "incomplete messages were counted wrong"
        );
        debug_assert!(self.reliable.len() <= RELIABLE_FRAGMENTED_MAX && range_count <= FRAGMENT_RANGES_MAX);
        debug_assert!(self.unreliable.len() <= UNRELIABLE_FRAGMENTED_MAX);
        debug_assert!(
            self.unreliable.iter().is_sorted_by(|one, next| one.0 < next.0),
            "incomplete unreliable messages are not in order"
        );
        let unreliable = self.unreliable.iter().map(|(_, reassembly)| reassembly);
        for reassembly in self.reliable.values().chain(unreliable) {
            reassembly.received.assert_invariants();
            debug_assert!(!reassembly.is_whole(), "a complete message was not delivered");
        }
    }
}

fn charge(total_bytes: u32) -> usize {
    to_usize(total_bytes).saturating_add(ITEM_CHARGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumfire_wire::Message;

    const ID: MessageId = MessageId(7);

    fn fragment(total: u32, offset: u32, payload: &[u8]) -> Fragment<'_> {
        let message =
            Message { channel: ChannelId(1), delivery: Delivery::ReliableUnordered { id: ID }, payload };
        Fragment { message, number: 0, total_bytes: total, offset_bytes: offset }
    }

    fn unreliable(number: u64, total: u32, offset: u32, payload: &[u8]) -> Fragment<'_> {
        let message = Message { channel: ChannelId(1), delivery: Delivery::UnreliableSequenced, payload };
        Fragment { message, number, total_bytes: total, offset_bytes: offset }
    }

    /// Validates a packet with one fragment.
    fn alone(table: &mut ReassemblyTable, id: MessageId, fragment: &Fragment<'_>) -> FragmentCheck {
        let fit = table.validate(id, fragment);
        table.end_validation();
        table.assert_invariants();
        fit
    }

    fn validate_unreliable_alone(table: &mut ReassemblyTable, fragment: &Fragment<'_>) -> Option<usize> {
        let charge = table.validate_unreliable(fragment);
        table.end_validation();
        charge
    }

    #[test]
    fn fragments_in_any_order_form_the_message() {
        let whole: Vec<u8> = (0..100).collect();
        let mut table = ReassemblyTable::new();
        let cut = |from: u32, to: u32| fragment(100, from, &whole[from as usize..to as usize]);
        for (step, (from, to)) in [(90, 100), (10, 40), (30, 60), (0, 10), (10, 20)].into_iter().enumerate() {
            assert_eq!(alone(&mut table, ID, &cut(from, to)), FragmentCheck::Fits);
            assert_eq!(table.has(ID), step > 0);
            assert_eq!(table.put(ID, &cut(from, to)), None);
        }
        assert_eq!(table.reliable_bytes(), 164);
        assert_eq!(alone(&mut table, ID, &cut(55, 95)), FragmentCheck::Completes(164));
        assert_eq!(table.put(ID, &cut(55, 95)), Some(whole.clone()));
        assert!(table.is_empty() && table.reliable_bytes() == 0 && table.range_count == 0);
    }

    #[test]
    fn a_message_never_allocates_more_than_its_length() {
        let mut table = ReassemblyTable::new();
        // No fragment ends exactly where the memory ends, so it always has to grow for a fragment that exceeds it.
        assert_eq!(table.put(ID, &fragment(1_000, 0, &[1; 15])), None);
        for offset in (15..970).step_by(30) {
            assert_eq!(table.put(ID, &fragment(1_000, offset, &[1; 30])), None);
            let allocated_bytes = table.reliable[&ID.0].bytes.capacity();
            assert!(allocated_bytes <= 1_000, "{allocated_bytes} bytes after {offset}");
        }
    }

    /// Fragments of the message `ID` that contradict `fragment(100, ..)`.
    fn disagreeing() -> [Fragment<'static>; 3] {
        let mut others = [fragment(101, 1, &[1]), fragment(100, 1, &[1]), fragment(100, 1, &[1])];
        others[1].message.channel = ChannelId(2);
        others[2].message.delivery = Delivery::ReliableSequenced { id: ID };
        others
    }

    #[test]
    fn a_fragment_must_agree_with_received_and_pending_ones() {
        let mut table = ReassemblyTable::new();
        for other in &disagreeing() {
            assert_eq!(table.validate(ID, &fragment(100, 0, &[1])), FragmentCheck::Fits);
            assert_eq!(table.validate(ID, other), FragmentCheck::Disagrees, "in one packet");
            table.end_validation();
        }
        table.put(ID, &fragment(100, 0, &[1]));
        for other in &disagreeing() {
            assert_eq!(alone(&mut table, ID, other), FragmentCheck::Disagrees, "in packets of their own");
        }
    }

    #[test]
    fn a_whole_message_and_a_skip_must_agree_with_fragments() {
        let mode = |delivery: Delivery| Some(discriminant(&delivery));
        let whole = MessageShape {
            channel: ChannelId(1),
            mode: mode(Delivery::ReliableUnordered { id: ID }),
            total_bytes: 100,
        };
        let skip = MessageShape { mode: None, ..whole };
        let others = [
            MessageShape { total_bytes: 101, ..whole },
            MessageShape { total_bytes: 99, ..skip },
            MessageShape { channel: ChannelId(2), ..skip },
            MessageShape { mode: mode(Delivery::ReliableSequenced { id: ID }), ..whole },
        ];
        let check = |table: &ReassemblyTable| {
            assert!(table.agrees_with(ID, &whole) && table.agrees_with(ID, &skip));
            for other in &others {
                assert!(!table.agrees_with(ID, other), "{other:?}");
                assert!(table.agrees_with(MessageId(8), other), "no fragment of it came");
            }
        };
        let mut table = ReassemblyTable::new();
        table.validate(ID, &fragment(100, 0, &[1]));
        check(&table);
        table.end_validation();
        assert!(others.iter().all(|other| table.agrees_with(ID, other)), "the packet was not taken");
        table.put(ID, &fragment(100, 0, &[1]));
        check(&table);
    }

    #[test]
    fn fragments_of_one_packet_complete_a_message_together() {
        let mut table = ReassemblyTable::new();
        table.put(ID, &fragment(100, 0, &[1; 40]));
        assert_eq!(table.validate(ID, &fragment(100, 30, &[1; 40])), FragmentCheck::Fits);
        assert_eq!(table.validate(ID, &fragment(100, 70, &[1; 30])), FragmentCheck::Completes(164));
        assert_eq!(
            table.validate(ID, &fragment(100, 70, &[1; 30])),
            FragmentCheck::Fits,
            "it is counted once"
        );
        let other = MessageId(8);
        assert_eq!(table.validate(other, &fragment(10, 0, &[1; 5])), FragmentCheck::Fits);
        assert_eq!(table.validate(other, &fragment(10, 5, &[1; 5])), FragmentCheck::Completes(74));
    }

    #[test]
    fn a_declared_length_allocates_nothing_before_its_bytes() {
        let mut table = ReassemblyTable::new();
        table.put(ID, &fragment(1 << 24, 0, &[1; 1_000]));
        assert!(table.reliable[&7].bytes.capacity() < 2_001);
        for step in 1..3_000 {
            table.put(ID, &fragment(1 << 24, step * 1_000, &[1; 1_000]));
        }
        assert!(table.reliable[&7].bytes.capacity() <= 1 << 24);
    }

    #[test]
    fn holes_and_messages_are_bounded() {
        let mut table = ReassemblyTable::new();
        for hole in 0..u32::try_from(FRAGMENT_RANGES_MAX).unwrap() {
            assert_eq!(alone(&mut table, ID, &fragment(10_000, 2 * hole, &[1])), FragmentCheck::Fits);
            table.put(ID, &fragment(10_000, 2 * hole, &[1]));
        }
        assert_eq!(alone(&mut table, ID, &fragment(10_000, 9_000, &[1])), FragmentCheck::Holes);
        assert_eq!(alone(&mut table, ID, &fragment(10_000, 1, &[1])), FragmentCheck::Fits, "it closes one");
        assert_eq!(alone(&mut table, MessageId(8), &fragment(10, 0, &[1])), FragmentCheck::Holes);
        let mut table = ReassemblyTable::new();
        for id in 0..RELIABLE_FRAGMENTED_MAX as u64 {
            table.put(MessageId(id), &fragment(10, 0, &[1]));
        }
        assert_eq!(alone(&mut table, MessageId(1 << 40), &fragment(10, 0, &[1])), FragmentCheck::TooMany);
        assert_eq!(alone(&mut table, MessageId(0), &fragment(10, 1, &[1])), FragmentCheck::Fits);
    }

    #[test]
    fn holes_and_messages_are_bounded_within_one_packet() {
        let mut table = ReassemblyTable::new();
        for hole in 0..u32::try_from(FRAGMENT_RANGES_MAX).unwrap() {
            assert_eq!(table.validate(ID, &fragment(10_000, 2 * hole, &[1])), FragmentCheck::Fits);
        }
        assert_eq!(table.validate(ID, &fragment(10_000, 9_000, &[1])), FragmentCheck::Holes);
        table.end_validation();
        for id in 0..RELIABLE_FRAGMENTED_MAX as u64 {
            assert_eq!(table.validate(MessageId(id), &fragment(10, 0, &[1])), FragmentCheck::Fits);
        }
        assert_eq!(table.validate(MessageId(1 << 40), &fragment(10, 0, &[1])), FragmentCheck::TooMany);
        assert_eq!(table.validate(MessageId(0), &fragment(10, 1, &[1])), FragmentCheck::Fits);
        table.end_validation();
        assert!(
            table.validation.messages.capacity() <= VALIDATED_KEPT,
            "a validation leaves no memory behind"
        );
    }

    #[test]
    fn the_newest_unreliable_messages_are_kept() {
        let mut table = ReassemblyTable::new();
        for number in 10..18 {
            assert_eq!(validate_unreliable_alone(&mut table, &unreliable(number, 20, 0, &[1])), Some(84));
            assert_eq!(table.put_unreliable(&unreliable(number, 20, 0, &[1])), None);
        }
        assert_eq!(table.unreliable_bytes(), 8 * 84);
        assert_eq!(
            validate_unreliable_alone(&mut table, &unreliable(9, 20, 0, &[1])),
            None,
            "older than all"
        );
        assert_eq!(
            validate_unreliable_alone(&mut table, &unreliable(17, 21, 1, &[1])),
            None,
            "of another length"
        );
        assert_eq!(
            validate_unreliable_alone(&mut table, &unreliable(18, 20, 0, &[1])),
            Some(84),
            "in the place of the oldest"
        );
        table.put_unreliable(&unreliable(18, 20, 0, &[1]));
        assert_eq!((table.unreliable.len(), table.unreliable[0].0), (8, 11));
        assert_eq!(table.put_unreliable(&unreliable(18, 20, 1, &[2; 19])).map(|whole| whole.len()), Some(20));
        table.forget_older(ChannelId(1), 16);
        assert_eq!(table.unreliable.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [16, 17]);
        table.forget_unreliable();
        assert!(table.is_empty() && table.unreliable_bytes() == 0);
    }

    #[test]
    fn only_older_unreliable_messages_are_evicted() {
        let mut table = ReassemblyTable::new();
        for number in 10..12 {
            table.put_unreliable(&unreliable(number, 20, 0, &[1]));
        }
        assert!(table.forget_oldest_unreliable(11) && !table.forget_oldest_unreliable(11));
        assert_eq!((table.unreliable.len(), table.unreliable_bytes()), (1, 84));
    }
}
