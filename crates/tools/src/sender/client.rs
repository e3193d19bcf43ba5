//! A flow whose connection has an endpoint: a socket and an endpoint of its own, like the client of a game.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use drumfire_proto::limits::DATAGRAM_SENT_MAX_BYTES;
use drumfire_proto::{
    Alone, ClientConfig, Congestion, Endpoint, Event, Inbound, Moment, PeerId, Secret, ServerIdentity, Stats,
};
use drumfire_socket::{
    DrainEnd, FlushEnd, Gro, Parker, Poller, Receiver, ReceiverConfig, SendBatch, SendMode, Sender, Socket,
};

use crate::control::Sealed;
use crate::receiver::service::{self, now, random_bytes};

/// Datagrams that one client receives in a row.
pub(super) const BUDGET: usize = 256;

/// Datagrams written together.
const BATCH: usize = 64;

/// The rate of each connection, higher than any machine sends. The schedule alone decides when a message leaves: an adaptive
/// controller would add its queue to every latency. The memory of the connection still bounds the data in flight.
const UNHINDERED: Congestion = Congestion::Fixed { bytes_per_second: 1_250_000_000 };

/// The delay before a full socket is tried again.
const BLOCKED_REST: Duration = Duration::from_micros(50);

/// The number of attempts before the datagrams count as lost.
const BLOCKED_TRIES: u32 = 40;

/// This bit is set in the first byte of handshake datagrams only.
const HANDSHAKE: u8 = 0x80;

/// The reason why there is no connection.
#[derive(Debug)]
pub(super) enum HandshakeError {
    /// The socket, the poller, or the system's randomness.
    Io(io::Error),
    /// The receiver does not respond, or refuses. The text says which.
    Failed(String),
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Buffers and counters that the clients of a thread share, one at a time.
pub(super) struct SocketBuffers {
    pub(super) receiver: Receiver,
    pub(super) sender: Sender,
    pub(super) batch: SendBatch,
    scratch: Box<[u8]>,
    /// Bytes of packets that the kernel accepted.
    pub(super) sent_bytes: u64,
    /// Packets that a full socket did not accept in time.
    pub(super) blocked: u64,
}

/// One flow's end.
pub(super) struct Client {
    pub(super) socket: Socket,
    pub(super) endpoint: Endpoint<Alone>,
    pub(super) server: PeerId,
    to: SocketAddr,
    /// The time of the next timeout of the endpoint, in nanoseconds of the host's clock.
    due_ns: u64,
    /// Packets that the kernel accepted, without handshakes.
    pub(super) sent: u64,
    /// The reason why the connection ended, if it did.
    pub(super) end: Option<String>,
}

impl SocketBuffers {
    /// Makes buffers for sockets like this one.
    pub(super) fn new(socket: &mut Socket, mode: SendMode) -> io::Result<Self> {
        let receiver =
            Receiver::new(socket, &ReceiverConfig::default().gro(Gro::Off)).map_err(io::Error::other)?;
        Ok(Self {
            receiver,
            sender: Sender::new(mode),
            batch: SendBatch::new(BATCH, BATCH * DATAGRAM_SENT_MAX_BYTES),
            scratch: vec![0; DATAGRAM_SENT_MAX_BYTES].into(),
            sent_bytes: 0,
            blocked: 0,
        })
    }

    /// Sends the batch. Returns how many of its datagrams the kernel took.
    pub(super) fn flush(&mut self, socket: &mut Socket, parker: &mut Poller) -> u64 {
        let Self { sender, batch, .. } = self;
        let (datagrams, bytes) = (sender.counts().datagrams, sender.counts().bytes);
        for _ in 0..BLOCKED_TRIES {
            match sender.flush(socket, batch, |_| {}) {
                FlushEnd::Sent | FlushEnd::Closed(_) => break,
                FlushEnd::Blocked => parker.nap(BLOCKED_REST),
                FlushEnd::Paused(time) => parker.nap(time),
            }
        }
        // This counts as loss in the network, from which the endpoint recovers.
        self.blocked += batch.len() as u64;
        batch.clear();
        self.sent_bytes += sender.counts().bytes - bytes;
        sender.counts().datagrams - datagrams
    }
}

impl Client {
    /// Starts a connection to the receiver.
    pub(super) fn begin(socket: Socket, to: SocketAddr, sealed: &Sealed) -> Result<Self, HandshakeError> {
        let seed = random_bytes().map_err(HandshakeError::Failed)?;
        let failed = |error: &dyn std::fmt::Display| HandshakeError::Failed(error.to_string());
        let config = service::config(sealed.suite).congestion(UNHINDERED);
        let mut endpoint = Endpoint::client(config, ClientConfig::default(), Secret::new(seed))
            .map_err(|error| failed(&error))?;
        let identity = ServerIdentity { public_key: sealed.public_key.to_bytes(), key_id: 0 };
        let server = endpoint.connect(now(), to, &identity, None).map_err(|error| failed(&error))?;
        Ok(Self { socket, endpoint, server, to, due_ns: 0, sent: 0, end: None })
    }

