//! A server's endpoint with connections that are only ever sealed for: what single steps of the protocol cost, without
//! sockets and without a peer's own work.

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::Duration;

use drumfire_proto::{
    Access, Alone, ClientConfig, Config, Endpoint, Event, Inbound, Moment, Now, PeerId, Secret, ServerConfig,
    ServerIdentity, ServerKeyPair,
};
use drumfire_puppet::{Connector, PacketSealer, accept_hello, default_parameters};
use drumfire_wire::{
    ClientParameters, ConnectionId, FrameWriter, Hello, NewConnectionId, ServerParameters, SharedParameters,
    Suite, SuiteOffer,
};

/// How long an attempt may take, in virtual time.
const PATIENCE_MS: u64 = 2_000;

/// A server and what seals for each of its connections.
#[derive(Debug)]
pub struct Crowd {
    /// The server.
    pub server: Endpoint<Alone>,
    /// Where each connection's packets come from, and what seals them.
    pub sealers: Vec<(SocketAddr, PacketSealer)>,
    /// Each connection at the server.
    pub peers: Vec<PeerId>,
    /// The virtual time.
    pub now: Now,
}

/// A server's endpoint and by what clients know it.
///
/// # Panics
/// Never: the default settings can be used.
#[must_use]
pub fn server() -> (Endpoint<Alone>, ServerIdentity) {
    server_with(Config::default(), Access::Open)
}

/// The same with these settings, for whom it is.
pub(crate) fn server_with(settings: Config, access: Access) -> (Endpoint<Alone>, ServerIdentity) {
    let keys = ServerKeyPair::from_secret(Secret::new([1; 32]));
    let identity = ServerIdentity { public_key: *keys.public(), key_id: 0 };
    let mut config = ServerConfig::new(keys, Secret::new([2; 32]), Secret::new([3; 32])).access(access);
    // All Hellos come from one address, as often as a bench wants.
    config.source_handshakes_burst = u32::MAX;
    match Endpoint::server(settings, config, Alone::default(), Secret::new([5; 32])) {
        Ok(server) => (server, identity),
        Err(error) => panic!("a server's settings: {error}"),
    }
}

/// Returns the parameters of an end with these settings.
fn parameters(settings: &Config) -> SharedParameters {
    SharedParameters {
        datagram_max_bytes: settings.datagram_max_bytes,
        silent_timeout: settings.silent_timeout,
        unacknowledged_timeout: settings.unacknowledged_timeout,
        message_max_bytes: u32::try_from(settings.message_max_bytes).unwrap_or(u32::MAX),
        ..default_parameters().shared
    }
}

/// A client's endpoint; another `seed` gives another client.
///
/// # Panics
/// Never: the default settings can be used.
#[must_use]
pub fn client(seed: u8, has_aes_gcm: bool) -> Endpoint<Alone> {
    let config = Config::default().has_aes_gcm(has_aes_gcm);
    match Endpoint::client(config, ClientConfig::default(), Secret::new([seed; 32])) {
        Ok(client) => client,
        Err(error) => panic!("the default settings: {error}"),
    }
}

/// Where the server is.
#[must_use]
pub fn server_address() -> SocketAddr {
    SocketAddr::from(([198, 51, 100, 1], 7_777))
}

/// So many milliseconds after the beginning.
#[must_use]
pub fn at_ms(milliseconds: u64) -> Now {
    Now { monotonic: Moment::from_nanos(1 + milliseconds * 1_000_000), wall: Duration::ZERO }
}

/// Takes all events; answers how many messages there were.
#[inline]
pub fn take_messages(endpoint: &mut Endpoint<Alone>) -> u64 {
    let mut count = 0;
    while let Some(event) = endpoint.poll_event() {
        if let Event::Message { bytes, .. } = event {
            black_box(bytes);
            count += 1;
        }
    }
    count
}

impl Crowd {
    /// So many connections, 250 at most.
    ///
    /// # Errors
    /// When one was not made in time.
    pub fn connect(count: u8, has_aes_gcm: bool) -> Result<Self, String> {
        Self::connect_to(Config::default(), count, has_aes_gcm)
    }

    /// The same, to a server with these settings.
    ///
    /// # Errors
    /// When one was not made in time.
    ///
    /// # Panics
    /// When the settings are refused.
    pub fn connect_to(settings: Config, count: u8, has_aes_gcm: bool) -> Result<Self, String> {
        Self::connect_as(settings, count, has_aes_gcm, None)
    }

    /// One connection of a client with many: packets to it carry an id.
    ///
    /// # Errors
    /// When it was not made in time.
    ///
    /// # Panics
    /// When the settings are refused.
    pub fn connect_one_of_many(settings: Config) -> Result<Self, String> {
        let has_aes_gcm = settings.has_aes_gcm;
        Self::connect_as(settings, 1, has_aes_gcm, Some(ConnectionId::from_bytes([7; 8])))
    }

