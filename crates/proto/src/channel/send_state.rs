//! The send state of one connection. It takes little memory while there are no messages: the queue is allocated for
//! the first message, and only ids and credit are kept afterwards.
//!
//! The queue decides how messages are sent.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::BufMut;
use drumfire_wire::{ChannelId, FrameWriter, MessageId};

use super::block::{BlockOptions, MessageBlock};
use super::credit::SendCredit;
use super::message::Message;
use super::receipt::{Outcome, ReceiptId};
use super::send::{FillCounts, IdleSendState, Packet, PushResult, SendQueue};
use super::{ChannelOptions, IfFull};
use crate::ids::KeyedBuildHasher;
use crate::loss::PacketFate;
use crate::time::Moment;

/// The send queue, or the state that remains of an empty one.
#[derive(Debug)]
pub(crate) enum SendState {
    /// There is nothing to send, and nothing in flight.
    Idle(IdleSendState),
    /// There are messages, or were since memory was last released.
    Busy(Box<SendQueue>),
}

impl SendState {
    pub(crate) const fn new() -> Self {
        Self::Idle(IdleSendState::new())
    }

    /// Reads a field of each part, for `Connection::prefetch_parts`.
    #[inline]
    pub(crate) fn prefetch(&self) -> impl Copy + use<> {
        self.queue().map(SendQueue::prefetch)
    }

    /// Stores the limits of the peer's parameters.
    pub(crate) fn set_parameters(&mut self, message_max_bytes: u32, credit_bytes: u32) {
        // Messages may be queued before the handshake ends, so there may be a queue already.
        let credit = match self {
            Self::Idle(idle) => &mut idle.credit,
            Self::Busy(queue) => &mut queue.credit,
        };
        credit.set_parameters(message_max_bytes, credit_bytes);
    }

    /// The longest reliable message that the peer accepts, in bytes.
    pub(crate) fn message_max_bytes(&self) -> usize {
        self.credit().message_max_bytes()
    }

    /// The credit for reliable messages.
    pub(crate) fn credit(&self) -> &SendCredit {
        match self {
            Self::Idle(idle) => &idle.credit,
            Self::Busy(queue) => &queue.credit,
        }
    }

    /// Processes the peer's new total credit.
    pub(crate) fn on_credit(&mut self, total_bytes: u64) {
        match self {
            Self::Idle(idle) => {
                idle.credit.on_credit(total_bytes);
            }
            Self::Busy(queue) => queue.on_credit(total_bytes),
        }
    }

    /// See [`SendQueue::credit_deadline`].
    #[inline]
    pub(crate) fn credit_deadline(&self) -> Option<Moment> {
        self.queue().and_then(SendQueue::credit_deadline)
    }

    /// See [`SendQueue::on_timeout`].
    pub(crate) fn on_timeout(&mut self, now: Moment) {
        if let Some(queue) = self.queue_mut() {
            queue.on_timeout(now);
        }
    }

    /// See [`SendQueue::push`]. `hash` is the keyed hash for tables whose keys the peer may control.
    pub(crate) fn push(
        &mut self,
        hash: KeyedBuildHasher,
        limit_bytes: usize,
        now: Moment,
        message: Message,
        receipt: Option<ReceiptId>,
        if_full: IfFull,
    ) -> PushResult {
        let before_bytes = self.used_bytes();
        // A refused sender is remembered in the queue, so that it can be notified.
        // The queue is allocated even if it refuses the message. The next idle time releases it.
        let pushed = self.with_queue(hash, |queue| queue.push(limit_bytes, now, message, receipt, if_full));
        // Only a caller that counts memory itself may exceed the limit. Above it, a message may still replace one as long.
        let is_within = if_full == IfFull::Accept || self.used_bytes() <= limit_bytes.max(before_bytes);
        let is_taken = matches!(pushed, PushResult::Taken(_));
        debug_assert!(!is_taken || is_within, "{} of {limit_bytes} bytes wait", self.used_bytes());
        pushed
    }

