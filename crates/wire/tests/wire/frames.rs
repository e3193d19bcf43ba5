//! Packets of frames: random frames round trip, any bytes decode or give an error, and the overhead of a message is counted.
//!
//! The limits of each frame are tested in the module of the frame.

use crate::mutants;
use crate::samples::{Sample, ordered, packet, walk, with_joined_padding};
use crate::soundness::assert_walk_is_sound;
use drumfire_wire::{
    ChannelId, ConnectionId, Delivery, FrameError, FrameWriter, Message, MessageId, PacketNumber,
    PacketNumberLength, Skip, TransportHeader, limits,
};
use proptest::prelude::*;

fn sample(channel: u16, order: Option<(u64, Option<u64>)>, payload: &[u8]) -> Sample {
    Sample::Message { channel, delivery: ordered(order), payload: payload.to_vec() }
}

/// Returns packets that are typical of a connection.
fn recorded() -> Vec<Vec<u8>> {
    let input = sample(1, None, &[7; 32]);
    let many: Vec<_> = (0..20).map(|n| sample(2, Some((1_000 + n, Some(999 + n))), &[9; 32])).collect();
    let ack = Sample::Ack { delay_us: 5_000, ranges: vec![(900, 1_000), (700, 800), (0, 650)] };
    let full =
        Sample::Ack { delay_us: 0, ranges: (0..32).rev().map(|n| (5_000 * n, 5_000 * n + 300)).collect() };
    let close = Sample::Close { code: 1, application_code: 70_000, reason: b"going down".to_vec() };
    [
        vec![Sample::Ping, Sample::Padding(8)],
        vec![input.clone()],
        vec![sample(300, Some((1 << 40, None)), b"first")],
        many.clone(),
        vec![ack.clone(), input],
        [vec![ack], many, vec![Sample::Padding(3)]].concat(),
        vec![full, Sample::Ping],
        vec![
            Sample::Fragment {
                channel: 9,
                delivery: ordered(Some((70, Some(69)))),
                number: 0,
                total_bytes: 60_000,
                offset_bytes: 40_000,
                payload: vec![5; 100],
            },
            Sample::Credit(1 << 30),
            Sample::Timestamp(1 << 40),
            sample(9, Some((71, Some(70))), b"behind it"),
        ],
        vec![
            Sample::Run {
                channel: 9,
                delivery: ordered(Some((70, Some(69)))),
                payloads: (0..20).map(|length| vec![5; length]).collect(),
            },
            Sample::Run {
                channel: 2,
                delivery: Delivery::UnreliableSequenced,
                payloads: vec![vec![6; 40]; 3],
            },
            sample(9, Some((90, Some(89))), b"behind them"),
            Sample::SkipRun { channel: 9, id: 60, after: Some(58), lengths: vec![3, 300, 1 << 24] },
        ],
        vec![close],
    ]
    .iter()
    .map(|samples| packet(samples))
    .collect()
}

const PAYLOAD: [u8; 32] = [0x5a; 32];

fn reliable(id: u64, after: Option<u64>) -> Message<'static> {
    let delivery = Delivery::ReliableOrdered { id: MessageId(id), after: after.map(MessageId) };
    Message { channel: ChannelId(127), delivery, payload: &PAYLOAD }
}

fn unreliable() -> Message<'static> {
    Message { channel: ChannelId(127), delivery: Delivery::Unreliable, payload: &PAYLOAD }
}

/// Returns the length of header and tag in bytes of a packet to a server.
fn packet_overhead_bytes(length: PacketNumberLength) -> usize {
    let connection_id = Some(ConnectionId::from_bytes([0xff; 8]));
    let number = PacketNumber(u64::MAX).truncate(length);
    let header = TransportHeader { key_phase: true, connection_id, number };
    header.encoded_bytes() + limits::TAG_BYTES
}

/// Returns the length in bytes of the frames of these messages without their payloads.
fn frame_overhead_bytes(messages: impl Iterator<Item = Message<'static>>) -> usize {
    let mut buffer = [0; limits::DATAGRAM_START_BYTES];
    let mut writer = FrameWriter::new(&mut buffer[..]);
    let mut payload_bytes = 0;
    for message in messages {
        writer.message(&message).unwrap();
        payload_bytes += message.payload.len();
    }
    writer.written_bytes() - payload_bytes
}

