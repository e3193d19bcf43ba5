//! Compares the written standard with the code: its limits, its test vectors, and its tables of numbers. The tests read the
//! text of the standard, so they fail if a row there is changed, added, or lost.

use crate::samples::{Sample, ordered, packet, walk};
use drumfire_wire::{
    ChannelId, CloseCode, ConnectionId, ConnectionIdLength, Delivery, MessageId, PacketNumber,
    PacketNumberLength, RefuseReason, RoutingTag, Skip, SteeringSecret, TransportHeader, limits, varint,
};
use std::collections::BTreeMap;
use std::num::NonZeroU16;

const STANDARD: &str = include_str!("../../PROTOCOL.md");

/// Returns the cells of the table with this header row.
fn table(head: &str) -> Vec<Vec<&'static str>> {
    let mut lines = STANDARD.lines().skip_while(|line| !line.starts_with(head)).skip(2);
    let rows: Vec<_> = lines
        .by_ref()
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert!(!rows.is_empty(), "no table {head}");
    rows
}

fn number(cell: &str) -> u64 {
    cell.parse().unwrap()
}

#[test]
fn every_limit_of_the_standard_is_that_of_the_code() {
    let code: BTreeMap<&str, u64> = [
        ("DATAGRAM_START_BYTES", limits::DATAGRAM_START_BYTES as u64),
        ("DATAGRAM_MAX_BYTES", limits::DATAGRAM_MAX_BYTES as u64),
        ("TAG_BYTES", limits::TAG_BYTES as u64),
        ("TRANSPORT_MIN_BYTES", limits::TRANSPORT_MIN_BYTES as u64),
        ("ROUTING_TAG_OFFSET", limits::ROUTING_TAG_OFFSET as u64),
        ("TRANSPORT_HEADER_MAX_BYTES", limits::TRANSPORT_HEADER_MAX_BYTES as u64),
        ("PACKET_NUMBER_END", limits::PACKET_NUMBER_END),
        ("HELLO_BYTES", limits::HELLO_BYTES as u64),
        ("SEALED_TOKEN_BYTES", limits::SEALED_TOKEN_BYTES as u64),
        ("COOKIE_BYTES", limits::COOKIE_BYTES as u64),
        ("MAC1_BYTES", limits::MAC1_BYTES as u64),
        ("NOISE_MESSAGE_1_BYTES", limits::NOISE_MESSAGE_1_BYTES as u64),
        ("NOISE_OVERHEAD_BYTES", limits::NOISE_OVERHEAD_BYTES as u64),
        ("SERVER_PARAMETERS_BYTES", limits::SERVER_PARAMETERS_BYTES as u64),
        ("TIMEOUT_MIN_MS", u64::from(limits::TIMEOUT_MIN_MS)),
        ("NOISE_MESSAGE_2_MIN_BYTES", limits::NOISE_MESSAGE_2_MIN_BYTES as u64),
        ("RETRY_MIN_BYTES", limits::RETRY_MIN_BYTES as u64),
        ("RETRY_MAX_BYTES", limits::RETRY_MAX_BYTES as u64),
        ("REFUSE_MAC_BYTES", limits::REFUSE_MAC_BYTES as u64),
        ("REFUSE_MIN_BYTES", limits::REFUSE_MIN_BYTES as u64),
        ("REFUSE_MAX_BYTES", limits::REFUSE_MAX_BYTES as u64),
        ("RESET_TOKEN_BYTES", limits::RESET_TOKEN_BYTES as u64),
        ("PATH_CHALLENGE_BYTES", limits::PATH_CHALLENGE_BYTES as u64),
        ("CONNECTION_IDS_ACTIVE", limits::CONNECTION_IDS_ACTIVE as u64),
        ("WELCOME_MIN_BYTES", limits::WELCOME_MIN_BYTES as u64),
        ("WELCOME_MAX_BYTES", limits::WELCOME_MAX_BYTES as u64),
        ("RESET_BYTES", limits::RESET_BYTES as u64),
        ("ACK_RANGES_KEPT", limits::ACK_RANGES_KEPT as u64),
        ("ACK_RANGES_SENT", limits::ACK_RANGES_SENT as u64),
        ("ACK_DELAY_MAX_UNITS", u64::from(limits::ACK_DELAY_MAX_UNITS)),
        ("PACKET_FRAMES_MAX", u64::from(limits::PACKET_FRAMES_MAX)),
        ("PACKET_RUN_MESSAGES_MAX", u64::from(limits::PACKET_RUN_MESSAGES_MAX)),
        ("CHANNELS", u64::from(limits::CHANNELS)),
        ("MESSAGE_IDS_AHEAD", limits::MESSAGE_IDS_AHEAD),
        ("RELIABLE_MESSAGE_MAX_BYTES", limits::RELIABLE_MESSAGE_MAX_BYTES as u64),
        ("MESSAGE_LIMIT_BYTES", limits::MESSAGE_LIMIT_BYTES.into()),
        ("MESSAGE_LIMIT_MIN_BYTES", limits::MESSAGE_LIMIT_MIN_BYTES.into()),
        ("MESSAGE_CHARGE_BYTES", limits::MESSAGE_CHARGE_BYTES.into()),
        ("UNRELIABLE_MESSAGE_MAX_BYTES", limits::UNRELIABLE_MESSAGE_MAX_BYTES as u64),
        ("CLOSE_REASON_MAX_BYTES", limits::CLOSE_REASON_MAX_BYTES as u64),
        ("STEERING_SOCKETS_MAX", u64::from(limits::STEERING_SOCKETS_MAX)),
    ]
    .into();
    let text: BTreeMap<&str, u64> =
        table("| limit | value |").iter().map(|row| (row[0], number(row[1]))).collect();
    assert_eq!(text, code);
}

