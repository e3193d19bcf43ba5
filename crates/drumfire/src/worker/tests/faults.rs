//! Errors of a worker's socket: which of them end a connection or the worker, and that all others end nothing.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_proto::{CloseReason, DropReason, PeerId};
use drumfire_socket::{Fault, RecvAction, SendAction, recv_action, send_action};

use super::world::{SERVER, World};
use crate::message::event::Event;
use crate::worker::pass::PANICS_IN_A_ROW;
use crate::worker::transport::REOPEN_AFTER;

/// Makes sends to one of two clients fail with `fault`. Returns whether that ends its connection. The other client is
/// unaffected.
fn refuse(fault: Fault) -> bool {
    let mut world = World::of_one(2);
    let peers = world.connected();
    let failing_client = world.clients[0].0.address;
    world.servers[0].wire.0.lock().unwrap().refused = Some((failing_client, fault));
    for (peer, text) in [(peers[0], "refused"), (peers[1], "taken")] {
        world.servers[0].send(peer, text);
    }
    world.run_until("the other client received its message", |world| world.texts(1) == ["taken"]);
    let sent = world.servers[0].stats().sent;
    assert!(sent.faults.count(fault) >= 1 && sent.lost.count(fault) >= 1, "{fault}");
    assert!(world.texts(0).is_empty(), "{fault}");
    let ends = world.ends();
    world.servers[0].wire.0.lock().unwrap().refused = None;
    world.servers[0].send(peers[1], "still here");
    world.run_until("the other client received another message", |world| world.texts(1).len() == 2);
    if ends.is_empty() {
        world.run_until("the first client received its message", |world| world.texts(0) == ["refused"]);
        assert!(world.ends().is_empty(), "{fault}");
        return false;
    }
    assert_eq!(world.ends(), [(peers[0], CloseReason::Unreachable)], "{fault}");
    assert_eq!((world.servers[0].stats().connections, world.servers[0].stats().unexplained()), (1, 0));
    true
}

#[test]
fn an_address_that_cannot_be_sent_to_ends_its_connection_and_no_other_error_does() {
    let lost = [
        Fault::MessageTooLong,
        Fault::NotPermitted,
        Fault::AccessDenied,
        Fault::ConnectionRefused,
        Fault::HostUnreachable,
        Fault::NetworkUnreachable,
        Fault::InvalidArgument,
        Fault::Other,
        Fault::OutOfMemory,
        Fault::NoBuffers,
        Fault::Interrupted,
        Fault::AddressFamilyUnsupported,
        Fault::AddressNotAvailable,
    ];
    for fault in lost {
        assert_eq!(refuse(fault), send_action(fault, false) == SendAction::Unreachable, "{fault}");
    }
}

#[test]
fn a_refused_datagram_size_is_tried_once() {
    let mut world = World::of_one(1);
    let peer = world.connected()[0];
    world.servers[0].wire.0.lock().unwrap().datagram_max_bytes = Some(1_400);
    let text: &'static str = "a message for which one packet is not enough. ".repeat(100).leak();
    for round in 1..=20 {
        world.servers[0].send(peer, text);
        world.run_until("it arrived", |world| world.texts(0).len() == round);
    }
    let longest = |world: &World| world.clients[0].0.stats().received.bytes;
    assert!(longest(&world) > 20 * text.len() as u64);
    // Sizes of 1,472, 1,452 and 1,412 bytes are tried and refused.
    assert_eq!(world.servers[0].stats().sent.lost.count(Fault::MessageTooLong), 3);
    assert!(world.ends().is_empty());
}

#[test]
fn connecting_to_an_unreachable_address_fails_in_one_pass() {
    let mut world = World::new(1);
    world.join(0);
    let client = &mut world.clients[0].0;
    let server = SocketAddr::from(SERVER);
    client.wire.0.lock().unwrap().refused = Some((server, Fault::AddressFamilyUnsupported));
    client.work();
    let received: Vec<_> = client.received.iter().collect();
    let [Event::ConnectFailed { error, .. }] = received[..] else { panic!("{received:?}") };
    assert_eq!(*error, drumfire_proto::ConnectError::Unreachable);
}

