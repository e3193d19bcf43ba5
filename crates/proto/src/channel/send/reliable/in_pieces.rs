//! Fragmented reliable messages: one id, several fragments, of which only the lost ones are sent again.
//!
//! In all other respects such a message is like any other: it has its order, its lifetime, and its receipt.

use bytes::BufMut;
use drumfire_wire::{ChannelId, FrameWriter, Message, MessageId};

use super::{Arrived, First, GivenUp, MessageState, Reliable, sent_mut, sent_ref};
use crate::channel::Redundancy;
use crate::channel::send::fill::must_cut;
use crate::channel::send::pieces::{FragmentFates, write_piece};
use crate::channel::send::waiting::{QueueEntry, QueuedMessage};
use crate::channel::send::{FillCounts, Packet};
use crate::limits::{CHANNEL_IN_PIECES_MAX, RELIABLE_IN_PIECES_MAX};
use crate::loss::PacketFate;
use crate::time::Moment;

impl Reliable {
    /// Writes one lost message again, or the lost fragments of it. Returns false when not all of it fits.
    pub(super) fn write_lost_one<B: BufMut>(
        &mut self,
        packet: Packet,
        writer: &mut FrameWriter<B>,
        id: u64,
        carry: &mut impl FnMut(MessageId),
        filled: &mut FillCounts,
    ) -> bool {
        let has_pieces = sent_ref(&self.sent, self.base, id)
            .is_some_and(|sent| sent.pieces.is_some() && !sent.is_given_up);
        if !has_pieces {
            match self.write_again(packet.number, writer, id) {
                Ok(()) => {
                    carry(MessageId(id));
                    filled.add(true, true);
                    return true;
                }
                // The message fitted once, but the present path carries less.
                Err(error) if must_cut(error, packet) && self.in_pieces_count < RELIABLE_IN_PIECES_MAX => {
                    self.cut(id);
                }
                Err(_) => return false,
            }
        }
        // Each fragment that fits is taken out of the lost bytes, so the next packet continues behind it.
        while let Some((begin, end)) = self.first_lost_piece(id) {
            let Some(piece) = self.write_next_piece(writer, id, begin, end) else { return false };
            carry(piece.1);
            filled.add_piece(true, false);
        }
        if let Some(sent) = sent_mut(&mut self.sent, self.base, id) {
            (sent.state, sent.packet) = (MessageState::InFlight, packet.number);
        }
        true
    }

    /// Fragments a message that was sent whole, and marks all its fragments as lost.
    fn cut(&mut self, id: u64) {
        let Some(sent) = sent_mut(&mut self.sent, self.base, id) else { return };
        debug_assert!(
            sent.pieces.is_none() && !sent.is_given_up,
            "message {id} is fragmented already, or given up"
        );
        let (channel, bytes) = (sent.channel, sent.bytes);
        let mut pieces: Box<FragmentFates> = Box::default();
        pieces.on_lost(0, bytes);
        sent.pieces = Some(pieces);
        self.on_pieces_begun(channel);
    }

    /// Counts a message that is fragmented from now on.
    fn on_pieces_begun(&mut self, channel: ChannelId) {
        // Per channel and for all channels, because both are limited.
        let count = self.in_pieces.entry(channel).or_insert(0);
        *count = count.saturating_add(1);
        self.in_pieces_count = self.in_pieces_count.saturating_add(1);
    }

    /// The first bytes of a message that must be sent again.
    fn first_lost_piece(&self, id: u64) -> Option<(u32, u32)> {
        sent_ref(&self.sent, self.base, id)?.pieces.as_ref()?.first_lost()
    }

    /// Writes a fragment of a message. Returns its end, and the id by which its fate is reported.
    pub(in crate::channel::send) fn write_next_piece<B: BufMut>(
        &mut self,
        writer: &mut FrameWriter<B>,
        id: u64,
        begin: u32,
        end: u32,
    ) -> Option<(u32, MessageId)> {
        debug_assert!(
            sent_ref(&self.sent, self.base, id)
                .is_some_and(|sent| sent.state != MessageState::Acknowledged && !sent.is_given_up),
            "a fragment of message {id} is sent, and the message is over"
        );
        // Every fragment repeats the order, because any of them may be the first to arrive.
        let order = self.refreshed_order(id)?;
        let sent = sent_mut(&mut self.sent, self.base, id)?;
        sent.order = order;
        let delivery = order.delivery(id);
        let whole = Message { channel: sent.channel, delivery, payload: &sent.payload };
        let end = write_piece(writer, &whole, 0, begin, end)?;
        if let Some(pieces) = &mut sent.pieces {
            pieces.on_sent_again(begin, end);
        }
        Some((end, self.book.on_sent(id, begin, end)))
    }

