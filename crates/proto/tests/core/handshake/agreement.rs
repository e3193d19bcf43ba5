//! Two ends connect, and datagrams of other senders cannot prevent or change that.

use crate::harness::{
    CLEAN, CLIENT, InFlightDatagram, Link, SERVER, Seen, World, address, identity, server_config,
};
use drumfire_proto::{
    ClientConfig, Config, ConnectError, ConnectRequest, DropReason, Endpoint, Inbound, Moment, Now, Refusal,
    RefuseReason, Secret, ServerIdentity, SingleWorker,
};
use drumfire_wire::{ClientId, Refuse};
use std::net::SocketAddr;
use std::time::Duration;

const HELLO: u8 = 0x89;
const RETRY: u8 = 0x8a;
const REFUSE: u8 = 0x8b;
const WELCOME: u8 = 0x8c;

fn sent_of(world: &World, kind: u8) -> Vec<Vec<u8>> {
    world.sent.iter().filter(|(_, _, bytes)| bytes[0] == kind).map(|(_, _, bytes)| bytes.clone()).collect()
}

#[test]
fn two_round_trips_connect_both_ends() {
    let mut world = World::new(1, CLEAN);
    let start = world.now;
    world.connect();
    world.run(Duration::from_secs(1));
    let when = |end: usize| world.seen[end].iter().find(|(_, _, seen)| *seen == Seen::Connected).unwrap().0;
    assert_eq!(when(CLIENT).since(start), Duration::from_millis(40));
    assert_eq!(when(SERVER).since(start), Duration::from_millis(50));
    let (hellos, retries) = (sent_of(&world, HELLO), sent_of(&world, RETRY));
    assert_eq!((hellos.len(), retries.len(), sent_of(&world, WELCOME).len()), (2, 1, 1));
    assert!(hellos.iter().all(|hello| hello.len() == 1_200) && retries[0].len() == 64);
}

#[test]
fn the_server_is_connected_by_the_first_packet() {
    let mut world = World::new(2, CLEAN);
    world.connect();
    world.run(Duration::from_millis(45));
    assert_eq!(world.peers(CLIENT).len(), 1);
    assert_eq!((world.peers(SERVER).len(), world.ends[SERVER].connection_count()), (0, 1));
    world.run(Duration::from_millis(5));
    assert_eq!(world.peers(SERVER).len(), 1);
}

#[test]
fn a_lost_first_packet_is_repeated_by_probe() {
    let mut world = World::new(3, CLEAN);
    world.connect();
    world.run(Duration::from_millis(35));
    world.link.loss = 100;
    world.run(Duration::from_millis(10));
    world.link.loss = 0;
    world.run(Duration::from_millis(600));
    assert_eq!(world.peers(SERVER).len(), 1);
    assert!(world.ends[CLIENT].stats().probes_sent >= 1);
}

#[test]
fn handshakes_survive_loss_reorder_and_corruption() {
    let mut failed = 0;
    for seed in 0..60 {
        let link = Link {
            loss: 20,
            duplicate: 20,
            corrupt: 5,
            delay: Duration::from_millis(20),
            jitter: Duration::from_millis(30),
        };
        let mut world = World::new(seed, link);
        let peer = world.connect();
        world.run(Duration::from_secs(6));
        match world.seen[CLIENT].first() {
            Some((_, of, Seen::Connected)) => assert_eq!(*of, peer),
            Some((_, _, Seen::ConnectFailed(ConnectError::Timeout))) => failed += 1,
            other => panic!("{other:?}"),
        }
        assert!(world.peers(SERVER).len() <= 1, "seed {seed}");
    }
    assert!(failed <= 6, "{failed} of 60");
}

#[test]
fn without_a_server_the_attempt_ends_after_exactly_five_seconds() {
    let mut world = World::new(4, Link { loss: 100, ..CLEAN });
    let (start, peer) = (world.now, world.connect());
    world.run(Duration::from_secs(10));
    let failed = Seen::ConnectFailed(ConnectError::Timeout);
    assert_eq!(world.seen[CLIENT], [(start.after(Duration::from_secs(5)), peer, failed)]);
    assert_eq!(sent_of(&world, HELLO).len(), 7);
    assert_eq!((world.ends[CLIENT].connection_count(), world.ends[CLIENT].poll_timeout()), (0, None));
}