fn any_ranges() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let steps = prop::collection::vec((0_u64..200, 0_u64..200), 1..=32);
    (any::<u64>(), 0_u32..64, steps).prop_map(|(bits, shift, steps)| {
        let mut top = (bits >> shift).max(32 * 402);
        let mut ranges = Vec::new();
        for (length, gap) in steps {
            ranges.push((top - length, top));
            top -= length + gap + 2;
        }
        ranges
    })
}

/// The number of modes whose messages can be in runs: all but the last two, "reliable sequenced" and "reliable latest".
const RUN_MODES: u8 = 4;

/// The number of modes whose messages can be fragmented. The last mode, "reliable latest", is not one of them.
const FRAGMENTED_MODES: u8 = 5;

fn any_delivery(modes: u8) -> impl Strategy<Value = Delivery> {
    // Small ids, of which some are successors of others, and ids from all of `u64`.
    let id = prop_oneof![0_u64..5, (any::<u64>(), 0_u32..64).prop_map(|(bits, shift)| bits >> shift)];
    (0..modes, id, prop::option::of(any::<u64>())).prop_map(|(mode, id, back)| {
        let after = back.filter(|_| id > 0).map(|back| MessageId(id - 1 - back % id));
        let id = MessageId(id);
        match mode {
            0 => Delivery::Unreliable,
            1 => Delivery::UnreliableSequenced,
            2 => Delivery::ReliableUnordered { id },
            3 => Delivery::ReliableOrdered { id, after },
            4 => Delivery::ReliableSequenced { id },
            _ => Delivery::ReliableLatest { key: back.unwrap_or(0), version: id.0 },
        }
    })
}

fn any_skip() -> impl Strategy<Value = Skip> {
    let bytes = 0..=limits::MESSAGE_LIMIT_BYTES;
    (any::<u16>(), any::<u64>(), prop::option::of(any::<u64>()), bytes).prop_map(
        |(channel, id, back, bytes)| {
            let after = back.filter(|_| id > 0).map(|back| MessageId(id - 1 - back % id));
            Skip { channel: ChannelId(channel), id: MessageId(id), after, bytes }
        },
    )
}

fn any_run() -> impl Strategy<Value = Sample> {
    let payloads = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..20);
    (any::<u16>(), any_delivery(RUN_MODES), payloads)
        .prop_filter("the ids of the run exceed a `u64`", |(_, delivery, payloads)| {
            delivery.id().is_none_or(|id| id.0.checked_add(payloads.len() as u64).is_some())
        })
        .prop_map(|(channel, delivery, payloads)| Sample::Run { channel, delivery, payloads })
}

fn any_skip_run() -> impl Strategy<Value = Sample> {
    let lengths = prop::collection::vec(0..=limits::MESSAGE_LIMIT_BYTES, 1..20);
    (any_skip(), lengths).prop_map(|(skip, lengths)| Sample::SkipRun {
        channel: skip.channel.0,
        id: skip.id.0 >> 1,
        after: (skip.id.0 >> 1).checked_sub(1),
        lengths,
    })
}

fn any_fragment() -> impl Strategy<Value = Sample> {
    let delivery = any_delivery(FRAGMENTED_MODES);
    let payload = prop::collection::vec(any::<u8>(), 1..200);
    (any::<u16>(), delivery, any::<u64>(), 0_u32..1 << 23, 0_u32..1 << 22, payload).prop_map(
        |(channel, delivery, number, offset_bytes, more, payload)| {
            let has_id = !matches!(delivery, Delivery::Unreliable | Delivery::UnreliableSequenced);
            let total_bytes = offset_bytes + u32::try_from(payload.len()).unwrap() + more;
            let number = if has_id { 0 } else { number };
            Sample::Fragment { channel, delivery, number, total_bytes, offset_bytes, payload }
        },
    )
}

