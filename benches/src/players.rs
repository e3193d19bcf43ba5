//! Clients of drumfire that share a socket, made of the connection core and a plain socket.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire::{Bytes, ChannelId, Message, SendOptions, ServerPublicKey, WorkerStats};
use drumfire_crypto::{Secret, Suite};
use drumfire_proto::limits::DATAGRAM_SENT_MAX_BYTES;
use drumfire_proto::{
    Alone, ClientConfig, Config, Endpoint, Event, Inbound, Moment, Now, PeerId, SendError, ServerIdentity,
};
use drumfire_tools::clock;

use crate::traffic::Client;
use crate::wire::Wire;

/// How clients connect and send.
#[derive(Clone, Debug)]
pub struct Joining {
    /// The server's key.
    pub key: ServerPublicKey,
    /// The strongest suite that is offered.
    pub suite: Suite,
    /// How messages are sent.
    pub options: SendOptions,
    /// Datagrams of each connection that are received or sent in one pass.
    pub each: usize,
}

/// The connections of one socket.
pub struct Players {
    wire: Wire,
    endpoint: Endpoint<Alone>,
    peers: Vec<PeerId>,
    options: SendOptions,
    ready_count: usize,
    /// Room for one datagram on its way out.
    memory: Box<[u8; DATAGRAM_SENT_MAX_BYTES]>,
}

impl Players {
    /// Begins to connect `count` times.
    ///
    /// # Errors
    ///
    /// One line, when the socket cannot be connected or this machine does not support the suite.
    pub fn connect(server: SocketAddr, count: usize, joining: &Joining) -> Result<Self, String> {
        let fail = |error: &dyn std::fmt::Display| format!("a client: {error}");
        let Joining { key, suite, options, each } = joining;
        if !suite.is_offered() && *suite == Suite::Aes128Gcm {
            return Err("this machine has no instructions for AES".to_owned());
        }
        let config = Config::default().has_aes_gcm(*suite == Suite::Aes128Gcm);
        let mut endpoint = Endpoint::client(config, ClientConfig::many(), seed()).map_err(|e| fail(&e))?;
        let identity = ServerIdentity { public_key: key.to_bytes(), key_id: 0 };
        let now = clock::host_ns();
        let connected = (0..count).map(|_| endpoint.connect(at(now), server, &identity, None));
        let peers = connected.collect::<Result<_, _>>().map_err(|e| fail(&e))?;
        let mut players = Self {
            wire: if count == 1 {
                Wire::connect_for_trains(server, *each)?
            } else {
                Wire::connect(server, *each)?
            },
            endpoint,
            peers,
            options: *options,
            ready_count: 0,
            memory: Box::new([0; DATAGRAM_SENT_MAX_BYTES]),
        };
        players.flush(now)?;
        Ok(players)
    }
}

impl Client for Players {
    fn is_ready(&self) -> bool {
        self.ready_count == self.peers.len()
    }

    fn receive(&mut self, now: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
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
                Event::Message { peer, bytes, .. } => {
                    let place = self.peers.iter().position(|known| *known == peer);
                    take(place.unwrap_or(usize::MAX), bytes);
                }
                Event::ConnectFailed { error, .. } => return Err(format!("a client: {error}")),
                Event::Disconnected { reason, .. } => {
                    return Err(format!("a client lost its connection: {}", reason.name()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn send(&mut self, now: u64, place: usize, channel: u8, message: &[u8]) -> Result<bool, String> {
        let bytes = Bytes::copy_from_slice(message);
        let channel = ChannelId(channel.into());
        match self.endpoint.send(at(now), self.peers[place], Message::new(channel, bytes, self.options)) {
            Ok(()) => Ok(true),
            Err(SendError::Full) => Ok(false),
            Err(error) => Err(format!("a client: {error}")),
        }
    }

    fn flush(&mut self, now: u64) -> Result<(), String> {
        while let Some(transmit) = self.endpoint.poll_transmit(at(now), &mut self.memory[..]) {
            if !self.wire.push(&self.memory[..transmit.bytes]) {
                self.wire.flush()?;
                if !self.wire.push(&self.memory[..transmit.bytes]) {
                    return Err("a client's batch is full".to_owned());
                }
            }
        }
        self.wire.flush()
    }

    fn stats(&self) -> Option<WorkerStats> {
        let mut stats = self.wire.stats();
        stats.protocol = *self.endpoint.stats();
        Some(stats)
    }
}

/// A seed that differs between clients. It protects nothing.
fn seed() -> Secret<32> {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&clock::host_ns().to_be_bytes());
    Secret::new(seed)
}

fn at(nanos: u64) -> Now {
    Now { monotonic: Moment::from_nanos(nanos), wall: Duration::ZERO }
}
