//! The most expensive packet of each kind of frame, from a peer that holds the keys, next to a packet with one message.
//!
//! Each packet is as full as it can be, and its receiver is in the state in which the packet costs most. Everything counts that
//! a shell does for a packet: the endpoint's stages and timers, taking the events, and the answers.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use drumfire_benches::group::UNLIMITED;
use drumfire_benches::pair::{Crowd, ServedClient, server_address, take_messages};
use drumfire_proto::{Alone, ChannelId, Config, Endpoint, Inbound, Now, PeerId, SendOptions};
use drumfire_puppet::PacketSealer;
use drumfire_wire::limits::ACK_RANGES_SENT;
use drumfire_wire::{
    AckDelay, AckRange, Close, CloseCode, ConnectionId, ConnectionIdLength, Delivery, EncodeError, Fragment,
    FrameWriter, Message, MessageId, NewConnectionId, PacketNumber, PathData, ResumeToken, Skip,
    TransportHeader,
};

use crate::counted_part;
use crate::send::ranges;

/// A packet with anything in it costs at most as many times what one with a message of 64 bytes costs.
pub(crate) const RATIO_MAX: f64 = 20.0;

/// A message that waited costs at most as many times that when it is delivered.
pub(crate) const DELIVERED_RATIO_MAX: f64 = 1.0;

/// The packet that the others are compared with.
pub(crate) const ONE_MESSAGE: &str = "packet with one message of 64 B";

/// Between two packets, in virtual time.
const INTERVAL: Duration = Duration::from_micros(10);

/// The datagrams that every path carries, and the largest that any does.
pub(crate) const DATAGRAM_BYTES: [usize; 2] = [1_200, DATAGRAM_MAX_BYTES];

const DATAGRAM_MAX_BYTES: usize = 1_472;

/// Packets in flight when acks are counted.
const IN_FLIGHT: usize = 2_048;

/// The number of them that were acknowledged before: two for each range of an ack.
const ACKNOWLEDGED: usize = 2 * ACK_RANGES_SENT;

/// Messages that wait for one: there is credit for a few more.
const WAITING: u16 = 1_920;

type Frames<'a> = FrameWriter<&'a mut [u8]>;
type Written = Result<(), EncodeError>;

/// A packet of one kind.
pub(crate) struct Packet {
    pub(crate) name: &'static str,
    /// Whether a client receives the packet.
    is_to_client: bool,
    /// Brings the receiver into its worst state.
    prepare: fn(&mut Receiver),
    /// Writes the frames.
    write: Write,
    /// Messages that earlier packets brought and this packet delivers. Each is compared with a packet of its own.
    pub(crate) delivered: u16,
}

