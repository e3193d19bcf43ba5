//! The servers of benches: an echo behind each of the interfaces.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use drumfire::admission::AdmissionConfig;
use drumfire::handler::Remote;
use drumfire::stats::Stats;
use drumfire::{
    Access, Bytes, ChannelId, Context, Control, Event, Handler, Message, PeerId, SendOptions, Server,
    ServerConfig, Workers, handler,
};
use drumfire_socket::Wait;
use drumfire_tools::clock;
use serde::{Deserialize, Serialize};

use crate::answers::{Answers, Served};
use crate::books::counts_of;
pub use crate::process::key;
use crate::process::{
    CHECK_INTERVAL, Child, Counts, InputLines, LAST_WAIT, arguments, named_counts, print_line,
};
use crate::tasks::serve_in_tasks;

/// The size of a receive buffer that holds the datagrams of all clients while the server has no core.
pub const RECEIVE_BUFFER_BYTES: usize = 4 * 1_024 * 1_024;

/// Events of one poll after which there may be more that waited for room.
const MANY: usize = 512;

/// Messages that wait for the other thread of [`Interface::HandOver`], at most.
const WAITING_MAX: usize = 65_536;

/// The time within which the last datagrams arrive.
const LAST_ARRIVALS: Duration = Duration::from_millis(300);

/// How a server is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Interface {
    /// A handler answers on the worker's thread.
    Handler,
    /// The application polls and answers on its own thread, next to the worker's.
    Poll,
    /// The application polls and answers on the only thread.
    Inline,
    /// A task answers on an executor with one thread, next to the worker's.
    Async,
    /// A handler passes each message to another thread, which answers each through a [`Remote`].
    HandOver,
}

impl Interface {
    /// All interfaces.
    pub const ALL: [Self; 5] = [Self::Handler, Self::Poll, Self::Inline, Self::Async, Self::HandOver];

    /// The name in tables and figures.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Handler => "handler",
            Self::Poll => "tick",
            Self::Inline => "inline",
            Self::Async => "async",
            Self::HandOver => "naive",
        }
    }
}

/// The role of [`echo`].
pub const ECHO: &str = "echo-server";

/// The settings of an echo server. They are the arguments of [`echo`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct EchoConfig {
    /// How the server is written.
    pub interface: Interface,
    /// The number of connections.
    pub connections: u32,
    /// The time for which datagrams gather. `None` is the default wait.
    pub gather: Option<Duration>,
    /// The interval in which the application polls. With `None` it polls when a datagram arrives.
    pub interval: Option<Duration>,
    /// Whether all answers are reliable and ordered, or may be lost.
    pub is_reliable: bool,
    /// The channel whose answers are always reliable and ordered.
    pub reliable_channel: Option<u16>,
    /// Whether the task of the first connection sends no answers, and receives no message before [`crate::receive_first`]. This needs
    /// [`Interface::Async`].
    pub is_first_silent: bool,
    /// The memory of each connection for sending, and for receiving. `None` is the default.
    pub memory_bytes: Option<usize>,
    /// The length of answers, which repeat their message, or 0 for the length of the message. A line of the input changes it.
    pub answer_bytes: usize,
    /// The size of each receive buffer.
    pub receive_buffer_bytes: usize,
}

impl EchoConfig {
    /// One worker that sends all messages back unreliably.
    pub const fn new(interface: Interface, connections: u32) -> Self {
        Self {
            interface,
            connections,
            gather: None,
            interval: None,
            is_reliable: false,
            reliable_channel: None,
            is_first_silent: false,
            memory_bytes: None,
            answer_bytes: 0,
            receive_buffer_bytes: RECEIVE_BUFFER_BYTES,
        }
    }

    /// Starts the server as a role of this bench, and returns also its address.
    pub fn start(&self, core: usize) -> Result<(Child, SocketAddr), String> {
        let server = Child::role(ECHO, Some(core), self)?;
        let address = server.address()?;
        Ok((server, address))
    }

