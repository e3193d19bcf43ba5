//! The latency of messages over lossy links, and the cost of retransmissions, in virtual time and therefore exact.
//!
//! `cargo test -p drumfire-proto --test core recovery -- --nocapture` prints them.

use crate::harness::{CLEAN, CLIENT, Link, Random, SERVER, Seen, World};
use drumfire_proto::{ChannelId, ChannelOptions, Redundancy, SendOptions};
use std::time::Duration;

/// A message each 60th of a second, as inputs are sent.
const PERIOD: Duration = Duration::from_nanos(16_666_667);

fn link(loss: u64) -> Link {
    Link { loss, delay: Duration::from_millis(25), ..CLEAN }
}

fn percentile(latencies: &mut [Duration], percent: usize) -> Duration {
    latencies.sort_unstable();
    latencies[(latencies.len() * percent / 100).min(latencies.len() - 1)]
}

/// The latencies of a minute of messages, over several seeds.
fn latencies(loss: u64, options: SendOptions, redundancy: Redundancy) -> Vec<Duration> {
    let mut latencies = Vec::new();
    for seed in 0..10 {
        let mut world = World::new(seed, link(loss));
        let (client, _) = world.connected();
        world.ends[CLIENT].set_channel_options(
            client,
            ChannelId(1),
            ChannelOptions::default().redundancy(redundancy),
        );
        let mut sent_at = Vec::new();
        for number in 0..3_600_u32 {
            sent_at.push(world.now);
            world.send(CLIENT, client, 1, &number.to_be_bytes(), options).unwrap();
            world.run(PERIOD);
        }
        world.run(Duration::from_secs(10));
        let arrived = world.seen[SERVER].iter().filter_map(|(at, _, seen)| match seen {
            Seen::Message(1, bytes) => Some((*at, u32::from_be_bytes(bytes[..].try_into().unwrap()))),
            _ => None,
        });
        let before = latencies.len();
        latencies.extend(arrived.map(|(at, number)| at.since(sent_at[number as usize])));
        assert_eq!(latencies.len() - before, 3_600, "all arrive");
    }
    latencies
}

/// The same for a model that resends every 300 ms until one arrives: without acks or rates.
fn with_fixed_resend(loss: u64, is_ordered: bool) -> Vec<Duration> {
    let mut random = Random(1);
    let (mut latencies, mut ready) = (Vec::new(), Duration::ZERO);
    for number in 0..36_000 {
        let mut took = Duration::from_millis(25);
        while random.happens(loss) {
            took += Duration::from_millis(300);
        }
        let sent = PERIOD * number;
        ready = if is_ordered { ready.max(sent + took) } else { sent + took };
        latencies.push(ready - sent);
    }
    latencies
}

#[test]
fn at_five_percent_loss_the_99th_percentile_is_low() {
    let (unordered, ordered) = (SendOptions::reliable_unordered(), SendOptions::reliable_ordered());
    let cases = [
        ("unordered", unordered, Redundancy::None, 100),
        ("ordered", ordered, Redundancy::None, 125),
        ("unordered, one copy", unordered, Redundancy::One, 55),
        ("ordered, one copy", ordered, Redundancy::One, 75),
    ];
    for (name, options, redundancy, at_most) in cases {
        let p99 = percentile(&mut latencies(5, options, redundancy), 99);
        println!("p99 at 5 % loss, 50 ms round trip, 60 messages/s, {name}: {p99:?}, at most {at_most} ms");
        assert!(p99 <= Duration::from_millis(at_most), "{name}: {p99:?}");
    }
    for is_ordered in [false, true] {
        let p99 = percentile(&mut with_fixed_resend(5, is_ordered), 99);
        println!("the same with a resend every 300 ms, ordered {is_ordered}: {p99:?}");
    }
}