type Write = fn(&Facts, &mut Frames<'_>) -> Written;

const fn to_server(name: &'static str, prepare: fn(&mut Receiver), write: Write) -> Packet {
    Packet { name, is_to_client: false, prepare, write, delivered: 0 }
}

/// All of them; the one that the others are compared with comes first.
pub(crate) const PACKETS: [Packet; 30] = [
    to_server(ONE_MESSAGE, |_| {}, |_, frames| frames.message(&unreliable(0, &[7; 64]))),
    to_server("packet of padding", |_| {}, |_, frames| frames.padding(frames.remaining_bytes())),
    to_server("packet of pings", |_| {}, |_, frames| fill(frames, |frames, _| frames.ping())),
    to_server(
        "packet of pings and padding",
        |_| {},
        |_, frames| fill(frames, |frames, at| if at % 2 == 0 { frames.ping() } else { frames.padding(1) }),
    ),
    to_server("packet of ack requests", |_| {}, |_, frames| fill(frames, |frames, _| frames.ack_request())),
    to_server(
        "packet of unreliable messages",
        |_| {},
        |_, frames| fill(frames, |frames, _| frames.message(&unreliable(0, &[]))),
    ),
    to_server("packet of sequenced messages, 1,024 channels known", know_channels, |_, frames| {
        fill(frames, |frames, at| frames.message(&sequenced(2_000 + at, &[])))
    }),
    to_server(
        "packet of messages in order",
        |_| {},
        |facts, frames| fill(frames, |frames, at| frames.message(&ordered(facts.next + at, None, &[]))),
    ),
    to_server("packet of messages, all ids ahead", make_window, |facts, frames| {
        fill(frames, |frames, at| frames.message(&unordered(facts.next + 1 + 2 * at, &[])))
    }),
    to_server("packet of messages that wait for one that is missing", make_window, |facts, frames| {
        fill(frames, |frames, at| frames.message(&ordered(facts.next + 1 + 2 * at, Some(facts.next), &[7])))
    }),
    to_server("packet of values, 2,048 keys known", know_keys, |facts, frames| {
        fill(frames, |frames, at| frames.message(&value(u64::MAX - at, facts.next + at)))
    }),
    to_server("packet of an ack of 32 ranges and values", know_keys_and_acks, |facts, frames| {
        frames.ack(AckDelay::from_duration(Duration::ZERO), acknowledged(facts))?;
        fill(frames, |frames, at| frames.message(&value(u64::MAX - at, facts.next + at)))
    }),
    to_server("packet of newer values", know_keys, |facts, frames| {
        fill(frames, |frames, at| frames.message(&value(u64::MAX - 4_096 + at, facts.next + at)))
    }),
    to_server("packet of pieces that came before, 316 holes", make_holes, |_, frames| {
        fill(frames, |frames, at| frames.fragment(&piece(0, 60_000, 3 * (315 - at), &[7])))
    }),
    to_server("packet of pieces that close holes, 316 holes", make_holes, |_, frames| {
        fill(frames, |frames, at| frames.fragment(&piece(0, 60_000, 3 * at + 1, &[7; 2])))
    }),
    to_server(
        "packet of pieces that make holes",
        |_| {},
        |_, frames| {
            fill(frames, |frames, at| frames.fragment(&piece(0, 60_000, 60_000 - 3 * (1 + at), &[7])))
        },
    ),
    to_server(
        "packet of pieces of 64 messages",
        |_| {},
        |_, frames| {
            fill(frames, |frames, at| frames.fragment(&piece(63 - at % 64, 1_900, 3 * (at / 64), &[7])))
        },
    ),
    to_server("packet of unreliable pieces", make_loose, |facts, frames| {
        fill(frames, |frames, at| {
            let piece = Message { channel: ChannelId(0), delivery: Delivery::Unreliable, payload: &[7] };
            let number = facts.next - at % 8;
            let offset_bytes = u32::try_from(3 * (at / 8)).expect("few");
            frames.fragment(&Fragment { piece, number, total_bytes: 16_000, offset_bytes })
        })
    }),
    to_server(
        "packet of skips on two channels",
        |_| {},
        |facts, frames| fill(frames, |frames, at| frames.skip(&skip(facts.next + at, None))),
    ),
    to_server("packet of skips that wait", make_window, |facts, frames| {
        fill(frames, |frames, at| frames.skip(&skip(facts.next + 1 + 2 * at, Some(facts.next))))
    }),
    to_server("packet of an ack of 32 ranges that were acknowledged", acknowledge_all, |facts, frames| {
        frames.ack(AckDelay::from_duration(Duration::ZERO), acknowledged(facts))?;
        fill(frames, |frames, _| frames.message(&unreliable(0, &[])))
    }),
    to_server("packet of an ack and timestamps", acknowledge_all, |facts, frames| {
        let newest = facts.numbers[ACKNOWLEDGED - 1];
        frames.ack(AckDelay::from_duration(Duration::ZERO), AckRange::new(newest, newest).into_iter())?;
        fill(frames, |frames, at| frames.timestamp(at + 1))
    }),
    to_server("packet of credits", |_| {}, |_, frames| fill(frames, |frames, at| frames.credit(at + 1))),
    to_server(
        "packet of path challenges",
        |_| {},
        |_, frames| fill(frames, |frames, at| frames.path_challenge(PathData(at.to_be_bytes()))),
    ),
    to_server(
        "packet of path responses",
        |_| {},
        |_, frames| fill(frames, |frames, at| frames.path_response(PathData(at.to_be_bytes()))),
    ),
    to_server(
        "packet of retired ids",
        |_| {},
        |_, frames| fill(frames, |frames, _| frames.retire_connection_id(0)),
    ),
    to_server(
        "packet of a close",
        |_| {},
        |_, frames| {
            frames.close(&Close { code: CloseCode::Application, application_code: 7, reason: &[7; 128] })
        },
    ),
    Packet {
        name: "packet of new connection ids",
        is_to_client: true,
        delivered: 0,
        prepare: |_| {},
        write: |_, frames| {
            fill(frames, |frames, at| {
                let id = ConnectionId::from_bytes(at.to_be_bytes());
                frames.new_connection_id(&NewConnectionId { sequence: 1 + at % 2, id, reset_token: [7; 16] })
            })
        },
    },
    Packet {
        name: "packet of resume tokens",
        is_to_client: true,
        delivered: 0,
        prepare: |_| {},
        write: |_, frames| {
            fill(frames, |frames, _| {
                frames.resume_token(&ResumeToken { life_seconds: 600, psk: &[7; 32], sealed: &[7; 512] })
            })
        },
    },
    Packet {
        delivered: WAITING,
        ..to_server("packet that 1,920 messages wait for", make_waiting, |facts, frames| {
            frames.message(&ordered(facts.next, None, &[7]))
        })
    },
];

/// Writes frames until the packet is full.
fn fill(frames: &mut Frames<'_>, mut write: impl FnMut(&mut Frames<'_>, u64) -> Written) -> Written {
    for at in 0.. {
        match write(frames, at) {
            Ok(()) => {}
            Err(EncodeError::NoRoom { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// As many ranges of packets as an ack may have.
fn acknowledged(facts: &Facts) -> impl Iterator<Item = AckRange> + Clone {
    let numbers = facts.numbers[..ACKNOWLEDGED].iter().step_by(2).rev();
    numbers.filter_map(|number| AckRange::new(*number, *number))
}

fn unreliable(channel: u16, payload: &[u8]) -> Message<'_> {
    Message { channel: ChannelId(channel), delivery: Delivery::Unreliable, payload }
}

fn sequenced(channel: u64, payload: &[u8]) -> Message<'_> {
    let channel = ChannelId(u16::try_from(channel).expect("few"));
    Message { channel, delivery: Delivery::UnreliableSequenced, payload }
}

fn unordered(id: u64, payload: &[u8]) -> Message<'_> {
    let delivery = Delivery::ReliableUnordered { id: MessageId(id) };
    Message { channel: ChannelId(0), delivery, payload }
}

fn ordered(id: u64, after: Option<u64>, payload: &[u8]) -> Message<'_> {
    let delivery = Delivery::ReliableOrdered { id: MessageId(id), after: after.map(MessageId) };
    Message { channel: ChannelId(0), delivery, payload }
}

fn value(key: u64, version: u64) -> Message<'static> {
    Message { channel: ChannelId(0), delivery: Delivery::ReliableLatest { key, version }, payload: &[] }
}

