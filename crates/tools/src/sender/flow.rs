//! The flows of one sending thread: a socket each, so that each has a source port of its own.
//!
//! A [`Flow`] sends raw datagrams, or seals them for a connection without an endpoint. A [`Client`] has an endpoint, like the client of
//! a game.

use std::fmt::Display;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::time::Duration;

use drumfire_proto::limits::DATAGRAM_SENT_MAX_BYTES;
use drumfire_proto::{
    ClientConfig, Congestion, Endpoint, Event, Inbound, Moment, PeerId, Secret, ServerIdentity, SingleWorker,
};
use drumfire_puppet::{Connector, PacketSealer};
use drumfire_socket::{
    DrainEnd, FlushEnd, Gro, LocalAddress, Parker, Poller, Receiver, ReceiverConfig, SendBatch, SendMode,
    Sender, Socket,
};
use drumfire_wire::ClientParameters;

use crate::clock;
use crate::control::Sealed;
use crate::datagram::{self, Header, RouteId, STAMPED_BYTES};
use crate::error::Error;
use crate::receiver::service::{self, now, random_bytes};

/// Datagrams that one flow receives in a row.
const BUDGET: usize = 256;

/// Datagrams written together.
const BATCH: usize = 64;

/// A rate that no machine reaches, so that only the schedule decides when a message leaves. An adaptive controller
/// would add its queue to every latency. The memory of the connection still bounds the data in flight.
const UNLIMITED: Congestion = Congestion::Fixed { bytes_per_second: 1_250_000_000 };

/// The delay before a full socket is tried again.
const BLOCKED_RETRY_DELAY: Duration = Duration::from_micros(50);

/// The number of attempts before the datagrams count as lost.
const BLOCKED_TRIES: u32 = 40;

/// This bit is set in the first byte of handshake datagrams only.
const HANDSHAKE: u8 = 0x80;

/// The longest wait for a connection. A handshake times out after five seconds, and the confirmation takes one more round trip.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);

/// The error of a flow without a connection.
pub(super) fn unconnected(reason: impl Display) -> Error {
    Error::run(format!("a flow could not connect: {reason}"))
}

/// Buffers and counters that the clients of a thread share, one at a time.
pub(super) struct SocketBuffers {
    /// The flows of the whole run, for errors.
    flows: u32,
    pub(super) receiver: Receiver,
    pub(super) sender: Sender,
    pub(super) batch: SendBatch,
    scratch: Box<[u8]>,
    /// Packets that a full socket did not accept in time.
    pub(super) blocked: u64,
}

/// Sends the batch, and waits for a full socket while `may_wait` returns true. Calls `on_refused` for each datagram that the kernel
/// refuses. Returns how many datagrams were left, and drops them.
pub(super) fn flush(
    sender: &mut Sender,
    socket: &mut Socket,
    batch: &mut SendBatch,
    parker: &mut Poller,
    mut may_wait: impl FnMut() -> bool,
    mut on_refused: impl FnMut(),
) -> u64 {
    loop {
        match sender.flush(socket, batch, |_| on_refused()) {
            FlushEnd::Blocked if may_wait() => parker.sleep(BLOCKED_RETRY_DELAY),
            FlushEnd::Paused(time) => parker.sleep(time),
            FlushEnd::Sent | FlushEnd::Blocked | FlushEnd::Closed(_) => break,
        }
    }
    let left = batch.len() as u64;
    batch.clear();
    left
}

/// One flow's end.
pub(super) struct Client {
    pub(super) flow: u32,
    pub(super) id: RouteId,
    /// The index of the flow among those of its thread.
    pub(super) place: u64,
    /// Messages that are due, and messages that the endpoint accepted.
    pub(super) due: u64,
    pub(super) accepted: u64,
    /// The number of times that the endpoint had no memory for a message.
    pub(super) blocked: u64,
    pub(super) socket: Socket,
    pub(super) endpoint: Endpoint<SingleWorker>,
    pub(super) server: PeerId,
    to: SocketAddr,
    /// The time of the next timeout of the endpoint, in nanoseconds of the host's clock.
    pub(super) due_ns: u64,
    /// Packets that the kernel accepted, without handshakes.
    pub(super) sent: u64,
    /// The reason why the connection ended, if it did.
    pub(super) end: Option<String>,
}

