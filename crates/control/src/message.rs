//! The messages of the protocol, as types that serde reads and writes.
//!
//! Unknown fields are skipped, so that a later version can add fields.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use drumfire::control::SurveyOrder;

/// The version of the protocol. Both sides reject other versions.
pub const VERSION: u32 = 1;

/// The maximum length of a request in bytes, without its newline.
pub const REQUEST_BYTES_MAX: usize = 4_096;

/// The maximum length of a response in bytes, without its newline.
pub const RESPONSE_BYTES_MAX: usize = 1_024 * 1_024;

/// The maximum number of connections in a snapshot. Each takes about 250 bytes.
pub const SNAPSHOT_PEERS_MAX: usize = 256;

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The version of the protocol that the sender speaks, which is [`VERSION`].
    pub version: u32,
    /// The command that the server carries out.
    #[serde(flatten)]
    pub command: Command,
}

/// A command of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Command {
    /// Requests a [`Response::Snapshot`].
    Snapshot {
        /// The order in which connections are returned.
        #[serde(with = "order")]
        order: SurveyOrder,
        /// The maximum number of connections, at most [`SNAPSHOT_PEERS_MAX`].
        limit: usize,
    },
    /// Closes the connection of a peer. The response is [`Response::Done`].
    Close {
        /// The id of the peer.
        peer: String,
        /// The text that the peer receives, in one line of at most 128 bytes.
        text: String,
    },
    /// Bans a peer and closes its connection. The response is [`Response::Done`].
    Ban {
        /// The id of the peer.
        peer: String,
        /// The duration of the ban in seconds.
        seconds: u64,
    },
    /// Requests the flight record of a connection. The response is [`Response::Record`].
    Trace {
        /// The id of the peer.
        peer: String,
    },
}

/// A response, with the version of the protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResponseMessage {
    /// The version of the protocol that the sender speaks, which is [`VERSION`].
    pub version: u32,
    /// The response to the request.
    #[serde(flatten)]
    pub response: Response,
}

/// The response to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Response {
    /// The state of the server.
    Snapshot(Snapshot),
    /// The request was carried out.
    Done {
        /// The action, in one line.
        text: String,
    },
    /// The flight record of a connection.
    Record {
        /// The [`FlightRecord`](drumfire::stats::FlightRecord) as text.
        text: String,
    },
    /// The request was not carried out.
    Error {
        /// The reason, in one line.
        text: String,
    },
}

/// The state of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// The kind of program: `server` or `receiver`.
    #[serde(rename = "what")]
    pub program: String,
    /// The time of the snapshot in nanoseconds, by a clock of the server. Divide differences of counters by differences of this time.
    pub taken_at_nanos: u64,
    /// The workers, in the order of their indices.
    pub workers: Vec<WorkerRow>,
    /// The first connections in the requested order.
    pub peers: Vec<PeerRow>,
    /// The number of connections that the workers examined.
    pub peers_examined: u64,
    /// Whether the program has connections. A receiver has none.
    pub has_peers: bool,
}

/// The state of one worker. The counters start when the worker starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerRow {
    /// The number of datagrams received.
    pub received: u64,
    /// The number of datagrams sent.
    pub sent: u64,
    /// The share of a core that the worker uses, in percent, or `None` if it is unknown.
    pub busy_percent: Option<u64>,
    /// The number of connections of the worker, including half-open and closing ones.
    pub connections: u64,
    /// The number of events that the application has not taken.
    pub waiting: u64,
    /// The number of datagrams that the kernel dropped, or `None` if the kernel does not count them.
    pub kernel_dropped: Option<u64>,
    /// The number of datagrams that the worker dropped, by reason. Reasons without drops are left out.
    pub dropped: BTreeMap<String, u64>,
}

/// The state of one connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PeerRow {
    /// The id of the peer, as requests name it.
    pub peer: String,
    /// The address and the port of the peer, such as `192.0.2.1:50123`.
    pub address: String,
    /// The player of the token, or `None` in open access.
    pub player: Option<String>,
    /// The round-trip time in microseconds.
    pub round_trip_micros: u64,
    /// The lost packets per million, of the direction that loses more.
    pub loss_per_million: u64,
    /// The bytes of messages that wait or are not acknowledged.
    pub queued_bytes: u64,
    /// The bytes sent per second, or `None` in the first snapshot.
    pub sent_per_second: Option<u64>,
    /// The bytes received per second, or `None` in the first snapshot.
    pub received_per_second: Option<u64>,
}

/// The names of orders in requests.
mod order {
    use drumfire::control::SurveyOrder;
    use serde::de::{Deserialize as _, Deserializer, Error as _};
    use serde::ser::Serializer;

    pub(super) fn serialize<S: Serializer>(order: &SurveyOrder, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(order.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SurveyOrder, D::Error> {
        let name = String::deserialize(deserializer)?;
        let order = SurveyOrder::ALL.into_iter().find(|order| order.name() == name);
        order.ok_or_else(|| {
            let names = SurveyOrder::ALL.map(SurveyOrder::name).join(", ");
            D::Error::custom(format!("the order `{name}` is not one of {names}"))
        })
    }
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
    fn requests_have_the_documented_form() {
        let request = |command| round_trip(&Request { version: VERSION, command });
        let peer = || "2.17.4711".to_owned();
        assert_eq!(
            request(Command::Snapshot { order: SurveyOrder::RoundTrip, limit: 20 }),
            r#"{"version":1,"command":"snapshot","order":"round_trip","limit":20}"#
        );
        assert_eq!(
            request(Command::Close { peer: peer(), text: "goodbye".into() }),
            r#"{"version":1,"command":"close","peer":"2.17.4711","text":"goodbye"}"#
        );
        assert_eq!(
            request(Command::Ban { peer: peer(), seconds: 600 }),
            r#"{"version":1,"command":"ban","peer":"2.17.4711","seconds":600}"#
        );
        assert_eq!(
            request(Command::Trace { peer: peer() }),
            r#"{"version":1,"command":"trace","peer":"2.17.4711"}"#
        );
    }

    #[test]
    fn the_longest_snapshot_fits_in_an_answer() {
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
        let dropped = drumfire::stats::DropReason::ALL.iter().map(|reason| (reason.name().into(), u64::MAX));
        let worker = WorkerRow { dropped: dropped.collect(), ..WorkerRow::default() };
        let snapshot = Snapshot {
            workers: vec![worker; 256],
            peers: vec![peer; SNAPSHOT_PEERS_MAX],
            ..Snapshot::default()
        };
        let text = round_trip(&ResponseMessage { version: VERSION, response: Response::Snapshot(snapshot) });
        assert!(text.len() <= RESPONSE_BYTES_MAX, "{} bytes", text.len());
    }
}
