//! What goes wrong with a server's workers in a world: at their sockets, on their threads, and in their code.
//!
//! Links and clocks are the world's own.

use std::time::Duration;

use super::World;
use super::served::Served;
use super::sockets::{SocketCounts, Trouble};

impl<S: Served> World<S> {
    /// How many workers the server has.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.network.lock().workers()
    }

    /// What goes wrong at a worker's socket from now on.
    ///
    /// # Panics
    /// When there is no such worker.
    pub fn set_trouble(&mut self, worker: usize, trouble: Trouble) {
        self.network.lock().set_trouble(worker, trouble);
    }

    /// What happened at a worker's socket so far.
    ///
    /// # Panics
    /// When there is no such worker.
    #[must_use]
    pub fn socket_counts(&self, worker: usize) -> SocketCounts {
        self.network.lock().socket_counts(worker).clone()
    }

    /// A worker's thread does nothing for so long, as one that the system does not let run. Of a server with one worker the
    /// application still does its part.
    ///
    /// # Panics
    /// When there is no such worker.
    pub fn stall_worker(&mut self, worker: usize, duration: Duration) {
        self.network.lock().stall(worker, duration);
    }

    /// So many of a worker's next passes in which there is something to receive panic, in no connection's code.
    ///
    /// # Panics
    /// When there is no such worker.
    pub fn plant_panics(&mut self, worker: usize, panics: u32) {
        self.network.lock().worker(worker).plant_panics(panics);
    }
}

impl World {
    /// A worker's thread panics outside of any pass: it begins anew on its socket, under its index, and knows nobody.
    ///
    /// # Panics
    /// When there is no such worker.
    pub fn restart_worker(&mut self, worker: usize) {
        self.network.lock().wake(worker);
        self.server.parts().1.worker(worker, crate::worker::pass::Worker::start_over);
    }
}
