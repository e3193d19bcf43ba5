//! Limits on the resources of one peer, and that reaching them does not affect others.

use crate::harness::{CLEAN, CLIENT, MEMORY_BYTES, SERVER, Seen, World, address, config};
use crate::puppet::Puppet;
use drumfire_proto::{ClientConfig, Config, Congestion, ConnectError, DropReason, Inbound, Now, SendOptions};
use drumfire_wire::{Close, CloseCode, RefuseReason};
use std::time::Duration;

#[test]
fn no_more_than_the_limit_is_in_flight_without_acks() {
    let fixed = Congestion::Fixed { bytes_per_second: 1 << 30 };
    let mut config = Config::default().congestion(fixed);
    config.in_flight_bytes = 64 * 1_024;
    let mut world = World::with(1, CLEAN, config, ClientConfig::default());
    let (client, _) = world.connected();
    world.run(Duration::from_millis(200));
    let before = world.ends[CLIENT].stats().bytes_sent;
    for _ in 0..180 {
        world.send(CLIENT, client, 0, &[1; 1_100], SendOptions::unreliable()).unwrap();
    }
    world.flush();
    let sent = world.ends[CLIENT].stats().bytes_sent - before;
    assert!((64 * 1_024..64 * 1_024 + 1_200).contains(&sent), "{sent}");
    // A sender with a full window requests an ack, so a window takes a round trip and waits for no timer.
    world.run(Duration::from_millis(20 * 4));
    assert_eq!(world.messages(SERVER).len(), 180);
}

#[test]
fn each_connection_has_its_share_of_a_pass() {
    let mut world = World::with(2, CLEAN, Config::default(), ClientConfig::many());
    let (first, _) = world.connected();
    let (second, _) = world.connected();
    let mut batch = Vec::new();
    for (peer, count) in [(first, 70_u8), (second, 1)] {
        for _ in 0..count {
            world.send(CLIENT, peer, 0, b"m", SendOptions::unreliable()).unwrap();
            let (now, mut memory) = (world.now(), [0; 1_200]);
            let transmit = world.ends[CLIENT].poll_transmit(now, &mut memory).unwrap();
            batch.push(memory[..transmit.bytes].to_vec());
        }
    }
    let now = world.now();
    let datagrams = batch.iter_mut().map(|bytes| Inbound { from: address(CLIENT).into(), bytes });
    world.ends[SERVER].handle_datagrams(now, datagrams);
    world.flush();
    assert_eq!(world.ends[SERVER].stats().dropped(DropReason::PassShare), 6);
    assert_eq!(world.messages(SERVER).len(), 64 + 1);
}

#[test]
fn packets_of_many_frames_use_the_share_of_a_pass_sooner() {
    for (frame_count, taken) in [(1, 64), (7, 64), (40, 32)] {
        let mut puppet = Puppet::connected(6);
        let frames = [0x80, 0, 1, b'x'].repeat(frame_count);
        let mut batch: Vec<_> = (0..70).map(|_| puppet.datagram(&frames)).collect();
        puppet.world.now = puppet.world.now.after(Duration::from_millis(1));
        let now = puppet.world.now();
        let datagrams = batch.iter_mut().map(|bytes| Inbound { from: address(CLIENT).into(), bytes });
        puppet.world.ends[SERVER].handle_datagrams(now, datagrams);
        puppet.world.flush();
        // Packets are opened 32 at a time, and delivered after that.
        assert_eq!(puppet.world.messages(SERVER).len(), taken * frame_count);
        assert_eq!(puppet.world.ends[SERVER].stats().dropped(DropReason::PassShare), 70 - taken as u64);
    }
}

