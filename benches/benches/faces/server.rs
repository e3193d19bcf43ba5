//! The server's process: one echo, in three ways to write it.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use drumfire::{
    Access, ChannelId, Context, Event, Handler, PeerId, Remote, SendOptions, Server, ServerConfig, ServerKey,
    Stats, Workers, serve,
};
use drumfire_benches::{
    Child, Counts, EchoHandler, EchoTally, Load, RECEIVE_BUFFER_BYTES, counts_of, over_at_end_of_input, say,
    say_counts,
};
use drumfire_tools::{clock, host};

/// The first argument of the server's process.
const MODE: &str = "--faces-server";

/// How often the server looks up when nothing comes.
const LOOK_UP: Duration = Duration::from_millis(100);

/// Messages that wait for the other thread, at most.
const WAITING_MAX: usize = 65_536;

/// A way to write the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Face {
    /// A handler answers on the worker.
    Handler,
    /// The application polls and answers on its own thread.
    Tick,
    /// A handler gives each message to another thread, which answers each through a [`Remote`].
    Naive,
}

impl Face {
    pub(crate) const ALL: [Self; 3] = [Self::Handler, Self::Tick, Self::Naive];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Handler => "handler",
            Self::Tick => "tick",
            Self::Naive => "naive",
        }
    }

    /// How many of its threads are busy.
    pub(crate) const fn has_one_thread(self) -> bool {
        matches!(self, Self::Handler)
    }

    /// Starts a server of this kind on this core.
    pub(crate) fn start(self, core: usize) -> Result<Child, String> {
        Child::start("the server", &[MODE, self.name(), &core.to_string()])
    }
}

const OPTIONS: SendOptions = Load::OPTIONS;

/// The server's key, which stands here for everybody to read.
pub(crate) fn key() -> ServerKey {
    ServerKey::from_bytes([0xfa; 32])
}

/// Runs the server's process, if the arguments ask for it.
pub(crate) fn main(args: &[OsString]) -> Option<Result<(), String>> {
    let args: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let [MODE, face, core] = args.as_slice() else { return None };
    let face = Face::ALL.into_iter().find(|known| known.name() == *face)?;
    Some(run(face, core))
}

fn run(face: Face, core: &str) -> Result<(), String> {
    let core = core.parse().map_err(|_| "not a core".to_owned())?;
    // Threads that are started later stay on the same core.
    host::pin_current_thread(core).map_err(|error| error.to_string())?;
    let is_over = over_at_end_of_input();
    let counts = match face {
        Face::Handler => handler(&is_over)?,
        Face::Tick => tick(&is_over)?,
        Face::Naive => naive(&is_over)?,
    };
    say_counts(&counts).map_err(|error| error.to_string())
}

fn config() -> ServerConfig {
    ServerConfig::new(([127, 0, 0, 1], 0).into(), key(), Access::Open)
        .workers(Workers::Count(1))
        .receive_buffer_bytes(RECEIVE_BUFFER_BYTES)
}

/// What the echo counted, with what the server did.
fn counts(tally: &EchoTally, stats: &Stats) -> Counts {
    let mut counts = counts_of(stats);
    counts.insert("received".to_owned(), tally.received());
    counts.insert("refused".to_owned(), tally.refused());
    counts
}

fn handler(is_over: &AtomicBool) -> Result<Counts, String> {
    let tally = Arc::<EchoTally>::default();
    let make = |_| EchoHandler::new(&tally, OPTIONS);
    let server = serve(config(), make).map_err(|error| error.to_string())?;
    say(&server.local_addr().to_string()).map_err(|error| error.to_string())?;
    rest_until(is_over);
    Ok(counts(&tally, &server.stats()))
}

fn tick(is_over: &AtomicBool) -> Result<Counts, String> {
    let tally = EchoTally::default();
    let mut server = Server::bind(config()).map_err(|error| error.to_string())?;
    say(&server.local_addr().to_string()).map_err(|error| error.to_string())?;
    while !is_over.load(Ordering::Acquire) {
        server.wait(LOOK_UP);
        for event in server.poll() {
            if let Event::Message { peer, channel, bytes } = event {
                tally.on_received();
                tally.on_answer(server.send(peer, channel, bytes, OPTIONS).is_ok());
            }
        }
        server.flush();
    }
    Ok(counts(&tally, &server.stats()))
}

/// A message on its way to the other thread.
type Handed = (PeerId, ChannelId, Vec<u8>);

/// Hands each message to the other thread.
struct HandOver(SyncSender<Handed>, Arc<EchoTally>);

impl Handler for HandOver {
    type Note = ();

    fn on_message(&mut self, _: &mut Context<'_>, peer: PeerId, channel: ChannelId, bytes: &[u8]) {
        self.1.on_received();
        if self.0.try_send((peer, channel, bytes.to_vec())).is_err() {
            self.1.on_answer(false);
        }
    }
}

/// Answers each message it is handed, until nobody hands it any.
fn answer(inbox: &Receiver<Handed>, remote: &Remote<()>, tally: &EchoTally) {
    while let Ok((peer, channel, bytes)) = inbox.recv() {
        tally.on_answer(remote.send(peer, channel, bytes, OPTIONS).is_ok());
    }
}

fn naive(is_over: &AtomicBool) -> Result<Counts, String> {
    let tally = Arc::<EchoTally>::default();
    let (outbox, inbox) = sync_channel(WAITING_MAX);
    let make = |_| HandOver(outbox.clone(), Arc::clone(&tally));
    let server = serve(config(), make).map_err(|error| error.to_string())?;
    let (remote, of_thread) = (server.remote(), Arc::clone(&tally));
    std::thread::spawn(move || answer(&inbox, &remote, &of_thread));
    say(&server.local_addr().to_string()).map_err(|error| error.to_string())?;
    rest_until(is_over);
    Ok(counts(&tally, &server.stats()))
}

/// The threads of the server do everything meanwhile.
fn rest_until(is_over: &AtomicBool) {
    while !is_over.load(Ordering::Acquire) {
        clock::pause(LOOK_UP / 10);
    }
}
