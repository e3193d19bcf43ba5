//! Flow tables against a model that remembers every sequence in a set, and the bounds of each count.
//!
//! Socket, threads and kernel counters are not part of it.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "tests may panic"
)]

use std::collections::HashSet;

use super::*;

const ID: RouteId = RouteId([7; 8]);

/// A small deterministic generator (xorshift64*), so that a failing seed can be run again.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn index(&mut self, bound: u64) -> usize {
        usize::try_from(self.below(bound)).unwrap()
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound
    }
}

/// One flow as it should be counted, with all the memory in the world.
#[derive(Default)]
struct Model {
    seen: HashSet<u64>,
    count: FlowCount,
}

impl Model {
    fn on_sequence(&mut self, sequence: u64) -> Arrival {
        self.count.received += 1;
        if sequence >= self.count.seen_to {
            self.count.seen_to = sequence + 1;
            self.seen.insert(sequence);
            Arrival::Newest
        } else if sequence + WINDOW < self.count.seen_to {
            self.count.too_old += 1;
            Arrival::TooOld
        } else if self.seen.insert(sequence) {
            self.count.reordered += 1;
            Arrival::Reordered
        } else {
            self.count.duplicated += 1;
            Arrival::Duplicate
        }
    }
}

fn header(flow: usize, sequence: u64) -> Header {
    Header { id: ID, flow: flow.try_into().unwrap(), sequence, stamp: None }
}

fn table(flow_count: usize) -> FlowTable {
    FlowTable::new(vec![ID; flow_count].into()).unwrap()
}

#[test]
fn a_table_agrees_with_a_set_over_random_arrivals_and_trains() {
    for seed in 1..=40 {
        let mut random = Random::new(seed);
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
            let first = header(flow, sequence);
            let length = if random.below(4) == 0 { random.below(64) + 1 } else { 1 };
            let datagram_count = usize::try_from(length).unwrap();
            let last = header(flow, sequence + length - 1);
            let is_whole = length > 1 && flows.on_train(&first, &last, datagram_count);
            assert_eq!(is_whole, length > 1 && sequence >= near, "seed {seed}");
            for offset in 0..length {
                let expected = model.on_sequence(sequence + offset);
                if !is_whole {
                    let arrival = flows.on_datagram(&header(flow, sequence + offset));
                    assert_eq!(arrival, Ok(expected), "seed {seed}, sequence {}", sequence + offset);
                }
            }
            assert_eq!(flows.counts()[flow], model.count, "seed {seed}");
        }
    }
}

#[test]
fn loss_is_what_a_random_link_dropped_even_when_flows_move_between_threads() {
    for seed in 1..=40 {
        let mut random = Random::new(seed);
        let mut threads = [table(4), table(4)];
        let mut sent = [0; 4];
        let mut arrived = [const { Vec::new() }; 4];
        for _ in 0..4_000 {
            let flow = random.index(4);
            let sequence = sent[flow];
            sent[flow] += 1;
            if random.below(5) == 0 {
                continue;
            }
            let home = usize::from(sequence > 500) ^ (flow & 1);
            threads[home].on_datagram(&header(flow, sequence)).unwrap();
            arrived[flow].push(sequence);
        }
        let mut totals = FlowTotals::new(4);
        threads.iter().for_each(|thread| totals.add(thread.counts()));
        let losses: Vec<_> = totals.losses(&sent).collect();
        for flow in 0..4 {
            let lost = sent[flow] - arrived[flow].len() as u64;
            let tail = sent[flow] - arrived[flow].last().map_or(0, |last| last + 1);
            assert_eq!(losses[flow], Loss { lost, interior: lost - tail, tail, surplus: 0 }, "seed {seed}");
        }
        assert_eq!(totals.loss(&sent).lost, losses.iter().map(|loss| loss.lost).sum::<u64>());
        assert_eq!(totals.sum().received + totals.loss(&sent).lost, sent.iter().sum::<u64>());
    }
}

#[test]
fn the_window_ends_1024_behind_the_highest() {
    for (sequence, expected) in [
        (2_000, Arrival::Duplicate),
        (1_999, Arrival::Reordered),
        (978, Arrival::Reordered),
        (977, Arrival::Reordered),
        (976, Arrival::TooOld),
        (0, Arrival::TooOld),
    ] {
        let mut flows = table(1);
        assert_eq!(flows.on_datagram(&header(0, 2_000)), Ok(Arrival::Newest));
        assert_eq!(flows.on_datagram(&header(0, sequence)), Ok(expected), "sequence {sequence}");
    }
}

#[test]
fn a_leap_forgets_the_bits_that_fell_out_and_no_others() {
    for leap in [1_022, 1_023, 1_024, 1_025, 5_000] {
        let mut flows = table(1);
        flows.on_datagram(&header(0, 10)).unwrap();
        flows.on_datagram(&header(0, 10 + leap)).unwrap();
        let expected = if leap < WINDOW { Arrival::Duplicate } else { Arrival::TooOld };
        assert_eq!(flows.on_datagram(&header(0, 10)), Ok(expected), "leap {leap}");
        assert_eq!(flows.on_datagram(&header(0, 9 + leap)), Ok(Arrival::Reordered), "leap {leap}");
    }
}

