//! Events about the send memory: room after a refused message, and freed memory for a caller that counts it.

use std::time::Duration;

use bytes::Bytes;
use drumfire_proto::limits::ITEM_CHARGE_BYTES;
use drumfire_proto::{ChannelId, IfFull, Message, PeerId, SendError};

use crate::harness::{CLEAN, CLIENT, Link, MEMORY_BYTES, Seen, World};

/// The send memory that a message of 1,000 bytes takes.
const CHARGE: usize = 1_000 + ITEM_CHARGE_BYTES;

/// The number of messages of 1,000 bytes that fit the send memory.
const ROOM: usize = MEMORY_BYTES / CHARGE;

fn send(world: &mut World, peer: PeerId, payload_bytes: usize, if_full: IfFull) -> Result<(), SendError> {
    let message = Message::reliable_ordered(ChannelId(0), Bytes::from(vec![7; payload_bytes]));
    let now = world.now();
    world.ends[CLIENT].send_with(now, peer, message, None, if_full)
}

/// Sends messages of 1,000 bytes until one is refused, and returns the number of accepted ones.
fn fill(world: &mut World, peer: PeerId, if_full: IfFull) -> usize {
    (0..10_000).take_while(|_| send(world, peer, 1_000, if_full) != Err(SendError::Full)).count()
}

fn notices(world: &World) -> usize {
    world.seen[CLIENT].iter().filter(|(_, _, seen)| *seen == Seen::Writable).count()
}

#[test]
fn a_refused_sender_gets_one_notice_when_half_is_free() {
    let mut world = World::new(1, CLEAN);
    let (client, _) = world.connected();
    assert_eq!(fill(&mut world, client, IfFull::Notify), ROOM);
    for _ in 0..3 {
        assert_eq!(send(&mut world, client, 1_000, IfFull::Notify), Err(SendError::Full));
    }
    while notices(&world) == 0 {
        let used_bytes = world.ends[CLIENT].undelivered_bytes(client);
        assert!(used_bytes > MEMORY_BYTES / 4, "{used_bytes} bytes are used, and there was no notice");
        world.run(Duration::from_millis(1));
    }
    assert!(world.ends[CLIENT].undelivered_bytes(client) <= MEMORY_BYTES / 2);
    world.run(Duration::from_secs(5));
    assert_eq!(notices(&world), 1, "no message was refused since");
    fill(&mut world, client, IfFull::Notify);
    world.run(Duration::from_secs(5));
    assert_eq!(notices(&world), 2);
}

#[test]
fn a_long_message_fits_when_its_sender_is_notified() {
    let mut world = World::new(2, CLEAN);
    let (client, _) = world.connected();
    fill(&mut world, client, IfFull::Refuse);
    let bytes = MEMORY_BYTES / 10 * 9;
    let is_full = send(&mut world, client, bytes.min(60_000), IfFull::Notify);
    assert_eq!(is_full, Err(SendError::Full));
    while notices(&world) == 0 {
        world.run(Duration::from_millis(1));
    }
    assert_eq!(send(&mut world, client, bytes.min(60_000), IfFull::Notify), Ok(()));
}

#[test]
fn a_sender_that_does_not_try_again_gets_no_notice() {
    let mut world = World::new(3, CLEAN);
    let (client, _) = world.connected();
    assert_eq!(fill(&mut world, client, IfFull::Refuse), ROOM);
    world.run(Duration::from_secs(5));
    assert_eq!(notices(&world), 0);
}

#[test]
fn no_notice_follows_the_end_of_a_connection() {
    let mut world = World::new(4, CLEAN);
    let (client, _) = world.connected();
    fill(&mut world, client, IfFull::Notify);
    world.link = Link { loss: 100, ..CLEAN };
    world.run(Duration::from_secs(60));
    let last = world.seen[CLIENT].last();
    assert!(matches!(last, Some((_, _, Seen::Disconnected(..)))), "{last:?}");
    assert_eq!(notices(&world), 0);
}

#[test]
fn a_message_before_the_handshake_is_reported_after_connected() {
    let mut world = World::new(5, CLEAN);
    let client = world.connect();
    assert_eq!(fill(&mut world, client, IfFull::Notify), ROOM);
    world.run(Duration::from_secs(5));
    let of_client: Vec<_> = world.seen[CLIENT].iter().map(|(_, _, seen)| seen).collect();
    assert_eq!(of_client, [&Seen::Connected, &Seen::Writable]);
}

#[test]
fn a_caller_that_tracks_memory_is_never_refused() {
    let mut world = World::new(6, CLEAN);
    let (client, _) = world.connected();
    world.ends[CLIENT].report_freed();
    fill(&mut world, client, IfFull::Refuse);
    // The caller has admitted these before it learned of the messages of others.
    for _ in 0..ROOM / 2 {
        assert_eq!(send(&mut world, client, 1_000, IfFull::Accept), Ok(()));
    }
    assert_eq!(world.ends[CLIENT].poll_freed(), None, "no message was acknowledged");
    let mut used_bytes = world.ends[CLIENT].undelivered_bytes(client);
    assert_eq!(used_bytes, (ROOM + ROOM / 2) * CHARGE);
    while used_bytes > 0 {
        world.run(Duration::from_millis(1));
        let now_bytes = world.ends[CLIENT].undelivered_bytes(client);
        let freed = world.ends[CLIENT].poll_freed();
        assert_eq!(freed.is_some(), now_bytes < used_bytes, "from {used_bytes} to {now_bytes} bytes");
        assert_eq!(world.ends[CLIENT].poll_freed(), None, "a connection is listed once");
        used_bytes = now_bytes;
    }
}
