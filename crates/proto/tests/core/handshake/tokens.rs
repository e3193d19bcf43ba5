//! Access by token: which clients are accepted, once, and the notice to the others.

use crate::harness::{
    CLEAN, CLIENT, InFlightDatagram, REFUSE_KIND, SERVER, Seen, World, address, identity, server_config,
};
use drumfire_proto::{
    Access, ClientConfig, Close, CloseCode, CloseReason, Config, ConnectError, ConnectRequest, DropReason,
    Endpoint, Inbound, IssuedToken, LiveConfig, LocalAddress, PlayerId, RefuseReason, Route, Secret,
    SingleWorker, Token, TokenAccess, TokenId, TokenKey, TokenKind, TokenMasterKey,
};
use drumfire_tries::tries;
use std::time::Duration;

pub(crate) const NOW: Duration = Duration::from_secs(1_700_000_000);

pub(crate) fn key(id: u32) -> TokenKey {
    TokenMasterKey::new(Secret::new([7; 32])).token_key(id, b"eu-1").unwrap()
}

pub(crate) fn token(number: u8) -> Token {
    Token {
        kind: TokenKind::Connect,
        id: TokenId([number; 16]),
        player: PlayerId(number.into()),
        psk: Secret::new([number; 32]),
        audience: 3,
        issued_at: NOW,
        expires_at: NOW + Duration::from_secs(60),
        session_ends_at: None,
        placement_key: None,
        user_data: vec![number; 5].into(),
    }
}

pub(crate) fn issued(token: &Token) -> IssuedToken {
    key(1).issue(token, 0, [1; 24]).unwrap()
}

fn server(since: Duration) -> Endpoint {
    let access = Access::Token(TokenAccess { keys: vec![key(1), key(2)], audience: 3, since });
    let config = server_config().access(access);
    Endpoint::server(Config::default(), config, SingleWorker::default(), Secret::new([8; 32])).unwrap()
}

/// A client with many connections, and a server that requires tokens.
fn world(seed: u64) -> World {
    let mut world = World::with(seed, CLEAN, Config::default(), ClientConfig::many());
    world.wall = NOW;
    world.ends[SERVER] = server(NOW - Duration::from_secs(10));
    world
}

fn connect(world: &mut World, token: Option<&IssuedToken>) {
    let now = world.now();
    world.ends[CLIENT].connect(now, address(SERVER), &identity(), token).unwrap();
}

/// Returns the outcome of an attempt, and its delay.
fn outcome(world: &mut World, token: Option<&IssuedToken>) -> (Seen, Duration) {
    let start = world.now;
    connect(world, token);
    world.run(Duration::from_secs(6));
    let (at, _, seen) = world.last(CLIENT).unwrap().clone();
    (seen, at.since(start))
}

