//! Messages that arrive in every order: what is delivered, and what is stored until then.

use super::*;
use crate::limits::KEYS_REMEMBERED;
use drumfire_wire::Bodies;
use proptest::prelude::*;

/// The delivery of a Skip.
const SKIPPED: u8 = 0xff;

struct World {
    queue: ReceiveQueue,
    delivered: Vec<(u16, u8)>,
}

impl World {
    fn new() -> Self {
        let mut queue = ReceiveQueue::new(KeyedBuildHasher::new(7));
        queue.credit.set_parameters(u32::MAX);
        Self { queue, delivered: Vec::new() }
    }

    fn arrive(&mut self, channel: u16, id: u64, after: Option<u64>) -> bool {
        let payload = [u8::try_from(id % 256).unwrap()];
        let received = ReceivedMessages {
            id: MessageId(id),
            after: after.map(MessageId),
            channel: ChannelId(channel),
            contents: Contents::Message(&payload),
        };
        let is_new = self.queue.accept(&received, record_into(&mut self.delivered));
        self.queue.assert_invariants();
        is_new
    }

    fn skip(&mut self, id: u64, after: Option<u64>) -> bool {
        let (id, after) = (MessageId(id), after.map(MessageId));
        let received = ReceivedMessages { id, after, channel: ChannelId(0), contents: Contents::Skipped(1) };
        self.queue.accept(&received, record_into(&mut self.delivered))
    }

    /// A run of `count` messages, each with the last byte of its id as its payload, or a Skip run.
    fn arrive_run(&mut self, channel: u16, (id, count): (u64, u16), after: Option<u64>, is_skip: bool) {
        let mut bytes = Vec::new();
        for at in id..id + u64::from(count) {
            Bodies::put(&[u8::try_from(at % 256).unwrap()], &mut bytes);
        }
        let (bodies, _) = Bodies::parse(&bytes).unwrap();
        let contents = if is_skip { Contents::Skipped(count) } else { Contents::Run(bodies) };
        let after = after.map(MessageId);
        let run = ReceivedMessages { id: MessageId(id), after, channel: ChannelId(channel), contents };
        let mut payloads = bodies.payloads();
        let messages = std::iter::from_fn(|| {
            let rest = payloads.rest();
            payloads.next().map(|payload| (payload.len(), rest))
        });
        assert!(self.queue.accept_run(&run, count.into(), true, messages, record_into(&mut self.delivered)));
        self.queue.assert_invariants();
    }

    fn ids(&self) -> Vec<u8> {
        self.delivered.iter().map(|(_, id)| *id).collect()
    }
}

/// Returns a function that records each delivered message by its channel and its first byte.
fn record_into(delivered: &mut Vec<(u16, u8)>) -> impl FnMut(ChannelId, Contents<'_>) {
    |channel, contents| match contents {
        Contents::Message(payload) => delivered.push((channel.0, payload[0])),
        Contents::Run(bodies) => {
            delivered.extend(bodies.payloads().map(|payload| (channel.0, payload[0])));
        }
        Contents::Skipped(count) => delivered.extend((0..count).map(|_| (channel.0, SKIPPED))),
    }
}

#[test]
fn messages_wait_for_their_predecessor() {
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
    assert!(world.queue.window.is_none());
}

#[test]
fn a_key_is_remembered_until_its_room_is_needed() {
    let mut queue = ReceiveQueue::new(KeyedBuildHasher::new(7));
    let channel = ChannelId(0);
    for key in 0..KEYS_REMEMBERED as u64 {
        assert!(queue.admits_values(1, key, key));
        assert!(queue.accept_value(Moment::ORIGIN, channel, key, 1));
    }
    assert!((0..KEYS_REMEMBERED as u64).all(|key| queue.is_known_key(channel, key)));
    let number = KEYS_REMEMBERED as u64;
    assert!(queue.admits_values(0, number, number));
    assert!(queue.is_known_key(channel, 0), "a packet without new keys needs no room");
    assert!(queue.admits_values(1, number + 1, number));
    assert!(!queue.is_known_key(channel, 0));
}

