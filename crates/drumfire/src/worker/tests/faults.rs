//! Errors of the socket under a worker: what each does to the connection it is about, and that it does nothing to others.

use std::net::SocketAddr;

use drumfire_proto::CloseReason;
use drumfire_socket::{Fault, SendAction, send_action};

use super::world::World;

/// What an error of a send to one client does: whether it ends the connection. The other client never notices.
fn refuse(fault: Fault) -> bool {
    let mut world = World::of_one(2);
    let peers = world.connected();
    let poor = world.clients[0].0.address;
    world.servers[0].wire.0.borrow_mut().refused = Some((poor, fault));
    for (peer, text) in [(peers[0], "refused"), (peers[1], "taken")] {
        world.servers[0].send(peer, text);
    }
    world.until("the other heard", |world| world.texts(1) == ["taken"]);
    let sent = world.servers[0].stats().sent;
    assert!(sent.faults.count(fault) >= 1 && sent.lost.count(fault) >= 1, "{fault}");
    assert!(world.texts(0).is_empty(), "{fault}");
    let ends = world.ends();
    world.servers[0].wire.0.borrow_mut().refused = None;
    world.servers[0].send(peers[1], "still here");
    world.until("the other hears on", |world| world.texts(1).len() == 2);
    if ends.is_empty() {
        world.until("the one lived on", |world| world.texts(0) == ["refused"]);
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
fn a_path_is_asked_for_what_the_system_refuses_once_for_each_size() {
    let mut world = World::of_one(1);
    let peer = world.connected()[0];
    world.servers[0].wire.0.borrow_mut().carries = Some(1_400);
    let text: &'static str = "a message for which one packet is not enough. ".repeat(100).leak();
    for round in 1..=20 {
        world.servers[0].send(peer, text);
        world.until("it arrived", |world| world.texts(0).len() == round);
    }
    let longest = |world: &World| world.clients[0].0.stats().received.bytes;
    assert!(longest(&world) > 20 * text.len() as u64);
    // Sizes of 1,472, 1,452 and 1,412 bytes are tried and refused.
    assert_eq!(world.servers[0].stats().sent.lost.count(Fault::MessageTooLong), 3);
    assert!(world.ends().is_empty());
}

#[test]
fn an_attempt_to_an_address_that_cannot_be_sent_to_fails_at_once() {
    let mut world = World::new(1);
    world.join(0);
    let client = &mut world.clients[0].0;
    let server = SocketAddr::from(super::world::SERVER);
    client.wire.0.borrow_mut().refused = Some((server, Fault::AddressFamilyUnsupported));
    client.work();
    let heard: Vec<_> = client.heard.iter().collect();
    let [crate::link::Report::ConnectFailed { error, .. }] = heard[..] else { panic!("{heard:?}") };
    assert_eq!(*error, drumfire_proto::ConnectError::Unreachable);
}
