//! The trait that ends the wait of a worker.

use drumfire_socket::Waker;

/// A handle that ends the wait of one worker.
pub trait Wake {
    /// Ends the current wait. If the worker does not wait, its next wait returns immediately.
    fn wake(&self);
}

impl Wake for Waker {
    fn wake(&self) {
        // A worker that cannot be woken processes its commands with its next datagram or timer.
        let _ = Self::wake(self);
    }
}
