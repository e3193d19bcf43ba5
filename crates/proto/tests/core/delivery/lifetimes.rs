//! Messages with a limited lifetime, and messages with receipts.

use crate::harness::{CLEAN, CLIENT, Link, SERVER, Seen, World};
use drumfire_proto::{Outcome, PeerId, SendOptions};
use std::time::Duration;

const LIFETIME: Duration = Duration::from_millis(50);

fn cut(world: &mut World) {
    world.link.loss = 100;
}

fn restore(world: &mut World) {
    world.link.loss = 0;
}

/// Returns a connection on which the server's packets are lost from now on, and optionally those of the client.
fn cut_off(seed: u64) -> (World, PeerId) {
    let mut world = World::new(seed, CLEAN);
    let (client, _) = world.connected();
    world.run(Duration::from_millis(100));
    cut(&mut world);
    (world, client)
}

/// Returns what the server delivered on channel 1, with the number of skipped messages in between.
fn delivered(world: &World) -> Vec<Result<u8, u32>> {
    let delivered = world.seen[SERVER].iter().filter_map(|(_, _, seen)| match seen {
        Seen::Message(1, bytes) => Some(Ok(bytes[0])),
        Seen::Skipped(1, count) => Some(Err(*count)),
        _ => None,
    });
    delivered.collect()
}

#[test]
fn an_expired_message_is_not_sent_and_needs_no_packet() {
    for options in [SendOptions::unreliable(), SendOptions::reliable_ordered()] {
        let mut world = World::new(1, CLEAN);
        let (client, _) = world.connected();
        world.run(Duration::from_secs(1));
        world.send_with_receipt(CLIENT, client, b"x", options.lifetime(Duration::ZERO), 1).unwrap();
        let before = world.sent.len();
        world.run(Duration::from_millis(500));
        assert_eq!(world.sent.len(), before, "{options:?}");
        assert_eq!(delivered(&world), []);
        assert_eq!(world.receipts(CLIENT), [(1, Outcome::Expired)]);
        assert_eq!(world.ends[CLIENT].stats().messages_expired, 1);
    }
}

#[test]
fn an_ordered_channel_goes_on_without_expired_messages() {
    let (mut world, client) = cut_off(2);
    let short = SendOptions::reliable_ordered().lifetime(LIFETIME);
    for byte in 0..3 {
        world.send(CLIENT, client, 1, &[byte], short).unwrap();
        world.run(Duration::from_millis(5));
    }
    world.run(2 * LIFETIME);
    restore(&mut world);
    world.send(CLIENT, client, 1, &[3], SendOptions::reliable_ordered()).unwrap();
    world.run(Duration::from_secs(1));
    let delivered = delivered(&world);
    assert_eq!(delivered.last(), Some(&Ok(3)));
    assert_eq!(delivered[..delivered.len() - 1].iter().map(|one| one.unwrap_err()).sum::<u32>(), 3);
    let stats = world.ends.each_ref().map(|end| *end.stats());
    assert_eq!((stats[CLIENT].messages_expired, stats[SERVER].messages_skipped), (3, 3));
    // Both ends are finished with it.
    world.send(CLIENT, client, 1, &[4], SendOptions::reliable_ordered()).unwrap();
    world.run(Duration::from_secs(1));
    assert_eq!(world.messages(SERVER).last(), Some(&(1, vec![4])));
}

#[test]
fn a_message_lost_within_its_lifetime_is_resent() {
    let (mut world, client) = cut_off(3);
    let long = SendOptions::reliable_ordered().lifetime(Duration::from_secs(5));
    world.send_with_receipt(CLIENT, client, &[7], long, 9).unwrap();
    world.run(Duration::from_millis(20));
    restore(&mut world);
    world.run(Duration::from_secs(2));
    assert_eq!(delivered(&world), [Ok(7)]);
    assert_eq!(world.receipts(CLIENT), [(9, Outcome::Acknowledged)]);
}

