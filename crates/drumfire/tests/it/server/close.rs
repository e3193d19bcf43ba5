//! The end of connections: both ends receive it exactly once, with the reason.

use std::time::Duration;

use super::world::{Polled, World, config};
use drumfire::error::CloseCode;
use drumfire::{ChannelId, CloseReason, Event, Message, SendError, Workers};

use crate::single::Single as _;

const ALL: [Workers; 2] = [Workers::Inline, Workers::Count(2)];

#[test]
fn a_client_receives_the_close_code_and_text_of_the_server() {
    for workers in ALL {
        let mut world = World::connected(config(workers), 2);
        let peer = world.peers[0];
        world.server.send(peer, Message::reliable_ordered(ChannelId(0), "last words")).expect("room");
        world.server.close(peer, 7, "the match is over");
        assert_eq!(
            world.server.send(peer, Message::unreliable(ChannelId(0), "more")),
            Err(SendError::Closed)
        );
        world.server.close(peer, 8, "closing twice is fine");
        world.until("one client was closed", |world| world.heard.iter().any(|heard| heard.len() == 2));
        let heard = world.heard.iter().find(|heard| heard.len() == 2).expect("one was closed");
        assert!(matches!(&heard[0], Event::Message { payload, .. } if payload == "last words"));
        let reason = CloseReason::Remote { code: CloseCode::Application, application_code: 7 };
        let Event::Disconnected { closed, .. } = &heard[1] else { panic!("{heard:?}") };
        assert_eq!((closed.reason, &closed.text[..]), (reason, &b"the match is over"[..]));
        world.until("the server heard of it too", |world| world.comings[&peer] == (1, 1));
        let reason = CloseReason::Local { code: CloseCode::Application, application_code: 7 };
        let is_end = |event: &Event| match event {
            Event::Disconnected { peer: of, closed } => {
                *of == peer && closed.reason == reason && closed.text == "the match is over"
            }
            _ => false,
        };
        assert!(world.events.iter().any(is_end), "{:?}", world.events);
        world.server.close(peer, 0, "");
    }
}

#[test]
fn the_server_receives_the_close_code_and_text_of_a_client() {
    for workers in ALL {
        let mut world = World::connected(config(workers), 1);
        let peer = world.peers[0];
        let server = world.clients[0].server();
        world.clients[0].close(server, 3, "bored");
        world.until("the server received the close", |world| world.comings[&peer] == (1, 1));
        let reason = CloseReason::Remote { code: CloseCode::Application, application_code: 3 };
        let [Event::Disconnected { closed, .. }] = &world.events[..] else { panic!("{:?}", world.events) };
        assert_eq!((closed.reason, &closed.text[..]), (reason, &b"bored"[..]));
        assert!(world.clients[0].is_over());
        let late = world.clients[0].send(server, Message::unreliable(ChannelId(0), "late"));
        assert_eq!(late, Err(SendError::UnknownPeer));
    }
}

#[test]
fn a_dropped_client_sends_a_close() {
    let mut world = World::connected(config(Workers::Count(2)), 3);
    world.clients.clear();
    world.until("all are gone", |world| world.peers.is_empty());
    assert!(world.comings.values().all(|comings| *comings == (1, 1)));
}

#[test]
fn a_dropped_server_closes_its_clients() {
    for workers in ALL {
        let World { server, mut clients, .. } = World::connected(config(workers), 5);
        drop(server);
        for client in &mut clients {
            while !client.is_over() {
                assert!(client.poll(Duration::from_secs(60)), "the close arrives within a minute");
                let shutdown = CloseReason::Remote { code: CloseCode::Shutdown, application_code: 0 };
                let Some(Event::Disconnected { closed, .. }) = client.polled().last() else {
                    panic!("no end")
                };
                assert_eq!((closed.reason, &closed.text[..]), (shutdown, &b""[..]));
            }
        }
    }
}

#[test]
fn a_stale_id_does_not_name_the_next_peer_of_its_slot() {
    let mut world = World::connected(config(Workers::Count(1)).connections(1), 1);
    let stale = world.peers[0];
    world.clients.clear();
    world.heard.clear();
    world.until("the first is forgotten", |world| world.server.control().stats().connections() == 0);
    world.join();
    world.until("the second is there", |world| world.peers.len() == 1 && world.peers[0] != stale);
    let sent = world.server.send(stale, Message::reliable_ordered(ChannelId(0), "for the first"));
    assert_eq!(sent, Err(SendError::UnknownPeer));
    world.server.close(stale, 0, "");
    let peer = world.peers[0];
    world.server.send(peer, Message::reliable_ordered(ChannelId(0), "for the second")).expect("room");
    world.until("it arrived", |world| world.heard[0].len() == 2);
    assert!(matches!(&world.heard[0][1], Event::Message { payload, .. } if payload == "for the second"));
}

#[test]
fn a_close_text_is_cut_between_characters_at_its_limit() {
    let most = drumfire::config::CLOSE_TEXT_MAX_BYTES;
    // The last character has two bytes, of which one does not fit.
    for (text, expected) in
        [("x".repeat(most), most), ("x".repeat(most + 1), most), ("é".repeat(most) + "x", most)]
    {
        for shift in ["", "y"] {
            let text = format!("{shift}{text}");
            let mut world = World::connected(config(Workers::Inline), 1);
            world.server.close(world.peers[0], 0, &text);
            world.until("the client received the close", |world| !world.heard[0].is_empty());
            let Event::Disconnected { closed, .. } = &world.heard[0][0] else {
                panic!("{:?}", world.heard[0])
            };
            let heard = std::str::from_utf8(&closed.text).expect("whole characters");
            assert!(text.starts_with(heard) && (expected - 1..=expected).contains(&heard.len()), "{heard}");
        }
    }
}