#[test]
fn the_refuse_reasons_of_the_standard_are_those_of_the_code() {
    let text: Vec<_> = table("| reason | name |").iter().map(|row| (number(row[0]), row[1])).collect();
    let code: Vec<_> = (1..=11).map(|byte| (u64::from(byte), RefuseReason::from_byte(byte).name())).collect();
    assert_eq!(text, code);
}

#[test]
fn the_close_codes_of_the_standard_are_those_of_the_code() {
    let text: Vec<_> = table("| code | name |").iter().map(|row| (number(row[0]), row[1])).collect();
    let code: Vec<_> = (0..=u8::MAX)
        .filter_map(|byte| CloseCode::from_byte(byte).map(|code| (u64::from(byte), code.name())))
        .collect();
    assert_eq!(text, code);
}

fn varint_vector(value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    varint::encode(value, &mut bytes).unwrap();
    assert_eq!(varint::decode(&bytes), Ok((value, &[][..])));
    bytes
}

fn header_vector(phase: bool, id: Option<[u8; 8]>, number: u64, length: PacketNumberLength) -> Vec<u8> {
    let connection_id = id.map(ConnectionId::from_bytes);
    let number = PacketNumber(number).truncate(length);
    let header = TransportHeader { key_phase: phase, connection_id, number };
    let mut bytes = Vec::new();
    header.encode(&mut bytes).unwrap();
    let mut datagram = bytes.clone();
    datagram.resize(40, 0);
    let ids = if id.is_some() { ConnectionIdLength::Eight } else { ConnectionIdLength::Zero };
    assert_eq!(TransportHeader::decode(&datagram, ids), Ok(header));
    bytes
}

fn frames_vector(samples: &[Sample]) -> Vec<u8> {
    let opened = packet(samples);
    assert_eq!(walk(&opened), (samples.to_vec(), None));
    opened
}

fn message(channel: u16, order: Option<(u64, Option<u64>)>, payload: &[u8]) -> Sample {
    Sample::Message { channel, delivery: ordered(order), payload: payload.to_vec() }
}

fn with(delivery: Delivery, payload: &[u8]) -> Sample {
    Sample::Message { channel: 7, delivery, payload: payload.to_vec() }
}

