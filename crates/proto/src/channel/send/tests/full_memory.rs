//! Messages for which the memory has no room, except in place of an older message.

use super::*;

/// The channel of the messages that are replaced or dropped.
const CHANNEL: ChannelId = ChannelId(1);

/// A queue whose channel has this option.
fn queue_with(when_full: WhenFull) -> SendQueue {
    let mut queue = queue();
    queue.set_options(CHANNEL, ChannelOptions::default().when_full(when_full));
    queue
}

/// Queues a message of `bytes` bytes in the channel, each of them `fill`.
fn push(
    queue: &mut SendQueue,
    limit_bytes: usize,
    options: SendOptions,
    fill: u8,
    bytes: usize,
) -> PushResult {
    let message = Message::new(CHANNEL, vec![fill; bytes], options);
    let pushed = queue.push(limit_bytes, Moment::ORIGIN, message, None, IfFull::Notify);
    queue.assert_invariants();
    pushed
}

/// Queues a message of `bytes` bytes in another channel.
fn push_other(queue: &mut SendQueue, limit_bytes: usize, bytes: usize) {
    let message = Message::reliable_ordered(ChannelId(2), vec![0; bytes]);
    assert!(is_taken(queue.push(limit_bytes, Moment::ORIGIN, message, None, IfFull::Notify)));
}

/// The first bytes of the messages of the channel in the next packet.
fn sent(queue: &mut SendQueue, number: u64) -> Vec<u8> {
    let taken = packet(queue, number, 1_200);
    taken.iter().filter(|(channel, ..)| *channel == CHANNEL.0).map(|(.., payload)| payload[0]).collect()
}

/// The result for a message that has no room, and no older message of its channel that may be dropped.
fn refused(when_full: WhenFull) -> PushResult {
    match when_full {
        WhenFull::Block => PushResult::Full,
        WhenFull::Disconnect => PushResult::Overflow,
        WhenFull::DropNewest | WhenFull::DropOldest => PushResult::Dropped(1),
    }
}

const ALL_RULES: [WhenFull; 4] =
    [WhenFull::Block, WhenFull::DropNewest, WhenFull::DropOldest, WhenFull::Disconnect];

#[test]
fn a_value_replaces_its_older_one_in_full_memory() {
    let (value, limit_bytes) = (SendOptions::reliable_latest(3), charge(100) + charge(200));
    for when_full in ALL_RULES {
        for is_in_flight in [false, true] {
            let mut queue = queue_with(when_full);
            assert_eq!(push(&mut queue, limit_bytes, value, 1, 100), PushResult::Taken(0));
            if is_in_flight {
                assert_eq!(sent(&mut queue, 0), [1]);
            }
            push_other(&mut queue, limit_bytes, 200);
            assert_eq!(push(&mut queue, limit_bytes, value, 2, 100), PushResult::Taken(0), "{when_full:?}");
            assert_eq!(push(&mut queue, limit_bytes, value, 3, 101), refused(when_full));
            let other_key = SendOptions::reliable_latest(4);
            assert_eq!(push(&mut queue, limit_bytes, other_key, 4, 1), refused(when_full));
            assert_eq!(queue.used_bytes(), limit_bytes);
            assert_eq!(sent(&mut queue, 1), [2], "{when_full:?}, {is_in_flight}");
        }
    }
}

#[test]
fn a_sequenced_message_replaces_the_waiting_one_in_full_memory() {
    let (sequenced, limit_bytes) = (SendOptions::reliable_sequenced(), 2 * charge(100) + charge(200));
    for when_full in ALL_RULES {
        let mut queue = queue_with(when_full);
        // The first is in flight, and the second is set aside until the first has arrived.
        assert_eq!(push(&mut queue, limit_bytes, sequenced, 1, 100), PushResult::Taken(0));
        assert_eq!(sent(&mut queue, 0), [1]);
        assert_eq!(push(&mut queue, limit_bytes, sequenced, 2, 100), PushResult::Taken(0));
        push_other(&mut queue, limit_bytes, 200);
        assert_eq!(push(&mut queue, limit_bytes, sequenced, 3, 100), PushResult::Taken(0), "{when_full:?}");
        assert_eq!(push(&mut queue, limit_bytes, sequenced, 4, 101), refused(when_full));
        queue.on_fate(PacketFate::Acknowledged, fate_id_of(0), 0);
        assert_eq!(sent(&mut queue, 1), [3], "{when_full:?}");
    }
}

#[test]
fn a_shorter_value_is_accepted_even_above_the_limit() {
    let (value, mut queue) = (SendOptions::reliable_latest(3), queue_with(WhenFull::Block));
    assert_eq!(push(&mut queue, usize::MAX, value, 1, 100), PushResult::Taken(0));
    assert_eq!(push(&mut queue, charge(50), value, 2, 99), PushResult::Taken(0));
    assert_eq!(push(&mut queue, charge(50), value, 3, 100), PushResult::Full);
    assert_eq!(sent(&mut queue, 0), [2]);
}

#[test]
fn nothing_is_dropped_for_a_message_without_room() {
    let ordered = SendOptions::reliable_ordered();
    let mut queue = queue_with(WhenFull::DropOldest);
    let limit_bytes = charge(1_000) + 3 * charge(100);
    push_other(&mut queue, limit_bytes, 1_000);
    // One segment of three messages.
    for (fill, bytes) in [(1, 100), (2, 100), (3, 100)] {
        assert_eq!(push(&mut queue, limit_bytes, ordered, fill, bytes), PushResult::Taken(0));
    }
    let all_bytes = 3 * charge(100) - charge(0);
    assert_eq!(push(&mut queue, limit_bytes, ordered, 4, all_bytes + 1), PushResult::Dropped(1));
    assert_eq!(queue.used_bytes(), limit_bytes);
    assert_eq!(push(&mut queue, limit_bytes, ordered, 5, charge(100)), PushResult::Taken(2));
    assert_eq!(sent(&mut queue, 0), [3, 5]);
}

#[test]
fn a_sequenced_message_is_not_dropped_for_a_longer_one() {
    let (ordered, sequenced) = (SendOptions::reliable_ordered(), SendOptions::reliable_sequenced());
    let limit_bytes = charge(1_000) + 2 * charge(100);
    for has_other in [false, true] {
        let mut queue = queue_with(WhenFull::DropOldest);
        let limit_bytes = if has_other { limit_bytes } else { limit_bytes - charge(100) };
        push_other(&mut queue, limit_bytes, 1_000);
        if has_other {
            assert_eq!(push(&mut queue, limit_bytes, ordered, 1, 100), PushResult::Taken(0));
        }
        assert_eq!(push(&mut queue, limit_bytes, sequenced, 2, 100), PushResult::Taken(0));
        let pushed = push(&mut queue, limit_bytes, sequenced, 3, 150);
        let expected = if has_other { PushResult::Taken(1) } else { PushResult::Dropped(1) };
        assert_eq!(pushed, expected);
        assert_eq!(sent(&mut queue, 0), [if has_other { 3 } else { 2 }]);
    }
}
