//! Messages that come in pieces, until they are whole (PROTOCOL, "Fragments").
//!
//! What a piece may cost is bounded here: how many messages, how many holes, and no more memory than the message declared,
//! taken as its bytes come. Whether there is room for what was declared is decided by credit and by the connection.

use std::collections::{HashMap, VecDeque};
use std::mem::{Discriminant, discriminant};

use drumfire_crypto::plant::{self, Plant};
use drumfire_wire::{ChannelId, Delivery, Fragment, MessageId};

use crate::channel::ranges::Ranges;
use crate::ids::FoldBuild;
use crate::limits::{
    ITEM_CHARGE_BYTES, PIECE_RANGES_MAX, RELIABLE_IN_PIECES_MAX, STRIKES_MAX, UNRELIABLE_IN_PIECES_MAX,
    UNRELIABLE_RANGES_MAX,
};

/// The messages of one connection that are not whole.
#[derive(Debug)]
pub(super) struct Pieces {
    reliable: HashMap<u64, Partial, FoldBuild>,
    /// Unreliable ones, by ascending number.
    loose: VecDeque<(u64, Partial)>,
    /// Charges of what the reliable ones declared.
    reliable_bytes: usize,
    /// The same of the unreliable ones.
    loose_bytes: usize,
    range_count: usize,
    /// How often pieces disagreed.
    strikes: u8,
}

#[derive(Debug)]
struct Partial {
    channel: ChannelId,
    mode: Discriminant<Delivery>,
    total_bytes: u32,
    bytes: Vec<u8>,
    have: Ranges,
}

/// What would come of a piece of a reliable message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// It can be taken in.
    Fits,
    /// It is the last that was missing of a message that is charged so much.
    Completes(usize),
    /// It says something else of its message than the pieces before.
    Disagrees,
    /// There are too many holes.
    Holes,
    /// There are too many messages in pieces.
    TooMany,
}

impl Partial {
    fn new(fragment: &Fragment<'_>) -> Self {
        let piece = &fragment.piece;
        Self {
            channel: piece.channel,
            mode: discriminant(&piece.delivery),
            total_bytes: fragment.total_bytes,
            bytes: Vec::new(),
            have: Ranges::default(),
        }
    }

    fn agrees_with(&self, fragment: &Fragment<'_>) -> bool {
        let piece = &fragment.piece;
        (self.channel, self.mode, self.total_bytes)
            == (piece.channel, discriminant(&piece.delivery), fragment.total_bytes)
    }

    fn charge(&self) -> usize {
        charge(self.total_bytes)
    }

    /// Takes in bytes that lie inside the message, and memory for no more than the message has.
    fn put(&mut self, fragment: &Fragment<'_>) {
        let (begin, Some(end)) = (fragment.offset_bytes, fragment.end_bytes()) else { return };
        let (from, to, total) = (at(begin), at(end), at(self.total_bytes));
        if to > self.bytes.len() {
            if to > self.bytes.capacity() {
                let wanted = self.bytes.capacity().saturating_mul(2).clamp(to, total.max(to));
                self.bytes.reserve_exact(wanted.saturating_sub(self.bytes.len()));
            }
            self.bytes.resize(to, 0);
        }
        let back =
            if plant::is(Plant::PieceMisplaced) { from.saturating_sub(at(self.have.bytes())) } else { 0 };
        if let Some(place) = self.bytes.get_mut(from.saturating_sub(back)..to.saturating_sub(back)) {
            place.copy_from_slice(fragment.piece.payload);
        }
        self.have.insert(begin, end);
    }

    fn is_whole(&self) -> bool {
        self.have.is_whole(self.total_bytes)
    }
}

