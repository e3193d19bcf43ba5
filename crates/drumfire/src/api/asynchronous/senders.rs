//! Tasks that wait for room in a connection: one queue for each priority, so that nobody is overtaken by messages that are as
//! urgent as his own, and urgent ones do not stand behind bulk.
//!
//! Most connections never see one, so it is made when the first has to wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use drumfire_proto::Priority;
use tokio::sync::Mutex;

use crate::base::sync::AsyncNotify;
use crate::worker::credit::Credit;

/// One for each priority, and one for messages that are dropped where there is no room: those wait for their worker alone.
const QUEUES: usize = Priority::COUNT + 1;

/// Who waits for room.
#[derive(Debug, Default)]
pub(super) struct Senders {
    queues: [Queue; QUEUES],
    /// Rung when there may be room, for the first in each queue.
    room: AsyncNotify,
}

/// Tasks whose messages stand behind each other.
#[derive(Debug, Default)]
struct Queue {
    /// Held by who is first.
    turn: Mutex<()>,
    count: AtomicUsize,
}

/// Which queue a message stands in.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuePosition {
    pub(super) priority: Priority,
    /// It waits where there is no room, and is not dropped.
    pub(super) must_wait: bool,
}

impl QueuePosition {
    const fn index(self) -> usize {
        if self.must_wait { self.priority.class() } else { QUEUES - 1 }
    }
}

impl Senders {
    /// Whether somebody stands there already.
    pub(super) fn is_waited(&self, standing: QueuePosition) -> bool {
        self.queue(standing).count.load(Ordering::Acquire) > 0
    }

    /// Waits for its turn, and then as often as need be for room, until `offer` gets an answer that is not `None`.
    ///
    /// Cancel-safe: `offer` is called last, and who leaves makes room for the next.
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
        // A quarter of the room is worth a wake-up.
        let QueuePosition { priority, must_wait } = standing;
        let wake_below = credit.look_below_bytes(payload_bytes, priority, must_wait, 4);
        let look = || {
            offer().or_else(|| {
                credit.wake_below(wake_below);
                // What was given back before is not told of.
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

/// A place in a queue, until it is dropped.
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

    /// Counts how often it was woken.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn one_wake_comes_when_a_quarter_is_free_and_not_for_each_message() {
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
    fn who_waits_is_served_in_turn_and_who_leaves_is_no_hindrance() {
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
        assert!(second.as_mut().poll(&mut context).is_pending(), "it is not its turn");
        drop(first);
        assert!(second.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn urgent_messages_do_not_stand_behind_bulk() {
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
    fn a_closed_credit_wakes_who_waits() {
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
