//! Clients that reconnect by themselves, in virtual time: after every unwanted end, and after no other.

use super::*;
use drumfire::admission::Ban;
use drumfire::conditioner::{Delay, Loss};
use drumfire::error::{CloseCode, RefuseReason};
use drumfire::tokens::{TokenAccess, TokenMasterKey};
use drumfire::{
    Bytes, ChannelId, ChannelOptions, CloseReason, Closed, ConnectError, ConnectOptions, Event, Message,
    PlayerId, Reconnect, ReconnectReason, SendError, ServerPublicKey, WhenFull,
};

use crate::single::Single as _;

pub(super) const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

pub(super) fn config() -> ClientConfig {
    // Flight records are tested elsewhere.
    ClientConfig::default().reconnect(Reconnect::Within(MINUTE)).flight_recorder(false)
}

/// Returns a world with connected clients that reconnect by themselves, over links of 20 ms.
pub(super) fn connected(clients: usize, seed: u64) -> World {
    let mut world = World::new(server_config(), seed).unwrap();
    for _ in 0..clients {
        world.join(&config()).unwrap();
    }
    let near = LinkConfig::default().delay(Delay::Constant(Duration::from_millis(20)));
    world.set_links(&near).unwrap();
    // With open access, each source address may have twenty handshakes a second.
    world.advance(10 * SECOND);
    world.server.polled().for_each(drop);
    for client in &mut world.clients {
        assert!(matches!(client.polled().collect::<Vec<_>>()[..], [Event::Connected { .. }]));
    }
    world
}

fn server_of_tokens() -> (ServerConfig, TokenKey, ServerPublicKey) {
    let key = TokenMasterKey::from_bytes([5; 32]).token_key(1, "eu-1").unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 7_777));
    let server = ServerKey::from_bytes([6; 32]);
    let public = server.public();
    (ServerConfig::new(address, server, Access::Token(TokenAccess::new(key.clone()))), key, public)
}

/// Returns a world with `count` connected players that reconnect by themselves.
fn players(count: u128, seed: u64) -> World {
    let (server, key, public) = server_of_tokens();
    let mut world = World::new(server, seed).unwrap();
    for player in 0..count {
        let request = TokenRequest::new(PlayerId(player), world.server.local_addr(), public);
        let token = world.issue(&request.user_data(&player.to_be_bytes()), &key).unwrap();
        world.join_with(&token, &config()).unwrap();
    }
    world.advance(2 * SECOND);
    assert_eq!(world.server.polled().count() as u128, count);
    for client in &mut world.clients {
        assert!(matches!(client.polled().collect::<Vec<_>>()[..], [Event::Connected { .. }]));
    }
    world
}

pub(super) fn say(world: &mut World, client: usize, text: &'static str) {
    world.clients[client].send_up(Message::reliable_ordered(ChannelId(0), text)).unwrap();
}

pub(super) fn events(world: &mut World, client: usize) -> Vec<Event> {
    world.clients[client].polled().collect()
}

/// Returns the reasons of all attempts to reconnect. Other events are left out.
pub(super) fn reasons(events: &[Event]) -> Vec<ReconnectReason> {
    let reason = |event: &_| match event {
        Event::Reconnecting { reason, .. } => Some(reason.clone()),
        _ => None,
    };
    events.iter().filter_map(reason).collect()
}

/// Returns the reason to reconnect after a connection ended without a close message.
pub(super) fn ended(reason: CloseReason) -> ReconnectReason {
    ReconnectReason::Ended(Box::new(Closed::new(reason, Bytes::new())))
}

/// Returns the end of a connection, which must be the only event.
pub(super) fn end(events: &[Event]) -> &Closed {
    let [Event::Disconnected { closed, .. }] = events else { panic!("{events:?}") };
    closed
}

