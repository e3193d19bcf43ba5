//! The state of a connection that its tasks and its worker share: received events, outstanding requests, and waiting tasks.
//!
//! The worker holds the state from the connection's first event to its last. Tasks hold it through handles.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};

use drumfire_proto::{Message, Outcome, PeerId, PeerStats, ReceiptId, SendError};
use tokio::sync::oneshot;

use super::inbox::{Inbox, InboxPoll};
use super::receipt::Receipt;
use super::senders::{QueuePosition, Senders};
use super::task_queues::{MemoryCredit, TaskQueues};
use crate::base::sync::{AsyncNotify, AtomicBool, Mutex, MutexGuard, OnceLock, lock};
use crate::engine::peer_state::PeerState;
use crate::message::event::{Closed, Event, PeerInfo};
use crate::message::group::GroupId;
use crate::worker::command::Command;
use crate::worker::send_edge::SendEdge;

/// The state of a connection that its tasks and its worker share.
#[derive(Debug)]
pub(super) struct Shared {
    /// The id of the peer at this endpoint.
    pub(super) peer: PeerId,
    /// The address and identity of the peer when the connection began.
    pub(super) info: PeerInfo,
    /// The channel to the worker, and the queues of all its connections.
    pub(super) queues: Arc<TaskQueues>,
    /// The received events that no task has taken.
    inbox: Mutex<Inbox>,
    /// The outstanding requests of tasks.
    sending: Mutex<Sending>,
    /// The tasks that wait for room. Created when the first task must wait.
    senders: OnceLock<Arc<Senders>>,
    /// Wakes one task when events are in the inbox, and all tasks when the connection is over.
    arrivals: AsyncNotify,
    /// Wakes the tasks in [`Shared::closed`] when the connection is over.
    end: AsyncNotify,
    /// Whether the connection is over. Set under the lock of `sending`.
    is_over: AtomicBool,
    /// Whether the application has accepted the connection. Accessed only under the lock of the accept queue.
    pub(super) is_accepted: AtomicBool,
    /// Whether the connection ended before it was accepted. Accessed only under the lock of the accept queue.
    pub(super) has_ended_unaccepted: AtomicBool,
}

/// The requests of tasks that have no result yet.
#[derive(Debug)]
struct Sending {
    /// The account and the groups of the peer. After `close` or the end of the connection, the account admits no message.
    state: PeerState,
    /// The number of receipts so far.
    receipt_count: u64,
    /// The senders of the outcomes of messages with a receipt.
    receipts: BTreeMap<ReceiptId, oneshot::Sender<Outcome>>,
    /// The senders of the results of [`Shared::stats`].
    stats_requests: Vec<oneshot::Sender<Box<PeerStats>>>,
}

/// The number of parts of the room for messages, of which one must be free before a waiting task is woken. With a quarter, each wake-up
/// serves many messages.
const ROOM_PARTS: usize = 4;

impl Sending {
    /// Returns a new receipt id.
    fn new_receipt(&mut self) -> ReceiptId {
        let receipt = ReceiptId(NonZeroU64::MIN.saturating_add(self.receipt_count));
        self.receipt_count = self.receipt_count.saturating_add(1);
        receipt
    }
}

impl Shared {
    pub(super) fn new(queues: &Arc<TaskQueues>, peer: PeerId, info: PeerInfo, edge: Arc<SendEdge>) -> Self {
        let state = PeerState::new(edge);
        Self {
            peer,
            info,
            queues: Arc::clone(queues),
            inbox: Mutex::default(),
            sending: Mutex::new(Sending {
                state,
                receipt_count: 0,
                receipts: BTreeMap::new(),
                stats_requests: Vec::new(),
            }),
            senders: OnceLock::new(),
            arrivals: AsyncNotify::default(),
            end: AsyncNotify::default(),
            is_over: AtomicBool::new(false),
            is_accepted: AtomicBool::new(false),
            has_ended_unaccepted: AtomicBool::new(false),
        }
    }

    // Methods for tasks.

    /// Waits for the next event and takes it.
    pub(super) async fn next_event(&self) -> Result<Event, Closed> {
        loop {
            let found =
                self.arrivals.until(|| Some(self.take(true)).filter(|found| *found != InboxPoll::Empty));
            match found.await {
                InboxPoll::Event(event) => return Ok(event),
                InboxPoll::Closed(closed) => return Err(closed),
                InboxPoll::Yield | InboxPoll::Empty => yield_now().await,
            }
        }
    }

