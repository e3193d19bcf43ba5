//! drumfire's client, made of the connection core and a plain socket, with several connections on it.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire::{Bytes, SendOptions};
use drumfire_crypto::{Secret, Suite};
use drumfire_proto::limits::DATAGRAM_SENT_MAX_BYTES;
use drumfire_proto::{
    Alone, ClientConfig, Config, Endpoint, Event, Inbound, Moment, Now, PeerId, SendError, ServerIdentity,
};
use drumfire_tools::clock;

use crate::encrypted::{CHANNEL, key, options};
use crate::load::{Carried, Crowd};
use crate::peer::Delivery;
use crate::wire::Wire;

/// The connections of one socket.
pub(crate) struct Players {
    wire: Wire,
    endpoint: Endpoint<Alone>,
    peers: Vec<PeerId>,
    options: SendOptions,
    ready_count: usize,
    /// Room for one datagram on its way out.
    memory: Box<[u8; DATAGRAM_SENT_MAX_BYTES]>,
}

impl Players {
    /// Begins to connect `count` times, offering this suite at most.
    pub(crate) fn connect(
        server: SocketAddr,
        count: usize,
        delivery: Delivery,
        suite: Suite,
    ) -> Result<Self, String> {
        let fail = |error: &dyn std::fmt::Display| format!("a client: {error}");
        let config = Config::default().has_aes_gcm(suite == Suite::Aes128Gcm);
        let mut endpoint = Endpoint::client(config, ClientConfig::many(), seed()).map_err(|e| fail(&e))?;
        let identity = ServerIdentity { public_key: key().public().to_bytes(), key_id: 0 };
        let now = clock::host_ns();
        let connected = (0..count).map(|_| endpoint.connect(at(now), server, &identity, None));
        let peers = connected.collect::<Result<_, _>>().map_err(|e| fail(&e))?;
        let mut players = Self {
            wire: Wire::connect(server)?,
            endpoint,
            peers,
            options: options(delivery),
            ready_count: 0,
            memory: Box::new([0; DATAGRAM_SENT_MAX_BYTES]),
        };
        players.flush(now)?;
        Ok(players)
    }
}

impl Crowd for Players {
    fn is_ready(&self) -> bool {
        self.ready_count == self.peers.len()
    }

    fn receive(&mut self, now: u64, mut take: impl FnMut(&[u8])) -> Result<(), String> {
        let (now, endpoint) = (at(now), &mut self.endpoint);
        self.wire.receive(|mut received| {
            let datagrams = received.datagrams_mut();
            let inbound =
                datagrams.map(|datagram| Inbound { from: datagram.from.into(), bytes: datagram.bytes });
            endpoint.handle_datagrams(now, inbound);
        });
        if self.endpoint.poll_timeout().is_some_and(|due| due <= now.monotonic) {
            self.endpoint.handle_timeout(now);
        }
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Connected { .. } => self.ready_count += 1,
                Event::Message { bytes, .. } => take(bytes),
                Event::ConnectFailed { error, .. } => return Err(format!("a client: {error}")),
                Event::Disconnected { reason, .. } => {
                    return Err(format!("a client lost its connection: {}", reason.name()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn send(&mut self, now: u64, place: usize, message: &[u8]) -> Result<bool, String> {
        let bytes = Bytes::copy_from_slice(message);
        match self.endpoint.send(at(now), self.peers[place], CHANNEL, bytes, self.options) {
            Ok(()) => Ok(true),
            Err(SendError::Full) => Ok(false),
            Err(error) => Err(format!("a client: {error}")),
        }
    }

    fn flush(&mut self, now: u64) -> Result<(), String> {
        while let Some(transmit) = self.endpoint.poll_transmit(at(now), &mut self.memory[..]) {
            self.wire.push(&self.memory[..transmit.bytes])?;
        }
        self.wire.flush()
    }

    fn carried(&self) -> Carried {
        self.wire.carried()
    }
}

/// Another one for every client; nobody is kept out by it.
fn seed() -> Secret<32> {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&clock::host_ns().to_be_bytes());
    Secret::new(seed)
}

fn at(nanos: u64) -> Now {
    Now { monotonic: Moment::from_nanos(nanos), wall: Duration::ZERO }
}
