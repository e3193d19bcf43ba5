//! Handlers over real sockets: their calls, their replies, and the effects of their panics.

use drumfire_tries::tries;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::world::{Polled, config, granted, now};
use drumfire::{
    Audience, ChannelId, Client, ClientConfig, CloseReason, Context, Event, GroupId, Handler, Message,
    Outcome, PeerId, ReceiptId, SendError, ServerKey, Workers, handler,
};

use crate::single::{Single, connect_dev};

const TALK: ChannelId = ChannelId(0);
const ALL: GroupId = GroupId(7);

/// The calls of all handlers of a server, in order.
type Calls = Arc<Mutex<Vec<HandlerCall>>>;

/// A call of a handler, or the event that it reported.
#[derive(Clone, Debug, PartialEq)]
enum HandlerCall {
    Connected(PeerId),
    Message(PeerId, Vec<u8>),
    Receipt(PeerId, ReceiptId, Outcome),
    Disconnected(PeerId, CloseReason),
    Note(usize, u32),
    Tick(usize),
}

/// A handler that carries out the commands in messages.
struct CommandHandler {
    calls: Calls,
    period: Option<Duration>,
}

impl CommandHandler {
    fn record(&self, call: HandlerCall) {
        self.calls.lock().expect("no panic in here").push(call);
    }
}

impl Handler for CommandHandler {
    type Note = u32;

    fn on_message(&mut self, context: &mut Context<'_>, peer: PeerId, channel: ChannelId, bytes: &[u8]) {
        self.record(HandlerCall::Message(peer, bytes.to_vec()));
        let answer = Message::reliable_ordered(channel, context.copy(bytes));
        match bytes {
            b"panic" => panic!("a fault that a player found"),
            b"close" => context.close(peer, 9, "as you wish"),
            b"all" => context.broadcast(ALL, answer).expect("room"),
            b"others" => context.broadcast(Audience::group(ALL).except(peer), answer).expect("room"),
            b"receipt" => {
                context.send_with_receipt(peer, answer).expect("room");
            }
            _ => assert_eq!(context.send(peer, answer), Ok(())),
        }
    }

    fn on_event(&mut self, context: &mut Context<'_>, event: Event) {
        match event {
            Event::Connected { peer, info } => {
                assert!(info.address.ip().is_loopback() && info.player.is_none());
                self.record(HandlerCall::Connected(peer));
                assert!(context.join(peer, ALL));
            }
            Event::Receipt { peer, receipt, outcome } => {
                self.record(HandlerCall::Receipt(peer, receipt, outcome));
            }
            Event::Disconnected { peer, closed } => {
                self.record(HandlerCall::Disconnected(peer, closed.reason));
                assert_eq!(
                    context.send(peer, Message::reliable_ordered(TALK, "too late")),
                    Err(SendError::UnknownPeer)
                );
                assert!(!context.join(peer, ALL));
            }
            _ => {}
        }
    }

    fn on_note(&mut self, context: &mut Context<'_>, note: u32) {
        self.record(HandlerCall::Note(context.worker(), note));
        if note == 13 {
            panic!("a fault in a note");
        }
    }

    fn tick_period(&self) -> Option<Duration> {
        self.period
    }

    fn on_tick(&mut self, context: &mut Context<'_>) {
        self.record(HandlerCall::Tick(context.worker()));
    }
}

struct World {
    server: handler::Server<u32>,
    clients: Vec<Client>,
    heard: Vec<Vec<Event>>,
    calls: Calls,
    is_inline: bool,
}

impl World {
    fn new(workers: Workers, period: Option<Duration>, clients: usize) -> Self {
        let calls = Calls::default();
        let make = |_| CommandHandler { calls: Arc::clone(&calls), period };
        let server = handler::Server::bind(config(workers), make).expect("a free port on the loopback");
        let connect = |_| connect_dev(server.local_addr()).expect("a client");
        let clients: Vec<Client> = (0..clients).map(connect).collect();
        let heard = clients.iter().map(|_| Vec::new()).collect();
        let is_inline = workers == Workers::Inline;
        let mut world = Self { server, clients, heard, calls, is_inline };
        world.until("all are connected", |world| world.clients.iter().all(Single::is_up));
        world
    }

    fn until(&mut self, what: &str, mut is_true: impl FnMut(&mut Self) -> bool) {
        let deadline = now() + Duration::from_secs(30);
        while !is_true(self) {
            assert!(now() < deadline, "not in time: {what}; {:?}", self.server.control().stats());
            if self.is_inline {
                self.server.poll(Duration::from_millis(1));
            }
            for (client, heard) in self.clients.iter_mut().zip(&mut self.heard) {
                client.poll(Duration::from_micros(200));
                heard.extend(client.polled());
            }
        }
    }

