//! The interface of a worker that does not wait by itself, because its thread waits for several workers or the application
//! waits.

use std::io;

use drumfire_proto::{Moment, Placement};
use drumfire_socket::MultiPoller;

use super::Worker;

impl<P: Placement> Worker<P> {
    /// Registers the worker's socket with `multi_poller`, under the index of the worker.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn attach(&self, multi_poller: &MultiPoller) -> io::Result<()> {
        self.poller().map_or(Ok(()), |poller| multi_poller.add(poller, usize::from(self.core.index)))
    }

    /// Undoes `attach`.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn detach(&self, multi_poller: &MultiPoller) -> io::Result<()> {
        self.poller().map_or(Ok(()), |poller| multi_poller.remove(poller))
    }

    /// Stores the result of the thread's wait: whether it reported datagrams for this worker.
    pub(crate) fn set_ready(&mut self, is_ready: bool) {
        self.transport.set_ready(is_ready);
    }

    /// Records that the thread's wait failed. The next pass receives, because datagrams may have arrived unreported.
    pub(crate) fn set_wait_failed(&mut self) {
        self.core.stats.wait_faults += 1;
        self.transport.set_ready(true);
    }

    /// Returns the time of the next pass if no datagram or wake-up comes first. It can be in the past. `None` = no pass is due.
    pub(crate) fn due(&mut self) -> Option<Moment> {
        let rest = self.transport.time_left().map(|rest| self.now.monotonic.after(rest));
        rest.into_iter().chain(self.timer()).min()
    }

    /// Returns the number of datagrams received so far, including unusable ones.
    pub(crate) fn arrivals(&self) -> u64 {
        self.transport.arrivals()
    }

    /// Replaces the endpoint after a panic outside a pass, and keeps the socket. All peers are reported as gone.
    pub(crate) fn restart_after_panic(&mut self) {
        self.core.stats.panics += 1;
        // The panic may have lost the results of a wait.
        self.transport.force_receive();
        self.restart();
        self.publish();
    }
}
