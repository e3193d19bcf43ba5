//! Simulated links on real sockets: what they count, and that all interfaces keep and change them.

use std::time::Duration;

use drumfire::conditioner::{Delay, LinkConfig, LinkCounts, Loss};
use drumfire::stats::{DropReason, WorkerStats};
use drumfire::{
    Access, ChannelId, Client, ClientConfig, Context, Error, Event, Handler, Message, PeerId, Reconnect,
    Server, ServerConfig, ServerKey, Workers, handler,
};

use super::world::{PATIENCE, Polled, config, now, shares_ports};
use crate::single::{Single as _, connect};

const TALK: ChannelId = ChannelId(0);

fn perfect() -> LinkConfig {
    LinkConfig::default()
}

fn total_loss() -> LinkConfig {
    LinkConfig::default().loss(Loss::Random(1.0))
}

/// Returns links with every fault that a connection survives, and delays of some milliseconds.
fn rough() -> LinkConfig {
    let ms = Duration::from_millis;
    LinkConfig::default()
        .loss(Loss::Random(0.05))
        .delay(Delay::Uniform { min: ms(1), max: ms(4) })
        .duplicate(0.1, ms(3))
        .reorder(0.1, ms(3))
        .corrupt(0.05)
}

fn client_config() -> ClientConfig {
    ClientConfig::default().conditioner(perfect())
}

/// A server and one connected client.
struct Pair {
    server: Server,
    client: Client,
    peer: PeerId,
    /// The messages that each end has received.
    at_server: Vec<u64>,
    at_client: Vec<u64>,
}

impl Pair {
    fn new(server: ServerConfig, client: &ClientConfig) -> Self {
        let mut server = Server::bind(server).expect("a free port on the loopback");
        let (address, key) = (server.local_addr(), ServerKey::dev().public());
        let mut client = connect((address, key), client).expect("a client");
        let until = now() + PATIENCE;
        while !client.is_up() || server.peers().len() == 0 {
            assert!(
                now() < until,
                "the client connects: {:?}, {:?}",
                client.stats(),
                server.control().stats()
            );
            server.poll(Duration::from_millis(1));
            server.events().for_each(drop);
            for event in client.polled() {
                assert!(matches!(event, Event::Connected { .. } | Event::Reconnecting { .. }), "{event:?}");
            }
        }
        let peer = server.peers().next().expect("a peer");
        Self { server, client, peer, at_server: Vec::new(), at_client: Vec::new() }
    }

    fn step(&mut self) {
        let number = |event| match event {
            Event::Message { payload, .. } => {
                Some(u64::from_be_bytes(payload[..].try_into().expect("a number")))
            }
            _ => None,
        };
        self.server.poll(Duration::from_millis(1));
        self.at_server.extend(self.server.events().filter_map(number));
        self.client.poll(Duration::from_millis(1));
        self.at_client.extend(self.client.events().filter_map(number));
    }

    fn until(&mut self, what: &str, is_true: impl Fn(&Self) -> bool) {
        let until = now() + PATIENCE;
        while !is_true(self) {
            assert!(now() < until, "not in time: {what}");
            self.step();
        }
    }

    /// Sends these numbers from both ends.
    fn send(&mut self, numbers: std::ops::Range<u64>) {
        for number in numbers {
            let message = || Message::reliable_ordered(TALK, number.to_be_bytes().to_vec());
            self.client.send_up(message()).expect("room");
            self.server.send(self.peer, message()).expect("room");
        }
        self.client.flush();
        self.server.flush();
    }

    fn until_received(&mut self, count: u64) {
        let all: Vec<u64> = (0..count).collect();
        self.until("all numbers arrive", |pair| {
            pair.at_server.len() >= all.len() && pair.at_client.len() >= all.len()
        });
        assert_eq!((&self.at_server, &self.at_client), (&all, &all), "each number arrives once and in order");
    }

    fn server_stats(&self) -> WorkerStats {
        self.server.control().stats().workers.remove(0)
    }
}

/// Returns whether the counters of a link agree, except for datagrams in flight.
fn agrees(counts: LinkCounts) -> bool {
    let gone = counts.delivered + counts.lost + counts.queue_full + counts.too_large;
    gone <= counts.pushed + counts.duplicated && counts.corrupted <= counts.pushed + counts.duplicated
}

#[test]
fn with_total_loss_nothing_arrives_until_the_link_is_perfect() {
    let mut pair = Pair::new(config(Workers::Inline), &client_config());
    let before = pair.client.stats().outbound_link;
    assert_eq!((before.lost, before.delivered), (0, before.pushed));
    pair.client.set_conditioner(&total_loss()).expect("it has links");
    // The socket of the server may still hold datagrams from before.
    pair.until("the server has received all", |pair| {
        pair.server_stats().received.datagrams == before.delivered
    });
    pair.send(0..10);
    pair.until("both directions lose datagrams", |pair| {
        let stats = pair.client.stats();
        stats.outbound_link.lost >= 2 && stats.inbound_link.lost >= 2
    });
    let stats = pair.client.stats();
    assert_eq!(stats.outbound_link.delivered, stats.sent.datagrams);
    assert_eq!(stats.outbound_link.pushed, stats.protocol.datagrams_sent);
    assert_eq!(stats.inbound_link.pushed, stats.received.datagrams);
    assert_eq!(stats.inbound_link.delivered, stats.protocol.datagrams_received);
    assert_eq!(stats.unexplained(), 0);
    assert_eq!(pair.server_stats().received.datagrams, before.delivered, "nothing has arrived");
    assert!(pair.at_server.is_empty() && pair.at_client.is_empty());

    pair.client.set_conditioner(&perfect()).expect("it has links");
    pair.until_received(10);
}

