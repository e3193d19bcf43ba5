//! The flows of one sending thread: a socket each, so that each has a source port of its own.

use std::num::NonZeroU64;
use std::time::Duration;

use drumfire_puppet::{Connector, PacketSealer};
use drumfire_socket::{DrainEnd, LocalAddress, Parker, SendBatch, Socket};
use drumfire_wire::ClientParameters;

use super::client::{BUDGET, CONNECT_TIMEOUT, SocketBuffers, unconnected};
use crate::clock;
use crate::control::Sealed;
use crate::datagram::{self, Header, RouteId, STAMPED_BYTES};
use crate::error::Error;
use crate::receiver::service;

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
    let ephemeral = service::random_bytes().map_err(unconnected)?;
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
