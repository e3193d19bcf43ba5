//! The report of a run, from the totals of its threads and the sender's book. Pure arithmetic.

use std::collections::BTreeMap;
use std::time::Duration;

use drumfire_socket::DropReason;
use hdrhistogram::Histogram;

use super::plan::Plan;
use super::promise::{self, Delivery};
use super::stages::ThreadBook;
use super::state::GroupSample;
use crate::cli::Traffic;
use crate::control::Finished;
use crate::flows::{self, FlowCount};
use crate::host::{self, ThreadSample};
use crate::report::{
    Accounting, Granted, KERNEL_RECEIVE_QUEUE, LIMITED_BY_PROVIDER, LIMITED_BY_SENDER, Latency, Messages,
    Report, Scope, ThreadReport,
};
use crate::table::{named, thousands};

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
    "kernel drops are exact to the datagram as long as no trains are received; --gro off makes sure";

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
    pub(super) host_drops: BTreeMap<String, u64>,
    pub(super) steal_share: Option<f64>,
}

/// A run with two books.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The report, without a command and flags.
    pub report: Report,
    /// Receive calls of all threads, including empty ones.
    pub receive_calls: u64,
}

impl Outcome {
    pub(super) fn of(plan: &Plan, measured: &Measured, totals: &[ThreadBook]) -> Self {
        let flows = flow_totals(totals, measured.traffic.load.flows);
        let has_messages = measured.finished.messages.is_some();
        // Duplicates and order of messages are checked against the promise of their mode.
        let sums = flows.as_ref().filter(|_| !has_messages).map(|flows| flows.iter().sum::<FlowCount>());
        let pairs = measured.first.cpu.iter().zip(&measured.last.cpu);
        let cpu: Vec<Option<ThreadSample>> =
            pairs.map(|(first, last)| Some(last.as_ref()?.since(first.as_ref()?))).collect();
        let threads = threads(totals, measured, &cpu);
        let received = threads.iter().map(|thread| thread.received).sum();
        let mut notes = Vec::new();
        let mut foreign = strays(totals);
        let books = books(measured, totals, received, flows.as_deref(), &mut foreign, &mut notes);
        let Measured { traffic, finished, scope, window, rates, granted, .. } = measured;
        let deliveries: Vec<_> = totals.iter().filter_map(|totals| totals.delivery.as_ref()).collect();
        let delivered = totals.iter().map(|totals| totals.ours).sum();
        let messages = flows.as_ref().and_then(|flows| {
            promise::messages(traffic, finished, *scope, received, delivered, flows, &deliveries)
        });
        // Acks or memory that hold the sender back are the limit of neither end.
        let is_held_back = messages.as_ref().is_some_and(Messages::is_held_back);
        let overflows = measured.kernel_drops().unwrap_or(0);
        let limit = limited_by(&books, overflows, rates, traffic.load.rate == 0 || finished.late);
        let limit = limit.filter(|_| !is_held_back);
        notes.extend(sender_notes(finished));
        notes.extend(plan.may_see_trains().then(|| TRAINS.to_owned()));
        let run_delays = cpu.iter().filter_map(|cpu| cpu.as_ref()?.run_delay_share(*window));
        let report = Report {
            name: "receiver".to_owned(),
            machine: host::machine(),
            window_s: window.as_secs_f64(),
            books,
            threads,
            granted: Granted {
                gso: finished.granted.gso.or(granted.gso),
                send_buffer_bytes: finished.granted.send_buffer_bytes.or(granted.send_buffer_bytes),
                ..granted.clone()
            },
            host_drops: measured.host_drops.clone(),
            sender_cpu_s: (finished.cpu_ns > 0).then(|| Duration::from_nanos(finished.cpu_ns).as_secs_f64()),
            foreign,
            latency_ns: latency(totals),
            offered: (traffic.load.rate > 0 && !has_messages).then_some(finished.offered),
            limited_by: limit.map(str::to_owned),
            duplicated: sums.map(|sums| sums.duplicated),
            reordered: sums.map(|sums| sums.reordered),
            run_delay_share: run_delays.reduce(f64::max),
            steal_share: measured.steal_share,
            notes,
            messages,
            pps_per_second: rates.clone(),
            ..Report::default()
        };
        Self { report: report.derived(), receive_calls: totals.iter().map(|totals| totals.calls).sum() }
    }
}

