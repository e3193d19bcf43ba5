//! Retransmissions: lost messages, copies for redundancy, and Skips for messages whose lifetime is over.

use bytes::BufMut;
use drumfire_wire::{Bodies, EncodeError, FrameWriter, Lengths, Message, MessageId, Skip, SkipRun, varint};

use super::{Reliable, SkippedMessages};
use crate::channel::send::chunks::BodyChunks;
use crate::channel::send::fill::write_bodies;
use crate::channel::send::fragments::must_fragment;
use crate::channel::send::sent_run::{Order, RunBodies, RunFrame, RunIds, RunState, SentRun, lengths_of};
use crate::channel::send::{FillCounts, Packet};
use crate::convert::{saturated, to_usize};
use crate::limits::RELIABLE_FRAGMENTED_MAX;
use crate::time::Moment;

impl Reliable {
    /// Writes the lost messages of a class, oldest first. Returns false when one did not fit.
    pub(in crate::channel::send) fn write_lost<B: BufMut>(
        &mut self,
        (class, packet): (usize, Packet),
        writer: &mut FrameWriter<B>,
        chunks: &mut BodyChunks,
        carry: &mut impl FnMut(MessageId),
        filled: &mut FillCounts,
        mut given_up: impl FnMut(SkippedMessages),
    ) -> bool {
        while let Some(id) = self.first_lost(class) {
            // A message may have arrived while it waited in the list.
            if self.run(id).is_some_and(|run| run.state == RunState::Lost) {
                if let Some(skipped) = self.give_up(id, packet.now, chunks) {
                    given_up(skipped);
                }
                if !self.write_lost_run(packet, writer, id, chunks, carry, filled) {
                    return false;
                }
            }
            self.pop_lost(class);
        }
        true
    }

    /// Writes a lost run again, or the lost fragments of its message. Returns false when not all of it fits. A part of
    /// a run that fits is written, and the rest is another lost run.
    fn write_lost_run<B: BufMut>(
        &mut self,
        packet: Packet,
        writer: &mut FrameWriter<B>,
        id: u64,
        chunks: &mut BodyChunks,
        carry: &mut impl FnMut(MessageId),
        filled: &mut FillCounts,
    ) -> bool {
        let has_fragments = self.run(id).is_some_and(|run| run.fragments.is_some() && !run.is_given_up());
        if !has_fragments {
            if self.cut_to_fit(writer, id, chunks) == Some(0) {
                return false;
            }
            match self.write_again(packet.number, writer, id, chunks) {
                Ok(ids) => {
                    carry(ids.fate_id());
                    filled.add(ids.count, true, true);
                    return true;
                }
                // The message fitted once, but the present path carries less.
                Err(error)
                    if must_fragment(error, packet.room_bytes)
                        && self.fragmented_count < RELIABLE_FRAGMENTED_MAX =>
                {
                    self.cut(id);
                }
                Err(_) => return false,
            }
        }
        self.write_lost_fragments(packet, writer, id, chunks, carry, filled)
    }

    /// Splits the run that begins with `id`, if it has several messages and only a part of them fits the packet. Returns
    /// the number of messages that fit, or `None` for a single message.
    fn cut_to_fit<B: BufMut>(
        &mut self,
        writer: &FrameWriter<B>,
        id: u64,
        chunks: &mut BodyChunks,
    ) -> Option<u16> {
        let run = self.run(id).filter(|run| run.ids.count > 1)?;
        let delivery = run.order.delivery(id, self.base());
        let fit = match &run.content {
            RunBodies::Bodies(range) => {
                let mut fit =
                    RunFrame::behind(writer, &Message { channel: run.channel, delivery, payload: &[] })?;
                fit.take_bodies(chunks.bodies(range));
                fit
            }
            RunBodies::GivenUp(lengths) => {
                let skip = self.skip_of(run);
                let head =
                    [skip.channel.0.into(), id, skip.after.map_or(0, |after| id.saturating_sub(after.0))];
                let head_bytes = head.map(varint::encoded_bytes).into_iter().fold(1, usize::saturating_add);
                let room_bytes = writer.remaining_bytes().saturating_sub(head_bytes);
                let mut fit = RunFrame::new(room_bytes, writer.run_messages_left());
                fit.take_lengths(lengths);
                fit
            }
            RunBodies::Message(_) | RunBodies::Nothing => return None,
        };
        // A run is not bound to the size of the packet that it was in: paths change, and other messages take room.
        if fit.count > 0 && fit.count < run.ids.count {
            self.split(id, &fit, chunks);
        }
        Some(fit.count)
    }

