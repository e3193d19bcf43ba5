//! Clients whose address changes, with and without an on-path attacker who copies their packets.

use crate::harness::{CLEAN, CLIENT, InFlightDatagram, Link, SERVER, World, address, config};
use drumfire_proto::{ClientConfig, CloseReason, DropReason, Inbound, LocalAddress, PeerId, SendOptions};
use drumfire_tries::tries;
use std::net::SocketAddr;
use std::time::Duration;

const ATTACKER: &str = "203.0.113.66:6666";

fn seeds() -> u64 {
    std::env::var("DRUMFIRE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(30)
}

fn new_address(number: u64) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 10_000 + u16::try_from(number % 50_000).unwrap()))
}

/// Runs for this long, while an attacker copies everything the client sends from its own address, and is faster.
pub(crate) fn run_copied(world: &mut World, duration: Duration) {
    let end = world.now.after(duration);
    while world.now < end {
        world.flush();
        let copies: Vec<Vec<u8>> = world
            .in_flight
            .values()
            .filter(|f| f.to == SERVER && f.from != attacker())
            .map(|f| f.bytes.clone())
            .collect();
        for bytes in copies {
            let at = world.now;
            world.inject(at, InFlightDatagram { from: attacker(), to: SERVER, bytes });
        }
        world.run(Duration::from_millis(1));
    }
}

pub(crate) fn attacker() -> SocketAddr {
    ATTACKER.parse().unwrap()
}

#[test]
fn a_client_that_keeps_moving_loses_nothing_reliable() {
    for seed in 0..seeds() {
        let mut world = World::new(seed, CLEAN);
        let (client, server) = world.connected();
        world.link = Link { loss: world.random.below(11), jitter: Duration::from_millis(5), ..CLEAN };
        let mut sent = 0_u32;
        for _ in 0..20 {
            world.client_address = new_address(world.random.bits());
            for _ in 0..world.random.below(40) + 10 {
                world.reliable(CLIENT, client, &sent.to_be_bytes()).unwrap();
                world.reliable(SERVER, server, &sent.to_be_bytes()).unwrap();
                sent += 1;
                world.run(Duration::from_millis(50));
            }
        }
        world.run(Duration::from_secs(5));
        assert_eq!(world.ends[SERVER].address(server), Some(world.client_address), "seed {seed}");
        for end in [CLIENT, SERVER] {
            let all = (0..sent).map(|number| (0, number.to_be_bytes().to_vec()));
            assert!(world.messages(end).into_iter().eq(all), "seed {seed}");
        }
        let moves = world.ends[SERVER].stats().path_migrations;
        assert!(moves >= 10);
        assert_eq!(world.moves.len() as u64, moves, "one event for each move");
        assert_eq!(world.moves.last(), Some(&(server, world.client_address)));
    }
}

#[test]
fn migration_waits_while_events_are_not_taken() {
    let mut limits = config().memory_bytes(4_096, 4_096);
    (limits.event_memory_bytes, limits.message_max_bytes) = (8_192, 1_024);
    let mut world = World::with(1, CLEAN, limits, ClientConfig::default());
    let (client, server) = world.connected();
    world.takes_events = false;
    for number in 0..200 {
        world.client_address = new_address(number);
        world.send(CLIENT, client, 0, b"here", SendOptions::unreliable()).unwrap();
        world.run(Duration::from_millis(100));
    }
    let moves = world.ends[SERVER].stats().path_migrations;
    assert!((1..8_192 / 64).contains(&moves), "{moves} moves wait in memory for {}", 8_192 / 64);
    world.takes_events = true;
    world.run(Duration::from_secs(2));
    assert_eq!(world.moves.last(), Some(&(server, world.client_address)), "the last move is not lost");
}

#[test]
fn an_idle_client_that_moved_is_found_before_a_timeout() {
    let mut world = World::new(1, CLEAN);
    let (_, server) = world.connected();
    world.run(Duration::from_secs(1));
    // It sends and receives nothing, so only its keep-alive can show the server the new address.
    world.client_address = new_address(1);
    world.reliable(SERVER, server, b"where are you?").unwrap();
    world.run(Duration::from_secs(12));
    assert_eq!(world.messages(CLIENT), [(0, b"where are you?".to_vec())]);
    // The server does not wait for its probe timer, which has backed off to seconds by then.
    let [.., (received_at, _, _)] = world.seen[CLIENT][..] else { panic!() };
    let sent = world.sent.iter().filter(|(_, end, _)| *end == CLIENT).map(|(at, ..)| *at);
    let first = sent.filter(|at| received_at.since(*at) < Duration::from_secs(1)).min().unwrap();
    assert!(received_at.since(first) < Duration::from_millis(80), "{:?}", received_at.since(first));
}

