//! Changes of settings in virtual time: new connections use the new settings, and existing connections keep theirs.

use std::time::Duration;

use drumfire::conditioner::{LinkConfig, Loss};
use drumfire::config::{Congestion, Cookie};
use drumfire::error::RefuseReason;
use drumfire::stats::DropReason;
use drumfire::testing::{World, server_config};
use drumfire::tokens::{TokenAccess, TokenKey, TokenMasterKey, TokenRequest};
use drumfire::{
    Access, ChannelId, ClientConfig, CloseReason, ConnectError, Error, Event, Message, PeerId, PlayerId,
    ServerConfig, ServerKey,
};
use drumfire_proto::limits::IDLE_TIMEOUT;

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

/// Changes the settings that the servers of these tests begin with, except for those with tokens.
fn change(world: &mut World, change: impl FnOnce(&mut ServerConfig)) {
    reconfigure(world, server_config(), change);
}

fn reconfigure(world: &mut World, mut config: ServerConfig, change: impl FnOnce(&mut ServerConfig)) {
    change(&mut config);
    world.server.control().reconfigure(&config).unwrap();
}

/// Connects one more client. Returns its peer, or the reason why there is none.
fn join(world: &mut World) -> Result<PeerId, ConnectError> {
    let client = world.join(&ClientConfig::default()).unwrap();
    world.advance(SECOND);
    met(world, client)
}

