//! The result of a run: its books, made from the sender's totals, the threads' totals, and the kernel's drops.

use std::collections::BTreeMap;
use std::time::Duration;

use drumfire_socket::DropReason;
use hdrhistogram::Histogram;
use serde_json::Value;

use super::delivery;
use super::group::GroupSample;
use super::kernel_drops::{DropEvidence, KernelDrops};
use super::limit::{self, RateEvidence};
use super::plan::Plan;
use super::worker::WorkerTotals;
use crate::control::{self, Finished, Hello};
use crate::csv::Sample;
use crate::flows::{FlowCount, FlowTotals};
use crate::host::{self, ThreadSample};
use crate::report::{
    Books, Counted, Flags, Granted, Interface, KERNEL_RECEIVE_QUEUE, Latency, Messages, Report, Scope,
    ThreadCount,
};
use crate::table::thousands;

/// The note for a system that does not count its drops.
const UNCOUNTED: &str =
    "the kernel's drops are not known on this platform: what is missing may be among them";

/// Datagrams behind the window of their flow. They are the sender's, but duplicates cannot be detected there.
const TOO_OLD: &str = "too_old";

/// The measurements of a finished session, before the threads returned their totals.
pub(super) struct Measured {
    pub(super) hello: Hello,
    pub(super) finished: Finished,
    pub(super) scope: Scope,
    pub(super) window: Duration,
    pub(super) first: GroupSample,
    pub(super) last: GroupSample,
    pub(super) samples: Vec<Sample>,
    pub(super) granted: Granted,
    pub(super) is_gro_on: bool,
    pub(super) interface: Option<Interface>,
    pub(super) steal_share: Option<f64>,
}

/// A run with two books.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The books of datagrams.
    pub books: Books,
    /// The counters of each thread.
    pub threads: Vec<ThreadCount>,
    /// From the start to the last datagram.
    pub window: Duration,
    /// The settings that the kernel granted.
    pub granted: Granted,
    /// The network interface of this run and its counters.
    pub interface: Option<Interface>,
    /// Arrivals that the sender never sent, by name.
    pub foreign: BTreeMap<String, u64>,
    /// Receive calls and their messages, of all threads.
    pub calls: CallCounts,
    /// Second copies; `None` if the stage does not detect them.
    pub duplicated: Option<u64>,
    /// Arrivals behind a later one of their flow; `None` if the stage does not detect them.
    pub reordered: Option<u64>,
    /// Latency from the intended time of sending; only on one host.
    pub latency: Option<Latency>,
    /// The books of messages, if the stage delivers some.
    pub messages: Option<Messages>,
    /// Datagrams that were due by the sender's schedule, if it had one.
    pub offered: Option<u64>,
    /// The limit of the rate, if it was the sender or the network.
    pub limited_by: Option<&'static str>,
    /// The CPU time of the sending threads; zero if it is not known.
    pub sender_cpu: Duration,
    /// Longest share of the window that a thread waited for a core.
    pub run_delay_share: Option<f64>,
    /// Share of the machine's time that went to other guests.
    pub steal_share: Option<f64>,
    /// Packets per second, by second and thread.
    pub samples: Vec<Sample>,
    /// Notes for the reader of the figures.
    pub notes: Vec<String>,
}

/// Receive calls of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// Receive calls, empty ones too.
    pub receive_calls: u64,
    /// Messages that they returned. A train counts once.
    pub messages: u64,
}