fn any_sample() -> impl Strategy<Value = Sample> {
    prop_oneof![
        (1_usize..40).prop_map(Sample::Padding),
        Just(Sample::Ping),
        Just(Sample::AckRequest),
        (0_u64..2_000_000, any_ranges())
            .prop_map(|(units, ranges)| Sample::Ack { delay_us: 8 * units, ranges }),
        (any::<u16>(), any_delivery(FRAGMENTED_MODES + 1), prop::collection::vec(any::<u8>(), 0..200))
            .prop_map(|(channel, delivery, payload)| Sample::Message { channel, delivery, payload }),
        (0_u8..8, any::<u32>(), prop::collection::vec(any::<u8>(), 0..=128))
            .prop_map(|(code, application_code, reason)| Sample::Close { code, application_code, reason }),
        any_skip().prop_map(Sample::Skip),
        any_fragment(),
        any_run(),
        any_skip_run(),
        any::<u64>().prop_map(Sample::Credit),
        any::<u64>().prop_map(Sample::Timestamp),
        any::<[u8; 8]>().prop_map(Sample::PathChallenge),
        any::<[u8; 8]>().prop_map(Sample::PathResponse),
        (any::<u64>(), any::<[u8; 8]>(), any::<[u8; 16]>()).prop_map(|(sequence, id, reset_token)| {
            Sample::NewConnectionId { sequence, id, reset_token }
        }),
        any::<u64>().prop_map(Sample::RetireConnectionId),
        (any::<u16>(), any::<[u8; 32]>(), prop::collection::vec(any::<u8>(), limits::SEALED_TOKEN_BYTES))
            .prop_map(|(lifetime_seconds, psk, sealed)| Sample::ResumeToken {
                lifetime_seconds,
                psk,
                sealed
            }),
    ]
}

#[test]
fn every_prefix_of_a_recorded_packet_gives_its_first_frames() {
    for opened in recorded() {
        let (all, error) = walk(&opened);
        assert_eq!(error, None);
        for end in 0..opened.len() {
            let (mut some, error) = walk(&opened[..end]);
            assert!(matches!(error, None | Some(FrameError::Truncated)), "{error:?}");
            if let Some(Sample::Padding(_)) = some.last() {
                some.pop();
            }
            assert_eq!(some, all[..some.len()]);
            assert_walk_is_sound(&opened[..end]);
        }
    }
}

#[test]
fn every_mutant_of_a_recorded_packet_is_sound() {
    for opened in recorded() {
        mutants::of(&opened, mutants::count(), assert_walk_is_sound);
    }
}

#[test]
fn every_flipped_bit_of_a_recorded_packet_is_decoded() {
    let mut flips = 0;
    for mut opened in recorded() {
        let original = walk(&opened);
        for bit in 0..8 * opened.len() {
            opened[bit / 8] ^= 1 << (bit % 8);
            assert_walk_is_sound(&opened);
            assert_ne!(walk(&opened), original, "bit {bit} changes nothing");
            opened[bit / 8] ^= 1 << (bit % 8);
            flips += 1;
        }
    }
    assert!(flips > 10_000, "{flips}");
}

#[test]
fn header_and_tag_take_27_to_29_bytes() {
    assert_eq!(packet_overhead_bytes(PacketNumberLength::Two), 27);
    assert_eq!(packet_overhead_bytes(PacketNumberLength::Three), 28);
    assert_eq!(packet_overhead_bytes(PacketNumberLength::Four), 29);
}

#[test]
fn a_single_message_has_at_most_40_bytes_of_overhead() {
    let longest = packet_overhead_bytes(PacketNumberLength::Four);
    let shortest = packet_overhead_bytes(PacketNumberLength::Two);
    let alone = |message| frame_overhead_bytes(std::iter::once(message));
    assert_eq!(shortest + alone(unreliable()), 30);
    assert_eq!(longest + alone(unreliable()), 32);
    assert_eq!(shortest + alone(reliable(0, None)), 32);
    assert_eq!(shortest + alone(reliable(127, Some(0))), 32);
    // The last id after 17 years with a million ids per second.
    let last = (1 << 49) - 1;
    assert_eq!(longest + alone(reliable(last, Some(last - 127))), 40);
    assert_eq!(longest + alone(reliable(last + 1, Some(last - 126))), 41);
}

