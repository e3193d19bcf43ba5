//! A world whose server has a handler.

use super::*;
use drumfire::{
    Audience, Bytes, ChannelId, ChannelOptions, Context, Event, Handler, Message, PeerId, Reconnect,
    WhenFull, handler,
};

use crate::single::Single as _;

/// A handler that counts its events, messages, and ticks, and broadcasts its notes to all peers. It sends each peer that moves its new
/// address.
#[derive(Default)]
struct TickCounter {
    peers: Vec<PeerId>,
    ticks: u32,
}

impl Handler for TickCounter {
    type Note = &'static str;

    fn on_event(&mut self, context: &mut Context<'_>, event: Event) {
        match event {
            Event::Connected { peer, .. } => self.peers.push(peer),
            Event::PathChanged { peer, address } => {
                context.send(peer, Message::reliable_ordered(ChannelId(8), address.to_string())).unwrap();
            }
            _ => {}
        }
    }

    fn on_message(&mut self, context: &mut Context<'_>, peer: PeerId, channel: ChannelId, _: &[u8]) {
        let ticks = self.ticks.to_be_bytes();
        context.send(peer, Message::reliable_ordered(channel, context.copy(&ticks))).unwrap();
    }

    fn on_note(&mut self, context: &mut Context<'_>, note: &'static str) {
        for peer in &self.peers {
            context.send(*peer, Message::reliable_ordered(ChannelId(9), note)).unwrap();
        }
    }

    fn tick_period(&self) -> Option<Duration> {
        Some(Duration::from_millis(100))
    }

    fn on_tick(&mut self, _: &mut Context<'_>) {
        self.ticks += 1;
    }
}

fn heard<S: WorldServer>(world: &mut World<S>, client: usize) -> Vec<Vec<u8>> {
    let bytes = |event| match event {
        Event::Message { payload, .. } => Some(payload.to_vec()),
        _ => None,
    };
    world.clients[client].polled().filter_map(bytes).collect()
}

#[test]
fn a_world_runs_ticks_and_notes_and_restarts_the_handler() {
    let mut world = World::serving(server_config(), 5, |_worker| TickCounter::default()).unwrap();
    let minute = Reconnect::Within(Duration::from_secs(60));
    for _ in 0..2 {
        world.join(&ClientConfig::default().reconnect(minute)).unwrap();
    }
    world.advance(Duration::from_secs(5));
    let ask = |world: &mut World<handler::Server<&'static str>>| {
        world.clients[0].send_up(Message::reliable_ordered(ChannelId(0), "?")).unwrap();
        world.advance(Duration::from_millis(20));
        heard(world, 0)
    };
    assert_eq!(
        ask(&mut world),
        [51_u32.to_be_bytes()],
        "the handler ticks immediately, and then every 100 ms"
    );
    world.server.remote().send_note(0, "fire").unwrap();
    world.advance(Duration::from_millis(20));
    assert_eq!(
        (heard(&mut world, 0), heard(&mut world, 1)),
        (vec![b"fire".to_vec()], vec![b"fire".to_vec()])
    );
    world.rebind(0, "203.0.113.7:9".parse().unwrap());
    assert!(ask(&mut world).contains(&b"203.0.113.7:9".to_vec()), "the handler sees the new address");
    world.restart_server();
    world.clients[1].send_up(Message::reliable_ordered(ChannelId(0), "?")).unwrap();
    world.advance(Duration::from_secs(20));
    heard(&mut world, 0);
    let ticks = ask(&mut world);
    assert!(
        matches!(ticks.as_slice(), [ticks] if ticks < &202_u32.to_be_bytes().to_vec()),
        "the new handler counts from zero: {ticks:?}"
    );
}

/// A handler that panics at each message of one byte, and reports all messages to another thread.
struct Fragile(std::sync::mpsc::Sender<(PeerId, Vec<u8>)>);

impl Handler for Fragile {
    type Note = ();

    fn on_message(&mut self, _: &mut Context<'_>, peer: PeerId, _: ChannelId, payload: &[u8]) {
        self.0.send((peer, payload.to_vec())).unwrap();
        assert_ne!(payload.len(), 1, "the handler panics at a message of one byte");
    }
}

