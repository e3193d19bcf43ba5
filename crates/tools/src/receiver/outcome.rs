//! The report of a run, from the totals of its threads and the sender's book. Pure arithmetic.

use std::collections::BTreeMap;
use std::time::Duration;

use drumfire_socket::DropReason;
use hdrhistogram::Histogram;

use super::group::WorkerTotals;
use super::plan::Plan;
use super::promise::{self, Delivery};
use super::state::GroupSample;
use crate::control::{Finished, ReceiverBooks};
use crate::flows::{FlowCount, FlowTotals};
use crate::host::{self, ThreadSample};
use crate::report::{
    Accounting, Counted, Granted, Interface, KERNEL_RECEIVE_QUEUE, LIMITED_BY_PROVIDER, LIMITED_BY_SENDER,
    Latency, Messages, Report, Scope, ThreadCount,
};
use crate::table::thousands;
use crate::traffic::Traffic;

/// The name of datagrams so far behind in their flow that a second copy cannot be detected.
const TOO_OLD: &str = "too_old";

/// The maximum number of datagrams in a train. A train that the kernel dropped lost at least one and at most these.
const MAX_TRAIN: u64 = 64;

/// The minimum number of whole seconds in which a rate can be flat.
const FLAT_SECONDS: usize = 5;

/// The maximum difference of a flat rate from its mean, as a share of the mean.
const FLAT_SHARE: f64 = 0.005;

/// The note of a report whose kernel counts no drops.
const UNCOUNTED: &str =
    "the kernel's drops are not known on this platform: what it dropped is in the unexplained remainder";

/// The note of a run that may see trains.
const TRAINS: &str =
    "kernel drops are exact to the datagram as long as no trains are taken; --gro off makes sure";

/// The measurements of a run, outside its threads.
pub(super) struct Measured {
    pub(super) traffic: Traffic,
    pub(super) finished: Finished,
    pub(super) scope: Scope,
    pub(super) window: Duration,
    pub(super) first: GroupSample,
    pub(super) last: GroupSample,
    /// Packets per second by thread, for each interval.
    pub(super) rates: Vec<Vec<u64>>,
    pub(super) granted: Granted,
    pub(super) interface: Option<Interface>,
    pub(super) steal_share: Option<f64>,
}

/// A run with two books.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The report, without a command and flags.
    pub report: Report,
    /// Receive calls of all threads, including empty ones.
    pub receive_calls: u64,
    /// The messages that those calls returned. A train counts once.
    pub received_messages: u64,
}

