//! Changes of settings while the threads run.

use std::time::Duration;

use super::world::{Polled, World, config};
use drumfire::config::Cookie;
use drumfire::error::RefuseReason;
use drumfire::{ConnectError, Context, Error, Event, Handler, Workers, handler};

use crate::single::connect_dev;

/// Asserts that the client that joined last was refused because the server is full.
fn is_refused(world: &mut World) {
    let last = world.clients.len() - 1;
    world.until("the last one has an event", |world| !world.heard[last].is_empty());
    let is_full = |event: &Event| {
        matches!(event, Event::ConnectFailed { error: ConnectError::Refused(refusal), .. }
            if refusal.reason == RefuseReason::Full)
    };
    assert!(is_full(&world.heard[last][0]), "{:?}", world.heard[last]);
}

/// Connects one more client. A worker that has not processed the change yet refuses it, and then another client tries.
fn is_let_in(world: &mut World) {
    for _ in 0..5 {
        world.join();
        let last = world.clients.len() - 1;
        world.until("the last one has an event", |world| !world.heard[last].is_empty());
        if matches!(world.heard[last][..], [Event::Connected { .. }]) {
            let is_out = |event: &Event| matches!(event, Event::ConnectFailed { .. });
            let inside = world.heard.iter().filter(|heard| !heard.iter().any(is_out)).count();
            return world.until("both ends know", |world| world.peers.len() == inside);
        }
    }
    panic!("no worker has heard of the change");
}

#[test]
fn all_workers_apply_a_change() {
    for workers in [Workers::Inline, Workers::Count(3)] {
        let mut world = World::connected(config(workers).connections(2), 2);
        world.join();
        is_refused(&mut world);
        let control = world.server.control();
        control.reconfigure(&config(workers).connections(4)).expect("they can be used");
        is_let_in(&mut world);
        is_let_in(&mut world);
        assert_eq!(world.peers.len(), 4);
        control.reconfigure(&config(workers).connections(1)).expect("they can be used");
        world.until("all are still there", |world| world.server.control().stats().connections() >= 4);
    }
}

/// A handler that ignores all messages.
struct Idle;

impl Handler for Idle {
    type Note = ();

    fn on_message(&mut self, _: &mut Context<'_>, _: drumfire::PeerId, _: drumfire::ChannelId, _: &[u8]) {}
}

#[test]
fn servers_with_handlers_apply_a_change() {
    let server = handler::Server::bind(config(Workers::Count(2)), |_| Idle).expect("a server");
    let retries = |server: &drumfire::handler::Server<()>| -> u64 {
        server.control().stats().workers.iter().map(|worker| worker.protocol.retry_bytes).sum()
    };
    let connect = |server: &drumfire::handler::Server<()>| {
        let mut client = connect_dev(server.local_addr()).expect("a client");
        assert!(client.poll(Duration::from_secs(60)), "an event arrives within a minute");
        assert!(matches!(client.polled().next(), Some(Event::Connected { .. })));
    };
    connect(&server);
    assert!(retries(&server) > 0);
    let cookies_under_load = config(Workers::Count(2)).cookie(Cookie::UnderLoad);
    server.control().reconfigure(&cookies_under_load).expect("it can be used");
    // The change wakes the workers immediately. Each has processed it when it replies to a later Hello.
    let deadline = super::world::now() + Duration::from_secs(30);
    loop {
        let before = retries(&server);
        connect(&server);
        if retries(&server) == before {
            break;
        }
        assert!(super::world::now() < deadline, "the server still requires cookies");
    }
    let refused = server.control().reconfigure(&cookies_under_load.connections(0));
    assert!(matches!(refused, Err(Error::Setting { field: "connections", .. })));
}
