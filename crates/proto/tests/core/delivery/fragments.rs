//! Fragmented messages arrive complete, once, and in order over lossy links, and block no others.

use crate::harness::{CLEAN, CLIENT, Link, SERVER, World};
use crate::puppet::Puppet;
use drumfire_proto::{
    ChannelId, ClientConfig, CloseReason, Config, DropReason, Mode, Outcome, Priority, ProtocolError,
    SendError, SendOptions,
};
use drumfire_wire::{Delivery, EncodeError, Fragment, FrameWriter, Message, MessageId, Skip};
use std::time::Duration;

const BAD_LINK: Link = Link { loss: 20, duplicate: 10, jitter: Duration::from_millis(60), ..CLEAN };

/// Returns a unique message of this length.
fn message(number: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(31) >> 3).to_le_bytes()[0] ^ number).collect()
}

#[test]
fn every_mode_but_values_takes_messages_of_many_packets() {
    let mut world = World::new(1, CLEAN);
    let (client, _) = world.connected();
    for (number, mode, bytes) in [
        (1, Mode::Unreliable, 16_384),
        (2, Mode::UnreliableSequenced, 16_384),
        (3, Mode::ReliableUnordered, 65_536),
        (4, Mode::ReliableOrdered, 65_536),
        (5, Mode::ReliableSequenced, 65_536),
    ] {
        let options = SendOptions::new(mode);
        let too_long = world.send(CLIENT, client, 1, &message(number, bytes + 1), options);
        assert_eq!(too_long, Err(SendError::TooLarge { bytes: bytes + 1, limit_bytes: bytes }));
        assert_eq!(world.send(CLIENT, client, 1, &message(number, bytes), options), Ok(()));
        world.run(Duration::from_secs(1));
        assert_eq!(world.messages(SERVER).last(), Some(&(1, message(number, bytes))), "{mode:?}");
    }
    assert_eq!(world.messages(SERVER).len(), 5);
    assert_eq!(world.ends[CLIENT].stats().messages_resent, 0);
}

#[test]
fn long_and_short_messages_keep_their_order_on_a_bad_link() {
    for seed in 0..20 {
        let mut world = World::new(seed, BAD_LINK);
        let (client, _) = world.connected();
        let lengths = [30_000, 10, 1_146, 5_000, 0, 64_000, 1_145, 2_000];
        for (number, bytes) in (0..).zip(lengths) {
            while world.reliable(CLIENT, client, &message(number, bytes)).is_err() {
                world.run(Duration::from_millis(10));
            }
        }
        world.run(Duration::from_secs(20));
        let got: Vec<_> = world.messages(SERVER).iter().map(|(_, bytes)| bytes.clone()).collect();
        let expected: Vec<_> = (0..).zip(lengths).map(|(number, bytes)| message(number, bytes)).collect();
        assert!(got == expected, "seed {seed}: {:?}", got.iter().map(Vec::len).collect::<Vec<_>>());
    }
}

#[test]
fn only_lost_fragments_of_a_long_message_are_resent() {
    let mut world = World::new(3, CLEAN);
    let (client, _) = world.connected();
    world.run(Duration::from_millis(200));
    world.link = Link { loss: 10, ..CLEAN };
    for number in 0..20 {
        world.reliable(CLIENT, client, &message(number, 60_000)).unwrap();
        world.run(Duration::from_secs(2));
    }
    assert_eq!(world.messages(SERVER).len(), 20);
    let fragments = world.ends[CLIENT].stats().fragments_sent;
    let least = 20 * 60_000 / 1_160;
    assert!((least..least * 4 / 3).contains(&fragments), "{fragments} for {least}");
}

#[test]
fn an_urgent_message_waits_for_one_packet_of_a_long_one_at_most() {
    let mut world = World::new(4, CLEAN);
    let (client, _) = world.connected();
    world.run(Duration::from_millis(200));
    let bulk = SendOptions::reliable_ordered().priority(Priority::Bulk);
    world.send(CLIENT, client, 1, &message(1, 64_000), bulk).unwrap();
    let now = world.now();
    let mut memory = [0; 1_200];
    // The first packet is in flight when the other message is queued.
    let first = world.ends[CLIENT].poll_transmit(now, &mut memory).unwrap();
    let first = memory[..first.bytes].to_vec();
    let urgent = SendOptions::unreliable().priority(Priority::Urgent);
    world.send(CLIENT, client, 2, b"now", urgent).unwrap();
    let second = world.ends[CLIENT].poll_transmit(now, &mut memory).unwrap();
    let second = memory[..second.bytes].to_vec();
    for datagram in [first, second] {
        world.deliver(SERVER, crate::harness::address(CLIENT), &datagram);
    }
    world.run(Duration::ZERO);
    assert_eq!(world.messages(SERVER), [(2, b"now".to_vec())]);
    world.run(Duration::from_secs(1));
    assert_eq!(world.messages(SERVER).len(), 2);
}

