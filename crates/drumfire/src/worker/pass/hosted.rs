//! What a worker answers and is told where its thread serves others too, and waits for all of them at once.
//!
//! Alone on its thread it waits by itself, and nothing here is asked.

use std::io;

use drumfire_proto::{Moment, Placement};
use drumfire_socket::MultiPoller;

use super::Worker;

impl<P: Placement> Worker<P> {
    /// Lets this hub wait for the worker, under its index.
    pub(crate) fn enter(&self, hub: &MultiPoller) -> io::Result<()> {
        self.transport.enter(hub, usize::from(self.core.index))
    }

    /// Undoes `enter`.
    pub(crate) fn leave(&self, hub: &MultiPoller) -> io::Result<()> {
        self.transport.leave(hub)
    }

    /// Instead of a wait: whether somebody else's wait told of something for this worker.
    pub(crate) fn set_ready(&mut self, is_ready: bool) {
        self.transport.set_ready(is_ready);
    }

    /// That somebody else's wait failed. Whatever is there is looked for.
    pub(crate) fn set_wait_failed(&mut self) {
        self.core.stats.wait_faults += 1;
        self.transport.set_ready(true);
    }

    /// When the next pass is due though nobody tells of anything; `None` = never. It may have passed.
    pub(crate) fn due(&mut self) -> Option<Moment> {
        let rest = self.transport.time_left().map(|rest| self.now.now.monotonic.after(rest));
        rest.into_iter().chain(self.timer()).min()
    }

    /// Everything that came so far.
    pub(crate) fn arrivals(&self) -> u64 {
        self.transport.arrivals()
    }

    /// Begins anew after a panic outside a pass, on the same socket.
    pub(crate) fn start_over(&mut self) {
        self.core.stats.panics += 1;
        self.transport.look_again();
        self.restart();
        self.publish();
    }
}
