//! The figures of a scenario: its totals for the ledger, and how often each kind of event happened. A run does not judge them. A test
//! checks that each kind of event happens in some scenario, because one that never happens proves nothing.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Duration;

use drumfire::conditioner::LinkCounts;
use drumfire::testing::{Fault, World};

use crate::checks::EarlierClients;
use crate::workers::{HAS_PANIC_POINT, RECEIVE_FAULTS, SEND_FAULTS};

/// The totals of one scenario, or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// Clients that connected.
    pub connected: u64,
    /// Clients whose handshake failed.
    pub failed: u64,
    /// Connections that were over at the end, as they should be.
    pub closed: u64,
    /// Messages that were accepted for sending.
    pub sent: u64,
    /// Messages that were delivered.
    pub delivered: u64,
    /// Changes of clients' addresses.
    pub rebound: u64,
    /// Connections with an end that broke the rules.
    pub hostile: u64,
    /// The time that clients were connected, summed over them.
    pub client_time: Duration,
    /// Datagrams that ends sent.
    pub packets: u64,
    /// Attempts to connect.
    pub handshakes: u64,
    /// Datagrams of attackers, which hold no keys.
    pub attacks: u64,
    /// Sealed packets whose key and number were compared with all others of their world. 0 without the audit.
    pub audited: u64,
    /// The sums over all links.
    pub links: LinkCounts,
    /// Faults of ends, applications, and addresses: rebinds, outages, wrong clocks, stalls, clients that vanish, and hostile ends.
    pub others: u64,
}

impl Totals {
    /// Adds what was sent, and what links did to it.
    pub(crate) fn count(&mut self, world: &World, earlier: &[EarlierClients]) {
        self.packets =
            world.server.control().stats().workers.iter().map(|worker| worker.sent.datagrams).sum();
        self.packets += earlier.iter().map(|earlier| earlier.sent).sum::<u64>();
        for (at, client) in world.clients.iter().enumerate() {
            self.packets += client.stats().sent.datagrams;
            for (link, _) in world.link_counts(at) {
                add(faults_of(&mut self.links), faults_of(&mut { link }));
            }
        }
    }

    /// Returns the number of all injected faults. Delays and reordering are not counted.
    #[must_use]
    pub fn faults(mut self) -> u64 {
        faults_of(&mut self.links).map(|count| *count).iter().sum::<u64>() + self.others
    }

    fn counters(&mut self) -> [&mut u64; 12] {
        [
            &mut self.connected,
            &mut self.failed,
            &mut self.closed,
            &mut self.sent,
            &mut self.delivered,
            &mut self.rebound,
            &mut self.hostile,
            &mut self.packets,
            &mut self.handshakes,
            &mut self.attacks,
            &mut self.audited,
            &mut self.others,
        ]
    }
}

/// Returns the counters of datagrams that a link lost or changed.
fn faults_of(links: &mut LinkCounts) -> [&mut u64; 5] {
    let LinkCounts { lost, duplicated, corrupted, queue_full, too_large, .. } = links;
    [lost, duplicated, corrupted, queue_full, too_large]
}

fn add<const N: usize>(sums: [&mut u64; N], counts: [&mut u64; N]) {
    sums.into_iter().zip(counts).for_each(|(sum, count)| *sum += *count);
}

impl AddAssign for Totals {
    fn add_assign(&mut self, mut other: Self) {
        self.client_time += other.client_time;
        add(faults_of(&mut self.links), faults_of(&mut other.links));
        add(self.counters(), other.counters());
    }
}

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
    "said to groups",
    "missed for want of room",
    "jumps by a year",
];

/// How often each kind of event happened in scenarios with several workers, by its name in the report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(BTreeMap<String, u64>);

impl Coverage {
    /// Moments at which a worker did not know of datagrams in its socket: 0, or the run failed.
    pub const STRANDED: &str = "stranded";
    /// Panics in the code of connections.
    pub(crate) const CONNECTION_PANICS: &str = "panics of connections";

    pub(crate) fn add(&mut self, kind: &str, count: u64) {
        match self.0.get_mut(kind) {
            Some(sum) => *sum += count,
            None => _ = self.0.insert(kind.to_owned(), count),
        }
    }

    /// Returns how often events of this kind happened.
    #[must_use]
    pub fn count(&self, kind: &str) -> u64 {
        self.0.get(kind).copied().unwrap_or(0)
    }

    /// Returns every kind of event that must happen, by name, and how often it did.
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
        kinds.map(|kind| (kind.clone(), self.count(&kind))).collect()
    }
}

impl AddAssign<&Self> for Coverage {
    fn add_assign(&mut self, other: &Self) {
        other.0.iter().for_each(|(kind, count)| self.add(kind, *count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_add_up() {
        let mut one = Totals { client_time: Duration::from_secs(3), ..Totals::default() };
        one.counters().into_iter().zip(1..).for_each(|(counter, number)| *counter = number);
        faults_of(&mut one.links).into_iter().zip([1, 2, 4, 8, 16]).for_each(|(fault, count)| *fault = count);
        assert_eq!(one.faults(), 31 + one.others);
        let mut both = one;
        both += one;
        assert_eq!((both.faults(), both.client_time), (2 * one.faults(), 2 * one.client_time));
        assert_eq!(both.counters().map(|count| *count), one.counters().map(|count| 2 * *count));
    }

    #[test]
    fn coverage_adds_up_by_kind() {
        let mut sum = Coverage::default();
        sum.add("wakes", 1);
        sum += &sum.clone();
        assert_eq!((sum.count("wakes"), sum.count("drains")), (2, 0));
        assert_eq!(sum.kinds()[0], ("wakes".to_owned(), 2));
    }
}
