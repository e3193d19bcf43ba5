//! Fragmented reliable messages: one id, several fragments, of which only the lost ones are sent again.
//!
//! In all other respects such a message is like any other: it has its order, its lifetime, and its receipt.

use bytes::BufMut;
use drumfire_wire::{ChannelId, FrameWriter, Message, MessageId};

use super::resend::payload_of;
use super::{AckedMessages, Reliable, SendPriority, SkippedMessages};
use crate::channel::send::chunks::BodyChunks;
use crate::channel::send::fragments::{FragmentFates, write_fragment};
use crate::channel::send::segment::{QueuedMessage, SingleEntry};
use crate::channel::send::sent_run::{RunIds, RunState};
use crate::channel::send::{FillCounts, Packet};
use crate::limits::{CHANNEL_FRAGMENTED_MAX, RELIABLE_FRAGMENTED_MAX};
use crate::loss::PacketFate;
use crate::time::Moment;

impl Reliable {
    /// Writes the lost fragments of a message again. Returns false when not all of them fit.
    pub(super) fn write_lost_fragments<B: BufMut>(
        &mut self,
        packet: Packet,
        writer: &mut FrameWriter<B>,
        id: u64,
        chunks: &BodyChunks,
        carry: &mut impl FnMut(MessageId),
        filled: &mut FillCounts,
    ) -> bool {
        // Each fragment that fits is taken out of the lost bytes, so the next packet continues behind it.
        while let Some((begin, end)) = self.first_lost_fragment(id) {
            let Some(fragment) = self.write_next_fragment(writer, chunks, id, begin, end) else {
                return false;
            };
            carry(fragment.1);
            filled.add_fragment(true, false);
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
            run.fragments.is_none() && !run.is_given_up() && run.ids.count == 1,
            "message {id} is fragmented already, or given up, or not alone"
        );
        let (channel, bytes) = (run.channel, run.payload_bytes);
        let mut fragments: Box<FragmentFates> = Box::default();
        fragments.on_lost(0, bytes);
        run.fragments = Some(fragments);
        self.on_fragmentation_begun(channel);
    }

    /// Counts a message that is fragmented from now on.
    fn on_fragmentation_begun(&mut self, channel: ChannelId) {
        // Per channel and for all channels, because both are limited.
        let count = self.fragmented.entry(channel).or_insert(0);
        *count = count.saturating_add(1);
        self.fragmented_count = self.fragmented_count.saturating_add(1);
    }

    /// The first bytes of a message that must be sent again.
    fn first_lost_fragment(&self, id: u64) -> Option<(u32, u32)> {
        self.run(id)?.fragments.as_ref()?.first_lost()
    }

    /// Writes a fragment of a message. Returns its end, and the id by which its fate is reported.
    pub(in crate::channel::send) fn write_next_fragment<B: BufMut>(
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
        let end = write_fragment(writer, &whole, 0, begin, end)?;
        if let Some(fragments) = self.run_mut(id).and_then(|run| run.fragments.as_mut()) {
            fragments.on_sent_again(begin, end);
        }
        Some((end, self.sent_fragments.on_sent(id, begin, end)))
    }

    /// Whether another message of this channel may be fragmented now.
    pub(in crate::channel::send) fn may_begin_fragmented(&self, channel: ChannelId) -> bool {
        let of_channel = self.fragmented.get(&channel).copied().unwrap_or(0);
        of_channel < CHANNEL_FRAGMENTED_MAX && self.fragmented_count < RELIABLE_FRAGMENTED_MAX
    }

    /// Assigns an id to a message that is to be fragmented. Returns the id.
    pub(in crate::channel::send) fn begin_fragmented(
        &mut self,
        waiting: SingleEntry<'_>,
        send: SendPriority,
    ) -> u64 {
        let order = self.order_for(waiting.channel, waiting.mode);
        self.on_fragmentation_begun(waiting.channel);
        let SingleEntry { channel, mode, payload, queued_at, extras } = waiting;
        // The payload is shared with the queue, which writes the fragments. The message is charged once.
        let copy = QueuedMessage { channel, mode, payload: payload.clone(), queued_at, extras: *extras };
        let RunIds { first, .. } = self.keep(copy, order, send);
        if let Some(run) = self.run_mut(first) {
            run.fragments = Some(Box::default());
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
    ) -> Option<SkippedMessages> {
        // The Skip is sent as the repetition of the message. It names the same id, which the receiver would wait for.
        let given_up = self.give_up(id, now, chunks)?;
        self.repeat_message(id);
        Some(given_up)
    }

    /// Processes the fate of a fragment. Returns the message if all of it has arrived.
    pub(in crate::channel::send) fn on_fragment_fate(
        &mut self,
        fate: PacketFate,
        id: MessageId,
        chunks: &mut BodyChunks,
    ) -> Option<AckedMessages> {
        // The message may have arrived by other fragments, or was given up: then a Skip takes its place.
        let fragment = self.sent_fragments.resolve(fate, id)?;
        let run = self.run_mut(fragment.message)?;
        let (bytes, is_done) = (run.payload_bytes, run.is_given_up() || run.state == RunState::Acknowledged);
        let fragments = run.fragments.as_mut().filter(|_| !is_done)?;
        if fate == PacketFate::Lost {
            fragments.on_lost(fragment.begin, fragment.end);
            if fragments.has_lost() {
                self.repeat_message(fragment.message);
            }
            return None;
        }
        if fragments.on_acknowledged(fragment.begin, fragment.end, bytes) {
            return self.acknowledge(RunIds { first: fragment.message, count: 1 }, chunks);
        }
        // A fragment that was declared lost has arrived late, and nothing is left to be repeated.
        if run.state == RunState::Lost && !fragments.has_lost() {
            run.state = RunState::InFlight;
            self.drop_acknowledged_losses();
        }
        None
    }

    /// Sends the bytes of a fragment again whatever their fate.
    pub(in crate::channel::send) fn repeat_fragment(&mut self, id: MessageId) {
        let Some(fragment) = self.sent_fragments.repeat(id) else { return };
        let Some(run) = self.run_mut(fragment.message) else { return };
        let is_done = run.is_given_up();
        let Some(fragments) = run.fragments.as_mut().filter(|_| !is_done) else { return };
        fragments.on_lost(fragment.begin, fragment.end);
        if fragments.has_lost() {
            self.repeat_message(fragment.message);
        }
    }

    /// Sends a fragmented message again, or its Skip.
    fn repeat_message(&mut self, id: u64) {
        if let Some(index) = self.index_of(id) {
            self.mark_lost(index);
        }
    }

    /// Registers that a fragmented message was acknowledged, so that another of its channel may begin.
    pub(super) fn on_fragmented_acknowledged(&mut self, channel: ChannelId) {
        debug_assert!(
            self.fragmented_count > 0 && self.fragmented.contains_key(&channel),
            "a fragmented message of {channel:?} was not counted"
        );
        self.fragmented_count = self.fragmented_count.saturating_sub(1);
        let left = self.fragmented.get(&channel).map_or(0, |count| count.saturating_sub(1));
        if left == 0 {
            self.fragmented.remove(&channel);
        } else {
            self.fragmented.insert(channel, left);
        }
    }
}
