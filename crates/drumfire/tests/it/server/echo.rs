//! Echoed messages over real sockets, with and without threads.

use std::time::Duration;

use super::world::{Polled, World, config, possible, shares_ports};
use std::net::SocketAddr;

use drumfire::{
    Access, Bytes, ChannelId, ClientConfig, Event, Message, Outcome, SendOptions, ServerConfig, ServerKey,
    Workers,
};

use crate::single::{Single as _, connect};

const RELIABLE: ChannelId = ChannelId(0);
const UNRELIABLE: ChannelId = ChannelId(1);

fn options(channel: ChannelId) -> SendOptions {
    if channel == RELIABLE { SendOptions::reliable_ordered() } else { SendOptions::unreliable() }
}

fn numbered_payload(client: usize, number: u32) -> Bytes {
    let mut bytes = vec![u8::try_from(client).expect("few clients"); 20 + number as usize % 100];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes.into()
}

/// Returns the numbers that a client received on a channel, after a check of every byte.
fn numbers(heard: &[Event], client: usize, on: ChannelId) -> Vec<u32> {
    let mut numbers = Vec::new();
    for event in heard {
        if let Event::Message { channel, payload, .. } = event
            && *channel == on
        {
            let number = u32::from_be_bytes(payload[..4].try_into().expect("four bytes"));
            assert_eq!(*payload, numbered_payload(client, number));
            numbers.push(number);
        }
    }
    numbers
}

fn answer(world: &mut World) {
    for event in std::mem::take(&mut world.events) {
        if let Event::Message { peer, channel, payload } = event {
            world
                .server
                .send(peer, Message::new(channel, payload, options(channel)))
                .expect("room for an answer");
        }
    }
    world.server.flush();
}

fn echo(workers: Workers) {
    const MESSAGES: u32 = 100;
    let mut world = World::connected(config(workers), 6);
    for (client, at) in world.clients.iter_mut().zip(0..) {
        for number in 0..MESSAGES {
            for channel in [RELIABLE, UNRELIABLE] {
                client
                    .send_up(Message::new(channel, numbered_payload(at, number), options(channel)))
                    .expect("room");
            }
        }
        client.flush();
    }
    world.until("every reliable message came back", |world| {
        answer(world);
        world.heard.iter().zip(0..).all(|(heard, at)| numbers(heard, at, RELIABLE).len() == MESSAGES as usize)
    });
    for (heard, at) in world.heard.iter().zip(0..) {
        assert!(
            numbers(heard, at, RELIABLE).into_iter().eq(0..MESSAGES),
            "each reliable message arrives once and in order"
        );
        let mut unreliable = numbers(heard, at, UNRELIABLE);
        assert!(!unreliable.is_empty());
        unreliable.sort_unstable();
        assert!(
            unreliable.windows(2).all(|pair| pair[0] < pair[1]),
            "each unreliable message arrives at most once"
        );
    }
    assert_eq!(world.server.control().stats().unexplained(), 0);
}

#[test]
fn messages_come_back_without_a_thread() {
    echo(Workers::Inline);
}

#[test]
fn messages_come_back_from_one_two_and_four_threads() {
    for threads in [1, 2, 4] {
        echo(Workers::Count(threads));
    }
}

#[test]
fn messages_come_back_from_one_thread_per_core() {
    echo(Workers::Auto);
}

#[test]
fn messages_sent_while_connecting_arrive_after_connected() {
    let mut world = World::new(config(Workers::Count(2)), 1);
    world.clients[0].send_up(Message::new(RELIABLE, "early", options(RELIABLE))).expect("room");
    world.until("the message arrived", |world| world.events.len() == 2);
    assert!(matches!(world.events[0], Event::Connected { .. }));
    assert!(matches!(&world.events[1], Event::Message { payload, .. } if payload == "early"));
}

#[test]
fn events_left_by_a_loop_come_with_the_next_poll() {
    let mut world = World::connected(config(Workers::Inline), 1);
    for number in 0..10 {
        world.clients[0]
            .send_up(Message::new(RELIABLE, numbered_payload(0, number), options(RELIABLE)))
            .expect("room");
    }
    world.clients[0].flush();
    let mut seen = Vec::new();
    while seen.len() < 10 {
        world.server.poll(std::time::Duration::from_millis(1));
        seen.extend(world.server.polled().next());
        world.clients[0].poll(Duration::ZERO);
    }
    for (event, number) in seen.iter().zip(0..) {
        assert!(matches!(event, Event::Message { payload, .. } if *payload == numbered_payload(0, number)));
    }
}

#[test]
fn a_server_on_all_addresses_replies_from_the_requested_one() {
    let loopback = [[127, 0, 0, 1], [127, 0, 0, 2], [127, 9, 9, 9]];
    // On a platform that does not report the destination address, only the first address is guaranteed.
    let count = if shares_ports() { loopback.len() } else { 1 };
    let reached = &loopback[..count];
    for workers in [Workers::Inline, Workers::Count(2)] {
        let key = ServerKey::generate().expect("randomness");
        let public = key.public();
        let config = ServerConfig::new("0.0.0.0:0".parse().expect("an address"), key, Access::Open);
        let mut world = World::new(config.workers(possible(workers)), 0);
        let port = world.server.local_addr().port();
        for ip in reached {
            let server = SocketAddr::from((*ip, port));
            world.clients.push(connect((server, public), &ClientConfig::default()).expect("a client"));
            world.heard.push(Vec::new());
        }
        world.until("all are connected", |world| {
            world.peers.len() == reached.len() && world.heard.iter().all(|heard| !heard.is_empty())
        });
    }
}

#[test]
fn receipts_report_outcomes_and_end_with_the_connection() {
    for workers in [Workers::Inline, Workers::Count(2)] {
        let mut world = World::connected(config(workers), 1);
        let sent: Vec<_> = (0..10)
            .map(|number| {
                let message = Message::reliable_ordered(RELIABLE, numbered_payload(0, number));
                let server = world.clients[0].server();
                world.clients[0].send_with_receipt(server, message).expect("room")
            })
            .collect();
        assert_eq!(world.clients[0].send_up(Message::reliable_ordered(RELIABLE, "none")), Ok(()));
        let answered = |world: &World| -> Vec<_> {
            let receipts = world.heard[0].iter().filter_map(|event| match event {
                Event::Receipt { receipt, outcome, .. } => Some((*receipt, *outcome)),
                _ => None,
            });
            receipts.collect()
        };
        world.until("all are answered", |world| answered(world).len() == 10);
        assert!(
            answered(&world).into_iter().eq(sent.into_iter().map(|receipt| (receipt, Outcome::Acknowledged)))
        );
        // The receipt of a message in flight comes before the end of the connection.
        let message = Message::reliable_ordered(RELIABLE, "and gone");
        let server = world.clients[0].server();
        let last = world.clients[0].send_with_receipt(server, message).expect("room");
        let server = world.clients[0].server();
        world.clients[0].close(server, 1, "bye");
        world.until("it is over", |world| matches!(world.heard[0].last(), Some(Event::Disconnected { .. })));
        assert_eq!(answered(&world).len(), 11);
        assert_eq!(answered(&world)[10].0, last);
    }
}
