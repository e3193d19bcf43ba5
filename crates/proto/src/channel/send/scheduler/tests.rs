//! The scheduler: priorities, fair shares, and queues that wait for ids.

use super::*;
use crate::channel::send::segment::{ExtraFields, QueuedBodies};
use crate::limits::MESSAGE_MAX_BYTES;
use crate::visits::counted;
use bytes::Bytes;
use proptest::prelude::*;
use std::num::NonZeroU8;

/// A scheduler with its memory for bodies.
struct Queues {
    scheduler: ChannelScheduler,
    chunks: BodyChunks,
}

impl Queues {
    fn new() -> Self {
        Self { scheduler: ChannelScheduler::new(KeyedBuildHasher::new(7)), chunks: BodyChunks::new() }
    }

    /// Removes the first message of a queue. Returns the length of its payload.
    fn pop(&mut self, key: QueueKey) -> usize {
        let part = match self.scheduler.first(key).unwrap().content {
            QueuedBodies::Segment(segment) => segment.first(),
            QueuedBodies::Single(_) => {
                return self.scheduler.pop(key, true, &mut self.chunks).unwrap().payload.len();
            }
        };
        let bodies = self.scheduler.take_part(key, &part, &mut self.chunks, |_| ()).unwrap();
        self.chunks.release(bodies);
        part.payload_bytes
    }
}

impl std::ops::Deref for Queues {
    type Target = ChannelScheduler;

    fn deref(&self) -> &ChannelScheduler {
        &self.scheduler
    }
}

impl std::ops::DerefMut for Queues {
    fn deref_mut(&mut self) -> &mut ChannelScheduler {
        &mut self.scheduler
    }
}

fn push(queues: &mut Queues, channel: u16, mode: Mode, payload: &[u8], priority: Priority) -> Option<Bytes> {
    let payload = Bytes::copy_from_slice(payload);
    let (channel, queued_at, extras) = (ChannelId(channel), Moment::ORIGIN, ExtraFields::NONE);
    let waiting = QueuedMessage { channel, mode, payload, queued_at, extras };
    let limits = ChunkLimits { limit_bytes: usize::MAX, used_bytes: 0 };
    let Queues { scheduler, chunks } = queues;
    scheduler.push(waiting, priority, chunks, limits).map(|older| older.payload)
}

/// Removes everything that may be sent: channels and lengths.
fn drain(queues: &mut Queues, can_assign_id: bool) -> Vec<(u16, usize)> {
    let mut taken = Vec::new();
    for class in 0..Priority::COUNT {
        while let Some((key, _)) = queues.front(class, can_assign_id) {
            let bytes = queues.pop(key);
            taken.push((key.channel.0, bytes));
        }
    }
    queues.assert_invariants(&queues.chunks);
    taken
}

fn channels(taken: &[(u16, usize)]) -> Vec<u16> {
    taken.iter().map(|(channel, _)| *channel).collect()
}

#[test]
fn a_higher_class_goes_first_in_any_order_of_arrival() {
    let mut queues = Queues::new();
    for (channel, priority) in
        [(1, Priority::Bulk), (2, Priority::Low), (3, Priority::Normal), (4, Priority::Urgent)]
    {
        push(&mut queues, channel, Mode::Unreliable, b"x", priority);
    }
    assert_eq!(channels(&drain(&mut queues, true)), [4, 3, 2, 1]);
    assert!(queues.is_empty());
}

#[test]
fn emptied_queues_are_not_sendable_blocked_or_not() {
    for (is_blocked, kept) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
        let mut queues = Queues::new();
        for channel in [1, 2, 1, 2].into_iter().take(2 + 2 * kept) {
            push(&mut queues, channel, Mode::ReliableOrdered, b"x", Priority::Normal);
        }
        if is_blocked {
            assert!(queues.front(Priority::Normal.class(), false).is_none(), "no id can be given");
        }
        for channel in [1, 2] {
            let Queues { scheduler, chunks } = &mut queues;
            assert!(scheduler.drop_oldest(ChannelId(channel), Mode::ReliableOrdered, chunks).is_some());
        }
        queues.unblock();
        assert_eq!(queues.has_sendable(true), kept > 0, "{is_blocked}");
        assert_eq!(drain(&mut queues, true).len(), 2 * kept);
        assert!(!queues.has_sendable(true), "{is_blocked} {kept}");
    }
}