#[test]
fn all_players_return_to_a_restarted_server() {
    let mut world = players(200, 1);
    world.restart_server();
    for client in 0..200 {
        say(&mut world, client, "hello?");
    }
    world.advance(SECOND);
    for client in 0..200 {
        let events = events(&mut world, client);
        let [Event::Reconnecting { reason, attempt: 1, delay, .. }, Event::Connected { .. }] = &events[..]
        else {
            panic!("{events:?}")
        };
        assert_eq!(*reason, ended(CloseReason::Reset));
        assert!(*delay <= Duration::from_millis(100), "{delay:?}");
    }
    let mut back: Vec<u128> = Vec::new();
    world.server.poll(Duration::ZERO);
    while let Some(event) = world.server.next_event() {
        let Event::Connected { info, .. } = event else { panic!("{event:?}") };
        let player = info.player.unwrap().0;
        assert_eq!(info.user_data[..], player.to_be_bytes());
        back.push(player);
    }
    back.sort_unstable();
    assert!(back.into_iter().eq(0..200));
}

#[test]
fn a_player_survives_repeated_restarts_with_newer_tokens() {
    let mut world = players(3, 2);
    for _ in 0..5 {
        world.restart_server();
        say(&mut world, 0, "x");
        say(&mut world, 1, "x");
        say(&mut world, 2, "x");
        world.advance(15 * SECOND);
        for client in 0..3 {
            let events = events(&mut world, client);
            assert_eq!(reasons(&events), [ended(CloseReason::Reset)]);
            assert!(matches!(events.last(), Some(Event::Connected { .. })));
        }
        assert_eq!(world.server.polled().count(), 3);
    }
}

#[test]
fn clients_reconnect_only_after_a_shutdown_for_restart() {
    let mut world = players(2, 17);
    let mut server = world.replace_server();
    let mut shutdown = server.control().shut_down_for_restart(Duration::ZERO);
    server.poll(Duration::ZERO);
    assert_eq!(shutdown.try_take(), Some(Vec::new()));
    drop(server);
    world.advance(SECOND);
    let announced = CloseReason::Remote { code: CloseCode::Shutdown, application_code: 1 };
    for client in 0..2 {
        let heard = events(&mut world, client);
        assert_eq!(reasons(&heard), [ended(announced)]);
        assert!(matches!(heard.last(), Some(Event::Connected { .. })));
    }
    drop(world.replace_server());
    world.advance(MINUTE);
    let reason = CloseReason::Remote { code: CloseCode::Shutdown, application_code: 0 };
    assert_eq!(*end(&events(&mut world, 0)), Closed::new(reason, Bytes::new()));
}

#[test]
fn a_restart_at_any_time_of_the_handshake_is_survived() {
    let mut reconnected = [0, 0];
    for milliseconds in 0..130 {
        let mut world = World::new(server_config(), 8).unwrap();
        world.join(&config()).unwrap();
        let near = LinkConfig::default().delay(Delay::Constant(Duration::from_millis(20)));
        world.set_links(&near).unwrap();
        world.advance(Duration::from_millis(milliseconds));
        // Dropping the server carries out the command and ends the shutdown, wherever it is.
        let mut shutdown = world.server.control().shut_down_for_restart(Duration::ZERO);
        drop(world.replace_server());
        assert_eq!(shutdown.try_take(), Some(Vec::new()));
        world.advance(MINUTE);
        let heard = events(&mut world, 0);
        assert!(world.clients[0].is_up(), "after {milliseconds} ms: {heard:?}");
        reconnected[usize::from(!reasons(&heard).is_empty())] += 1;
    }
    assert!(reconnected.iter().all(|count| *count > 10), "{reconnected:?}");
}