#[test]
fn a_bad_datagram_anywhere_in_a_batch_skips_no_other() {
    let bad: [&[u8]; 8] = [
        &[],
        &[0x00; 40],
        &[0x88; 40],
        &[0x8f; 1_200],
        &[0x89; 1_199],
        &[0x08; 40],
        &[0x09; 27],
        &[0x09; 60],
    ];
    let mut world = World::new(3, CLEAN);
    let (client, _) = world.connected();
    let mut good = 0;
    for position in 0..64 {
        let mut batch: Vec<Vec<u8>> = Vec::new();
        for at in 0..64 {
            if at == position || (at + position) % 7 == 0 {
                batch.push(bad[(at + position) % 8].to_vec());
                continue;
            }
            world.send(CLIENT, client, 0, b"good", SendOptions::unreliable()).unwrap();
            let (now, mut memory) = (world.now(), [0; 1_200]);
            let transmit = world.ends[CLIENT].poll_transmit(now, &mut memory).unwrap();
            batch.push(memory[..transmit.bytes].to_vec());
            good += 1;
        }
        let now = world.now();
        let datagrams = batch.iter_mut().map(|bytes| Inbound { from: address(CLIENT).into(), bytes });
        world.ends[SERVER].handle_datagrams(now, datagrams);
        world.run(Duration::from_millis(50));
    }
    assert_eq!(world.messages(SERVER).len(), good);
    let stats = world.ends[SERVER].stats();
    for reason in [
        DropReason::Empty,
        DropReason::FixedBits,
        DropReason::UnknownKind,
        DropReason::WrongLength,
        DropReason::PacketNumberLength,
        DropReason::ForgedId,
    ] {
        assert!(stats.dropped(reason) > 0, "{reason:?}");
    }
}

#[test]
fn a_full_server_creates_no_connection() {
    let mut world = World::with(4, CLEAN, Config::default().connections(3), ClientConfig::many());
    world.connect();
    world.connect();
    world.connect();
    world.run(Duration::from_secs(1));
    assert_eq!((world.peers(SERVER).len(), world.ends[SERVER].connection_count()), (3, 3));
    let config = Config::default();
    let client =
        drumfire_proto::Endpoint::client(config, ClientConfig::many(), drumfire_proto::Secret::new([5; 32]));
    world.ends[CLIENT] = client.unwrap();
    world.connect();
    world.run(Duration::from_secs(1));
    assert_eq!(world.peers(SERVER).len(), 3);
    assert!(world.ends[SERVER].stats().dropped(DropReason::ServerFull) > 0);
}

#[test]
fn a_server_at_its_memory_limit_accepts_no_connection() {
    // So slow that all data waits.
    let slow = Congestion::Fixed { bytes_per_second: 1_200 };
    let config = config().worker_memory_bytes(1_024 * 1_024).congestion(slow);
    let mut world = World::with(5, CLEAN, config, ClientConfig::many());
    for _ in 0..5 {
        world.connect();
    }
    world.run(Duration::from_secs(1));
    let peers = world.peers(SERVER);
    for peer in &peers {
        while world.send(SERVER, *peer, 0, &[1; 1_000], SendOptions::reliable_unordered()).is_ok() {}
    }
    let held = world.ends[SERVER].held_bytes();
    assert!((1_048_576..=5 * MEMORY_BYTES).contains(&held), "{held} B");
    let refused = world.connect();
    world.run(Duration::from_secs(3));
    let refusal = world.seen[CLIENT].iter().find_map(|(_, peer, seen)| match seen {
        Seen::ConnectFailed(ConnectError::Refused(refusal)) if *peer == refused => Some(refusal),
        _ => None,
    });
    let refusal = refusal.expect("an answer");
    assert_eq!((refusal.reason, refusal.retry_after), (RefuseReason::Full, Some(Duration::from_secs(10))));
    assert!(world.ends[SERVER].stats().dropped(DropReason::MemoryFull) > 0);
    let now = world.now();
    for peer in &peers[..2] {
        let close = Close { code: CloseCode::Application, application_code: 0, reason: b"" };
        world.ends[SERVER].close(now, *peer, &close).unwrap();
    }
    world.run(Duration::from_secs(9));
    world.connect();
    world.run(Duration::from_secs(1));
    assert_eq!(world.peers(SERVER).len(), 6);
}

#[test]
fn unsendable_control_frames_cause_no_busy_loop() {
    let mut world = World::new(3, CLEAN);
    let (client, _) = world.connected();
    world.run(Duration::from_millis(200));
    world.link.loss = 100;
    for _ in 0..100 {
        world.send(CLIENT, client, 0, &[1; 1_100], SendOptions::unreliable()).unwrap();
    }
    world.flush();
    let now = world.now();
    // The retirement of the old id must wait like all other data.
    assert!(world.ends[CLIENT].change_path(now, client));
    let now = Now { monotonic: now.monotonic.after(Duration::from_secs(1)), ..now };
    world.ends[CLIENT].handle_timeout(now);
    let mut memory = [0; 1_200];
    let sent = (0..100).take_while(|_| world.ends[CLIENT].poll_transmit(now, &mut memory).is_some()).count();
    assert!(sent < 3, "{sent}");
}
