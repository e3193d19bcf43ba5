//! The operator's interface to a server on real sockets, from another thread.

use std::time::Duration;

use super::world::{PATIENCE, World, config, now};
use drumfire::admission::Ban;
use drumfire::control::{Survey, SurveyOrder};
use drumfire::error::{CloseCode, RefuseReason};
use drumfire::{
    ChannelId, Client, ClientConfig, CloseReason, ConnectError, Error, Event, Message, Server, ServerKey,
    Workers,
};

use crate::single::Single as _;

const ALL: [Workers; 2] = [Workers::Inline, Workers::Count(2)];

/// Returns a survey, and steps the world until it is complete.
fn survey(world: &mut World, order: SurveyOrder, most: usize) -> Survey {
    let (mut pending, mut survey) = (world.server.control().survey(order, most), None);
    world.until("all workers have answered", |_| {
        survey = pending.try_take();
        survey.is_some()
    });
    survey.expect("an answer")
}

#[test]
fn a_survey_counts_all_connections_and_returns_a_limited_list() {
    for workers in ALL {
        let mut world = World::connected(config(workers), 12);
        let found = survey(&mut world, SurveyOrder::RoundTrip, 100);
        let mut peers: Vec<_> = found.peers.iter().map(|peer| peer.peer).collect();
        assert!(found.peers.is_sorted_by(|a, b| a.round_trip >= b.round_trip));
        peers.sort_unstable();
        world.peers.sort_unstable();
        assert_eq!((peers, found.examined_count), (world.peers.clone(), 12));
        assert_eq!(found.workers.len(), world.server.control().stats().workers.len());
        assert!(found.workers.iter().all(|worker| worker.busy_percent.is_some()));
        assert_eq!(found.workers.iter().map(|worker| worker.stats.connections).sum::<usize>(), 12);
        let few = survey(&mut world, SurveyOrder::Queue, 3);
        assert_eq!((few.peers.len(), few.examined_count), (3, 12));
        assert!(world.events.is_empty(), "the application receives no event");
    }
}

#[test]
fn a_survey_of_an_unpolled_server_is_incomplete() {
    let world = World::connected(config(Workers::Inline), 1);
    let mut pending = world.server.control().survey(SurveyOrder::Rate, 1);
    assert!(pending.wait(Duration::from_millis(1)).is_none());
    let found = pending.take_partial();
    assert_eq!((found.examined_count, found.workers.len()), (0, 1));
    assert_eq!((found.workers[0].busy_percent, found.workers[0].stats.connections), (None, 1));
}

#[test]
fn a_survey_counts_the_events_that_wait_for_a_poll() {
    let mut world = World::connected(config(Workers::Count(1)), 1);
    world.clients[0].send_up(Message::reliable_ordered(ChannelId(0), "hello?")).expect("room");
    world.clients[0].flush();
    let control = world.server.control();
    let deadline = now() + PATIENCE;
    loop {
        world.clients[0].poll(Duration::from_millis(1));
        let found = control.survey(SurveyOrder::Rate, 1).wait(PATIENCE).expect("an answer");
        if found.workers[0].events_waiting == 1 {
            return;
        }
        assert!(super::world::now() < deadline, "nothing waits: {found:?}");
    }
}

