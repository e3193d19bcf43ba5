//! Broadcasts to groups over real sockets: the members receive them, except for a member without room.

use std::time::Duration;

use super::world::{World, config};
use drumfire::config::GROUPS_PER_PEER_MAX;
use drumfire::{Audience, Bytes, ChannelId, Event, GroupId, Message, SendError, Workers};

const TALK: ChannelId = ChannelId(0);

fn texts(world: &World, client: usize) -> Vec<Bytes> {
    let texts = world.heard[client].iter().filter_map(|event| match event {
        Event::Message { payload, .. } => Some(payload.clone()),
        _ => None,
    });
    texts.collect()
}

#[test]
fn members_receive_a_broadcast_once_and_others_never() {
    for workers in [Workers::Inline, Workers::Count(3)] {
        let mut world = World::connected(config(workers), 9);
        let (red, blue) = (GroupId(1), GroupId(u64::MAX));
        for (at, peer) in world.peers.clone().into_iter().enumerate() {
            assert!(world.server.join(peer, if at < 5 { red } else { blue }));
            assert!(world.server.join(peer, if at < 5 { red } else { blue }));
        }
        let (left, speaker) = (world.peers[0], world.peers[1]);
        world.server.leave(left, red);
        world.server.leave(left, blue);
        world.server.broadcast(red, Message::reliable_ordered(TALK, "to the red")).expect("room");
        world
            .server
            .broadcast(
                Audience::group(red).except(speaker),
                Message::reliable_ordered(TALK, "from one of you"),
            )
            .expect("room");
        world
            .server
            .broadcast(GroupId(3), Message::reliable_ordered(TALK, "to an empty group"))
            .expect("room");
        for peer in world.peers.clone() {
            world.server.send(peer, Message::reliable_ordered(TALK, "to each")).expect("room");
        }
        let is_last = |texts: &Vec<Bytes>| texts.last().is_some_and(|text| text == "to each");
        world.until("all heard", |world| (0..9).all(|client| is_last(&texts(world, client))));
        let mut counts: Vec<usize> = (0..9).map(|client| texts(&world, client).len()).collect();
        counts.sort_unstable();
        // The member that left and the blue ones receive one message, the sender two, and the other red ones three.
        assert_eq!(counts, [1, 1, 1, 1, 1, 2, 3, 3, 3], "{workers:?}");
    }
}

#[test]
fn a_broadcast_to_all_reaches_every_peer_in_call_order() {
    for workers in [Workers::Inline, Workers::Count(3)] {
        let mut world = World::connected(config(workers), 5);
        let first = world.peers[0];
        assert!(world.server.join(first, GroupId(1)));
        let others = Audience::ALL.except(first);
        world.server.broadcast(Audience::ALL, Message::reliable_ordered(TALK, "to all")).expect("room");
        world.server.broadcast(GroupId(1), Message::reliable_ordered(TALK, "to a group")).expect("room");
        world.server.broadcast(others, Message::reliable_ordered(TALK, "to the others")).expect("room");
        for peer in world.peers.clone() {
            world.server.send(peer, Message::reliable_ordered(TALK, "to each")).expect("room");
        }
        let is_last = |texts: &Vec<Bytes>| texts.last().is_some_and(|text| text == "to each");
        world.until("all received", |world| (0..5).all(|client| is_last(&texts(world, client))));
        let mut received: Vec<_> = (0..5).map(|client| texts(&world, client)).collect();
        received.sort();
        assert_eq!(received[0], ["to all", "to a group", "to each"], "{workers:?}");
        assert!(received[1..].iter().all(|texts| *texts == ["to all", "to the others", "to each"]));
    }
}

#[test]
fn the_connected_peers_are_listed() {
    for workers in [Workers::Inline, Workers::Count(3)] {
        let mut world = World::connected(config(workers), 5);
        let mut listed: Vec<_> = world.server.peers().collect();
        let mut known = world.peers.clone();
        listed.sort_unstable();
        known.sort_unstable();
        assert_eq!((listed, world.server.peers().len()), (known, 5));
        let closed = world.peers[0];
        assert!(world.server.is_connected(closed));
        world.server.close(closed, 0, "");
        assert!(!world.server.is_connected(closed));
        world.until("it is gone", |world| world.peers.len() == 4);
        assert_eq!(world.server.peers().len(), 4);
        assert!(world.server.peers().all(|peer| peer != closed));
    }
}