#[test]
fn a_delayed_attempt_sends_nothing_before_its_time() {
    let wait = Duration::from_secs(7);
    for (link, expected) in [
        (CLEAN, (Duration::from_secs(8), Seen::Connected)),
        (Link { loss: 100, ..CLEAN }, (Duration::from_secs(12), Seen::ConnectFailed(ConnectError::Timeout))),
    ] {
        let mut world = World::new(4, link);
        let (start, now) = (world.now, world.now());
        world.ends[CLIENT]
            .connect_with(now, &ConnectRequest { wait, ..ConnectRequest::new(address(SERVER), identity()) })
            .unwrap();
        world.run(Duration::from_secs(13));
        assert_eq!(world.sent.first().map(|(at, ..)| at.since(start)), Some(wait));
        let (at, _, seen) = world.seen[CLIENT].first().unwrap();
        assert!(*seen == expected.1 && at.since(start) <= expected.0, "{:?} at {:?}", seen, at.since(start));
    }
}

#[test]
fn the_application_hello_comes_with_the_connection() {
    for (number, length) in [(40, 0), (41, 3), (42, 256)] {
        // Under loss, the Hello is repeated, and the hello still comes once.
        let mut world = World::new(number, Link { loss: 20, ..CLEAN });
        let (now, hello) = (world.now(), vec![0xa5; length]);
        let request = ConnectRequest { hello: &hello, ..ConnectRequest::new(address(SERVER), identity()) };
        world.ends[CLIENT].connect_with(now, &request).unwrap();
        world.run(Duration::from_secs(5));
        assert_eq!(world.hellos, [vec![Vec::new()], vec![hello.clone()]]);
        // It is encrypted.
        let is_visible = |bytes: &[u8]| length > 0 && bytes.windows(length).any(|window| window == hello);
        assert!(!world.sent.iter().any(|(_, _, bytes)| is_visible(bytes)));
    }
    let mut world = World::new(43, CLEAN);
    let (now, hello) = (world.now(), [0; 257]);
    let request = ConnectRequest { hello: &hello, ..ConnectRequest::new(address(SERVER), identity()) };
    assert_eq!(world.ends[CLIENT].connect_with(now, &request), Err(ConnectError::HelloTooLong));
    assert_eq!(world.ends[CLIENT].connection_count(), 0);
}

#[test]
fn a_different_server_key_gets_no_connection() {
    let mut world = World::new(5, CLEAN);
    let (now, identity) = (world.now(), ServerIdentity { public_key: [9; 32], ..identity() });
    world.ends[CLIENT].connect(now, address(SERVER), &identity, None).unwrap();
    world.run(Duration::from_secs(6));
    assert!(matches!(world.last(CLIENT), Some((_, _, Seen::ConnectFailed(ConnectError::Timeout)))));
    let stats = world.ends[SERVER].stats();
    assert!(stats.dropped(DropReason::BadMac1) > 0);
    assert_eq!(stats.handshakes_computed, 0);
}

#[test]
fn a_different_protocol_id_is_refused_with_the_reason() {
    let mut world = World::new(5, CLEAN);
    let config = Config::default().protocol_id(7);
    world.ends[CLIENT] = Endpoint::client(config, ClientConfig::default(), Secret::new([9; 32])).unwrap();
    let start = world.now;
    world.connect();
    world.run(Duration::from_secs(6));
    let (at, _, Seen::ConnectFailed(ConnectError::Refused(refusal))) = world.last(CLIENT).unwrap() else {
        panic!("{:?}", world.last(CLIENT));
    };
    assert_eq!(refusal.reason, RefuseReason::Protocol);
    assert!(at.since(start) < Duration::from_millis(1_500), "{:?}", at.since(start));
    let stats = world.ends[SERVER].stats();
    assert!(stats.dropped(DropReason::WrongProtocol) > 0);
    assert_eq!(stats.handshakes_computed, 0);
    assert!((stats.refuse_bytes + stats.retry_bytes) * 10 <= stats.hello_bytes);
}