impl Outcome {
    pub(super) fn of(plan: &Plan, measured: &Measured, totals: &[WorkerTotals]) -> Self {
        let flows = flow_totals(totals, measured.traffic.flows);
        let has_messages = measured.finished.messages.is_some();
        // Duplicates and order of messages are checked against the promise of their mode.
        let sums = flows.as_ref().filter(|_| !has_messages).map(FlowTotals::sum);
        let pairs = measured.first.cpu.iter().zip(&measured.last.cpu);
        let cpu: Vec<Option<ThreadSample>> =
            pairs.map(|(first, last)| Some(last.as_ref()?.since(first.as_ref()?))).collect();
        let threads = threads(totals, measured, &cpu);
        let received = threads.iter().map(|thread| thread.received).sum();
        let mut notes = Vec::new();
        let mut foreign = strays(totals);
        let books = books(measured, totals, received, flows.as_ref(), &mut foreign, &mut notes);
        let Measured { traffic, finished, scope, window, rates, granted, .. } = measured;
        let deliveries: Vec<_> = totals.iter().filter_map(|totals| totals.stage.delivery.as_ref()).collect();
        let delivered = totals.iter().map(|totals| totals.stage.ours).sum();
        let messages = flows.as_ref().and_then(|flows| {
            promise::messages(traffic, finished, *scope, received, delivered, flows, &deliveries)
        });
        let evidence = RateEvidence {
            scope: *scope,
            rates,
            kernel_drops: measured.kernel_drops().unwrap_or(0),
            lost_on_way: books.unexplained().unsigned_abs(),
            dropped: books.dropped_count(),
            sends_all_it_can: traffic.rate == 0 || finished.late,
            is_held_back: messages.as_ref().is_some_and(Messages::is_held_back),
        };
        notes.extend(sender_notes(finished));
        notes.extend(plan.may_see_trains().then(|| TRAINS.to_owned()));
        notes.extend(totals.iter().flat_map(|totals| {
            let index = totals.index;
            totals.stage.notes.iter().map(move |note| format!("thread {index}: {note}"))
        }));
        let counted = Counted {
            name: "receiver".to_owned(),
            machine: host::machine(),
            window: *window,
            books,
            threads,
            granted: Granted {
                gso: finished.granted.gso.or(granted.gso),
                send_buffer_bytes: finished.granted.send_buffer_bytes.or(granted.send_buffer_bytes),
                ..granted.clone()
            },
            ..Counted::default()
        };
        let run_delays = cpu.iter().filter_map(|cpu| cpu.as_ref()?.run_delay_share(*window));
        let report = Report {
            interface: measured.interface.clone(),
            sender_cpu_s: (finished.cpu_ns > 0).then(|| Duration::from_nanos(finished.cpu_ns).as_secs_f64()),
            foreign,
            latency_ns: latency(totals),
            offered: (traffic.rate > 0 && !has_messages).then_some(finished.offered),
            limited_by: evidence.limited_by().map(str::to_owned),
            duplicated: sums.map(|sums| sums.duplicated),
            reordered: sums.map(|sums| sums.reordered),
            run_delay_share: run_delays.reduce(f64::max),
            steal_share: measured.steal_share,
            notes,
            messages,
            pps_per_second: rates.clone(),
            ..Report::of(counted)
        };
        Self {
            report,
            receive_calls: totals.iter().map(WorkerTotals::calls).sum(),
            received_messages: totals.iter().map(WorkerTotals::messages).sum(),
        }
    }

    /// The books for the control connection.
    pub(super) fn receiver_books(&self) -> ReceiverBooks {
        let Report { books, foreign, duplicated, reordered, messages, .. } = &self.report;
        ReceiverBooks {
            datagrams: books.clone(),
            foreign: foreign.clone(),
            duplicated: *duplicated,
            reordered: *reordered,
            messages: messages.clone(),
        }
    }
}

/// The books of datagrams. Drops of other programs' datagrams are added to `foreign`.
fn books(
    measured: &Measured,
    totals: &[WorkerTotals],
    received: u64,
    flows: Option<&FlowTotals>,
    foreign: &mut BTreeMap<String, u64>,
    notes: &mut Vec<String>,
) -> Accounting {
    let Measured { finished, scope, granted, .. } = measured;
    let is_gro_on = granted.gro == Some(true);
    let has_messages = finished.messages.is_some();
    let mut books = Accounting::new(finished.sent, received).within(*scope);
    let too_old = flows.map_or(0, |flows| flows.sum().too_old);
    let truncated = totals.iter().map(|totals| totals.dropped(DropReason::ControlTruncated)).sum();
    let deliveries = totals.iter().filter_map(|totals| totals.stage.delivery.as_ref());
    let dropped = deliveries.flat_map(Delivery::drops);
    let own =
        [(TOO_OLD, if has_messages { 0 } else { too_old }), (DropReason::ControlTruncated.name(), truncated)];
    for (name, count) in own.into_iter().chain(dropped).filter(|(_, count)| *count > 0) {
        books = books.dropped(name, count);
    }
    let Some(counted) = measured.kernel_drops() else {
        notes.push(UNCOUNTED.to_owned());
        return books;
    };
    let lost = if has_messages {
        Some(u64::try_from(books.unexplained()).unwrap_or(0))
    } else {
        // Datagrams behind the window are in no flow's unique count. They have a line in the books.
        flows.map(|flows| flows.lost(&finished.sent_per_flow).saturating_sub(too_old))
    };
    let lost = lost.filter(|_| counted > 0);
    // Handshakes are in no book, so the kernel may have dropped datagrams that are not missing.
    let has_strangers = has_messages || !foreign.is_empty();
    if let Some(lost) = lost.filter(|_| is_gro_on) {
        notes.push(format!(
            "with GRO the kernel counts trains: it dropped {}, and the gaps in the flows are {} datagrams",
            thousands(counted),
            thousands(lost)
        ));
    }
    if lost.is_some() && has_strangers && *scope == Scope::TwoHosts {
        notes.push("strangers came too: some of the kernel's drops may have been theirs".to_owned());
    }
    let evidence = DropEvidence { counted, lost, is_gro_on, has_strangers, scope: *scope };
    let (ours, of_strangers) = evidence.kernel_drops();
    if of_strangers > 0 {
        foreign.insert(KERNEL_RECEIVE_QUEUE.to_owned(), of_strangers);
    }
    books.dropped(KERNEL_RECEIVE_QUEUE, ours)
}