#[test]
fn duplicated_datagrams_arrive_twice_and_are_dropped_as_replays() {
    let mut pair = Pair::new(config(Workers::Inline), &client_config());
    pair.client.set_conditioner(&perfect().duplicate(1.0, Duration::ZERO)).expect("it has links");
    pair.send(0..50);
    pair.until_received(50);
    pair.until("both ends have received all duplicates", |pair| {
        let client = pair.client.stats();
        pair.server.control().stats().dropped(DropReason::Duplicate) == client.outbound_link.duplicated
    });
    let stats = pair.client.stats();
    assert!(stats.outbound_link.duplicated > 0 && stats.inbound_link.duplicated > 0);
    assert_eq!(stats.protocol.dropped(DropReason::Duplicate), stats.inbound_link.duplicated);
    assert_eq!((stats.unexplained(), pair.server.control().stats().unexplained()), (0, 0));
}

#[test]
fn rough_links_at_both_ends_deliver_everything_in_order() {
    for workers in [Workers::Inline, Workers::Count(1)] {
        // Links at both ends lose a third of the exchanges, so about one attempt of a hundred fails.
        let rough_client =
            ClientConfig::default().conditioner(rough()).reconnect(Reconnect::Within(PATIENCE));
        let mut pair = Pair::new(config(workers).conditioner(rough()), &rough_client);
        for round in 0..10 {
            pair.send(round * 20..(round + 1) * 20);
            pair.until_received((round + 1) * 20);
        }
        for stats in [pair.client.stats(), pair.server_stats()] {
            assert!(agrees(stats.inbound_link) && agrees(stats.outbound_link), "{stats:?}");
            assert_eq!((stats.unexplained(), stats.panics), (0, 0));
        }
    }
}

#[test]
fn an_operator_changes_the_links_of_all_workers() {
    let workers = if shares_ports() { Workers::Shards { sockets: 2, threads: 2 } } else { Workers::Count(1) };
    let mut pair = Pair::new(config(workers).conditioner(perfect()), &ClientConfig::default());
    let control = pair.server.control();
    let lost = |pair: &Pair| {
        let workers = pair.server.control().stats().workers;
        workers.iter().map(|stats| stats.inbound_link.lost).sum::<u64>()
    };
    assert_eq!(lost(&pair), 0);
    control.set_conditioner(&total_loss()).expect("the server has links");
    pair.send(0..5);
    pair.until("the server loses what it receives", |pair| lost(pair) >= 2);
    control.set_conditioner(&perfect()).expect("the server has links");
    pair.until_received(5);
    assert_eq!(control.stats().unexplained(), 0);
}

#[test]
fn another_socket_keeps_the_links_and_loses_what_is_in_flight() {
    let mut pair = Pair::new(config(Workers::Inline), &client_config());
    let hour = perfect().delay(Delay::Constant(Duration::from_secs(3_600)));
    pair.client.set_conditioner(&hour).expect("it has links");
    pair.send(0..3);
    let before = pair.client.stats().outbound_link;
    assert!(before.pushed > before.delivered + before.lost, "{before:?}");
    pair.client.rebind().expect("another socket");
    // Only with the links of before can their configuration change. Otherwise the next datagrams would take an hour.
    pair.client.set_conditioner(&perfect()).expect("it keeps its links");
    pair.until_received(3);
    let after = pair.client.stats().outbound_link;
    assert!(after.lost > before.lost && after.delivered > before.delivered, "{after:?}");
}

#[test]
fn a_client_that_is_dropped_does_not_delay_its_close() {
    let mut pair = Pair::new(config(Workers::Inline), &client_config());
    let hour = perfect().delay(Delay::Constant(Duration::from_secs(3_600)));
    pair.client.set_conditioner(&hour).expect("it has links");
    let Pair { mut server, client, .. } = pair;
    drop(client);
    let until = now() + PATIENCE;
    while server.peers().len() > 0 {
        assert!(now() < until, "the close arrives");
        server.poll(Duration::from_millis(1));
        server.events().for_each(drop);
    }
}

struct Echo;

impl Handler for Echo {
    type Note = ();

    fn on_message(&mut self, context: &mut Context<'_>, peer: PeerId, channel: ChannelId, payload: &[u8]) {
        let _ = context.send(peer, Message::reliable_ordered(channel, context.copy(payload)));
    }
}

/// Says one word, and counts the answers.
struct OneWord(std::sync::mpsc::Sender<()>);