#[test]
fn a_long_message_does_not_block_another_channel() {
    let mut world = World::new(5, CLEAN);
    let (client, _) = world.connected();
    world.run(Duration::from_millis(200));
    world.send(CLIENT, client, 1, &message(1, 64_000), SendOptions::reliable_ordered()).unwrap();
    world.send(CLIENT, client, 2, b"short", SendOptions::reliable_ordered()).unwrap();
    // Channels share by bytes, so the short message is in the second packet.
    world.flush();
    let now = world.now();
    assert!(world.ends[CLIENT].poll_transmit(now, &mut [0; 1_200]).is_none());
    world.run(Duration::from_millis(30));
    assert_eq!(world.messages(SERVER).first(), Some(&(2, b"short".to_vec())));
}

#[test]
fn an_expired_long_message_is_skipped_without_its_rest() {
    let mut world = World::new(6, CLEAN);
    let (client, _) = world.connected();
    world.run(Duration::from_millis(200));
    world.link.loss = 100;
    let short_lived = SendOptions::reliable_ordered().lifetime(Duration::from_millis(100));
    world.send_with_receipt(CLIENT, client, &message(1, 64_000), short_lived, 1).unwrap();
    world.send(CLIENT, client, 1, b"behind", SendOptions::reliable_ordered()).unwrap();
    world.run(Duration::from_millis(300));
    world.link.loss = 0;
    let before = world.ends[CLIENT].stats().bytes_sent;
    world.run(Duration::from_secs(3));
    assert_eq!(world.messages(SERVER), [(1, b"behind".to_vec())]);
    assert_eq!(world.ends[SERVER].stats().messages_skipped, 1);
    assert_eq!(world.receipts(CLIENT), [(1, Outcome::Expired)]);
    assert!(world.ends[CLIENT].stats().bytes_sent - before < 5_000);
    // The message is no longer charged: all memory is free.
    for _ in 0..3 {
        world.reliable(CLIENT, client, &message(2, 64_000)).unwrap();
    }
}

#[test]
fn the_receipt_of_a_long_unreliable_message_covers_all_of_it() {
    let mut world = World::new(7, CLEAN);
    let (client, _) = world.connected();
    world.run(Duration::from_millis(200));
    let options = SendOptions::unreliable();
    world.send_with_receipt(CLIENT, client, &message(1, 10_000), options, 1).unwrap();
    world.run(Duration::from_secs(1));
    assert_eq!(world.receipts(CLIENT), [(1, Outcome::Acknowledged)]);
    world.send_with_receipt(CLIENT, client, &message(2, 10_000), options, 2).unwrap();
    // One of its packets is lost.
    let (now, mut memory) = (world.now(), [0; 1_200]);
    world.ends[CLIENT].poll_transmit(now, &mut memory).unwrap();
    world.run(Duration::from_secs(1));
    assert_eq!(world.receipts(CLIENT).last(), Some(&(2, Outcome::Lost)));
    assert_eq!(world.messages(SERVER).len(), 1);
}

#[test]
fn an_incomplete_unreliable_message_gives_way_to_newer_ones() {
    let small = Config::default().memory_bytes(65_536, 4_096);
    for bytes in [3_500, 1_000] {
        let mut world = World::with(26, CLEAN, small.clone(), ClientConfig::default());
        let (client, _) = world.connected();
        world.send(CLIENT, client, 1, &message(1, 3_500), SendOptions::unreliable()).unwrap();
        // The last of its packets arrive, the first does not.
        let (now, mut memory) = (world.now(), [0; 1_200]);
        world.ends[CLIENT].poll_transmit(now, &mut memory).unwrap();
        world.run(Duration::from_millis(100));
        assert_eq!(world.messages(SERVER), []);
        world.send(CLIENT, client, 1, &message(2, bytes), SendOptions::unreliable()).unwrap();
        world.run(Duration::from_millis(100));
        assert_eq!(world.messages(SERVER), [(1, message(2, bytes))]);
        assert_eq!(world.ends[SERVER].stats().unreliable_overflows, 0);
    }
}

