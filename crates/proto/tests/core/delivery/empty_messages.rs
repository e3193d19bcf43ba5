//! Ten million empty messages: each has a charge, so they take no more memory than others.
//!
//! `DRUMFIRE_FULL=1` sends ten million, and other runs a hundredth of them.

use crate::counted::RECEIVE_BYTES;
use crate::harness::{CLIENT, SERVER, address};
use crate::puppet::Puppet;
use allocation_counter::measure;
use drumfire_proto::{CloseReason, Event, Inbound, ProtocolError};
use drumfire_tries::tries;
use drumfire_wire::{
    AckDelay, AckRange, ChannelId, Delivery, EncodeError, FrameWriter, Message, MessageId, PacketNumber,
};
use std::time::Duration;

fn messages() -> u64 {
    tries(10_000_000).into()
}

/// A client that sends only empty messages.
struct EmptyMessageClient {
    puppet: Puppet,
    sent: u64,
    /// Whether the server's application reads its events.
    reads_events: bool,
    delivered_count: u64,
    /// The growth of the server's memory, now and at most.
    held_bytes: i64,
    held_max_bytes: i64,
}

impl EmptyMessageClient {
    fn new(seed: u64, reads_events: bool) -> Self {
        let puppet = Puppet::connected(seed);
        Self { puppet, sent: 0, reads_events, delivered_count: 0, held_bytes: 0, held_max_bytes: 0 }
    }

    /// Sends a packet full of empty messages, a millisecond after the previous one.
    fn packet(&mut self, delivery: impl Fn(u64) -> Delivery) {
        let mut frames = [0; 1_100];
        let mut writer = FrameWriter::new(&mut frames[..]);
        loop {
            let message = Message { channel: ChannelId(1), delivery: delivery(self.sent), payload: b"" };
            match writer.message(&message) {
                Ok(()) => self.sent += 1,
                Err(EncodeError::NoRoom { .. }) => break,
                Err(error) => panic!("{error:?}"),
            }
        }
        let bytes = writer.written_bytes();
        let mut datagram = self.puppet.datagram(&frames[..bytes]);
        self.deliver(&mut datagram);
    }

    fn deliver(&mut self, datagram: &mut [u8]) {
        let world = &mut self.puppet.world;
        world.now = world.now.after(Duration::from_millis(1));
        let (now, server) = (world.now(), &mut world.ends[SERVER]);
        let counted = measure(|| {
            server.handle_datagrams(now, [Inbound { from: address(CLIENT).into(), bytes: datagram }]);
            server.handle_timeout(now);
        });
        self.held_bytes += counted.bytes_current;
        self.held_max_bytes = self.held_max_bytes.max(self.held_bytes);
        let mut memory = [0; 1_472];
        let counted = measure(|| {
            while self.reads_events
                && let Some(event) = server.poll_event()
            {
                self.delivered_count += u64::from(matches!(event, Event::Message { payload: b"", .. }));
            }
        });
        self.held_bytes += counted.bytes_current;
        loop {
            let mut sent = None;
            let counted = measure(|| sent = server.poll_transmit(now, &mut memory));
            self.held_bytes += counted.bytes_current;
            let Some(transmit) = sent else { break };
            world.sent.push((world.now, SERVER, memory[..transmit.bytes].to_vec()));
        }
    }

    /// Acknowledges the newest packet of the server, so that the server continues.
    fn ack(&mut self) {
        let Some((newest, _)) = self.puppet.take_packets().pop() else { return };
        let newest = PacketNumber(newest);
        let range = AckRange::new(newest, newest).unwrap();
        let mut frames = [0; 100];
        let mut writer = FrameWriter::new(&mut frames[..]);
        writer.ack(AckDelay::from_duration(Duration::ZERO), std::iter::once(range)).unwrap();
        let bytes = writer.written_bytes();
        let mut datagram = self.puppet.datagram(&frames[..bytes]);
        self.deliver(&mut datagram);
    }

    /// Sends all messages.
    fn flood(&mut self, delivery: impl Fn(u64) -> Delivery) {
        while self.sent < messages() {
            for _ in 0..50 {
                self.packet(&delivery);
            }
            self.ack();
        }
        println!("{} messages, {} B at most", self.sent, self.held_max_bytes);
        assert_eq!(self.puppet.world.ends[SERVER].connection_count(), 1);
        assert!(self.held_max_bytes <= RECEIVE_BYTES, "{} B", self.held_max_bytes);
    }
}

#[test]
fn ten_million_empty_messages_stay_within_connection_memory() {
    let mut client = EmptyMessageClient::new(1, true);
    client.flood(|id| Delivery::ReliableUnordered { id: MessageId(id) });
    assert_eq!(client.delivered_count, client.sent);
}

#[test]
fn ten_million_unread_empty_messages_stay_within_memory() {
    let mut client = EmptyMessageClient::new(2, false);
    client.flood(|_| Delivery::Unreliable);
    // They fill the memory for events: each takes half of the 64 bytes of its charge.
    assert!(client.held_max_bytes >= RECEIVE_BYTES / 8, "{} B", client.held_max_bytes);
}

#[test]
fn empty_messages_a_million_ids_apart_close() {
    let mut client = EmptyMessageClient::new(3, false);
    client
        .packet(|id| Delivery::ReliableOrdered { id: MessageId(1 + (id << 20)), after: Some(MessageId(0)) });
    client.puppet.world.flush();
    let too_far = CloseReason::Protocol(ProtocolError::MessageTooFarAhead);
    assert_eq!(client.puppet.ending(), Some(too_far));
    assert!(client.held_max_bytes < 16 * 1_024, "{} B", client.held_max_bytes);
}
