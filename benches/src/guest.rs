//! One more connection beside a crowd, that sends as much as it is told at fixed times, whoever takes it or not.
//!
//! Its congestion controller holds nothing back, so that what stops it is the other end. It has a socket of its own and no
//! thread; whether the server bears it is the bench's affair.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire::{
    Bytes, ChannelId, ChannelOptions, ClientConfig, ClientsEvent, Congestion, Outcome, PeerId, SendError,
    SendOptions, ServerPublicKey, WhenFull,
};
use drumfire_tools::clock;

use crate::crowd::Crowd;
use crate::echoes::Window;
use crate::ledger::Ledger;

const CHANNEL: ChannelId = ChannelId(0);

/// Messages between two looks of the crowd, at most: those who measure do not wait for one who is behind.
const TRAIN: u64 = 32;

/// No controller holds it back.
const LINE_RATE: Congestion = Congestion::Fixed { bytes_per_second: 1 << 36 };

/// How often it looks at its own memory.
const LOOK_NS: u64 = 5_000_000;

/// Receipts that are not there after this will not come.
const PATIENCE: Duration = Duration::from_secs(10);

/// How it sends.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Messages in a second.
    pub per_second: u64,
    /// Bytes of each; two never fit a packet.
    pub message_bytes: usize,
    /// Every one is reliable and has a receipt, or none.
    pub is_reliable: bool,
    /// What the channel does when there is no room.
    pub when_full: WhenFull,
    /// Its memory for sending, and for receiving.
    pub memory_bytes: usize,
}

/// The connection, and its books.
#[derive(Debug)]
pub struct Guest {
    crowd: Crowd,
    peer: PeerId,
    manner: Manner,
    message: Bytes,
    ledger: Ledger,
    looked_at: u64,
    memory_most_bytes: usize,
    /// Datagrams before the window.
    sent_before: Option<u64>,
}

impl Guest {
    /// Connects it.
    ///
    /// # Errors
    ///
    /// One line: what could not be bound, or why there is no connection.
    pub fn connect(to: (SocketAddr, ServerPublicKey), manner: Manner) -> Result<Self, String> {
        let config = ClientConfig::default()
            .congestion(LINE_RATE)
            .memory_bytes(manner.memory_bytes, manner.memory_bytes);
        let mut crowd = Crowd::bind_with(1, 1, &config)?;
        let ramped = crowd.connect(to, 1, 1, |_, _| {})?;
        let Some((place, peer)) = crowd.peers().first().copied() else {
            return Err(format!("the guest was not connected: {:?}", ramped.failed));
        };
        if let Some(clients) = crowd.socket(place) {
            let options = ChannelOptions::default().when_full(manner.when_full);
            clients.set_channel_options(peer, CHANNEL, options);
        }
        Ok(Self {
            crowd,
            peer,
            manner,
            message: vec![0x5a; manner.message_bytes].into(),
            ledger: Ledger::default(),
            looked_at: 0,
            memory_most_bytes: 0,
            sent_before: None,
        })
    }

    /// Sends what is due, within the window alone, and takes in what came.
    ///
    /// # Errors
    ///
    /// One line, when the connection takes no message for another reason than those of its policy.
    pub fn turn(&mut self, window: Window, now: u64) -> Result<(), String> {
        if now >= window.start {
            let sent = self.crowd.carried().sent;
            self.sent_before.get_or_insert(sent);
            let due = due(window, self.manner.per_second, now);
            for _ in 0..due.saturating_sub(self.ledger.offered).min(TRAIN) {
                self.offer()?;
            }
        }
        if now.saturating_sub(self.looked_at) >= LOOK_NS {
            self.looked_at = now;
            if let Some(clients) = self.crowd.socket(0) {
                clients.request_stats(self.peer);
            }
        }
        self.crowd.flush();
        self.look();
        Ok(())
    }

    fn offer(&mut self) -> Result<(), String> {
        let options = if self.manner.is_reliable {
            SendOptions::reliable_ordered().with_receipt()
        } else {
            SendOptions::unreliable()
        };
        self.ledger.offered += 1;
        let clients = self.crowd.socket(0).ok_or("no such socket")?;
        match clients.send(self.peer, CHANNEL, self.message.clone(), options) {
            Ok(_) if self.manner.is_reliable => self.ledger.unanswered += 1,
            // Nobody hears what becomes of it.
            Ok(_) => {}
            Err(SendError::Full) => self.ledger.full += 1,
            Err(SendError::Closed | SendError::UnknownPeer)
                if self.manner.when_full == WhenFull::Disconnect =>
            {
                self.ledger.closed += 1;
            }
            Err(error) => return Err(format!("the guest: {error}")),
        }
        Ok(())
    }

    fn look(&mut self) {
        let Self { crowd, ledger, memory_most_bytes, .. } = self;
        crowd.look(|_, event| match event {
            ClientsEvent::Receipt { outcome, .. } => {
                ledger.unanswered -= 1;
                match outcome {
                    Outcome::Acknowledged => ledger.acknowledged += 1,
                    Outcome::Expired => ledger.dropped += 1,
                    Outcome::Lost => ledger.lost += 1,
                }
            }
            ClientsEvent::Stats { stats, .. } => {
                *memory_most_bytes = (*memory_most_bytes).max(stats.send_memory_bytes);
            }
            _ => {}
        });
    }

    /// Waits until it is known of each message what became of it.
    pub fn settle(&mut self) {
        let deadline = clock::now() + PATIENCE;
        while self.ledger.unanswered > 0 && clock::now() < deadline {
            self.look();
            self.crowd.flush();
        }
    }

    /// Its books, when the other end's application found so many messages.
    #[must_use]
    pub fn ledger(&self, heard: u64) -> Ledger {
        let counted = self.crowd.socket_stats(0).map(|stats| stats.protocol).unwrap_or_default();
        Ledger {
            counted_dropped: counted.messages_dropped,
            counted_closed: counted.connections_closed,
            heard,
            ..self.ledger
        }
    }

    /// Datagrams that it sent since the window began.
    #[must_use]
    pub fn sent_in_window(&self) -> u64 {
        self.sent().saturating_sub(self.sent_before.unwrap_or(0))
    }

    /// Datagrams that it sent in all.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.crowd.carried().sent
    }

    /// Whether its connection is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.crowd.ended() > 0
    }

    /// Bytes that its connection kept at most for sending, as its stats say, charges included.
    #[must_use]
    pub fn memory_most_bytes(&self) -> usize {
        self.memory_most_bytes
    }
}

/// Messages that are to be sent by now.
pub(crate) fn due(window: Window, per_second: u64, now: u64) -> u64 {
    let elapsed = now.min(window.end).saturating_sub(window.start);
    let due = u128::from(elapsed) * u128::from(per_second) / 1_000_000_000;
    u64::try_from(due).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_due_within_the_window_alone() {
        let window = Window::beginning_at(1_000_000_000, Duration::from_secs(2));
        let at = |now| due(window, 100_000, now);
        assert_eq!((at(0), at(1_000_000_000), at(1_000_009_999), at(1_000_010_000)), (0, 0, 0, 1));
        assert_eq!((at(2_000_000_000), at(3_000_000_000), at(u64::MAX)), (100_000, 200_000, 200_000));
        assert_eq!(due(Window { start: 0, end: u64::MAX }, u64::MAX, u64::MAX), u64::MAX);
    }
}
