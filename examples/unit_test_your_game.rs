//! A small game with unit tests. Each test runs the server and the players over bad links in virtual time, without
//! sockets, threads, or sleeps. A minute of play takes a moment, and the same seed always gives the same result.
//!
//! `cargo test -p drumfire-examples --example unit_test_your_game`
//!
//! The game: a coin is in one of the fields of a row, and players run to it. The first player to reach it gets a point,
//! and a new coin appears. The code of the game takes a [`Server`] or a [`Client`], so it runs over sockets and in a
//! `testing::World`. A game needs the feature `testing` only in its dev-dependencies.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use drumfire::conditioner::{Delay, LinkConfig, Loss};
use drumfire::testing::{self, World};
use drumfire::{Audience, ChannelId, Client, Event, Message, PeerId, SendError, Server};

/// Carries the players' steps. The mode is reliable and ordered, because every step counts.
const STEPS: ChannelId = ChannelId(0);
/// Carries the state of the game. The mode is reliable latest, because only the newest value of a key counts.
const STATE: ChannelId = ChannelId(1);
/// The keys of the state.
const COIN: u64 = 0;
const POINTS: u64 = 1;
/// The number of fields in the row.
const FIELDS: u16 = 16;
const TICK: Duration = Duration::from_millis(50);

/// The state of the game on the server.
#[derive(Debug, Default)]
struct Game {
    coin: u16,
    players: BTreeMap<PeerId, Player>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Player {
    field: u16,
    points: u16,
}

impl Game {
    fn new(coin: u16) -> Self {
        Self { coin: coin % FIELDS, players: BTreeMap::new() }
    }

    /// Handles the events since the last tick and sends the new state.
    fn tick(&mut self, server: &mut Server) {
        server.poll(Duration::ZERO);
        while let Some(event) = server.next_event() {
            match event {
                Event::Connected { peer, .. } => {
                    self.players.insert(peer, Player::default());
                    self.send_state(server, peer);
                }
                Event::Message { peer, channel: STEPS, payload } => self.step(server, peer, &payload),
                // A player that missed a broadcast receives the current state.
                Event::Missed { peer, .. } => self.send_state(server, peer),
                Event::Disconnected { peer, .. } => {
                    self.players.remove(&peer);
                }
                _ => {}
            }
        }
        server.flush();
    }

    /// Moves a player by one field. Other messages of a modified client are ignored.
    fn step(&mut self, server: &mut Server, peer: PeerId, bytes: &[u8]) {
        let Some(player) = self.players.get_mut(&peer) else { return };
        player.field = match bytes {
            b">" => (player.field + 1).min(FIELDS - 1),
            b"<" => player.field.saturating_sub(1),
            _ => return,
        };
        if player.field == self.coin {
            player.points += 1;
            // Far enough away that all players have to run.
            self.coin = (self.coin + FIELDS / 2 + 1) % FIELDS;
            // A broadcast fails only if the workers are busy. The next coin replaces this one anyway.
            let _ = server.broadcast(Audience::ALL, Message::reliable_latest(STATE, COIN, coin(self.coin)));
            self.send_state(server, peer);
        }
    }

