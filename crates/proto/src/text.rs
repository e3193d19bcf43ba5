//! Serialization of counters and measurements for any format of serde. They are written, never read.
//!
//! Every field has its own name. Durations are in seconds. Counts by name omit zeros.

use std::time::Duration;

use serde::ser::{Serialize, SerializeMap, SerializeStruct, Serializer};

use crate::meter::ClockOffset;
use crate::peer_stats::PeerStats;
use crate::stats::{DropCounts, DropReason, Stats};

/// Writes fields under their own names. All of a struct's fields must be named, so that none is forgotten.
macro_rules! serialize_fields {
    ($serializer:expr, $self:expr, { $($plain:ident),* $(,)? }, { $($named:ident: $form:expr),* $(,)? }) => {{
        let Self { $($plain,)* $($named,)* } = $self;
        let count = [$(stringify!($plain),)* $(stringify!($named),)*].len();
        let mut fields = $serializer.serialize_struct("Stats", count)?;
        $(fields.serialize_field(stringify!($plain), $plain)?;)*
        $(fields.serialize_field(stringify!($named), &$form($named))?;)*
        fields.end()
    }};
}

impl Serialize for Stats {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_fields!(
            serializer,
            self,
            {
                datagrams_received,
                packets_received,
                handshakes_received,
                forwarded,
                datagrams_sent,
                bytes_sent,
                ack_only_packets_sent,
                probes_sent,
                messages_resent,
                messages_sent,
                messages_dropped,
                fragments_sent,
                messages_delivered,
                unreliable_overflows,
                messages_skipped,
                redundant_copies_sent,
                messages_expired,
                sequenced_late,
                packets_lost,
                key_changes,
                handshakes_computed,
                hello_bytes,
                retry_bytes,
                refuse_bytes,
                resets_sent,
                path_migrations,
                welcome_bytes,
                connections_opened,
                connections_closed,
                flight_records_dropped,
            },
            { dropped: DropCountsByReason }
        )
    }
}

/// Counts by the name of their reason.
struct DropCountsByReason<'a>(&'a DropCounts);

impl Serialize for DropCountsByReason<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (reason, count) in DropReason::ALL.iter().zip(&self.0.0).filter(|(_, count)| **count > 0) {
            map.serialize_entry(reason.name(), count)?;
        }
        map.end()
    }
}

impl Serialize for PeerStats {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_fields!(
            serializer,
            self,
            {
                clock_offset,
                packets_sent,
                packets_lost,
                packets_received,
                packets_missing,
                bytes_sent,
                bytes_received,
                messages_sent,
                messages_resent,
                window_bytes,
                in_flight_bytes,
                bandwidth_estimate,
                datagram_max_bytes,
                send_memory_bytes,
            },
            {
                taken_at: |at: &crate::time::Moment| seconds(Duration::from_nanos(at.as_nanos())),
                round_trip: |trip: &Duration| seconds(*trip),
                jitter: |jitter: &Duration| seconds(*jitter),
                round_trip_min: |trip: &Option<Duration>| trip.map(seconds),
                round_trip_percentiles: |trips: &Option<[Duration; 3]>| trips.map(|trips| trips.map(seconds)),
                queue_times: QueueTimes,
            }
        )
    }
}

/// Times by channel number.
struct QueueTimes<'a>(&'a Vec<(drumfire_wire::ChannelId, Duration)>);

impl Serialize for QueueTimes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(channel, time)| (channel.0, seconds(*time))))
    }
}

impl Serialize for ClockOffset {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_fields!(serializer, self, { nanos }, { error: |error: &Duration| seconds(*error) })
    }
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_written_by_name_without_zero_drops() {
        let mut stats = Stats { datagrams_received: 5, packets_received: 3, ..Stats::default() };
        stats.on_drop(DropReason::Forged);
        stats.on_drop(DropReason::Forged);
        let written = serde_json::to_value(stats).unwrap();
        assert_eq!(written["datagrams_received"], 5);
        assert_eq!(written["packets_received"], 3);
        assert_eq!(written["dropped"], serde_json::json!({ "forged": 2 }));
        assert_eq!(written["resets_sent"], 0);
    }

    #[test]
    fn times_are_seconds_and_channels_are_numbers() {
        let stats = PeerStats {
            taken_at: crate::time::Moment::from_nanos(1_500_000_000),
            clock_offset: Some(ClockOffset { nanos: -3, error: Duration::from_millis(2) }),
            round_trip: Duration::from_millis(250),
            jitter: Duration::ZERO,
            round_trip_min: None,
            round_trip_percentiles: Some([1, 2, 3].map(Duration::from_secs)),
            packets_sent: 7,
            packets_lost: 0,
            packets_received: 0,
            packets_missing: 0,
            bytes_sent: 0,
            bytes_received: 0,
            messages_sent: 0,
            messages_resent: 0,
            window_bytes: 0,
            in_flight_bytes: 0,
            bandwidth_estimate: None,
            datagram_max_bytes: 1_200,
            send_memory_bytes: 0,
            queue_times: vec![(drumfire_wire::ChannelId(9), Duration::from_millis(500))],
        };
        let written = serde_json::to_value(&stats).unwrap();
        assert_eq!(written["taken_at"], 1.5);
        assert_eq!(written["clock_offset"], serde_json::json!({ "nanos": -3, "error": 0.002 }));
        assert_eq!(written["round_trip"], 0.25);
        assert_eq!(written["round_trip_min"], serde_json::Value::Null);
        assert_eq!(written["round_trip_percentiles"], serde_json::json!([1.0, 2.0, 3.0]));
        assert_eq!(written["queue_times"], serde_json::json!({ "9": 0.5 }));
        assert_eq!((&written["packets_sent"], &written["datagram_max_bytes"]), (&7.into(), &1_200.into()));
    }
}