    fn say(&mut self, client: usize, text: &'static str) {
        self.clients[client].send_up(Message::reliable_ordered(TALK, text)).expect("room");
        self.clients[client].flush();
    }

    fn texts(&self, client: usize) -> Vec<&[u8]> {
        let texts = self.heard[client].iter().filter_map(|event| match event {
            Event::Message { payload, .. } => Some(&payload[..]),
            _ => None,
        });
        texts.collect()
    }

    fn calls(&self) -> MutexGuard<'_, Vec<HandlerCall>> {
        self.calls.lock().expect("no panic in here")
    }

    fn count(&self, is_one: impl Fn(&HandlerCall) -> bool) -> usize {
        self.calls().iter().filter(|what| is_one(what)).count()
    }
}

#[test]
fn a_handler_answers_in_place_with_and_without_threads() {
    for workers in [Workers::Inline, Workers::Count(1), Workers::Count(2)] {
        answer_in_place(workers);
    }
}

/// No call polls the server, which has at least one thread, also on one core.
#[test]
fn messages_come_back_from_handlers_with_automatic_workers() {
    answer_in_place(Workers::Auto);
}

fn answer_in_place(workers: Workers) {
    let mut world = World::new(workers, None, 4);
    for _ in 0..100 {
        for client in 0..4 {
            world.say(client, "echo");
        }
    }
    world.until("everything came back", |world| (0..4).all(|client| world.texts(client).len() == 100));
    let stats = world.server.control().stats();
    assert_eq!((stats.unexplained(), stats.connections()), (0, 4), "{workers:?}");
}

#[test]
fn messages_that_arrive_in_the_pass_of_a_shutdown_reach_the_handler() {
    let mut world = World::new(Workers::Inline, None, 1);
    world.say(0, "last");
    let shutdown = world.server.control().shut_down(Duration::ZERO);
    world.server.poll(Duration::from_millis(100));
    assert_eq!(world.count(|call| matches!(call, HandlerCall::Message(_, bytes) if bytes == b"last")), 1);
    drop(shutdown);
}

#[test]
fn calls_for_a_peer_start_with_connect_and_end_with_disconnect() {
    let mut world = World::new(Workers::Count(1), None, 1);
    world.say(0, "receipt");
    world
        .until("the receipt came", |world| world.count(|what| matches!(what, HandlerCall::Receipt(..))) == 1);
    world.say(0, "receipt");
    world.say(0, "close");
    world.until("it ended", |world| world.count(|what| matches!(what, HandlerCall::Disconnected(..))) == 1);
    let calls = world.calls().clone();
    let HandlerCall::Connected(peer) = calls[0] else { panic!("{calls:?}") };
    assert!(matches!(calls[1], HandlerCall::Message(from, _) if from == peer));
    assert!(
        matches!(calls[2], HandlerCall::Receipt(of, _, Outcome::Acknowledged) if of == peer),
        "{calls:?}"
    );
    assert_eq!(
        world.count(|what| matches!(what, HandlerCall::Receipt(..))),
        2,
        "each message has one receipt: {calls:?}"
    );
    assert!(
        matches!(calls.last(), Some(HandlerCall::Disconnected(of, CloseReason::Local { .. })) if *of == peer)
    );
    world.until("the client heard why", |world| {
        let is_why = |event: &Event| {
            matches!(event, Event::Disconnected { closed, .. } if closed.text == "as you wish")
        };
        world.heard[0].iter().any(is_why)
    });
}

#[test]
fn a_group_has_members_on_all_workers() {
    let mut world = World::new(Workers::Count(2), None, 6);
    world.until("all joined", |world| world.count(|what| matches!(what, HandlerCall::Connected(_))) == 6);
    world.say(0, "all");
    world.until("all heard", |world| (0..6).all(|client| world.texts(client) == [b"all"]));
    world.say(0, "others");
    world.until("the others heard", |world| (1..6).all(|client| world.texts(client).len() == 2));
    world.say(0, "echo");
    world.until("the speaker heard itself", |world| world.texts(0).len() == 2);
    assert_eq!(world.texts(0), [&b"all"[..], b"echo"], "the speaker does not receive the message to others");
    world.server.remote().broadcast(ALL, Message::reliable_ordered(TALK, "from afar")).expect("room");
    world.until("all heard", |world| {
        (0..6).all(|client| world.texts(client).last() == Some(&&b"from afar"[..]))
    });
}

