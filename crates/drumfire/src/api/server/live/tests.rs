//! What changes for connections that begin after a change, and what does not for those there are, in virtual time.

use std::time::Duration;

use drumfire_proto::limits::SILENT_TIMEOUT;

use crate::conditioner::{LinkConfig, Loss};
use crate::error::RefuseReason;
use crate::stats::DropReason;
use crate::testing::{World, server_config};
use crate::tokens::{TokenAccess, TokenKey, TokenMasterKey, TokenRequest};
use crate::{
    Access, ChannelId, ClientConfig, CloseReason, Congestion, ConnectError, Cookie, Event, LiveConfig,
    Message, PeerId, PlayerId, ReconfigureError, ServerConfig, ServerKey,
};

const SECOND: Duration = Duration::from_secs(1);

fn world() -> World {
    World::new(server_config(), 7).unwrap()
}

fn server_events(world: &mut World) -> impl Iterator<Item = Event> {
    world.server.poll(Duration::ZERO);
    world.server.events()
}

fn client_events(world: &mut World, client: usize) -> impl Iterator<Item = Event> {
    world.clients[client].poll(Duration::ZERO);
    world.clients[client].events()
}

fn change(world: &mut World, change: impl FnOnce(&mut LiveConfig)) {
    let mut live = world.server.live_config().clone();
    change(&mut live);
    world.server.reconfigure(&live).unwrap();
}

/// One more client; answers its peer, or why there is none.
fn join(world: &mut World) -> Result<PeerId, ConnectError> {
    let client = world.join(&ClientConfig::default()).unwrap();
    world.advance(SECOND);
    met(world, client)
}

/// What came of a client that began to connect.
fn met(world: &mut World, client: usize) -> Result<PeerId, ConnectError> {
    let connected = server_events(world).find_map(|event| match event {
        Event::Connected { peer, .. } => Some(peer),
        _ => None,
    });
    let mut event = client_events(world, client).next();
    if event.is_none() {
        // In open access anybody could have written a refusal: a client believes it when nothing else comes.
        world.advance(9 * SECOND);
        event = client_events(world, client).next();
    }
    match event {
        Some(Event::Connected { .. }) => Ok(connected.expect("both ends")),
        Some(Event::ConnectFailed { error, .. }) => Err(error),
        other => panic!("{other:?}"),
    }
}

fn is_full(answer: &Result<PeerId, ConnectError>) -> bool {
    matches!(answer, Err(ConnectError::Refused(refusal)) if refusal.reason == RefuseReason::Full)
}

#[test]
fn fewer_connections_close_none_and_more_let_others_in() {
    let mut world = World::new(server_config().connections(2), 7).unwrap();
    let peers = [join(&mut world).unwrap(), join(&mut world).unwrap()];
    assert!(is_full(&join(&mut world)));
    change(&mut world, |live| live.connections = 1);
    world.server.close(peers[0], 0, "").unwrap();
    world.advance(10 * SECOND);
    assert_eq!(server_events(&mut world).count(), 1, "the other is still there");
    assert!(is_full(&join(&mut world)), "one is as many as may be");
    change(&mut world, |live| live.connections = 3);
    join(&mut world).unwrap();
    join(&mut world).unwrap();
    assert!(is_full(&join(&mut world)));
    world.server.send(peers[1], Message::reliable_ordered(ChannelId(0), "still here")).unwrap();
    world.advance(SECOND);
    assert!(client_events(&mut world, 1).any(|event| matches!(event, Event::Message { .. })));
}

#[test]
fn timeouts_hold_for_who_comes_later() {
    let mut world = world();
    let before = join(&mut world).unwrap();
    change(&mut world, |live| live.silent_timeout = 2 * SECOND);
    let after = join(&mut world).unwrap();
    world.set_links(&LinkConfig::default().loss(Loss::Even(1.0))).unwrap();
    let gone = |world: &mut World| {
        let gone = server_events(world).filter_map(|event| match event {
            Event::Disconnected { peer, closed } => {
                assert_eq!(closed.reason, CloseReason::Silent);
                Some(peer)
            }
            Event::FlightRecord { .. } => None,
            other => panic!("{other:?}"),
        });
        gone.collect::<Vec<_>>()
    };
    world.advance(3 * SECOND);
    assert_eq!(gone(&mut world), [after]);
    world.advance(SILENT_TIMEOUT - 5 * SECOND);
    assert_eq!(gone(&mut world), []);
    world.advance(5 * SECOND);
    assert_eq!(gone(&mut world), [before]);
}

/// Bytes that may be under way to a peer of which nothing is known yet.
fn window_bytes(world: &mut World, peer: PeerId) -> usize {
    world.server.send(peer, Message::reliable_ordered(ChannelId(0), "something")).unwrap();
    // A connection that is idle has no window.
    world.advance(Duration::from_millis(1));
    world.server.request_stats(peer);
    world.advance(Duration::from_millis(1));
    let stats = server_events(world).find_map(|event| match event {
        Event::Stats { stats, .. } => Some(stats),
        _ => None,
    });
    stats.expect("they were asked for").window_bytes
}

const FIXED: Congestion = Congestion::Fixed { bytes_per_second: 1_000_000 };
/// A rate that is known needs no window; one that is not known begins with ten packets.
const LARGE: usize = 100_000;

