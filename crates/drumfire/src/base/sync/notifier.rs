//! A notification for a thread that blocks until it arrives.
//!
//! The notification carries no data. The notified thread checks for changes itself.

use std::time::Duration;

use super::{Condvar, Mutex, lock, wait_while};

/// Notifies one thread of changes by other threads.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    state: Mutex<NotifierState>,
    condition: Condvar,
}

#[derive(Debug, Default)]
struct NotifierState {
    /// Whether a notification came since the last wait.
    is_notified: bool,
    /// Whether the thread waits now.
    is_waiting: bool,
}

impl Notifier {
    /// Ends the current wait of the thread, or else its next one. Several calls before a wait count as one.
    pub(crate) fn notify(&self) {
        let mut state = lock(&self.state);
        let must_notify = !state.is_notified && state.is_waiting;
        state.is_notified = true;
        // The woken thread needs the lock. Without a waiting thread, `notify_one` can still cost a system call, so it is skipped.
        drop(state);
        if must_notify {
            self.condition.notify_one();
            // If both threads share a core, the woken thread runs now. It can respond before this thread sleeps, which saves a
            // second wake-up.
            std::thread::yield_now();
        }
    }

    /// Waits until [`Notifier::notify`] has been called since the last wait, or `timeout` has passed.
    pub(crate) fn wait(&self, timeout: Duration) {
        let mut state = lock(&self.state);
        state.is_waiting = true;
        *wait_while(&self.condition, state, timeout, |state| !state.is_notified) = NotifierState::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_before_the_wait_ends_it() {
        let notifier = Notifier::default();
        notifier.notify();
        notifier.notify();
        notifier.wait(Duration::MAX);
        notifier.wait(Duration::ZERO);
    }
}