#[test]
fn a_client_that_moves_after_sending_is_found_in_three_seconds() {
    let mut world = World::new(1, CLEAN);
    let (client, server) = world.connected();
    world.reliable(CLIENT, client, b"over to you").unwrap();
    world.run(Duration::from_millis(100));
    world.client_address = new_address(1);
    world.reliable(SERVER, server, b"where are you?").unwrap();
    world.run(Duration::from_secs(3));
    assert_eq!(world.messages(CLIENT), [(0, b"where are you?".to_vec())]);
}

#[test]
fn a_challenge_that_is_lost_when_both_fall_silent_is_repeated() {
    let mut world = World::new(1, CLEAN);
    let (client, server) = world.connected();
    world.run(Duration::from_secs(1));
    world.client_address = new_address(1);
    world.send(CLIENT, client, 0, &[7; 200], SendOptions::unreliable()).unwrap();
    world.run(Duration::from_millis(15));
    // The challenges of the server, and their responses.
    world.link = Link { loss: 100, ..CLEAN };
    world.run(Duration::from_millis(100));
    world.link = CLEAN;
    world.run(Duration::from_millis(1_100));
    assert_eq!(world.ends[SERVER].address(server), Some(world.client_address));
}

#[test]
fn a_path_response_reveals_lost_packets() {
    let mut world = World::new(1, CLEAN);
    let (client, server) = world.connected();
    world.run(Duration::from_secs(1));
    // Everything that the server sends for most of a second is lost. Then the client sends from another address.
    world.reliable(SERVER, server, b"lost at first").unwrap();
    world.client_address = new_address(1);
    world.run(Duration::from_millis(900));
    let lost = world.ends[SERVER].stats().packets_lost;
    world.send(CLIENT, client, 0, b"here", SendOptions::unreliable()).unwrap();
    // A round trip for the challenge, before any ack-eliciting packet could arrive.
    world.run(Duration::from_millis(41));
    assert!(world.ends[SERVER].stats().packets_lost > lost);
}

#[test]
fn copied_packets_from_another_address_move_no_path() {
    for seed in 0..seeds() {
        let mut world = World::new(seed, CLEAN);
        let (client, server) = world.connected();
        let mut sent = 0_u32;
        for _ in 0..100 {
            world.reliable(CLIENT, client, &sent.to_be_bytes()).unwrap();
            world.reliable(SERVER, server, &sent.to_be_bytes()).unwrap();
            sent += 1;
            run_copied(&mut world, Duration::from_millis(50));
            assert_eq!(world.ends[SERVER].address(server), Some(address(CLIENT)));
        }
        world.run(Duration::from_secs(5));
        assert_eq!(world.messages(CLIENT).len(), sent as usize, "seed {seed}");
        assert_eq!(world.messages(SERVER).len(), sent as usize, "seed {seed}");
        let stolen: usize = world.stray.iter().map(|(_, bytes)| bytes.len()).sum();
        let given: usize = world.ends[SERVER].stats().datagrams_received as usize * 40;
        assert!(stolen <= 3 * given, "{stolen} bytes for {given}");
    }
}

#[test]
fn a_migrating_client_is_followed_and_its_copier_is_not() {
    for seed in 0..seeds() {
        let mut world = World::new(seed, CLEAN);
        let (client, server) = world.connected();
        for number in 0..10_u64 {
            world.client_address = new_address(number);
            for byte in 0..20 {
                world.reliable(CLIENT, client, &[byte]).unwrap();
                world.reliable(SERVER, server, &[byte]).unwrap();
                run_copied(&mut world, Duration::from_millis(50));
                assert_ne!(world.ends[SERVER].address(server), Some(attacker()), "seed {seed}");
            }
            run_copied(&mut world, Duration::from_secs(2));
        }
        world.run(Duration::from_secs(5));
        assert_eq!((world.messages(CLIENT).len(), world.messages(SERVER).len()), (200, 200), "seed {seed}");
    }
}

