//! The most expensive packet of each kind of frame, from a peer that has the keys, next to a packet with one message.
//!
//! Each packet is as full as possible, and its receiver is in the state in which the packet costs most. All work of a worker for the
//! packet counts: the endpoint's stages and timers, taking the events, and the answers.

use std::ops::Range;
use std::time::Duration;

use drumfire_benches::Goal;
use drumfire_benches::memory::{SealedPeer, UNLIMITED, take_messages};
use drumfire_benches::steps::count_if;
use drumfire_proto::{ChannelId, Config, Inbound};
use drumfire_puppet::DrawnFrame::{self, *};
use drumfire_wire::limits::ACK_RANGES_SENT;
use drumfire_wire::{ConnectionId, Delivery, EncodeError, MessageId, PacketNumber, Skip};

use crate::stages::{ranges, send_values};
use crate::{Stage, Work};

/// The packet with which the others are compared.
pub(crate) const ONE_MESSAGE: &str = "packet with one message of 64 B";

/// The size of datagrams that every path carries, and the size of the largest datagrams.
pub(crate) const DATAGRAM_BYTES: [usize; 2] = [1_200, 1_472];

/// The longest header of a packet, and the tag.
const HEADER_AND_TAG_BYTES: usize = 1 + 8 + 4 + 16;

/// The number of packets that were acknowledged before: two for each range of an ack.
const ACKNOWLEDGED: usize = 2 * ACK_RANGES_SENT;

/// The packet that delivers messages of earlier packets, and their number. There is credit for a few more. The cost of each is compared
/// with [`ONE_MESSAGE`].
pub(crate) const WAITED_FOR: &str = "packet that 1,920 messages wait for";
pub(crate) const WAITING: u16 = 1_920;

/// A kind of packet.
pub(crate) struct Packet {
    /// Makes a receiver in its worst state.
    receiver: fn() -> Receiver,
    /// Returns the frame with this index.
    frame: Draw,
    /// The number of frames at most. The packet has as many as fit.
    frames_max: usize,
}

type Draw = fn(&Facts, u64) -> DrawnFrame;

/// A packet full of such frames.
const fn full(name: &'static str, receiver: fn() -> Receiver, frame: Draw) -> Stage {
    Stage { name, work: Work::Packet(Packet { receiver, frame, frames_max: usize::MAX }), goal: Goal::Shown }
}

/// A packet with one frame.
const fn single(name: &'static str, receiver: fn() -> Receiver, frame: Draw) -> Stage {
    Stage { name, work: Work::Packet(Packet { receiver, frame, frames_max: 1 }), goal: Goal::Shown }
}

/// All packets. The first one is that with which the others are compared.
pub(crate) static PACKETS: [Stage; 30] = [
    single(ONE_MESSAGE, fresh, |_, _| message(0, Delivery::Unreliable, 64)),
    single("packet of padding", fresh, |facts, _| Padding { bytes: facts.room_bytes }),
    full("packet of pings", fresh, |_, _| Ping),
    full("packet of pings and padding", fresh, |_, at| if at % 2 == 0 { Ping } else { Padding { bytes: 1 } }),
    full("packet of ack requests", fresh, |_, _| AckRequest),
    full("packet of unreliable messages", fresh, |_, _| message(0, Delivery::Unreliable, 0)),
    full("packet of sequenced messages, 1,024 channels known", know_channels, |_, at| {
        message(2_000 + at, Delivery::UnreliableSequenced, 0)
    }),
    full("packet of messages in order", fresh, |facts, at| message(0, ordered(facts.next + at, None), 0)),
    full("packet of messages, all ids ahead", make_window, |facts, at| {
        message(0, unordered(facts.next + 1 + 2 * at), 0)
    }),
    full("packet of messages that wait for one that is missing", make_window, |facts, at| {
        message(0, ordered(facts.next + 1 + 2 * at, Some(facts.next)), 1)
    }),
    full("packet of values, 2,048 keys known", know_keys, |facts, at| value(u64::MAX - at, facts.next + at)),
    full(
        "packet of an ack of 32 ranges and values",
        || acknowledge_all().knows_keys(),
        |facts, at| match at {
            0 => ack_again(facts),
            at => value(u64::MAX - (at - 1), facts.next + (at - 1)),
        },
    ),
    full("packet of newer values", know_keys, |facts, at| value(u64::MAX - 4_096 + at, facts.next + at)),
    full("packet of fragments that came before, 316 gaps", make_gaps, |_, at| {
        fragment(0, 60_000, 3 * (315 - at), 1)
    }),
    full("packet of fragments that close gaps, 316 gaps", make_gaps, |_, at| {
        fragment(0, 60_000, 3 * at + 1, 2)
    }),
    full("packet of fragments that make gaps", fresh, |_, at| fragment(0, 60_000, 60_000 - 3 * (1 + at), 1)),
    full("packet of fragments of 64 messages", fresh, |_, at| {
        fragment(63 - at % 64, 1_900, 3 * (at / 64), 1)
    }),
    full("packet of unreliable fragments", make_loose, |facts, at| Fragment {
        channel: ChannelId(0),
        delivery: Delivery::Unreliable,
        number: facts.next - at % 8,
        total: 16_000,
        offset: small(3 * (at / 8)),
        bytes: 1,
    }),
    full("packet of skips on two channels", fresh, |facts, at| skip(facts.next + at, None)),
    full("packet of skips that wait", make_window, |facts, at| {
        skip(facts.next + 1 + 2 * at, Some(facts.next))
    }),
    full("packet of an ack of 32 ranges that were acknowledged", acknowledge_all, |facts, at| match at {
        0 => ack_again(facts),
        _ => message(0, Delivery::Unreliable, 0),
    }),
    full("packet of an ack and timestamps", acknowledge_all, |facts, at| match at {
        0 => ack(&facts.numbers[ACKNOWLEDGED - 1..ACKNOWLEDGED]),
        at => Timestamp(at),
    }),
    full("packet of credits", fresh, |_, at| Credit(at + 1)),
    full("packet of path challenges", fresh, |_, at| PathChallenge(at)),
    full("packet of path responses", fresh, |_, at| PathResponse(at)),
    full("packet of retired ids", fresh, |_, _| RetireConnectionId(0)),
    single("packet of a close", fresh, |_, _| Close { reason_bytes: 128 }),
    full("packet of new connection ids", fresh_client, |_, at| NewConnectionId(1 + at % 2)),
    full("packet of resume tokens", fresh_client, |_, _| ResumeToken),
    single(WAITED_FOR, make_waiting, |facts, _| message(0, ordered(facts.next, None), 1)),
];