/// Runs the only worker for `duration`, without clients. Time advances by each wait that the worker requests, and by at least
/// 20 µs per pass. Returns the number of passes.
fn run_without_clients(world: &mut World, duration: Duration) -> usize {
    const A_PASS: Duration = Duration::from_micros(20);
    let (until, mut passes) = (world.time.elapsed.get() + duration, 0);
    while world.time.elapsed.get() < until {
        let server = &mut world.servers[0];
        server.worker.wait(None);
        let asked = server.wire.0.lock().unwrap().polls.pop().expect("it polls");
        let left = until - world.time.elapsed.get();
        world.pass(asked.unwrap_or(left).clamp(A_PASS, left.max(A_PASS)));
        world.servers[0].work();
        passes += 1;
    }
    passes
}

#[test]
fn failing_receives_back_off_and_sends_continue() {
    let never_receives =
        |fault: &Fault| matches!(recv_action(*fault), RecvAction::Continue | RecvAction::RetryNextPass);
    for fault in Fault::ALL.into_iter().filter(never_receives) {
        let (mut world, peer) = quiet_world();
        let before = world.servers[0].stats().received.faults.count(fault);
        let wire = world.servers[0].wire.clone();
        (wire.0.lock().unwrap().unreadable, wire.0.lock().unwrap().receives) = (Some(fault), 0);
        // A datagram arrives. The wait reports it once and never again.
        world.clients[0].0.send(world.clients[0].2, "are you there?");
        world.step_clients();
        world.servers[0].worker.set_ready(true);
        world.servers[0].work();
        let passes = run_without_clients(&mut world, Duration::from_secs(5));
        let (receives, per_pass) =
            (wire.0.lock().unwrap().receives, if fault_is_scarcity(fault) { 1 } else { 32 });
        assert!(passes <= 70, "{fault}: {passes} passes in 5 s");
        assert!((50 * per_pass..=60 * per_pass).contains(&receives), "{fault}: {receives} calls in 5 s");
        let counted = world.servers[0].stats().received.faults.count(fault) - before;
        assert_eq!(counted, receives as u64, "{fault}: each failed receive is counted");
        // Commands are still carried out in the next pass.
        world.servers[0].send(peer, "I am");
        world.servers[0].work();
        world.carry_replies();
        world.step_clients();
        assert_eq!(world.texts(0), ["I am"], "{fault}");
        // No event reports the end of the fault, so the worker must try to receive again.
        wire.0.lock().unwrap().unreadable = None;
        run_without_clients(&mut world, Duration::from_millis(100));
        let received =
            world.servers[0].received.iter().filter(|event| matches!(event, Event::Message { .. }));
        assert_eq!(received.count(), 1, "{fault}");
        assert!(world.ends().is_empty());
    }
}

/// Returns a world with one client, 300 ms after it connected, so that neither side has anything left to send.
fn quiet_world() -> (World, PeerId) {
    let mut world = World::of_one(1);
    (0..300).for_each(|_| world.step());
    let peer = world.connected()[0];
    (world, peer)
}

/// Whether the fault means that the system lacks memory, so that the worker receives only once per pass.
fn fault_is_scarcity(fault: Fault) -> bool {
    recv_action(fault) == RecvAction::RetryNextPass
}

#[test]
fn timers_are_kept_while_no_receive_succeeds() {
    let (mut world, peer) = quiet_world();
    world.servers[0].wire.0.lock().unwrap().unreadable = Some(Fault::OutOfMemory);
    run_without_clients(&mut world, Duration::from_secs(40));
    assert_eq!(world.ends(), [(peer, CloseReason::IdleTimeout)], "the server received nothing for 30 s");
}

#[test]
fn a_lost_descriptor_is_replaced_without_loss() {
    let (mut world, peer) = quiet_world();
    for round in 1..=5 {
        world.pass(REOPEN_AFTER);
        let wire = world.servers[0].wire.clone();
        (wire.0.lock().unwrap().is_closed, wire.0.lock().unwrap().spare_descriptors) = (true, 1);
        // In even rounds a receive detects the loss, in odd rounds a send.
        if round % 2 == 0 {
            world.clients[0].0.send(world.clients[0].2, "received");
            world.step_clients();
            world.servers[0].worker.set_ready(true);
        }
        world.servers[0].send(peer, "sent");
        world.run_until("it arrived", |world| world.texts(0).len() == round);
        assert_eq!(world.servers[0].stats().sockets_reopened, round as u64);
    }
    let received = world.servers[0].received.iter().filter(|event| matches!(event, Event::Message { .. }));
    assert_eq!((received.count(), world.servers[0].stats().unexplained()), (2, 0));
    assert!(world.ends().is_empty() && !world.servers[0].worker.is_over());
}