    /// See [`SendQueue::push_block`].
    pub(crate) fn push_block(
        &mut self,
        hash: KeyedBuildHasher,
        limit_bytes: usize,
        now: Moment,
        options: &BlockOptions,
        block: &Arc<MessageBlock>,
        range: Range<usize>,
    ) -> usize {
        let count = self.with_queue(hash, |queue| queue.push_block(limit_bytes, now, options, block, range));
        let used_bytes = self.used_bytes();
        debug_assert!(count == 0 || used_bytes <= limit_bytes, "{used_bytes} of {limit_bytes} bytes wait");
        count
    }

    /// See [`SendQueue::take_writable`].
    #[inline]
    pub(crate) fn take_writable(&mut self) -> bool {
        self.queue_mut().is_some_and(SendQueue::take_writable)
    }

    /// See [`SendQueue::has_freed`].
    #[inline]
    pub(crate) fn has_freed(&mut self) -> bool {
        self.queue_mut().is_some_and(SendQueue::has_freed)
    }

    /// Marks the connection as listed or not listed. Returns whether it was.
    pub(crate) fn set_listed(&mut self, is_listed: bool) -> bool {
        self.queue_mut().is_some_and(|queue| std::mem::replace(&mut queue.is_listed, is_listed))
    }

    /// See [`SendQueue::fill`].
    #[inline]
    pub(crate) fn fill<B: BufMut>(
        &mut self,
        packet: Packet,
        writer: &mut FrameWriter<B>,
        carry: impl FnMut(MessageId),
    ) -> FillCounts {
        self.queue_mut().map_or_else(FillCounts::default, |queue| queue.fill(packet, writer, carry))
    }

    /// Bytes of messages that wait or are not acknowledged, including charges.
    pub(crate) fn used_bytes(&self) -> usize {
        self.queue().map_or(0, SendQueue::used_bytes)
    }

    /// Returns the time that the next message of each channel has waited.
    pub(crate) fn queue_times(&self, now: Moment) -> Vec<(ChannelId, Duration)> {
        self.queue().map_or_else(Vec::new, |queue| queue.queue_times(now))
    }

    /// Returns how messages of a channel are sent.
    pub(crate) fn options_of(&self, channel: ChannelId) -> ChannelOptions {
        // The queue stores the options, and stays allocated while any differ from the default.
        self.queue().map_or_else(ChannelOptions::default, |queue| queue.options_of(channel))
    }

    /// Sets how messages of a channel are sent from now on.
    pub(crate) fn set_options(
        &mut self,
        hash: KeyedBuildHasher,
        channel: ChannelId,
        options: ChannelOptions,
    ) {
        self.with_queue(hash, |queue| queue.set_options(channel, options));
    }

    /// Whether a packet could carry a message.
    #[inline]
    pub(crate) fn has_sendable(&self) -> bool {
        self.queue().is_some_and(SendQueue::has_sendable)
    }

    /// Returns the next receipt whose outcome is known.
    #[inline]
    pub(crate) fn pop_receipt(&mut self) -> Option<(ReceiptId, Outcome)> {
        self.queue_mut()?.pop_receipt()
    }

    /// See [`SendQueue::on_fate`].
    pub(crate) fn on_fate(&mut self, fate: PacketFate, id: MessageId, packet: u64) {
        // Fates of packets from before `clear` find no queue, and have no meaning any more.
        if let Some(queue) = self.queue_mut() {
            queue.on_fate(fate, id, packet);
        }
    }

    /// See [`SendQueue::repeat`].
    pub(crate) fn repeat(&mut self, id: MessageId) {
        if let Some(queue) = self.queue_mut() {
            queue.repeat(id);
        }
    }

    /// Drops all messages. Nothing is sent after that.
    pub(crate) fn clear(&mut self) {
        // Packets in flight may still report fates, which find no message. Ids start again from 0, but none is used.
        *self = Self::new();
    }

