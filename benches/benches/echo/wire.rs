//! A client's socket, read and written in batches: several connections share it, so that 500 of them on one core are
//! quicker than the server they are to keep busy.
//!
//! No poll watches it, whatever the client: what the kernel does for a datagram is the same for all.

use std::net::SocketAddr;

use drumfire_socket::{
    FlushEnd, Gro, ReceivedMut, Receiver, ReceiverConfig, SendBatch, SendMode, Sender, Socket,
};

use crate::load::{CONNECTIONS_PER_SOCKET, Carried};

/// More than any datagram of the bench.
const DATAGRAM_BYTES: usize = 1_200;

/// Datagrams taken in one go.
const BUDGET: usize = 64;

/// Room for what all connections have to say in one go, and more.
const OUTGOING: usize = CONNECTIONS_PER_SOCKET * 4;

pub(crate) struct Wire {
    socket: Socket,
    receiver: Receiver,
    sender: Sender,
    batch: SendBatch,
}

impl Wire {
    pub(crate) fn connect(server: SocketAddr) -> Result<Self, String> {
        let mut socket =
            Socket::connect(server, None).map_err(|error| format!("a client's socket: {error}"))?;
        let config = ReceiverConfig::default().gro(Gro::Off).max_batch(CONNECTIONS_PER_SOCKET);
        let receiver =
            Receiver::new(&mut socket, &config).map_err(|error| format!("a client's socket: {error}"))?;
        let sender = Sender::new(SendMode::Sendmmsg);
        Ok(Self { socket, receiver, sender, batch: SendBatch::new(OUTGOING, OUTGOING * DATAGRAM_BYTES) })
    }

    /// Takes what came, without waiting.
    pub(crate) fn receive(&mut self, handle: impl FnMut(ReceivedMut<'_>)) {
        self.receiver.drain_mut(&mut self.socket, BUDGET, handle);
    }

    /// Takes a datagram that is sent with the next flush.
    pub(crate) fn push(&mut self, datagram: &[u8]) -> Result<(), String> {
        self.batch.push(None, datagram).then_some(()).ok_or_else(|| "a client's batch is full".to_owned())
    }

    /// Sends what was taken.
    pub(crate) fn flush(&mut self) -> Result<(), String> {
        match self.sender.flush(&mut self.socket, &mut self.batch, |_, _| {}) {
            FlushEnd::Sent => Ok(()),
            end => Err(format!("a client's socket takes no more: {end:?}")),
        }
    }

    /// What the socket carried so far.
    pub(crate) fn carried(&self) -> Carried {
        Carried { datagrams_sent: self.sender.counts().datagrams, stream_bytes: 0 }
    }
}