#[test]
fn few_retransmissions_are_unnecessary() {
    let links = [(0, 0, 1_001), (0, 10, 1_001), (0, 40, 1_150), (20, 0, 1_600), (40, 0, 2_200)];
    for (loss, jitter, at_most_thousandths) in links {
        let (mut sent, mut resent) = (0, 0);
        for seed in 0..10 {
            let mut world = World::new(seed, link(0));
            let (client, _) = world.connected();
            world.link = Link { jitter: Duration::from_millis(jitter), ..link(loss) };
            for number in 0..1_200_u32 {
                world
                    .send(CLIENT, client, 1, &number.to_be_bytes(), SendOptions::reliable_ordered())
                    .unwrap();
                world.run(PERIOD);
            }
            world.run(Duration::from_secs(5));
            let stats = world.ends[CLIENT].stats();
            sent += stats.messages_sent;
            resent += stats.messages_resent;
        }
        let thousandths = sent * 1_000 / (sent - resent);
        println!(
            "sent over unique at {loss} % loss, {jitter} ms jitter: {:.3}",
            thousandths as f64 / 1_000.0
        );
        assert!(thousandths <= at_most_thousandths, "{loss} %, {jitter} ms: {thousandths}");
    }
}

#[test]
fn a_black_hole_of_eight_seconds_swallows_at_most_forty_packets() {
    for delay in [1, 5, 10, 15, 25] {
        let mut world = World::new(1, CLEAN);
        let (client, _) = world.connected();
        world.link = Link { delay: Duration::from_millis(delay), ..CLEAN };
        let play = |world: &mut World, messages: u32| {
            let before = world.ends[CLIENT].stats().datagrams_sent;
            for number in 0..messages {
                world
                    .send(CLIENT, client, 1, &number.to_be_bytes(), SendOptions::reliable_ordered())
                    .unwrap();
                world.run(PERIOD);
            }
            world.ends[CLIENT].stats().datagrams_sent - before
        };
        // The round trip is known, and all messages were acknowledged.
        play(&mut world, 600);
        world.run(Duration::from_secs(1));
        world.link.loss = 100;
        let swallowed = play(&mut world, 480);
        println!("packets into a black hole of 8 s, {delay} ms each way: {swallowed}");
        assert!(swallowed <= 40, "{delay} ms each way: {swallowed}");
        world.link.loss = 0;
        world.run(Duration::from_secs(5));
        assert_eq!(world.messages(SERVER).len(), 1_080);
    }
}

/// The time from the end of an outage until the slowest message from before it arrives, for outages between this
/// length and twice as much.
fn after_outage(hole: Duration) -> Duration {
    const LENGTHS: u32 = 8;
    let of = |length: Duration| {
        let mut world = World::new(length.as_millis().try_into().unwrap(), link(0));
        let (client, _) = world.connected();
        let mut sent = 0_u32;
        let mut play = |world: &mut World, time: Duration| {
            let end = world.now.after(time);
            while world.now < end {
                world.send(CLIENT, client, 1, &sent.to_be_bytes(), SendOptions::reliable_ordered()).unwrap();
                sent += 1;
                world.run(PERIOD.min(end.since(world.now)));
            }
            sent as usize
        };
        play(&mut world, Duration::from_secs(1));
        world.link = link(100);
        let sent_count = play(&mut world, length);
        world.link = link(0);
        let over_at = world.now;
        play(&mut world, Duration::from_secs(2));
        let mut messages =
            world.seen[SERVER].iter().filter(|(_, _, seen)| matches!(seen, Seen::Message(1, _)));
        let (at, ..) = messages.nth(sent_count - 1).expect("all are there by now");
        at.since(over_at)
    };
    (0..LENGTHS).map(|eighths| of(hole + hole * eighths / LENGTHS)).max().unwrap()
}

#[test]
fn after_an_outage_messages_arrive_with_the_next_probe() {
    for (millis, at_most) in [(100, 160), (200, 160), (350, 160), (500, 160), (700, 400), (2_000, 850)] {
        let took = after_outage(Duration::from_millis(millis));
        println!("after a hole of {millis} to {} ms: {took:?}, at most {at_most} ms", 2 * millis);
        assert!(took <= Duration::from_millis(at_most), "{millis} ms: {took:?}");
    }
}

/// When a client of [`echoes`] sends.
#[derive(Clone, Copy)]
enum Pace {
    /// At this interval.
    Every(Duration),
    /// When the answer to the last message has arrived.
    OneByOne,
}

