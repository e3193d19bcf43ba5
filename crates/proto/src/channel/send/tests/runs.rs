//! Runs of sent messages: their cuts, repetitions, and expiry, and the memory that they hold.

use bytes::Bytes;
use drumfire_wire::{Frame, FrameWriter, Frames};

use super::super::*;
use super::{fate_id_of, is_taken, queue, reliable};
use crate::channel::Redundancy;
use crate::convert::to_usize;
use crate::loss::PacketFate;

/// A frame: its first id, the id before it, and the lengths of its messages. A Skip has lengths too.
type Written = (u64, Option<u64>, Vec<usize>);

/// Fills a packet of `room` bytes. Returns its frames, and the ids by which their fates are reported.
fn fill(queue: &mut SendQueue, number: u64, now: Moment, room: usize) -> (Vec<Written>, Vec<MessageId>) {
    let (mut memory, mut fate_ids) = (vec![0; room], Vec::new());
    let mut writer = FrameWriter::new(&mut memory[..]);
    queue.fill(Packet { number, now, room_bytes: 1_150 }, &mut writer, |id| fate_ids.push(id));
    let bytes = writer.written_bytes();
    let frames = Frames::new(&memory[..bytes]).map(|frame| match frame.unwrap() {
        Frame::Message(message) => {
            let (id, after) = super::order_of(message.delivery).unwrap();
            (id, after, vec![message.payload.len()])
        }
        Frame::Run(run) => {
            let (id, after) = super::order_of(run.delivery).unwrap();
            (id, after, run.bodies.payloads().map(<[u8]>::len).collect())
        }
        Frame::Skip(skip) => (skip.id.0, skip.after.map(|after| after.0), vec![skip.bytes as usize]),
        Frame::SkipRun(skip) => {
            let lengths = skip.lengths.iter().map(|bytes| bytes as usize).collect();
            (skip.id.0, skip.after.map(|after| after.0), lengths)
        }
        Frame::Fragment(fragment) => {
            let (id, after) = super::order_of(fragment.message.delivery).unwrap();
            (id, after, vec![fragment.message.payload.len()])
        }
        other => panic!("{other:?}"),
    });
    let frames = frames.collect();
    queue.assert_invariants();
    (frames, fate_ids)
}

fn push(queue: &mut SendQueue, bytes: usize) {
    let message = Message::reliable_ordered(ChannelId(1), vec![7; bytes]);
    assert!(is_taken(queue.push(usize::MAX, Moment::ORIGIN, message, None, IfFull::Notify)));
}

#[test]
fn channels_with_empty_messages_share_a_packet() {
    let mut queue = queue();
    for channel in [1, 2] {
        for _ in 0..600 {
            let message = Message::reliable_ordered(ChannelId(channel), Bytes::new());
            assert!(is_taken(queue.push(usize::MAX, Moment::ORIGIN, message, None, IfFull::Notify)));
        }
    }
    let (frames, _) = fill(&mut queue, 0, Moment::ORIGIN, 1_200);
    assert_eq!(frames[..2], [(0, None, vec![0; 256]), (256, None, vec![0; 256])]);
}

#[test]
fn a_lost_run_is_cut_to_the_room_and_skips_what_arrived() {
    let mut queue = queue();
    (0..6).for_each(|_| push(&mut queue, 10));
    let (frames, first) = fill(&mut queue, 0, Moment::ORIGIN, 1_000);
    assert_eq!(frames, [(0, None, vec![10; 6])]);
    queue.repeat(first[0]);
    // Two messages take 27 B. The message after them names the last of them.
    let (frames, second) = fill(&mut queue, 1, Moment::ORIGIN, 27);
    assert_eq!(frames, [(0, None, vec![10; 2])]);
    let (frames, third) = fill(&mut queue, 2, Moment::ORIGIN, 15);
    assert_eq!(frames, [(2, Some(1), vec![10])]);
    // The rest was not acknowledged before the parts are lost.
    queue.on_fate(PacketFate::Acknowledged, third[0], 2);
    queue.on_fate(PacketFate::Lost, second[0], 1);
    queue.assert_invariants();
    let (frames, fourth) = fill(&mut queue, 3, Moment::ORIGIN, 1_000);
    assert_eq!(frames, [(0, None, vec![10; 2]), (3, Some(2), vec![10; 3])]);
    assert_eq!(queue.used_bytes(), 5 * charge(10));
    // The first packet had all of them.
    queue.on_fate(PacketFate::Acknowledged, first[0], 0);
    assert_eq!((queue.used_bytes(), queue.reliable.as_ref().unwrap().base_and_channels()), (0, (6, 0)));
    fourth.into_iter().for_each(|id| queue.on_fate(PacketFate::Acknowledged, id, 3));
    queue.assert_invariants();
}

