//! `Writable` after a send that returned `Full`: when it is reported, and how often. Links that lose everything for a while keep
//! the memory full.

use super::*;
use drumfire::conditioner::{Delay, Loss};
use drumfire::{ChannelId, Context, Event, Handler, Message, PeerId, SendError};

use crate::single::Single as _;

const SECOND: Duration = Duration::from_secs(1);

const CHANNEL: ChannelId = ChannelId(0);

/// The message memory of a connection, and also of the queue to it, in bytes.
const MEMORY_BYTES: usize = 32_768;

/// A payload. Memory is charged 64 bytes more for each message.
const MESSAGE: [u8; 192] = [7; 192];

/// The number of messages that fit into the queue to a connection.
const ROOM: usize = MEMORY_BYTES / 256;

/// Returns a world with one connected client, and its id at the server.
fn connected(seed: u64) -> (World, PeerId) {
    let mut world = World::new(server_config().memory_bytes(MEMORY_BYTES, MEMORY_BYTES), seed).unwrap();
    world.join(&ClientConfig::default().memory_bytes(MEMORY_BYTES, MEMORY_BYTES)).unwrap();
    world.advance(SECOND);
    let events: Vec<Event> = world.server.polled().collect();
    let [Event::Connected { peer, .. }] = events[..] else { panic!("{events:?}") };
    assert!(matches!(world.clients[0].polled().collect::<Vec<_>>()[..], [Event::Connected { .. }]));
    (world, peer)
}

/// Sets the loss of all links to all or nothing. The delay of 20 ms keeps messages in flight between two steps.
fn set_dead(world: &mut World, is_dead: bool) {
    let loss = Loss::Random(if is_dead { 1.0 } else { 0.0 });
    let delay = Delay::Constant(Duration::from_millis(20));
    world.set_links(&LinkConfig::default().loss(loss).delay(delay)).unwrap();
}

/// Sends until `Full` is returned. Returns the number of accepted messages.
fn fill<T>(mut send: impl FnMut() -> Result<T, SendError>) -> usize {
    let refused = (0..).find_map(|taken| send().err().map(|error| (taken, error)));
    let (taken, error) = refused.unwrap();
    assert_eq!(error, SendError::Full);
    taken
}

fn fill_server(world: &mut World, peer: PeerId) -> usize {
    fill(|| world.server.send(peer, Message::reliable_ordered(CHANNEL, MESSAGE.to_vec())))
}

fn fill_client(world: &mut World) -> usize {
    fill(|| world.clients[0].send_up(Message::reliable_ordered(CHANNEL, MESSAGE.to_vec())))
}

/// Polls the client until the server has an event, for at most 30 s of virtual time.
fn next_event(world: &mut World) -> Option<Event> {
    (0..30_000).find_map(|_| {
        world.advance(Duration::from_millis(1));
        world.clients[0].polled().for_each(drop);
        world.server.polled().next()
    })
}

#[test]
fn a_server_receives_one_writable_per_full() {
    let (mut world, peer) = connected(1);
    world.server.send(peer, Message::reliable_ordered(CHANNEL, MESSAGE.to_vec())).unwrap();
    world.advance(SECOND);
    assert_eq!(world.server.polled().next(), None, "no send returned Full");

    set_dead(&mut world, true);
    assert_eq!(fill_server(&mut world, peer), ROOM);
    world.advance(Duration::from_millis(1));
    for _ in 0..3 {
        assert_eq!(fill_server(&mut world, peer), 0);
    }
    world.advance(SECOND);
    assert_eq!(world.server.polled().next(), None, "no message was acknowledged");

    set_dead(&mut world, false);
    assert_eq!(next_event(&mut world), Some(Event::Writable { peer }));
    let taken = fill_server(&mut world, peer);
    assert!((ROOM / 2..ROOM).contains(&taken), "{taken}");
    assert_eq!(next_event(&mut world), Some(Event::Writable { peer }), "a send returned Full again");
    assert_eq!(next_event(&mut world), None, "no send has returned Full since");
}