#[test]
fn a_client_that_migrates_on_purpose_uses_another_id() {
    let mut world = World::new(5, CLEAN);
    let (client, _) = world.connected();
    let ids = |world: &World| -> Vec<Vec<u8>> {
        let sent = world.sent.iter().filter(|(_, end, bytes)| *end == CLIENT && bytes[0] < 0x80);
        let mut ids: Vec<_> = sent.map(|(_, _, bytes)| bytes[1..9].to_vec()).collect();
        ids.dedup();
        ids
    };
    let before = ids(&world);
    assert_eq!(before.len(), 1);
    let mut seen = before;
    for number in 0..12 {
        let now = world.now();
        world.sent.clear();
        world.client_address = new_address(number);
        assert!(world.ends[CLIENT].change_path(now, client), "a spare id for move {number}");
        world.reliable(CLIENT, client, b"here now").unwrap();
        world.run(Duration::from_secs(2));
        let after = ids(&world);
        assert_eq!(after.len(), 1, "one id on one path");
        assert!(!seen.contains(&after[0]), "an id came again");
        seen.extend(after);
    }
    assert_eq!(world.messages(SERVER).len(), 12);
    assert_eq!(world.ends[SERVER].stats().dropped(DropReason::UnknownConnection), 0);
}

#[test]
fn migrations_faster_than_new_ids_reuse_the_old_id() {
    let mut world = World::new(6, CLEAN);
    let (client, _) = world.connected();
    let now = world.now();
    let fresh: Vec<bool> = (0..4).map(|_| world.ends[CLIENT].change_path(now, client)).collect();
    assert_eq!(fresh, [true, false, false, false]);
    world.reliable(CLIENT, client, b"still here").unwrap();
    world.run(Duration::from_secs(3));
    assert_eq!(world.messages(SERVER).len(), 1);
    assert!(world.ends[CLIENT].change_path(world.now(), client), "new ids have arrived by now");
}

#[test]
fn a_restarted_server_resets_its_clients_in_a_round_trip() {
    let mut world = World::new(7, CLEAN);
    let (client, _) = world.connected();
    world.restart_server();
    world.reliable(CLIENT, client, b"hello?").unwrap();
    let start = world.now;
    world.run(Duration::from_secs(1));
    let (at, _, seen) = world.last(CLIENT).unwrap();
    assert_eq!(*seen, crate::harness::Seen::Disconnected(CloseReason::Reset, Vec::new()));
    assert!(at.since(start) <= Duration::from_millis(25), "{:?}", at.since(start));
    assert_eq!(world.ends[SERVER].stats().resets_sent, 1);
}

#[test]
fn a_million_forged_resets_close_nothing() {
    let mut world = World::new(8, CLEAN);
    let (client, _) = world.connected();
    let id = world.sent.iter().rfind(|(_, end, bytes)| *end == CLIENT && bytes[0] < 0x80).unwrap().2[1..9]
        .to_vec();
    let now = world.now();
    let count = u64::from(tries(1_000_000));
    for number in 0..count {
        let mut forged = [0x8d; 25];
        forged[1..9].copy_from_slice(&id);
        forged[9..17].copy_from_slice(&world.random.bits().to_be_bytes());
        forged[17..25].copy_from_slice(&number.to_be_bytes());
        world.ends[CLIENT]
            .handle_datagrams(now, [Inbound { from: address(SERVER).into(), bytes: &mut forged }]);
    }
    assert_eq!(world.ends[CLIENT].stats().dropped(DropReason::BadReset), count);
    world.reliable(CLIENT, client, b"still here").unwrap();
    world.run(Duration::from_secs(1));
    assert_eq!(world.messages(SERVER).len(), 1);
}

#[test]
fn two_servers_never_answer_each_other_in_a_loop() {
    let mut world = World::new(9, CLEAN);
    world.connected();
    let packet =
        world.sent.iter().rfind(|(_, end, bytes)| *end == CLIENT && bytes[0] < 0x80).unwrap().2.clone();
    world.restart_server();
    // The client's packets come from another server's address, which gets the Reset and drops it.
    world.deliver(SERVER, "198.51.100.9:7777".parse().unwrap(), &packet);
    world.flush();
    let (_, reset) = world.stray.pop().unwrap();
    assert_eq!(reset[0], 0x8d);
    world.deliver(SERVER, "198.51.100.9:7777".parse().unwrap(), &reset);
    world.flush();
    assert!(world.stray.is_empty());
    assert_eq!(world.ends[SERVER].stats().dropped(DropReason::UnexpectedKind), 1);
}