    /// Whether another message of this channel may be fragmented now.
    pub(in crate::channel::send) fn may_begin_pieces(&self, channel: ChannelId) -> bool {
        let of_channel = self.in_pieces.get(&channel).copied().unwrap_or(0);
        of_channel < CHANNEL_IN_PIECES_MAX && self.in_pieces_count < RELIABLE_IN_PIECES_MAX
    }

    /// Assigns an id to a message that is to be fragmented. Returns the id.
    pub(in crate::channel::send) fn begin_pieces(
        &mut self,
        waiting: QueueEntry<'_>,
        class: usize,
        number: u64,
    ) -> u64 {
        let (id, order) = (self.next_id(), self.order_for(waiting));
        let first = First { id: MessageId(id), order };
        self.on_pieces_begun(waiting.channel);
        let pieces = Some(Box::default());
        let QueueEntry { channel, mode, payload, queued_at, extras } = waiting;
        // The payload is shared with the queue, which writes the fragments. The message is charged once.
        let copy = QueuedMessage { channel, mode, payload: payload.clone(), queued_at, extras: *extras };
        self.keep(copy, first, class, number, Redundancy::None);
        if let Some(sent) = sent_mut(&mut self.sent, self.base, id) {
            sent.pieces = pieces;
        }
        id
    }

    /// Gives up a message whose lifetime ended before all of it was sent. A Skip notifies the peer. Returns `None` when
    /// the message was given up before.
    pub(in crate::channel::send) fn abandon(&mut self, id: u64, now: Moment) -> Option<GivenUp> {
        // The Skip is sent as the repetition of the message. It names the same id, which the receiver would wait for.
        let given_up = self.give_up(id, now)?;
        self.repeat(id);
        Some(given_up)
    }

    /// Processes the fate of a fragment. Returns the message if all of it has arrived.
    pub(in crate::channel::send) fn on_piece_fate(
        &mut self,
        fate: PacketFate,
        id: MessageId,
    ) -> Option<Arrived> {
        // The message may have arrived by other fragments, or was given up: then a Skip takes its place.
        let piece = self.book.settle(fate, id)?;
        let sent = sent_mut(&mut self.sent, self.base, piece.message)?;
        let (bytes, is_over) = (sent.bytes, sent.is_given_up || sent.state == MessageState::Acknowledged);
        let pieces = sent.pieces.as_mut().filter(|_| !is_over)?;
        if fate == PacketFate::Lost {
            pieces.on_lost(piece.begin, piece.end);
            if pieces.has_lost() {
                self.repeat(piece.message);
            }
            return None;
        }
        if pieces.on_acknowledged(piece.begin, piece.end, bytes) {
            return self.acknowledge(piece.message);
        }
        // A fragment that was taken for lost has arrived late, and nothing is left to be repeated.
        if sent.state == MessageState::Lost && !pieces.has_lost() {
            sent.state = MessageState::InFlight;
            self.drop_found();
        }
        None
    }

    /// Sends the bytes of a fragment again whatever their fate.
    pub(in crate::channel::send) fn repeat_piece(&mut self, id: MessageId) {
        let Some(piece) = self.book.repeat(id) else { return };
        let Some(sent) = sent_mut(&mut self.sent, self.base, piece.message) else { return };
        let is_over = sent.is_given_up;
        let Some(pieces) = sent.pieces.as_mut().filter(|_| !is_over) else { return };
        pieces.on_lost(piece.begin, piece.end);
        if pieces.has_lost() {
            self.repeat(piece.message);
        }
    }

    /// Registers that a fragmented message was acknowledged, so that another of its channel may begin.
    pub(super) fn on_pieces_over(&mut self, channel: ChannelId) {
        debug_assert!(
            self.in_pieces_count > 0 && self.in_pieces.contains_key(&channel),
            "a fragmented message of {channel:?} was not counted"
        );
        self.in_pieces_count = self.in_pieces_count.saturating_sub(1);
        let left = self.in_pieces.get(&channel).map_or(0, |count| count.saturating_sub(1));
        if left == 0 {
            self.in_pieces.remove(&channel);
        } else {
            self.in_pieces.insert(channel, left);
        }
    }
}
