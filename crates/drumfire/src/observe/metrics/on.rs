//! The metrics of one worker.
//!
//! Keys are allocated when the worker is created; this module allocates nothing later. Handles are not cached, so that a recorder
//! can be installed at any time.

use std::sync::atomic::{AtomicI64, Ordering};

use drumfire_proto::{DropReason, Endpoint, Placement};
use drumfire_socket::DropReason as SocketDropReason;
use metrics::{Key, KeyName, Label, Level, Metadata, Recorder, Unit, with_recorder};

use crate::observe::stats::WorkerStats;

/// The largest number of workers of a server.
const WORKERS_MAX: usize = 1_024;

/// The label of every metric: the index of a server's worker, or [`CLIENT`].
const WORKER: &str = "worker";
/// The value of the label [`WORKER`] for all clients.
const CLIENT: &str = "client";

const DATAGRAMS_DROPPED: &str = "drumfire_datagrams_dropped_total";
const DATAGRAMS_UNUSABLE: &str = "drumfire_datagrams_unusable_total";
const BY_REASON: [(&str, &str); 2] = [
    (DATAGRAMS_DROPPED, "Datagrams that the protocol dropped, by reason"),
    (DATAGRAMS_UNUSABLE, "Datagrams that could not be read whole, by reason"),
];
const ROUND_TRIPS: &str = "drumfire_round_trip_seconds";
const ROUND_TRIPS_DESCRIPTION: &str = "Smoothed round trips of up to 64 connections in turn";

/// The largest number of connection slots sampled per publication, in turn. It bounds the cost on a worker with many players.
const ROUND_TRIPS_PER_SAMPLE: u32 = 64;

static METADATA: Metadata<'static> = Metadata::new("drumfire", Level::INFO, Some("drumfire"));

/// The sums of one gauge over all servers of the process, by worker index. The last entry is the sum over all clients.
///
/// Several workers share one key, and a gauge is set to an absolute value. So each worker must know the sum.
type Sums = [AtomicI64; WORKERS_MAX + 1];
static SUMS: [Sums; GAUGES.len()] = [const { [const { AtomicI64::new(0) }; WORKERS_MAX + 1] }; GAUGES.len()];

/// A counter that shows one number of [`WorkerStats`].
struct Counter {
    name: &'static str,
    unit: Unit,
    description: &'static str,
    value: fn(&WorkerStats) -> u64,
}

/// Returns the counter of a field of [`WorkerStats`] or of its `protocol`, with the name of the field.
macro_rules! count {
    (protocol.$field:ident, $description:literal) => {
        count(name!($field), $description, |stats| stats.protocol.$field)
    };
    ($field:ident, $description:literal) => {
        count(name!($field), $description, |stats| stats.$field)
    };
}

/// Returns the name of the counter of a field.
macro_rules! name {
    ($field:ident) => {
        concat!("drumfire_", stringify!($field), "_total")
    };
}

