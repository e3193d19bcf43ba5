//! Many connections over one socket: each receives only its own messages, and the end of one affects no other.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use super::world::{PATIENCE, config, now, possible};
use drumfire::tokens::{TokenAccess, TokenMasterKey, TokenRequest};
use drumfire::{
    Access, ChannelId, Client, ClientConfig, CloseReason, ConnectError, Error, Event, Message, PeerId,
    PlayerId, Server, ServerConfig, ServerKey, Workers,
};

/// Echo servers, and one client socket with connections to them.
struct Bots {
    servers: Vec<Server>,
    bots: Client,
    /// The events of each connection, in order.
    heard: HashMap<PeerId, Vec<Event>>,
    /// The addresses of the connections at the servers.
    addresses: BTreeSet<std::net::SocketAddr>,
    /// The players that the servers have accepted.
    players: BTreeSet<u128>,
}

impl Bots {
    fn new(servers: Vec<Server>, connections: u32) -> Self {
        let address = "127.0.0.1:0".parse().expect("an address");
        Self::with(servers, ClientConfig::default().connections(connections).address(address))
    }

    fn with(servers: Vec<Server>, config: ClientConfig) -> Self {
        let bots = Client::new(config).expect("a socket");
        let (addresses, players) = (BTreeSet::new(), BTreeSet::new());
        Self { servers, bots, heard: HashMap::new(), addresses, players }
    }

    fn step(&mut self) {
        self.bots.poll(Duration::from_millis(1));
        while let Some(event) = self.bots.next_event() {
            let (Event::Connected { peer, .. }
            | Event::ConnectFailed { peer, .. }
            | Event::Message { peer, .. }
            | Event::PathChanged { peer, .. }
            | Event::Disconnected { peer, .. }) = &event
            else {
                panic!("{event:?}")
            };
            self.heard.entry(*peer).or_default().push(event);
        }
        for server in &mut self.servers {
            server.poll(Duration::from_millis(1));
            while let Some(event) = server.next_event() {
                match event {
                    Event::Connected { info, .. } => {
                        self.addresses.insert(info.address);
                        self.players.extend(info.player.map(|player| player.0));
                    }
                    Event::Message { peer, channel, payload } => {
                        server.send(peer, Message::reliable_ordered(channel, payload)).expect("room");
                    }
                    _ => {}
                }
            }
            server.flush();
        }
    }

    fn until(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let deadline = now() + PATIENCE;
        while !is_so(self) {
            assert!(now() < deadline, "not in time: {what}");
            self.step();
        }
    }

    fn connect(&mut self, server: usize) -> PeerId {
        let address = self.servers[server].local_addr();
        self.bots.connect((address, ServerKey::dev().public())).expect("room")
    }

    fn say(&mut self, peer: PeerId, text: &str) {
        let bytes = text.to_owned().into_bytes();
        self.bots.send(peer, Message::reliable_ordered(ChannelId(3), bytes)).expect("room");
    }

    /// Returns the texts that a connection has received.
    fn texts(&self, peer: PeerId) -> Vec<String> {
        let text = |event: &Event| match event {
            Event::Message { payload, .. } => Some(String::from_utf8_lossy(payload).into_owned()),
            _ => None,
        };
        self.heard.get(&peer).into_iter().flatten().filter_map(text).collect()
    }

    fn is_connected(&self, peer: PeerId) -> bool {
        self.heard.get(&peer).is_some_and(|heard| matches!(heard[0], Event::Connected { .. }))
    }
}

fn server(workers: Workers) -> Server {
    Server::bind(config(workers)).expect("a server")
}

#[test]
fn many_connections_of_one_socket_receive_their_own_messages() {
    let mut bots = Bots::new(vec![server(Workers::Count(2)), server(Workers::Inline)], 200);
    let peers: Vec<PeerId> = (0..200).map(|number| bots.connect(number % 2)).collect();
    for (number, peer) in peers.iter().enumerate() {
        bots.say(*peer, &format!("I am {number}"));
    }
    bots.until("all are answered", |bots| peers.iter().all(|peer| !bots.texts(*peer).is_empty()));
    for (number, peer) in peers.iter().enumerate() {
        assert!(bots.is_connected(*peer));
        assert_eq!(bots.texts(*peer), [format!("I am {number}")]);
    }
    assert_eq!(bots.addresses, bots.bots.local_addr().into_iter().collect());
    assert_eq!(bots.bots.stats().connections, 200);
    assert_eq!(bots.bots.stats().unexplained(), 0);
}

