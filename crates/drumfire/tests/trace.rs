//! What a subscriber of `tracing` reads of a server: little, whoever wants it to be much.
//!
//! Worlds run on the test's own thread, so each test has a subscriber of its own; one at a time, because which lines are
//! wanted is remembered for the whole process.
#![cfg(all(feature = "testing", feature = "tracing"))]

use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use drumfire::testing::{self, World};
use drumfire::{ClientConfig, DropReason};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::with_default;
use tracing::{Event, Level, Metadata, Subscriber};

const SECOND: Duration = Duration::from_secs(1);

static ALONE: Mutex<()> = Mutex::new(());

/// Keeps all lines.
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

/// Datagrams that nobody wants, of many kinds, from anywhere.
fn junk(number: u32) -> (SocketAddr, Vec<u8>) {
    let from = SocketAddr::from((number.to_be_bytes(), 7));
    let mut bytes = match number % 8 {
        0 => Vec::new(),
        1 => vec![0; 40],
        2 => vec![0x8f; 40],
        3 => vec![0x89; 40],
        4 => vec![0x09; 60],
        5 => vec![0x8a; 64],
        // Hellos of another version and of none that can be right, without a cookie and with a bad one.
        _ => vec![0x55; 1_200],
    };
    if bytes.len() == 1_200 {
        bytes[0] = 0x89;
        bytes[1..3].copy_from_slice(&[0, u8::from(number % 8 == 6)]);
        bytes[11..15].copy_from_slice(&number.to_be_bytes());
    }
    (from, bytes)
}

#[test]
fn a_hundred_thousand_bad_datagrams_of_many_kinds_are_at_most_25_lines_in_ten_seconds() {
    let lines = Lines::default();
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    with_default(lines.clone(), || {
        let mut world = World::new(testing::server_config(), 1).unwrap();
        let server = world.server.local_addr();
        world.take_seen();
        world.join(&ClientConfig::default()).unwrap();
        world.advance(SECOND);
        let heard: Vec<_> = world.take_seen().into_iter().filter(|seen| seen.to == server).collect();
        assert_eq!(lines.take().len(), 2, "both ends are connected");
        let ten_seconds = 1_000;
        for round in 0..ten_seconds {
            for number in 0..80 {
                let (from, bytes) = junk(round * 100 + number);
                world.inject(from, server, bytes);
            }
            // What the client sent comes again, as it was and with a bit flipped, from where it is and from elsewhere.
            for (number, seen) in (0..20).zip(heard.iter().cycle()) {
                let mut bytes = seen.bytes.clone();
                // In the tag, in the frames, and in the packet number, which is none of those that came.
                let places = [bytes.len() - 1, 30.min(bytes.len() - 1), 12, 9];
                if let Some(place) = places.get(number / 4) {
                    bytes[*place] ^= 1;
                }
                let from = if number % 2 == 0 { seen.from } else { "192.0.2.66:6".parse().unwrap() };
                world.inject(from, server, bytes);
            }
            world.advance(SECOND / 100);
        }
        let stats = world.server.stats();
        let dropped = DropReason::ALL.into_iter().filter(|reason| stats.dropped(*reason) > 0);
        let kinds: Vec<&str> = dropped.map(DropReason::name).collect();
        assert!(kinds.len() >= 7, "{kinds:?}");
        assert!(stats.workers[0].protocol.dropped_count() >= 60_000);
        let said = lines.take();
        assert!((1..=25).contains(&said.len()), "{}: {said:#?}", said.len());
        assert!(said.iter().any(|(_, line)| line.contains("datagrams dropped")), "{said:#?}");
        // The world goes on being quiet about what it is not told.
        world.advance(30 * SECOND);
        let later = lines.take();
        assert!(later.len() <= 10, "{later:#?}");
    });
}

#[test]
fn a_connection_is_said_when_it_comes_and_when_it_breaks() {
    let lines = Lines::default();
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    with_default(lines.clone(), || {
        let mut world = World::new(testing::server_config(), 2).unwrap();
        world.join(&ClientConfig::default()).unwrap();
        world.advance(SECOND);
        let said = lines.take();
        let connected: Vec<_> = said.iter().filter(|(_, line)| line.contains("message=connected")).collect();
        // At both ends.
        assert_eq!(connected.len(), 2, "{said:#?}");
        assert!(connected.iter().all(|(level, _)| *level == Level::DEBUG));
        assert!(connected.iter().any(|(_, line)| line.contains("worker=0")));
        assert!(connected.iter().any(|(_, line)| line.contains("worker=-1")));
        world.clients.clear();
        world.advance(SECOND);
        let said = lines.take();
        let gone = said.iter().find(|(_, line)| line.contains("worker=0") && line.contains("disconnected"));
        let (level, line) = gone.unwrap_or_else(|| panic!("{said:#?}"));
        assert!(*level == Level::DEBUG && line.contains("reason=\"remote\""), "{line}");
    });
}

#[test]
fn a_client_of_another_build_is_said_to_be_refused() {
    let lines = Lines::default();
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    with_default(lines.clone(), || {
        let mut world = World::new(testing::server_config(), 3).unwrap();
        world.join(&ClientConfig::default().protocol_id(9)).unwrap();
        world.advance(3 * SECOND);
        let said = lines.take();
        let is_at_info =
            |wanted: &str| said.iter().any(|(level, line)| *level == Level::INFO && line.contains(wanted));
        assert!(is_at_info("message=refused") && is_at_info("reason=\"wrong_protocol\""), "{said:#?}");
        assert!(is_at_info("message=connect failed"), "{said:#?}");
    });
}
