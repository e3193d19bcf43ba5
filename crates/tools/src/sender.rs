//! The sender: one socket per flow, an open-loop schedule, and a book that is compared with the receiver's.
//!
//! [`run`] does one whole run. Printing is left to the caller.

mod client;
mod flow;
mod group;
mod handshake;
mod messages;
mod schedule;
mod thread;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver as Inbox, Sender as Outbox, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use drumfire_socket::Fault;

use crate::choices::SendMode;
use crate::clock;
use crate::control::{self, ControlError, Finished, Hello, ReceiverBooks, SenderEnd, SentMessages, Welcome};
use crate::host::{self, InterfaceWatch};
use crate::limits::{OTHER_DESCRIPTORS, SEALED_MIN_SIZE};
use crate::report::{Counted, CpuTime, Flags, Granted, LIMITED_BY_SENDER, Messages, Report, ThreadCount};
use crate::table::thousands;
use group::GROUP;
use thread::{SenderThread, ThreadError, ThreadTotals};

/// The interval in which threads are checked after the receiver is gone.
const STEP: Duration = Duration::from_millis(50);

/// How long a receiver may take to respond.
const PATIENCE: Duration = Duration::from_secs(10);

/// A sender that sent less than this share of its schedule is late.
const KEPT_RATE: f64 = 0.99;

/// The settings of one sender, from the command line or from a bench.
#[derive(Clone, Debug)]
pub struct SendPlan {
    /// The addresses of the receiver. The first one that accepts is used.
    pub to: Vec<SocketAddr>,
    /// Threads, at most one per flow.
    pub threads: u32,
    /// Flows, each with its own socket.
    pub flows: u32,
    /// Length of every datagram in bytes.
    pub size: u32,
    /// Datagrams per second in all; 0 = as fast as possible.
    pub rate: u64,
    /// How datagrams are handed to the kernel.
    pub send: SendMode,
    /// How long to send.
    pub secs: Duration,
    /// The cores to which threads are pinned: thread `i` to core `i` modulo their number. Empty means not pinned.
    pub cores: Vec<usize>,
}

/// The reason why a run has no books.
#[derive(Debug)]
pub enum SendError {
    /// It was stopped before the receiver accepted it.
    Stopped,
    /// The control connection failed.
    Control(ControlError),
    /// The socket of a flow could not be opened.
    Sockets(std::io::Error),
    /// A thread could not be pinned or started.
    Thread(String),
    /// A flow could not connect.
    Handshake(String),
    /// The receiver's stage needs datagrams of another size: between the two numbers, in bytes.
    Size(u32, u32),
}

impl std::fmt::Display for SendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped before anything was sent: start it again"),
            Self::Control(error) => error.fmt(f),
            Self::Sockets(error) => error.fmt(f),
            Self::Thread(line) => f.write_str(line),
            Self::Handshake(line) => write!(f, "a flow could not connect: {line}"),
            Self::Size(least, most) => write!(
                f,
                "--size: the receiver's stage and mode take packets of {least} to {most} bytes; give --size {least} to {most}"
            ),
        }
    }
}

impl std::error::Error for SendError {}

impl From<ControlError> for SendError {
    fn from(error: ControlError) -> Self {
        Self::Control(error)
    }
}

/// Sends what the plan says and compares books with the receiver. Returns the report, without a command and flags.
///
/// # Errors
///
/// [`SendError`] in one line that says what to do.
pub fn run(plan: &SendPlan, is_stopped: &dyn Fn() -> bool) -> Result<Report, SendError> {
    let patience = clock::now() + PATIENCE;
    let accepted = SenderEnd::connect(&plan.to, &hello(plan), || clock::now() < patience && !is_stopped());
    let (mut end, welcome) =
        accepted.map_err(|error| if is_stopped() { SendError::Stopped } else { error.into() })?;
    let interface = InterfaceWatch::begin(end.own, end.peer);
    let most = welcome.sealed.map(|sealed| sealed.mode.max_size());
    if let Some(most) = most.filter(|most| !(SEALED_MIN_SIZE..=*most).contains(&plan.size)) {
        return Err(SendError::Size(SEALED_MIN_SIZE, most));
    }
    // If the limit stays too low, opening the sockets fails with a clear error.
    let _ = host::raise_open_files(descriptors(plan));
    let mut sender_threads = SenderThreads::open(plan, end.peer, &welcome)?;
    end.start()?;
    sender_threads.go();
    let totals = sender_threads.watch(&mut end, is_stopped);
    let finished = finished(plan, &totals);
    // The books are compared even if the run was stopped.
    let patience = clock::now() + PATIENCE * 2;
    let books = end.finish(finished.clone(), || clock::now() < patience)?;
    Ok(Report { interface: interface.finish(), ..report(plan, &totals, finished, books) })
}

