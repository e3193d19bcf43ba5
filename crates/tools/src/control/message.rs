//! The messages of the control connection. Fields from the peer are checked against their ranges.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::VERSION;
use crate::choices::{Mode, Suite};
use crate::cli::{Load, Traffic};
use crate::datagram::RouteId;
use crate::error::{Error, printable};
use crate::limits::{MAX_FLOWS, MAX_RATE, MAX_RUN, MAX_SIZE, MAX_THREADS, MIN_RUN, MIN_SIZE};
use crate::report::{Granted, Report};

/// The maximum number of names in one object of counters.
const MAX_COUNTERS: usize = 64;

/// The maximum length of such a name, and of the kernel id.
const MAX_NAME_CHARS: usize = 48;

/// A message of either side.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub(super) enum Message {
    Hello(Hello),
    Welcome(Welcome),
    Refused { reason: String },
    Started,
    Stop,
    Finished(Finished),
    Books(Box<Report>),
}

/// The announcement of a sender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`](super::VERSION) of the sender.
    pub version: u32,
    /// The traffic of the sender. Cores have no meaning to the receiver.
    #[serde(flatten)]
    pub traffic: Traffic,
    /// The id of the running kernel, by which both sides find out whether they share one. Empty if it is not known.
    pub kernel_id: String,
}

/// The receiver accepts the sender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// [`VERSION`](super::VERSION) of the receiver.
    pub version: u32,
    /// The id of each flow, flow 0 first. Every datagram of the flow carries it.
    pub ids: Vec<RouteId>,
    /// The keys, if every flow has to be a connection.
    pub sealed: Option<Sealed>,
}

/// The parameters of the connections of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// The public key of the receiver.
    pub public_key: [u8; 32],
    /// The suite that both ends agree on.
    pub suite: Suite,
    /// The mode of delivery. The flows of some modes keep their endpoint.
    pub mode: Mode,
}

/// The book of the sender, after its last datagram.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// The datagrams of each flow that the kernel accepted, flow 0 first.
    pub sent_per_flow: Vec<u64>,
    /// The sum of `sent_per_flow`.
    pub sent: u64,
    /// Datagrams that were due by the rate, sent or not.
    pub offered: u64,
    /// Datagrams that the kernel refused, by the name of the error.
    pub errors: BTreeMap<String, u64>,
    /// From the first datagram to the last, in nanoseconds.
    pub elapsed_ns: u64,
    /// Processor time of the sending threads, in nanoseconds.
    pub cpu_ns: u64,
    /// Whether the sender fell behind its rate, so that the run measured the sender.
    pub late: bool,
    /// The buffers and offloads that the kernel granted.
    pub granted: Granted,
    /// The book of messages, if flows are endpoints that deliver some.
    pub messages: Option<SentMessages>,
}

/// The sender's book of messages. The receiver's is [`Messages`](crate::report::Messages).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentMessages {
    /// Messages that the endpoint of each flow accepted, flow 0 first.
    pub sent_per_flow: Vec<u64>,
    /// The sum of `sent_per_flow`.
    pub sent: u64,
    /// Messages that were due by the rate, accepted or not.
    pub offered: u64,
    /// Accepted messages that were never put into a packet.
    pub unsent: u64,
    /// Unsent messages that were dropped because memory or time ran out.
    pub given_up: u64,
    /// Messages that were put into a packet again.
    pub resent: u64,
    /// Packets that were declared lost.
    pub packets_lost: u64,
    /// How often an endpoint accepted no message because earlier ones were not acknowledged.
    pub blocked: u64,
    /// Flows with unacknowledged data when the sender stopped waiting.
    pub unsettled: u64,
}

/// The field that every version of `hello` and `welcome` has.
#[derive(Deserialize)]
struct Versioned {
    version: Option<u64>,
}

/// The advice about a peer that sends something else.
const BUILD: &str = "build `sender` and `receiver` from the same source";

/// Reads a message. The version comes first, because another version may have changed the other fields.
pub(super) fn parse(name: &'static str, line: &[u8]) -> Result<Message, Error> {
    let head: Versioned = serde_json::from_slice(line).map_err(|error| malformed(name, error))?;
    match head.version {
        Some(theirs) if theirs != u64::from(VERSION) => Err(Error::run(format!(
            "the other side speaks control version {theirs}, this one version {VERSION}: {BUILD}"
        ))),
        _ => serde_json::from_slice(line).map_err(|error| malformed(name, error)),
    }
}

