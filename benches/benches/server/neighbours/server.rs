//! The async server: a task per connection, which echoes. The task of the first connection may receive nothing, or receive everything
//! and answer nothing.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use drumfire::asynchronous::Connection;
use drumfire::{Access, Message, SendOptions, ServerConfig, Workers, asynchronous};
use drumfire_benches::roles::{Echo, key, print_address};
use drumfire_benches::{Child, Counts, RECEIVE_BUFFER_BYTES, arguments, named_counts, print_json};
use drumfire_proto::limits::ITEM_CHARGE_BYTES;
use tokio::sync::mpsc::{Receiver, channel};

use super::{Guest, MEMORY_BYTES};

/// The role of this server.
pub(crate) const ASYNC: &str = "async-server";

/// The count of messages that the application received from the guest.
pub(crate) const HEARD: &str = "heard of the guest";

/// The line that lets a stalled task receive.
const TAKE: &str = "take";

/// Lets the stalled task receive from now on. Returns the bytes that were kept for it until now, with their charges.
pub(crate) fn take(server: &Child) -> Result<u64, String> {
    server.send_line(TAKE)?;
    server.read()
}

/// Runs the server. The argument is the name of the guest.
pub(crate) fn serve(args: &str) -> Result<Counts, String> {
    let guest: String = arguments(args)?;
    let guest = Guest::named(&guest).ok_or("not a guest")?;
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.map_err(|error| format!("the executor: {error}"))?;
    runtime.block_on(run(guest))
}

async fn run(guest: Guest) -> Result<Counts, String> {
    let config = ServerConfig::new(([127, 0, 0, 1], 0).into(), key(), Access::Open)
        .workers(Workers::Count(1))
        .memory_bytes(MEMORY_BYTES, MEMORY_BYTES)
        .receive_buffer_bytes(RECEIVE_BUFFER_BYTES);
    let server = Arc::new(asynchronous::Server::bind(config).map_err(|error| error.to_string())?);
    print_address(server.local_addr())?;
    let mut orders = orders();
    let (tally, heard) = (Arc::new(Echo::new(SendOptions::unreliable())), Arc::<AtomicU64>::default());
    let connection = if guest == Guest::Quiet { None } else { server.accept().await };
    if let (Guest::Abuser | Guest::Spender, Some(connection)) = (guest, &connection) {
        tokio::spawn(receive(connection.clone(), Arc::clone(&heard)));
    }
    tokio::spawn(accept(Arc::clone(&server), Arc::clone(&tally)));
    while orders.recv().await.is_some() {
        let (messages, bytes) = connection.as_ref().map_or((0, 0), take_all);
        heard.fetch_add(messages, Ordering::Relaxed);
        print_json(&bytes)?;
        if let Some(connection) = &connection {
            tokio::spawn(receive(connection.clone(), Arc::clone(&heard)));
        }
    }
    // Acknowledged messages are in the queue of the connection, and all tasks run on this thread.
    let (rest, _) = connection.as_ref().map_or((0, 0), take_all);
    let mut counts = tally.counts(&server.control().stats());
    counts.extend(named_counts([(HEARD, heard.load(Ordering::Relaxed) + rest)]));
    Ok(counts)
}

/// Returns an entry per order. The channel closes when the standard input ends.
fn orders() -> Receiver<()> {
    let (sender, orders) = channel(1);
    std::thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            if line == TAKE && sender.blocking_send(()).is_err() {
                return;
            }
        }
    });
    orders
}

async fn accept(server: Arc<asynchronous::Server>, tally: Arc<Echo>) {
    while let Some(connection) = server.accept().await {
        tokio::spawn(echo(connection, Arc::clone(&tally)));
    }
}

async fn echo(connection: Connection, tally: Arc<Echo>) {
    while let Ok((channel, payload)) = connection.recv().await {
        let Some(options) = tally.on_received(channel) else { continue };
        tally.on_answer(connection.send(Message::new(channel, payload, options)).await.is_ok());
    }
}

/// Receives messages without answering.
async fn receive(connection: Connection, heard: Arc<AtomicU64>) {
    while connection.recv().await.is_ok() {
        heard.fetch_add(1, Ordering::Relaxed);
    }
}

/// Receives the waiting messages. Returns their number and their bytes with charges.
fn take_all(connection: &Connection) -> (u64, u64) {
    let (mut messages, mut charged) = (0, 0);
    while let Ok(Some((_, payload))) = connection.try_recv() {
        messages += 1;
        charged += (payload.len() + ITEM_CHARGE_BYTES) as u64;
    }
    (messages, charged)
}
