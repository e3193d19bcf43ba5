//! A client's socket, read and written in batches: several connections share it, so that hundreds of them on one core are
//! quicker than the server they are to keep busy.
//!
//! No poll watches it, whatever the client: what the kernel does for a datagram is the same for all.

use std::net::SocketAddr;

use drumfire_socket::{
    FlushEnd, Gro, ReceivedMut, Receiver, ReceiverConfig, SendBatch, SendMode, Sender, Socket,
};

use crate::numbered::connection_of;
use crate::traffic::Client;

/// Connections that share a socket. A server lets no more begin at once from one address.
pub const PER_SOCKET: usize = 16;

/// More than any datagram of a bench.
const DATAGRAM_BYTES: usize = 1_500;

/// A socket, connected to a server.
pub(crate) struct Wire {
    socket: Socket,
    receiver: Receiver,
    sender: Sender,
    batch: SendBatch,
    /// Datagrams taken in one go.
    budget: usize,
}

impl Wire {
    /// Has room for so many datagrams of each of [`PER_SOCKET`] connections in one go, both ways.
    ///
    /// # Errors
    ///
    /// One line: what the system answered.
    pub(crate) fn connect(server: SocketAddr, each: usize) -> Result<Self, String> {
        Self::open(server, each, Gro::Off, SendMode::Sendmmsg)
    }

    /// The same, and what is sent in one go to be one train, as what comes may be: for one connection alone, since trains of
    /// several that happen to share a socket are nobody's.
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

    /// Takes what came, without waiting.
    pub(crate) fn receive(&mut self, handle: impl FnMut(ReceivedMut<'_>)) {
        self.receiver.drain_mut(&mut self.socket, self.budget, handle);
    }

    /// Takes a datagram that is sent with the next flush; false when there is no room for it.
    pub(crate) fn push(&mut self, datagram: &[u8]) -> bool {
        self.batch.push(None, datagram)
    }

    /// Sends what was taken.
    ///
    /// # Errors
    ///
    /// One line, when the socket takes no more.
    pub(crate) fn flush(&mut self) -> Result<(), String> {
        if self.batch.is_empty() {
            return Ok(());
        }
        match self.sender.flush(&mut self.socket, &mut self.batch, |_| {}) {
            FlushEnd::Sent => Ok(()),
            end => Err(format!("a client's socket takes no more: {end:?}")),
        }
    }

    /// Datagrams that the kernel took so far.
    #[must_use]
    pub(crate) fn datagrams_sent(&self) -> u64 {
        self.sender.counts().datagrams
    }
}

/// Messages as plain datagrams, on a socket as that of drumfire's clients is. There being no connections, only a message itself
/// says whose it is.
pub struct PlainDatagrams(Wire);

impl PlainDatagrams {
    /// Has room for so many datagrams of each of [`PER_SOCKET`] connections in one go, both ways.
    ///
    /// # Errors
    ///
    /// One line: what the system answered.
    pub fn connect(server: SocketAddr, each: usize) -> Result<Self, String> {
        Wire::connect(server, each).map(Self)
    }

    /// Datagrams that the kernel took so far.
    #[must_use]
    pub fn datagrams_sent(&self) -> u64 {
        self.0.datagrams_sent()
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
}
