//! The worker loop over real sockets allocates nothing per packet: received, acknowledged, handed over, answered,
//! sent.
//!
//! Server and client are both without threads, so that everything they do is counted on this one.

use std::time::Duration;

use allocation_counter::measure;
use drumfire::{
    Access, Bytes, ChannelId, Client, ClientEvent, Event, SendOptions, Server, ServerConfig, ServerKey,
    Workers,
};

const MESSAGE: &[u8] = &[7; 200];

/// Messages there and back before anything is counted: memory grows to what it needs.
const WARM_UP: u32 = 3_000;

const COUNTED: u32 = 3_000;

struct Pair {
    server: Server,
    client: Client,
}

impl Pair {
    fn connected() -> Self {
        let address = "127.0.0.1:0".parse().unwrap();
        let config = ServerConfig::new(address, ServerKey::dev(), Access::Open).workers(Workers::Inline);
        let server = Server::bind(config).unwrap();
        let client = Client::connect_dev(server.local_addr()).unwrap();
        Self { server, client }
    }

    /// Sends `count` messages in each of so many rounds and waits for every answer; one that is lost is sent
    /// again.
    fn echo(&mut self, rounds: u32, count: u32, options: SendOptions) {
        for _ in 0..rounds {
            let mut missing = count;
            while missing > 0 {
                for _ in 0..missing {
                    self.client.send(ChannelId(3), Bytes::from_static(MESSAGE), options).unwrap();
                }
                self.client.flush();
                let mut quiet = 0;
                while missing > 0 && quiet < 100 {
                    let before = missing;
                    self.server.wait(Duration::from_millis(1));
                    for event in self.server.poll() {
                        if let Event::Message { peer, channel, bytes } = event {
                            self.server.send(peer, channel, bytes, options).unwrap();
                        }
                    }
                    self.server.flush();
                    self.client.wait(Duration::from_millis(1));
                    for event in self.client.poll() {
                        match event {
                            ClientEvent::Message { bytes, .. } => {
                                assert_eq!(bytes, MESSAGE);
                                missing -= 1;
                            }
                            ClientEvent::Connected => {}
                            other => panic!("{other:?}"),
                        }
                    }
                    quiet = if missing == before { quiet + 1 } else { 0 };
                }
            }
        }
    }
}

fn assert_none(options: SendOptions) {
    for count in [1, 16] {
        let mut pair = Pair::connected();
        pair.echo(WARM_UP / count, count, options);
        let counted = measure(|| pair.echo(COUNTED / count, count, options));
        assert_eq!(counted.count_total, 0, "{options:?}, {count} at once: {counted:?}");
    }
}

#[test]
fn unreliable_messages_cost_no_allocation() {
    assert_none(SendOptions::unreliable());
}

#[test]
fn reliable_messages_cost_no_allocation() {
    assert_none(SendOptions::reliable_ordered());
}