#[test]
fn a_late_fragment_takes_no_memory_from_a_newer_message() {
    let small = Config::default().memory_bytes(65_536, 4_096);
    let mut puppet = Puppet::with(27, small);
    // A fragment cannot belong to a later packet than its own.
    (0..2).for_each(|_| puppet.send_frames(|writer| writer.ping().and_then(|()| writer.padding(3))));
    let unreliable = |number, offset_bytes| {
        let message = Message { channel: ChannelId(0), delivery: Delivery::Unreliable, payload: &[1; 1_000] };
        Fragment { message, number, total_bytes: 3_000, offset_bytes }
    };
    for (number, offset_bytes) in [(2, 0), (2, 1_000), (1, 0), (2, 2_000)] {
        send_frames(&mut puppet, &unreliable(number, offset_bytes));
    }
    assert_eq!(puppet.world.messages(SERVER), [(0, vec![1; 3_000])]);
    assert_eq!(puppet.world.ends[SERVER].stats().unreliable_overflows, 1);
}

#[test]
fn an_unreliable_message_takes_no_memory_granted_as_credit() {
    // The peer has credit for half of the memory. Together with the unreliable message it would need more than all.
    let mut puppet = Puppet::with(28, Config::default().memory_bytes(65_536, 20_000));
    puppet.reliable(1, Some(0));
    let message = Message { channel: ChannelId(0), delivery: Delivery::Unreliable, payload: &[2; 1_000] };
    for index in 0..12 {
        send_frames(
            &mut puppet,
            &Fragment { message, number: 0, total_bytes: 12_000, offset_bytes: index * 1_000 },
        );
    }
    assert!(puppet.world.messages(SERVER).is_empty());
    assert_eq!(puppet.world.ends[SERVER].stats().unreliable_overflows, 12);
    puppet.reliable(0, None);
    assert_eq!(puppet.world.messages(SERVER).len(), 2);
}

#[test]
fn messages_of_16_mib_pass_where_both_ends_allow_them() {
    let mut large = Config::default().memory_bytes(1 << 26, 1 << 26).message_max_bytes(1 << 24);
    large.event_memory_bytes = 1 << 27;
    large.in_flight_bytes = 1 << 20;
    let mut world = World::with(8, CLEAN, large, ClientConfig::default());
    let (client, _) = world.connected();
    world.reliable(CLIENT, client, &message(1, 1 << 24)).unwrap();
    world.run(Duration::from_secs(20));
    assert!(world.messages(SERVER) == [(0, message(1, 1 << 24))]);
}

/// Returns a fragment of message `id` on channel 0.
fn fragment(id: u64, total_bytes: u32, offset_bytes: u32, payload: &[u8]) -> Fragment<'_> {
    let delivery = Delivery::ReliableUnordered { id: MessageId(id) };
    let message = Message { channel: ChannelId(0), delivery, payload };
    Fragment { message, number: 0, total_bytes, offset_bytes }
}

fn send_frames(puppet: &mut Puppet, fragment: &Fragment<'_>) {
    puppet.send_frames(|writer: &mut FrameWriter<_>| writer.fragment(fragment));
}

#[test]
fn the_16th_contradicting_fragment_closes() {
    let mut puppet = Puppet::connected(20);
    send_frames(&mut puppet, &fragment(0, 5_000, 0, &[1; 100]));
    for strike in 1..=15 {
        send_frames(&mut puppet, &fragment(0, 5_000 + strike, 100, &[1; 100]));
        let stats = puppet.world.ends[SERVER].stats();
        assert_eq!(stats.dropped(DropReason::FragmentMismatch), u64::from(strike));
        assert_eq!(puppet.ending(), None);
    }
    send_frames(&mut puppet, &fragment(0, 5_016, 100, &[1; 100]));
    assert_eq!(puppet.ending(), Some(CloseReason::Protocol(ProtocolError::FragmentMismatch)));
}

