//! One more connection next to those of a load, which sends at fixed times as much as its schedule asks for.
//!
//! It sends messages, or the most expensive packets that the protocol permits. It runs on the calling thread. No congestion controller
//! holds it back, so that only the other end can.

use std::time::Duration;

use drumfire::config::Congestion;
use drumfire::{ChannelOptions, SendError, SendOptions, WhenFull};
use drumfire_crypto::Suite as KeySuite;
use drumfire_puppet::{Connector, PacketSealer, default_parameters};
use drumfire_tools::clock;
use drumfire_wire::{
    ChannelId, Delivery, Message as MessageFrame, Suite, SuiteOffer, limits::PACKET_FRAMES_MAX,
};

use crate::batch_socket::BatchSocket;
use crate::books::close;
use crate::client_pool::{ClientPool, ClientSettings};
use crate::process::Target;
use crate::tally::Window;
use crate::traffic::Client;

/// Messages or packets between two polls of the other connections, at most. A flood that is behind must not delay them.
const BURST_MAX: u64 = 32;

/// A rate that no path here reaches.
const LINE_RATE: Congestion = Congestion::Fixed { bytes_per_second: 1 << 36 };

/// The time within which all messages are acknowledged.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);

/// The time within which a sender of costly packets connects.
const CONNECTED_WITHIN: Duration = Duration::from_secs(5);

/// A handshake datagram without an answer is sent again after this time.
const RESEND_AFTER: Duration = Duration::from_millis(100);

/// The room for a costly packet.
const DATAGRAM_BYTES: usize = 1_200;

/// How a flood of messages is sent.
#[derive(Clone, Copy, Debug)]
pub struct FloodConfig {
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
    source: Source,
    per_second: u64,
    offered: u64,
    /// Datagrams before the window.
    sent_before: Option<u64>,
}

/// The sender of a flood.
enum Source {
    Messages(Box<MessageSource>),
    /// Each packet has as many frames as a packet may have, with the values of keys that the receiver does not know. In the bench `counts`,
    /// such packets cost their receiver most. They are sealed without the state of a connection, so nothing is sent again.
    CostlyPackets(Box<(BatchSocket, PacketSealer)>),
}

struct MessageSource {
    pool: ClientPool,
    when_full: WhenFull,
    message: Vec<u8>,
    books: FloodBooks,
    memory_most_bytes: usize,
}

impl Flood {
    fn new(source: Source, per_second: u64) -> Self {
        Self { source, per_second, offered: 0, sent_before: None }
    }

    /// Connects a client, to send `per_second` messages per second.
    pub fn connect(to: Target, per_second: u64, config: FloodConfig) -> Result<Self, String> {
        let settings = ClientSettings::new(to);
        let memory = config.memory_bytes;
        let core = settings.config.clone().congestion(LINE_RATE).memory_bytes(memory, memory);
        let options =
            if config.is_reliable { SendOptions::reliable_ordered() } else { SendOptions::unreliable() };
        // A socket with room for two connections sends no trains, of which the kernel would count a dropped one as one datagram.
        let mut pool = ClientPool::bind(ClientSettings { config: core, options, ..settings }, 1, 2)?;
        pool.connect_all(1)?;
        let (endpoint, peer) = pool.first().ok_or("the flood was not connected")?;
        let when_full = ChannelOptions::default().when_full(config.when_full);
        endpoint.set_channel_options(peer, drumfire::ChannelId(0), when_full);
        let message = vec![0x5a; config.message_bytes];
        let (when_full, books, memory_most_bytes) = (config.when_full, FloodBooks::default(), 0);
        let source = MessageSource { pool, when_full, message, books, memory_most_bytes };
        Ok(Self::new(Source::Messages(Box::new(source)), per_second))
    }

    /// Connects, to send `per_second` costly packets per second.
    pub fn connect_costly((server, key): Target, per_second: u64) -> Result<Self, String> {
        let mut wire = BatchSocket::connect(server, 8)?;
        let offer = SuiteOffer::mandatory();
        let offer = if KeySuite::Aes128Gcm.is_offered() { offer.with(Suite::Aes128Gcm) } else { offer };
        let mut client = Connector::new(&key.to_bytes(), [0x5e; 8], [0x5e; 32], &default_parameters(), offer);
        let is_in_time = clock::within(CONNECTED_WITHIN);
        let mut resend_at = clock::now();
        while !client.is_confirmed() {
            if !is_in_time() {
                return Err("the sender was not connected in time".to_owned());
            }
            let mut replies = Vec::new();
            wire.receive(|mut received| {
                for datagram in received.datagrams_mut() {
                    replies.extend(client.on_datagram(datagram.bytes.to_vec()));
                }
            });
            let now = clock::now();
            if now >= resend_at {
                replies.extend(client.resend());
            }
            if !replies.is_empty() {
                resend_at = now + RESEND_AFTER;
            }
            for datagram in &replies {
                wire.push(datagram);
            }
            wire.flush()?;
        }
        let sealer = client.into_sealer().ok_or("the sender has no keys")?;
        Ok(Self::new(Source::CostlyPackets(Box::new((wire, sealer))), per_second))
    }

    /// Sends what is due in the window, and receives.
    pub fn poll(&mut self, window: Window, now: u64) -> Result<(), String> {
        let first = self.offered;
        let due = self.due(window, now);
        match &mut self.source {
            Source::Messages(source) => source.send(now, due),
            Source::CostlyPackets(costly) => {
                let (wire, sealer) = &mut **costly;
                wire.receive(|_| {});
                (first..first + due).try_for_each(|packet| send_costly(wire, sealer, packet))?;
                wire.flush()
            }
        }
    }

