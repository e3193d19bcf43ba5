//! Path MTU discovery: the size of datagrams is found by probes that carry nothing else, and lowered when large
//! packets disappear (datagram packetization layer PMTU discovery, RFC 8899).
//!
//! This module only decides sizes. The packet builder builds probes, and only for connections that fill their
//! packets.

use std::time::Duration;

use crate::limits::{
    DATAGRAM_FOUND_MAX_BYTES, DATAGRAM_SENT_MAX_BYTES, MTU_BLACK_HOLE_PACKETS, MTU_PROBES, MTU_RETRY_AFTER,
    MTU_SEARCH_INTERVAL,
};
use crate::time::Moment;

/// The sizes of UDP payload to try, largest first: Ethernet over IPv4 and over IPv6, PPPoE with another tunnel, two
/// tunnels, and the minimum of IPv6.
const SIZES: [u16; 5] = [1_472, 1_452, 1_412, 1_372, 1_232];

/// The search on one path.
#[derive(Debug)]
pub(crate) struct MtuSearch {
    /// The index of the size to try next. Beyond the last when the search is over.
    size_index: usize,
    /// The number of probes of this size that were lost.
    tries: u32,
    /// The packet number of the probe in flight. `None` while this search has none. Probes of earlier searches have no
    /// meaning: they were sent on another path, or before the path stopped carrying their size.
    probe: Option<u64>,
    /// Packets are full, so a larger size is useful.
    is_wanted: bool,
    /// The time at which the next probe may be sent.
    next_at: Moment,
    /// Large packets lost since one last arrived.
    lost_count: u32,
}

impl MtuSearch {
    pub(crate) const fn new() -> Self {
        Self {
            size_index: 0,
            tries: 0,
            probe: None,
            is_wanted: false,
            next_at: Moment::ORIGIN,
            lost_count: 0,
        }
    }

    /// Registers a packet that was as full as possible.
    pub(crate) const fn on_full(&mut self) {
        self.is_wanted = true;
    }

    /// Whether packets are full enough for a search to be useful.
    #[inline]
    pub(crate) const fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// The size of the probe to send now, on a path that is known to carry `known` bytes to an end that accepts
    /// `limit`.
    pub(crate) fn due(&mut self, now: Moment, known: u16, limit: u16) -> Option<u16> {
        if !self.is_wanted || self.probe.is_some() || self.next_at > now {
            return None;
        }
        while let Some(&size) = SIZES.get(self.size_index) {
            if size <= known {
                break;
            }
            if size <= limit {
                return Some(size);
            }
            self.size_index = self.size_index.saturating_add(1);
        }
        self.pause(now, MTU_SEARCH_INTERVAL);
        None
    }

    /// Registers the probe in the packet `number`.
    pub(crate) const fn on_probe_sent(&mut self, number: u64) {
        self.probe = Some(number);
    }

    /// Ends the search if the packet `number` is its probe: the path carries this size, which was the largest left to try.
    /// Returns whether it is.
    pub(crate) fn on_probe_arrived(&mut self, now: Moment, number: u64) -> bool {
        let is_current = self.probe == Some(number);
        if is_current {
            self.pause(now, MTU_SEARCH_INTERVAL);
        }
        is_current
    }

    /// Registers the loss of the probe in the packet `number`. The cause may be its size or a random loss.
    pub(crate) fn on_probe_lost(&mut self, number: u64) {
        if self.probe != Some(number) {
            return;
        }
        self.probe = None;
        self.tries = self.tries.saturating_add(1);
        if self.tries >= MTU_PROBES {
            self.tries = 0;
            self.size_index = self.size_index.saturating_add(1);
        }
    }

    /// Skips the sizes that the operating system refused to send. Such a refusal is never a random loss. Smaller sizes are tried
    /// immediately, until the search restarts.
    pub(crate) fn on_refused(&mut self, bytes: u16) {
        let smaller = SIZES.partition_point(|size| *size >= bytes);
        self.next_at = Moment::ORIGIN;
        if self.probe.is_some() {
            // The probe will be declared lost like any other packet, and is the last of its size.
            self.size_index = self.size_index.max(smaller.saturating_sub(1));
            self.tries = MTU_PROBES.saturating_sub(1);
        } else {
            self.size_index = self.size_index.max(smaller);
            self.tries = 0;
        }
    }

    /// Registers that a large packet arrived.
    pub(crate) const fn on_large_arrived(&mut self) {
        self.lost_count = 0;
    }

    /// Registers lost large packets. Returns whether the path is assumed not to carry them any more.
    pub(crate) fn on_large_lost(&mut self, now: Moment, count: u32) -> bool {
        self.lost_count = self.lost_count.saturating_add(count);
        let is_black_hole = self.lost_count >= MTU_BLACK_HOLE_PACKETS;
        if is_black_hole {
            self.on_fallen_back(now);
        }
        is_black_hole
    }

    /// Pauses the search after the connection fell back to the size that every path carries.
    pub(crate) fn on_fallen_back(&mut self, now: Moment) {
        self.pause(now, MTU_RETRY_AFTER);
    }

    /// Restarts the search on another path.
    pub(crate) const fn on_path_changed(&mut self) {
        let is_wanted = self.is_wanted;
        *self = Self::new();
        self.is_wanted = is_wanted;
    }

