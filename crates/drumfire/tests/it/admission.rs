//! Admission in virtual time: the accepted and refused clients, and the time until a refusal arrives, also over links with loss.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::server::world::Polled;
use drumfire::admission::{AdmissionConfig, Ban, Verdict};
use drumfire::conditioner::{Delay, LinkConfig, Loss};
use drumfire::config::Cookie;
use drumfire::error::{Refusal, RefuseReason};
use drumfire::stats::DropReason;
use drumfire::testing::{ClockConfig, World, server_config};
use drumfire::tokens::{TokenAccess, TokenKey, TokenMasterKey, TokenRequest};
use drumfire::{
    Access, ClientConfig, ConnectError, ConnectToken, Event, PlayerId, ServerConfig, ServerKey,
    ServerPublicKey,
};

use crate::single::Single as _;

const ONE_WAY: Duration = Duration::from_millis(50);

/// A world with access by token.
struct Game {
    world: World,
    key: TokenKey,
    public: ServerPublicKey,
}

impl Game {
    fn new(seed: u64, set: impl FnOnce(ServerConfig) -> ServerConfig) -> Self {
        let key = TokenMasterKey::from_bytes([3; 32]).token_key(1, "eu-1").unwrap();
        let server = ServerKey::from_bytes([5; 32]);
        let public = server.public();
        let address = server_config().address;
        let config = ServerConfig::new(address, server, Access::Token(TokenAccess::new(key.clone())));
        Self { world: World::new(set(config), seed).unwrap(), key, public }
    }

    fn token(&mut self, player: u128) -> ConnectToken {
        let request = TokenRequest::new(PlayerId(player), self.world.server.local_addr(), self.public);
        self.world.issue(&request, &self.key).unwrap()
    }

    fn join(&mut self, token: &ConnectToken, link: &LinkConfig) -> usize {
        let client = self.world.join_with(token, &ClientConfig::default()).unwrap();
        self.world.set_uplink(client, link).unwrap();
        self.world.set_downlink(client, link).unwrap();
        client
    }

    /// Connects a player over a good link. Returns the first event of the client, and the time until it arrived.
    fn outcome(&mut self, player: u128) -> (Event, Duration) {
        let token = self.token(player);
        self.outcome_with(&token)
    }

    fn outcome_with(&mut self, token: &ConnectToken) -> (Event, Duration) {
        let client = self.join(token, &good());
        self.heard(client)
    }

    /// Connects a player from this address, with the same result as `outcome`.
    fn outcome_from(&mut self, player: u128, address: &str) -> (Event, Duration) {
        let token = self.token(player);
        let client = self.join(&token, &good());
        self.world.rebind(client, address.parse().unwrap());
        self.heard(client)
    }

    /// Returns the first event of a client that has just joined, and the time until it arrived.
    fn heard(&mut self, client: usize) -> (Event, Duration) {
        let start = self.world.elapsed();
        for _ in 0..8_000 {
            self.world.advance(Duration::from_millis(1));
            let event = self.world.clients[client].polled().next();
            if let Some(event) = event {
                return (event, self.world.elapsed() - start);
            }
        }
        panic!("no event arrived");
    }
}

fn good() -> LinkConfig {
    LinkConfig::default().delay(Delay::Constant(ONE_WAY))
}

fn refusal(event: &Event) -> Refusal {
    match event {
        Event::ConnectFailed { error: ConnectError::Refused(refusal), .. } => **refusal,
        event => panic!("{event:?}"),
    }
}

/// Whether a time is at most two round trips, one for the cookie and one for the answer, and the second in which the client
/// still waits for a Welcome.
fn is_soon(after: Duration) -> bool {
    after <= 4 * ONE_WAY + Duration::from_millis(1_002)
}

#[test]
fn a_refusal_by_the_hook_arrives_in_two_round_trips_and_a_second() {
    let there = "[2001:db8::5]:7777".parse().unwrap();
    let mut game = Game::new(1, |config| {
        config.accept(move |_| Verdict::Redirect { address: there, retry_after: None })
    });
    let (event, after) = game.outcome(1);
    assert_eq!(refusal(&event).address, Some(there));
    assert!(is_soon(after), "{after:?}");
}

#[test]
fn the_hook_is_called_once_per_player_despite_loss() {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let mut game = Game::new(2, |config| {
        config.accept(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            Verdict::Accept
        })
    });
    let poor = good().loss(Loss::Random(0.3));
    for player in 0..40 {
        let token = game.token(player);
        game.join(&token, &poor);
    }
    game.world.advance(Duration::from_secs(8));
    let connected =
        game.world.server.polled().filter(|event| matches!(event, Event::Connected { .. })).count();
    assert!(connected >= 30, "{connected}");
    let asked = count.load(Ordering::Relaxed);
    assert!((connected..=40).contains(&asked), "{asked}");
}