/// The report of a run, with both books in it.
fn report(plan: &SendPlan, totals: &[ThreadTotals], finished: Finished, books: ReceiverBooks) -> Report {
    let ReceiverBooks { datagrams, foreign, duplicated, reordered, messages } = books;
    let is_held_back = messages.as_ref().is_some_and(Messages::is_held_back);
    let is_limit = !is_held_back && datagrams.dropped_count() == 0 && (finished.late || plan.rate == 0);
    let refused = finished.errors.iter();
    let notes = refused.map(|(name, count)| format!("the kernel did not take {}: {name}", thousands(*count)));
    let counted = Counted {
        name: "sender".to_owned(),
        command: String::new(),
        flags: Flags::new(),
        machine: host::machine(),
        window: Duration::from_nanos(finished.elapsed_ns),
        books: datagrams,
        threads: totals.iter().map(thread_count).collect(),
        granted: finished.granted,
    };
    Report {
        foreign,
        offered: (plan.rate > 0 && messages.is_none()).then_some(finished.offered),
        duplicated,
        reordered,
        messages,
        limited_by: is_limit.then(|| LIMITED_BY_SENDER.to_owned()),
        notes: notes.collect(),
        ..Report::of(counted)
    }
}

/// The sending threads.
struct SenderThreads {
    threads: Vec<JoinHandle<Option<ThreadTotals>>>,
    start_signals: Vec<Outbox<()>>,
    is_stopping: Arc<AtomicBool>,
}

impl SenderThreads {
    fn open(plan: &SendPlan, to: SocketAddr, welcome: &Welcome) -> Result<Self, SendError> {
        let is_stopping = Arc::new(AtomicBool::new(false));
        let (ready, answers) = channel();
        let mut sender_threads = Self { threads: Vec::new(), start_signals: Vec::new(), is_stopping };
        for index in 0..plan.threads {
            let part = part(plan, index, to, welcome, &sender_threads.is_stopping);
            let (signal, go): (Outbox<()>, Inbox<()>) = channel();
            let ready = ready.clone();
            let thread = std::thread::Builder::new()
                .name(format!("sender-{index}"))
                .spawn(move || part.run(&ready, &go))
                .map_err(|error| SendError::Thread(format!("a thread cannot be started: {error}")))?;
            sender_threads.threads.push(thread);
            sender_threads.start_signals.push(signal);
        }
        drop(ready);
        for answer in answers.iter().take(sender_threads.threads.len()) {
            answer.map_err(|error| match error {
                ThreadError::Sockets(error) => SendError::Sockets(error),
                ThreadError::Pin(line) => SendError::Thread(line),
                ThreadError::Handshake(line) => SendError::Handshake(line),
            })?;
        }
        Ok(sender_threads)
    }

    fn go(&mut self) {
        for signal in self.start_signals.drain(..) {
            // A thread that has ended is found when it is joined.
            let _ = signal.send(());
        }
    }

    /// Waits for the threads; the receiver, or the caller, may end them early.
    fn watch(self, end: &mut SenderEnd, is_stopped: &dyn Fn() -> bool) -> Vec<ThreadTotals> {
        let mut is_connected = true;
        while self.threads.iter().any(|thread| !thread.is_finished()) {
            if is_connected {
                match end.is_asked_to_stop() {
                    Ok(false) => {}
                    Ok(true) => self.is_stopping.store(true, Ordering::Relaxed),
                    // The receiver is gone. Sending the book returns the error.
                    Err(_) => {
                        is_connected = false;
                        self.is_stopping.store(true, Ordering::Relaxed);
                    }
                }
            } else {
                clock::pause(STEP);
            }
            if is_stopped() {
                self.is_stopping.store(true, Ordering::Relaxed);
            }
        }
        self.threads.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
    }
}

/// The number of descriptors: a socket for each flow, and a poller and its waker for each group of flows.
fn descriptors(plan: &SendPlan) -> u64 {
    let groups = u64::from(plan.flows).div_ceil(GROUP as u64) + u64::from(plan.threads);
    u64::from(plan.flows) + groups * 2 + OTHER_DESCRIPTORS
}

fn hello(plan: &SendPlan) -> Hello {
    Hello {
        version: control::VERSION,
        flows: plan.flows,
        threads: plan.threads,
        size: plan.size,
        rate: plan.rate,
        send: plan.send,
        secs: plan.secs.as_secs_f64(),
        kernel_id: host::kernel_id(),
    }
}

