//! One more connection next to a crowd. It sends the most expensive packets that the protocol allows, at fixed times.
//!
//! The packets are those of the bench `counts` that cost their receiver most: as many frames as a packet may have, each the
//! value of a key that the receiver does not know. They are sealed without a connection's books, so nothing is sent again.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire::ServerPublicKey;
use drumfire_crypto::Suite as KeySuite;
use drumfire_puppet::{Connector, PacketSealer, default_parameters};
use drumfire_tools::clock;
use drumfire_wire::{ChannelId, Delivery, Message, Suite, SuiteOffer, limits::PACKET_FRAMES_MAX};

use crate::echoes::Window;
use crate::guest::due;
use crate::wire::Wire;

/// How long connecting may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The time without an answer after which a datagram is sent again.
const RESEND_AFTER: Duration = Duration::from_millis(100);

/// Packets between two looks of the crowd, at most.
const TRAIN: u64 = 32;

/// Longer than any of its packets.
const DATAGRAM_BYTES: usize = 1_200;

/// The connection, and its counts.
pub struct Spender {
    wire: Wire,
    sealer: PacketSealer,
    per_second: u64,
    offered: u64,
    /// Datagrams before the window.
    sent_before: Option<u64>,
}

impl Spender {
    /// Connects it, to send `per_second` packets in a second.
    ///
    /// # Errors
    ///
    /// One line: what could not be opened, or that there is no connection.
    pub fn connect((server, key): (SocketAddr, ServerPublicKey), per_second: u64) -> Result<Self, String> {
        let mut wire = Wire::connect(server, 8)?;
        let offer = SuiteOffer::mandatory();
        let offer = if KeySuite::Aes128Gcm.is_offered() { offer.with(Suite::Aes128Gcm) } else { offer };
        let mut client = Connector::new(&key.to_bytes(), [0x5e; 8], [0x5e; 32], &default_parameters(), offer);
        let began = clock::now();
        let mut sent_at = None;
        while !client.is_confirmed() {
            let now = clock::now();
            if now.duration_since(began) > PATIENCE {
                return Err("the spender was not connected in time".to_owned());
            }
            let mut answers = Vec::new();
            wire.receive(|mut received| {
                for datagram in received.datagrams_mut() {
                    answers.extend(client.on_datagram(datagram.bytes.to_vec()));
                }
            });
            if sent_at.is_none_or(|at| now.duration_since(at) >= RESEND_AFTER) {
                answers.extend(client.resend());
            }
            if !answers.is_empty() {
                sent_at = Some(now);
            }
            for datagram in &answers {
                wire.push(datagram);
            }
            wire.flush()?;
        }
        let sealer = client.into_sealer().ok_or("the spender has no keys")?;
        Ok(Self { wire, sealer, per_second, offered: 0, sent_before: None })
    }

    /// Sends what is due within the window, and takes no notice of what came.
    ///
    /// # Errors
    ///
    /// One line, when the socket takes no more or the keys are used up.
    pub fn turn(&mut self, window: Window, now: u64) -> Result<(), String> {
        self.wire.receive(|_| {});
        if now < window.start {
            return Ok(());
        }
        let sent = self.sent();
        self.sent_before.get_or_insert(sent);
        let count = due(window, self.per_second, now).saturating_sub(self.offered).min(TRAIN);
        let mut datagram = [0; DATAGRAM_BYTES];
        for _ in 0..count {
            // Long keys and versions cost more than short ones.
            let first = (1 << 63) + self.offered * u64::from(PACKET_FRAMES_MAX);
            let sealed = self.sealer.seal_frames(&mut datagram, 0, |frames| {
                (first..first + u64::from(PACKET_FRAMES_MAX)).try_for_each(|key| {
                    let delivery = Delivery::ReliableLatest { key, version: key };
                    frames.message(&Message { channel: ChannelId(1), delivery, payload: &[] }).ok()
                })
            });
            self.wire.push(&datagram[..sealed.ok_or("the spender's keys are used up")?]);
            self.offered += 1;
        }
        self.wire.flush()
    }

    /// Datagrams that it sent since the window began.
    #[must_use]
    pub fn sent_in_window(&self) -> u64 {
        self.sent().saturating_sub(self.sent_before.unwrap_or(0))
    }

    /// Datagrams that it sent in all.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.wire.datagrams_sent()
    }
}
