//! The subjects of the comparison: plain UDP, drumfire with each cipher, and nbio. Each has a server process and clients on this
//! thread.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use drumfire::SendOptions;
use drumfire_benches::roles::{ECHO, EchoConfig, Interface};
use drumfire_benches::traffic::{Client, Traffic, boxed};
use drumfire_benches::{
    Child, ClientSettings, ClientSocket, Cores, PER_SOCKET, PLAIN, Pace, PlainDatagrams,
    RECEIVE_BUFFER_BYTES, Reply, nbio,
};
use drumfire_crypto::Suite;

/// Datagrams of each connection that clients receive or send in one pass.
const DATAGRAMS_EACH: usize = 4;

/// The time for which datagrams gather at drumfire's server.
const GATHERED: Duration = Duration::from_millis(1);

/// One subject of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Plain UDP through mio, one datagram per call and not encrypted. No library costs less.
    Raw,
    /// drumfire at both ends. Messages arrive and are in order, as with TCP. A handler answers on the one worker, as nbio's answers in the
    /// loop that reads.
    Drumfire(Suite),
    /// nbio with WebSockets over TCP, not encrypted.
    Nbio,
}

/// The suite that both ends select by default.
pub(crate) fn default_suite() -> Suite {
    if Suite::Aes128Gcm.is_offered() { Suite::Aes128Gcm } else { Suite::ChaCha20Poly1305 }
}

impl Subject {
    /// All subjects.
    pub(crate) fn all() -> Vec<Self> {
        let mut suites = vec![default_suite(), Suite::ChaCha20Poly1305];
        suites.dedup();
        let ours = suites.into_iter().map(Self::Drumfire);
        [Self::Raw].into_iter().chain(ours).chain([Self::Nbio]).collect()
    }

    /// The name in figures and tables.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Raw => "raw mio, not encrypted".to_owned(),
            Self::Nbio => format!("nbio {} non-blocking, not encrypted", nbio::version()),
            Self::Drumfire(suite) => {
                let suite = match suite {
                    Suite::Aes128Gcm => "AES-128-GCM",
                    Suite::ChaCha20Poly1305 => "ChaCha20",
                };
                format!("reliable, handler, gathered 1 ms, {suite}")
            }
        }
    }

    /// Starts the server on its core. `nbio` is nbio's server.
    pub(crate) fn start(self, connections: u32, cores: Cores, nbio: Option<&Path>) -> Result<Child, String> {
        match self {
            Self::Raw => {
                let plain = (Pace::OneByOne, Reply::Repeated(0), RECEIVE_BUFFER_BYTES);
                Child::role(PLAIN, Some(cores.server), &plain)
            }
            Self::Nbio => nbio::start(nbio.ok_or("nbio's server was not built")?, cores),
            Self::Drumfire(_) => {
                let config = EchoConfig::new(Interface::Handler, connections);
                let config = EchoConfig { gather: Some(GATHERED), is_reliable: true, ..config };
                Child::role(ECHO, Some(cores.server), &config)
            }
        }
    }

    /// Makes the connections of this traffic.
    pub(crate) fn connect(
        self,
        server: SocketAddr,
        traffic: Traffic,
    ) -> Result<Vec<Box<dyn Client>>, String> {
        match self {
            Self::Raw => {
                traffic.connect(|_| Ok(boxed(PlainDatagrams::connect(server, PER_SOCKET, DATAGRAMS_EACH)?)))
            }
            Self::Nbio => traffic.connect(|count| Ok(boxed(nbio::WebSockets::connect(server, count)?))),
            Self::Drumfire(suite) => {
                let settings = ClientSettings::new(server).with_suite(suite)?;
                let options = SendOptions::reliable_ordered();
                let settings = ClientSettings { options, each: DATAGRAMS_EACH, ..settings };
                let sockets = ClientSocket::connect_all(&settings, traffic.connections, PER_SOCKET)?;
                Ok(sockets.into_iter().map(boxed).collect())
            }
        }
    }
}
