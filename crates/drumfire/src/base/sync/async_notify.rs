//! What tasks wait for, of any executor.
//!
//! It says that it is worth to look, and not at what.

use super::Notify;

/// Tells tasks that others have something for them.
#[derive(Debug, Default)]
pub(crate) struct AsyncNotify(Notify);

impl AsyncNotify {
    /// For one task: the one that waits longest, or else the next that would.
    pub(crate) fn ring_one(&self) {
        self.0.notify_one();
    }

    /// For all that wait, and nobody else.
    pub(crate) fn ring_all(&self) {
        self.0.notify_waiters();
    }

    /// Looks, and where there is nothing waits until it is rung, and looks again.
    ///
    /// Cancel-safe: what `look` answers is answered at once, and whoever leaves before passes his ring on.
    pub(crate) async fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        loop {
            // Whoever rings from here on is heard.
            let ring = self.0.notified();
            if let Some(found) = look() {
                return found;
            }
            ring.await;
        }
    }
}