#[test]
fn an_address_of_another_family_fails_only_its_own_attempt() {
    let mut bots = Bots::new(vec![server(Workers::Inline)], 2);
    let good = bots.connect(0);
    let other_family = "[::1]:9".parse().expect("an address");
    let bad = bots.bots.connect((other_family, ServerKey::dev().public())).expect("room");
    bots.until("one is connected and one refused", |bots| {
        bots.is_connected(good) && bots.heard.contains_key(&bad)
    });
    // The operating system rejects the first datagram, so the attempt fails without a timeout.
    assert_eq!(bots.heard[&bad], [Event::ConnectFailed { peer: bad, error: ConnectError::Unreachable }]);
    assert_eq!(bots.bots.stats().sent.lost.total(), 1);
    bots.say(good, "still here");
    bots.until("it is answered", |bots| bots.texts(good) == ["still here"]);
}

#[test]
fn the_end_of_a_connection_makes_room_for_another() {
    let mut bots = Bots::new(vec![server(Workers::Inline)], 3);
    let peers: Vec<PeerId> = (0..3).map(|_| bots.connect(0)).collect();
    bots.until("all are connected", |bots| peers.iter().all(|peer| bots.is_connected(*peer)));
    let (address, key) = (bots.servers[0].local_addr(), ServerKey::dev().public());
    let one_more = bots.bots.connect((address, key));
    assert!(matches!(one_more, Err(Error::Connect(ConnectError::TooManyConnections))), "{one_more:?}");
    bots.bots.close(peers[1], 4, "enough");
    bots.until("one is closed", |bots| {
        let last = bots.heard[&peers[1]].last();
        let is_own = |reason| matches!(reason, CloseReason::Local { .. });
        matches!(last, Some(Event::Disconnected { closed, .. }) if is_own(closed.reason))
    });
    assert!(bots.bots.send(peers[1], Message::unreliable(ChannelId(0), "?")).is_err());
    bots.until("its place is free", |bots| bots.bots.stats().connections == 2);
    let another = bots.connect(0);
    assert_ne!(another, peers[1]);
    for peer in [peers[0], another, peers[2]] {
        bots.say(peer, "still here");
    }
    bots.until("all are answered", |bots| {
        [peers[0], another, peers[2]].iter().all(|peer| bots.texts(*peer) == ["still here"])
    });
}

#[test]
fn a_client_connects_to_one_server_after_another() {
    let servers = vec![server(Workers::Inline), server(Workers::Inline)];
    let mut bots = Bots::with(servers, ClientConfig::default());
    assert_eq!(bots.bots.local_addr(), None, "the socket leads to no server yet");
    for round in 0..4 {
        let peer = bots.connect(round % 2);
        let (address, key) = (bots.servers[0].local_addr(), ServerKey::dev().public());
        let one_more = bots.bots.connect((address, key));
        assert!(matches!(one_more, Err(Error::Connect(ConnectError::TooManyConnections))), "{one_more:?}");
        bots.say(peer, "hello");
        bots.until("it is answered", |bots| bots.texts(peer) == ["hello"]);
        assert!(bots.bots.is_connected(peer) && bots.bots.local_addr().is_some());
        // The close is not flushed, so the next connect has to send it.
        bots.bots.close(peer, 4, "next");
        assert!(bots.bots.events().any(|event| matches!(event, Event::Disconnected { .. })));
        assert!(!bots.bots.is_connected(peer) && bots.bots.peers().len() == 0);
    }
    bots.bots.flush();
    // A server that misses a close keeps its peer for ten seconds.
    let start = now();
    bots.until("each server received its closes", |bots| {
        bots.servers.iter().all(|server| server.peers().len() == 0)
    });
    assert!(now().duration_since(start) < Duration::from_secs(9));
}