#[test]
fn each_excess_of_fragments_closes_with_its_own_error() {
    let ending = |build: &dyn Fn(&mut Puppet)| {
        let mut puppet = Puppet::connected(21);
        build(&mut puppet);
        puppet.ending()
    };
    let protocol = |error| Some(CloseReason::Protocol(error));
    assert_eq!(ending(&|puppet| send_frames(puppet, &fragment(0, 65_536, 0, &[1]))), None);
    let too_long = ending(&|puppet| send_frames(puppet, &fragment(0, 65_537, 0, &[1])));
    assert_eq!(too_long, protocol(ProtocolError::MessageTooLong));
    let many =
        |count| ending(&|puppet| (0..count).for_each(|id| send_frames(puppet, &fragment(id, 100, 0, &[1]))));
    assert_eq!((many(64), many(65)), (None, protocol(ProtocolError::TooManyFragmented)));
    let much = |count| {
        ending(&|puppet| (0..count).for_each(|id| send_frames(puppet, &fragment(id, 65_000, 0, &[1]))))
    };
    assert_eq!((much(2), much(3)), (None, protocol(ProtocolError::CreditExceeded)));
}

#[test]
fn holes_beyond_the_limit_are_not_acked_and_close_nothing() {
    let mut puppet = Puppet::connected(22);
    for hole in 0..400 {
        send_frames(&mut puppet, &fragment(0, 60_000, 3 * hole, &[1]));
    }
    assert_eq!(puppet.ending(), None);
    assert_eq!(puppet.world.ends[SERVER].stats().dropped(DropReason::ReceiveMemory), 400 - 320);
    // Fragments that close holes are still accepted.
    for hole in 0..320 {
        send_frames(&mut puppet, &fragment(0, 60_000, 3 * hole + 1, &[1; 2]));
    }
    send_frames(&mut puppet, &fragment(0, 60_000, 960, &vec![1; 1_000]));
    assert_eq!(puppet.world.ends[SERVER].stats().dropped(DropReason::ReceiveMemory), 400 - 320);
}

#[test]
fn fragments_of_received_or_skipped_messages_change_nothing() {
    let mut puppet = Puppet::connected(23);
    send_frames(&mut puppet, &fragment(0, 4, 0, &[1; 4]));
    send_frames(&mut puppet, &fragment(0, 9_000, 7, &[1; 4]));
    send_frames(&mut puppet, &fragment(1, 10, 0, &[1; 4]));
    let skip = drumfire_wire::Skip { channel: ChannelId(0), id: MessageId(1), after: None, bytes: 10 };
    puppet.send_frames(|writer| writer.skip(&skip));
    send_frames(&mut puppet, &fragment(1, 10, 4, &[1; 6]));
    assert_eq!((puppet.world.messages(SERVER).len(), puppet.ending()), (1, None));
    assert_eq!(puppet.world.ends[SERVER].stats().messages_skipped, 1);
}

#[test]
fn a_fragment_that_claims_to_be_of_a_later_packet_closes() {
    let mut puppet = Puppet::connected(24);
    let unreliable = |number| {
        let message = Message { channel: ChannelId(0), delivery: Delivery::Unreliable, payload: &[1] };
        Fragment { message, number, total_bytes: 10, offset_bytes: 0 }
    };
    send_frames(&mut puppet, &unreliable(0));
    assert_eq!(puppet.ending(), None);
    send_frames(&mut puppet, &unreliable(1 << 40));
    assert!(matches!(puppet.ending(), Some(CloseReason::Protocol(ProtocolError::Frame(_)))));
}

#[test]
fn a_long_sequenced_message_is_ordered_by_its_first_fragment() {
    let mut world = World::new(25, CLEAN);
    let (client, _) = world.connected();
    world.run(Duration::from_millis(200));
    let sequenced = SendOptions::unreliable_sequenced();
    // The first message leaves less room than a fragment needs, so the second begins in the next packet.
    world.send(CLIENT, client, 1, &message(1, 1_110), sequenced).unwrap();
    world.send(CLIENT, client, 1, &message(2, 1_500), sequenced).unwrap();
    let (now, mut memory) = (world.now(), [0; 1_200]);
    let mut packets = Vec::new();
    while let Some(sent) = world.ends[CLIENT].poll_transmit(now, &mut memory) {
        packets.push(memory[..sent.bytes].to_vec());
    }
    assert_eq!(packets.len(), 3);
    // The packet of the first message is late.
    packets.rotate_left(1);
    for packet in packets {
        world.deliver(SERVER, crate::harness::address(CLIENT), &packet);
    }
    world.run(Duration::ZERO);
    assert_eq!(world.messages(SERVER), [(1, message(2, 1_500))]);
}