    /// Runs the server until the end of its input. It prints its address, and returns its last counts.
    pub fn serve(self) -> Result<Counts, String> {
        let config = config(self.connections).receive_buffer_bytes(self.receive_buffer_bytes);
        let config = match self.gather {
            Some(time) => config.wait(Wait::Gather(time)),
            None => config,
        };
        let config = match self.memory_bytes {
            Some(bytes) => config.memory_bytes(bytes, bytes),
            None => config,
        };
        let (bytes, left) = (self.answer_bytes.into(), AtomicU64::new(0));
        let echo = Echo { config: self, bytes, served: Served::default(), left };
        match self.interface {
            Interface::Handler | Interface::HandOver => serve_in_handler(config, echo),
            Interface::Poll => serve_by_polling(config, &echo),
            Interface::Inline => serve_by_polling(config.workers(Workers::Inline), &echo),
            Interface::Async => serve_in_tasks(config, echo, self.is_first_silent),
        }
    }
}

/// Runs an echo server. The arguments are its [`EchoConfig`].
pub fn echo(args: &str) -> Result<Counts, String> {
    arguments::<EchoConfig>(args)?.serve()
}

/// Makes the configuration of a server with one worker on the loopback that accepts all clients.
pub fn config(connections: u32) -> ServerConfig {
    ServerConfig::new(([127, 0, 0, 1], 0).into(), key(), Access::Open)
        .workers(Workers::Count(1))
        .connections(connections)
        // Benches fill their server on purpose, so it accepts clients however busy it is.
        .admission(AdmissionConfig::default().busy_max_percent(100))
        .receive_buffer_bytes(RECEIVE_BUFFER_BYTES)
}

/// Prints the address of a server to the parent process.
pub fn print_address(address: SocketAddr) -> Result<(), String> {
    print_line(&address.to_string())
}

/// Waits for the last datagrams. A server that was asked for its counts receives no more.
pub fn settle() {
    clock::pause(LAST_ARRIVALS);
}

/// Ends a server and returns its counters. The drops in front of its sockets are read for the last time when these close.
pub fn end<S>(server: S, control: &Control) -> Stats {
    drop(server);
    control.stats()
}

/// The answers of an echo, and its counts.
#[derive(Debug)]
pub(crate) struct Echo {
    config: EchoConfig,
    /// The present value of [`EchoConfig::answer_bytes`].
    bytes: AtomicUsize,
    pub(crate) served: Served,
    /// Connections that ended.
    left: AtomicU64,
}

impl Echo {
    /// Returns the options of the answer to a message on this channel.
    pub(crate) fn options(&self, channel: ChannelId) -> SendOptions {
        let is_reliable = self.config.is_reliable || self.config.reliable_channel == Some(channel.0);
        if is_reliable { SendOptions::reliable_ordered() } else { SendOptions::unreliable() }
    }