#[test]
fn a_client_without_an_address_reaches_servers_of_both_families() {
    let address = |text: &str| text.parse().expect("an address");
    let bind = |text| Server::bind(ServerConfig::new(address(text), ServerKey::dev(), Access::Open));
    let mut servers = vec![bind("127.0.0.1:0").expect("a server")];
    // A host can be without IPv6.
    servers.extend(bind("[::1]:0").ok());
    let count = servers.len();
    let mut bots = Bots::with(servers, ClientConfig::default().connections(2));
    let peers: Vec<PeerId> = (0..count).map(|server| bots.connect(server)).collect();
    bots.until("all are connected", |bots| peers.iter().all(|peer| bots.is_connected(*peer)));
}

#[test]
fn all_connections_continue_from_another_socket() {
    let mut bots = Bots::new(vec![server(Workers::Count(2))], 20);
    let peers: Vec<PeerId> = (0..20).map(|_| bots.connect(0)).collect();
    bots.until("all are connected", |bots| peers.iter().all(|peer| bots.is_connected(*peer)));
    let before = bots.bots.local_addr();
    bots.bots.rebind().expect("another socket");
    let address = bots.bots.local_addr().expect("a bound socket");
    assert_ne!(Some(address), before);
    for peer in &peers {
        bots.say(*peer, "from here");
    }
    bots.until("all are answered", |bots| peers.iter().all(|peer| bots.texts(*peer) == ["from here"]));
    for peer in peers {
        let is_change = |event: &&Event| matches!(event, Event::PathChanged { .. });
        let changes: Vec<&Event> = bots.heard[&peer].iter().filter(is_change).collect();
        assert_eq!(changes, [&Event::PathChanged { peer, address }], "each connection has one event");
    }
}

#[test]
fn each_connection_can_have_its_own_token() {
    let key = ServerKey::generate().expect("randomness");
    let token_key = TokenMasterKey::generate().expect("randomness").token_key(1, "eu-1").expect("an id");
    let (public, access) = (key.public(), Access::Token(TokenAccess::new(token_key.clone())));
    let config = ServerConfig::new("127.0.0.1:0".parse().expect("an address"), key, access);
    let server = Server::bind(config.workers(possible(Workers::Count(2)))).expect("a server");
    let address = server.local_addr();
    let mut bots = Bots::new(vec![server], 10);
    let token = |player, protocol_id| {
        let request = TokenRequest::new(PlayerId(player), address, public).protocol_id(protocol_id);
        request.issue(&token_key).expect("a token")
    };
    let peers: Vec<PeerId> =
        (0..10).map(|player| bots.bots.connect(token(player, 0)).expect("room")).collect();
    bots.until("all are connected", |bots| bots.players.len() == 10);
    assert!(bots.players.iter().copied().eq(0..10));
    bots.until("all can resume", |bots| peers.iter().all(|peer| bots.bots.resume_token(*peer).is_some()));
    let other = bots.bots.connect(token(11, 5));
    assert!(matches!(other, Err(Error::Setting { field: "protocol_id", .. })), "{other:?}");
}

#[test]
fn packets_of_one_socket_go_directly_to_their_workers() {
    const CONNECTIONS: u32 = 40;
    let server = Server::bind(config(Workers::Count(4))).expect("a server");
    let address = server.local_addr();
    let mut world = Bots::new(vec![server], CONNECTIONS);
    let key = ServerKey::dev().public();
    let peers: Vec<PeerId> =
        (0..CONNECTIONS).map(|_| world.bots.connect((address, key)).expect("a place")).collect();
    world.until("all are connected", |world| world.heard.len() == CONNECTIONS as usize);
    world.until("all Hellos are through", |world| {
        world.servers[0].control().stats().connections() == CONNECTIONS as usize
    });
    for _ in 0..20 {
        world.step();
    }
    let before = world.servers[0].control().stats().forwarded();
    for _ in 0..10 {
        // Messages of one length, which a system with segmentation offload would send in one call.
        for peer in &peers {
            world.bots.send(*peer, Message::reliable_ordered(ChannelId(0), &[7; 200][..])).expect("room");
        }
        world.bots.flush();
        world.step();
    }
    world.until("all messages are echoed", |world| world.heard.values().all(|heard| heard.len() == 11));
    assert_eq!(world.servers[0].control().stats().forwarded(), before);
}
