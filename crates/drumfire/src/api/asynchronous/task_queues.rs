//! The state that all connections of one worker share with tasks: the link, the memory for payloads, and the list of memory to return
//! to the connections.

use drumfire_proto::PeerId;
use drumfire_proto::limits::CREDIT_START_BYTES;
use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::inbox::{Inbox, InboxPoll};
use crate::base::sync::{Mailbox, Mutex, lock};
use crate::worker::arena::Arena;
use crate::worker::channel::WorkerChannel;

/// The number of arenas of one worker, so that tasks on several threads rarely wait for one another.
const ARENAS: usize = 4;

/// The state that all connections of one worker share with tasks.
#[derive(Debug)]
pub(super) struct TaskQueues {
    pub(super) link: Arc<WorkerChannel>,
    /// The receive memory of each connection, which determines how many bytes are returned at a time. It is at most twice the credit of a
    /// new connection, because the peer of a slow connection never gets more credit than that.
    pub(super) receive_memory_bytes: usize,
    arenas: [Mutex<Arena>; ARENAS],
    credits: Mailbox<MemoryCredit>,
}

/// The charges of messages that tasks have taken, whose memory returns to the connection. A connection has only a few of these in the
/// queue, because each is at least a quarter of its memory, or all of it that was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryCredit {
    pub(super) peer: PeerId,
    /// The [`Inbox::attempt`] of the messages.
    pub(super) attempt: u32,
    pub(super) charge_bytes: usize,
}

impl TaskQueues {
    pub(super) fn new(link: &Arc<WorkerChannel>, receive_memory_bytes: usize) -> Self {
        Self {
            link: Arc::clone(link),
            receive_memory_bytes: receive_memory_bytes.min(2 * CREDIT_START_BYTES as usize),
            arenas: Default::default(),
            credits: Mailbox::default(),
        }
    }

    /// Takes the next event from an inbox of this worker.
    pub(super) fn take(&self, peer: PeerId, inbox: &mut Inbox, may_yield: bool) -> InboxPoll {
        let arena = &self.arenas[peer.slot() as usize % ARENAS];
        let copy = |head: &[u8], tail: &[u8]| -> Bytes { lock(arena).copy_parts(head, tail) };
        inbox.take(peer, copy, may_yield)
    }

    /// Returns memory to a connection with the next pass of the worker, which starts immediately.
    pub(super) fn return_credit(&self, credit: MemoryCredit) {
        // The mailbox is never closed. Without a worker there is no memory to return.
        let _ = self.credits.put(credit, usize::MAX);
        self.link.notify_worker();
    }

    /// Moves all returned memory to the end of `into`.
    pub(super) fn take_credits(&self, into: &mut VecDeque<MemoryCredit>) {
        self.credits.take(into);
    }
}
