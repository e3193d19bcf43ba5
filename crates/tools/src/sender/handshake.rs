//! Makes a connection on a flow's socket, as a game's client does, and keeps of it what seals packets.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use drumfire_proto::limits::DATAGRAM_SENT_MAX_BYTES;
use drumfire_proto::{
    Alone, ClientConfig, Endpoint, Event, Inbound, Moment, Now, PacketSealer, Secret, ServerIdentity,
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

/// Connects: afterwards the receiver has opened a packet of this connection and said so.
pub(super) fn connect(
    socket: &mut Socket,
    to: SocketAddr,
    sealed: &Sealed,
) -> Result<PacketSealer, HandshakeError> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(io::Error::other)?;
    let failed = |error: &dyn std::fmt::Display| HandshakeError::Failed(error.to_string());
    let config = pipeline::config(sealed.suite);
    let mut endpoint = Endpoint::client(config, ClientConfig::default(), Secret::new(seed))
        .map_err(|error| failed(&error))?;
    let identity = ServerIdentity { public_key: sealed.public_key.to_bytes(), key_id: 0 };
    let peer = endpoint.connect(now(), to, &identity).map_err(|error| failed(&error))?;
    let mut line = Line::open(socket)?;
    let deadline = clock::now() + PATIENCE;
    while clock::now() < deadline {
        line.transmit(socket, &mut endpoint);
        // Any packet of the receiver says that it has opened ours.
        if endpoint.stats().packets_received > 0 {
            return endpoint
                .take_sealer(peer)
                .ok_or_else(|| HandshakeError::Failed("the connection has no keys".to_owned()));
        }
        line.receive(socket, to, &mut endpoint)?;
        while let Some(event) = endpoint.poll_event() {
            match event {
                Event::ConnectFailed { error, .. } => return Err(failed(&error)),
                Event::Disconnected { reason, .. } => {
                    return Err(HandshakeError::Failed(reason.name().to_owned()));
                }
                _ => {}
            }
        }
    }
    Err(HandshakeError::Failed("the receiver does not confirm the connection".to_owned()))
}

/// A socket on its way through a handshake.
struct Line {
    poller: Poller,
    receiver: Receiver,
    sender: Sender,
    batch: SendBatch,
}

impl Line {
    fn open(socket: &mut Socket) -> io::Result<Self> {
        let mut poller = Poller::new()?;
        poller.register(socket, 0)?;
        let receiver = Receiver::new(socket, &ReceiverConfig::default()).map_err(io::Error::other)?;
        Ok(Self {
            poller,
            receiver,
            sender: Sender::new(SendMode::Single),
            batch: SendBatch::new(1, DATAGRAM_SENT_MAX_BYTES),
        })
    }

    fn transmit(&mut self, socket: &mut Socket, endpoint: &mut Endpoint<Alone>) {
        let mut scratch = [0; DATAGRAM_SENT_MAX_BYTES];
        while let Some(transmit) = endpoint.poll_transmit(now(), &mut scratch) {
            // It is empty, and has room for the largest.
            let _ = self.batch.push(None, scratch.get(..transmit.bytes).unwrap_or_default());
            // What is not taken is as if the network had lost it: it is sent again.
            self.sender.flush(socket, &mut self.batch, |_, _| {});
            self.batch.clear();
        }
    }

    fn receive(
        &mut self,
        socket: &mut Socket,
        from: SocketAddr,
        endpoint: &mut Endpoint<Alone>,
    ) -> Result<(), HandshakeError> {
        let due = endpoint.poll_timeout().map_or(STEP, |due| due.since(now().monotonic).min(STEP));
        // A wait that fails ends at once, and the deadline still holds.
        let _ = self.poller.poll(Some(due));
        let end = self.receiver.drain_mut(socket, BUDGET, |mut received| {
            let datagrams = received.datagrams_mut();
            endpoint
                .handle_datagrams(now(), datagrams.map(|datagram| Inbound { from, bytes: datagram.bytes }));
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
