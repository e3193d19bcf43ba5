//! The most expensive packet of each kind of frame, from a peer that has the keys, next to a packet with one message.
//!
//! Each packet is as full as possible, and its receiver is in the state in which the packet costs most. All work of a worker for the
//! packet counts: the endpoint's stages and timers, taking the events, and the answers.

use std::time::Duration;

use drumfire_benches::memory::{SealedPeers, UNLIMITED, take_messages};
use drumfire_proto::{ChannelId, Config, Inbound};
use drumfire_wire::limits::ACK_RANGES_SENT;
use drumfire_wire::{
    AckDelay, AckRange, Close, CloseCode, ConnectionId, Delivery, EncodeError, Fragment, FrameWriter,
    Message, MessageId, NewConnectionId, PacketNumber, PathData, ResumeToken, Skip,
};

use crate::counted_part;
use crate::stages::{ranges, send_values};

/// The packet with which the others are compared.
pub(crate) const ONE_MESSAGE: &str = "packet with one message of 64 B";

/// The virtual time between two packets.
const INTERVAL: Duration = Duration::from_micros(10);

/// The size of datagrams that every path carries, and the size of the largest datagrams.
pub(crate) const DATAGRAM_BYTES: [usize; 2] = [1_200, DATAGRAM_MAX_BYTES];

const DATAGRAM_MAX_BYTES: usize = 1_472;

/// Packets in flight when acks are counted.
const IN_FLIGHT: u64 = 2_048;

/// The number of these packets that were acknowledged before: two for each range of an ack.
const ACKNOWLEDGED: usize = 2 * ACK_RANGES_SENT;

/// Messages that wait for another one. There is credit for a few more.
const WAITING: u16 = 1_920;

type Frames<'a> = FrameWriter<&'a mut [u8]>;
type Written = Result<(), EncodeError>;

/// A kind of packet.
pub(crate) struct Packet {
    pub(crate) name: &'static str,
    /// Whether a client receives the packet.
    is_to_client: bool,
    /// Brings the receiver into its worst state.
    prepare: fn(&mut Receiver),
    /// Writes the frame with this index.
    write: Write,
    /// Whether the packet has one frame. Otherwise it has as many frames as possible.
    is_single: bool,
    /// Messages of earlier packets that this packet delivers. The cost of each is compared with [`ONE_MESSAGE`].
    pub(crate) delivered: u16,
}