#[test]
fn a_queue_keeps_its_order_when_the_priority_changes() {
    let mut queues = Queues::new();
    push(&mut queues, 1, Mode::ReliableOrdered, &[0; 1], Priority::Low);
    push(&mut queues, 1, Mode::ReliableOrdered, &[0; 2], Priority::Urgent);
    push(&mut queues, 2, Mode::ReliableOrdered, &[0; 3], Priority::Normal);
    assert_eq!(drain(&mut queues, true), [(2, 3), (1, 1), (1, 2)]);
    push(&mut queues, 1, Mode::ReliableOrdered, &[0; 4], Priority::Urgent);
    push(&mut queues, 2, Mode::ReliableOrdered, &[0; 5], Priority::Normal);
    assert_eq!(drain(&mut queues, true), [(1, 4), (2, 5)], "a new queue has its own class");
}

#[test]
fn queues_of_a_class_share_bytes_and_not_messages() {
    let mut queues = Queues::new();
    for _ in 0..40 {
        push(&mut queues, 1, Mode::Unreliable, &[0; 1_000], Priority::Normal);
    }
    for _ in 0..400 {
        push(&mut queues, 2, Mode::Unreliable, &[0; 100], Priority::Normal);
    }
    let taken = drain(&mut queues, true);
    let bytes = |of: u16| -> usize {
        taken[..220].iter().filter(|(channel, _)| *channel == of).map(|(_, bytes)| bytes).sum()
    };
    assert!(bytes(1).abs_diff(bytes(2)) <= 1_000, "{} {}", bytes(1), bytes(2));
}

#[test]
fn empty_messages_use_up_a_turn() {
    let mut queues = Queues::new();
    for _ in 0..4_000 {
        push(&mut queues, 1, Mode::ReliableOrdered, b"", Priority::Normal);
    }
    for _ in 0..10 {
        push(&mut queues, 2, Mode::ReliableOrdered, &[0; 100], Priority::Normal);
    }
    let taken = channels(&drain(&mut queues, true));
    let first = taken.iter().position(|channel| *channel == 2).unwrap();
    let last = taken.iter().rposition(|channel| *channel == 2).unwrap();
    let quantum = usize::try_from(QUANTUM_BYTES).unwrap();
    assert!(first <= quantum && last <= 10 + 5 * quantum, "{first} and {}", last - 9);
}

#[test]
fn a_weight_is_a_share() {
    let mut queues = Queues::new();
    queues.set_options(ChannelId(2), ChannelOptions::default().weight(NonZeroU8::new(3).unwrap()));
    for channel in [1, 2] {
        for _ in 0..400 {
            push(&mut queues, channel, Mode::Unreliable, &[0; 100], Priority::Normal);
        }
    }
    let taken = drain(&mut queues, true);
    let heavy = taken[..400].iter().filter(|(channel, _)| *channel == 2).count();
    assert!((295..=305).contains(&heavy), "{heavy}");
    assert!(!queues.is_empty(), "the weight is kept");
    queues.set_options(ChannelId(2), ChannelOptions::default());
    assert!(queues.is_empty());
}

#[test]
fn without_ids_only_unreliable_messages_pass() {
    let mut queues = Queues::new();
    for channel in 0..3 {
        push(&mut queues, channel, Mode::ReliableOrdered, b"x", Priority::Normal);
    }
    assert!(queues.has_sendable(true) && !queues.has_sendable(false));
    push(&mut queues, 9, Mode::Unreliable, b"x", Priority::Normal);
    assert!(queues.has_sendable(false));
    assert_eq!(channels(&drain(&mut queues, false)), [9]);
    assert_eq!(channels(&drain(&mut queues, true)), [0_u16; 0], "they wait for ids");
    queues.unblock();
    assert_eq!(channels(&drain(&mut queues, true)), [0, 1, 2]);
}

#[test]
fn a_sequenced_channel_has_one_in_flight_and_the_newest_waits() {
    let mut queues = Queues::new();
    let mode = Mode::ReliableSequenced;
    assert_eq!(push(&mut queues, 1, mode, b"a", Priority::Normal), None);
    assert_eq!(push(&mut queues, 1, mode, b"bb", Priority::Normal), Some(Bytes::from_static(b"a")));
    assert_eq!(drain(&mut queues, true), [(1, 2)]);
    assert_eq!(push(&mut queues, 1, mode, b"ccc", Priority::Normal), None);
    assert_eq!(push(&mut queues, 1, mode, b"dddd", Priority::Normal), Some(Bytes::from_static(b"ccc")));
    assert!(!queues.has_sendable(true), "one is in flight");
    queues.on_sequenced_arrived(ChannelId(1));
    assert_eq!(drain(&mut queues, true), [(1, 4)]);
    queues.on_sequenced_arrived(ChannelId(1));
    assert!(queues.is_empty());
}

#[test]
fn freed_slots_are_reused() {
    let mut queues = Queues::new();
    for _ in 0..1_000 {
        for channel in 0..5 {
            push(&mut queues, channel, Mode::Unreliable, b"x", Priority::Normal);
        }
        assert_eq!(drain(&mut queues, true).len(), 5);
    }
    assert_eq!(queues.messages.counts(), (0, 5));
}

