//! One more connection next to those of a load, which sends at fixed times as much as its schedule asks for.
//!
//! A [`Flood`] sends messages through the crate, a [`CostlySender`] the most expensive packets that the protocol permits. Both run on
//! the calling thread. No congestion controller holds them back, so that only the other end can.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use drumfire::config::Congestion;
use drumfire::{
    Bytes, ChannelOptions, Client, ClientConfig, Event, Message, Outcome, PeerId, SendError, ServerPublicKey,
    WhenFull,
};
use drumfire_crypto::Suite as KeySuite;
use drumfire_puppet::{Connector, PacketSealer, default_parameters};
use drumfire_tools::clock;
use drumfire_wire::{
    ChannelId, Delivery, Message as MessageFrame, Suite, SuiteOffer, limits::PACKET_FRAMES_MAX,
};

use crate::batch_socket::BatchSocket;
use crate::books::ReceiptBooks;
use crate::tally::Window;

const CHANNEL: drumfire::ChannelId = drumfire::ChannelId(0);

/// Messages or packets between two polls of the other connections, at most. A flood that is behind must not delay them.
const BURST_MAX: u64 = 32;

/// A rate that no path here reaches.
const LINE_RATE: Congestion = Congestion::Fixed { bytes_per_second: 1 << 36 };

/// The interval in which a flood reads its memory.
const STATS_NS: u64 = 5_000_000;

/// The time within which all receipts arrive.
const RECEIPTS_WITHIN: Duration = Duration::from_secs(10);

/// How a [`Flood`] sends.
#[derive(Clone, Copy, Debug)]
pub struct FloodConfig {
    /// Messages per second.
    pub per_second: u64,
    /// Bytes of a message. Two messages must not fit one packet.
    pub message_bytes: usize,
    /// Whether messages are reliable with a receipt, or unreliable without one.
    pub is_reliable: bool,
    /// The policy of the channel when its queue is full.
    pub when_full: WhenFull,
    /// The memory for sending, and for receiving.
    pub memory_bytes: usize,
}

/// A connection that sends more messages than the other end may take.
#[derive(Debug)]
pub struct Flood {
    clients: Client,
    peer: PeerId,
    config: FloodConfig,
    message: Bytes,
    schedule: FixedRate,
    books: ReceiptBooks,
    stats_at: u64,
    memory_most_bytes: usize,
    is_over: bool,
}

impl Flood {
    /// Connects a client with this configuration.
    pub fn connect(
        (server, key): (SocketAddr, ServerPublicKey),
        config: FloodConfig,
    ) -> Result<Self, String> {
        let client = ClientConfig::default()
            .congestion(LINE_RATE)
            .memory_bytes(config.memory_bytes, config.memory_bytes);
        let clients = Client::new(client.address((Ipv4Addr::LOCALHOST, 0).into()));
        let mut clients = clients.map_err(|error| format!("the flood's socket: {error}"))?;
        let peer = clients.connect((server, key)).map_err(|error| format!("the flood: {error}"))?;
        let deadline = clock::now() + CONNECTED_WITHIN;
        loop {
            clients.poll(RESEND_AFTER);
            match clients.next_event() {
                Some(Event::Connected { .. }) => break,
                Some(event) => return Err(format!("the flood was not connected: {event:?}")),
                None if clock::now() < deadline => {}
                None => return Err("the flood was not connected in time".to_owned()),
            }
        }
        clients.set_channel_options(peer, CHANNEL, ChannelOptions::default().when_full(config.when_full));
        Ok(Self {
            clients,
            peer,
            config,
            message: vec![0x5a; config.message_bytes].into(),
            schedule: FixedRate::new(config.per_second),
            books: ReceiptBooks::default(),
            stats_at: 0,
            memory_most_bytes: 0,
            is_over: false,
        })
    }

    /// Sends the messages that are due in the window, and receives.
    pub fn poll(&mut self, window: Window, now: u64) -> Result<(), String> {
        for _ in 0..self.schedule.due(window, now, self.sent()) {
            self.offer()?;
        }
        if now.saturating_sub(self.stats_at) >= STATS_NS {
            self.stats_at = now;
            self.clients.request_stats(self.peer);
        }
        self.clients.flush();
        self.receive();
        Ok(())
    }

