//! A connection where its tasks and its worker meet: what waits for tasks, what is under way from them, and who is to be woken.
//!
//! The worker holds it from the connection's first event to its last; tasks hold it through handles.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, Waker};

use drumfire_proto::{ChannelId, ChannelOptions, Message, Outcome, PeerId, PeerStats, ReceiptId, SendError};
use tokio::sync::oneshot;

use super::inbox::{Inbox, InboxPoll};
use super::receipt::Receipt;
use super::senders::{QueuePosition, Senders};
use super::task_queues::TaskQueues;
use crate::base::error::Error;
use crate::base::sync::{AsyncNotify, AtomicBool, Mutex, MutexGuard, OnceLock, lock};
use crate::engine::app_side::close_command;
use crate::engine::invalidate;
use crate::engine::peer_state::Known;
use crate::message::event::{Closed, Event, PeerInfo};
use crate::message::group::GroupId;
use crate::worker::command::Command;
use crate::worker::credit::Credit;

/// What both sides of a connection touch.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) peer: PeerId,
    pub(super) info: PeerInfo,
    pub(super) queues: Arc<TaskQueues>,
    credit: Arc<Credit>,
    inbox: Mutex<Inbox>,
    sending: Mutex<Sending>,
    /// Made when the first task has to wait for room.
    senders: OnceLock<Arc<Senders>>,
    /// Rung when there is something in the inbox, for one task, and at the end for all.
    arrivals: AsyncNotify,
    /// Rung at the end.
    end: AsyncNotify,
    is_over: AtomicBool,
    /// Touched with the lock of those who wait to be accepted.
    pub(super) is_accepted: AtomicBool,
    /// The same: it was over before it was accepted.
    pub(super) is_late: AtomicBool,
}

/// What is under way from tasks to the peer.
#[derive(Debug)]
struct Sending {
    known: Known,
    receipts: BTreeMap<ReceiptId, oneshot::Sender<Outcome>>,
    /// Tasks that want to know what the connection is like.
    curious: Vec<oneshot::Sender<Box<PeerStats>>>,
}

impl Shared {
    pub(super) fn new(queues: &Arc<TaskQueues>, peer: PeerId, info: PeerInfo, credit: Arc<Credit>) -> Self {
        let known = Known::new(Arc::clone(&credit));
        Self {
            peer,
            info,
            queues: Arc::clone(queues),
            credit,
            inbox: Mutex::default(),
            sending: Mutex::new(Sending { known, receipts: BTreeMap::new(), curious: Vec::new() }),
            senders: OnceLock::new(),
            arrivals: AsyncNotify::default(),
            end: AsyncNotify::default(),
            is_over: AtomicBool::new(false),
            is_accepted: AtomicBool::new(false),
            is_late: AtomicBool::new(false),
        }
    }

    // What tasks do.

    pub(super) async fn next_event(&self) -> Result<Event, Closed> {
        loop {
            let found =
                self.arrivals.until(|| Some(self.take(true)).filter(|found| *found != InboxPoll::Nothing));
            match found.await {
                InboxPoll::Something(event) => return Ok(event),
                InboxPoll::Over(closed) => return Err(closed),
                InboxPoll::Enough | InboxPoll::Nothing => let_others_run().await,
            }
        }
    }

    /// What is there, without waiting.
    pub(super) fn take(&self, may_rest: bool) -> InboxPoll {
        let mut inbox = lock(&self.inbox);
        let found = self.queues.take(self.peer, &mut inbox, may_rest);
        let due = inbox.due_bytes(self.queues.receive_memory_bytes).filter(|_| inbox.closed().is_none());
        let has_more = !inbox.is_empty();
        drop(inbox);
        if let Some(charge_bytes) = due {
            self.queues.give_back(self.peer, charge_bytes);
        }
        // Each pass of the worker wakes one task; where several wait, one wakes the next.
        if has_more {
            self.arrivals.ring_one();
        }
        found
    }

    pub(super) async fn closed(&self) -> Closed {
        self.end.until(|| lock(&self.inbox).closed().cloned()).await
    }

    pub(super) async fn send(&self, message: Message) -> Result<(), SendError> {
        self.send_draft(Draft { message, wants_receipt: false }).await.map(drop)
    }

    pub(super) async fn send_with_receipt(&self, message: Message) -> Result<Receipt, SendError> {
        let receipt = self.send_draft(Draft { message, wants_receipt: true }).await?;
        receipt.ok_or(SendError::Closed)
    }

