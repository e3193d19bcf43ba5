//! The baseline over TCP, not encrypted, as the journal describes it: a task per client that reads, one that writes, and a backlog of
//! 1,024 messages between them. Each message is one write. A message that finds a backlog full is dropped and counted.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use drumfire_benches::roles::print_address;
use drumfire_benches::traffic::Client;
use drumfire_benches::{Counts, Orders, counts_from, print_json, raise_open_files};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::server::{ChatTally, add};

/// The role of [`run`].
pub(crate) const BASELINE: &str = "tcp-server";

/// Messages in the backlog of a client.
const BACKLOG: usize = 1_024;

/// Bytes that a client reads at a time.
const READ_BYTES: usize = 65_536;

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
pub(crate) fn run(args: &[&str]) -> Result<Counts, String> {
    let connections = args.last().and_then(|connections| connections.parse::<u64>().ok());
    raise_open_files(connections.ok_or("not a number of connections")? + 64)?;
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_io().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let hub = Arc::<TcpHub>::default();
    let bind = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listener = runtime.block_on(bind).map_err(|error| error.to_string())?;
    print_address(listener.local_addr().map_err(|error| error.to_string())?)?;
    runtime.spawn(accept(listener, Arc::clone(&hub)));
    for _ in Orders::read().iter() {
        print_json(&*hub)?;
    }
    Ok(counts_from(&*hub))
}

async fn accept(listener: TcpListener, hub: Arc<TcpHub>) {
    while let Ok((stream, _)) = listener.accept().await {
        // Go sets this option by default.
        if stream.set_nodelay(true).is_err() {
            continue;
        }
        let (reader, writer) = stream.into_split();
        let (backlog, waiting) = channel(BACKLOG);
        hub.backlogs.write().unwrap_or_else(PoisonError::into_inner).push(backlog);
        add(&hub.tally.members, 1);
        tokio::spawn(read(reader, Arc::clone(&hub)));
        tokio::spawn(write(writer, waiting, Arc::clone(&hub)));
    }
}

/// Broadcasts the messages of a client. Each begins with a byte that has its length.
async fn read(reader: OwnedReadHalf, hub: Arc<TcpHub>) {
    let mut reader = BufReader::new(reader);
    while let Ok(length) = reader.read_u8().await {
        let mut message = vec![0; usize::from(length) + 1];
        message[0] = length;
        if reader.read_exact(&mut message[1..]).await.is_err() {
            break;
        }
        hub.broadcast(&message.into());
    }
    hub.tally.on_left();
}

/// Writes the messages of a backlog, one per call.
async fn write(mut writer: OwnedWriteHalf, mut waiting: Receiver<Bytes>, hub: Arc<TcpHub>) {
    while let Some(message) = waiting.recv().await {
        if writer.write_all(&message).await.is_err() {
            return;
        }
        add(&hub.written, 1);
    }
}

/// The connection of one client.
#[derive(Debug)]
struct Stream {
    stream: TcpStream,
    /// The beginning of a message whose end did not come yet.
    partial: Vec<u8>,
    /// Bytes that the kernel has not accepted.
    unwritten: Vec<u8>,
}

/// The connections of all clients behind one poll.
#[derive(Debug)]
pub(crate) struct Streams {
    poll: Poll,
    events: Events,
    streams: Vec<Stream>,
    memory: Vec<u8>,
}

impl Streams {
    /// Makes this number of connections, one after the other.
    pub(crate) fn connect(server: SocketAddr, count: usize) -> Result<Self, String> {
        let poll = Poll::new().map_err(|error| fail(&error))?;
        let connect = |index| {
            let stream = std::net::TcpStream::connect(server)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            poll.registry().register(&mut stream, Token(index), Interest::READABLE | Interest::WRITABLE)?;
            Ok(Stream { stream, partial: Vec::new(), unwritten: Vec::new() })
        };
        let streams = (0..count).map(connect).collect::<Result<_, _>>().map_err(|error| fail(&error))?;
        Ok(Self { poll, events: Events::with_capacity(1_024), streams, memory: vec![0; READ_BYTES] })
    }
}

impl Stream {
    fn write(&mut self) -> io::Result<()> {
        while !self.unwritten.is_empty() {
            let count = self.stream.write(&self.unwritten)?;
            self.unwritten.drain(..count);
        }
        Ok(())
    }

    /// Reads until nothing is left, because the poll reports only new bytes.
    fn read(&mut self, memory: &mut [u8], mut take: impl FnMut(&[u8])) -> io::Result<()> {
        loop {
            match self.stream.read(memory)? {
                // The books show the messages that a server that ended did not send.
                0 => return Ok(()),
                count => self.partial.extend_from_slice(&memory[..count]),
            }
            let mut rest = self.partial.as_slice();
            while let Some((length, after)) = rest.split_first()
                && let Some((message, after)) = after.split_at_checked(usize::from(*length))
            {
                take(message);
                rest = after;
            }
            let taken = self.partial.len() - rest.len();
            self.partial.drain(..taken);
        }
    }
}

impl Client for Streams {
    fn receive(&mut self, _: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
        self.poll.poll(&mut self.events, Some(Duration::ZERO)).map_err(|error| fail(&error))?;
        for event in &self.events {
            let Token(index) = event.token();
            let Some(stream) = self.streams.get_mut(index) else { continue };
            unless_blocked(stream.write())?;
            unless_blocked(stream.read(&mut self.memory, |message| take(index, message)))?;
        }
        Ok(())
    }

    fn send(&mut self, _: u64, connection: usize, _: u8, message: &[u8]) -> Result<bool, String> {
        let stream = &mut self.streams[connection];
        if !stream.unwritten.is_empty() {
            return Ok(false);
        }
        stream.unwritten.push(u8::try_from(message.len()).unwrap_or(u8::MAX));
        stream.unwritten.extend_from_slice(message);
        unless_blocked(stream.write()).map(|()| true)
    }
}

fn unless_blocked(done: io::Result<()>) -> Result<(), String> {
    match done {
        Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionReset) => {
            Err(fail(&error))
        }
        _ => Ok(()),
    }
}

fn fail(error: &io::Error) -> String {
    format!("the clients' connections: {error}")
}
