//! The subjects of the comparison: plain UDP, drumfire in several configurations, and nbio. Each has a server process and
//! clients on this thread.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use drumfire::{Event, SendOptions, Server, ServerConfig, Workers};
use drumfire_benches::roles::{config, key, print_address};
use drumfire_benches::traffic::Client;
use drumfire_benches::{
    Child, Cores, Counts, EchoHandler, EchoTally, Joining, PlainDatagrams, Players, RECEIVE_BUFFER_BYTES,
    named_counts, nbio, orders, print_counts,
};
use drumfire_crypto::Suite;
use drumfire_socket::Wait;
use drumfire_tools::clock;
use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token};

use crate::websocket::WebSockets;

/// The role of [`serve`].
pub(crate) const SERVER: &str = "echo-server";

/// The role of [`serve_raw`].
pub(crate) const RAW: &str = "raw-server";

/// Datagrams of each connection that clients receive or send in one pass.
const DATAGRAMS_EACH: usize = 4;

/// The time for which [`Io::Gathered`] lets datagrams gather.
const GATHERED: Duration = Duration::from_millis(1);

/// The interval in which a server that waits checks for orders.
const LOOK_UP: Duration = Duration::from_millis(100);

/// The time in which a server receives the last datagrams.
const LAST_LOOK: Duration = Duration::from_millis(20);

/// More than any message of the bench.
const BUFFER_BYTES: usize = 2_048;

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
    pub(crate) flush: Flush,
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

/// When answers leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flush {
    /// After each poll. It is not compared with [`Flush::Now`].
    Default,
    /// After each poll.
    AtTick,
    /// Each answer when it is sent.
    Now,
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
        let each = |(io, suite)| {
            [false, true]
                .map(|is_reliable| Self::Drumfire(Mode { io, is_reliable, suite, flush: Flush::Default }))
        };
        [Self::Raw].into_iter().chain(servers.into_iter().flat_map(each)).collect()
    }

    /// The subjects of nbio's loads. Messages arrive and are in order, as with TCP. A handler answers in the loop that reads, as nbio's
    /// does. The application's own thread, which is notified of each datagram as the floor is, compares both ways to flush.
    pub(crate) fn of_nbio() -> Vec<Self> {
        let of = |io, suite, flush| Self::Drumfire(Mode { io, is_reliable: true, suite, flush });
        let (default, slow) = (default_suite(), Suite::ChaCha20Poly1305);
        let gathered = |suite| of(Io::Gathered, suite, Flush::Default);
        let mut all = vec![Self::Raw, gathered(default), gathered(slow)];
        all.dedup();
        all.extend([of(Io::Inline, default, Flush::AtTick), of(Io::Inline, default, Flush::Now), Self::Nbio]);
        all
    }

    /// The name in figures.
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

    /// The name of the row, which includes when answers leave.
    pub(crate) fn row(self) -> String {
        let flush = match self {
            Self::Drumfire(Mode { flush: Flush::AtTick, .. }) => ", flush at tick",
            Self::Drumfire(Mode { flush: Flush::Now, .. }) => ", flush now",
            _ => "",
        };
        format!("{}{flush}", self.name())
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
                Child::role(SERVER, Some(cores.server), &[&self.row(), &connections.to_string()])
            }
        }
    }

    /// Begins `count` connections that share a socket.
    pub(crate) fn connect(self, server: SocketAddr, count: usize) -> Result<Box<dyn Client>, String> {
        Ok(match self {
            Self::Raw => Box::new(PlainDatagrams::connect(server, DATAGRAMS_EACH)?),
            Self::Nbio => Box::new(WebSockets::connect(server, count)?),
            Self::Drumfire(Mode { is_reliable, suite, .. }) => {
                let options = options(is_reliable);
                let joining = Joining { key: key().public(), suite, options, each: DATAGRAMS_EACH };
                Box::new(Players::connect(server, count, &joining)?)
            }
        })
    }
}

const fn options(is_reliable: bool) -> SendOptions {
    if is_reliable { SendOptions::reliable_ordered() } else { SendOptions::unreliable() }
}

/// Runs a server of drumfire. The arguments are the row of the subject and the number of connections.
///
/// It prints its address, its counts for each line of its input, and its counts at the end of its input.
pub(crate) fn serve(args: &[&str]) -> Result<(), String> {
    let [row, connections] = args else { return Err("not the arguments of an echo".to_owned()) };
    let subject =
        [Subject::of_games(), Subject::of_nbio()].concat().into_iter().find(|known| known.row() == *row);
    let Some(Subject::Drumfire(Mode { io, is_reliable, flush, .. })) = subject else {
        return Err(format!("{row}: not a subject"));
    };
    let (config, options) = (config("1", connections)?, options(is_reliable));
    match io {
        Io::Inline | Io::Worker => {
            let config = if io == Io::Inline { config.workers(Workers::Inline) } else { config };
            serve_by_polling(config, if flush == Flush::Now { options.flush_now() } else { options })
        }
        Io::Handler => serve_in_handler(config, options),
        Io::Gathered => serve_in_handler(config.wait(Wait::Gather(GATHERED)), options),
    }
}

