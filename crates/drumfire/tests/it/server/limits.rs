//! Limits that an application can reach: the largest message, the room of a peer, and the events that wait for a poll.

use std::time::Duration;

use super::world::{Polled, World, config};
use drumfire::config::MESSAGE_MAX_BYTES;
use drumfire::{Bytes, ChannelId, Event, Message, SendError, SendOptions, Workers};

use crate::single::Single as _;

const ALL: [Workers; 2] = [Workers::Inline, Workers::Count(2)];

#[test]
fn the_largest_message_arrives_and_a_larger_one_is_refused() {
    let mut world = World::connected(config(Workers::Count(2)), 1);
    let peer = world.peers[0];
    for (options, most) in [(SendOptions::reliable_ordered(), 65_536), (SendOptions::unreliable(), 16_384)] {
        let too_large = Err(SendError::TooLarge { bytes: most + 1, limit_bytes: most });
        world.heard[0].clear();
        let message = |bytes| Bytes::from(vec![0xA5; bytes]);
        assert_eq!(
            world.server.send(peer, Message::new(ChannelId(0), message(most + 1), options)),
            too_large
        );
        assert_eq!(
            world.clients[0].send_up(Message::new(ChannelId(0), message(most + 1), options)),
            too_large
        );
        for bytes in [most, MESSAGE_MAX_BYTES, 0] {
            assert_eq!(world.server.send(peer, Message::new(ChannelId(0), message(bytes), options)), Ok(()));
        }
        world.until("three messages arrived", |world| world.heard[0].len() == 3);
        let lengths: Vec<usize> = world.heard[0].iter().map(length).collect();
        assert_eq!(lengths, [most, MESSAGE_MAX_BYTES, 0]);
    }
}

fn length(event: &Event) -> usize {
    if let Event::Message { payload, .. } = event { payload.len() } else { usize::MAX }
}

/// Sends numbered messages until `Full` is returned. Returns the number of accepted messages.
fn fill(world: &mut World) -> u32 {
    let peer = world.peers[0];
    for number in 0_u32.. {
        let message = Bytes::copy_from_slice(&[number.to_be_bytes(); 50].concat());
        match world.server.send(peer, Message::reliable_ordered(ChannelId(0), message)) {
            Ok(_) => {}
            Err(SendError::Full) => return number,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("memory is bounded")
}

#[test]
fn a_full_peer_receives_all_accepted_messages_in_order() {
    for workers in ALL {
        let mut world = World::connected(config(workers).memory_bytes(8_192, 8_192), 1);
        let taken = fill(&mut world);
        assert_eq!(taken, 8_192 / 264, "each message of 200 bytes is charged 64 bytes more");
        world.until("everything arrived", |world| world.heard[0].len() == taken as usize);
        for (event, number) in world.heard[0].iter().zip(0_u32..) {
            assert!(matches!(event, Event::Message { payload, .. } if payload[..4] == number.to_be_bytes()));
        }
        // The room comes back when the client has acknowledged the messages.
        let mut again = 0;
        while again < taken {
            again += fill(&mut world);
            world.step();
        }
    }
}

#[test]
fn a_peer_that_stays_full_receives_all_messages_in_order() {
    for workers in ALL {
        let mut world = World::connected(config(workers).memory_bytes(4_096, 4_096), 1);
        let peer = world.peers[0];
        let mut sent = 0_u32;
        // Each round sends until there is no room. The memory of the connection itself is full too.
        while sent < 2_000 {
            let message = Bytes::copy_from_slice(&sent.to_be_bytes());
            match world.server.send(peer, Message::reliable_ordered(ChannelId(0), message)) {
                Ok(_) => sent += 1,
                Err(SendError::Full) => world.step(),
                Err(error) => panic!("{error}"),
            }
        }
        world.until("everything arrived", |world| world.heard[0].len() == sent as usize);
        for (event, number) in world.heard[0].iter().zip(0_u32..) {
            assert!(matches!(event, Event::Message { payload, .. } if **payload == number.to_be_bytes()));
        }
    }
}

#[test]
fn an_application_that_does_not_poll_loses_nothing_reliable() {
    const MESSAGES: u32 = 40_000;
    let mut world = World::connected(config(Workers::Count(1)), 1);
    let mut sent = 0_u32;
    let deadline = super::world::now() + Duration::from_secs(60);
    // The messages exceed the event queue, so the worker holds some, and the client has to wait.
    while world.server.control().stats().workers[0].event_queue_full == 0 {
        assert!(super::world::now() < deadline, "the event queue fills");
        let message = Bytes::copy_from_slice(&sent.to_be_bytes());
        if sent < MESSAGES
            && world.clients[0].send_up(Message::reliable_ordered(ChannelId(0), message)).is_ok()
        {
            sent += 1;
        } else {
            world.clients[0].poll(Duration::from_millis(1));
            assert!(world.clients[0].polled().all(|event| matches!(event, Event::Writable { .. })));
        }
    }
    world.until("everything arrived", |world| world.events.len() == sent as usize);
    for (event, number) in world.events.iter().zip(0_u32..) {
        assert!(matches!(event, Event::Message { payload, .. } if **payload == number.to_be_bytes()));
    }
}
