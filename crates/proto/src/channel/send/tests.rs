//! The order, the limits, and the accounting of sent messages, packet by packet.

mod full_memory;
mod model;
mod runs;

use std::num::NonZeroU64;

use bytes::Bytes;

use super::latest::is_value;
use super::sent_run::RunIds;
use super::*;
use crate::channel::{Redundancy, WhenFull};
use crate::limits::SEND_MEMORY_BYTES;
use crate::loss::PacketFate;
use crate::visits::{Visit, counted};
use drumfire_wire::{Delivery, Frame, FrameWriter, Frames, Message as MessageFrame};

/// The contents of a packet of `room` bytes: (channel, id and the id before it, payload).
type Taken = Vec<(u16, Option<(u64, Option<u64>)>, Vec<u8>)>;

fn packet(queue: &mut SendQueue, number: u64, room: usize) -> Taken {
    let mut buffer = vec![0; room];
    let mut writer = FrameWriter::new(&mut buffer[..]);
    let mut carried = Vec::new();
    let filled =
        queue.fill(Packet { number, now: Moment::ORIGIN, room_bytes: usize::MAX }, &mut writer, |id| {
            carried.push(id.0);
        });
    let bytes = writer.written_bytes();
    let mut taken = Taken::new();
    for frame in Frames::new(&buffer[..bytes]) {
        match frame.unwrap() {
            Frame::Message(message) => {
                taken.push((message.channel.0, order_of(message.delivery), message.payload.to_vec()));
            }
            Frame::Run(run) => {
                let mut order = order_of(run.delivery);
                for payload in run.bodies.payloads() {
                    taken.push((run.channel.0, order, payload.to_vec()));
                    let is_ordered = matches!(run.delivery, Delivery::ReliableOrdered { .. });
                    order = order.map(|(id, _)| (id + 1, is_ordered.then_some(id)));
                }
            }
            other => panic!("{other:?}"),
        }
    }
    let carried_count = carried.len();
    carried.retain(|id| !is_value(MessageId(*id)));
    let carried: Vec<u64> = carried.into_iter().flat_map(ids_of).collect();
    assert_eq!(carried, taken.iter().filter_map(|(_, order, _)| order.map(|(id, _)| id)).collect::<Vec<_>>());
    let message_count = filled.message_count + filled.copied_count;
    assert_eq!((message_count as usize, filled.reliable_count as usize), (taken.len(), carried_count));
    queue.assert_invariants();
    taken
}

fn is_taken(pushed: PushResult) -> bool {
    pushed == PushResult::Taken(0)
}

/// A queue whose peer accepts everything.
fn queue() -> SendQueue {
    let mut queue = SendQueue::new(IdleSendState::new(), KeyedBuildHasher::new(7));
    queue.credit.set_parameters(u32::MAX, u32::MAX);
    queue
}

/// The id and the id before it.
fn order_of(delivery: Delivery) -> Option<(u64, Option<u64>)> {
    match delivery {
        Delivery::ReliableOrdered { id, after } => Some((id.0, after.map(|after| after.0))),
        other => message_id(other).map(|id| (id, None)),
    }
}

/// The ids of the messages that a fate id names.
fn ids_of(fate_id: u64) -> std::ops::Range<u64> {
    let ids = RunIds::from_fate_id(MessageId(fate_id));
    ids.first..ids.end()
}

/// The fate id of a message that was sent alone.
fn fate_id_of(id: u64) -> MessageId {
    RunIds { first: id, count: 1 }.fate_id()
}

fn message_id(delivery: Delivery) -> Option<u64> {
    MessageFrame { channel: ChannelId(0), delivery, payload: b"" }.id().map(|id| id.0)
}

fn reliable(queue: &mut SendQueue, channel: u16, byte: u8) {
    assert!(is_taken(queue.push(
        usize::MAX,
        Moment::ORIGIN,
        Message::reliable_ordered(ChannelId(channel), vec![byte]),
        None,
        IfFull::Notify
    )));
}

