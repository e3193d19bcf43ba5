//! Faults of the workers of a server: at their sockets, on their threads, and in their code.

use std::time::Duration;

use super::World;
use super::served::WorldServer;
use super::sockets::{SocketCounts, SocketFaults};

impl<S: WorldServer> World<S> {
    /// Returns the number of workers of the server.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.network.lock().workers()
    }

    /// Replaces the simulated faults of a worker's socket.
    ///
    /// # Panics
    /// Panics if there is no such worker.
    pub fn set_socket_faults(&mut self, worker: usize, faults: SocketFaults) {
        self.network.lock().set_socket_faults(worker, faults);
    }

    /// Returns the counters of a worker's socket.
    ///
    /// # Panics
    /// Panics if there is no such worker.
    #[must_use]
    pub fn socket_counts(&self, worker: usize) -> SocketCounts {
        self.network.lock().socket_counts(worker).clone()
    }

    /// Stalls a worker for `duration`, like a thread that the operating system does not schedule. With a single worker, calls
    /// such as `poll` still do I/O.
    ///
    /// # Panics
    /// Panics if there is no such worker.
    pub fn stall_worker(&mut self, worker: usize, duration: Duration) {
        self.network.lock().stall(worker, duration);
    }

    /// Makes the next `panics` receive calls of a worker panic. Calls without a waiting datagram do not count. The panic occurs
    /// outside the code of any connection.
    ///
    /// # Panics
    /// Panics if there is no such worker.
    pub fn inject_panics(&mut self, worker: usize, panics: u32) {
        self.network.lock().worker(worker).inject_panics(panics);
    }
}

impl World {
    /// Restarts a worker as after a panic outside a pass. It keeps its socket and its index, and loses all connections.
    ///
    /// # Panics
    /// Panics if there is no such worker.
    pub fn restart_worker(&mut self, worker: usize) {
        self.network.lock().wake(worker);
        self.server.core.worker(worker, crate::worker::pass::Worker::restart_after_panic);
    }
}
