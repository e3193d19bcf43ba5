//! The sink for tasks: takes all events from the endpoint and puts each into the inbox of its connection.
//!
//! The memory of a message returns to its connection only after a task has taken the message. A slow task therefore affects only
//! its own peer: the peer runs out of credit, and unreliable messages are dropped when the receive memory is full.
//! Tasks are woken at the end of a pass, once per connection, when all events are in the inboxes.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use drumfire_proto::limits::ITEM_CHARGE_BYTES;
use drumfire_proto::{
    CloseCode, CloseReason, ConnectError, Event as CoreEvent, EventBatch, MessageRun, PeerId, Placement,
};

use super::accept_queue::AcceptQueue;
use super::attempts::Attempts;
use super::connection::Connection;
use super::inbox::Inbox;
use super::shared::Shared;
use super::task_queues::{MemoryCredit, TaskQueues};
use crate::base::peer_map::PeerMap;
use crate::message::event::{Closed, Event};
use crate::worker::command::Command;
use crate::worker::core::Core;
use crate::worker::sink::Sink;

/// The receiver of new connections.
#[derive(Debug)]
pub(super) enum AcceptTarget {
    Server(Arc<AcceptQueue>),
    Client(Arc<Attempts>),
}

/// The connections of one worker, for tasks.
#[derive(Debug)]
pub(super) struct TaskSink {
    /// The events of the endpoint that are being processed. Kept between passes to reuse its memory.
    batch: EventBatch,
    table: ConnectionTable,
    /// The memory that tasks have returned. Empty between passes, and kept to reuse its buffer.
    credits: VecDeque<MemoryCredit>,
}

/// The connections, and those whose tasks must be woken.
#[derive(Debug)]
struct ConnectionTable {
    queues: Arc<TaskQueues>,
    target: AcceptTarget,
    entries: PeerMap<ConnectionEntry>,
    /// Connections whose tasks must be woken, each once.
    ready: Vec<Arc<Shared>>,
    /// Whether connections were added since the last [`ConnectionTable::wake`].
    has_new_connections: bool,
    /// Whether [`ConnectionTable::end_accepting`] has been called. It must count this worker only once.
    has_ended: bool,
}

#[derive(Debug)]
struct ConnectionEntry {
    shared: Arc<Shared>,
    /// Whether the connection is in [`ConnectionTable::ready`].
    is_ready: bool,
}

