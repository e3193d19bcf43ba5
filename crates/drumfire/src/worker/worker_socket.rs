//! The socket of a worker, with the poll that waits for it.

use std::io;

use drumfire_socket::{Io, Parker, Poller, Socket};

/// A socket and its wait. A simulated world has another one than production.
pub(crate) trait WorkerSocket: Send {
    fn io(&mut self) -> &mut dyn Io;

    fn parker(&mut self) -> &mut dyn Parker;

    /// Watches the socket for room to write while `is_blocked`.
    fn watch_writable(&mut self, is_blocked: bool);

    /// Continues with another descriptor of the socket after one was lost. Returns false if there is none.
    fn reopen(&mut self) -> bool;

    /// Returns whether the last wait ended because of a datagram, or `None` if the wait itself returned that.
    fn end_wait(&mut self) -> Option<bool> {
        None
    }

    /// Returns the socket of the system. `None` if it is simulated.
    fn polled(&mut self) -> Option<&mut PolledSocket> {
        None
    }

    /// Returns the poll of the system. `None` if it is simulated.
    fn poller(&self) -> Option<&Poller> {
        None
    }
}

/// A socket of the system and its poll.
pub(crate) struct PolledSocket {
    pub(super) socket: Socket,
    pub(super) poller: Poller,
}

impl PolledSocket {
    pub(super) fn new(mut socket: Socket) -> io::Result<Self> {
        let mut poller = Poller::new()?;
        poller.register(&mut socket, 0)?;
        Ok(Self { socket, poller })
    }

    /// Waits for this socket from now on, in place of the present one.
    pub(super) fn replace(&mut self, mut socket: Socket) -> io::Result<()> {
        // The new socket is registered first. If that fails, the old one remains in use.
        self.poller.register(&mut socket, 0)?;
        // The descriptor of the old socket may be lost. The new one then has its number, and must not be closed with it.
        std::mem::replace(&mut self.socket, socket).close();
        Ok(())
    }
}

impl WorkerSocket for PolledSocket {
    fn io(&mut self) -> &mut dyn Io {
        &mut self.socket
    }

    fn parker(&mut self) -> &mut dyn Parker {
        &mut self.poller
    }

    fn watch_writable(&mut self, is_blocked: bool) {
        // Without the watch the flush is tried again in the next pass, as it is anyway.
        let _ = self.poller.watch_writable(&mut self.socket, 0, is_blocked);
    }

    fn reopen(&mut self) -> bool {
        self.poller.reopen(&mut self.socket, 0).is_ok()
    }

    fn polled(&mut self) -> Option<&mut PolledSocket> {
        Some(self)
    }

    fn poller(&self) -> Option<&Poller> {
        Some(&self.poller)
    }
}