#[test]
fn the_other_modes_have_no_more_overhead() {
    let message = |delivery| Message { channel: ChannelId(127), delivery, payload: &PAYLOAD };
    let run = |make: fn(MessageId) -> Delivery| {
        frame_overhead_bytes((0..20).map(|id| message(make(MessageId(id)))))
    };
    assert_eq!(frame_overhead_bytes((0..20).map(|_| message(Delivery::UnreliableSequenced))), 20 * 3);
    assert_eq!(run(|id| Delivery::ReliableUnordered { id }), 20 * 3 + 1);
    assert_eq!(run(|id| Delivery::ReliableSequenced { id }), 20 * 3 + 1);
}

#[test]
fn each_of_20_messages_has_at_most_5_bytes_of_overhead() {
    assert_eq!(frame_overhead_bytes((0..20).map(|_| unreliable())), 20 * 3);
    // In a new run, only the first message has its id in its frame.
    assert_eq!(frame_overhead_bytes((0..20).map(|n| reliable(n, n.checked_sub(1)))), 20 * 4 + 1);
    let late = (1 << 49) - 20;
    let run = (late..late + 20).map(|id| reliable(id, Some(id - 1)));
    assert_eq!(frame_overhead_bytes(run), 20 * 4 + 7);
    // No id is the successor of the previous id, as with retransmissions of scattered ids below 128.
    assert_eq!(frame_overhead_bytes((0..20).map(|n| reliable(2 * n, None))), 20 * 5);
}

proptest! {
    #[test]
    fn written_frames_round_trip(samples in prop::collection::vec(any_sample(), 0..20)) {
        let opened = packet(&samples);
        prop_assert_eq!(walk(&opened), (with_joined_padding(samples), None));
    }

    #[test]
    fn a_prefix_of_a_packet_has_only_frames_of_the_packet(
        samples in prop::collection::vec(any_sample(), 1..8), cut: prop::sample::Index,
    ) {
        let opened = packet(&samples);
        let (mut some, error) = walk(&opened[..cut.index(opened.len())]);
        prop_assert!(matches!(error, None | Some(FrameError::Truncated)));
        let all = with_joined_padding(samples);
        if let Some(Sample::Padding(_)) = some.last() {
            some.pop();
        }
        prop_assert_eq!(&some[..], &all[..some.len()]);
    }

    #[test]
    fn any_bytes_are_sound(opened in prop::collection::vec(any::<u8>(), 0..1_500)) {
        assert_walk_is_sound(&opened);
    }

    #[test]
    fn bytes_that_resemble_frames_are_sound(
        parts in prop::collection::vec(
            (prop::sample::select(vec![0x00_u8, 0x01, 0x02, 0x03, 0x05, 0x80, 0x83, 0x93, 0x88, 0x8b, 0x9b]), prop::collection::vec(0_u8..12, 0..12)),
            0..40,
        ),
    ) {
        let opened: Vec<u8> = parts.into_iter().flat_map(|(byte, rest)| [vec![byte], rest].concat()).collect();
        assert_walk_is_sound(&opened);
        // Decoded frames can be encoded and decoded again.
        let (samples, _) = walk(&opened);
        prop_assert_eq!(walk(&packet(&samples)), (samples, None));
    }

    #[test]
    fn a_frame_is_written_as_a_whole_or_not_at_all(samples in prop::collection::vec(any_sample(), 1..30), room in 0_usize..400) {
        let mut buffer = vec![0xaa; 500];
        let mut writer = FrameWriter::new(&mut buffer[..room]);
        let fitted: Vec<_> = samples.into_iter().filter(|sample| sample.write(&mut writer).is_ok()).collect();
        let written = writer.written_bytes();
        prop_assert_eq!(written + writer.remaining_bytes(), room);
        prop_assert!(buffer[written..].iter().all(|&byte| byte == 0xaa));
        prop_assert_eq!(walk(&buffer[..written]), (with_joined_padding(fitted), None));
    }
}
