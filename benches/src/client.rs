//! The interface of a transport to the traffic generator.

use drumfire::stats::WorkerStats;

/// Some connections that share a socket, or whatever the transport has in its place.
pub trait Client {
    /// Whether all connections are established.
    fn is_ready(&self) -> bool {
        true
    }

    /// Does the pending work at `now` (the host's clock in nanoseconds) without waiting. Passes each message that came to `take`,
    /// with the index of its connection. Replies leave with the next flush.
    fn receive(&mut self, now: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String>;

    /// Queues a message on a connection. Returns false when there is no room for it.
    fn send(&mut self, now: u64, connection: usize, channel: u8, message: &[u8]) -> Result<bool, String>;

    /// Sends the queued messages.
    fn flush(&mut self, _now: u64) -> Result<(), String> {
        Ok(())
    }

    /// The counters of the socket and its connections. A transport without datagrams of its own has none.
    fn stats(&self) -> Option<WorkerStats> {
        None
    }
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

    fn stats(&self) -> Option<WorkerStats> {
        (**self).stats()
    }
}