/// Returns the peer of a client that connects, or the reason why there is none.
fn met(world: &mut World, client: usize) -> Result<PeerId, ConnectError> {
    let connected = server_events(world).find_map(|event| match event {
        Event::Connected { peer, .. } => Some(peer),
        _ => None,
    });
    let mut event = client_events(world, client).next();
    if event.is_none() {
        // In open access a refusal proves nothing, so a client believes it only when nothing else arrives.
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
fn a_lower_limit_closes_nothing_and_a_higher_one_admits_more() {
    let mut world = World::new(server_config().connections(2), 7).unwrap();
    let peers = [join(&mut world).unwrap(), join(&mut world).unwrap()];
    assert!(is_full(&join(&mut world)));
    change(&mut world, |config| config.connections = 1);
    world.server.close(peers[0], 0, "");
    world.advance(10 * SECOND);
    assert_eq!(server_events(&mut world).count(), 1, "the other connection stays open");
    assert!(is_full(&join(&mut world)), "the limit is one connection");
    change(&mut world, |config| config.connections = 3);
    join(&mut world).unwrap();
    join(&mut world).unwrap();
    assert!(is_full(&join(&mut world)));
    world.server.send(peers[1], Message::reliable_ordered(ChannelId(0), "still here")).unwrap();
    world.advance(SECOND);
    assert!(client_events(&mut world, 1).any(|event| matches!(event, Event::Message { .. })));
}

#[test]
fn new_timeouts_hold_for_new_connections() {
    let mut world = world();
    let before = join(&mut world).unwrap();
    change(&mut world, |config| config.idle_timeout = 2 * SECOND);
    let after = join(&mut world).unwrap();
    world.set_links(&LinkConfig::default().loss(Loss::Random(1.0))).unwrap();
    let gone = |world: &mut World| {
        let gone = server_events(world).filter_map(|event| match event {
            Event::Disconnected { peer, closed } => {
                assert_eq!(closed.reason, CloseReason::IdleTimeout);
                Some(peer)
            }
            Event::FlightRecord { .. } => None,
            other => panic!("{other:?}"),
        });
        gone.collect::<Vec<_>>()
    };
    world.advance(3 * SECOND);
    assert_eq!(gone(&mut world), [after]);
    world.advance(IDLE_TIMEOUT - 5 * SECOND);
    assert_eq!(gone(&mut world), []);
    world.advance(5 * SECOND);
    assert_eq!(gone(&mut world), [before]);
}

/// Returns the congestion window of a peer whose path has not been measured.
fn window_bytes(world: &mut World, peer: PeerId) -> usize {
    world.server.send(peer, Message::reliable_ordered(ChannelId(0), "something")).unwrap();
    // An idle connection has no window.
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
/// A fixed rate allows more bytes than this. Without it, a connection begins with ten packets.
const LARGE: usize = 100_000;

#[test]
fn a_new_controller_holds_for_new_connections() {
    let mut world = world();
    let before = join(&mut world).unwrap();
    change(&mut world, |config| config.congestion = FIXED);
    let after = join(&mut world).unwrap();
    assert!(window_bytes(&mut world, after) > LARGE);
    assert!(window_bytes(&mut world, before) < LARGE);
}

#[test]
fn new_settings_survive_a_restart_of_a_worker() {
    let mut world = world();
    change(&mut world, |config| config.congestion = FIXED);
    world.restart_worker(0);
    let after = join(&mut world).unwrap();
    assert!(window_bytes(&mut world, after) > LARGE);
    assert_eq!(world.server.control().stats().workers[0].restarts, 1);
}

#[test]
fn a_new_cookie_setting_holds_from_the_next_hello() {
    let mut world = world();
    let retries = |world: &World| world.server.control().stats().workers[0].protocol.retry_bytes;
    join(&mut world).unwrap();
    let always = retries(&world);
    assert!(always > 0);
    change(&mut world, |config| config.cookie = Cookie::UnderLoad);
    join(&mut world).unwrap();
    assert_eq!(retries(&world), always);
    change(&mut world, |config| config.cookie = Cookie::Always);
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
fn token_keys_are_rotated_while_players_stay() {
    let address = "192.0.2.1:7777".parse().unwrap();
    let config = ServerConfig::new(address, ServerKey::from_bytes([9; 32]), access(&[1]));
    let mut world = World::new(config.clone(), 7).unwrap();
    let join = |world: &mut World, player: u64, key: u32| {
        let server = ServerKey::from_bytes([9; 32]).public();
        let request = TokenRequest::new(PlayerId(player.into()), address, server);
        let token = world.issue(&request, &token_key(key)).unwrap();
        let client = world.join_with(&token, &ClientConfig::default()).unwrap();
        world.advance(10 * SECOND);
        met(world, client)
    };
    let first = join(&mut world, 1, 1).unwrap();
    assert!(join(&mut world, 2, 2).is_err(), "the key is not known yet");
    reconfigure(&mut world, config.clone(), |config| config.access = access(&[1, 2]));
    join(&mut world, 3, 1).unwrap();
    join(&mut world, 4, 2).unwrap();
    reconfigure(&mut world, config, |config| config.access = access(&[2]));
    assert!(join(&mut world, 5, 1).is_err(), "the key is no longer known");
    assert!(world.server.control().stats().dropped(DropReason::TokenForeign) > 0);
    join(&mut world, 6, 2).unwrap();
    assert_eq!(world.server.send(first, Message::reliable_ordered(ChannelId(0), "hello")), Ok(()));
}

#[test]
fn an_unusable_setting_is_named_and_changes_nothing() {
    type Change = fn(&mut ServerConfig, u64);
    let mut world = world();
    let millis = Duration::from_millis;
    let longest = u64::from(u32::MAX);
    let table: [(&str, Change, &[u64], &[u64]); 5] = [
        (
            "connections",
            |config, n| config.connections = u32::try_from(n).unwrap(),
            &[0, 4_194_305],
            &[1, 2, 4_194_304],
        ),
        (
            "worker_memory_bytes",
            |config, n| config.worker_memory_bytes = usize::try_from(n).unwrap(),
            &[0, 1_048_575],
            &[1_048_576, 1 << 40],
        ),
        ("idle_timeout", |config, n| config.idle_timeout = Duration::from_millis(n), &[999], &[1_000, 1_001]),
        (
            "unacknowledged_timeout",
            |config, n| config.unacknowledged_timeout = Duration::from_millis(n),
            &[0, 999, 1 << 32],
            &[1_000, 1_001, 0xFFFF_FFFF],
        ),
        (
            "congestion",
            |config, n| config.congestion = Congestion::Fixed { bytes_per_second: n },
            &[0, 1_199],
            &[1_200, 1_201],
        ),
    ];
    let control = world.server.control();
    let retries = |world: &World| world.server.control().stats().workers[0].protocol.retry_bytes;
    for (name, change, refused, taken) in table {
        for number in refused {
            let mut config = server_config();
            change(&mut config, *number);
            // The other setting must not change either.
            config.cookie = Cookie::UnderLoad;
            let Err(Error::Setting { field, .. }) = control.reconfigure(&config) else {
                panic!("{name} of {number} was taken");
            };
            assert_eq!(field, name, "{number}");
        }
        for number in taken {
            let mut config = server_config();
            change(&mut config, *number);
            control.reconfigure(&config).unwrap_or_else(|error| panic!("{name} of {number}: {error}"));
        }
    }
    control.reconfigure(&server_config()).unwrap();
    join(&mut world).unwrap();
    assert!(retries(&world) > 0, "no refused change has disabled cookies");
    let mut config = server_config();
    config.idle_timeout = millis(longest + 1);
    assert!(control.reconfigure(&config).is_err());
    config.idle_timeout = millis(longest);
    config.access = access(&[1]);
    let error = control.reconfigure(&config).expect_err("open access became another").to_string();
    assert!(error.starts_with("access: stays open"), "{error}");
}

#[test]
fn a_setting_that_cannot_change_is_named() {
    type Change = fn(&mut ServerConfig);
    let world = world();
    let control = world.server.control();
    let fixed: [(&str, Change); 11] = [
        ("address", |config| config.address.set_port(1)),
        ("key", |config| config.key = ServerKey::from_bytes([7; 32])),
        ("admission.retry_after", |config| config.admission.retry_after = 2 * SECOND),
        ("server_id", |config| config.server_id = "other".to_owned()),
        ("workers", |config| config.workers = drumfire::Workers::Count(2)),
        ("protocol_id", |config| config.protocol_id = 7),
        ("send_memory_bytes", |config| config.send_memory_bytes += 1),
        ("receive_memory_bytes", |config| config.receive_memory_bytes += 1),
        ("message_max_bytes", |config| config.message_max_bytes = Some(1_024)),
        ("in_flight_bytes", |config| config.in_flight_bytes += 1),
        ("flight_recorder", |config| config.flight_recorder = !config.flight_recorder),
    ];
    for (name, change) in fixed {
        let mut config = server_config();
        change(&mut config);
        let error = control.reconfigure(&config).expect_err(name).to_string();
        assert_eq!(error, format!("{name}: cannot change while the server runs"));
    }
}
