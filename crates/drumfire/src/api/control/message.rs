//! What goes over a control socket, as the types that serde reads and writes.
//!
//! Nothing here knows a socket. Fields that a reader does not know are skipped, so that some can be added.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::observe::survey::SurveyOrder;

/// The version of the messages; ends of different versions refuse each other.
pub const VERSION: u32 = 1;

/// Bytes of the longest request, its newline not counted.
pub const REQUEST_BYTES_MAX: usize = 4_096;

/// Bytes of the longest answer, its newline not counted.
pub const ANSWER_BYTES_MAX: usize = 1_024 * 1_024;

/// Connections in one snapshot, at most: some 250 bytes each.
pub const SNAPSHOT_PEERS_MAX: usize = 256;

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// [`VERSION`].
    pub version: u32,
    /// What for.
    #[serde(flatten)]
    pub ask: Ask,
}

/// What can be asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Ask {
    /// How everything is; answered with [`Answer::Snapshot`].
    Snapshot {
        /// Which connections come first.
        order: SurveyOrder,
        /// How many of them at most; never more than [`SNAPSHOT_PEERS_MAX`].
        most: usize,
    },
    /// To close a peer's connection; answered with [`Answer::Done`].
    Close {
        /// Whose.
        peer: String,
        /// A line for the peer's log.
        text: String,
    },
    /// To ban a peer and close its connection; answered with [`Answer::Done`].
    Ban {
        /// Whom.
        peer: String,
        /// For how long.
        seconds: u64,
    },
    /// What happened last to a peer's connection; answered with [`Answer::Record`].
    Trace {
        /// Whose.
        peer: String,
    },
}

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// [`VERSION`].
    pub version: u32,
    /// The answer itself.
    #[serde(flatten)]
    pub answer: Answer,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// How everything is.
    Snapshot(Snapshot),
    /// It was done, and what.
    Done {
        /// In a few words.
        text: String,
    },
    /// What happened last to a connection.
    Record {
        /// As [`FlightRecord`](crate::stats::FlightRecord) is written as text.
        text: String,
    },
    /// It cannot be done, and why.
    Error {
        /// In one line.
        text: String,
    },
}

/// How everything is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// What is looked at: `server` or `receiver`.
    pub what: String,
    /// The time by a clock of the server's own, in nanoseconds: rates are differences over this.
    pub taken_at_nanos: u64,
    /// By index.
    pub workers: Vec<WorkerRow>,
    /// The first connections in the order asked for.
    pub peers: Vec<PeerRow>,
    /// How many connections were looked at for that.
    pub peers_seen: u64,
    /// Whether connections are told of at all.
    pub has_peers: bool,
}

/// One worker. Counters count from its beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerRow {
    /// Datagrams received.
    pub received: u64,
    /// Datagrams sent.
    pub sent: u64,
    /// How much of a core it takes, in percent; `None` where that is not known.
    pub busy_percent: Option<u64>,
    /// Connections it has.
    pub connections: u64,
    /// What waits behind it: events that the application did not take.
    pub waiting: u64,
    /// Datagrams that the kernel dropped in front of its socket; `None` where it keeps no count.
    pub kernel_dropped: Option<u64>,
    /// Datagrams that it dropped itself, by name; those that are zero are left out.
    pub dropped: BTreeMap<String, u64>,
}

/// One connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PeerRow {
    /// Its name, for requests.
    pub peer: String,
    /// Where it is.
    pub address: String,
    /// Who it is, where players come by token.
    pub player: Option<String>,
    /// The round trip.
    pub round_trip_micros: u64,
    /// Lost packets in a million, of the way that loses more.
    pub loss_per_million: u64,
    /// Bytes that wait for it or were not acknowledged.
    pub queued_bytes: u64,
    /// Bytes sent per second; `None` before there are two looks.
    pub sent_per_second: Option<u64>,
    /// Bytes received per second, likewise.
    pub received_per_second: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<T: Serialize + for<'a> Deserialize<'a> + PartialEq + std::fmt::Debug>(value: &T) -> String {
        let text = serde_json::to_string(value).unwrap();
        assert_eq!(serde_json::from_str::<T>(&text).unwrap(), *value);
        text
    }

    #[test]
    fn requests_look_as_they_are_documented() {
        let request = |ask| round_trip(&Request { version: VERSION, ask });
        let peer = || "2.17.4711".to_owned();
        assert_eq!(
            request(Ask::Snapshot { order: SurveyOrder::RoundTrip, most: 20 }),
            r#"{"version":1,"ask":"snapshot","order":"round_trip","most":20}"#
        );
        assert_eq!(
            request(Ask::Close { peer: peer(), text: "goodbye".into() }),
            r#"{"version":1,"ask":"close","peer":"2.17.4711","text":"goodbye"}"#
        );
        assert_eq!(
            request(Ask::Ban { peer: peer(), seconds: 600 }),
            r#"{"version":1,"ask":"ban","peer":"2.17.4711","seconds":600}"#
        );
        assert_eq!(request(Ask::Trace { peer: peer() }), r#"{"version":1,"ask":"trace","peer":"2.17.4711"}"#);
    }

    #[test]
    fn the_longest_snapshot_fits_a_line() {
        let peer = PeerRow {
            peer: format!("65535.65535.{:x}", u64::MAX),
            address: "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%4294967295]:65535".into(),
            player: Some(u128::MAX.to_string()),
            round_trip_micros: u64::MAX,
            loss_per_million: u64::MAX,
            queued_bytes: u64::MAX,
            sent_per_second: Some(u64::MAX),
            received_per_second: Some(u64::MAX),
        };
        let dropped = drumfire_proto::DropReason::ALL.iter().map(|reason| (reason.name().into(), u64::MAX));
        let worker = WorkerRow { dropped: dropped.collect(), ..WorkerRow::default() };
        let snapshot = Snapshot {
            workers: vec![worker; 256],
            peers: vec![peer; SNAPSHOT_PEERS_MAX],
            ..Snapshot::default()
        };
        let text = round_trip(&Reply { version: VERSION, answer: Answer::Snapshot(snapshot) });
        assert!(text.len() <= ANSWER_BYTES_MAX, "{} bytes", text.len());
    }
}