#[test]
fn every_receipt_comes_once_with_its_outcome() {
    let mut world = World::new(4, CLEAN);
    let (client, _) = world.connected();
    let modes = [
        SendOptions::unreliable(),
        SendOptions::unreliable_sequenced(),
        SendOptions::reliable_unordered(),
        SendOptions::reliable_ordered(),
        SendOptions::reliable_sequenced(),
    ];
    for (receipt, options) in (1..).zip(modes) {
        world.send_with_receipt(CLIENT, client, b"x", options, receipt).unwrap();
    }
    world.run(Duration::from_secs(1));
    let mut receipts = world.receipts(CLIENT);
    receipts.sort_unstable_by_key(|(receipt, _)| *receipt);
    assert_eq!(receipts, [1, 2, 3, 4, 5].map(|receipt| (receipt, Outcome::Acknowledged)));
}

#[test]
fn the_receipt_of_a_lost_unreliable_message_says_so() {
    let (mut world, client) = cut_off(5);
    world.send_with_receipt(CLIENT, client, b"x", SendOptions::unreliable(), 1).unwrap();
    world.run(Duration::from_millis(20));
    restore(&mut world);
    for _ in 0..5 {
        world.send(CLIENT, client, 2, b"y", SendOptions::unreliable()).unwrap();
        world.run(Duration::from_millis(20));
    }
    world.run(Duration::from_secs(1));
    assert_eq!(world.receipts(CLIENT), [(1, Outcome::Lost)]);
}

#[test]
fn a_replaced_sequenced_message_gets_its_receipt() {
    let mut world = World::new(6, CLEAN);
    let (client, _) = world.connected();
    for receipt in 1..=4 {
        let options = SendOptions::reliable_sequenced();
        world.send_with_receipt(CLIENT, client, &[receipt as u8], options, receipt).unwrap();
        world.run(Duration::from_millis(1));
    }
    world.run(Duration::from_secs(1));
    let (expired, arrived) = (Outcome::Expired, Outcome::Acknowledged);
    assert_eq!(world.receipts(CLIENT), [(2, expired), (3, expired), (1, arrived), (4, arrived)]);
    assert_eq!(delivered(&world), [Ok(1), Ok(4)]);
}

#[test]
fn acked_reliable_messages_were_delivered_on_bad_links() {
    let bad_link = Link { loss: 30, duplicate: 10, jitter: Duration::from_millis(40), ..CLEAN };
    for seed in 0..20 {
        let mut world = World::new(seed, bad_link);
        let (client, _) = world.connected();
        for receipt in 1..=200_u64 {
            let options = SendOptions::reliable_ordered().lifetime(Duration::from_millis(120));
            world.send_with_receipt(CLIENT, client, &receipt.to_be_bytes(), options, receipt).unwrap();
            world.run(Duration::from_millis(5));
        }
        world.run(Duration::from_secs(5));
        let delivered: Vec<u64> = world
            .messages(SERVER)
            .iter()
            .map(|(_, bytes)| u64::from_be_bytes(bytes[..].try_into().unwrap()))
            .collect();
        assert!(delivered.is_sorted_by(|before, after| before < after), "seed {seed}");
        let receipts = world.receipts(CLIENT);
        assert_eq!(receipts.len(), 200, "seed {seed}");
        let count = |of| receipts.iter().filter(|(_, outcome)| *outcome == of).count();
        assert!(count(Outcome::Expired) > 5 && count(Outcome::Acknowledged) > 100, "seed {seed}");
        let acknowledged = receipts.iter().filter(|(_, outcome)| *outcome == Outcome::Acknowledged);
        assert!(acknowledged.into_iter().all(|(receipt, _)| delivered.contains(receipt)), "seed {seed}");
    }
}

