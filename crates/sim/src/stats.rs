//! The counts of a scenario: its totals for the ledger, and the number of events of each kind. A run does not check
//! them. A test checks that each kind of event happens in some scenario, because scenarios without it prove nothing
//! about it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::AddAssign;

use drumfire::conditioner::LinkCounts;
use drumfire::testing::{Fault, World};

use crate::checks::ReplacedClientCounts;
use crate::workers::{HAS_PANIC_POINT, RECEIVE_FAULTS, SEND_FAULTS};

/// The kinds of events that must happen in scenarios with several workers, apart from failed calls, in the order of the report.
const KINDS: [&str; 20] = [
    "wakes",
    "forwards",
    "overflow drops",
    "empty or overlong",
    "trains",
    "trains of several ids",
    "partial sends",
    "failed waits",
    "panics in passes",
    "restarts",
    "stalls",
    "drains",
    "ticks without a poll",
    "refused for want of room",
    "dropped as the oldest",
    "dropped as the newest",
    "closed for want of room",
    "sent to groups",
    "missed for want of room",
    "jumps by a year",
];

/// The injected faults by their names in the ledger: five of links, and those of ends, applications, and addresses. Delays and
/// reordering are not counted.
const FAULTS: [&str; 6] = [
    "lost_faults",
    "duplicated_faults",
    "corrupted_faults",
    "queue_full_faults",
    "too_large_faults",
    Counts::OTHER_FAULTS,
];

/// The number of events of each kind in one or more scenarios, by its name in the report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<Cow<'static, str>, u64>);

impl Counts {
    /// The number of clients that connected.
    pub const CONNECTED: &str = "connected";
    /// The number of clients whose handshake failed.
    pub const FAILED: &str = "failed";
    /// The number of connections that had ended by the end of the run, as expected.
    pub const CLOSED: &str = "closed";
    /// The number of messages that were accepted for sending.
    pub const SENT: &str = "sent";
    /// The number of messages that were delivered.
    pub const DELIVERED: &str = "delivered";
    /// The number of changes of clients' addresses.
    pub const REBOUND: &str = "rebound";
    /// The number of connections with a hostile end.
    pub const HOSTILE: &str = "hostile ends";
    /// The time that clients were connected, in milliseconds, summed over all clients.
    pub const CLIENT_MS: &str = "client milliseconds";
    /// The number of datagrams that ends sent.
    pub const PACKETS: &str = "packets";
    /// The number of attempts to connect.
    pub const HANDSHAKES: &str = "handshakes";
    /// The number of datagrams of attackers, which hold no keys.
    pub const ATTACKS: &str = "hostile";
    /// The number of sealed packets whose key and number were compared with all others of their world. 0 without the audit.
    pub const AUDITED: &str = "audited";
    /// The number of rebinds, outages, wrong clocks, stalls, clients that vanish, and hostile ends.
    pub(crate) const OTHER_FAULTS: &str = "other_faults";
    /// The number of times at which a worker did not know of datagrams in its socket. A run with one fails.
    pub const STRANDED: &str = "stranded";
    /// The number of panics in the code of connections.
    pub(crate) const CONNECTION_PANICS: &str = "panics of connections";

    /// Adds to the count of a kind.
    pub(crate) fn add(&mut self, kind: impl Into<Cow<'static, str>>, count: u64) {
        *self.0.entry(kind.into()).or_default() += count;
    }

    /// Adds what was sent, and what links did to it.
    pub(crate) fn add_traffic(&mut self, world: &World, replaced: &[ReplacedClientCounts]) {
        let workers = &world.server.control().stats().workers;
        self.add(Self::PACKETS, workers.iter().map(|worker| worker.sent.datagrams).sum());
        self.add(Self::PACKETS, replaced.iter().map(|replaced| replaced.sent).sum());
        for (at, client) in world.clients.iter().enumerate() {
            self.add(Self::PACKETS, client.stats().sent.datagrams);
            for (link, _) in world.link_counts(at) {
                let LinkCounts { lost, duplicated, corrupted, queue_full, too_large, .. } = link;
                let counts = [lost, duplicated, corrupted, queue_full, too_large];
                FAULTS.into_iter().zip(counts).for_each(|(fault, count)| self.add(fault, count));
            }
        }
    }

    /// Returns the number of events of this kind.
    #[must_use]
    pub fn of(&self, kind: &str) -> u64 {
        self.0.get(kind).copied().unwrap_or(0)
    }

    /// Returns the injected faults, by their names in the ledger.
    #[must_use]
    pub fn faults(&self) -> [(&'static str, u64); 6] {
        FAULTS.map(|fault| (fault, self.of(fault)))
    }

    /// Returns every kind of event that must happen in scenarios with several workers, by name, and its number of events.
    #[must_use]
    pub fn kinds(&self) -> Vec<(String, u64)> {
        let send_faults = [SEND_FAULTS.as_slice(), &[Fault::WouldBlock]].concat();
        let calls = |call: &'static str, faults: &[Fault]| {
            let faults = Fault::ALL.into_iter().filter(|fault| faults.contains(fault));
            faults.map(|fault| format!("{call} {fault}")).collect::<Vec<_>>()
        };
        let kinds = KINDS.into_iter().chain(HAS_PANIC_POINT.then_some(Self::CONNECTION_PANICS));
        let kinds = kinds.map(str::to_owned);
        let kinds = kinds.chain(calls("recv", &RECEIVE_FAULTS)).chain(calls("send", &send_faults));
        kinds.map(|kind| (kind.clone(), self.of(&kind))).collect()
    }
}

impl AddAssign<&Self> for Counts {
    fn add_assign(&mut self, other: &Self) {
        other.0.iter().for_each(|(kind, count)| self.add(kind.clone(), *count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_by_kind() {
        let mut sum = Counts::default();
        sum.add("wakes", 1);
        sum.add("lost_faults", 2);
        sum += &sum.clone();
        assert_eq!((sum.of("wakes"), sum.of("drains")), (2, 0));
        assert_eq!((&sum.kinds()[0], sum.faults()[0]), (&("wakes".to_owned(), 2), ("lost_faults", 4)));
    }
}
