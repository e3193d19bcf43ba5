//! Endpoints in memory and in virtual time: the cost of the protocol without sockets.
//!
//! | type | its two ends |
//! | --- | --- |
//! | [`Group`] | a server endpoint, and a client endpoint with many connections to it |
//! | [`SealedPeer`] | one endpoint, and a packet sealer as its peer, which receives nothing |
//!
//! Once the connections are established, no datagram moves by itself. The bench chooses the datagrams that arrive and their times, and it
//! times only the end that it measures.

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::Duration;

use drumfire::Bytes;
use drumfire_proto::{
    Access, ChannelId, ClientConfig, Config, Congestion, Endpoint, Event, Inbound, Message, Moment, Now,
    PeerId, Secret, SendOptions, ServerConfig, ServerIdentity, ServerKeyPair, SingleWorker,
};
use drumfire_puppet::{Connector, PacketSealer, accept_hello, default_parameters};
use drumfire_wire::{
    ClientParameters, ConnectionId, ConnectionIdLength, FrameWriter, Hello, NewConnectionId, PacketNumber,
    ServerParameters, SharedParameters, Suite, SuiteOffer, TransportHeader,
};

use crate::steps::count_if;

/// Datagrams of one receive call.
pub const BATCH: usize = 32;

/// A congestion window that never limits a bench.
pub const UNLIMITED: Congestion = Congestion::Fixed { bytes_per_second: 1 << 36 };

/// The virtual time within which a connection is established, in milliseconds.
const CONNECT_MS: u32 = 2_000;

/// The size of the largest datagram before the path's size is known.
pub(crate) const DATAGRAM_BYTES: usize = 1_200;

const MILLISECOND: Duration = Duration::from_millis(1);

/// The address of every server.
pub fn server_address() -> SocketAddr {
    SocketAddr::from(([198, 51, 100, 1], 7_777))
}

/// The address of the client of a [`Group`].
pub fn client_address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 50_000))
}

/// Returns the time `milliseconds` after the start.
pub fn at_ms(milliseconds: u64) -> Now {
    Now { monotonic: Moment::from_nanos(1 + milliseconds * 1_000_000), wall: Duration::ZERO }
}

fn key_pair() -> (ServerKeyPair, ServerIdentity) {
    let keys = ServerKeyPair::from_secret(Secret::new([1; 32]));
    let identity = ServerIdentity { public_key: *keys.public(), key_id: 0 };
    (keys, identity)
}

/// Returns a server endpoint with its identity. It does not limit the rate of handshakes.
pub fn server(config: Config, access: Access) -> Result<(Endpoint<SingleWorker>, ServerIdentity), String> {
    let (keys, identity) = key_pair();
    let mut settings = ServerConfig::new(keys, Secret::new([2; 32]), Secret::new([3; 32])).access(access);
    // All clients may have one address, and they connect faster than players do.
    settings.source_handshakes_per_second = 1_000_000;
    settings.source_handshakes_burst = u32::MAX;
    settings.handshakes_per_second = 1_000_000;
    let server = Endpoint::server(config, settings, SingleWorker::default(), Secret::new([5; 32]));
    Ok((server.map_err(|error| error.to_string())?, identity))
}

/// Returns a client endpoint. Each `seed` gives another client.
pub fn client(config: Config, settings: ClientConfig, seed: u8) -> Result<Endpoint<SingleWorker>, String> {
    Endpoint::client(config, settings, Secret::new([seed; 32])).map_err(|error| error.to_string())
}

/// Passes one datagram to an endpoint.
pub fn pass_datagram(endpoint: &mut Endpoint<SingleWorker>, now: Now, from: SocketAddr, bytes: &mut [u8]) {
    endpoint.handle_datagrams(now, [Inbound { from: from.into(), bytes }]);
}

