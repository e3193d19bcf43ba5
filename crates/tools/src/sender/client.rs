//! A flow's end of a connection, as a game's client has it: a socket of its own and an endpoint of its own.
//!
//! When it is looked at, and what it is given to send, is decided elsewhere.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use drumfire_proto::limits::DATAGRAM_SENT_MAX_BYTES;
use drumfire_proto::{
    Alone, ClientConfig, Congestion, Endpoint, Event, Inbound, Moment, Now, PeerId, Secret, ServerIdentity,
    Stats,
};
use drumfire_socket::{
    DrainEnd, FlushEnd, Gro, Parker, Poller, Receiver, ReceiverConfig, SendBatch, SendMode, Sender, Socket,
};

use crate::clock;
use crate::control::Sealed;
use crate::receiver::pipeline;

/// Datagrams that one client receives in a row.
pub(super) const BUDGET: usize = 256;

/// Datagrams written together.
const BATCH: usize = 64;

/// What each connection may send: more than a machine does. The schedule says when a message leaves, so nothing else
/// may hold it back: a controller that adapted would add its own queue to every latency, and a rate of its own to
/// every rate. What is under way stays bounded by the connection's memory.
const UNHINDERED: Congestion = Congestion::Fixed { bytes_per_second: 1_250_000_000 };

/// How long a full socket is left alone.
const BLOCKED_REST: Duration = Duration::from_micros(50);

/// How often before what waits for it counts as lost.
const BLOCKED_TRIES: u32 = 40;

/// Set in the first byte of every datagram of a handshake, and of no other.
const HANDSHAKE: u8 = 0x80;

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum HandshakeError {
    /// The socket, the poller, or the system's randomness.
    Io(io::Error),
    /// The receiver does not answer, or refuses; in words.
    Failed(String),
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// What the clients of a thread receive and send with, one after the other.
pub(super) struct Hands {
    pub(super) receiver: Receiver,
    pub(super) sender: Sender,
    pub(super) batch: SendBatch,
    scratch: Box<[u8]>,
    /// Bytes of packets that the kernel took.
    pub(super) sent_bytes: u64,
    /// Packets that a socket without room did not take in time.
    pub(super) blocked: u64,
}

/// One flow's end.
pub(super) struct Client {
    pub(super) socket: Socket,
    pub(super) endpoint: Endpoint<Alone>,
    pub(super) server: PeerId,
    to: SocketAddr,
    /// When the endpoint wants to be looked at, in nanoseconds of the host's clock.
    due_ns: u64,
    /// Packets that the kernel took, handshakes not counted.
    pub(super) sent: u64,
    /// Why the connection is over, if it is.
    pub(super) end: Option<String>,
}

impl Hands {
    /// Hands for sockets like this one.
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
        // It is as if the network had lost it: the endpoint finds out.
        self.blocked += batch.len() as u64;
        batch.clear();
        self.sent_bytes += sender.counts().bytes - bytes;
        sender.counts().datagrams - datagrams
    }
}

impl Client {
    /// Asks the receiver for a connection.
    pub(super) fn begin(socket: Socket, to: SocketAddr, sealed: &Sealed) -> Result<Self, HandshakeError> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(io::Error::other)?;
        let failed = |error: &dyn std::fmt::Display| HandshakeError::Failed(error.to_string());
        let config = pipeline::config(sealed.suite).congestion(UNHINDERED);
        let mut endpoint = Endpoint::client(config, ClientConfig::default(), Secret::new(seed))
            .map_err(|error| failed(&error))?;
        let identity = ServerIdentity { public_key: sealed.public_key.to_bytes(), key_id: 0 };
        let server = endpoint.connect(now(), to, &identity, None).map_err(|error| failed(&error))?;
        Ok(Self { socket, endpoint, server, to, due_ns: 0, sent: 0, end: None })
    }

    /// Whether the handshake itself is over.
    pub(super) fn is_connected(&self) -> bool {
        self.endpoint.stats().connections_opened > 0
    }

    /// Whether the receiver has opened a packet of this connection and said so: any packet of its says it.
    pub(super) fn is_confirmed(&self) -> bool {
        self.endpoint.stats().packets_received > 0
    }

    /// Why the connection is over, where it is, as an error.
    pub(super) fn check(&self) -> Result<(), HandshakeError> {
        self.end.clone().map_or(Ok(()), |line| Err(HandshakeError::Failed(line)))
    }

    /// Returns whether everything it was given was sent and acknowledged, or given up.
    pub(super) fn is_settled(&mut self) -> bool {
        let stats = self.endpoint.peer_stats(now(), self.server);
        stats.is_some_and(|stats| stats.in_flight_bytes == 0 && stats.send_memory_bytes == 0)
    }

    /// What the endpoint has counted.
    pub(super) fn stats(&self) -> &Stats {
        self.endpoint.stats()
    }

    /// Whether the endpoint wants to be looked at by now.
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        self.due_ns <= now_ns
    }

    /// How long until it wants to be.
    pub(super) fn due_in(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(self.due_ns.saturating_sub(now_ns))
    }

    /// Takes in what has come.
    pub(super) fn receive(&mut self, hands: &mut Hands) {
        let Self { socket, endpoint, to, .. } = self;
        loop {
            let end = hands.receiver.drain_mut(socket, BUDGET, |mut received| {
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

    /// Does what is due, hears what happened, and sends everything there is to send.
    pub(super) fn run(&mut self, hands: &mut Hands, parker: &mut Poller) {
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
        self.transmit(hands, parker);
        self.due_ns = self.endpoint.poll_timeout().map_or(u64::MAX, Moment::as_nanos);
    }

    fn transmit(&mut self, hands: &mut Hands, parker: &mut Poller) {
        while let Some(transmit) = self.endpoint.poll_transmit(now(), &mut hands.scratch) {
            let datagram = hands.scratch.get(..transmit.bytes).unwrap_or_default();
            let is_handshake = datagram.first().is_some_and(|first| first & HANDSHAKE != 0);
            // There is room for the largest as long as the batch is not full.
            let _ = hands.batch.push(None, datagram);
            if is_handshake {
                // Alone, for nothing goes before it: what is under way then is no part of the books.
                let bytes = hands.sent_bytes;
                hands.flush(&mut self.socket, parker);
                hands.sent_bytes = bytes;
            } else if hands.batch.len() == BATCH {
                self.sent += hands.flush(&mut self.socket, parker);
            }
        }
        if !hands.batch.is_empty() {
            self.sent += hands.flush(&mut self.socket, parker);
        }
    }
}

/// The host's time, as endpoints take it.
pub(super) fn now() -> Now {
    Now { monotonic: Moment::from_nanos(clock::host_ns()), wall: Duration::ZERO }
}
