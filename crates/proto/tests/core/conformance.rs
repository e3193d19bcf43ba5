//! Rules of PROTOCOL.md that a peer can observe and that no other test covers.

use crate::harness::{Random, SERVER};
use crate::puppet::Puppet;
use drumfire_proto::{CloseReason, Mode, ProtocolError, SendOptions};
use drumfire_wire::{ChannelId, Delivery, Frame, Frames, Message, MessageId, PathData};
use std::time::Duration;

/// Returns the selected frames of all packets that the server has sent since the last call.
fn received_frames<T>(puppet: &mut Puppet, pick: impl Fn(Frame<'_>) -> Option<T>) -> Vec<T> {
    let packets = puppet.take_packets();
    packets
        .iter()
        .flat_map(|(_, frames)| Frames::new(frames))
        .filter_map(|frame| pick(frame.unwrap()))
        .collect()
}

#[test]
fn granted_credit_never_decreases() {
    let mut puppet = Puppet::connected(1);
    // Messages that wait for id 0 use up most of the credit.
    for id in 1..=135 {
        puppet.reliable(id, Some(0));
    }
    let delivered = puppet.world.messages(SERVER).len();
    // Another message is delivered, and its event is taken only after the next frame has closed the connection.
    puppet.send_frames(|writer| {
        writer.message(&Message {
            channel: ChannelId(1),
            delivery: Delivery::Unreliable,
            payload: b"last",
        })?;
        let delivery = Delivery::ReliableOrdered { id: MessageId(136), after: Some(MessageId(0)) };
        writer.message(&Message { channel: ChannelId(0), delivery, payload: &[1; 1_000] })
    });
    assert_eq!(puppet.world.messages(SERVER).len(), delivered + 1);
    assert_eq!(puppet.ending(), Some(CloseReason::Protocol(ProtocolError::CreditExceeded)));
    // The first packet after a close makes the server repeat it, with all other waiting frames.
    puppet.send_bytes(&[1, 0, 0, 0]);
    let given =
        received_frames(&mut puppet, |frame| if let Frame::Credit(edge) = frame { Some(edge) } else { None });
    assert_eq!(given, Vec::<u64>::new(), "the credit of the parameters is 131,072");
}

#[test]
fn the_last_of_two_path_challenges_is_answered() {
    let mut puppet = Puppet::connected(2);
    puppet.take_packets();
    let data = [PathData([1; 8]), PathData([2; 8])];
    puppet.send_frames(|writer| data.iter().try_for_each(|data| writer.path_challenge(*data)));
    let answers =
        received_frames(
            &mut puppet,
            |frame| if let Frame::PathResponse(data) = frame { Some(data) } else { None },
        );
    assert_eq!(answers, [data[1]]);
}

#[test]
fn one_unreliable_fragmented_message_begins_per_packet() {
    let mut puppet = Puppet::connected(3);
    let peer = puppet.world.peers(SERVER)[0];
    let (mut begun_count, mut random) = (0, Random(3));
    for round in 0..300 {
        for channel in 0..6 {
            let payload = vec![7; 1 + random.below(if round % 2 == 0 { 2_500 } else { 16_384 }) as usize];
            let mode = if channel % 2 == 0 { Mode::Unreliable } else { Mode::UnreliableSequenced };
            // A full queue refuses some of them, which makes no difference here.
            let _ = puppet.world.send(SERVER, peer, channel, &payload, SendOptions::new(mode));
        }
        puppet.world.now = puppet.world.now.after(Duration::from_millis(5));
        puppet.world.flush();
        let received_frames = puppet.take_packets();
        for (number, frames) in &received_frames {
            let begun = Frames::new(frames)
                .filter(|frame| matches!(frame, Ok(Frame::Fragment(fragment)) if fragment.offset_bytes == 0))
                .count();
            assert!(begun <= 1, "packet {number} begins {begun} messages");
            begun_count += begun;
        }
        for (number, _) in received_frames {
            puppet.ack(number, number);
        }
    }
    assert!(begun_count > 200, "{begun_count} fragmented messages");
}

#[test]
fn a_spuriously_lost_packet_keeps_the_connection() {
    let mut puppet = Puppet::connected(4);
    let peer = puppet.world.peers(SERVER)[0];
    puppet.take_packets();
    puppet.world.reliable(SERVER, peer, b"never acknowledged").unwrap();
    puppet.world.flush();
    let lost = puppet.take_packets().last().unwrap().0;
    // All packets except the first are acknowledged, for twice the unacknowledged timeout of 10 s.
    for _ in 0..200 {
        puppet.server_sends(1);
        for (number, _) in puppet.take_packets() {
            assert_ne!(number, lost);
            puppet.ack(number, number);
        }
        puppet.world.run(Duration::from_millis(100));
    }
    assert_eq!(puppet.ending(), None);
    // Without any acknowledgment the timeout counts from the oldest packet.
    puppet.world.reliable(SERVER, peer, b"still waiting").unwrap();
    for _ in 0..11 {
        puppet.world.run(Duration::from_secs(1));
        puppet.send_bytes(&[0; 12]);
    }
    assert_eq!(puppet.ending(), Some(CloseReason::Unacknowledged));
}

#[test]
fn a_close_is_repeated_for_every_power_of_two_of_packets() {
    let mut puppet = Puppet::connected(5);
    puppet.send_bytes(&[0x7f; 12]);
    assert_eq!(puppet.closes().len(), 1);
    let repeated: Vec<_> = (1..=16)
        .filter(|_| {
            puppet.send_bytes(&[0; 12]);
            !puppet.closes().is_empty()
        })
        .collect();
    assert_eq!(repeated, [1, 2, 4, 8, 16]);
}