    fn offer(&mut self) -> Result<(), String> {
        self.books.offered += 1;
        let message = self.message.clone();
        let sent = if self.config.is_reliable {
            self.clients.send_with_receipt(self.peer, Message::reliable_ordered(CHANNEL, message)).map(drop)
        } else {
            self.clients.send(self.peer, Message::unreliable(CHANNEL, message))
        };
        match sent {
            Ok(()) => self.books.unanswered += u64::from(self.config.is_reliable),
            Err(SendError::Full) => self.books.full += 1,
            Err(SendError::Closed | SendError::UnknownPeer)
                if self.config.when_full == WhenFull::Disconnect =>
            {
                self.books.closed += 1;
            }
            Err(error) => return Err(format!("the flood: {error}")),
        }
        Ok(())
    }

    fn receive(&mut self) {
        let Self { clients, books, memory_most_bytes, is_over, .. } = self;
        clients.poll(Duration::ZERO);
        while let Some(event) = clients.next_event() {
            match event {
                Event::Receipt { outcome, .. } => {
                    books.unanswered -= 1;
                    match outcome {
                        Outcome::Acknowledged => books.acknowledged += 1,
                        Outcome::Expired => books.dropped += 1,
                        Outcome::Lost => books.lost += 1,
                    }
                }
                Event::Stats { stats, .. } => {
                    *memory_most_bytes = (*memory_most_bytes).max(stats.send_memory_bytes);
                }
                Event::Disconnected { .. } => *is_over = true,
                _ => {}
            }
        }
    }

    /// Waits for the receipts of all messages.
    pub fn settle(&mut self) {
        let deadline = clock::now() + RECEIPTS_WITHIN;
        while self.books.unanswered > 0 && clock::now() < deadline {
            self.receive();
            self.clients.flush();
        }
    }

    /// Closes the books of a stalled connection. `heard` is the number of messages that the application at the other end received.
    pub fn close(&self, heard: u64) -> Result<(), String> {
        let counted = self.clients.stats().protocol;
        let books = ReceiptBooks {
            counted_dropped: counted.messages_dropped,
            counted_closed: counted.connections_closed,
            heard,
            ..self.books
        };
        books.close(self.config.when_full)
    }

    /// Datagrams sent since the window began.
    pub fn sent_in_window(&self) -> u64 {
        self.sent() - self.schedule.sent_before.unwrap_or(0)
    }

    /// All datagrams sent.
    pub fn sent(&self) -> u64 {
        self.clients.stats().sent.datagrams
    }

    /// Whether the connection has ended.
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// The most bytes that the connection kept for sending, as its statistics report, charges included.
    pub fn memory_most_bytes(&self) -> usize {
        self.memory_most_bytes
    }
}

/// Messages or packets at a fixed rate within a window.
#[derive(Debug)]
struct FixedRate {
    per_second: u64,
    offered: u64,
    /// Datagrams before the window.
    sent_before: Option<u64>,
}

impl FixedRate {
    const fn new(per_second: u64) -> Self {
        Self { per_second, offered: 0, sent_before: None }
    }

    /// Returns the number of messages to send now, at most [`BURST_MAX`]. `sent` is the number of datagrams until now.
    fn due(&mut self, window: Window, now: u64, sent: u64) -> u64 {
        if now < window.start {
            return 0;
        }
        self.sent_before.get_or_insert(sent);
        let elapsed = now.min(window.end) - window.start;
        let due = u128::from(elapsed) * u128::from(self.per_second) / 1_000_000_000;
        let due = u64::try_from(due).unwrap_or(u64::MAX).saturating_sub(self.offered).min(BURST_MAX);
        self.offered += due;
        due
    }
}

/// The time within which a sender of costly packets connects.
const CONNECTED_WITHIN: Duration = Duration::from_secs(5);