/// All counters except those by reason.
const COUNTERS: [Counter; 34] = [
    count("drumfire_datagrams_received_total", "Datagrams read from the socket", |s| s.received.datagrams),
    bytes("drumfire_received_bytes_total", "Bytes of UDP payload read", |s| s.received.bytes),
    count(
        "drumfire_datagrams_kernel_dropped_total",
        "Datagrams that the kernel dropped: receive buffer full",
        |s| s.kernel_dropped,
    ),
    count("drumfire_datagrams_sent_total", "Datagrams that the kernel accepted", |s| s.sent.datagrams),
    bytes("drumfire_sent_bytes_total", "Bytes of UDP payload that the kernel accepted", |s| s.sent.bytes),
    count!(protocol.packets_received, "Packets opened and delivered"),
    count!(protocol.packets_lost, "Packets declared lost"),
    count!(protocol.ack_only_packets_sent, "Packets that contain only an ack"),
    count!(protocol.probes_sent, "Probes sent because no ack arrived in time"),
    count!(protocol.messages_delivered, "Messages received"),
    count!(protocol.messages_sent, "Messages put into packets"),
    count!(protocol.messages_resent, "Messages put into packets again"),
    count!(protocol.messages_dropped, "Messages dropped unsent: memory full"),
    count!(protocol.messages_expired, "Messages whose lifetime ended"),
    count!(protocol.messages_skipped, "Messages that their sender gave up"),
    count!(messages_undelivered, "Messages whose connection had ended"),
    count!(broadcasts_undelivered, "Broadcasts to members whose connection was closing or had ended"),
    count!(notices_dropped, "Missed and skipped notices dropped: inbox full"),
    count!(protocol.unreliable_overflows, "Unreliable messages dropped on arrival: memory full"),
    count!(protocol.connections_opened, "Connections that began"),
    count!(protocol.connections_closed, "Connections that ended"),
    count!(connections_unaccepted, "Connections that ended before they were accepted"),
    count("drumfire_handshakes_total", "Key agreements computed", |s| s.protocol.handshakes_computed),
    count!(protocol.key_changes, "Key changes that began"),
    count!(protocol.path_migrations, "Migrations to another address"),
    count!(protocol.resets_sent, "Resets sent for unknown connections"),
    count!(protocol.flight_records_dropped, "Flight records dropped beyond the limit"),
    count("drumfire_datagrams_forwarded_total", "Datagrams forwarded to another worker", |s| {
        s.protocol.forwarded
    }),
    count!(forward_queue_full, "Passes with a full queue to another worker"),
    count!(event_queue_full, "Passes with a full queue of events"),
    count!(panics, "Panics that were caught"),
    count!(restarts, "Restarts of the worker"),
    count!(wait_faults, "Waits that failed"),
    count!(sockets_reopened, "Sockets that continued with another descriptor"),
];

const fn count(name: &'static str, description: &'static str, value: fn(&WorkerStats) -> u64) -> Counter {
    Counter { name, unit: Unit::Count, description, value }
}

const fn bytes(name: &'static str, description: &'static str, value: fn(&WorkerStats) -> u64) -> Counter {
    Counter { name, unit: Unit::Bytes, description, value }
}

/// A gauge. Its value is the sum over all workers with the same label.
struct Gauge {
    name: &'static str,
    unit: Option<Unit>,
    description: &'static str,
    /// The divisor from the integer sum to the unit of the gauge.
    scale: f64,
    /// Returns one worker's part of the sum, from its counters and its busy time in percent.
    value: fn(&WorkerStats, u8) -> i64,
}

const GAUGES: [Gauge; 4] = [
    Gauge {
        name: "drumfire_connections",
        unit: Some(Unit::Count),
        description: "Connections, including half-open and closing ones",
        scale: 1.0,
        value: |stats, _| i64::try_from(stats.connections).unwrap_or(i64::MAX),
    },
    Gauge {
        name: "drumfire_message_memory_bytes",
        unit: Some(Unit::Bytes),
        description: "Bytes of messages that connections hold, in both directions",
        scale: 1.0,
        value: |stats, _| i64::try_from(stats.message_memory_bytes).unwrap_or(i64::MAX),
    },
    Gauge {
        name: "drumfire_receive_queue_bytes",
        unit: Some(Unit::Bytes),
        description: "Kernel memory of datagrams that waited in the socket after a pass",
        scale: 1.0,
        value: |stats, _| i64::from(stats.receive_queue_bytes),
    },
    Gauge {
        name: "drumfire_busy_ratio",
        unit: None,
        description: "Share of the last second in passes with work, 0 to 1",
        scale: 100.0,
        value: |_, busy_percent| i64::from(busy_percent),
    },
];

/// One worker's metrics.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// The counters in the order of [`COUNTERS`], then by drop reason of the protocol, then by drop reason of the socket.
    counters: Box<[(Key, u64)]>,
    /// The gauges in the order of [`GAUGES`], each with this worker's part of the sum.
    gauges: [(Key, i64); GAUGES.len()],
    round_trips: Key,
    /// The slot of the next connection whose round trip is sampled.
    next_slot: u32,
    /// The index of this worker's label in each of [`SUMS`].
    label_index: usize,
}

