//! Messages that arrive in every order: what is delivered, and what is stored until then.

use super::*;
use crate::limits::KEYS_REMEMBERED;
use proptest::prelude::*;

/// The delivery of a Skip.
const SKIPPED: u8 = 0xff;

struct World {
    queue: ReceiveQueue,
    delivered: Vec<(u16, u8)>,
}

impl World {
    fn new() -> Self {
        Self { queue: ReceiveQueue::new(FoldBuild::new(7)), delivered: Vec::new() }
    }

    fn arrive(&mut self, channel: u16, id: u64, after: Option<u64>) -> bool {
        let payload = [u8::try_from(id % 256).unwrap()];
        let arrival = Arrival {
            id: MessageId(id),
            after: after.map(MessageId),
            channel: ChannelId(channel),
            payload: Some(&payload),
        };
        let delivered = &mut self.delivered;
        let is_new = self.queue.accept(&arrival, |channel, payload| {
            delivered.push((channel.0, payload.map_or(SKIPPED, |payload| payload[0])));
        });
        self.queue.check();
        is_new
    }

    fn skip(&mut self, id: u64, after: Option<u64>) -> bool {
        let (id, after) = (MessageId(id), after.map(MessageId));
        let arrival = Arrival { id, after, channel: ChannelId(0), payload: None };
        let delivered = &mut self.delivered;
        self.queue.accept(&arrival, |channel, payload| {
            assert_eq!(payload, None);
            delivered.push((channel.0, SKIPPED));
        })
    }

    fn ids(&self) -> Vec<u8> {
        self.delivered.iter().map(|(_, id)| *id).collect()
    }
}

#[test]
fn messages_wait_for_the_one_before_and_then_come_in_order() {
    let mut world = World::new();
    assert!(world.arrive(0, 2, Some(1)));
    assert!(world.arrive(0, 1, Some(0)));
    assert_eq!(world.ids(), [0_u8; 0]);
    assert!(world.arrive(0, 0, None));
    assert_eq!(world.ids(), [0, 1, 2]);
    assert_eq!((world.queue.floor(), world.queue.used_bytes()), (MessageId(3), 0));
}

#[test]
fn messages_that_arrive_in_order_need_no_window() {
    let mut world = World::new();
    world.arrive(0, 0, None);
    world.arrive(0, 1, Some(0));
    world.arrive(0, 2, Some(1));
    assert_eq!(world.ids(), [0, 1, 2]);
    assert!(world.queue.ahead.is_none());
}

#[test]
fn a_key_is_remembered_until_there_is_no_room_for_more() {
    let mut queue = ReceiveQueue::new(FoldBuild::new(7));
    let channel = ChannelId(0);
    for key in 0..KEYS_REMEMBERED as u64 {
        assert!(queue.admits_values(1, key, key));
        assert!(queue.take_value(Moment::ORIGIN, channel, key, 1));
    }
    assert!((0..KEYS_REMEMBERED as u64).all(|key| queue.is_known_key(channel, key)));
    let number = KEYS_REMEMBERED as u64;
    assert!(queue.admits_values(0, number, number));
    assert!(queue.is_known_key(channel, 0), "a packet without new keys needs no room");
    assert!(queue.admits_values(1, number + 1, number));
    assert!(!queue.is_known_key(channel, 0));
}

#[test]
fn the_window_never_has_more_slots_than_ids_can_be_ahead() {
    let mut world = World::new();
    for id in 1..=MESSAGE_IDS_AHEAD {
        assert!(world.arrive(0, id, None));
        let slots = world.queue.ahead.as_ref().unwrap().window.capacity();
        assert!(slots <= WINDOW_SLOTS_MAX, "{slots} slots for {id} ids");
    }
}

#[test]
fn a_skip_takes_its_place_in_the_order_and_revokes_no_message() {
    let mut world = World::new();
    world.arrive(0, 3, Some(2));
    assert!(world.skip(2, Some(1)));
    assert!(world.skip(1, Some(0)));
    assert_eq!(world.ids(), [0_u8; 0], "0 may still come");
    world.arrive(0, 0, None);
    assert_eq!(world.ids(), [0, SKIPPED, SKIPPED, 3]);
    assert!(!world.skip(3, Some(2)) && !world.arrive(0, 1, Some(0)), "once, whatever it was");
    assert_eq!(world.queue.used_bytes(), 0);
}