fn orders(taken: &Taken) -> Vec<(u64, Option<u64>)> {
    taken.iter().filter_map(|(_, order, _)| *order).collect()
}

#[test]
fn messages_of_both_modes_share_a_packet() {
    let mut queue = queue();
    reliable(&mut queue, 1, 10);
    queue.push(
        SEND_MEMORY_BYTES,
        Moment::ORIGIN,
        Message::unreliable(ChannelId(2), vec![11]),
        None,
        IfFull::Notify,
    );
    reliable(&mut queue, 1, 12);
    let taken = packet(&mut queue, 0, 100);
    let payloads: Vec<_> = taken.iter().map(|(_, _, payload)| payload[0]).collect();
    assert_eq!(payloads, [10, 12, 11], "a channel has its turn");
    assert_eq!(orders(&taken), [(0, None), (1, Some(0))]);
    assert!(!queue.has_sendable());
    assert_eq!(queue.used_bytes, 2 * 65, "the unreliable one is gone");
}

#[test]
fn a_full_channel_drops_no_more_than_the_new_message_needs() {
    let mut queue = queue();
    let options = ChannelOptions::default().when_full(WhenFull::DropOldest);
    queue.set_options(ChannelId(0), options);
    let limit_bytes = 3 * charge(1);
    let pushed = [0, 1, 2, 3].map(|byte| {
        let message = Message::reliable_ordered(ChannelId(0), vec![byte]);
        queue.push(limit_bytes, Moment::ORIGIN, message, None, IfFull::Notify)
    });
    let taken = PushResult::Taken;
    assert_eq!(pushed, [taken(0), taken(0), taken(0), taken(1)]);
    let payloads: Vec<_> = packet(&mut queue, 0, 100).iter().map(|(_, _, payload)| payload[0]).collect();
    assert_eq!(payloads, [1, 2, 3]);
}

#[test]
fn messages_that_do_not_fit_wait_for_the_next_packet() {
    let mut queue = queue();
    for byte in 0..3 {
        reliable(&mut queue, 0, byte);
    }
    assert_eq!(packet(&mut queue, 0, 10).len(), 2);
    assert_eq!(packet(&mut queue, 1, 3).len(), 0);
    assert_eq!(orders(&packet(&mut queue, 2, 6)), [(2, Some(1))]);
}

#[test]
fn a_lost_message_goes_first_and_keeps_its_id() {
    let mut queue = queue();
    for byte in 0..4 {
        reliable(&mut queue, 0, byte);
        packet(&mut queue, byte.into(), 100);
    }
    for (fate, id) in [(PacketFate::Acknowledged, 1), (PacketFate::Lost, 2), (PacketFate::Acknowledged, 3)] {
        queue.on_fate(fate, fate_id_of(id), id);
    }
    reliable(&mut queue, 0, 9);
    // Each names the message before it in its channel, whether or not that has arrived.
    assert_eq!(orders(&packet(&mut queue, 4, 100)), [(2, Some(1)), (4, Some(3))]);
    queue.on_fate(PacketFate::Acknowledged, fate_id_of(0), 0);
    queue.on_fate(PacketFate::Lost, fate_id_of(2), 4);
    // Message 1 and all before it have arrived, so 2 has nothing to wait for.
    assert_eq!(orders(&packet(&mut queue, 5, 100)), [(2, None)]);
    queue.on_fate(PacketFate::Acknowledged, fate_id_of(2), 5);
    queue.on_fate(PacketFate::Acknowledged, fate_id_of(4), 4);
    assert_eq!((queue.reliable.as_ref().unwrap().base_and_channels(), queue.used_bytes), ((5, 0), 0));
}