/// A handshake datagram without an answer is sent again after this time.
const RESEND_AFTER: Duration = Duration::from_millis(100);

/// The room for a costly packet.
const DATAGRAM_BYTES: usize = 1_200;

/// A connection that sends the most expensive packets that the protocol permits.
///
/// They are the packets of the bench `counts` that cost their receiver most. Each has as many frames as a packet may have, with the
/// values of keys that the receiver does not know. They are sealed without the state of a connection, so nothing is sent again.
pub struct CostlySender {
    wire: BatchSocket,
    sealer: PacketSealer,
    schedule: FixedRate,
}

impl CostlySender {
    /// Connects, to send `per_second` packets per second.
    pub fn connect((server, key): (SocketAddr, ServerPublicKey), per_second: u64) -> Result<Self, String> {
        let mut wire = BatchSocket::connect(server, 8)?;
        let offer = SuiteOffer::mandatory();
        let offer = if KeySuite::Aes128Gcm.is_offered() { offer.with(Suite::Aes128Gcm) } else { offer };
        let mut client = Connector::new(&key.to_bytes(), [0x5e; 8], [0x5e; 32], &default_parameters(), offer);
        let began = clock::now();
        let mut sent_at = None;
        while !client.is_confirmed() {
            let now = clock::now();
            if now.duration_since(began) > CONNECTED_WITHIN {
                return Err("the sender was not connected in time".to_owned());
            }
            let mut replies = Vec::new();
            wire.receive(|mut received| {
                for datagram in received.datagrams_mut() {
                    replies.extend(client.on_datagram(datagram.bytes.to_vec()));
                }
            });
            if sent_at.is_none_or(|at| now.duration_since(at) >= RESEND_AFTER) {
                replies.extend(client.resend());
            }
            if !replies.is_empty() {
                sent_at = Some(now);
            }
            for datagram in &replies {
                wire.push(datagram);
            }
            wire.flush()?;
        }
        let sealer = client.into_sealer().ok_or("the sender has no keys")?;
        Ok(Self { wire, sealer, schedule: FixedRate::new(per_second) })
    }

    /// Sends the packets that are due in the window, and ignores what comes.
    pub fn poll(&mut self, window: Window, now: u64) -> Result<(), String> {
        self.wire.receive(|_| {});
        let (first_packet, sent) = (self.schedule.offered, self.sent());
        let mut datagram = [0; DATAGRAM_BYTES];
        for packet in 0..self.schedule.due(window, now, sent) {
            // Long keys and versions cost more than short ones.
            let first = (1 << 63) + (first_packet + packet) * u64::from(PACKET_FRAMES_MAX);
            let sealed = self.sealer.seal_frames(&mut datagram, 0, |frames| {
                (first..first + u64::from(PACKET_FRAMES_MAX)).try_for_each(|key| {
                    let delivery = Delivery::ReliableLatest { key, version: key };
                    frames.message(&MessageFrame { channel: ChannelId(1), delivery, payload: &[] }).ok()
                })
            });
            self.wire.push(&datagram[..sealed.ok_or("the sender's keys are used up")?]);
        }
        self.wire.flush()
    }

    /// Datagrams sent since the window began.
    pub fn sent_in_window(&self) -> u64 {
        self.sent() - self.schedule.sent_before.unwrap_or(0)
    }

    /// All datagrams sent.
    pub fn sent(&self) -> u64 {
        self.wire.counters().sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_due_within_the_window_alone() {
        let window = Window::beginning_at(1_000_000_000, Duration::from_secs(2));
        let mut schedule = FixedRate::new(100_000);
        let mut at = |now| schedule.due(window, now, 7);
        assert_eq!((at(0), at(1_000_000_000), at(1_000_009_999), at(1_000_010_000)), (0, 0, 0, 1));
        assert_eq!(at(2_000_000_000), BURST_MAX);
        let rest: u64 = (0..10_000).map(|_| at(u64::MAX)).sum();
        assert_eq!((rest + BURST_MAX + 1, schedule.sent_before), (200_000, Some(7)));
    }
}
