//! Fragmented reliable messages: one id, several fragments, of which only the lost ones are sent again.
//!
//! In all other respects such a message is like any other: it has its order, its lifetime, and its receipt.

use bytes::BufMut;
use drumfire_wire::{ChannelId, FrameWriter, Message, MessageId};

use super::resend::payload_of;
use super::{Arrived, GivenUp, Reliable, SendPriority};
use crate::channel::send::chunks::BodyChunks;
use crate::channel::send::pieces::{FragmentFates, write_piece};
use crate::channel::send::segment::{QueuedMessage, SingleEntry};
use crate::channel::send::sent_run::{RunIds, RunState};
use crate::channel::send::{FillCounts, Packet};
use crate::limits::{CHANNEL_IN_PIECES_MAX, RELIABLE_IN_PIECES_MAX};
use crate::loss::PacketFate;
use crate::time::Moment;

impl Reliable {
    /// Writes the lost fragments of a message again. Returns false when not all of them fit.
    pub(super) fn write_lost_pieces<B: BufMut>(
        &mut self,
        packet: Packet,
        writer: &mut FrameWriter<B>,
        id: u64,
        chunks: &BodyChunks,
        carry: &mut impl FnMut(MessageId),
        filled: &mut FillCounts,
    ) -> bool {
        // Each fragment that fits is taken out of the lost bytes, so the next packet continues behind it.
        while let Some((begin, end)) = self.first_lost_piece(id) {
            let Some(piece) = self.write_next_piece(writer, chunks, id, begin, end) else { return false };
            carry(piece.1);
            filled.add_piece(true, false);
        }
        if let Some(run) = self.run_mut(id) {
            (run.state, run.packet) = (RunState::InFlight, packet.number);
        }
        true
    }

    /// Fragments a message that was sent whole, and marks all its fragments as lost.
    pub(super) fn cut(&mut self, id: u64) {
        let Some(run) = self.run_mut(id) else { return };
        debug_assert!(
            run.pieces.is_none() && !run.is_given_up() && run.ids.count == 1,
            "message {id} is fragmented already, or given up, or not alone"
        );
        let (channel, bytes) = (run.channel, run.payload_bytes);
        let mut pieces: Box<FragmentFates> = Box::default();
        pieces.on_lost(0, bytes);
        run.pieces = Some(pieces);
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
        self.run(id)?.pieces.as_ref()?.first_lost()
    }

    /// Writes a fragment of a message. Returns its end, and the id by which its fate is reported.
    pub(in crate::channel::send) fn write_next_piece<B: BufMut>(
        &mut self,
        writer: &mut FrameWriter<B>,
        chunks: &BodyChunks,
        id: u64,
        begin: u32,
        end: u32,
    ) -> Option<(u32, MessageId)> {
        debug_assert!(
            self.run(id).is_some_and(|run| run.state != RunState::Acknowledged && !run.is_given_up()),
            "a fragment of message {id} is sent, and the message is over"
        );
        // Every fragment repeats the order, because any of them may be the first to arrive.
        let run = self.run(id)?;
        let delivery = run.order.delivery(id, self.base());
        let whole = Message { channel: run.channel, delivery, payload: payload_of(run, chunks) };
        let end = write_piece(writer, &whole, 0, begin, end)?;
        if let Some(pieces) = self.run_mut(id).and_then(|run| run.pieces.as_mut()) {
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
        waiting: SingleEntry<'_>,
        send: SendPriority,
    ) -> u64 {
        let order = self.order_for(waiting.channel, waiting.mode);
        self.on_pieces_begun(waiting.channel);
        let SingleEntry { channel, mode, payload, queued_at, extras } = waiting;
        // The payload is shared with the queue, which writes the fragments. The message is charged once.
        let copy = QueuedMessage { channel, mode, payload: payload.clone(), queued_at, extras: *extras };
        let RunIds { first, .. } = self.keep(copy, order, send);
        if let Some(run) = self.run_mut(first) {
            run.pieces = Some(Box::default());
        }
        first
    }

    /// Gives up a message whose lifetime ended before all of it was sent. A Skip notifies the peer. Returns `None` when
    /// the message was given up before.
    pub(in crate::channel::send) fn abandon(
        &mut self,
        id: u64,
        now: Moment,
        chunks: &mut BodyChunks,
    ) -> Option<GivenUp> {
        // The Skip is sent as the repetition of the message. It names the same id, which the receiver would wait for.
        let given_up = self.give_up(id, now, chunks)?;
        self.repeat_message(id);
        Some(given_up)
    }

    /// Processes the fate of a fragment. Returns the message if all of it has arrived.
    pub(in crate::channel::send) fn on_piece_fate(
        &mut self,
        fate: PacketFate,
        id: MessageId,
        chunks: &mut BodyChunks,
    ) -> Option<Arrived> {
        // The message may have arrived by other fragments, or was given up: then a Skip takes its place.
        let piece = self.book.settle(fate, id)?;
        let run = self.run_mut(piece.message)?;
        let (bytes, is_over) = (run.payload_bytes, run.is_given_up() || run.state == RunState::Acknowledged);
        let pieces = run.pieces.as_mut().filter(|_| !is_over)?;
        if fate == PacketFate::Lost {
            pieces.on_lost(piece.begin, piece.end);
            if pieces.has_lost() {
                self.repeat_message(piece.message);
            }
            return None;
        }
        if pieces.on_acknowledged(piece.begin, piece.end, bytes) {
            return self.acknowledge(RunIds { first: piece.message, count: 1 }, chunks);
        }
        // A fragment that was taken for lost has arrived late, and nothing is left to be repeated.
        if run.state == RunState::Lost && !pieces.has_lost() {
            run.state = RunState::InFlight;
            self.drop_found();
        }
        None
    }

    /// Sends the bytes of a fragment again whatever their fate.
    pub(in crate::channel::send) fn repeat_piece(&mut self, id: MessageId) {
        let Some(piece) = self.book.repeat(id) else { return };
        let Some(run) = self.run_mut(piece.message) else { return };
        let is_over = run.is_given_up();
        let Some(pieces) = run.pieces.as_mut().filter(|_| !is_over) else { return };
        pieces.on_lost(piece.begin, piece.end);
        if pieces.has_lost() {
            self.repeat_message(piece.message);
        }
    }

    /// Sends a fragmented message again, or its Skip.
    fn repeat_message(&mut self, id: u64) {
        if let Some(index) = self.index_of(id) {
            self.lose(index);
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
