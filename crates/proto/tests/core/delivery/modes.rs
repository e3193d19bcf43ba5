//! The guarantees of each delivery mode, over links that lose and reorder.

use crate::harness::{CLEAN, CLIENT, Link, SERVER, World};
use crate::puppet::Puppet;
use drumfire_proto::{ChannelId, ChannelOptions, ClientConfig, Config, Priority, SendError, SendOptions};
use drumfire_wire::{Delivery, Message};
use std::num::NonZeroU8;
use std::time::Duration;

const BAD_LINK: Link = Link { loss: 20, duplicate: 10, jitter: Duration::from_millis(60), ..CLEAN };

fn numbers(world: &World, channel: u16) -> Vec<u32> {
    let messages = world.messages(SERVER).into_iter().filter(|(of, _)| *of == channel);
    messages.map(|(_, bytes)| u32::from_be_bytes(bytes[..4].try_into().unwrap())).collect()
}

/// Sends numbered messages on channel 1 over a bad link. Returns the messages that arrived.
fn over_bad_link(seed: u64, options: SendOptions) -> Vec<u32> {
    let mut world = World::new(seed, BAD_LINK);
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
fn unreliable_messages_arrive_at_most_once_in_any_order() {
    let mut overtaken = 0;
    for seed in 0..10 {
        let mut numbers = over_bad_link(seed, SendOptions::unreliable());
        overtaken += usize::from(!is_ascending(&numbers));
        numbers.sort_unstable();
        assert!(is_ascending(&numbers), "seed {seed}: each message arrives once");
    }
    assert!(overtaken > 5, "the links reorder");
}

#[test]
fn an_unreliable_sequenced_message_never_follows_a_newer_one() {
    for seed in 0..10 {
        let numbers = over_bad_link(seed, SendOptions::unreliable_sequenced());
        assert!(is_ascending(&numbers), "seed {seed}");
        assert!((60..300).contains(&numbers.len()), "seed {seed}: {}", numbers.len());
    }
}

#[test]
fn reliable_unordered_messages_arrive_once_and_never_wait() {
    let mut overtaken = 0;
    for seed in 0..10 {
        let mut numbers = over_bad_link(seed, SendOptions::reliable_unordered());
        overtaken += usize::from(!is_ascending(&numbers));
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..300), "seed {seed}");
    }
    assert_eq!(overtaken, 10);
}

#[test]
fn the_newest_sequenced_message_arrives_last() {
    for seed in 0..10 {
        let numbers = over_bad_link(seed, SendOptions::reliable_sequenced());
        assert!(is_ascending(&numbers), "seed {seed}");
        assert_eq!(numbers.last(), Some(&299), "seed {seed}");
        assert!(
            numbers.len() < 250,
            "seed {seed}: {} messages arrived, and older ones are left out",
            numbers.len()
        );
    }
}

