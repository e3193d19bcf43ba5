//! A queue that anybody fills and one thread empties between two of its waits.
//!
//! How that thread is woken is the affair of who knows how it waits: a mailbox says when.

use std::collections::VecDeque;

use super::{Mutex, MutexGuard, WakeFlag, lock};

/// Things on their way to one thread.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    waiting: Mutex<Waiting<T>>,
    call: WakeFlag,
}

#[derive(Debug)]
struct Waiting<T> {
    queue: VecDeque<T>,
    /// Nobody takes anything any more.
    is_closed: bool,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        let waiting = Waiting { queue: VecDeque::new(), is_closed: false };
        Self { waiting: Mutex::new(waiting), call: WakeFlag::default() }
    }
}

impl<T> Mailbox<T> {
    /// Puts one thing behind the others, unless `most` wait there. Answers whether its thread has to be woken.
    ///
    /// # Errors
    ///
    /// The thing itself, when it is one too many or nobody takes it.
    pub(crate) fn put(&self, thing: T, most: usize) -> Result<bool, T> {
        let mut waiting = self.waiting();
        if waiting.is_closed || waiting.queue.len() >= most {
            return Err(thing);
        }
        waiting.queue.push_back(thing);
        drop(waiting);
        Ok(self.call())
    }

    /// Puts all of these behind the others; where nobody takes them they are dropped. Answers whether its thread has to be woken.
    pub(crate) fn put_all(&self, things: &mut Vec<T>) -> bool {
        let mut waiting = self.waiting();
        if !waiting.is_closed {
            waiting.queue.extend(things.drain(..));
        }
        drop(waiting);
        // Whoever learns of it by their end may ask for the lock.
        things.clear();
        self.call()
    }

    /// Lets its thread look, here and wherever else it looks then. Answers whether it has to be woken.
    pub(crate) fn call(&self) -> bool {
        self.call.set()
    }

    /// Whether a call came that nobody has taken; there is none any more.
    pub(crate) fn take_call(&self) -> bool {
        self.call.take()
    }

    /// Takes everything to the end of `into`.
    pub(crate) fn take(&self, into: &mut VecDeque<T>) {
        if self.take_call() {
            move_all(&mut self.waiting().queue, into);
        }
    }

    /// Nobody takes anything any more: what waits is dropped, and so is what comes.
    pub(crate) fn close(&self) {
        let mut waiting = self.waiting();
        waiting.is_closed = true;
        let left = std::mem::take(&mut waiting.queue);
        drop(waiting);
        // As above.
        drop(left);
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<T>> {
        lock(&self.waiting)
    }
}

/// Moves everything; an empty queue is swapped, so that the memory of both is used again and again.
pub(crate) fn move_all<T>(from: &mut VecDeque<T>, into: &mut VecDeque<T>) {
    if into.is_empty() {
        std::mem::swap(from, into);
    } else {
        into.append(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_come_in_their_order_and_end_at_the_bound() {
        let mailbox = Mailbox::default();
        assert_eq!(mailbox.put(0, 3), Ok(true));
        assert_eq!((mailbox.put(1, 3), mailbox.put(2, 3)), (Ok(false), Ok(false)), "it is called already");
        assert_eq!(mailbox.put(3, 3), Err(3), "it is given back");
        let mut taken = VecDeque::new();
        mailbox.take(&mut taken);
        assert_eq!(taken, [0, 1, 2]);
        assert!(mailbox.put_all(&mut vec![3, 4]));
        mailbox.take(&mut taken);
        mailbox.take(&mut taken);
        assert_eq!(taken, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn what_nobody_takes_any_more_is_dropped_at_once() {
        let thing = std::sync::Arc::new(());
        let mailbox = Mailbox::default();
        assert!(mailbox.put(thing.clone(), 9).is_ok());
        mailbox.close();
        assert_eq!(std::sync::Arc::strong_count(&thing), 1, "what waited");
        assert!(mailbox.put(thing.clone(), 9).is_err());
        let mut things = vec![thing.clone()];
        mailbox.put_all(&mut things);
        assert_eq!((things.len(), std::sync::Arc::strong_count(&thing)), (0, 1), "what came");
    }
}
