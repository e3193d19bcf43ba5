//! A client's socket, which is read and written in batches. Several connections share it, so that hundreds of them on one core are
//! faster than the server.
//!
//! No poll watches the socket. The kernel's work per datagram is the same for all clients.

use std::net::SocketAddr;

use drumfire::stats::WorkerStats;
use drumfire_socket::{
    DropMeter, FlushEnd, Gro, ReceivedMut, Receiver, ReceiverConfig, SendBatch, SendMode, Sender, Socket,
};

use crate::roles::RECEIVE_BUFFER_BYTES;

/// The number of connections that share a socket. A server permits no more half-open connections of one address.
pub const PER_SOCKET: usize = 16;

/// The size of the buffer for a datagram. No bench has a longer one.
pub(crate) const DATAGRAM_BYTES: usize = 1_500;

/// A socket, connected to a server.
pub(crate) struct BatchSocket {
    socket: Socket,
    receiver: Receiver,
    sender: Sender,
    batch: SendBatch,
    /// The maximum number of datagrams that are received in one pass.
    budget: usize,
    /// Counts the datagrams that the kernel drops in front of the socket, where the system reports them.
    meter: Option<DropMeter>,
}

impl BatchSocket {
    /// Connects a socket with room for `each` datagrams of each of [`PER_SOCKET`] connections per pass and direction.
    pub(crate) fn connect(server: SocketAddr, each: usize, gro: Gro, mode: SendMode) -> Result<Self, String> {
        let fail = |error: &dyn std::fmt::Display| format!("a client's socket: {error}");
        let mut socket = Socket::connect(server, Some(RECEIVE_BUFFER_BYTES)).map_err(|error| fail(&error))?;
        let meter = socket.drop_meter().ok();
        let config = ReceiverConfig::default().gro(gro).max_batch(PER_SOCKET);
        let receiver = Receiver::new(&mut socket, &config).map_err(|error| fail(&error))?;
        let (sender, budget) = (Sender::new(mode), PER_SOCKET * each);
        let batch = SendBatch::new(budget, budget * DATAGRAM_BYTES);
        Ok(Self { socket, receiver, sender, batch, budget, meter })
    }

    /// Receives without waiting.
    pub(crate) fn receive(&mut self, handle: impl FnMut(ReceivedMut<'_>)) {
        self.receiver.drain_mut(&mut self.socket, self.budget, handle);
    }

    /// Queues a datagram for the next flush. Returns false when there is no room for it.
    pub(crate) fn push(&mut self, datagram: &[u8]) -> bool {
        self.batch.push(None, datagram)
    }

    /// Sends the queued datagrams.
    pub(crate) fn flush(&mut self) -> Result<(), String> {
        if self.batch.is_empty() {
            return Ok(());
        }
        match self.sender.flush(&mut self.socket, &mut self.batch, |_| {}) {
            FlushEnd::Sent => Ok(()),
            end => Err(format!("a client's socket takes no more: {end:?}")),
        }
    }

    /// The number of datagrams sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sender.counts().datagrams
    }

    /// The counters of both directions.
    pub(crate) fn stats(&mut self) -> WorkerStats {
        let mut stats = WorkerStats::default();
        (stats.received, stats.sent) = (self.receiver.counts().clone(), self.sender.counts().clone());
        let state = self.meter.as_mut().and_then(|meter| meter.read().ok());
        stats.kernel_dropped = state.map_or(0, |state| state.drops);
        stats
    }
}
