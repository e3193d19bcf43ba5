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
    ITEM_CHARGE_BYTES, PIECE_RANGES_MAX, RELIABLE_IN_PIECES_MAX, STRIKES_MAX, UNRELIABLE_IN_PIECES_MAX,
    UNRELIABLE_RANGES_MAX,
};

/// The number of messages in a validation whose memory is kept: most packets have fragments of one or two.
const SURVEYED_KEPT: usize = 4;

/// The incomplete messages of one connection.
#[derive(Debug)]
pub(super) struct ReassemblyTable {
    // Messages
    /// Incomplete reliable messages, by id.
    reliable: HashMap<u64, Reassembly, KeyedBuildHasher>,
    /// Incomplete unreliable messages, by ascending number.
    loose: VecDeque<(u64, Reassembly)>,

    // Totals
    /// Charges for the declared lengths of the reliable messages, in bytes.
    reliable_bytes: usize,
    /// Charges for the declared lengths of the unreliable messages, in bytes.
    loose_bytes: usize,
    /// The number of byte ranges of all reliable messages.
    range_count: usize,

    // Validation
    /// How often fragments contradicted each other.
    strikes: u8,
    /// The totals of the packet that is validated. Empty between packets.
    survey: Survey,
}

/// The total that the fragments of one packet add, while the packet is validated as a whole. Each fragment is
/// compared with the received ones and with those before it in its packet, so the limits hold within a packet too.
#[derive(Debug, Default)]
struct Survey {
    /// The reliable messages with fragments in the packet, by ascending id.
    messages: Vec<Surveyed>,
    /// The number of messages among them that are new.
    begun_count: usize,
    /// An upper bound of the ranges that the fragments of reliable messages add.
    range_count: usize,
}

/// A reliable message with fragments in the packet that is validated.
#[derive(Debug)]
struct Surveyed {
    /// The id of the message.
    id: u64,
    /// The properties that its frames share.
    outline: MessageShape,
    /// An upper bound of the bytes that the message has with these fragments.
    bytes: u32,
}

/// An incomplete message.
#[derive(Debug)]
struct Reassembly {
    /// The properties that all its frames share.
    outline: MessageShape,
    /// The bytes of the message up to the last fragment that arrived. Missing bytes are 0.
    bytes: Vec<u8>,
    /// The bytes that arrived.
    have: Ranges,
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
    fn new(outline: MessageShape) -> Self {
        Self { outline, bytes: Vec::new(), have: Ranges::default() }
    }

    fn charge(&self) -> usize {
        charge(self.outline.total_bytes)
    }

    /// Stores bytes that lie inside the message. Allocates no more than the message's length.
    fn put(&mut self, fragment: &Fragment<'_>) {
        debug_assert!(
            fragment.end_bytes().is_some_and(|end| end <= self.outline.total_bytes),
            "the survey refuses fragments that exceed their message"
        );
        let (begin, Some(end)) = (fragment.offset_bytes, fragment.end_bytes()) else { return };
        let (from, to, total) = (to_usize(begin), to_usize(end), to_usize(self.outline.total_bytes));
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
            place.copy_from_slice(fragment.piece.payload);
        }
        self.have.insert(begin, end);
    }

    fn is_whole(&self) -> bool {
        self.have.is_whole(self.outline.total_bytes)
    }
}