/// The error about a message that is not as expected.
pub(super) fn malformed(expected: &'static str, problem: impl Display) -> Error {
    // The problem may quote the peer.
    let problem = printable(&problem.to_string());
    Error::run(format!("the other side did not send a valid `{expected}` ({problem}): {BUILD}"))
}

impl Hello {
    pub(super) fn check(&self) -> Result<(), String> {
        let Traffic { threads, load: Load { flows, size, rate, .. }, secs, .. } = self.traffic;
        within("flows", flows, 1..=MAX_FLOWS)?;
        within("threads", threads, 1..=MAX_THREADS)?;
        within("size", size, MIN_SIZE..=MAX_SIZE)?;
        within("rate", rate, 0..=MAX_RATE)?;
        within("secs", secs, MIN_RUN..=MAX_RUN)?;
        within("the length of kernel_id", self.kernel_id.len(), 0..=MAX_NAME_CHARS)
    }
}

impl Welcome {
    pub(super) fn check(&self, flows: u32) -> Result<(), String> {
        one_per_flow("ids", self.ids.len(), flows)
    }
}

impl Finished {
    /// The number of datagrams, and of messages if there are any.
    pub(super) fn counts(&self) -> (u64, Option<u64>) {
        (self.sent, self.messages.as_ref().map(|messages| messages.sent))
    }

    pub(super) fn check(&self, flows: u32) -> Result<(), String> {
        one_per_flow("sent_per_flow", self.sent_per_flow.len(), flows)?;
        check_counters("errors", &self.errors)?;
        check_sum("sent", &self.sent_per_flow, self.sent)?;
        self.messages.as_ref().map_or(Ok(()), |messages| messages.check(flows))
    }
}

impl SentMessages {
    fn check(&self, flows: u32) -> Result<(), String> {
        one_per_flow("messages.sent_per_flow", self.sent_per_flow.len(), flows)?;
        check_sum("messages.sent", &self.sent_per_flow, self.sent)?;
        if self.unsent > self.sent || self.given_up > self.unsent {
            return Err("messages.unsent is more than was sent, or less than was given up".to_owned());
        }
        Ok(())
    }
}

/// Checks the report of a receiver against the number of datagrams and messages that were sent. Reading it has checked its
/// remainders.
pub(super) fn check_report(report: &Report, sent: (u64, Option<u64>)) -> Result<(), String> {
    check_counters("drops", &report.books.drops)?;
    check_counters("foreign", &report.foreign)?;
    let messages = report.messages.as_ref().map(|messages| &messages.books);
    if (report.books.sent, messages.map(|books| books.sent)) != sent {
        return Err("it is about other datagrams or messages than those that were sent".to_owned());
    }
    messages.map_or(Ok(()), |books| check_counters("messages.drops", &books.drops))
}

fn within<T: Copy + PartialOrd + Debug>(
    field: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), String> {
    if range.contains(&value) { Ok(()) } else { Err(format!("{field} is {value:?}, it may be {range:?}")) }
}

fn one_per_flow(field: &str, length: usize, flows: u32) -> Result<(), String> {
    if length == flows as usize {
        return Ok(());
    }
    Err(format!("{field} has {length} entries for {flows} flows"))
}

fn check_sum(field: &str, counts: &[u64], sum: u64) -> Result<(), String> {
    let found = counts.iter().try_fold(0_u64, |sum, count| sum.checked_add(*count));
    if found == Some(sum) { Ok(()) } else { Err(format!("{field} is not the sum of {field}_per_flow")) }
}

fn check_counters(field: &str, counters: &BTreeMap<String, u64>) -> Result<(), String> {
    let is_name = |name: &String| {
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        (1..=MAX_NAME_CHARS).contains(&name.len()) && name.bytes().all(is_letter)
    };
    if counters.len() > MAX_COUNTERS {
        return Err(format!("{field} has more than {MAX_COUNTERS} names"));
    }
    if !counters.keys().all(is_name) {
        return Err(format!("{field} has a name that is not snake_case of at most {MAX_NAME_CHARS} letters"));
    }
    Ok(())
}
