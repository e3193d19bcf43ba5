//! Changes of settings while the threads run.

use std::time::Duration;

use super::world::{Polled, World, config};
use drumfire::config::Cookie;
use drumfire::error::RefuseReason;
use drumfire::{Client, ConnectError, Context, Error, Event, Handler, Workers, handler};

/// The client that joined last is told that there is no room.
fn is_refused(world: &mut World) {
    let last = world.clients.len() - 1;
    world.until("the last one is told something", |world| !world.heard[last].is_empty());
    let is_full = |event: &Event| {
        matches!(event, Event::ConnectFailed { error: ConnectError::Refused(refusal), .. }
            if refusal.reason == RefuseReason::Full)
    };
    assert!(is_full(&world.heard[last][0]), "{:?}", world.heard[last]);
}

/// One more client comes in. A worker that has not heard of the change yet refuses it: then another one tries.
fn is_let_in(world: &mut World) {
    for _ in 0..5 {
        world.join();
        let last = world.clients.len() - 1;
        world.until("the last one is told something", |world| !world.heard[last].is_empty());
        if matches!(world.heard[last][..], [Event::Connected { .. }]) {
            let is_out = |event: &Event| matches!(event, Event::ConnectFailed { .. });
            let inside = world.heard.iter().filter(|heard| !heard.iter().any(is_out)).count();
            return world.until("both ends know", |world| world.peers.len() == inside);
        }
    }
    panic!("no worker has heard of the change");
}

#[test]
fn all_workers_hear_of_a_change() {
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

/// Does nothing.
struct Idle;

impl Handler for Idle {
    type Note = ();

    fn on_message(&mut self, _: &mut Context<'_>, _: drumfire::PeerId, _: drumfire::ChannelId, _: &[u8]) {}
}

#[test]
fn handlers_servers_hear_of_it_too() {
    let server = handler::Server::bind(config(Workers::Count(2)), |_| Idle).expect("a server");
    let retries = |server: &drumfire::handler::Server<()>| -> u64 {
        server.control().stats().workers.iter().map(|worker| worker.protocol.retry_bytes).sum()
    };
    let connect = |server: &drumfire::handler::Server<()>| {
        let mut client = Client::connect_dev(server.local_addr()).expect("a client");
        assert!(client.poll(Duration::from_secs(60)), "nothing was said");
        assert!(matches!(client.polled().next(), Some(Event::Connected { .. })));
    };
    connect(&server);
    assert!(retries(&server) > 0);
    let cookies_under_load = config(Workers::Count(2)).cookie(Cookie::UnderLoad);
    server.control().reconfigure(&cookies_under_load).expect("it can be used");
    // Workers are told at once, and each has heard of it when it has answered somebody since.
    let deadline = super::world::now() + Duration::from_secs(30);
    loop {
        let before = retries(&server);
        connect(&server);
        if retries(&server) == before {
            break;
        }
        assert!(super::world::now() < deadline, "cookies are still asked for");
    }
    let refused = server.control().reconfigure(&cookies_under_load.connections(0));
    assert!(matches!(refused, Err(Error::Setting { field: "connections", .. })));
}