fn fragment(
    delivery: Delivery,
    number: u64,
    (total_bytes, offset_bytes): (u32, u32),
    payload: &[u8],
) -> Sample {
    Sample::Fragment { channel: 7, delivery, number, total_bytes, offset_bytes, payload: payload.to_vec() }
}

fn run(channel: u16, delivery: Delivery, payloads: &[&[u8]]) -> Sample {
    let payloads = payloads.iter().map(|payload| payload.to_vec()).collect();
    Sample::Run { channel, delivery, payloads }
}

/// Returns the bytes that the code writes for the vector with this name.
fn vector(name: &str) -> Vec<u8> {
    let ranges = |ranges: &[(u64, u64)]| ranges.to_vec();
    match name {
        "varint-0" => varint_vector(0),
        "varint-127" => varint_vector(127),
        "varint-128" => varint_vector(128),
        "varint-300" => varint_vector(300),
        "varint-max" => varint_vector(u64::MAX),
        "header-to-server" => {
            header_vector(false, Some([1, 2, 3, 4, 5, 6, 7, 8]), 0x99_1234, PacketNumberLength::Two)
        }
        "header-to-client" => header_vector(true, None, 0x99_00ab_cdef, PacketNumberLength::Three),
        "header-of-four-bytes" => {
            header_vector(false, Some([1, 2, 3, 4, 5, 6, 7, 8]), 9_000_000, PacketNumberLength::Four)
        }
        "header-longest" => header_vector(
            false,
            Some([0xff, 0xee, 0xdd, 0xcc, 0xbb, 0xaa, 0x99, 0x88]),
            42,
            PacketNumberLength::Four,
        ),
        "padding" => frames_vector(&[Sample::Padding(3)]),
        "ping" => frames_vector(&[Sample::Ping]),
        "ack-one" => frames_vector(&[Sample::Ack { delay_us: 24, ranges: ranges(&[(0, 42)]) }]),
        "ack-holes" => frames_vector(&[Sample::Ack {
            delay_us: 25_576,
            ranges: ranges(&[(998, 1_000), (995, 996), (990, 990)]),
        }]),
        "path-challenge" => frames_vector(&[Sample::PathChallenge([0, 1, 2, 3, 4, 5, 6, 7])]),
        "path-response" => frames_vector(&[Sample::PathResponse([0, 1, 2, 3, 4, 5, 6, 7])]),
        "new-connection-id" => frames_vector(&[Sample::NewConnectionId {
            sequence: 1,
            id: [0x12, 0x34, 0x0a, 0x0b, 0x0c, 0xf0, 0xf1, 0xf2],
            reset_token: std::array::from_fn(|at| u8::try_from(at).unwrap()),
        }]),
        "retire-connection-id" => frames_vector(&[Sample::RetireConnectionId(300)]),
        "close" => {
            frames_vector(&[Sample::Close { code: 0, application_code: 300, reason: b"bye".to_vec() }])
        }
        "unreliable" => frames_vector(&[message(7, None, b"hi")]),
        "skip" => frames_vector(&[Sample::Skip(Skip {
            channel: ChannelId(7),
            id: MessageId(300),
            after: Some(MessageId(295)),
            bytes: 10,
        })]),
        "skip-between" => frames_vector(&[
            with(Delivery::ReliableUnordered { id: MessageId(300) }, b"a"),
            Sample::Skip(Skip { channel: ChannelId(7), id: MessageId(0), after: None, bytes: 5 }),
            with(Delivery::ReliableUnordered { id: MessageId(301) }, b"b"),
        ]),
        "timestamp" => frames_vector(&[Sample::Timestamp(1_000_000)]),
        "credit" => frames_vector(&[Sample::Credit(196_608)]),
        other => message_vector(other),
    }
}