#[test]
fn a_message_with_a_copy_in_flight_is_not_lost() {
    let mut queue = queue();
    reliable(&mut queue, 0, 1);
    packet(&mut queue, 0, 100);
    queue.on_fate(PacketFate::Lost, fate_id_of(0), 0);
    queue.on_fate(PacketFate::Lost, fate_id_of(0), 0);
    assert_eq!(packet(&mut queue, 7, 100).len(), 1);
    queue.on_fate(PacketFate::Lost, fate_id_of(0), 0);
    assert!(!queue.has_sendable());
    queue.on_fate(PacketFate::Lost, fate_id_of(0), 7);
    assert!(queue.has_sendable());
    queue.on_fate(PacketFate::Acknowledged, fate_id_of(0), 0);
    assert!(!queue.has_sendable());
    assert_eq!(packet(&mut queue, 8, 100).len(), 0);
}

#[test]
fn a_message_can_be_repeated_while_it_is_in_flight() {
    let mut queue = queue();
    reliable(&mut queue, 0, 1);
    packet(&mut queue, 0, 100);
    for number in 1..4 {
        queue.repeat(fate_id_of(0));
        queue.repeat(fate_id_of(0));
        assert_eq!(orders(&packet(&mut queue, number, 100)), [(0, None)]);
    }
    queue.on_fate(PacketFate::Acknowledged, fate_id_of(0), 1);
    queue.repeat(fate_id_of(0));
    assert!(!queue.has_sendable());
}

#[test]
fn no_id_is_16384_beyond_the_oldest_in_flight() {
    let mut queue = queue();
    for _ in 0..17_000 {
        reliable(&mut queue, 0, 0);
    }
    // A packet has at most 512 messages in runs, and others in the frames that are left.
    let taken: Vec<usize> = (0..32).map(|number| packet(&mut queue, number, 1_200).len()).collect();
    assert_eq!((taken[0], taken.iter().sum::<usize>()), (512 + 34, 16_384));
    assert!(!queue.has_sendable());
    queue.push(
        usize::MAX,
        Moment::ORIGIN,
        Message::unreliable(ChannelId(0), Bytes::new()),
        None,
        IfFull::Notify,
    );
    assert_eq!(packet(&mut queue, 32, 1_000).len(), 1, "unreliable ones pass");
    queue.on_fate(PacketFate::Acknowledged, fate_id_of(512), 0);
    assert!(!queue.has_sendable());
    queue.on_fate(PacketFate::Acknowledged, RunIds { first: 0, count: 512 }.fate_id(), 0);
    assert_eq!(packet(&mut queue, 33, 1_200).len(), 513);
}

#[test]
fn memory_is_charged_per_message_and_ends_at_its_limit() {
    let mut queue = queue();
    assert!(is_taken(queue.push(
        3 * 64 + 5,
        Moment::ORIGIN,
        Message::unreliable(ChannelId(0), Bytes::new()),
        None,
        IfFull::Notify
    )));
    assert!(is_taken(queue.push(
        3 * 64 + 5,
        Moment::ORIGIN,
        Message::reliable_ordered(ChannelId(0), vec![0; 5]),
        None,
        IfFull::Notify
    )));
    assert!(!is_taken(queue.push(
        3 * 64 + 5,
        Moment::ORIGIN,
        Message::unreliable(ChannelId(0), vec![0; 1]),
        None,
        IfFull::Notify
    )));
    assert!(is_taken(queue.push(
        3 * 64 + 5,
        Moment::ORIGIN,
        Message::unreliable(ChannelId(0), Bytes::new()),
        None,
        IfFull::Notify
    )));
    assert!(!is_taken(queue.push(
        3 * 64 + 5,
        Moment::ORIGIN,
        Message::unreliable(ChannelId(0), Bytes::new()),
        None,
        IfFull::Notify
    )));
    packet(&mut queue, 0, 100);
    assert_eq!(queue.used_bytes, 69);
    queue.on_fate(PacketFate::Acknowledged, fate_id_of(0), 0);
    assert_eq!(queue.used_bytes, 0);
}