    fn pause(&mut self, now: Moment, wait: Duration) {
        *self = Self { next_at: now.after(wait), is_wanted: self.is_wanted, ..Self::new() };
    }
}

const _: () =
    assert!(SIZES[0] as usize == DATAGRAM_FOUND_MAX_BYTES && SIZES[4] as usize > DATAGRAM_SENT_MAX_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    const START: u16 = 1_200;

    fn secs(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    /// The size found on a path that carries `carries` bytes, and how many probes that took.
    fn search(carries: u16, limit: u16) -> (u16, u32) {
        let (mut mtu, mut known, mut probes) = (MtuSearch::new(), START, 0);
        assert_eq!(mtu.due(secs(1), known, limit), None, "no packet was full");
        mtu.on_full();
        while let Some(size) = mtu.due(secs(1), known, limit) {
            mtu.on_probe_sent(7);
            assert_eq!(mtu.due(secs(1), known, limit), None, "one at a time");
            probes += 1;
            if size <= carries {
                known = size;
                assert!(mtu.on_probe_arrived(secs(1), 7));
            } else {
                mtu.on_probe_lost(7);
            }
        }
        (known, probes)
    }

    #[test]
    fn the_search_finds_the_largest_size_that_passes() {
        for (carries, limit, found) in [
            (1_500, 1_472, (1_472, 1)),
            (1_471, 1_472, (1_452, 4)),
            (1_400, 1_472, (1_372, 10)),
            (1_300, 1_472, (1_232, 13)),
            (1_231, 1_472, (1_200, 15)),
            (1_500, 1_460, (1_452, 1)),
            (1_500, 1_200, (1_200, 0)),
        ] {
            assert_eq!(search(carries, limit), found, "{carries} {limit}");
        }
    }

    #[test]
    fn a_refused_size_is_tried_once_and_a_smaller_one_next() {
        for (carries, found, probes) in [(1_400, 1_372, 4), (1_452, 1_452, 2), (1_231, START, 5)] {
            let (mut mtu, mut known, mut sizes) = (MtuSearch::new(), START, Vec::new());
            mtu.on_full();
            while let Some(size) = mtu.due(secs(1), known, 1_472) {
                mtu.on_probe_sent(7);
                sizes.push(size);
                if size <= carries {
                    known = size;
                    assert!(mtu.on_probe_arrived(secs(1), 7));
                } else {
                    mtu.on_refused(size);
                    assert_eq!(mtu.due(secs(1), known, 1_472), None, "it is not known to be lost");
                    mtu.on_probe_lost(7);
                }
            }
            assert_eq!((known, sizes.len()), (found, probes), "{sizes:?}");
            assert!(sizes.is_sorted_by(|this, next| this > next), "{sizes:?}");
        }
    }

    #[test]
    fn a_refused_packet_size_speeds_up_the_search() {
        let mut mtu = MtuSearch::new();
        mtu.on_full();
        mtu.on_probe_sent(7);
        assert!(mtu.on_probe_arrived(secs(10), 7));
        // Another path to the peer, whose first link carries less.
        mtu.on_refused(1_460);
        assert_eq!(mtu.due(secs(11), START, 1_472), Some(1_452));
        mtu.on_probe_sent(7);
        assert!(mtu.on_probe_arrived(secs(11), 7));
        assert_eq!(mtu.due(secs(12), 1_452, 1_472), None);
        assert_eq!(mtu.due(secs(611), 1_452, 1_472), Some(1_472), "all of them, in their turn");
    }

    #[test]
    fn the_search_restarts_after_ten_minutes_or_a_black_hole() {
        let mut mtu = MtuSearch::new();
        mtu.on_full();
        mtu.on_probe_sent(7);
        assert!(mtu.on_probe_arrived(secs(10), 7));
        assert_eq!(mtu.due(secs(609), 1_452, 1_472), None);
        assert_eq!(mtu.due(secs(610), 1_452, 1_472), Some(1_472));
        for count in [3, 4] {
            assert!(!mtu.on_large_lost(secs(700), count));
            mtu.on_large_arrived();
        }
        assert!(!mtu.on_large_lost(secs(700), 7) && mtu.on_large_lost(secs(700), 1));
        assert_eq!((mtu.due(secs(759), START, 1_472), mtu.due(secs(760), START, 1_472)), (None, Some(1_472)));
    }
    #[test]
    fn the_probe_of_an_earlier_search_says_nothing() {
        let mut mtu = MtuSearch::new();
        mtu.on_full();
        for number in 1..=MTU_PROBES.into() {
            assert_eq!(mtu.due(secs(1), START, 1_472), Some(1_472));
            mtu.on_probe_sent(number);
            mtu.on_path_changed();
            assert!(!mtu.on_probe_arrived(secs(1), number));
            mtu.on_probe_lost(number);
        }
        mtu.on_probe_sent(10);
        assert!(!mtu.on_probe_arrived(secs(1), 9));
        mtu.on_probe_lost(9);
        assert_eq!(mtu.due(secs(1), START, 1_472), None, "the probe of this search is in flight");
        assert!(mtu.on_probe_arrived(secs(1), 10));
    }
}
