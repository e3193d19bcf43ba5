//! The memory of a connection on a server, as counted by the allocator.

use allocation_counter::measure;
use bytes::Bytes;
use drumfire_proto::{
    ChannelId, ClientConfig, Config, Endpoint, Event, Inbound, Message, Moment, Now, PeerId, Secret,
    SendOptions, ServerConfig, ServerIdentity, ServerKeyPair, SingleWorker,
};
use std::net::SocketAddr;
use std::time::Duration;

/// Tables grow in powers of two. This many connections fill them by half on average.
const CLIENTS: usize = 160;
/// The limit for a connection that has been silent for a while, including its table entries.
const IDLE_BYTES: i64 = 720;

struct Clients {
    server: Endpoint<SingleWorker>,
    identity: ServerIdentity,
    clients: Vec<Endpoint<SingleWorker>>,
    now: Now,
    /// Bytes that the server has allocated since it was created and not freed.
    server_bytes: i64,
    peers: Vec<PeerId>,
}

impl Clients {
    fn new() -> Self {
        let keys = ServerKeyPair::from_secret(Secret::new([1; 32]));
        let identity = ServerIdentity { public_key: *keys.public(), key_id: 0 };
        let server = ServerConfig::new(keys, Secret::new([2; 32]), Secret::new([3; 32]));
        let now = Now { monotonic: Moment::from_nanos(1), wall: Duration::ZERO };
        let server =
            Endpoint::server(Config::default(), server, SingleWorker::default(), Secret::new([5; 32]))
                .unwrap();
        let clients = (0..CLIENTS)
            .map(|index| {
                let seed = Secret::new([u8::try_from(index).unwrap(); 32]);
                Endpoint::client(Config::default(), ClientConfig::default(), seed).unwrap()
            })
            .collect();
        Self { server, identity, clients, now, server_bytes: 0, peers: Vec::new() }
    }

    /// Clients connect one after the other, so that the server's queues for all connections stay short.
    fn connect(&mut self) {
        for client in 0..CLIENTS {
            self.clients[client].connect(self.now, address(0), &self.identity, None).unwrap();
            for _ in 0..5 {
                self.step(Duration::from_millis(10));
            }
        }
    }

    fn counted<T>(&mut self, act: impl FnOnce(&mut Endpoint<SingleWorker>) -> T) -> T {
        let mut done = None;
        let info = measure(|| done = Some(act(&mut self.server)));
        self.server_bytes += info.bytes_current;
        done.unwrap()
    }

    /// Delivers everything that was sent, then lets time pass.
    fn step(&mut self, by: Duration) {
        let now = self.now;
        let mut memory = [0; 1_200];
        for index in 0..CLIENTS {
            let client = &mut self.clients[index];
            client.handle_timeout(now);
            while client.poll_event().is_some() {}
            let mut inbound = Vec::new();
            while let Some(transmit) = client.poll_transmit(now, &mut memory) {
                inbound.push(memory[..transmit.bytes].to_vec());
            }
            for mut bytes in inbound {
                self.counted(|server| {
                    server.handle_datagrams(
                        now,
                        [Inbound { from: address(index + 1).into(), bytes: &mut bytes }],
                    );
                });
            }
        }
        self.counted(|server| server.handle_timeout(now));
        let mut connected = [None; CLIENTS];
        self.counted(|server| {
            let mut places = connected.iter_mut();
            while let Some(event) = server.poll_event() {
                if let Event::Connected { peer, .. } = event {
                    *places.next().unwrap() = Some(peer);
                }
            }
        });
        self.peers.extend(connected.into_iter().flatten());
        while let Some(transmit) = self.counted(|server| server.poll_transmit(now, &mut memory)) {
            let index = usize::from(transmit.to.peer.port()) - 2;
            let inbound = Inbound { from: address(0).into(), bytes: &mut memory[..transmit.bytes] };
            self.clients[index].handle_datagrams(now, [inbound]);
        }
        self.now.monotonic = self.now.monotonic.after(by);
    }

    fn per_connection(&self) -> i64 {
        assert_eq!(self.peers.len(), CLIENTS);
        self.server_bytes / i64::try_from(CLIENTS).unwrap()
    }
}

fn address(number: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, u8::try_from(number).unwrap()], u16::try_from(number + 1).unwrap()))
}

#[test]
fn an_idle_connection_takes_at_most_720_bytes() {
    let mut clients = Clients::new();
    clients.connect();
    for options in [SendOptions::unreliable(), SendOptions::reliable_ordered()] {
        for _ in 0..50 {
            let (now, peers) = (clients.now, clients.peers.clone());
            for peer in peers {
                for _ in 0..3 {
                    let payload = Bytes::from_static(&[7; 64]);
                    clients
                        .counted(|server| {
                            server.send(now, peer, Message::new(ChannelId(0), payload, options))
                        })
                        .unwrap();
                }
            }
            clients.step(Duration::from_millis(10));
        }
    }
    let busy = clients.per_connection();
    // More than five seconds after the last keep-alive.
    for _ in 0..330 {
        clients.step(Duration::from_millis(50));
    }
    let idle = clients.per_connection();
    println!("a busy connection takes {busy} B, an idle one {idle} B");
    assert!(idle <= IDLE_BYTES, "{idle} B");
}