    /// Takes the next event without waiting, and returns memory to the worker if it is due.
    pub(super) fn take(&self, may_yield: bool) -> InboxPoll {
        let mut inbox = lock(&self.inbox);
        let found = self.queues.take(self.peer, &mut inbox, may_yield);
        let due = inbox.due_bytes(self.queues.receive_memory_bytes).filter(|_| inbox.closed().is_none());
        let (attempt, has_more) = (inbox.attempt(), !inbox.is_empty());
        drop(inbox);
        if let Some(charge_bytes) = due {
            self.queues.return_credit(MemoryCredit { peer: self.peer, attempt, charge_bytes });
        }
        // A pass of the worker wakes only one task, so each task wakes the next while events wait.
        if has_more {
            self.arrivals.notify_one();
        }
        found
    }

    /// Waits for the end of the connection, and returns its reason.
    pub(super) async fn closed(&self) -> Closed {
        self.end.until(|| lock(&self.inbox).closed().cloned()).await
    }

    /// Sends a message, and waits while there is no room for it. Returns a receipt if the caller wants one.
    pub(super) async fn send(
        &self,
        mut message: Message,
        wants_receipt: bool,
    ) -> Result<Option<Receipt>, SendError> {
        let position = self.position(&message);
        // A message must not overtake earlier messages that wait in the same queue.
        if !self.has_waiting_task(position)
            && let Some(answer) = self.offer(&mut message, wants_receipt)
        {
            return answer;
        }
        let (payload_bytes, options) = (message.payload.len(), message.options);
        let offer = || self.offer(&mut message, wants_receipt);
        let register = || {
            let sending = lock(&self.sending);
            sending.state.account.edge.set_waker(Waker::from(Arc::clone(self.senders())));
            sending.state.account.register(payload_bytes, &options, position.must_wait, ROOM_PARTS);
        };
        self.senders().wait(position, register, offer).await
    }

    pub(super) fn try_send(&self, mut message: Message) -> Result<(), SendError> {
        if self.has_waiting_task(self.position(&message)) && !lock(&self.sending).state.account.is_closed() {
            return Err(SendError::Full);
        }
        self.offer(&mut message, false).unwrap_or(Err(SendError::Full)).map(drop)
    }

    /// Passes a message to the worker and moves its payload there. Returns `None` if there is no room.
    fn offer(
        &self,
        message: &mut Message,
        wants_receipt: bool,
    ) -> Option<Result<Option<Receipt>, SendError>> {
        let Message { channel, options, .. } = *message;
        let mut sending = lock(&self.sending);
        match sending.state.admit(channel, message.payload.len(), &options) {
            Ok(()) => {}
            Err(SendError::Full) => return None,
            Err(error) => return Some(Err(error)),
        }
        let receipt = wants_receipt.then(|| sending.new_receipt());
        let answer = receipt.map(|receipt| {
            let (answer, receiver) = oneshot::channel();
            sending.receipts.insert(receipt, answer);
            Receipt::new(receiver)
        });
        let message = Message::new(channel, std::mem::take(&mut message.payload), options);
        // The command is sent under the lock, which `on_reconnecting` takes too. The worker therefore receives the message before the next
        // connection is established, and drops it together with the connection for which it was admitted.
        self.command(Command::Send { peer: self.peer, message, receipt });
        drop(sending);
        Some(Ok(answer))
    }

    fn position(&self, message: &Message) -> QueuePosition {
        let must_wait = lock(&self.sending).state.must_wait(message.channel);
        QueuePosition { priority: message.options.priority, must_wait }
    }

    /// Whether a task waits in the queue of this message.
    fn has_waiting_task(&self, position: QueuePosition) -> bool {
        self.senders.get().is_some_and(|senders| senders.has_waiting_task(position))
    }

    /// Returns the waiting tasks.
    fn senders(&self) -> &Arc<Senders> {
        self.senders.get_or_init(Arc::default)
    }

    /// Requests the state of the connection from the worker and waits for it.
    pub(super) async fn stats(&self) -> Result<Box<PeerStats>, Closed> {
        let (answer, receiver) = oneshot::channel();
        if self.request_stats(answer)
            && let Ok(stats) = receiver.await
        {
            return Ok(stats);
        }
        Err(self.closed().await)
    }