/// The books of datagrams. Drops of other programs' datagrams are added to `foreign`.
fn books(
    measured: &Measured,
    totals: &[ThreadBook],
    received: u64,
    flows: Option<&[FlowCount]>,
    foreign: &mut BTreeMap<String, u64>,
    notes: &mut Vec<String>,
) -> Accounting {
    let Measured { finished, scope, granted, .. } = measured;
    let is_gro_on = granted.gro == Some(true);
    let has_messages = finished.messages.is_some();
    let mut books = Accounting::new(finished.sent, received).within(*scope);
    let too_old = flows.map_or(0, |flows| flows.iter().sum::<FlowCount>().too_old);
    let truncated = totals.iter().map(|totals| totals.truncated).sum();
    let deliveries = totals.iter().filter_map(|totals| totals.delivery.as_ref());
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
        flows.map(|flows| flows::lost(flows, &finished.sent_per_flow).saturating_sub(too_old))
    };
    let lost = lost.filter(|_| counted > 0);
    // Handshakes are in no book, so the kernel may have dropped datagrams that are not missing.
    let has_foreign = has_messages || !foreign.is_empty();
    if let Some(lost) = lost.filter(|_| is_gro_on) {
        notes.push(format!(
            "with GRO the kernel counts trains: it dropped {}, and the gaps in the flows are {} datagrams",
            thousands(counted),
            thousands(lost)
        ));
    }
    if lost.is_some() && has_foreign && *scope == Scope::TwoHosts {
        notes.push(
            "other programs sent datagrams too: some of the kernel's drops may have been theirs".to_owned(),
        );
    }
    let (ours, of_others) = kernel_drops(counted, lost, is_gro_on, has_foreign, *scope);
    if of_others > 0 {
        foreign.insert(KERNEL_RECEIVE_QUEUE.to_owned(), of_others);
    }
    books.dropped(KERNEL_RECEIVE_QUEUE, ours)
}

impl Measured {
    /// Drops that the kernel counted during the run; `None` if it does not count them.
    fn kernel_drops(&self) -> Option<u64> {
        Some(self.last.kernel_drops()?.saturating_sub(self.first.kernel_drops()?))
    }
}

/// Returns the kernel's drops of the sender's datagrams, and of those of other programs.
///
/// `counted` has the drops that the kernel counted: datagrams, or trains with GRO on. `lost` datagrams are missing in
/// the flows; `None` if flows were not followed. Without GRO the kernel's count is exact. If other programs sent too,
/// the drops beyond the gaps were theirs. With GRO the kernel counts trains, so the gaps show how many datagrams those
/// were. A difference remains unexplained.
fn kernel_drops(
    counted: u64,
    lost: Option<u64>,
    is_gro_on: bool,
    has_foreign: bool,
    scope: Scope,
) -> (u64, u64) {
    let ours = match (lost, is_gro_on) {
        (Some(lost), false) if has_foreign => counted.min(lost),
        // Between two hosts the wire may have lost some of them. A dropped train proves one datagram only.
        (Some(lost), true) if scope == Scope::TwoHosts => counted.min(lost),
        (Some(lost), true) => lost.min(counted.saturating_mul(MAX_TRAIN)),
        (_, _) => counted,
    };
    (ours, if is_gro_on { 0 } else { counted.saturating_sub(ours) })
}

/// Returns the limit of the rate; `None` if the receiver was the limit, or if it received everything that was offered.
///
/// `overflows` counts the drops of the kernel, of any sender. `sends_all_it_can` is set if the sender sent as fast as it could, or fell
/// behind its schedule.
fn limited_by(
    books: &Accounting,
    overflows: u64,
    rates: &[Vec<u64>],
    sends_all_it_can: bool,
) -> Option<&'static str> {
    let is_dropless = books.dropped_count() == 0 && books.close();
    // No socket overflowed, and the rate hardly changed between seconds. A sender at its limit is less even, and a scheduled rate
    // arrives without loss unless the network limits it.
    let is_providers = books.scope == Scope::TwoHosts
        && overflows == 0
        && (sends_all_it_can || !books.close())
        && is_flat(rates);
    if is_providers {
        return Some(LIMITED_BY_PROVIDER);
    }
    (is_dropless && sends_all_it_can).then_some(LIMITED_BY_SENDER)
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
pub(super) fn strays(totals: &[ThreadBook]) -> BTreeMap<String, u64> {
    let mut strays = BTreeMap::new();
    for (name, count) in totals.iter().flat_map(|totals| &totals.strays) {
        *strays.entry((*name).to_owned()).or_default() += count;
    }
    strays
}

fn flow_totals(totals: &[ThreadBook], flows: u32) -> Option<Vec<FlowCount>> {
    let mut sum = vec![FlowCount::default(); flows as usize];
    for totals in totals {
        flows::add(&mut sum, totals.flows()?);
    }
    Some(sum)
}

fn threads(totals: &[ThreadBook], measured: &Measured, cpu: &[Option<ThreadSample>]) -> Vec<ThreadReport> {
    let queues = |index: usize| measured.last.queues.get(index)?.zip(*measured.first.queues.get(index)?);
    let threads = totals.iter().map(|totals| {
        let place = totals.index as usize;
        let thread = ThreadReport {
            index: totals.index,
            received: received(totals),
            kernel_drops: queues(place).map(|(last, first)| last.drops - first.drops),
            ..ThreadReport::default()
        };
        thread.with_cpu(cpu.get(place).and_then(|cpu| Some(cpu.as_ref()?.cpu_time())))
    });
    threads.collect()
}

