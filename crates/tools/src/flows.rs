//! Books per flow: arrivals, duplicates, reordering, and, with the sender's totals, losses.
//!
//! A [`FlowTable`] belongs to one receiver thread and allocates only when it is created. After the run, the counts of
//! all threads are added up. A flow that moved between threads is complete in the totals, but neither table detects a
//! duplicate or a swap across the move. The reason of a loss is found elsewhere, from the kernel's counters.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::iter::Sum;
use std::sync::Arc;

use drumfire_crypto::{ReplayError, ReplayWindow};

use crate::datagram::{DropReason, Header, RouteId};

/// The flows as one receiver thread received them. The window of a flow remembers its last 1,024 sequences.
#[derive(Debug)]
pub struct FlowTable {
    ids: Arc<[RouteId]>,
    counts: Vec<FlowCount>,
    windows: Vec<ReplayWindow>,
}

/// The arrivals of one flow, or of several added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCount {
    /// Every datagram of the flow, including the ones below.
    pub received: u64,
    /// Second copies.
    pub duplicated: u64,
    /// New, but behind a later one.
    pub reordered: u64,
    /// Behind the window. Duplicates cannot be detected there, so the datagram is dropped under this name.
    pub too_old: u64,
    /// One past the highest sequence seen; 0 when there was none.
    pub seen_to: u64,
}

impl FlowTable {
    /// Makes a table for the flows with these ids, flow 0 first.
    pub fn new(ids: Arc<[RouteId]>) -> Self {
        let counts = vec![FlowCount::default(); ids.len()];
        let windows = ids.iter().map(|_| ReplayWindow::default()).collect();
        Self { ids, counts, windows }
    }

    /// Records one datagram.
    ///
    /// # Errors
    /// [`DropReason::UnknownFlow`] or [`DropReason::WrongId`]: it belongs to no flow and is in no count here.
    #[inline]
    pub fn on_datagram(&mut self, header: &Header) -> Result<(), DropReason> {
        let (count, window) = self.flow(header)?;
        count.on_sequence(window, header.sequence);
        Ok(())
    }

    /// Records a train in one step, given the headers of its first and last datagram. Returns true if that was
    /// possible.
    ///
    /// Returns false and records nothing unless the two are the ends of `datagram_count` consecutive sequences of one
    /// flow, all newer than any before. The caller then records the datagrams one by one. The datagrams between the
    /// ends are not read, because the kernel merges only trains of one sending socket.
    #[inline]
    #[must_use]
    pub fn on_train(&mut self, first: &Header, last: &Header, datagram_count: usize) -> bool {
        let Ok(length) = u64::try_from(datagram_count) else { return false };
        let Some(end) = first.sequence.checked_add(length) else { return false };
        if length == 0
            || Some(end) != last.sequence.checked_add(1)
            || (first.flow, first.id) != (last.flow, last.id)
        {
            return false;
        }
        match self.flow(first) {
            Ok((count, window)) if first.sequence >= count.seen_to => {
                (first.sequence..end).for_each(|sequence| count.on_sequence(window, sequence));
                true
            }
            _ => false,
        }
    }

    /// The arrivals of each flow, flow 0 first.
    pub fn counts(&self) -> &[FlowCount] {
        &self.counts
    }

    #[inline]
    fn flow(&mut self, header: &Header) -> Result<(&mut FlowCount, &mut ReplayWindow), DropReason> {
        let flow = header.flow as usize;
        let id = self.ids.get(flow).ok_or(DropReason::UnknownFlow)?;
        if *id != header.id {
            return Err(DropReason::WrongId);
        }
        self.counts.get_mut(flow).zip(self.windows.get_mut(flow)).ok_or(DropReason::UnknownFlow)
    }
}

impl FlowCount {
    /// Datagrams that arrived for the first time, as far as the window shows.
    pub const fn unique(&self) -> u64 {
        self.received.saturating_sub(self.duplicated).saturating_sub(self.too_old)
    }

    #[inline]
    fn on_sequence(&mut self, window: &mut ReplayWindow, sequence: u64) {
        self.received = self.received.saturating_add(1);
        let count = match window.accept(sequence) {
            Ok(()) if sequence >= self.seen_to => {
                self.seen_to = sequence.saturating_add(1);
                return;
            }
            Ok(()) => &mut self.reordered,
            Err(ReplayError::Duplicate) => &mut self.duplicated,
            Err(ReplayError::TooOld) => &mut self.too_old,
        };
        *count = count.saturating_add(1);
    }

    fn add(&mut self, other: &Self) {
        self.received = self.received.saturating_add(other.received);
        self.duplicated = self.duplicated.saturating_add(other.duplicated);
        self.reordered = self.reordered.saturating_add(other.reordered);
        self.too_old = self.too_old.saturating_add(other.too_old);
        self.seen_to = self.seen_to.max(other.seen_to);
    }
}

impl<'a> Sum<&'a Self> for FlowCount {
    /// All flows added up; `seen_to` is the highest of any flow.
    fn sum<I: Iterator<Item = &'a Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |mut sum, count| {
            sum.add(count);
            sum
        })
    }
}

/// Adds the counts of one thread to those of all threads, flow by flow.
pub(crate) fn add(totals: &mut [FlowCount], counts: &[FlowCount]) {
    for (sum, count) in totals.iter_mut().zip(counts) {
        sum.add(count);
    }
}