#[test]
fn a_replaced_value_gets_its_receipt_wherever_it_was() {
    let (mut world, client) = cut_off(7);
    let options = SendOptions::reliable_latest(3);
    for receipt in 1..=3 {
        // The first two are in flight when the next is queued.
        world.send_with_receipt(CLIENT, client, &[receipt as u8], options, receipt).unwrap();
        world.run(Duration::from_millis(1));
    }
    let waits = SendOptions::reliable_latest(4);
    world.send_with_receipt(CLIENT, client, &[4], waits, 4).unwrap();
    world.send_with_receipt(CLIENT, client, &[5], waits, 5).unwrap();
    restore(&mut world);
    world.run(Duration::from_secs(2));
    let (expired, arrived) = (Outcome::Expired, Outcome::Acknowledged);
    let mut receipts = world.receipts(CLIENT);
    receipts.sort_unstable_by_key(|(receipt, _)| *receipt);
    assert_eq!(receipts, [(1, expired), (2, expired), (3, arrived), (4, expired), (5, arrived)]);
    let mut delivered: Vec<u8> = delivered(&world).into_iter().map(Result::unwrap).collect();
    delivered.sort_unstable();
    assert_eq!(delivered, [3, 5]);
}

#[test]
fn an_expired_value_is_not_resent() {
    let (mut world, client) = cut_off(8);
    let options = SendOptions::reliable_latest(3).lifetime(LIFETIME);
    world.send_with_receipt(CLIENT, client, &[1], options, 1).unwrap();
    world.run(4 * LIFETIME);
    restore(&mut world);
    world.run(Duration::from_secs(2));
    assert_eq!(delivered(&world), []);
    assert_eq!(world.receipts(CLIENT), [(1, Outcome::Expired)]);
    world.send_with_receipt(CLIENT, client, &[2], options, 2).unwrap();
    world.run(Duration::from_secs(1));
    assert_eq!(delivered(&world), [Ok(2)], "its key goes on");
}

#[test]
fn an_expired_message_blocks_no_other_while_credit_is_short() {
    let mut world = World::new(9, CLEAN);
    let (client, _) = world.connected();
    // The server's application takes nothing, so its client gets no more credit than the 128 KiB of the beginning.
    world.takes_events = false;
    for _ in 0..2 {
        world.reliable(CLIENT, client, &[7; 60_000]).unwrap();
        world.run(Duration::from_secs(2));
    }
    let delivered = |world: &World| world.ends[SERVER].stats().messages_delivered;
    assert_eq!(delivered(&world), 2);
    let ordered = SendOptions::reliable_ordered().lifetime(Duration::from_millis(100));
    world.send_with_receipt(CLIENT, client, &[7; 20_000], ordered, 1).unwrap();
    world.run(Duration::from_millis(50));
    world.send(CLIENT, client, 2, b"shot", SendOptions::reliable_unordered()).unwrap();
    world.run(Duration::from_millis(49));
    assert_eq!((delivered(&world), world.ends[CLIENT].stats().messages_expired), (2, 0));
    world.run(Duration::from_millis(20));
    assert_eq!((delivered(&world), world.ends[CLIENT].stats().messages_expired), (3, 1));
    world.takes_events = true;
    world.run(Duration::from_secs(1));
    assert_eq!(world.receipts(CLIENT), [(1, Outcome::Expired)]);
}

#[test]
fn a_message_that_expires_without_credit_needs_no_packet() {
    let mut world = World::new(10, CLEAN);
    let (client, _) = world.connected();
    world.takes_events = false;
    for _ in 0..2 {
        world.reliable(CLIENT, client, &[7; 60_000]).unwrap();
        world.run(Duration::from_secs(2));
    }
    let before = world.sent.len();
    let ordered = SendOptions::reliable_ordered().lifetime(Duration::from_millis(100));
    world.send_with_receipt(CLIENT, client, &[7; 20_000], ordered, 1).unwrap();
    world.run(Duration::from_millis(101));
    assert_eq!((world.ends[CLIENT].undelivered_bytes(client), world.sent.len()), (0, before));
}