#[test]
fn unreliable_messages_reach_a_moved_client_before_validation() {
    let mut world = World::new(10, CLEAN);
    let (client, server) = world.connected();
    world.client_address = new_address(1);
    world.send(CLIENT, client, 1, b"input", SendOptions::unreliable()).unwrap();
    world.run(Duration::from_millis(11));
    world.send(SERVER, server, 1, b"state", SendOptions::unreliable()).unwrap();
    world.run(Duration::from_millis(11));
    assert_eq!(world.messages(CLIENT).len(), 1, "before a second round trip");
}

#[test]
fn every_reply_leaves_from_the_address_that_received() {
    let mut world = World::new(41, CLEAN);
    world.server_local = LocalAddress(3);
    let (client, server) = world.connected();
    world.reliable(CLIENT, client, b"to your third address").unwrap();
    world.reliable(SERVER, server, b"from there").unwrap();
    world.run(Duration::from_secs(60));
    assert!(world.left_from[SERVER].iter().all(|local| *local == LocalAddress(3)));
    assert!(
        world.left_from[CLIENT].iter().all(|local| *local == LocalAddress::ANY),
        "a client has one local address"
    );
    world.restart_server();
    world.reliable(CLIENT, client, b"who are you?").unwrap();
    world.run(Duration::from_secs(1));
    let resets = world.sent.iter().filter(|(_, _, bytes)| bytes[0] == 0x8d).count();
    assert!(resets > 0 && world.left_from[SERVER].iter().all(|local| *local == LocalAddress(3)));
}

#[test]
fn the_server_replies_from_the_address_its_client_now_uses() {
    let mut world = World::new(42, CLEAN);
    world.server_local = LocalAddress(3);
    let (client, server) = world.connected();
    world.server_local = LocalAddress(4);
    world.reliable(CLIENT, client, b"to your fourth address").unwrap();
    world.run(Duration::from_millis(200));
    world.left_from[SERVER].clear();
    for _ in 0..5 {
        world.reliable(SERVER, server, b"from there").unwrap();
        world.run(Duration::from_millis(100));
    }
    assert!(world.left_from[SERVER].iter().all(|local| *local == LocalAddress(4)));
    assert_eq!(world.messages(CLIENT).len(), 5);
}

/// Addresses to which no datagram can be sent.
const UNANSWERABLE: [&str; 6] =
    ["192.0.2.1:0", "0.0.0.0:5000", "255.255.255.255:5000", "224.0.0.1:5000", "[::]:5000", "[ff02::1]:5000"];

#[test]
fn a_path_never_moves_to_an_unreachable_address() {
    for address in UNANSWERABLE {
        let mut world = World::new(43, CLEAN);
        let (client, server) = world.connected();
        let original = world.ends[SERVER].address(server);
        for _ in 0..10 {
            world.reliable(SERVER, server, &[7; 1_000]).unwrap();
        }
        let received = world.ends[SERVER].stats().datagrams_received;
        world.client_address = address.parse().unwrap();
        for _ in 0..3 {
            world.send(CLIENT, client, 1, &[7; 1_000], SendOptions::unreliable()).unwrap();
        }
        world.run(Duration::from_secs(5));
        assert!(world.stray.iter().all(|(to, _)| *to != world.client_address), "{address}");
        let stats = world.ends[SERVER].stats();
        let dropped = stats.dropped(DropReason::UnanswerableSource);
        assert!(dropped >= 3 && dropped == stats.datagrams_received - received, "{address}: {dropped}");
        assert_eq!((world.ends[SERVER].address(server), stats.path_migrations), (original, 0), "{address}");
    }
}

#[test]
fn a_hello_from_an_unreachable_address_is_dropped() {
    for address in UNANSWERABLE {
        let mut world = World::new(44, CLEAN);
        world.client_address = address.parse().unwrap();
        world.connect();
        world.run(Duration::from_secs(1));
        let stats = world.ends[SERVER].stats();
        assert!(stats.datagrams_received > 0 && stats.datagrams_sent == 0, "{address}");
        assert_eq!(stats.dropped(DropReason::UnanswerableSource), stats.datagrams_received, "{address}");
    }
}

/// An address on another host than the client's first one.
const OTHER_HOST: &str = "203.0.113.7:7000";

/// Runs for this long on a path that carries no more than 1,200 bytes.
fn run_narrow(world: &mut World, millis: u64) {
    for _ in 0..millis {
        world.flush();
        world.in_flight.retain(|_, datagram| datagram.bytes.len() <= 1_200);
        world.run(Duration::from_millis(1));
    }
}

