//! What a scenario put its world through: how long, how many packets, which faults.
//!
//! These are figures for a ledger; none of them is judged.

use std::ops::AddAssign;
use std::time::Duration;

use drumfire::testing::World;

use crate::books::Gone;

/// Figures of one scenario, or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Toll {
    /// Time that clients were connected, all together.
    pub connected: Duration,
    /// Datagrams that ends sent.
    pub packets: u64,
    /// Attempts to connect, whatever came of them.
    pub handshakes: u64,
    /// Datagrams of attackers, who hold no keys.
    pub hostile: u64,
    /// Sealed packets whose key and number were compared with all others of their world; 0 where nothing is audited.
    pub audited: u64,
    /// Faults of links.
    pub links: LinkFaults,
    /// Faults of ends, applications and addresses: rebinds, holes, wrong clocks, stalls, clients that vanish, and ends that
    /// break the rules.
    pub others: u64,
}

/// What links did to datagrams, by kind; how late they came and in which order is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkFaults {
    /// Those that vanished.
    pub lost: u64,
    /// Those that came once more.
    pub duplicated: u64,
    /// Those of which bits were flipped.
    pub corrupted: u64,
    /// Those that found a queue full.
    pub queue_full: u64,
    /// Those that were longer than their path takes.
    pub too_large: u64,
}

impl Toll {
    /// Counts what was sent, and what links did to it.
    pub(crate) fn take(&mut self, world: &World, gone: &[Gone]) {
        self.packets = world.server.stats().workers.iter().map(|worker| worker.sent.datagrams).sum();
        self.packets += gone.iter().map(|gone| gone.sent).sum::<u64>();
        for (at, client) in world.clients.iter().enumerate() {
            self.packets += client.stats().sent.datagrams;
            for (link, _) in world.link_counts(at) {
                self.links.lost += link.lost;
                self.links.duplicated += link.duplicated;
                self.links.corrupted += link.corrupted;
                self.links.queue_full += link.queue_full;
                self.links.too_large += link.too_large;
            }
        }
    }

    /// All faults that were injected.
    #[must_use]
    pub const fn faults(&self) -> u64 {
        let LinkFaults { lost, duplicated, corrupted, queue_full, too_large } = self.links;
        lost + duplicated + corrupted + queue_full + too_large + self.others
    }
}

impl AddAssign for Toll {
    fn add_assign(&mut self, other: Self) {
        self.connected += other.connected;
        self.packets += other.packets;
        self.handshakes += other.handshakes;
        self.hostile += other.hostile;
        self.audited += other.audited;
        self.links.lost += other.links.lost;
        self.links.duplicated += other.links.duplicated;
        self.links.corrupted += other.links.corrupted;
        self.links.queue_full += other.links.queue_full;
        self.links.too_large += other.links.too_large;
        self.others += other.others;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_fault_is_one_and_tolls_add_up() {
        let links = LinkFaults { lost: 1, duplicated: 2, corrupted: 4, queue_full: 8, too_large: 16 };
        let connected = Duration::from_secs(3);
        let one = Toll { connected, packets: 7, handshakes: 2, hostile: 5, audited: 6, links, others: 32 };
        assert_eq!(one.faults(), 63);
        let mut both = one;
        both += one;
        assert_eq!((both.faults(), both.connected), (126, 2 * connected));
        assert_eq!((both.packets, both.handshakes, both.hostile, both.audited), (14, 4, 10, 12));
    }
}
