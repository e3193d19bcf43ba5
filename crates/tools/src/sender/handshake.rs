//! Makes a connection on a flow's socket, as a game's client does, and keeps of it what seals packets.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use drumfire_proto::limits::DATAGRAM_SENT_MAX_BYTES;
use drumfire_proto::{
    Alone, ClientConfig, Endpoint, Event, Inbound, Moment, Now, PacketSealer, PeerId, Secret, ServerIdentity,
};
use drumfire_socket::{
    DrainEnd, Parker, Poller, Receiver, ReceiverConfig, SendBatch, SendMode, Sender, Socket,
};

use crate::clock;
use crate::control::Sealed;
use crate::receiver::pipeline;

/// A handshake gives up by itself after five seconds; what follows it is one round trip.
const PATIENCE: Duration = Duration::from_secs(8);

/// The longest wait between two looks.
const STEP: Duration = Duration::from_millis(50);

/// Datagrams taken in one look.
const BUDGET: usize = 64;

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

/// A connection in the making.
pub(super) struct Handshake {
    endpoint: Endpoint<Alone>,
    server: PeerId,
    to: SocketAddr,
    poller: Poller,
    receiver: Receiver,
    sender: Sender,
    batch: SendBatch,
}

impl Handshake {
    /// Asks the receiver for a connection.
    pub(super) fn begin(
        socket: &mut Socket,
        to: SocketAddr,
        sealed: &Sealed,
    ) -> Result<Self, HandshakeError> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(io::Error::other)?;
        let failed = |error: &dyn std::fmt::Display| HandshakeError::Failed(error.to_string());
        let config = pipeline::config(sealed.suite);
        let mut endpoint = Endpoint::client(config, ClientConfig::default(), Secret::new(seed))
            .map_err(|error| failed(&error))?;
        let identity = ServerIdentity { public_key: sealed.public_key.to_bytes(), key_id: 0 };
        let server = endpoint.connect(now(), to, &identity, None).map_err(|error| failed(&error))?;
        let mut poller = Poller::new()?;
        poller.register(socket, 0)?;
        let receiver = Receiver::new(socket, &ReceiverConfig::default()).map_err(io::Error::other)?;
        let mut handshake = Self {
            endpoint,
            server,
            to,
            poller,
            receiver,
            sender: Sender::new(SendMode::Single),
            batch: SendBatch::new(1, DATAGRAM_SENT_MAX_BYTES),
        };
        handshake.transmit(socket);
        Ok(handshake)
    }

    /// Waits until the receiver has opened a packet of this connection and said so, which it may take its time
    /// with: begin several before.
    pub(super) fn finish(mut self, socket: &mut Socket) -> Result<PacketSealer, HandshakeError> {
        let deadline = clock::now() + PATIENCE;
        // Any packet of the receiver says that it has opened ours.
        while self.endpoint.stats().packets_received == 0 {
            if clock::now() >= deadline {
                let line = "the receiver does not confirm the connection".to_owned();
                return Err(HandshakeError::Failed(line));
            }
            self.step(socket)?;
        }
        let sealer = self.endpoint.take_sealer(self.server);
        sealer.ok_or_else(|| HandshakeError::Failed("the connection has no keys".to_owned()))
    }

    /// Takes in what comes, at most for a short wait, and answers it.
    pub(super) fn step(&mut self, socket: &mut Socket) -> Result<(), HandshakeError> {
        self.receive(socket)?;
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::ConnectFailed { error, .. } => return Err(HandshakeError::Failed(error.to_string())),
                Event::Disconnected { reason, .. } => {
                    return Err(HandshakeError::Failed(reason.name().to_owned()));
                }
                _ => {}
            }
        }
        self.transmit(socket);
        Ok(())
    }

    /// Whether the handshake itself is over.
    pub(super) fn is_connected(&self) -> bool {
        self.endpoint.stats().connections_opened > 0
    }

    fn transmit(&mut self, socket: &mut Socket) {
        let mut scratch = [0; DATAGRAM_SENT_MAX_BYTES];
        while let Some(transmit) = self.endpoint.poll_transmit(now(), &mut scratch) {
            // It is empty, and has room for the largest.
            let _ = self.batch.push(None, scratch.get(..transmit.bytes).unwrap_or_default());
            // What is not taken is as if the network had lost it: it is sent again.
            self.sender.flush(socket, &mut self.batch, |_, _| {});
            self.batch.clear();
        }
    }

    fn receive(&mut self, socket: &mut Socket) -> Result<(), HandshakeError> {
        let Self { endpoint, to, .. } = self;
        let due = endpoint.poll_timeout().map_or(STEP, |due| due.since(now().monotonic).min(STEP));
        // A wait that fails ends at once, and the deadline still holds.
        let _ = self.poller.poll(Some(due));
        let end = self.receiver.drain_mut(socket, BUDGET, |mut received| {
            let datagrams = received.datagrams_mut();
            let inbound = datagrams.map(|datagram| Inbound { from: (*to).into(), bytes: datagram.bytes });
            endpoint.handle_datagrams(now(), inbound);
        });
        if let DrainEnd::Closed(fault) = end {
            return Err(HandshakeError::Failed(format!("its socket is gone: {fault}")));
        }
        let now = now();
        if endpoint.poll_timeout().is_some_and(|due| due <= now.monotonic) {
            endpoint.handle_timeout(now);
        }
        Ok(())
    }
}

fn now() -> Now {
    Now { monotonic: Moment::from_nanos(clock::host_ns()), wall: Duration::ZERO }
}