    /// Splits a run behind the messages of `fit`. Both parts have its state.
    fn split(&mut self, id: u64, fit: &RunFrame, chunks: &mut BodyChunks) {
        let Some(index) = self.index_of(id) else { return };
        let Some(run) = self.runs.get_mut(index) else { return };
        debug_assert!(
            run.fragments.is_none() && fit.count < run.ids.count,
            "{run:?} cannot be split at {fit:?}"
        );
        let content = match &mut run.content {
            RunBodies::Bodies(range) => {
                let first = chunks.split_first(range, fit.body_bytes);
                RunBodies::Bodies(std::mem::replace(range, first))
            }
            RunBodies::GivenUp(lengths) => {
                let (first, rest) = lengths.split_at_checked(fit.body_bytes).unwrap_or_default();
                let (first, rest) = (first.into(), rest.into());
                *lengths = first;
                RunBodies::GivenUp(rest)
            }
            RunBodies::Message(_) | RunBodies::Nothing => return,
        };
        let first = id.saturating_add(fit.count.into());
        let payload_bytes = saturated(fit.payload_bytes, u32::MAX);
        let is_ordered = matches!(run.order, Order::After(_));
        let rest = SentRun {
            ids: RunIds { first, count: run.ids.count.saturating_sub(fit.count) },
            channel: run.channel,
            content,
            payload_bytes: run.payload_bytes.saturating_sub(payload_bytes),
            deadline: run.deadline,
            // Each further message of an ordered run follows the one before it.
            order: if is_ordered { Order::After(first.checked_sub(1)) } else { run.order },
            class: run.class,
            state: run.state,
            packet: run.packet,
            fragments: None,
            copies_left: run.copies_left,
        };
        // `loss` needs no change, because its ids name messages and not records.
        (run.ids.count, run.payload_bytes) = (fit.count, payload_bytes);
        let (state, class) = (rest.state, rest.class);
        self.runs.insert(index.saturating_add(1), rest);
        if state == RunState::Lost {
            self.insert_lost(class, first);
        }
    }

    /// Writes messages that were sent before, or their Skips if they were given up. Returns their ids.
    fn write_again<B: BufMut>(
        &mut self,
        number: u64,
        writer: &mut FrameWriter<B>,
        id: u64,
        chunks: &BodyChunks,
    ) -> Result<RunIds, EncodeError> {
        let base = self.base();
        // The caller has just found the run, so its absence is no error of the encoder.
        let Some(index) = self.index_of(id) else { return Err(EncodeError::BadRun) };
        let Some(run) = self.runs.get(index) else { return Err(EncodeError::BadRun) };
        debug_assert!(run.state != RunState::Acknowledged, "message {id} is sent again, and has arrived");
        let (channel, ids, delivery) = (run.channel, run.ids, run.order.delivery(id, base));
        match &run.content {
            RunBodies::GivenUp(_) if ids.count == 1 => writer.skip(&self.skip_of(run))?,
            RunBodies::GivenUp(bytes) => {
                let Skip { after, .. } = self.skip_of(run);
                let lengths = Lengths { bytes, count: ids.count };
                writer.skip_run(&SkipRun { channel, id: MessageId(id), after, lengths })?;
            }
            RunBodies::Bodies(range) => {
                write_bodies(writer, channel, delivery, ids.count, chunks.bodies(range))?;
            }
            _ => writer.message(&Message { channel, delivery, payload: payload_of(run, chunks) })?,
        }
        if let Some(run) = self.runs.get_mut(index) {
            (run.state, run.packet) = (RunState::InFlight, number);
        }
        Ok(ids)
    }