impl Outcome {
    pub(super) fn of(plan: &Plan, measured: Measured, totals: &[WorkerTotals]) -> Self {
        let flows = flow_totals(totals, measured.hello.flows);
        let has_messages = measured.finished.messages.is_some();
        // Duplicates and order of messages are checked against the promise of their mode.
        let sums = flows.as_ref().filter(|_| !has_messages).map(FlowTotals::sum);
        let cpu = cpu_deltas(&measured.first, &measured.last);
        let threads = threads(totals, &measured, &cpu);
        let received = threads.iter().map(|thread| thread.received).sum();
        let mut notes = Vec::new();
        let mut books = Books::new(measured.finished.sent, received).within(measured.scope);
        if let Some(sums) = sums.filter(|sums| sums.too_old > 0) {
            books = books.dropped(TOO_OLD, sums.too_old);
        }
        let untold = totals.iter().map(|totals| totals.dropped(DropReason::ControlTruncated)).sum();
        if untold > 0 {
            books = books.dropped(DropReason::ControlTruncated.name(), untold);
        }
        let deliveries = totals.iter().filter_map(|totals| totals.stages.delivery.as_ref());
        for (name, count) in deliveries.flat_map(|delivery| &delivery.drops) {
            books = books.dropped(name, *count);
        }
        let mut foreign = strays(totals);
        let lost = lost(&measured, &books, flows.as_ref());
        // Handshakes are in no book, so the kernel may have dropped datagrams that are not missing.
        let has_strangers = has_messages || !foreign.is_empty();
        match kernel_drops(&measured, lost, has_strangers, &mut notes) {
            Some(drops) => {
                books = books.dropped(KERNEL_RECEIVE_QUEUE, drops.ours);
                if drops.of_strangers > 0 {
                    foreign.insert(KERNEL_RECEIVE_QUEUE.to_owned(), drops.of_strangers);
                }
            }
            None => notes.push(UNCOUNTED.to_owned()),
        }
        let finished = &measured.finished;
        let latency = merge(totals.iter().filter_map(|totals| totals.stages.latency.as_ref()));
        refused_by_sender(finished, &mut notes);
        let stages: Vec<_> = totals.iter().map(|totals| &totals.stages).collect();
        let messages = flows.as_ref().and_then(|flows| {
            delivery::messages(&measured.hello, finished, measured.scope, received, flows, &stages)
        });
        held_back(finished, &mut notes);
        let is_held_back = messages.as_ref().is_some_and(Messages::is_held_back);
        let limited_by = limited_by(&measured, &books, is_held_back);
        Self {
            books,
            threads,
            window: measured.window,
            granted: with_senders(measured.granted, finished),
            interface: measured.interface,
            foreign,
            calls: calls(totals),
            duplicated: sums.map(|sums| sums.duplicated),
            reordered: sums.map(|sums| sums.reordered),
            latency: latency.as_ref().and_then(Latency::of),
            offered: (measured.hello.rate > 0 && !has_messages).then_some(finished.offered),
            messages,
            limited_by,
            sender_cpu: Duration::from_nanos(finished.cpu_ns),
            run_delay_share: largest(cpu.iter().map(|cpu| cpu.as_ref()?.run_delay_share(measured.window))),
            steal_share: measured.steal_share,
            samples: measured.samples,
            notes: [notes, plan_notes(plan), stage_notes(totals)].concat(),
        }
    }

    /// The books for the control connection.
    pub(super) fn control_books(&self) -> control::Books {
        control::Books {
            received: self.books.received,
            drops: self.books.drops.clone(),
            strays: self.foreign.clone(),
            unexplained: self.books.unexplained(),
            duplicated: self.duplicated.unwrap_or(0),
            reordered: self.reordered.unwrap_or(0),
            window_s: self.window.as_secs_f64(),
            scope: self.books.scope,
            messages: self.messages.clone(),
        }
    }

    /// CPU time of all receiver threads.
    #[must_use]
    pub fn receiver_cpu(&self) -> Option<Duration> {
        let seconds = self.threads.iter().map(|thread| Some(thread.cpu?.total_s())).sum::<Option<f64>>()?;
        Some(Duration::from_secs_f64(seconds.max(0.0)))
    }

