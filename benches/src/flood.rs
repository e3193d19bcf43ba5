//! One more connection next to those of a load, which sends messages at fixed times, more than the other end may take.
//!
//! It runs on the calling thread. No congestion controller holds it back, so that only the other end can.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire::config::Congestion;
use drumfire::{ChannelId, ChannelOptions, SendError, SendOptions, WhenFull};
use drumfire_tools::clock;

use crate::books::close;
use crate::client_socket::{ClientSettings, ClientSocket, RAMP_PER_SECOND};
use crate::tally::Window;
use crate::traffic::Client;

/// Messages between two polls of the other connections, at most. A flood that is behind must not delay them.
const BURST_MAX: u64 = 32;

/// A rate that no path here reaches.
const LINE_RATE: Congestion = Congestion::Fixed { bytes_per_second: 1 << 36 };

/// The time within which all messages are acknowledged.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);

/// How a flood is sent.
#[derive(Clone, Copy, Debug)]
pub struct FloodConfig {
    /// Messages per second.
    pub per_second: u64,
    /// Bytes of a message. Two messages must not fit one packet.
    pub message_bytes: usize,
    /// Whether messages are reliable and ordered, or unreliable.
    pub is_reliable: bool,
    /// The policy of the channel when its queue is full.
    pub when_full: WhenFull,
    /// The memory for sending, and for receiving.
    pub memory_bytes: usize,
}

/// A connection that sends more than the other end may take.
pub struct Flood {
    config: FloodConfig,
    socket: ClientSocket,
    message: Vec<u8>,
    books: FloodBooks,
    memory_max_bytes: usize,
    /// Datagrams before the window.
    sent_before: Option<u64>,
}

impl Flood {
    /// Connects a client.
    pub fn connect(address: SocketAddr, config: FloodConfig) -> Result<Self, String> {
        let settings = ClientSettings::new(address);
        let memory = config.memory_bytes;
        let core = settings.config.clone().congestion(LINE_RATE).memory_bytes(memory, memory);
        let options =
            if config.is_reliable { SendOptions::reliable_ordered() } else { SendOptions::unreliable() };
        // A socket with room for two connections sends no trains, of which the kernel would count a dropped one as one datagram.
        let mut socket = ClientSocket::bind(&ClientSettings { config: core, options, ..settings }, 2)?;
        ClientSocket::attempt(std::slice::from_mut(&mut socket), 1, RAMP_PER_SECOND, |_| Ok(()))?;
        let (endpoint, peer) = socket.first().ok_or("the flood was not connected")?;
        let when_full = ChannelOptions::default().when_full(config.when_full);
        endpoint.set_channel_options(peer, ChannelId(0), when_full);
        let (message, books) = (vec![0x5a; config.message_bytes], FloodBooks::default());
        Ok(Self { config, socket, message, books, memory_max_bytes: 0, sent_before: None })
    }

    /// Sends what is due in the window, at most `BURST_MAX` messages, and receives.
    pub fn poll(&mut self, window: Window, now: u64) -> Result<(), String> {
        if now < window.start {
            self.socket.poll();
            return Ok(());
        }
        let sent = self.sent();
        self.sent_before.get_or_insert(sent);
        let Self { config, socket, message, books, memory_max_bytes, .. } = self;
        let due = due_of_schedule(now.min(window.end) - window.start, config.per_second);
        for _ in 0..due.saturating_sub(books.offered).min(BURST_MAX) {
            books.offered += 1;
            match socket.try_send(now, 0, 0, message) {
                Ok(()) => {}
                Err(SendError::Full) => books.full += 1,
                Err(SendError::Closed | SendError::UnknownPeer)
                    if config.when_full == WhenFull::Disconnect =>
                {
                    books.closed += 1;
                }
                Err(error) => return Err(format!("the flood: {error}")),
            }
        }
        if let Some((endpoint, peer)) = socket.first() {
            let kept = endpoint.peer_summary(peer).map_or(0, |summary| summary.send_memory_bytes);
            *memory_max_bytes = kept.max(*memory_max_bytes);
        }
        socket.flush(now)?;
        socket.poll();
        Ok(())
    }

    /// Datagrams sent since the window began.
    pub fn sent_in_window(&self) -> u64 {
        self.sent() - self.sent_before.unwrap_or(0)
    }

    /// All datagrams sent.
    pub fn sent(&self) -> u64 {
        self.socket.counters().sent
    }

    /// Whether the connection has ended.
    pub fn is_over(&self) -> bool {
        self.socket.ended() > 0
    }

    /// The most bytes that the connection kept for sending, charges included.
    pub fn memory_max_bytes(&self) -> usize {
        self.memory_max_bytes
    }

    /// Waits until all messages are acknowledged.
    pub fn settle(&mut self) {
        let is_in_time = clock::within(SETTLED_WITHIN);
        while !self.is_over() && is_in_time() {
            self.socket.poll();
            let first = self.socket.first();
            if first.is_none_or(|(endpoint, peer)| endpoint.undelivered_bytes(peer) == 0) {
                return;
            }
        }
    }