#[test]
fn other_threads_reach_handlers_and_their_peers() {
    for workers in [Workers::Inline, Workers::Count(2)] {
        let mut world = World::new(workers, None, 3);
        let remote = world.server.remote();
        world.until("all are there", |world| {
            world.count(|what| matches!(what, HandlerCall::Connected(_))) == 3
        });
        let calls = world.calls().clone();
        let peers: Vec<PeerId> = calls
            .iter()
            .filter_map(|what| if let HandlerCall::Connected(peer) = what { Some(*peer) } else { None })
            .collect();
        let last = remote.workers() - 1;
        assert_eq!(remote.send_note(remote.workers(), 1), Err(1), "there is no such worker");
        let thread = std::thread::spawn(move || {
            for peer in &peers {
                remote.send(*peer, Message::reliable_ordered(TALK, "psst")).expect("room");
            }
            remote.send_note(last, 5).expect("room");
            remote.close(peers[0], 3, "that was all");
        });
        thread.join().expect("no panic");
        world.until("the notes are delivered", |world| {
            let heard = (0..3).all(|client| world.texts(client) == [b"psst"]);
            let is_over = world.count(|what| matches!(what, HandlerCall::Disconnected(..))) == 1;
            heard && is_over && world.count(|what| *what == HandlerCall::Note(last, 5)) == 1
        });
        let gone = |world: &World| {
            let all = world.heard.iter().flatten();
            all.filter(|event| matches!(event, Event::Disconnected { .. })).count()
        };
        world.until("the one that was closed heard it", |world| gone(world) > 0);
        assert_eq!(gone(&world), 1);
    }
}

#[test]
fn ticks_come_without_other_events() {
    for workers in [Workers::Inline, Workers::Count(2)] {
        let mut world = World::new(workers, Some(Duration::from_millis(2)), 0);
        let count = if workers == Workers::Inline { 1 } else { usize::from(granted(2)) };
        world.until("ten of each", |world| {
            world.server.poll(Duration::from_millis(1));
            (0..count).all(|worker| world.count(|what| *what == HandlerCall::Tick(worker)) >= 10)
        });
    }
}

#[test]
fn each_panic_of_a_handler_costs_one_connection_only() {
    // Each of the eight players causes the same number of panics.
    let panics = 8 * tries(125) as usize;
    let mut world = World::new(Workers::Count(2), None, 8);
    let server = world.server.local_addr();
    let mut lost = 0;
    for round in 0..panics {
        let mut victim = connect_dev(server).expect("a client");
        victim.send_up(Message::reliable_ordered(TALK, "panic")).expect("room");
        victim.flush();
        world.say(round % 8, "echo");
        world.until("the one is gone", |_| {
            victim.poll(Duration::from_micros(100));
            lost += victim.polled().filter(|event| matches!(event, Event::Disconnected { .. })).count();
            lost == round + 1
        });
    }
    world.until("the others lost nothing", |world| {
        (0..8).all(|client| world.texts(client).len() == panics / 8)
    });
    let stats = world.server.control().stats();
    let counted: u64 = stats.workers.iter().map(|worker| worker.panics).sum();
    let restarts: u64 = stats.workers.iter().map(|worker| worker.restarts).sum();
    assert_eq!((counted, restarts), (panics as u64, 0));
    assert_eq!(world.count(|what| matches!(what, HandlerCall::Disconnected(..))), panics);
    assert!(world.heard.iter().flatten().all(|event| !matches!(event, Event::Disconnected { .. })));
}

/// A client's handler, which sends one message and records its events as lines.
struct Player(Arc<Mutex<Vec<String>>>);

impl Player {
    fn record(&self, line: String) {
        self.0.lock().expect("no panic in here").push(line);
    }
}

impl Handler for Player {
    type Note = PeerId;

    fn on_message(&mut self, context: &mut Context<'_>, peer: PeerId, _: ChannelId, bytes: &[u8]) {
        self.record(format!("heard {}", String::from_utf8_lossy(bytes)));
        context.close(peer, 1, "enough");
    }

    fn on_note(&mut self, context: &mut Context<'_>, peer: PeerId) {
        context.send_with_receipt(peer, Message::reliable_ordered(TALK, "early")).expect("room");
    }

    fn on_event(&mut self, _: &mut Context<'_>, event: Event) {
        self.record(match event {
            Event::Connected { .. } => "connected".to_owned(),
            Event::ConnectFailed { error, .. } => format!("failed: {error}"),
            Event::Receipt { outcome, .. } => format!("{outcome:?}"),
            Event::Disconnected { .. } => "gone".to_owned(),
            event => panic!("{event:?}"),
        });
    }
}