#[test]
fn a_second_lost_descriptor_within_a_second_ends_the_worker() {
    let (mut world, peer) = quiet_world();
    let wire = world.servers[0].wire.clone();
    (wire.0.lock().unwrap().is_closed, wire.0.lock().unwrap().spare_descriptors) = (true, 2);
    world.step();
    assert!(!world.servers[0].worker.is_over());
    wire.0.lock().unwrap().is_closed = true;
    world.pass(REOPEN_AFTER - Duration::from_millis(2));
    world.servers[0].worker.set_ready(true);
    world.step();
    assert!(world.servers[0].worker.is_over());
    assert_eq!(world.failed_peers(), [peer]);
    assert_eq!((wire.0.lock().unwrap().spare_descriptors, world.servers[0].stats().sockets_reopened), (1, 1));
}

#[test]
fn a_hello_to_a_restarting_worker_is_dropped_and_retried() {
    let mut world = World::new(2);
    world.join(0);
    world.run_until("the first is connected", |world| world.connected().len() == 1);
    // Worker 0 forwards this hello to worker 1, which has fewer connections.
    world.join(0);
    for _ in 0..100 {
        if world.servers[0].stats().protocol.forwarded > 0 {
            break;
        }
        world.step_clients();
        world.servers[0].work();
        world.carry_replies();
        world.pass(Duration::from_millis(1));
    }
    world.servers[1].wire.0.lock().unwrap().panics = PANICS_IN_A_ROW;
    for _ in 0..=PANICS_IN_A_ROW {
        world.servers[1].work();
    }
    let stats = world.servers[1].stats();
    assert_eq!((stats.restarts, stats.forwarded_in, stats.connections), (1, 1, 0));
    assert_eq!((stats.protocol.dropped(DropReason::Misrouted), stats.unexplained()), (1, 0));
    world.run_until("the second is connected", |world| world.connected().len() == 2);
    assert_eq!(world.servers.iter().map(|server| server.stats().connections).sum::<usize>(), 2);
    assert!(world.failed_peers().is_empty());
}

#[test]
fn new_connections_avoid_a_worker_that_has_ended() {
    let mut world = World::new(2);
    (0..8).for_each(|_| world.join(0));
    world.run_until_all_are_connected();
    world.servers[1].wire.0.lock().unwrap().is_closed = true;
    world.servers[1].work();
    assert!(world.servers[1].worker.is_over());
    let ends = world.servers[1].received.iter().filter(|event| matches!(event, Event::Disconnected { .. }));
    assert_eq!(ends.count(), 4);
    // Its thread drops the worker, and the other one continues.
    world.servers.pop();
    world.clients.retain(|(_, worker, _)| *worker == 0);
    let before = world.connected().len();
    (0..8).for_each(|number| world.join_from(SocketAddr::from(([127, 0, 0, 1], 2_000 + number)), 0));
    world.run_until("all new clients are connected", |world| world.connected().len() == before + 8);
}

#[test]
fn a_client_that_only_acknowledges_outlives_a_change_of_the_network() {
    let (mut world, peer) = quiet_world();
    let wire = world.clients[0].0.wire.clone();
    let (client, _, server) = &world.clients[0];
    assert!(!client.worker.core.endpoint.awaits_ack(*server));
    wire.0.lock().unwrap().refused = Some((SERVER.into(), Fault::AddressNotAvailable));
    world.servers[0].send(peer, "while away");
    world.run_until("an ack was refused", |world| {
        world.clients[0].0.stats().sent.lost.count(Fault::AddressNotAvailable) > 0
    });
    wire.0.lock().unwrap().refused = None;
    world.servers[0].send(peer, "back again");
    world.run_until("both arrived", |world| world.texts(0) == ["while away", "back again"]);
    assert!(world.ends().is_empty());
}