impl ReassemblyTable {
    pub(super) fn new() -> Self {
        Self {
            // At most 64 ids, so the peer cannot make the table slow, and the hash needs no key.
            reliable: HashMap::with_hasher(KeyedBuildHasher::new(0)),
            loose: VecDeque::new(),
            reliable_bytes: 0,
            loose_bytes: 0,
            range_count: 0,
            strikes: 0,
            survey: Survey::default(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.reliable.is_empty() && self.loose.is_empty()
    }

    /// Counts a contradicting fragment. Returns whether there were too many.
    pub(super) const fn strike(&mut self) -> bool {
        self.strikes = self.strikes.saturating_add(1);
        self.strikes >= STRIKES_MAX
    }

    pub(super) const fn reliable_bytes(&self) -> usize {
        self.reliable_bytes
    }

    pub(super) const fn loose_bytes(&self) -> usize {
        self.loose_bytes
    }

    /// Validates a fragment of the reliable message `id`, and adds its effect to the totals of the packet.
    pub(super) fn survey(&mut self, id: MessageId, fragment: &Fragment<'_>) -> FragmentCheck {
        let (begin, Some(end)) = (fragment.offset_bytes, fragment.end_bytes()) else {
            return FragmentCheck::Disagrees;
        };
        // All frames about one message must state the same channel, mode, and length.
        let outline = MessageShape::of(fragment);
        let reassembly = self.reliable.get(&id.0);
        let place = self.survey.messages.partition_point(|surveyed| surveyed.id < id.0);
        let surveyed = self.survey.messages.get(place).filter(|surveyed| surveyed.id == id.0);
        let known =
            reassembly.map(|reassembly| reassembly.outline).or(surveyed.map(|surveyed| surveyed.outline));
        if known.is_some_and(|known| !known.agrees_with(&outline)) {
            return FragmentCheck::Disagrees;
        }
        // Two limits bound what the peer can make this end store for fragments: the messages, and the holes in them.
        if known.is_none()
            && self.reliable.len().saturating_add(self.survey.begun_count) >= RELIABLE_IN_PIECES_MAX
        {
            return FragmentCheck::TooMany;
        }
        let have = reassembly.map(|reassembly| &reassembly.have);
        let (count, new_bytes) = have.map_or((1, end.saturating_sub(begin)), |have| have.with(begin, end));
        let adds_range = count > have.map_or(0, Ranges::count);
        if adds_range && self.range_count.saturating_add(self.survey.range_count) >= PIECE_RANGES_MAX {
            return FragmentCheck::Holes;
        }
        // Bytes that two fragments of the packet share are counted twice here. The message then counts as complete too
        // early, which only reserves room for its event.
        let had_bytes = surveyed.map_or(have.map_or(0, Ranges::bytes), |surveyed| surveyed.bytes);
        let bytes = had_bytes.saturating_add(new_bytes);
        match self.survey.messages.get_mut(place).filter(|surveyed| surveyed.id == id.0) {
            Some(surveyed) => surveyed.bytes = bytes,
            None => self.survey.messages.insert(place, Surveyed { id: id.0, outline, bytes }),
        }
        self.survey.begun_count = self.survey.begun_count.saturating_add(known.is_none().into());
        self.survey.range_count = self.survey.range_count.saturating_add(adds_range.into());
        let total = outline.total_bytes;
        if had_bytes < total && bytes >= total {
            FragmentCheck::Completes(charge(total))
        } else {
            FragmentCheck::Fits
        }
    }

    /// Whether a whole message, or a Skip, is consistent with the fragments of its id, including those in the packet
    /// that is validated.
    pub(super) fn agrees_with(&self, id: MessageId, outline: &MessageShape) -> bool {
        let reassembly = self.reliable.get(&id.0).map(|reassembly| reassembly.outline);
        let known = reassembly.or_else(|| {
            let place = self.survey.messages.binary_search_by_key(&id.0, |surveyed| surveyed.id).ok()?;
            self.survey.messages.get(place).map(|surveyed| surveyed.outline)
        });
        known.is_none_or(|known| known.agrees_with(outline))
    }

    /// Whether fragments of any of these messages were received, or are in the packet that is validated.
    pub(super) fn has_any(&self, ids: IdRange) -> bool {
        let is_inside = |id: u64| (ids.first..=ids.last).contains(&id);
        self.reliable.keys().any(|id| is_inside(*id))
            || self.survey.messages.iter().any(|surveyed| is_inside(surveyed.id))
    }

    /// Ends the validation of a packet.
    pub(super) fn end_survey(&mut self) {
        // Most packets of a large message have one fragment each, and must not allocate for it.
        let mut messages = std::mem::take(&mut self.survey.messages);
        messages.clear();
        messages.shrink_to(SURVEYED_KEPT);
        self.survey = Survey { messages, ..Survey::default() };
    }

    /// Whether fragments of the reliable message `id` were received.
    pub(super) fn has(&self, id: MessageId) -> bool {
        self.reliable.contains_key(&id.0)
    }

    /// Stores a validated fragment of the reliable message `id`. Returns the message when it is complete.
    pub(super) fn put(&mut self, id: MessageId, fragment: &Fragment<'_>) -> Option<Vec<u8>> {
        let outline = MessageShape::of(fragment);
        let reassembly = self.reliable.entry(id.0).or_insert_with(|| {
            self.reliable_bytes = self.reliable_bytes.saturating_add(charge(outline.total_bytes));
            Reassembly::new(outline)
        });
        debug_assert!(reassembly.outline.agrees_with(&outline), "the survey refuses pieces that disagree");
        let before = reassembly.have.count();
        reassembly.put(fragment);
        let after = reassembly.have.count();
        self.range_count = self.range_count.saturating_add(after).saturating_sub(before);
        if reassembly.is_whole() { self.remove(id) } else { None }
    }

    /// Removes the fragments of the reliable message `id`. Returns them.
    pub(super) fn remove(&mut self, id: MessageId) -> Option<Vec<u8>> {
        let reassembly = self.reliable.remove(&id.0)?;
        debug_assert!(
            reassembly.charge() <= self.reliable_bytes && reassembly.have.count() <= self.range_count,
            "the fragments of {id:?} were not counted"
        );
        self.reliable_bytes = self.reliable_bytes.saturating_sub(reassembly.charge());
        self.range_count = self.range_count.saturating_sub(reassembly.have.count());
        Some(reassembly.bytes)
    }

    /// Validates a fragment of an unreliable message. Returns the charge for its message, or `None` when the fragment
    /// is dropped.
    pub(super) fn survey_loose(&self, fragment: &Fragment<'_>) -> Option<usize> {
        self.takes_loose(fragment).then(|| self.loose_charge(fragment))
    }

    /// Whether a fragment of an unreliable message is consistent with the received ones.
    pub(super) fn takes_loose(&self, fragment: &Fragment<'_>) -> bool {
        // The number of the first packet identifies an unreliable message. A new one must be newer than the one that
        // makes room for it, or a late fragment would push out a message that can still complete.
        match self.loose.iter().find(|(number, _)| *number == fragment.number) {
            Some((_, reassembly)) => {
                reassembly.have.count() < UNRELIABLE_RANGES_MAX
                    && reassembly.outline.agrees_with(&MessageShape::of(fragment))
            }
            None => self.oldest_loose().is_none_or(|(oldest, _)| fragment.number >= *oldest),
        }
    }

    /// Returns the charge for a fragment of an unreliable message: that of its message for the first fragment, and 0
    /// for later ones.
    pub(super) fn loose_charge(&self, fragment: &Fragment<'_>) -> usize {
        if self.has_loose(fragment.number) { 0 } else { charge(fragment.total_bytes) }
    }

    fn has_loose(&self, number: u64) -> bool {
        self.loose.iter().any(|(other, _)| *other == number)
    }

    /// The unreliable message that is dropped for the next one, when the limit is reached.
    fn oldest_loose(&self) -> Option<&(u64, Reassembly)> {
        self.loose.front().filter(|_| self.loose.len() >= UNRELIABLE_IN_PIECES_MAX)
    }

    /// Stores a fragment of an unreliable message that [`Self::takes_loose`]. Returns the message when it is
    /// complete.
    pub(super) fn put_loose(&mut self, fragment: &Fragment<'_>) -> Option<Vec<u8>> {
        let number = fragment.number;
        let mut place = self.loose.partition_point(|(other, _)| *other < number);
        if self.loose.get(place).is_none_or(|(other, _)| *other != number) {
            if self.loose.len() >= UNRELIABLE_IN_PIECES_MAX {
                // The oldest message is the least likely to complete.
                self.remove_loose(0);
                place = place.saturating_sub(1);
            }
            let reassembly = Reassembly::new(MessageShape::of(fragment));
            self.loose_bytes = self.loose_bytes.saturating_add(reassembly.charge());
            self.loose.insert(place, (number, reassembly));
        }
        debug_assert!(self.has_loose(number), "the message of packet {number} was not stored");
        let (_, reassembly) = self.loose.get_mut(place)?;
        reassembly.put(fragment);
        if reassembly.is_whole() { self.remove_loose(place) } else { None }
    }

    /// Drops older messages of a sequenced channel, after a message of it was delivered.
    pub(super) fn forget_older(&mut self, channel: ChannelId, number: u64) {
        // They would hold memory until newer ones push them out.
        let sequenced = Some(discriminant(&Delivery::UnreliableSequenced));
        while let Some(place) = self.loose.iter().position(|(other, reassembly)| {
            *other < number && (reassembly.outline.channel, reassembly.outline.mode) == (channel, sequenced)
        }) {
            self.remove_loose(place);
        }
    }

    /// Drops the oldest unreliable message if it began before packet `before`. Returns whether it did.
    pub(super) fn forget_oldest_loose(&mut self, before: u64) -> bool {
        let is_older = self.loose.front().is_some_and(|(number, _)| *number < before);
        is_older && self.remove_loose(0).is_some()
    }

    /// Drops all unreliable messages.
    pub(super) fn forget_loose(&mut self) {
        self.loose = VecDeque::new();
        self.loose_bytes = 0;
    }

    fn remove_loose(&mut self, place: usize) -> Option<Vec<u8>> {
        let (_, reassembly) = self.loose.remove(place)?;
        debug_assert!(reassembly.charge() <= self.loose_bytes, "an unreliable message was not charged");
        self.loose_bytes = self.loose_bytes.saturating_sub(reassembly.charge());
        Some(reassembly.bytes)
    }

    /// Asserts what must hold between two packets.
    pub(super) fn check(&self) {
        let Survey { messages, begun_count, range_count } = &self.survey;
        debug_assert!(
            messages.is_empty() && *begun_count == 0 && *range_count == 0,
            "the validation of a packet has not ended"
        );
        let reliable_bytes = self.reliable.values().map(Reassembly::charge).sum::<usize>();
        let loose_bytes = self.loose.iter().map(|(_, reassembly)| reassembly.charge()).sum::<usize>();
        let range_count = self.reliable.values().map(|reassembly| reassembly.have.count()).sum::<usize>();
        debug_assert_eq!(
            (self.reliable_bytes, self.loose_bytes, self.range_count),
            (reliable_bytes, loose_bytes, range_count),
            "incomplete messages were counted wrong"
        );
        debug_assert!(self.reliable.len() <= RELIABLE_IN_PIECES_MAX && range_count <= PIECE_RANGES_MAX);
        debug_assert!(self.loose.len() <= UNRELIABLE_IN_PIECES_MAX);
        debug_assert!(
            self.loose.iter().is_sorted_by(|one, next| one.0 < next.0),
            "incomplete unreliable messages are not in order"
        );
        let loose = self.loose.iter().map(|(_, reassembly)| reassembly);
        for reassembly in self.reliable.values().chain(loose) {
            reassembly.have.check();
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

    fn piece(total: u32, offset: u32, payload: &[u8]) -> Fragment<'_> {
        let piece =
            Message { channel: ChannelId(1), delivery: Delivery::ReliableUnordered { id: ID }, payload };
        Fragment { piece, number: 0, total_bytes: total, offset_bytes: offset }
    }

    fn loose(number: u64, total: u32, offset: u32, payload: &[u8]) -> Fragment<'_> {
        let piece = Message { channel: ChannelId(1), delivery: Delivery::UnreliableSequenced, payload };
        Fragment { piece, number, total_bytes: total, offset_bytes: offset }
    }

    /// Validates a packet with one fragment.
    fn alone(pieces: &mut ReassemblyTable, id: MessageId, fragment: &Fragment<'_>) -> FragmentCheck {
        let fit = pieces.survey(id, fragment);
        pieces.end_survey();
        pieces.check();
        fit
    }

    fn loose_alone(pieces: &mut ReassemblyTable, fragment: &Fragment<'_>) -> Option<usize> {
        let charge = pieces.survey_loose(fragment);
        pieces.end_survey();
        charge
    }

    #[test]
    fn pieces_of_any_size_in_any_order_form_the_message() {
        let whole: Vec<u8> = (0..100).collect();
        let mut pieces = ReassemblyTable::new();
        let cut = |from: u32, to: u32| piece(100, from, &whole[from as usize..to as usize]);
        for (step, (from, to)) in [(90, 100), (10, 40), (30, 60), (0, 10), (10, 20)].into_iter().enumerate() {
            assert_eq!(alone(&mut pieces, ID, &cut(from, to)), FragmentCheck::Fits);
            assert_eq!(pieces.has(ID), step > 0);
            assert_eq!(pieces.put(ID, &cut(from, to)), None);
        }
        assert_eq!(pieces.reliable_bytes(), 164);
        assert_eq!(alone(&mut pieces, ID, &cut(55, 95)), FragmentCheck::Completes(164));
        assert_eq!(pieces.put(ID, &cut(55, 95)), Some(whole.clone()));
        assert!(pieces.is_empty() && pieces.reliable_bytes() == 0 && pieces.range_count == 0);
    }

    #[test]
    fn a_message_never_allocates_more_than_its_length() {
        let mut pieces = ReassemblyTable::new();
        // No fragment ends exactly where the memory ends, so it always has to grow for a fragment that exceeds it.
        assert_eq!(pieces.put(ID, &piece(1_000, 0, &[1; 15])), None);
        for offset in (15..970).step_by(30) {
            assert_eq!(pieces.put(ID, &piece(1_000, offset, &[1; 30])), None);
            let allocated_bytes = pieces.reliable[&ID.0].bytes.capacity();
            assert!(allocated_bytes <= 1_000, "{allocated_bytes} bytes after {offset}");
        }
    }

    /// Fragments of the message `ID` that contradict `piece(100, ..)`.
    fn disagreeing() -> [Fragment<'static>; 3] {
        let mut others = [piece(101, 1, &[1]), piece(100, 1, &[1]), piece(100, 1, &[1])];
        others[1].piece.channel = ChannelId(2);
        others[2].piece.delivery = Delivery::ReliableSequenced { id: ID };
        others
    }

    #[test]
    fn a_piece_must_agree_with_received_and_pending_pieces() {
        let mut pieces = ReassemblyTable::new();
        for other in &disagreeing() {
            assert_eq!(pieces.survey(ID, &piece(100, 0, &[1])), FragmentCheck::Fits);
            assert_eq!(pieces.survey(ID, other), FragmentCheck::Disagrees, "in one packet");
            pieces.end_survey();
        }
        pieces.put(ID, &piece(100, 0, &[1]));
        for other in &disagreeing() {
            assert_eq!(alone(&mut pieces, ID, other), FragmentCheck::Disagrees, "in packets of their own");
        }
    }

    #[test]
    fn a_whole_message_and_a_skip_must_agree_with_pieces() {
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
        let check = |pieces: &ReassemblyTable| {
            assert!(pieces.agrees_with(ID, &whole) && pieces.agrees_with(ID, &skip));
            for other in &others {
                assert!(!pieces.agrees_with(ID, other), "{other:?}");
                assert!(pieces.agrees_with(MessageId(8), other), "no piece of it came");
            }
        };
        let mut pieces = ReassemblyTable::new();
        pieces.survey(ID, &piece(100, 0, &[1]));
        check(&pieces);
        pieces.end_survey();
        assert!(others.iter().all(|other| pieces.agrees_with(ID, other)), "the packet was not taken");
        pieces.put(ID, &piece(100, 0, &[1]));
        check(&pieces);
    }

    #[test]
    fn pieces_of_one_packet_complete_a_message_together() {
        let mut pieces = ReassemblyTable::new();
        pieces.put(ID, &piece(100, 0, &[1; 40]));
        assert_eq!(pieces.survey(ID, &piece(100, 30, &[1; 40])), FragmentCheck::Fits);
        assert_eq!(pieces.survey(ID, &piece(100, 70, &[1; 30])), FragmentCheck::Completes(164));
        assert_eq!(pieces.survey(ID, &piece(100, 70, &[1; 30])), FragmentCheck::Fits, "it is counted once");
        let other = MessageId(8);
        assert_eq!(pieces.survey(other, &piece(10, 0, &[1; 5])), FragmentCheck::Fits);
        assert_eq!(pieces.survey(other, &piece(10, 5, &[1; 5])), FragmentCheck::Completes(74));
    }

    #[test]
    fn a_declared_length_allocates_nothing_before_its_bytes() {
        let mut pieces = ReassemblyTable::new();
        pieces.put(ID, &piece(1 << 24, 0, &[1; 1_000]));
        assert!(pieces.reliable[&7].bytes.capacity() < 2_001);
        for step in 1..3_000 {
            pieces.put(ID, &piece(1 << 24, step * 1_000, &[1; 1_000]));
        }
        assert!(pieces.reliable[&7].bytes.capacity() <= 1 << 24);
    }

    #[test]
    fn holes_and_messages_are_bounded() {
        let mut pieces = ReassemblyTable::new();
        for hole in 0..u32::try_from(PIECE_RANGES_MAX).unwrap() {
            assert_eq!(alone(&mut pieces, ID, &piece(10_000, 2 * hole, &[1])), FragmentCheck::Fits);
            pieces.put(ID, &piece(10_000, 2 * hole, &[1]));
        }
        assert_eq!(alone(&mut pieces, ID, &piece(10_000, 9_000, &[1])), FragmentCheck::Holes);
        assert_eq!(alone(&mut pieces, ID, &piece(10_000, 1, &[1])), FragmentCheck::Fits, "it closes one");
        assert_eq!(alone(&mut pieces, MessageId(8), &piece(10, 0, &[1])), FragmentCheck::Holes);
        let mut pieces = ReassemblyTable::new();
        for id in 0..RELIABLE_IN_PIECES_MAX as u64 {
            pieces.put(MessageId(id), &piece(10, 0, &[1]));
        }
        assert_eq!(alone(&mut pieces, MessageId(1 << 40), &piece(10, 0, &[1])), FragmentCheck::TooMany);
        assert_eq!(alone(&mut pieces, MessageId(0), &piece(10, 1, &[1])), FragmentCheck::Fits);
    }

    #[test]
    fn holes_and_messages_are_bounded_within_one_packet() {
        let mut pieces = ReassemblyTable::new();
        for hole in 0..u32::try_from(PIECE_RANGES_MAX).unwrap() {
            assert_eq!(pieces.survey(ID, &piece(10_000, 2 * hole, &[1])), FragmentCheck::Fits);
        }
        assert_eq!(pieces.survey(ID, &piece(10_000, 9_000, &[1])), FragmentCheck::Holes);
        pieces.end_survey();
        for id in 0..RELIABLE_IN_PIECES_MAX as u64 {
            assert_eq!(pieces.survey(MessageId(id), &piece(10, 0, &[1])), FragmentCheck::Fits);
        }
        assert_eq!(pieces.survey(MessageId(1 << 40), &piece(10, 0, &[1])), FragmentCheck::TooMany);
        assert_eq!(pieces.survey(MessageId(0), &piece(10, 1, &[1])), FragmentCheck::Fits);
        pieces.end_survey();
        assert!(pieces.survey.messages.capacity() <= SURVEYED_KEPT, "a survey leaves no memory behind");
    }

    #[test]
    fn the_newest_unreliable_messages_are_kept() {
        let mut pieces = ReassemblyTable::new();
        for number in 10..18 {
            assert_eq!(loose_alone(&mut pieces, &loose(number, 20, 0, &[1])), Some(84));
            assert_eq!(pieces.put_loose(&loose(number, 20, 0, &[1])), None);
        }
        assert_eq!(pieces.loose_bytes(), 8 * 84);
        assert_eq!(loose_alone(&mut pieces, &loose(9, 20, 0, &[1])), None, "older than all");
        assert_eq!(loose_alone(&mut pieces, &loose(17, 21, 1, &[1])), None, "of another length");
        assert_eq!(loose_alone(&mut pieces, &loose(18, 20, 0, &[1])), Some(84), "in the place of the oldest");
        pieces.put_loose(&loose(18, 20, 0, &[1]));
        assert_eq!((pieces.loose.len(), pieces.loose[0].0), (8, 11));
        assert_eq!(pieces.put_loose(&loose(18, 20, 1, &[2; 19])).map(|whole| whole.len()), Some(20));
        pieces.forget_older(ChannelId(1), 16);
        assert_eq!(pieces.loose.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [16, 17]);
        pieces.forget_loose();
        assert!(pieces.is_empty() && pieces.loose_bytes() == 0);
    }

    #[test]
    fn only_older_unreliable_messages_are_evicted() {
        let mut pieces = ReassemblyTable::new();
        for number in 10..12 {
            pieces.put_loose(&loose(number, 20, 0, &[1]));
        }
        assert!(pieces.forget_oldest_loose(11) && !pieces.forget_oldest_loose(11));
        assert_eq!((pieces.loose.len(), pieces.loose_bytes()), (1, 84));
    }
}
