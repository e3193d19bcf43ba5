//! The messages of the control connection and the ranges of their fields.
//!
//! A field that only this side fills in is not checked here; a field that comes from the peer always is.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;

use drumfire::{KeyTextError, ServerPublicKey};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::messages::SentMessages;
use crate::choices::{Mode, SendMode, Stage, Steer, Suite};
use crate::datagram::RouteId;
use crate::limits::{MAX_FLOWS, MAX_RATE, MAX_RUN, MAX_SIZE, MAX_THREADS, MIN_RUN, MIN_SIZE};
use crate::report::{Messages, Scope};

/// The most names in one object of counters from the peer.
const MAX_COUNTERS: usize = 64;

/// The most characters of one such name.
const MAX_NAME_CHARS: usize = 48;

/// What the sender says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub(super) enum FromSender {
    Hello(Hello),
    Started,
    Finished(Finished),
}

/// What the receiver says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub(super) enum FromReceiver {
    Welcome(Welcome),
    Refused { reason: String },
    Stop,
    Books(Books),
}

/// The part of `hello` and `welcome` that every version has.
#[derive(Debug, Deserialize)]
pub(super) struct Versioned {
    pub(super) version: Option<u64>,
}

/// What the sender is about to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`](super::VERSION) of the sender.
    pub version: u32,
    /// Flows, each with its own socket; 1 to [`MAX_FLOWS`].
    pub flows: u32,
    /// Threads that send; 1 to [`MAX_THREADS`].
    pub threads: u32,
    /// Length of every datagram in bytes; [`MIN_SIZE`] to [`MAX_SIZE`].
    pub size: u32,
    /// Packets per second in all, 0 for as many as possible; at most [`MAX_RATE`].
    pub rate: u64,
    /// How datagrams are handed to the kernel.
    pub send: SendMode,
    /// How long it sends, in seconds.
    pub secs: f64,
    /// Names the running kernel, so that both sides know whether they share one; empty = not known.
    pub kernel_id: String,
}

/// The receiver takes the sender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// [`VERSION`](super::VERSION) of the receiver.
    pub version: u32,
    /// A number that names the run in both reports.
    pub session: u64,
    /// The id of each flow, flow 0 first; every datagram of the flow carries it.
    pub ids: Vec<RouteId>,
    /// How far the receiver takes each datagram; with `raw` nothing is told apart by flow.
    pub stage: Stage,
    /// Set where every flow has to be a connection.
    pub sealed: Option<Sealed>,
    /// How datagrams find their thread.
    pub steer: Steer,
    /// Threads that receive; 1 to [`MAX_THREADS`].
    pub threads: u32,
}

/// What a sender needs to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// The receiver's public key.
    pub public_key: PublicKey,
    /// The suite that both ends agree to.
    pub suite: Suite,
    /// What is delivered, and so whether a flow keeps its endpoint.
    pub mode: Mode,
}

/// A public key, in its text form 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct PublicKey(ServerPublicKey);

impl PublicKey {
    /// Its bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 32] {
        self.0.to_bytes()
    }
}

impl From<[u8; 32]> for PublicKey {
    fn from(bytes: [u8; 32]) -> Self {
        Self(ServerPublicKey::from_bytes(bytes))
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        key.0.to_string()
    }
}

impl TryFrom<String> for PublicKey {
    type Error = KeyTextError;

    fn try_from(text: String) -> Result<Self, KeyTextError> {
        text.parse().map(Self)
    }
}

/// The sender's book, after its last datagram.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// Datagrams that the kernel took, of each flow, flow 0 first.
    pub sent_per_flow: Vec<u64>,
    /// Datagrams that the kernel took in all: the sum of the above.
    pub sent: u64,
    /// Their bytes, headers below UDP not counted.
    pub sent_bytes: u64,
    /// Datagrams that were due by the rate, sent or not.
    pub offered: u64,
    /// Datagrams that the kernel refused, by the name of the error.
    pub errors: BTreeMap<String, u64>,
    /// From the first datagram to the last, in nanoseconds.
    pub elapsed_ns: u64,
    /// Processor time of the sending threads, in nanoseconds.
    pub cpu_ns: u64,
    /// Whether it fell behind its rate: what was measured is then the sender.
    pub late: bool,
    /// What the kernel granted: buffers, offloads.
    pub granted: Map<String, Value>,
    /// Set where flows are endpoints that deliver messages; datagrams are then what became of those.
    pub messages: Option<SentMessages>,
}

/// The receiver's book, and what is left when it is laid beside the sender's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Books {
    /// Datagrams of this run that were taken; each once where the stage tells duplicates apart.
    pub received: u64,
    /// Datagrams of this run that were lost for a known reason, by name, the kernel's drops among them.
    pub drops: BTreeMap<String, u64>,
    /// Datagrams that were never part of this run, by name: somebody else's, or of an earlier run. In no sum.
    pub strays: BTreeMap<String, u64>,
    /// `sent` minus `received` minus all `drops`. Between two hosts this is `wire_or_nic`.
    pub unexplained: i64,
    /// Datagrams that came twice; 0 where the stage does not tell.
    pub duplicated: u64,
    /// Datagrams that came behind a later one of their flow; 0 where the stage does not tell.
    pub reordered: u64,
    /// From the first datagram to the last, in seconds.
    pub window_s: f64,
    /// Whether both sides run on one kernel, so that nothing may be left over.
    pub scope: Scope,
    /// What became of the messages, where there are any.
    pub messages: Option<Messages>,
}