/// Fills a packet of 1,000 bytes. Returns the ids whose fates it reports.
fn fill_1000(queue: &mut SendQueue, number: u64, now: Moment) -> (FillCounts, Vec<MessageId>) {
    let (mut buffer, mut ids) = ([0; 1_000], Vec::new());
    let packet = Packet { number, now, room_bytes: buffer.len() };
    let filled = queue.fill(packet, &mut FrameWriter::new(&mut buffer[..]), |id| ids.push(id));
    queue.assert_invariants();
    (filled, ids)
}

#[test]
fn a_half_sent_message_keeps_its_receipt_id_while_idle() {
    let mut queue = queue();
    let receipts = [1, 2].map(|id| Some(ReceiptId(NonZeroU64::new(id).unwrap())));
    let message = Message::unreliable(ChannelId(0), vec![7; 2_500]);
    assert!(is_taken(queue.push(usize::MAX, Moment::ORIGIN, message, receipts[0], IfFull::Notify)));
    let (_, first) = fill_1000(&mut queue, 0, Moment::ORIGIN);
    queue.on_fate(PacketFate::Lost, first[0], 0);
    assert_eq!(queue.pop_receipt(), receipts[0].map(|receipt| (receipt, Outcome::Lost)));
    assert!(queue.shrink().is_none(), "two fragments wait");
    // The fates of the other fragments must not be taken for that of the next message.
    let rest = [1, 2].map(|number| fill_1000(&mut queue, number, Moment::ORIGIN).1);
    let message = Message::unreliable(ChannelId(0), vec![8]);
    assert!(is_taken(queue.push(usize::MAX, Moment::ORIGIN, message, receipts[1], IfFull::Notify)));
    let (_, next) = fill_1000(&mut queue, 3, Moment::ORIGIN);
    for (number, id) in (1..).zip(rest.into_iter().flatten()) {
        queue.on_fate(PacketFate::Acknowledged, id, number);
    }
    assert_eq!(queue.pop_receipt(), None);
    queue.on_fate(PacketFate::Acknowledged, next[0], 3);
    assert_eq!(queue.pop_receipt(), receipts[1].map(|receipt| (receipt, Outcome::Acknowledged)));
}

#[test]
fn a_fragmented_message_that_expires_is_abandoned_once() {
    let mut queue = queue();
    let message = Message::reliable_ordered(ChannelId(0), vec![7; 3_000]).lifetime(Duration::from_millis(10));
    assert!(is_taken(queue.push(usize::MAX, Moment::ORIGIN, message, None, IfFull::Notify)));
    let (_, fragments) = fill_1000(&mut queue, 0, Moment::ORIGIN);
    queue.on_fate(PacketFate::Lost, fragments[0], 0);
    let (filled, skips) = fill_1000(&mut queue, 1, Moment::ORIGIN.after(Duration::from_millis(10)));
    assert_eq!((filled.expired_count, skips.len()), (1, 1));
    assert!(!queue.has_sendable(), "one Skip is enough");
    queue.on_fate(PacketFate::Acknowledged, skips[0], 1);
    assert_eq!(queue.used_bytes(), 0);
}

#[test]
fn ids_continue_after_memory_is_released() {
    let mut queue = queue();
    reliable(&mut queue, 0, 1);
    packet(&mut queue, 0, 100);
    queue.shrink();
    assert!(queue.reliable.is_some(), "one is in flight");
    queue.on_fate(PacketFate::Acknowledged, fate_id_of(0), 0);
    queue.shrink();
    assert!(queue.reliable.is_none());
    reliable(&mut queue, 0, 2);
    assert_eq!(orders(&packet(&mut queue, 1, 100)), [(1, None)]);
}