#[test]
fn the_hello_is_sent_again_with_each_reconnect() {
    let (config_of_server, key, public) = server_of_tokens();
    let mut world = World::new(config_of_server, 9).unwrap();
    let request = TokenRequest::new(PlayerId(1), world.server.local_addr(), public);
    let token = world.issue(&request.user_data(b"data"), &key).unwrap();
    world.join_with(ConnectOptions::with_token(token).hello("zed"), &config()).unwrap();
    for _ in 0..3 {
        world.advance(10 * SECOND);
        let events: Vec<_> = world.server.polled().collect();
        let [Event::Connected { info, .. }] = &events[..] else { panic!("{events:?}") };
        assert_eq!((&info.hello[..], &info.user_data[..]), (&b"zed"[..], &b"data"[..]));
        world.restart_server();
    }
    let at_client = events(&mut world, 0);
    assert!(
        at_client.iter().any(|event| matches!(event, Event::Connected { info, .. } if info.hello.is_empty()))
    );
}

#[test]
fn an_idle_client_learns_of_a_restart_within_its_keep_alive() {
    let mut world = connected(1, 3);
    world.restart_server();
    world.advance(10 * SECOND);
    assert_eq!(reasons(&events(&mut world, 0)), [ended(CloseReason::Reset)]);
    assert!(world.clients[0].is_up());
}

#[test]
fn a_client_retries_until_the_server_is_back() {
    let mut world = connected(5, 4);
    world.crash_server();
    for client in 0..5 {
        say(&mut world, client, "x");
    }
    world.advance(20 * SECOND);
    let mut heard: Vec<_> = (0..5).map(|client| events(&mut world, client)).collect();
    for client in &world.clients {
        assert!(!client.is_up() && !client.is_over());
    }
    world.restart_server();
    world.advance(12 * SECOND);
    for (client, events) in heard.iter_mut().enumerate() {
        events.extend(self::events(&mut world, client));
        let reasons = reasons(events);
        assert_eq!(reasons[0], ended(CloseReason::Unacknowledged));
        assert!(reasons[1..].iter().all(|why| *why == ReconnectReason::Failed(ConnectError::Timeout)));
        assert!(matches!(events.last(), Some(Event::Connected { .. })));
    }
}

#[test]
fn a_client_gives_up_once_and_disconnected_comes_last() {
    let mut world = connected(3, 5);
    let server = world.clients[0].server();
    world.crash_server();
    for client in 0..3 {
        say(&mut world, client, "x");
    }
    // Ten seconds until the server counts as gone, a minute of attempts, and five seconds for the last attempt.
    world.advance(10 * SECOND + MINUTE + 5 * SECOND);
    for client in 0..3 {
        let heard = events(&mut world, client);
        let [between @ .., last] = &heard[..] else { panic!("{heard:?}") };
        assert!(between.iter().all(|event| matches!(event, Event::Reconnecting { .. })), "{heard:?}");
        assert!(between.len() > 5, "{heard:?}");
        let closed = end(std::slice::from_ref(last));
        assert_eq!(closed.reason, CloseReason::Unacknowledged);
        assert_eq!(closed.reconnect_error, Some(ConnectError::Timeout));
        assert!(world.clients[client].is_over());
    }
    world.restart_server();
    world.advance(10 * MINUTE);
    assert_eq!(events(&mut world, 0), [], "a client that gave up must stay silent");
    assert_eq!(
        world.clients[0].send(server, Message::unreliable(ChannelId(0), "x")),
        Err(SendError::UnknownPeer)
    );
}

#[test]
fn clients_reconnect_after_a_long_outage_of_the_path() {
    let mut world = players(2, 8);
    world.set_links(&LinkConfig::default().loss(Loss::Random(1.0))).unwrap();
    world.advance(35 * SECOND);
    world.set_links(&LinkConfig::default()).unwrap();
    world.advance(15 * SECOND);
    for client in 0..2 {
        let heard = events(&mut world, client);
        let ReconnectReason::Ended(closed) = &reasons(&heard)[0] else { panic!("{heard:?}") };
        let is_missed = matches!(closed.reason, CloseReason::IdleTimeout | CloseReason::Unacknowledged);
        assert!(is_missed, "{heard:?}");
        assert!(matches!(heard.last(), Some(Event::Connected { .. })));
    }
}

