//! An echo server with a task per connection, on an executor with one thread next to the worker's.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use drumfire::asynchronous::{Connection, Server};
use drumfire::{Message, ServerConfig};
use drumfire_proto::limits::ITEM_CHARGE_BYTES;
use tokio::sync::mpsc::{Receiver, channel};

use crate::process::{Child, Counts, named_counts, print_json};
use crate::roles::{Echo, print_address};

/// The count of messages that the application received on the first connection, if its task is silent.
pub const FIRST_RECEIVED: &str = "received on the first";

/// Lets the silent task of the first connection receive from now on. Returns the bytes that were kept for it until now, with their
/// charges.
pub fn receive_first(server: &Child) -> Result<u64, String> {
    server.send_line("receive")?;
    server.read()
}

/// Runs a server of this configuration whose tasks echo, until the end of its input. It prints its address, and returns its counts.
pub(crate) fn serve_in_tasks(
    config: ServerConfig,
    echo: Echo,
    is_first_silent: bool,
) -> Result<Counts, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.map_err(|error| format!("the executor: {error}"))?.block_on(run(config, echo, is_first_silent))
}

async fn run(config: ServerConfig, echo: Echo, is_first_silent: bool) -> Result<Counts, String> {
    let server = Arc::new(Server::bind(config).map_err(|error| error.to_string())?);
    print_address(server.local_addr())?;
    let mut lines = lines();
    let (echo, received) = (Arc::new(echo), Arc::<AtomicU64>::default());
    let silent = if is_first_silent { server.accept().await } else { None };
    tokio::spawn(accept(Arc::clone(&server), Arc::clone(&echo)));
    while lines.recv().await.is_some() {
        let (messages, bytes) = silent.as_ref().map_or((0, 0), take_all);
        received.fetch_add(messages, Ordering::Relaxed);
        print_json(&bytes)?;
        if let Some(connection) = &silent {
            tokio::spawn(receive(connection.clone(), Arc::clone(&received)));
        }
    }
    // Acknowledged messages are in the queue of the connection, and all tasks run on this thread.
    let (rest, _) = silent.as_ref().map_or((0, 0), take_all);
    let mut counts = echo.counts(&server.control().stats());
    counts.extend(named_counts([(FIRST_RECEIVED, received.load(Ordering::Relaxed) + rest)]));
    Ok(counts)
}

/// Returns an entry per line of the standard input. The channel closes when that ends.
fn lines() -> Receiver<()> {
    let (sender, lines) = channel(1);
    std::thread::spawn(move || {
        io::stdin().lines().map_while(Result::ok).all(|_| sender.blocking_send(()).is_ok());
    });
    lines
}

async fn accept(server: Arc<Server>, echo: Arc<Echo>) {
    while let Some(connection) = server.accept().await {
        tokio::spawn(answer(connection, Arc::clone(&echo)));
    }
}

async fn answer(connection: Connection, echo: Arc<Echo>) {
    while let Ok((channel, payload)) = connection.recv().await {
        let answer = Message::new(channel, payload, echo.options(channel));
        echo.served.on_echo(connection.send(answer).await.is_ok());
    }
}

/// Receives messages without answering.
async fn receive(connection: Connection, received: Arc<AtomicU64>) {
    while connection.recv().await.is_ok() {
        received.fetch_add(1, Ordering::Relaxed);
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
