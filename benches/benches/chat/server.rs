//! The two chat servers, and the clients over TCP.
//!
//! In drumfire's server, all connections are in one group, and a handler broadcasts each message to it. The baseline over TCP is not
//! encrypted. As the journal describes it, a task per client reads, another one writes, and between them is a backlog of 1,024 messages.
//! Each message is one write. A message that finds a backlog full is dropped and counted.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drumfire::{Bytes, ChannelId, Context, Event, GroupId, Handler, Message, PeerId, SendOptions, handler};
use drumfire_benches::roles::{config, print_address};
use drumfire_benches::traffic::Client;
use drumfire_benches::{Counts, InputLines, arguments, counts_from, counts_of, print_json, raise_open_files};
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{Sender, UnboundedReceiver, channel, unbounded_channel};

use crate::Mode;

/// The role of [`run`].
pub(crate) const SERVER: &str = "chat-server";

const RECEIVE_BUFFER_BYTES: usize = 16 * 1_024 * 1_024;

/// The interval in which gathered messages are broadcast.
const GATHERED_FOR: Duration = Duration::from_millis(50);

const EVERYONE: GroupId = GroupId(1);

/// The counts of messages at a server.
#[derive(Debug, Default, Serialize)]
struct ChatCounts {
    #[serde(rename = "server left")]
    left: u64,
    received: u64,
    broadcasts: u64,
    /// Copies of broadcasts for which a member had no room.
    missed: u64,
    /// Messages that were received and not broadcast, because there was no room.
    #[serde(rename = "not broadcast")]
    not_broadcast: u64,
}

type Shared<T> = Arc<Mutex<T>>;

fn lock<T>(shared: &Shared<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

struct ChatHandler {
    counts: Shared<ChatCounts>,
    options: SendOptions,
    /// Messages that wait for the next tick.
    gathered: Vec<Vec<u8>>,
}

impl Handler for ChatHandler {
    type Note = ();

    fn on_event(&mut self, context: &mut Context<'_>, event: Event) {
        match event {
            Event::Connected { peer, .. } => _ = context.join(peer, EVERYONE),
            Event::Missed { count, .. } => lock(&self.counts).missed += u64::from(count),
            Event::Disconnected { .. } => lock(&self.counts).left += 1,
            _ => {}
        }
    }

    fn on_message(&mut self, _: &mut Context<'_>, _: PeerId, _: ChannelId, message: &[u8]) {
        lock(&self.counts).received += 1;
        self.gathered.push(message.to_vec());
    }

    fn tick_period(&self) -> Option<Duration> {
        Some(GATHERED_FOR)
    }

    fn on_tick(&mut self, context: &mut Context<'_>) {
        let mut counts = lock(&self.counts);
        for message in self.gathered.drain(..) {
            let sent = context.broadcast(EVERYONE, Message::new(ChannelId(0), message, self.options));
            *(if sent.is_ok() { &mut counts.broadcasts } else { &mut counts.not_broadcast }) += 1;
        }
    }
}

/// Runs the server. The arguments are the [`Mode`] and the number of connections.
///
/// It prints its address, and its counts at the end of its input.
pub(crate) fn run(args: &str) -> Result<Counts, String> {
    let (mode, connections): (Mode, u32) = arguments(args)?;
    if mode == Mode::Tcp {
        return serve_tcp(connections);
    }
    let config = config(1, connections).receive_buffer_bytes(RECEIVE_BUFFER_BYTES);
    let counts = Shared::<ChatCounts>::default();
    let make = |_| ChatHandler { counts: counts.clone(), options: mode.options(), gathered: Vec::new() };
    let server = handler::Server::bind(config, make).map_err(|error| error.to_string())?;
    print_address(server.local_addr())?;
    InputLines::read().iter().for_each(drop);
    let mut all = counts_of(&server.control().stats());
    all.append(&mut counts_from(&*lock(&counts)));
    print_json(&all)?;
    // The server leaves without closing its connections, because the clients count them next.
    std::process::exit(0)
}

/// Messages in the backlog of a client.
const BACKLOG: usize = 1_024;

/// The number of times that a client runs its tasks when it is polled.
const TURNS: usize = 4;

/// The backlogs of all clients, and the counts of messages.
#[derive(Debug, Default)]
struct TcpHub {
    backlogs: Vec<Sender<Bytes>>,
    counts: ChatCounts,
}

impl TcpHub {
    fn broadcast(&mut self, message: &Bytes) {
        let Self { backlogs, counts } = self;
        let is_full = |backlog: &&Sender<Bytes>| backlog.try_send(message.clone()).is_err();
        counts.missed += backlogs.iter().filter(is_full).count() as u64;
        counts.received += 1;
        counts.broadcasts += 1;
    }
}

/// Runs the server. It prints its address, and returns its counts at the end of its input.
fn serve_tcp(connections: u32) -> Result<Counts, String> {
    raise_open_files(u64::from(connections) + 64)?;
    let fail = |error: io::Error| error.to_string();
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_io().build().map_err(fail)?;
    let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).map_err(fail)?;
    print_address(listener.local_addr().map_err(fail)?)?;
    let hub = Shared::<TcpHub>::default();
    runtime.spawn(accept(listener, Arc::clone(&hub)));
    InputLines::read().iter().for_each(drop);
    let TcpHub { backlogs, counts } = &*lock(&hub);
    let mut all = counts_from(counts);
    // A backlog delivers what it accepted.
    all.insert("messages sealed".to_owned(), counts.broadcasts * backlogs.len() as u64 - counts.missed);
    Ok(all)
}