#[test]
fn a_full_server_is_retried_after_the_requested_time() {
    let (server, key, public) = server_of_tokens();
    let mut world = World::new(server.connections(1), 9).unwrap();
    for player in 0..2 {
        let token =
            world.issue(&TokenRequest::new(PlayerId(player), world.server.local_addr(), public), &key);
        world.join_with(token.unwrap(), &config()).unwrap();
        world.advance(2 * SECOND);
    }
    let heard = events(&mut world, 1);
    let [Event::Reconnecting { reason: ReconnectReason::Failed(error), delay, .. }] = &heard[..] else {
        panic!("{heard:?}")
    };
    let ConnectError::Refused(refusal) = error else { panic!("{error:?}") };
    assert_eq!(refusal.reason, RefuseReason::Full);
    assert!(*delay >= refusal.retry_after.unwrap(), "{heard:?}");
    let server = world.clients[0].server();
    world.clients[0].close(server, 0, "");
    world.advance(*delay);
    assert!(matches!(events(&mut world, 1)[..], [Event::Connected { .. }]));
}

#[test]
fn an_unproved_refusal_stops_a_client_no_longer_than_silence() {
    let mut world = World::new(server_config(), 91).unwrap();
    let home = Ban::Prefix { address: "10.0.0.0".parse().unwrap(), bits: 8 };
    world.server.control().ban(home, 30 * SECOND).unwrap();
    world.join(&config()).unwrap();
    world.advance(MINUTE / 2);
    let heard = events(&mut world, 0);
    assert!(heard.len() >= 4, "{heard:?}");
    for event in &heard {
        let Event::Reconnecting { reason: ReconnectReason::Failed(error), delay, .. } = event else {
            panic!("{heard:?}")
        };
        let ConnectError::Refused(refusal) = error else { panic!("{error:?}") };
        assert_eq!((refusal.reason, refusal.is_proved), (RefuseReason::Banned, false));
        assert!(*delay <= 5 * SECOND, "{heard:?}");
    }
    world.advance(12 * SECOND);
    assert!(matches!(events(&mut world, 0).last(), Some(Event::Connected { .. })));
}

#[test]
fn an_unused_token_is_tried_again() {
    let (server, key, public) = server_of_tokens();
    let mut world = World::new(server, 10).unwrap();
    let request = TokenRequest::new(PlayerId(7), world.server.local_addr(), public);
    let token = world.issue(&request, &key).unwrap();
    world.join_with(&token, &config()).unwrap();
    world.set_links(&LinkConfig::default().loss(Loss::Random(1.0))).unwrap();
    world.advance(12 * SECOND);
    world.set_links(&LinkConfig::default()).unwrap();
    world.advance(8 * SECOND);
    let heard = events(&mut world, 0);
    assert!(matches!(heard.last(), Some(Event::Connected { .. })), "{heard:?}");
    assert!(!reasons(&heard).is_empty());
    // A server that began after the token was issued cannot know whether it was used, and refuses it.
    let late = world.issue(&request, &key).unwrap();
    world.advance(2 * SECOND);
    world.restart_server();
    let place = world.join_with(&late, &config()).unwrap();
    world.advance(5 * SECOND);
    let heard = events(&mut world, place);
    assert!(
        matches!(heard[..], [Event::ConnectFailed { error: ConnectError::TokenExpired, .. }]),
        "{heard:?}"
    );
}

