//! Simulated links at the sockets of a world: the same code as on real sockets, in virtual time.

use super::*;
use drumfire::conditioner::{Delay, Loss};
use drumfire::stats::WorkerStats;
use drumfire::{ChannelId, CloseReason, Event, Message, Reconnect};

use crate::single::Single as _;

const MS: fn(u64) -> Duration = Duration::from_millis;

fn delayed(delay: Duration) -> LinkConfig {
    LinkConfig::default().delay(Delay::Constant(delay))
}

/// A world with one client, which is connected over the links of its own socket.
fn connected(server: ServerConfig, client: &ClientConfig) -> World {
    let mut world = World::new(server, 3).unwrap();
    world.join(client).unwrap();
    world.advance(Duration::from_secs(2));
    world.server.polled().for_each(drop);
    world.clients[0].polled().for_each(drop);
    assert!(world.clients[0].is_up());
    world
}

fn say(text: &'static str) -> Message {
    Message::reliable_ordered(ChannelId(0), text)
}

fn messages(events: impl Iterator<Item = Event>) -> usize {
    events.filter(|event| matches!(event, Event::Message { .. })).count()
}

#[test]
fn a_delayed_datagram_wakes_its_worker_exactly_when_it_is_due() {
    let mut world = connected(server_config(), &ClientConfig::default().conditioner(delayed(MS(50))));
    // The acknowledgments of the handshake have passed.
    world.clients[0].send_up(say("up")).unwrap();
    world.advance(MS(49));
    assert_eq!(messages(world.server.polled()), 0);
    world.advance(MS(1));
    assert_eq!(messages(world.server.polled()), 1);

    let peer = world.server.peers().next().unwrap();
    world.server.send(peer, say("down")).unwrap();
    world.server.flush();
    world.advance(MS(49));
    assert_eq!(messages(world.clients[0].polled()), 0);
    world.advance(MS(1));
    assert_eq!(messages(world.clients[0].polled()), 1);
}

#[test]
fn a_foreign_loop_learns_when_a_delayed_datagram_is_due() {
    let mut world = connected(server_config(), &ClientConfig::default().conditioner(delayed(MS(5))));
    world.advance(Duration::from_secs(1));
    world.clients[0].polled().for_each(drop);
    world.clients[0].send_up(say("up")).unwrap();
    world.clients[0].flush();
    assert_eq!(world.clients[0].poll_timeout(), Some(MS(5)));
}

#[test]
fn a_client_whose_link_loses_all_ends_as_documented() {
    let mut world = connected(server_config(), &ClientConfig::default().conditioner(LinkConfig::default()));
    world.clients[0].set_conditioner(&LinkConfig::default().loss(Loss::Random(1.0))).unwrap();
    world.clients[0].send_up(say("nothing of this arrives")).unwrap();
    world.advance(Duration::from_secs(60));
    let end = world.clients[0].polled().find_map(|event| match event {
        Event::Disconnected { closed, .. } => Some(closed.reason),
        _ => None,
    });
    assert_eq!(end, Some(CloseReason::Unacknowledged));
    assert_eq!(messages(world.server.polled()), 0);
    let stats = world.clients[0].stats();
    assert!(stats.outbound_link.lost > 0);
    assert_eq!(stats.unexplained(), 0);
}

#[test]
fn links_outlive_the_connections_of_their_socket() {
    let config = ClientConfig::default()
        .conditioner(LinkConfig::wifi())
        .reconnect(Reconnect::Within(Duration::from_secs(60)));
    let mut world = connected(server_config(), &config);
    world.restart_server();
    let before = world.clients[0].stats().outbound_link;
    world.clients[0].send_up(say("hello?")).unwrap();
    world.advance(Duration::from_secs(10));
    world.clients[0].polled().for_each(drop);
    assert!(world.clients[0].is_up());
    let after = world.clients[0].stats();
    assert!(after.outbound_link.pushed > before.pushed);
    assert_eq!(after.outbound_link.pushed, after.protocol.datagrams_sent);
}

#[test]
fn counters_agree_with_trains_over_rough_links() {
    let rough = LinkConfig::bad_wifi().duplicate(0.1, MS(20)).reorder(0.1, MS(20)).corrupt(0.05);
    let plain = Sockets::default();
    for sockets in [plain, plain.has_gro(true).has_gso(true)] {
        let config = server_config().workers(Workers::Count(2)).conditioner(rough.clone());
        let mut world = World::with_sockets(config, sockets, 8).unwrap();
        for _ in 0..6 {
            world.join(&ClientConfig::default()).unwrap();
        }
        world.advance(Duration::from_secs(5));
        world.server.polled().for_each(drop);
        let peers: Vec<_> = world.server.peers().collect();
        assert_eq!(peers.len(), 6);
        for _ in 0..20 {
            for peer in &peers {
                world.server.send(*peer, say("down")).unwrap();
            }
            world.server.flush();
            world.clients.iter_mut().for_each(|client| client.send_up(say("up")).unwrap());
            world.advance(MS(50));
        }
        world.advance(Duration::from_secs(20));
        assert_eq!(messages(world.server.polled()), 120);
        let heard: usize = world.clients.iter_mut().map(|client| messages(client.polled())).sum();
        assert_eq!(heard, 120);
        let stats = world.server.control().stats();
        assert_eq!(stats.unexplained(), 0);
        let sum = |of: fn(&WorkerStats) -> u64| stats.workers.iter().map(of).sum::<u64>();
        assert!(sum(|worker| worker.inbound_link.lost) > 0 && sum(|worker| worker.outbound_link.lost) > 0);
        assert!(sum(|worker| worker.inbound_link.duplicated.min(worker.outbound_link.corrupted)) > 0);
        for worker in &stats.workers {
            let (inbound, outbound) = (worker.inbound_link, worker.outbound_link);
            assert_eq!(inbound.pushed, worker.received.datagrams);
            assert_eq!(outbound.pushed, worker.protocol.datagrams_sent);
            assert_eq!(outbound.delivered, worker.sent.datagrams + worker.sent.lost.total());
        }
    }
}

#[test]
fn the_same_seed_replays_the_links_of_sockets() {
    let run = |seed| {
        let mut world = World::new(server_config().conditioner(LinkConfig::lte()), seed).unwrap();
        world.join(&ClientConfig::default().conditioner(LinkConfig::bad_wifi())).unwrap();
        world.advance(Duration::from_secs(5));
        world.trace()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_blocked_socket_does_not_keep_its_worker_awake() {
    let client = ClientConfig::default();
    let mut world = connected(server_config().conditioner(delayed(MS(5))), &client);
    let peer = world.server.peers().next().unwrap();
    let blocked = SocketFaults { blocked: 1.0, blocked_for: MS(200), ..SocketFaults::default() };
    world.set_socket_faults(0, blocked);
    for _ in 0..5 {
        world.server.send(peer, say("down")).unwrap();
        world.server.flush();
        world.advance(MS(20));
    }
    let turns = world.socket_counts(0).wakeups;
    world.set_socket_faults(0, SocketFaults::default());
    world.advance(Duration::from_secs(5));
    assert_eq!(messages(world.clients[0].polled()), 5);
    assert!(turns < 200, "{turns}");
}
