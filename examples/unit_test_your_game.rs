//! A tiny game with its unit tests: server and players in one test, over links that lose what they like, in virtual time. No
//! socket, no thread, no sleep; a minute of play takes a moment, and the same seed always plays the same.
//!
//! `cargo test -p drumfire-examples --example unit_test_your_game`
//!
//! The game: a coin lies on a row of fields, players run for it, who gets it has a point, and a new one falls. Its code takes
//! a [`Server`] or a [`Client`] and does not know where datagrams go: a real server and a `testing::World` are the same to it.
//! Feature `testing` stands in the package's dev-dependencies alone.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use drumfire::conditioner::{Delay, LinkConfig, Loss};
use drumfire::testing::{self, World};
use drumfire::{
    ChannelId, Client, ClientEvent, ClientState, Event, GroupId, PeerId, SendError, SendOptions, Server,
};

/// Steps of players: each counts, in order.
const STEPS: ChannelId = ChannelId(0);
/// What the server tells: the newest of each key counts.
const STATE: ChannelId = ChannelId(1);
const ALL: GroupId = GroupId(0);
/// Keys of the state.
const COIN: u64 = 0;
const POINTS: u64 = 1;
/// The row.
const FIELDS: u16 = 16;
const TICK: Duration = Duration::from_millis(50);

/// What the server knows.
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

    /// One tick: takes what players did, tells all what came of it.
    fn tick(&mut self, server: &mut Server) {
        for event in server.poll() {
            match event {
                Event::Connected { peer, .. } => {
                    self.players.insert(peer, Player::default());
                    // Where that fails, its end is on the way.
                    let _ = server.join(ALL, peer);
                    self.tell(server, peer);
                }
                Event::Message { peer, channel: STEPS, bytes } => self.step(server, peer, &bytes),
                // Who had no room for a value is told again what is true now.
                Event::Missed { peer, .. } => self.tell(server, peer),
                Event::Disconnected { peer, .. } => {
                    self.players.remove(&peer);
                }
                _ => {}
            }
        }
        server.flush();
    }

    /// A step to the right or to the left; whatever else a stranger's client may send is none.
    fn step(&mut self, server: &mut Server, peer: PeerId, bytes: &[u8]) {
        let Some(player) = self.players.get_mut(&peer) else { return };
        player.field = match bytes {
            b">" => (player.field + 1).min(FIELDS - 1),
            b"<" => player.field.saturating_sub(1),
            _ => return,
        };
        if player.field == self.coin {
            player.points += 1;
            // Far enough that it is a run for everybody.
            self.coin = (self.coin + FIELDS / 2 + 1) % FIELDS;
            // Full, when the workers are behind: the next coin is told of again.
            let _ = server.broadcast(ALL, STATE, coin(self.coin), SendOptions::reliable_latest(COIN));
            self.tell(server, peer);
        }
    }

    /// Tells a player everything: coin, and own points.
    fn tell(&self, server: &mut Server, peer: PeerId) {
        let points = self.players.get(&peer).map_or(0, |player| player.points);
        // Of a key nothing but the newest waits, so there is room.
        let _ = server.send(peer, STATE, coin(self.coin), SendOptions::reliable_latest(COIN));
        let _ = server.send(peer, STATE, score(points), SendOptions::reliable_latest(POINTS));
    }
}

fn coin(field: u16) -> Vec<u8> {
    [b"c".as_slice(), &field.to_be_bytes()].concat()
}

fn score(points: u16) -> Vec<u8> {
    [b"p".as_slice(), &points.to_be_bytes()].concat()
}

/// What a player's client knows.
#[derive(Debug, Default)]
struct View {
    /// Where it is, as far as its own steps say.
    field: u16,
    coin: Option<u16>,
    points: u16,
}

impl View {
    /// One tick: hears of the coin, and makes a step towards it.
    fn tick(&mut self, client: &mut Client) -> Result<(), SendError> {
        for event in client.poll() {
            if let ClientEvent::Message { channel: STATE, bytes } = event {
                match *bytes {
                    [b'c', a, b] => self.coin = Some(u16::from_be_bytes([a, b])),
                    [b'p', a, b] => self.points = u16::from_be_bytes([a, b]),
                    _ => {}
                }
            }
        }
        if let (Some(coin), ClientState::Connected) = (self.coin, client.state())
            && coin != self.field
        {
            let (step, field) = if coin > self.field { (">", self.field + 1) } else { ("<", self.field - 1) };
            client.send(STEPS, step, SendOptions::reliable_ordered())?;
            self.field = field;
        }
        client.flush();
        Ok(())
    }
}

fn main() -> ExitCode {
    let (mut world, mut game, mut views) = (testing::world(4, 1), Game::new(9), views(4));
    let played = world
        .set_links(&mobile())
        .map_err(Into::into)
        .and_then(|()| play(&mut world, &mut game, &mut views, Duration::from_secs(60)));
    if let Err(error) = played {
        eprintln!("error: {error}");
        return ExitCode::FAILURE;
    }
    let points: Vec<u16> = views.iter().map(|view| view.points).collect();
    println!("points after a minute on four phones, which did not take a minute: {points:?}");
    println!("its tests: cargo test -p drumfire-examples --example unit_test_your_game");
    ExitCode::SUCCESS
}

