//! The statistics of a connection match the network in which they were measured.

use crate::harness::{CLEAN, CLIENT, Link, SERVER, World};
use drumfire_proto::{ChannelId, Close, CloseCode, PeerId, PeerStats, SendOptions};
use std::time::Duration;

fn stats(world: &mut World, end: usize, peer: PeerId) -> PeerStats {
    let now = world.now();
    let stats = world.ends[end].peer_stats(now, peer).unwrap();
    // The summary agrees with the statistics.
    let summary = world.ends[end].peer_summary(peer).unwrap();
    assert_eq!(Some(summary.address), world.ends[end].address(peer));
    assert_eq!((summary.round_trip, summary.player), (stats.round_trip, None));
    assert_eq!((summary.packets_lost, summary.packets_missing), (stats.packets_lost, stats.packets_missing));
    assert_eq!((summary.bytes_sent, summary.bytes_received), (stats.bytes_sent, stats.bytes_received));
    stats
}

/// Runs ten seconds of a game, 60 messages a second each way.
fn play(world: &mut World, client: PeerId, server: PeerId) {
    for _ in 0..600 {
        world.send(CLIENT, client, 1, &[1; 100], SendOptions::reliable_unordered()).unwrap();
        world.send(SERVER, server, 1, &[1; 300], SendOptions::unreliable()).unwrap();
        world.run(Duration::from_nanos(1_000_000_000 / 60));
    }
}

#[test]
fn measured_round_trips_match_the_path() {
    let mut world = World::new(1, Link { delay: Duration::from_millis(40), ..CLEAN });
    let client = world.connect();
    world.run(Duration::from_secs(1));
    let server = world.peers(SERVER)[0];
    play(&mut world, client, server);
    for (end, peer) in [(CLIENT, client), (SERVER, server)] {
        let stats = stats(&mut world, end, peer);
        let is_near = |round_trip: Duration| (78..=92).contains(&round_trip.as_millis());
        assert!(is_near(stats.round_trip) && is_near(stats.round_trip_min.unwrap()), "{stats:?}");
        assert!(stats.round_trip_percentiles.unwrap().iter().all(|of| is_near(*of)), "{stats:?}");
        assert!(stats.jitter < Duration::from_millis(10), "{stats:?}");
        assert_eq!((stats.packets_lost, stats.datagram_max_bytes), (0, 1_200));
    }
    let [up, down] = [(CLIENT, client), (SERVER, server)].map(|(end, peer)| stats(&mut world, end, peer));
    assert!(up.messages_sent >= 600 && up.messages_resent == 0 && up.bytes_sent > 600 * 130, "{up:?}");
    assert!(down.bytes_sent > 590 * 330 && down.bytes_received > 590 * 130 && down.packets_received >= 590);
}

#[test]
fn loss_is_measured_in_each_direction() {
    let mut world = World::new(2, CLEAN);
    let (client, server) = world.connected();
    world.link.loss = 10;
    play(&mut world, client, server);
    let [up, down] = [(CLIENT, client), (SERVER, server)].map(|(end, peer)| stats(&mut world, end, peer));
    let per_mille = |part: u64, of: u64| part * 1_000 / of;
    for stats in [&up, &down] {
        assert!((70..=130).contains(&per_mille(stats.packets_lost, stats.packets_sent)), "{stats:?}");
        let numbers = stats.packets_received + stats.packets_missing;
        assert!((70..=130).contains(&per_mille(stats.packets_missing, numbers)), "{stats:?}");
    }
    // Where only the ack was lost, a probe repeats the message before a later ack can come.
    assert!((70..=190).contains(&per_mille(up.messages_resent, up.messages_sent)), "{up:?}");
}

#[test]
fn the_clock_offset_is_known_within_half_a_round_trip() {
    let mut world = World::new(3, Link { jitter: Duration::from_millis(20), ..CLEAN });
    let (client, server) = world.connected();
    play(&mut world, client, server);
    for (end, peer) in [(CLIENT, client), (SERVER, server)] {
        let stats = stats(&mut world, end, peer);
        // Both ends of this world have the same clock.
        let offset = stats.clock_offset.unwrap();
        assert!(Duration::from_nanos(offset.nanos.unsigned_abs()) <= offset.error, "{offset:?}");
        assert!(offset.error <= Duration::from_millis(26), "{offset:?}");
    }
}

#[test]
fn the_age_of_queued_messages_is_reported() {
    let mut world = World::new(4, CLEAN);
    let (client, _) = world.connected();
    world.run(Duration::from_secs(1));
    for channel in [3, 9] {
        world.send(CLIENT, client, channel, &[0; 60_000], SendOptions::reliable_ordered()).unwrap();
        let now = world.now();
        world.ends[CLIENT].handle_timeout(now);
    }
    let first = stats(&mut world, CLIENT, client);
    assert_eq!(first.queue_times, [(ChannelId(3), Duration::ZERO), (ChannelId(9), Duration::ZERO)]);
    assert_eq!(first.send_memory_bytes, 2 * 60_064);
    world.link.loss = 100;
    world.run(Duration::from_millis(200));
    let later = stats(&mut world, CLIENT, client);
    assert!(later.queue_times.iter().all(|(_, waited)| *waited == Duration::from_millis(200)), "{later:?}");
    // Probes are not limited by the window.
    let probes_bytes = 1_200 * usize::try_from(world.ends[CLIENT].stats().probes_sent).unwrap();
    assert!(
        later.in_flight_bytes > 10_000 && later.in_flight_bytes <= later.window_bytes + probes_bytes,
        "{later:?}, {probes_bytes}"
    );
    world.link.loss = 0;
    world.run(Duration::from_secs(5));
    let over = stats(&mut world, CLIENT, client);
    assert_eq!((over.queue_times.len(), over.send_memory_bytes, over.in_flight_bytes), (0, 0, 0));
}

#[test]
fn an_idle_connection_has_no_recent_measurements() {
    let mut world = World::new(5, CLEAN);
    let (client, server) = world.connected();
    play(&mut world, client, server);
    world.run(Duration::from_millis(8_500));
    let idle = stats(&mut world, CLIENT, client);
    assert_eq!((idle.round_trip_percentiles, idle.clock_offset, idle.bandwidth_estimate), (None, None, None));
    assert_eq!((idle.packets_sent, idle.bytes_received), (0, 0));
    let now = world.now();
    let bye = Close { code: CloseCode::Application, application_code: 0, reason: b"" };
    world.ends[CLIENT].close(now, client, &bye).unwrap();
    world.run(Duration::from_secs(5));
    let now = world.now();
    for (end, peer) in [(CLIENT, client), (SERVER, server)] {
        assert_eq!(world.ends[end].peer_stats(now, peer), None);
        assert_eq!(world.ends[end].peer_summary(peer), None);
    }
}
