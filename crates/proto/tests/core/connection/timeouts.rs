//! Silence, dead paths, and faulty clocks.

use crate::harness::{CLEAN, CLIENT, SERVER, Seen, World, address};
use drumfire_proto::{ClientConfig, CloseReason, Config, Moment, SendOptions};
use std::time::Duration;

fn ended(world: &World, end: usize) -> Option<(Moment, CloseReason)> {
    world.seen[end].iter().find_map(|(at, _, seen)| match seen {
        Seen::Disconnected(reason, _) => Some((*at, *reason)),
        _ => None,
    })
}

/// Cuts the link permanently.
fn cut(world: &mut World) {
    world.link.loss = 100;
    world.in_flight.clear();
}

#[test]
fn keep_alives_cost_an_idle_connection_eight_pings_a_minute() {
    let mut world = World::new(1, CLEAN);
    world.connected();
    world.run(Duration::from_secs(1));
    let before = world.ends.each_ref().map(|end| end.stats().datagrams_sent);
    world.run(Duration::from_secs(600));
    assert_eq!((ended(&world, CLIENT), ended(&world, SERVER)), (None, None));
    for (end, before) in world.ends.iter().zip(before) {
        let sent = end.stats().datagrams_sent - before;
        assert!((78..=81).contains(&sent), "{sent}");
    }
}

#[test]
fn a_keep_alive_of_a_silent_client_is_acked_immediately() {
    let mut world = World::new(1, CLEAN);
    world.connected();
    world.run(Duration::from_secs(20));
    let before = world.sent.len();
    world.run(Duration::from_secs(60));
    let of = |sender: usize| -> Vec<Moment> {
        world.sent[before..].iter().filter(|(_, end, _)| *end == sender).map(|(at, ..)| *at).collect()
    };
    let (pings, acks) = (of(CLIENT), of(SERVER));
    assert!(pings.len() >= 7 && pings.len() == acks.len(), "{} and {}", pings.len(), acks.len());
    for (ping, ack) in pings.into_iter().zip(acks) {
        assert!(ack.since(ping) < Duration::from_millis(25), "waited {:?}", ack.since(ping));
    }
}

#[test]
fn a_silent_peer_times_out_after_exactly_thirty_seconds() {
    let mut world = World::new(2, CLEAN);
    let (client, _) = world.connected();
    world.send(CLIENT, client, 0, b"last", SendOptions::unreliable()).unwrap();
    world.run(Duration::from_millis(10));
    let (last, _, seen) = world.last(SERVER).unwrap().clone();
    assert!(matches!(seen, Seen::Message(..)));
    cut(&mut world);
    world.run(Duration::from_secs(60));
    assert_eq!(ended(&world, SERVER), Some((last.after(Duration::from_secs(30)), CloseReason::IdleTimeout)));
}

#[test]
fn unacknowledged_data_ends_a_connection_after_ten_seconds() {
    let mut world = World::new(3, CLEAN);
    let (client, _) = world.connected();
    world.run(Duration::from_secs(1));
    cut(&mut world);
    world.reliable(CLIENT, client, b"anybody?").unwrap();
    let sent_at = world.now;
    let before = world.sent.len();
    world.run(Duration::from_secs(60));
    let expected = (sent_at.after(Duration::from_secs(10)), CloseReason::Unacknowledged);
    assert_eq!(ended(&world, CLIENT), Some(expected));
    let of_client = world.sent[before..].iter().filter(|(_, end, _)| *end == CLIENT);
    assert!(of_client.clone().count() <= 32, "{}", of_client.count());
}

#[test]
fn junk_replays_and_forgeries_keep_no_connection_alive() {
    let mut world = World::new(4, CLEAN);
    let (client, server) = world.connected();
    world.reliable(SERVER, server, b"x").unwrap();
    world.reliable(CLIENT, client, b"x").unwrap();
    world.run(Duration::from_secs(1));
    cut(&mut world);
    let recorded: Vec<Vec<u8>> =
        world.sent.iter().filter(|(_, end, _)| *end == SERVER).map(|(_, _, bytes)| bytes.clone()).collect();
    world.reliable(CLIENT, client, b"anybody?").unwrap();
    let sent_at = world.now;
    for _ in 0..200 {
        for bytes in &recorded {
            world.deliver(CLIENT, address(SERVER), bytes);
            let mut forged = bytes.clone();
            *forged.last_mut().unwrap() ^= 1;
            world.deliver(CLIENT, address(SERVER), &forged);
        }
        world.run(Duration::from_millis(60));
    }
    let (at, reason) = ended(&world, CLIENT).unwrap();
    assert_eq!((at, reason), (sent_at.after(Duration::from_secs(10)), CloseReason::Unacknowledged));
}