impl Handler for OneWord {
    type Note = ();

    fn on_event(&mut self, context: &mut Context<'_>, event: Event) {
        if let Event::Connected { peer, .. } = event {
            let _ = context.send(peer, Message::reliable_ordered(TALK, "word"));
        }
    }

    fn on_message(&mut self, _: &mut Context<'_>, _: PeerId, _: ChannelId, _: &[u8]) {
        let _ = self.0.send(());
    }
}

#[test]
fn handlers_and_many_connections_have_links_too() {
    let server = config(Workers::Count(1)).conditioner(rough());
    let server = handler::Server::bind(server, |_| Echo).expect("a server");
    let (address, key) = (server.local_addr(), ServerKey::dev().public());
    let any = "127.0.0.1:0".parse().expect("an address");
    let (answer, answers) = std::sync::mpsc::channel();
    let mut bots =
        handler::Client::new(client_config().connections(2).address(any), OneWord(answer)).expect("a client");
    bots.set_conditioner(&rough()).expect("it has links");
    let mut clients = Client::new(client_config().connections(2).address(any)).expect("a client");
    clients.set_conditioner(&rough()).expect("it has links");
    for _ in 0..2 {
        bots.connect((address, key)).expect("room");
        let peer = clients.connect((address, key)).expect("room");
        clients.send(peer, Message::reliable_ordered(TALK, "word")).expect("room");
    }
    let (mut handled, mut heard) = (0, 0);
    let until = now() + PATIENCE;
    while handled + heard < 4 {
        assert!(now() < until, "all are answered in time: {handled} and {heard} so far");
        bots.poll(Duration::from_millis(1));
        handled += answers.try_iter().count();
        clients.poll(Duration::from_millis(1));
        heard += clients.events().filter(|event| matches!(event, Event::Message { .. })).count();
    }
    for stats in [bots.stats(), clients.stats()] {
        assert!(stats.outbound_link.pushed > 0 && stats.inbound_link.delivered > 0);
        assert_eq!(stats.unexplained(), 0);
    }
    server.control().set_conditioner(&perfect()).expect("it has links");
}

/// A server at all addresses answers from the address that its client knows, which the links must carry along.
#[cfg(target_os = "linux")]
#[test]
fn answers_leave_from_the_address_that_the_client_knows() {
    let key = ServerKey::generate().expect("randomness");
    let public = key.public();
    let config = ServerConfig::new("0.0.0.0:0".parse().expect("an address"), key, Access::Open);
    let mut server = Server::bind(config.server_id("links").conditioner(rough())).expect("a server");
    let address = ([127, 0, 0, 77], server.local_addr().port()).into();
    let mut client = connect((address, public), &ClientConfig::default()).expect("a client");
    let until = now() + PATIENCE;
    while !client.is_up() {
        assert!(now() < until, "the client connects");
        server.poll(Duration::from_millis(1));
        server.events().for_each(drop);
        client.polled().for_each(drop);
    }
}

fn field(error: &Error) -> (&'static str, String) {
    match error {
        Error::Setting { field, problem } => (field, problem.to_string()),
        other => panic!("{other}"),
    }
}

#[test]
fn an_invalid_configuration_is_refused_by_its_name() {
    let wrong = || perfect().corrupt(1.5);
    let (any, key) = ("127.0.0.1:0".parse().expect("an address"), ServerKey::dev().public());
    let client = ClientConfig::default().conditioner(wrong());
    let pair = Pair::new(config(Workers::Inline).conditioner(perfect()), &client_config());
    let mut live = pair.client;
    for error in [
        Server::bind(config(Workers::Inline).conditioner(wrong())).err(),
        connect((pair.server.local_addr(), key), &client).err(),
        Client::new(client.clone().connections(1).address(any)).err(),
        live.set_conditioner(&wrong()).err(),
        pair.server.control().set_conditioner(&wrong()).err(),
    ] {
        let (field, problem) = field(&error.expect("no link corrupts so much"));
        assert_eq!((field, &*problem), ("conditioner", "corrupt: must be a fraction from 0 to 1"));
    }
}

#[test]
fn links_that_were_not_set_at_the_start_cannot_be_changed() {
    let pair = Pair::new(config(Workers::Inline), &ClientConfig::default());
    let mut live = pair.client;
    let mut clients = Client::new(
        ClientConfig::default().connections(1).address("127.0.0.1:0".parse().expect("an address")),
    )
    .expect("clients");
    for error in [
        live.set_conditioner(&perfect()).err(),
        clients.set_conditioner(&perfect()).err(),
        pair.server.control().set_conditioner(&perfect()).err(),
    ] {
        let (field, problem) = field(&error.expect("there are no links"));
        assert_eq!(field, "conditioner");
        assert!(problem.contains("was not set at the start"), "{problem}");
    }
    assert_eq!(live.stats().outbound_link, LinkCounts::default());
    let other = config(Workers::Inline).conditioner(perfect());
    let error = pair.server.control().reconfigure(&other).expect_err("it cannot change so");
    assert_eq!(field(&error).0, "conditioner");
}
