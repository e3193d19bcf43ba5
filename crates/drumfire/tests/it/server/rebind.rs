//! Clients that change their source ports during play. No client reconnects, and no reliable message is lost or duplicated.
//! Packets reach their worker from every port without being forwarded.

use drumfire_tries::tries;
use std::collections::HashMap;
use std::time::Duration;

use super::world::{PATIENCE, config, granted, now};
use drumfire::{ChannelId, Client, Event, Message, PeerId, SendError, Server, ServerConfig, Workers};

use crate::single::{Single as _, connect_dev};

const CLIENTS: usize = 20;

/// Returns the number of port changes of each client.
fn rebinds() -> usize {
    tries(300) as usize
}

const WORKERS: u16 = 4;

/// The number of messages by which one end may be ahead of the other, so that messages are always in flight.
const AHEAD: u64 = 8;

const UP: ChannelId = ChannelId(1);
const DOWN: ChannelId = ChannelId(2);

/// The last number that one end of a connection has sent and received. The numbers of each direction start at 1.
#[derive(Clone, Copy, Debug, Default)]
struct NumberStream {
    sent: u64,
    received: u64,
}

impl NumberStream {
    /// Receives a message, which must have the next number.
    #[track_caller]
    fn receive(&mut self, bytes: &[u8]) {
        let number = u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
        assert_eq!(number, self.received + 1, "each number arrives once and in order");
        self.received = number;
    }
}

/// A server and clients that exchange numbers continuously in both directions.
struct Game {
    server: Server,
    clients: Vec<(Client, NumberStream)>,
    /// The server's ends of the connections, by peer.
    peers: HashMap<PeerId, NumberStream>,
    /// The number of `PathChanged` events at the server.
    moves: u64,
}

impl Game {
    fn new(config: ServerConfig) -> Self {
        let server = Server::bind(config).expect("a server");
        let address = server.local_addr();
        let client = |_| (connect_dev(address).expect("a client"), NumberStream::default());
        let mut game =
            Self { server, clients: (0..CLIENTS).map(client).collect(), peers: HashMap::new(), moves: 0 };
        game.until("all ends receive messages", |game| game.least() > AHEAD);
        game
    }

    /// Returns the lowest number received at any end. 0 until all clients are connected.
    fn least(&self) -> u64 {
        let clients = self.clients.iter().map(|(_, stream)| stream.received);
        let peers = self.peers.values().map(|stream| stream.received);
        let is_complete = self.peers.len() == self.clients.len();
        clients.chain(peers).min().filter(|_| is_complete).unwrap_or(0)
    }

    fn step(&mut self) {
        self.server.poll(Duration::from_micros(500));
        while let Some(event) = self.server.next_event() {
            match event {
                Event::Connected { peer, .. } => {
                    assert!(
                        self.peers.insert(peer, NumberStream::default()).is_none(),
                        "a peer connected twice"
                    );
                }
                Event::Message { peer, channel: UP, payload } => {
                    self.peers.get_mut(&peer).expect("it is connected").receive(&payload);
                }
                Event::PathChanged { .. } => self.moves += 1,
                other => panic!("{other:?}"),
            }
        }
        for (peer, stream) in &mut self.peers {
            while stream.sent < stream.received + AHEAD {
                let number = (stream.sent + 1).to_be_bytes().to_vec();
                match self.server.send(*peer, Message::reliable_ordered(DOWN, number)) {
                    Ok(_) => stream.sent += 1,
                    Err(SendError::Full) => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        self.server.flush();
        for (client, stream) in &mut self.clients {
            Self::step_client(client, stream);
        }
    }

    fn step_client(client: &mut Client, stream: &mut NumberStream) {
        client.poll(Duration::ZERO);
        while let Some(event) = client.next_event() {
            match event {
                Event::Connected { .. } => {
                    assert_eq!((stream.sent, stream.received), (0, 0), "it connected twice");
                }
                Event::Message { channel: DOWN, payload, .. } => stream.receive(&payload),
                Event::PathChanged { address, .. } => assert_eq!(client.local_addr(), Some(address)),
                other => panic!("{other:?}"),
            }
        }
        while client.is_up() && stream.sent < stream.received + AHEAD {
            let number = (stream.sent + 1).to_be_bytes().to_vec();
            match client.send_up(Message::reliable_ordered(UP, number)) {
                Ok(_) => stream.sent += 1,
                Err(SendError::Full) => break,
                Err(error) => panic!("{error}"),
            }
        }
        client.flush();
    }

    fn until(&mut self, what: &str, mut is_true: impl FnMut(&Self) -> bool) {
        let deadline = now() + PATIENCE;
        while !is_true(self) {
            assert!(now() < deadline, "not in time: {what}");
            self.step();
        }
    }

    fn path_migrations(&self) -> u64 {
        self.server.control().stats().workers.iter().map(|worker| worker.protocol.path_migrations).sum()
    }
}

#[test]
fn changes_of_ports_lose_nothing_and_forward_no_packet() {
    let mut game = Game::new(config(Workers::Count(WORKERS)));
    let forwarded = game.server.control().stats().forwarded();
    for round in 0..rebinds() {
        // The two halves of the clients change ports in turn, so that the other half plays on from its old ports.
        for half in 0..2 {
            for at in (half..CLIENTS).step_by(2) {
                game.clients[at].0.rebind().expect("another socket");
            }
            // New messages arrive at the new ports only, because the old sockets are closed.
            let goals: Vec<u64> =
                game.clients.iter().map(|(_, stream)| stream.received + 2 * AHEAD).collect();
            game.until("all clients receive messages at the new ports", |game| {
                game.clients.iter().zip(&goals).all(|((_, stream), goal)| stream.received >= *goal)
            });
        }
        // The server sends to a new port before it has validated the port. So the count of moved paths may lag behind.
        game.until("all paths have moved", |game| game.path_migrations() >= ((round + 1) * CLIENTS) as u64);
    }
    let stats = game.server.control().stats();
    let loads: Vec<usize> = stats.workers.iter().map(|worker| worker.connections).collect();
    println!(
        "{} changes of ports, {} followed, {} messages each way at least, workers {loads:?}",
        rebinds() * CLIENTS,
        game.path_migrations(),
        game.least()
    );
    assert_eq!(stats.forwarded(), forwarded, "no packet is forwarded");
    assert_eq!((stats.connections(), stats.unexplained()), (CLIENTS, 0));
    let workers = usize::from(granted(WORKERS));
    assert_eq!(loads, vec![CLIENTS / workers; workers]);
    assert_eq!(game.peers.len(), CLIENTS, "no client connects twice");
}