/// Queues this many messages of 100 bytes, and sends what may be sent immediately. Returns the number of datagrams of more than
/// 1,200 bytes.
fn send_many(world: &mut World, end: usize, peer: PeerId, count: usize) -> usize {
    world.sent.clear();
    for _ in 0..count {
        world.send(end, peer, 1, &[7; 100], SendOptions::reliable_unordered()).unwrap();
    }
    world.flush();
    world.sent.iter().filter(|(_, from, bytes)| *from == end && bytes.len() > 1_200).count()
}

/// Sends 1,000 messages of 100 bytes, so that this end searches for the largest datagram that the path carries.
fn find_mtu(world: &mut World, end: usize, peer: PeerId) {
    for _ in 0..10 {
        send_many(world, end, peer, 100);
        world.run(Duration::from_millis(100));
    }
}

#[test]
fn a_late_ack_of_an_mtu_probe_says_nothing_about_another_path() {
    let mut world = World::new(45, CLEAN);
    let (client, server) = world.connected();
    // The old path is slow, so that the probe is not declared lost before its ack arrives.
    world.link.delay = Duration::from_millis(100);
    for _ in 0..10 {
        world.reliable(SERVER, server, b"slow").unwrap();
        world.run(Duration::from_millis(500));
    }
    world.link.delay = Duration::from_millis(10);
    world.client_address = OTHER_HOST.parse().unwrap();
    world.send(CLIENT, client, 1, b"here", SendOptions::unreliable()).unwrap();
    world.flush();
    let (_, moved) = world.in_flight.pop_first().unwrap();
    // The server has not heard from the new address: a full packet goes to the old one, and then a probe of its size.
    for _ in 0..20 {
        world.send(SERVER, server, 1, &[7; 100], SendOptions::reliable_unordered()).unwrap();
    }
    let (now, mut memory) = (world.now(), [0; 1_472]);
    let [full, probe] = [(); 2].map(|()| world.ends[SERVER].poll_transmit(now, &mut memory).unwrap().bytes);
    assert!(full <= 1_200 && probe == 1_472, "{full} and {probe}");
    world.deliver(SERVER, world.client_address, &moved.bytes);
    // Only the challenge arrives, so that no packet shows that the probe is lost.
    world.flush();
    while world.in_flight.len() > 1 {
        world.in_flight.pop_last();
    }
    while world.ends[SERVER].address(server) != Some(world.client_address) {
        run_narrow(&mut world, 1);
    }
    world.carries = [Some(1_472); 2];
    world.deliver(CLIENT, address(SERVER), &memory[..probe]);
    for _ in 0..100 {
        run_narrow(&mut world, 1);
        let now = world.now();
        assert_eq!(world.ends[SERVER].peer_stats(now, server).unwrap().datagram_max_bytes, 1_200);
    }
    run_narrow(&mut world, 3_000);
    assert_eq!(world.messages(CLIENT).len(), 30);
}

#[test]
fn a_client_that_changes_its_path_falls_back_to_small_datagrams() {
    let mut world = World::new(46, CLEAN);
    world.carries = [Some(1_472); 2];
    let (client, _) = world.connected();
    find_mtu(&mut world, CLIENT, client);
    let size = |world: &mut World| {
        let now = world.now();
        world.ends[CLIENT].peer_stats(now, client).unwrap().datagram_max_bytes
    };
    assert_eq!((size(&mut world), world.messages(SERVER).len()), (1_472, 1_000));
    world.client_address = OTHER_HOST.parse().unwrap();
    let now = world.now();
    assert!(world.ends[CLIENT].change_path(now, client));
    assert_eq!(size(&mut world), 1_200);
    assert!(send_many(&mut world, CLIENT, client, 100) <= 1, "no more than a probe is larger");
    run_narrow(&mut world, 3_000);
    assert_eq!((size(&mut world), world.messages(SERVER).len()), (1_200, 1_100));
}

#[test]
fn an_idle_server_falls_back_to_small_datagrams_when_its_client_moves() {
    let mut world = World::new(48, CLEAN);
    world.carries = [Some(1_472); 2];
    let (client, server) = world.connected();
    find_mtu(&mut world, SERVER, server);
    // Both ends release the memory of their estimates.
    world.run(Duration::from_secs(6));
    world.client_address = OTHER_HOST.parse().unwrap();
    world.send(CLIENT, client, 1, b"here", SendOptions::unreliable()).unwrap();
    world.run(Duration::from_millis(100));
    assert_eq!(world.ends[SERVER].address(server), Some(world.client_address));
    assert!(send_many(&mut world, SERVER, server, 100) <= 1, "no more than a probe is larger");
}

