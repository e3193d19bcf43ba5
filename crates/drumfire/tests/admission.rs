//! Who is let in, in worlds of virtual time: how soon a client hears a no, and over what links.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use drumfire::conditioner::{Delay, LinkConfig, Loss};
use drumfire::testing::{World, server_config};
use drumfire::{
    Access, ClientConfig, ClientEvent, ConnectError, ConnectToken, Event, PlayerId, Refusal, ServerConfig,
    ServerKey, ServerPublicKey, TokenAccess, TokenKey, TokenMasterKey, TokenRequest, Verdict,
};

const ONE_WAY: Duration = Duration::from_millis(50);

/// A world in which players come by token.
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
        let client = self.world.join_with_token(token, &ClientConfig::default()).unwrap();
        self.world.set_up(client, link).unwrap();
        self.world.set_down(client, link).unwrap();
        client
    }

    /// A player comes over a good link; answers what the client hears, and after how long.
    fn outcome(&mut self, player: u128) -> (ClientEvent, Duration) {
        let token = self.token(player);
        self.outcome_with(&token)
    }

    fn outcome_with(&mut self, token: &ConnectToken) -> (ClientEvent, Duration) {
        let client = self.join(token, &good());
        let start = self.world.elapsed();
        for _ in 0..8_000 {
            self.world.advance(Duration::from_millis(1));
            if let Some(event) = self.world.clients[client].poll().next() {
                return (event, self.world.elapsed() - start);
            }
        }
        panic!("nothing was heard");
    }
}

fn good() -> LinkConfig {
    LinkConfig::default().delay(Delay::Constant(ONE_WAY))
}

fn refusal(event: &ClientEvent) -> Refusal {
    match event {
        ClientEvent::ConnectFailed { error: ConnectError::Refused(refusal) } => *refusal,
        event => panic!("{event:?}"),
    }
}

/// A round trip for the cookie, one for the answer.
fn is_soon(after: Duration) -> bool {
    after <= 4 * ONE_WAY + Duration::from_millis(2)
}

#[test]
fn a_no_of_the_application_is_heard_in_two_round_trips() {
    let there = "[2001:db8::5]:7777".parse().unwrap();
    let mut game = Game::new(1, |config| {
        config.accept(move |_| Verdict::TryThere { address: there, retry_after: None })
    });
    let (event, after) = game.outcome(1);
    assert_eq!(refusal(&event).address, Some(there));
    assert!(is_soon(after), "{after:?}");
}

#[test]
fn over_links_that_lose_a_third_every_player_is_asked_about_once() {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    let mut game = Game::new(2, |config| {
        config.accept(move |_| {
            counter.fetch_add(1, Ordering::Relaxed);
            Verdict::Accept
        })
    });
    let poor = good().loss(Loss::Even(0.3));
    for player in 0..40 {
        let token = game.token(player);
        game.join(&token, &poor);
    }
    game.world.advance(Duration::from_secs(8));
    let connected = game.world.server.poll().filter(|event| matches!(event, Event::Connected { .. })).count();
    assert!(connected >= 30, "{connected}");
    let asked = count.load(Ordering::Relaxed);
    assert!((connected..=40).contains(&asked), "{asked}");
}