/// Datagrams of the books that a thread received. Each counts once if its stage detects duplicates.
fn received(totals: &ThreadBook) -> u64 {
    if let Some(delivery) = &totals.delivery {
        return delivery.packets();
    }
    let flows = totals.flows();
    flows.map_or(totals.ours, |flows| flows.iter().map(FlowCount::unique).sum())
}

fn latency(totals: &[ThreadBook]) -> Option<Latency> {
    let histograms = totals.iter().filter_map(|totals| totals.latency.clone());
    let sum = histograms.reduce(|mut sum: Histogram<u64>, histogram| {
        // All have the same bounds, so that adding cannot fail.
        let _ = sum.add(histogram);
        sum
    });
    Latency::of(&sum?)
}

fn sender_notes(finished: &Finished) -> Vec<String> {
    let errors = named(&finished.errors);
    let errors = errors.map(|errors| format!("the sender's kernel refused some datagrams: {errors}"));
    let mut notes = Vec::from_iter(errors);
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

    #[test]
    fn kernel_drops_are_shared_between_the_sender_and_others() {
        let datagrams = |lost, has_foreign| kernel_drops(100, lost, false, has_foreign, Scope::OneHost);
        for (lost, expected) in [(None, (100, 0)), (Some(99), (100, 0)), (Some(101), (100, 0))] {
            assert_eq!(datagrams(lost, false), expected, "{lost:?}: the count is exact");
        }
        for (lost, expected) in
            [(None, (100, 0)), (Some(0), (0, 100)), (Some(99), (99, 1)), (Some(101), (100, 0))]
        {
            assert_eq!(datagrams(lost, true), expected, "{lost:?}: other programs sent too");
        }
        // A dropped train is at most 64 datagrams, or one between hosts.
        for (trains, lost, scope, ours) in [
            (2, 1, Scope::OneHost, 1),
            (2, 128, Scope::OneHost, 128),
            (2, 129, Scope::OneHost, 128),
            (u64::MAX, 5, Scope::OneHost, 5),
            (2, 1, Scope::TwoHosts, 1),
            (2, 3, Scope::TwoHosts, 2),
        ] {
            assert_eq!(kernel_drops(trains, Some(lost), true, false, scope), (ours, 0), "{trains} {lost}");
        }
    }

    fn run(rates: [u64; 7]) -> Vec<Vec<u64>> {
        rates.map(|pps| vec![pps, 1_000]).into()
    }

    #[test]
    fn a_flat_rate_between_two_hosts_is_the_providers() {
        let flat = run([50_000, 101_000, 101_400, 100_600, 101_000, 101_200, 40_000]);
        let apart = |received| Accounting::new(9, received).within(Scope::TwoHosts);
        assert_eq!(limited_by(&apart(9), 0, &flat, true), Some(LIMITED_BY_PROVIDER));
        assert_eq!(limited_by(&apart(9), 0, &flat, false), None, "a schedule is flat by itself");
        assert_eq!(limited_by(&apart(2), 0, &flat, false), Some(LIMITED_BY_PROVIDER));
        assert_eq!(limited_by(&Accounting::new(9, 9), 0, &flat, true), Some(LIMITED_BY_SENDER), "no network");
        let overflowed = apart(2).dropped(KERNEL_RECEIVE_QUEUE, 7);
        assert_eq!(limited_by(&overflowed, 7, &flat, true), None, "the receiver took no more");
    }

    #[test]
    fn a_rate_without_loss_is_the_senders() {
        let uneven = run([50_000, 101_000, 90_000, 120_000, 101_000, 99_000, 40_000]);
        let apart = |received| Accounting::new(9, received).within(Scope::TwoHosts);
        assert_eq!(limited_by(&apart(9), 0, &uneven, true), Some(LIMITED_BY_SENDER));
        assert_eq!(limited_by(&apart(9), 0, &uneven, false), None);
        assert_eq!(limited_by(&apart(8).dropped("a", 1), 0, &uneven, true), None);
        assert_eq!(limited_by(&apart(8), 0, &uneven, true), None);
    }

    #[test]
    fn a_rate_is_flat_when_something_holds_it() {
        // The limit of a provider, and one second above it.
        let held = run([40_000, 100_000, 100_500, 99_500, 100_200, 99_800, 7]);
        assert!(is_flat(&held));
        assert!(!is_flat(&held[..6]), "four whole seconds are too few");
        assert!(!is_flat(&run([40_000, 100_000, 100_500, 99_500, 101_000, 99_800, 7])));
        assert!(!is_flat(&[]) && !is_flat(&vec![vec![0]; 8]), "nothing is no rate");
    }
}
