//! The server's process: it echoes, or announces everybody who comes to all who are there.

use std::ffi::OsString;
use std::sync::atomic::Ordering;
use std::time::Duration;

use drumfire::{ChannelId, Event, SendOptions, Server, ServerKey};
use drumfire_benches::{
    Announcer, Child, Counts, counts_of, open_server, over_at_end_of_input, pin_to, say_counts,
};
use drumfire_tools::clock;

/// The first argument of the server's process.
const MODE: &str = "--load-server";

/// How often an echoing server looks up when nothing comes.
const LOOK_UP: Duration = Duration::from_millis(10);

/// How often the newcomers are announced: what comes in between shares its datagrams.
const ANNOUNCED_EVERY: Duration = Duration::from_millis(250);

pub(crate) const CHANNEL: ChannelId = ChannelId(0);

/// What the server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    /// Sends back what it hears.
    Echo,
    /// Tells all who are there of everybody who comes.
    Announce,
}

impl Does {
    const fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Announce => "announce",
        }
    }

    /// Starts a server with so many workers, for so many connections; on this core, or where it likes.
    pub(crate) fn start(self, workers: u32, connections: u32, core: Option<usize>) -> Result<Child, String> {
        let (workers, connections) = (workers.to_string(), connections.to_string());
        let core = core.map(|core| core.to_string());
        let args = [MODE, self.name(), &workers, &connections].into_iter().chain(core.as_deref());
        Child::start("the server", &args.collect::<Vec<_>>())
    }
}

/// The server's key, which stands here for everybody to read.
pub(crate) fn key() -> ServerKey {
    ServerKey::from_bytes([0x10; 32])
}

/// Runs the server's process, if the arguments ask for it.
pub(crate) fn main(args: &[OsString]) -> Option<Result<(), String>> {
    let args: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let [MODE, does, workers, connections, core @ ..] = args.as_slice() else { return None };
    let does = [Does::Echo, Does::Announce].into_iter().find(|known| known.name() == *does)?;
    Some(core.iter().try_for_each(|core| pin_to(core)).and_then(|()| run(does, workers, connections)))
}

fn run(does: Does, workers: &str, connections: &str) -> Result<(), String> {
    let server = open_server(key(), workers, connections)?;
    let is_over = over_at_end_of_input();
    let mut game = Game { server, tally: Tally::default(), announcer: Announcer::default() };
    while !is_over.load(Ordering::Acquire) {
        match does {
            Does::Echo => game.echo(),
            Does::Announce => game.announce(),
        }
    }
    say_counts(&game.counts()).map_err(|error| error.to_string())
}

/// What came to one that echoes, and what became of it.
#[derive(Default)]
struct Tally {
    left: u64,
    received: u64,
    /// Answers for which a connection had no room.
    refused: u64,
}

struct Game {
    server: Server,
    tally: Tally,
    announcer: Announcer,
}

impl Game {
    fn echo(&mut self) {
        self.server.wait(LOOK_UP);
        for event in self.server.poll() {
            match event {
                Event::Message { peer, channel, bytes } => {
                    self.tally.received += 1;
                    let sent = self.server.send(peer, channel, bytes, SendOptions::unreliable());
                    self.tally.refused += u64::from(sent.is_err());
                }
                Event::Disconnected { .. } => self.tally.left += 1,
                _ => {}
            }
        }
        self.server.flush();
    }

    fn announce(&mut self) {
        clock::pause(ANNOUNCED_EVERY);
        self.announcer.announce(&mut self.server);
        self.server.flush();
    }

    fn counts(&self) -> Counts {
        let Tally { left, received, refused } = self.tally;
        let mut counts = counts_of(&self.server.stats());
        counts.extend(self.announcer.counts());
        let own = [("received", received), ("refused", refused)];
        counts.extend(own.map(|(name, count)| (name.to_owned(), count)));
        // One of the two is always nobody.
        *counts.entry("left".to_owned()).or_default() += left;
        counts
    }
}
