//! One sending thread: an open-loop schedule over its flows, in turn.
//!
//! A datagram that is sent late carries its intended time of sending.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender as Outbox;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use drumfire_socket::{Fault, Parker, Poller, SendBatch, SendMode, Sender, Socket, SocketGrants};

use super::flow::{Flow, SocketBuffers, flush};
use super::messages::MessageSender;
use crate::cli::{Load, Traffic};
use crate::clock;
use crate::control::{Finished, Sealed, SentMessages};
use crate::datagram::RouteId;
use crate::error::Error;
use crate::host::{self, ThreadClock, ThreadSample};
use crate::report::{self, ThreadReport, whole};

/// The maximum number of datagrams of one `sendmmsg` call.
const BATCH: usize = 32;

/// The maximum number of datagrams in one train.
const TRAIN: usize = 64;

/// The maximum number of bytes in one train.
const TRAIN_BYTES: usize = 65_000;

/// The state that all threads of a run share.
pub(super) struct SenderRun {
    pub(super) traffic: Traffic,
    to: SocketAddr,
    /// Set if every flow has to be a connection.
    sealed: Option<Sealed>,
    /// Whether the threads begin to send, once that is known.
    pub(super) has_started: OnceLock<bool>,
    pub(super) is_stopping: AtomicBool,
    /// The sums of all threads that have ended, and the counters of each.
    totals: Mutex<(Finished, Vec<ThreadReport>)>,
}

impl SenderRun {
    pub(super) fn new(traffic: Traffic, to: SocketAddr, sealed: Option<Sealed>) -> Self {
        let zeros = || vec![0; traffic.load.flows as usize];
        let has_messages = sealed.is_some_and(|sealed| sealed.mode.has_messages());
        let messages =
            has_messages.then(|| SentMessages { sent_per_flow: zeros(), ..SentMessages::default() });
        let granted = report::Granted { gso: Some(true), ..report::Granted::default() };
        let finished = Finished { sent_per_flow: zeros(), messages, granted, ..Finished::default() };
        Self {
            traffic,
            to,
            sealed,
            has_started: OnceLock::new(),
            is_stopping: AtomicBool::new(false),
            totals: (finished, Vec::new()).into(),
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// The book of all threads, and the counters of each by index.
    pub(super) fn take_totals(&self) -> (Finished, Vec<ThreadReport>) {
        let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        let (finished, mut threads) = std::mem::take(&mut *totals);
        threads.sort_by_key(|thread| thread.index);
        (finished, threads)
    }
}

pub(super) struct SenderThread {
    run: Arc<SenderRun>,
    index: u32,
    flows: Vec<(u32, RouteId)>,
    /// Datagrams, or messages where flows keep their endpoints, per second of this thread; 0 = as fast as possible.
    rate: f64,
    /// The number of datagrams in a row on one flow: as many as one call carries, but at most one millisecond's worth.
    burst: usize,
    mode: SendMode,
    core: Option<usize>,
}

/// The function that sends on the flows of a thread.
type PreparedSend<'a> = Box<dyn FnOnce(&Schedule) + 'a>;

impl SenderThread {
    pub(super) fn new(
        run: Arc<SenderRun>,
        index: u32,
        flows: Vec<(u32, RouteId)>,
        core: Option<usize>,
    ) -> Self {
        let Load { rate, flows: all, send, size } = run.traffic.load;
        let rate = rate as f64 * flows.len() as f64 / f64::from(all.max(1));
        let mode = send.into();
        Self { run, index, flows, rate, burst: burst(mode, rate, size as usize), mode, core }
    }

    /// Opens the sockets, reports that, waits for the start, sends, and adds its counters to those of the run.
    pub(super) fn run(self, ready: &Outbox<Result<(), Error>>) {
        let send = match self.prepare() {
            Ok(send) => send,
            Err(error) => return drop(ready.send(Err(error))),
        };
        let _ = ready.send(Ok(()));
        if *self.run.has_started.wait() {
            send(&Schedule::begin(self.rate, self.run.traffic.secs));
        }
    }

    /// Opens the sockets, and makes the connections. Returns the function that sends on them.
    fn prepare(&self) -> Result<PreparedSend<'_>, Error> {
        let SenderRun { traffic, to, sealed, .. } = &*self.run;
        let size = traffic.load.size as usize;
        let no_socket = |error| Error::for_sockets(traffic.load.flows, &error);
        self.core.map_or(Ok(()), host::pin_current_thread).map_err(Error::run)?;
        let sockets = self.flows.iter().map(|_| Socket::connect(*to, None));
        let mut sockets = sockets.collect::<Result<Vec<_>, _>>().map_err(no_socket)?;
        if let Some(sealed) = sealed.filter(|sealed| sealed.mode.has_messages()) {
            let buffers = SocketBuffers::new(sockets.first_mut(), self.mode, traffic.load.flows)?;
            let sizes = (self.burst, size);
            let messages = MessageSender::connect(&self.flows, sockets, *to, &sealed, sizes, buffers)?;
            return Ok(Box::new(|schedule| self.send_messages(messages, schedule)));
        }
        let mut buffers = SocketBuffers::new(sockets.first_mut(), SendMode::Single, traffic.load.flows)?;
        let flows = self.flows.iter().zip(sockets);
        let flows =
            flows.map(|(flow, socket)| Flow::open(*flow, socket, sealed.as_ref(), size, &mut buffers));
        let flows = flows.collect::<Result<_, _>>()?;
        let poller = buffers.poller()?;
        Ok(Box::new(|schedule| self.send(flows, poller, schedule)))
    }

    /// Sends messages until all are settled.
    fn send_messages(&self, mut messages: MessageSender, schedule: &Schedule) {
        let granted = messages.clients.first().map(|client| client.socket.granted());
        let offered = messages.run(schedule, &self.run.is_stopping);
        let used = schedule.used();
        messages.settle(schedule);
        let mut totals = self.run.totals.lock().unwrap_or_else(PoisonError::into_inner);
        let (finished, _) = &mut *totals;
        if let Some(sums) = &mut finished.messages {
            sums.offered += offered;
            messages.add_to(sums);
        }
        let sent_per_flow: Vec<_> =
            messages.clients.iter().map(|client| (client.flow, client.sent)).collect();
        let buffers = messages.buffers;
        *finished.errors.entry(Fault::WouldBlock.name().to_owned()).or_default() += buffers.blocked;
        self.add(&mut totals, &sent_per_flow, &buffers.sender, granted, used);
    }

    fn send(&self, mut flows: Vec<Flow>, mut poller: Poller, schedule: &Schedule) {
        let granted = flows.first().map(|flow| flow.socket.granted());
        let (burst, size) = (self.burst, self.run.traffic.load.size as usize);
        let may_wait = || !self.run.is_stopping() && !schedule.is_over();
        let mut batch = SendBatch::new(burst, burst * size);
        let mut sender = Sender::new(self.mode);
        let mut offered = 0;
        'sending: loop {
            for flow in &mut flows {
                let last = offered + burst as u64 - 1;
                if self.run.is_stopping() || !schedule.await_turn(last, &mut poller) {
                    break 'sending;
                }
                let filled = flow.fill(&mut batch, burst, size, schedule.stamp_ns(last));
                offered += filled;
                let mut refused = 0;
                let count_refused = || refused += 1;
                let left =
                    flush(&mut sender, &mut flow.socket, &mut batch, &mut poller, may_wait, count_refused);
                flow.sent += filled - refused - left;
            }
        }
        let used = schedule.used();
        let due = schedule.due(Duration::from_nanos(used.0)).filter(|_| !self.run.is_stopping());
        let sent_per_flow: Vec<_> = flows.iter().map(|flow| (flow.index, flow.sent)).collect();
        let mut totals = self.run.totals.lock().unwrap_or_else(PoisonError::into_inner);
        totals.0.offered += due.map_or(offered, |due| due.max(offered));
        self.add(&mut totals, &sent_per_flow, &sender, granted, used);
    }

