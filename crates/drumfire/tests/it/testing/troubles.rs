//! Workers whose sockets fail, in virtual time: each row of the table of socket errors, with its required effect.

use std::collections::HashSet;

use drumfire_socket::{RecvAction, SendAction, recv_action, send_action};

use super::*;
use drumfire::stats::WorkerStats;
use drumfire::{ChannelId, CloseReason, Event, Message, PeerId, SendOptions};

use crate::single::Single as _;

const SECOND: Duration = Duration::from_secs(1);

/// Returns a server with this number of workers, its connected clients, and their ids at the server.
fn group(workers: u16, sockets: Sockets, clients: usize) -> (World, Vec<PeerId>) {
    let config = server_config().workers(Workers::Count(workers));
    let mut world = World::with_sockets(config, sockets, 5).unwrap();
    for _ in 0..clients {
        world.join(&ClientConfig::default()).unwrap();
    }
    world.advance(2 * SECOND);
    let connected = world.server.polled().map(|event| match event {
        Event::Connected { peer, .. } => peer,
        other => panic!("{other:?}"),
    });
    let connected = connected.collect();
    world.clients.iter_mut().for_each(|client| assert_eq!(client.polled().count(), 1));
    (world, connected)
}

/// Sends a hundred messages in each direction, four at a time. Returns the numbers of messages that did not arrive.
fn talk(world: &mut World, peers: &[PeerId]) -> (usize, usize) {
    let reliable = SendOptions::reliable_ordered();
    let (mut up, mut down) = (0, 0);
    for round in 0..35 {
        for _ in 0..if round < 25 { 4 } else { 0 } {
            for client in &mut world.clients {
                client.send_up(Message::new(ChannelId(0), vec![1; 900], reliable)).unwrap();
                up += 1;
            }
            for peer in peers {
                world.server.send(*peer, Message::new(ChannelId(0), vec![2; 900], reliable)).unwrap();
                down += 1;
            }
            world.server.flush();
        }
        world.advance(if round < 25 { Duration::from_millis(20) } else { SECOND });
        up -= world.server.polled().filter(|event| matches!(event, Event::Message { .. })).count();
        let heard = |client: &mut Client| {
            client.polled().filter(|event| matches!(event, Event::Message { .. })).count()
        };
        down -= world.clients.iter_mut().map(heard).sum::<usize>();
    }
    (up, down)
}

fn stats(world: &World) -> WorkerStats {
    world.server.control().stats().workers.remove(0)
}

#[test]
fn several_workers_serve_with_and_without_filter_and_trains() {
    let plain = Sockets::default();
    for sockets in [plain, plain.is_steered(false), plain.has_gro(true).has_gso(true)] {
        let (mut world, peers) = group(4, sockets, 12);
        let workers: HashSet<_> = peers.iter().map(|peer| peer.worker()).collect();
        assert_eq!((peers.len(), workers.len()), (12, 4));
        let hellos = world.server.control().stats().forwarded();
        assert_eq!(talk(&mut world, &peers), (0, 0), "{sockets:?}");
        assert_eq!(world.server.control().stats().forwarded() > hellos, !sockets.is_steered);
        assert_eq!(world.server.control().stats().unexplained(), 0);
        let counts: Vec<_> = (0..4).map(|worker| world.socket_counts(worker)).collect();
        assert!(counts.iter().all(|counts| counts.missed_wakeups == 0 && counts.wakeups > 0));
        assert_eq!(counts.iter().any(|counts| counts.trains > 0), sockets.has_gro);
    }
}

#[test]
fn drops_of_a_full_receive_queue_are_counted_as_kernel_drops() {
    let (mut world, peers) = group(1, Sockets::default().queue_datagrams(8), 2);
    world.stall_worker(0, SECOND);
    let (from, to) = (SocketAddr::from(([198, 51, 0, 1], 9)), world.server.local_addr());
    for _ in 0..20 {
        assert!(world.inject(from, to, vec![0x80; 40]));
    }
    assert_eq!(world.socket_counts(0).overflowed, 12);
    assert_eq!(talk(&mut world, &peers), (0, 0));
    assert_eq!(stats(&world).kernel_dropped, world.socket_counts(0).overflowed);
}

#[test]
fn each_receive_error_has_the_effect_of_the_table() {
    for fault in Fault::ALL {
        // An empty socket is the normal end of a drain, and the loss of a descriptor has a test of its own.
        if matches!(recv_action(fault), RecvAction::Stop | RecvAction::Close) {
            continue;
        }
        let (mut world, peers) = group(1, Sockets::default(), 3);
        world.set_socket_faults(
            0,
            SocketFaults { receive: 0.6, receive_faults: vec![fault], ..SocketFaults::default() },
        );
        assert_eq!(talk(&mut world, &peers), (0, 0), "{fault}");
        let (stats, counts) = (stats(&world), world.socket_counts(0));
        let injected = counts.receive_faults.count(fault);
        assert!(injected > 20, "{fault}: {injected}");
        assert_eq!((counts.missed_wakeups, stats.connections, stats.panics), (0, 3, 0), "{fault}");
        assert_eq!(stats.received.faults.count(fault), injected, "{fault}");
        assert_eq!(world.server.control().stats().unexplained(), 0, "{fault}");
    }
}