    /// Closes the books of a stalled connection. `received` is the number of messages that the application at the other end received.
    pub fn close(&mut self, received: u64) -> Result<(), String> {
        let (endpoint, _) = self.socket.first().ok_or("the flood was not connected")?;
        let (dropped, ended) = (endpoint.stats().messages_dropped, endpoint.stats().connections_closed);
        FloodBooks { dropped, ended, received, ..self.books }.close(self.config.when_full)
    }
}

/// Returns the number of messages that are due after this time.
fn due_of_schedule(elapsed_ns: u64, per_second: u64) -> u64 {
    let due = u128::from(elapsed_ns) * u128::from(per_second) / 1_000_000_000;
    u64::try_from(due).unwrap_or(u64::MAX)
}

/// The books of a connection that sends more reliable messages than the other end takes. Each offered message has one place, and the
/// policy for a full queue has counted its actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FloodBooks {
    /// Messages that the schedule offered.
    offered: u64,
    /// Messages that were refused because there was no room.
    full: u64,
    /// Messages that were refused because the connection was closed.
    closed: u64,
    /// Messages that the policy dropped, by the sender's counter.
    dropped: u64,
    /// Connections that ended, by the sender's counter.
    ended: u64,
    /// Messages that the application at the other end received.
    received: u64,
}

impl FloodBooks {
    /// Compares all counters. Only messages of a connection that ended may be lost.
    fn close(&self, policy: WhenFull) -> Result<(), String> {
        let Self { offered, full, closed, dropped, ended, received } = *self;
        let is = |of: &[WhenFull]| of.contains(&policy);
        let may = |may: bool| 0..=if may { u64::MAX } else { 0 };
        let (may_drop, ends) =
            (is(&[WhenFull::DropOldest, WhenFull::DropNewest]), u64::from(is(&[WhenFull::Disconnect])));
        let min = if ends > 0 { 0 } else { offered };
        close([
            ("messages with a place", full + closed + dropped + received, min..=offered),
            ("refused by a policy that does not block", full, may(is(&[WhenFull::Block]))),
            ("dropped by a policy that does not drop", dropped, may(may_drop)),
            ("refused without an end", closed, may(ends > 0)),
            ("connections that ended", ended, ends..=ends),
            ("actions of the policy", full + dropped + ended, 1..=u64::MAX),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: FloodBooks =
        FloodBooks { offered: 100, full: 60, closed: 0, dropped: 0, ended: 0, received: 40 };
    const DROP: FloodBooks = FloodBooks { full: 0, dropped: 60, ..BLOCK };
    const DISCONNECT: FloodBooks = FloodBooks { full: 0, closed: 50, ended: 1, received: 45, ..BLOCK };

    #[test]
    fn messages_are_due_at_their_rate() {
        let due = [0, 9_999, 10_000, 2_000_000_000].map(|elapsed_ns| due_of_schedule(elapsed_ns, 100_000));
        assert_eq!(due, [0, 0, 1, 200_000]);
    }

    #[test]
    fn books_close_when_every_message_has_a_place() {
        for (books, policy) in [
            (BLOCK, WhenFull::Block),
            (DROP, WhenFull::DropOldest),
            (DROP, WhenFull::DropNewest),
            (DISCONNECT, WhenFull::Disconnect),
        ] {
            assert_eq!(books.close(policy), Ok(()));
        }
    }

    #[test]
    fn each_count_that_is_off_by_one_opens_the_books() {
        let wrong = [
            (FloodBooks { offered: 101, ..BLOCK }, WhenFull::Block, "with a place is"),
            (FloodBooks { received: 41, ..BLOCK }, WhenFull::Block, "with a place is"),
            (FloodBooks { dropped: 59, ..DROP }, WhenFull::DropOldest, "with a place is"),
            (FloodBooks { received: 51, ..DISCONNECT }, WhenFull::Disconnect, "with a place is"),
            (FloodBooks { ended: 1, ..BLOCK }, WhenFull::Block, "that ended is"),
            (FloodBooks { ended: 2, ..DISCONNECT }, WhenFull::Disconnect, "that ended is"),
            (FloodBooks { full: 1, offered: 101, ..DROP }, WhenFull::DropNewest, "does not block is"),
            (DROP, WhenFull::Block, "does not drop is"),
            (FloodBooks { closed: 1, offered: 101, ..BLOCK }, WhenFull::Block, "without an end is"),
            (FloodBooks { offered: 40, full: 0, ..BLOCK }, WhenFull::Block, "actions of the policy is 0"),
        ];
        for (books, policy, what) in wrong {
            let line = books.close(policy).expect_err("open books");
            assert!(line.starts_with("BOOKS DO NOT CLOSE") && line.contains(what), "{line}");
        }
    }
}