    fn connect_as(
        settings: Config,
        count: u8,
        has_aes_gcm: bool,
        connection_id: Option<ConnectionId>,
    ) -> Result<Self, String> {
        let (mut server, identity) = server_with(settings, Access::Open);
        let (mut sealers, mut elapsed) = (Vec::new(), 0);
        for number in 0..count {
            let address = SocketAddr::from(([192, 0, 2, number], 50_000));
            let client = ClientParameters { connection_id, shared: parameters(&Config::default()) };
            let offer = SuiteOffer::mandatory();
            let offer = if has_aes_gcm { offer.with(Suite::Aes128Gcm) } else { offer };
            let mut client = Connector::new(&identity.public_key, [number; 8], [number; 32], &client, offer);
            let deadline = elapsed + PATIENCE_MS;
            let mut memory = [0; 1_200];
            let mut sent = client.resend();
            while let Some(mut bytes) = sent.take() {
                let now = at_ms(elapsed);
                server.handle_datagrams(now, [Inbound { from: address.into(), bytes: &mut bytes }]);
                if client.is_connected() {
                    // The first packet of the connection has arrived.
                    break;
                }
                while let Some(transmit) = server.poll_transmit(now, &mut memory) {
                    let bytes = memory.get(..transmit.bytes).unwrap_or_default();
                    sent = client.on_datagram(bytes.to_vec()).or(sent);
                }
                elapsed += 1;
                if elapsed > deadline || sent.is_none() {
                    return Err(format!("connection {number} was not made"));
                }
            }
            let sealer = client.into_sealer().ok_or("a connection without keys")?;
            sealers.push((address, sealer));
        }
        let mut peers = Vec::new();
        while let Some(event) = server.poll_event() {
            if let Event::Connected { peer, .. } = event {
                peers.push(peer);
            }
        }
        Ok(Self { server, sealers, peers, now: at_ms(elapsed) })
    }
}

/// A client's endpoint whose server only seals.
#[derive(Debug)]
pub struct ServedClient {
    /// The client, which may have many connections.
    pub client: Endpoint<Alone>,
    /// The server, at the client.
    pub peer: PeerId,
    /// What seals the server's packets.
    pub sealer: PacketSealer,
    /// The virtual time.
    pub now: Now,
}

impl ServedClient {
    /// Connects a client with these settings.
    ///
    /// # Errors
    /// One line, when the settings are refused or the connection is not made.
    pub fn connect(settings: &Config) -> Result<Self, String> {
        let keys = ServerKeyPair::from_secret(Secret::new([1; 32]));
        let identity = ServerIdentity { public_key: *keys.public(), key_id: 0 };
        let mut client = Endpoint::client(settings.clone(), ClientConfig::many(), Secret::new([6; 32]))
            .map_err(|error| error.to_string())?;
        let (now, mut memory) = (at_ms(0), [0; 1_200]);
        let peer =
            client.connect(now, server_address(), &identity, None).map_err(|error| error.to_string())?;
        let hello = client.poll_transmit(now, &mut memory).ok_or("the client sends no Hello")?;
        let hello = Hello::decode(memory.get(..hello.bytes).unwrap_or_default());
        let hello = hello.map_err(|error| error.to_string())?;
        let has_aes = hello.fields.offered_suites().is_some_and(|offer| offer.has(Suite::Aes128Gcm));
        let server = ServerParameters {
            connection_id: ConnectionId::from_bytes([7; 8]),
            reset_token: [8; 16],
            suite: if has_aes { Suite::Aes128Gcm } else { Suite::ChaCha20Poly1305 },
            shared: parameters(settings),
        };
        let accepted = accept_hello(&keys, &hello, &server, &Secret::new([9; 32]), |_| {});
        let (mut server, welcome) = accepted.map_err(|error| format!("{error:?}"))?;
        // As a server does, it gives the client a spare id.
        let mut spare = Vec::new();
        let id = ConnectionId::from_bytes([10; 8]);
        FrameWriter::new(&mut spare)
            .new_connection_id(&NewConnectionId { sequence: 1, id, reset_token: [11; 16] })
            .map_err(|error| error.to_string())?;
        let mut sent = vec![server.datagram(&spare), welcome];
        while let Some(mut bytes) = sent.pop() {
            client.handle_datagrams(now, [Inbound { from: server_address().into(), bytes: &mut bytes }]);
            while let Some(transmit) = client.poll_transmit(now, &mut memory) {
                let bytes = memory.get(..transmit.bytes).unwrap_or_default().to_vec();
                let ack = server.open(bytes).and_then(|heard| heard.ack());
                sent.extend(ack.map(|ack| server.datagram(&ack)));
            }
        }
        if !matches!(client.poll_event(), Some(Event::Connected { .. })) {
            return Err("the connection was not made".to_owned());
        }
        let (sealer, _) = server.into_halves();
        Ok(Self { client, peer, sealer, now })
    }
}