#[test]
fn a_panic_in_a_run_repeats_and_omits_no_message() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut world = World::serving(server_config(), 6, move |_worker| Fragile(sender.clone())).unwrap();
    for _ in 0..2 {
        world.join(&ClientConfig::default()).unwrap();
    }
    world.advance(Duration::from_secs(1));
    // Both clients send a run of 40 messages. Twenty of the first one panic, which is more than one pass bears.
    let payload = |client: usize, number: usize| {
        vec![number.to_be_bytes()[7]; if client == 0 && number % 2 == 1 { 1 } else { 2 }]
    };
    for client in 0..2 {
        for number in 0..40 {
            let message = Message::reliable_ordered(ChannelId(0), payload(client, number));
            world.clients[client].send_up(message).unwrap();
        }
        world.clients[client].flush();
    }
    world.advance(Duration::from_secs(1));
    let mut heard: Vec<Vec<Vec<u8>>> = vec![Vec::new(); 2];
    let mut peers = Vec::new();
    for (peer, payload) in receiver.try_iter() {
        let of = peers.iter().position(|known| *known == peer).unwrap_or_else(|| {
            peers.push(peer);
            peers.len() - 1
        });
        heard[of].push(payload);
    }
    let sent = |client| (0..40).map(|number| payload(client, number)).collect::<Vec<_>>();
    assert_eq!(heard, [sent(0), sent(1)]);
    let stats = world.server.control().stats();
    assert_eq!((stats.workers[0].panics, stats.workers[0].connections), (20, 1));
    assert!(world.clients[1].is_up());
    assert_eq!(stats.workers[0].message_memory_bytes, 0, "the memory of all messages was returned");
}

/// A handler that reports its notes to another thread.
struct Notes(std::sync::mpsc::Sender<u32>);

impl Handler for Notes {
    type Note = u32;

    fn on_message(&mut self, _: &mut Context<'_>, _: PeerId, _: ChannelId, _: &[u8]) {}

    fn on_note(&mut self, _: &mut Context<'_>, note: u32) {
        self.0.send(note).unwrap();
    }
}

#[test]
fn a_poll_with_a_timeout_of_zero_runs_one_pass() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut world = World::serving(server_config(), 7, move |_worker| Notes(sender.clone())).unwrap();
    world.server.remote().send_note(0, 7).unwrap();
    world.server.poll(Duration::ZERO);
    assert_eq!(receiver.try_recv(), Ok(7));
}

/// A handler that welcomes each peer, and announces the peer to all others.
struct Announcer;

impl Handler for Announcer {
    type Note = ();

    fn on_event(&mut self, context: &mut Context<'_>, event: Event) {
        if let Event::Connected { peer, .. } = event {
            let message = Message::reliable_ordered(ChannelId(0), peer.to_string());
            context.broadcast(Audience::ALL, message).unwrap();
        }
    }

    fn on_message(&mut self, _: &mut Context<'_>, _: PeerId, _: ChannelId, _: &[u8]) {}
}

#[test]
fn a_broadcast_reaches_no_peer_that_connects_after_it() {
    const CLIENTS: usize = 4;
    let mut world = World::serving(server_config(), 8, |_worker| Announcer).unwrap();
    for _ in 0..CLIENTS {
        // All handshakes complete at the same moment.
        world.join(&ClientConfig::default()).unwrap();
    }
    world.advance(Duration::from_secs(1));
    let mut counts: Vec<_> = (0..CLIENTS).map(|client| heard(&mut world, client).len()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 2, 3, 4], "each peer receives its own join and later joins");
}

/// The memory of a payload whose release panics.
struct Trap(Vec<u8>);

impl AsRef<[u8]> for Trap {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        // Unlike `panic!`, this does not call the panic hook, so nothing is printed.
        std::panic::resume_unwind(Box::new("a fault of the application"));
    }
}

/// A handler that fills the memory of the other peer at each message, so that its channel drops a payload whose release panics.
#[derive(Default)]
struct Flooder(Vec<PeerId>);

impl Handler for Flooder {
    type Note = ();

    fn on_event(&mut self, _: &mut Context<'_>, event: Event) {
        match event {
            Event::Connected { peer, .. } => self.0.push(peer),
            Event::Disconnected { peer, .. } => self.0.retain(|of| *of != peer),
            _ => {}
        }
    }

    fn on_message(&mut self, context: &mut Context<'_>, peer: PeerId, channel: ChannelId, _: &[u8]) {
        let Some(other) = self.0.iter().copied().find(|other| *other != peer) else {
            context.send(peer, Message::reliable_ordered(channel, "alone")).unwrap();
            return;
        };
        let options = ChannelOptions::default().when_full(WhenFull::DropOldest);
        context.set_channel_options(other, channel, options);
        let trap = Bytes::from_owner(Trap(vec![0; 1_000]));
        context.send(other, Message::reliable_ordered(channel, trap)).unwrap();
        for _ in 0..100 {
            context.send(other, Message::reliable_ordered(channel, vec![0; 1_000])).unwrap();
        }
    }
}

#[test]
fn a_panic_in_another_connection_ends_only_that_one() {
    let config = server_config().memory_bytes(32_768, 32_768).message_max_bytes(4_096);
    let mut world = World::serving(config, 9, |_worker| Flooder::default()).unwrap();
    for _ in 0..2 {
        world.join(&ClientConfig::default()).unwrap();
    }
    world.advance(Duration::from_secs(1));
    for _ in 0..2 {
        world.clients[0].send_up(Message::reliable_ordered(ChannelId(0), "?")).unwrap();
        world.advance(Duration::from_secs(1));
    }
    assert_eq!(heard(&mut world, 0), [b"alone"]);
    let stats = world.server.control().stats();
    assert_eq!((stats.workers[0].panics, stats.workers[0].connections), (1, 1));
}