#[test]
fn each_send_error_has_the_effect_of_the_table() {
    for (fault, has_gso) in Fault::ALL.into_iter().flat_map(|fault| [(fault, false), (fault, true)]) {
        let action = send_action(fault, has_gso);
        // Unreachable peers and the loss of a descriptor have tests of their own.
        if matches!(action, SendAction::Close | SendAction::Unreachable) {
            continue;
        }
        let (mut world, peers) = group(1, Sockets::default().has_gso(has_gso), 3);
        let blocked = if action == SendAction::Keep { 0.2 } else { 0.0 };
        world.set_socket_faults(
            0,
            SocketFaults {
                send: if action == SendAction::Keep { 0.0 } else { 0.2 },
                send_faults: vec![fault],
                blocked,
                blocked_for: Duration::from_millis(5),
                ..SocketFaults::default()
            },
        );
        assert_eq!(talk(&mut world, &peers), (0, 0), "{fault} {has_gso}");
        let (stats, counts) = (stats(&world), world.socket_counts(0));
        let injected = counts.send_faults.count(fault);
        assert!(injected > 20, "{fault}: {injected}");
        assert_eq!((counts.missed_wakeups, stats.connections, stats.panics), (0, 3, 0), "{fault}");
        assert_eq!(stats.sent.faults.count(fault), injected, "{fault}");
        let lost = stats.sent.lost.total();
        assert_eq!(
            stats.protocol.datagrams_sent,
            stats.sent.datagrams + lost,
            "{fault}: each datagram is sent or counted as lost"
        );
        match action {
            SendAction::Keep => assert_eq!(lost, 0, "{fault}"),
            // One in five calls fails, so sometimes four calls in a row fail.
            SendAction::Retry => assert!(lost * 50 < injected, "{fault}: {lost} of {injected}"),
            SendAction::Lost | SendAction::LostAndPause => assert!(lost >= injected, "{fault}: {lost}"),
            // The datagrams are sent again one by one, which can fail too.
            _ => assert!(lost <= injected, "{fault}: {lost}"),
        }
    }
}

#[test]
fn a_lost_descriptor_costs_no_message_and_no_connection() {
    let is_lost = |fault: &Fault| recv_action(*fault) == RecvAction::Close;
    let lost: Vec<_> = Fault::ALL.into_iter().filter(is_lost).collect();
    assert_eq!(lost, [Fault::BadDescriptor, Fault::NotSocket]);
    for (fault, is_of_receive) in lost.into_iter().flat_map(|fault| [(fault, true), (fault, false)]) {
        assert_eq!(send_action(fault, false), SendAction::Close, "{fault}");
        let (mut world, peers) = group(1, Sockets::default(), 3);
        let trouble = if is_of_receive {
            SocketFaults { receive: 0.6, receive_faults: vec![fault], ..SocketFaults::default() }
        } else {
            SocketFaults { send: 0.6, send_faults: vec![fault], ..SocketFaults::default() }
        };
        world.set_socket_faults(0, trouble);
        for _ in 0..3 {
            assert_eq!(talk(&mut world, &peers), (0, 0), "{fault} {is_of_receive}");
        }
        let (stats, counts) = (stats(&world), world.socket_counts(0));
        let injected = counts.receive_faults.count(fault) + counts.send_faults.count(fault);
        assert!(injected >= 3, "{fault} {is_of_receive}: {injected}");
        assert_eq!((stats.sockets_reopened, stats.restarts, stats.sent.lost.total()), (injected, 0, 0));
        assert_eq!((counts.missed_wakeups, stats.connections, stats.panics), (0, 3, 0), "{fault}");
        let counted = stats.received.faults.count(fault) + stats.sent.faults.count(fault);
        assert_eq!((counted, world.server.control().stats().unexplained()), (injected, 0), "{fault}");
    }
}