    /// Releases memory that an idle connection does not need.
    pub(crate) fn shrink(&mut self) {
        if let Some(idle) = self.queue_mut().and_then(SendQueue::shrink) {
            *self = Self::Idle(idle);
        }
    }

    /// Asserts what must hold between two calls.
    pub(crate) fn assert_invariants(&self) {
        if let Some(queue) = self.queue() {
            queue.assert_invariants();
        }
    }

    /// Calls `act` with the queue, which is allocated if necessary.
    fn with_queue<T>(&mut self, hash: KeyedBuildHasher, act: impl FnOnce(&mut SendQueue) -> T) -> T {
        match self {
            Self::Busy(queue) => act(queue),
            Self::Idle(idle) => {
                // Ids and credit continue. An id that was used before would be taken for an old message.
                let mut queue = Box::new(SendQueue::new(std::mem::replace(idle, IdleSendState::new()), hash));
                let done = act(&mut queue);
                *self = Self::Busy(queue);
                done
            }
        }
    }

    #[inline]
    fn queue(&self) -> Option<&SendQueue> {
        if let Self::Busy(queue) = self { Some(queue) } else { None }
    }

    #[inline]
    fn queue_mut(&mut self) -> Option<&mut SendQueue> {
        if let Self::Busy(queue) = self { Some(queue) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::WhenFull;
    use drumfire_wire::{Frame, Frames};

    const CHANNEL: ChannelId = ChannelId(3);

    fn push(state: &mut SendState, bytes: usize) -> PushResult {
        let message = Message::reliable_ordered(CHANNEL, vec![7; bytes]);
        state.push(KeyedBuildHasher::new(7), 10_000, Moment::ORIGIN, message, None, IfFull::Notify)
    }

    /// Sends all queued messages. Returns the ids that they were sent with, and those by which their fates are reported.
    fn sent(state: &mut SendState, number: u64) -> (Vec<u64>, Vec<MessageId>) {
        let (mut memory, mut fate_ids) = ([0; 1_000], Vec::new());
        let packet = Packet { number, now: Moment::ORIGIN, room_bytes: memory.len() };
        let mut writer = FrameWriter::new(&mut memory[..]);
        state.fill(packet, &mut writer, |id| fate_ids.push(id));
        let bytes = writer.written_bytes();
        let ids = Frames::new(&memory[..bytes]).map(|frame| match frame.unwrap() {
            Frame::Message(message) => message.id().unwrap().0,
            other => panic!("{other:?}"),
        });
        (ids.collect(), fate_ids)
    }

    #[test]
    fn ids_and_credit_continue_after_the_queue_is_released() {
        let mut state = SendState::new();
        state.set_parameters(2_000, 400);
        for round in 0..2 {
            assert!(!state.has_sendable() && state.used_bytes() == 0);
            assert_eq!(push(&mut state, 100), PushResult::Taken(0));
            state.shrink();
            assert!(state.has_sendable() && state.used_bytes() > 100, "something waits");
            let (ids, fate_ids) = sent(&mut state, round);
            assert_eq!(ids, [round], "no id twice");
            state.shrink();
            assert!(state.used_bytes() > 100, "it is not acknowledged");
            state.on_fate(PacketFate::Acknowledged, fate_ids[0], round);
            state.shrink();
            assert!(matches!(state, SendState::Idle(_)), "{state:?}");
        }
        push(&mut state, 100);
        assert!(sent(&mut state, 2).0.is_empty(), "the credit is used up");
        state.on_credit(1_000);
        assert_eq!(sent(&mut state, 3).0, [2]);
    }

    #[test]
    fn channel_options_survive_the_release_of_the_queue() {
        let mut state = SendState::new();
        let options = ChannelOptions { when_full: WhenFull::DropNewest, ..Default::default() };
        state.set_options(KeyedBuildHasher::new(7), CHANNEL, options);
        state.shrink();
        assert_eq!(state.options_of(CHANNEL), options);
    }

    #[test]
    fn an_idle_send_state_takes_24_bytes() {
        assert_eq!(size_of::<SendState>(), 24);
    }
}
