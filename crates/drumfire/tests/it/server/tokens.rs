//! Access by token over real sockets with several workers. Each token opens one session.

use std::time::Duration;

use super::world::{World, possible};
use drumfire::error::{CloseCode, RefuseReason};
use drumfire::tokens::{TokenAccess, TokenKey, TokenMasterKey, TokenRequest};
use drumfire::{
    Access, ClientConfig, CloseReason, ConnectError, ConnectToken, Event, PlayerId, ServerConfig, ServerKey,
    ServerPublicKey, Workers,
};

use crate::single::{Single as _, connect};

pub(crate) struct Backend {
    key: TokenKey,
    public: ServerPublicKey,
}

fn world(workers: Workers) -> (World, Backend) {
    world_with(workers, |config| config)
}

/// Returns a world with access by token and other settings.
pub(crate) fn world_with(
    workers: Workers,
    set: impl FnOnce(ServerConfig) -> ServerConfig,
) -> (World, Backend) {
    let server = ServerKey::generate().expect("randomness");
    let key = TokenMasterKey::generate().expect("randomness").token_key(1, "eu-1").expect("an id");
    let backend = Backend { key: key.clone(), public: server.public() };
    let address = "127.0.0.1:0".parse().expect("an address");
    let config = ServerConfig::new(address, server, Access::Token(TokenAccess::new(key)));
    (World::new(set(config.workers(possible(workers))), 0), backend)
}

impl Backend {
    pub(crate) fn token(&self, world: &World, player: u128) -> ConnectToken {
        let request = TokenRequest::new(PlayerId(player), world.server.local_addr(), self.public);
        request.user_data(&player.to_be_bytes()).issue(&self.key).expect("a token")
    }
}

pub(crate) fn join(world: &mut World, token: &ConnectToken) {
    let client = connect(token, &ClientConfig::default()).expect("a client");
    world.clients.push(client);
    world.heard.push(Vec::new());
}

pub(crate) fn has_connected(heard: &[Event]) -> bool {
    matches!(heard.first(), Some(Event::Connected { .. }))
}

#[test]
fn many_players_connect_and_every_worker_identifies_them() {
    let (mut world, backend) = world(Workers::Count(4));
    for player in 0..40 {
        let token = backend.token(&world, player);
        join(&mut world, &token);
    }
    world.until("all are connected", |world| world.peers.len() == 40);
    let mut players: Vec<u128> = Vec::new();
    for event in &world.events {
        let Event::Connected { info, .. } = event else { panic!("{event:?}") };
        let player = info.player.expect("a token").0;
        assert_eq!(info.user_data[..], player.to_be_bytes());
        players.push(player);
    }
    players.sort_unstable();
    assert!(players.into_iter().eq(0..40));
}

#[test]
fn a_token_opens_one_session_however_many_clients_race() {
    for workers in [Workers::Inline, Workers::Count(4)] {
        let (mut world, backend) = world(workers);
        let token = backend.token(&world, 7);
        for _ in 0..20 {
            join(&mut world, &token);
        }
        world.until("all were answered", |world| {
            world.peers.len() == 1 && world.heard.iter().all(|heard| !heard.is_empty())
        });
        let (winners, losers): (Vec<_>, Vec<_>) = world.heard.iter().partition(|heard| has_connected(heard));
        assert_eq!((winners.len(), world.peers.len()), (1, 1));
        for heard in losers {
            let [Event::ConnectFailed { error: ConnectError::Refused(refusal), .. }] = heard.as_slice()
            else {
                panic!("{heard:?}")
            };
            assert_eq!(refusal.reason, RefuseReason::TokenUsed);
        }
    }
}

#[test]
fn a_second_session_of_a_player_replaces_the_first() {
    let (mut world, backend) = world(Workers::Count(4));
    for round in 0..8 {
        let token = backend.token(&world, 7);
        join(&mut world, &token);
        world.until("connected", |world| has_connected(&world.heard[round]));
        // The server opens a session on the client's first packet. Of two clients, the one whose session opens last stays, so the
        // next client waits for this session.
        world.until("its session is open", |world| players(world).len() == round + 1);
        world.until("the older one is gone", |world| world.peers.len() == 1);
    }
    let replaced = CloseReason::Remote { code: CloseCode::Replaced, application_code: 0 };
    let was_replaced = |heard: &Vec<Event>| matches!(heard.last(), Some(Event::Disconnected { closed, .. }) if closed.reason == replaced);
    world.until("all but the last heard it", |world| world.heard[..7].iter().all(was_replaced));
    assert_eq!(world.heard[7].len(), 1);
}

#[test]
fn clients_without_a_valid_token_are_refused_with_the_reason() {
    let (mut world, backend) = world(Workers::Count(2));
    let other = TokenMasterKey::generate().expect("randomness").token_key(1, "eu-1").expect("an id");
    let foreign = Backend { key: other, public: backend.public }.token(&world, 1);
    join(&mut world, &foreign);
    let config = ClientConfig::default();
    let open = connect((world.server.local_addr(), backend.public), &config).expect("a client");
    world.clients.push(open);
    world.heard.push(Vec::new());
    world.until("both were answered", |world| world.heard.iter().all(|heard| !heard.is_empty()));
    for (heard, reason) in world.heard.iter().zip([RefuseReason::TokenUnreadable, RefuseReason::TokenMissing])
    {
        let Event::ConnectFailed { error: ConnectError::Refused(refusal), .. } = &heard[0] else {
            panic!("{heard:?}")
        };
        assert_eq!(refusal.reason, reason);
    }
    let wrong_build = connect(&foreign, &config.protocol_id(9));
    let error = wrong_build.expect_err("another protocol id").to_string();
    assert!(error.starts_with("protocol_id: must be the token's"), "{error}");
    let late = TokenRequest::new(PlayerId(2), world.server.local_addr(), backend.public);
    let long_ago = Duration::from_secs(1_000_000);
    join(&mut world, &late.issue_at(&backend.key, long_ago).expect("a token"));
    world.until("it was answered", |world| !world.heard[2].is_empty());
    let heard = &world.heard[2];
    assert!(
        matches!(heard[..], [Event::ConnectFailed { error: ConnectError::TokenExpired, .. }]),
        "{heard:?}"
    );
}

#[test]
fn a_resume_token_replaces_the_old_session() {
    let (mut world, backend) = world(Workers::Count(2));
    let token = backend.token(&world, 7);
    join(&mut world, &token);
    world.until("a resume token came", |world| {
        world.clients[0].resume_token(world.clients[0].server()).is_some()
    });
    let resume = world.clients[0].resume_token(world.clients[0].server()).expect("a token");
    assert_ne!(resume, token);
    assert_eq!((resume.address(), resume.server()), (token.address(), token.server()));
    // A resume token has the same text form as a connect token.
    let resume: ConnectToken = resume.to_text().parse().expect("its text");
    join(&mut world, &resume);
    world.until("the player is back", |world| has_connected(&world.heard[1]));
    world.until("the old session is over", |world| {
        matches!(world.heard[0].last(), Some(Event::Disconnected { .. }))
    });
    // The connections are on different workers, whose events have no common order.
    world.until("the server heard of both", |world| players(world).len() == 2);
    assert_eq!(players(&world), [PlayerId(7); 2]);
}

/// Returns the players of the `Connected` events of the server.
fn players(world: &World) -> Vec<PlayerId> {
    let player = |event: &Event| match event {
        Event::Connected { info, .. } => info.player,
        _ => None,
    };
    world.events.iter().filter_map(player).collect()
}