#[test]
fn modes_on_one_channel_do_not_disturb_each_other() {
    let mut world = World::new(1, BAD_LINK);
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
fn an_urgent_message_overtakes_queued_bulk() {
    let mut world = World::new(2, CLEAN);
    let (client, _) = world.connected();
    let bulk = SendOptions::reliable_ordered().priority(Priority::Bulk);
    for number in 0..180_u32 {
        let bytes = [&number.to_be_bytes()[..], &[0; 1_000]].concat();
        world.send(CLIENT, client, 1, &bytes, bulk).unwrap();
    }
    // As much of it as allowed is in flight.
    world.run(Duration::from_millis(1));
    let urgent = SendOptions::reliable_ordered().priority(Priority::Urgent);
    world.send(CLIENT, client, 2, &7_u32.to_be_bytes(), urgent).unwrap();
    world.run(Duration::from_secs(5));
    let all = world.messages(SERVER);
    let before = all.iter().position(|(channel, _)| *channel == 2).unwrap();
    assert!(before <= 20, "{before} bulk messages went before, and only those in flight may");
    assert_eq!(numbers(&world, 1).len(), 180);
}

#[test]
fn channels_share_the_capacity_by_weight() {
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

#[test]
fn the_newest_value_of_every_key_arrives_last() {
    const KEYS: u32 = 40;
    for seed in 0..10 {
        let mut world = World::new(seed, BAD_LINK);
        let (client, _) = world.connected();
        let mut newest = [0; KEYS as usize];
        for number in 0..2_000_u32 {
            let key = (number * 7 + number / 13) % KEYS;
            newest[key as usize] = number;
            let options = SendOptions::reliable_latest(key.into());
            let bytes = [number.to_be_bytes(), key.to_be_bytes()].concat();
            world.send(CLIENT, client, 1, &bytes, options).unwrap();
            if number % 4 == 0 {
                world.run(Duration::from_millis(5));
            }
        }
        world.run(Duration::from_secs(10));
        let mut seen = [None; KEYS as usize];
        for (_, bytes) in world.messages(SERVER) {
            let [number, key] =
                [&bytes[..4], &bytes[4..]].map(|part| u32::from_be_bytes(part.try_into().unwrap()));
            assert!(
                seen[key as usize] < Some(number),
                "seed {seed}: {number} of key {key} after a newer one"
            );
            seen[key as usize] = Some(number);
        }
        assert_eq!(seen, newest.map(Some), "seed {seed}");
        assert!(world.messages(SERVER).len() < 1_900, "seed {seed}: older values of a key are left out");
    }
}

#[test]
fn a_superseded_value_is_not_resent() {
    let mut world = World::new(1, CLEAN);
    let (client, _) = world.connected();
    world.link.loss = 100;
    for number in 0..100_u32 {
        let options = SendOptions::reliable_latest(7);
        world.send(CLIENT, client, 1, &number.to_be_bytes(), options).unwrap();
        world.run(Duration::from_millis(1));
    }
    world.link.loss = 0;
    world.run(Duration::from_secs(2));
    assert_eq!(numbers(&world, 1), [99]);
}

#[test]
fn a_value_has_at_most_1024_bytes() {
    let mut world = World::new(1, CLEAN);
    let (client, _) = world.connected();
    let options = SendOptions::reliable_latest(1);
    assert_eq!(world.send(CLIENT, client, 1, &[0; 1_023], options), Ok(()));
    assert_eq!(world.send(CLIENT, client, 1, &[0; 1_024], options), Ok(()));
    let too_large = SendError::TooLarge { bytes: 1_025, limit_bytes: 1_024 };
    assert_eq!(world.send(CLIENT, client, 1, &[0; 1_025], options), Err(too_large));
}

#[test]
fn after_a_burst_of_loss_the_newest_values_arrive_soon() {
    // Bursts of 50 ms to a second.
    for lost in [2, 8, 20, 40] {
        let mut world = World::new(5, Link { delay: Duration::from_millis(25), ..CLEAN });
        let (client, _) = world.connected();
        let update = |world: &mut World, round: u32, share: u32| {
            for key in (0..500_u32).filter(|key| (key + round).is_multiple_of(share)) {
                let bytes = [round.to_be_bytes(), key.to_be_bytes()].concat();
                world.send(CLIENT, client, 1, &bytes, SendOptions::reliable_latest(key.into())).unwrap();
            }
            world.run(Duration::from_millis(25));
        };
        // Returns whether the newest value before this round has arrived, or a newer one, for each key.
        let has_all = |world: &mut World, before: u32| {
            let mut newest = [0; 500];
            for (_, bytes) in world.messages(SERVER) {
                let [round, key] =
                    [&bytes[..4], &bytes[4..]].map(|part| u32::from_be_bytes(part.try_into().unwrap()));
                newest[key as usize] = round;
            }
            let last = |key: u32| (0..before).rev().find(|round| (key + round).is_multiple_of(10)).unwrap();
            (0_u32..).zip(newest).all(|(key, round)| round >= last(key))
        };
        update(&mut world, 0, 1);
        let (calm, end) = (10 + lost, 20 + lost);
        for round in 1..end {
            world.link.loss = if (10..calm).contains(&round) { 100 } else { 0 };
            update(&mut world, round, 10);
        }
        assert!(has_all(&mut world, calm), "250 ms after {lost} lost rounds");
        world.run(Duration::from_millis(250));
        assert!(has_all(&mut world, end), "250 ms after the last round, with {lost} lost rounds");
    }
}

#[test]
fn every_probe_repeats_the_value_or_fragment_that_is_in_flight() {
    let delay = Duration::from_millis(25);
    for (bytes, options) in [
        (vec![7; 10], SendOptions::reliable_latest(1)),
        (vec![7; 10], SendOptions::reliable_unordered()),
        // The last of these fragments is small.
        (vec![7; 2_500], SendOptions::reliable_unordered()),
    ] {
        let mut world = World::new(6, Link { delay, ..CLEAN });
        let (client, _) = world.connected();
        world.run(Duration::from_secs(1));
        world.link.loss = 100;
        world.send(CLIENT, client, 1, &bytes, options).unwrap();
        world.run(Duration::from_millis(900));
        world.link.loss = 0;
        // One probe timeout and the way to the server. The value would otherwise wait for the ack of a probe.
        let probe_timeout = {
            let now = world.now();
            world.ends[CLIENT].peer_stats(now, client).unwrap().round_trip.mul_f64(1.5) + delay
        };
        let is_small = bytes.len() < 1_000;
        world.run(probe_timeout + delay);
        assert_eq!(!world.messages(SERVER).is_empty(), is_small, "{} bytes, {probe_timeout:?}", bytes.len());
        world.run(2 * probe_timeout);
        assert_eq!(world.messages(SERVER), [(1, bytes)]);
    }
}

#[test]
fn a_receiver_with_memory_for_few_keys_gets_the_newest_of_many() {
    const KEYS: u32 = 300;
    let small = Config::default().memory_bytes(256 * 1_024, 16 * 1_024);
    let mut world = World::with(6, BAD_LINK, small, ClientConfig::default());
    let (client, _) = world.connected();
    for number in 0..3_000_u32 {
        let (key, bytes) = (number % KEYS, [number.to_be_bytes(), (number % KEYS).to_be_bytes()].concat());
        // When memory is short, the newest may have to wait.
        while world.send(CLIENT, client, 1, &bytes, SendOptions::reliable_latest(key.into())).is_err() {
            world.run(Duration::from_millis(5));
        }
        if number % 10 == 0 {
            world.run(Duration::from_millis(5));
        }
    }
    world.run(Duration::from_secs(10));
    let mut newest = [0; KEYS as usize];
    for (_, bytes) in world.messages(SERVER) {
        let [number, key] =
            [&bytes[..4], &bytes[4..]].map(|part| u32::from_be_bytes(part.try_into().unwrap()));
        assert!(newest[key as usize] <= number, "{number} of key {key} after a newer one");
        newest[key as usize] = number;
    }
    assert!(newest.into_iter().eq(3_000 - KEYS..3_000));
}

#[test]
fn a_forgotten_key_costs_nothing_and_accepts_newer_values() {
    let mut world = World::new(9, CLEAN);
    let (client, server) = world.connected();
    let value = |world: &mut World, byte: u8| {
        world.send(CLIENT, client, 1, &[byte], SendOptions::reliable_latest(7)).unwrap();
        let (now, mut memory) = (world.now(), [0; 1_200]);
        let sent = world.ends[CLIENT].poll_transmit(now, &mut memory).unwrap();
        memory[..sent.bytes].to_vec()
    };
    let late = value(&mut world, 1);
    let first = value(&mut world, 2);
    world.deliver(SERVER, crate::harness::address(CLIENT), &first);
    world.ends[SERVER].forget_key(server, drumfire_proto::ChannelId(1), 7);
    world.deliver(SERVER, crate::harness::address(CLIENT), &late);
    let next = value(&mut world, 3);
    world.deliver(SERVER, crate::harness::address(CLIENT), &next);
    world.run(Duration::ZERO);
    assert_eq!(world.messages(SERVER), [(1, vec![2]), (1, vec![3])]);
}

#[test]
fn a_value_does_not_wait_for_incomplete_messages() {
    let small = Config::default().memory_bytes(256 * 1_024, 16 * 1_024);
    let mut world = World::with(6, CLEAN, small, ClientConfig::default());
    let (client, server) = world.connected();
    for _ in 0..3 {
        world.send(CLIENT, client, 1, &[7; 4_000], SendOptions::unreliable()).unwrap();
        world.flush();
        // Their last fragments are lost, and no peer sends them again.
        assert!(world.in_flight.pop_last().is_some());
        world.run(Duration::from_millis(100));
    }
    world.send(CLIENT, client, 1, b"the newest", SendOptions::reliable_latest(7)).unwrap();
    world.run(Duration::from_secs(1));
    assert_eq!(world.messages(SERVER), [(1, b"the newest".to_vec())]);
    assert!(world.ends[SERVER].peer_summary(server).is_some());
}

#[test]
fn a_value_arrives_once_when_its_ack_is_truncated() {
    for outage_seconds in 5..=9 {
        let mut world = World::new(outage_seconds, CLEAN);
        let (client, _) = world.connected();
        let value = |world: &mut World, byte: u8| {
            world.send(CLIENT, client, 1, &[byte], SendOptions::reliable_latest(7)).unwrap();
        };
        value(&mut world, 1);
        // It takes 10 ms, and its ack is sent 5 ms later at the earliest.
        world.run(Duration::from_millis(12));
        assert_eq!(world.messages(SERVER), [(1, vec![1])], "{outage_seconds} s");
        world.link.loss = 100;
        world.run(Duration::from_secs(outage_seconds));
        world.link.loss = 0;
        world.run(Duration::from_secs(2));
        assert_eq!(world.messages(SERVER), [(1, vec![1])], "{outage_seconds} s");
        value(&mut world, 2);
        world.run(Duration::from_secs(1));
        assert_eq!(world.messages(SERVER), [(1, vec![1]), (1, vec![2])], "{outage_seconds} s");
    }
}

#[test]
fn a_key_is_forgotten_when_no_peer_can_resend_its_value() {
    let mut puppet = Puppet::connected(13);
    let value = |puppet: &mut Puppet| {
        let delivery = Delivery::ReliableLatest { key: 7, version: 5 };
        let message = Message { channel: drumfire_wire::ChannelId(0), delivery, payload: b"v" };
        puppet.send_frames(|writer| writer.message(&message));
        // It must not look like a failed path.
        for (number, _) in puppet.take_packets() {
            puppet.ack(number, number);
        }
        puppet.world.messages(SERVER).len()
    };
    // Both timeouts together, 30 s of silence and 10 s without an ack, counted from its last arrival.
    for (seconds, deliveries) in [(0, 1), (39, 1), (41, 2), (39, 2)] {
        for _ in 0..2 {
            puppet.world.run(Duration::from_secs(seconds) / 2);
            puppet.send_frames(|writer| writer.ping().and_then(|()| writer.padding(3)));
        }
        assert_eq!(value(&mut puppet), deliveries, "{seconds} s later");
        assert_eq!(puppet.ending(), None);
    }
}