#[test]
fn an_expired_run_is_skipped_by_one_frame() {
    let mut queue = queue();
    for (number, bytes) in (1..).zip([3, 200, 0, 40]) {
        let message =
            Message::reliable_ordered(ChannelId(1), vec![7; bytes]).lifetime(Duration::from_millis(10));
        let receipt = std::num::NonZeroU64::new(number).map(ReceiptId);
        assert!(is_taken(queue.push(usize::MAX, Moment::ORIGIN, message, receipt, IfFull::Notify)));
    }
    let (_, fate_ids) = fill(&mut queue, 0, Moment::ORIGIN, 1_000);
    queue.on_fate(PacketFate::Lost, fate_ids[0], 0);
    let late = Moment::ORIGIN.after(Duration::from_millis(10));
    // Three lengths fit, of which one has two bytes.
    let (frames, first) = fill(&mut queue, 1, late, 9);
    assert_eq!(frames, [(0, None, vec![3, 200, 0])]);
    let expired = std::iter::from_fn(|| queue.pop_receipt()).map(|(id, outcome)| (id.0.get(), outcome));
    assert_eq!(expired.collect::<Vec<_>>(), [1, 2, 3, 4].map(|number| (number, Outcome::Expired)));
    assert_eq!(queue.used_bytes(), 4 * charge(0), "the overhead is charged until the Skips arrived");
    let (frames, second) = fill(&mut queue, 2, late, 1_000);
    assert_eq!(frames, [(3, Some(2), vec![40])]);
    queue.on_fate(PacketFate::Acknowledged, second[0], 2);
    queue.on_fate(PacketFate::Acknowledged, first[0], 1);
    assert_eq!((queue.used_bytes(), queue.pop_receipt()), (0, None));
}

#[test]
fn a_message_with_an_acked_skip_is_not_skipped_again() {
    let mut queue = queue();
    // The first message stays in flight, so that the records of later ones stay too.
    reliable(&mut queue, 1, 0);
    fill(&mut queue, 0, Moment::ORIGIN, 100);
    let long = Message::reliable_ordered(ChannelId(2), vec![7; 60_000]).lifetime(Duration::from_millis(10));
    assert!(is_taken(queue.push(usize::MAX, Moment::ORIGIN, long, None, IfFull::Notify)));
    let (_, fragment) = fill(&mut queue, 1, Moment::ORIGIN, 1_000);
    push(&mut queue, 600);
    let is_written = |frames: &[Written]| frames.iter().any(|frame| frame.0 == 2);
    let mut sent = (2..).map(|number| (number, fill(&mut queue, number, Moment::ORIGIN, 1_000)));
    let (number, (_, other)) = sent.find(|(_, (frames, _))| is_written(frames)).unwrap();
    // Both are lost. The Skip fits the next packet, and the other message does not, so the rest of the long one waits.
    queue.on_fate(PacketFate::Lost, fragment[0], 1);
    other.into_iter().for_each(|id| queue.on_fate(PacketFate::Lost, id, number));
    let late = Moment::ORIGIN.after(Duration::from_millis(10));
    let (frames, skip) = fill(&mut queue, 1_000, late, 20);
    assert_eq!(frames, [(1, None, vec![60_000])]);
    queue.on_fate(PacketFate::Acknowledged, skip[0], 1_000);
    queue.assert_invariants();
    fill(&mut queue, 1_001, late, 1_000);
    assert_eq!((queue.used_bytes(), queue.has_sendable()), (charge(1) + charge(600), false));
}

#[test]
fn messages_of_one_run_expire_and_repeat_together() {
    let mut queue = queue();
    queue.set_options(ChannelId(1), ChannelOptions::default().redundancy(Redundancy::One));
    [10, 10, 300, 300, 10].into_iter().for_each(|bytes| push(&mut queue, bytes));
    let message = Message::reliable_ordered(ChannelId(1), vec![7; 10]).lifetime(Duration::from_millis(10));
    assert!(is_taken(queue.push(usize::MAX, Moment::ORIGIN, message, None, IfFull::Notify)));
    push(&mut queue, 600);
    let (frames, _) = fill(&mut queue, 0, Moment::ORIGIN, 1_400);
    let lengths: Vec<_> = frames.into_iter().map(|(_, _, lengths)| lengths).collect();
    assert_eq!(lengths, [vec![10, 10], vec![300, 300], vec![10], vec![10], vec![600]]);
    // Short runs are copied into later packets, and a run is cut where it does not fit.
    reliable(&mut queue, 2, 0);
    let (frames, _) = fill(&mut queue, 1, Moment::ORIGIN, 6 + 15);
    assert_eq!(frames, [(7, None, vec![1]), (0, None, vec![10])]);
    reliable(&mut queue, 2, 0);
    let (frames, _) = fill(&mut queue, 2, Moment::ORIGIN, 1_000);
    let copies = [(1, Some(0), vec![10]), (4, Some(3), vec![10]), (5, Some(4), vec![10])];
    assert_eq!(frames, [vec![(8, Some(7), vec![1])], copies.to_vec()].concat());
}

