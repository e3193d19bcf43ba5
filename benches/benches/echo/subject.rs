//! The subjects of the comparison: plain UDP, drumfire in several configurations, and nbio. Each has a server process and
//! clients on this thread.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use drumfire::{SendOptions, Workers};
use drumfire_benches::roles::{Echo, config, key, serve_by_polling, serve_in_handler};
use drumfire_benches::traffic::Client;
use drumfire_benches::{
    Child, Cores, Counts, Crowd, Joining, PER_SOCKET, Pace, PlainDatagrams, RECEIVE_BUFFER_BYTES, Reply,
    nbio, serve_plain,
};
use drumfire_crypto::Suite;
use drumfire_socket::Wait;

/// The role of [`serve`].
pub(crate) const SERVER: &str = "echo-server";

/// The role of [`serve_raw`].
pub(crate) const RAW: &str = "raw-server";

/// Datagrams of each connection that clients receive or send in one pass.
const DATAGRAMS_EACH: usize = 4;

/// The time for which [`Io::Gathered`] lets datagrams gather.
const GATHERED: Duration = Duration::from_millis(1);

/// One subject of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Plain UDP through mio, one datagram per call and not encrypted: the floor of all figures.
    Raw,
    /// drumfire at both ends.
    Drumfire(Mode),
    /// nbio with WebSockets over TCP, not encrypted.
    Nbio,
}

/// A configuration of drumfire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    pub(crate) io: Io,
    pub(crate) is_reliable: bool,
    pub(crate) suite: Suite,
}

/// The thread that does the server's I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Io {
    /// The application's thread, which is notified of each datagram.
    Inline,
    /// One worker with the default wait, which passes each message to the application's thread on the same core.
    Worker,
    /// One worker with the default wait, on which the application's handler answers.
    Handler,
    /// As [`Io::Handler`], with datagrams that gather for a millisecond.
    Gathered,
}

impl Io {
    const fn name(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Worker => "one worker",
            Self::Handler => "handler",
            Self::Gathered => "handler, gathered 1 ms",
        }
    }
}

/// The suite that both ends select by default.
pub(crate) fn default_suite() -> Suite {
    if Suite::Aes128Gcm.is_offered() { Suite::Aes128Gcm } else { Suite::ChaCha20Poly1305 }
}

impl Subject {
    /// The subjects of loads F and A: unreliable and reliable messages, with each way to write a server.
    pub(crate) fn of_games() -> Vec<Self> {
        let (default, slow) = (default_suite(), Suite::ChaCha20Poly1305);
        let mut servers = vec![(Io::Handler, default), (Io::Handler, slow)];
        servers.dedup();
        servers.extend([(Io::Inline, default), (Io::Worker, default)]);
        let each =
            |(io, suite)| [false, true].map(|is_reliable| Self::Drumfire(Mode { io, is_reliable, suite }));
        [Self::Raw].into_iter().chain(servers.into_iter().flat_map(each)).collect()
    }

    /// The subjects of nbio's loads. Messages arrive and are in order, as with TCP. A handler answers in the loop that reads, as nbio's
    /// does. The application's own thread is notified of each datagram, as the floor is.
    pub(crate) fn of_nbio() -> Vec<Self> {
        let of = |io, suite| Self::Drumfire(Mode { io, is_reliable: true, suite });
        let (default, slow) = (default_suite(), Suite::ChaCha20Poly1305);
        let mut all = vec![Self::Raw, of(Io::Gathered, default), of(Io::Gathered, slow)];
        all.dedup();
        all.extend([of(Io::Inline, default), Self::Nbio]);
        all
    }

    /// The name in figures and tables.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Raw => "raw mio, not encrypted".to_owned(),
            Self::Nbio => format!("nbio {} non-blocking, not encrypted", nbio::version()),
            Self::Drumfire(Mode { io, is_reliable, suite, .. }) => {
                let delivery = if is_reliable { "reliable" } else { "unreliable" };
                let suite = match suite {
                    Suite::Aes128Gcm => "AES-128-GCM",
                    Suite::ChaCha20Poly1305 => "ChaCha20",
                };
                format!("{delivery}, {}, {suite}", io.name())
            }
        }
    }

    /// Whether messages may be lost.
    pub(crate) const fn may_lose(self) -> bool {
        matches!(self, Self::Raw | Self::Drumfire(Mode { is_reliable: false, .. }))
    }

    /// Whether the server has one busy thread. Several threads of a server wait for the core because of each other.
    pub(crate) const fn has_one_thread(self) -> bool {
        !matches!(self, Self::Nbio | Self::Drumfire(Mode { io: Io::Worker, .. }))
    }

    /// Starts the server on its core. `nbio` is nbio's server.
    pub(crate) fn start(
        self,
        connections: usize,
        cores: Cores,
        nbio: Option<&Path>,
    ) -> Result<Child, String> {
        match self {
            Self::Raw => Child::role(RAW, Some(cores.server), &[]),
            Self::Nbio => nbio::start(nbio.ok_or("nbio's server was not built")?, cores),
            Self::Drumfire(_) => {
                Child::role(SERVER, Some(cores.server), &[&self.name(), &connections.to_string()])
            }
        }
    }

    /// Begins `count` connections that share a socket.
    pub(crate) fn connect(self, server: SocketAddr, count: usize) -> Result<Box<dyn Client>, String> {
        Ok(match self {
            Self::Raw => Box::new(PlainDatagrams::connect(server, PER_SOCKET, DATAGRAMS_EACH)?),
            Self::Nbio => Box::new(nbio::WebSockets::connect(server, count, None)?),
            Self::Drumfire(Mode { is_reliable, suite, .. }) => {
                let joining = Joining::new((server, key().public())).with_suite(suite)?;
                let options = options(is_reliable);
                let joining = Joining { options, each: DATAGRAMS_EACH, ..joining };
                Box::new(Crowd::on_one_socket(&joining, count)?)
            }
        })
    }
}

const fn options(is_reliable: bool) -> SendOptions {
    if is_reliable { SendOptions::reliable_ordered() } else { SendOptions::unreliable() }
}

/// Runs a server of drumfire. The arguments are the name of the subject and the number of connections.
pub(crate) fn serve(args: &[&str]) -> Result<Counts, String> {
    let [name, connections] = args else { return Err("not the arguments of an echo".to_owned()) };
    let subject =
        [Subject::of_games(), Subject::of_nbio()].concat().into_iter().find(|known| known.name() == *name);
    let Some(Subject::Drumfire(Mode { io, is_reliable, .. })) = subject else {
        return Err(format!("{name}: not a subject"));
    };
    let (config, options) = (config("1", connections)?, options(is_reliable));
    let echo = Echo::new(options);
    match io {
        Io::Inline => serve_by_polling(config.workers(Workers::Inline), &echo, None),
        Io::Worker => serve_by_polling(config, &echo, None),
        Io::Handler => serve_in_handler(config, echo),
        Io::Gathered => serve_in_handler(config.wait(Wait::Gather(GATHERED)), echo),
    }
}

/// Runs a plain UDP server.
pub(crate) fn serve_raw(_: &[&str]) -> Result<Counts, String> {
    serve_plain(Pace::OneByOne, Reply::Same, RECEIVE_BUFFER_BYTES)
}
