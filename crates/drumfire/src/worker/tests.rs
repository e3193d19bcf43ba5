//! The worker's loop, driven without a socket and without waiting.

mod blocks;
mod direct;
mod faults;
mod world;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use drumfire_proto::{ChannelId, CloseCode, CloseReason, DropReason, Message, Moment};

use super::command::{Broadcast, Command};
use super::pass::PANICS_IN_A_ROW;
use super::shutdown::{ShutdownOrder, Undelivered};
use super::transport::{BUDGET_DATAGRAMS, BUDGET_TIME, LAST_WAITS_MAX, RETRY_AFTER};
use crate::base::sync::Pending;
use crate::message::event::Event;
use crate::message::group::{Audience, GroupId};
use world::{SERVER, World};

/// The memory of a payload whose release panics.
struct Trap(Vec<u8>);

impl AsRef<[u8]> for Trap {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "the application panics on purpose");
    }
}

#[test]
fn the_loop_runs_over_any_network_and_any_clock() {
    let mut world = World::of_one(3);
    for peer in world.connected() {
        world.servers[0].send(peer, "hello");
    }
    world.run_until("all clients received the message", |world| {
        (0..3).all(|client| world.texts(client) == ["hello"])
    });
    assert_eq!(world.servers[0].stats().unexplained(), 0);
}

#[test]
fn a_train_has_packets_of_one_connection_only() {
    let mut world = World::new(1);
    for _ in 0..3 {
        world.join_from(SocketAddr::from(([127, 0, 0, 1], 1_000)), 0);
    }
    world.run_until_all_are_connected();
    let trains_of = |world: &mut World, text: &'static str, times: usize| {
        world.servers[0].wire.0.lock().unwrap().trains.clear();
        for peer in world.connected() {
            for _ in 0..times {
                world.servers[0].send(peer, text);
            }
        }
        world.servers[0].work();
        let mut wire = world.servers[0].wire.0.lock().unwrap();
        wire.outbox.clear();
        std::mem::take(&mut wire.trains)
    };
    assert_eq!(trains_of(&mut world, "equal in length", 1), [1, 1, 1]);
    // Six such messages fill two packets of one length and begin a third.
    assert_eq!(trains_of(&mut world, "x".repeat(500).leak(), 6), [3, 3, 3]);
}

#[test]
fn a_burst_of_small_messages_leaves_as_one_train() {
    let mut world = World::of_one(2);
    // The size of the path is found first, because its probes are longer than the datagrams around them.
    for round in 1..=4 {
        for peer in world.connected() {
            for at in 0..200 {
                world.servers[0].send(peer, "x".repeat(15 + at * 29 % 44).leak());
            }
        }
        world.servers[0].wire.0.lock().unwrap().trains.clear();
        world.servers[0].work();
        let wire = world.servers[0].wire.0.lock().unwrap();
        let (trains, sizes) = (wire.trains.clone(), wire.outbox.iter().map(|(_, bytes)| bytes.len()));
        let sizes: Vec<_> = sizes.collect();
        drop(wire);
        if round == 4 {
            let [first, second] = trains[..] else { panic!("{trains:?} {sizes:?}") };
            assert!(first == second && first >= 5, "{trains:?} {sizes:?}");
            for train in sizes.chunks(first) {
                let (last, full) = train.split_last().unwrap();
                assert!(full.iter().all(|bytes| *bytes == full[0]) && *last < full[0], "{sizes:?}");
            }
        }
        world.run_until("all have arrived", |world| {
            (0..2).all(|client| world.texts(client).len() == 200 * round)
        });
    }
}

#[test]
fn a_spent_budget_is_followed_by_a_poll_that_does_not_wait() {
    let mut world = World::new(1);
    let server = &mut world.servers[0];
    let junk = |count| (0..count).map(|_| (SocketAddr::from(SERVER), vec![0; 40]));
    for (waiting, is_spent) in
        [(BUDGET_DATAGRAMS - 1, false), (BUDGET_DATAGRAMS, true), (BUDGET_DATAGRAMS + 1, true)]
    {
        server.wire.0.lock().unwrap().inbox.extend(junk(waiting));
        server.work();
        server.worker.wait(None);
        let timeout = server.wire.0.lock().unwrap().polls.pop();
        assert_eq!(timeout, Some(is_spent.then_some(Duration::ZERO)), "{waiting}");
        server.work();
        assert!(server.wire.0.lock().unwrap().inbox.is_empty());
    }
    assert_eq!(server.stats().protocol.dropped(DropReason::FixedBits), 3 * BUDGET_DATAGRAMS as u64);
}

