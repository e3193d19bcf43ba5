//! A connection next to those of a load that sends more messages than the other end accepts, at fixed times.
//!
//! It runs on the calling thread. Its rate has no congestion controller, so that only the other end limits it.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire::config::Congestion;
use drumfire::{ChannelId, ChannelOptions, SendError, SendOptions, WhenFull};
use drumfire_tools::clock;

use crate::books::close;
use crate::client::Client;
use crate::client_socket::{ClientSettings, ClientSocket, RAMP_PER_SECOND};
use crate::recorder::Window;

/// The number of messages that a flood sends per second.
pub const FLOOD_PER_SECOND: u64 = 100_000;

/// The memory of the connection of a flood for sending, and for receiving.
pub const FLOOD_MEMORY_BYTES: usize = 256 * 1_024;

/// The payload of a message. Each message fills a packet of its own.
const MESSAGE: [u8; 1_000] = [0x5a; 1_000];

/// The maximum number of messages between two polls of the other connections. A flood that is behind must not delay them.
const BURST_MAX: u64 = 32;

/// A rate that no path here reaches.
const LINE_RATE: Congestion = Congestion::Fixed { bytes_per_second: 1 << 36 };

/// The time within which all messages are acknowledged.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);

/// A connection that sends more than the other end accepts.
pub struct Flood {
    /// The policy of the channel when its queue is full. With `None`, messages are unreliable.
    when_full: Option<WhenFull>,
    socket: ClientSocket,
    counts: FloodCounts,
    memory_max_bytes: usize,
    /// The number of datagrams that were sent before the window.
    sent_before: Option<u64>,
}

impl Flood {
    /// Connects a client. Its messages are reliable and ordered if there is a policy for a full queue.
    pub fn connect(address: SocketAddr, when_full: Option<WhenFull>) -> Result<Self, String> {
        let settings = ClientSettings::new(address);
        let config = settings.config.clone().congestion(LINE_RATE);
        let config = config.memory_bytes(FLOOD_MEMORY_BYTES, FLOOD_MEMORY_BYTES);
        let options = when_full.map_or(SendOptions::unreliable(), |_| SendOptions::reliable_ordered());
        // A socket with room for two connections sends no trains, of which the kernel would count a dropped one as one datagram.
        let mut socket = ClientSocket::bind(&ClientSettings { config, options, ..settings }, 2)?;
        ClientSocket::attempt(std::slice::from_mut(&mut socket), 1, RAMP_PER_SECOND, |_| Ok(()))?;
        let (endpoint, peer) = socket.first().ok_or("the flood was not connected")?;
        let options = ChannelOptions::default().when_full(when_full.unwrap_or_default());
        endpoint.set_channel_options(peer, ChannelId(0), options);
        Ok(Self { when_full, socket, counts: FloodCounts::default(), memory_max_bytes: 0, sent_before: None })
    }

    /// Sends the messages that are due in the window, at most `BURST_MAX`, and receives. Without a window it only receives.
    pub fn poll(&mut self, window: Option<Window>, now: u64) -> Result<(), String> {
        let Some(window) = window else {
            self.socket.poll();
            return Ok(());
        };
        let sent = self.sent();
        self.sent_before.get_or_insert(sent);
        let Self { when_full, socket, counts, memory_max_bytes, .. } = self;
        let due = due_of_schedule(now.min(window.end) - window.start);
        for _ in 0..due.saturating_sub(counts.offered).min(BURST_MAX) {
            counts.offered += 1;
            match socket.try_send(now, 0, 0, &MESSAGE) {
                Ok(()) => {}
                Err(SendError::Full) => counts.full += 1,
                Err(SendError::Closed | SendError::UnknownPeer)
                    if *when_full == Some(WhenFull::Disconnect) =>
                {
                    counts.closed += 1;
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
        self.socket.sent()
    }

    /// Whether the connection has ended.
    pub fn is_over(&self) -> bool {
        self.socket.ended() > 0
    }

    /// The maximum number of bytes that the connection kept for sending, charges included.
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
        FloodCounts { dropped, ended, received, ..self.counts }.close(self.when_full.unwrap_or_default())
    }
}

/// Returns the number of messages that are due after this time.
const fn due_of_schedule(elapsed_ns: u64) -> u64 {
    elapsed_ns / (1_000_000_000 / FLOOD_PER_SECOND)
}

/// The counts of a connection that sends more reliable messages than the other end takes. Each offered message has one place, and the
/// policy for a full queue has counted its actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FloodCounts {
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

impl FloodCounts {
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

    const BLOCK: FloodCounts =
        FloodCounts { offered: 100, full: 60, closed: 0, dropped: 0, ended: 0, received: 40 };
    const DROP: FloodCounts = FloodCounts { full: 0, dropped: 60, ..BLOCK };
    const DISCONNECT: FloodCounts = FloodCounts { full: 0, closed: 50, ended: 1, received: 45, ..BLOCK };

    #[test]
    fn messages_are_due_at_their_rate() {
        let due = [0, 9_999, 10_000, 2_000_000_000].map(due_of_schedule);
        assert_eq!(due, [0, 0, 1, 200_000]);
    }

    #[test]
    fn books_close_when_every_message_has_a_place() {
        for (counts, policy) in [
            (BLOCK, WhenFull::Block),
            (DROP, WhenFull::DropOldest),
            (DROP, WhenFull::DropNewest),
            (DISCONNECT, WhenFull::Disconnect),
        ] {
            assert_eq!(counts.close(policy), Ok(()));
        }
    }

    #[test]
    fn each_count_that_is_off_by_one_opens_the_books() {
        let wrong = [
            (FloodCounts { offered: 101, ..BLOCK }, WhenFull::Block, "with a place is"),
            (FloodCounts { received: 41, ..BLOCK }, WhenFull::Block, "with a place is"),
            (FloodCounts { dropped: 59, ..DROP }, WhenFull::DropOldest, "with a place is"),
            (FloodCounts { received: 51, ..DISCONNECT }, WhenFull::Disconnect, "with a place is"),
            (FloodCounts { ended: 1, ..BLOCK }, WhenFull::Block, "that ended is"),
            (FloodCounts { ended: 2, ..DISCONNECT }, WhenFull::Disconnect, "that ended is"),
            (FloodCounts { full: 1, offered: 101, ..DROP }, WhenFull::DropNewest, "does not block is"),
            (DROP, WhenFull::Block, "does not drop is"),
            (FloodCounts { closed: 1, offered: 101, ..BLOCK }, WhenFull::Block, "without an end is"),
            (FloodCounts { offered: 40, full: 0, ..BLOCK }, WhenFull::Block, "actions of the policy is 0"),
        ];
        for (counts, policy, named) in wrong {
            let line = counts.close(policy).expect_err("open books");
            assert!(line.starts_with("BOOKS DO NOT CLOSE") && line.contains(named), "{line}");
        }
    }
}
