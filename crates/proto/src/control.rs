//! Reliable frames about the connection itself: kept until they are acknowledged, and sent again when they are lost.
//!
//! `identity` and the credit modules give the frames their meaning. Their fate ids
//! lie far above those of messages.

use bytes::BufMut;
use drumfire_crypto::Secret;
use drumfire_wire::{FrameWriter, MessageId, NewConnectionId, ResumeToken, limits::SEALED_TOKEN_BYTES};

use crate::limits::RETIRING_IDS;
use crate::loss::PacketFate;

/// The first fate id of a control frame. No connection lives long enough to use as many message ids.
const FIRST_ID: u64 = 1 << 63;

/// A frame that must arrive.
#[derive(Debug)]
pub(crate) enum Control {
    NewConnectionId(NewConnectionId),
    RetireConnectionId(u64),
    ResumeToken(Box<SealedResume>),
    /// The total credit for reliable messages that the peer may use.
    Credit(u64),
}

/// A resume token that is being sent to the client.
#[derive(Debug)]
pub(crate) struct SealedResume {
    pub(crate) lifetime_seconds: u16,
    pub(crate) psk: Secret<32>,
    pub(crate) sealed: [u8; SEALED_TOKEN_BYTES],
}

/// The frames that are not acknowledged yet. `None` for the many connections that have no such frame.
#[derive(Debug, Default)]
pub(crate) struct ControlQueue(Option<Box<PendingFrames>>);

#[derive(Debug, Default)]
struct PendingFrames {
    items: Vec<ControlEntry>,
    next_id: u32,
    has_waiting: bool,
}

#[derive(Debug)]
struct ControlEntry {
    id: u64,
    frame: Control,
    /// The last packet with this frame, or `None` while the frame waits to be sent.
    sent_in: Option<u64>,
}

/// Whether this fate id belongs to a control frame.
pub(crate) const fn is_control(id: MessageId) -> bool {
    id.0 >= FIRST_ID
}

impl ControlQueue {
    pub(crate) fn push(&mut self, frame: Control) {
        let pending = self.0.get_or_insert_default();
        let id = FIRST_ID.saturating_add(pending.next_id.into());
        // A `u32` counts years of frames.
        pending.next_id = pending.next_id.saturating_add(1);
        pending.items.push(ControlEntry { id, frame, sent_in: None });
        pending.has_waiting = true;
    }

    /// Queues the peer's total credit, in place of an earlier one.
    pub(crate) fn push_credit(&mut self, total_bytes: u64) {
        self.withdraw(|frame| matches!(frame, Control::Credit(_)));
        self.push(Control::Credit(total_bytes));
    }

    /// Queues the newest resume token, in place of an earlier one. A client could otherwise make tokens accumulate by never
    /// acknowledging them.
    pub(crate) fn push_resume(&mut self, token: SealedResume) {
        self.withdraw(|frame| matches!(frame, Control::ResumeToken(_)));
        self.push(Control::ResumeToken(Box::new(token)));
    }

    /// Queues the retirement of a connection id, unless it is already queued or not acknowledged. Returns false when
    /// too many retirements are not acknowledged.
    pub(crate) fn push_retired(&mut self, sequence: u64) -> bool {
        let retired = |item: &ControlEntry| match item.frame {
            Control::RetireConnectionId(sequence) => Some(sequence),
            _ => None,
        };
        let retiring = self.0.iter().flat_map(|pending| &pending.items).filter_map(retired);
        if retiring.clone().any(|known| known == sequence) {
            return true;
        }
        if retiring.count() >= RETIRING_IDS {
            return false;
        }
        self.push(Control::RetireConnectionId(sequence));
        true
    }

    /// Stops sending a new connection id that the peer has already retired.
    pub(crate) fn withdraw_id(&mut self, sequence: u64) {
        self.withdraw(|frame| matches!(frame, Control::NewConnectionId(new) if new.sequence == sequence));
    }

    /// Stops sending the frames for which `is_old` returns true.
    fn withdraw(&mut self, is_old: impl Fn(&Control) -> bool) {
        let Some(pending) = &mut self.0 else { return };
        pending.items.retain(|item| !is_old(&item.frame));
        pending.has_waiting = pending.items.iter().any(|item| item.sent_in.is_none());
    }