/// Takes the next datagram that an endpoint has to send.
pub fn take_datagram(endpoint: &mut Endpoint<SingleWorker>, now: Now) -> Option<Vec<u8>> {
    let mut memory = vec![0; DATAGRAM_BYTES];
    let transmit = endpoint.poll_transmit(now, &mut memory)?;
    memory.truncate(transmit.bytes);
    Some(memory)
}

/// Takes all events. Returns the number of messages among them.
#[inline]
pub fn take_messages(endpoint: &mut Endpoint<SingleWorker>) -> u64 {
    let mut count = 0;
    while let Some(event) = endpoint.poll_event() {
        if let Event::Message { payload, .. } = event {
            black_box(payload);
            count += 1;
        }
    }
    count
}

/// A server endpoint and a client endpoint with many connections to it.
#[derive(Debug)]
pub struct Group {
    /// The server.
    pub server: Endpoint<SingleWorker>,
    /// The client, with all connections.
    pub client: Endpoint<SingleWorker>,
    /// The connections.
    pub links: Vec<Link>,
    /// The virtual time.
    pub now: Now,
    identity: ServerIdentity,
    datagrams: Datagrams,
}

/// The handles of a connection at both ends.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// The handle of the client, at the server.
    pub client: PeerId,
    /// The handle of the server, at the client.
    pub server: PeerId,
}

impl Group {
    /// Establishes `count` connections, one after the other. Both ends have this configuration.
    pub fn connect(count: u32, config: &Config) -> Result<Self, String> {
        let (server, identity) = server(config.clone(), Access::Open)?;
        let client = client(config.clone(), ClientConfig::many(), 6)?;
        let (links, now, datagrams) = (Vec::new(), at_ms(0), Datagrams::default());
        let mut group = Self { server, client, links, now, identity, datagrams };
        (0..count).try_for_each(|_| group.join(false))?;
        Ok(group)
    }

    /// Establishes one more connection. The server's work is counted if `counts`.
    pub fn join(&mut self, counts: bool) -> Result<(), String> {
        let server = self.client.connect(self.now, server_address(), &self.identity, None);
        let server = server.map_err(|error| error.to_string())?;
        for _ in 0..CONNECT_MS {
            while self.exchange(counts) {}
            while self.client.poll_event().is_some() {}
            while let Some(event) = self.server.poll_event() {
                if let Event::Connected { peer: client, .. } = event {
                    self.links.push(Link { client, server });
                    return Ok(());
                }
            }
            self.pass(MILLISECOND);
        }
        Err(format!("connection {} was not established", self.links.len()))
    }

    /// Advances the virtual time. Timers do not run.
    pub fn pass(&mut self, time: Duration) {
        self.now.monotonic = self.now.monotonic.after(time);
    }

    /// Runs the timers of both ends, and delivers the datagrams that the client has to send, and then those of the server. The server's
    /// work is counted if `counts`. Returns whether there was a datagram.
    pub fn exchange(&mut self, counts: bool) -> bool {
        let Self { server, client, datagrams, now, .. } = self;
        client.handle_timeout(*now);
        datagrams.clear();
        datagrams.take_all_from(client, *now);
        let to_server = datagrams.count();
        count_if(counts, || {
            server.handle_datagrams(*now, datagrams.inbound(client_address()));
            server.handle_timeout(*now);
            datagrams.clear();
            datagrams.take_all_from(server, *now);
        });
        client.handle_datagrams(*now, datagrams.inbound(server_address()));
        to_server + datagrams.count() > 0
    }
}

/// An endpoint whose only peer is a packet sealer. The peer sends the frames of the bench, and receives nothing.
#[derive(Debug)]
pub struct SealedPeer {
    /// The endpoint.
    pub endpoint: Endpoint<SingleWorker>,
    /// The handle of the peer, at the endpoint.
    pub id: PeerId,
    /// The source address of the peer's packets.
    pub address: SocketAddr,
    /// Seals the peer's packets.
    pub sealer: PacketSealer,
    /// The virtual time.
    pub now: Now,
    /// The length of the connection id in packets to the peer.
    id_length: ConnectionIdLength,
    /// The number of the newest packet to the peer.
    newest: Option<PacketNumber>,
}

