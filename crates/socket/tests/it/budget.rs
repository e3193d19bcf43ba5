//! The budget of a drain. Wherever it stops, no datagram is stranded or overtaken, and the end of the drain shows whether
//! more may wait. The size of the batch follows the traffic.
//!
//! These tests use no real socket. Lost edges of a real poll are tested in `edge` and `multi_poller`.

use drumfire_socket::{Drain, DrainEnd, DropReason, Fault, Receiver, ReceiverConfig};
use proptest::prelude::*;

use crate::fixtures::{IS_NATIVE, Script, Step, number_of, numbered};

/// The maximum length of a datagram in these tests, in bytes.
const MAX_BYTES: usize = 16;

/// The drains that this platform supports.
const DRAINS: &[Drain] = if IS_NATIVE { &[Drain::Recv, Drain::Recvmmsg] } else { &[Drain::Recv] };

fn receiver(script: &mut Script, drain: Drain) -> Receiver {
    let config = ReceiverConfig::default().drain(drain).max_datagram_bytes(MAX_BYTES);
    Receiver::new(script, &config).expect("a receiver")
}

/// Drains once and adds the received numbers to `seen`.
fn pass(script: &mut Script, receiver: &mut Receiver, budget: usize, seen: &mut Vec<u32>) -> DrainEnd {
    receiver.drain(script, budget, |received| {
        seen.extend(received.datagrams().map(|datagram| number_of(datagram.bytes)));
    })
}

/// Drains until the socket blocks, and checks every end on the way. The budget is spent exactly if at least as many
/// items waited as it allowed.
fn drain_in_passes(script: &mut Script, receiver: &mut Receiver, budget: usize) -> Vec<u32> {
    let mut seen = Vec::new();
    loop {
        let waiting = script.steps.len();
        let end = pass(script, receiver, budget, &mut seen);
        let taken = waiting - script.steps.len();
        assert_eq!(taken, waiting.min(budget), "budget {budget}");
        if waiting < budget {
            assert_eq!(end, DrainEnd::Blocked, "{waiting} waiting, budget {budget}");
            return seen;
        }
        assert_eq!(end, DrainEnd::BudgetSpent, "{waiting} waiting, budget {budget}");
    }
}

#[test]
fn a_drain_of_any_budget_strands_nothing_and_keeps_the_order() {
    for &drain in DRAINS {
        for is_emptied_by_short_batch in [false, true] {
            for count in [0, 1, 2, 31, 32, 33, 100] {
                for budget in 1..=count as usize + 1 {
                    let mut script = Script::new((0..count).map(numbered), is_emptied_by_short_batch);
                    let mut receiver = receiver(&mut script, drain);
                    let seen = drain_in_passes(&mut script, &mut receiver, budget);
                    assert_eq!(seen, (0..count).collect::<Vec<_>>(), "{drain:?}, budget {budget}");
                }
            }
        }
    }
}

#[test]
fn every_datagram_and_every_fault_costs_budget() {
    let items = [
        Step::Message(Vec::new()),
        Step::Message(vec![0; MAX_BYTES + 1]),
        Step::Message(vec![0; MAX_BYTES + 2]),
        Step::Fault(Fault::Interrupted),
        Step::Fault(Fault::ConnectionRefused),
        numbered(0),
    ];
    for &drain in DRAINS {
        for budget in 1..=items.len() * 4 + 1 {
            let steps = items.iter().cycle().take(items.len() * 4).cloned();
            let mut script = Script::new(steps, false);
            let mut receiver = receiver(&mut script, drain);
            let seen = drain_in_passes(&mut script, &mut receiver, budget);
            assert_eq!(seen, [0; 4], "{drain:?}, budget {budget}");
            let counts = receiver.counts();
            assert_eq!(counts.dropped(DropReason::Empty), 4);
            assert_eq!(counts.dropped(DropReason::Overlong), 4);
            assert_eq!(counts.dropped(DropReason::Truncated), 4);
            assert_eq!(counts.faults.count(Fault::Interrupted), 4);
            assert_eq!(counts.faults.count(Fault::ConnectionRefused), 4);
        }
    }
}

#[test]
fn a_budget_of_zero_receives_nothing() {
    let mut script = Script::new([numbered(1)], true);
    let mut receiver = receiver(&mut script, Drain::best());
    assert_eq!(pass(&mut script, &mut receiver, 0, &mut Vec::new()), DrainEnd::BudgetSpent);
    assert_eq!((script.steps.len(), receiver.counts().calls), (1, 0));
}

/// Steps of a socket: datagrams of every length around the maximum, and every fault.
fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (any::<u8>(), 0..MAX_BYTES + 4).prop_map(|(byte, bytes)| Step::Message(vec![byte; bytes])),
        1 => prop::sample::select(Fault::ALL.to_vec()).prop_map(Step::Fault),
    ]
}