    /// The length of answers, or 0 for that of their message.
    fn answer_bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn on_event(&self, event: &Event) {
        if matches!(event, Event::Disconnected { .. }) {
            self.left.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The counts of [`Served`] and `left` (connections that ended), with the counters of the server.
    pub(crate) fn counts(&self, stats: &Stats) -> Counts {
        let mut counts = counts_of(stats);
        counts.append(&mut self.served.counts());
        counts.extend(named_counts([("left", self.left.load(Ordering::Relaxed))]));
        counts
    }

    /// Changes the length of answers to the number in a line of the input, and confirms it.
    fn change_bytes(&self, line: &str) -> Result<(), String> {
        self.bytes.store(line.parse().map_err(|_| format!("{line}: not a length"))?, Ordering::Relaxed);
        print_line(line)
    }
}

/// A message on its way to the other thread of [`Interface::HandOver`].
type Passed = (PeerId, Message);

/// A handler that answers on the worker's thread, or passes each message to another thread.
struct EchoHandler {
    echo: Arc<Echo>,
    answers: Answers,
    outbox: Option<SyncSender<Passed>>,
}

impl Handler for EchoHandler {
    type Note = ();

    fn on_message(&mut self, context: &mut Context<'_>, peer: PeerId, channel: ChannelId, bytes: &[u8]) {
        let Self { echo, answers, outbox } = self;
        let options = echo.options(channel);
        echo.served.on_received();
        if let Some(outbox) = outbox {
            if outbox.try_send((peer, Message::new(channel, bytes.to_vec(), options))).is_err() {
                echo.served.on_answer(false);
            }
        } else {
            let answer = context.copy(answers.to(bytes, echo.answer_bytes()));
            echo.served.on_answer(context.send(peer, Message::new(channel, answer, options)).is_ok());
        }
    }

    fn on_event(&mut self, _: &mut Context<'_>, event: Event) {
        self.echo.on_event(&event);
    }
}

/// Runs an echo whose handler answers on the worker's thread, or else a thread to which it passes the messages.
fn serve_in_handler(config: ServerConfig, echo: Echo) -> Result<Counts, String> {
    let echo = Arc::new(echo);
    let (outbox, inbox): (_, Receiver<Passed>) = sync_channel(WAITING_MAX);
    let outbox = Some(outbox).filter(|_| echo.config.interface == Interface::HandOver);
    let make =
        |_| EchoHandler { echo: Arc::clone(&echo), answers: Answers::default(), outbox: outbox.clone() };
    let server = handler::Server::bind(config, make).map_err(|error| error.to_string())?;
    let (remote, of_thread): (Remote<()>, _) = (server.remote(), Arc::clone(&echo));
    std::thread::spawn(move || {
        while let Ok((peer, answer)) = inbox.recv() {
            of_thread.served.on_answer(remote.send(peer, answer).is_ok());
        }
    });
    print_address(server.local_addr())?;
    InputLines::read().iter().try_for_each(|line| echo.change_bytes(&line))?;
    clock::pause(LAST_WAIT);
    let control = server.control();
    Ok(echo.counts(&end(server, &control)))
}

/// Runs an echo whose application polls and answers on its own thread.
fn serve_by_polling(config: ServerConfig, echo: &Echo) -> Result<Counts, String> {
    let mut server = Server::bind(config).map_err(|error| error.to_string())?;
    let (input, mut answers) = (InputLines::read(), Answers::default());
    print_address(server.local_addr())?;
    let (mut next, mut until) = (clock::now(), None);
    while until.is_none_or(|until| clock::now() < until) {
        if until.is_none() && !input.take_waiting(|line| echo.change_bytes(line))? {
            until = Some(clock::now() + LAST_WAIT);
        }
        match echo.config.interval {
            None => {
                let timeout = if until.is_some() { LAST_WAIT } else { CHECK_INTERVAL };
                answer_all(&mut server, timeout, echo, &mut answers);
                server.flush();
            }
            Some(interval) => {
                while answer_all(&mut server, Duration::ZERO, echo, &mut answers) >= MANY {}
                server.flush();
                next += interval;
                let now = clock::now();
                clock::pause(next.saturating_duration_since(now));
                next = next.max(now);
            }
        }
    }
    let control = server.control();
    Ok(echo.counts(&end(server, &control)))
}

/// Polls once and handles the events. Returns their number.
fn answer_all(server: &mut Server, timeout: Duration, echo: &Echo, answers: &mut Answers) -> usize {
    let mut count = 0;
    server.poll(timeout);
    while let Some(event) = server.next_event() {
        count += 1;
        echo.on_event(&event);
        if let Event::Message { peer, channel, payload } = event {
            let bytes = echo.answer_bytes();
            let copy = (bytes > 0).then(|| Bytes::copy_from_slice(answers.to(&payload, bytes)));
            let answer = Message::new(channel, copy.unwrap_or(payload), echo.options(channel));
            echo.served.on_echo(server.send(peer, answer).is_ok());
        }
    }
    count
}
