//! drumfire: a handler that answers on the one worker, and as client its connection core with a plain socket, several
//! connections on it. The suite is the client's offer. With `Wait::best()`, the default, and with two other gathering times.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use drumfire::{
    Access, AdmissionConfig, Bytes, ChannelId, Context, Handler, PeerId, SendOptions, ServerConfig,
    ServerKey, Workers,
};
use drumfire_benches::{Counts, counts_of};
use drumfire_crypto::{Secret, Suite};
use drumfire_proto::limits::DATAGRAM_SENT_MAX_BYTES;
use drumfire_proto::{
    Alone, ClientConfig, Config, Endpoint, Event, Inbound, Moment, Now, SendError, ServerIdentity,
};
use drumfire_socket::Wait;
use drumfire_tools::clock;

use super::wire::{PER_SOCKET, Wire};
use super::{Rival, Serve, version_of};
use crate::face::{
    Answers, Client, Ending, RECEIVE_BUFFER_BYTES, Served, Server, Setup, Variant, line, serve,
};

/// How often the main thread looks whether it is to end; the worker does everything meanwhile.
const LOOK_UP: Duration = Duration::from_millis(20);

/// More connections than any load has.
const CONNECTIONS: u32 = 4_096;

pub(super) fn rivals() -> Vec<Rival> {
    let ours = |name, is_chacha, gather_us| Rival {
        version: version_of("drumfire"),
        encrypted: if is_chacha { "ChaCha20" } else { "AES-128" },
        variant: Variant { gather_us, is_chacha },
        per_socket: PER_SOCKET,
        loses_only_datagrams: true,
        ..Rival::new(name, "drumfire", Serve::Here(serve::<Worker>), connect)
    };
    vec![
        ours("drumfire, AES-128", false, 0),
        ours("drumfire, ChaCha20", true, 0),
        ours("drumfire, AES-128, 250 us", false, 250),
        ours("drumfire, ChaCha20, 250 us", true, 250),
        ours("drumfire, AES-128, 1 ms", false, 1_000),
        ours("drumfire, ChaCha20, 1 ms", true, 1_000),
    ]
}

/// The server's key, which stands here for everybody to read.
fn key() -> ServerKey {
    ServerKey::from_bytes([0x9e; 32])
}

const fn options(is_reliable: bool) -> SendOptions {
    if is_reliable { SendOptions::reliable_ordered() } else { SendOptions::unreliable() }
}

/// The server.
struct Worker {
    server: drumfire::Serving<()>,
    tally: Arc<Tally>,
}

/// What the worker counts.
#[derive(Debug, Default)]
struct Tally {
    received: AtomicU64,
    refused: AtomicU64,
}

/// Answers where the message came in.
struct Echo {
    tally: Arc<Tally>,
    answers: Answers,
    options: SendOptions,
}

impl Handler for Echo {
    type Note = ();

    fn on_message(&mut self, context: &mut Context<'_>, peer: PeerId, channel: ChannelId, bytes: &[u8]) {
        self.tally.received.fetch_add(1, Ordering::Relaxed);
        if context.send(peer, channel, self.answers.to(bytes), self.options).is_err() {
            self.tally.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Server for Worker {
    fn bind(setup: &Setup) -> Result<Self, String> {
        let mut config = ServerConfig::new(([127, 0, 0, 1], 0).into(), key(), Access::Open)
            .workers(Workers::Count(1))
            .connections(CONNECTIONS)
            // How busy a worker looks is a matter of who else has its core: here it takes all whom it has room for.
            .admission(AdmissionConfig::default().busy_max_percent(100))
            .receive_buffer_bytes(RECEIVE_BUFFER_BYTES);
        if setup.variant.gather_us > 0 {
            config = config.wait(Wait::Gather(Duration::from_micros(setup.variant.gather_us)));
        }
        let tally = Arc::<Tally>::default();
        let setup = *setup;
        let make = |_| Echo {
            tally: Arc::clone(&tally),
            answers: Answers::new(&setup),
            options: options(setup.is_reliable),
        };
        let server = drumfire::serve(config, make).map_err(line)?;
        Ok(Self { server, tally })
    }

    fn address(&self) -> Result<SocketAddr, String> {
        Ok(self.server.local_addr())
    }

    fn echo(self, ending: &Ending) -> Result<Counts, String> {
        while !ending.is_here() {
            clock::pause(LOOK_UP);
        }
        let mut counts = counts_of(&self.server.stats());
        let received = self.tally.received.load(Ordering::Relaxed);
        let refused = self.tally.refused.load(Ordering::Relaxed);
        counts.extend(Served { received, echoed: received - refused, refused }.counts());
        Ok(counts)
    }
}

/// The connections of one socket.
struct Players {
    wire: Wire,
    endpoint: Endpoint<Alone>,
    peers: Vec<drumfire_proto::PeerId>,
    options: SendOptions,
    ready_count: usize,
    /// Room for one datagram on its way out.
    memory: Box<[u8; DATAGRAM_SENT_MAX_BYTES]>,
}

fn connect(server: SocketAddr, count: usize, setup: &Setup) -> Result<Box<dyn Client>, String> {
    let fail = |error: &dyn std::fmt::Display| format!("a client: {error}");
    let suite = if setup.variant.is_chacha { Suite::ChaCha20Poly1305 } else { Suite::Aes128Gcm };
    if !suite.is_offered() && suite == Suite::Aes128Gcm {
        return Err("this machine has no instructions for AES".to_owned());
    }
    let config = Config::default().has_aes_gcm(suite == Suite::Aes128Gcm);
    let mut endpoint = Endpoint::client(config, ClientConfig::many(), seed()).map_err(|e| fail(&e))?;
    let identity = ServerIdentity { public_key: key().public().to_bytes(), key_id: 0 };
    let now = clock::host_ns();
    let connected = (0..count).map(|_| endpoint.connect(at(now), server, &identity, None));
    let peers = connected.collect::<Result<_, _>>().map_err(|e| fail(&e))?;
    let mut players = Players {
        wire: Wire::connect(server)?,
        endpoint,
        peers,
        options: options(setup.is_reliable),
        ready_count: 0,
        memory: Box::new([0; DATAGRAM_SENT_MAX_BYTES]),
    };
    players.flush(now)?;
    Ok(Box::new(players))
}

impl Client for Players {
    fn is_ready(&self) -> bool {
        self.ready_count == self.peers.len()
    }

    fn poll(&mut self, now: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
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
        match self.endpoint.send(at(now), self.peers[place], channel, bytes, self.options) {
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