#[test]
fn no_token_of_a_banned_player_is_accepted_until_the_ban_ends() {
    let mut game = Game::new(3, |config| config);
    assert!(matches!(game.outcome(1).0, Event::Connected { .. }));
    game.world.advance(Duration::from_secs(1));
    assert_eq!(game.world.clients[0].polled().next(), None);
    let resume = game.world.clients[0].resume_token(game.world.clients[0].server()).expect("it came by now");
    let Some(Event::Connected { peer, .. }) = game.world.server.polled().next() else {
        panic!("no client connected")
    };
    let minute = Duration::from_secs(60);
    let mut ban = game.world.server.control().close_and_ban(peer, 9, "cheats", minute);
    game.world.advance(Duration::from_secs(1));
    assert_eq!(ban.try_take().unwrap().unwrap(), Ban::Player(PlayerId(1)));
    let gone: Vec<_> = game.world.clients[0].polled().collect();
    assert!(matches!(&gone[..], [Event::Disconnected { .. }]), "{gone:?}");
    let token = game.token(1);
    for token in [&resume, &token] {
        let (event, after) = game.outcome_with(token);
        let Refusal { reason, retry_after, .. } = refusal(&event);
        assert_eq!(reason, RefuseReason::Banned);
        assert!(retry_after.is_some_and(|after| after > minute * 9 / 10 && after <= minute));
        assert!(is_soon(after), "{after:?}");
    }
    assert!(
        matches!(game.outcome(2).0, Event::Connected { .. }),
        "another player of the same network connects"
    );
    game.world.advance(minute);
    assert!(
        matches!(game.outcome_with(&resume).0, Event::Connected { .. }),
        "a refused client uses up neither token"
    );
    assert!(game.world.server.control().bans().is_empty());
    // A refused client sends one more Hello before it gives up.
    assert_eq!(game.world.server.control().stats().dropped(DropReason::Banned), 2 * 2);
}

#[test]
fn a_change_of_the_wall_clock_ends_no_ban() {
    let mut world = World::new(server_config(), 4).unwrap();
    let home = Ban::Prefix { address: "10.0.0.0".parse().unwrap(), bits: 8 };
    world.server.control().ban(home, Duration::from_secs(60)).unwrap();
    for (seconds, offset, is_let_in) in [(0, 86_400, false), (55, -86_400, false), (2, 0, true)] {
        world.advance(Duration::from_secs(seconds));
        world.set_server_clock(&ClockConfig::default().wall_offset_seconds(offset));
        let client = world.join(&ClientConfig::default()).unwrap();
        world.advance(Duration::from_millis(1_900));
        let heard: Vec<_> = world.clients[client].polled().collect();
        assert_eq!(matches!(heard[..], [Event::Connected { .. }]), is_let_in, "{heard:?}");
        if !is_let_in {
            assert_eq!(refusal(&heard[0]).reason, RefuseReason::Banned);
        }
    }
}

#[test]
fn a_player_banned_during_the_handshake_is_disconnected() {
    let mut game = Game::new(5, |config| config);
    let token = game.token(1);
    let client = game.join(&token, &good());
    // The Welcome is on its way.
    game.world.advance(ONE_WAY * 7 / 2);
    assert_eq!(game.world.server.control().stats().connections(), 1);
    game.world.server.control().ban(Ban::Player(PlayerId(1)), Duration::MAX).unwrap();
    game.world.advance(Duration::from_secs(1));
    let events: Vec<_> = game.world.server.polled().collect();
    assert!(matches!(&events[..], [Event::Connected { .. }, Event::Disconnected { .. }]), "{events:?}");
    let heard: Vec<_> = game.world.clients[client].polled().collect();
    assert!(matches!(&heard[..], [Event::Connected { .. }, Event::Disconnected { .. }]), "{heard:?}");
}

#[test]
fn a_client_over_the_source_limit_is_refused_until_one_leaves() {
    for cookie in [Cookie::Always, Cookie::UnderLoad] {
        let mut game = Game::new(6, |config| {
            config.cookie(cookie).admission(AdmissionConfig::default().connections_per_source(2))
        });
        let homes = [
            ["198.51.100.1:1", "198.51.100.1:2", "198.51.100.1:3", "198.51.100.2:1"],
            ["[2001:db8:1:2::1]:1", "[2001:db8:1:2::2]:1", "[2001:db8:1:2:3::3]:1", "[2001:db8:1:3::1]:1"],
        ];
        for (home, first) in homes.into_iter().zip([0, 4]) {
            let [one, another, third, elsewhere] = home;
            assert!(matches!(game.outcome_from(first, one).0, Event::Connected { .. }));
            assert!(matches!(game.outcome_from(first + 1, another).0, Event::Connected { .. }));
            let (event, after) = game.outcome_from(first + 2, third);
            let Refusal { reason, retry_after, .. } = refusal(&event);
            assert_eq!((reason, retry_after), (RefuseReason::Full, Some(Duration::from_secs(10))));
            assert!(is_soon(after), "{after:?}");
            assert!(matches!(game.outcome_from(first + 3, elsewhere).0, Event::Connected { .. }));
        }
        let stats = game.world.server.control().stats();
        // A refused client sends one more Hello before it gives up.
        assert_eq!((stats.dropped(DropReason::SourceFull), stats.connections()), (2 * 2, 6));
        let server = game.world.clients[0].server();
        game.world.clients[0].close(server, 0, "bye");
        game.world.advance(Duration::from_secs(10));
        assert!(matches!(game.outcome_from(2, "198.51.100.1:4").0, Event::Connected { .. }));
    }
}

#[test]
fn a_full_server_refuses_soon_and_computes_no_handshake() {
    let seven = Duration::from_secs(7);
    let mut game =
        Game::new(7, |config| config.connections(2).admission(AdmissionConfig::default().retry_after(seven)));
    for player in 0..2 {
        assert!(matches!(game.outcome(player).0, Event::Connected { .. }));
    }
    let computed = game.world.server.control().stats().workers[0].protocol.handshakes_computed;
    let (event, after) = game.outcome(2);
    let Refusal { reason, retry_after, .. } = refusal(&event);
    assert_eq!((reason, retry_after), (RefuseReason::Full, Some(seven)));
    assert!(is_soon(after), "{after:?}");
    let stats = game.world.server.control().stats();
    // A refused client sends one more Hello before it gives up.
    assert_eq!((stats.dropped(DropReason::ServerFull), stats.connections()), (2, 2));
    assert_eq!(stats.workers[0].protocol.handshakes_computed, computed);
}
