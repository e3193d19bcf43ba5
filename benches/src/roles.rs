//! The servers of benches: an echo behind each of the three interfaces, and a server that announces each newcomer to all.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use drumfire::{
    Access, AdmissionConfig, BroadcastError, ChannelId, ClientsEvent, Context, Event, GroupId, Handler,
    PeerId, Remote, SendOptions, Server, ServerConfig, ServerKey, Stats, Workers, serve,
};
use drumfire_tools::clock;

use crate::books::counts_of;
use crate::process::{Child, Counts, named_counts, print_counts, print_line, stop_flag};

/// The size of a receive buffer that holds what all clients send while the server has no core.
pub const RECEIVE_BUFFER_BYTES: usize = 4 * 1_024 * 1_024;

/// The interval in which a server that waits checks whether it has to stop.
const LOOK_UP: Duration = Duration::from_millis(100);

/// The interval of announcements. Newcomers within it share datagrams.
const ANNOUNCED_EVERY: Duration = Duration::from_millis(250);

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

/// The role of [`announce`].
pub const ANNOUNCE: &str = "announce-server";

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
/// It prints its counters, `received`, `refused` (answers without room), and `left` (connections that ended, with
/// [`Interface::Poll`]).
pub fn echo(args: &[&str]) -> Result<(), String> {
    let [workers, connections, interface] = args else {
        return Err("not the arguments of an echo".to_owned());
    };
    let interface = Interface::ALL.into_iter().find(|known| known.name() == *interface);
    let (config, is_over) = (config(workers, connections)?, stop_flag());
    match interface.ok_or("not an interface")? {
        Interface::Handler => echo_in_handler(config, &is_over),
        Interface::Poll => echo_in_loop(config, &is_over),
        Interface::HandOver => echo_on_other_thread(config, &is_over),
    }
}

const OPTIONS: SendOptions = SendOptions::unreliable();

/// The counts of an echo. A reader may find a message that is received, and neither echoed nor refused yet.
#[derive(Debug, Default)]
pub struct EchoTally {
    received: AtomicU64,
    echoed: AtomicU64,
    refused: AtomicU64,
}