impl Pieces {
    pub(super) fn new() -> Self {
        Self {
            reliable: HashMap::with_hasher(FoldBuild::new(0)),
            loose: VecDeque::new(),
            reliable_bytes: 0,
            loose_bytes: 0,
            range_count: 0,
            strikes: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.reliable.is_empty() && self.loose.is_empty()
    }

    /// A piece disagreed; answers whether that came too often.
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

    /// What would come of a piece of the reliable message `id`.
    pub(super) fn look(&self, id: MessageId, fragment: &Fragment<'_>) -> Fit {
        let (begin, Some(end)) = (fragment.offset_bytes, fragment.end_bytes()) else { return Fit::Disagrees };
        let Some(partial) = self.reliable.get(&id.0) else {
            return if self.reliable.len() >= RELIABLE_IN_PIECES_MAX {
                Fit::TooMany
            } else if self.range_count >= PIECE_RANGES_MAX {
                Fit::Holes
            } else if (begin, end) == (0, fragment.total_bytes) {
                Fit::Completes(charge(fragment.total_bytes))
            } else {
                Fit::Fits
            };
        };
        if !partial.agrees_with(fragment) {
            return Fit::Disagrees;
        }
        let have = &partial.have;
        let (before, after) = (have.count(), have.count_with(begin, end));
        if after > before && self.range_count >= PIECE_RANGES_MAX {
            return Fit::Holes;
        }
        let is_last = have.bytes().saturating_add(have.missing_in(begin, end)) == partial.total_bytes;
        if is_last { Fit::Completes(partial.charge()) } else { Fit::Fits }
    }

    /// Whether nothing of the reliable message `id` came before a piece of it, which a packet that was found right brings;
    /// within it, pieces may still disagree, or be of too many messages.
    pub(super) fn is_first(&self, id: MessageId, fragment: &Fragment<'_>) -> Result<bool, Fit> {
        match self.reliable.get(&id.0) {
            None if self.reliable.len() >= RELIABLE_IN_PIECES_MAX => Err(Fit::TooMany),
            None => Ok(true),
            Some(partial) if partial.agrees_with(fragment) => Ok(false),
            Some(_) => Err(Fit::Disagrees),
        }
    }

    /// Takes in a piece of the reliable message `id` that agrees with those before; answers the message if it is whole.
    pub(super) fn put(&mut self, id: MessageId, fragment: &Fragment<'_>) -> Option<Vec<u8>> {
        let is_first = !self.reliable.contains_key(&id.0);
        let partial = self.reliable.entry(id.0).or_insert_with(|| Partial::new(fragment));
        if is_first {
            self.reliable_bytes = self.reliable_bytes.saturating_add(partial.charge());
        }
        let before = partial.have.count();
        partial.put(fragment);
        let after = partial.have.count();
        self.range_count = self.range_count.saturating_add(after).saturating_sub(before);
        if partial.is_whole() { self.remove(id) } else { None }
    }

    /// Forgets what came of the reliable message `id`; answers it.
    pub(super) fn remove(&mut self, id: MessageId) -> Option<Vec<u8>> {
        let partial = self.reliable.remove(&id.0)?;
        self.reliable_bytes = self.reliable_bytes.saturating_sub(partial.charge());
        self.range_count = self.range_count.saturating_sub(partial.have.count());
        Some(partial.bytes)
    }

    /// What a piece of an unreliable message would be charged, if its message is new; `None` when it is not taken.
    pub(super) fn look_loose(&self, fragment: &Fragment<'_>) -> Option<usize> {
        if let Some((_, partial)) = self.loose.iter().find(|(number, _)| *number == fragment.number) {
            let has_room = partial.have.count() < UNRELIABLE_RANGES_MAX;
            return (has_room && partial.agrees_with(fragment)).then_some(0);
        }
        let is_full = self.loose.len() >= UNRELIABLE_IN_PIECES_MAX;
        let oldest = self.loose.front().filter(|_| is_full);
        let is_too_old = oldest.is_some_and(|(oldest, _)| fragment.number < *oldest);
        let freed = oldest.map_or(0, |(_, partial)| partial.charge());
        (!is_too_old).then(|| charge(fragment.total_bytes).saturating_sub(freed))
    }

    /// Takes in a piece of an unreliable message that [`Self::look_loose`] found right; answers the message if it is whole.
    pub(super) fn put_loose(&mut self, fragment: &Fragment<'_>) -> Option<Vec<u8>> {
        let number = fragment.number;
        let mut place = self.loose.partition_point(|(other, _)| *other < number);
        if self.loose.get(place).is_none_or(|(other, _)| *other != number) {
            if self.loose.len() >= UNRELIABLE_IN_PIECES_MAX {
                self.remove_loose(0);
                place = place.saturating_sub(1);
            }
            let partial = Partial::new(fragment);
            self.loose_bytes = self.loose_bytes.saturating_add(partial.charge());
            self.loose.insert(place, (number, partial));
        }
        let (_, partial) = self.loose.get_mut(place)?;
        partial.put(fragment);
        if partial.is_whole() { self.remove_loose(place) } else { None }
    }

    /// A message of this sequenced channel was delivered: older ones will not be.
    pub(super) fn forget_older(&mut self, channel: ChannelId, number: u64) {
        let sequenced = discriminant(&Delivery::UnreliableSequenced);
        while let Some(place) = self.loose.iter().position(|(other, partial)| {
            *other < number && (partial.channel, partial.mode) == (channel, sequenced)
        }) {
            self.remove_loose(place);
        }
    }

    /// Forgets all that need not come.
    pub(super) fn forget_loose(&mut self) {
        self.loose = VecDeque::new();
        self.loose_bytes = 0;
    }

    fn remove_loose(&mut self, place: usize) -> Option<Vec<u8>> {
        let (_, partial) = self.loose.remove(place)?;
        self.loose_bytes = self.loose_bytes.saturating_sub(partial.charge());
        Some(partial.bytes)
    }
}

fn at(place: u32) -> usize {
    usize::try_from(place).unwrap_or(usize::MAX)
}

fn charge(total_bytes: u32) -> usize {
    at(total_bytes).saturating_add(ITEM_CHARGE_BYTES)
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

    #[test]
    fn pieces_in_any_order_cut_in_any_way_are_the_message() {
        let whole: Vec<u8> = (0..100).collect();
        let mut pieces = Pieces::new();
        let cut = |from: u32, to: u32| piece(100, from, &whole[from as usize..to as usize]);
        for (step, (from, to)) in [(90, 100), (10, 40), (30, 60), (0, 10), (10, 20)].into_iter().enumerate() {
            assert_eq!(pieces.look(ID, &cut(from, to)), Fit::Fits);
            assert_eq!(pieces.is_first(ID, &cut(from, to)), Ok(step == 0));
            assert_eq!(pieces.put(ID, &cut(from, to)), None);
        }
        assert_eq!(pieces.reliable_bytes(), 164);
        assert_eq!(pieces.look(ID, &cut(55, 95)), Fit::Completes(164));
        assert_eq!(pieces.put(ID, &cut(55, 95)), Some(whole.clone()));
        assert!(pieces.is_empty() && pieces.reliable_bytes() == 0 && pieces.range_count == 0);
    }

    #[test]
    fn a_piece_that_says_something_else_of_its_message_disagrees() {
        let mut pieces = Pieces::new();
        pieces.put(ID, &piece(100, 0, &[1]));
        assert_eq!(pieces.look(ID, &piece(101, 1, &[1])), Fit::Disagrees);
        assert_eq!(pieces.is_first(ID, &piece(101, 1, &[1])), Err(Fit::Disagrees));
        let mut other = piece(100, 1, &[1]);
        other.piece.channel = ChannelId(2);
        assert_eq!(pieces.look(ID, &other), Fit::Disagrees);
        other = piece(100, 1, &[1]);
        other.piece.delivery = Delivery::ReliableSequenced { id: ID };
        assert_eq!(pieces.look(ID, &other), Fit::Disagrees);
    }

    #[test]
    fn a_declared_length_takes_no_memory_before_its_bytes_come() {
        let mut pieces = Pieces::new();
        pieces.put(ID, &piece(1 << 24, 0, &[1; 1_000]));
        assert!(pieces.reliable[&7].bytes.capacity() < 2_001);
        for step in 1..3_000 {
            pieces.put(ID, &piece(3_000_000, step * 1_000, &[1; 1_000]));
        }
        assert!(pieces.reliable[&7].bytes.capacity() <= 1 << 24);
    }

    #[test]
    fn holes_and_messages_are_bounded() {
        let mut pieces = Pieces::new();
        for hole in 0..u32::try_from(PIECE_RANGES_MAX).unwrap() {
            assert_eq!(pieces.look(ID, &piece(10_000, 2 * hole, &[1])), Fit::Fits);
            pieces.put(ID, &piece(10_000, 2 * hole, &[1]));
        }
        assert_eq!(pieces.look(ID, &piece(10_000, 9_000, &[1])), Fit::Holes);
        assert_eq!(pieces.look(ID, &piece(10_000, 1, &[1])), Fit::Fits, "it closes one");
        assert_eq!(pieces.look(MessageId(8), &piece(10, 0, &[1])), Fit::Holes);
        let mut pieces = Pieces::new();
        for id in 0..RELIABLE_IN_PIECES_MAX as u64 {
            pieces.put(MessageId(id), &piece(10, 0, &[1]));
        }
        assert_eq!(pieces.look(MessageId(1 << 40), &piece(10, 0, &[1])), Fit::TooMany);
        assert_eq!(pieces.is_first(MessageId(1 << 40), &piece(10, 0, &[1])), Err(Fit::TooMany));
        assert_eq!(pieces.look(MessageId(0), &piece(10, 1, &[1])), Fit::Fits);
    }

    #[test]
    fn of_unreliable_messages_the_newest_are_kept() {
        let mut pieces = Pieces::new();
        for number in 10..18 {
            assert_eq!(pieces.look_loose(&loose(number, 20, 0, &[1])), Some(84));
            assert_eq!(pieces.put_loose(&loose(number, 20, 0, &[1])), None);
        }
        assert_eq!(pieces.loose_bytes(), 8 * 84);
        assert_eq!(pieces.look_loose(&loose(9, 20, 0, &[1])), None, "older than all");
        assert_eq!(pieces.look_loose(&loose(17, 21, 1, &[1])), None, "of another length");
        assert_eq!(pieces.look_loose(&loose(18, 20, 0, &[1])), Some(0), "in the place of the oldest");
        pieces.put_loose(&loose(18, 20, 0, &[1]));
        assert_eq!((pieces.loose.len(), pieces.loose[0].0), (8, 11));
        assert_eq!(pieces.put_loose(&loose(18, 20, 1, &[2; 19])).map(|whole| whole.len()), Some(20));
        pieces.forget_older(ChannelId(1), 16);
        assert_eq!(pieces.loose.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [16, 17]);
        pieces.forget_loose();
        assert!(pieces.is_empty() && pieces.loose_bytes() == 0);
    }
}
