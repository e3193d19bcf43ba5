//! The servers of benches: an echo behind each of the three interfaces.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use drumfire::{
    Access, AdmissionConfig, ChannelId, CloseReason, Context, Event, Handler, PeerId, Remote, SendOptions,
    Server, ServerConfig, ServerKey, Stats, Workers, serve,
};
use drumfire_tools::clock;

use crate::books::counts_of;
use crate::process::{Child, Counts, answer_orders, named_counts, orders, print_counts, print_line};

/// The size of a receive buffer that holds what all clients send while the server has no core.
pub const RECEIVE_BUFFER_BYTES: usize = 4 * 1_024 * 1_024;

/// The interval in which a server that waits checks whether it has to stop.
const LOOK_UP: Duration = Duration::from_millis(100);

/// The time in which a server that was asked for its last counts receives the last datagrams.
const LAST_LOOK: Duration = Duration::from_millis(20);

/// Messages that wait for the other thread of [`Interface::HandOver`], at most.
const WAITING_MAX: usize = 65_536;

/// The time within which the last datagrams arrive.
const ON_THEIR_WAY: Duration = Duration::from_millis(300);

/// The private key of all servers of benches. It is public, and protects nothing.
pub fn key() -> ServerKey {
    ServerKey::from_bytes([0x10; 32])
}

/// How a server is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// A handler answers on the worker's thread.
    Handler,
    /// The application polls and answers on its own thread.
    Poll,
    /// A handler passes each message to another thread, which answers each through a [`Remote`].
    HandOver,
}

impl Interface {
    /// All interfaces.
    pub const ALL: [Self; 3] = [Self::Handler, Self::Poll, Self::HandOver];

    /// The name in tables and figures.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Handler => "handler",
            Self::Poll => "tick",
            Self::HandOver => "naive",
        }
    }
}

/// The role of [`echo`].
pub const ECHO: &str = "echo-server";

/// Starts an echo server with this number of workers, for this number of connections.
pub fn start_echo(
    interface: Interface,
    workers: u32,
    connections: u32,
    core: Option<usize>,
) -> Result<Child, String> {
    Child::role(ECHO, core, &[&workers.to_string(), &connections.to_string(), interface.name()])
}

/// Makes the configuration of a server on the loopback that accepts all clients.
pub fn config(workers: &str, connections: &str) -> Result<ServerConfig, String> {
    let workers = workers.parse().map_err(|_| "not a number of workers".to_owned())?;
    let connections = connections.parse().map_err(|_| "not a number of connections".to_owned())?;
    Ok(ServerConfig::new(([127, 0, 0, 1], 0).into(), key(), Access::Open)
        .workers(Workers::Count(workers))
        .connections(connections)
        // Benches fill their server on purpose, so it accepts clients however busy it is.
        .admission(AdmissionConfig::default().busy_max_percent(100))
        .receive_buffer_bytes(RECEIVE_BUFFER_BYTES))
}

/// Prints the address of a server to the parent process.
pub fn print_address(address: std::net::SocketAddr) -> Result<(), String> {
    print_line(&address.to_string()).map_err(|error| error.to_string())
}

/// Waits for the last datagrams. A server that was asked for its counts receives no more.
pub fn settle() {
    clock::pause(ON_THEIR_WAY);
}

/// Runs a server that sends each message back unreliably. The arguments are workers, connections, and the [`Interface`].
///
/// Like [`serve_in_handler`] and [`serve_by_polling`], it prints its address, its counts for each line of its input, and its counts at
/// the end of its input: its counters, and those of [`EchoTally`].
pub fn echo(args: &[&str]) -> Result<(), String> {
    let [workers, connections, interface] = args else {
        return Err("not the arguments of an echo".to_owned());
    };
    let interface = Interface::ALL.into_iter().find(|known| known.name() == *interface);
    let config = config(workers, connections)?;
    match interface.ok_or("not an interface")? {
        Interface::Handler => serve_in_handler(config, OPTIONS),
        Interface::Poll => serve_by_polling(config, OPTIONS),
        Interface::HandOver => serve_on_other_thread(config),
    }
}

const OPTIONS: SendOptions = SendOptions::unreliable();

/// The counts of an echo. A reader may find a message that is received, and neither echoed nor refused yet.
#[derive(Debug, Default)]
pub struct EchoTally {
    received: AtomicU64,
    echoed: AtomicU64,
    refused: AtomicU64,
    left: AtomicU64,
}

