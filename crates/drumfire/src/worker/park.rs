//! The wait of a worker for its socket: [`Park`].

use std::io;

use drumfire_socket::{MultiPoller, Parker, Poller, Socket};

/// A [`Parker`] for sockets of this type.
pub(crate) trait Park<I>: Parker {
    /// Watches the socket for room to write while `is_blocked`.
    fn watch_writable(&mut self, io: &mut I, is_blocked: bool);

    /// Continues with another descriptor of the socket after one was lost. Returns false if there is none.
    fn reopen(&mut self, _io: &mut I) -> bool {
        false
    }

    /// Returns whether the last wait ended because of a datagram, or `None` if the wait itself returned that.
    fn end_wait(&mut self) -> Option<bool> {
        None
    }

    /// Lets `multi_poller` wait for this socket, under this index.
    fn attach(&self, _multi_poller: &MultiPoller, _index: usize) -> io::Result<()> {
        Ok(())
    }

    /// Undoes `attach`.
    fn detach(&self, _multi_poller: &MultiPoller) -> io::Result<()> {
        Ok(())
    }

    /// Returns the descriptor that a foreign event loop can watch, or `None` without a socket.
    #[cfg(unix)]
    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }

    /// Whether the type is a socket of the system.
    const HAS_SOCKET: bool = false;

    /// Waits for this socket from now on, in place of `io`.
    fn replace(&mut self, _io: &mut I, _socket: Socket) -> io::Result<()> {
        Ok(())
    }
}

impl Park<Socket> for Poller {
    const HAS_SOCKET: bool = true;

    fn watch_writable(&mut self, io: &mut Socket, is_blocked: bool) {
        // Without the watch the flush is tried again in the next pass, as it is anyway.
        let _ = Self::watch_writable(self, io, 0, is_blocked);
    }

    fn reopen(&mut self, io: &mut Socket) -> bool {
        Self::reopen(self, io, 0).is_ok()
    }

    fn attach(&self, multi_poller: &MultiPoller, index: usize) -> io::Result<()> {
        multi_poller.add(self, index)
    }

    fn detach(&self, multi_poller: &MultiPoller) -> io::Result<()> {
        multi_poller.remove(self)
    }

    #[cfg(unix)]
    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        Some(std::os::fd::AsFd::as_fd(self))
    }

    fn replace(&mut self, io: &mut Socket, mut socket: Socket) -> io::Result<()> {
        // The new socket is registered first. If that fails, the old one remains in use.
        self.register(&mut socket, 0)?;
        *io = socket;
        Ok(())
    }
}