    /// Sends a player the coin and the player's points.
    fn send_state(&self, server: &mut Server, peer: PeerId) {
        let points = self.players.get(&peer).map_or(0, |player| player.points);
        // At most one message per key waits, so there is always room.
        let _ = server.send(peer, Message::reliable_latest(STATE, COIN, coin(self.coin)));
        let _ = server.send(peer, Message::reliable_latest(STATE, POINTS, points_message(points)));
    }
}

fn coin(field: u16) -> Vec<u8> {
    [b"c".as_slice(), &field.to_be_bytes()].concat()
}

fn points_message(points: u16) -> Vec<u8> {
    [b"p".as_slice(), &points.to_be_bytes()].concat()
}

/// The state of the game on a client.
#[derive(Debug, Default)]
struct View {
    /// The player's position according to its own steps.
    field: u16,
    coin: Option<u16>,
    points: u16,
}

impl View {
    /// Receives the state and sends one step towards the coin.
    fn tick(&mut self, client: &mut Client) -> Result<(), SendError> {
        client.poll(Duration::ZERO);
        while let Some(event) = client.next_event() {
            if let Event::Message { channel: STATE, payload, .. } = event {
                match *payload {
                    [b'c', a, b] => self.coin = Some(u16::from_be_bytes([a, b])),
                    [b'p', a, b] => self.points = u16::from_be_bytes([a, b]),
                    _ => {}
                }
            }
        }
        let server = client.peers().next();
        if let (Some(coin), Some(server)) = (self.coin, server)
            && client.is_connected(server)
            && coin != self.field
        {
            let (step, field) = if coin > self.field { (">", self.field + 1) } else { ("<", self.field - 1) };
            client.send(server, Message::reliable_ordered(STEPS, step))?;
            self.field = field;
        }
        client.flush();
        Ok(())
    }
}

fn main() -> ExitCode {
    let (mut world, mut game, mut views) = (testing::world(4, 1), Game::new(9), views(4));
    let outcome = world
        .set_links(&mobile_link())
        .map_err(Into::into)
        .and_then(|()| play(&mut world, &mut game, &mut views, Duration::from_secs(60)));
    if let Err(error) = outcome {
        eprintln!("error: {error}");
        return ExitCode::FAILURE;
    }
    let points: Vec<u16> = views.iter().map(|view| view.points).collect();
    println!("points after one virtual minute on four mobile links: {points:?}");
    println!("run the tests: cargo test -p drumfire-examples --example unit_test_your_game");
    ExitCode::SUCCESS
}

/// Plays for `time`: runs a tick of the server and of each client, and advances the virtual time to the next tick.
fn play(
    world: &mut World,
    game: &mut Game,
    views: &mut [View],
    time: Duration,
) -> Result<(), Box<dyn Error>> {
    for _ in 0..time.as_millis() / TICK.as_millis() {
        game.tick(&mut world.server);
        for (view, client) in views.iter_mut().zip(&mut world.clients) {
            view.tick(client)?;
        }
        world.advance(TICK);
    }
    Ok(())
}

fn views(count: usize) -> Vec<View> {
    std::iter::repeat_with(View::default).take(count).collect()
}

/// Returns a link that loses every fifth datagram and reorders some.
fn mobile_link() -> LinkConfig {
    let delay = Delay::Uniform { min: Duration::from_millis(30), max: Duration::from_millis(90) };
    LinkConfig::default().loss(Loss::Random(0.2)).delay(delay).reorder(0.05, Duration::from_millis(40))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A world with a game in progress.
    struct Match {
        world: World,
        game: Game,
        views: Vec<View>,
    }

    impl Match {
        fn new(players: usize, seed: u64) -> Self {
            Self { world: testing::world(players, seed), game: Game::new(9), views: views(players) }
        }

        fn play(&mut self, time: Duration) {
            play(&mut self.world, &mut self.game, &mut self.views, time).expect("room for a step");
        }

        /// Sets the links of a player in both directions.
        fn set_links(&mut self, player: usize, config: &LinkConfig) {
            self.world.set_uplink(player, config).expect("valid link");
            self.world.set_downlink(player, config).expect("valid link");
        }

        fn points(&self) -> Vec<u16> {
            self.views.iter().map(|view| view.points).collect()
        }

        fn points_on_server(&self) -> Vec<u16> {
            self.game.players.values().map(|player| player.points).collect()
        }
    }

    fn dead_link() -> LinkConfig {
        LinkConfig::default().loss(Loss::Random(1.0))
    }

    #[test]
    fn a_single_player_gets_every_coin() {
        let mut single = Match::new(1, 1);
        single.play(10 * SECOND);
        assert!(single.points()[0] >= 10, "{:?}", single.views);
        assert_eq!(single.points(), single.points_on_server());
    }

    #[test]
    fn players_know_their_final_points_despite_bad_links() {
        for seed in 0..8 {
            let mut round = Match::new(4, seed);
            // Connects over good links first, because a handshake over a bad one may exceed its five seconds.
            round.play(SECOND);
            round.world.set_links(&mobile_link()).expect("valid links");
            round.play(30 * SECOND);
            // No player can reach the coin now, so the points stay the same while the last state arrives.
            round.game.coin = FIELDS;
            round.play(10 * SECOND);
            let (mut on_clients, mut on_server) = (round.points(), round.points_on_server());
            on_clients.sort_unstable();
            on_server.sort_unstable();
            assert_eq!(on_clients, on_server, "seed {seed}");
            assert!(on_server.iter().sum::<u16>() >= 10, "seed {seed}: {on_server:?}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_game() {
        let run = |seed| {
            let mut round = Match::new(3, seed);
            round.world.set_links(&mobile_link()).expect("valid links");
            round.play(20 * SECOND);
            (round.points(), round.world.trace())
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7).1, run(8).1);
    }

    #[test]
    fn a_player_survives_five_seconds_without_a_link() {
        let mut round = Match::new(2, 3);
        round.play(SECOND);
        round.set_links(0, &dead_link());
        round.play(5 * SECOND);
        assert_eq!(round.game.players.len(), 2, "five seconds are below the timeouts");
        // The first player alone has a link now, and the steps of the last five seconds are still to come.
        round.set_links(1, &dead_link());
        round.set_links(0, &LinkConfig::default());
        let before = round.points()[0];
        round.play(5 * SECOND);
        assert!(round.points()[0] > before, "{:?}", round.views);
    }

    #[test]
    fn a_player_without_a_link_is_removed() {
        let mut round = Match::new(2, 4);
        round.play(SECOND);
        round.set_links(0, &dead_link());
        // Unacknowledged steps end the connection after ten seconds, and silence ends it after thirty.
        round.play(9 * SECOND);
        assert_eq!(round.game.players.len(), 2);
        round.play(25 * SECOND);
        assert_eq!(round.game.players.len(), 1);
        assert_eq!(round.world.clients[0].peers().len(), 0);
        let before = round.points()[1];
        round.play(5 * SECOND);
        assert!(round.points()[1] > before, "the other player continues: {:?}", round.views);
    }

    #[test]
    fn invalid_steps_are_ignored() {
        let mut round = Match::new(1, 5);
        round.game.coin = FIELDS;
        round.play(SECOND);
        let before: Vec<Player> = round.game.players.values().copied().collect();
        assert_eq!(before, [Player { field: FIELDS - 1, points: 0 }]);
        let server = round.world.clients[0].peers().next().expect("connected");
        for invalid in [&b""[..], b"<<", b"\xff", &[b'<'; 1_000]] {
            let invalid = invalid.to_vec();
            round.world.clients[0].send(server, Message::reliable_ordered(STEPS, invalid)).expect("room");
        }
        round.world.clients[0].send(server, Message::reliable_ordered(STEPS, "<")).expect("room");
        round.play(SECOND / 2);
        let after: Vec<Player> = round.game.players.values().copied().collect();
        assert_eq!(after, [Player { field: FIELDS - 2, points: 0 }], "only the valid step counts");
    }
}