    /// Whether a frame waits to be sent.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        self.0.as_ref().is_some_and(|pending| pending.has_waiting)
    }

    /// Writes waiting frames into packet `number` as far as there is room. Returns their number.
    #[cold]
    pub(crate) fn fill<B: BufMut>(
        &mut self,
        number: u64,
        writer: &mut FrameWriter<B>,
        mut carry: impl FnMut(MessageId),
    ) -> u32 {
        let mut count = 0_u32;
        let Some(pending) = &mut self.0 else { return 0 };
        pending.has_waiting = false;
        for item in pending.items.iter_mut().filter(|item| item.sent_in.is_none()) {
            let written = match &item.frame {
                Control::NewConnectionId(new) => writer.new_connection_id(new),
                Control::RetireConnectionId(sequence) => writer.retire_connection_id(*sequence),
                Control::Credit(total_bytes) => writer.credit(*total_bytes),
                Control::ResumeToken(token) => writer.resume_token(&ResumeToken {
                    lifetime_seconds: token.lifetime_seconds,
                    psk: token.psk.expose(),
                    sealed: &token.sealed,
                }),
            };
            if written.is_err() {
                pending.has_waiting = true;
                break;
            }
            item.sent_in = Some(number);
            carry(MessageId(item.id));
            count = count.saturating_add(1);
        }
        count
    }

    /// Processes the fate of a frame that was sent in packet `number`.
    #[cold]
    pub(crate) fn on_fate(&mut self, fate: PacketFate, id: MessageId, number: u64) {
        let Some(pending) = &mut self.0 else { return };
        match fate {
            PacketFate::Acknowledged => {
                pending.items.retain(|item| item.id != id.0);
                pending.has_waiting = pending.items.iter().any(|item| item.sent_in.is_none());
            }
            PacketFate::Lost => {
                let lost =
                    pending.items.iter_mut().find(|item| item.id == id.0 && item.sent_in == Some(number));
                if let Some(item) = lost {
                    item.sent_in = None;
                    pending.has_waiting = true;
                }
            }
        }
    }

    /// Queues the frame again, whatever its fate.
    pub(crate) fn repeat(&mut self, id: MessageId) {
        let Some(pending) = &mut self.0 else { return };
        if let Some(item) = pending.items.iter_mut().find(|item| item.id == id.0) {
            item.sent_in = None;
            pending.has_waiting = true;
        }
    }

    /// Asserts what must hold between two calls.
    pub(crate) fn assert_invariants(&self) {
        let Some(pending) = &self.0 else { return };
        // A frame that waits without the mark would never be sent, and the mark alone would cause empty packets.
        let has_waiting = pending.items.iter().any(|item| item.sent_in.is_none());
        debug_assert_eq!(pending.has_waiting, has_waiting, "the mark of frames that wait is wrong");
        debug_assert!(pending.items.is_sorted_by(|one, next| one.id < next.id), "two frames share an id");
        let count =
            |is_kind: fn(&Control) -> bool| pending.items.iter().filter(|item| is_kind(&item.frame)).count();
        let credit_count = count(|frame| matches!(frame, Control::Credit(_)));
        debug_assert!(credit_count <= 1, "an older credit waits with a newer one");
        let token_count = count(|frame| matches!(frame, Control::ResumeToken(_)));
        debug_assert!(token_count <= 1, "an older resume token waits with a newer one");
    }

    /// Releases memory that an idle connection does not need. Ids start again from the first, so no frame may be in
    /// flight.
    pub(crate) fn shrink(&mut self) {
        self.0.take_if(|pending| pending.items.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(queue: &mut ControlQueue, number: u64, room: usize) -> Vec<MessageId> {
        let (mut memory, mut carried) = ([0; 100], Vec::new());
        queue.fill(number, &mut FrameWriter::new(&mut memory[..room]), |id| carried.push(id));
        carried
    }

    #[test]
    fn a_frame_is_repeated_until_it_is_acknowledged() {
        let mut queue = ControlQueue::default();
        queue.push(Control::RetireConnectionId(1));
        queue.push(Control::RetireConnectionId(2));
        assert_eq!(fill(&mut queue, 1, 3).len(), 1, "there was room for one");
        assert_eq!(fill(&mut queue, 2, 100).len(), 1);
        assert!(!queue.has_waiting());
        let first = MessageId(FIRST_ID);
        queue.on_fate(PacketFate::Lost, first, 1);
        assert_eq!(fill(&mut queue, 3, 100), [first]);
        queue.on_fate(PacketFate::Lost, first, 1);
        assert!(!queue.has_waiting(), "an old loss of what was sent again");
        queue.on_fate(PacketFate::Acknowledged, first, 1);
        queue.repeat(first);
        assert!(!queue.has_waiting());
        queue.repeat(MessageId(FIRST_ID + 1));
        assert!(queue.has_waiting());
    }

    fn new_id(sequence: u64) -> Control {
        let id = drumfire_wire::ConnectionId::from_bytes([1; 8]);
        Control::NewConnectionId(NewConnectionId { sequence, id, reset_token: [2; 16] })
    }

    #[test]
    fn a_retired_id_is_not_issued_again() {
        let mut queue = ControlQueue::default();
        queue.push(new_id(1));
        fill(&mut queue, 1, 100);
        for sequence in 2..1_000 {
            queue.push(new_id(sequence));
            queue.withdraw_id(sequence - 1);
            assert!(queue.has_waiting(), "the new one");
        }
        queue.on_fate(PacketFate::Lost, MessageId(FIRST_ID), 1);
        assert_eq!(fill(&mut queue, 2, 100), [MessageId(FIRST_ID + 998)]);
        queue.withdraw_id(999);
        assert!(!queue.has_waiting());
        queue.shrink();
        assert!(queue.0.is_none());
    }

    #[test]
    fn only_the_newest_resume_token_is_kept() {
        let mut queue = ControlQueue::default();
        for _ in 0..1_000 {
            let (psk, sealed) = (Secret::new([1; 32]), [2; SEALED_TOKEN_BYTES]);
            queue.push_resume(SealedResume { lifetime_seconds: 600, psk, sealed });
            queue.assert_invariants();
        }
        assert_eq!(queue.0.as_ref().map(|pending| pending.items.len()), Some(1));
        queue.on_fate(PacketFate::Acknowledged, MessageId(FIRST_ID + 998), 1);
        assert!(queue.has_waiting(), "an older token arrived");
        queue.on_fate(PacketFate::Acknowledged, MessageId(FIRST_ID + 999), 2);
        assert!(!queue.has_waiting());
    }

    #[test]
    fn late_ids_are_retired_once_and_nine_at_once_close() {
        let mut queue = ControlQueue::default();
        queue.push(new_id(100));
        for _ in 0..1_000 {
            assert!((0..8).all(|sequence| queue.push_retired(sequence)));
            assert!(!queue.push_retired(8));
        }
        assert_eq!(fill(&mut queue, 1, 100).len(), 1 + 8);
        assert!(!queue.push_retired(8), "none is acknowledged");
        queue.on_fate(PacketFate::Acknowledged, MessageId(FIRST_ID + 1), 1);
        assert!(queue.push_retired(8));
    }
}
