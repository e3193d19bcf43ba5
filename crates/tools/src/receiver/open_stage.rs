//! The stage `open` on one receiver thread: it accepts connections without an endpoint, opens their packets, and counts them.
//!
//! The handshake, the ciphers, and the replay window are those of a server. Packets are neither acknowledged nor delivered, except
//! that a request for an ack is answered. It owns no socket and waits for nothing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use drumfire::worker;
use drumfire_crypto::{Entropy, IdKeys, ReplayError, ReplayWindow, Secret, ServerKeyPair};
use drumfire_proto::{DropReason, Inbound, Route, Shard};
use drumfire_puppet::{HelloError, accept_hello};
use drumfire_socket::{DatagramMut, DrainEnd, Receiver, SendBatch, SendMode, Sender, Socket};
use drumfire_wire::{
    AckRange, ConnectionId, ConnectionIdLength, DatagramKind, Frame, Frames, Hello, PacketNumber,
    ServerParameters, TransportHeader, VERSION, limits as wire_limits,
};

use super::service::{Connection, Handover, Service, random_bytes, shared_parameters};
use super::stages::{BUDGET, ThreadBook, ThreadStage};
use crate::choices::Suite;
use crate::limits::MAX_FLOWS;

/// The number of answers that one pass can send. A client whose answer has no room in the batch asks again.
const BATCH: usize = 64;

/// Room for an ack of one packet.
const ACK_BYTES: usize = 64;

pub(super) struct OpenStage {
    suite: Suite,
    keys: ServerKeyPair,
    id_keys: IdKeys,
    shard: Shard,
    handover: Arc<Handover>,
    entropy: Entropy,
    connections: HashMap<ConnectionId, Connection>,
    /// The Welcome for each Hello that was accepted, by its mac1: a repeated Hello gets the same answer.
    welcomes: HashMap<[u8; wire_limits::MAC1_BYTES], Vec<u8>>,
    batch: SendBatch,
    sender: Sender,
}

impl OpenStage {
    /// Makes the stage of the thread with this index.
    pub(super) fn new(service: &Service, index: u16) -> Result<Self, String> {
        let (shard, handover) = service.shard(index);
        Ok(Self {
            suite: service.suite,
            keys: service.pair(),
            id_keys: IdKeys::derive(&Secret::new(service.persistent), &[]),
            shard,
            handover,
            entropy: Entropy::from_seed(Secret::new(random_bytes()?)),
            connections: HashMap::new(),
            welcomes: HashMap::new(),
            batch: SendBatch::new(BATCH, BATCH * wire_limits::WELCOME_MAX_BYTES),
            sender: Sender::new(SendMode::Single),
        })
    }

