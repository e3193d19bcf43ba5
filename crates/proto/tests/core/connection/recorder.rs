//! The flight recorder: its contents when a connection ends abnormally, and that it contains nothing else.

use crate::harness::{CLEAN, CLIENT, SERVER, Seen, World};
use crate::puppet::Puppet;
use drumfire_proto::limits::{FLIGHT_ENTRIES, FLIGHT_RECORDS_WAITING};
use drumfire_proto::{
    AckError, ClientConfig, Close, CloseCode, CloseReason, Config, DropReason, FlightEvent, FlightRecord,
    FrameKinds, PeerId, ProtocolError, SendOptions,
};
use serde_json::Value;
use std::time::Duration;

/// Returns the only record of this end, which came immediately before the last event of its connection.
fn only_record(world: &World, end: usize) -> &FlightRecord {
    let [(peer, before, record)] = world.records[end].as_slice() else {
        panic!("{} records", world.records[end].len())
    };
    let (_, gone, seen) = &world.seen[end][*before];
    let Seen::Disconnected(reason, _) = seen else { panic!("{seen:?}") };
    assert_eq!((gone, record.reason), (peer, Some(*reason)));
    record
}

/// Returns the names of the events of its qlog, which must be JSON.
fn qlog_names(record: &FlightRecord) -> Vec<String> {
    let qlog: Value = serde_json::from_str(&record.to_qlog()).unwrap();
    let events = qlog["traces"][0]["events"].as_array().unwrap();
    let times: Vec<f64> = events.iter().map(|event| event["time"].as_f64().unwrap()).collect();
    assert!(times.is_sorted() && times[0] == 0.0, "{times:?}");
    events.iter().map(|event| event["name"].as_str().unwrap().to_owned()).collect()
}

fn count(record: &FlightRecord, is_wanted: impl Fn(&FlightEvent) -> bool) -> usize {
    record.entries.iter().filter(|entry| is_wanted(&entry.event)).count()
}

#[test]
fn a_timeout_leaves_a_record_of_the_last_seconds() {
    let mut world = World::new(1, CLEAN);
    let (client, _) = world.connected();
    world.reliable(CLIENT, client, b"one that arrives").unwrap();
    world.run(Duration::from_secs(1));
    assert_eq!(world.messages(SERVER).len(), 1);
    world.link.loss = 100;
    let cut_at = world.now;
    world.reliable(CLIENT, client, &[7; 3_000]).unwrap();
    world.run(Duration::from_secs(11));
    let record = only_record(&world, CLIENT);
    assert_eq!((record.reason, record.is_server), (Some(CloseReason::Unacknowledged), false));
    assert_eq!(record.taken_at, cut_at.after(Duration::from_secs(10)));
    let probes = count(record, |event| matches!(event, FlightEvent::ProbeTimeout { .. }));
    assert_eq!(probes as u64, world.ends[CLIENT].stats().probes_sent);
    let arrived = count(record, |event| {
        matches!(event, FlightEvent::Acked { count: 1.., round_trip_us: 20_000.., .. })
    });
    assert!(arrived >= 1);
    assert!(count(record, |event| matches!(event, FlightEvent::Sent { queued_kib: 3.., .. })) >= 3);
    let text = record.to_string();
    assert!(text.starts_with("flight record of a client: "), "{text}");
    assert!(text.contains("ms  no ack in time, 5 in a row\n") && text.contains("round trip 20.0"), "{text}");
    assert!(text.ends_with("ms  closed: unacknowledged\n"), "{text}");
    assert_eq!(text.lines().count(), record.entries.len() + 3);
    let names = qlog_names(record);
    assert_eq!(names.last().unwrap(), "connectivity:connection_closed");
    assert_eq!(names.iter().filter(|name| *name == "recovery:loss_timer_updated").count(), probes);
    // The server was idle for more than five seconds when it timed out.
    world.run(Duration::from_secs(30));
    assert!(matches!(world.last(SERVER), Some((_, _, Seen::Disconnected(CloseReason::IdleTimeout, _)))));
    assert!(world.records[SERVER].is_empty());
}