/// Returns a new server, and everything that a client sends it to connect.
fn recorded() -> (World, Vec<u8>, Vec<u8>) {
    let mut world = World::new(6, CLEAN);
    world.connect();
    world.run(Duration::from_millis(25));
    let hellos = sent_of(&world, HELLO);
    let (first, with_cookie) = (hellos[0].clone(), hellos[1].clone());
    world.in_flight.clear();
    (world, first, with_cookie)
}

#[test]
fn no_hello_with_a_changed_bit_makes_a_connection() {
    let (mut world, _, hello) = recorded();
    // The same server, with a source limit that does not end the test early.
    let mut config = server_config();
    config.source_handshakes_burst = u32::MAX;
    let seed = Secret::new([0x77; 32]);
    world.ends[SERVER] =
        Endpoint::server(Config::default(), config, drumfire_proto::SingleWorker::default(), seed).unwrap();
    for bit in 0..8 * hello.len() {
        let mut changed = hello.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        world.deliver(SERVER, address(CLIENT), &changed);
        assert_eq!(world.ends[SERVER].connection_count(), 0, "bit {bit}");
        // Lets the limits of Retries recover, and removes the Retries.
        if bit % 200 == 0 {
            world.now = world.now.after(Duration::from_millis(50));
            world.flush();
            world.in_flight.clear();
        }
    }
    assert_eq!(world.ends[SERVER].stats().handshakes_computed, 0);
    assert_eq!(world.ends[SERVER].stats().unexplained(), 0);
    world.deliver(SERVER, address(CLIENT), &hello);
    assert_eq!(world.ends[SERVER].connection_count(), 1, "the genuine one does");
}

#[test]
fn no_bit_flip_of_a_welcome_connects() {
    let (mut world, _, hello) = recorded();
    world.deliver(SERVER, address(CLIENT), &hello);
    world.flush();
    let welcome = sent_of(&world, WELCOME)[0].clone();
    world.in_flight.clear();
    for bit in 0..8 * welcome.len() {
        let mut changed = welcome.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        world.deliver(CLIENT, address(SERVER), &changed);
    }
    world.flush();
    assert_eq!(world.peers(CLIENT).len(), 0);
    world.deliver(CLIENT, address(SERVER), &welcome);
    world.run(Duration::from_millis(100));
    assert_eq!((world.peers(CLIENT).len(), world.peers(SERVER).len()), (1, 1));
}

#[test]
fn a_pending_client_outlives_ten_thousand_forged_replies() {
    let mut world = World::new(7, CLEAN);
    world.connect();
    world.flush();
    for round in 0..10_000_u64 {
        let (kind, bytes) =
            [(RETRY, 64), (WELCOME, 92), (0x8b, 96), (0x8d, 25), (0x09, 60)][(round % 5) as usize];
        let mut forged: Vec<u8> = (0..bytes).map(|_| world.random.bits().to_le_bytes()[0]).collect();
        forged[0] = kind;
        let at = world.now.after(Duration::from_micros(5 * round));
        world.inject(at, InFlightDatagram { from: address(SERVER), to: CLIENT, bytes: forged });
    }
    world.run(Duration::from_secs(1));
    assert_eq!((world.peers(CLIENT).len(), world.peers(SERVER).len()), (1, 1));
    let stats = world.ends[CLIENT].stats();
    assert_eq!(stats.dropped(DropReason::UnknownClientId), 6_000);
}