/// The part of [`vector`] for fragments and for the other delivery modes.
fn message_vector(name: &str) -> Vec<u8> {
    match name {
        "unreliable-fragment" => frames_vector(&[fragment(Delivery::Unreliable, 3, (10, 8), b"hi")]),
        "sequenced-fragment" => frames_vector(&[fragment(Delivery::UnreliableSequenced, 3, (10, 8), b"hi")]),
        "unordered-fragments" => frames_vector(&[
            fragment(Delivery::ReliableUnordered { id: MessageId(300) }, 0, (3, 0), b"a"),
            fragment(Delivery::ReliableUnordered { id: MessageId(301) }, 0, (4, 2), b"bc"),
        ]),
        "ordered-fragment" => frames_vector(&[fragment(ordered(Some((300, Some(295)))), 0, (10, 8), b"hi")]),
        "unreliable-sequenced" => frames_vector(&[with(Delivery::UnreliableSequenced, b"hi")]),
        "reliable-unordered" => {
            frames_vector(&[with(Delivery::ReliableUnordered { id: MessageId(300) }, b"hi")])
        }
        "reliable-sequenced" => frames_vector(&[
            with(Delivery::ReliableSequenced { id: MessageId(300) }, b"a"),
            with(Delivery::ReliableSequenced { id: MessageId(301) }, b"b"),
        ]),
        "reliable-latest" => frames_vector(&[with(Delivery::ReliableLatest { key: 300, version: 9 }, b"hi")]),
        "reliable-ordered" => frames_vector(&[message(7, Some((300, None)), b"hi")]),
        "omitted-id" => frames_vector(&[
            message(7, Some((300, Some(295))), b"a"),
            message(0, None, b""),
            message(7, Some((301, Some(300))), b"b"),
        ]),
        "unreliable-run" => frames_vector(&[run(7, Delivery::Unreliable, &[b"hi", b""])]),
        "sequenced-run" => frames_vector(&[run(7, Delivery::UnreliableSequenced, &[b"hi"])]),
        "unordered-runs" => frames_vector(&[
            run(7, Delivery::ReliableUnordered { id: MessageId(300) }, &[b"a", b"b"]),
            run(8, Delivery::ReliableUnordered { id: MessageId(302) }, &[b"c"]),
        ]),
        "ordered-runs" => frames_vector(&[
            run(7, ordered(Some((300, Some(299)))), &[b"a", b"", b"bcd"]),
            run(7, ordered(Some((303, Some(302)))), &[b"x", b"y"]),
        ]),
        "run-and-message" => frames_vector(&[
            run(7, ordered(Some((300, None))), &[b"a", b"b"]),
            message(7, Some((302, Some(301))), b"c"),
        ]),
        "skip-run" => frames_vector(&[Sample::SkipRun {
            channel: 7,
            id: 300,
            after: Some(295),
            lengths: vec![10, 0, 300],
        }]),
        other => unreachable!("the standard has a vector {other} that is not tested"),
    }
}

#[test]
fn the_code_writes_and_reads_every_test_vector() {
    let rows = table("| vector | bytes |");
    assert_eq!(rows.len(), 39);
    for row in rows {
        let bytes: Vec<u8> = row[1].split(' ').map(|hex| u8::from_str_radix(hex, 16).unwrap()).collect();
        assert_eq!(vector(row[0]), bytes, "{}", row[0]);
    }
}

#[test]
fn every_packet_number_of_the_standard_is_recovered() {
    for row in table("| low bits | bytes | newest |") {
        let length = match row[1] {
            "2" => PacketNumberLength::Two,
            "3" => PacketNumberLength::Three,
            _ => PacketNumberLength::Four,
        };
        let newest = (row[2] != "none").then(|| PacketNumber(number(row[2])));
        let truncated = PacketNumber(number(row[0])).truncate(length);
        assert_eq!(truncated.expand(newest), PacketNumber(number(row[3])), "{row:?}");
    }
}

#[test]
fn every_routing_tag_of_the_standard_maps_to_its_socket() {
    let six = NonZeroU16::new(6).unwrap();
    for row in table("| secret | tag | socket |") {
        let secret = SteeringSecret::from_bits(u32::try_from(number(row[0])).unwrap());
        let tag = RoutingTag(u16::try_from(number(row[1])).unwrap());
        assert_eq!(u64::from(secret.socket_for(tag, six)), number(row[2]), "{row:?}");
    }
}
