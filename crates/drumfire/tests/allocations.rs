//! The worker loop over real sockets allocates nothing per packet, from the receive call to the application and back.
//!
//! Neither the server nor the client has threads, so the count for this thread covers all their work.

use std::net::SocketAddr;
use std::time::Duration;

use allocation_counter::measure;
use drumfire::{
    Access, Bytes, ChannelId, Client, ClientConfig, Context, Event, Handler, Message, PeerId, SendOptions,
    Server, ServerConfig, ServerKey, Workers, handler,
};

const MESSAGE: &[u8] = &[7; 200];

/// The number of echoed messages before the count starts, in which buffers grow to their final size.
const WARM_UP: u32 = 1_000;

const COUNTED: u32 = 1_000;

/// The maximum number of rounds until one has no allocation. On an idle machine, the first round has none.
const ROUNDS: usize = 20;

/// A server without threads that echoes all messages.
trait Echo {
    fn connected() -> Pair<Self>
    where
        Self: Sized;
    fn work(&mut self, options: SendOptions);
}

fn config() -> ServerConfig {
    let address = "127.0.0.1:0".parse().unwrap();
    ServerConfig::new(address, ServerKey::dev(), Access::Open).workers(Workers::Inline)
}

impl Echo for Server {
    fn connected() -> Pair<Self> {
        let server = Self::bind(config()).unwrap();
        Pair::new(server.local_addr(), server)
    }

    fn work(&mut self, options: SendOptions) {
        self.poll(Duration::from_millis(1));
        while let Some(event) = self.next_event() {
            if let Event::Message { peer, channel, payload } = event {
                self.send(peer, Message::new(channel, payload, options)).unwrap();
            }
        }
        self.flush();
    }
}

/// A handler that echoes all messages. The channel selects the mode of the reply.
struct Answer;

const RELIABLE: ChannelId = ChannelId(4);

impl Handler for Answer {
    type Note = ();

    fn on_message(&mut self, context: &mut Context<'_>, peer: PeerId, channel: ChannelId, bytes: &[u8]) {
        let is_reliable = channel == RELIABLE;
        let options = if is_reliable { SendOptions::reliable_ordered() } else { SendOptions::unreliable() };
        context.send(peer, Message::new(channel, context.copy(bytes), options)).unwrap();
    }
}

impl Echo for handler::Server<()> {
    fn connected() -> Pair<Self> {
        let server = handler::Server::bind(config(), |_| Answer).unwrap();
        Pair::new(server.local_addr(), server)
    }

    fn work(&mut self, _: SendOptions) {
        self.poll(Duration::from_micros(100));
    }
}

struct Pair<S> {
    server: S,
    client: Client,
    peer: PeerId,
}

impl<S: Echo> Pair<S> {
    fn new(address: SocketAddr, server: S) -> Self {
        let mut client = Client::new(ClientConfig::default()).unwrap();
        let peer = client.connect((address, ServerKey::dev().public())).unwrap();
        Self { server, client, peer }
    }

    /// Sends `count` messages in each of `rounds` rounds, and waits for every reply. A lost message is sent again.
    fn echo(&mut self, rounds: u32, count: u32, options: SendOptions) {
        let is_reliable = options == SendOptions::reliable_ordered();
        let channel = if is_reliable { RELIABLE } else { ChannelId(3) };
        for _ in 0..rounds {
            let mut missing = count;
            while missing > 0 {
                for _ in 0..missing {
                    self.client
                        .send(self.peer, Message::new(channel, Bytes::from_static(MESSAGE), options))
                        .unwrap();
                }
                self.client.flush();
                let mut quiet = 0;
                while missing > 0 && quiet < 100 {
                    let before = missing;
                    self.server.work(options);
                    self.client.poll(Duration::from_millis(1));
                    while let Some(event) = self.client.next_event() {
                        match event {
                            Event::Message { payload, .. } => {
                                assert_eq!(payload, MESSAGE);
                                missing -= 1;
                            }
                            Event::Connected { .. } => {}
                            other => panic!("{other:?}"),
                        }
                    }
                    quiet = if missing == before { quiet + 1 } else { 0 };
                }
            }
        }
    }
}

fn assert_none<S: Echo>(options: SendOptions) {
    for count in [1, 16] {
        let mut pair = S::connected();
        pair.echo(WARM_UP / count, count, options);
        // A pause of the machine may pile up more than ever before, and memory grows to that once more.
        let mut rounds = (0..ROUNDS).map(|_| measure(|| pair.echo(COUNTED / count, count, options)));
        assert!(
            rounds.any(|counted| counted.count_total == 0),
            "{options:?}: echoes of {count} messages do not allocate"
        );
    }
}

#[test]
fn unreliable_messages_cost_no_allocation() {
    assert_none::<Server>(SendOptions::unreliable());
}

#[test]
fn reliable_messages_cost_no_allocation() {
    assert_none::<Server>(SendOptions::reliable_ordered());
}

#[test]
fn a_handlers_answers_cost_no_allocation() {
    assert_none::<handler::Server<()>>(SendOptions::unreliable());
    assert_none::<handler::Server<()>>(SendOptions::reliable_ordered());
}

/// The members of a group, and the broadcasts to it in one round.
const MEMBERS: u32 = 8;
const BROADCASTS: u32 = 40;

/// The rounds whose allocations are counted together.
const ROUNDS_COUNTED: u32 = 20;

#[test]
fn a_broadcast_allocates_nothing_for_a_message() {
    let mut server = Server::bind(config()).unwrap();
    let mut client = Client::new(ClientConfig::default().connections(MEMBERS)).unwrap();
    for _ in 0..MEMBERS {
        client.connect((server.local_addr(), ServerKey::dev().public())).unwrap();
    }
    let mut connected = 0;
    let mut round = |rounds: u32| {
        for _ in 0..rounds {
            let mut missing = if connected == MEMBERS { MEMBERS * BROADCASTS } else { 0 };
            for number in 0..if missing > 0 { BROADCASTS } else { 0 } {
                let payload = Bytes::from_static(&MESSAGE[..usize::try_from(number).unwrap()]);
                let message = Message::new(RELIABLE, payload, SendOptions::reliable_ordered());
                server.broadcast(drumfire::Audience::ALL, message).unwrap();
            }
            server.flush();
            while missing > 0 || connected < MEMBERS {
                server.poll(Duration::from_millis(1));
                while server.next_event().is_some_and(|event| match event {
                    Event::Connected { .. } => {
                        connected += 1;
                        true
                    }
                    other => panic!("{other:?}"),
                }) {}
                client.poll(Duration::from_millis(1));
                while let Some(event) = client.next_event() {
                    missing -= u32::from(matches!(event, Event::Message { .. }));
                }
            }
        }
    };
    round(WARM_UP / BROADCASTS);
    let mut counts = (0..ROUNDS).map(|_| measure(|| round(ROUNDS_COUNTED)).count_total);
    let least = counts.by_ref().find(|count| *count == 0);
    assert_eq!(least, Some(0), "a round of broadcasts does not allocate");
}
