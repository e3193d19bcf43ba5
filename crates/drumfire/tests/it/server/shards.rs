//! More sockets than threads. Threads are added and removed while clients play, and no client notices. Where sockets cannot share a port,
//! there is one socket and one thread, and nothing can move.

use std::collections::HashMap;
use std::time::Duration;

use super::world::{PATIENCE, Polled, config, now, shares_ports};
use drumfire::config::Wait;
use drumfire::error::CloseCode;
use drumfire::{
    ChannelId, Client, ClientConfig, CloseReason, ConnectError, Error, Event, Message, PeerId, SendError,
    Server, ServerConfig, ServerKey, Workers,
};

/// Clients that count: each sends the next number when the server has returned the one before.
struct Game {
    server: Server,
    /// The sockets of the clients, with some connections each.
    players: Vec<Client>,
    /// The number in flight, by socket and connection.
    said: HashMap<(usize, PeerId), u64>,
    /// The last number that arrived, by connection of the server.
    heard: HashMap<PeerId, u64>,
    ended: Vec<CloseReason>,
}

fn shards(sockets: u16, threads: u16) -> Workers {
    Workers::Shards { sockets, threads }
}

impl Game {
    /// Starts a game in which every client has one connection at the server.
    ///
    /// On a busy machine the server may answer a client later than the client waits. The client then connects again, and its first
    /// connection stays until its timeout. The game starts again in this case, because the connections are not spread evenly.
    fn new(config: impl Fn() -> ServerConfig, sockets: usize, connections: u32) -> Self {
        let deadline = now() + 4 * PATIENCE;
        loop {
            let game = Self::start(config(), sockets, connections);
            if game.server.control().stats().connections() == game.said.len() {
                return game;
            }
            assert!(now() < deadline, "clients had to connect again in each game");
        }
    }

    fn start(config: ServerConfig, sockets: usize, connections: u32) -> Self {
        let server = Server::bind(config).expect("a server");
        let (said, heard) = (HashMap::new(), HashMap::new());
        let mut game = Self { server, players: Vec::new(), said, heard, ended: Vec::new() };
        for socket in 0..sockets {
            let local = "127.0.0.1:0".parse().expect("an address");
            let players = Client::new(ClientConfig::default().connections(connections).address(local));
            game.players.push(players.expect("a socket"));
            for _ in 0..connections {
                game.join(socket);
            }
        }
        game.until("all were answered", |game| game.least() > 1);
        game
    }

    fn join(&mut self, socket: usize) {
        let (address, key) = (self.server.local_addr(), ServerKey::dev().public());
        let peer = self.players[socket].connect((address, key)).expect("room");
        self.say(socket, peer, 1);
    }

    fn say(&mut self, socket: usize, peer: PeerId, number: u64) {
        let bytes = number.to_be_bytes().to_vec();
        let taken = self.players[socket].send(peer, Message::reliable_ordered(ChannelId(1), bytes));
        // The events that follow report the end of a connection that is unknown here.
        if taken != Err(SendError::UnknownPeer) {
            taken.expect("room");
            self.said.insert((socket, peer), number);
        }
    }

    /// Returns the number that every player has reached.
    fn least(&self) -> u64 {
        self.said.values().copied().min().unwrap_or(0)
    }

    fn step(&mut self) {
        self.server.poll(Duration::from_micros(200));
        while let Some(event) = self.server.next_event() {
            match event {
                Event::Message { peer, channel, payload } => {
                    let number = number(&payload);
                    let before = self.heard.insert(peer, number).unwrap_or(0);
                    assert_eq!(number, before + 1, "each number arrives once and in order");
                    self.server.send(peer, Message::reliable_ordered(channel, payload)).expect("room");
                }
                Event::Connected { peer, .. } => assert_eq!(self.heard.get(&peer), None),
                other => panic!("{other:?}"),
            }
        }
        self.server.flush();
        self.step_players();
    }

    fn step_players(&mut self) {
        for socket in 0..self.players.len() {
            let players = &mut self.players[socket];
            let events: Vec<Event> = players.polled().collect();
            for event in events {
                match event {
                    Event::Message { peer, payload, .. } => {
                        let number = number(&payload);
                        assert_eq!(
                            number,
                            self.said[&(socket, peer)],
                            "each number arrives once and in order"
                        );
                        self.say(socket, peer, number + 1);
                    }
                    Event::Connected { .. } => {}
                    Event::Disconnected { closed, .. } => self.ended.push(closed.reason),
                    // On a busy machine the answer may arrive too late.
                    Event::ConnectFailed { peer, error: ConnectError::Timeout } => {
                        self.said.remove(&(socket, peer));
                        self.join(socket);
                    }
                    other => panic!("{other:?}"),
                }
            }
            self.players[socket].flush();
        }
    }

    fn until(&mut self, what: &str, is_true: impl Fn(&Self) -> bool) {
        let deadline = now() + PATIENCE;
        while !is_true(self) {
            assert!(now() < deadline, "not in time: {what}; {:?}", self.server.control().stats().threads);
            self.step();
        }
    }

    /// Plays until each player was answered this many times more.
    ///
    /// Each player counts from its own number. When a thread does not get a core for a while, the players of the other workers are
    /// many rounds ahead of its players.
    fn play(&mut self, rounds: u64) {
        let before = self.said.clone();
        self.until("all go on", |game| {
            let goal = |player| before.get(player).copied().unwrap_or(0) + rounds;
            game.said.iter().all(|(player, said)| *said >= goal(player))
        });
    }

    /// Waits until the threads drive these numbers of sockets.
    fn settle(&mut self, threads: &[u16]) {
        self.until("all shards have moved", |game| {
            let mut driven = game.server.control().stats().threads;
            driven.sort_unstable_by(|one, other| other.cmp(one));
            driven == threads
        });
    }

