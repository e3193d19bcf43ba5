//! Everybody who comes is announced to all who are there: what the server does for it, and what the clients heard of it.

use std::collections::HashMap;

use drumfire::{BroadcastError, ChannelId, ClientsEvent, Event, GroupId, PeerId, SendOptions, Server};

use crate::child::Counts;

const EVERYBODY: GroupId = GroupId(1);

const CHANNEL: ChannelId = ChannelId(0);

/// A server's side: it announces whom it is told of.
#[derive(Clone, Copy, Debug, Default)]
pub struct Announcer {
    came: u64,
    left: u64,
    announced: u64,
    /// Members that there were for each announcement, in all.
    owed: u64,
    /// Announcements that could not be made, for want of room at a worker.
    not_announced: u64,
    /// Announcements for which a member had no room.
    missed: u64,
}

impl Announcer {
    /// Announces who came with these events. What it says leaves with the next flush.
    pub fn announce(&mut self, server: &mut Server) {
        for event in server.poll() {
            match &event {
                Event::Connected { .. } => self.came += 1,
                Event::Disconnected { .. } => self.left += 1,
                Event::Missed { count, .. } => self.missed += u64::from(*count),
                _ => {}
            }
            let Event::Connected { peer, .. } = event else { continue };
            // Who left in the meantime is counted as such.
            if server.join(EVERYBODY, peer).is_err() {
                continue;
            }
            let number = self.came.to_be_bytes().to_vec();
            match server.broadcast(EVERYBODY, CHANNEL, number, SendOptions::reliable_ordered()) {
                Ok(()) => {
                    self.announced += 1;
                    self.owed += self.came - self.left;
                }
                Err(BroadcastError::Full | _) => self.not_announced += 1,
            }
        }
    }

    /// `came`, `left`, `announced`, `owed` (ears that there were for them), `not announced` and `missed`, both for want of room.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let Self { came, left, announced, owed, not_announced, missed } = *self;
        let counts = [
            ("came", came),
            ("left", left),
            ("announced", announced),
            ("owed", owed),
            ("not announced", not_announced),
            ("missed", missed),
        ];
        counts.map(|(name, count)| (name.to_owned(), count)).into()
    }
}

/// The clients' side: who heard what.
#[derive(Debug, Default)]
pub struct Ears {
    /// By socket and connection: the number that came last.
    last: Vec<HashMap<PeerId, u64>>,
    /// Announcements heard, in all.
    pub heard: u64,
    /// Announcements that did not follow the one before.
    pub gaps: u64,
    /// Messages that are none, or were heard before.
    pub strangers: u64,
}

impl Ears {
    /// Takes in what a connection of this socket heard.
    pub fn hear(&mut self, socket: usize, event: &ClientsEvent) {
        let ClientsEvent::Message { peer, bytes, .. } = event else { return };
        let Ok(bytes) = <[u8; 8]>::try_from(&bytes[..]) else {
            self.strangers += 1;
            return;
        };
        let number = u64::from_be_bytes(bytes);
        if self.last.len() <= socket {
            self.last.resize_with(socket + 1, HashMap::new);
        }
        let before = self.last[socket].insert(*peer, number);
        self.heard += 1;
        match before {
            Some(before) if number <= before => self.strangers += 1,
            Some(before) => self.gaps += u64::from(number > before + 1),
            None => {}
        }
    }
}

/// What so many connections hear when each comes as the first heard of all, and the last one of itself alone.
#[must_use]
pub const fn announcements(connected: u64) -> u64 {
    connected * (connected + 1) / 2
}