    /// Adds the counters that every kind of run has.
    fn add(
        &self,
        (finished, threads): &mut (Finished, Vec<ThreadReport>),
        sent_per_flow: &[(u32, u64)],
        sender: &Sender,
        granted: Option<SocketGrants>,
        (elapsed_ns, cpu): (u64, Option<ThreadSample>),
    ) {
        let sent = sent_per_flow.iter().map(|(_, sent)| sent).sum();
        for &(flow, sent) in sent_per_flow {
            if let Some(entry) = finished.sent_per_flow.get_mut(flow as usize) {
                *entry = sent;
            }
        }
        finished.sent += sent;
        for (fault, count) in sender.counts().lost.iter() {
            *finished.errors.entry(fault.name().to_owned()).or_default() += count;
        }
        finished.errors.retain(|_, count| *count > 0);
        finished.elapsed_ns = finished.elapsed_ns.max(elapsed_ns);
        finished.cpu_ns += cpu.map_or(0, |cpu| cpu.run_ns);
        let is_segmented =
            sender.mode() == self.mode && granted.as_ref().is_some_and(|granted| granted.has_gso);
        finished.granted.gso = finished.granted.gso.map(|gso| gso && is_segmented);
        finished.granted.send_buffer_bytes = granted.map(|granted| granted.send_buffer_bytes as u64);
        let thread = ThreadReport { index: self.index, sent: Some(sent), ..ThreadReport::default() };
        threads.push(thread.with_cpu(cpu.map(|cpu| cpu.cpu_time())));
    }
}