    /// Returns the number of messages or packets to send now, at most [`BURST_MAX`].
    fn due(&mut self, window: Window, now: u64) -> u64 {
        if now < window.start {
            return 0;
        }
        let sent = self.sent();
        self.sent_before.get_or_insert(sent);
        let due = due_of_schedule(now.min(window.end) - window.start, self.per_second);
        let due = due.saturating_sub(self.offered).min(BURST_MAX);
        self.offered += due;
        due
    }

    /// Datagrams sent since the window began.
    pub fn sent_in_window(&self) -> u64 {
        self.sent() - self.sent_before.unwrap_or(0)
    }

    /// All datagrams sent.
    pub fn sent(&self) -> u64 {
        match &self.source {
            Source::Messages(source) => source.pool.counters().sent,
            Source::CostlyPackets(costly) => costly.0.counters().sent,
        }
    }

    /// Whether the connection has ended. The connection of costly packets has no state.
    pub fn is_over(&self) -> bool {
        matches!(&self.source, Source::Messages(source) if source.pool.ended() > 0)
    }

    /// The most bytes that the connection kept for sending, charges included. Costly packets are not kept.
    pub fn memory_most_bytes(&self) -> usize {
        match &self.source {
            Source::Messages(source) => source.memory_most_bytes,
            Source::CostlyPackets(_) => 0,
        }
    }

    /// Waits until all messages are acknowledged.
    pub fn settle(&mut self) {
        let Source::Messages(source) = &mut self.source else { return };
        let is_in_time = clock::within(SETTLED_WITHIN);
        while source.pool.ended() == 0 && is_in_time() {
            source.pool.poll_socket(0);
            let first = source.pool.first();
            if first.is_none_or(|(endpoint, peer)| endpoint.undelivered_bytes(peer) == 0) {
                return;
            }
        }
    }

    /// Closes the books of a stalled connection. `heard` is the number of messages that the application at the other end received.
    pub fn close(&mut self, heard: u64) -> Result<(), String> {
        let Source::Messages(source) = &mut self.source else { return Ok(()) };
        let (endpoint, _) = source.pool.first().ok_or("the flood was not connected")?;
        let (dropped, ended) = (endpoint.stats().messages_dropped, endpoint.stats().connections_closed);
        FloodBooks { dropped, ended, heard, ..source.books }.close(source.when_full)
    }
}

impl MessageSource {
    fn send(&mut self, now: u64, count: u64) -> Result<(), String> {
        let Self { pool, when_full, message, books, memory_most_bytes } = self;
        for _ in 0..count {
            books.offered += 1;
            match pool.try_send(now, 0, 0, message) {
                Ok(()) => {}
                Err(SendError::Full) => books.full += 1,
                Err(SendError::Closed | SendError::UnknownPeer) if *when_full == WhenFull::Disconnect => {
                    books.closed += 1;
                }
                Err(error) => return Err(format!("the flood: {error}")),
            }
        }
        if let Some((endpoint, peer)) = pool.first() {
            let kept = endpoint.peer_summary(peer).map_or(0, |summary| summary.send_memory_bytes);
            *memory_most_bytes = kept.max(*memory_most_bytes);
        }
        pool.flush(now)?;
        pool.poll_socket(0);
        Ok(())
    }
}

/// Seals and queues the costly packet with this number.
fn send_costly(wire: &mut BatchSocket, sealer: &mut PacketSealer, packet: u64) -> Result<(), String> {
    let mut datagram = [0; DATAGRAM_BYTES];
    // Long keys and versions cost more than short ones.
    let first = (1 << 63) + packet * u64::from(PACKET_FRAMES_MAX);
    let sealed = sealer.seal_frames(&mut datagram, 0, |frames| {
        (first..first + u64::from(PACKET_FRAMES_MAX)).try_for_each(|key| {
            let delivery = Delivery::ReliableLatest { key, version: key };
            frames.message(&MessageFrame { channel: ChannelId(1), delivery, payload: &[] }).ok()
        })
    });
    wire.push(&datagram[..sealed.ok_or("the sender's keys are used up")?]);
    Ok(())
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
    heard: u64,
}

impl FloodBooks {
    /// Compares all counters. Only messages of a connection that ended may be lost.
    fn close(&self, policy: WhenFull) -> Result<(), String> {
        let Self { offered, full, closed, dropped, ended, heard } = *self;
        let is = |of: &[WhenFull]| of.contains(&policy);
        let may = |may: bool| 0..=if may { u64::MAX } else { 0 };
        let (may_drop, ends) =
            (is(&[WhenFull::DropOldest, WhenFull::DropNewest]), u64::from(is(&[WhenFull::Disconnect])));
        let least = if ends > 0 { 0 } else { offered };
        close([
            ("messages with a place", full + closed + dropped + heard, least..=offered),
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
        FloodBooks { offered: 100, full: 60, closed: 0, dropped: 0, ended: 0, heard: 40 };
    const DROP: FloodBooks = FloodBooks { full: 0, dropped: 60, ..BLOCK };
    const DISCONNECT: FloodBooks = FloodBooks { full: 0, closed: 50, ended: 1, heard: 45, ..BLOCK };

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
            (FloodBooks { heard: 41, ..BLOCK }, WhenFull::Block, "with a place is"),
            (FloodBooks { dropped: 59, ..DROP }, WhenFull::DropOldest, "with a place is"),
            (FloodBooks { heard: 51, ..DISCONNECT }, WhenFull::Disconnect, "with a place is"),
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
