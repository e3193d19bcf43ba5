//! A queue that any thread fills and one thread empties.
//!
//! A mailbox does not wake its thread. Its methods return whether the caller must do so, because only the caller knows how the
//! thread waits.

use std::collections::VecDeque;

use super::{Mutex, MutexGuard, WakeFlag, lock};

/// A queue of items for one thread, and the flag that wakes the thread for them.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    state: Mutex<MailboxState<T>>,
    wake_flag: WakeFlag,
}

#[derive(Debug)]
struct MailboxState<T> {
    /// The items that the thread has not taken, oldest first.
    queue: VecDeque<T>,
    /// Whether the thread has stopped taking items. Further items are refused or dropped.
    is_closed: bool,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        let state = MailboxState { queue: VecDeque::new(), is_closed: false };
        Self { state: Mutex::new(state), wake_flag: WakeFlag::default() }
    }
}

impl<T> Mailbox<T> {
    /// Appends an item, if fewer than `limit` items wait. Returns whether the caller must wake the thread.
    ///
    /// # Errors
    ///
    /// Returns the item if `limit` items wait or the mailbox is closed.
    pub(crate) fn put(&self, item: T, limit: usize) -> Result<bool, T> {
        let mut state = self.state();
        if state.is_closed || state.queue.len() >= limit {
            return Err(item);
        }
        state.queue.push_back(item);
        drop(state);
        Ok(self.set_flag())
    }

    /// Appends all items, or drops them if the mailbox is closed. Returns whether the caller must wake the thread.
    pub(crate) fn put_all(&self, items: &mut Vec<T>) -> bool {
        let mut state = self.state();
        if !state.is_closed {
            state.queue.extend(items.drain(..));
        }
        drop(state);
        // The destructor of an item may lock this mailbox, so the items are dropped after the lock is free.
        items.clear();
        self.set_flag()
    }

    /// Sets the flag of the thread, without an item. Returns whether the caller must wake the thread.
    pub(crate) fn set_flag(&self) -> bool {
        self.wake_flag.set()
    }

    /// Clears the flag of the thread. Returns whether it was set.
    pub(crate) fn take_flag(&self) -> bool {
        self.wake_flag.take()
    }

    /// Moves all items to the end of `into`, if the flag was set, and clears the flag.
    pub(crate) fn take(&self, into: &mut VecDeque<T>) {
        // The load avoids an exchange in each pass without items. If it misses a flag that is set at this moment, the thread is woken
        // for it. The flag is cleared before the queue is read, so an item that this call misses sets the flag again.
        if self.wake_flag.is_set() && self.take_flag() {
            move_all(&mut self.state().queue, into);
        }
    }

    /// Closes the mailbox. All waiting items are dropped, and further items are refused or dropped.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        let left = std::mem::take(&mut state.queue);
        drop(state);
        // After the lock is free, as in `put_all`.
        drop(left);
    }

    fn state(&self) -> MutexGuard<'_, MailboxState<T>> {
        lock(&self.state)
    }
}

/// Moves all items to the end of `into`. If `into` is empty, the queues are swapped, so that both buffers are reused.
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
    fn items_keep_their_order_and_a_full_queue_refuses_more() {
        let mailbox = Mailbox::default();
        assert_eq!(mailbox.put(0, 3), Ok(true));
        assert_eq!((mailbox.put(1, 3), mailbox.put(2, 3)), (Ok(false), Ok(false)), "the flag is already set");
        assert_eq!(mailbox.put(3, 3), Err(3), "a refused item is returned");
        let mut taken = VecDeque::new();
        mailbox.take(&mut taken);
        assert_eq!(taken, [0, 1, 2]);
        assert!(mailbox.put_all(&mut vec![3, 4]));
        mailbox.take(&mut taken);
        mailbox.take(&mut taken);
        assert_eq!(taken, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn close_drops_waiting_and_later_items() {
        let item = std::sync::Arc::new(());
        let mailbox = Mailbox::default();
        assert!(mailbox.put(item.clone(), 9).is_ok());
        mailbox.close();
        assert_eq!(std::sync::Arc::strong_count(&item), 1, "closing drops the waiting item");
        assert!(mailbox.put(item.clone(), 9).is_err());
        let mut items = vec![item.clone()];
        mailbox.put_all(&mut items);
        assert_eq!(
            (items.len(), std::sync::Arc::strong_count(&item)),
            (0, 1),
            "a closed mailbox drops later items"
        );
    }
}