impl Hello {
    /// Checks every range.
    ///
    /// # Errors
    ///
    /// The field and its range, in one line.
    pub fn check(&self) -> Result<(), String> {
        within("flows", self.flows, 1, MAX_FLOWS)?;
        within("threads", self.threads, 1, MAX_THREADS)?;
        within("size", self.size, MIN_SIZE, MAX_SIZE)?;
        within("rate", self.rate, 0, MAX_RATE)?;
        if self.kernel_id.len() > MAX_NAME_CHARS {
            return Err("kernel_id is too long".to_owned());
        }
        // Written so that a NaN is refused too.
        let is_a_run = self.secs >= MIN_RUN.as_secs_f64() && self.secs <= MAX_RUN.as_secs_f64();
        if is_a_run { Ok(()) } else { Err("secs is out of range".to_owned()) }
    }
}

impl Welcome {
    pub(super) fn check(&self, flows: u32) -> Result<(), String> {
        within("threads", self.threads, 1, MAX_THREADS)?;
        as_many_as_flows("ids", self.ids.len(), flows)
    }
}

impl Finished {
    pub(super) fn check(&self, flows: u32) -> Result<(), String> {
        as_many_as_flows("sent_per_flow", self.sent_per_flow.len(), flows)?;
        check_counters("errors", &self.errors)?;
        if total(self.sent_per_flow.iter()) != Some(self.sent) {
            return Err("sent is not the sum of sent_per_flow".to_owned());
        }
        self.messages.as_ref().map_or(Ok(()), |messages| messages.check(flows))
    }
}

impl Books {
    /// Lays the two books beside each other: fills in `unexplained` from what was sent.
    ///
    /// The difference is held at the ends of `i64`, which no real run reaches.
    #[must_use]
    pub fn settle(mut self, sent: u64) -> Self {
        self.unexplained = remainder(sent, self.received, &self.drops);
        self
    }

    /// Whether every datagram sent is accounted for by name.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.unexplained == 0
    }

    pub(super) fn check(&self, sent: u64) -> Result<(), String> {
        check_counters("drops", &self.drops)?;
        check_counters("strays", &self.strays)?;
        if !(self.window_s >= 0.0 && self.window_s.is_finite()) {
            return Err("window_s is out of range".to_owned());
        }
        if self.unexplained != remainder(sent, self.received, &self.drops) {
            return Err("sent is not received + drops + unexplained".to_owned());
        }
        self.messages
            .as_ref()
            .map_or(Ok(()), |messages| check_counters("messages.drops", &messages.books.drops))
    }

    /// Whether these are books of as many messages as were sent, or of none where none were.
    pub(super) fn check_messages(&self, sent: Option<&SentMessages>) -> Result<(), String> {
        let booked = self.messages.as_ref().map(|messages| messages.books.sent);
        if booked == sent.map(|messages| messages.sent) {
            return Ok(());
        }
        Err("messages are not those that were sent".to_owned())
    }
}

fn remainder(sent: u64, received: u64, drops: &BTreeMap<String, u64>) -> i64 {
    let known =
        drops.values().fold(i128::from(received), |sum, count| sum.saturating_add(i128::from(*count)));
    let left = i128::from(sent).saturating_sub(known);
    i64::try_from(left).unwrap_or(if left < 0 { i64::MIN } else { i64::MAX })
}

pub(super) fn total<'a>(mut counts: impl Iterator<Item = &'a u64>) -> Option<u64> {
    counts.try_fold(0_u64, |sum, count| sum.checked_add(*count))
}

fn within<T: Copy + PartialOrd + std::fmt::Display>(
    field: &str,
    value: T,
    low: T,
    high: T,
) -> Result<(), String> {
    if value < low || value > high {
        return Err(format!("{field} is {value}, it may be {low} to {high}"));
    }
    Ok(())
}

pub(super) fn as_many_as_flows(field: &str, length: usize, flows: u32) -> Result<(), String> {
    if length == flows as usize {
        return Ok(());
    }
    Err(format!("{field} has {length} entries for {flows} flows"))
}

fn check_counters(field: &str, counters: &BTreeMap<String, u64>) -> Result<(), String> {
    if counters.len() > MAX_COUNTERS {
        return Err(format!("{field} has more than {MAX_COUNTERS} names"));
    }
    if counters.keys().any(|name| !is_name(name)) {
        return Err(format!("{field} has a name that is not snake_case of at most {MAX_NAME_CHARS} letters"));
    }
    Ok(())
}

fn is_name(text: &str) -> bool {
    (1..=MAX_NAME_CHARS).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}