impl SocketBuffers {
    /// Makes buffers for sockets like this one.
    pub(super) fn new(socket: Option<&mut Socket>, mode: SendMode, flows: u32) -> Result<Self, Error> {
        let socket = socket.ok_or_else(|| unconnected("a thread has no flow"))?;
        let receiver =
            Receiver::new(socket, &ReceiverConfig::default().gro(Gro::Off)).map_err(unconnected)?;
        Ok(Self {
            flows,
            receiver,
            sender: Sender::new(mode),
            batch: SendBatch::new(BATCH, BATCH * DATAGRAM_SENT_MAX_BYTES),
            scratch: vec![0; DATAGRAM_SENT_MAX_BYTES].into(),
            blocked: 0,
        })
    }

    /// Makes a poller. Like a socket, it takes descriptors.
    pub(super) fn poller(&self) -> Result<Poller, Error> {
        Poller::new().map_err(|error| Error::for_sockets(self.flows, &error))
    }

    /// Sends the batch. Returns how many of its datagrams the kernel took.
    pub(super) fn flush(&mut self, socket: &mut Socket, parker: &mut Poller) -> u64 {
        let Self { sender, batch, .. } = self;
        let before = sender.counts().datagrams;
        let mut tries = 1..BLOCKED_TRIES;
        // This counts as loss in the network, from which the endpoint recovers.
        self.blocked += flush(sender, socket, batch, parker, || tries.next().is_some(), || {});
        sender.counts().datagrams - before
    }
}

impl Client {
    /// Starts the connection of a flow to the receiver.
    pub(super) fn begin(
        (flow, id): (u32, RouteId),
        place: u64,
        socket: Socket,
        to: SocketAddr,
        sealed: &Sealed,
    ) -> Result<Self, Error> {
        let seed = random_bytes().map_err(unconnected)?;
        let config = service::config(sealed.suite).congestion(UNLIMITED);
        let mut endpoint =
            Endpoint::client(config, ClientConfig::default(), Secret::new(seed)).map_err(unconnected)?;
        let identity = ServerIdentity { public_key: sealed.public_key, key_id: 0 };
        let server = endpoint.connect(now(), to, &identity, None).map_err(unconnected)?;
        let (due, accepted, blocked, due_ns, sent, end) = (0, 0, 0, 0, 0, None);
        Ok(Self { flow, id, place, due, accepted, blocked, socket, endpoint, server, to, due_ns, sent, end })
    }

    /// Returns whether every accepted message was acknowledged or given up.
    pub(super) fn is_settled(&mut self) -> bool {
        let stats = self.endpoint.peer_stats(now(), self.server);
        stats.is_some_and(|stats| stats.in_flight_bytes == 0 && stats.send_memory_bytes == 0)
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
                buffers.flush(&mut self.socket, parker);
            } else if buffers.batch.len() == BATCH {
                self.sent += buffers.flush(&mut self.socket, parker);
            }
        }
        if !buffers.batch.is_empty() {
            self.sent += buffers.flush(&mut self.socket, parker);
        }
    }
}

/// A flow without an endpoint.
pub(super) struct Flow {
    pub(super) socket: Socket,
    pub(super) index: u32,
    id: RouteId,
    next_sequence: u64,
    pub(super) sent: u64,
    seal: Option<Seal>,
}

/// Seals the datagrams of a flow into packets of a connection.
struct Seal {
    sealer: PacketSealer,
    /// The next message. Only its header changes.
    payload: Box<[u8]>,
}