fn piece(id: u64, total_bytes: u32, offset_bytes: u64, payload: &[u8]) -> Fragment<'_> {
    let offset_bytes = u32::try_from(offset_bytes).expect("few");
    Fragment { piece: unordered(id, payload), number: 0, total_bytes, offset_bytes }
}

fn skip(id: u64, after: Option<u64>) -> Skip {
    let channel = ChannelId(if id.is_multiple_of(2) { 0 } else { 1 });
    Skip { channel, id: MessageId(id), after: after.map(MessageId), bytes: 0 }
}

/// One end of a connection, and what seals for the other.
pub(crate) struct Receiver {
    endpoint: Endpoint<Alone>,
    peer: PeerId,
    sealer: PacketSealer,
    from: SocketAddr,
    now: Now,
    facts: Facts,
}

/// Facts about the receiver for the writer of a packet.
#[derive(Default)]
pub(crate) struct Facts {
    /// The number that frames begin with: of a message, of a version, or of a packet.
    next: u64,
    /// Packets of the receiver in flight.
    numbers: Vec<PacketNumber>,
}

impl Receiver {
    fn new(is_client: bool) -> Self {
        let settings = Config::default()
            .congestion(UNLIMITED)
            .memory_bytes(1 << 20, 256 << 10)
            .in_flight_bytes(64 << 20);
        let facts = Facts::default();
        let mut receiver = if is_client {
            let ServedClient { client, peer, sealer, now } =
                ServedClient::connect(&settings).expect("a connection");
            Self { endpoint: client, peer, sealer, from: server_address(), now, facts }
        } else {
            let mut crowd = Crowd::connect_one_of_many(settings).expect("a connection");
            let (from, sealer) = crowd.sealers.remove(0);
            let Crowd { server, peers, now, .. } = crowd;
            Self { endpoint: server, peer: peers[0], sealer, from, now, facts }
        };
        // The connection is busy, and has what a busy connection has.
        for _ in 0..4 {
            receiver.hear(|_, frames| frames.message(&unreliable(0, &[7; 64])), DATAGRAM_MAX_BYTES, false);
        }
        receiver
    }

