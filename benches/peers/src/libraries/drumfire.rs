//! drumfire. The server is a handler that answers on one worker. The client is the connection core with a plain socket, which 16
//! connections share. In loads with trains each connection has its own socket and sends and receives trains, as the client of
//! drumfire and that of quinn do. The client offers one cipher. Waits: the default, and two gathering times.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use drumfire::{
    Access, AdmissionConfig, ChannelId, Context, Handler, PeerId, SendOptions, ServerConfig, Workers,
};
use drumfire_benches::roles::{key, print_address};
use drumfire_benches::traffic::Client;
use drumfire_benches::{
    Counts, EchoTally, Joining, PER_SOCKET, Players, RECEIVE_BUFFER_BYTES, counts_of, named_counts, stop_flag,
};
use drumfire_crypto::Suite;
use drumfire_socket::Wait;
use drumfire_tools::clock;

use crate::adapter::{Answers, DATAGRAMS_EACH, LOOK_UP, Library, Setup, gathered, line, version_of};

/// More connections than any load has.
const CONNECTIONS: u32 = 4_096;

pub(crate) fn libraries() -> Vec<Library> {
    let with = |name, is_chacha, gather_us| Library {
        version: version_of("drumfire"),
        encrypted: if is_chacha { "ChaCha20" } else { "AES-128" },
        setup: Setup { gather_us, is_chacha, ..Setup::default() },
        wait: match (gather_us, Wait::best()) {
            (0, Wait::Gather(time)) => format!("default wait of {} us", time.as_micros()),
            (0, _) => "default wait".to_owned(),
            _ => gathered(gather_us),
        },
        gro: Some("auto"),
        per_socket: PER_SOCKET,
        // Datagrams of several connections would share a train, as they do with no real client.
        has_trains_apart: true,
        loses_only_datagrams: true,
        ..Library::new(name, "drumfire", serve, connect)
    };
    vec![
        with("drumfire, AES-128", false, 0),
        with("drumfire, ChaCha20", true, 0),
        with("drumfire, AES-128, 250 us", false, 250),
        with("drumfire, ChaCha20, 250 us", true, 250),
        with("drumfire, AES-128, 1 ms", false, 1_000),
        with("drumfire, ChaCha20, 1 ms", true, 1_000),
    ]
}

const fn options(setup: &Setup) -> SendOptions {
    if setup.is_reliable { SendOptions::reliable_ordered() } else { SendOptions::unreliable() }
}

/// Sends messages back on the worker's thread.
struct Echo {
    tally: Arc<EchoTally>,
    answers: Answers,
    options: SendOptions,
}

impl Handler for Echo {
    type Note = ();

    fn on_message(&mut self, context: &mut Context<'_>, peer: PeerId, channel: ChannelId, bytes: &[u8]) {
        self.tally.on_received();
        self.tally.on_answer(context.send(peer, channel, self.answers.to(bytes), self.options).is_ok());
    }
}

fn serve(setup: &Setup) -> Result<Counts, String> {
    let mut config = ServerConfig::new(([127, 0, 0, 1], 0).into(), key(), Access::Open)
        .workers(Workers::Count(1))
        .connections(CONNECTIONS)
        // The rounds fill the server on purpose, so it accepts clients however busy it is.
        .admission(AdmissionConfig::default().busy_max_percent(100))
        .receive_buffer_bytes(RECEIVE_BUFFER_BYTES);
    if setup.gather_us > 0 {
        config = config.wait(Wait::Gather(Duration::from_micros(setup.gather_us)));
    }
    let (tally, is_over) = (Arc::<EchoTally>::default(), stop_flag());
    let make = |_| Echo { tally: Arc::clone(&tally), answers: Answers::new(setup), options: options(setup) };
    let server = drumfire::serve(config, make).map_err(line)?;
    print_address(server.local_addr())?;
    while !is_over.load(Ordering::Acquire) {
        clock::pause(LOOK_UP / 5);
    }
    let mut counts = counts_of(&server.stats());
    let (received, refused) = (tally.received(), tally.refused());
    counts.extend(named_counts([("received", received), ("echoed", tally.echoed()), ("refused", refused)]));
    Ok(counts)
}

fn connect(server: SocketAddr, count: usize, setup: &Setup) -> Result<Box<dyn Client>, String> {
    let joining = Joining {
        key: key().public(),
        suite: if setup.is_chacha { Suite::ChaCha20Poly1305 } else { Suite::Aes128Gcm },
        options: options(setup),
        each: DATAGRAMS_EACH,
    };
    Ok(Box::new(Players::connect(server, count, &joining)?))
}
