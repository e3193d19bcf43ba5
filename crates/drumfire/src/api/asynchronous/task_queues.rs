//! What all connections of one worker share where tasks meet it: the link, memory for what is handed out, and the list of memory
//! that goes back.

use drumfire_proto::PeerId;
use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::inbox::{Inbox, InboxPoll};
use crate::base::sync::{Mailbox, Mutex, lock};
use crate::worker::arena::Arena;
use crate::worker::channel::WorkerChannel;

/// Arenas of one worker, so that tasks on several threads are not in each other's way.
const ARENAS: usize = 4;

/// Where the tasks of one worker's connections meet it.
#[derive(Debug)]
pub(super) struct TaskQueues {
    pub(super) link: Arc<WorkerChannel>,
    /// Of each connection.
    pub(super) receive_memory_bytes: usize,
    arenas: [Mutex<Arena>; ARENAS],
    returns: Mailbox<Return>,
}

/// Charges of messages that were taken: their memory is the connection's again. A connection has a few under way at most,
/// because each is a quarter of its memory or all there was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Return {
    pub(super) peer: PeerId,
    pub(super) charge_bytes: usize,
}

impl TaskQueues {
    pub(super) fn new(link: &Arc<WorkerChannel>, receive_memory_bytes: usize) -> Self {
        Self {
            link: Arc::clone(link),
            receive_memory_bytes,
            arenas: Default::default(),
            returns: Mailbox::default(),
        }
    }

    /// Takes the next event from an inbox of this worker.
    pub(super) fn take(&self, peer: PeerId, inbox: &mut Inbox, may_rest: bool) -> InboxPoll {
        let arena = &self.arenas[peer.slot() as usize % ARENAS];
        let hand_out = |head: &[u8], tail: &[u8]| -> Bytes { lock(arena).copy_parts(head, tail) };
        inbox.take(peer, hand_out, may_rest)
    }

    /// Gives memory back, with the worker's next pass, which begins at once.
    pub(super) fn give_back(&self, peer: PeerId, charge_bytes: usize) {
        // It is never closed, and where the worker is gone the memory is nobody's.
        let _ = self.returns.put(Return { peer, charge_bytes }, usize::MAX);
        self.link.nudge();
    }

    /// Takes all that was given back to the end of `into`.
    pub(super) fn take_returns(&self, into: &mut VecDeque<Return>) {
        self.returns.take(into);
    }
}