#[test]
fn the_shorter_timeouts_apply_to_both_sides() {
    let short = Config::default().timeouts(Duration::from_secs(3), Duration::from_secs(2));
    let mut world = World::new(5, CLEAN);
    let client = drumfire_proto::Endpoint::client(
        short,
        ClientConfig::default(),
        drumfire_proto::Secret::new([1; 32]),
    );
    world.ends[CLIENT] = client.unwrap();
    let (_, server) = world.connected();
    world.run(Duration::from_secs(20));
    assert_eq!((ended(&world, CLIENT), ended(&world, SERVER)), (None, None), "kept alive");
    cut(&mut world);
    world.reliable(SERVER, server, b"anybody?").unwrap();
    let sent_at = world.now;
    world.run(Duration::from_secs(5));
    let expected = (sent_at.after(Duration::from_secs(2)), CloseReason::Unacknowledged);
    assert_eq!(ended(&world, SERVER), Some(expected));
}

#[test]
fn few_packets_are_sent_into_an_outage_of_eight_seconds() {
    let mut world = World::new(6, CLEAN);
    let (client, _) = world.connected();
    for _ in 0..20 {
        world.reliable(CLIENT, client, &[5; 30]).unwrap();
        world.run(Duration::from_millis(10));
    }
    world.link.loss = 100;
    let before = world.ends[CLIENT].stats().datagrams_sent;
    let mut messages = 0;
    for _ in 0..480 {
        messages += u32::from(world.reliable(CLIENT, client, &[5; 30]).is_ok());
        world.run(Duration::from_micros(16_667));
    }
    let sent = world.ends[CLIENT].stats().datagrams_sent - before;
    assert!(sent <= 40, "{sent}");
    world.link.loss = 0;
    world.run(Duration::from_secs(5));
    assert_eq!((world.messages(SERVER).len(), messages), (500, 480));
}

#[test]
fn clocks_that_jump_stop_or_go_back_break_nothing() {
    let mut world = World::new(7, CLEAN);
    let (client, server) = world.connected();
    let year = Duration::from_secs(31_557_600);
    for step in 0..400_u64 {
        world.reliable(CLIENT, client, &[1; 20]).ok();
        world.reliable(SERVER, server, &[1; 20]).ok();
        let now = world.now.as_nanos();
        world.now = match step % 4 {
            0 => Moment::from_nanos(now.saturating_sub(world.random.below(10_000_000_000))),
            1 => Moment::from_nanos(now),
            2 => Moment::from_nanos(now + world.random.below(50_000_000)),
            _ if step == 203 => world.now.after(year),
            _ => Moment::from_nanos(now + 1),
        };
        let now = world.now();
        world.flush();
        for end in &mut world.ends {
            end.handle_timeout(now);
        }
        let datagrams: Vec<_> = std::mem::take(&mut world.in_flight).into_values().collect();
        for datagram in datagrams {
            world.deliver(datagram.to, datagram.from, &datagram.bytes);
        }
    }
    for end in &mut world.ends {
        let last = drumfire_proto::Now { monotonic: Moment::from_nanos(u64::MAX), wall: Duration::ZERO };
        end.handle_timeout(last);
        end.handle_timeout(last);
        assert_eq!(end.connection_count(), 0);
    }
}

#[test]
fn a_prompt_responder_needs_no_ack_timer() {
    let mut world = World::new(2, CLEAN);
    let (client, server) = world.connected();
    world.run(Duration::from_secs(1));
    let tick = Duration::from_micros(16_667);
    let mut early = 0;
    for round in 0..120 {
        world.send(CLIENT, client, 0, b"position", SendOptions::unreliable()).unwrap();
        world.run(Duration::from_millis(1));
        world.send(SERVER, server, 0, b"snapshot", SendOptions::unreliable()).unwrap();
        world.flush();
        let next = world.now.after(tick);
        // In the first rounds nothing is known of the path.
        early +=
            u32::from(round >= 20 && world.ends[SERVER].poll_timeout().is_some_and(|timer| timer < next));
        world.run(tick);
    }
    assert_eq!(early, 0, "each is a thread woken for nothing");
    assert_eq!((world.messages(CLIENT).len(), world.messages(SERVER).len()), (120, 120));
}