#[test]
fn lost_messages_precede_waiting_ones_within_their_class() {
    let mut queue = queue();
    let bulk = SendOptions::reliable_unordered().priority(Priority::Bulk);
    queue.push(
        SEND_MEMORY_BYTES,
        Moment::ORIGIN,
        Message::new(ChannelId(1), vec![1], bulk),
        None,
        IfFull::Notify,
    );
    packet(&mut queue, 0, 100);
    queue.on_fate(PacketFate::Lost, fate_id_of(0), 0);
    queue.push(
        SEND_MEMORY_BYTES,
        Moment::ORIGIN,
        Message::new(ChannelId(1), vec![2], bulk),
        None,
        IfFull::Notify,
    );
    queue.push(
        SEND_MEMORY_BYTES,
        Moment::ORIGIN,
        Message::unreliable(ChannelId(2), vec![3]),
        None,
        IfFull::Notify,
    );
    let payloads: Vec<u8> = packet(&mut queue, 1, 100).iter().map(|(_, _, payload)| payload[0]).collect();
    assert_eq!(payloads, [3, 1, 2]);
}

#[test]
fn a_sequenced_channel_sends_its_next_after_the_last_arrived() {
    let mut queue = queue();
    let options = SendOptions::reliable_sequenced();
    for byte in 0..3 {
        queue.push(
            SEND_MEMORY_BYTES,
            Moment::ORIGIN,
            Message::new(ChannelId(1), vec![byte], options),
            None,
            IfFull::Notify,
        );
    }
    assert_eq!(queue.used_bytes, 65, "what was replaced is free");
    assert_eq!(packet(&mut queue, 0, 100), [(1, Some((0, None)), vec![2])]);
    for byte in 3..6 {
        queue.push(
            SEND_MEMORY_BYTES,
            Moment::ORIGIN,
            Message::new(ChannelId(1), vec![byte], options),
            None,
            IfFull::Notify,
        );
    }
    assert!(!queue.has_sendable());
    queue.on_fate(PacketFate::Lost, fate_id_of(0), 0);
    assert_eq!(
        packet(&mut queue, 1, 100),
        [(1, Some((0, None)), vec![2])],
        "the one in flight is delivered first"
    );
    queue.on_fate(PacketFate::Acknowledged, fate_id_of(0), 1);
    assert_eq!(packet(&mut queue, 2, 100), [(1, Some((1, None)), vec![5])]);
    queue.on_fate(PacketFate::Acknowledged, fate_id_of(1), 2);
    queue.shrink();
    assert_eq!((queue.used_bytes, queue.scheduler.is_none(), queue.reliable.is_none()), (0, true, true));
}

#[test]
fn unordered_messages_do_not_affect_the_order_of_others() {
    let mut queue = queue();
    reliable(&mut queue, 1, 1);
    queue.push(
        SEND_MEMORY_BYTES,
        Moment::ORIGIN,
        Message::reliable_unordered(ChannelId(1), vec![2]),
        None,
        IfFull::Notify,
    );
    reliable(&mut queue, 1, 3);
    assert_eq!(orders(&packet(&mut queue, 0, 100)), [(0, None), (1, None), (2, Some(0))]);
    queue.on_fate(PacketFate::Lost, fate_id_of(1), 0);
    assert_eq!(orders(&packet(&mut queue, 1, 100)), [(1, None)]);
}

#[test]
fn a_short_message_is_repeated_as_often_as_configured() {
    let mut queue = queue();
    queue.set_options(ChannelId(1), ChannelOptions::default().redundancy(Redundancy::Two));
    reliable(&mut queue, 1, 1);
    assert_eq!(orders_of_all(&mut queue, 0), [0]);
    assert!(!queue.has_sendable(), "copies alone are no reason to send");
    for (number, expected) in [(1, vec![1, 0]), (2, vec![2, 0, 1]), (3, vec![3, 1, 2])] {
        reliable(&mut queue, 1, 1);
        assert_eq!(orders_of_all(&mut queue, number), expected);
    }
    // The newest copy is in packet 2, so the loss of the first has no effect.
    queue.on_fate(PacketFate::Lost, fate_id_of(0), 0);
    assert!(!queue.has_sendable());
    queue.on_fate(PacketFate::Acknowledged, fate_id_of(2), 2);
    reliable(&mut queue, 1, 1);
    assert_eq!(orders_of_all(&mut queue, 4), [4, 3], "2 was acknowledged, and 1 has had its two copies");
}