#[test]
fn every_other_id_of_the_window_takes_two_bits_for_each_id() {
    for begin in [0, 1, 63, 64] {
        let mut world = World::new();
        (0..begin).for_each(|id| assert!(world.arrive(0, id, None)));
        for id in (begin + 1..=begin + MESSAGE_IDS_AHEAD).step_by(2) {
            assert!(world.arrive(0, id, None));
        }
        assert_eq!(world.queue.floor(), MessageId(begin));
        // 256 or 257 words of 16 bytes.
        assert!(world.queue.used_bytes() <= 257 * 16, "{}", world.queue.used_bytes());
        for id in (begin..begin + MESSAGE_IDS_AHEAD).step_by(2) {
            assert!(world.arrive(0, id, None));
            assert!(!world.arrive(0, id, None) && !world.arrive(0, id + 1, None));
        }
        assert_eq!((world.queue.floor().0, world.queue.used_bytes()), (begin + MESSAGE_IDS_AHEAD, 0));
    }
}

#[test]
fn a_skip_is_ordered_and_revokes_no_delivered_message() {
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
fn a_message_is_accepted_once() {
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
fn one_channel_does_not_block_another() {
    let mut world = World::new();
    world.arrive(7, 1, Some(0));
    world.arrive(8, 2, None);
    world.arrive(8, 3, Some(2));
    assert_eq!(world.delivered, [(8, 2), (8, 3)]);
    world.arrive(7, 0, None);
    assert_eq!(world.delivered[2..], [(7, 0), (7, 1)]);
}

#[test]
fn messages_due_together_are_delivered_by_ascending_id() {
    let mut world = World::new();
    // 5 and 6 arrived and were acknowledged while 4 was missing, so 7 names 4.
    world.arrive(0, 6, Some(5));
    world.arrive(0, 7, Some(4));
    world.arrive(0, 5, Some(4));
    world.arrive(0, 4, None);
    assert_eq!(world.ids(), [4, 5, 6, 7]);
}

#[test]
fn ids_beyond_16384_after_the_floor_are_rejected() {
    let mut world = World::new();
    for (id, is_in_window) in [(16_383, true), (16_384, true), (16_385, false)] {
        assert_eq!(world.queue.is_in_window(MessageId(id)), is_in_window);
    }
    assert!(world.arrive(0, 16_384, None));
    assert!(world.arrive(0, 0, None));
    assert!(world.arrive(0, 16_385, None));
    assert!(!world.queue.is_in_window(MessageId(16_386)));
}

#[test]
fn held_messages_are_charged_and_released() {
    let mut world = World::new();
    world.arrive(0, 1, Some(0));
    assert_eq!(world.queue.held_message_bytes(), 65);
    assert_eq!(world.queue.used_bytes(), 65 + 16);
    world.arrive(0, 0, None);
    world.queue.shrink(0, false);
    assert_eq!((world.queue.used_bytes(), world.queue.window.is_some()), (0, false));
}

#[test]
fn a_message_may_wait_for_one_that_was_never_sent() {
    let mut world = World::new();
    for id in 1..200 {
        world.arrive(0, id, Some(0));
    }
    assert_eq!(world.ids(), [0_u8; 0]);
    world.arrive(0, 0, None);
    assert_eq!(world.ids(), (0..200).collect::<Vec<u8>>());
}

#[test]
fn a_run_that_is_due_is_delivered_in_one_step_without_a_window() {
    let mut world = World::new();
    world.arrive_run(0, (0, 3), None, false);
    world.arrive_run(0, (3, 512), Some(2), false);
    world.arrive_run(0, (515, 2), Some(514), true);
    assert_eq!(world.ids()[..5], [0, 1, 2, 3, 4]);
    assert_eq!((world.delivered.len(), world.ids()[515..].to_vec()), (517, vec![SKIPPED; 2]));
    assert_eq!((world.queue.floor(), world.queue.window.is_some()), (MessageId(517), false));
}

#[test]
fn a_run_waits_as_one_and_is_charged_for_each_message() {
    let mut world = World::new();
    world.arrive_run(0, (60, 10), Some(59), false);
    assert_eq!(world.queue.window.as_ref().unwrap().held.run_count(), 1);
    assert_eq!(world.queue.used_bytes(), 10 * 65 + 2 * 16);
    // Messages that wait for one inside the run, alone and as a run.
    assert!(world.arrive(0, 71, Some(65)));
    world.arrive_run(0, (72, 2), Some(69), false);
    assert_eq!(world.ids(), [0_u8; 0]);
    world.arrive_run(0, (0, 60), None, false);
    assert_eq!(world.ids(), [(0..70).collect(), vec![71, 72, 73]].concat());
    assert_eq!(world.queue.floor(), MessageId(70));
    assert!(world.arrive(1, 70, None));
    assert_eq!((world.queue.floor(), world.queue.used_bytes()), (MessageId(74), 0));
}

#[test]
fn each_gap_filled_by_a_run_is_one_delivery() {
    let mut world = World::new();
    for id in [10, 100, 101, 300] {
        assert!(world.arrive(1, id, None));
    }
    let mut bytes = Vec::new();
    (0..512).for_each(|_| Bodies::put(b"x", &mut bytes));
    let (bodies, _) = Bodies::parse(&bytes).unwrap();
    let mut payloads = bodies.payloads();
    let messages = std::iter::from_fn(|| {
        let rest = payloads.rest();
        payloads.next().map(|payload| (payload.len(), rest))
    });
    let contents = Contents::Run(bodies);
    let run = ReceivedMessages { id: MessageId(0), after: None, channel: ChannelId(0), contents };
    let mut counts = Vec::new();
    assert!(world.queue.accept_run(&run, 512, false, messages, |_, contents| {
        let Contents::Run(part) = contents else { panic!("{contents:?}") };
        assert_eq!(part.payloads().count(), usize::from(part.count));
        assert_eq!((part.bytes.len(), part.payload_bytes), (2 * usize::from(part.count), part.count.into()));
        counts.push(part.count);
    }));
    world.queue.assert_invariants();
    assert_eq!(counts, [10, 89, 198, 211]);
    assert_eq!((world.queue.floor(), world.queue.used_bytes()), (MessageId(512), 0));
}

#[test]
fn an_overlapping_run_delivers_only_new_messages() {
    let mut world = World::new();
    world.arrive_run(0, (2, 3), Some(1), false);
    world.arrive_run(0, (4, 4), Some(3), false);
    world.arrive_run(0, (2, 3), Some(1), false);
    // Across the floor, and over all that waits.
    world.arrive_run(0, (0, 1), None, false);
    world.arrive_run(0, (0, 10), None, false);
    world.arrive_run(0, (0, 10), None, true);
    assert_eq!(world.ids(), (0..10).collect::<Vec<u8>>());
    world.arrive_run(0, (8, 4), Some(7), true);
    assert_eq!(world.ids()[10..], [SKIPPED; 2]);
    let charges = u32::MAX as usize - 10 * 65 - 2 * 65;
    assert_eq!(world.queue.credit.left_bytes(), charges, "each message is charged once");
}

proptest! {
    /// Runs that are cut, repeated, and reordered at random give the deliveries of single messages.
    #[test]
    fn a_run_delivers_the_same_as_its_single_messages(
        cuts in prop::collection::vec((0_u64..200, 1_u16..80, any::<bool>()), 1..60),
    ) {
        let (mut runs, mut singles) = (World::new(), World::new());
        for (id, count, is_single) in cuts {
            let ids = id..id + u64::from(count);
            if is_single {
                runs.arrive(0, id, id.checked_sub(1));
                singles.arrive(0, id, id.checked_sub(1));
                continue;
            }
            runs.arrive_run(0, (id, count), id.checked_sub(1), false);
            ids.for_each(|id| {
                singles.arrive(0, id, id.checked_sub(1));
            });
        }
        prop_assert_eq!(&runs.delivered, &singles.delivered);
        prop_assert_eq!(runs.queue.floor(), singles.queue.floor());
        prop_assert_eq!(runs.queue.used_bytes(), singles.queue.used_bytes());
        prop_assert_eq!(runs.queue.held_message_bytes(), singles.queue.held_message_bytes());
    }
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
            let expected: Vec<usize> =
                (0..channels.len()).filter(|id| channels[*id] == channel).collect();
            prop_assert_eq!(ids, expected);
        }
        prop_assert_eq!(world.queue.used_bytes(), 0);
    }
}