#[test]
fn connected_comes_before_writable() {
    let mut world = World::new(server_config(), 2).unwrap();
    world.join(&ClientConfig::default().memory_bytes(MEMORY_BYTES, MEMORY_BYTES)).unwrap();
    assert_eq!(fill_client(&mut world), ROOM);
    world.advance(SECOND);
    let heard: Vec<Event> = world.clients[0].polled().collect();
    assert!(matches!(heard[..], [Event::Connected { .. }, Event::Writable { .. }]));
    assert_eq!(fill_client(&mut world), ROOM);
}

#[test]
fn a_connection_that_ends_reports_no_writable() {
    let (mut world, peer) = connected(3);
    set_dead(&mut world, true);
    assert_eq!((fill_server(&mut world, peer), fill_client(&mut world)), (ROOM, ROOM));
    world.advance(60 * SECOND);
    let at_server = world.server.polled().filter(|event| matches!(event, Event::Writable { .. })).count();
    let at_client = world.clients[0].polled().filter(|event| matches!(event, Event::Writable { .. })).count();
    assert_eq!((at_server, at_client), (0, 0));
    assert!(world.clients[0].is_over());
}

/// A handler that sends numbered messages to a new peer until `Full`, and continues on `Writable`.
struct WritableSender {
    sent: u32,
}

impl WritableSender {
    const MESSAGES: u32 = 3_000;

    fn fill(&mut self, context: &mut Context<'_>, peer: PeerId) {
        let mut payload = MESSAGE;
        while self.sent < Self::MESSAGES {
            payload[..4].copy_from_slice(&self.sent.to_be_bytes());
            match context.send(peer, Message::reliable_ordered(CHANNEL, context.copy(&payload))) {
                Ok(()) => self.sent += 1,
                Err(error) => return assert_eq!(error, SendError::Full),
            }
        }
    }
}

impl Handler for WritableSender {
    type Note = ();

    fn on_event(&mut self, context: &mut Context<'_>, event: Event) {
        if let Event::Connected { peer, .. } | Event::Writable { peer } = event {
            self.fill(context, peer);
        }
    }

    fn on_message(&mut self, _: &mut Context<'_>, _: PeerId, _: ChannelId, _: &[u8]) {}
}

#[test]
fn a_handler_that_sends_on_writable_delivers_every_message() {
    let config = server_config().memory_bytes(MEMORY_BYTES, MEMORY_BYTES);
    let mut world = World::serving(config, 4, |_worker| WritableSender { sent: 0 }).unwrap();
    world.join(&ClientConfig::default()).unwrap();
    let mut received = 0_u32;
    for _ in 0..6_000 {
        world.advance(Duration::from_millis(10));
        world.clients[0].poll(Duration::ZERO);
        while let Some(event) = world.clients[0].next_event() {
            if let Event::Message { payload, .. } = event {
                assert_eq!(payload[..4], received.to_be_bytes());
                received += 1;
            }
        }
    }
    assert_eq!(received, WritableSender::MESSAGES);
}

#[test]
fn broadcasts_that_no_worker_processes_are_bounded() {
    // Its workers run only while time passes.
    let config = server_config().workers(drumfire::Workers::Count(2));
    let mut world = World::new(config, 1).unwrap();
    let message = drumfire::Bytes::from_static(&[0; 60_000]);
    let mut taken = 0;
    let full = loop {
        match world
            .server
            .broadcast(drumfire::GroupId(0), Message::reliable_ordered(CHANNEL, message.clone()))
        {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(full, SendError::Full);
    assert!((100..=140).contains(&taken), "{taken}");
    world.advance(Duration::from_millis(1));
    assert_eq!(
        world.server.broadcast(drumfire::GroupId(0), Message::reliable_ordered(CHANNEL, message)),
        Ok(())
    );
}
