//! The baseline over TCP, not encrypted, as the journal describes it: a task per client that reads, one that writes, and a backlog of
//! 1,024 messages between them. Each message is one write. A message that finds a backlog full is dropped and counted.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bytes::Bytes;
use drumfire_benches::roles::print_address;
use drumfire_benches::traffic::Client;
use drumfire_benches::{Counts, InputLines, arguments, counts_from, print_json, raise_open_files};
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{Sender, channel};

use crate::Mode;
use crate::server::{ChatTally, add};

/// The role of [`run`].
pub(crate) const BASELINE: &str = "tcp-server";

/// Messages in the backlog of a client.
const BACKLOG: usize = 1_024;

/// The number of times that a client runs its tasks when it is polled.
const TURNS: usize = 4;

/// The backlogs of all clients, and the counts of messages.
#[derive(Debug, Default, Serialize)]
struct TcpHub {
    #[serde(skip)]
    backlogs: RwLock<Vec<Sender<Bytes>>>,
    #[serde(flatten)]
    tally: ChatTally,
    #[serde(rename = "messages sealed")]
    written: AtomicU64,
}

impl TcpHub {
    fn broadcast(&self, message: &Bytes) {
        let backlogs = self.backlogs.read().unwrap_or_else(PoisonError::into_inner);
        let is_full = |backlog: &&Sender<Bytes>| backlog.try_send(message.clone()).is_err();
        add(&self.tally.missed, backlogs.iter().filter(is_full).count() as u64);
        add(&self.tally.received, 1);
        add(&self.tally.broadcasts, 1);
        add(&self.tally.owed, backlogs.len() as u64);
    }
}

/// Runs the server on one core, as drumfire's. It has the arguments of drumfire's server.
///
/// It prints its address, its counts for each line of its input, and its counts at the end of its input.
pub(crate) fn run(args: &str) -> Result<Counts, String> {
    let (_, connections): (Mode, u32) = arguments(args)?;
    raise_open_files(u64::from(connections) + 64)?;
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_io().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let hub = Arc::<TcpHub>::default();
    let bind = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listener = runtime.block_on(bind).map_err(|error| error.to_string())?;
    print_address(listener.local_addr().map_err(|error| error.to_string())?)?;
    runtime.spawn(accept(listener, Arc::clone(&hub)));
    for _ in InputLines::read().iter() {
        print_json(&*hub)?;
    }
    Ok(counts_from(&*hub))
}

async fn accept(listener: TcpListener, hub: Arc<TcpHub>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (of_reader, of_writer) = (Arc::clone(&hub), Arc::clone(&hub));
        let on_message = move |message: Option<Bytes>| match message {
            Some(message) => of_reader.broadcast(&message),
            None => of_reader.tally.on_left(),
        };
        let backlog = start(stream, on_message, move || add(&of_writer.written, 1));
        hub.backlogs.write().unwrap_or_else(PoisonError::into_inner).push(backlog);
        add(&hub.tally.members, 1);
    }
}

/// Starts the two tasks of a connection, and returns its backlog. `on_message` receives `None` when the connection has ended.
///
/// Each message begins with a byte that has its length, and is one write.
fn start(
    stream: TcpStream,
    mut on_message: impl FnMut(Option<Bytes>) + Send + 'static,
    mut on_written: impl FnMut() + Send + 'static,
) -> Sender<Bytes> {
    // Go sets this option by default.
    let _ = stream.set_nodelay(true);
    let (reader, mut writer) = stream.into_split();
    let (backlog, mut waiting) = channel::<Bytes>(BACKLOG);
    tokio::spawn(async move {
        while let Some(message) = waiting.recv().await {
            if writer.write_all(&message).await.is_err() {
                return;
            }
            on_written();
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

/// Messages that came, with the index of their connection.
type Inbox = Arc<Mutex<Vec<(usize, Bytes)>>>;

/// The connections of all clients, whose tasks run when the clients are polled.
#[derive(Debug)]
pub(crate) struct Streams {
    runtime: Runtime,
    inbox: Inbox,
    backlogs: Vec<Sender<Bytes>>,
}

impl Streams {
    /// Makes this number of connections, one after the other.
    pub(crate) fn connect(server: SocketAddr, count: usize) -> Result<Self, String> {
        let runtime = Builder::new_current_thread().enable_io().build().map_err(|error| error.to_string())?;
        let (inbox, mut backlogs) = (Inbox::default(), Vec::new());
        for index in 0..count {
            let inbox = Arc::clone(&inbox);
            // The books show the messages that a server that ended did not send.
            let on_message = move |message: Option<Bytes>| {
                let mut inbox = inbox.lock().unwrap_or_else(PoisonError::into_inner);
                inbox.extend(message.map(|message| (index, message)));
            };
            let started = runtime.block_on(async {
                Ok::<_, std::io::Error>(start(TcpStream::connect(server).await?, on_message, || {}))
            });
            backlogs.push(started.map_err(|error| format!("the clients' connections: {error}"))?);
        }
        Ok(Self { runtime, inbox, backlogs })
    }

    /// Runs the tasks without waiting: once for the sockets, and again for the tasks that they woke.
    fn turn(&self) {
        self.runtime.block_on(async {
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
        });
    }
}

impl Client for Streams {
    fn receive(&mut self, _: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
        self.turn();
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        // The first byte of a message is its length.
        inbox.drain(..).for_each(|(index, message)| take(index, &message[1..]));
        Ok(())
    }

    fn send(&mut self, _: u64, connection: usize, _: u8, message: &[u8]) -> Result<bool, String> {
        let length = u8::try_from(message.len()).unwrap_or(u8::MAX);
        let message: Vec<u8> = [&[length], message].concat();
        Ok(self.backlogs[connection].try_send(message.into()).is_ok())
    }
}