proptest! {
    #[test]
    fn every_step_is_delivered_in_order_or_counted_by_reason(
        steps in prop::collection::vec(any_step(), 0..120), budgets in prop::collection::vec(1_usize..40, 1..8),
        is_emptied_by_short_batch: bool,
    ) {
        for &drain in DRAINS {
            let mut script = Script::new(steps.clone(), is_emptied_by_short_batch);
            let mut receiver = receiver(&mut script, drain);
            let mut seen: Vec<Vec<u8>> = Vec::new();
            for &budget in budgets.iter().cycle() {
                let waiting = script.steps.len();
                if waiting == 0 {
                    break;
                }
                receiver.drain(&mut script, budget, |received| {
                    seen.extend(received.datagrams().map(|datagram| datagram.bytes.to_vec()));
                });
                let taken = waiting - script.steps.len();
                prop_assert!((1..=budget).contains(&taken), "{taken} of {waiting}, budget {budget}");
            }
            let counts = receiver.counts();
            let messages = || steps.iter().filter_map(|step| match step {
                Step::Message(bytes) => Some(bytes),
                Step::Fault(_) => None,
            });
            let of_lengths = |lengths: std::ops::RangeInclusive<usize>| {
                messages().filter(move |bytes| lengths.contains(&bytes.len()))
            };
            let whole: Vec<_> = of_lengths(1..=MAX_BYTES).cloned().collect();
            prop_assert_eq!(&seen, &whole);
            prop_assert_eq!((counts.datagrams, counts.messages), (whole.len() as u64, whole.len() as u64));
            prop_assert_eq!(counts.bytes, whole.concat().len() as u64);
            for (reason, lengths) in [
                (DropReason::Empty, 0..=0),
                (DropReason::Overlong, MAX_BYTES + 1..=MAX_BYTES + 1),
                (DropReason::Truncated, MAX_BYTES + 2..=usize::MAX),
            ] {
                let expected = of_lengths(lengths).count() as u64;
                prop_assert!(counts.dropped(reason) == expected, "{reason:?}: {counts:?}");
            }
            prop_assert_eq!(counts.datagrams + counts.dropped_total(), messages().count() as u64);
            prop_assert_eq!(counts.calls, script.limits.len() as u64);
            for fault in Fault::ALL {
                let scripted = steps.iter().filter(|step| matches!(step, Step::Fault(of) if *of == fault)).count() as u64;
                let counted = counts.faults.count(fault);
                // An empty socket returns would-block, in addition to the faults of the script.
                let is_end = fault == Fault::WouldBlock;
                prop_assert!(counted == scripted || (is_end && counted > scripted), "{fault}: {counted}, {scripted}");
            }
        }
    }
}

#[cfg(all(target_os = "linux", not(feature = "portable")))]
mod batches {
    use super::*;

    /// Passes after which the batch has adapted to any change of traffic: five doublings lead from 1 to 32.
    const ADAPTING_PASSES: usize = 6;

    fn feed(script: &mut Script, receiver: &mut Receiver, datagrams: u32) -> usize {
        script.steps.extend((0..datagrams).map(numbered));
        script.limits.clear();
        let end = pass(script, receiver, 1_024, &mut Vec::new());
        assert_eq!(end, DrainEnd::Blocked);
        script.limits.len()
    }

    #[test]
    fn the_batch_adapts_until_one_call_serves_a_pass() {
        let mut script = Script::new([], true);
        let mut receiver = receiver(&mut script, Drain::Recvmmsg);
        for datagrams in [0, 1, 31, 2, 30, 3, 29, 8, 9, 15, 16, 17, 0, 31, 5, 4, 7] {
            for _ in 0..ADAPTING_PASSES {
                feed(&mut script, &mut receiver, datagrams);
            }
            assert_eq!(feed(&mut script, &mut receiver, datagrams), 1, "{datagrams} per pass");
            let limit = (datagrams as usize + 1).next_power_of_two();
            assert_eq!(script.limits, [limit], "{datagrams} per pass");
        }
    }

    #[test]
    fn every_call_is_offered_one_slot_to_the_maximum() {
        for max_batch in 1..=32 {
            let mut script = Script::new([], true);
            let config = ReceiverConfig::default().drain(Drain::Recvmmsg).max_batch(max_batch);
            let mut receiver = Receiver::new(&mut script, &config).expect("a receiver");
            for datagrams in [0, 200, 0, 0, 0, 0, 0, 0, 0, 200, 1, 31, 32, 33, 64] {
                feed(&mut script, &mut receiver, datagrams);
                assert!(script.limits.iter().all(|limit| (1..=max_batch).contains(limit)));
                // Full calls for the datagrams, one short or failing call for the end, and calls until the batch has
                // grown.
                assert!(script.limits.len() <= datagrams as usize / max_batch + 7);
            }
        }
    }

    #[test]
    fn full_load_fills_whole_batches() {
        let mut script = Script::new([], true);
        let mut receiver = receiver(&mut script, Drain::Recvmmsg);
        for _ in 0..ADAPTING_PASSES {
            feed(&mut script, &mut receiver, 320);
        }
        feed(&mut script, &mut receiver, 320);
        assert_eq!(script.limits, [32; 11]);
    }
}
