//! What a message costs on the wire beside its own bytes, counted exactly.
//!
//! Header and tag included; the protection itself is deliberately not run, only its 16 bytes are counted.

use drumfire_wire::{
    ChannelId, ConnectionId, Delivery, FrameWriter, Message, MessageId, PacketNumber, PacketNumberLength,
    TransportHeader, limits,
};

const PAYLOAD: [u8; 32] = [0x5a; 32];

fn reliable(id: u64, after: Option<u64>) -> Message<'static> {
    let delivery = Delivery::ReliableOrdered { id: MessageId(id), after: after.map(MessageId) };
    Message { channel: ChannelId(127), delivery, payload: &PAYLOAD }
}

fn unreliable() -> Message<'static> {
    Message { channel: ChannelId(127), delivery: Delivery::Unreliable, payload: &PAYLOAD }
}

/// Header and tag of a packet to a server.
fn packet_overhead_bytes(length: PacketNumberLength) -> usize {
    let connection_id = Some(ConnectionId::from_bytes([0xff; 8]));
    let number = PacketNumber(u64::MAX).truncate(length);
    let header = TransportHeader { key_phase: true, connection_id, number };
    header.encoded_bytes() + limits::TAG_BYTES
}

/// Bytes of a packet with these messages beyond their payloads.
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

#[test]
fn header_and_tag_take_27_to_29_bytes() {
    assert_eq!(packet_overhead_bytes(PacketNumberLength::Two), 27);
    assert_eq!(packet_overhead_bytes(PacketNumberLength::Three), 28);
    assert_eq!(packet_overhead_bytes(PacketNumberLength::Four), 29);
}

#[test]
fn a_message_alone_costs_at_most_40_bytes() {
    let longest = packet_overhead_bytes(PacketNumberLength::Four);
    let shortest = packet_overhead_bytes(PacketNumberLength::Two);
    let alone = |message| frame_overhead_bytes(std::iter::once(message));
    assert_eq!(shortest + alone(unreliable()), 30);
    assert_eq!(longest + alone(unreliable()), 32);
    assert_eq!(shortest + alone(reliable(0, None)), 32);
    assert_eq!(shortest + alone(reliable(127, Some(0))), 32);
    // A million ids per second for 17 years.
    let last = (1 << 49) - 1;
    assert_eq!(longest + alone(reliable(last, Some(last - 127))), 40);
    assert_eq!(longest + alone(reliable(last + 1, Some(last - 126))), 41);
}

#[test]
fn the_other_modes_cost_no_more() {
    let of = |delivery| Message { channel: ChannelId(127), delivery, payload: &PAYLOAD };
    let run =
        |make: fn(MessageId) -> Delivery| frame_overhead_bytes((0..20).map(|id| of(make(MessageId(id)))));
    assert_eq!(frame_overhead_bytes((0..20).map(|_| of(Delivery::UnreliableSequenced))), 20 * 3);
    assert_eq!(run(|id| Delivery::ReliableUnordered { id }), 20 * 3 + 1);
    assert_eq!(run(|id| Delivery::ReliableSequenced { id }), 20 * 3 + 1);
}

#[test]
fn twenty_messages_in_one_packet_cost_at_most_5_bytes_each() {
    assert_eq!(frame_overhead_bytes((0..20).map(|_| unreliable())), 20 * 3);
    // A fresh run: only the first writes its id out.
    assert_eq!(frame_overhead_bytes((0..20).map(|n| reliable(n, n.checked_sub(1)))), 20 * 4 + 1);
    let late = (1 << 49) - 20;
    let run = (late..late + 20).map(|id| reliable(id, Some(id - 1)));
    assert_eq!(frame_overhead_bytes(run), 20 * 4 + 7);
    // No id follows on from the one before, as with scattered resends under 128.
    assert_eq!(frame_overhead_bytes((0..20).map(|n| reliable(2 * n, None))), 20 * 5);
}
