//! The subjects of the comparison: plain UDP, drumfire in several configurations, and nbio. Each has a server process and
//! clients on this thread.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use drumfire::SendOptions;
use drumfire_benches::roles::{ECHO, EchoConfig, Interface, key};
use drumfire_benches::traffic::Client;
use drumfire_benches::{
    Child, ClientPool, ClientSettings, Cores, PER_SOCKET, PLAIN, Pace, PlainDatagrams, RECEIVE_BUFFER_BYTES,
    Reply, nbio,
};
use drumfire_crypto::Suite;

/// Datagrams of each connection that clients receive or send in one pass.
const DATAGRAMS_EACH: usize = 4;

/// The time for which [`Io::Gathered`] lets datagrams gather.
const GATHERED: Duration = Duration::from_millis(1);

/// One subject of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Plain UDP through mio, one datagram per call and not encrypted: the floor of all figures.
    Raw,
    /// drumfire at both ends. Messages arrive and are in order, as with TCP.
    Drumfire(Io, Suite),
    /// nbio with WebSockets over TCP, not encrypted.
    Nbio,
}

/// The thread that does the server's I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Io {
    /// The application's thread, which is notified of each datagram, as the floor is.
    Inline,
    /// One worker, on which the application's handler answers. Datagrams gather for a millisecond.
    Gathered,
}

impl Io {
    const fn name(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Gathered => "handler, gathered 1 ms",
        }
    }
}

/// The suite that both ends select by default.
pub(crate) fn default_suite() -> Suite {
    if Suite::Aes128Gcm.is_offered() { Suite::Aes128Gcm } else { Suite::ChaCha20Poly1305 }
}

impl Subject {
    /// All subjects. A handler answers in the loop that reads, as nbio's does.
    pub(crate) fn all() -> Vec<Self> {
        let (default, slow) = (default_suite(), Suite::ChaCha20Poly1305);
        let mut all =
            vec![Self::Raw, Self::Drumfire(Io::Gathered, default), Self::Drumfire(Io::Gathered, slow)];
        all.dedup();
        all.extend([Self::Drumfire(Io::Inline, default), Self::Nbio]);
        all
    }

    /// The name in figures and tables.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Raw => "raw mio, not encrypted".to_owned(),
            Self::Nbio => format!("nbio {} non-blocking, not encrypted", nbio::version()),
            Self::Drumfire(io, suite) => {
                let suite = match suite {
                    Suite::Aes128Gcm => "AES-128-GCM",
                    Suite::ChaCha20Poly1305 => "ChaCha20",
                };
                format!("reliable, {}, {suite}", io.name())
            }
        }
    }

    /// Starts the server on its core. `nbio` is nbio's server.
    pub(crate) fn start(self, connections: u32, cores: Cores, nbio: Option<&Path>) -> Result<Child, String> {
        match self {
            Self::Raw => {
                let plain = (Pace::OneByOne, Reply::Same, RECEIVE_BUFFER_BYTES);
                Child::role(PLAIN, Some(cores.server), &plain)
            }
            Self::Nbio => nbio::start(nbio.ok_or("nbio's server was not built")?, cores),
            Self::Drumfire(io, _) => {
                let (interface, gather) = match io {
                    Io::Inline => (Interface::Inline, None),
                    Io::Gathered => (Interface::Handler, Some(GATHERED)),
                };
                let config = EchoConfig::new(interface, connections);
                Child::role(ECHO, Some(cores.server), &EchoConfig { gather, is_reliable: true, ..config })
            }
        }
    }

    /// Begins `count` connections that share a socket.
    pub(crate) fn connect(self, server: SocketAddr, count: usize) -> Result<Box<dyn Client>, String> {
        Ok(match self {
            Self::Raw => Box::new(PlainDatagrams::connect(server, PER_SOCKET, DATAGRAMS_EACH)?),
            Self::Nbio => Box::new(nbio::WebSockets::connect(server, count, None)?),
            Self::Drumfire(_, suite) => {
                let settings = ClientSettings::new((server, key().public())).with_suite(suite)?;
                let options = SendOptions::reliable_ordered();
                let settings = ClientSettings { options, each: DATAGRAMS_EACH, ..settings };
                Box::new(ClientPool::on_one_socket(&settings, count)?)
            }
        })
    }
}