/// The oldest event of a batch.
#[derive(Clone, Copy)]
enum BatchItem<'a> {
    Run(MessageRun<'a>),
    Event(CoreEvent<'a>),
}

impl<'a> BatchItem<'a> {
    fn next(batch: &'a mut EventBatch) -> Option<Self> {
        if batch.front_run().is_some() {
            return batch.pop_run().map(Self::Run);
        }
        batch.pop().map(Self::Event)
    }

    /// Puts the messages of this peer into its inbox. Returns false if there are none.
    fn push_to(&self, receiver: PeerId, inbox: &mut Inbox) -> bool {
        match self {
            Self::Run(run) if run.peer == receiver => {
                run.payloads().for_each(|payload| inbox.push(run.channel, payload));
                true
            }
            Self::Event(CoreEvent::Message { peer, channel, payload }) if *peer == receiver => {
                inbox.push(*channel, payload);
                true
            }
            _ => false,
        }
    }
}

impl TaskSink {
    pub(super) fn new(queues: Arc<TaskQueues>, target: AcceptTarget) -> Self {
        if let AcceptTarget::Server(accept_queue) = &target {
            accept_queue.add_worker();
        }
        let table = ConnectionTable {
            queues,
            target,
            entries: PeerMap::default(),
            ready: Vec::new(),
            has_new_connections: false,
            has_ended: false,
        };
        Self { batch: EventBatch::default(), table, credits: VecDeque::new() }
    }

    /// Returns the memory of taken messages to the connections.
    fn take_credits<P: Placement>(&mut self, core: &mut Core<P>) {
        self.table.queues.take_credits(&mut self.credits);
        for MemoryCredit { peer, attempt, charge_bytes } in self.credits.drain(..) {
            // Messages of an earlier connection take no memory of this one.
            let entry = self.table.entries.get(peer);
            if entry.is_some_and(|entry| entry.shared.inbox().attempt() == attempt) {
                release(core, peer, charge_bytes);
            }
        }
    }

    fn take_events<P: Placement>(&mut self, core: &mut Core<P>) {
        let Self { batch, table, .. } = self;
        core.endpoint.take_events(batch);
        let mut next = BatchItem::next(batch);
        while let Some(item) = next {
            let peer = match item {
                BatchItem::Run(run) => run.peer,
                BatchItem::Event(CoreEvent::Message { peer, .. }) => peer,
                BatchItem::Event(event) => {
                    table.on_event(core, event);
                    next = BatchItem::next(batch);
                    continue;
                }
            };
            let Some(shared) = table.mark_ready(peer) else {
                next = BatchItem::next(batch);
                continue;
            };
            // Consecutive messages of one peer share one lock of the inbox.
            let mut inbox = shared.inbox();
            while next.as_ref().is_some_and(|item| item.push_to(peer, &mut inbox)) {
                next = BatchItem::next(batch);
            }
            let taken_bytes = inbox.taken_bytes();
            drop(inbox);
            // The inbox holds back small amounts to save wake-ups of the worker. The worker runs already, so it takes them here.
            if let Some(charge_bytes) = taken_bytes {
                release(core, shared.peer, charge_bytes);
            }
        }
    }

    fn take_own_events<P: Placement>(&mut self, core: &mut Core<P>) {
        while let Some(event) = core.pop_own_event() {
            match event {
                Event::Stats { peer, stats } => {
                    if let Some(entry) = self.table.entries.get(peer) {
                        entry.shared.on_stats(&stats);
                    }
                }
                Event::Missed { .. } => self.table.push(core, event),
                // Tasks cannot request a flight record. The waker of the credit wakes tasks that wait for room, not `Writable`.
                _ => {}
            }
        }
    }
}

impl ConnectionTable {
    /// Notifies the tasks that wait for new connections that no further connection arrives from this worker.
    fn end_accepting(&mut self) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        match &self.target {
            AcceptTarget::Server(accept_queue) => accept_queue.remove_worker(),
            AcceptTarget::Client(attempts) => attempts.end(),
        }
    }

    fn on_event<P: Placement>(&mut self, core: &mut Core<P>, event: CoreEvent<'_>) {
        if let Some((peer, bytes)) = event.held() {
            core.endpoint.release(peer, bytes);
        }
        let Some(event) = Event::from_core(event, Bytes::copy_from_slice) else { return };
        let (event, edge) = core.apply(event);
        match event {
            Event::Connected { peer, .. } if self.entries.get(peer).is_some() => {
                self.push(core, event);
                if self.entries.get(peer).is_some_and(|entry| entry.shared.has_requests()) {
                    core.carry_out(Command::Measure { peer });
                }
            }
            Event::Connected { peer, info } => {
                let Some(edge) = edge else { return };
                let shared = Arc::new(Shared::new(&self.queues, peer, *info, edge));
                let entry = ConnectionEntry { shared: Arc::clone(&shared), is_ready: false };
                self.entries.insert(peer, entry);
                self.add(Connection::new(shared));
            }
            // Before the first connection there is no entry, and the future of the connect waits for the last attempt.
            Event::Reconnecting { peer, .. } => {
                let Some((shared, edge)) = self.mark_ready(peer).zip(edge) else { return };
                let is_stored = shared.on_reconnecting(edge, event);
                core.stats.notices_dropped += u64::from(!is_stored);
            }
            Event::ConnectFailed { peer, error } => self.fail(peer, error),
            Event::Receipt { peer, receipt, outcome } => {
                if let Some(entry) = self.entries.get(peer) {
                    entry.shared.on_receipt(receipt, outcome);
                }
            }
            // The charge of `Skipped` is released above. The inbox has its own limit for events.
            Event::Skipped { .. } | Event::PathChanged { .. } | Event::FlightRecord { .. } => {
                self.push(core, event);
            }
            Event::Disconnected { peer, closed } => {
                core.stats.connections_unaccepted += u64::from(self.end(peer, *closed));
            }
            _ => {}
        }
    }

    /// Puts an event into the inbox of its connection.
    fn push<P: Placement>(&mut self, core: &mut Core<P>, event: Event) {
        let shared = self.mark_ready(event.peer());
        let is_stored = shared.is_none_or(|shared| shared.inbox().push_event(event));
        core.stats.notices_dropped += u64::from(!is_stored);
    }

    fn add(&mut self, connection: Connection) {
        match &self.target {
            AcceptTarget::Server(accept_queue) => accept_queue.push(connection),
            AcceptTarget::Client(attempts) => attempts.succeed(connection),
        }
        self.has_new_connections = true;
    }

    fn fail(&self, peer: PeerId, error: ConnectError) {
        if let AcceptTarget::Client(attempts) = &self.target {
            attempts.fail(peer, error);
        }
    }

    /// Ends a connection. Returns whether a connection was dropped from the accept queue because too many had ended in it.
    fn end(&mut self, peer: PeerId, closed: Closed) -> bool {
        let Some(ConnectionEntry { shared, is_ready, .. }) = self.entries.remove(peer) else { return false };
        shared.on_end(closed);
        let was_dropped = match &self.target {
            AcceptTarget::Server(accept_queue) => accept_queue.on_end(&shared),
            AcceptTarget::Client(_) => false,
        };
        if !is_ready {
            self.ready.push(shared);
        }
        was_dropped
    }

    /// Marks a connection, so that its tasks are woken at the end of the pass, and returns it.
    fn mark_ready(&mut self, peer: PeerId) -> Option<Arc<Shared>> {
        let entry = self.entries.get_mut(peer)?;
        if !std::mem::replace(&mut entry.is_ready, true) {
            self.ready.push(Arc::clone(&entry.shared));
        }
        Some(Arc::clone(&entry.shared))
    }

    /// Wakes the tasks of all marked connections, and a task that accepts new connections.
    fn wake(&mut self) {
        // A waker is code of the executor. If it panics, the remaining connections stay in `ready` for the next pass.
        while let Some(shared) = self.ready.pop() {
            if let Some(entry) = self.entries.get_mut(shared.peer) {
                entry.is_ready = false;
            }
            shared.wake();
        }
        if std::mem::take(&mut self.has_new_connections)
            && let AcceptTarget::Server(accept_queue) = &self.target
        {
            accept_queue.wake();
        }
    }
}