/// Lets everybody have a tick, and then the time pass until the next, for so long.
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

/// A link that loses every fifth datagram, and turns the order of some around.
fn mobile() -> LinkConfig {
    let delay = Delay::Uniform { least: Duration::from_millis(30), most: Duration::from_millis(90) };
    LinkConfig::default().loss(Loss::Even(0.2)).delay(delay).reorder(0.05, Duration::from_millis(40))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A world that was played in for a while.
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

        /// Both links of a player.
        fn set_links(&mut self, player: usize, config: &LinkConfig) {
            self.world.set_up(player, config).expect("a link that can be");
            self.world.set_down(player, config).expect("a link that can be");
        }

        fn points(&self) -> Vec<u16> {
            self.views.iter().map(|view| view.points).collect()
        }

        fn points_on_the_server(&self) -> Vec<u16> {
            self.game.players.values().map(|player| player.points).collect()
        }
    }

    fn tunnel() -> LinkConfig {
        LinkConfig::default().loss(Loss::Even(1.0))
    }

    #[test]
    fn a_player_alone_gets_every_coin() {
        let mut alone = Match::new(1, 1);
        alone.play(10 * SECOND);
        assert!(alone.points()[0] >= 10, "{:?}", alone.views);
        assert_eq!(alone.points(), alone.points_on_the_server());
    }

    #[test]
    fn everybody_knows_the_own_points_in_the_end_however_bad_the_links_are() {
        for seed in 0..8 {
            let mut bad = Match::new(4, seed);
            // A handshake on such a link may take longer than its five seconds: that is for another test.
            bad.play(SECOND);
            bad.world.set_links(&mobile()).expect("a link that can be");
            bad.play(30 * SECOND);
            // The coin is out of reach, so that nobody has more points while the last news arrive.
            bad.game.coin = FIELDS;
            bad.play(10 * SECOND);
            let (mut of_players, mut of_server) = (bad.points(), bad.points_on_the_server());
            of_players.sort_unstable();
            of_server.sort_unstable();
            assert_eq!(of_players, of_server, "seed {seed}");
            assert!(of_server.iter().sum::<u16>() >= 10, "seed {seed}: {of_server:?}");
        }
    }

    #[test]
    fn the_same_seed_plays_the_same_and_another_does_not() {
        let run = |seed| {
            let mut bad = Match::new(3, seed);
            bad.world.set_links(&mobile()).expect("a link that can be");
            bad.play(20 * SECOND);
            (bad.points(), bad.world.trace())
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7).1, run(8).1);
    }

    #[test]
    fn a_player_comes_out_of_a_tunnel_and_goes_on() {
        let mut ride = Match::new(2, 3);
        ride.play(SECOND);
        ride.set_links(0, &tunnel());
        ride.play(5 * SECOND);
        assert_eq!(ride.game.players.len(), 2, "five seconds are not for ever");
        // Alone again, with all steps that were made in the tunnel still to come.
        ride.set_links(1, &tunnel());
        ride.set_links(0, &LinkConfig::default());
        let before = ride.points()[0];
        ride.play(5 * SECOND);
        assert!(ride.points()[0] > before, "{:?}", ride.views);
    }

    #[test]
    fn a_player_who_stays_in_the_tunnel_is_taken_out() {
        let mut ride = Match::new(2, 4);
        ride.play(SECOND);
        ride.set_links(0, &tunnel());
        // Steps that nobody acknowledges end the connection after ten seconds, and silence after thirty.
        ride.play(9 * SECOND);
        assert_eq!(ride.game.players.len(), 2);
        ride.play(25 * SECOND);
        assert_eq!(ride.game.players.len(), 1);
        assert_eq!(ride.world.clients[0].state(), ClientState::Closed);
        let before = ride.points()[1];
        ride.play(5 * SECOND);
        assert!(ride.points()[1] > before, "the other one plays on: {:?}", ride.views);
    }

    #[test]
    fn what_is_no_step_moves_nobody() {
        let mut fair = Match::new(1, 5);
        fair.game.coin = FIELDS;
        fair.play(SECOND);
        let before: Vec<Player> = fair.game.players.values().copied().collect();
        assert_eq!(before, [Player { field: FIELDS - 1, points: 0 }]);
        for nonsense in [&b""[..], b"<<", b"\xff", &[b'<'; 1_000]] {
            let nonsense = nonsense.to_vec();
            fair.world.clients[0].send(STEPS, nonsense, SendOptions::reliable_ordered()).expect("room");
        }
        fair.world.clients[0].send(STEPS, "<", SendOptions::reliable_ordered()).expect("room");
        fair.play(SECOND / 2);
        let after: Vec<Player> = fair.game.players.values().copied().collect();
        assert_eq!(after, [Player { field: FIELDS - 2, points: 0 }], "one step was one");
    }
}
