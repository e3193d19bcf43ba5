//! The flight record of a connection, as a game receives it.

use std::time::Duration;

use crate::server::world::Polled;
use drumfire::conditioner::{LinkConfig, Loss};
use drumfire::stats::FlightRecord;
use drumfire::testing::{self, World};
use drumfire::{ChannelId, Client, ClientConfig, CloseReason, Event, Message};

use crate::single::Single as _;

const SECOND: Duration = Duration::from_secs(1);

/// Returns a connected pair whose links lose everything while both ends send. `is_on` enables the recorders.
fn cut_off(is_on: bool) -> World {
    let config = testing::server_config().flight_recorder(is_on);
    let mut world = World::new(config, 1).unwrap();
    world.join(&ClientConfig::default().flight_recorder(is_on)).unwrap();
    world.advance(SECOND);
    let Some(Event::Connected { peer, .. }) = world.server.polled().next() else { panic!("a peer") };
    assert!(matches!(world.clients[0].polled().next(), Some(Event::Connected { .. })));
    world.set_links(&LinkConfig::default().loss(Loss::Random(1.0))).unwrap();
    world.server.send(peer, Message::reliable_ordered(ChannelId(0), "hello?")).unwrap();
    world.clients[0].send_up(Message::reliable_ordered(ChannelId(0), "hello?")).unwrap();
    world.advance(11 * SECOND);
    world
}

fn check(record: &FlightRecord, is_server: bool) {
    assert_eq!((record.is_server, record.reason), (is_server, Some(CloseReason::Unacknowledged)));
    assert!(record.to_string().contains("no ack in time"), "{record}");
    assert!(record.to_qlog().contains("recovery:loss_timer_updated"));
}

#[test]
fn a_broken_connection_reports_its_record_before_the_end() {
    let mut world = cut_off(true);
    let events: Vec<Event> = world.server.polled().collect();
    let [Event::FlightRecord { peer, record }, Event::Disconnected { peer: gone, closed, .. }] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((peer, closed.reason), (gone, CloseReason::Unacknowledged));
    check(record, true);
    let events: Vec<Event> = world.clients[0].polled().collect();
    let [Event::FlightRecord { record, .. }, Event::Disconnected { .. }] = &events[..] else {
        panic!("{events:?}")
    };
    check(record, false);
}

#[test]
fn without_recorders_a_connection_has_no_flight_record() {
    let mut world = cut_off(false);
    assert!(matches!(world.server.polled().collect::<Vec<_>>()[..], [Event::Disconnected { .. }]));
    assert!(matches!(world.clients[0].polled().collect::<Vec<_>>()[..], [Event::Disconnected { .. }]));
}

#[test]
fn a_client_can_request_the_record_of_an_open_connection() {
    let mut world = testing::pair(1);
    world.join(&ClientConfig::default().flight_recorder(true)).unwrap();
    let record = |client: &mut Client| {
        client.polled().find_map(|event| match event {
            Event::FlightRecord { record, .. } => Some(record),
            _ => None,
        })
    };
    let server = world.clients[1].server();
    world.clients[1].request_flight_record(server);
    world.advance(SECOND);
    assert!(record(&mut world.clients[1]).is_none(), "there was no connection yet");
    for _ in 0..10 {
        world.clients[1].send_up(Message::unreliable(ChannelId(0), "state")).unwrap();
        world.advance(SECOND / 10);
    }
    let server = world.clients[1].server();
    world.clients[1].request_flight_record(server);
    world.advance(SECOND / 10);
    let taken = record(&mut world.clients[1]).expect("a record");
    assert!(taken.reason.is_none() && taken.entries.len() >= 10, "{taken}");
}