/// Returns the charges of messages to a connection. Does nothing when the connection is gone.
fn release<P: Placement>(core: &mut Core<P>, peer: PeerId, charge_bytes: usize) {
    // The endpoint adds the charge of one message itself.
    core.endpoint.release(peer, charge_bytes.saturating_sub(ITEM_CHARGE_BYTES));
}

impl<P: Placement> Sink<P> for TaskSink {
    fn on_shutdown(&mut self) {
        self.table.end_accepting();
    }

    fn runs_before_flush(&self) -> bool {
        // Tasks run on other threads, and can process their events during the flush. The flush also sends the credit that
        // `take_credits` gives to peers.
        true
    }

    fn has_remote_senders(&self) -> bool {
        true
    }

    fn deliver(&mut self, core: &mut Core<P>) -> bool {
        self.take_credits(core);
        // A change of the path precedes the events of the endpoint, which may end the connection that has moved.
        while let Some(event) = core.pop_queued() {
            self.table.push(core, event);
        }
        self.take_events(core);
        self.take_own_events(core);
        self.table.wake();
        false
    }

    fn abandon(&mut self, core: &mut Core<P>) {
        // The remaining events of the batch belong to connections that are gone.
        while self.batch.pop().is_some() {}
        while let Some(event) = core.pop_queued() {
            match event {
                Event::Disconnected { peer, closed } => drop(self.table.end(peer, *closed)),
                Event::ConnectFailed { peer, error } => self.table.fail(peer, error),
                _ => {}
            }
        }
        self.table.wake();
    }
}

impl Drop for TaskSink {
    /// Ends all remaining connections, so that no task waits for a worker that has stopped without reporting their end.
    fn drop(&mut self) {
        let left: Vec<PeerId> = self.table.entries.iter().map(|(peer, _)| *peer).collect();
        for peer in left {
            let reason = CloseReason::Local { code: CloseCode::Internal, application_code: 0 };
            self.table.end(peer, Closed::new(reason, Bytes::new()));
        }
        self.table.wake();
        self.table.end_accepting();
    }
}
