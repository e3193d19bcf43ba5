//! Peers that hold the keys and violate the rules, and senders without keys.

use crate::harness::{CLEAN, CLIENT, Random, SERVER, Seen, World, address};
use crate::puppet::Puppet;
use drumfire_proto::{AckError, CloseReason, DropReason, ProtocolError, SendOptions};
use drumfire_wire::{
    AckDelay, AckRange, ChannelId, Delivery, Frame, FrameError, Frames, Message, MessageId, PacketNumber,
    Skip,
};
use std::time::Duration;

#[test]
fn a_client_written_from_the_specification_connects() {
    let mut puppet = Puppet::connected(1);
    puppet.reliable(0, None);
    assert_eq!(puppet.world.messages(SERVER), [(0, vec![1; 900])]);
    puppet.server_sends(1);
    let received = puppet.take_packets();
    let frames: Vec<_> = received.iter().flat_map(|(_, frames)| Frames::new(frames)).collect();
    assert!(
        frames.iter().any(|frame| matches!(frame, Ok(Frame::Message(message)) if message.payload == b"tick"))
    );
    assert!(frames.iter().any(|frame| matches!(frame, Ok(Frame::Ack(_)))));
}

#[test]
fn an_ack_of_a_packet_never_sent_closes() {
    let mut puppet = Puppet::connected(2);
    puppet.server_sends(3);
    let newest = puppet.take_packets().last().unwrap().0;
    puppet.ack(0, newest);
    assert_eq!(puppet.ending(), None);
    puppet.ack(0, newest + 1);
    assert_eq!(puppet.ending(), Some(CloseReason::Protocol(ProtocolError::Ack(AckError::Unsent))));
    let received = puppet.take_packets();
    assert!(
        received
            .iter()
            .any(|(_, frames)| Frames::new(frames).any(|frame| matches!(frame, Ok(Frame::Close(_)))))
    );
}

#[test]
fn an_optimistic_peer_is_caught_within_512_packets() {
    for seed in 0..50 {
        let mut puppet = Puppet::connected(seed);
        let mut sent = 0;
        while puppet.ending().is_none() {
            puppet.server_sends(8);
            sent += 8;
            assert!(sent <= 512, "seed {seed}");
            // It acknowledges all numbers up to the newest, received or not.
            let newest = puppet.take_packets().last().map_or(0, |(number, _)| *number);
            puppet.ack(0, newest);
            puppet.world.now = puppet.world.now.after(Duration::from_millis(20));
        }
        assert_eq!(puppet.ending(), Some(CloseReason::Protocol(ProtocolError::Ack(AckError::Skipped))));
    }
}

#[test]
fn invalid_frames_close_and_void_their_whole_packet() {
    for bad in [&[0x7f][..], &[0x80, 0, 9, 1], &[0x02, 5, 0, 0, 6], &[0x03, 99, 0, 0], &[0x83, 0, 1, 2, 0]] {
        let mut puppet = Puppet::connected(3);
        let packet = [&[0x80, 0, 1, b'x'], bad].concat();
        puppet.send_bytes(&packet);
        assert!(matches!(puppet.ending(), Some(CloseReason::Protocol(ProtocolError::Frame(_)))), "{bad:?}");
        assert_eq!(puppet.world.messages(SERVER), []);
        assert_eq!(puppet.world.ends[SERVER].stats().dropped(DropReason::Protocol), 1);
    }
}

#[test]
fn a_message_16385_ids_ahead_closes() {
    let mut puppet = Puppet::connected(4);
    puppet.reliable(16_383, Some(0));
    puppet.reliable(16_384, Some(0));
    assert_eq!(puppet.ending(), None);
    puppet.reliable(16_385, Some(0));
    assert_eq!(puppet.ending(), Some(CloseReason::Protocol(ProtocolError::MessageTooFarAhead)));
}

#[test]
fn a_missing_message_fits_behind_those_that_wait_for_it() {
    // Each is charged 964 bytes, and credit is half of 256 KiB.
    const CREDIT: u64 = 128 * 1_024 / 964;
    let mut puppet = Puppet::connected(5);
    for id in 1..CREDIT {
        puppet.reliable(id, Some(id - 1));
    }
    assert_eq!(puppet.world.messages(SERVER), []);
    puppet.reliable(0, None);
    assert_eq!(puppet.world.messages(SERVER).len() as u64, CREDIT);
    // They were read, and there is credit again.
    puppet.reliable(CREDIT, None);
    assert_eq!((puppet.world.messages(SERVER).len() as u64, puppet.ending()), (CREDIT + 1, None));
}

#[test]
fn sending_beyond_the_credit_closes() {
    let mut puppet = Puppet::connected(5);
    let mut id = 1;
    while puppet.ending().is_none() {
        puppet.reliable(id, Some(0));
        id += 1;
    }
    assert_eq!(id, 128 * 1_024 / 964 + 2);
    assert_eq!(puppet.ending(), Some(CloseReason::Protocol(ProtocolError::CreditExceeded)));
}

