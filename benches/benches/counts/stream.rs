//! Streams of reliable messages: queueing, packets, and acks, with one message per packet and with many.

use std::net::SocketAddr;

use drumfire_benches::memory::{BATCH, Datagrams, Group, UNLIMITED, client_address, server_address};
use drumfire_proto::{ChannelId, Config, Endpoint, Message, Now, PeerId, SingleWorker};

use crate::counted_part;
use crate::stages::{BATCH_INTERVAL, MILLISECOND, PAYLOAD, receive};

/// The number of short messages that fill a packet.
const FULL: u64 = 29;

/// The payload of such a message.
const SHORT_PAYLOAD: &[u8] = &[7; 36];

/// The virtual time within which an end may send again, in milliseconds.
const MAY_SEND_WITHIN_MS: u32 = 1_000;

/// The part of a [`Stream`] that counts.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Counted {
    /// Queueing a message.
    Queue,
    /// Making a packet of a message that waits: frames, bookkeeping, header, and sealing (ChaCha20-Poly1305).
    Seal,
    /// The way from the application's message to the packet.
    Send,
    /// The way from the packet to the event, and the acks that follow.
    Receive,
    /// Hearing the acks of packets.
    Ack,
}

/// Two endpoints, of which one sends reliable messages to the other, one per packet.
pub(crate) struct Stream {
    sender: Endpoint<SingleWorker>,
    receiver: Endpoint<SingleWorker>,
    /// The handle of the receiver, at the sender.
    peer: PeerId,
    /// The addresses of the sender and of the receiver.
    addresses: [SocketAddr; 2],
    now: Now,
    packets: Datagrams,
    answers: Datagrams,
    /// Messages that the application sent.
    given: u64,
}

impl Stream {
    pub(crate) fn new(is_to_server: bool) -> Self {
        let config = Config::default().congestion(UNLIMITED);
        let Group { server, client, links, now } = Group::connect(1, &config).expect("a connection");
        let (sender, receiver, peer, addresses) = if is_to_server {
            (client, server, links[0].server, [client_address(), server_address()])
        } else {
            (server, client, links[0].client, [server_address(), client_address()])
        };
        let [mut packets, mut answers] = [Datagrams::default(), Datagrams::default()];
        packets.reserve(2 * BATCH);
        answers.reserve(2 * BATCH);
        Self { sender, receiver, peer, addresses, now, packets, answers, given: 0 }
    }

    pub(crate) fn run(mut self, count: u64, counted: Counted) {
        let mut delivered = 0;
        for made in 1..=count {
            for waited in 0.. {
                if self.make_packet(counted) {
                    break;
                }
                assert!(waited < MAY_SEND_WITHIN_MS, "the sender may not send");
                self.now.monotonic = self.now.monotonic.after(MILLISECOND);
                delivered += self.deliver(counted);
            }
            if made.is_multiple_of(BATCH as u64) || made == count {
                self.now.monotonic = self.now.monotonic.after(BATCH_INTERVAL);
                delivered += self.deliver(counted);
            }
        }
        assert_eq!((self.sender.stats().messages_sent, delivered), (count, count));
        assert_eq!(self.receiver.stats().dropped_count(), 0);
    }

    /// Sends a message and makes its packet. Returns false when no packet may be sent now.
    fn make_packet(&mut self, counted: Counted) -> bool {
        let Self { sender, packets, given, .. } = self;
        let (now, peer) = (self.now, self.peer);
        // A message that waits is sent before the next one is given.
        let is_given = sender.stats().messages_sent < *given;
        let mut give = |sender: &mut Endpoint<SingleWorker>| {
            let has_given =
                is_given || sender.send(now, peer, Message::reliable_ordered(ChannelId(0), PAYLOAD)).is_ok();
            *given += u64::from(has_given && !is_given);
            has_given
        };
        match counted {
            Counted::Seal => give(sender) && counted_part(|| packets.take_from(sender, now)),
            Counted::Send => counted_part(|| give(sender) && packets.take_from(sender, now)),
            Counted::Queue => counted_part(|| give(sender)) && packets.take_from(sender, now),
            Counted::Receive | Counted::Ack => give(sender) && packets.take_from(sender, now),
        }
    }

    /// Delivers the packets, and the acks that the receiver sends. Returns the number of messages that arrived.
    fn deliver(&mut self, counted: Counted) -> u64 {
        let Self { sender, receiver, addresses: [from, to], packets, answers, .. } = self;
        let now = self.now;
        let inbound = packets.inbound(*from);
        let delivered = if counted == Counted::Receive {
            counted_part(|| receive(receiver, now, inbound, answers))
        } else {
            receive(receiver, now, inbound, answers)
        };
        packets.clear();
        let answered = answers.inbound(*to);
        let hear = || {
            sender.handle_datagrams(now, answered);
            sender.handle_timeout(now);
            while sender.poll_event().is_some() {}
        };
        if counted == Counted::Ack {
            counted_part(hear);
        } else {
            hear();
        }
        answers.clear();
        delivered
    }

    /// Sends packets that are full of short messages. Makes the packets of `count` messages.
    pub(crate) fn run_full(mut self, count: u64, counted: Counted) {
        let (packet_count, mut delivered) = (count / FULL, 0);
        for made in 1..=packet_count {
            let Self { sender, packets, now, peer, .. } = &mut self;
            let mut queue = || {
                for _ in 0..FULL {
                    let message = Message::reliable_ordered(ChannelId(0), SHORT_PAYLOAD);
                    sender.send(*now, *peer, message).expect("memory is left");
                }
            };
            if counted == Counted::Queue {
                counted_part(queue);
            } else {
                queue();
            }
            let mut take = || packets.take_from(sender, *now);
            let is_taken = if counted == Counted::Seal { counted_part(take) } else { take() };
            assert!(is_taken, "the sender may not send");
            if made.is_multiple_of(BATCH as u64) || made == packet_count {
                self.now.monotonic = self.now.monotonic.after(MILLISECOND);
                delivered += self.deliver(counted);
            }
        }
        let sent = packet_count * FULL;
        assert_eq!((self.sender.stats().messages_sent, delivered), (sent, sent));
    }
}
