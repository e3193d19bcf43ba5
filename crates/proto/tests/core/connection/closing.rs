//! A connection ends once, with a reason that both ends receive.

use crate::harness::{CLEAN, CLIENT, SERVER, Seen, World, address, identity};
use drumfire_proto::{
    Close, CloseCode, CloseError, CloseReason, ConnectError, DropReason, SendError, SendOptions,
};
use std::time::Duration;

const BYE: Close<'static> =
    Close { code: CloseCode::Application, application_code: 42, reason: b"game over" };

fn disconnects(world: &World, end: usize) -> Vec<(CloseReason, Vec<u8>)> {
    let seen = world.seen[end].iter().filter_map(|(_, _, seen)| match seen {
        Seen::Disconnected(reason, text) => Some((*reason, text.clone())),
        _ => None,
    });
    seen.collect()
}

#[test]
fn a_close_is_the_last_event_on_both_ends() {
    for closer in [CLIENT, SERVER] {
        let mut world = World::new(1, CLEAN);
        let (client, server) = world.connected();
        let (now, peers) = (world.now(), [client, server]);
        world.ends[closer].close(now, peers[closer], &BYE).unwrap();
        world.run(Duration::from_secs(5));
        let local = CloseReason::Local { code: CloseCode::Application, application_code: 42 };
        let remote = CloseReason::Remote { code: CloseCode::Application, application_code: 42 };
        assert_eq!(disconnects(&world, closer), [(local, b"game over".to_vec())]);
        assert_eq!(disconnects(&world, 1 - closer), [(remote, b"game over".to_vec())]);
        for end in [CLIENT, SERVER] {
            assert!(matches!(world.last(end), Some((_, _, Seen::Disconnected(..)))));
            assert_eq!((world.ends[end].connection_count(), world.ends[end].poll_timeout()), (0, None));
        }
    }
}

#[test]
fn no_receipt_follows_the_end_of_a_connection() {
    for options in [SendOptions::unreliable(), SendOptions::reliable_ordered()] {
        let mut world = World::new(6, CLEAN);
        let (client, server) = world.connected();
        let short = options.lifetime(Duration::from_millis(5));
        world.send_with_receipt(CLIENT, client, b"late", short, 1).unwrap();
        for _ in 0..5 {
            world.send(CLIENT, client, 1, &[1; 1_000], options).unwrap();
        }
        world.now = world.now.after(Duration::from_millis(6));
        let (now, mut memory) = (world.now(), [0; 1_200]);
        world.ends[CLIENT].close(now, client, &BYE).unwrap();
        // One packet of several, followed by another.
        world.ends[CLIENT].poll_transmit(now, &mut memory).unwrap();
        world.send(SERVER, server, 1, b"hello", options).unwrap();
        let comes = world.ends[SERVER].poll_transmit(now, &mut memory).unwrap();
        world.deliver(CLIENT, address(SERVER), &memory[..comes.bytes]);
        world.run(Duration::from_secs(5));
        assert!(
            matches!(world.last(CLIENT), Some((_, _, Seen::Disconnected(..)))),
            "{:?}",
            world.last(CLIENT)
        );
        assert_eq!(world.receipts(CLIENT), []);
    }
}

#[test]
fn every_close_code_arrives_unchanged() {
    for code in (0..8).filter_map(CloseCode::from_byte) {
        let mut world = World::new(2, CLEAN);
        let (_, server) = world.connected();
        let now = world.now();
        let close = Close { code, application_code: 0, reason: b"" };
        world.ends[SERVER].close(now, server, &close).unwrap();
        world.run(Duration::from_millis(20));
        let remote = CloseReason::Remote { code, application_code: 0 };
        assert_eq!(disconnects(&world, CLIENT), [(remote, Vec::new())]);
    }
}

#[test]
fn messages_sent_before_the_close_arrive_before_it() {
    let mut world = World::new(3, CLEAN);
    let (_, server) = world.connected();
    for number in 0..5 {
        world.reliable(SERVER, server, &[number; 600]).unwrap();
        world.send(SERVER, server, 1, &[number; 600], SendOptions::unreliable()).unwrap();
    }
    let now = world.now();
    world.ends[SERVER].close(now, server, &BYE).unwrap();
    world.run(Duration::from_millis(50));
    assert_eq!(world.messages(CLIENT).len(), 10);
    assert!(matches!(world.last(CLIENT), Some((_, _, Seen::Disconnected(..)))));
}

