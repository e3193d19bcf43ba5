//! Checks that messages were delivered as their mode promises, by the numbers in them.
//!
//! The flow tables count duplicates and order. This file adds the checks that they cannot make. Nothing is allocated after a
//! session began.

use crate::choices::Mode;
use crate::datagram::Header;
use crate::flows::{FlowCount, FlowTotals};

/// One thread's view.
pub(super) struct Promise {
    mode: Mode,
    /// In `reliable-unordered` a checksum over the messages of each flow; in `reliable-latest` one past the newest message of each
    /// key of each flow; empty in other modes.
    marks: Vec<u64>,
    /// Older values after newer ones.
    broken: u64,
}

impl Promise {
    /// Makes the state of a thread before its first message.
    pub(super) fn new(mode: Mode, flows: usize) -> Self {
        let marks = match mode {
            Mode::ReliableUnordered => flows,
            Mode::ReliableLatest => flows * keys(),
            _ => 0,
        };
        Self { mode, marks: vec![0; marks], broken: 0 }
    }

    /// Records a delivered message of a known flow.
    pub(super) fn on_message(&mut self, header: &Header) {
        match self.mode {
            Mode::ReliableUnordered => {
                if let Some(sum) = self.marks.get_mut(header.flow as usize) {
                    *sum = sum.wrapping_add(scattered(header.sequence));
                }
            }
            Mode::ReliableLatest => {
                let Some(newest) = self.marks.get_mut(place(header.flow as usize, header.sequence)) else {
                    return;
                };
                if header.sequence < *newest {
                    self.broken += 1;
                } else {
                    *newest = header.sequence + 1;
                }
            }
            _ => {}
        }
    }

    /// Adds the state of another thread.
    pub(super) fn add(&mut self, other: &Self) {
        for (mark, more) in self.marks.iter_mut().zip(&other.marks) {
            *mark = match self.mode {
                Mode::ReliableUnordered => mark.wrapping_add(*more),
                _ => (*mark).max(*more),
            };
        }
        self.broken += other.broken;
    }

    /// The number of broken promises, given the number of messages that were sent of each flow.
    pub(super) fn broken(&self, flows: &FlowTotals, sent_per_flow: &[u64]) -> u64 {
        let of_flows = flows.counts().iter().zip(sent_per_flow).enumerate();
        of_flows.map(|(flow, (count, sent))| self.broken_in(flow, count, *sent)).sum::<u64>() + self.broken
    }

