//! The server's process: an async server with a task for each connection, which echoes; the task of the first connection may
//! take nothing instead, or take everything and answer nothing.

use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use drumfire::{Access, AsyncServer, Connection, Incoming, ServerConfig, ServerKey, Workers};
use drumfire_benches::{Child, Counts, Load, RECEIVE_BUFFER_BYTES, counts_of, say, say_counts};
use drumfire_proto::limits::ITEM_CHARGE_BYTES;
use drumfire_tools::host;
use tokio::sync::mpsc::{Receiver, channel};

use crate::role::{MEMORY_BYTES, Role};

/// The first argument of the server's process.
const MODE: &str = "--neighbours-server";

/// The line that lets a stalled task take what there is.
const TAKE: &str = "take";

/// The server's key, which stands here for everybody to read.
pub(crate) fn key() -> ServerKey {
    ServerKey::from_bytes([0x9e; 32])
}

/// Starts a server for this arm on this core.
pub(crate) fn start(role: Role, core: usize) -> Result<Child, String> {
    Child::start("the server", &[MODE, role.name(), &core.to_string()])
}

/// Lets the stalled task take what there is, and from then on what comes; answers what had been kept for it, in bytes with
/// their charges.
pub(crate) fn take(server: &Child) -> Result<u64, String> {
    server.tell(TAKE)?;
    let kept = server.counts()?;
    kept.get("kept").copied().ok_or_else(|| "the server does not say what it had kept".to_owned())
}

/// Runs the server's process, if the arguments ask for it.
pub(crate) fn main(args: &[OsString]) -> Option<Result<(), String>> {
    let args: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let [MODE, role, core] = args.as_slice() else { return None };
    let role = Role::ALL.into_iter().find(|known| known.name() == *role)?;
    Some(run(role, core))
}

fn run(role: Role, core: &str) -> Result<(), String> {
    let core = core.parse().map_err(|_| "not a core".to_owned())?;
    // Threads that are started later stay on the same core.
    host::pin_current_thread(core).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.map_err(|error| format!("the executor: {error}"))?;
    let counts = runtime.block_on(serve(role))?;
    say_counts(&counts).map_err(|error| error.to_string())
}

/// What came from the players, and what became of it.
#[derive(Debug, Default)]
struct Tally {
    received: AtomicU64,
    /// Answers that were not taken.
    refused: AtomicU64,
}

async fn serve(role: Role) -> Result<Counts, String> {
    let config = ServerConfig::new(([127, 0, 0, 1], 0).into(), key(), Access::Open)
        .workers(Workers::Count(1))
        .memory_bytes(MEMORY_BYTES, MEMORY_BYTES)
        .receive_buffer_bytes(RECEIVE_BUFFER_BYTES);
    let server = Arc::new(AsyncServer::bind(config).map_err(|error| error.to_string())?);
    say(&server.local_addr().to_string()).map_err(|error| error.to_string())?;
    let mut orders = orders();
    let (tally, heard) = (Arc::<Tally>::default(), Arc::<AtomicU64>::default());
    let guest = if role == Role::Quiet { None } else { server.accept().await };
    if let (Role::Abuser | Role::Spender, Some(guest)) = (role, &guest) {
        tokio::spawn(hear(guest.clone(), Arc::clone(&heard)));
    }
    tokio::spawn(accept(Arc::clone(&server), Arc::clone(&tally)));
    while orders.recv().await.is_some() {
        let kept = guest.as_ref().map_or((0, 0), take_all);
        heard.fetch_add(kept.0, Ordering::Relaxed);
        let kept = Counts::from([("kept".to_owned(), kept.1)]);
        say_counts(&kept).map_err(|error| error.to_string())?;
        if let Some(guest) = &guest {
            tokio::spawn(hear(guest.clone(), Arc::clone(&heard)));
        }
    }
    // What was acknowledged is here, and tasks run on this thread alone.
    let rest = guest.as_ref().map_or((0, 0), take_all);
    let stats = server.stats();
    let overflows = stats.workers.iter().map(|worker| worker.protocol.unreliable_overflows).sum();
    let mut counts = counts_of(&stats);
    for (name, count) in [
        ("received", tally.received.load(Ordering::Relaxed)),
        ("refused", tally.refused.load(Ordering::Relaxed)),
        ("heard of the guest", heard.load(Ordering::Relaxed) + rest.0),
        ("no memory for unreliable", overflows),
    ] {
        counts.insert(name.to_owned(), count);
    }
    Ok(counts)
}

/// An entry for each order; it is closed when the standard input ends.
fn orders() -> Receiver<()> {
    let (given, orders) = channel(1);
    std::thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            if line == TAKE && given.blocking_send(()).is_err() {
                return;
            }
        }
    });
    orders
}

async fn accept(server: Arc<AsyncServer>, tally: Arc<Tally>) {
    while let Some(connection) = server.accept().await {
        tokio::spawn(echo(connection, Arc::clone(&tally)));
    }
}

async fn echo(connection: Connection, tally: Arc<Tally>) {
    while let Ok(incoming) = connection.recv().await {
        let Incoming::Message { channel, bytes } = incoming else { continue };
        tally.received.fetch_add(1, Ordering::Relaxed);
        if connection.send(channel, bytes, Load::OPTIONS).await.is_err() {
            tally.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Takes what comes and answers nothing.
async fn hear(connection: Connection, heard: Arc<AtomicU64>) {
    while let Ok(incoming) = connection.recv().await {
        if matches!(incoming, Incoming::Message { .. }) {
            heard.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Takes what there is without waiting: how many messages, and what they were charged in all.
fn take_all(connection: &Connection) -> (u64, u64) {
    let (mut messages, mut charged) = (0, 0);
    while let Ok(Some(incoming)) = connection.try_recv() {
        if let Incoming::Message { bytes, .. } = incoming {
            messages += 1;
            charged += (bytes.len() + ITEM_CHARGE_BYTES) as u64;
        }
    }
    (messages, charged)
}