type Write = fn(&mut Frames<'_>, &Facts, u64) -> Written;

/// A packet full of such frames to a server.
const fn full(name: &'static str, prepare: fn(&mut Receiver), write: Write) -> Packet {
    Packet { name, is_to_client: false, prepare, write, is_single: false, delivered: 0 }
}

impl Packet {
    const fn single(self) -> Self {
        Self { is_single: true, ..self }
    }

    const fn for_client(self) -> Self {
        Self { is_to_client: true, ..self }
    }

    const fn delivers(self, delivered: u16) -> Self {
        Self { delivered, ..self }
    }
}

/// All packets. The one with which the others are compared comes first.
pub(crate) const PACKETS: [Packet; 30] = [
    full(ONE_MESSAGE, fresh, |frames, _, _| frames.message(&unreliable(0, &[7; 64]))).single(),
    full("packet of padding", fresh, |frames, _, _| frames.padding(frames.remaining_bytes())).single(),
    full("packet of pings", fresh, |frames, _, _| frames.ping()),
    full(
        "packet of pings and padding",
        fresh,
        |frames, _, at| {
            if at % 2 == 0 { frames.ping() } else { frames.padding(1) }
        },
    ),
    full("packet of ack requests", fresh, |frames, _, _| frames.ack_request()),
    full("packet of unreliable messages", fresh, |frames, _, _| frames.message(&unreliable(0, &[]))),
    full("packet of sequenced messages, 1,024 channels known", know_channels, |frames, _, at| {
        frames.message(&sequenced(2_000 + at, &[]))
    }),
    full("packet of messages in order", fresh, |frames, facts, at| {
        frames.message(&ordered(facts.next + at, None, &[]))
    }),
    full("packet of messages, all ids ahead", make_window, |frames, facts, at| {
        frames.message(&unordered(facts.next + 1 + 2 * at, &[]))
    }),
    full("packet of messages that wait for one that is missing", make_window, |frames, facts, at| {
        frames.message(&ordered(facts.next + 1 + 2 * at, Some(facts.next), &[7]))
    }),
    full("packet of values, 2,048 keys known", know_keys, |frames, facts, at| {
        frames.message(&value(u64::MAX - at, facts.next + at))
    }),
    full("packet of an ack of 32 ranges and values", know_keys_and_acks, |frames, facts, at| match at {
        0 => ack_again(frames, facts),
        at => frames.message(&value(u64::MAX - (at - 1), facts.next + (at - 1))),
    }),
    full("packet of newer values", know_keys, |frames, facts, at| {
        frames.message(&value(u64::MAX - 4_096 + at, facts.next + at))
    }),
    full("packet of pieces that came before, 316 holes", make_holes, |frames, _, at| {
        frames.fragment(&piece(0, 60_000, 3 * (315 - at), &[7]))
    }),
    full("packet of pieces that close holes, 316 holes", make_holes, |frames, _, at| {
        frames.fragment(&piece(0, 60_000, 3 * at + 1, &[7; 2]))
    }),
    full("packet of pieces that make holes", fresh, |frames, _, at| {
        frames.fragment(&piece(0, 60_000, 60_000 - 3 * (1 + at), &[7]))
    }),
    full("packet of pieces of 64 messages", fresh, |frames, _, at| {
        frames.fragment(&piece(63 - at % 64, 1_900, 3 * (at / 64), &[7]))
    }),
    full("packet of unreliable pieces", make_loose, |frames, facts, at| {
        let message = unreliable(0, &[7]);
        let offset_bytes = u32::try_from(3 * (at / 8)).expect("few");
        frames.fragment(&Fragment { message, number: facts.next - at % 8, total_bytes: 16_000, offset_bytes })
    }),
    full("packet of skips on two channels", fresh, |frames, facts, at| {
        frames.skip(&skip(facts.next + at, None))
    }),
    full("packet of skips that wait", make_window, |frames, facts, at| {
        frames.skip(&skip(facts.next + 1 + 2 * at, Some(facts.next)))
    }),
    full("packet of an ack of 32 ranges that were acknowledged", acknowledge_all, |frames, facts, at| {
        if at == 0 { ack_again(frames, facts) } else { frames.message(&unreliable(0, &[])) }
    }),
    full("packet of an ack and timestamps", acknowledge_all, |frames, facts, at| {
        let newest = facts.numbers[ACKNOWLEDGED - 1];
        match at {
            0 => {
                frames.ack(AckDelay::from_duration(Duration::ZERO), AckRange::new(newest, newest).into_iter())
            }
            at => frames.timestamp(at),
        }
    }),
    full("packet of credits", fresh, |frames, _, at| frames.credit(at + 1)),
    full("packet of path challenges", fresh, |frames, _, at| {
        frames.path_challenge(PathData(at.to_be_bytes()))
    }),
    full("packet of path responses", fresh, |frames, _, at| frames.path_response(PathData(at.to_be_bytes()))),
    full("packet of retired ids", fresh, |frames, _, _| frames.retire_connection_id(0)),
    full("packet of a close", fresh, |frames, _, _| {
        frames.close(&Close { code: CloseCode::Application, application_code: 7, reason: &[7; 128] })
    })
    .single(),
    full("packet of new connection ids", fresh, |frames, _, at| {
        let id = ConnectionId::from_bytes(at.to_be_bytes());
        frames.new_connection_id(&NewConnectionId { sequence: 1 + at % 2, id, reset_token: [7; 16] })
    })
    .for_client(),
    full("packet of resume tokens", fresh, |frames, _, _| {
        frames.resume_token(&ResumeToken { life_seconds: 600, psk: &[7; 32], sealed: &[7; 512] })
    })
    .for_client(),
    full("packet that 1,920 messages wait for", make_waiting, |frames, facts, _| {
        frames.message(&ordered(facts.next, None, &[7]))
    })
    .single()
    .delivers(WAITING),
];

/// Leaves the receiver as it is after a few messages.
fn fresh(_: &mut Receiver) {}

/// Writes an ack of as many ranges as possible, of packets that were acknowledged before.
fn ack_again(frames: &mut Frames<'_>, facts: &Facts) -> Written {
    let numbers = facts.numbers[..ACKNOWLEDGED].iter().step_by(2).rev();
    let ranges = numbers.filter_map(|number| AckRange::new(*number, *number));
    frames.ack(AckDelay::from_duration(Duration::ZERO), ranges)
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
    Fragment { message: unordered(id, payload), number: 0, total_bytes, offset_bytes }
}

fn skip(id: u64, after: Option<u64>) -> Skip {
    let channel = ChannelId(if id.is_multiple_of(2) { 0 } else { 1 });
    Skip { channel, id: MessageId(id), after: after.map(MessageId), bytes: 0 }
}

/// The receiver of the packets.
pub(crate) struct Receiver {
    sealed: SealedPeers,
    facts: Facts,
}

/// Facts about the receiver for the writer of a packet.
#[derive(Default)]
pub(crate) struct Facts {
    /// The first number of the frames: of a message, of a version, or of a packet.
    next: u64,
    /// Packets of the receiver in flight.
    numbers: Vec<PacketNumber>,
}

impl Receiver {
    fn new(is_client: bool) -> Self {
        let config = Config::default()
            .congestion(UNLIMITED)
            .memory_bytes(1 << 20, 256 << 10)
            .in_flight_bytes(64 << 20);
        let sealed = if is_client {
            SealedPeers::of_client(&config)
        } else {
            SealedPeers::of_server(config, 1, Some(ConnectionId::from_bytes([7; 8])))
        };
        let mut receiver = Self { sealed: sealed.expect("a connection"), facts: Facts::default() };
        // Like a busy connection, this one has received messages before.
        receiver.prepare_each(0..4, 1, |frames, _| frames.message(&unreliable(0, &[7; 64])));
        receiver
    }

    /// Receives one packet, as a worker does.
    fn receive(
        &mut self,
        write: impl FnOnce(&mut Frames<'_>, &Facts) -> Written,
        datagram_bytes: usize,
        is_counted: bool,
    ) {
        let Self { sealed: SealedPeers { endpoint, peers, now }, facts } = self;
        let (mut memory, mut answer) = ([0; DATAGRAM_MAX_BYTES], [0; DATAGRAM_MAX_BYTES]);
        let peer = &mut peers[0];
        let sealed =
            peer.sealer.seal_frames(&mut memory[..datagram_bytes], 0, |frames| write(frames, facts).ok());
        let bytes = &mut memory[..sealed.expect("frames and keys")];
        let from = &peer.address;
        now.monotonic = now.monotonic.after(INTERVAL);
        let mut work = || {
            endpoint.handle_datagrams(*now, [Inbound { from: (*from).into(), bytes: &mut *bytes }]);
            endpoint.handle_timeout(*now);
            take_messages(endpoint);
            while endpoint.poll_transmit(*now, &mut answer).is_some() {}
        };
        if is_counted { counted_part(work) } else { work() }
    }

    /// Receives packets with a frame for each of these numbers, `per_packet` frames in each.
    fn prepare_each(
        &mut self,
        numbers: std::ops::Range<u64>,
        per_packet: usize,
        write: impl Fn(&mut Frames<'_>, u64) -> Written,
    ) {
        // Nothing is allocated here, because the state of the allocator is part of the counts.
        for from in numbers.clone().step_by(per_packet) {
            let to = numbers.end.min(from + per_packet as u64);
            let write = |frames: &mut Frames<'_>, _: &Facts| (from..to).try_for_each(|at| write(frames, at));
            self.receive(write, DATAGRAM_MAX_BYTES, false);
        }
    }
}

/// Delivers a message on each of 1,024 sequenced channels.
fn know_channels(receiver: &mut Receiver) {
    receiver.prepare_each(0..1_024, 32, |frames, at| frames.message(&sequenced(at, &[])));
}

/// Delivers a value of each of 2,048 keys.
fn know_keys(receiver: &mut Receiver) {
    receiver.prepare_each(0..2_048, 32, |frames, at| frames.message(&value(u64::MAX - 4_096 + at, at)));
    // Keys and versions are as long as they can be.
    receiver.facts.next = 1 << 63;
}

fn know_keys_and_acks(receiver: &mut Receiver) {
    acknowledge_all(receiver);
    know_keys(receiver);
}

/// Makes the window of message ids as wide as possible, with every second id missing.
fn make_window(receiver: &mut Receiver) {
    receiver.prepare_each(256..2_048, 32, |frames, at| frames.message(&unordered(2 * at, &[])));
}

/// Lets as many messages as there is credit for wait for message 0.
fn make_waiting(receiver: &mut Receiver) {
    let ids = 1..u64::from(WAITING) + 1;
    receiver.prepare_each(ids, 32, |frames, id| frames.message(&ordered(id, Some(0), &[7])));
}

/// Delivers 316 fragments of message 0 that do not touch.
fn make_holes(receiver: &mut Receiver) {
    receiver.prepare_each(0..316, 20, |frames, at| frames.fragment(&piece(0, 60_000, 3 * at, &[7])));
}

/// Receives packets in whose numbers unreliable messages may have begun.
fn make_loose(receiver: &mut Receiver) {
    receiver.facts.next = 10;
    receiver.prepare_each(0..20, 1, |frames, _| frames.ping());
}

/// Has many packets in flight, each with a value. The first of them are acknowledged.
fn acknowledge_all(receiver: &mut Receiver) {
    receiver.facts.numbers = send_values(&mut receiver.sealed, 0..IN_FLIGHT);
    let ack = |frames: &mut Frames<'_>, facts: &Facts| {
        let ranges = ranges(&facts.numbers[..ACKNOWLEDGED]);
        frames.ack(AckDelay::from_duration(Duration::ZERO), ranges.into_iter())
    };
    receiver.receive(ack, DATAGRAM_MAX_BYTES, false);
}

/// Receives one packet of this kind, in a datagram of at most this size.
pub(crate) fn receive(packet: &Packet, datagram_bytes: usize) {
    let mut receiver = Receiver::new(packet.is_to_client);
    (packet.prepare)(&mut receiver);
    let dropped = receiver.sealed.endpoint.stats().dropped_count();
    let write = |frames: &mut Frames<'_>, facts: &Facts| {
        for at in 0.. {
            match (packet.write)(frames, facts, at) {
                Ok(()) if packet.is_single => return Ok(()),
                Ok(()) => {}
                Err(EncodeError::NoRoom { .. }) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    };
    receiver.receive(write, datagram_bytes, true);
    assert_eq!(receiver.sealed.endpoint.stats().dropped_count(), dropped, "the packet is received");
}
