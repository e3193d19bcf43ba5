//! A client's socket, which is read and written in batches. Several connections share it, so that hundreds of them on one core are
//! faster than the server.
//!
//! No poll watches the socket. The kernel's work per datagram is the same for all clients.

use std::net::SocketAddr;

use drumfire::stats::WorkerStats;
use drumfire_socket::{
    DropMeter, FlushEnd, Gro, ReceivedMut, Receiver, ReceiverConfig, SendBatch, SendMode, Sender, Socket,
};

use crate::client_socket::SocketCounters;
use crate::numbered::connection_of;
use crate::plain::{ASK_BYTES, asked_bytes};
use crate::roles::RECEIVE_BUFFER_BYTES;
use crate::traffic::Client;

/// Connections that share a socket. A server permits no more half-open connections of one address.
pub const PER_SOCKET: usize = 16;

/// More than any datagram of a bench.
const DATAGRAM_BYTES: usize = 1_500;

/// A socket, connected to a server.
pub(crate) struct BatchSocket {
    socket: Socket,
    receiver: Receiver,
    sender: Sender,
    batch: SendBatch,
    /// Datagrams that are received in one pass, at most.
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

    /// The number of datagrams that the kernel dropped in front of the socket.
    pub(crate) fn drops(&mut self) -> u64 {
        self.meter.as_mut().and_then(|meter| meter.read().ok()).map_or(0, |state| state.drops)
    }

    /// The counters of both directions, in short.
    pub(crate) fn counters(&self) -> SocketCounters {
        let (sent, received) = (self.sender.counts(), self.receiver.counts());
        SocketCounters {
            sent: sent.datagrams,
            sent_bytes: sent.bytes,
            received: received.datagrams,
            received_bytes: received.bytes,
        }
    }

    /// The counters of both directions.
    pub(crate) fn stats(&self) -> WorkerStats {
        let mut stats = WorkerStats::default();
        (stats.received, stats.sent) = (self.receiver.counts().clone(), self.sender.counts().clone());
        stats
    }
}

/// Messages as plain datagrams, on a socket like that of drumfire's clients. The number of a message has its connection.
pub struct PlainDatagrams {
    wire: BatchSocket,
    per_socket: usize,
    /// The length of datagrams and of the answers that they ask for. With `None` a datagram is the message itself, which is echoed.
    asked: Option<(usize, u16)>,
}

impl PlainDatagrams {
    /// Connects a socket of this number of connections, with room for `each` datagrams of each of [`PER_SOCKET`] connections per pass and
    /// direction.
    pub fn connect(server: SocketAddr, per_socket: usize, each: usize) -> Result<Self, String> {
        let wire = BatchSocket::connect(server, each, Gro::Off, SendMode::Sendmmsg)?;
        Ok(Self { wire, per_socket, asked: None })
    }

    /// Sends datagrams of this length, which ask for answers of that length, from now on.
    pub fn ask(&mut self, up_bytes: usize, down_bytes: u16) {
        self.asked = Some((up_bytes, down_bytes));
    }
}

impl Client for PlainDatagrams {
    fn receive(&mut self, _: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
        let Self { wire, per_socket, asked } = self;
        wire.receive(|mut received| {
            for datagram in received.datagrams_mut() {
                let message = match asked {
                    None => Some(&*datagram.bytes),
                    Some((_, down_bytes)) => asked_message(datagram.bytes, *down_bytes),
                };
                let number = message.and_then(<[u8]>::first_chunk).map(|bytes| u64::from_be_bytes(*bytes));
                let connection = number.map_or(usize::MAX, |number| connection_of(number) % *per_socket);
                take(connection, message.unwrap_or_default());
            }
        });
        Ok(())
    }

    fn send(&mut self, _: u64, _: usize, _: u8, message: &[u8]) -> Result<bool, String> {
        let Some((up_bytes, down_bytes)) = self.asked else { return Ok(self.wire.push(message)) };
        let mut datagram = [0; DATAGRAM_BYTES];
        datagram[..ASK_BYTES].copy_from_slice(&down_bytes.to_be_bytes());
        datagram[ASK_BYTES..][..message.len()].copy_from_slice(message);
        Ok(self.wire.push(&datagram[..up_bytes]))
    }

    fn flush(&mut self, _: u64) -> Result<(), String> {
        self.wire.flush()
    }

    fn stats(&self) -> Option<WorkerStats> {
        Some(self.wire.stats())
    }
}

/// Returns the number of a message in an answer of this length, or `None` when the answer has another one.
fn asked_message(datagram: &[u8], down_bytes: u16) -> Option<&[u8]> {
    let bytes = asked_bytes(datagram).filter(|bytes| *bytes == usize::from(down_bytes))?;
    datagram.get(ASK_BYTES..ASK_BYTES + 8).filter(|_| datagram.len() == bytes)
}