#[test]
fn a_pass_takes_no_more_datagrams_after_two_milliseconds() {
    let mut world = World::new(1);
    let elapsed = world.time.elapsed.clone();
    let server = &mut world.servers[0];
    let junk = (0..BUDGET_DATAGRAMS - 1).map(|_| (SocketAddr::from(SERVER), vec![0; 40]));
    let mut wire = server.wire.0.lock().unwrap();
    wire.inbox.extend(junk);
    // Each receive call takes this time, as if its datagrams kept the worker busy.
    wire.slow = Some((elapsed.clone(), Duration::from_micros(700)));
    drop(wire);
    let mut passes = 0;
    while !server.wire.0.lock().unwrap().inbox.is_empty() {
        let began = elapsed.get();
        server.work();
        let took = elapsed.get() - began;
        assert!(took <= BUDGET_TIME + Duration::from_micros(3 * 700), "{took:?} in pass {passes}");
        server.worker.wait(None);
        let timeout = server.wire.0.lock().unwrap().polls.pop();
        let is_empty = server.wire.0.lock().unwrap().inbox.is_empty();
        assert!(is_empty || timeout == Some(Some(Duration::ZERO)), "the rest raises no edge");
        passes += 1;
    }
    assert!((8..=20).contains(&passes), "{passes}");
    let taken = server.stats().protocol.dropped(DropReason::FixedBits);
    assert_eq!(taken, BUDGET_DATAGRAMS as u64 - 1);
}

#[test]
fn broadcasts_keep_their_order_among_other_commands() {
    let mut world = World::of_one(3);
    let peers = world.connected();
    let (group, other) = (GroupId(1), GroupId(2));
    let message = |text: &'static str| Message::reliable_ordered(ChannelId(0), text);
    let broadcast =
        |audience: Audience, text| Command::Broadcast(Broadcast { audience, message: message(text) });
    let post = |peer, text| Command::Post { peer, message: message(text) };
    let to = Audience::group;
    let mut commands: Vec<_> = peers.iter().map(|peer| Command::Join { peer: *peer, group }).collect();
    commands.extend([
        Command::Join { peer: peers[0], group: other },
        broadcast(to(group), "a"),
        broadcast(to(group).except(peers[1]), "b"),
        post(peers[1], "c"),
        broadcast(to(group), "d"),
        broadcast(to(other), "e"),
        broadcast(to(group), "f"),
        Command::Leave { peer: peers[2], group },
        broadcast(to(group), "g"),
        broadcast(Audience::ALL.except(peers[1]), "all"),
        Command::Close { peer: peers[0], code: 7, text: Bytes::new() },
    ]);
    let payload: Arc<[u8]> = Arc::from(*b"h");
    let last = Arc::downgrade(&payload);
    let message = Message::reliable_ordered(ChannelId(0), Bytes::from_owner(payload));
    commands.push(Command::Broadcast(Broadcast { audience: to(group), message }));
    world.servers[0].command(commands);
    let received = [
        vec!["a", "b", "d", "e", "f", "g", "all"],
        vec!["a", "c", "d", "f", "g", "h"],
        vec!["a", "b", "d", "f", "all"],
    ];
    world.run_until("all clients received their messages", |world| {
        (0..3).all(|client| world.texts(client) == received[client])
    });
    assert_eq!(
        world.servers[0].stats().broadcasts_undelivered,
        1,
        "only the closing peer misses a broadcast"
    );
    world.run_until("no broadcast is kept", |_| last.upgrade().is_none());
}

#[test]
fn a_thousand_queued_broadcasts_reach_all_peers_in_order() {
    const COUNT: u16 = 1_000;
    let mut world = World::of_one(2);
    let group = GroupId(1);
    let mut commands: Vec<_> =
        world.connected().into_iter().map(|peer| Command::Join { peer, group }).collect();
    commands.extend((0..COUNT).map(|number| {
        let message = Message::reliable_ordered(ChannelId(0), number.to_be_bytes().to_vec());
        Command::Broadcast(Broadcast { audience: Audience::group(group), message })
    }));
    world.servers[0].command(commands);
    let numbers: Vec<_> = (0..COUNT).map(|number| Bytes::copy_from_slice(&number.to_be_bytes())).collect();
    world.run_until("both clients received all", |world| (0..2).all(|client| world.texts(client) == numbers));
}

#[test]
fn a_blocked_socket_is_watched_and_loses_nothing() {
    let mut world = World::of_one(1);
    let peer = world.connected()[0];
    world.servers[0].wire.0.lock().unwrap().is_blocked = true;
    for text in ["one", "two", "three"] {
        world.servers[0].send(peer, text);
        world.step();
    }
    assert_eq!(world.servers[0].wire.0.lock().unwrap().watches, [true]);
    assert!(world.texts(0).is_empty());
    world.servers[0].wire.0.lock().unwrap().is_blocked = false;
    world.run_until("all arrived", |world| world.texts(0) == ["one", "two", "three"]);
    assert_eq!(world.servers[0].wire.0.lock().unwrap().watches, [true, false]);
}

