//! A client's socket, which is read and written in batches. Several connections share it, so that hundreds of them on one core are
//! faster than the server.
//!
//! No poll watches the socket. The kernel's work per datagram is the same for all clients.

use std::net::SocketAddr;

use drumfire_socket::{
    FlushEnd, Gro, ReceiveCounts, ReceivedMut, Receiver, ReceiverConfig, SendBatch, SendCounts, SendMode,
    Sender, Socket,
};

use crate::numbered::connection_of;
use crate::traffic::Client;

/// Connections that share a socket. A server permits no more half-open connections of one address.
pub const PER_SOCKET: usize = 16;

/// More than any datagram of a bench.
const DATAGRAM_BYTES: usize = 1_500;

/// A socket, connected to a server.
pub(crate) struct Wire {
    socket: Socket,
    receiver: Receiver,
    sender: Sender,
    batch: SendBatch,
    /// Datagrams that are received in one pass, at most.
    budget: usize,
}

impl Wire {
    /// Connects a socket with room for `each` datagrams of each of [`PER_SOCKET`] connections per pass and direction.
    ///
    /// # Errors
    ///
    /// One line with the error of the system.
    pub(crate) fn connect(server: SocketAddr, each: usize) -> Result<Self, String> {
        Self::open(server, each, Gro::Off, SendMode::Sendmmsg)
    }

    /// Connects a socket that sends and receives trains of datagrams. Only the datagrams of a single connection form trains.
    ///
    /// # Errors
    ///
    /// As [`Wire::connect`].
    pub(crate) fn connect_for_trains(server: SocketAddr, each: usize) -> Result<Self, String> {
        Self::open(server, each, Gro::On, SendMode::Gso)
    }

    fn open(server: SocketAddr, each: usize, gro: Gro, mode: SendMode) -> Result<Self, String> {
        let fail = |error: &dyn std::fmt::Display| format!("a client's socket: {error}");
        let mut socket = Socket::connect(server, None).map_err(|error| fail(&error))?;
        let config = ReceiverConfig::default().gro(gro).max_batch(PER_SOCKET);
        let receiver = Receiver::new(&mut socket, &config).map_err(|error| fail(&error))?;
        let (sender, budget) = (Sender::new(mode), PER_SOCKET * each);
        let batch = SendBatch::new(budget, budget * DATAGRAM_BYTES);
        Ok(Self { socket, receiver, sender, batch, budget })
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
    ///
    /// # Errors
    ///
    /// One line, when the socket accepts no more datagrams.
    pub(crate) fn flush(&mut self) -> Result<(), String> {
        if self.batch.is_empty() {
            return Ok(());
        }
        match self.sender.flush(&mut self.socket, &mut self.batch, |_| {}) {
            FlushEnd::Sent => Ok(()),
            end => Err(format!("a client's socket takes no more: {end:?}")),
        }
    }

    /// The number of datagrams that the kernel accepted.
    #[must_use]
    pub(crate) fn datagrams_sent(&self) -> u64 {
        self.sender.counts().datagrams
    }

    /// The counters of both directions.
    #[must_use]
    pub(crate) fn counts(&self) -> (ReceiveCounts, SendCounts) {
        (self.receiver.counts().clone(), self.sender.counts().clone())
    }
}

/// Messages as plain datagrams, on a socket like that of drumfire's clients. The number of a message has its connection.
pub struct PlainDatagrams(Wire);

impl PlainDatagrams {
    /// Connects a socket with room for `each` datagrams of each of [`PER_SOCKET`] connections per pass and direction.
    ///
    /// # Errors
    ///
    /// One line with the error of the system.
    pub fn connect(server: SocketAddr, each: usize) -> Result<Self, String> {
        Wire::connect(server, each).map(Self)
    }
}

impl Client for PlainDatagrams {
    fn is_ready(&self) -> bool {
        true
    }

    fn receive(&mut self, _: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
        self.0.receive(|mut received| {
            for datagram in received.datagrams_mut() {
                let number = datagram.bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
                take(connection_of(number) % PER_SOCKET, datagram.bytes);
            }
        });
        Ok(())
    }

    fn send(&mut self, _: u64, _: usize, _: u8, message: &[u8]) -> Result<bool, String> {
        Ok(self.0.push(message))
    }

    fn flush(&mut self, _: u64) -> Result<(), String> {
        self.0.flush()
    }

    fn datagrams_sent(&self) -> u64 {
        self.0.datagrams_sent()
    }
}