impl SealedPeer {
    /// A server with one client. Packets to the client carry its connection id, if there is one.
    pub fn of_server(config: Config, connection_id: Option<ConnectionId>) -> Result<Self, String> {
        let offer = SuiteOffer::mandatory();
        let offer = if config.has_aes_gcm { offer.with(Suite::Aes128Gcm) } else { offer };
        let (mut endpoint, identity) = server(config, Access::Open)?;
        let shared = parameters(&Config::default());
        let parameters = ClientParameters { connection_id, shared, hello: b"" };
        let mut client = Connector::new(&identity.public_key, [0; 8], [0; 32], &parameters, offer);
        let (mut now, address) = (at_ms(0), client_address());
        let (mut sent, mut memory) = (client.resend(), [0; DATAGRAM_BYTES]);
        for _ in 0..CONNECT_MS {
            let Some(mut bytes) = sent.take() else { break };
            pass_datagram(&mut endpoint, now, address, &mut bytes);
            if client.is_connected() {
                // The first packet of the connection has arrived.
                break;
            }
            while let Some(transmit) = endpoint.poll_transmit(now, &mut memory) {
                sent = client.on_datagram(memory[..transmit.bytes].to_vec()).or(sent);
            }
            now.monotonic = now.monotonic.after(MILLISECOND);
        }
        let mut connected = None;
        while let Some(event) = endpoint.poll_event() {
            if let Event::Connected { peer, .. } = event {
                connected = Some(peer);
            }
        }
        let (id, sealer) = connected.zip(client.into_sealer()).ok_or("the client is not connected")?;
        let id_length = connection_id.map_or(ConnectionIdLength::Zero, |_| ConnectionIdLength::Eight);
        Ok(Self { endpoint, id, address, sealer, now, id_length, newest: None })
    }

    /// A client, which may have many connections, with one server.
    pub fn of_client(config: &Config) -> Result<Self, String> {
        let (keys, identity) = key_pair();
        let mut client = client(config.clone(), ClientConfig::many(), 6)?;
        let (now, address) = (at_ms(0), server_address());
        let id = client.connect(now, address, &identity, None).map_err(|error| error.to_string())?;
        let hello = take_datagram(&mut client, now).ok_or("the client sends no Hello")?;
        let hello = Hello::decode(&hello).map_err(|error| error.to_string())?;
        let parameters = ServerParameters {
            connection_id: ConnectionId::from_bytes([7; 8]),
            reset_token: [8; 16],
            suite: if config.has_aes_gcm { Suite::Aes128Gcm } else { Suite::ChaCha20Poly1305 },
            shared: parameters(config),
        };
        let accepted = accept_hello(&keys, &hello, &parameters, &Secret::new([9; 32]), |_| {});
        let (mut server, welcome) = accepted.map_err(|error| format!("{error:?}"))?;
        // Like every server, it gives the client a spare connection id.
        let mut spare = Vec::new();
        FrameWriter::new(&mut spare)
            .new_connection_id(&NewConnectionId {
                sequence: 1,
                id: ConnectionId::from_bytes([10; 8]),
                reset_token: [11; 16],
            })
            .map_err(|error| error.to_string())?;
        let mut sent = vec![server.datagram(&spare), welcome];
        while let Some(mut bytes) = sent.pop() {
            pass_datagram(&mut client, now, address, &mut bytes);
            while let Some(bytes) = take_datagram(&mut client, now) {
                let ack = server.open(bytes).and_then(|received| received.ack());
                sent.extend(ack.map(|ack| server.datagram(&ack)));
            }
        }
        if !matches!(client.poll_event(), Some(Event::Connected { .. })) {
            return Err("the client is not connected".to_owned());
        }
        let (sealer, _) = server.into_halves();
        let id_length = ConnectionIdLength::Eight;
        Ok(Self { endpoint: client, id, address, sealer, now, id_length, newest: None })
    }

