//! The events of a server that a subscriber of `tracing` receives. Hostile input cannot make them many.
//!
//! Worlds run on the thread of their test, so each test has its own subscriber. The tests run one at a time, because `tracing`
//! caches the interest in each callsite for the whole process.
#![cfg(all(feature = "testing", feature = "tracing"))]

use drumfire_tries::tries;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use drumfire::ClientConfig;
use drumfire::stats::DropReason;
use drumfire::testing::{self, Datagram, World};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::with_default;
use tracing::{Event, Level, Metadata, Subscriber};

const SECOND: Duration = Duration::from_secs(1);

/// The bytes of the cookie in a Hello.
const COOKIE: std::ops::Range<usize> = 540..572;

/// Held by the test that runs.
static ALONE: Mutex<()> = Mutex::new(());

/// A subscriber that records all events as lines.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<(Level, String)>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push_str(&format!("{}={value:?} ", field.name()));
    }
}

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push((*event.metadata().level(), line.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Lines {
    fn take(&self) -> Vec<(Level, String)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// The number of kinds of invalid datagrams that are made from scratch.
const MADE_UP: u32 = 15;
/// The number of kinds of invalid datagrams that are made from a recorded datagram.
const MADE_FROM_OTHERS: u32 = 5;
const KINDS: u32 = MADE_UP + MADE_FROM_OTHERS;

/// Returns the source and the bytes of a datagram. `number` selects its kind.
fn junk(number: u32, heard: &[Datagram]) -> (SocketAddr, Vec<u8>) {
    let kind = number % KINDS;
    if kind >= MADE_UP {
        return made_from(kind - MADE_UP, number / KINDS, heard);
    }
    let from = SocketAddr::from((number.to_be_bytes(), 7));
    let (first, length) = [
        (0x00, 0),
        (0x00, 40),
        // Handshake datagrams: of an unknown kind, of kinds for clients only, and Hellos that are too short or too long.
        (0x8f, 40),
        (0x8a, 64),
        (0x8b, 102),
        (0x8c, 400),
        (0x89, 40),
        (0x89, 1_201),
        // Packets: with an invalid packet number length, too short, and of unknown connections, the last of maximum length.
        (0x08, 60),
        (0x09, 9),
        (0x09, 60),
        (0x0b, 1_200),
        // Hellos: of another version, without a cookie, and with an invalid cookie.
        (0x89, 1_200),
        (0x89, 1_200),
        (0x89, 1_200),
    ][kind as usize];
    let mut bytes = vec![0x55; length];
    if let Some(byte) = bytes.first_mut() {
        *byte = first;
    }
    if kind >= 12 {
        bytes[1..3].copy_from_slice(&[0, u8::from(kind != 12)]);
        bytes[11..15].copy_from_slice(&number.to_be_bytes());
    }
    if kind == 13 {
        bytes[COOKIE].fill(0);
    }
    (from, bytes)
}

/// Returns a copy of a client's datagram, unchanged or with one bit flipped, from the client's address or another address.
fn made_from(kind: u32, number: u32, heard: &[Datagram]) -> (SocketAddr, Vec<u8>) {
    let seen = &heard[number as usize % heard.len()];
    let mut bytes = seen.bytes.clone();
    // In a packet, these are bytes of the tag, the frames, the packet number, and the connection id.
    let places = [bytes.len() - 1, 30.min(bytes.len() - 1), 9, 5];
    if let Some(place) = places.get(kind as usize) {
        bytes[*place] ^= 1;
    }
    let from = if number.is_multiple_of(2) { seen.from } else { "192.0.2.66:6".parse().unwrap() };
    (from, bytes)
}

/// Takes all events of both ends. A connection is logged when the application takes its event.
fn take_events(world: &mut World) {
    world.server.poll(Duration::ZERO);
    world.server.events().for_each(drop);
    for client in &mut world.clients {
        client.poll(Duration::ZERO);
        client.events().for_each(drop);
    }
}

#[test]
fn a_million_bad_datagrams_are_at_most_25_lines() {
    let lines = Lines::default();
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    with_default(lines.clone(), || {
        let mut world = World::new(testing::server_config(), 1).unwrap();
        let server = world.server.local_addr();
        world.take_captured();
        world.join(&ClientConfig::default()).unwrap();
        // Both ends poll, because an application that never polls causes one more line.
        take_events(&mut world);
        world.advance(SECOND);
        take_events(&mut world);
        let heard: Vec<_> = world.take_captured().into_iter().filter(|seen| seen.to == server).collect();
        assert_eq!(lines.take().len(), 2, "both ends are connected");
        let (rounds, of_a_round) = (1_000, tries(1_000));
        for round in 0..rounds {
            for number in 0..of_a_round {
                let (from, bytes) = junk(round * of_a_round + number, &heard);
                world.inject(from, server, bytes);
            }
            world.advance(10 * SECOND / rounds);
        }
        let stats = world.server.control().stats();
        let dropped = DropReason::ALL.into_iter().filter(|reason| stats.dropped(*reason) > 0);
        let kinds: Vec<&str> = dropped.map(DropReason::name).collect();
        assert!(kinds.len() >= 8, "{kinds:?}");
        let (sent, dropped) = (rounds * of_a_round, stats.workers[0].protocol.dropped_count());
        // Not all datagrams are drops: the server replies to Hellos without a cookie and to copies of recorded Hellos.
        assert!(dropped >= u64::from(sent / 10 * 6), "{dropped}");
        let said = lines.take();
        assert!((1..=25).contains(&said.len()), "{}: {said:#?}", said.len());
        assert!(said.iter().any(|(_, line)| line.contains("datagrams dropped")), "{said:#?}");
        // After the flood, the log stays short.
        world.advance(30 * SECOND);
        let later = lines.take();
        assert!(later.len() <= 10, "{later:#?}");
    });
}

#[test]
fn the_start_and_the_end_of_a_connection_are_logged() {
    let lines = Lines::default();
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    with_default(lines.clone(), || {
        let mut world = World::new(testing::server_config(), 2).unwrap();
        world.join(&ClientConfig::default()).unwrap();
        world.advance(SECOND);
        take_events(&mut world);
        let said = lines.take();
        let connected: Vec<_> = said.iter().filter(|(_, line)| line.contains("message=connected")).collect();
        // One line of each end.
        assert_eq!(connected.len(), 2, "{said:#?}");
        assert!(connected.iter().all(|(level, _)| *level == Level::DEBUG));
        assert!(connected.iter().any(|(_, line)| line.contains("worker=0")));
        assert!(connected.iter().any(|(_, line)| line.contains("worker=-1")));
        world.clients.clear();
        world.advance(SECOND);
        take_events(&mut world);
        let said = lines.take();
        let gone = said.iter().find(|(_, line)| line.contains("worker=0") && line.contains("disconnected"));
        let (level, line) = gone.unwrap_or_else(|| panic!("{said:#?}"));
        assert!(*level == Level::DEBUG && line.contains("reason=\"remote\""), "{line}");
    });
}

#[test]
fn the_refusal_of_a_client_with_another_protocol_id_is_logged() {
    let lines = Lines::default();
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    with_default(lines.clone(), || {
        let mut world = World::new(testing::server_config(), 3).unwrap();
        world.join(&ClientConfig::default().protocol_id(9)).unwrap();
        world.advance(3 * SECOND);
        take_events(&mut world);
        let said = lines.take();
        let is_at_info =
            |wanted: &str| said.iter().any(|(level, line)| *level == Level::INFO && line.contains(wanted));
        assert!(is_at_info("message=refused") && is_at_info("reason=\"wrong_protocol\""), "{said:#?}");
        assert!(is_at_info("message=connect failed"), "{said:#?}");
    });
}
