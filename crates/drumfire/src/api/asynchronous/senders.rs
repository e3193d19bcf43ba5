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
use crate::worker::credit::Credit;

/// One queue per priority, and one for messages that the worker may drop. Their limit is twice as high, see
/// [`Credit::take_for_dropping`].
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
    pub(super) fn is_waited(&self, standing: QueuePosition) -> bool {
        self.queue(standing).count.load(Ordering::Acquire) > 0
    }

    /// Waits until the task is first in its queue, and then calls `offer` whenever there may be room, until it returns `Some`.
    ///
    /// Cancel-safe: no await follows an `offer` that returned `Some`. A canceled task leaves its queue, and the next task becomes
    /// the first.
    pub(super) async fn wait<T>(
        &self,
        credit: &Credit,
        standing: QueuePosition,
        payload_bytes: usize,
        mut offer: impl FnMut() -> Option<T>,
    ) -> T {
        let queue = self.queue(standing);
        let _place = Place::take(&queue.count);
        let _turn = queue.turn.lock().await;
        // Waking at a quarter of the room, not at any room, lets each wake-up serve many messages.
        let QueuePosition { priority, must_wait } = standing;
        let wake_below = credit.look_below_bytes(payload_bytes, priority, must_wait, 4);
        let look = || {
            offer().or_else(|| {
                credit.wake_below(wake_below);
                // `Credit::give` does not report room that was returned before `wake_below`, so try again.
                offer()
            })
        };
        self.room.until(look).await
    }

    fn queue(&self, standing: QueuePosition) -> &Queue {
        &self.queues[standing.index()]
    }
}

impl Wake for Senders {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.room.ring_all();
    }
}

/// A place in a queue. Dropping it leaves the queue.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Waker};

    const LIMIT: usize = 10_000;

    fn setting() -> (Arc<Senders>, Credit) {
        let senders = Arc::new(Senders::default());
        let credit = Credit::new(LIMIT, 65_536);
        credit.set_waiter(Waker::from(Arc::clone(&senders)));
        (senders, credit)
    }

    const fn normal() -> QueuePosition {
        QueuePosition { priority: Priority::Normal, must_wait: true }
    }

    /// A waker that counts its calls.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_task_is_woken_once_when_a_quarter_of_the_room_is_free() {
        let (senders, credit) = setting();
        while credit.take(936, Priority::Normal) {}
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        let offer = || credit.take(936, Priority::Normal).then_some(());
        let mut waiting = pin!(senders.wait(&credit, normal(), 936, offer));
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        credit.give(936);
        credit.give(936);
        assert_eq!(count.0.load(Ordering::Relaxed), 0, "8,000 of 10,000 are used");
        for _ in 0..8 {
            credit.give(936);
        }
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(waiting.as_mut().poll(&mut context).is_ready());
        assert!(!senders.is_waited(normal()));
    }

    #[test]
    fn tasks_are_served_in_order_and_a_canceled_one_is_skipped() {
        let (senders, credit) = setting();
        while credit.take(936, Priority::Normal) {}
        let mut context = Context::from_waker(Waker::noop());
        let offer = || credit.take(936, Priority::Normal).then_some(());
        let mut first = Box::pin(senders.wait(&credit, normal(), 936, offer));
        let mut second = pin!(senders.wait(&credit, normal(), 936, offer));
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(second.as_mut().poll(&mut context).is_pending());
        for _ in 0..3 {
            credit.give(936);
        }
        assert!(second.as_mut().poll(&mut context).is_pending(), "the first task has its turn");
        drop(first);
        assert!(second.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn urgent_messages_do_not_wait_for_bulk_messages() {
        let (senders, credit) = setting();
        let bulk = QueuePosition { priority: Priority::Bulk, must_wait: true };
        while credit.take(936, Priority::Bulk) {}
        let mut context = Context::from_waker(Waker::noop());
        let credit = &credit;
        let offer_bulk = || credit.take(936, Priority::Bulk).then_some(());
        let mut waiting = pin!(senders.wait(credit, bulk, 936, offer_bulk));
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        assert!(senders.is_waited(bulk) && !senders.is_waited(normal()));
        let offer_normal = || credit.take(936, Priority::Normal).then_some(());
        assert!(pin!(senders.wait(credit, normal(), 936, offer_normal)).poll(&mut context).is_ready());
    }

    #[test]
    fn a_closed_credit_wakes_the_waiting_task() {
        let (senders, credit) = setting();
        while credit.take(936, Priority::Normal) {}
        let mut context = Context::from_waker(Waker::noop());
        let offer = || if credit.is_closed() { Some("closed") } else { None };
        let mut waiting = pin!(senders.wait(&credit, normal(), 936, offer));
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        credit.close();
        assert!(waiting.as_mut().poll(&mut context).is_ready());
    }
}
