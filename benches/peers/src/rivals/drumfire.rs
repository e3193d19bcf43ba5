//! drumfire: a handler that answers on the one worker, and as client its connection core with a plain socket, several
//! connections on it. Where what a connection sends in one go takes several datagrams, it has a socket of its own, and sends and takes
//! them as trains, as drumfire's own client and quinn's do. The suite is the client's offer. With `Wait::best()`, the default, and with
//! two other gathering times.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use drumfire::{
    Access, AdmissionConfig, ChannelId, Context, Handler, PeerId, SendOptions, ServerConfig, ServerKey,
    Workers,
};
use drumfire_benches::{Counts, Joining, PER_SOCKET, Players, counts_of};
use drumfire_crypto::Suite;
use drumfire_socket::Wait;
use drumfire_tools::clock;

use super::{DATAGRAMS_EACH, Rival, Serve, gathered, version_of};
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
        wait: match (gather_us, Wait::best()) {
            (0, Wait::Gather(time)) => format!("default wait of {} us", time.as_micros()),
            (0, _) => "default wait".to_owned(),
            _ => gathered(gather_us),
        },
        gro: Some("auto"),
        per_socket: PER_SOCKET,
        // Else datagrams of several connections would share a train, as they do nowhere but here.
        has_trains_apart: true,
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

fn connect(server: SocketAddr, count: usize, setup: &Setup) -> Result<Box<dyn Client>, String> {
    let joining = Joining {
        key: key().public(),
        suite: if setup.variant.is_chacha { Suite::ChaCha20Poly1305 } else { Suite::Aes128Gcm },
        options: options(setup.is_reliable),
        each: DATAGRAMS_EACH,
    };
    Ok(Box::new(Players::connect(server, count, &joining)?))
}