    /// Asserts that no client connected again, and that each worker still has its clients.
    #[track_caller]
    fn assert_untouched(&self) {
        let stats = self.server.control().stats();
        assert_eq!(self.heard.len(), self.said.len(), "a client connected again");
        assert!(self.ended.is_empty(), "{:?}", self.ended);
        assert_eq!((stats.connections(), stats.unexplained()), (self.said.len(), 0));
        let players = self.said.len() / stats.workers.len();
        assert!(stats.workers.iter().all(|worker| worker.connections == players), "the spread is even");
        assert!(stats.workers.iter().all(|worker| (worker.panics, worker.wait_faults) == (0, 0)));
    }
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("eight bytes"))
}

#[test]
fn threads_are_added_and_removed_while_clients_play() {
    if !shares_ports() {
        return;
    }
    for wait in [Wait::best(), Wait::Notify, Wait::Gather(Duration::from_millis(1))] {
        // One socket per client: of a train of several connections, all packets go to the worker of the first one.
        let mut game = Game::new(|| config(shards(4, 1)).wait(wait), 100, 1);
        // Hellos that clients repeated are forwarded, and can arrive late.
        game.play(10);
        let forwarded = game.server.control().stats().forwarded();
        assert_eq!(game.server.control().stats().threads, [4]);
        for (threads, driven) in [(4, &[1, 1, 1, 1][..]), (2, &[2, 2]), (3, &[2, 1, 1]), (1, &[4])] {
            game.server.control().set_threads(threads).expect("in range");
            game.play(3);
            game.settle(driven);
            let before = game.server.control().stats();
            // Each worker has 25 clients.
            game.play(10);
            let after = game.server.control().stats();
            for (before, after) in before.workers.iter().zip(&after.workers) {
                assert!(after.received.datagrams > before.received.datagrams, "each shard receives");
            }
            game.assert_untouched();
            assert_eq!(after.forwarded(), forwarded, "no packet is forwarded");
        }
    }
}

#[test]
fn overlapping_moves_end_with_the_last_number_of_threads() {
    if !shares_ports() {
        return;
    }
    let mut game = Game::new(|| config(shards(8, 2)), 1, 48);
    for turn in 0..120_u16 {
        game.server.control().set_threads(1 + turn * 5 % 8).expect("in range");
        game.step();
    }
    for (threads, driven) in [(3, &[3, 3, 2][..]), (8, &[1; 8]), (1, &[8])] {
        // The second call overtakes the first one.
        game.server.control().set_threads(5).expect("in range");
        game.server.control().set_threads(threads).expect("in range");
        game.play(5);
        game.settle(driven);
    }
    game.assert_untouched();
}

#[test]
fn a_spinning_thread_serves_several_sockets() {
    if !shares_ports() {
        return;
    }
    let mut game = Game::new(|| config(shards(3, 1)).wait(Wait::Spin), 1, 12);
    game.play(20);
    game.server.control().set_threads(2).expect("in range");
    game.play(20);
    game.settle(&[2, 1]);
    game.assert_untouched();
}

#[test]
fn a_server_that_ends_during_a_move_closes_all_connections() {
    if !shares_ports() {
        return;
    }
    for round in 0..20_u16 {
        let mut game = Game::new(|| config(shards(6, 1 + round % 6)), 2, 6);
        game.server.control().set_threads(1 + (round * 7 + 3) % 6).expect("in range");
        if round % 2 == 0 {
            game.server.control().set_threads(1).expect("in range");
        }
        let Game { server, .. } = &mut game;
        // Another server takes its place, so that this one can be dropped.
        drop(std::mem::replace(server, Server::bind(config(Workers::Inline)).expect("a server")));
        let deadline = now() + PATIENCE;
        while game.ended.len() < 12 {
            assert!(now() < deadline, "round {round}: {} of 12 ended", game.ended.len());
            game.step_players();
        }
        let is_shutdown =
            |reason: &CloseReason| matches!(reason, CloseReason::Remote { code: CloseCode::Shutdown, .. });
        assert!(
            game.ended.iter().all(is_shutdown),
            "only the shutdown ends connections, round {round}: {:?}",
            game.ended
        );
    }
}

#[test]
fn threads_of_sockets_can_be_removed_and_added_again() {
    if !shares_ports() {
        return;
    }
    let mut game = Game::new(|| config(Workers::Count(3)), 1, 12);
    for (threads, driven) in [(1, &[3][..]), (3, &[1, 1, 1])] {
        game.server.control().set_threads(threads).expect("in range");
        game.play(5);
        game.settle(driven);
    }
    game.assert_untouched();
}

#[test]
fn invalid_numbers_of_threads_are_refused_and_change_nothing() {
    if !shares_ports() {
        return;
    }
    let inline = Server::bind(config(Workers::Inline)).expect("a server").control();
    assert!(matches!(inline.set_threads(1), Err(Error::NoThreads)));
    assert!(inline.stats().threads.is_empty());
    let mut game = Game::new(|| config(shards(4, 2)), 1, 8);
    for threads in [0, 5, u16::MAX] {
        let refused = game.server.control().set_threads(threads).expect_err("refused");
        assert!(refused.to_string().starts_with("threads: must be 1 to 4"), "{refused}");
    }
    game.play(3);
    game.settle(&[2, 2]);
}

#[test]
fn invalid_numbers_of_threads_and_sockets_are_refused() {
    for (sockets, threads) in [(0, 0), (0, 1), (4, 0), (4, 5), (1_025, 1)] {
        let refused = Server::bind(config(Workers::Shards { sockets, threads })).map(drop);
        assert!(matches!(refused, Err(Error::Setting { field: "workers", .. })), "{refused:?}");
    }
}