fn serve_in_handler(config: ServerConfig, options: SendOptions) -> Result<(), String> {
    let tally = Arc::<EchoTally>::default();
    let server = drumfire::serve(config, |_| EchoHandler::new(&tally, options));
    let server = server.map_err(|error| error.to_string())?;
    let orders = orders();
    print_address(server.local_addr())?;
    let print = || print_counts(&tally.counts(&server.stats())).map_err(|error| error.to_string());
    for _ in orders {
        print()?;
    }
    clock::pause(LAST_LOOK);
    print()
}

fn serve_by_polling(config: ServerConfig, options: SendOptions) -> Result<(), String> {
    let mut server = Server::bind(config).map_err(|error| error.to_string())?;
    let (orders, tally) = (orders(), EchoTally::default());
    print_address(server.local_addr())?;
    let look = |server: &mut Server, time: Duration| {
        server.wait(time);
        for event in server.poll() {
            if let Event::Message { peer, channel, bytes } = event {
                tally.on_received();
                tally.on_answer(server.send(peer, channel, bytes, options).is_ok());
            }
        }
        server.flush();
    };
    while answer_orders(&orders, || tally.counts(&server.stats()))? {
        look(&mut server, LOOK_UP);
    }
    let end = clock::now() + LAST_LOOK;
    while clock::now() < end {
        look(&mut server, end.saturating_duration_since(clock::now()));
    }
    print_counts(&tally.counts(&server.stats())).map_err(|error| error.to_string())
}

/// Prints the counts for each order that came. Returns whether the input goes on.
fn answer_orders(orders: &Receiver<String>, counts: impl Fn() -> Counts) -> Result<bool, String> {
    loop {
        match orders.try_recv() {
            Ok(_) => print_counts(&counts()).map_err(|error| error.to_string())?,
            Err(TryRecvError::Empty) => return Ok(true),
            Err(TryRecvError::Disconnected) => return Ok(false),
        }
    }
}

/// Runs a plain UDP server with one `recv_from` and one `send_to` per message. It prints what [`serve`] prints.
pub(crate) fn serve_raw(_: &[&str]) -> Result<(), String> {
    let fail = |error: io::Error| format!("the raw server: {error}");
    let mut raw = Raw::bind().map_err(fail)?;
    let orders = orders();
    print_address(raw.socket.local_addr().map_err(fail)?)?;
    while answer_orders(&orders, || raw.counts())? {
        raw.serve(LOOK_UP).map_err(fail)?;
    }
    raw.serve(LAST_LOOK).map_err(fail)?;
    print_counts(&raw.counts()).map_err(fail)
}

struct Raw {
    socket: UdpSocket,
    poll: Poll,
    events: Events,
    received: u64,
    echoed: u64,
    refused: u64,
    receive_calls: u64,
    bytes: u64,
}

impl Raw {
    fn bind() -> io::Result<Self> {
        let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket2::SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
        socket.set_nonblocking(true)?;
        let (mut socket, poll) = (UdpSocket::from_std(socket), Poll::new()?);
        poll.registry().register(&mut socket, Token(0), Interest::READABLE)?;
        let events = Events::with_capacity(16);
        Ok(Self { socket, poll, events, received: 0, echoed: 0, refused: 0, receive_calls: 0, bytes: 0 })
    }

    /// Waits for datagrams and echoes all that came.
    fn serve(&mut self, time: Duration) -> io::Result<()> {
        match self.poll.poll(&mut self.events, Some(time)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let mut buffer = [0; BUFFER_BYTES];
        loop {
            self.receive_calls += 1;
            let (length, from) = match self.socket.recv_from(&mut buffer) {
                Ok(received) => received,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(()),
                    // The kernel reports clients that have ended.
                    ErrorKind::Interrupted | ErrorKind::ConnectionRefused => continue,
                    _ => return Err(error),
                },
            };
            self.received += 1;
            self.bytes += length as u64;
            match self.socket.send_to(&buffer[..length], from) {
                Ok(_) => {
                    self.echoed += 1;
                    self.bytes += length as u64;
                }
                Err(_) => self.refused += 1,
            }
        }
    }

    fn counts(&self) -> Counts {
        named_counts([
            ("received", self.received),
            ("echoed", self.echoed),
            ("refused", self.refused),
            ("socket received", self.received),
            ("socket sent", self.echoed),
            ("receive calls", self.receive_calls),
            ("send calls", self.received),
            ("bytes received", self.bytes),
        ])
    }
}