    async fn send_draft(&self, mut draft: Draft) -> Result<Option<Receipt>, SendError> {
        let standing = self.standing(&draft.message);
        if !self.is_waited(standing)
            && let Poll::Ready(answer) = self.offer(&mut draft)
        {
            return answer;
        }
        let payload_bytes = draft.message.payload.len();
        let offer = || match self.offer(&mut draft) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        };
        self.senders().wait(&self.credit, standing, payload_bytes, offer).await
    }

    pub(super) fn try_send(&self, message: Message) -> Result<(), SendError> {
        if self.is_waited(self.standing(&message)) && !self.credit.is_closed() {
            return Err(SendError::Full);
        }
        match self.offer(&mut Draft { message, wants_receipt: false }) {
            Poll::Ready(answer) => answer.map(drop),
            Poll::Pending => Err(SendError::Full),
        }
    }

    /// Passes a message to the worker, if there is room for it. The payload is moved out of the draft then.
    fn offer(&self, draft: &mut Draft) -> Poll<Result<Option<Receipt>, SendError>> {
        let Message { channel, payload, options, .. } = &draft.message;
        let (channel, options) = (*channel, *options);
        let mut sending = lock(&self.sending);
        match sending.known.admit(channel, payload.len(), &options) {
            Ok(()) => {}
            Err(SendError::Full) => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        }
        let receipt = draft.wants_receipt.then(|| sending.known.draw_receipt());
        let answer = receipt.map(|receipt| {
            let (answer, answered) = oneshot::channel();
            sending.receipts.insert(receipt, answer);
            Receipt::new(answered)
        });
        drop(sending);
        let message = Message::new(channel, std::mem::take(&mut draft.message.payload), options);
        self.command(Command::Send { peer: self.peer, message, receipt });
        Poll::Ready(Ok(answer))
    }

    fn standing(&self, message: &Message) -> QueuePosition {
        let must_wait = lock(&self.sending).known.must_wait(message.channel);
        QueuePosition { priority: message.options.priority, must_wait }
    }

    fn is_waited(&self, standing: QueuePosition) -> bool {
        self.senders.get().is_some_and(|senders| senders.is_waited(standing))
    }

    fn senders(&self) -> &Senders {
        self.senders.get_or_init(|| {
            let senders = Arc::new(Senders::default());
            // It is set here alone.
            self.credit.set_waiter(Waker::from(Arc::clone(&senders)));
            senders
        })
    }

    pub(super) async fn stats(&self) -> Result<Box<PeerStats>, Closed> {
        let (answer, answered) = oneshot::channel();
        if self.ask(answer)
            && let Ok(stats) = answered.await
        {
            return Ok(stats);
        }
        Err(self.closed().await)
    }

    /// Asks the worker what the connection is like; false when it is over.
    fn ask(&self, answer: oneshot::Sender<Box<PeerStats>>) -> bool {
        let mut sending = lock(&self.sending);
        if self.is_over() {
            return false;
        }
        sending.curious.retain(|answer| !answer.is_closed());
        sending.curious.push(answer);
        drop(sending);
        self.command(Command::Measure { peer: self.peer });
        true
    }

    pub(super) fn set_channel_options(&self, channel: ChannelId, options: ChannelOptions) {
        lock(&self.sending).known.set_when_full(channel, options.when_full);
        self.command_if_there(Command::Options { peer: self.peer, channel, options });
    }

    pub(super) fn forget_key(&self, channel: ChannelId, key: u64) {
        self.command_if_there(Command::Forget { peer: self.peer, channel, key });
    }

    /// Adds the peer to a group. Returns whether it is a member now.
    pub(super) fn join(&self, group: GroupId) -> bool {
        if self.is_over() {
            return false;
        }
        let Some(is_new) = lock(&self.sending).known.join(group) else { return false };
        if is_new {
            self.command(Command::Join { peer: self.peer, group });
        }
        true
    }

    pub(super) fn leave(&self, group: GroupId) {
        if lock(&self.sending).known.leave(group) {
            self.command_if_there(Command::Leave { peer: self.peer, group });
        }
    }

    pub(super) fn close(&self, code: u32, text: &str) {
        if !self.is_over() && !self.credit.is_closed() {
            self.credit.close();
            self.command(close_command(self.peer, code, text));
        }
    }

    /// Forgets the keys of all sessions of this worker, by the time it returns.
    pub(super) fn invalidate_keys(&self) -> Result<(), Error> {
        invalidate::at(&self.queues.link)
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn command_if_there(&self, command: Command) {
        if !self.is_over() {
            self.command(command);
        }
    }

    fn command(&self, command: Command) {
        self.queues.link.command_at_once(command);
    }

    // What the worker does.

    pub(super) fn inbox(&self) -> MutexGuard<'_, Inbox> {
        lock(&self.inbox)
    }

    /// A message that somebody wanted to hear of is done with.
    pub(super) fn on_receipt(&self, receipt: ReceiptId, outcome: Outcome) {
        let mut sending = lock(&self.sending);
        sending.known.answered(receipt);
        let answer = sending.receipts.remove(&receipt);
        drop(sending);
        // Nobody waits for one that was dropped.
        let _ = answer.map(|answer| answer.send(outcome));
    }

    pub(super) fn on_stats(&self, stats: &PeerStats) {
        let curious = std::mem::take(&mut lock(&self.sending).curious);
        for answer in curious {
            let _ = answer.send(Box::new(stats.clone()));
        }
    }

    /// The connection is over. Whoever waits for anything of it is told with [`Shared::wake`].
    pub(super) fn on_end(&self, closed: Closed) {
        // From here on nothing is taken that would wait for an answer.
        self.credit.close();
        let mut sending = lock(&self.sending);
        self.is_over.store(true, Ordering::Release);
        let receipts = std::mem::take(&mut sending.receipts);
        let curious = std::mem::take(&mut sending.curious);
        drop(sending);
        // Their tasks see that nobody will answer as soon as these are dropped: before the end, which comes last.
        drop((receipts, curious));
        lock(&self.inbox).end(closed);
    }

    /// Wakes a task for what was brought, or all tasks at the end.
    pub(super) fn wake(&self) {
        if self.is_over() {
            self.arrivals.ring_all();
            self.end.ring_all();
        } else {
            self.arrivals.ring_one();
        }
    }
}

/// A message that the worker has not accepted yet.
struct Draft {
    message: Message,
    wants_receipt: bool,
}

/// Comes back to its task when others had their turn.
fn let_others_run() -> impl Future<Output = ()> {
    let mut has_waited = false;
    std::future::poll_fn(move |context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
}