/// The latencies of reliable messages of 64 B that a server returns immediately, and the bytes on the wire per message. The link loses 2 %
/// in each direction.
fn echoes(pace: Pace, seeds: u64) -> (Vec<Duration>, f64) {
    const STEP: Duration = Duration::from_micros(500);
    let (mut latencies, mut bytes) = (Vec::new(), 0);
    for seed in 0..seeds {
        let mut world = World::new(seed, link(2));
        let (client, server) = world.connected();
        let (mut sent_at, mut looked) = (Vec::new(), [world.seen[CLIENT].len(), world.seen[SERVER].len()]);
        let (start, before) = (world.now, world.sent.len());
        let mut returned = 0;
        while world.now.since(start) < Duration::from_secs(60) {
            let is_due = match pace {
                Pace::Every(interval) => start.after(interval * sent_at.len() as u32) <= world.now,
                Pace::OneByOne => returned == sent_at.len(),
            };
            if is_due {
                let mut message = [0; 64];
                message[..4].copy_from_slice(&(sent_at.len() as u32).to_be_bytes());
                sent_at.push(world.now);
                world.send(CLIENT, client, 1, &message, SendOptions::reliable_unordered()).unwrap();
            }
            world.run(STEP);
            let come: Vec<_> = world.seen[SERVER][looked[SERVER]..].to_vec();
            looked[SERVER] += come.len();
            for (_, _, seen) in come {
                let Seen::Message(1, message) = seen else { continue };
                world.send(SERVER, server, 1, &message, SendOptions::reliable_unordered()).unwrap();
            }
            for (at, _, seen) in &world.seen[CLIENT][looked[CLIENT]..] {
                let Seen::Message(1, message) = seen else { continue };
                let number = u32::from_be_bytes(*message.first_chunk().unwrap());
                latencies.push(at.since(sent_at[number as usize]));
                returned += 1;
            }
            looked[CLIENT] = world.seen[CLIENT].len();
        }
        bytes += world.sent[before..].iter().map(|(_, _, bytes)| bytes.len() + 28).sum::<usize>();
    }
    let messages = latencies.len() as f64;
    (latencies, bytes as f64 / messages)
}

#[test]
fn echoes_over_a_lossy_link_recover_soon() {
    // The bytes are those without the early repeats, and 5 % more.
    let loads = [
        ("60 per second", Pace::Every(PERIOD), 115, 258.8 * 1.05),
        ("10 per second", Pace::Every(Duration::from_millis(100)), 115, 324.0 * 1.05),
        ("one outstanding", Pace::OneByOne, 115, 266.3 * 1.05),
    ];
    for (name, pace, at_most, bytes_at_most) in loads {
        let (mut latencies, bytes) = echoes(pace, 20);
        let p99 = percentile(&mut latencies, 99);
        println!("p99 of echoes at 2 % loss, 50 ms round trip, {name}: {p99:?}, at most {at_most} ms");
        println!("bytes on the wire per echo: {bytes:.1}, at most {bytes_at_most:.1}");
        assert!(p99 <= Duration::from_millis(at_most), "{name}: {p99:?}");
        assert!(bytes <= bytes_at_most, "{name}: {bytes}");
    }
}

/// The latencies of a message each 60th of a second on channel 1, with this many busy channels next to it.
fn latencies_next_to(busy: u16) -> Vec<Duration> {
    let mut latencies = Vec::new();
    for seed in 0..5 {
        let mut world = World::new(seed, link(2));
        let (client, _) = world.connected();
        let mut sent_at = Vec::new();
        for number in 0..1_800_u32 {
            sent_at.push(world.now);
            for channel in 0..busy {
                world.send(CLIENT, client, 2 + channel, &[0; 20], SendOptions::reliable_ordered()).unwrap();
            }
            world.send(CLIENT, client, 1, &number.to_be_bytes(), SendOptions::reliable_ordered()).unwrap();
            world.run(PERIOD);
        }
        world.run(Duration::from_secs(5));
        latencies.extend(world.seen[SERVER].iter().filter_map(|(at, _, seen)| match seen {
            Seen::Message(1, bytes) => {
                Some(at.since(sent_at[u32::from_be_bytes(bytes[..].try_into().unwrap()) as usize]))
            }
            _ => None,
        }));
    }
    assert_eq!(latencies.len(), 9_000);
    latencies
}

