//! drumfire. The server is a handler that answers on one worker. The client is the connection core with a plain socket, which 16
//! connections share. In loads with trains each connection has its own socket and sends and receives trains, as the client of
//! drumfire and that of quinn do. The client offers one cipher. Waits: the default, and two gathering times.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire::SendOptions;
use drumfire_benches::roles::{EchoConfig, Interface};
use drumfire_benches::traffic::Client;
use drumfire_benches::{ClientSettings, ClientSocket, Counts, PER_SOCKET};
use drumfire_crypto::Suite;
use drumfire_socket::Wait;

use crate::adapter::{DATAGRAMS_EACH, Library, Setup, gathered, version_of};

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

fn serve(setup: &Setup) -> Result<Counts, String> {
    let config = EchoConfig::new(Interface::Handler, CONNECTIONS);
    let gather = (setup.gather_us > 0).then(|| Duration::from_micros(setup.gather_us));
    let Setup { is_reliable, answer_bytes, .. } = *setup;
    EchoConfig { gather, is_reliable, answer_bytes, ..config }.serve()
}

fn connect(server: SocketAddr, count: usize, setup: &Setup) -> Result<Box<dyn Client>, String> {
    let suite = if setup.is_chacha { Suite::ChaCha20Poly1305 } else { Suite::Aes128Gcm };
    let settings = ClientSettings::new(server).with_suite(suite)?;
    let options = if setup.is_reliable { SendOptions::reliable_ordered() } else { SendOptions::unreliable() };
    let settings = ClientSettings { options, each: DATAGRAMS_EACH, ..settings };
    Ok(Box::new(ClientSocket::connect(&settings, count)?))
}
