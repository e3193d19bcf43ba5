//! With many connections, each is prefetched before its packets are opened. Nothing else differs.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use drumfire_proto::{
    ChannelId, ClientConfig, Config, Congestion, Endpoint, Event, Inbound, Message, Moment, Now, PeerId,
    Secret, SendOptions, ServerConfig, ServerIdentity, ServerKeyPair, SingleWorker,
};

const CONNECTIONS: usize = 300;

/// A server, and an endpoint with all its clients. Each connection has its own address on both ends.
struct World {
    server: Endpoint<SingleWorker>,
    clients: Endpoint<SingleWorker>,
    now: Now,
    peers: Vec<PeerId>,
    /// The messages that the server and the clients received, in order.
    received: [Vec<(PeerId, Bytes)>; 2],
    connected: usize,
}

fn address(connection: usize) -> SocketAddr {
    ([127, 0, 0, 1], 1_000 + u16::try_from(connection).unwrap()).into()
}

impl World {
    fn new() -> Self {
        Self::with(Config::default())
    }

    fn with(config: Config) -> Self {
        let keys = ServerKeyPair::from_secret(Secret::new([1; 32]));
        let identity = ServerIdentity { public_key: *keys.public(), key_id: 0 };
        let config = config.connections(512);
        let server = ServerConfig::new(keys, Secret::new([2; 32]), Secret::new([3; 32]));
        let server =
            Endpoint::server(config.clone(), server, SingleWorker::default(), Secret::new([5; 32])).unwrap();
        let mut clients = Endpoint::client(config, ClientConfig::many(), Secret::new([6; 32])).unwrap();
        let now = Now { monotonic: Moment::from_nanos(1), wall: Duration::ZERO };
        let to = ([127, 0, 0, 1], 1).into();
        let peers = (0..CONNECTIONS).map(|_| clients.connect(now, to, &identity, None).unwrap()).collect();
        Self { server, clients, now, peers, received: Default::default(), connected: 0 }
    }

    /// Delivers everything that is to be sent, in one batch each way.
    fn step(&mut self) {
        let now = self.now;
        let mut memory = [0; 1_472];
        let mut up = Vec::new();
        while let Some(transmit) = self.clients.poll_transmit(now, &mut memory) {
            let at = self.peers.iter().position(|peer| Some(*peer) == transmit.peer).unwrap();
            up.push((address(at), memory[..transmit.bytes].to_vec()));
        }
        let batch = up.iter_mut().map(|(from, bytes)| Inbound { from: (*from).into(), bytes });
        self.server.handle_datagrams(now, batch);
        self.server.handle_timeout(now);
        while let Some(event) = self.server.poll_event() {
            match event {
                Event::Connected { .. } => self.connected += 1,
                Event::Message { peer, payload, .. } => {
                    self.received[0].push((peer, Bytes::copy_from_slice(payload)));
                }
                other => panic!("{other:?}"),
            }
        }
        for (peer, bytes) in std::mem::take(&mut self.received[0]) {
            let options = SendOptions::reliable_ordered();
            self.server.send(now, peer, Message::new(ChannelId(0), bytes, options)).unwrap();
        }
        let mut down = Vec::new();
        while let Some(transmit) = self.server.poll_transmit(now, &mut memory) {
            down.push(memory[..transmit.bytes].to_vec());
        }
        let from: SocketAddr = ([127, 0, 0, 1], 1).into();
        let batch = down.iter_mut().map(|bytes| Inbound { from: from.into(), bytes });
        self.clients.handle_datagrams(now, batch);
        self.clients.handle_timeout(now);
        while let Some(event) = self.clients.poll_event() {
            if let Event::Message { peer, payload, .. } = event {
                self.received[1].push((peer, Bytes::copy_from_slice(payload)));
            }
        }
        self.now.monotonic = now.monotonic.after(Duration::from_millis(10));
    }
}

#[test]
fn many_connections_are_served_like_a_few() {
    let mut world = World::new();
    for _ in 0..400 {
        world.step();
    }
    assert_eq!(world.connected, CONNECTIONS);
    // First silent, then busy with an ack in flight, then idle again.
    for round in 0_u32..8 {
        for (at, peer) in world.peers.iter().enumerate() {
            let text = format!("{at} in round {round}");
            world.clients.send(world.now, *peer, Message::unreliable(ChannelId(0), text)).unwrap();
        }
        (0..3).for_each(|_| world.step());
        let mut received = std::mem::take(&mut world.received[1]);
        received.sort_by_key(|(peer, _)| world.peers.iter().position(|one| one == peer));
        assert_eq!(received.len(), CONNECTIONS);
        for (at, (_, text)) in received.iter().enumerate() {
            assert_eq!(*text, format!("{at} in round {round}"));
        }
        if round == 5 {
            (0..1_000).for_each(|_| world.step());
        }
    }
    for stats in [world.server.stats(), world.clients.stats()] {
        assert_eq!((stats.dropped_count(), stats.packets_lost), (0, 0));
    }
}

/// A call may find that a connection whose turn has ended earlier can send again. Such a connection must not wait until the next
/// wake-up, of which `poll_timeout` says nothing.
#[test]
fn nothing_is_left_to_send_when_time_passes_within_a_batch() {
    let mut world =
        World::with(Config::default().congestion(Congestion::Fixed { bytes_per_second: 1_000_000 }));
    for _ in 0..400 {
        world.step();
    }
    let [paced, other] = [world.peers[0], world.peers[1]];
    for _ in 0..100 {
        let message = Message::reliable_ordered(ChannelId(0), vec![7; 1_000]);
        world.clients.send(world.now, paced, message).unwrap();
    }
    world
        .clients
        .send(world.now, other, Message::unreliable(ChannelId(0), "after the other's turn"))
        .unwrap();
    let (mut memory, mut count) = ([0; 1_472], 0);
    loop {
        let transmit = world.clients.poll_transmit(world.now, &mut memory).expect("the other has a message");
        if transmit.peer == Some(other) {
            break;
        }
        count += 1;
    }
    assert!((1..100).contains(&count), "the pacer ended the turn after {count} packets");
    world.now.monotonic = world.now.monotonic.after(Duration::from_millis(5));
    let mut later_count = 0;
    while world.clients.poll_transmit(world.now, &mut memory).is_some() {
        later_count += 1;
    }
    assert!(later_count > 0, "the pacer allows more after 5 ms");
    assert!(world.clients.poll_transmit(world.now, &mut memory).is_none());
}
