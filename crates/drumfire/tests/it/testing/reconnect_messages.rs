//! Messages of a client that reconnects, sent shortly before and after the loss of its connection, in virtual time.

use super::restarts::{SECOND, config, connected, events, reasons, say};
use super::*;
use drumfire::{ChannelId, ConnectError, Event, Message, Outcome, ReconnectReason, SendError};

use crate::single::Single as _;

fn try_to_say(world: &mut World, text: &'static str) -> Result<(), SendError> {
    world.clients[0].send_up(Message::reliable_ordered(ChannelId(0), text))
}

/// Returns the messages that the server received.
fn heard_by_server(world: &mut World) -> Vec<Vec<u8>> {
    let bytes = |event| match event {
        Event::Message { payload, .. } => Some(payload.to_vec()),
        _ => None,
    };
    world.server.polled().filter_map(bytes).collect()
}

#[test]
fn a_message_sent_before_the_loss_is_noticed_is_answered_lost() {
    let mut world = connected(1, 6);
    world.restart_server();
    let message = Message::reliable_ordered(ChannelId(0), "before");
    let server = world.clients[0].server();
    let before = world.clients[0].send_with_receipt(server, message).unwrap();
    let mut heard = Vec::new();
    // The client notices the loss when a Reset of the server arrives.
    while world.clients[0].is_up() {
        world.advance(Duration::from_millis(1));
        heard.extend(events(&mut world, 0));
    }
    assert_eq!(try_to_say(&mut world, "while it waits"), Err(SendError::NotConnected));
    world.advance(SECOND);
    heard.extend(events(&mut world, 0));
    let [
        Event::Receipt { receipt, outcome: Outcome::Lost, .. },
        Event::Reconnecting { .. },
        Event::Connected { .. },
    ] = &heard[..]
    else {
        panic!("{heard:?}")
    };
    assert_eq!(*receipt, before);
    say(&mut world, 0, "first");
    say(&mut world, 0, "second");
    world.advance(SECOND);
    assert_eq!(heard_by_server(&mut world), [b"first".to_vec(), b"second".to_vec()]);
}

#[test]
fn send_returns_not_connected_before_the_loss_is_polled() {
    let mut world = connected(1, 9);
    world.crash_server();
    say(&mut world, 0, "lost with the connection");
    // The client notices the loss and connects again, and the application has not taken the event.
    world.advance(12 * SECOND);
    assert!(!world.clients[0].is_up() && !world.clients[0].is_over());
    assert_eq!(try_to_say(&mut world, "too early"), Err(SendError::NotConnected));
    assert!(matches!(events(&mut world, 0).last(), Some(Event::Reconnecting { .. })));
    assert_eq!(try_to_say(&mut world, "too early"), Err(SendError::NotConnected));
}

#[test]
fn send_is_refused_while_attempts_wait_and_fail() {
    let mut world = connected(1, 7);
    world.crash_server();
    say(&mut world, 0, "lost with the connection");
    let (mut refused, mut heard) = (0, Vec::new());
    for _ in 0..300 {
        world.advance(Duration::from_millis(100));
        heard.extend(events(&mut world, 0));
        if !world.clients[0].is_up() {
            refused += 1;
            assert_eq!(try_to_say(&mut world, "too early"), Err(SendError::NotConnected));
        }
    }
    let failed = ReconnectReason::Failed(ConnectError::Timeout);
    assert!(reasons(&heard).iter().filter(|reason| **reason == failed).count() >= 2);
    assert!(refused > 100, "{refused}");
    world.restart_server();
    world.advance(12 * SECOND);
    assert!(matches!(events(&mut world, 0).last(), Some(Event::Connected { .. })));
    assert!(world.clients[0].is_up());
    say(&mut world, 0, "at last");
    world.advance(SECOND);
    assert_eq!(heard_by_server(&mut world), [b"at last".to_vec()]);
}

#[test]
fn a_client_that_reconnects_sends_once_it_is_connected() {
    let mut world = World::new(server_config(), 8).unwrap();
    world.join(&config()).unwrap();
    assert_eq!(try_to_say(&mut world, "too early"), Err(SendError::NotConnected));
    world.advance(SECOND);
    say(&mut world, 0, "in time");
    world.join(&ClientConfig::default()).unwrap();
    say(&mut world, 1, "with the first packets");
    world.advance(SECOND);
    assert_eq!(heard_by_server(&mut world), [b"in time".to_vec(), b"with the first packets".to_vec()]);
}