    /// The Skip of the first message of a run.
    fn skip_of(&self, run: &SentRun) -> Skip {
        let id = MessageId(run.ids.first);
        Skip { channel: run.channel, id, after: run.order.after(self.base()), bytes: run.payload_bytes }
    }

    /// Gives up a run, if its lifetime is over and it was not given up before. Returns the messages that were given up.
    pub(super) fn give_up(
        &mut self,
        id: u64,
        now: Moment,
        chunks: &mut BodyChunks,
    ) -> Option<SkippedMessages> {
        // The Skips may have arrived already, while a part of a fragmented message waits to be sent.
        let run = self.run(id).filter(|run| run.state != RunState::Acknowledged && !run.is_given_up())?;
        if run.deadline.is_none_or(|deadline| deadline > now) {
            return None;
        }
        // The receiver charges each Skip the length of its message, as the sender's credit was.
        let lengths = match &run.content {
            RunBodies::Bodies(range) if run.ids.count > 1 => lengths_of(chunks.bodies(range)),
            _ => Box::default(),
        };
        let run = self.run_mut(id)?;
        let (ids, payload_bytes) = (run.ids, to_usize(run.payload_bytes));
        if let RunBodies::Bodies(range) = std::mem::replace(&mut run.content, RunBodies::GivenUp(lengths)) {
            chunks.release(range);
        }
        Some(SkippedMessages { ids, payload_bytes })
    }

    /// Repeats short messages that are in flight in earlier packets, each once per packet, as far as they fit.
    pub(in crate::channel::send) fn write_copies<B: BufMut>(
        &mut self,
        number: u64,
        writer: &mut FrameWriter<B>,
        chunks: &mut BodyChunks,
        carry: &mut impl FnMut(MessageId),
        filled: &mut FillCounts,
    ) {
        // The list is visited once: ids that are still due go to its end.
        for _ in 0..self.copied.len() {
            let Some(id) = self.copied.pop_front() else { return };
            let Some(run) = self.run(id) else { continue };
            if run.state != RunState::InFlight || run.is_given_up() || run.fragments.is_some() {
                // A lost message is sent again anyway.
                continue;
            }
            // A second copy in one packet would share its fate.
            if run.packet == number {
                self.copied.push_back(id);
                continue;
            }
            let count = run.ids.count;
            let fit_count = self.cut_to_fit(writer, id, chunks);
            let Ok(ids) = self.write_part(fit_count, number, writer, id, chunks) else {
                self.copied.push_front(id);
                return;
            };
            carry(ids.fate_id());
            filled.copied_count = filled.copied_count.saturating_add(ids.count.into());
            filled.reliable_count = filled.reliable_count.saturating_add(1);
            if let Some(run) = self.run_mut(id) {
                run.copies_left = run.copies_left.saturating_sub(1);
                if run.copies_left > 0 {
                    self.copied.push_back(id);
                }
            }
            if ids.count < count {
                // The rest of the run is another one, which comes first in the next packet.
                self.copied.push_front(ids.end());
                return;
            }
        }
    }

    /// Writes a run again, unless no part of it fits.
    fn write_part<B: BufMut>(
        &mut self,
        fit_count: Option<u16>,
        number: u64,
        writer: &mut FrameWriter<B>,
        id: u64,
        chunks: &BodyChunks,
    ) -> Result<RunIds, EncodeError> {
        if fit_count == Some(0) {
            return Err(EncodeError::NoRoom { needed_bytes: writer.remaining_bytes().saturating_add(1) });
        }
        self.write_again(number, writer, id, chunks)
    }
}

/// The payload of a run of one message.
pub(super) fn payload_of<'a>(run: &'a SentRun, chunks: &'a BodyChunks) -> &'a [u8] {
    debug_assert!(run.ids.count == 1, "{run:?} has several payloads");
    match &run.content {
        RunBodies::Message(payload) => payload,
        RunBodies::Bodies(range) => {
            Bodies::split_first(chunks.bodies(range)).map_or(&[], |(payload, _)| payload)
        }
        RunBodies::GivenUp(_) | RunBodies::Nothing => &[],
    }
}