fn part(
    plan: &SendPlan,
    index: u32,
    to: SocketAddr,
    welcome: &Welcome,
    is_stopping: &Arc<AtomicBool>,
) -> SenderThread {
    let threads = plan.threads.max(1);
    let flows = (0_u32..).zip(welcome.ids.iter().copied());
    let flows: Vec<_> = flows.filter(|(flow, _)| *flow % threads == index).collect();
    let share = flows.len() as f64 / f64::from(plan.flows.max(1));
    SenderThread {
        index,
        flows,
        to,
        size: plan.size as usize,
        sealed: welcome.sealed,
        rate: plan.rate as f64 * share,
        secs: plan.secs,
        mode: plan.send.into(),
        core: plan.cores.get(index as usize % plan.cores.len().max(1)).copied(),
        is_stopping: Arc::clone(is_stopping),
    }
}

fn finished(plan: &SendPlan, totals: &[ThreadTotals]) -> Finished {
    let mut errors: BTreeMap<String, u64> = BTreeMap::new();
    for totals in totals {
        for (fault, count) in totals.counts.lost.iter() {
            *errors.entry(fault.name().to_owned()).or_default() += count;
        }
        if totals.blocked > 0 {
            *errors.entry(Fault::WouldBlock.name().to_owned()).or_default() += totals.blocked;
        }
    }
    let sent_per_flow = per_flow(plan, totals.iter().flat_map(|totals| &totals.sent_per_flow));
    let sent = sent_per_flow.iter().sum();
    let messages = messages(plan, totals);
    let offered: u64 = totals.iter().map(|totals| totals.offered).sum();
    let done = messages.as_ref().map_or(sent, |messages| messages.sent);
    Finished {
        sent_per_flow,
        sent,
        sent_bytes: totals.iter().map(|totals| totals.sent_bytes).sum(),
        // The number of datagrams that messages need is not known in advance.
        offered: if messages.is_some() { 0 } else { offered },
        errors,
        elapsed_ns: totals.iter().map(|totals| nanos(totals.elapsed)).max().unwrap_or(0),
        cpu_ns: totals.iter().filter_map(|totals| Some(totals.cpu.as_ref()?.run_ns)).sum(),
        late: plan.rate > 0 && (done as f64) < offered as f64 * KEPT_RATE,
        granted: granted(totals),
        messages,
    }
}

/// The messages of all threads, if flows keep their endpoints.
fn messages(plan: &SendPlan, totals: &[ThreadTotals]) -> Option<SentMessages> {
    let parts: Vec<_> = totals.iter().filter_map(|totals| totals.messages.as_ref()).collect();
    if parts.is_empty() {
        return None;
    }
    let sum = |count: fn(&SentMessages) -> u64| parts.iter().map(|(_, messages)| count(messages)).sum();
    Some(SentMessages {
        sent_per_flow: per_flow(plan, parts.iter().flat_map(|(flows, _)| flows)),
        sent: sum(|messages| messages.sent),
        offered: sum(|messages| messages.offered),
        unsent: sum(|messages| messages.unsent),
        given_up: sum(|messages| messages.given_up),
        resent: sum(|messages| messages.resent),
        packets_lost: sum(|messages| messages.packets_lost),
        blocked: sum(|messages| messages.blocked),
        unsettled: sum(|messages| messages.unsettled),
    })
}

/// Counts by flow, flow 0 first.
fn per_flow<'a>(plan: &SendPlan, counts: impl Iterator<Item = &'a (u32, u64)>) -> Vec<u64> {
    let mut by_flow = vec![0; plan.flows as usize];
    for &(flow, count) in counts {
        if let Some(entry) = by_flow.get_mut(flow as usize) {
            *entry = count;
        }
    }
    by_flow
}

fn thread_count(totals: &ThreadTotals) -> ThreadCount {
    ThreadCount {
        index: totals.index,
        received: 0,
        sent: Some(totals.sent_per_flow.iter().map(|(_, sent)| sent).sum()),
        kernel_drops: None,
        cpu: totals.cpu.map(|cpu| CpuTime { user_s: cpu.user_s, sys_s: cpu.sys_s }),
    }
}

fn granted(totals: &[ThreadTotals]) -> Granted {
    Granted {
        send_buffer_bytes: totals.first().map(|totals| totals.send_buffer_bytes as u64),
        gso: Some(totals.iter().all(|totals| totals.has_gso && !totals.is_unsegmented)),
        ..Granted::default()
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