impl Measured {
    /// Drops that the kernel counted during the run; `None` if it does not count them.
    fn kernel_drops(&self) -> Option<u64> {
        Some(self.last.kernel_drops()?.saturating_sub(self.first.kernel_drops()?))
    }
}

/// The facts about the kernel's drops of a run, which are compared with the gaps in the flows.
#[derive(Clone, Copy, Debug)]
struct DropEvidence {
    /// Drops that the kernel counted: datagrams, or trains with GRO on.
    counted: u64,
    /// Datagrams missing in the flows; `None` if flows were not followed.
    lost: Option<u64>,
    is_gro_on: bool,
    /// Whether datagrams came that the sender did not send.
    has_strangers: bool,
    scope: Scope,
}

impl DropEvidence {
    /// Returns the kernel's drops of the sender's datagrams, and of those of other programs.
    ///
    /// Without GRO the kernel's count is exact. If strangers sent too, the drops beyond the gaps were theirs. With GRO the
    /// kernel counts trains, so the gaps show how many datagrams those were. A difference remains unexplained.
    fn kernel_drops(&self) -> (u64, u64) {
        let Self { counted, lost, is_gro_on, has_strangers, scope } = *self;
        let ours = match (lost, is_gro_on) {
            (Some(lost), false) if has_strangers => counted.min(lost),
            // Between two hosts the wire may have lost some of them. A dropped train proves one datagram only.
            (Some(lost), true) if scope == Scope::TwoHosts => counted.min(lost),
            (Some(lost), true) => lost.min(counted.saturating_mul(MAX_TRAIN)),
            (_, _) => counted,
        };
        (ours, if is_gro_on { 0 } else { counted.saturating_sub(ours) })
    }
}

/// The facts about the rate of a run.
#[derive(Clone, Copy, Debug)]
struct RateEvidence<'a> {
    scope: Scope,
    rates: &'a [Vec<u64>],
    /// Datagrams that the receiver's kernel dropped.
    kernel_drops: u64,
    /// Datagrams that are missing without a reason. Between two hosts the network lost them.
    lost_on_way: u64,
    /// Datagrams of the books that were dropped for any reason.
    dropped: u64,
    /// Whether the sender sent as fast as it could, or fell behind its schedule.
    sends_all_it_can: bool,
    /// Whether acks or memory held the sender back.
    is_held_back: bool,
}

impl RateEvidence<'_> {
    /// Returns the limit of the rate; `None` if the receiver was the limit, or if it received everything that was offered.
    fn limited_by(&self) -> Option<&'static str> {
        if self.is_held_back {
            return None;
        }
        // No socket overflowed, and the rate hardly changed between seconds. A sender at its limit is less even, and a scheduled
        // rate arrives without loss unless the network limits it.
        let is_providers = self.scope == Scope::TwoHosts
            && self.kernel_drops == 0
            && (self.sends_all_it_can || self.lost_on_way > 0)
            && is_flat(self.rates);
        if is_providers {
            return Some(LIMITED_BY_PROVIDER);
        }
        let is_dropless = self.dropped == 0 && self.lost_on_way == 0;
        (is_dropless && self.sends_all_it_can).then_some(LIMITED_BY_SENDER)
    }
}

