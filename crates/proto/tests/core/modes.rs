//! What each delivery mode promises, over links that lose and reorder.

use crate::harness::{CLEAN, CLIENT, Link, SERVER, World};
use drumfire_proto::{ChannelId, ChannelOptions, Priority, SendOptions};
use std::num::NonZeroU8;
use std::time::Duration;

const ROUGH: Link = Link { loss: 20, duplicate: 10, jitter: Duration::from_millis(60), ..CLEAN };

fn numbers(world: &World, channel: u16) -> Vec<u32> {
    let messages = world.messages(SERVER).into_iter().filter(|(of, _)| *of == channel);
    messages.map(|(_, bytes)| u32::from_be_bytes(bytes[..4].try_into().unwrap())).collect()
}

/// Sends numbered messages on channel 1 over a rough link, and answers what came.
fn over_rough_link(seed: u64, options: SendOptions) -> Vec<u32> {
    let mut world = World::new(seed, ROUGH);
    let (client, _) = world.connected();
    for number in 0..300_u32 {
        world.send(CLIENT, client, 1, &number.to_be_bytes(), options).unwrap();
        world.run(Duration::from_millis(8));
    }
    world.run(Duration::from_secs(10));
    numbers(&world, 1)
}

fn is_ascending(numbers: &[u32]) -> bool {
    numbers.is_sorted_by(|before, after| before < after)
}

#[test]
fn unreliable_messages_come_at_most_once_and_may_overtake_each_other() {
    let mut overtaken = 0;
    for seed in 0..10 {
        let mut numbers = over_rough_link(seed, SendOptions::unreliable());
        overtaken += usize::from(!is_ascending(&numbers));
        numbers.sort_unstable();
        assert!(is_ascending(&numbers), "seed {seed}: once");
    }
    assert!(overtaken > 5, "the links reorder");
}

#[test]
fn unreliable_sequenced_messages_never_come_after_a_newer_one() {
    for seed in 0..10 {
        let numbers = over_rough_link(seed, SendOptions::unreliable_sequenced());
        assert!(is_ascending(&numbers), "seed {seed}");
        assert!((60..300).contains(&numbers.len()), "seed {seed}: {}", numbers.len());
    }
}

#[test]
fn reliable_unordered_messages_come_exactly_once_and_wait_for_no_other() {
    let mut overtaken = 0;
    for seed in 0..10 {
        let mut numbers = over_rough_link(seed, SendOptions::reliable_unordered());
        overtaken += usize::from(!is_ascending(&numbers));
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..300), "seed {seed}");
    }
    assert_eq!(overtaken, 10);
}

#[test]
fn of_reliable_sequenced_messages_the_newest_comes_and_none_after_a_newer() {
    for seed in 0..10 {
        let numbers = over_rough_link(seed, SendOptions::reliable_sequenced());
        assert!(is_ascending(&numbers), "seed {seed}");
        assert_eq!(numbers.last(), Some(&299), "seed {seed}");
        assert!(numbers.len() < 250, "seed {seed}: some were left out, {}", numbers.len());
    }
}

#[test]
fn modes_on_one_channel_do_not_disturb_each_other() {
    let mut world = World::new(1, ROUGH);
    let (client, _) = world.connected();
    let modes = [
        SendOptions::unreliable(),
        SendOptions::unreliable_sequenced(),
        SendOptions::reliable_unordered(),
        SendOptions::reliable_ordered(),
        SendOptions::reliable_sequenced(),
    ];
    for number in 0..200_u32 {
        for (mode, options) in (0..).zip(modes) {
            world.send(CLIENT, client, 1, &(mode * 1_000 + number).to_be_bytes(), options).unwrap();
        }
        world.run(Duration::from_millis(10));
    }
    world.run(Duration::from_secs(10));
    let all = numbers(&world, 1);
    let of = |mode: u32| -> Vec<u32> {
        all.iter().filter(|number| **number / 1_000 == mode).map(|number| number % 1_000).collect()
    };
    let mut unordered = of(2);
    unordered.sort_unstable();
    assert!(unordered.into_iter().eq(0..200) && of(3).into_iter().eq(0..200));
    assert!(is_ascending(&of(1)) && is_ascending(&of(4)));
    assert_eq!(of(4).last(), Some(&199));
}

#[test]
fn an_urgent_message_does_not_wait_behind_a_queue_of_bulk() {
    let mut world = World::new(2, CLEAN);
    let (client, _) = world.connected();
    let bulk = SendOptions::reliable_ordered().priority(Priority::Bulk);
    for number in 0..200_u32 {
        let bytes = [&number.to_be_bytes()[..], &[0; 1_000]].concat();
        world.send(CLIENT, client, 1, &bytes, bulk).unwrap();
    }
    // As much of it as may be is under way.
    world.run(Duration::from_millis(1));
    let urgent = SendOptions::reliable_ordered().priority(Priority::Urgent);
    world.send(CLIENT, client, 2, &7_u32.to_be_bytes(), urgent).unwrap();
    world.run(Duration::from_secs(5));
    let all = world.messages(SERVER);
    let before = all.iter().position(|(channel, _)| *channel == 2).unwrap();
    assert!(before <= 80, "{before} bulk messages went before: what was under way, and no more");
    assert_eq!(numbers(&world, 1).len(), 200);
}

#[test]
fn channels_share_what_may_be_sent_by_their_weights() {
    let mut world = World::new(3, CLEAN);
    let (client, _) = world.connected();
    let options = ChannelOptions::default().weight(NonZeroU8::new(3).unwrap());
    world.ends[CLIENT].set_channel_options(client, ChannelId(2), options);
    for number in 0..150_u32 {
        for channel in [1, 2] {
            let bytes = [&number.to_be_bytes()[..], &[0; 500]].concat();
            world.send(CLIENT, client, channel, &bytes, SendOptions::reliable_unordered()).unwrap();
        }
    }
    world.run(Duration::from_secs(5));
    let first: Vec<u16> = world.messages(SERVER).iter().take(160).map(|(channel, _)| *channel).collect();
    let heavy = first.iter().filter(|channel| **channel == 2).count();
    assert!((112..=128).contains(&heavy), "{heavy} of 160");
}