impl EchoTally {
    /// Counts a message that came.
    pub fn on_received(&self) {
        self.received.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the answer to a message, or that there was no room for it.
    pub fn on_answer(&self, is_taken: bool) {
        (if is_taken { &self.echoed } else { &self.refused }).fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection that ended.
    pub fn on_left(&self) {
        self.left.fetch_add(1, Ordering::Relaxed);
    }

    /// `received`, `echoed`, `refused` (answers without room), and `left` (connections that ended), with the counters of the server.
    ///
    /// The server must still exist: what it sends when it is dropped is not counted.
    #[must_use]
    pub fn counts(&self, stats: &Stats) -> Counts {
        let mut counts = counts_of(stats);
        let named = [
            ("received", &self.received),
            ("echoed", &self.echoed),
            ("refused", &self.refused),
            ("left", &self.left),
        ];
        counts.extend(named_counts(named.map(|(name, count)| (name, count.load(Ordering::Relaxed)))));
        counts
    }
}

/// Sends each message back on its channel.
#[derive(Debug)]
struct EchoHandler {
    tally: Arc<EchoTally>,
    options: SendOptions,
}

impl Handler for EchoHandler {
    type Note = ();

    fn on_message(&mut self, context: &mut Context<'_>, peer: PeerId, channel: ChannelId, bytes: &[u8]) {
        self.tally.on_received();
        self.tally.on_answer(context.send(peer, channel, bytes, self.options).is_ok());
    }

    fn on_disconnect(&mut self, _: &mut Context<'_>, _: PeerId, _: CloseReason, _: &[u8]) {
        self.tally.on_left();
    }
}

/// Runs an echo whose handler answers on the worker's thread, with these options.
pub fn serve_in_handler(config: ServerConfig, options: SendOptions) -> Result<(), String> {
    let tally = Arc::<EchoTally>::default();
    let make = |_| EchoHandler { tally: Arc::clone(&tally), options };
    let server = serve(config, make).map_err(|error| error.to_string())?;
    print_address(server.local_addr())?;
    print_when_asked(|| tally.counts(&server.stats()))
}

/// Prints the counts for each line of the input, and a little after its end.
pub fn print_when_asked(counts: impl Fn() -> Counts) -> Result<(), String> {
    let print = || print_counts(&counts()).map_err(|error| error.to_string());
    for _ in orders() {
        print()?;
    }
    clock::pause(LAST_LOOK);
    print()
}

/// Runs an echo that polls and answers on the application's thread, with these options.
pub fn serve_by_polling(config: ServerConfig, options: SendOptions) -> Result<(), String> {
    let mut server = Server::bind(config).map_err(|error| error.to_string())?;
    let (orders, tally) = (orders(), EchoTally::default());
    print_address(server.local_addr())?;
    let look = |server: &mut Server, time: Duration| {
        server.wait(time);
        for event in server.poll() {
            match event {
                Event::Message { peer, channel, bytes } => {
                    tally.on_received();
                    tally.on_answer(server.send(peer, channel, bytes, options).is_ok());
                }
                Event::Disconnected { .. } => tally.on_left(),
                _ => {}
            }
        }
        server.flush();
    };
    while answer_orders(&orders, || tally.counts(&server.stats())).map_err(|error| error.to_string())? {
        look(&mut server, LOOK_UP);
    }
    let end = clock::now() + LAST_LOOK;
    while clock::now() < end {
        look(&mut server, end.saturating_duration_since(clock::now()));
    }
    print_counts(&tally.counts(&server.stats())).map_err(|error| error.to_string())
}

/// A message on its way to the other thread.
type Passed = (PeerId, ChannelId, Vec<u8>);

/// Passes each message to the other thread.
struct HandOverHandler(SyncSender<Passed>, Arc<EchoTally>);

impl Handler for HandOverHandler {
    type Note = ();

    fn on_message(&mut self, _: &mut Context<'_>, peer: PeerId, channel: ChannelId, bytes: &[u8]) {
        self.1.on_received();
        if self.0.try_send((peer, channel, bytes.to_vec())).is_err() {
            self.1.on_answer(false);
        }
    }
}

fn serve_on_other_thread(config: ServerConfig) -> Result<(), String> {
    let tally = Arc::<EchoTally>::default();
    let (outbox, inbox): (_, Receiver<Passed>) = sync_channel(WAITING_MAX);
    let make = |_| HandOverHandler(outbox.clone(), Arc::clone(&tally));
    let server = serve(config, make).map_err(|error| error.to_string())?;
    let (remote, of_thread): (Remote<()>, _) = (server.remote(), Arc::clone(&tally));
    std::thread::spawn(move || {
        while let Ok((peer, channel, bytes)) = inbox.recv() {
            of_thread.on_answer(remote.send(peer, channel, bytes, OPTIONS).is_ok());
        }
    });
    print_address(server.local_addr())?;
    print_when_asked(|| tally.counts(&server.stats()))
}