#[test]
fn a_peer_that_acknowledges_selectively_holds_bounded_memory() {
    // The peer acknowledges all runs but one of each chunk. More memory in use has larger chunks.
    for (limit_bytes, missing) in [(usize::MAX, 2_u32), (usize::MAX, 4), (usize::MAX, 14), (100_000, 14)] {
        let (mut queue, mut fate_ids) = (queue(), Vec::new());
        for number in 0..400 {
            for _ in 0..20 {
                let message = Message::reliable_ordered(ChannelId(1), vec![7; 50]);
                queue.push(limit_bytes, Moment::ORIGIN, message, None, IfFull::Notify);
            }
            let (_, sent) = fill(&mut queue, number, Moment::ORIGIN, 1_030);
            let held_bytes = queue.chunks.capacity_bytes();
            assert!(held_bytes <= queue.used_bytes().max(16_384) + to_usize(missing) * 2_048 + 16_384);
            assert!(held_bytes <= limit_bytes.saturating_add(limit_bytes / 10), "{held_bytes} bytes");
            if number.is_multiple_of(missing.into()) {
                fate_ids.extend(sent.into_iter().map(|id| (id, number)));
            } else {
                sent.into_iter().for_each(|id| queue.on_fate(PacketFate::Acknowledged, id, number));
            }
        }
        // Messages keep their own payloads when there may be no further chunk, and nothing is lost.
        fate_ids.into_iter().for_each(|(id, number)| queue.on_fate(PacketFate::Acknowledged, id, number));
        while queue.has_sendable() {
            let (_, sent) = fill(&mut queue, 400, Moment::ORIGIN, 1_030);
            sent.into_iter().for_each(|id| queue.on_fate(PacketFate::Acknowledged, id, 400));
        }
        assert_eq!(queue.used_bytes(), 0);
        queue.shrink();
        assert_eq!(queue.chunks.capacity_bytes(), 0);
    }
}

#[test]
fn interleaved_channels_have_separate_runs() {
    let mut queue = queue();
    for _ in 0..8 {
        (1..=3).for_each(|channel| reliable(&mut queue, channel, 7));
    }
    let (frames, fate_ids) = fill(&mut queue, 0, Moment::ORIGIN, 1_000);
    assert_eq!(frames, [(0, None, vec![1; 8]), (8, None, vec![1; 8]), (16, None, vec![1; 8])]);
    fate_ids.into_iter().for_each(|id| queue.on_fate(PacketFate::Acknowledged, id, 0));
    // The chunks are used again, also by other channels.
    let held_bytes = queue.chunks.capacity_bytes();
    (0..8).for_each(|_| (4..=6).for_each(|channel| reliable(&mut queue, channel, 7)));
    assert_eq!(queue.chunks.capacity_bytes(), held_bytes);
}

#[test]
fn a_single_message_is_not_copied() {
    let mut queue = queue();
    for number in 0..3 {
        push(&mut queue, 100);
        let (frames, fate_ids) = fill(&mut queue, number, Moment::ORIGIN, 1_000);
        assert_eq!((frames.len(), queue.chunks.capacity_bytes()), (1, 0));
        queue.on_fate(PacketFate::Acknowledged, fate_ids[0], number);
    }
}

#[test]
fn a_segment_expires_as_a_whole_with_its_receipts() {
    let mut queue = queue();
    let mut receipts = (1..).filter_map(std::num::NonZeroU64::new).map(ReceiptId);
    for (bytes, has_receipt) in [(10, true), (20, true), (30, true), (40, false)] {
        let message = Message::unreliable(ChannelId(1), vec![7; bytes]).lifetime(Duration::from_millis(10));
        let receipt = receipts.next().filter(|_| has_receipt);
        assert!(is_taken(queue.push(usize::MAX, Moment::ORIGIN, message, receipt, IfFull::Notify)));
    }
    let late = Moment::ORIGIN.after(Duration::from_millis(10));
    let mut memory = [0; 100];
    let packet = Packet { number: 0, now: late, room_bytes: 1_150 };
    let filled = queue.fill(packet, &mut FrameWriter::new(&mut memory[..]), |_| ());
    assert_eq!((filled.expired_count, queue.used_bytes()), (4, 0));
    let expired = std::iter::from_fn(|| queue.pop_receipt()).map(|(id, outcome)| (id.0.get(), outcome));
    assert_eq!(expired.collect::<Vec<_>>(), [1, 2, 3].map(|number| (number, Outcome::Expired)));
    queue.assert_invariants();
}

#[test]
fn records_of_acked_messages_do_not_accumulate() {
    let mut queue = queue();
    for number in 0..16_000 {
        push(&mut queue, 1);
        let (_, fate_ids) = fill(&mut queue, number, Moment::ORIGIN, 100);
        if number > 0 {
            queue.on_fate(PacketFate::Acknowledged, fate_ids[0], number);
        }
        assert!(queue.reliable.as_ref().unwrap().record_count() <= 66);
    }
    queue.on_fate(PacketFate::Acknowledged, fate_id_of(0), 0);
    assert_eq!(queue.reliable.as_ref().unwrap().base_and_channels(), (16_000, 0));
}
