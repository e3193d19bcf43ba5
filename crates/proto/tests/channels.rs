//! Channels that are no longer used hold no memory of their connection, as counted by the allocator.

use allocation_counter::measure;
use bytes::Bytes;
use drumfire_proto::{
    ChannelId, ClientConfig, Config, Endpoint, Event, Inbound, Message, Moment, Now, PeerId, Secret,
    SendOptions, ServerConfig, ServerIdentity, ServerKeyPair, SingleWorker,
};
use std::net::SocketAddr;
use std::time::Duration;

/// More channels than a game has that uses one for each property of each entity.
const CHANNELS: u16 = 1_024;

/// The steps of 10 ms until an idle connection has released its working memory.
const IDLE_STEPS: usize = 2_000;

struct Pair {
    server: Endpoint<SingleWorker>,
    client: Endpoint<SingleWorker>,
    /// The client's id on the server.
    peer: Option<PeerId>,
    delivered: u64,
    now: Now,
}

impl Pair {
    fn connected() -> Self {
        let keys = ServerKeyPair::from_secret(Secret::new([1; 32]));
        let identity = ServerIdentity { public_key: *keys.public(), key_id: 0 };
        let server = ServerConfig::new(keys, Secret::new([2; 32]), Secret::new([3; 32]));
        let (config, alone, seeds) =
            (Config::default(), SingleWorker::default(), [5, 6].map(|seed| Secret::new([seed; 32])));
        let [server_seed, client_seed] = seeds;
        let mut pair = Self {
            server: Endpoint::server(config.clone(), server, alone, server_seed).unwrap(),
            client: Endpoint::client(config, ClientConfig::default(), client_seed).unwrap(),
            peer: None,
            delivered: 0,
            now: Now { monotonic: Moment::from_nanos(1), wall: Duration::ZERO },
        };
        pair.client.connect(pair.now, address(0), &identity, None).unwrap();
        for _ in 0..50 {
            pair.step();
        }
        pair
    }

    fn peer(&self) -> PeerId {
        self.peer.expect("a connection")
    }

    /// Delivers everything that was sent, then lets 10 ms pass.
    fn step(&mut self) {
        let mut memory = [0; 1_200];
        self.client.handle_timeout(self.now);
        deliver(&mut self.client, address(1), &mut self.server, self.now, &mut memory);
        self.server.handle_timeout(self.now);
        deliver(&mut self.server, address(0), &mut self.client, self.now, &mut memory);
        while let Some(event) = self.server.poll_event() {
            if let Event::Connected { peer, .. } = event {
                self.peer = Some(peer);
            }
        }
        while let Some(event) = self.client.poll_event() {
            self.delivered += u64::from(matches!(event, Event::Message { .. }));
        }
        self.now.monotonic = self.now.monotonic.after(Duration::from_millis(10));
    }

    /// Sends this many messages of each mode on this many channels in turn, until all are acknowledged. Eight are
    /// queued at a time, so that several channels wait, or one at a time where a newer message would replace an older
    /// one.
    fn use_channels(&mut self, messages: u16, channels: u16) {
        let modes = [(SendOptions::reliable_ordered(), 8), (SendOptions::reliable_sequenced(), 1)];
        for ((mode, at_a_time), first) in modes.into_iter().zip([0, channels]) {
            for message in 0..messages {
                let channel = ChannelId(first + message % channels);
                self.server
                    .send(self.now, self.peer(), Message::new(channel, Bytes::from_static(&[7; 16]), mode))
                    .unwrap();
                if (message + 1).is_multiple_of(at_a_time) {
                    self.step();
                }
            }
        }
        for _ in 0..100 {
            self.step();
        }
    }
}

fn deliver(
    from: &mut Endpoint<SingleWorker>,
    address: SocketAddr,
    to: &mut Endpoint<SingleWorker>,
    now: Now,
    memory: &mut [u8; 1_200],
) {
    while let Some(transmit) = from.poll_transmit(now, &mut memory[..]) {
        to.handle_datagrams(now, [Inbound { from: address.into(), bytes: &mut memory[..transmit.bytes] }]);
    }
}

fn address(number: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, number], 7_000))
}

#[test]
fn used_channels_hold_no_memory_when_idle() {
    let held = [1, CHANNELS].map(|channels| {
        let mut pair = Pair::connected();
        // The events of an endpoint keep the memory of the largest batch. A run is one event, and messages of several
        // channels are several.
        pair.use_channels(8, 8);
        pair.use_channels(8, 1);
        let delivered = pair.delivered;
        let info = measure(|| {
            pair.use_channels(CHANNELS, channels);
            for _ in 0..IDLE_STEPS {
                pair.step();
            }
        });
        assert_eq!(pair.delivered - delivered, 2 * u64::from(CHANNELS));
        info.bytes_current
    });
    println!("both ends hold {held:?} B more after 1 and {CHANNELS} channels of each mode");
    assert_eq!(held[0], held[1]);
}
