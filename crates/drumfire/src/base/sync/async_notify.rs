//! A notification for tasks of any executor.
//!
//! The notification carries no data. The notified task checks for changes itself.

use super::Notify;

/// Notifies tasks of changes by other tasks or threads.
#[derive(Debug, Default)]
pub(crate) struct AsyncNotify(Notify);

impl AsyncNotify {
    /// Wakes the task that has waited longest. If no task waits, the next wait returns immediately.
    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all tasks that wait now. Later waits are unaffected.
    pub(crate) fn notify_all(&self) {
        self.0.notify_waiters();
    }

    /// Calls `check` until it returns `Some`, and waits for a notification between two calls.
    ///
    /// Cancel-safe: no await follows a `check` that returned `Some`. A canceled task passes a notification from
    /// [`AsyncNotify::notify_one`] on to another task.
    pub(crate) async fn until<T>(&self, mut check: impl FnMut() -> Option<T>) -> T {
        loop {
            // Created before `check`: a notification during `check` then ends the `await` below, so no change is missed.
            let notified = self.0.notified();
            if let Some(found) = check() {
                return found;
            }
            notified.await;
        }
    }
}