    fn broken_in(&self, flow: usize, count: &FlowCount, sent: u64) -> u64 {
        let out_of_order = count.duplicated + count.reordered + count.too_old;
        match self.mode {
            // A duplicate behind the window cannot be detected. No mode delivers a message that late, so it counts as broken.
            Mode::Packets | Mode::Unreliable => count.duplicated + count.too_old,
            Mode::UnreliableSequenced => out_of_order,
            Mode::ReliableUnordered => {
                let whole = (0..sent).fold(0_u64, |sum, sequence| sum.wrapping_add(scattered(sequence)));
                let is_whole = self.marks.get(flow).is_some_and(|sum| *sum == whole);
                count.received.abs_diff(sent).max(u64::from(!is_whole))
            }
            Mode::ReliableOrdered => out_of_order + count.received.abs_diff(sent),
            Mode::ReliableSequenced => out_of_order + u64::from(count.seen_to != sent),
            Mode::ReliableLatest => {
                let newest = sent.saturating_sub(Mode::KEYS)..sent;
                let is_missing =
                    |sequence: &u64| self.marks.get(place(flow, *sequence)) != Some(&(*sequence + 1));
                newest.filter(is_missing).count() as u64
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a handful")]
const fn keys() -> usize {
    Mode::KEYS as usize
}

/// The index in `marks` of the key of a message.
const fn place(flow: usize, sequence: u64) -> usize {
    flow * keys() + (sequence % Mode::KEYS) as usize
}

/// Scatters a number, so that different sets of numbers are unlikely to have the same sum (the finalizer of SplitMix64, Steele
/// et al. 2014).
const fn scattered(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
mod tests {
    use super::*;
    use crate::datagram::RouteId;
    use crate::flows::FlowTable;

    /// The number of promises that two threads break with these messages of one flow, of which `sent` were sent.
    fn broken_by(mode: Mode, threads: [&[u64]; 2], sent: u64) -> u64 {
        let ids = [RouteId::default()];
        let mut totals = FlowTotals::new(1);
        let mut whole = Promise::new(mode, 1);
        for delivered in threads {
            let mut table = FlowTable::new(ids.as_slice().into()).unwrap();
            let mut promise = Promise::new(mode, 1);
            for &sequence in delivered {
                let header = Header { id: ids[0], flow: 0, sequence, stamp: None };
                table.on_datagram(&header).unwrap();
                promise.on_message(&header);
            }
            totals.add(table.counts());
            whole.add(&promise);
        }
        whole.broken(&totals, &[sent])
    }

    fn broken(mode: Mode, delivered: &[u64], sent: u64) -> u64 {
        broken_by(mode, [delivered, &[]], sent)
    }

    #[test]
    fn unreliable_messages_may_be_missing_and_swapped_but_never_come_twice() {
        assert_eq!(broken(Mode::Unreliable, &[], 3), 0);
        assert_eq!(broken(Mode::Unreliable, &[2, 0], 3), 0);
        assert_eq!(broken(Mode::Unreliable, &[2, 0, 2], 3), 1);
        assert_eq!(broken(Mode::UnreliableSequenced, &[0, 2], 3), 0);
        assert_eq!(broken(Mode::UnreliableSequenced, &[2, 0], 3), 1);
        assert_eq!(broken(Mode::UnreliableSequenced, &[0, 0], 3), 1);
    }

    #[test]
    fn reliable_messages_come_once_each_and_in_order_where_that_is_promised() {
        for mode in [Mode::ReliableUnordered, Mode::ReliableOrdered] {
            assert_eq!(broken(mode, &[0, 1, 2], 3), 0);
            assert_eq!(broken(mode, &[0, 1], 3), 1, "{mode}: one is missing");
            assert_eq!(broken(mode, &[0, 1, 2, 3], 3), 1, "{mode}: one was never sent");
            assert!(broken(mode, &[0, 1, 1], 3) > 0, "{mode}: one came in place of another");
            assert!(broken(mode, &[0, 1, 2, 2], 3) > 0, "{mode}: one came twice");
        }
        assert_eq!(broken(Mode::ReliableUnordered, &[2, 0, 1], 3), 0);
        assert_eq!(broken_by(Mode::ReliableUnordered, [&[2], &[0, 1]], 3), 0);
        assert!(broken(Mode::ReliableOrdered, &[0, 2, 1], 3) > 0);
    }

    #[test]
    fn the_newest_comes_and_nothing_older_after_it() {
        assert_eq!(broken(Mode::ReliableSequenced, &[0, 5, 9], 10), 0);
        assert_eq!(broken(Mode::ReliableSequenced, &[0, 5, 8], 10), 1);
        assert_eq!(broken(Mode::ReliableSequenced, &[0, 9, 5], 10), 1);
    }

    #[test]
    fn the_newest_of_every_key_comes_and_nothing_older_of_that_key_after_it() {
        let all: Vec<u64> = (0..20).collect();
        assert_eq!(broken(Mode::ReliableLatest, &all, 20), 0);
        assert_eq!(broken(Mode::ReliableLatest, &all[12..], 20), 0, "older values may be missing");
        assert_eq!(broken(Mode::ReliableLatest, &[19, 18, 17, 16, 15, 14, 13, 12], 20), 0, "keys are apart");
        assert_eq!(broken(Mode::ReliableLatest, &all[13..], 20), 1, "the newest of a key is missing");
        let mut backwards = all[12..].to_vec();
        backwards.push(4);
        assert_eq!(broken(Mode::ReliableLatest, &backwards, 20), 1, "an older one of the key of 12");
        assert_eq!(broken_by(Mode::ReliableLatest, [&all[12..16], &all[16..]], 20), 0);
        assert_eq!(broken(Mode::ReliableLatest, &[0, 1, 2], 3), 0, "fewer than there are keys");
        assert_eq!(broken(Mode::ReliableLatest, &[0, 2], 3), 1);
    }
}
