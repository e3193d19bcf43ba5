//! Keys change while messages flow: no timely packet is lost, and no peer changes them too often.

use crate::harness::{CLEAN, CLIENT, Link, SERVER, World};
use crate::puppet::Puppet;
use drumfire_proto::{ClientConfig, CloseCode, CloseReason, Config, DropReason, ProtocolError, SendOptions};
use std::time::Duration;

/// Changes keys as often as the configuration allows.
fn frequent_rekeys() -> Config {
    Config::default().rekey(64, Duration::from_secs(1))
}

fn seeds() -> u64 {
    std::env::var("DRUMFIRE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(40)
}

#[test]
fn keys_change_often_on_both_ends_and_nothing_is_lost() {
    for seed in 0..seeds() {
        let mut world = World::with(seed, CLEAN, frequent_rekeys(), ClientConfig::default());
        let peers = <[_; 2]>::from(world.connected());
        world.link = Link {
            loss: world.random.below(31),
            duplicate: world.random.below(21),
            corrupt: 0,
            delay: Duration::from_millis(1 + world.random.below(50)),
            jitter: Duration::from_millis(world.random.below(30)),
        };
        let mut sent = [0_u32; 2];
        for _ in 0..600 {
            for end in [CLIENT, SERVER] {
                world.reliable(end, peers[end], &sent[end].to_be_bytes()).unwrap();
                world.send(end, peers[end], 1, b"state", SendOptions::unreliable()).unwrap();
                sent[end] += 1;
            }
            world.run(Duration::from_millis(20));
        }
        world.link.loss = 0;
        world.run(Duration::from_secs(5));
        for end in [CLIENT, SERVER] {
            let messages = world.messages(1 - end).into_iter().filter(|(channel, _)| *channel == 0);
            assert!(messages.map(|(_, bytes)| bytes).eq((0..sent[end]).map(|n| n.to_be_bytes().to_vec())));
            let stats = world.ends[end].stats();
            assert_eq!(stats.dropped(DropReason::Forged), 0, "seed {seed}: every packet could be opened");
        }
        let changes = [CLIENT, SERVER].map(|end| world.ends[end].stats().key_changes);
        assert!(changes[0] + changes[1] >= 8, "seed {seed}: {changes:?}");
    }
}

#[test]
fn keys_change_by_age_on_an_idle_connection() {
    let mut world = World::with(1, CLEAN, Config::default(), ClientConfig::default());
    world.connected();
    world.run(Duration::from_secs(15 * 60 - 11));
    let changes = |world: &World| [CLIENT, SERVER].map(|end| world.ends[end].stats().key_changes);
    assert_eq!(changes(&world), [0, 0]);
    world.run(Duration::from_secs(22));
    assert_eq!(changes(&world).iter().sum::<u64>(), 1, "one end began, the other followed");
    world.run(Duration::from_secs(60 * 60));
    assert_eq!(world.ends.each_ref().map(drumfire_proto::Endpoint::connection_count), [1, 1]);
    assert!((4..=5).contains(&changes(&world).iter().sum::<u64>()), "{:?}", changes(&world));
}

#[test]
fn old_keys_open_packets_for_three_probe_timeouts() {
    for (late, opens) in [(Duration::from_millis(10), true), (Duration::from_secs(3), false)] {
        let mut world = World::with(2, CLEAN, frequent_rekeys(), ClientConfig::default());
        let (client, server) = world.connected();
        world.reliable(SERVER, server, b"something to acknowledge").unwrap();
        world.run(Duration::from_millis(100));
        world.send(CLIENT, client, 5, b"held back", SendOptions::unreliable()).unwrap();
        world.flush();
        let ((sent_at, _), held) = world.in_flight.pop_last().unwrap();
        // The server changes its keys when they are a second old, and the client follows.
        world.run(Duration::from_millis(600));
        for _ in 0..2 {
            world.reliable(SERVER, server, b"news").unwrap();
            world.run(Duration::from_millis(50));
        }
        assert_eq!(world.ends[SERVER].stats().key_changes, 1);
        let at = sent_at.max(world.now).after(late);
        world.inject(at, held);
        world.run(late + Duration::from_secs(1));
        let got = world.messages(SERVER).contains(&(5, b"held back".to_vec()));
        assert_eq!((got, world.ends[SERVER].stats().dropped(DropReason::Forged)), (opens, u64::from(!opens)));
    }
}

#[test]
fn two_key_changes_without_a_reply_violate_the_protocol() {
    let mut puppet = Puppet::connected(3);
    puppet.server_sends(1);
    let quiet = |puppet: &mut Puppet| puppet.send_frames(|writer| writer.padding(20));
    puppet.change_keys();
    quiet(&mut puppet);
    assert_eq!(puppet.ending(), None, "one key change is allowed");
    puppet.take_packets();
    puppet.change_keys();
    quiet(&mut puppet);
    assert_eq!(puppet.ending(), Some(CloseReason::Protocol(ProtocolError::KeyChange)));
    // It is sealed in the peer's newest epoch, so the peer learns the reason.
    assert_eq!(puppet.closes(), [(CloseCode::Protocol, "key_change".to_owned())]);
}

#[test]
fn a_peer_that_waits_for_replies_may_change_keys_repeatedly() {
    let mut puppet = Puppet::connected(4);
    for _ in 0..10 {
        puppet.server_sends(1);
        puppet.change_keys();
        puppet.send_frames(|writer| writer.padding(20));
        puppet.server_sends(1);
        puppet.take_packets();
    }
    assert_eq!(puppet.ending(), None);
}