#[test]
fn a_panic_costs_no_connection() {
    let mut world = World::of_one(2);
    let peers = world.connected();
    for round in 1..=10 {
        world.servers[0].wire.0.lock().unwrap().panics = PANICS_IN_A_ROW - 1;
        world.servers[0].send(peers[0], "still there");
        world.run_until("it arrived", |world| world.texts(0).len() == round);
    }
    let stats = world.servers[0].stats();
    assert_eq!((stats.panics, stats.restarts), (u64::from(PANICS_IN_A_ROW - 1) * 10, 0));
    assert_eq!((stats.connections, stats.unexplained()), (2, 0));
    assert!(world.failed_peers().is_empty());
}

#[test]
fn consecutive_panics_end_all_peers_and_restart_the_worker() {
    let mut world = World::of_one(3);
    let before = world.connected();
    world.servers[0].wire.0.lock().unwrap().panics = PANICS_IN_A_ROW;
    for _ in 0..PANICS_IN_A_ROW {
        world.servers[0].work();
    }
    let (mut gone, stats) = (world.failed_peers(), world.servers[0].stats());
    gone.sort_unstable();
    assert_eq!(gone, before);
    assert_eq!((stats.restarts, stats.connections), (1, 0));
    // A message that the application still sends to an earlier peer is dropped.
    world.servers[0].send(before[0], "too late");
    world.join(0);
    world.run_until("a new client is connected", |world| world.connected().len() == 4);
    let newest = world.connected()[3];
    assert!(!before.contains(&newest), "{newest:?}");
    world.servers[0].send(newest, "welcome");
    world.run_until("the new client received the message", |world| world.texts(3) == ["welcome"]);
    assert_eq!(world.failed_peers().len(), 3);
    assert_eq!(world.servers[0].stats().messages_undelivered, 1);
}

#[test]
fn a_lost_descriptor_ends_all_peers_and_the_worker() {
    let mut world = World::of_one(2);
    world.servers[0].wire.0.lock().unwrap().is_closed = true;
    assert!(!world.servers[0].worker.is_over());
    world.step();
    assert!(world.servers[0].worker.is_over());
    world.step();
    assert_eq!(world.failed_peers().len(), 2);
}

/// A deadline that no test reaches.
const NEVER: Moment = Moment::from_nanos(u64::MAX);

/// Commands the first worker to shut down.
fn shut_down(world: &World, deadline: Moment) -> Pending<Vec<Undelivered>> {
    let (pending, mut parts) = Pending::new(Vec::new(), 1);
    let order = ShutdownOrder { deadline, application_code: 0, part: parts.pop().unwrap() };
    world.servers[0].link.send_command(Command::ShutDown(order));
    pending
}

#[test]
fn a_second_shutdown_replaces_the_deadline_and_keeps_the_result() {
    let mut world = World::of_one(1);
    let peer = world.connected()[0];
    world.servers[0].wire.0.lock().unwrap().is_blocked = true;
    world.servers[0].send(peer, "never received");
    let mut first = shut_down(&world, NEVER);
    world.step();
    let deadline = Moment::ORIGIN.after(world.time.elapsed.get() + Duration::from_millis(50));
    let mut second = shut_down(&world, deadline);
    world.step();
    assert_eq!((first.try_take(), second.try_take()), (None, None));
    (0..100).for_each(|_| world.step());
    let undelivered = first.try_take().expect("the deadline has passed");
    assert!(matches!(undelivered[..], [Undelivered { peer: of, .. }] if of == peer), "{undelivered:?}");
    assert_eq!(second.try_take(), Some(undelivered));
    assert_eq!(world.ends().len(), 1);
}

#[test]
fn a_worker_that_has_ended_leaves_no_shutdown_waiting() {
    let mut world = World::of_one(1);
    let peer = world.connected()[0];
    world.servers[0].wire.0.lock().unwrap().is_blocked = true;
    world.servers[0].send(peer, "never received");
    let mut before = shut_down(&world, NEVER);
    world.step();
    assert_eq!(before.try_take(), None);
    world.servers[0].wire.0.lock().unwrap().is_closed = true;
    world.step();
    assert_eq!(before.try_take(), Some(Vec::new()));
    assert_eq!(shut_down(&world, NEVER).try_take(), Some(Vec::new()));
}

