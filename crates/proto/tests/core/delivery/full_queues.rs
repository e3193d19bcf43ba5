//! Messages without memory: each of the four options, with its counters, and without an effect on others.

use crate::harness::{CLEAN, CLIENT, MEMORY_BYTES, SERVER, World};
use drumfire_proto::{
    ChannelId, ChannelOptions, CloseCode, CloseReason, Outcome, SendError, SendOptions, WhenFull,
};
use std::time::Duration;

/// Creates a world whose client sends only acks, with channel 1 of this kind.
fn world(when_full: WhenFull) -> (World, drumfire_proto::PeerId) {
    let mut world = World::new(1, CLEAN);
    let (client, _) = world.connected();
    let options = ChannelOptions::default().when_full(when_full);
    world.ends[CLIENT].set_channel_options(client, ChannelId(1), options);
    (world, client)
}

/// Sends numbered messages of 1,000 bytes until one is not simply queued. Returns its result, and the number of
/// messages before it.
fn fill(
    world: &mut World,
    client: drumfire_proto::PeerId,
    options: SendOptions,
) -> (u64, Result<(), SendError>) {
    for number in 1..1_000_u64 {
        let before = world.ends[CLIENT].stats().messages_dropped;
        let bytes = [&number.to_be_bytes()[..], &[7; 992]].concat();
        let answer = world.send_with_receipt(CLIENT, client, &bytes, options, number);
        if answer.is_err() || world.ends[CLIENT].stats().messages_dropped > before {
            return (number, answer);
        }
    }
    unreachable!("memory is bounded")
}

/// Returns the numbers of the messages that arrived.
fn received(world: &mut World) -> Vec<u64> {
    world.run(Duration::from_secs(5));
    let messages = world.messages(SERVER);
    messages.iter().map(|(_, bytes)| u64::from_be_bytes(bytes[..8].try_into().unwrap())).collect()
}

/// The number of messages of 1,000 bytes, charged 64 more, that fit the send memory.
const TAKEN: u64 = (MEMORY_BYTES / 1_064) as u64;

#[test]
fn a_blocked_sender_is_notified_and_loses_nothing() {
    let (mut world, client) = world(WhenFull::Block);
    let answer = fill(&mut world, client, SendOptions::reliable_ordered());
    assert_eq!(answer, (TAKEN + 1, Err(SendError::Full)));
    assert_eq!(received(&mut world), (1..=TAKEN).collect::<Vec<_>>());
    assert_eq!(world.ends[CLIENT].stats().messages_dropped, 0);
}

#[test]
fn a_dropped_newest_message_gets_its_receipt() {
    let (mut world, client) = world(WhenFull::DropNewest);
    assert_eq!(fill(&mut world, client, SendOptions::reliable_ordered()), (TAKEN + 1, Ok(())));
    assert_eq!(received(&mut world), (1..=TAKEN).collect::<Vec<_>>());
    let (expired, arrived): (Vec<_>, Vec<_>) =
        world.receipts(CLIENT).into_iter().partition(|(_, outcome)| *outcome == Outcome::Expired);
    assert_eq!((expired, arrived.len() as u64), (vec![(TAKEN + 1, Outcome::Expired)], TAKEN));
}

#[test]
fn the_oldest_unsent_message_is_dropped() {
    for options in
        [SendOptions::reliable_ordered(), SendOptions::reliable_unordered(), SendOptions::unreliable()]
    {
        let (mut world, client) = world(WhenFull::DropOldest);
        assert_eq!(fill(&mut world, client, options), (TAKEN + 1, Ok(())));
        assert_eq!(world.ends[CLIENT].stats().messages_dropped, 1);
        world.run(Duration::ZERO);
        assert_eq!(world.receipts(CLIENT), [(1, Outcome::Expired)]);
        let received = received(&mut world);
        assert!(received.iter().eq((2..=TAKEN + 1).collect::<Vec<_>>().iter()), "{options:?}");
    }
}