/// Returns whether the sum of all threads was the same in every second, within 0.5 %. Such a rate is limited by something.
///
/// `rates` has a row for each second and a column for each thread. The first and the last second are ignored, because the run
/// begins and ends in them. Fewer than five others are not flat.
fn is_flat(rates: &[Vec<u64>]) -> bool {
    let [_, whole @ .., _] = rates else { return false };
    let sums: Vec<f64> = whole.iter().map(|rates| rates.iter().sum::<u64>() as f64).collect();
    let mean = sums.iter().sum::<f64>() / sums.len() as f64;
    sums.len() >= FLAT_SECONDS
        && mean > 0.0
        && sums.iter().all(|rate| (rate - mean).abs() <= mean * FLAT_SHARE)
}

/// Arrivals outside the books, by name: unusable datagrams, and datagrams of other programs or earlier runs.
pub(super) fn strays(totals: &[WorkerTotals]) -> BTreeMap<String, u64> {
    let mut strays = BTreeMap::new();
    for totals in totals {
        for (name, count) in &totals.stage.strays {
            *strays.entry(name.clone()).or_default() += count;
        }
        for reason in [DropReason::Empty, DropReason::Truncated, DropReason::Overlong] {
            let count = totals.dropped(reason);
            if count > 0 {
                *strays.entry(reason.name().to_owned()).or_default() += count;
            }
        }
    }
    strays
}

fn flow_totals(totals: &[WorkerTotals], flows: u32) -> Option<FlowTotals> {
    let mut sum = FlowTotals::new(flows as usize);
    for totals in totals {
        sum.add(totals.stage.flows.as_ref()?);
    }
    Some(sum)
}

fn threads(totals: &[WorkerTotals], measured: &Measured, cpu: &[Option<ThreadSample>]) -> Vec<ThreadCount> {
    let queues = |index: usize| measured.last.queues.get(index)?.zip(*measured.first.queues.get(index)?);
    let threads = totals.iter().map(|totals| ThreadCount {
        index: totals.index,
        received: received(totals),
        sent: None,
        kernel_drops: queues(totals.index as usize).map(|(last, first)| last.drops - first.drops),
        cpu: cpu.get(totals.index as usize).and_then(|cpu| Some(cpu.as_ref()?.cpu_time())),
    });
    threads.collect()
}

/// Datagrams of the books that a thread received. Each counts once if its stage detects duplicates.
fn received(totals: &WorkerTotals) -> u64 {
    if let Some(delivery) = &totals.stage.delivery {
        return delivery.packets();
    }
    let flows = totals.stage.flows.as_ref();
    flows.map_or(totals.stage.ours, |flows| flows.iter().map(FlowCount::unique).sum())
}

fn latency(totals: &[WorkerTotals]) -> Option<Latency> {
    let histograms = totals.iter().filter_map(|totals| totals.stage.latency.clone());
    let sum = histograms.reduce(|mut sum: Histogram<u64>, histogram| {
        // All have the same bounds, so that adding cannot fail.
        let _ = sum.add(histogram);
        sum
    });
    Latency::of(&sum?)
}