    /// Requests the state of the connection from the worker. Returns false if the connection is over.
    fn request_stats(&self, answer: oneshot::Sender<Box<PeerStats>>) -> bool {
        let mut sending = lock(&self.sending);
        // Checked under the lock, because `on_end` drops `stats_requests` under the same lock.
        if self.is_over() {
            return false;
        }
        // Callers that were canceled would otherwise accumulate.
        sending.stats_requests.retain(|answer| !answer.is_closed());
        sending.stats_requests.push(answer);
        drop(sending);
        self.command(Command::Measure { peer: self.peer });
        true
    }

    /// Passes a command about the peer to the worker. Does nothing if the connection is over, or the command has no effect.
    pub(super) fn act(&self, command: Command) {
        let mut sending = lock(&self.sending);
        if !self.is_over() && sending.state.apply(&command) {
            // The command is sent under the lock, so that the worker carries out the commands of several tasks in the order of this state.
            // A close then also closes an attempt that starts at this moment.
            self.command(command);
        }
    }

    /// Adds the peer to a group. Returns whether it is a member now.
    pub(super) fn join(&self, group: GroupId) -> bool {
        let mut sending = lock(&self.sending);
        if self.is_over() {
            return false;
        }
        let Some(is_new) = sending.state.join(group) else { return false };
        if is_new {
            // The command is sent under the lock. Otherwise the `Leave` of another task could precede it, and the worker would keep a
            // member that no task can remove.
            self.command(Command::Join { peer: self.peer, group });
        }
        true
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn command(&self, command: Command) {
        self.queues.link.send_command(command);
    }

    // Methods for the worker.

    pub(super) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        lock(&self.inbox)
    }

    /// Passes the outcome of a message to the task that holds its receipt.
    pub(super) fn on_receipt(&self, receipt: ReceiptId, outcome: Outcome) {
        let mut sending = lock(&self.sending);
        let answer = sending.receipts.remove(&receipt);
        drop(sending);
        // Sending fails if the task has dropped its receipt.
        let _ = answer.map(|answer| answer.send(outcome));
    }

    /// Passes the state of the connection to all tasks that requested it.
    pub(super) fn on_stats(&self, stats: &PeerStats) {
        let stats_requests = std::mem::take(&mut lock(&self.sending).stats_requests);
        for answer in stats_requests {
            let _ = answer.send(Box::new(stats.clone()));
        }
    }

    /// Marks the connection as over. Call [`Shared::wake`] afterward, to wake the tasks that wait for events or for the end.
    pub(super) fn on_end(&self, closed: Closed) {
        let mut sending = lock(&self.sending);
        // After this, no message is admitted, so no new receipt can miss the cleanup below.
        sending.state.account.close();
        self.is_over.store(true, Ordering::Release);
        let receipts = std::mem::take(&mut sending.receipts);
        let stats_requests = std::mem::take(&mut sending.stats_requests);
        drop(sending);
        // Dropping a sender wakes its task, so both locks are free here. The end follows last, when no request is outstanding.
        drop((receipts, stats_requests));
        lock(&self.inbox).end(closed);
    }

    /// Continues with the send edge of the next attempt. Receipts of the last connection are lost. Requests for the state of the connection
    /// wait for the next one. Returns false if too many events wait for tasks.
    pub(super) fn on_reconnecting(&self, edge: Arc<SendEdge>, event: Event) -> bool {
        let mut sending = lock(&self.sending);
        sending.state.reconnect(edge);
        let receipts = std::mem::take(&mut sending.receipts);
        drop(sending);
        // Dropping a sender wakes its task, so the lock is free here.
        drop(receipts);
        lock(&self.inbox).reconnect(event)
    }

    /// Whether tasks wait for the state of the connection.
    pub(super) fn has_requests(&self) -> bool {
        !lock(&self.sending).stats_requests.is_empty()
    }

    /// Wakes one task for the received events, or all tasks if the connection is over.
    pub(super) fn wake(&self) {
        if self.is_over() {
            self.arrivals.notify_all();
            self.end.notify_all();
        } else {
            self.arrivals.notify_one();
        }
    }
}

/// Yields once to the executor, so that other tasks run.
fn yield_now() -> impl Future<Output = ()> {
    let mut has_waited = false;
    std::future::poll_fn(move |context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
}