#[test]
fn a_lost_close_is_repeated_when_the_peer_keeps_sending() {
    let mut world = World::new(4, CLEAN);
    let (client, server) = world.connected();
    world.link.loss = 100;
    let now = world.now();
    world.ends[SERVER].close(now, server, &BYE).unwrap();
    world.flush();
    world.link.loss = 0;
    world.reliable(CLIENT, client, b"still there?").unwrap();
    world.run(Duration::from_millis(100));
    assert_eq!(disconnects(&world, CLIENT).len(), 1);
    assert_eq!(disconnects(&world, SERVER).len(), 1);
    assert_eq!(world.messages(SERVER), []);
}

#[test]
fn closing_connections_refuse_sends_and_ended_ones_are_unknown() {
    let mut world = World::new(5, CLEAN);
    let (client, _) = world.connected();
    let now = world.now();
    world.ends[CLIENT].close(now, client, &BYE).unwrap();
    assert_eq!(world.reliable(CLIENT, client, b"late"), Err(SendError::Closed));
    assert_eq!(world.ends[CLIENT].close(now, client, &BYE), Ok(()), "a second close has no effect");
    world.run(Duration::from_secs(5));
    assert_eq!(world.reliable(CLIENT, client, b"later"), Err(SendError::UnknownPeer));
    let now = world.now();
    assert_eq!(world.ends[CLIENT].close(now, client, &BYE), Err(CloseError::UnknownPeer));
    assert_eq!(disconnects(&world, CLIENT).len(), 1);
}

#[test]
fn a_stale_id_never_names_the_next_connection() {
    let mut world = World::new(6, CLEAN);
    let (first, _) = world.connected();
    let now = world.now();
    world.ends[CLIENT].close(now, first, &BYE).unwrap();
    world.run(Duration::from_secs(5));
    let (second, _) = world.connected();
    assert_ne!(first, second);
    assert_eq!(world.reliable(CLIENT, first, b"to nobody"), Err(SendError::UnknownPeer));
    assert_eq!((world.ends[CLIENT].address(first), world.ends[CLIENT].round_trip(first)), (None, None));
    assert_eq!(world.reliable(CLIENT, second, b"to the server"), Ok(()));
    world.run(Duration::from_millis(100));
    assert_eq!(world.messages(SERVER), [(0, b"to the server".to_vec())]);
}

#[test]
fn a_close_text_has_at_most_128_bytes() {
    for (bytes, taken) in [(127, true), (128, true), (129, false)] {
        let mut world = World::new(7, CLEAN);
        let (client, _) = world.connected();
        let text = vec![b'x'; bytes];
        let close = Close { reason: &text, ..BYE };
        let now = world.now();
        let expected = if taken { Ok(()) } else { Err(CloseError::TextTooLong { limit_bytes: 128 }) };
        assert_eq!(world.ends[CLIENT].close(now, client, &close), expected);
        world.run(Duration::from_millis(100));
        assert_eq!(disconnects(&world, SERVER).len(), usize::from(taken));
    }
}

#[test]
fn closing_an_attempt_ends_it_with_an_event() {
    let mut world = World::new(8, CLEAN);
    let client = world.connect();
    let now = world.now();
    world.ends[CLIENT].close(now, client, &BYE).unwrap();
    world.run(Duration::from_secs(6));
    assert_eq!(world.seen[CLIENT].len(), 1);
    assert_eq!(world.seen[CLIENT][0].2, Seen::ConnectFailed(ConnectError::Closed));
    assert!(world.ends[CLIENT].connect(now, address(SERVER), &identity(), None).is_ok());
}

#[test]
fn an_unauthenticated_close_closes_nothing() {
    let mut world = World::new(9, CLEAN);
    let (client, _) = world.connected();
    for bytes in [25, 28, 60, 96] {
        for first in [0x09, 0x0a, 0x8b, 0x8d] {
            let mut forged = vec![3; bytes];
            forged[0] = first;
            world.deliver(CLIENT, address(SERVER), &forged);
        }
    }
    world.reliable(CLIENT, client, b"alive").unwrap();
    world.run(Duration::from_millis(100));
    assert_eq!(world.messages(SERVER).len(), 1);
    assert_eq!(disconnects(&world, CLIENT), []);
    assert!(world.ends[CLIENT].stats().dropped(DropReason::Forged) >= 3);
}