#[test]
fn the_application_is_notified_of_closes_by_an_operator() {
    for workers in ALL {
        let mut world = World::connected(config(workers), 2);
        let (first, second) = (world.peers[0], world.peers[1]);
        let control = world.server.control();
        control.close(first, 9, "until tomorrow");
        world.until("it is gone", |world| world.comings[&first] == (1, 1));
        let reason = CloseReason::Local { code: CloseCode::Application, application_code: 9 };
        let is_end = |event: &Event| match event {
            Event::Disconnected { peer, closed } => {
                *peer == first && closed.reason == reason && closed.text == "until tomorrow"
            }
            _ => false,
        };
        assert!(world.events.iter().any(is_end), "{:?}", world.events);
        let (hour, loopback) = (Duration::from_secs(3_600), "127.0.0.1".parse().expect("an address"));
        let ban = std::thread::spawn(move || {
            let gone = control.close_and_ban(first, 0, "", hour).wait(PATIENCE);
            assert!(matches!(gone, Some(Err(Error::UnknownPeer))), "{gone:?}");
            control.close_and_ban(second, 8, "and stay there", hour).wait(PATIENCE)
        });
        world.until("the operator has an answer", |_| ban.is_finished());
        let ban = ban.join().expect("no panic").expect("an answer").expect("it is there");
        assert_eq!(ban, Ban::Address(loopback));
        world.until("the other is gone too", |world| world.comings[&second] == (1, 1));
        assert!(
            world
                .server
                .control()
                .bans()
                .iter()
                .any(|(ban, left)| *ban == Ban::Address(loopback) && *left <= hour)
        );
        world.join();
        world.until("it is refused", |world| !world.heard[2].is_empty());
        let Event::ConnectFailed { error: ConnectError::Refused(refusal), .. } = &world.heard[2][0] else {
            panic!("{:?}", world.heard[2])
        };
        assert_eq!(refusal.reason, RefuseReason::Banned);
    }
}

#[test]
fn an_action_does_not_wait_for_the_end_of_a_poll_without_threads() {
    let mut server = Server::bind(config(Workers::Inline)).unwrap();
    let (control, address) = (server.control(), server.local_addr());
    let operator = std::thread::spawn(move || {
        let survey = control.survey(SurveyOrder::Loss, 1).wait(PATIENCE);
        // The connection of this client ends the poll.
        let mut client = Client::new(ClientConfig::default()).unwrap();
        client.connect((address, ServerKey::dev().public())).unwrap();
        while client.events().next().is_none() {
            client.poll(PATIENCE);
        }
        survey.is_some()
    });
    assert!(server.poll(3 * PATIENCE), "a client connects");
    assert!(operator.join().unwrap(), "the survey was complete before");
}

#[test]
fn a_flight_record_goes_to_the_operator_that_requested_it() {
    let mut world = World::connected(config(Workers::Count(2)).flight_recorder(true), 1);
    let (peer, control) = (world.peers[0], world.server.control());
    world.clients[0].send_up(Message::reliable_ordered(ChannelId(0), "hello")).expect("room");
    world.until("it came", |world| world.events.iter().any(|event| matches!(event, Event::Message { .. })));
    let record = control.flight_record(peer).wait(PATIENCE).flatten().expect("it is busy");
    assert!(record.is_server && record.to_string().contains("received"), "{record}");
    assert!(!world.events.iter().any(|event| matches!(event, Event::FlightRecord { .. })));
    world.clients.clear();
    world.until("it is gone", |world| world.comings[&peer] == (1, 1));
    assert_eq!(control.flight_record(peer).wait(PATIENCE), Some(None));
}

#[test]
fn requests_to_a_server_that_has_ended_complete() {
    let world = World::connected(config(Workers::Count(2)), 1);
    let (peer, control) = (world.peers[0], world.server.control());
    drop(world);
    let survey = control.survey(SurveyOrder::Loss, 9).wait(PATIENCE).expect("it does not wait");
    assert_eq!(survey.examined_count, 0);
    assert_eq!(control.flight_record(peer).wait(PATIENCE), Some(None));
    let gone = control.close_and_ban(peer, 0, "", PATIENCE).wait(PATIENCE);
    assert!(matches!(gone, Some(Err(Error::UnknownPeer))), "{gone:?}");
    assert_eq!(control.shut_down(PATIENCE).wait(PATIENCE), Some(Vec::new()));
    assert!(matches!(control.invalidate_keys().wait(PATIENCE), Some(Ok(()))));
    // The threads have ended, and no new ones start.
    control.set_threads(2).expect("it is ignored");
    assert!(control.stats().threads.is_empty());
}