#[test]
fn a_client_with_a_handler_receives_all_events() {
    let calls = Calls::default();
    let make = |_| CommandHandler { calls: Arc::clone(&calls), period: None };
    let server = handler::Server::bind(config(Workers::Count(1)).connections(1), make).expect("a server");
    let (address, key) = (server.local_addr(), ServerKey::dev().public());
    let heard = Arc::new(Mutex::new(Vec::new()));
    let player = Player(Arc::clone(&heard));
    let mut bots = handler::Client::new(
        ClientConfig::default().connections(2).address("127.0.0.1:0".parse().expect("an address")),
        player,
    )
    .expect("a socket");
    let lines = |bots: &mut handler::Client<PeerId>, count: usize| {
        let deadline = now() + Duration::from_secs(30);
        while heard.lock().expect("no panic").len() < count {
            assert!(now() < deadline, "{:?}", heard.lock());
            bots.poll(Duration::from_millis(1));
        }
        std::mem::take(&mut *heard.lock().expect("no panic"))
    };
    // A message can be sent before the handshake completes, and the socket can be replaced.
    let first = bots.connect((address, key)).expect("a place");
    let before = bots.local_addr();
    bots.rebind().expect("another socket");
    assert!(before.is_some() && bots.local_addr() != before);
    bots.remote().send_note(0, first).expect("room");
    let calls = lines(&mut bots, 4);
    assert_eq!(calls[0], "connected");
    assert!(calls.contains(&"heard early".to_owned()) && calls.contains(&"gone".to_owned()), "{calls:?}");
    assert_eq!(calls.iter().filter(|line| ["Acknowledged", "Lost"].contains(&line.as_str())).count(), 1);
    assert_eq!(calls.last().map(String::as_str), Some("gone"), "{calls:?}");
    let mut other = connect_dev(address).expect("a client");
    while !other.is_up() {
        other.poll(Duration::from_millis(1));
        bots.poll(Duration::from_millis(1));
        if let Some(Event::ConnectFailed { .. }) = other.polled().last() {
            // The server may not have released the previous connection yet.
            other = connect_dev(address).expect("a client");
        }
    }
    bots.connect((address, key)).expect("a place");
    let calls = lines(&mut bots, 1);
    assert!(calls[0].starts_with("failed: ") && calls[0].contains("full"), "{calls:?}");
}

#[test]
fn a_note_that_panics_is_delivered_once_and_delays_no_other() {
    let mut world = World::new(Workers::Count(1), None, 1);
    let remote = world.server.remote();
    for note in [12, 13, 14] {
        remote.send_note(0, note).expect("room");
    }
    world.until("all notes are delivered", |world| {
        world.count(|what| matches!(what, HandlerCall::Note(..))) == 3
    });
    let calls = world.calls().clone();
    let notes: Vec<&HandlerCall> =
        calls.iter().filter(|what| matches!(what, HandlerCall::Note(..))).collect();
    assert_eq!(notes, [&HandlerCall::Note(0, 12), &HandlerCall::Note(0, 13), &HandlerCall::Note(0, 14)]);
    world.say(0, "echo");
    world.until("it still answers", |world| world.texts(0) == [b"echo"]);
}

/// A handler that asks for the statistics of each peer again whenever it has received them.
struct StatsPoller;

impl Handler for StatsPoller {
    type Note = ();

    fn on_event(&mut self, context: &mut Context<'_>, event: Event) {
        if let Event::Connected { peer, .. } | Event::Stats { peer, .. } = event {
            context.request_stats(peer);
        }
    }

    fn on_message(&mut self, context: &mut Context<'_>, peer: PeerId, channel: ChannelId, payload: &[u8]) {
        context.send(peer, Message::reliable_ordered(channel, context.copy(payload))).unwrap();
    }
}

#[test]
fn a_handler_that_causes_its_own_events_does_not_stop_its_worker() {
    let mut server =
        handler::Server::bind(config(Workers::Inline), |_worker| StatsPoller).expect("a free port");
    let mut client = connect_dev(server.local_addr()).expect("a client");
    let (deadline, mut is_sent) = (now() + Duration::from_secs(30), false);
    loop {
        assert!(now() < deadline, "not in time: {:?}", server.control().stats());
        server.poll(Duration::from_millis(1));
        client.poll(Duration::from_micros(200));
        if client.is_up() && !is_sent {
            client.send_up(Message::reliable_ordered(TALK, "still there?")).expect("room");
            client.flush();
            is_sent = true;
        }
        if client.polled().any(|event| matches!(event, Event::Message { .. })) {
            return;
        }
    }
}
