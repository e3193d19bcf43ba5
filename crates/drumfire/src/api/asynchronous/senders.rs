//! The tasks that wait for room in a connection, in one queue per priority.
//!
//! Messages of one priority keep the order of their tasks, and urgent messages do not wait for bulk messages. Most connections
//! never have a waiting task, so [`Senders`] is created when the first task must wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use drumfire_proto::Priority;
use tokio::sync::Mutex;

use crate::base::sync::AsyncNotify;

/// One queue per priority, and one for messages that the worker may drop. They may use twice the memory.
const QUEUES: usize = Priority::COUNT + 1;

/// The tasks that wait for room in one connection.
#[derive(Debug, Default)]
pub(super) struct Senders {
    /// The queues, indexed by [`QueuePosition::index`].
    queues: [Queue; QUEUES],
    /// Wakes the first task of each queue when there may be room.
    room: AsyncNotify,
}

/// The tasks that wait one after another.
#[derive(Debug, Default)]
struct Queue {
    /// Held by the first task of the queue. The lock is fair, so the other tasks follow in their order.
    turn: Mutex<()>,
    /// The number of tasks in the queue, including the first.
    count: AtomicUsize,
}

/// The properties of a message that select its queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuePosition {
    /// The priority of the message. Selects the queue if `must_wait` is set.
    pub(super) priority: Priority,
    /// Whether messages of the channel wait for room. Otherwise the worker may drop them.
    pub(super) must_wait: bool,
}

impl QueuePosition {
    const fn index(self) -> usize {
        if self.must_wait { self.priority.class() } else { QUEUES - 1 }
    }
}

impl Senders {
    /// Whether a task waits in this queue.
    pub(super) fn has_waiting_task(&self, position: QueuePosition) -> bool {
        self.queue(position).count.load(Ordering::Acquire) > 0
    }

    /// Waits until the task is first in its queue, and then calls `offer` whenever there may be room, until it returns `Some`.
    /// `register` asks for a wake-up of these senders when there is room.
    ///
    /// Cancel-safe: no await follows an `offer` that returned `Some`. A canceled task leaves its queue, and the next task becomes
    /// the first.
    pub(super) async fn wait<T>(
        &self,
        position: QueuePosition,
        register: impl Fn(),
        mut offer: impl FnMut() -> Option<T>,
    ) -> T {
        let queue = self.queue(position);
        let _guard = QueueGuard::take(&queue.count);
        let _turn = queue.turn.lock().await;
        let check = || {
            offer().or_else(|| {
                register();
                // Room that was freed before `register` causes no wake-up, so try again.
                offer()
            })
        };
        self.room.until(check).await
    }

    fn queue(&self, position: QueuePosition) -> &Queue {
        &self.queues[position.index()]
    }
}

impl Wake for Senders {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.room.notify_all();
    }
}

/// Counts a task in a queue until it is dropped.
struct QueueGuard<'a>(&'a AtomicUsize);

impl<'a> QueueGuard<'a> {
    fn take(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use drumfire_proto::SendOptions;

    use super::*;
    use crate::worker::send_edge::{SendAccount, SendEdge};

    const LIMIT: usize = 10_000;

    const PAYLOAD: usize = 936;

    /// The senders and the account of one connection, whose edge the test publishes.
    struct Fixture {
        senders: Arc<Senders>,
        account: RefCell<SendAccount>,
    }

    impl Fixture {
        /// Returns a connection whose room for this priority is used up.
        fn full(priority: Priority) -> Self {
            let senders = Arc::new(Senders::default());
            let edge = Arc::new(SendEdge::new(LIMIT, 65_536, true));
            edge.set_waker(Waker::from(Arc::clone(&senders)));
            let fixture = Self { senders, account: RefCell::new(SendAccount::new(edge)) };
            while fixture.offer(priority).is_some() {}
            fixture
        }

        fn offer(&self, priority: Priority) -> Option<()> {
            let options = SendOptions::reliable_ordered().priority(priority);
            self.account.borrow_mut().admit(PAYLOAD, &options, true).ok()
        }

        /// Publishes that this number of messages was acknowledged.
        fn acknowledge(&self, count: usize) {
            self.account.borrow().edge.publish(LIMIT as u64, LIMIT - 1_000 * count);
        }

        async fn wait(&self, priority: Priority) {
            let options = SendOptions::reliable_ordered().priority(priority);
            let register = || self.account.borrow().register(PAYLOAD, &options, true, 4);
            self.senders.wait(position(priority), register, || self.offer(priority)).await;
        }
    }

    const fn position(priority: Priority) -> QueuePosition {
        QueuePosition { priority, must_wait: true }
    }

    /// A waker that counts its calls.
    #[derive(Default)]
    struct CountingWaker(AtomicUsize);

    impl Wake for CountingWaker {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_task_is_woken_once_when_a_quarter_of_the_room_is_free() {
        let fixture = Fixture::full(Priority::Normal);
        let count = Arc::new(CountingWaker::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        let mut waiting = pin!(fixture.wait(Priority::Normal));
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        fixture.acknowledge(1);
        fixture.acknowledge(2);
        assert_eq!(count.0.load(Ordering::Relaxed), 0, "a task waits until a quarter is free");
        (3..=10).for_each(|count| fixture.acknowledge(count));
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(waiting.as_mut().poll(&mut context).is_ready());
        assert!(!fixture.senders.has_waiting_task(position(Priority::Normal)));
    }

    #[test]
    fn tasks_are_served_in_order_and_a_canceled_one_is_skipped() {
        let fixture = Fixture::full(Priority::Normal);
        let mut context = Context::from_waker(Waker::noop());
        let mut first = Box::pin(fixture.wait(Priority::Normal));
        let mut second = pin!(fixture.wait(Priority::Normal));
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(second.as_mut().poll(&mut context).is_pending());
        fixture.acknowledge(3);
        assert!(second.as_mut().poll(&mut context).is_pending(), "the first task is served first");
        drop(first);
        assert!(second.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn urgent_messages_do_not_wait_for_bulk_messages() {
        let fixture = Fixture::full(Priority::Bulk);
        let mut context = Context::from_waker(Waker::noop());
        let mut waiting = pin!(fixture.wait(Priority::Bulk));
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        assert!(fixture.senders.has_waiting_task(position(Priority::Bulk)));
        assert!(!fixture.senders.has_waiting_task(position(Priority::Normal)));
        assert!(pin!(fixture.wait(Priority::Normal)).poll(&mut context).is_ready());
    }

    #[test]
    fn the_end_of_a_connection_wakes_the_waiting_task() {
        let fixture = Fixture::full(Priority::Normal);
        let mut context = Context::from_waker(Waker::noop());
        let (options, account) = (SendOptions::reliable_ordered(), &fixture.account);
        let offer = || account.borrow().is_closed().then_some("closed");
        let register = || account.borrow().register(PAYLOAD, &options, true, 4);
        let mut waiting = pin!(fixture.senders.wait(position(Priority::Normal), register, offer));
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        account.borrow().edge.close();
        assert!(waiting.as_mut().poll(&mut context).is_ready());
    }
}