#[test]
fn eight_forged_retries_from_on_path_do_not_stop_a_client() {
    let mut world = World::new(8, CLEAN);
    world.connect();
    world.flush();
    let client_id = sent_of(&world, HELLO)[0][11..19].to_vec();
    for number in 0..8 {
        let mut forged = vec![0x77 + number; 64];
        forged[0] = RETRY;
        forged[1..9].copy_from_slice(&client_id);
        world.deliver(CLIENT, address(SERVER), &forged);
        if number == 0 {
            world.flush();
        }
    }
    world.run(Duration::from_secs(3));
    assert_eq!((world.peers(CLIENT).len(), world.peers(SERVER).len()), (1, 1));
}

#[test]
fn a_reply_from_another_address_is_dropped() {
    let mut world = World::new(9, CLEAN);
    world.connect();
    world.run(Duration::from_millis(15));
    let retry = sent_of(&world, RETRY)[0].clone();
    world.deliver(CLIENT, "198.51.100.1:7778".parse().unwrap(), &retry);
    assert_eq!(world.ends[CLIENT].stats().dropped(DropReason::WrongSource), 1);
}

#[test]
fn a_hello_of_another_version_gets_a_retry_and_a_refusal() {
    let (mut world, first, _) = recorded();
    let mut newer = first;
    newer[1..3].copy_from_slice(&[0, 2]);
    let before = sent_of(&world, RETRY).len();
    world.deliver(SERVER, address(CLIENT), &newer);
    world.flush();
    let retries = sent_of(&world, RETRY);
    assert_eq!((retries.len(), sent_of(&world, REFUSE).len()), (before + 1, 0));
    newer[540..572].copy_from_slice(&retries.last().unwrap()[9..41]);
    world.deliver(SERVER, address(CLIENT), &newer);
    world.flush();
    let stats = world.ends[SERVER].stats();
    assert_eq!(stats.dropped(DropReason::WrongVersion), 1);
    assert!((stats.refuse_bytes + stats.retry_bytes) * 10 <= stats.hello_bytes);
    let refusal = Refuse::decode(&sent_of(&world, REFUSE)[0]).unwrap().refusal;
    assert_eq!((refusal.reason, refusal.version_min, refusal.version_max), (RefuseReason::Version, 1, 1));
}

/// Runs a second in steps of a millisecond, and applies `change` to every datagram.
fn run_changed(world: &mut World, change: impl Fn(&mut Vec<u8>)) {
    for _ in 0..1_000 {
        world.flush();
        world.in_flight.values_mut().for_each(|datagram| change(&mut datagram.bytes));
        world.run(Duration::from_millis(1));
    }
}

#[test]
fn a_client_of_another_version_learns_the_servers_versions() {
    let mut world = World::new(31, CLEAN);
    let start = world.now;
    world.connect();
    for _ in 0..2 {
        run_changed(&mut world, |bytes| match bytes[0] {
            // The server sees a client of version 2, and the client a server of versions 3 and 4.
            HELLO => bytes[1..3].copy_from_slice(&[0, 2]),
            REFUSE => bytes[10..14].copy_from_slice(&[0, 3, 0, 4]),
            _ => {}
        });
    }
    let (at, _, seen) = world.last(CLIENT).unwrap();
    let mismatch = ConnectError::VersionMismatch { min: 3, max: 4 };
    assert_eq!(*seen, Seen::ConnectFailed(mismatch.clone()));
    assert!(at.since(start) < Duration::from_millis(1_500), "{:?}", at.since(start));
    assert!(mismatch.to_string().ends_with("update the client"));
    let refused = sent_of(&world, REFUSE).len();
    assert!((3..=4).contains(&refused), "{refused}: it asked no more often than it had to");
}

#[test]
fn a_full_server_reports_when_to_retry() {
    let (config, many) = (Config::default(), ClientConfig::many());
    let mut world = World::with(32, CLEAN, config.clone(), many);
    let seed = Secret::new([9; 32]);
    world.ends[SERVER] =
        Endpoint::server(config.connections(1), server_config(), SingleWorker::default(), seed).unwrap();
    world.connected();
    let second = world.connect();
    world.run(Duration::from_secs(3));
    let Some((_, peer, Seen::ConnectFailed(ConnectError::Refused(refusal)))) = world.last(CLIENT) else {
        panic!("{:?}", world.last(CLIENT));
    };
    assert_eq!((*peer, refusal.reason), (second, RefuseReason::Full));
    assert_eq!(refusal.retry_after, Some(Duration::from_secs(10)));
    assert!(ConnectError::Refused(refusal.clone()).to_string().contains("full; try again in 10 s"));
    assert_eq!(world.ends[SERVER].connection_count(), 1);
}

