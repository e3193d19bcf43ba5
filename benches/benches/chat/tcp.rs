//! The baseline, by the journal's method: a task per client that reads and one that writes, a backlog channel of 1,024 entries
//! per client between them, one write per message. It is not encrypted. What finds a backlog full is dropped, and counted.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use drumfire_benches::{Counts, on_end_of_input, print_line};
use drumfire_tools::{clock, host};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::plan::Plan;
use crate::tell::Teller;

/// Entries in the backlog of a client.
const BACKLOG: usize = 1_024;

const LOOK_UP: Duration = Duration::from_millis(5);

/// A client: its backlog, and what was written to it.
#[derive(Debug)]
struct Member {
    backlog: Sender<Bytes>,
    written: Arc<AtomicU64>,
}

/// Everybody who is there, and what became of messages.
#[derive(Debug, Default)]
struct Room {
    members: RwLock<Vec<Member>>,
    left: AtomicU64,
    received: AtomicU64,
    broadcasts: AtomicU64,
    owed: AtomicU64,
    dropped: AtomicU64,
    /// Entries that a backlog had at most.
    waiting_most: AtomicU64,
}

impl Room {
    fn broadcast(&self, message: &Bytes) {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        let (mut dropped, mut most) = (0, 0);
        for member in members.iter() {
            match member.backlog.try_send(message.clone()) {
                Ok(()) => most = most.max(BACKLOG - member.backlog.capacity()),
                // Who is gone is taken for full: nobody leaves before the books are made.
                Err(TrySendError::Full(_) | TrySendError::Closed(_)) => dropped += 1,
            }
        }
        self.broadcasts.fetch_add(1, Ordering::Relaxed);
        self.owed.fetch_add(members.len() as u64, Ordering::Relaxed);
        self.dropped.fetch_add(dropped, Ordering::Relaxed);
        let most = if dropped > 0 { BACKLOG } else { most };
        self.waiting_most.fetch_max(most as u64, Ordering::Relaxed);
    }

    fn counts(&self) -> Counts {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        let written = members.iter().map(|member| member.written.load(Ordering::Relaxed)).sum();
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = [
            ("members", members.len() as u64 - read(&self.left)),
            ("server left", read(&self.left)),
            ("received", read(&self.received)),
            ("broadcasts", read(&self.broadcasts)),
            ("owed", read(&self.owed)),
            ("missed", read(&self.dropped)),
            ("waiting most", read(&self.waiting_most)),
            // One write each, which is one segment at least.
            ("sealed", written),
            ("sent", written),
            ("send calls", written),
        ];
        counts.map(|(name, count)| (name.to_owned(), count)).into()
    }
}

/// Runs the server's process.
pub(crate) fn run(plan: Plan) -> Result<(), String> {
    let cores = host::allowed_cores().unwrap_or_default();
    // The clients' core is left to them.
    let threads = cores.len().saturating_sub(1).max(1);
    if let Some(core) = cores.first() {
        host::pin_current_thread(*core).map_err(|error| error.to_string())?;
    }
    let next = AtomicUsize::new(0);
    let files = u64::from(plan.connections()) + 64;
    if host::raise_open_files(files).is_some_and(|limit| limit < files) {
        return Err("the system does not let so many connections be open".to_owned());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .on_thread_start(move || {
            // One that cannot be pinned runs where the system lets it.
            let at = next.fetch_add(1, Ordering::Relaxed) % threads;
            let _ = cores.get(at).map(|core| host::pin_current_thread(*core));
        })
        .enable_io()
        .build()
        .map_err(|error| error.to_string())?;
    let is_over = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_over);
    on_end_of_input(move || flag.store(true, Ordering::Release));
    let room = Arc::<Room>::default();
    let listener = runtime
        .block_on(TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))))
        .map_err(|error| error.to_string())?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    runtime.spawn(accept(listener, Arc::clone(&room)));
    print_line(&address.to_string()).map_err(|error| error.to_string())?;
    let mut teller = Teller::new(plan.interval);
    while !is_over.load(Ordering::Acquire) {
        clock::pause(LOOK_UP);
        teller.look(|| room.counts())?;
    }
    teller.last(room.counts())
}

async fn accept(listener: TcpListener, room: Arc<Room>) {
    while let Ok((stream, _)) = listener.accept().await {
        join(stream, &room);
    }
}

fn join(stream: TcpStream, room: &Arc<Room>) {
    // Without it messages wait for acks; as in Go, where it is the default.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let (reader, writer) = stream.into_split();
    let (backlog, waiting) = channel(BACKLOG);
    let written = Arc::<AtomicU64>::default();
    let member = Member { backlog, written: Arc::clone(&written) };
    room.members.write().unwrap_or_else(PoisonError::into_inner).push(member);
    tokio::spawn(hear(reader, Arc::clone(room)));
    tokio::spawn(write(writer, waiting, written));
}

/// Broadcasts what a client says: each message behind a byte with its length.
async fn hear(reader: OwnedReadHalf, room: Arc<Room>) {
    let mut reader = BufReader::new(reader);
    while let Ok(length) = reader.read_u8().await {
        let mut message = vec![0; usize::from(length) + 1];
        message[0] = length;
        if reader.read_exact(&mut message[1..]).await.is_err() {
            break;
        }
        room.received.fetch_add(1, Ordering::Relaxed);
        room.broadcast(&message.into());
    }
    room.left.fetch_add(1, Ordering::Relaxed);
}

/// One write for each message.
async fn write(mut writer: OwnedWriteHalf, mut waiting: Receiver<Bytes>, written: Arc<AtomicU64>) {
    while let Some(message) = waiting.recv().await {
        if writer.write_all(&message).await.is_err() {
            return;
        }
        written.fetch_add(1, Ordering::Relaxed);
    }
}