impl Flow {
    /// Makes a flow on this socket. With `sealed`, its datagrams are packets of a connection, of `size` bytes.
    pub(super) fn open(
        (index, id): (u32, RouteId),
        mut socket: Socket,
        sealed: Option<&Sealed>,
        size: usize,
        buffers: &mut SocketBuffers,
    ) -> Result<Self, Error> {
        let sealer = sealed.map(|sealed| connect(&mut socket, buffers, sealed)).transpose()?;
        // Sizes that are too small were refused before.
        let payload_bytes = PacketSealer::payload_bytes(size).unwrap_or_default();
        let seal = sealer.map(|sealer| Seal { sealer, payload: vec![0; payload_bytes].into() });
        Ok(Self { socket, index, id, next_sequence: 0, sent: 0, seal })
    }

    /// Puts the next `count` datagrams of `size` bytes into the batch. Returns how many had room.
    pub(super) fn fill(&mut self, batch: &mut SendBatch, count: usize, size: usize, stamp_ns: u64) -> u64 {
        let room = self.seal.as_ref().map_or(size, |seal| seal.payload.len());
        let stamp = NonZeroU64::new(stamp_ns).filter(|_| room >= STAMPED_BYTES);
        let mut filled = 0;
        while filled < count {
            let header = Header { id: self.id, flow: self.index, sequence: self.next_sequence, stamp };
            let Some(memory) = batch.spare(size) else { break };
            // Sizes without room for a header were refused before.
            match &mut self.seal {
                None => {
                    let _ = datagram::encode(memory, &header);
                }
                Some(Seal { sealer, payload }) => {
                    let _ = datagram::encode(payload, &header);
                    // No run sends as many packets as one key can seal.
                    let _ = sealer.seal(memory, payload);
                }
            }
            let _ = batch.commit(None, LocalAddress::ANY, size);
            self.next_sequence += 1;
            filled += 1;
        }
        filled as u64
    }
}

/// The time without an answer after which a datagram is sent again.
const RESEND_AFTER: Duration = Duration::from_millis(100);

/// Connects this socket, and waits until the receiver has acknowledged a packet. Returns the sealing half of the connection.
fn connect(socket: &mut Socket, buffers: &mut SocketBuffers, sealed: &Sealed) -> Result<PacketSealer, Error> {
    let ephemeral = random_bytes().map_err(unconnected)?;
    let mut client_id = [0; 8];
    getrandom::fill(&mut client_id).map_err(unconnected)?;
    let parameters =
        ClientParameters { connection_id: None, shared: service::shared_parameters(), hello: b"" };
    let offer = sealed.suite.offer();
    let mut client = Connector::new(&sealed.public_key, client_id, ephemeral, &parameters, offer);
    let mut poller = buffers.poller()?;
    poller.register(socket, 0).map_err(unconnected)?;
    let has_time = clock::within(CONNECT_TIMEOUT);
    while !client.is_confirmed() {
        if let Some(line) = client.failure() {
            return Err(unconnected(line));
        }
        if !has_time() {
            return Err(unconnected("the server did not answer: check its address and public key"));
        }
        let mut answers = Vec::from_iter(client.resend());
        while !answers.is_empty() {
            for answer in answers.drain(..) {
                let _ = buffers.batch.push(None, &answer);
                buffers.flush(socket, &mut poller);
            }
            // The last datagram acknowledges the server's packet, and the server does not answer it.
            if client.is_confirmed() {
                break;
            }
            // A wait that fails ends early, and the datagram is sent again.
            let _ = poller.poll(Some(RESEND_AFTER));
            let end = buffers.receiver.drain(socket, BUDGET, |received| {
                for datagram in received.datagrams() {
                    answers.extend(client.on_datagram(datagram.bytes.to_vec()));
                }
            });
            if let DrainEnd::Closed(fault) = end {
                return Err(unconnected(format!("its socket is gone: {fault}")));
            }
        }
    }
    client.into_sealer().ok_or_else(|| unconnected("the connection has no keys"))
}
