//! A client's socket for rivals that bring none of their own: read and written in batches, several connections on it, so that
//! a client on one core is quicker than the server it is to keep busy. No poll watches it.

use std::net::SocketAddr;

use drumfire_socket::{
    FlushEnd, Gro, ReceivedMut, Receiver, ReceiverConfig, SendBatch, SendMode, Sender, Socket,
};

/// Connections that share a socket. A server lets no more begin at once from one address.
pub(super) const PER_SOCKET: usize = 16;

/// More than any datagram of the bench.
const DATAGRAM_BYTES: usize = 1_500;

/// Datagrams taken in one go.
const BUDGET: usize = 512;

/// Room for what all connections have to say in one go, and more.
const OUTGOING: usize = PER_SOCKET * 32;

pub(super) struct Wire {
    socket: Socket,
    receiver: Receiver,
    sender: Sender,
    batch: SendBatch,
}

impl Wire {
    pub(super) fn connect(server: SocketAddr) -> Result<Self, String> {
        let fail = |error: &dyn std::fmt::Display| format!("a client's socket: {error}");
        let mut socket = Socket::connect(server, None).map_err(|error| fail(&error))?;
        let config = ReceiverConfig::default().gro(Gro::Off).max_batch(PER_SOCKET);
        let receiver = Receiver::new(&mut socket, &config).map_err(|error| fail(&error))?;
        let sender = Sender::new(SendMode::Sendmmsg);
        Ok(Self { socket, receiver, sender, batch: SendBatch::new(OUTGOING, OUTGOING * DATAGRAM_BYTES) })
    }

    /// Takes what came, without waiting.
    pub(super) fn receive(&mut self, handle: impl FnMut(ReceivedMut<'_>)) {
        self.receiver.drain_mut(&mut self.socket, BUDGET, handle);
    }

    /// Takes a datagram that is sent with the next flush; false when there is no room for it.
    pub(super) fn push(&mut self, datagram: &[u8]) -> bool {
        self.batch.push(None, datagram)
    }

    /// Sends what was taken.
    pub(super) fn flush(&mut self) -> Result<(), String> {
        if self.batch.is_empty() {
            return Ok(());
        }
        match self.sender.flush(&mut self.socket, &mut self.batch, |_, _| {}) {
            FlushEnd::Sent => Ok(()),
            end => Err(format!("a client's socket takes no more: {end:?}")),
        }
    }
}