#[test]
fn only_the_connection_of_an_unreachable_peer_is_closed() {
    let is_unreachable = |fault: &Fault| send_action(*fault, false) == SendAction::Unreachable;
    let faults: Vec<_> = Fault::ALL.into_iter().filter(is_unreachable).collect();
    assert!(!faults.is_empty());
    for fault in faults {
        let (mut world, peers) = group(1, Sockets::default(), 3);
        world.set_socket_faults(
            0,
            SocketFaults { send: 1.0, send_faults: vec![fault], ..SocketFaults::default() },
        );
        let say = |world: &mut World, peer: PeerId, time: Duration| {
            world.server.send(peer, Message::reliable_ordered(ChannelId(0), vec![1; 100])).unwrap();
            world.server.flush();
            world.advance(time);
        };
        // The worker sends to this peer before it sends to the others.
        say(&mut world, peers[0], Duration::from_millis(1));
        let closed = world.server.polled().filter_map(|event| match event {
            Event::Disconnected { peer, closed } => Some((peer, closed.reason)),
            _ => None,
        });
        assert_eq!(closed.collect::<Vec<_>>(), [(peers[0], CloseReason::Unreachable)], "{fault}");
        world.set_socket_faults(0, SocketFaults::default());
        for peer in &peers[1..] {
            say(&mut world, *peer, SECOND);
        }
        let is_message = |event: &Event| matches!(event, Event::Message { .. });
        let heard = world.clients.iter_mut().map(|client| client.polled().filter(is_message).count());
        assert_eq!(heard.collect::<Vec<_>>(), [0, 1, 1], "{fault}");
        assert_eq!(stats(&world).sent.faults.count(fault), world.socket_counts(0).send_faults.count(fault));
    }
}

#[test]
fn a_worker_with_a_blocked_socket_rarely_wakes_up() {
    let (mut world, _) = group(1, Sockets::default(), 3);
    let (before, mut heard) = (world.socket_counts(0).wakeups, 0);
    world.set_socket_faults(0, SocketFaults { blocked: 1.0, blocked_for: SECOND, ..SocketFaults::default() });
    for client in &mut world.clients {
        // The messages use so much of the receive memory that the worker has to send credit while its socket is blocked.
        for _ in 0..30 {
            client.send_up(Message::reliable_ordered(ChannelId(0), vec![1; 5_000])).unwrap();
        }
    }
    for _ in 0..100 {
        world.advance(Duration::from_millis(50));
        heard += world.server.polled().count();
    }
    let turns = world.socket_counts(0).wakeups - before;
    assert!(turns < 2_000, "the worker woke up {turns} times in 5 s");
    world.set_socket_faults(0, SocketFaults::default());
    // The clients get credit for more messages as the application takes them.
    for _ in 0..100 {
        world.advance(Duration::from_millis(100));
        heard += world.server.polled().count();
    }
    assert_eq!(heard, 90);
}

#[test]
fn partial_sends_and_failed_waits_lose_nothing() {
    let (mut world, peers) = group(2, Sockets::default(), 4);
    for worker in 0..2 {
        world.set_socket_faults(worker, SocketFaults { partial: 0.5, wait: 0.2, ..SocketFaults::default() });
    }
    assert_eq!(talk(&mut world, &peers), (0, 0));
    for (worker, stats) in world.server.control().stats().workers.iter().enumerate() {
        let counts = world.socket_counts(worker);
        assert!(counts.partial_sends > 0 && counts.wait_faults > 0);
        assert!(counts.wait_faults - stats.wait_faults <= 1, "the last wait may not be counted yet");
        assert_eq!((counts.missed_wakeups, stats.sent.lost.total()), (0, 0));
    }
}

#[test]
fn a_worker_that_restarts_loses_only_its_own_connections() {
    let (mut world, peers) = group(3, Sockets::default(), 9);
    world.restart_worker(1);
    world.advance(20 * SECOND);
    let gone = world.server.polled().filter_map(|event| match event {
        Event::Disconnected { peer, .. } => Some(peer),
        _ => None,
    });
    let gone: HashSet<_> = gone.collect();
    let theirs: HashSet<_> = peers.iter().copied().filter(|peer| peer.worker() == 1).collect();
    assert_eq!(gone, theirs);
    let ended = |client: &mut Client| {
        usize::from(client.polled().any(|event| matches!(event, Event::Disconnected { .. })))
    };
    assert_eq!(world.clients.iter_mut().map(ended).sum::<usize>(), theirs.len());
    world.join(&ClientConfig::default()).unwrap();
    world.advance(SECOND);
    assert_eq!(world.server.polled().count(), 1);
}

#[test]
fn a_server_in_a_world_shuts_down() {
    let (mut world, peers) = group(2, Sockets::default(), 4);
    for peer in &peers {
        world.server.send(*peer, Message::reliable_ordered(ChannelId(0), vec![3; 30_000])).unwrap();
    }
    world.server.flush();
    let mut shutdown = world.server.control().shut_down(5 * SECOND);
    assert_eq!(shutdown.try_take(), None);
    world.advance(SECOND);
    assert_eq!(shutdown.try_take(), Some(Vec::new()));
    assert_eq!(world.server.polled().filter(|event| matches!(event, Event::Disconnected { .. })).count(), 4);
}