#[test]
fn a_duplicated_packet_is_accepted_once() {
    let mut world = World::new(6, CLEAN);
    let (client, _) = world.connected();
    world.send(CLIENT, client, 0, b"once", SendOptions::unreliable()).unwrap();
    world.flush();
    let (_, _, packet) = world.sent.last().unwrap().clone();
    for _ in 0..1_000 {
        world.deliver(SERVER, address(CLIENT), &packet);
    }
    world.flush();
    assert_eq!(world.messages(SERVER).len(), 1);
    let stats = world.ends[SERVER].stats();
    let (twice, share) = (stats.dropped(DropReason::Duplicate), stats.dropped(DropReason::PassShare));
    assert_eq!((twice, share), (63, 936));
}

#[test]
fn every_datagram_is_counted_under_one_reason() {
    let mut world = World::new(7, CLEAN);
    world.connected();
    let mut random = Random(77);
    let recorded: Vec<Vec<u8>> = world.sent.iter().map(|(_, _, bytes)| bytes.clone()).collect();
    for round in 0..30_000_u64 {
        let mut bytes = if round % 3 == 0 {
            recorded[(random.bits() % recorded.len() as u64) as usize].clone()
        } else {
            let length = if round % 100 == 1 { random.below(65_508) } else { random.below(120) };
            (0..length).map(|_| random.bits().to_le_bytes()[0]).collect()
        };
        if round % 3 == 0 {
            bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
        } else if let Some(first) = bytes.first_mut() {
            *first = (*first & 0x87) | 0x08;
        }
        world.deliver((round % 2) as usize, address(((round + 1) % 2) as usize), &bytes);
        if round % 1_000 == 0 {
            world.now = world.now.after(Duration::from_millis(1));
            world.flush();
        }
    }
    world.flush();
    assert!(world.ends.iter().all(|end| end.connection_count() == 1));
}

#[test]
fn endless_keys_stay_within_their_memory_and_all_arrive() {
    let mut puppet = Puppet::connected(11);
    for key in 0..10_000 {
        let delivery = Delivery::ReliableLatest { key, version: key };
        let message = Message { channel: ChannelId(0), delivery, payload: b"v" };
        puppet.send_frames(|writer| writer.message(&message));
        puppet.world.seen[SERVER].retain(|(_, _, seen)| !matches!(seen, Seen::Message(..)));
    }
    let stats = puppet.world.ends[SERVER].stats();
    assert_eq!((stats.messages_delivered, stats.dropped(DropReason::ReceiveMemory)), (10_000, 0));
    assert_eq!(puppet.ending(), None);
}

#[test]
fn a_value_of_1024_bytes_is_delivered_and_a_longer_one_closes() {
    let mut puppet = Puppet::connected(13);
    let value = |payload| {
        let delivery = Delivery::ReliableLatest { key: 1, version: 1 };
        Message { channel: ChannelId(0), delivery, payload }
    };
    puppet.send_frames(|writer| writer.message(&value(&[1; 1_024])));
    assert_eq!((puppet.world.messages(SERVER).len(), puppet.ending()), (1, None));
    puppet.send_frames(|writer| writer.message(&value(&[1; 1_025])));
    assert_eq!(puppet.ending(), Some(CloseReason::Protocol(ProtocolError::MessageTooLong)));
}

#[test]
fn a_second_ack_in_a_packet_closes() {
    let mut puppet = Puppet::connected(14);
    puppet.server_sends(1);
    let newest = puppet.take_packets().last().unwrap().0;
    let range = AckRange::new(PacketNumber(newest), PacketNumber(newest)).unwrap();
    puppet.send_frames(|writer| {
        writer.ack(AckDelay::from_duration(Duration::ZERO), [range].into_iter())?;
        writer.ack(AckDelay::from_duration(Duration::ZERO), [range].into_iter())
    });
    assert_eq!(puppet.ending(), Some(CloseReason::Protocol(ProtocolError::SecondAck)));
}

#[test]
fn a_packet_of_41_frames_closes() {
    let mut puppet = Puppet::connected(15);
    let message = [0x80, 0, 1, b'x'];
    puppet.send_bytes(&message.repeat(40));
    assert_eq!((puppet.world.messages(SERVER).len(), puppet.ending()), (40, None));
    puppet.send_bytes(&message.repeat(41));
    let error = ProtocolError::Frame(FrameError::TooManyFrames);
    assert_eq!(
        (puppet.world.messages(SERVER).len(), puppet.ending()),
        (40, Some(CloseReason::Protocol(error)))
    );
}

#[test]
fn a_skip_beyond_the_window_closes_and_a_late_one_is_ignored() {
    let mut puppet = Puppet::connected(12);
    puppet.reliable(0, None);
    let skip = |id: u64| Skip { channel: ChannelId(0), id: MessageId(id), after: None, bytes: 0 };
    puppet.send_frames(|writer| writer.skip(&skip(0)));
    assert_eq!(puppet.world.messages(SERVER).len(), 1);
    assert_eq!(puppet.world.ends[SERVER].stats().messages_skipped, 0);
    puppet.send_frames(|writer| writer.skip(&skip(16_385)));
    assert_eq!(puppet.ending(), None);
    puppet.send_frames(|writer| writer.skip(&skip(16_386)));
    assert_eq!(puppet.ending(), Some(CloseReason::Protocol(ProtocolError::MessageTooFarAhead)));
}