async fn accept(listener: TcpListener, hub: Shared<TcpHub>) {
    while let Ok((stream, _)) = listener.accept().await {
        let of_reader = Arc::clone(&hub);
        let backlog = start(stream, move |message| match message {
            Some(message) => lock(&of_reader).broadcast(&message),
            None => lock(&of_reader).counts.left += 1,
        });
        lock(&hub).backlogs.push(backlog);
    }
}

/// Starts the two tasks of a connection, and returns its backlog. `on_message` receives `None` when the connection has ended.
///
/// Each message begins with a byte that has its length, and is one write.
fn start(stream: TcpStream, mut on_message: impl FnMut(Option<Bytes>) + Send + 'static) -> Sender<Bytes> {
    // Go sets this option by default.
    let _ = stream.set_nodelay(true);
    let (reader, mut writer) = stream.into_split();
    let (backlog, mut waiting) = channel::<Bytes>(BACKLOG);
    tokio::spawn(async move {
        while let Some(message) = waiting.recv().await {
            if writer.write_all(&message).await.is_err() {
                return;
            }
        }
    });
    tokio::spawn(async move {
        let mut reader = BufReader::new(reader);
        while let Ok(length) = reader.read_u8().await {
            let mut message = vec![0; usize::from(length) + 1];
            message[0] = length;
            if reader.read_exact(&mut message[1..]).await.is_err() {
                break;
            }
            on_message(Some(message.into()));
        }
        on_message(None);
    });
    backlog
}

/// The connections of all clients, whose tasks run when the clients are polled.
#[derive(Debug)]
pub(crate) struct Streams {
    runtime: Runtime,
    /// Messages that came, with the index of their connection.
    inbox: UnboundedReceiver<(usize, Bytes)>,
    backlogs: Vec<Sender<Bytes>>,
}

impl Streams {
    /// Makes this number of connections, one after the other.
    pub(crate) fn connect(server: SocketAddr, count: usize) -> Result<Self, String> {
        let fail = |error: io::Error| format!("the clients' connections: {error}");
        let runtime = Builder::new_current_thread().enable_io().build().map_err(fail)?;
        let (sender, inbox) = unbounded_channel();
        let connect = |index| {
            let sender = sender.clone();
            runtime.block_on(async {
                let stream = TcpStream::connect(server).await?;
                // The books show the messages that a server that ended did not send.
                Ok(start(stream, move |message| {
                    message.map(|message| sender.send((index, message)));
                }))
            })
        };
        let backlogs = (0..count).map(connect).collect::<Result<_, _>>().map_err(fail)?;
        Ok(Self { runtime, inbox, backlogs })
    }
}

impl Client for Streams {
    /// Runs the tasks without waiting: once for the sockets, and again for the tasks that they woke.
    fn receive(&mut self, _: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
        self.runtime.block_on(async {
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
        });
        while let Ok((index, message)) = self.inbox.try_recv() {
            // The first byte of a message is its length.
            take(index, &message[1..]);
        }
        Ok(())
    }

    fn send(&mut self, _: u64, connection: usize, _: u8, message: &[u8]) -> Result<bool, String> {
        let length = u8::try_from(message.len()).unwrap_or(u8::MAX);
        let message: Vec<u8> = [&[length], message].concat();
        Ok(self.backlogs[connection].try_send(message.into()).is_ok())
    }
}