#[test]
fn a_token_is_free_again_after_a_half_open_connection_ends() {
    let mut world = players(1, 11);
    let near = LinkConfig::default().delay(Delay::Constant(Duration::from_millis(20)));
    world.set_links(&near).unwrap();
    world.crash_server();
    say(&mut world, 0, "x");
    world.advance(13 * SECOND);
    world.restart_server();
    // The cookie arrives and the Welcome is lost. So the server holds a half-open connection with this token.
    while world.server.control().stats().workers[0].protocol.retry_bytes == 0 {
        world.advance(Duration::from_millis(1));
    }
    world.set_downlink(0, &near.clone().loss(Loss::Random(1.0))).unwrap();
    while reasons(&events(&mut world, 0)).last() != Some(&ReconnectReason::Failed(ConnectError::Timeout)) {
        world.advance(Duration::from_millis(1));
    }
    assert_eq!(world.server.control().stats().workers[0].protocol.handshakes_computed, 1);
    world.set_links(&near).unwrap();
    world.advance(15 * SECOND);
    let heard = events(&mut world, 0);
    let is_held = |why: &_| matches!(why, ReconnectReason::Failed(ConnectError::Refused(refusal)) if refusal.reason == RefuseReason::TokenUsed);
    assert!(reasons(&heard).iter().any(is_held), "{heard:?}");
    assert!(matches!(heard.last(), Some(Event::Connected { .. })));
}

#[test]
fn a_client_closed_by_either_application_does_not_reconnect() {
    let mut world = connected(3, 12);
    let kicked = server_peer(&mut world, 0);
    world.server.close(kicked, 4, "cheater");
    let server = world.clients[1].server();
    world.clients[1].close(server, 5, "bored");
    world.advance(2 * MINUTE);
    let application = |code, is_remote| {
        let (code, application_code) = (CloseCode::Application, code);
        if is_remote {
            CloseReason::Remote { code, application_code }
        } else {
            CloseReason::Local { code, application_code }
        }
    };
    let kicked = Closed::new(application(4, true), "cheater".into());
    let left = Closed::new(application(5, false), "bored".into());
    assert_eq!(*end(&events(&mut world, 0)), kicked);
    assert_eq!(*end(&events(&mut world, 1)), left);
    assert_eq!(events(&mut world, 2), []);
}

/// Returns the server's id of a client, from a message of the client.
fn server_peer(world: &mut World, client: usize) -> drumfire::PeerId {
    say(world, client, "me");
    world.advance(SECOND);
    let peer = world.server.polled().find_map(|event| match event {
        Event::Message { peer, .. } => Some(peer),
        _ => None,
    });
    peer.unwrap()
}

#[test]
fn a_close_while_reconnecting_ends_with_its_own_reason() {
    let mut world = connected(1, 13);
    world.crash_server();
    say(&mut world, 0, "x");
    world.advance(12 * SECOND);
    assert_eq!(events(&mut world, 0).len(), 1);
    assert!(!world.clients[0].is_up() && !world.clients[0].is_over());
    let server = world.clients[0].server();
    world.clients[0].close(server, 9, "enough");
    world.advance(MINUTE);
    let reason = CloseReason::Local { code: CloseCode::Application, application_code: 9 };
    assert_eq!(*end(&events(&mut world, 0)), Closed::new(reason, "enough".into()));
    assert!(world.clients[0].is_over());
}

#[test]
fn a_client_replaced_by_its_own_player_does_not_reconnect() {
    let mut world = players(1, 14);
    let resume = world.clients[0].resume_token(world.clients[0].server()).unwrap();
    world.join_with(&resume, &config()).unwrap();
    world.advance(2 * MINUTE);
    let reason = CloseReason::Remote { code: CloseCode::Replaced, application_code: 0 };
    assert_eq!(*end(&events(&mut world, 0)), Closed::new(reason, Bytes::new()));
    assert!(matches!(events(&mut world, 1)[..], [Event::Connected { .. }]));
}

#[test]
fn a_client_without_reconnect_receives_the_end() {
    let mut world = world(1, 15);
    world.advance(SECOND);
    say(&mut world, 0, "who never spoke has no record");
    world.advance(SECOND);
    world.restart_server();
    world.advance(10 * SECOND);
    let heard = events(&mut world, 0);
    assert!(matches!(heard[..2], [Event::Connected { .. }, Event::FlightRecord { .. }]), "{heard:?}");
    assert_eq!(*end(&heard[2..]), Closed::new(CloseReason::Reset, Bytes::new()));
    world.advance(MINUTE);
    assert_eq!(events(&mut world, 0), []);
}