#[test]
fn forged_refusals_stop_no_client() {
    let mut world = World::new(33, CLEAN);
    world.connect();
    world.flush();
    let client_id: [u8; 8] = sent_of(&world, HELLO)[0][11..19].try_into().unwrap();
    let refusal = |seconds: u64| Refusal {
        reason: RefuseReason::Banned,
        version_min: 1,
        version_max: 1,
        retry_after: Some(Duration::from_secs(seconds)),
        address: None,
        is_proved: false,
    };
    let forge = |world: &mut World, client_id: [u8; 8], seconds| {
        let mut bytes = Vec::new();
        let refuse = Refuse { client_id: ClientId(client_id), refusal: refusal(seconds), mac: [0; 16] };
        refuse.encode(&mut bytes).unwrap();
        world.deliver(CLIENT, address(SERVER), &bytes);
    };
    for guess in 0..1_000_u64 {
        forge(&mut world, guess.to_be_bytes(), 1);
    }
    assert_eq!(world.ends[CLIENT].stats().dropped(DropReason::UnknownClientId), 1_000);
    for seconds in [1, 1, 2, 2, 3] {
        forge(&mut world, client_id, seconds);
    }
    world.run(Duration::from_secs(6));
    assert_eq!(world.peers(CLIENT).len(), 1);
}

#[test]
fn a_welcome_after_three_refusals_still_connects() {
    let mut world = World::new(34, CLEAN);
    world.connect();
    world.flush();
    let client_id = ClientId(sent_of(&world, HELLO)[0][11..19].try_into().unwrap());
    let (reason, version_min, version_max, is_proved) = (RefuseReason::Full, 1, 1, false);
    let refusal = Refusal { reason, version_min, version_max, retry_after: None, address: None, is_proved };
    let mut bytes = Vec::new();
    Refuse { client_id, refusal, mac: [0; 16] }.encode(&mut bytes).unwrap();
    for _ in 0..3 {
        world.deliver(CLIENT, address(SERVER), &bytes);
    }
    world.run(Duration::from_secs(6));
    assert_eq!(world.peers(CLIENT).len(), 1);
}

#[test]
fn the_same_hello_gets_five_equal_welcomes_at_most() {
    let (mut world, _, hello) = recorded();
    for sent in 1..=7 {
        world.deliver(SERVER, address(CLIENT), &hello);
        world.flush();
        assert_eq!(sent_of(&world, WELCOME).len(), 5.min(sent));
    }
    let welcomes = sent_of(&world, WELCOME);
    assert!(welcomes.iter().all(|welcome| *welcome == welcomes[0]));
    let stats = world.ends[SERVER].stats();
    assert_eq!((stats.handshakes_computed, stats.dropped(DropReason::HelloRepeated)), (1, 2));
    assert!(stats.retry_bytes * 10 <= stats.hello_bytes && stats.welcome_bytes <= stats.hello_bytes);
}

#[test]
fn a_cookie_is_valid_for_one_address_and_a_short_time() {
    let (mut world, _, hello) = recorded();
    world.deliver(SERVER, "192.0.2.1:5001".parse().unwrap(), &hello);
    world.now = world.now.after(Duration::from_secs(10));
    world.deliver(SERVER, address(CLIENT), &hello);
    assert_eq!(
        (world.ends[SERVER].connection_count(), world.ends[SERVER].stats().handshakes_computed),
        (0, 0)
    );
}