    /// Opens packets, accepts connections, and counts the other datagrams by reason.
    fn receive<'a>(&mut self, book: &mut ThreadBook, datagrams: impl Iterator<Item = DatagramMut<'a>>) {
        let mut handled_ns = 0;
        for datagram in datagrams {
            let Inbound { from, bytes } = worker::inbound(datagram);
            let result = match DatagramKind::of(bytes) {
                Ok(DatagramKind::Transport) => self.open(book, from, bytes, &mut handled_ns),
                Ok(DatagramKind::Hello) => self.accept(from, bytes),
                Ok(_) => Err(DropReason::UnexpectedKind),
                Err(error) => Err(error.into()),
            };
            if let Err(reason) = result {
                book.stray(reason.name(), 1);
            }
        }
    }

    fn open(
        &mut self,
        book: &mut ThreadBook,
        from: Route,
        bytes: &mut [u8],
        handled_ns: &mut u64,
    ) -> Result<(), DropReason> {
        let header = TransportHeader::decode(bytes, ConnectionIdLength::Eight)?;
        let id = header.connection_id.ok_or(DropReason::UnknownConnection)?;
        let connection = match self.connections.entry(id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if !self.id_keys.is_valid(&id.checked_part(), id.check()) => {
                return Err(DropReason::ForgedId);
            }
            // Another thread may have accepted this connection.
            Entry::Vacant(new) => {
                new.insert(self.handover.waiting().remove(&id).ok_or(DropReason::UnknownConnection)?)
            }
        };
        let number = connection.opener.number(&header);
        connection.window.check(number).map_err(refused)?;
        let (_, frames) = connection.opener.open_with(&header, bytes).ok_or(DropReason::Forged)?;
        connection.window.accept(number).map_err(refused)?;
        for frame in Frames::new(frames).map_while(Result::ok) {
            match frame {
                Frame::Message(message) => {
                    book.enter_message(message.payload, handled_ns);
                }
                Frame::Run(run) => {
                    for payload in run.bodies.payloads() {
                        book.enter_message(payload, handled_ns);
                    }
                }
                Frame::AckRequest => {
                    let mut ack = [0; ACK_BYTES];
                    let ranges = AckRange::new(PacketNumber(number), PacketNumber(number)).into_iter();
                    let sealed = connection.sealer.seal_ack(&mut ack, Duration::ZERO, ranges);
                    if let Some(ack) = sealed.and_then(|bytes| ack.get(..bytes)) {
                        // A client that gets no ack asks again.
                        let _ = worker::push(&mut self.batch, from, ack);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn accept(&mut self, from: Route, bytes: &[u8]) -> Result<(), DropReason> {
        let hello = Hello::decode(bytes)?;
        let fields = &hello.fields;
        if fields.version != VERSION {
            return Err(DropReason::WrongVersion);
        }
        if fields.protocol_id != 0 {
            return Err(DropReason::WrongProtocol);
        }
        if fields.server_key_id != 0 {
            return Err(DropReason::UnknownServerKey);
        }
        if !self.welcomes.contains_key(hello.mac1) {
            if self.welcomes.len() >= MAX_FLOWS as usize {
                return Err(DropReason::ServerFull);
            }
            let welcome = self.connect(&hello)?;
            self.welcomes.insert(*hello.mac1, welcome);
        }
        if let Some(welcome) = self.welcomes.get(hello.mac1) {
            // A client that gets no answer asks again.
            let _ = worker::push(&mut self.batch, from, welcome);
        }
        Ok(())
    }

    /// Makes a connection for the thread whose turn it is, and returns its Welcome.
    fn connect(&mut self, hello: &Hello<'_>) -> Result<Vec<u8>, DropReason> {
        let owner = self.handover.next_owner.fetch_add(1, Ordering::Relaxed);
        let id = self.draw_id(owner % self.shard.count)?;
        let offer = hello.fields.offered_suites().ok_or(DropReason::BadOffer)?;
        let aes = drumfire_wire::Suite::Aes128Gcm;
        let has_aes = self.suite == Suite::Aes128Gcm && offer.has(aes);
        let parameters = ServerParameters {
            connection_id: id,
            reset_token: self.id_keys.reset_token(&id.to_bytes()),
            suite: if has_aes { aes } else { drumfire_wire::Suite::ChaCha20Poly1305 },
            shared: shared_parameters(),
        };
        let ephemeral = self.entropy.secret();
        let accepted = accept_hello(&self.keys, hello, &parameters, &ephemeral, |_| {});
        let (server, welcome) = accepted.map_err(|error| match error {
            HelloError::BadMac1 => DropReason::BadMac1,
            HelloError::BadNoise => DropReason::BadNoise,
            HelloError::BadParameters => DropReason::BadParameters,
            HelloError::BadOffer => DropReason::BadOffer,
        })?;
        let (sealer, opener) = server.into_halves();
        let window = ReplayWindow::new(self.suite.config().replay_window).unwrap_or_default();
        self.handover.waiting().insert(id, Connection { opener, window, sealer });
        Ok(welcome)
    }

    /// Draws an id whose routing tag steers to `owner`.
    fn draw_id(&mut self, owner: u16) -> Result<ConnectionId, DropReason> {
        let Self { shard, entropy, id_keys, .. } = self;
        let tag = shard.steering.tag_for(owner, shard.count, || u16::from_be_bytes(entropy.bytes()));
        let (tag, random) = (tag.map_err(|_| DropReason::NoConnectionId)?, entropy.bytes());
        let unchecked = ConnectionId::new(tag, random, [0; 3]);
        Ok(ConnectionId::new(tag, random, id_keys.check(&unchecked.checked_part())))
    }
}

impl ThreadStage for OpenStage {
    fn pass(&mut self, book: &mut ThreadBook, receiver: &mut Receiver, socket: &mut Socket) -> DrainEnd {
        let end =
            receiver.drain_mut(socket, BUDGET, |mut received| self.receive(book, received.datagrams_mut()));
        if !self.batch.is_empty() {
            self.sender.flush(socket, &mut self.batch, |_| {});
            // The network may lose datagrams, and so may a full socket.
            self.batch.clear();
        }
        end
    }
}

fn refused(error: ReplayError) -> DropReason {
    match error {
        ReplayError::Duplicate => DropReason::Duplicate,
        ReplayError::TooOld => DropReason::TooOld,
    }
}