#[test]
fn a_protocol_violation_leaves_its_packet_in_the_record() {
    let mut puppet = Puppet::connected(2);
    puppet.server_sends(3);
    let packets = puppet.take_packets();
    let newest = packets.last().unwrap().0;
    puppet.ack(0, newest);
    puppet.ack(0, newest + 1);
    let record = only_record(&puppet.world, SERVER);
    let expected = ProtocolError::Ack(AckError::Unsent);
    assert_eq!((record.reason, record.is_server), (Some(CloseReason::Protocol(expected)), true));
    let [.., received, dropped] = record.entries.as_slice() else { panic!("{record}") };
    let FlightEvent::Received { number, frames, .. } = received.event else { panic!("{record}") };
    assert_eq!(frames, FrameKinds::ACK);
    let FlightEvent::Dropped { number: bad, reason, .. } = dropped.event else { panic!("{record}") };
    assert_eq!((bad, reason), (number, DropReason::Protocol));
    // Every message that it sent is recorded, by the numbers that the client received.
    let sent = record.entries.iter().filter_map(|entry| match entry.event {
        FlightEvent::Sent { number, frames, .. } if frames.has(FrameKinds::MESSAGE) => Some(number),
        _ => None,
    });
    let with_messages = &packets[packets.len() - 3..];
    assert_eq!(sent.collect::<Vec<_>>(), with_messages.iter().map(|(number, _)| *number).collect::<Vec<_>>());
    assert!(record.to_string().ends_with("closed: protocol (ack_of_unsent)\n"), "{record}");
    assert!(qlog_names(record).contains(&"transport:packet_dropped".to_owned()));
}

#[test]
fn packets_found_lost_are_in_the_record_until_a_reset_ends_it() {
    let mut world = World::new(3, CLEAN);
    let (client, _) = world.connected();
    for round in 0..8 {
        // The third and the fourth do not arrive.
        world.link.loss = if (2..4).contains(&round) { 100 } else { 0 };
        world.send(CLIENT, client, 0, b"state", SendOptions::unreliable()).unwrap();
        world.run(Duration::from_millis(16));
    }
    world.run(Duration::from_millis(200));
    world.restart_server();
    world.reliable(CLIENT, client, b"hello?").unwrap();
    world.run(Duration::from_secs(1));
    let record = only_record(&world, CLIENT);
    assert_eq!(record.reason, Some(CloseReason::Reset));
    let lost: Vec<_> = record
        .entries
        .iter()
        .filter_map(|entry| match entry.event {
            FlightEvent::Lost { first, span, count } => Some((first, span, count)),
            _ => None,
        })
        .collect();
    let count: u64 = lost.iter().map(|(_, _, count)| u64::from(*count)).sum();
    assert_eq!((count, world.ends[CLIENT].stats().packets_lost), (2, 2), "{record}");
    for (first, span, _) in lost {
        let is_sent = |number: u64| {
            let mut events = record.entries.iter().map(|entry| entry.event);
            events.any(|event| matches!(event, FlightEvent::Sent { number: sent, .. } if sent == number))
        };
        assert!(is_sent(first) && is_sent(first + u64::from(span)), "{record}");
    }
    assert!(record.to_string().contains("lost      "), "{record}");
    assert!(qlog_names(record).contains(&"recovery:packet_lost".to_owned()));
}

#[test]
fn a_migration_is_in_the_record() {
    let mut world = World::new(4, CLEAN);
    let (client, server) = world.connected();
    for (at, is_same_host) in [("192.0.2.1:6000", true), ("203.0.113.9:6000", false)] {
        world.client_address = at.parse().unwrap();
        for _ in 0..20 {
            world.reliable(CLIENT, client, b"here").unwrap();
            world.run(Duration::from_millis(50));
        }
        assert_eq!(world.ends[SERVER].address(server), Some(world.client_address));
        let now = world.now();
        let record = world.ends[SERVER].flight_record(now, server).unwrap();
        let mut moves = record.entries.iter().filter_map(|entry| match entry.event {
            FlightEvent::PathMigrated { is_same_host } => Some(is_same_host),
            _ => None,
        });
        assert_eq!(moves.next_back(), Some(is_same_host), "{record}");
    }
}

/// Creates a world with a busy connection.
fn busy(config: Config) -> (World, PeerId, PeerId) {
    let mut world = World::with(5, CLEAN, config, ClientConfig::default());
    let (client, server) = world.connected();
    for (end, peer) in [(CLIENT, client), (SERVER, server)] {
        world.reliable(end, peer, b"busy").unwrap();
    }
    world.run(Duration::from_secs(1));
    (world, client, server)
}