fn message(channel: u64, delivery: Delivery, bytes: usize) -> DrawnFrame {
    Message { channel: ChannelId(small(channel)), delivery, bytes }
}

fn unordered(id: u64) -> Delivery {
    Delivery::ReliableUnordered { id: MessageId(id) }
}

fn ordered(id: u64, after: Option<u64>) -> Delivery {
    Delivery::ReliableOrdered { id: MessageId(id), after: after.map(MessageId) }
}

fn value(key: u64, version: u64) -> DrawnFrame {
    message(0, Delivery::ReliableLatest { key, version }, 0)
}

fn fragment(id: u64, total: u32, offset: u64, bytes: usize) -> DrawnFrame {
    Fragment {
        channel: ChannelId(0),
        delivery: unordered(id),
        number: 0,
        total,
        offset: small(offset),
        bytes,
    }
}

fn skip(id: u64, after: Option<u64>) -> DrawnFrame {
    let channel = ChannelId(if id.is_multiple_of(2) { 0 } else { 1 });
    DrawnFrame::Skip(Skip { channel, id: MessageId(id), after: after.map(MessageId), bytes: 0 })
}

fn ack(numbers: &[PacketNumber]) -> DrawnFrame {
    Ack { delay: Duration::ZERO, ranges: ranges(numbers) }
}

/// An ack of as many ranges as possible, of packets that were acknowledged before.
fn ack_again(facts: &Facts) -> DrawnFrame {
    ack(&facts.numbers[..ACKNOWLEDGED].iter().step_by(2).copied().collect::<Vec<_>>())
}

/// Returns a number that has room in a field.
fn small<T: TryFrom<u64>>(number: u64) -> T {
    T::try_from(number).ok().expect("the numbers of all packets are small")
}

/// The receiver of the packets.
pub(crate) struct Receiver {
    sealed: SealedPeer,
    facts: Facts,
}

/// Facts about the receiver for the frames of a packet.
#[derive(Default)]
struct Facts {
    /// The first number of the frames: of a message, of a version, or of a packet.
    next: u64,
    /// Packets of the receiver in flight.
    numbers: Vec<PacketNumber>,
    /// Bytes that the frames of the packet have at least, after its header and its tag.
    room_bytes: usize,
}

impl Receiver {
    /// Like a busy connection, this one has received messages before.
    fn new(connect: impl FnOnce(Config) -> Result<SealedPeer, String>) -> Self {
        let config = Config::default()
            .congestion(UNLIMITED)
            .memory_bytes(1 << 20, 256 << 10)
            .in_flight_bytes(64 << 20);
        let sealed = connect(config).expect("a connection");
        let receiver = Self { sealed, facts: Facts::default() };
        receiver.prepared(0..4, 1, |_| message(0, Delivery::Unreliable, 64))
    }