    /// Takes one packet in, as a shell does.
    fn hear(
        &mut self,
        write: impl FnOnce(&Facts, &mut Frames<'_>) -> Written,
        datagram_bytes: usize,
        is_counted: bool,
    ) {
        let Self { endpoint, sealer, from, now, facts, .. } = self;
        let (mut memory, mut answer) = ([0; DATAGRAM_MAX_BYTES], [0; DATAGRAM_MAX_BYTES]);
        let sealed = sealer.seal_frames(&mut memory[..datagram_bytes], 0, |frames| write(facts, frames).ok());
        let bytes = &mut memory[..sealed.expect("frames and keys")];
        now.monotonic = now.monotonic.after(INTERVAL);
        let mut work = || {
            endpoint.handle_datagrams(*now, [Inbound { from: (*from).into(), bytes: &mut *bytes }]);
            endpoint.handle_timeout(*now);
            take_messages(endpoint);
            while endpoint.poll_transmit(*now, &mut answer).is_some() {}
        };
        if is_counted { counted_part(work) } else { work() }
    }

    fn prepare(&mut self, write: impl FnOnce(&Facts, &mut Frames<'_>) -> Written) {
        self.hear(write, DATAGRAM_MAX_BYTES, false);
    }
}

/// 1,024 sequenced channels have delivered something.
fn know_channels(receiver: &mut Receiver) {
    for from in (0..1_024).step_by(32) {
        receiver
            .prepare(|_, frames| (from..from + 32).try_for_each(|at| frames.message(&sequenced(at, &[]))));
    }
}

/// 2,048 keys have a value.
fn know_keys(receiver: &mut Receiver) {
    for from in (0..2_048).step_by(32) {
        receiver.prepare(|_, frames| {
            (from..from + 32).try_for_each(|at| frames.message(&value(u64::MAX - 4_096 + at, at)))
        });
    }
    // Keys and versions are as long as they can be.
    receiver.facts.next = 1 << 63;
}

fn know_keys_and_acks(receiver: &mut Receiver) {
    acknowledge_all(receiver);
    know_keys(receiver);
}

/// A window as wide as it may be: every second id of it is missing.
fn make_window(receiver: &mut Receiver) {
    for from in (512..4_096).step_by(64) {
        receiver.prepare(|_, frames| {
            (from..from + 64).step_by(2).try_for_each(|id| frames.message(&unordered(id, &[])))
        });
    }
}

/// As many messages as there is credit for wait for message 0.
fn make_waiting(receiver: &mut Receiver) {
    for from in (1..=u64::from(WAITING)).step_by(32) {
        receiver.prepare(|_, frames| {
            (from..from + 32).try_for_each(|id| frames.message(&ordered(id, Some(0), &[7])))
        });
    }
}

/// Message 0 has 316 pieces that do not touch.
fn make_holes(receiver: &mut Receiver) {
    for from in (0..316_u64).step_by(20) {
        receiver.prepare(|_, frames| {
            (from..316.min(from + 20)).try_for_each(|at| frames.fragment(&piece(0, 60_000, 3 * at, &[7])))
        });
    }
}

/// Numbers of packets that messages may have begun in.
fn make_loose(receiver: &mut Receiver) {
    receiver.facts.next = 10;
    for _ in 0..20 {
        receiver.prepare(|_, frames| frames.ping());
    }
}

/// Many packets of the receiver are in flight, each with the value of a key whose fate it follows.
fn send_many(receiver: &mut Receiver) {
    let mut memory = [0; 1_200];
    let Receiver { endpoint, peer, now, facts: Facts { numbers, .. }, .. } = receiver;
    for key in 0.. {
        let (payload, options) = (Bytes::from_static(&[7; 8]), SendOptions::reliable_latest(key));
        endpoint.send(*now, *peer, ChannelId(0), payload, options).expect("room for a message");
        for _ in 0..1_000 {
            now.monotonic = now.monotonic.after(Duration::from_micros(1));
            if let Some(sent) = endpoint.poll_transmit(*now, &mut memory) {
                // A client with many connections has ids.
                let header = TransportHeader::decode(&memory[..sent.bytes], ConnectionIdLength::Eight);
                let number = header.expect("a packet").number.expand(numbers.last().copied());
                numbers.push(number);
                break;
            }
        }
        if numbers.len() >= IN_FLIGHT {
            return;
        }
    }
}

/// The first of them were acknowledged, the others are in flight.
fn acknowledge_all(receiver: &mut Receiver) {
    send_many(receiver);
    receiver.prepare(|facts, frames| {
        frames
            .ack(AckDelay::from_duration(Duration::ZERO), ranges(&facts.numbers[..ACKNOWLEDGED]).into_iter())
    });
}

/// Takes in one packet of this kind, in a datagram of this many bytes at most.
pub(crate) fn receive(packet: &Packet, datagram_bytes: usize) {
    let mut receiver = Receiver::new(packet.is_to_client);
    (packet.prepare)(&mut receiver);
    let dropped = receiver.endpoint.stats().dropped_count();
    receiver.hear(packet.write, datagram_bytes, true);
    assert_eq!(receiver.endpoint.stats().dropped_count(), dropped, "the packet is taken in");
}