#[test]
fn channel_options_survive_a_reconnect() {
    let mut world = connected(1, 16);
    let drops = ChannelOptions::default().when_full(WhenFull::DropNewest);
    let server = world.clients[0].server();
    world.clients[0].set_channel_options(server, ChannelId(3), drops);
    world.restart_server();
    world.advance(10 * SECOND);
    assert_eq!(reasons(&events(&mut world, 0)), [ended(CloseReason::Reset)]);
    let mut send = |channel| {
        (0..1_200).try_for_each(|_| {
            let sent = world.clients[0].send_up(Message::unreliable(ChannelId(channel), vec![0; 1_000]));
            sent.map(drop)
        })
    };
    assert_eq!((send(3), send(4)), (Ok(()), Err(SendError::Full)));
}

#[test]
fn the_same_seed_reconnects_with_the_same_datagrams() {
    let trace = |seed| {
        let mut world = players(20, seed);
        world.restart_server();
        (0..20).for_each(|client| say(&mut world, client, "x"));
        world.advance(5 * SECOND);
        world.trace()
    };
    assert_eq!(trace(1), trace(1));
    assert_ne!(trace(1), trace(2));
}

#[test]
fn a_server_process_accepts_a_resume_token_once() {
    let mut world = players(1, 18);
    let resume = world.clients[0].resume_token(world.clients[0].server()).unwrap();
    for round in 0..2 {
        for is_taken in [true, false] {
            let place = world.join_with(&resume, &config()).unwrap();
            world.advance(2 * SECOND);
            let heard = events(&mut world, place);
            assert_eq!(
                matches!(heard.first(), Some(Event::Connected { .. })),
                is_taken,
                "round {round}: {heard:?}"
            );
            if !is_taken {
                let [Event::ConnectFailed { error: ConnectError::Refused(refusal), .. }] = &heard[..] else {
                    panic!("{heard:?}")
                };
                assert_eq!(refusal.reason, RefuseReason::TokenUsed);
            }
        }
        // All clients close, so that no client reconnects by itself after the restart.
        for client in &mut world.clients {
            let server = client.peers().next();
            if let Some(server) = server {
                client.close(server, 0, "");
            }
        }
        world.advance(SECOND);
        world.restart_server();
    }
}

/// Returns the first event of a client that connects to server `id` with a resume token of server `other_id`.
/// Both servers have the same key.
fn with_the_resume_token_of(other_id: &str, id: &str) -> Option<Event> {
    let start = |id: &str, seed| {
        let (mut server, key, public) = server_of_tokens();
        server.server_id = id.to_owned();
        (World::new(server, seed).unwrap(), key, public)
    };
    let (mut other, key, public) = start(other_id, 61);
    let request = TokenRequest::new(PlayerId(1), other.server.local_addr(), public);
    let token = other.issue(&request, &key).unwrap();
    other.join_with(&token, &ClientConfig::default()).unwrap();
    other.advance(SECOND);
    other.clients[0].poll(Duration::ZERO);
    let resume = other.clients[0].resume_token(other.clients[0].server()).expect("the server sent one");
    let (mut world, ..) = start(id, 62);
    world.join_with(&resume, &ClientConfig::default()).unwrap();
    world.advance(10 * SECOND);
    world.clients[0].polled().next()
}

#[test]
fn a_resume_token_is_for_servers_of_one_id() {
    for id in ["", "eu-1"] {
        assert!(matches!(with_the_resume_token_of(id, id), Some(Event::Connected { .. })), "{id:?}");
    }
    for (other_id, id) in [("", "eu-1"), ("eu-1", ""), ("eu-1", "eu-2")] {
        let event = with_the_resume_token_of(other_id, id);
        let Some(Event::ConnectFailed { error: ConnectError::Refused(refusal), .. }) = event else {
            panic!("{other_id:?} to {id:?}: {event:?}")
        };
        assert_eq!(refusal.reason, RefuseReason::TokenUnreadable);
    }
}