#[test]
fn congestion_control_holds_for_who_comes_later() {
    let mut world = world();
    let before = join(&mut world).unwrap();
    change(&mut world, |live| live.congestion = FIXED);
    let after = join(&mut world).unwrap();
    assert!(window_bytes(&mut world, after) > LARGE);
    assert!(window_bytes(&mut world, before) < LARGE);
}

#[test]
fn what_was_changed_is_there_after_a_worker_began_anew() {
    let mut world = world();
    change(&mut world, |live| live.congestion = FIXED);
    world.server.core.worker(0, crate::worker::pass::Worker::start_over);
    let after = join(&mut world).unwrap();
    assert!(window_bytes(&mut world, after) > LARGE);
    assert_eq!(world.server.stats().workers[0].restarts, 1);
}

#[test]
fn cookies_are_asked_for_or_not_from_the_next_hello_on() {
    let mut world = world();
    let retries = |world: &World| world.server.stats().workers[0].protocol.retry_bytes;
    join(&mut world).unwrap();
    let always = retries(&world);
    assert!(always > 0);
    change(&mut world, |live| live.cookie = Cookie::UnderLoad);
    join(&mut world).unwrap();
    assert_eq!(retries(&world), always);
    change(&mut world, |live| live.cookie = Cookie::Always);
    join(&mut world).unwrap();
    assert_eq!(retries(&world), 2 * always);
}

fn token_key(id: u32) -> TokenKey {
    TokenMasterKey::from_bytes([0xA3; 32]).token_key(id, "a").unwrap()
}

fn access(ids: &[u32]) -> Access {
    let mut access = TokenAccess::new(token_key(1));
    access.keys = ids.iter().map(|id| token_key(*id)).collect();
    Access::Token(access)
}

#[test]
fn keys_of_tokens_are_rotated_and_players_stay() {
    let address = "192.0.2.1:7777".parse().unwrap();
    let config = ServerConfig::new(address, ServerKey::from_bytes([9; 32]), access(&[1]));
    let mut world = World::new(config, 7).unwrap();
    let join = |world: &mut World, player: u64, key: u32| {
        let server = ServerKey::from_bytes([9; 32]).public();
        let request = TokenRequest::new(PlayerId(player.into()), address, server);
        let token = world.issue(&request, &token_key(key)).unwrap();
        let client = world.join_with_token(&token, &ClientConfig::default()).unwrap();
        world.advance(10 * SECOND);
        met(world, client)
    };
    let first = join(&mut world, 1, 1).unwrap();
    assert!(join(&mut world, 2, 2).is_err(), "not known yet");
    change(&mut world, |live| live.access = access(&[1, 2]));
    join(&mut world, 3, 1).unwrap();
    join(&mut world, 4, 2).unwrap();
    change(&mut world, |live| live.access = access(&[2]));
    assert!(join(&mut world, 5, 1).is_err(), "not known any more");
    assert!(world.server.stats().dropped(DropReason::TokenForeign) > 0);
    join(&mut world, 6, 2).unwrap();
    assert_eq!(world.server.send(first, Message::reliable_ordered(ChannelId(0), "hello")), Ok(()));
}

#[test]
fn what_cannot_be_used_is_named_and_changes_nothing() {
    type Change = fn(&mut LiveConfig, u64);
    let mut world = world();
    let millis = Duration::from_millis;
    let longest = u64::from(u32::MAX);
    let table: [(&str, Change, &[u64], &[u64]); 5] = [
        (
            "connections",
            |live, n| live.connections = u32::try_from(n).unwrap(),
            &[0, 4_194_305],
            &[1, 2, 4_194_304],
        ),
        (
            "worker_memory_bytes",
            |live, n| live.worker_memory_bytes = usize::try_from(n).unwrap(),
            &[0, 1_048_575],
            &[1_048_576, 1 << 40],
        ),
        ("silent_timeout", |live, n| live.silent_timeout = Duration::from_millis(n), &[999], &[1_000, 1_001]),
        (
            "unacknowledged_timeout",
            |live, n| live.unacknowledged_timeout = Duration::from_millis(n),
            &[0, 999, 1 << 32],
            &[1_000, 1_001, 0xFFFF_FFFF],
        ),
        (
            "congestion",
            |live, n| live.congestion = Congestion::Fixed { bytes_per_second: n },
            &[0, 1_199],
            &[1_200, 1_201],
        ),
    ];
    for (name, change, refused, taken) in table {
        for number in refused {
            let mut live = world.server.live_config().clone();
            change(&mut live, *number);
            // It is all or nothing.
            live.cookie = Cookie::UnderLoad;
            let Err(ReconfigureError::Setting { field, .. }) = world.server.reconfigure(&live) else {
                panic!("{name} of {number} was taken");
            };
            assert_eq!((field, world.server.live_config().cookie), (name, Cookie::Always), "{number}");
        }
        for number in taken {
            let mut live = world.server.live_config().clone();
            change(&mut live, *number);
            assert_eq!(world.server.reconfigure(&live), Ok(()), "{name} of {number}");
        }
    }
    let mut live = world.server.live_config().clone();
    live.silent_timeout = millis(longest + 1);
    assert!(world.server.reconfigure(&live).is_err());
    live.silent_timeout = millis(longest);
    live.access = access(&[1]);
    let Err(ReconfigureError::Setting { field, problem }) = world.server.reconfigure(&live) else {
        panic!("open access became another");
    };
    assert!(field == "access" && problem.starts_with("stays open"), "{problem}");
}
