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
use drumfire_benches::{Counts, InputLines, TaskClient, arguments, counts_from, counts_of, print_json};
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{Receiver, Sender, channel};

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
    ended: u64,
    received: u64,
    broadcasts: u64,
    /// Copies of broadcasts for which a member had no room.
    missed: u64,
    /// Messages that were received and not broadcast, because there was no room.
    not_broadcast: u64,
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

struct ChatHandler {
    counts: Arc<Mutex<ChatCounts>>,
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
            Event::Disconnected { .. } => lock(&self.counts).ended += 1,
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
        return serve_tcp();
    }
    let config = config(connections).receive_buffer_bytes(RECEIVE_BUFFER_BYTES);
    let counts = Arc::<Mutex<ChatCounts>>::default();
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
fn serve_tcp() -> Result<Counts, String> {
    let fail = |error: io::Error| error.to_string();
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_io().build().map_err(fail)?;
    let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).map_err(fail)?;
    print_address(listener.local_addr().map_err(fail)?)?;
    let hub = Arc::<Mutex<TcpHub>>::default();
    runtime.spawn(accept(listener, Arc::clone(&hub)));
    InputLines::read().iter().for_each(drop);
    let TcpHub { backlogs, counts } = &*lock(&hub);
    let mut all = counts_from(counts);
    // A backlog delivers all messages that it accepted.
    all.insert("messages sealed".to_owned(), counts.broadcasts * backlogs.len() as u64 - counts.missed);
    Ok(all)
}

async fn accept(listener: TcpListener, hub: Arc<Mutex<TcpHub>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (backlog, waiting) = channel(BACKLOG);
        lock(&hub).backlogs.push(backlog);
        let hub = Arc::clone(&hub);
        tokio::spawn(async move {
            run_connection(stream, waiting, |message| message, |message| lock(&hub).broadcast(&message))
                .await;
            lock(&hub).counts.ended += 1;
        });
    }
}

/// Writes the waiting messages in a task of its own, and reads until the connection ends. Each message begins with a byte that has its
/// length, and is one write.
async fn run_connection<M: Send + 'static>(
    stream: TcpStream,
    mut waiting: Receiver<M>,
    encode: fn(M) -> Bytes,
    mut on_message: impl FnMut(Bytes),
) {
    // Go sets this option by default.
    let _ = stream.set_nodelay(true);
    let (reader, mut writer) = stream.into_split();
    tokio::spawn(async move {
        while let Some(message) = waiting.recv().await {
            if writer.write_all(&encode(message)).await.is_err() {
                return;
            }
        }
    });
    let mut reader = BufReader::new(reader);
    while let Ok(length) = reader.read_u8().await {
        let mut message = vec![0; usize::from(length) + 1];
        message[0] = length;
        if reader.read_exact(&mut message[1..]).await.is_err() {
            return;
        }
        on_message(message.into());
    }
}

/// Begins this number of connections to the server.
pub(crate) fn connect_tcp(server: SocketAddr, count: usize) -> Result<TaskClient, String> {
    let runtime = Builder::new_current_thread().enable_io().build();
    let mut client = TaskClient::new(runtime.map_err(|error| error.to_string())?);
    let encode = |message: Vec<u8>| -> Bytes {
        let length = u8::try_from(message.len()).unwrap_or(u8::MAX);
        [&[length], &message[..]].concat().into()
    };
    for _ in 0..count {
        client.spawn(move |delivery, waiting| async move {
            let stream = match TcpStream::connect(server).await {
                Ok(stream) => stream,
                Err(error) => return error.to_string(),
            };
            delivery.on_ready();
            run_connection(stream, waiting, encode, |message| delivery.on_message(&message[1..])).await;
            // The books show the messages that a server that ended did not send.
            std::future::pending().await
        });
    }
    Ok(client)
}