fn burst(mode: SendMode, rate: f64, size: usize) -> usize {
    let most = match mode {
        SendMode::Single => 1,
        SendMode::Sendmmsg => BATCH,
        SendMode::Gso => TRAIN.min(TRAIN_BYTES / size.max(1)),
    };
    let per_millisecond = if rate > 0.0 { (rate / 1e3).ceil() } else { f64::MAX };
    (1..=most).rev().find(|count| *count as f64 <= per_millisecond).unwrap_or(1)
}

/// A longer wait sleeps first. A shorter one spins, because a sleep may end this much late.
const SPIN: Duration = Duration::from_micros(60);

/// The open-loop schedule of one thread: when each datagram or message should leave, regardless of earlier ones.
pub(super) struct Schedule {
    pub(super) start_ns: u64,
    /// Datagrams per second; 0 means as fast as possible.
    pub(super) rate: f64,
    pub(super) length: Duration,
    /// The thread that began the schedule, and its CPU time then.
    thread: u32,
    before: Option<ThreadSample>,
}

impl Schedule {
    /// Starts a schedule for this thread.
    pub(super) fn begin(rate: f64, length: Duration) -> Self {
        let thread = host::current_thread_id().unwrap_or(0);
        let before = ThreadClock::sample(thread);
        Self { start_ns: clock::host_ns(), rate, length, thread, before }
    }

    /// The time since the start, in nanoseconds, and the CPU time of the thread in it.
    fn used(&self) -> (u64, Option<ThreadSample>) {
        let elapsed_ns = clock::host_ns().saturating_sub(self.start_ns);
        let sample = ThreadClock::sample(self.thread).zip(self.before);
        (elapsed_ns, sample.map(|(now, before)| now.since(&before)))
    }

    /// How many datagrams are due in this time; `None` without a rate.
    pub(super) fn due(&self, elapsed: Duration) -> Option<u64> {
        let time = elapsed.min(self.length).as_secs_f64();
        (self.rate > 0.0).then(|| whole((time * self.rate).round()))
    }

    /// The intended time of the `n`-th datagram, from 0; without a rate it is now.
    pub(super) fn stamp_ns(&self, n: u64) -> u64 {
        if self.rate > 0.0 { self.start_ns + whole(n as f64 * 1e9 / self.rate) } else { clock::host_ns() }
    }

    /// Whether the run's time has passed.
    pub(super) fn is_over(&self) -> bool {
        Duration::from_nanos(clock::host_ns().saturating_sub(self.start_ns)) >= self.length
    }

    /// Waits until the `n`-th datagram is due. Returns false if the run is over.
    pub(super) fn await_turn(&self, n: u64, poller: &mut Poller) -> bool {
        let is_over = self.is_over();
        if self.rate <= 0.0 {
            return !is_over;
        }
        if is_over || self.due(self.length).is_some_and(|all| n >= all) {
            return false;
        }
        Self::wait_until(self.stamp_ns(n), poller);
        true
    }

    /// Waits until the host's clock shows this.
    pub(super) fn wait_until(due_ns: u64, poller: &mut Poller) {
        let rest = Duration::from_nanos(due_ns.saturating_sub(clock::host_ns()));
        if rest > SPIN {
            poller.sleep(rest - SPIN);
        }
        while clock::host_ns() < due_ns {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_one_call_or_a_millisecond() {
        assert_eq!(burst(SendMode::Single, 0.0, 128), 1);
        assert_eq!(burst(SendMode::Sendmmsg, 0.0, 128), 32);
        assert_eq!(burst(SendMode::Gso, 0.0, 128), 64);
        assert_eq!(burst(SendMode::Gso, 0.0, 1_200), 54);
        assert_eq!(burst(SendMode::Gso, 0.0, 65_507), 1);
        assert_eq!(burst(SendMode::Gso, 10_000.0, 128), 10);
        assert_eq!(burst(SendMode::Gso, 1.0, 128), 1);
    }

    fn schedule(rate: f64, seconds: u64) -> Schedule {
        Schedule { start_ns: 1_000, ..Schedule::begin(rate, Duration::from_secs(seconds)) }
    }

    #[test]
    fn send_times_lie_evenly_from_the_start_on() {
        let schedule = schedule(250_000.0, 1);
        assert_eq!(schedule.stamp_ns(0), 1_000);
        assert_eq!(schedule.stamp_ns(1), 5_000);
        assert_eq!(schedule.stamp_ns(250_000), 1_000_001_000);
    }

    #[test]
    fn due_messages_follow_the_clock_until_the_run_ends() {
        let schedule = schedule(1_000.0, 2);
        assert_eq!(schedule.due(Duration::from_millis(500)), Some(500));
        assert_eq!(schedule.due(Duration::from_secs(2)), Some(2_000));
        assert_eq!(schedule.due(Duration::from_secs(9)), Some(2_000));
        assert_eq!(Schedule { rate: 0.0, ..schedule }.due(Duration::from_secs(1)), None);
    }
}