#[test]
fn fragments_beyond_a_limit_within_one_packet_close() {
    let mut puppet = Puppet::connected(27);
    for from in [0, 16, 32, 48] {
        assert_eq!(puppet.ending(), None);
        puppet.send_frames(|writer| {
            (from..from + 16).try_for_each(|id| writer.fragment(&fragment(id, 100, 0, &[1])))
        });
    }
    puppet.send_frames(|writer| (64..65).try_for_each(|id| writer.fragment(&fragment(id, 100, 0, &[1]))));
    assert_eq!(puppet.ending(), Some(CloseReason::Protocol(ProtocolError::TooManyFragmented)));
    let mut puppet = Puppet::connected(28);
    puppet.send_frames(|writer| (0..3).try_for_each(|id| writer.fragment(&fragment(id, 65_000, 0, &[1]))));
    assert_eq!(puppet.ending(), Some(CloseReason::Protocol(ProtocolError::CreditExceeded)));
}

#[test]
fn holes_beyond_the_limit_within_one_packet_are_not_accepted() {
    let mut puppet = Puppet::connected(29);
    for packet in 0..17 {
        let holes = packet * 20..(packet + 1) * 20;
        puppet.send_frames(|writer| {
            holes.clone().try_for_each(|hole| writer.fragment(&fragment(0, 60_000, 3 * hole, &[1])))
        });
    }
    assert_eq!(puppet.ending(), None);
    assert_eq!(puppet.world.ends[SERVER].stats().dropped(DropReason::ReceiveMemory), 1);
}

/// Returns a packet with fragments of message 0 and one frame that contradicts them.
type Write = fn(&mut FrameWriter<&mut [u8]>) -> Result<(), EncodeError>;

/// A fragment of message 0, which has ten bytes.
fn first(writer: &mut FrameWriter<&mut [u8]>) -> Result<(), EncodeError> {
    writer.fragment(&fragment(0, 10, 0, &[1]))
}

/// The contradicting frame.
const OTHERS: [(&str, Write); 4] = [
    ("a fragment of another length", |writer| writer.fragment(&fragment(0, 60_000, 50_000, &[1]))),
    ("a longer whole message", |writer| writer.message(&whole(0, 0, &[1; 1_000]))),
    ("a whole message of another channel", |writer| writer.message(&whole(0, 1, &[1; 10]))),
    ("a Skip of another length", |writer| {
        writer.skip(&Skip { channel: ChannelId(0), id: MessageId(0), after: None, bytes: 11 })
    }),
];

fn whole(id: u64, channel: u16, payload: &[u8]) -> Message<'_> {
    let delivery = Delivery::ReliableUnordered { id: MessageId(id) };
    Message { channel: ChannelId(channel), delivery, payload }
}

#[test]
fn contradicting_fragments_drop_packets_and_finally_close() {
    for (name, other) in OTHERS {
        for is_one_packet in [true, false] {
            let mut puppet = Puppet::connected(26);
            if !is_one_packet {
                puppet.send_frames(first);
            }
            puppet.take_packets();
            for strike in 0..15 {
                puppet.send_frames(|writer| {
                    if is_one_packet { first(writer).and_then(|()| other(writer)) } else { other(writer) }
                });
                assert_eq!(puppet.ending(), None, "{name}, {is_one_packet}, {strike}");
            }
            puppet.world.run(Duration::from_millis(100));
            let stats = puppet.world.ends[SERVER].stats();
            assert_eq!(stats.dropped(DropReason::FragmentMismatch), 15, "{name}");
            assert_eq!((stats.messages_delivered, stats.messages_skipped), (0, 0), "{name}");
            puppet.send_frames(|writer| {
                if is_one_packet { first(writer).and_then(|()| other(writer)) } else { other(writer) }
            });
            let ending = Some(CloseReason::Protocol(ProtocolError::FragmentMismatch));
            assert_eq!(puppet.ending(), ending, "{name}, {is_one_packet}");
        }
    }
}

#[test]
fn a_whole_message_consistent_with_fragments_is_delivered_once() {
    let mut puppet = Puppet::connected(30);
    puppet.send_frames(first);
    puppet.send_frames(|writer| writer.message(&whole(0, 0, &[1; 10])));
    send_frames(&mut puppet, &fragment(0, 10, 1, &[1; 9]));
    puppet.send_frames(|writer| first(writer).and_then(|()| writer.message(&whole(0, 0, &[1; 10]))));
    assert_eq!((puppet.world.messages(SERVER), puppet.ending()), (vec![(0, vec![1; 10])], None));
}