#[test]
fn the_round_trip_of_another_host_starts_over() {
    for (address, is_other_host) in [(OTHER_HOST.parse().unwrap(), true), (new_address(1), false)] {
        let mut world = World::new(47, CLEAN);
        let (client, server) = world.connected();
        world.link.delay = Duration::from_millis(250);
        for number in 0..40_u32 {
            world.reliable(SERVER, server, &number.to_be_bytes()).unwrap();
            world.run(Duration::from_millis(600));
        }
        let round_trip = |world: &mut World| {
            let now = world.now();
            world.ends[SERVER].peer_stats(now, server).unwrap().round_trip
        };
        assert!(round_trip(&mut world) > Duration::from_millis(450));
        world.link.delay = Duration::from_millis(10);
        world.client_address = address;
        world.send(CLIENT, client, 1, b"here", SendOptions::unreliable()).unwrap();
        world.run(Duration::from_millis(100));
        world.reliable(SERVER, server, b"where").unwrap();
        world.run(Duration::from_millis(100));
        let measured = round_trip(&mut world);
        assert_eq!(measured < Duration::from_millis(40), is_other_host, "{address}: {measured:?}");
    }
}

#[test]
fn a_client_with_a_long_round_trip_is_followed() {
    let mut world = World::new(11, CLEAN);
    let (client, server) = world.connected();
    world.link.delay = Duration::from_millis(650);
    for _ in 0..40 {
        world.reliable(CLIENT, client, b"far away").unwrap();
        world.run(Duration::from_millis(100));
    }
    // Packets keep coming, so challenges are repeated before the response to the first one can arrive.
    world.client_address = new_address(1);
    for _ in 0..80 {
        world.send(CLIENT, client, 1, b"input", SendOptions::unreliable()).unwrap();
        world.run(Duration::from_millis(50));
    }
    assert_eq!(world.ends[SERVER].address(server), Some(world.client_address));
}

#[test]
fn the_first_datagram_from_another_address_is_no_mtu_probe() {
    let mut world = World::new(49, CLEAN);
    world.carries = [Some(1_472); 2];
    let (client, server) = world.connected();
    find_mtu(&mut world, CLIENT, client);
    world.run(Duration::from_secs(1));
    world.client_address = OTHER_HOST.parse().unwrap();
    let now = world.now();
    assert!(world.ends[CLIENT].change_path(now, client));
    world.sent.clear();
    run_narrow(&mut world, 100);
    let (_, _, first) = world.sent.iter().find(|(_, end, _)| *end == CLIENT).unwrap();
    assert!(first.len() <= 1_200, "{} bytes", first.len());
    assert_eq!(world.ends[SERVER].address(server), Some(world.client_address));
}

#[test]
fn a_client_without_a_spare_id_shows_its_new_address_too() {
    let mut world = World::new(12, CLEAN);
    let (client, server) = world.connected();
    world.run(Duration::from_secs(1));
    for number in 0..3 {
        world.client_address = new_address(number);
        let now = world.now();
        world.ends[CLIENT].change_path(now, client);
        world.run(Duration::from_millis(50));
        assert_eq!(world.ends[SERVER].address(server), Some(world.client_address), "move {number}");
    }
}

#[test]
fn a_burst_of_lost_large_packets_is_no_black_hole() {
    let mut world = World::new(13, CLEAN);
    world.carries = [Some(1_472); 2];
    let (client, _) = world.connected();
    find_mtu(&mut world, CLIENT, client);
    // A full queue drops the first datagrams of a burst, and carries the rest.
    send_many(&mut world, CLIENT, client, 400);
    let mut drop_count = 10;
    for _ in 0..1_000 {
        world.flush();
        world.in_flight.retain(|_, datagram| {
            let is_dropped = drop_count > 0 && datagram.bytes.len() > 1_200;
            drop_count -= u32::from(is_dropped);
            !is_dropped
        });
        world.run(Duration::from_millis(1));
    }
    assert!(world.ends[CLIENT].stats().packets_lost >= 10);
    let now = world.now();
    assert_eq!(world.ends[CLIENT].peer_stats(now, client).unwrap().datagram_max_bytes, 1_472);
}