/// Datagrams that were sent and that no thread received as new, for any reason. Datagrams that arrived too old are among them. A
/// flow with more arrivals than were sent does not hide the loss of another.
pub(crate) fn lost(totals: &[FlowCount], sent_per_flow: &[u64]) -> u64 {
    let flows = totals.iter().zip(sent_per_flow);
    flows.fold(0, |sum: u64, (count, sent)| sum.saturating_add(sent.saturating_sub(count.unique())))
}

#[cfg(test)]
#[expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "tests may panic"
)]
mod tests {
    use std::collections::HashSet;

    use drumfire_puppet::Random;

    use super::*;

    const ID: RouteId = RouteId([7; 8]);

    /// One flow with unlimited memory.
    #[derive(Default)]
    struct Model {
        seen: HashSet<u64>,
        count: FlowCount,
    }

    impl Model {
        fn on_sequence(&mut self, sequence: u64) {
            self.count.received += 1;
            if sequence >= self.count.seen_to {
                self.count.seen_to = sequence + 1;
                self.seen.insert(sequence);
            } else if sequence + 1_024 < self.count.seen_to {
                self.count.too_old += 1;
            } else if self.seen.insert(sequence) {
                self.count.reordered += 1;
            } else {
                self.count.duplicated += 1;
            }
        }
    }

    fn header(flow: usize, sequence: u64) -> Header {
        Header { id: ID, flow: flow.try_into().unwrap(), sequence, stamp: None }
    }

    fn table(flow_count: usize) -> FlowTable {
        FlowTable::new(vec![ID; flow_count].into())
    }

    #[test]
    fn a_table_agrees_with_a_set_over_random_arrivals() {
        for seed in 1..=40 {
            let mut random = Random::of_seed(seed);
            let mut flows = table(3);
            let mut models: [Model; 3] = Default::default();
            for _ in 0..3_000 {
                let flow = random.index(3);
                let model = &mut models[flow];
                let near = model.count.seen_to;
                let sequence = match random.below(10) {
                    0..=4 => near,
                    5 => near + random.below(5),
                    6 => near + random.below(3_000),
                    7 => near.saturating_sub(random.below(8)),
                    _ => near.saturating_sub(random.below(1_200)),
                };
                let length = if random.below(4) == 0 { random.below(64) + 1 } else { 1 };
                let (first, last) = (header(flow, sequence), header(flow, sequence + length - 1));
                let is_whole = length > 1 && flows.on_train(&first, &last, length.try_into().unwrap());
                assert_eq!(is_whole, length > 1 && sequence >= near, "seed {seed}");
                for sequence in sequence..sequence + length {
                    model.on_sequence(sequence);
                    if !is_whole {
                        flows.on_datagram(&header(flow, sequence)).unwrap();
                    }
                }
                assert_eq!(flows.counts()[flow], model.count, "seed {seed}, sequence {sequence}");
            }
        }
    }

    #[test]
    fn losses_are_exact_when_flows_move_between_threads() {
        for seed in 1..=40 {
            let mut random = Random::of_seed(seed);
            let mut threads = [table(4), table(4)];
            let (mut sent, mut dropped) = ([0; 4], 0);
            for _ in 0..4_000 {
                let flow = random.index(4);
                let sequence = sent[flow];
                sent[flow] += 1;
                if random.below(5) == 0 {
                    dropped += 1;
                    continue;
                }
                let thread = usize::from(sequence > 500) ^ (flow & 1);
                threads[thread].on_datagram(&header(flow, sequence)).unwrap();
            }
            let mut totals = [FlowCount::default(); 4];
            threads.iter().for_each(|thread| add(&mut totals, thread.counts()));
            assert_eq!(lost(&totals, &sent), dropped, "seed {seed}");
            assert_eq!(
                totals.iter().sum::<FlowCount>().received + dropped,
                sent.iter().sum::<u64>(),
                "seed {seed}"
            );
        }
    }

    #[test]
    fn a_datagram_of_no_flow_is_dropped_by_name() {
        let mut flows = table(2);
        let stranger = Header { id: RouteId([8; 8]), ..header(1, 0) };
        assert_eq!(flows.on_datagram(&header(1, 0)), Ok(()));
        assert_eq!(flows.on_datagram(&header(2, 0)), Err(DropReason::UnknownFlow));
        assert_eq!(flows.on_datagram(&stranger), Err(DropReason::WrongId));
        assert!(!flows.on_train(&header(2, 0), &header(2, 3), 4));
        assert!(!flows.on_train(&stranger, &stranger, 1));
        assert_eq!(flows.counts().iter().map(|count| count.received).sum::<u64>(), 1);
    }

    #[test]
    fn a_train_is_taken_whole_only_if_its_ends_fit() {
        let other_id = Header { id: RouteId([8; 8]), ..header(0, 13) };
        for (last, datagram_count, expected) in [
            (header(0, 13), 3, false),
            (header(0, 13), 4, true),
            (header(0, 13), 5, false),
            (header(0, 10), 0, false),
            (header(0, 10), 1, true),
            (header(1, 13), 4, false),
            (other_id, 4, false),
            (header(0, u64::MAX - 1), usize::MAX, false),
        ] {
            let mut flows = table(2);
            let is_taken = flows.on_train(&header(0, 10), &last, datagram_count);
            assert_eq!(is_taken, expected, "{last:?} {datagram_count}");
            assert_eq!(flows.counts()[0].received, if expected { datagram_count as u64 } else { 0 });
        }
    }

    #[test]
    fn a_surplus_in_one_flow_hides_no_loss_of_another() {
        let totals = [FlowCount { received: 1, seen_to: 1, ..FlowCount::default() }, FlowCount::default()];
        assert_eq!((lost(&totals, &[0, 1]), lost(&totals, &[1, 3])), (1, 3));
    }
}