#[test]
fn a_channel_is_as_fast_with_31_busy_ones_as_alone() {
    let [alone, shared] = [0, 31].map(|busy| percentile(&mut latencies_next_to(busy), 99));
    println!("p99 of an ordered channel alone at 2 % loss: {alone:?}, next to 31 busy ones: {shared:?}");
    assert!(shared <= alone.mul_f64(1.05), "{alone:?} {shared:?}");
}

#[test]
fn control_frames_alone_cause_no_probe() {
    let mut world = World::new(1, CLEAN);
    let (client, server) = world.connected();
    world.link = Link { delay: Duration::from_millis(100), ..CLEAN };
    // The variation of the round trip falls until it no longer hides a probe that is early.
    for number in 0..100_u32 {
        world.reliable(CLIENT, client, &number.to_be_bytes()).unwrap();
        world.reliable(SERVER, server, &number.to_be_bytes()).unwrap();
        world.run(Duration::from_millis(500));
    }
    let probes = |world: &World| [CLIENT, SERVER].map(|end| world.ends[end].stats().probes_sent);
    let before = probes(&world);
    // The client retires an id some time later, and the server issues another one.
    let now = world.now();
    assert!(world.ends[CLIENT].change_path(now, client));
    let sent_count = world.sent.len();
    world.run(Duration::from_secs(4));
    assert!(world.sent.len() > sent_count + 3, "ids were exchanged");
    assert_eq!(probes(&world), before);
}

/// The time from the end of an outage until each end has a message that was sent afterwards. Both ends send an unreliable message
/// each 60th of a second.
fn unreliable_after_outage(length: Duration) -> [Duration; 2] {
    let mut world = World::new(1, link(0));
    let (client, server) = world.connected();
    let play = |world: &mut World, duration: Duration| {
        let end = world.now.after(duration);
        while world.now < end {
            world.send(CLIENT, client, 1, b"input", SendOptions::unreliable()).unwrap();
            world.send(SERVER, server, 1, b"state", SendOptions::unreliable()).unwrap();
            world.run(PERIOD);
        }
    };
    play(&mut world, Duration::from_secs(2));
    world.link = link(100);
    play(&mut world, length);
    world.link = link(0);
    let over_at = world.now;
    play(&mut world, Duration::from_secs(4));
    [CLIENT, SERVER].map(|end| {
        let mut messages = world.seen[end].iter().filter(|(at, _, seen)| {
            matches!(seen, Seen::Message(..)) && *at > over_at.after(Duration::from_millis(24))
        });
        messages.next().expect("messages arrive again").0.since(over_at)
    })
}

#[test]
fn after_an_outage_unreliable_messages_arrive_within_a_second() {
    for millis in [500, 1_000, 2_000, 2_700, 4_000, 7_000] {
        let took = unreliable_after_outage(Duration::from_millis(millis));
        println!("after an outage of {millis} ms: {took:?} at client and server");
        // A wait of 700 ms, the probe, its ack, and a message.
        let longest = Duration::from_millis(700 + 3 * 25 + 17);
        assert!(took.iter().all(|took| *took <= longest), "{millis} ms: {took:?}");
    }
}

#[test]
fn few_probes_are_sent_in_the_first_half_of_the_timeout_and_many_in_the_second() {
    for sender in [CLIENT, SERVER] {
        let mut world = World::new(1, link(0));
        let peers = <[_; 2]>::from(world.connected());
        world.reliable(sender, peers[sender], b"first").unwrap();
        world.run(Duration::from_secs(1));
        world.link = link(100);
        world.send(sender, peers[sender], 1, b"state", SendOptions::unreliable()).unwrap();
        let probes = [4_900, 5_000].map(|millis| {
            let before = world.ends[sender].stats().probes_sent;
            world.run(Duration::from_millis(millis));
            world.ends[sender].stats().probes_sent - before
        });
        // Thousands of connections that wait for a server that is behind must not add to its load. Before the end, each connection
        // tries so often that a lossy link carries a probe and its ack.
        println!("probes in each half of the timeout: {probes:?}");
        assert!((3..=5).contains(&probes[0]) && (13..=15).contains(&probes[1]), "{probes:?}");
        assert_eq!(world.ends[sender].connection_count(), 1);
        world.run(Duration::from_millis(200));
        assert_eq!(world.ends[sender].connection_count(), 0);
    }
}
