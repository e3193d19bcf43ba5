//! What a worker answers and is told where its thread serves others too, and waits for all of them at once.
//!
//! Alone on its thread it waits by itself, and nothing here is asked.

use std::io;

use drumfire_proto::{Moment, Placement};
use drumfire_socket::{Hub, Io, Poller, Socket};

use super::{Clock, Park, Worker};

impl<P: Placement, C: Clock> Worker<P, Socket, Poller, C> {
    /// Lets this hub tell of it, under its index.
    pub(crate) fn enter(&self, hub: &Hub) -> io::Result<()> {
        hub.add(self.net.parker(), usize::from(self.core.index))
    }

    /// Lets it tell no longer.
    pub(crate) fn leave(&self, hub: &Hub) -> io::Result<()> {
        hub.remove(self.net.parker())
    }
}

impl<P: Placement, I: Io, K: Park<I>, C: Clock> Worker<P, I, K, C> {
    /// What it waits with.
    #[cfg(feature = "testing")]
    pub(crate) const fn parker(&self) -> &K {
        self.net.parker()
    }

    /// Instead of a wait: whether somebody else's wait told of something for this worker.
    pub(crate) fn hear(&mut self, is_ready: bool) {
        self.net.hear(is_ready);
    }

    /// That somebody else's wait failed. Whatever is there is looked for.
    pub(crate) fn hear_nothing(&mut self) {
        self.core.stats.wait_faults += 1;
        self.net.hear(true);
    }

    /// When the next pass is due though nobody tells of anything; `None` = never. It may have passed.
    pub(crate) fn due(&mut self) -> Option<Moment> {
        let rest = self.net.time_left().map(|rest| self.now.now.monotonic.after(rest));
        rest.into_iter().chain(self.timer()).min()
    }

    /// Everything that came so far.
    pub(crate) fn arrivals(&self) -> u64 {
        self.net.arrivals()
    }

    /// Begins anew after a panic outside a pass, on the same socket.
    pub(crate) fn start_over(&mut self) {
        self.core.stats.panics += 1;
        self.net.look_again();
        self.begin_anew();
        self.publish();
    }
}
