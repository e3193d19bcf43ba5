//! The interface of a transport to the traffic generator.

use drumfire::stats::{Stats, WorkerStats};

use crate::books::counts_of;
use crate::process::Counts;

/// Some connections that share a socket, or whatever the transport has in its place.
pub trait Client {
    /// Whether all connections are established.
    fn is_ready(&self) -> bool {
        true
    }

    /// Does the pending work at `now` (the host's clock in nanoseconds) without waiting. Passes each received message to `take`,
    /// with the index of its connection. Replies leave with the next flush.
    fn receive(&mut self, now: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String>;

    /// Queues a message on a connection. Returns false when there is no room for it.
    fn send(&mut self, now: u64, connection: usize, channel: u8, message: &[u8]) -> Result<bool, String>;

    /// Sends the queued messages.
    fn flush(&mut self, _now: u64) -> Result<(), String> {
        Ok(())
    }

    /// The counters of the socket and its connections. They are zero for a transport without datagrams of its own.
    fn stats(&mut self) -> WorkerStats {
        WorkerStats::default()
    }
}

/// Sums the counters of the sockets and connections of these clients.
pub fn client_counts<C: Client>(clients: &mut [C]) -> Counts {
    let mut stats = Stats::default();
    stats.workers = clients.iter_mut().map(Client::stats).collect();
    counts_of(&stats)
}

/// Returns a client of any transport.
pub fn boxed<'a>(client: impl Client + 'a) -> Box<dyn Client + 'a> {
    Box::new(client)
}

impl<C: Client + ?Sized> Client for Box<C> {
    fn is_ready(&self) -> bool {
        (**self).is_ready()
    }

    fn receive(&mut self, now: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
        (**self).receive(now, take)
    }

    fn send(&mut self, now: u64, connection: usize, channel: u8, message: &[u8]) -> Result<bool, String> {
        (**self).send(now, connection, channel, message)
    }

    fn flush(&mut self, now: u64) -> Result<(), String> {
        (**self).flush(now)
    }

    fn stats(&mut self) -> WorkerStats {
        (**self).stats()
    }
}