#[test]
fn a_tick_visits_only_active_channels() {
    for active in [1, 8] {
        let visits = [active, 1_024].map(|created| {
            let mut queues = Queues::new();
            for channel in 0..created {
                push(&mut queues, channel, Mode::ReliableOrdered, b"x", Priority::Normal);
            }
            assert_eq!(drain(&mut queues, true).len(), usize::from(created));
            assert!(queues.is_empty(), "drained channels are not kept");
            assert_eq!(queues.messages.counts().0, 0);
            assert!(queues.turns.iter().chain(&queues.blocked).all(VecDeque::is_empty));
            (0..3)
                .map(|_| {
                    counted(Visit::Queue, || {
                        for channel in 0..active {
                            push(&mut queues, channel, Mode::ReliableOrdered, b"x", Priority::Normal);
                        }
                        assert_eq!(drain(&mut queues, true).len(), usize::from(active));
                    })
                })
                .collect::<Vec<_>>()
        });
        assert_eq!(visits[0], visits[1], "{active} active");
        // An only queue is visited in a higher class first. Of several, each gets its share at one visit and sends at
        // the next.
        assert_eq!(visits[0], [2 * u64::from(active); 3], "{active} active");
    }
}

#[test]
fn a_tick_without_active_channels_visits_none() {
    let mut queues = Queues::new();
    for channel in 0..1_024 {
        push(&mut queues, channel, Mode::ReliableOrdered, b"x", Priority::Normal);
    }
    drain(&mut queues, true);
    let visits = counted(Visit::Queue, || assert_eq!(drain(&mut queues, true), []));
    assert_eq!(visits, 0);
}

/// The longest message that is not fragmented.
const LONGEST: [u8; MESSAGE_MAX_BYTES] = [0; MESSAGE_MAX_BYTES];

proptest! {
    #[test]
    fn busy_queues_share_bytes_by_weight_for_any_message_size(
        streams in prop::collection::vec(
            (1_u8..=12, any::<bool>(), prop::collection::vec(1..=MESSAGE_MAX_BYTES, 1..8)), 2..6,
        ),
    ) {
        let mut queues = Queues::new();
        let mut sizes: Vec<_> = streams.iter().map(|(.., sizes)| sizes.iter().cycle()).collect();
        let mut feed = |queues: &mut Queues, channel: u16| {
            let bytes = *sizes[usize::from(channel)].next().unwrap();
            let mode = if streams[usize::from(channel)].1 { Mode::ReliableOrdered } else { Mode::Unreliable };
            push(queues, channel, mode, &LONGEST[..bytes], Priority::Normal);
        };
        for (channel, (weight, ..)) in (0..).zip(&streams) {
            let options = ChannelOptions::default().weight(NonZeroU8::new(*weight).unwrap());
            queues.set_options(ChannelId(channel), options);
            feed(&mut queues, channel);
            feed(&mut queues, channel);
        }
        let quantum = usize::try_from(QUANTUM_BYTES).unwrap();
        let mut sent = vec![0_usize; streams.len()];
        for _ in 0..100 {
            let (key, _) = queues.front(Priority::Normal.class(), true).unwrap();
            // A byte for the length of the message.
            sent[usize::from(key.channel.0)] += queues.pop(key) + 1;
            feed(&mut queues, key.channel.0);
            // One turn more than another has had, and the rest of a turn, which is less than a message and a turn.
            let shares = sent.iter().zip(&streams).map(|(bytes, (weight, ..))| bytes / usize::from(*weight));
            let (least, most) = shares.fold((usize::MAX, 0), |(least, most), share| (least.min(share), most.max(share)));
            prop_assert!(most - least <= 2 * quantum + MESSAGE_MAX_BYTES, "{sent:?}");
        }
    }
}

#[test]
fn idle_channels_with_options_keep_no_memory_for_messages() {
    let mut queues = Queues::new();
    queues.set_options(ChannelId(0), ChannelOptions::default().weight(NonZeroU8::new(2).unwrap()));
    for channel in 0..100 {
        push(&mut queues, channel, Mode::ReliableOrdered, b"1", Priority::Normal);
    }
    queues.shrink();
    assert!(queues.messages.capacity() >= 100, "messages wait");
    assert_eq!(drain(&mut queues, true).len(), 100);
    queues.shrink();
    assert_eq!((queues.messages.capacity(), queues.queues.capacity()), (0, 0));
    assert_eq!(queues.options_of(ChannelId(0)).weight.get(), 2);
    queues.assert_invariants(&queues.chunks);
}
