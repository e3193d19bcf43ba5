//! A server's endpoint with connections that are only ever sealed for: what single steps of the protocol cost, without
//! sockets and without a peer's own work.

use std::hint::black_box;
use std::net::SocketAddr;
use std::time::Duration;

use drumfire_proto::{
    Access, Alone, ClientConfig, Config, Endpoint, Event, Moment, Now, PacketSealer, PeerId, Secret,
    ServerConfig, ServerIdentity, ServerKeyPair,
};

use crate::group::exchange;

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
        let (mut server, identity) = server_with(settings, Access::Open);
        let (mut sealers, mut elapsed) = (Vec::new(), 0);
        for number in 0..count {
            let address = SocketAddr::from(([192, 0, 2, number], 50_000));
            let mut client = client(number, has_aes_gcm);
            let connected = client.connect(at_ms(elapsed), server_address(), &identity, None);
            let peer = connected.map_err(|error| error.to_string())?;
            let deadline = elapsed + PATIENCE_MS;
            let mut memory = [0; 1_200];
            while !matches!(client.poll_event(), Some(Event::Connected { .. })) {
                let now = at_ms(elapsed);
                exchange(&mut client, &mut server, now, address, &mut memory);
                exchange(&mut server, &mut client, now, server_address(), &mut memory);
                client.handle_timeout(now);
                elapsed += 1;
                if elapsed > deadline {
                    return Err(format!("connection {number} was not made"));
                }
            }
            exchange(&mut client, &mut server, at_ms(elapsed), address, &mut memory);
            let sealer = client.take_sealer(peer).ok_or("a connection without keys")?;
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