#[test]
fn a_slow_member_misses_messages_without_delaying_others() {
    const ROUNDS: usize = 200;
    const HOUR: Duration = Duration::from_secs(3_600);
    // On a busy machine, the test takes longer than the default timeouts, and a member that ended misses nothing.
    let config = config(Workers::Count(2)).memory_bytes(16_384, 16_384).timeouts(HOUR, HOUR);
    let mut world = World::connected(config, 3);
    let everybody = GroupId(0);
    for peer in world.peers.clone() {
        assert!(world.server.join(peer, everybody));
    }
    // One member is not polled any more.
    let sleeper = world.clients.remove(0);
    world.heard.remove(0);
    for round in 0..ROUNDS {
        world
            .server
            .broadcast(
                everybody,
                Message::reliable_ordered(TALK, vec![u8::try_from(round).expect("few"); 500]),
            )
            .expect("room");
        world.until("those who are awake heard", |world| {
            (0..2).all(|client| texts(world, client).len() == round + 1)
        });
    }
    let missed: u32 = world
        .events
        .iter()
        .map(|event| if let Event::Missed { count, .. } = event { *count } else { 0 })
        .sum();
    let of: std::collections::HashSet<_> = world
        .events
        .iter()
        .filter_map(|event| if let Event::Missed { peer, .. } = event { Some(*peer) } else { None })
        .collect();
    assert!(missed > 100 && (missed as usize) < ROUNDS, "{missed}");
    assert_eq!(of.len(), 1, "only the member that sleeps misses broadcasts");
    drop(sleeper);
}

#[test]
fn a_broadcast_to_a_closing_member_is_counted_as_undelivered() {
    let mut world = World::connected(config(Workers::Inline), 3);
    let everybody = GroupId(0);
    for peer in world.peers.clone() {
        assert!(world.server.join(peer, everybody));
    }
    world.server.broadcast(everybody, Message::reliable_ordered(TALK, "all are here")).expect("room");
    world.until("all heard", |world| (0..3).all(|client| texts(world, client).len() == 1));
    let undelivered = |world: &World| world.server.control().stats().workers[0].broadcasts_undelivered;
    assert_eq!(undelivered(&world), 0);
    world.server.close(world.peers[0], 7, "");
    for text in ["one is closing", "and still is"] {
        world.server.broadcast(everybody, Message::reliable_ordered(TALK, text)).expect("room");
    }
    world.until("the others heard", |world| {
        (0..3).filter(|client| texts(world, *client).len() == 3).count() == 2
    });
    assert_eq!(undelivered(&world), 2);
    assert!(!world.events.iter().any(|event| matches!(event, Event::Missed { .. })));
    // A peer that has disconnected is not a member any more.
    world.until("it is gone", |world| world.peers.len() == 2);
    world.server.broadcast(everybody, Message::reliable_ordered(TALK, "two are left")).expect("room");
    world.until("both heard", |world| (0..3).filter(|client| texts(world, *client).len() == 4).count() == 2);
    assert_eq!(undelivered(&world), 2);
}

#[test]
fn invalid_broadcasts_and_joins_are_refused() {
    let mut world = World::connected(config(Workers::Inline), 1);
    let peer = world.peers[0];
    for group in 0..GROUPS_PER_PEER_MAX as u64 {
        assert!(world.server.join(peer, GroupId(group)));
    }
    let one_more = GroupId(GROUPS_PER_PEER_MAX as u64);
    assert!(!world.server.join(peer, one_more), "the peer is in the maximum number of groups");
    assert!(world.server.join(peer, GroupId(0)), "the peer is a member already");
    world.server.leave(peer, GroupId(0));
    assert!(world.server.join(peer, one_more));
    let long = world.server.broadcast(one_more, Message::reliable_ordered(TALK, vec![0; 65_537]));
    assert_eq!(long, Err(SendError::TooLarge { bytes: 65_537, limit_bytes: 65_536 }));
    world.clients.clear();
    world.heard.clear();
    world.until("it is gone", |world| world.peers.is_empty());
    assert!(!world.server.join(peer, GroupId(0)), "a disconnected peer cannot join");
}