    /// Advances the virtual time. Timers do not run.
    pub fn pass(&mut self, time: Duration) {
        self.now.monotonic = self.now.monotonic.after(time);
    }

    /// Sends a message to the peer.
    ///
    /// # Panics
    ///
    /// When there is no room for the message.
    pub fn send(&mut self, payload: &'static [u8], options: SendOptions) {
        let (payload, channel) = (Bytes::from_static(payload), ChannelId(0));
        self.endpoint
            .send(self.now, self.id, Message::new(channel, payload, options))
            .expect("room for a message");
    }

    /// Takes the next packet to the peer. Returns its number, or `None` when no packet may be sent now.
    ///
    /// # Panics
    ///
    /// When the datagram is no packet of a connection.
    pub fn take_packet(&mut self) -> Option<PacketNumber> {
        let mut memory = [0; DATAGRAM_BYTES];
        let bytes = self.endpoint.poll_transmit(self.now, &mut memory)?.bytes;
        let header = TransportHeader::decode(&memory[..bytes], self.id_length).expect("a packet");
        let number = header.number.expand(self.newest);
        self.newest = Some(number);
        Some(number)
    }
}

/// Returns the transport parameters of an end with this configuration.
fn parameters(config: &Config) -> SharedParameters {
    SharedParameters {
        datagram_max_bytes: config.datagram_max_bytes,
        idle_timeout: config.idle_timeout,
        unacknowledged_timeout: config.unacknowledged_timeout,
        message_max_bytes: u32::try_from(config.message_max_bytes).unwrap_or(u32::MAX),
        ..default_parameters().shared
    }
}

/// Datagrams on their way. Their memory is reused, so that none is allocated within a measured time.
#[derive(Debug, Default)]
pub struct Datagrams {
    slots: Vec<Slot>,
    count: usize,
}

#[derive(Debug)]
struct Slot {
    memory: Box<[u8; DATAGRAM_BYTES]>,
    bytes: usize,
}

impl Datagrams {
    /// The number of datagrams.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Removes all datagrams and keeps their memory.
    pub const fn clear(&mut self) {
        self.count = 0;
    }

    /// Allocates the memory of `count` datagrams.
    pub fn reserve(&mut self, count: usize) {
        while self.slots.len() < count {
            self.slots.push(Slot { memory: Box::new([0; DATAGRAM_BYTES]), bytes: 0 });
        }
    }

    /// Takes the next datagram that `endpoint` has to send. Returns false when it has none.
    pub fn take_from(&mut self, endpoint: &mut Endpoint<SingleWorker>, now: Now) -> bool {
        self.reserve(self.count + 1);
        let Some(slot) = self.slots.get_mut(self.count) else { return false };
        let Some(transmit) = endpoint.poll_transmit(now, &mut slot.memory[..]) else { return false };
        slot.bytes = transmit.bytes;
        self.count += 1;
        true
    }

    /// Takes all datagrams that `endpoint` has to send.
    pub fn take_all_from(&mut self, endpoint: &mut Endpoint<SingleWorker>, now: Now) {
        while self.take_from(endpoint, now) {}
    }

    /// Returns all datagrams as they arrive from this address.
    pub fn inbound(&mut self, from: SocketAddr) -> impl Iterator<Item = Inbound<'_>> {
        let slots = self.slots.get_mut(..self.count).unwrap_or_default();
        slots.iter_mut().map(move |Slot { memory, bytes }| Inbound {
            from: from.into(),
            bytes: memory.get_mut(..*bytes).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_group_know_all_connections() {
        let group = Group::connect(3, &Config::default()).expect("connections");
        assert_eq!((group.server.connection_count(), group.client.connection_count()), (3, 3));
    }
}