impl Metrics {
    /// Returns the metrics of a server's worker with this index, or of a client for `None`.
    pub(crate) fn new(worker: Option<u16>) -> Self {
        let label = match worker {
            Some(index) => Label::new(WORKER, index.to_string()),
            None => Label::from_static_parts(WORKER, CLIENT),
        };
        let key = |name| Key::from_parts(name, vec![label.clone()]);
        let by_reason = |name, reason| {
            Key::from_parts(name, vec![label.clone(), Label::from_static_parts("reason", reason)])
        };
        let plain = COUNTERS.iter().map(|counter| key(counter.name));
        let dropped = DropReason::ALL.into_iter().map(|reason| by_reason(DATAGRAMS_DROPPED, reason.name()));
        let unusable =
            SocketDropReason::ALL.into_iter().map(|reason| by_reason(DATAGRAMS_UNUSABLE, reason.name()));
        let keys = plain.chain(dropped).chain(unusable);
        Self {
            counters: keys.map(|key| (key, 0)).collect(),
            gauges: GAUGES.map(|gauge| (key(gauge.name), 0)),
            round_trips: key(ROUND_TRIPS),
            next_slot: 0,
            label_index: worker.map_or(WORKERS_MAX, usize::from),
        }
    }

    /// Publishes the metrics.
    pub(crate) fn publish<P: Placement>(
        &mut self,
        stats: &WorkerStats,
        endpoint: &Endpoint<P>,
        busy_percent: u8,
    ) {
        with_recorder(|recorder| {
            self.count(recorder, stats);
            self.set_gauges(recorder, |gauge| (gauge.value)(stats, busy_percent));
            self.sample(recorder, endpoint);
        });
    }

    /// Publishes the counters for the last time, and removes this worker's part from the gauges.
    pub(crate) fn finish(&mut self, stats: &WorkerStats) {
        with_recorder(|recorder| {
            self.count(recorder, stats);
            self.set_gauges(recorder, |_| 0);
        });
    }

    fn count(&mut self, recorder: &dyn Recorder, stats: &WorkerStats) {
        let plain = COUNTERS.iter().map(|counter| (counter.value)(stats));
        let dropped = DropReason::ALL.into_iter().map(|reason| stats.protocol.dropped(reason));
        let unusable = SocketDropReason::ALL.into_iter().map(|reason| stats.received.dropped(reason));
        for ((key, published), value) in self.counters.iter_mut().zip(plain.chain(dropped).chain(unusable)) {
            // A restarted worker counts from 0 again.
            let increase = value.checked_sub(*published).unwrap_or(value);
            *published = value;
            recorder.register_counter(key, &METADATA).increment(increase);
        }
    }

    fn set_gauges(&mut self, recorder: &dyn Recorder, value: impl Fn(&Gauge) -> i64) {
        for ((gauge, sums), (key, part)) in GAUGES.iter().zip(&SUMS).zip(&mut self.gauges) {
            let new = value(gauge);
            let increase = new - std::mem::replace(part, new);
            if let Some(sum) = sums.get(self.label_index) {
                let sum = sum.fetch_add(increase, Ordering::Relaxed) + increase;
                // The conversion is exact below 2^53.
                recorder.register_gauge(key, &METADATA).set(sum as f64 / gauge.scale);
            }
        }
    }

    /// Records the round trips of the next connections in turn. Free slots record nothing.
    fn sample<P: Placement>(&mut self, recorder: &dyn Recorder, endpoint: &Endpoint<P>) {
        let slots = endpoint.slot_count();
        let histogram = recorder.register_histogram(&self.round_trips, &METADATA);
        for _ in 0..slots.min(ROUND_TRIPS_PER_SAMPLE) {
            if self.next_slot >= slots {
                self.next_slot = 0;
            }
            if let Some(round_trip) = endpoint.round_trip_of_slot(self.next_slot) {
                histogram.record(round_trip);
            }
            self.next_slot += 1;
        }
    }
}

/// Registers the description and the unit of every metric with the current recorder.
pub(super) fn describe() {
    with_recorder(|recorder| {
        for Counter { name, unit, description, .. } in COUNTERS {
            recorder.describe_counter(KeyName::from_const_str(name), Some(unit), description.into());
        }
        for (name, description) in BY_REASON {
            recorder.describe_counter(KeyName::from_const_str(name), Some(Unit::Count), description.into());
        }
        for Gauge { name, unit, description, .. } in GAUGES {
            recorder.describe_gauge(KeyName::from_const_str(name), unit, description.into());
        }
        let name = KeyName::from_const_str(ROUND_TRIPS);
        recorder.describe_histogram(name, Some(Unit::Seconds), ROUND_TRIPS_DESCRIPTION.into());
    });
}

#[cfg(test)]
mod tests;