#[test]
fn a_half_open_connection_is_forgotten_after_five_seconds() {
    let (mut world, _, hello) = recorded();
    world.deliver(SERVER, address(CLIENT), &hello);
    let gone_at = world.now.after(Duration::from_secs(5));
    assert_eq!(world.ends[SERVER].poll_timeout(), Some(gone_at));
    let just_before = Moment::from_nanos(gone_at.as_nanos() - 1);
    for (at, count) in [(just_before, 1), (gone_at, 0)] {
        world.ends[SERVER].handle_timeout(Now { monotonic: at, wall: Duration::ZERO });
        assert_eq!(world.ends[SERVER].connection_count(), count);
    }
    assert!(world.ends[SERVER].poll_event().is_none());
}

#[test]
fn one_source_has_sixteen_half_open_connections() {
    let mut server =
        Endpoint::server(Config::default(), server_config(), SingleWorker::default(), Secret::new([1; 32]))
            .unwrap();
    let now = Now { monotonic: Moment::from_nanos(60_000_000_000), wall: Duration::ZERO };
    let begun = (0..20_u8).filter(|number| {
        let seed = Secret::new([*number; 32]);
        let mut client = Endpoint::client(Config::default(), ClientConfig::default(), seed).unwrap();
        let from = SocketAddr::from(([203, 0, 113, 5], 1_000 + u16::from(*number)));
        say_hello(&mut client, &mut server, now, from)
    });
    assert_eq!(begun.count(), 16);
    assert_eq!(server.stats().dropped(DropReason::SourceLimit), 4);
}

/// Sends a client's Hellos until it gets a Welcome. Returns whether it got one.
fn say_hello(client: &mut Endpoint, server: &mut Endpoint, now: Now, from: SocketAddr) -> bool {
    client.connect(now, address(SERVER), &identity(), None).unwrap();
    let before = server.connection_count();
    let mut memory = [0; 1_200];
    for _ in 0..2 {
        client.poll_transmit(now, &mut memory).unwrap();
        server.handle_datagrams(now, [Inbound { from: from.into(), bytes: &mut memory }]);
        if let Some(transmit) = server.poll_transmit(now, &mut memory) {
            let answer = Inbound { from: address(SERVER).into(), bytes: &mut memory[..transmit.bytes] };
            client.handle_datagrams(now, [answer]);
        }
    }
    server.connection_count() > before
}

#[test]
fn a_client_with_many_connections_issues_connection_ids() {
    let mut world = World::with(10, CLEAN, Config::default(), ClientConfig::many());
    let peers: Vec<_> = (0..10).map(|_| world.connect()).collect();
    world.run(Duration::from_secs(1));
    assert_eq!((world.peers(CLIENT).len(), world.peers(SERVER).len()), (10, 10));
    for (number, peer) in peers.iter().enumerate() {
        world.reliable(CLIENT, *peer, &[number as u8]).unwrap();
    }
    for peer in world.peers(SERVER) {
        world.reliable(SERVER, peer, b"back").unwrap();
    }
    world.run(Duration::from_secs(1));
    assert_eq!((world.messages(CLIENT).len(), world.messages(SERVER).len()), (10, 10));
}

#[test]
fn a_socket_without_ids_has_one_connection_at_a_time() {
    let mut world = World::new(11, CLEAN);
    world.connect();
    let now = world.now();
    let second = world.ends[CLIENT].connect(now, address(SERVER), &identity(), None);
    assert_eq!(second, Err(ConnectError::TooManyConnections));
    let of_a_server = world.ends[SERVER].connect(now, address(SERVER), &identity(), None);
    assert_eq!(of_a_server, Err(ConnectError::NotAClient));
}

#[test]
fn both_suites_carry_messages() {
    for has_aes_gcm in [false, cfg!(feature = "accel")] {
        let config = Config::default().has_aes_gcm(has_aes_gcm);
        let mut world = World::with(12, CLEAN, config, ClientConfig::default());
        let (client, _) = world.connected();
        world.reliable(CLIENT, client, b"sealed").unwrap();
        world.run(Duration::from_millis(100));
        assert_eq!(world.messages(SERVER), [(0, b"sealed".to_vec())]);
    }
}