    /// Receives one packet of these frames, up to the first one without room, as a worker does.
    fn receive(
        &mut self,
        mut frames: impl Iterator<Item = DrawnFrame>,
        datagram_bytes: usize,
        is_counted: bool,
    ) {
        let SealedPeer { endpoint, sealer, address, now, .. } = &mut self.sealed;
        let (mut memory, mut answer) = ([0; DATAGRAM_BYTES[1]], [0; DATAGRAM_BYTES[1]]);
        let sealed = sealer.seal_frames(&mut memory[..datagram_bytes], 0, |writer| {
            match frames.try_for_each(|frame| frame.write(writer)) {
                Ok(()) | Err(EncodeError::NoRoom { .. }) => Some(()),
                Err(_) => None,
            }
        });
        let bytes = &mut memory[..sealed.expect("frames and keys")];
        now.monotonic = now.monotonic.after(Duration::from_micros(10));
        count_if(is_counted, || {
            endpoint.handle_datagrams(*now, [Inbound { from: (*address).into(), bytes }]);
            endpoint.handle_timeout(*now);
            take_messages(endpoint);
            while endpoint.poll_transmit(*now, &mut answer).is_some() {}
        });
    }

    /// Receives packets with a frame for each of these numbers, `per_packet` frames in each.
    fn prepared(mut self, numbers: Range<u64>, per_packet: usize, frame: fn(u64) -> DrawnFrame) -> Self {
        // Nothing is allocated here, because the state of the allocator is part of the counts.
        for from in numbers.clone().step_by(per_packet) {
            let to = numbers.end.min(from + per_packet as u64);
            self.receive((from..to).map(frame), DATAGRAM_BYTES[1], false);
        }
        self
    }

    /// Receives values of 2,048 keys. The frames of the packet have keys and versions that are as long as they can be.
    fn knows_keys(self) -> Self {
        let known = self.prepared(0..2_048, 32, |at| value(u64::MAX - 4_096 + at, at));
        Self { facts: Facts { next: 1 << 63, ..known.facts }, ..known }
    }
}

fn fresh() -> Receiver {
    Receiver::new(|config| SealedPeer::of_server(config, Some(ConnectionId::from_bytes([7; 8]))))
}

fn fresh_client() -> Receiver {
    Receiver::new(|config| SealedPeer::of_client(&config))
}

/// A message arrived on each of 1,024 sequenced channels.
fn know_channels() -> Receiver {
    fresh().prepared(0..1_024, 32, |at| message(at, Delivery::UnreliableSequenced, 0))
}

fn know_keys() -> Receiver {
    fresh().knows_keys()
}

/// The window of message ids is as wide as possible, with every second id missing.
fn make_window() -> Receiver {
    fresh().prepared(256..2_048, 32, |at| message(0, unordered(2 * at), 0))
}

/// As many messages as there is credit for wait for message 0.
fn make_waiting() -> Receiver {
    fresh().prepared(1..u64::from(WAITING) + 1, 32, |id| message(0, ordered(id, Some(0)), 1))
}

/// 316 fragments of message 0 arrived that do not touch.
fn make_gaps() -> Receiver {
    fresh().prepared(0..316, 20, |at| fragment(0, 60_000, 3 * at, 1))
}

/// Packets arrived in whose numbers unreliable messages may have begun.
fn make_loose() -> Receiver {
    let receiver = fresh().prepared(0..20, 1, |_| Ping);
    Receiver { facts: Facts { next: 10, ..receiver.facts }, ..receiver }
}

/// Many packets are in flight, each with a value. The first of them are acknowledged.
fn acknowledge_all() -> Receiver {
    let mut receiver = fresh();
    receiver.facts.numbers = send_values(&mut receiver.sealed, 0..2_048);
    let acked = ack(&receiver.facts.numbers[..ACKNOWLEDGED]);
    receiver.receive([acked].into_iter(), DATAGRAM_BYTES[1], false);
    receiver
}

/// Receives one packet of this kind, in a datagram of at most this size.
pub(crate) fn receive(packet: &Packet, datagram_bytes: u64) {
    let mut receiver = (packet.receiver)();
    let dropped = receiver.sealed.endpoint.stats().dropped_count();
    let mut facts = std::mem::take(&mut receiver.facts);
    facts.room_bytes = small::<usize>(datagram_bytes) - HEADER_AND_TAG_BYTES;
    let frames = (0..).map(|at| (packet.frame)(&facts, at)).take(packet.frames_max);
    receiver.receive(frames, small(datagram_bytes), true);
    assert_eq!(receiver.sealed.endpoint.stats().dropped_count(), dropped, "the packet is received");
}