fn reason(seen: &Seen) -> RefuseReason {
    match seen {
        Seen::ConnectFailed(ConnectError::Refused(refusal)) => refusal.reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_token_admits_and_identifies_its_player() {
    let mut world = world(1);
    let (seen, _) = outcome(&mut world, Some(&issued(&token(9))));
    assert_eq!(seen, Seen::Connected);
    assert_eq!(world.players, [(PlayerId(9), vec![9; 5])]);
    let rotated = key(2).issue(&token(4), 0, [2; 24]).unwrap();
    assert_eq!(outcome(&mut world, Some(&rotated)).0, Seen::Connected);
    assert_eq!(world.players.len(), 2);
}

#[test]
fn a_token_opens_one_session_and_the_next_use_is_refused() {
    let mut world = world(2);
    let token = issued(&token(9));
    assert_eq!(outcome(&mut world, Some(&token)).0, Seen::Connected);
    let (seen, after) = outcome(&mut world, Some(&token));
    assert_eq!(reason(&seen), RefuseReason::TokenUsed);
    assert!(after < Duration::from_millis(100), "{after:?}: the refusal proves itself");
    assert_eq!(world.ends[SERVER].stats().dropped(DropReason::TokenUsed), 1);
    let peer = world.peers(SERVER)[0];
    let (now, bye) = (world.now(), Close { code: CloseCode::Application, application_code: 0, reason: b"" });
    world.ends[SERVER].close(now, peer, &bye).unwrap();
    world.run(Duration::from_secs(10));
    assert_eq!(world.ends[SERVER].connection_count(), 0);
    assert_eq!(reason(&outcome(&mut world, Some(&token)).0), RefuseReason::TokenUsed);
}

#[test]
fn each_invalid_token_is_refused_with_its_own_reason() {
    let mut world = world(3);
    let expired = Token {
        issued_at: NOW - Duration::from_secs(9),
        expires_at: NOW - Duration::from_secs(6),
        ..token(1)
    };
    let old = Token { issued_at: NOW - Duration::from_secs(11), ..token(2) };
    for out_of_date in [expired, old] {
        let (seen, after) = outcome(&mut world, Some(&issued(&out_of_date)));
        assert_eq!(seen, Seen::ConnectFailed(ConnectError::TokenExpired));
        assert!(after < Duration::from_millis(100), "{after:?}");
    }
    assert_eq!(world.ends[SERVER].stats().dropped(DropReason::TokenExpired), 2);
    let other_audience = Token { audience: 4, ..token(3) };
    let (seen, after) = outcome(&mut world, Some(&issued(&other_audience)));
    assert!(reason(&seen) == RefuseReason::TokenForeign && after < Duration::from_millis(100), "{after:?}");
    // A server that cannot read the token cannot authenticate its refusal, so the client believes it after a second.
    let master = TokenMasterKey::new(Secret::new([7; 32]));
    let unreadable = [
        master.token_key(1, b"eu-2").unwrap().issue(&token(4), 0, [3; 24]).unwrap(),
        master.token_key(3, b"eu-1").unwrap().issue(&token(4), 0, [3; 24]).unwrap(),
        key(1).issue(&token(4), 1, [3; 24]).unwrap(),
    ];
    for unreadable in &unreadable {
        let (seen, after) = outcome(&mut world, Some(unreadable));
        assert!(
            reason(&seen) == RefuseReason::TokenUnreadable && after < Duration::from_secs(2),
            "{after:?}"
        );
    }
    assert_eq!(reason(&outcome(&mut world, None).0), RefuseReason::TokenMissing);
    let stats = world.ends[SERVER].stats();
    assert!(stats.dropped(DropReason::TokenMissing) >= 3 && stats.dropped(DropReason::TokenForeign) >= 10);
    assert_eq!((stats.handshakes_computed, world.peers(SERVER).len()), (0, 0));
}

#[test]
fn a_token_issued_in_the_second_of_the_start_is_accepted() {
    let mut world = world(8);
    let first = Token { issued_at: NOW - Duration::from_secs(10), ..token(1) };
    assert_eq!(outcome(&mut world, Some(&issued(&first))).0, Seen::Connected);
}

#[test]
fn a_running_server_replaces_its_keys_and_audience() {
    let mut world = world(9);
    let mut live = LiveConfig::new(&Config::default());
    let since = NOW - Duration::from_secs(10);
    live.access = Access::Token(TokenAccess { keys: vec![key(2)], audience: 4, since });
    world.ends[SERVER].reconfigure(&live).unwrap();
    let new = Token { audience: 4, ..token(1) };
    let old_key = issued(&new);
    assert_eq!(reason(&outcome(&mut world, Some(&old_key)).0), RefuseReason::TokenUnreadable);
    let new = key(2).issue(&new, 0, [1; 24]).unwrap();
    assert_eq!(outcome(&mut world, Some(&new)).0, Seen::Connected);
}

#[test]
fn a_token_without_its_secret_fails_at_the_first_mac() {
    let mut world = world(4);
    let stolen = IssuedToken { psk: Secret::new([0; 32]), ..issued(&token(5)) };
    let (seen, _) = outcome(&mut world, Some(&stolen));
    assert_eq!(seen, Seen::ConnectFailed(ConnectError::Timeout));
    let stats = world.ends[SERVER].stats();
    assert_eq!(stats.handshakes_computed, 0);
    assert!(stats.dropped(DropReason::BadMac1) >= 4);
    assert_eq!(outcome(&mut world, Some(&issued(&token(5)))).0, Seen::Connected, "the token is not spent");
}

#[test]
fn a_token_is_reusable_after_its_handshake_failed() {
    let mut world = world(5);
    let token = issued(&token(6));
    connect(&mut world, Some(&token));
    // The Welcome never arrives.
    for _ in 0..2_000 {
        world.run(Duration::from_millis(5));
        world.in_flight.retain(|_, datagram| datagram.bytes[0] != 0x8c);
    }
    assert_eq!(world.ends[SERVER].connection_count(), 0);
    assert_eq!(outcome(&mut world, Some(&token)).0, Seen::Connected);
}

#[test]
fn a_new_token_of_a_player_replaces_the_older_session() {
    let mut world = world(6);
    let again = Token { id: TokenId([99; 16]), psk: Secret::new([98; 32]), ..token(7) };
    outcome(&mut world, Some(&issued(&token(7))));
    connect(&mut world, Some(&issued(&again)));
    world.run(Duration::from_secs(1));
    let replaced = world.peers(SERVER)[0];
    let code = CloseCode::Replaced;
    let local = Seen::Disconnected(CloseReason::Local { code, application_code: 0 }, Vec::new());
    assert!(world.seen[SERVER].iter().any(|(_, peer, seen)| *peer == replaced && *seen == local));
    let remote = Seen::Disconnected(CloseReason::Remote { code, application_code: 0 }, Vec::new());
    assert!(world.seen[CLIENT].iter().any(|(_, _, seen)| *seen == remote));
    world.run(Duration::from_secs(10));
    assert_eq!(world.ends[SERVER].connection_count(), 1);
}

#[test]
fn a_session_ends_at_the_time_in_its_token() {
    let mut world = world(7);
    let short = Token { session_ends_at: Some(NOW + Duration::from_secs(3)), ..token(8) };
    connect(&mut world, Some(&issued(&short)));
    let start = world.now;
    world.run(Duration::from_millis(2_900));
    assert_eq!(world.ends[SERVER].connection_count(), 1);
    world.run(Duration::from_secs(1));
    let (at, _, seen) = world.last(CLIENT).unwrap();
    let code = CloseCode::SessionEnded;
    assert_eq!(*seen, Seen::Disconnected(CloseReason::Remote { code, application_code: 0 }, Vec::new()));
    let after = at.since(start);
    assert!(after >= Duration::from_secs(3) && after < Duration::from_millis(3_200), "{after:?}");
}

#[test]
fn the_token_of_an_ended_session_is_refused() {
    let ends = NOW + Duration::from_secs(30);
    // The server checks the second Hello, three delays of 10 ms later.
    let judged = Duration::from_millis(30);
    for (wall, is_let_in) in [
        (ends - Duration::from_nanos(1), true),
        (ends, false),
        (ends + Duration::from_nanos(1), false),
        (ends + Duration::from_secs(20), false),
    ] {
        let mut world = world(8);
        world.wall = wall - judged;
        let over = issued(&Token { session_ends_at: Some(ends), ..token(10) });
        let (seen, _) = outcome(&mut world, Some(&over));
        if is_let_in {
            assert_eq!(world.players.len(), 1, "{wall:?}, and then {seen:?}");
        } else {
            assert_eq!(seen, Seen::ConnectFailed(ConnectError::TokenExpired), "{wall:?}");
            assert!(world.seen[SERVER].is_empty() && world.players.is_empty());
            assert_eq!(world.ends[SERVER].stats().dropped(DropReason::TokenExpired), 1);
        }
    }
}

/// `DRUMFIRE_SEEDS=10000` runs more.
fn seeds() -> u64 {
    std::env::var("DRUMFIRE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(200)
}

#[test]
fn a_copied_and_raced_hello_still_connects_its_owner() {
    for seed in 0..seeds() {
        let mut world = world(100 + seed);
        connect(&mut world, Some(&issued(&token(9))));
        let copier = "203.0.113.66:6666".parse().unwrap();
        // The attacker sees everything the client sends, is always faster, and gets the responses to its own address.
        for _ in 0..200 {
            world.flush();
            let copies: Vec<Vec<u8>> = world
                .in_flight
                .values()
                .filter(|f| f.to == SERVER && f.from == address(CLIENT))
                .map(|f| f.bytes.clone())
                .collect();
            let mut retries = world.stray.iter().filter(|(to, bytes)| *to == copier && bytes[0] == 0x8a);
            let cookie: Option<Vec<u8>> = retries.next_back().map(|(_, retry)| retry[9..41].to_vec());
            for mut bytes in copies {
                if let Some(cookie) = &cookie
                    && bytes[0] == 0x89
                {
                    bytes[540..572].copy_from_slice(cookie);
                }
                let at = world.now;
                world.inject(at, InFlightDatagram { from: copier, to: SERVER, bytes });
            }
            world.run(Duration::from_millis(5));
        }
        assert!(world.stray.iter().any(|(_, bytes)| bytes[0] == 0x8c), "the copy was answered too");
        assert_eq!(world.peers(CLIENT).len(), 1, "seed {seed}");
        assert_eq!(world.peers(SERVER).len(), 1, "seed {seed}");
        world.run(Duration::from_secs(1));
        let (client, server) = (world.peers(CLIENT)[0], world.peers(SERVER)[0]);
        world.reliable(SERVER, server, b"welcome").unwrap();
        world.reliable(CLIENT, client, b"thanks").unwrap();
        world.run(Duration::from_secs(1));
        assert_eq!(world.ends[SERVER].address(server), Some(address(CLIENT)), "seed {seed}");
        assert_eq!((world.messages(CLIENT).len(), world.messages(SERVER).len()), (1, 1), "seed {seed}");
    }
}

#[test]
fn a_server_without_tokens_refuses_tokens_with_the_reason() {
    let mut world = World::with(9, CLEAN, Config::default(), ClientConfig::many());
    let (seen, after) = outcome(&mut world, Some(&issued(&token(1))));
    assert_eq!(reason(&seen), RefuseReason::TokenUnexpected);
    assert!(after < Duration::from_secs(2), "{after:?}");
    assert!(world.ends[SERVER].stats().dropped(DropReason::UnexpectedToken) >= 3);
    assert!(world.sent.iter().any(|(_, end, bytes)| *end == SERVER && bytes[0] == REFUSE_KIND));
}

/// Returns the resume token of the client's newest connection.
fn resume(world: &World) -> IssuedToken {
    let client = *world.peers(CLIENT).last().unwrap();
    world.ends[CLIENT].resume_token(client).expect("the server sent one").0.duplicate()
}

#[test]
fn a_player_returns_to_a_restarted_server_by_resume_token() {
    let mut world = world(20);
    assert_eq!(outcome(&mut world, Some(&issued(&token(9)))).0, Seen::Connected);
    let resume = resume(&world);
    world.ends[SERVER] = server(world.now().wall);
    outcome(&mut world, Some(&issued(&token(9))));
    let refused = Seen::ConnectFailed(ConnectError::TokenExpired);
    assert!(world.seen[CLIENT].iter().any(|(_, _, seen)| *seen == refused), "it may have been used before");
    outcome(&mut world, Some(&resume));
    assert_eq!(world.players, [(PlayerId(9), vec![9; 5]), (PlayerId(9), vec![9; 5])]);
    world.run(Duration::from_secs(10));
    assert_eq!(reason(&outcome(&mut world, Some(&resume)).0), RefuseReason::TokenUsed);
}

#[test]
fn a_reserved_id_keeps_the_resume_token_after_the_end() {
    for keeps_id in [false, true] {
        let mut world = world(23);
        let (now, first) = (world.now(), issued(&token(9)));
        let to = ConnectRequest::new(address(SERVER), identity());
        let client =
            world.ends[CLIENT].connect_with(now, &ConnectRequest { token: Some(&first), keeps_id, ..to });
        let client = client.unwrap();
        world.run(Duration::from_secs(1));
        let newest = resume(&world);
        let (now, server) = (world.now(), world.peers(SERVER)[0]);
        let bye = Close { code: CloseCode::Application, application_code: 0, reason: b"" };
        world.ends[SERVER].close(now, server, &bye).unwrap();
        world.run(Duration::from_secs(1));
        assert!(matches!(world.last(CLIENT), Some((_, _, Seen::Disconnected(..)))));
        let kept = world.ends[CLIENT].resume_token(client).map(|(token, _)| token.duplicate());
        assert_eq!(kept.as_ref(), keeps_id.then_some(&newest));
        world.ends[CLIENT].forget_peer(client);
        assert!(world.ends[CLIENT].resume_token(client).is_none());
    }
}

#[test]
fn a_returning_player_closes_its_old_session() {
    let mut world = world(21);
    outcome(&mut world, Some(&issued(&token(9))));
    let (old, resume) = (world.peers(SERVER)[0], resume(&world));
    connect(&mut world, Some(&resume));
    world.run(Duration::from_secs(1));
    let replaced = CloseReason::Local { code: CloseCode::Replaced, application_code: 0 };
    let gone =
        |(_, peer, seen): &(_, _, Seen)| *peer == old && *seen == Seen::Disconnected(replaced, Vec::new());
    assert!(world.seen[SERVER].iter().any(gone));
    assert_eq!(world.peers(SERVER).len(), 2);
}

#[test]
fn resume_tokens_are_renewed_and_end_with_the_session() {
    let mut world = world(22);
    let hours = Token { session_ends_at: Some(NOW + Duration::from_secs(2_000)), ..token(9) };
    outcome(&mut world, Some(&issued(&hours)));
    let mut tokens = vec![resume(&world)];
    for _ in 0..19 {
        world.run(Duration::from_secs(100));
        let newest = resume(&world);
        if tokens.last() != Some(&newest) {
            tokens.push(newest);
        }
    }
    assert_eq!(tokens.len(), 7, "one each 300 s");
    let (_, until) = world.ends[CLIENT].resume_token(world.peers(CLIENT)[0]).unwrap();
    let end = drumfire_proto::Moment::from_nanos(1_000_000_000).after(Duration::from_secs(2_001));
    assert!(until <= end, "not past the session: {until:?}");
}

#[test]
fn resume_tokens_are_wiped_from_receive_memory() {
    let mut world = world(23);
    connect(&mut world, Some(&issued(&token(9))));
    let mut received = Vec::new();
    for _ in 0..1_000 {
        world.run(Duration::from_millis(1));
        let to_client: Vec<_> = world
            .in_flight
            .iter()
            .filter(|(_, datagram)| datagram.to == CLIENT)
            .map(|(key, _)| *key)
            .collect();
        for key in to_client {
            let mut datagram = world.in_flight.remove(&key).unwrap();
            let (now, from) = (world.now(), Route { peer: datagram.from, local: LocalAddress::ANY });
            world.ends[CLIENT].handle_datagrams(now, [Inbound { from, bytes: &mut datagram.bytes }]);
            received.push(datagram.bytes);
        }
        world.flush();
    }
    let psk = resume(&world).psk;
    assert!(received.len() > 1, "the Welcome and the token passed through this memory");
    assert!(!received.iter().any(|bytes| bytes.windows(32).any(|window| window == psk.expose())));
}

/// The first MAC does not cover a token, so one cookie would be valid for any number of Hellos with other bytes
/// there.
#[test]
fn a_token_without_a_key_id_is_silently_dropped() {
    for wants_tokens in [false, true] {
        let mut world = World::with(10, CLEAN, Config::default(), ClientConfig::many());
        if wants_tokens {
            world.ends[SERVER] = server(NOW);
        }
        connect(&mut world, None);
        for _ in 0..200 {
            world.run(Duration::from_millis(5));
            let of_client = world.in_flight.values_mut().filter(|datagram| datagram.to == SERVER);
            of_client.for_each(|datagram| datagram.bytes[300] = 1);
        }
        let stats = world.ends[SERVER].stats();
        assert!(stats.dropped(DropReason::TokenMalformed) >= 2);
        assert_eq!((stats.handshakes_computed, stats.refuse_bytes, world.peers(SERVER).len()), (0, 0, 0));
    }
}

/// How long one player keeps reconnecting: the lifetime of a resume token, minus the last half minute.
fn reconnecting_time() -> Duration {
    Duration::from_secs(tries(570).into())
}

/// Returns a connect token of this player that is issued now.
fn issued_now(world: &World, number: u8) -> IssuedToken {
    let issued_at = Duration::from_secs(world.now().wall.as_secs());
    issued(&Token { issued_at, expires_at: issued_at + Duration::from_secs(60), ..token(number) })
}

/// The other players' tokens stay valid, whatever this one does for ten minutes.
#[test]
fn frequent_reconnects_of_one_player_block_no_other_player() {
    let mut world = world(23);
    world.link.delay = Duration::from_micros(2_500);
    // It got its resume token ten minutes before the end, and uses it afterwards.
    connect(&mut world, Some(&issued(&token(8))));
    world.run(Duration::from_millis(20));
    let other = resume(&world);
    connect(&mut world, Some(&issued(&token(9))));
    world.run(Duration::from_millis(20));
    let end = world.now.after(reconnecting_time());
    let mut sessions = 0;
    while world.now < end {
        let newest = resume(&world);
        connect(&mut world, Some(&newest));
        // Two round trips to connect, and the next token with the response to the first packet.
        world.run(Duration::from_millis(15));
        sessions += 1;
        for end in [CLIENT, SERVER] {
            let newest = world.peers(end).last().copied();
            world.seen[end].retain(|(_, peer, seen)| Some(*peer) == newest && *seen == Seen::Connected);
            world.left_from[end].clear();
            world.records[end].clear();
        }
        world.sent.clear();
        world.players.clear();
    }
    assert_eq!(world.ends[SERVER].stats().connections_opened, 2 + sessions, "every attempt succeeds");
    connect(&mut world, Some(&other));
    let fresh = issued_now(&world, 7);
    connect(&mut world, Some(&fresh));
    world.run(Duration::from_millis(20));
    let mut players: Vec<_> = world.players.iter().map(|(player, _)| player.0).collect();
    players.sort_unstable();
    assert_eq!(players, [7, 8]);
}