fn sender_notes(finished: &Finished) -> Vec<String> {
    let mut notes = Vec::new();
    let errors: Vec<String> =
        finished.errors.iter().map(|(name, count)| format!("{name} {}", thousands(*count))).collect();
    if !errors.is_empty() {
        notes.push(format!("the sender's kernel did not take some datagrams: {}", errors.join(", ")));
    }
    let Some(messages) = &finished.messages else { return notes };
    if messages.blocked > 0 {
        notes.push(format!(
            "messages had to wait {} times until those before were acknowledged",
            thousands(messages.blocked)
        ));
    }
    if messages.unsettled > 0 {
        notes.push(format!("{} flows were not settled when the sender ended", thousands(messages.unsettled)));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATAGRAMS: DropEvidence = DropEvidence {
        counted: 100,
        lost: Some(100),
        is_gro_on: false,
        has_strangers: false,
        scope: Scope::OneHost,
    };

    #[test]
    fn kernel_drops_are_shared_between_the_sender_and_strangers() {
        let exact = DATAGRAMS;
        let strangers = DropEvidence { has_strangers: true, ..DATAGRAMS };
        let trains = DropEvidence { counted: 2, is_gro_on: true, ..DATAGRAMS };
        let apart = DropEvidence { scope: Scope::TwoHosts, ..trains };
        for (evidence, lost, expected) in [
            (exact, None, (100, 0)),
            (exact, Some(99), (100, 0)),
            (exact, Some(101), (100, 0)),
            (strangers, None, (100, 0)),
            (strangers, Some(0), (0, 100)),
            (strangers, Some(99), (99, 1)),
            (strangers, Some(101), (100, 0)),
            // A dropped train is at most 64 datagrams, or one between hosts.
            (trains, Some(1), (1, 0)),
            (trains, Some(128), (128, 0)),
            (trains, Some(129), (128, 0)),
            (DropEvidence { counted: u64::MAX, ..trains }, Some(5), (5, 0)),
            (apart, Some(1), (1, 0)),
            (apart, Some(3), (2, 0)),
        ] {
            assert_eq!(DropEvidence { lost, ..evidence }.kernel_drops(), expected, "{evidence:?} {lost:?}");
        }
    }

    fn evidence(rates: &[Vec<u64>]) -> RateEvidence<'_> {
        RateEvidence {
            scope: Scope::TwoHosts,
            rates,
            kernel_drops: 0,
            lost_on_way: 0,
            dropped: 0,
            sends_all_it_can: true,
            is_held_back: false,
        }
    }

    #[test]
    fn a_flat_rate_between_two_hosts_is_the_providers() {
        let flat = [50_000, 101_000, 101_400, 100_600, 101_000, 101_200, 40_000].map(|pps| vec![pps]);
        let flat = evidence(&flat);
        assert_eq!(flat.limited_by(), Some(LIMITED_BY_PROVIDER));
        let scheduled = RateEvidence { sends_all_it_can: false, ..flat };
        assert_eq!(scheduled.limited_by(), None, "a schedule is flat by itself");
        assert_eq!(RateEvidence { lost_on_way: 7, ..scheduled }.limited_by(), Some(LIMITED_BY_PROVIDER));
        let here = RateEvidence { scope: Scope::OneHost, ..flat };
        assert_eq!(here.limited_by(), Some(LIMITED_BY_SENDER), "there is no network");
        let overflowed = RateEvidence { kernel_drops: 7, dropped: 7, ..flat };
        assert_eq!(overflowed.limited_by(), None, "the receiver took no more");
    }

    #[test]
    fn a_rate_without_loss_is_the_senders() {
        let uneven = [50_000, 101_000, 90_000, 120_000, 101_000, 99_000, 40_000].map(|pps| vec![pps]);
        let uneven = evidence(&uneven);
        assert_eq!(uneven.limited_by(), Some(LIMITED_BY_SENDER));
        assert_eq!(RateEvidence { sends_all_it_can: false, ..uneven }.limited_by(), None);
        assert_eq!(RateEvidence { dropped: 1, ..uneven }.limited_by(), None);
        assert_eq!(RateEvidence { lost_on_way: 1, ..uneven }.limited_by(), None);
        assert_eq!(RateEvidence { is_held_back: true, ..uneven }.limited_by(), None);
    }
    #[test]
    fn a_rate_is_flat_when_something_holds_it() {
        let run = |rates: &[u64]| rates.iter().map(|pps| vec![*pps, 1_000]).collect::<Vec<_>>();
        // The limit of a provider, and one second above it.
        let held = [40_000, 100_000, 100_500, 99_500, 100_200, 99_800, 7];
        assert!(is_flat(&run(&held)));
        assert!(!is_flat(&run(&held[..6])), "four whole seconds are too few");
        assert!(!is_flat(&run(&[40_000, 100_000, 100_500, 99_500, 101_000, 99_800, 7])));
        assert!(!is_flat(&[]) && !is_flat(&vec![vec![0]; 8]), "nothing is no rate");
    }
}