#[test]
fn a_datagram_of_no_flow_is_dropped_by_name_and_counted_nowhere() {
    let mut flows = table(2);
    let stranger = Header { id: RouteId([8; 8]), ..header(1, 0) };
    assert_eq!(flows.on_datagram(&header(1, 0)), Ok(Arrival::Newest));
    assert_eq!(flows.on_datagram(&header(2, 0)), Err(DropReason::UnknownFlow));
    assert_eq!(flows.on_datagram(&header(0xffff_ffff, 0)), Err(DropReason::UnknownFlow));
    assert_eq!(flows.on_datagram(&stranger), Err(DropReason::WrongId));
    assert!(!flows.on_train(&header(2, 0), &header(2, 3), 4));
    assert!(!flows.on_train(&stranger, &stranger, 1));
    assert_eq!(flows.counts().iter().map(|count| count.received).sum::<u64>(), 1);
}

#[test]
fn a_train_is_taken_whole_only_when_its_ends_fit_its_length() {
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
        assert_eq!(
            flows.on_train(&header(0, 10), &last, datagram_count),
            expected,
            "{last:?} {datagram_count}"
        );
        let received = if expected { datagram_count as u64 } else { 0 };
        assert_eq!(flows.counts()[0].received, received);
    }
}

#[test]
fn a_train_that_reaches_back_is_left_to_the_caller() {
    let mut flows = table(1);
    assert!(flows.on_train(&header(0, 0), &header(0, 9), 10));
    assert!(!flows.on_train(&header(0, 9), &header(0, 12), 4), "one of them may be a duplicate");
    assert!(flows.on_train(&header(0, 10), &header(0, 13), 4));
    assert_eq!(flows.on_datagram(&header(0, 9)), Ok(Arrival::Duplicate));
    assert_eq!(flows.on_datagram(&header(0, 13)), Ok(Arrival::Duplicate));
}

#[test]
fn the_highest_sequence_neither_panics_nor_wraps() {
    let mut flows = table(1);
    let highest = crate::datagram::MAX_SEQUENCE;
    assert_eq!(flows.on_datagram(&header(0, highest)), Ok(Arrival::Newest));
    assert_eq!(flows.on_datagram(&header(0, highest)), Ok(Arrival::Duplicate));
    assert_eq!(flows.on_datagram(&header(0, highest - 1)), Ok(Arrival::Reordered));
    assert_eq!(flows.on_datagram(&header(0, 0)), Ok(Arrival::TooOld));
    assert!(!flows.on_train(&header(0, highest), &header(0, highest), 1));
}

#[test]
fn interior_gaps_and_a_cut_tail_are_told_apart() {
    let count = FlowCount { received: 7, duplicated: 1, seen_to: 8, ..FlowCount::default() };
    assert_eq!(count.loss(8), Loss { lost: 2, interior: 2, tail: 0, surplus: 0 });
    assert_eq!(count.loss(11), Loss { lost: 5, interior: 2, tail: 3, surplus: 0 });
    assert_eq!(FlowCount::default().loss(5), Loss { lost: 5, interior: 0, tail: 5, surplus: 0 });
    assert_eq!(count.loss(5), Loss { lost: 0, interior: 0, tail: 0, surplus: 1 });
}

#[test]
fn what_came_too_late_to_tell_counts_as_lost_rather_than_as_received() {
    let mut flows = table(1);
    flows.on_datagram(&header(0, 1_024)).unwrap();
    flows.on_datagram(&header(0, 0)).unwrap();
    assert_eq!(flows.counts()[0].unique(), 1);
    assert_eq!(flows.counts()[0].loss(1_025).lost, 1_024);
}

#[test]
fn one_flows_surplus_does_not_hide_anothers_loss() {
    let mut flows = table(2);
    flows.on_datagram(&header(0, 0)).unwrap();
    let mut totals = FlowTotals::new(2);
    totals.add(flows.counts());
    assert_eq!(totals.loss(&[0, 1]), Loss { lost: 1, interior: 0, tail: 1, surplus: 1 });
    assert_eq!(totals.loss(&[]), Loss { surplus: 1, ..Loss::default() });
    assert_eq!(totals.loss(&[1, 0, 3]).lost, 3, "a flow that only the sender knows is lost whole");
}

#[test]
fn a_table_holds_65536_flows_and_no_more() {
    for (flow_count, is_good) in [(65_535, true), (65_536, true), (65_537, false)] {
        assert_eq!(FlowTable::new(vec![ID; flow_count].into()).is_ok(), is_good, "{flow_count} flows");
    }
    let mut flows = table(65_536);
    assert_eq!(flows.on_datagram(&header(65_535, 0)), Ok(Arrival::Newest));
}