#[test]
fn only_short_messages_of_the_channel_are_copied() {
    let mut queue = queue();
    queue.set_options(ChannelId(1), ChannelOptions::default().redundancy(Redundancy::Three));
    for (channel, bytes) in [(1, 129), (2, 1), (1, 128)] {
        let options = SendOptions::reliable_ordered();
        assert!(is_taken(queue.push(
            SEND_MEMORY_BYTES,
            Moment::ORIGIN,
            Message::new(ChannelId(channel), vec![0; bytes], options),
            None,
            IfFull::Notify
        )));
    }
    packet(&mut queue, 0, 1_000);
    reliable(&mut queue, 2, 0);
    let taken: Vec<usize> =
        packet(&mut queue, 1, 1_000).iter().map(|(_, _, payload)| payload.len()).collect();
    assert_eq!(taken, [1, 128]);
}

/// The ids of all messages in the next packet.
fn orders_of_all(queue: &mut SendQueue, number: u64) -> Vec<u64> {
    let mut buffer = [0; 200];
    let mut writer = FrameWriter::new(&mut buffer[..]);
    let mut carried = Vec::new();
    let packet = Packet { number, now: Moment::ORIGIN, room_bytes: usize::MAX };
    let filled = queue.fill(packet, &mut writer, |id| carried.push(id.0));
    assert_eq!(filled.reliable_count as usize, carried.len());
    carried.into_iter().flat_map(ids_of).collect()
}

#[test]
fn copies_without_room_do_not_accumulate() {
    let mut queue = queue();
    queue.set_options(ChannelId(1), ChannelOptions::default().redundancy(Redundancy::Three));
    for number in 0..1_000 {
        reliable(&mut queue, 1, 0);
        reliable(&mut queue, 1, 0);
        // Room for one message, so that something always waits.
        let taken = packet(&mut queue, number, 7);
        for (id, _) in orders(&taken) {
            queue.on_fate(PacketFate::Acknowledged, fate_id_of(id), number);
        }
        assert!(queue.reliable.as_ref().unwrap().copied_count() <= 1);
    }
}

#[test]
fn a_dropped_message_no_longer_waits_for_credit() {
    let mut queue = SendQueue::new(IdleSendState::new(), KeyedBuildHasher::new(7));
    queue.credit.set_parameters(u32::MAX, 400);
    queue.set_options(ChannelId(0), ChannelOptions::default().when_full(WhenFull::DropOldest));
    let push = |queue: &mut SendQueue, bytes: usize| {
        let message = Message::reliable_ordered(ChannelId(0), vec![0; bytes]);
        queue.push(charge(700), Moment::ORIGIN, message, None, IfFull::Notify)
    };
    assert_eq!(push(&mut queue, 700), PushResult::Taken(0));
    assert!(packet(&mut queue, 0, 1_000).is_empty(), "the credit is too small");
    assert_eq!(push(&mut queue, 50), PushResult::Taken(1));
    assert_eq!(packet(&mut queue, 1, 1_000).len(), 1);
}

#[test]
fn an_expired_message_no_longer_waits_for_credit() {
    // A message with its own payload, and a segment of two.
    for (bytes, count) in [(20_000, 1), (400, 2)] {
        let mut queue = SendQueue::new(IdleSendState::new(), KeyedBuildHasher::new(7));
        queue.credit.set_parameters(u32::MAX, 400);
        let receipt = NonZeroU64::new(1).map(ReceiptId);
        for _ in 0..count {
            let message = Message::reliable_ordered(ChannelId(0), vec![0; bytes]);
            let message = message.lifetime(Duration::from_millis(100));
            assert!(is_taken(queue.push(usize::MAX, Moment::ORIGIN, message, receipt, IfFull::Notify)));
        }
        assert_eq!(
            fill_1000(&mut queue, 0, Moment::ORIGIN).0,
            FillCounts::default(),
            "the credit is too small"
        );
        let urgent = SendOptions::reliable_unordered().priority(Priority::Urgent);
        let message = Message::new(ChannelId(1), vec![1; 10], urgent);
        let now = Moment::ORIGIN.after(Duration::from_millis(99));
        assert!(is_taken(queue.push(usize::MAX, now, message, None, IfFull::Notify)));
        assert_eq!(fill_1000(&mut queue, 1, now).0.message_count, 0, "nothing overtakes it");
        let now = Moment::ORIGIN.after(Duration::from_millis(100));
        let (filled, _) = fill_1000(&mut queue, 2, now);
        assert_eq!((filled.message_count, filled.expired_count), (1, count));
        assert_eq!(queue.used_bytes(), charge(10));
        assert_eq!(queue.pop_receipt(), receipt.map(|receipt| (receipt, Outcome::Expired)));
    }
}