#[test]
fn datagrams_of_a_stall_are_read_before_timeouts_fire() {
    let mut world = World::of_one(1);
    // Let acks and pings settle.
    for _ in 0..200 {
        world.step();
    }
    let (client, _, peer) = &world.clients[0];
    client.send(*peer, "I am here");
    // The junk before it exceeds the budget of one pass.
    let junk = (0..2 * BUDGET_DATAGRAMS).map(|_| (client.address, vec![0; 40]));
    world.servers[0].wire.0.lock().unwrap().inbox.extend(junk);
    world.step_clients();
    world.pass(Duration::from_secs(31));
    for _ in 0..3 {
        world.servers[0].work();
    }
    let last = world.servers[0].received.back();
    assert!(matches!(last, Some(Event::Message { payload, .. }) if payload == "I am here"), "{last:?}");
}

#[test]
fn a_full_ring_delays_hellos_and_all_clients_connect() {
    const CLIENTS: usize = 640;
    let mut world = World::new(2);
    for _ in 0..CLIENTS {
        world.join(0);
    }
    // The second worker sleeps. Half of all Hellos are for it, which is more than its ring holds.
    for _ in 0..1_000 {
        world.step_clients();
        world.servers[0].work();
        world.carry_replies();
        world.pass(Duration::from_millis(1));
        if world.servers[0].stats().forward_queue_full > 0 {
            break;
        }
    }
    assert_eq!(world.servers[0].stats().forward_queue_full, 1);
    world.servers[0].worker.wait(None);
    let timeout = world.servers[0].wire.0.lock().unwrap().polls.pop().flatten();
    assert!(
        timeout.is_some_and(|timeout| timeout <= RETRY_AFTER),
        "no event reports room, so the worker polls for it"
    );
    world.run_until("all are connected", |world| world.connected().len() == CLIENTS);
    let second = world.connected().iter().filter(|peer| peer.worker() == 1).count();
    assert_eq!(second, CLIENTS / 2);
    assert!(world.servers.iter().all(|server| server.stats().unexplained() == 0));
}

#[test]
fn a_worker_that_ends_closes_all_connections() {
    let mut world = World::of_one(3);
    world.servers[0].worker.finish(CloseCode::Shutdown);
    world.carry_replies();
    world.step_clients();
    for (client, ..) in &world.clients {
        let last = client.received.back();
        let Some(Event::Disconnected { closed, .. }) = last else { panic!("{last:?}") };
        let reason = CloseReason::Remote { code: CloseCode::Shutdown, application_code: 0 };
        assert_eq!(closed.reason, reason);
    }
}

#[test]
fn a_worker_that_ends_closes_more_connections_than_a_pass_can() {
    const CONNECTIONS: usize = 2_100;
    let mut world = World::new(1);
    world.join_many(CONNECTIONS);
    world.run_until("all are connected", |world| {
        let of_client = world.clients[0].0.received.iter();
        let is_connected = |event: &&Event| matches!(event, Event::Connected { .. });
        world.connected().len() == CONNECTIONS && of_client.filter(is_connected).count() == CONNECTIONS
    });
    world.servers[0].worker.finish(CloseCode::Shutdown);
    world.carry_replies();
    for _ in 0..=CONNECTIONS / BUDGET_DATAGRAMS {
        world.step_clients();
    }
    let is_end = |event: &&Event| matches!(event, Event::Disconnected { .. });
    assert_eq!(world.clients[0].0.received.iter().filter(is_end).count(), CONNECTIONS);
}

#[test]
fn a_worker_that_ends_waits_for_room_but_not_forever() {
    for (room_after_sleeps, is_informed) in [(Some(3), true), (None, false)] {
        let mut world = World::of_one(2);
        let wire = world.servers[0].wire.clone();
        (wire.0.lock().unwrap().is_blocked, wire.0.lock().unwrap().room_after_sleeps) =
            (true, room_after_sleeps);
        world.servers[0].worker.finish(CloseCode::Shutdown);
        assert_eq!(wire.0.lock().unwrap().sleeps, room_after_sleeps.unwrap_or(LAST_WAITS_MAX));
        world.carry_replies();
        world.step_clients();
        for (client, ..) in &world.clients {
            let is_end = matches!(client.received.back(), Some(Event::Disconnected { .. }));
            assert_eq!(is_end, is_informed);
        }
    }
}

#[test]
fn a_shutdown_in_the_pass_of_a_handshake_keeps_the_new_peer() {
    let mut world = World::new(1);
    world.join(0);
    world.step();
    world.step();
    // The handshake completes in the pass that carries out this command.
    let pending = shut_down(&world, NEVER);
    world.run_until("the new peer was closed", |world| world.ends().len() == 1);
    assert_eq!((world.connected().len(), world.servers[0].stats().panics), (1, 0));
    drop(pending);
}