impl EchoTally {
    /// Counts a message that came.
    pub fn on_received(&self) {
        self.received.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an answer that was taken, or refused for want of room.
    pub fn on_answer(&self, is_taken: bool) {
        let count = if is_taken { &self.echoed } else { &self.refused };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Messages that came.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// The number of answers that were taken.
    pub fn echoed(&self) -> u64 {
        self.echoed.load(Ordering::Relaxed)
    }

    /// The number of answers that were refused for want of room.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// The counts with those of the server. The server must still exist: what it sends when it is dropped is not counted.
    #[must_use]
    pub fn counts(&self, stats: &Stats) -> Counts {
        let mut counts = counts_of(stats);
        let (received, echoed, refused) = (self.received(), self.echoed(), self.refused());
        counts.extend(named_counts([("received", received), ("echoed", echoed), ("refused", refused)]));
        counts
    }

    fn print(&self, stats: &Stats, left: u64) -> Result<(), String> {
        let mut counts = self.counts(stats);
        counts.extend(named_counts([("left", left)]));
        print_counts(&counts).map_err(|error| error.to_string())
    }
}

/// Sends each message back on its channel.
#[derive(Debug)]
pub struct EchoHandler {
    tally: Arc<EchoTally>,
    options: SendOptions,
}

impl EchoHandler {
    /// A handler that sends with these options.
    pub fn new(tally: &Arc<EchoTally>, options: SendOptions) -> Self {
        Self { tally: Arc::clone(tally), options }
    }
}

impl Handler for EchoHandler {
    type Note = ();

    fn on_message(&mut self, context: &mut Context<'_>, peer: PeerId, channel: ChannelId, bytes: &[u8]) {
        self.tally.on_received();
        self.tally.on_answer(context.send(peer, channel, bytes, self.options).is_ok());
    }
}

fn echo_in_handler(config: ServerConfig, is_over: &AtomicBool) -> Result<(), String> {
    let tally = Arc::<EchoTally>::default();
    let server = serve(config, |_| EchoHandler::new(&tally, OPTIONS)).map_err(|error| error.to_string())?;
    print_address(server.local_addr())?;
    pause_until(is_over);
    tally.print(&server.stats(), 0)
}

fn echo_in_loop(config: ServerConfig, is_over: &AtomicBool) -> Result<(), String> {
    let (tally, mut left) = (EchoTally::default(), 0);
    let mut server = Server::bind(config).map_err(|error| error.to_string())?;
    print_address(server.local_addr())?;
    while !is_over.load(Ordering::Acquire) {
        server.wait(LOOK_UP);
        for event in server.poll() {
            match event {
                Event::Message { peer, channel, bytes } => {
                    tally.on_received();
                    tally.on_answer(server.send(peer, channel, bytes, OPTIONS).is_ok());
                }
                Event::Disconnected { .. } => left += 1,
                _ => {}
            }
        }
        server.flush();
    }
    tally.print(&server.stats(), left)
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

fn echo_on_other_thread(config: ServerConfig, is_over: &AtomicBool) -> Result<(), String> {
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
    pause_until(is_over);
    tally.print(&server.stats(), 0)
}

/// Waits while the threads of the server work.
fn pause_until(is_over: &AtomicBool) {
    while !is_over.load(Ordering::Acquire) {
        clock::pause(LOOK_UP / 10);
    }
}

/// Runs a server that announces each newcomer to all connections. The arguments are workers and connections.
pub fn announce(args: &[&str]) -> Result<(), String> {
    let [workers, connections] = args else { return Err("not the arguments of an announcer".to_owned()) };
    let mut server = Server::bind(config(workers, connections)?).map_err(|error| error.to_string())?;
    let (is_over, mut announcer) = (stop_flag(), Announcer::default());
    print_address(server.local_addr())?;
    while !is_over.load(Ordering::Acquire) {
        clock::pause(ANNOUNCED_EVERY);
        announcer.announce(&mut server);
        server.flush();
    }
    let mut counts = counts_of(&server.stats());
    counts.extend(announcer.counts());
    print_counts(&counts).map_err(|error| error.to_string())
}

const EVERYONE: GroupId = GroupId(1);

/// Announces newcomers to all connections, and counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Announcer {
    came: u64,
    left: u64,
    announced: u64,
    /// The members at the time of each announcement, summed.
    owed: u64,
    /// Announcements for which a worker had no room.
    not_announced: u64,
    /// Copies of announcements for which a member had no room.
    missed: u64,
}

impl Announcer {
    /// Handles the pending events of a server. The announcements leave with the next flush.
    pub fn announce(&mut self, server: &mut Server) {
        for event in server.poll() {
            match &event {
                Event::Connected { .. } => self.came += 1,
                Event::Disconnected { .. } => self.left += 1,
                Event::Missed { count, .. } => self.missed += u64::from(*count),
                _ => {}
            }
            let Event::Connected { peer, .. } = event else { continue };
            // A client that has left in the meantime has an event of its own.
            if server.join(EVERYONE, peer).is_err() {
                continue;
            }
            let number = self.came.to_be_bytes().to_vec();
            match server.broadcast(EVERYONE, ChannelId(0), number, SendOptions::reliable_ordered()) {
                Ok(()) => {
                    self.announced += 1;
                    self.owed += self.came - self.left;
                }
                Err(BroadcastError::Full | _) => self.not_announced += 1,
            }
        }
    }

    /// `came`, `left`, `announced`, `owed` (copies of announcements), `not announced`, and `missed`, the last two for want of room.
    pub fn counts(&self) -> Counts {
        let Self { came, left, announced, owed, not_announced, missed } = *self;
        named_counts([
            ("came", came),
            ("left", left),
            ("announced", announced),
            ("owed", owed),
            ("not announced", not_announced),
            ("missed", missed),
        ])
    }
}

/// The announcements that clients received.
#[derive(Debug, Default)]
pub struct Announcements {
    /// The last number by socket and connection.
    last: HashMap<(usize, PeerId), u64>,
    /// The number of announcements.
    pub heard: u64,
    /// Announcements that did not follow the one before.
    pub gaps: u64,
    /// Messages that are not announcements, and announcements that came before.
    pub strangers: u64,
}

impl Announcements {
    /// Counts an event of a connection of this socket.
    pub fn on_event(&mut self, socket: usize, event: &ClientsEvent) {
        let ClientsEvent::Message { peer, bytes, .. } = event else { return };
        let Ok(bytes) = <[u8; 8]>::try_from(&bytes[..]) else {
            self.strangers += 1;
            return;
        };
        let number = u64::from_be_bytes(bytes);
        self.heard += 1;
        match self.last.insert((socket, *peer), number) {
            Some(before) if number <= before => self.strangers += 1,
            Some(before) => self.gaps += u64::from(number > before + 1),
            None => {}
        }
    }

    /// The announcements that this number of connections receives in all: the first one all of them, the last one only its own.
    pub const fn expected(connected: u64) -> u64 {
        connected * (connected + 1) / 2
    }
}