#[test]
fn an_open_receipt_survives_the_release_of_idle_memory() {
    let mut queue = queue();
    let receipt = std::num::NonZeroU64::new(1).map(ReceiptId);
    let message = Message::reliable_ordered(ChannelId(0), vec![1]);
    assert!(is_taken(queue.push(usize::MAX, Moment::ORIGIN, message, receipt, IfFull::Notify)));
    packet(&mut queue, 0, 100);
    assert!(queue.shrink().is_none());
    queue.on_fate(PacketFate::Acknowledged, fate_id_of(0), 0);
    assert!(queue.shrink().is_none(), "its outcome was not read");
    assert_eq!(queue.pop_receipt(), receipt.map(|receipt| (receipt, Outcome::Acknowledged)));
}

#[test]
fn resolved_receipts_and_values_in_flight_need_no_queue() {
    let mut queue = queue();
    let receipt = std::num::NonZeroU64::new(1).map(ReceiptId);
    let (value, payload) = (SendOptions::reliable_latest(3), Bytes::from_static(b"v"));
    assert!(is_taken(queue.push(
        SEND_MEMORY_BYTES,
        Moment::ORIGIN,
        Message::new(ChannelId(1), payload, value),
        receipt,
        IfFull::Notify
    )));
    assert_eq!(packet(&mut queue, 0, 100).len(), 1);
    queue.shrink();
    assert!(queue.scheduler.is_none(), "nothing waits");
    queue.repeat(first_value(1));
    assert_eq!(packet(&mut queue, 1, 100).len(), 1, "it waits again");
    queue.on_fate(PacketFate::Acknowledged, first_value(2), 1);
    assert!(queue.pop_receipt().is_some());
    queue.shrink();
    assert!(queue.receipts.is_none() && queue.latest.is_none() && queue.used_bytes == 0);
}

/// The fate id of the first value, after this many transmissions.
fn first_value(sendings: u64) -> MessageId {
    MessageId((1 << 61) | (sendings << 32))
}

#[test]
fn used_channels_take_no_bytes_and_no_visits_once_acknowledged() {
    let visits_of = |created: u16| {
        let mut queue = queue();
        for channel in 0..created {
            reliable(&mut queue, channel, 0);
            assert_eq!(packet(&mut queue, channel.into(), 1_000).len(), 1);
        }
        for id in 0..created {
            queue.on_fate(PacketFate::Acknowledged, fate_id_of(id.into()), id.into());
        }
        assert_eq!((queue.used_bytes, queue.reliable.as_ref().unwrap().base_and_channels().1), (0, 0));
        queue.shrink();
        assert!(queue.scheduler.is_none() && queue.reliable.is_none() && queue.latest.is_none());
        counted(Visit::Queue, || {
            for number in 0..10 {
                let id = u64::from(created) + number;
                reliable(&mut queue, 0, 0);
                assert_eq!(packet(&mut queue, id, 1_000).len(), 1);
                queue.on_fate(PacketFate::Acknowledged, fate_id_of(id), id);
            }
        })
    };
    assert_eq!((visits_of(1), visits_of(1_024)), (10, 10));
}