#[test]
fn only_abnormal_ends_have_records() {
    for (code, has_record) in [
        (CloseCode::Application, false),
        (CloseCode::Shutdown, false),
        (CloseCode::Internal, true),
        (CloseCode::Overflow, true),
    ] {
        let (mut world, _, server) = busy(Config::default().flight_recorder(true));
        let close = Close { code, application_code: 0, reason: b"" };
        let now = world.now();
        world.ends[SERVER].close(now, server, &close).unwrap();
        world.run(Duration::from_secs(1));
        for end in [CLIENT, SERVER] {
            assert!(matches!(world.last(end), Some((_, _, Seen::Disconnected(..)))));
            assert_eq!(world.records[end].len(), usize::from(has_record), "{code:?}");
        }
        if has_record {
            let line = format!("closed: remote ({})\n", code.name());
            assert!(only_record(&world, CLIENT).to_string().ends_with(&line));
        }
    }
}

#[test]
fn only_active_connections_have_a_recorder() {
    let (mut world, client, server) = busy(Config::default().flight_recorder(true));
    let now = world.now();
    let records = [(CLIENT, client), (SERVER, server)].map(|(end, peer)| {
        let record = world.ends[end].flight_record(now, peer).unwrap();
        assert_eq!((record.reason, record.taken_at, record.overwritten_count), (None, now.monotonic, 0));
        assert!(record.to_string().ends_with("taken while open\n"));
        record
    });
    // Each sent packet with a message was received with the same number and kinds.
    for (from, to) in [(0, 1), (1, 0)] {
        let sent = records[from].entries.iter().find_map(|entry| match entry.event {
            FlightEvent::Sent { number, payload_bytes, frames, .. } if frames.has(FrameKinds::MESSAGE) => {
                Some((entry.at, number, payload_bytes, frames))
            }
            _ => None,
        });
        let (at, number, payload_bytes, frames) = sent.unwrap();
        let received = FlightEvent::Received { number, payload_bytes, frames };
        let arrived = records[to].entries.iter().find(|entry| entry.event == received).unwrap();
        assert_eq!(arrived.at, at.after(CLEAN.delay));
    }
    world.run(Duration::from_secs(10));
    let now = world.now();
    assert_eq!(world.ends[SERVER].flight_record(now, server), None, "idle");
}

#[test]
fn a_full_ring_keeps_the_newest_entries() {
    let (mut world, client, _) = busy(Config::default().flight_recorder(true));
    for _ in 0..FLIGHT_ENTRIES {
        world.send(CLIENT, client, 0, b"state", SendOptions::unreliable()).unwrap();
        world.run(Duration::from_millis(16));
    }
    let now = world.now();
    let record = world.ends[CLIENT].flight_record(now, client).unwrap();
    assert_eq!(record.entries.len(), FLIGHT_ENTRIES);
    assert!(record.overwritten_count > 0 && record.entries.is_sorted_by_key(|entry| entry.at));
    let last = record.entries.last().unwrap();
    assert!(now.monotonic.since(last.at) < Duration::from_millis(40), "{record}");
}

#[test]
fn without_the_setting_there_is_no_record() {
    let (mut world, client, _) = busy(Config::default().flight_recorder(false));
    let now = world.now();
    assert_eq!(world.ends[CLIENT].flight_record(now, client), None);
    world.restart_server();
    world.reliable(CLIENT, client, b"hello?").unwrap();
    world.run(Duration::from_secs(1));
    assert!(matches!(world.last(CLIENT), Some((_, _, Seen::Disconnected(CloseReason::Reset, _)))));
    assert!(world.records[CLIENT].is_empty());
}

#[test]
fn records_beyond_the_queue_limit_are_counted() {
    let count = FLIGHT_RECORDS_WAITING + 16;
    let config = Config::default().flight_recorder(true);
    let mut world = World::with(6, CLEAN, config, ClientConfig::many());
    let mut peers = Vec::new();
    for _ in 0..count {
        // Few enough at a time for the server's source limit.
        peers.push(world.connect());
        world.run(Duration::from_millis(100));
    }
    world.run(Duration::from_secs(10));
    assert_eq!(world.peers(CLIENT).len(), count);
    world.link.loss = 100;
    for peer in peers {
        world.reliable(CLIENT, peer, b"anybody?").unwrap();
    }
    world.run(Duration::from_secs(11));
    let ended = world.seen[CLIENT].iter().filter(|(_, _, seen)| matches!(seen, Seen::Disconnected(..)));
    let records = &world.records[CLIENT];
    let dropped = world.ends[CLIENT].stats().flight_records_dropped;
    assert_eq!((ended.count(), records.len() as u64 + dropped), (count, count as u64));
    // All except the few with a keep-alive in flight end at the same time.
    let last = records.last().unwrap().2.taken_at;
    let at_once = records.iter().filter(|(_, _, record)| record.taken_at == last).count();
    assert!(at_once == FLIGHT_RECORDS_WAITING && dropped > 0, "{at_once} {dropped}");
}
