//! What connections cost a server that say nothing, and what it costs to make one.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_benches::group::{Datagrams, Group, client_address};
use drumfire_benches::hellos::take;
use drumfire_benches::pair::{at_ms, client, server, server_address};
use drumfire_proto::{Alone, Config, Endpoint, Event, Inbound, Now};

use crate::counted_part;

/// Connections of the tick.
const IDLE: u32 = 8_192;
/// Between two ticks.
const TICK: Duration = Duration::from_millis(1);
/// Until nothing is left of the handshakes.
const QUIET: Duration = Duration::from_secs(2);
/// More steps than an exchange takes.
const STEPS: u32 = 100;

/// One keep-alive of a client: the server takes it in and acknowledges it.
pub(crate) fn keep_alive(count: u64) {
    let mut group = Group::connect(1, &Config::default()).expect("a connection");
    quiet(&mut group);
    let mut memory = Datagrams::default();
    let received = |group: &Group| group.server.stats().packets_received;
    let before = received(&group);
    for exchange in 1..=count {
        let mut left = STEPS;
        while received(&group) < before + exchange {
            step(&mut group, &mut memory);
            left = left.checked_sub(1).expect("a keep-alive comes");
        }
    }
    assert_eq!(group.server.connection_count(), 1, "the connection lives");
}

/// Goes to the next moment at which an end has something to do, and lets both do it.
fn step(group: &mut Group, memory: &mut Datagrams) {
    let due = [group.client.poll_timeout(), group.server.poll_timeout()].into_iter().flatten().min();
    let due = due.expect("somebody has something to do");
    group.now.monotonic = group.now.monotonic.max(due);
    let Group { server, client, now, .. } = group;
    client.handle_timeout(*now);
    memory.clear();
    memory.take_all_from(client, *now);
    counted_part(|| {
        server.handle_datagrams(*now, memory.inbound(client_address()));
        server.handle_timeout(*now);
        memory.clear();
        memory.take_all_from(server, *now);
    });
    client.handle_datagrams(*now, memory.inbound(server_address()));
    while client.poll_event().is_some() {}
}

/// Lets time pass until both ends have said all they have to say.
fn quiet(group: &mut Group) {
    let until = group.now.monotonic.after(QUIET);
    while group.now.monotonic < until {
        group.pass(TICK);
        group.client.handle_timeout(group.now);
        group.server.handle_timeout(group.now);
        group.settle();
    }
}

/// A millisecond in which nothing is due. That timers of later move up meanwhile is part of it.
pub(crate) fn tick(count: u64) {
    let mut group = Group::connect(IDLE, &Config::default()).expect("connections");
    quiet(&mut group);
    let mut memory = Datagrams::default();
    memory.reserve(1);
    for _ in 0..count {
        group.pass(TICK);
        let (server, now) = (&mut group.server, group.now);
        counted_part(|| {
            server.handle_timeout(now);
            assert!(server.poll_event().is_none(), "nothing happens");
            memory.take_all_from(server, now);
        });
        assert_eq!(memory.count(), 0, "nothing is to be said");
    }
    assert_eq!(group.server.connection_count(), IDLE as usize);
}

/// A new client, from its first Hello to the event that it is there.
pub(crate) fn handshake(count: u64) {
    let (mut server, identity) = server();
    for number in 0..count {
        let now = at_ms(number);
        let [.., high, low] = u16::try_from(number).expect("few").to_be_bytes();
        let from = SocketAddr::from(([192, 0, high, low], 50_000));
        let mut client = client(low, false);
        client.connect(now, server_address(), &identity, None).expect("an attempt");
        let mut is_there = false;
        while let Some(mut datagram) = take(&mut client, now) {
            let (answers, connected) = counted_part(|| serve(&mut server, now, from, &mut datagram));
            is_there |= connected;
            for mut answer in answers {
                client.handle_datagrams(now, [Inbound { from: server_address().into(), bytes: &mut answer }]);
            }
        }
        assert!(is_there, "client {number} is connected");
    }
}

/// One datagram, and what the server says to it; whether somebody is there now.
fn serve(server: &mut Endpoint<Alone>, now: Now, from: SocketAddr, bytes: &mut [u8]) -> (Vec<Vec<u8>>, bool) {
    server.handle_datagrams(now, [Inbound { from: from.into(), bytes }]);
    server.handle_timeout(now);
    let mut is_there = false;
    while let Some(event) = server.poll_event() {
        is_there |= matches!(event, Event::Connected { .. });
    }
    (std::iter::from_fn(|| take(server, now)).collect(), is_there)
}
