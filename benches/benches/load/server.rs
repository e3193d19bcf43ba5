//! The server's process: it echoes, or announces everybody who comes to all who are there.

use std::ffi::OsString;
use std::sync::atomic::Ordering;
use std::time::Duration;

use drumfire::{BroadcastError, ChannelId, Event, GroupId, SendOptions, Server, ServerKey};
use drumfire_benches::{Child, Counts, counts_of, open_server, over_at_end_of_input, say_counts};
use drumfire_tools::clock;

/// The first argument of the server's process.
const MODE: &str = "--load-server";

/// How often an echoing server looks up when nothing comes.
const LOOK_UP: Duration = Duration::from_millis(10);

/// How often the newcomers are announced: what comes in between shares its datagrams.
const ANNOUNCED_EVERY: Duration = Duration::from_millis(250);

pub(crate) const CHANNEL: ChannelId = ChannelId(0);

const EVERYBODY: GroupId = GroupId(1);

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

    /// Starts a server with so many workers, for so many connections.
    pub(crate) fn start(self, workers: u32, connections: u32) -> Result<Child, String> {
        Child::start("the server", &[MODE, self.name(), &workers.to_string(), &connections.to_string()])
    }
}

/// The server's key, which stands here for everybody to read.
pub(crate) fn key() -> ServerKey {
    ServerKey::from_bytes([0x10; 32])
}

/// Runs the server's process, if the arguments ask for it.
pub(crate) fn main(args: &[OsString]) -> Option<Result<(), String>> {
    let args: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let [MODE, does, workers, connections] = args.as_slice() else { return None };
    let does = [Does::Echo, Does::Announce].into_iter().find(|known| known.name() == *does)?;
    Some(run(does, workers, connections))
}

fn run(does: Does, workers: &str, connections: &str) -> Result<(), String> {
    let server = open_server(key(), workers, connections)?;
    let is_over = over_at_end_of_input();
    let mut game = Game { server, tally: Tally::default() };
    while !is_over.load(Ordering::Acquire) {
        match does {
            Does::Echo => game.echo(),
            Does::Announce => game.announce(),
        }
    }
    say_counts(&game.counts()).map_err(|error| error.to_string())
}

/// What came, and what became of it.
#[derive(Default)]
struct Tally {
    came: u64,
    left: u64,
    received: u64,
    /// Answers for which a connection had no room.
    refused: u64,
    announced: u64,
    /// Members that there were for each announcement, in all.
    owed: u64,
    /// Announcements that could not be made, for want of room at a worker.
    not_announced: u64,
    /// Announcements for which a member had no room.
    missed: u64,
}

struct Game {
    server: Server,
    tally: Tally,
}

impl Game {
    fn echo(&mut self) {
        self.server.wait(LOOK_UP);
        for event in self.server.poll() {
            if let Event::Message { peer, channel, bytes } = event {
                self.tally.received += 1;
                let sent = self.server.send(peer, channel, bytes, SendOptions::unreliable());
                self.tally.refused += u64::from(sent.is_err());
            } else {
                self.tally.note(&event);
            }
        }
        self.server.flush();
    }

    fn announce(&mut self) {
        clock::pause(ANNOUNCED_EVERY);
        for event in self.server.poll() {
            self.tally.note(&event);
            let Event::Connected { peer, .. } = event else { continue };
            // Who left in the meantime is counted as such.
            if self.server.join(EVERYBODY, peer).is_err() {
                continue;
            }
            let number = self.tally.came.to_be_bytes().to_vec();
            match self.server.broadcast(EVERYBODY, CHANNEL, number, SendOptions::reliable_ordered()) {
                Ok(()) => {
                    self.tally.announced += 1;
                    self.tally.owed += self.tally.came - self.tally.left;
                }
                Err(BroadcastError::Full | _) => self.tally.not_announced += 1,
            }
        }
        self.server.flush();
    }

    fn counts(&self) -> Counts {
        let Tally { came, left, received, refused, announced, owed, not_announced, missed } = self.tally;
        let mut counts = counts_of(&self.server.stats());
        let own = [
            ("came", came),
            ("left", left),
            ("received", received),
            ("refused", refused),
            ("announced", announced),
            ("owed", owed),
            ("not announced", not_announced),
            ("missed", missed),
        ];
        counts.extend(own.map(|(name, count)| (name.to_owned(), count)));
        counts
    }
}

impl Tally {
    fn note(&mut self, event: &Event) {
        match event {
            Event::Connected { .. } => self.came += 1,
            Event::Disconnected { .. } => self.left += 1,
            Event::Missed { count, .. } => self.missed += u64::from(*count),
            _ => {}
        }
    }
}