    /// The report of this run.
    #[must_use]
    pub fn report(&self, name: &str, command: &str, flags: Flags) -> Report {
        let mut report = Report::of(Counted {
            name: name.to_owned(),
            command: command.to_owned(),
            flags,
            machine: host::machine(),
            window: self.window,
            books: self.books.clone(),
            threads: self.threads.clone(),
            granted: self.granted.clone(),
        });
        report.interface.clone_from(&self.interface);
        report.sender_cpu_s = Some(self.sender_cpu.as_secs_f64()).filter(|cpu_s| *cpu_s > 0.0);
        report.foreign.clone_from(&self.foreign);
        report.latency_ns = self.latency;
        report.offered = self.offered;
        report.limited_by = self.limited_by.map(str::to_owned);
        report.duplicated = self.duplicated;
        report.reordered = self.reordered;
        report.run_delay_share = self.run_delay_share;
        report.steal_share = self.steal_share;
        report.notes.clone_from(&self.notes);
        report.messages.clone_from(&self.messages);
        report.pps_per_second = self.samples.iter().map(|second| second.pps_per_thread.clone()).collect();
        report
    }
}

/// Arrivals outside the books, by name: unusable datagrams, and datagrams of other programs or earlier runs.
pub(super) fn strays(totals: &[WorkerTotals]) -> BTreeMap<String, u64> {
    let mut strays = BTreeMap::new();
    for totals in totals {
        for (name, count) in &totals.stages.strays {
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

/// The notes of each thread's stage.
fn stage_notes(totals: &[WorkerTotals]) -> Vec<String> {
    let of_thread = |totals: &WorkerTotals| {
        let index = totals.index;
        totals.stages.notes.iter().map(move |note| format!("thread {index}: {note}")).collect::<Vec<_>>()
    };
    totals.iter().flat_map(of_thread).collect()
}

/// The limit of the rate, if it was not the receiver.
fn limited_by(measured: &Measured, books: &Books, is_held_back: bool) -> Option<&'static str> {
    let drops = measured.last.kernel_drops().zip(measured.first.kernel_drops());
    limit::limited_by(&RateEvidence {
        scope: measured.scope,
        samples: &measured.samples,
        kernel_drops: drops.map_or(0, |(now, then)| now.saturating_sub(then)),
        lost_on_way: books.unexplained().unsigned_abs(),
        dropped: books.dropped_count(),
        sends_all_it_can: measured.hello.rate == 0 || measured.finished.late,
        is_held_back,
    })
}

fn flow_totals(totals: &[WorkerTotals], flows: u32) -> Option<FlowTotals> {
    let mut sum = FlowTotals::new(flows as usize);
    for totals in totals {
        sum.add(totals.stages.flows.as_ref()?);
    }
    Some(sum)
}

fn threads(totals: &[WorkerTotals], measured: &Measured, cpu: &[Option<ThreadSample>]) -> Vec<ThreadCount> {
    let drops = measured.first.queues.iter().zip(&measured.last.queues);
    let drops: Vec<Option<u64>> =
        drops.map(|(first, last)| Some(last.as_ref()?.drops - first.as_ref()?.drops)).collect();
    let threads = totals.iter().map(|totals| ThreadCount {
        index: totals.index,
        received: received(totals),
        sent: None,
        kernel_drops: drops.get(totals.index as usize).copied().flatten(),
        cpu: cpu.get(totals.index as usize).and_then(|cpu| Some(cpu.as_ref()?.cpu_time())),
    });
    threads.collect()
}

/// Datagrams of the books that a thread received. Each counts once if its stage detects duplicates.
fn received(totals: &WorkerTotals) -> u64 {
    if let Some(delivery) = &totals.stages.delivery {
        return delivery.packets;
    }
    let flows = totals.stages.flows.as_ref();
    flows.map_or(totals.stages.ours, |flows| flows.iter().map(FlowCount::unique).sum())
}

fn calls(totals: &[WorkerTotals]) -> CallCounts {
    totals.iter().fold(CallCounts::default(), |sum, totals| CallCounts {
        receive_calls: sum.receive_calls + totals.calls(),
        messages: sum.messages + totals.messages(),
    })
}

/// Datagrams that only the kernel can have dropped; `None` if flows were not followed.
fn lost(measured: &Measured, books: &Books, flows: Option<&FlowTotals>) -> Option<u64> {
    if measured.finished.messages.is_some() {
        return Some(u64::try_from(books.unexplained()).unwrap_or(0));
    }
    // Datagrams behind the window are in no flow's unique count. They have a line in the books.
    let lost = |flows: &FlowTotals| {
        flows.loss(&measured.finished.sent_per_flow).lost.saturating_sub(flows.sum().too_old)
    };
    flows.map(lost)
}

/// The kernel's drops; `None` if the system does not count them.
fn kernel_drops(
    measured: &Measured,
    lost: Option<u64>,
    has_strangers: bool,
    notes: &mut Vec<String>,
) -> Option<KernelDrops> {
    let counted = measured.last.kernel_drops()?.saturating_sub(measured.first.kernel_drops()?);
    let lost = lost.filter(|_| counted > 0);
    let Measured { is_gro_on, scope, .. } = *measured;
    if let Some(lost) = lost.filter(|_| is_gro_on) {
        notes.push(format!(
            "with GRO the kernel counts trains: it dropped {}, and the gaps in the flows are {} datagrams",
            thousands(counted),
            thousands(lost)
        ));
    }
    if lost.is_some() && has_strangers && scope == Scope::TwoHosts {
        notes.push("strangers came too: some of the kernel's drops may have been theirs".to_owned());
    }
    Some(KernelDrops::of(&DropEvidence { counted, lost, is_gro_on, has_strangers, scope }))
}

/// Adds the send buffer and the offload that the sender's kernel granted.
fn with_senders(granted: Granted, finished: &Finished) -> Granted {
    let told = |name: &str| finished.granted.get(name);
    Granted {
        gso: told("gso").and_then(Value::as_bool).or(granted.gso),
        send_buffer_bytes: told("send_buffer_bytes").and_then(Value::as_u64).or(granted.send_buffer_bytes),
        ..granted
    }
}

fn cpu_deltas(first: &GroupSample, last: &GroupSample) -> Vec<Option<ThreadSample>> {
    let pairs = first.cpu.iter().zip(&last.cpu);
    pairs.map(|(first, last)| Some(last.as_ref()?.since(first.as_ref()?))).collect()
}

fn largest(shares: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    shares.flatten().fold(None, |most, share| Some(most.map_or(share, |most: f64| most.max(share))))
}

fn merge<'a>(mut histograms: impl Iterator<Item = &'a Histogram<u64>>) -> Option<Histogram<u64>> {
    let mut sum = histograms.next()?.clone();
    for histogram in histograms {
        // All have the same bounds, so that adding cannot fail.
        let _ = sum.add(histogram);
    }
    Some(sum)
}

fn refused_by_sender(finished: &Finished, notes: &mut Vec<String>) {
    let errors: Vec<String> =
        finished.errors.iter().map(|(name, count)| format!("{name} {}", thousands(*count))).collect();
    if !errors.is_empty() {
        notes.push(format!("the sender's kernel did not take some datagrams: {}", errors.join(", ")));
    }
}

fn held_back(finished: &Finished, notes: &mut Vec<String>) {
    let Some(messages) = &finished.messages else { return };
    if messages.blocked > 0 {
        notes.push(format!(
            "messages had to wait {} times until those before were acknowledged",
            thousands(messages.blocked)
        ));
    }
    if messages.unsettled > 0 {
        notes.push(format!("{} flows were not settled when the sender ended", thousands(messages.unsettled)));
    }
}

/// The notes that follow from the plan.
fn plan_notes(plan: &Plan) -> Vec<String> {
    let may_see_trains = plan.gro != crate::choices::Gro::Off && plan.drain != crate::choices::Drain::Recv;
    let trains =
        "kernel drops are exact to the datagram as long as no trains are taken; --gro off makes sure";
    let hop = "each thread hands every datagram to a second one through a channel: CPU time is that of both";
    [(may_see_trains, trains), (plan.has_hop, hop)]
        .into_iter()
        .filter(|(is_so, _)| *is_so)
        .map(|(_, note)| note.to_owned())
        .collect()
}