#[test]
fn messages_already_sent_are_not_dropped() {
    let (mut world, client) = world(WhenFull::DropOldest);
    world.link.loss = 100;
    let other = SendOptions::reliable_ordered();
    // Another channel uses the memory, so this one has nothing to drop.
    while world.send(CLIENT, client, 2, &[0; 1_000], other) == Ok(()) {}
    let answer = world.send(CLIENT, client, 1, &[0; 1_000], SendOptions::reliable_ordered());
    assert_eq!((answer, world.ends[CLIENT].stats().messages_dropped), (Ok(()), 1));
    world.link.loss = 0;
    world.run(Duration::from_secs(5));
    assert!(world.messages(SERVER).iter().all(|(channel, _)| *channel == 2));
}

#[test]
fn a_queue_whose_only_message_is_dropped_is_removed() {
    let (mut world, client) = world(WhenFull::DropOldest);
    let options = SendOptions::reliable_ordered();
    world.send(CLIENT, client, 2, &[2; 1_000], options).unwrap();
    world.send(CLIENT, client, 1, &[1; 30_000], options).unwrap();
    for _ in 0..TAKEN - 30 {
        world.send(CLIENT, client, 2, &[2; 1_000], options).unwrap();
    }
    while world.ends[CLIENT].stats().messages_dropped == 0 {
        world.send(CLIENT, client, 1, &[3; 20_000], options).unwrap();
    }
    world.run(Duration::from_secs(5));
    assert!(
        world.messages(SERVER).iter().filter(|(channel, _)| *channel == 1).all(|(_, bytes)| bytes[0] == 3)
    );
    assert_eq!(world.send(CLIENT, client, 1, b"still", options), Ok(()));
    world.run(Duration::from_secs(1));
    assert_eq!(world.messages(SERVER).last(), Some(&(1, b"still".to_vec())));
}

#[test]
fn a_channel_that_must_not_lose_anything_closes_the_connection() {
    let (mut world, client) = world(WhenFull::Disconnect);
    let (number, answer) = fill(&mut world, client, SendOptions::reliable_ordered());
    assert_eq!((number, answer), (TAKEN + 1, Err(SendError::Closed)));
    world.run(Duration::from_secs(1));
    let reason = CloseReason::Remote { code: CloseCode::Overflow, application_code: 0 };
    assert!(
        world.seen[SERVER]
            .iter()
            .any(|(.., seen)| matches!(seen, crate::harness::Seen::Disconnected(why, _) if *why == reason))
    );
}

#[test]
fn a_message_behind_others_counts_and_moves_no_timer() {
    let (mut world, client) = world(WhenFull::DropOldest);
    let options = SendOptions::reliable_ordered();
    for count in 1..=30 {
        world.send_with_receipt(CLIENT, client, &[7; 1_000], options, 1_000 + count as u64).unwrap();
        assert_eq!(world.ends[CLIENT].undelivered_bytes(client), count * 1_064);
        assert_eq!(world.ends[CLIENT].held_bytes(), count * 1_064 / 1_024 * 1_024);
    }
    // The pacer holds the rest back.
    world.flush();
    let timeout = world.ends[CLIENT].poll_timeout();
    assert!(timeout > Some(world.now), "{timeout:?}");
    world.send(CLIENT, client, 1, &[7; 1_000], options).unwrap();
    assert_eq!(world.ends[CLIENT].poll_timeout(), timeout);
    assert!(!world.ends[CLIENT].has_events());
    let (_, answer) = fill(&mut world, client, options);
    assert_eq!(answer, Ok(()));
    assert!(world.ends[CLIENT].has_events(), "the receipt of the dropped message is due");
    world.run(Duration::from_secs(5));
    assert_eq!((world.ends[CLIENT].undelivered_bytes(client), world.ends[CLIENT].held_bytes()), (0, 0));
}