    /// Returns whether the handshake is complete.
    pub(super) fn is_connected(&self) -> bool {
        self.endpoint.stats().connections_opened > 0
    }

    /// Returns whether the receiver has opened a packet of this connection. Any packet from it proves that.
    pub(super) fn is_confirmed(&self) -> bool {
        self.endpoint.stats().packets_received > 0
    }

    /// Returns an error if the connection ended.
    pub(super) fn check(&self) -> Result<(), HandshakeError> {
        self.end.clone().map_or(Ok(()), |line| Err(HandshakeError::Failed(line)))
    }

    /// Returns whether everything it was given was sent and acknowledged, or given up.
    pub(super) fn is_settled(&mut self) -> bool {
        let stats = self.endpoint.peer_stats(now(), self.server);
        stats.is_some_and(|stats| stats.in_flight_bytes == 0 && stats.send_memory_bytes == 0)
    }

    /// The statistics of the endpoint.
    pub(super) fn stats(&self) -> &Stats {
        self.endpoint.stats()
    }

    /// Returns whether a timeout of the endpoint is due.
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        self.due_ns <= now_ns
    }

    /// The time until the next timeout.
    pub(super) fn due_in(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(self.due_ns.saturating_sub(now_ns))
    }

    /// Receives all datagrams that have arrived.
    pub(super) fn receive(&mut self, buffers: &mut SocketBuffers) {
        let Self { socket, endpoint, to, .. } = self;
        loop {
            let end = buffers.receiver.drain_mut(socket, BUDGET, |mut received| {
                let datagrams = received.datagrams_mut();
                let inbound = datagrams.map(|datagram| Inbound { from: (*to).into(), bytes: datagram.bytes });
                endpoint.handle_datagrams(now(), inbound);
            });
            if let DrainEnd::Closed(fault) = end {
                self.end = Some(format!("its socket is gone: {fault}"));
                return;
            }
            if !end.is_more_waiting() {
                return;
            }
        }
    }

    /// Handles timeouts and events, and sends everything that is ready.
    pub(super) fn run(&mut self, buffers: &mut SocketBuffers, parker: &mut Poller) {
        let now = now();
        if self.endpoint.poll_timeout().is_some_and(|due| due <= now.monotonic) {
            self.endpoint.handle_timeout(now);
        }
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::ConnectFailed { error, .. } => self.end = Some(error.to_string()),
                Event::Disconnected { reason, .. } => self.end = Some(reason.name().to_owned()),
                _ => {}
            }
        }
        self.transmit(buffers, parker);
        self.due_ns = self.endpoint.poll_timeout().map_or(u64::MAX, Moment::as_nanos);
    }

    fn transmit(&mut self, buffers: &mut SocketBuffers, parker: &mut Poller) {
        while let Some(transmit) = self.endpoint.poll_transmit(now(), &mut buffers.scratch) {
            let datagram = buffers.scratch.get(..transmit.bytes).unwrap_or_default();
            let is_handshake = datagram.first().is_some_and(|first| first & HANDSHAKE != 0);
            // A batch that is not full has room for the largest datagram.
            let _ = buffers.batch.push(None, datagram);
            if is_handshake {
                // A handshake datagram is flushed alone, because it is not part of the books.
                let bytes = buffers.sent_bytes;
                buffers.flush(&mut self.socket, parker);
                buffers.sent_bytes = bytes;
            } else if buffers.batch.len() == BATCH {
                self.sent += buffers.flush(&mut self.socket, parker);
            }
        }
        if !buffers.batch.is_empty() {
            self.sent += buffers.flush(&mut self.socket, parker);
        }
    }
}
