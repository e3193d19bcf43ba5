//! The metrics of a server and its clients that a recorder of `metrics` receives.
//!
//! Worlds run on the thread of their test, so each test has its own recorder.
#![cfg(all(feature = "testing", feature = "metrics"))]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use drumfire::conditioner::{Delay, LinkConfig};
use drumfire::stats::{DropReason, describe_metrics};
use drumfire::testing::{self, World};
use drumfire::{ChannelId, Client, ClientConfig, Message};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit, with_local_recorder,
};

const SECOND: Duration = Duration::from_secs(1);

/// A recorder that keeps every value by name and labels, with the number of updates.
#[derive(Default)]
struct TestRecorder {
    numbers: Mutex<BTreeMap<String, Arc<Number>>>,
    /// The units of the described metrics, by name.
    described: Mutex<BTreeMap<String, Option<Unit>>>,
}

#[derive(Default)]
struct Number {
    value: AtomicU64,
    calls: AtomicU64,
}

impl CounterFn for Number {
    fn increment(&self, value: u64) {
        self.value.fetch_add(value, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    fn absolute(&self, _: u64) {
        panic!("absolute values of several servers would overwrite each other");
    }
}

impl GaugeFn for Number {
    fn increment(&self, _: f64) {
        panic!("a recorder installed later would not know the start value");
    }

    fn decrement(&self, _: f64) {
        panic!("a recorder installed later would not know the start value");
    }

    fn set(&self, value: f64) {
        self.value.store(value.to_bits(), Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

/// Keeps the last recorded value only.
impl HistogramFn for Number {
    fn record(&self, value: f64) {
        GaugeFn::set(self, value);
    }
}

impl TestRecorder {
    fn number(&self, key: &Key) -> Arc<Number> {
        let labels: Vec<String> =
            key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let name = format!("{}{{{}}}", key.name(), labels.join(","));
        Arc::clone(self.numbers.lock().unwrap().entry(name).or_default())
    }

    /// Returns a counter's value and the number of its updates.
    fn counter(&self, name: &str) -> (u64, u64) {
        let numbers = self.numbers.lock().unwrap();
        let number = numbers.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", numbers.keys()));
        (number.value.load(Ordering::Relaxed), number.calls.load(Ordering::Relaxed))
    }

    fn gauge(&self, name: &str) -> f64 {
        f64::from_bits(self.counter(name).0)
    }
}

impl Recorder for TestRecorder {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        self.described.lock().unwrap().insert(key.as_str().to_owned(), unit);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        self.described.lock().unwrap().insert(key.as_str().to_owned(), unit);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        self.described.lock().unwrap().insert(key.as_str().to_owned(), unit);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.number(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.number(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.number(key))
    }
}

fn talk(world: &mut World) {
    for _ in 0..50 {
        for client in &mut world.clients {
            let server = client.peers().next().unwrap();
            client.send(server, Message::unreliable(ChannelId(0), "state")).unwrap();
        }
        world.advance(SECOND / 50);
    }
}

// One test for all of it, because the gauge of connections is a sum over the process.
#[test]
fn a_recorder_receives_the_stats_once_per_second() {
    let recorder = TestRecorder::default();
    let mut world = testing::world(3, 1);
    world.set_links(&LinkConfig::default().delay(Delay::Constant(Duration::from_millis(20)))).unwrap();
    // The recorder is installed late. Gauges are correct immediately; counters start with the next publication.
    world.advance(SECOND / 2);
    let before = world.server.control().stats();
    with_local_recorder(&recorder, || {
        for _ in 0..10 {
            talk(&mut world);
        }
        // Junk of one kind, and then silence. The counters of the last pass are published even without another pass.
        for _ in 0..7 {
            assert!(world.inject("192.0.2.7:9".parse().unwrap(), world.server.local_addr(), vec![0; 40]));
        }
        world.advance(2 * SECOND);
    });
    assert_eq!(recorder.gauge("drumfire_connections{worker=0}"), 3.0);
    assert_eq!(recorder.gauge("drumfire_connections{worker=client}"), 3.0);
    let stats = world.server.control().stats();
    let (worker, before) = (&stats.workers[0], &before.workers[0]);
    for (name, now, before) in [
        ("datagrams_received_total", worker.received.datagrams, before.received.datagrams),
        ("received_bytes_total", worker.received.bytes, before.received.bytes),
        ("datagrams_sent_total", worker.sent.datagrams, before.sent.datagrams),
        ("messages_delivered_total", worker.protocol.messages_delivered, before.protocol.messages_delivered),
    ] {
        let (value, calls) = recorder.counter(&format!("drumfire_{name}{{worker=0}}"));
        // The first publication also covers the time since the one before, up to a second before the recorder.
        assert!((now - before..=now).contains(&value), "{name}: {value} of {now}, {before} before");
        assert!((10..=13).contains(&calls), "{name} was updated {calls} times in 12 seconds");
    }
    let junk = DropReason::FixedBits.name();
    let dropped = recorder.counter(&format!("drumfire_datagrams_dropped_total{{worker=0,reason={junk}}}"));
    assert_eq!((dropped.0, stats.dropped(DropReason::FixedBits)), (7, 7));
    for reason in DropReason::ALL {
        recorder.counter(&format!("drumfire_datagrams_dropped_total{{worker=0,reason={}}}", reason.name()));
    }
    let sent: u64 = world.clients.iter().map(|client: &Client| client.stats().sent.datagrams).sum();
    let (of_clients, _) = recorder.counter("drumfire_datagrams_sent_total{worker=client}");
    assert!(of_clients <= sent && of_clients + 30 >= sent, "{of_clients} of {sent}");

    // Three samples a second, over links of 20 ms each way. The smoothed value starts without link delay, and acks are delayed.
    let (seconds, calls) = recorder.counter("drumfire_round_trip_seconds{worker=0}");
    assert!((30..=39).contains(&calls), "{calls} round trips in 12 seconds");
    let seconds = f64::from_bits(seconds);
    assert!((0.035..0.06).contains(&seconds), "{seconds} s");
    assert_eq!(recorder.gauge("drumfire_receive_queue_bytes{worker=0}"), 0.0, "a world has no receive queue");
    let busy = recorder.gauge("drumfire_busy_ratio{worker=0}");
    assert!((0.0..=1.0).contains(&busy), "{busy}");

    // Every metric can be described.
    with_local_recorder(&recorder, describe_metrics);
    let described = recorder.described.lock().unwrap();
    for name in recorder.numbers.lock().unwrap().keys() {
        let (name, _) = name.split_once('{').unwrap();
        assert!(described.contains_key(name), "{name}");
    }
    assert_eq!(described["drumfire_sent_bytes_total"], Some(Unit::Bytes));

    with_local_recorder(&recorder, || drop(world));
    assert_eq!(recorder.gauge("drumfire_connections{worker=0}"), 0.0);
    assert_eq!(recorder.gauge("drumfire_connections{worker=client}"), 0.0);
}

/// A recorder that panics when a counter or a gauge is registered.
struct Broken;

impl Recorder for Broken {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        panic!("a recorder that breaks")
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        panic!("a recorder that breaks")
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn a_recorder_that_panics_costs_no_connection() {
    with_local_recorder(&Broken, || {
        let mut world = World::new(testing::server_config(), 2).unwrap();
        world.join(&ClientConfig::default()).unwrap();
        for _ in 0..3 {
            talk(&mut world);
        }
        let stats = world.server.control().stats();
        assert_eq!((stats.connections(), stats.workers[0].panics), (1, 0));
        assert!(stats.workers[0].protocol.messages_delivered >= 100);
    });
}