#[test]
fn a_message_is_taken_once() {
    let mut world = World::new();
    assert!(world.arrive(0, 1, Some(0)));
    assert!(!world.arrive(0, 1, Some(0)));
    assert!(world.arrive(0, 0, None));
    for id in [0, 1] {
        assert!(!world.arrive(0, id, None));
    }
    assert_eq!(world.ids(), [0, 1]);
}

#[test]
fn one_channel_does_not_hold_up_another() {
    let mut world = World::new();
    world.arrive(7, 1, Some(0));
    world.arrive(8, 2, None);
    world.arrive(8, 3, Some(2));
    assert_eq!(world.delivered, [(8, 2), (8, 3)]);
    world.arrive(7, 0, None);
    assert_eq!(world.delivered[2..], [(7, 0), (7, 1)]);
}

#[test]
fn messages_that_become_due_together_come_by_ascending_id() {
    let mut world = World::new();
    // 5 and 6 arrived and were acknowledged while 4 was missing, so 7 names 4.
    world.arrive(0, 6, Some(5));
    world.arrive(0, 7, Some(4));
    world.arrive(0, 5, Some(4));
    world.arrive(0, 4, None);
    assert_eq!(world.ids(), [4, 5, 6, 7]);
}

#[test]
fn ids_end_4096_beyond_the_floor() {
    let mut world = World::new();
    for (id, is_in_reach) in [(4_095, true), (4_096, true), (4_097, false)] {
        assert_eq!(world.queue.is_in_reach(MessageId(id)), is_in_reach);
    }
    assert!(world.arrive(0, 4_096, None));
    assert!(world.arrive(0, 0, None));
    assert!(world.arrive(0, 4_097, None));
    assert!(!world.queue.is_in_reach(MessageId(4_098)));
}

#[test]
fn what_is_kept_is_charged_and_set_free() {
    let mut world = World::new();
    world.arrive(0, 1, Some(0));
    assert_eq!(world.queue.kept_bytes(), 65);
    assert_eq!(world.queue.used_bytes(), 65 + 2 * SLOT_CHARGE_BYTES);
    world.arrive(0, 0, None);
    world.queue.shrink(0, false);
    assert_eq!((world.queue.used_bytes(), world.queue.ahead.is_some()), (0, false));
}

#[test]
fn a_message_that_waits_for_one_never_sent_is_harmless() {
    let mut world = World::new();
    for id in 1..200 {
        world.arrive(0, id, Some(0));
    }
    assert_eq!(world.ids(), [0_u8; 0]);
    world.arrive(0, 0, None);
    assert_eq!(world.ids(), (0..200).collect::<Vec<u8>>());
}

proptest! {
    #[test]
    fn any_arrival_order_is_delivered_once_in_channel_order(
        channels in prop::collection::vec(0_u16..3, 1..120),
        order in prop::collection::vec(any::<prop::sample::Index>(), 300),
    ) {
        let previous: Vec<Option<u64>> = (0..channels.len())
            .map(|id| (0..id).rev().find(|other| channels[*other] == channels[id]).map(|other| other as u64))
            .collect();
        let mut world = World::new();
        let all = 0..channels.len();
        for id in order.iter().map(|index| index.index(channels.len())).chain(all) {
            world.arrive(channels[id], id as u64, previous[id]);
        }
        for channel in 0..3 {
            let ids: Vec<usize> =
                world.delivered.iter().filter(|(of, _)| *of == channel).map(|(_, id)| usize::from(*id)).collect();
            let wanted: Vec<usize> =
                (0..channels.len()).filter(|id| channels[*id] == channel).collect();
            prop_assert_eq!(ids, wanted);
        }
        prop_assert_eq!(world.queue.used_bytes(), 0);
    }
}
