//! Messages arrive as their mode guarantees, over any network.

use crate::harness::{CLEAN, CLIENT, Link, MEMORY_BYTES, SERVER, World};
use drumfire_proto::{Outcome, PeerId, SendError, SendOptions};
use std::time::Duration;

const BOTH: [usize; 2] = [CLIENT, SERVER];

/// The number of seeds of the long test. The environment may set more.
fn seeds() -> u64 {
    std::env::var("DRUMFIRE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(200)
}

fn payload(end: usize, channel: u16, number: u32, bytes: usize) -> Vec<u8> {
    let mut payload = vec![(end as u8) ^ (number as u8); bytes.max(7)];
    payload[..4].copy_from_slice(&number.to_be_bytes());
    payload[4..6].copy_from_slice(&channel.to_be_bytes());
    payload[6] = end as u8;
    payload
}

/// Runs one conversation over a bad link: every reliable message arrives once, in order and complete, every
/// unreliable one at most once. Returns the number of datagrams and a hash of them.
fn run_conversation(seed: u64) -> (usize, u64) {
    let mut world = World::new(seed, CLEAN);
    let link = Link {
        loss: world.random.below(31),
        duplicate: world.random.below(21),
        corrupt: world.random.below(6),
        delay: Duration::from_millis(1 + world.random.below(60)),
        jitter: Duration::from_millis(world.random.below(40)),
    };
    let (client, server) = world.connected();
    world.link = link;
    let peers: [PeerId; 2] = [client, server];
    let mut sent: [Vec<(u16, Vec<u8>)>; 2] = [Vec::new(), Vec::new()];
    for round in 0..20_u32 {
        for end in BOTH {
            for _ in 0..world.random.below(4) {
                let channel = world.random.below(3) as u16;
                let bytes = world.random.below(if round % 5 == 0 { 1_100 } else { 120 }) as usize;
                let message = payload(end, channel, sent[end].len() as u32, bytes);
                world.send(end, peers[end], channel, &message, SendOptions::reliable_ordered()).unwrap();
                sent[end].push((channel, message));
                world
                    .send(end, peers[end], 9, &payload(end, 9, round, 20), SendOptions::unreliable())
                    .unwrap();
            }
        }
        let pause = world.random.below(40);
        world.run(Duration::from_millis(pause));
    }
    for _ in 0..60 {
        world.run(Duration::from_millis(250));
        if BOTH.iter().all(|end| reliable(&world, 1 - end).len() == sent[*end].len()) {
            break;
        }
    }
    for end in BOTH {
        let got = reliable(&world, 1 - end);
        for channel in 0..3 {
            let of = |messages: &[(u16, Vec<u8>)]| -> Vec<Vec<u8>> {
                messages.iter().filter(|(of, _)| *of == channel).map(|(_, bytes)| bytes.clone()).collect()
            };
            assert!(
                of(&got) == of(&sent[end]),
                "seed {seed} {link:?}, channel {channel} from {end}, last seen {:?} and {:?}",
                world.last(CLIENT),
                world.last(SERVER),
            );
        }
        let unreliable = world.messages(1 - end).len() - got.len();
        assert!(unreliable <= sent[end].len(), "seed {seed}");
    }
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in world.sent.iter().flat_map(|(_, _, bytes)| bytes) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    (world.sent.len(), hash)
}

fn reliable(world: &World, end: usize) -> Vec<(u16, Vec<u8>)> {
    world.messages(end).into_iter().filter(|(channel, _)| *channel != 9).collect()
}

#[test]
fn reliable_messages_arrive_once_in_order_over_any_link() {
    for seed in 0..seeds() {
        run_conversation(seed);
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    assert_eq!(run_conversation(7), run_conversation(7));
    assert_ne!(run_conversation(7).1, run_conversation(8).1);
}

#[test]
fn on_a_clean_link_nothing_is_resent_and_acks_ride_on_data() {
    let mut world = World::new(1, CLEAN);
    let (client, server) = world.connected();
    for number in 0..100 {
        world.reliable(CLIENT, client, &payload(CLIENT, 0, number, 32)).unwrap();
        world.reliable(SERVER, server, &payload(SERVER, 0, number, 32)).unwrap();
        world.run(Duration::from_millis(5));
    }
    world.run(Duration::from_secs(1));
    assert_eq!((world.messages(CLIENT).len(), world.messages(SERVER).len()), (100, 100));
    for end in &world.ends {
        let stats = end.stats();
        assert_eq!((stats.messages_resent, stats.packets_lost, stats.probes_sent), (0, 0, 0));
        assert!(stats.ack_only_packets_sent <= 8, "{}", stats.ack_only_packets_sent);
    }
}

/// Returns the separate acks of both ends while the client sends an unreliable message every `up` and the server
/// every `down`, for ten seconds.
fn separate_acks(up: Option<Duration>, down: Option<Duration>) -> [u64; 2] {
    let mut world = World::new(1, CLEAN);
    let (client, server) = world.connected();
    world.run(Duration::from_secs(1));
    let before = world.ends.each_ref().map(|end| end.stats().ack_only_packets_sent);
    let end = world.now.after(Duration::from_secs(10));
    let mut next = [(CLIENT, client, up), (SERVER, server, down)].map(|who| (world.now, who));
    while world.now < end {
        for (at, (end, peer, every)) in &mut next {
            if let Some(every) = every
                && *at <= world.now
            {
                world.send(*end, *peer, 1, &[0; 48], SendOptions::unreliable()).unwrap();
                *at = at.after(*every);
            }
        }
        world.run(Duration::from_millis(1));
    }
    let sum = |end: usize| world.ends[end].stats().ack_only_packets_sent - before[end];
    [sum(CLIENT), sum(SERVER)]
}

#[test]
fn acks_of_unreliable_messages_join_two_way_traffic() {
    let every = |per_second: u32| Some(Duration::from_secs(1) / per_second);
    for (up, down) in [(10, 10), (8, 8), (30, 20), (64, 20), (60, 8), (8, 60)] {
        let separate = separate_acks(every(up), every(down));
        assert_eq!(separate, [0, 0], "{up} and {down} a second");
    }
}

#[test]
fn acks_of_unreliable_messages_alone_go_once_for_eight() {
    let every = |per_second: u32| Some(Duration::from_secs(1) / per_second);
    assert_eq!(separate_acks(every(10), None), [0, 50], "two packets each");
    let [_, separate] = separate_acks(every(60), None);
    assert!((60..=70).contains(&separate), "{separate} for 600 packets");
    let [_, separate] = separate_acks(every(500), None);
    assert!((230..=250).contains(&separate), "{separate} for 5,000 packets, eight and those of 25 ms each");
}

#[test]
fn the_receipt_of_an_unreliable_message_comes_soon() {
    let mut world = World::new(1, CLEAN);
    let (client, _) = world.connected();
    for (number, fragments) in [(1, 1), (2, 1), (3, 5)] {
        let options = SendOptions::unreliable();
        world.send_with_receipt(CLIENT, client, &vec![7; fragments * 1_000], options, number).unwrap();
        world.run(Duration::from_millis(10 + 25 + 10 + 5));
        assert_eq!(world.receipts(CLIENT).last(), Some(&(number, Outcome::Acknowledged)));
        world.run(Duration::from_secs(1));
    }
}

#[test]
fn a_probe_repeats_an_ack_that_was_lost() {
    let mut world = World::new(1, CLEAN);
    let (client, server) = world.connected();
    let before = world.ends[CLIENT].stats().probes_sent;
    world.send(CLIENT, client, 1, &[1; 100], SendOptions::unreliable()).unwrap();
    world.run(Duration::from_millis(12));
    world.send(SERVER, server, 1, &[2; 100], SendOptions::reliable_ordered()).unwrap();
    world.run(Duration::from_millis(2));
    assert_eq!(world.in_flight.len(), 1, "a message, and the ack with it");
    world.in_flight.clear();
    world.run(Duration::from_secs(1));
    assert_eq!((world.messages(SERVER).len(), world.messages(CLIENT).len()), (1, 1));
    let [client_stats, server_stats] = world.ends.each_ref().map(drumfire_proto::Endpoint::stats);
    assert_eq!(server_stats.probes_sent, 1, "it repeats the message too");
    assert_eq!((client_stats.probes_sent, client_stats.packets_lost), (before, 0));
}

#[test]
fn messages_of_one_flush_share_a_datagram() {
    let mut world = World::new(2, CLEAN);
    let (client, _) = world.connected();
    let before = world.ends[CLIENT].stats().datagrams_sent;
    for number in 0..20 {
        world.reliable(CLIENT, client, &payload(CLIENT, 0, number, 32)).unwrap();
    }
    world.run(Duration::from_millis(11));
    assert_eq!(world.messages(SERVER).len(), 20);
    assert_eq!(world.ends[CLIENT].stats().datagrams_sent - before, 1);
}

#[test]
fn one_small_message_costs_40_bytes_and_twenty_cost_5_each() {
    let mut world = World::new(3, CLEAN);
    let (client, _) = world.connected();
    let cost = |world: &mut World, count: u32| {
        let before = world.sent.len();
        for number in 0..count {
            world.reliable(CLIENT, client, &payload(CLIENT, 0, number, 32)).unwrap();
        }
        world.flush();
        let bytes: usize = world.sent[before..].iter().map(|(_, _, bytes)| bytes.len()).sum();
        world.run(Duration::from_secs(1));
        bytes - 32 * count as usize
    };
    let one = cost(&mut world, 1);
    assert!(one <= 40, "{one}");
    let twenty = cost(&mut world, 20);
    assert!(twenty <= one + 19 * 5, "{twenty}");
}

#[test]
fn a_lost_message_is_resent_soon_when_others_follow() {
    let mut world = World::new(4, CLEAN);
    let (client, _) = world.connected();
    world.link.loss = 100;
    world.reliable(CLIENT, client, b"lost").unwrap();
    world.flush();
    world.link.loss = 0;
    let start = world.now;
    for _ in 0..4 {
        world.run(Duration::from_millis(5));
        world.reliable(CLIENT, client, b"next").unwrap();
    }
    world.run(Duration::from_secs(2));
    assert_eq!(world.messages(SERVER)[0].1, b"lost");
    let (at, ..) = world.seen[SERVER].iter().find(|(at, ..)| *at > start).unwrap();
    assert!(at.since(start) <= Duration::from_millis(60), "{:?}", at.since(start));
    assert_eq!(world.ends[CLIENT].stats().messages_resent, 1);
}

#[test]
fn when_nothing_follows_a_probe_brings_the_lost_message() {
    let mut world = World::new(5, CLEAN);
    let (client, _) = world.connected();
    world.link.loss = 100;
    world.reliable(CLIENT, client, b"lost").unwrap();
    world.flush();
    world.link.loss = 0;
    world.run(Duration::from_secs(1));
    assert_eq!(world.messages(SERVER), [(0, b"lost".to_vec())]);
    assert_eq!(world.ends[CLIENT].stats().probes_sent, 1);
}

#[test]
fn a_full_queue_accepts_messages_again_after_acks() {
    let mut world = World::new(6, CLEAN);
    let (client, _) = world.connected();
    let mut taken = 0;
    while world.reliable(CLIENT, client, &[7; 960]) == Ok(()) {
        taken += 1;
    }
    assert_eq!(taken, MEMORY_BYTES / (960 + 64));
    assert_eq!(world.reliable(CLIENT, client, &[7; 960]), Err(SendError::Full));
    world.run(Duration::from_secs(2));
    assert_eq!(world.messages(SERVER).len(), taken);
    assert_eq!(world.reliable(CLIENT, client, &[7; 960]), Ok(()));
}

#[test]
fn a_message_of_one_packet_is_whole_and_a_longer_one_fragmented() {
    let mut world = World::new(7, CLEAN);
    let (client, _) = world.connected();
    let whole_bytes = drumfire_proto::limits::MESSAGE_MAX_BYTES;
    for (bytes, fragments) in [(whole_bytes, 0), (whole_bytes + 1, 1), (1_200, 2)] {
        let before = world.ends[CLIENT].stats().fragments_sent;
        assert_eq!(world.reliable(CLIENT, client, &vec![1; bytes]), Ok(()));
        world.run(Duration::from_secs(1));
        assert_eq!(world.messages(SERVER).last(), Some(&(0, vec![1; bytes])));
        assert_eq!(world.ends[CLIENT].stats().fragments_sent - before, fragments);
    }
}

#[test]
fn messages_may_be_sent_before_the_connection_exists() {
    let mut world = World::new(8, CLEAN);
    let client = world.connect();
    assert_eq!(world.reliable(CLIENT, client, b"early"), Ok(()));
    world.run(Duration::from_secs(1));
    assert_eq!(world.messages(SERVER), [(0, b"early".to_vec())]);
}

#[test]
fn an_application_that_reads_nothing_stops_its_peer() {
    let mut world = World::new(9, CLEAN);
    let (client, _) = world.connected();
    let mut sent = 0_u32;
    // The server's events are not read, so its memory for this connection fills up.
    for _ in 0..40 {
        for _ in 0..40 {
            if world.reliable(CLIENT, client, &payload(CLIENT, 0, sent, 900)).is_ok() {
                sent += 1;
            }
        }
        exchange_without_events(&mut world);
    }
    // Only credit limits the sender: the peer dropped no message.
    let stats = world.ends[SERVER].stats();
    assert_eq!((stats.messages_delivered, stats.dropped_count()), (128 * 1_024 / (900 + 64), 0));
    assert_eq!(world.ends[CLIENT].stats().messages_resent, 0);
    world.run(Duration::from_secs(9));
    let got = world.messages(SERVER);
    assert_eq!(got.len(), sent as usize);
    assert!(got.iter().enumerate().all(|(at, (_, bytes))| bytes[..4] == (at as u32).to_be_bytes()));
}

/// Runs five milliseconds in which no events are read.
fn exchange_without_events(world: &mut World) {
    use crate::harness::address;
    let (now, mut memory) = (world.now(), [0; 1_200]);
    for end in BOTH {
        while let Some(transmit) = world.ends[end].poll_transmit(now, &mut memory) {
            let bytes = memory[..transmit.bytes].to_vec();
            world.deliver(1 - end, address(end), &bytes);
        }
    }
    world.now = world.now.after(Duration::from_millis(5));
    let now = world.now();
    for end in &mut world.ends {
        end.handle_timeout(now);
    }
}

#[test]
fn acks_of_a_pure_receiver_stay_short_under_any_loss() {
    let link = Link { loss: 20, ..CLEAN };
    let mut world = World::new(10, link);
    let (client, _) = world.connected();
    for _ in 0..3_000 {
        world.send(CLIENT, client, 0, &[1; 50], SendOptions::unreliable()).unwrap();
        world.run(Duration::from_millis(2));
    }
    let longest = world.sent.iter().rev().take(2_000).filter(|(_, end, _)| *end == SERVER);
    let longest = longest.map(|(_, _, bytes)| bytes.len()).max().unwrap();
    assert!(longest < 200, "{longest}");
}

/// Returns the ratio of messages put into packets to messages queued, in thousandths, with one message each
/// `interval`.
fn send_ratio(link: Link, interval: Duration) -> u64 {
    let mut world = World::new(11, CLEAN);
    let (client, _) = world.connected();
    world.link = link;
    let before = world.ends[CLIENT].stats().messages_sent;
    for number in 0..3_600 {
        world.reliable(CLIENT, client, &payload(CLIENT, 0, number, 40)).unwrap();
        world.run(interval);
    }
    world.link = CLEAN;
    world.run(Duration::from_secs(9));
    assert_eq!(world.messages(SERVER).len(), 3_600, "{link:?}");
    (world.ends[CLIENT].stats().messages_sent - before) * 1_000 / 3_600
}

#[test]
fn few_delivered_messages_are_resent() {
    for (loss, at_most) in [(0, 1_001), (20, 1_600), (40, 2_200)] {
        let link = Link { loss, delay: Duration::from_millis(30), ..CLEAN };
        let send_ratio = send_ratio(link, Duration::from_micros(16_667));
        assert!(send_ratio <= at_most, "{send_ratio} at {loss} %");
    }
}

#[test]
fn packets_that_overtake_one_or_two_others_are_not_resent() {
    let link = Link { jitter: Duration::from_millis(6), delay: Duration::from_millis(30), ..CLEAN };
    let send_ratio = send_ratio(link, Duration::from_millis(2));
    assert!(send_ratio <= 1_010, "{send_ratio}");
}
