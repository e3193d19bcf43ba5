//! One sending thread: an open-loop schedule over its flows, in turn.
//!
//! A datagram that leaves late carries the time at which it should have left.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver as Inbox, Sender as Outbox};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use drumfire_socket::{Fault, FlushEnd, Granted, Parker, Poller, SendBatch, SendMode, Sender, Socket};

use super::client::{BLOCKED_REST, ClientGroup, GROUP, SocketBuffers};
use super::flow::Flow;
use super::handshake;
use super::messages::MessageSender;
use super::schedule::Schedule;
use crate::clock;
use crate::control::{Finished, Sealed, SentMessages};
use crate::datagram::RouteId;
use crate::error::Error;
use crate::host::{self, ThreadClock, ThreadSample};
use crate::report::{self, ThreadCount};
use crate::traffic::Traffic;

/// The most datagrams one `sendmmsg` carries here.
const BATCH: usize = 32;

/// The most datagrams in one train.
const TRAIN: usize = 64;

/// The most bytes in one train.
const TRAIN_BYTES: usize = 65_000;

/// The state that all threads of a run share.
pub(super) struct Run {
    pub(super) traffic: Traffic,
    to: SocketAddr,
    /// Set if every flow has to be a connection.
    sealed: Option<Sealed>,
    pub(super) is_stopping: AtomicBool,
    /// The sums of all threads that have ended, and the counters of each.
    totals: Mutex<(Finished, Vec<ThreadCount>)>,
}

impl Run {
    pub(super) fn new(traffic: Traffic, to: SocketAddr, sealed: Option<Sealed>) -> Self {
        let zeros = || vec![0; traffic.flows as usize];
        let has_messages = sealed.is_some_and(|sealed| sealed.mode.has_messages());
        let messages =
            has_messages.then(|| SentMessages { sent_per_flow: zeros(), ..SentMessages::default() });
        let granted = report::Granted { gso: Some(true), ..report::Granted::default() };
        let finished = Finished { sent_per_flow: zeros(), messages, granted, ..Finished::default() };
        Self {
            traffic,
            to,
            sealed,
            is_stopping: AtomicBool::new(false),
            totals: (finished, Vec::new()).into(),
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// The book of all threads, and the counters of each by index.
    pub(super) fn take_totals(&self) -> (Finished, Vec<ThreadCount>) {
        let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        let (finished, mut threads) = std::mem::take(&mut *totals);
        threads.sort_by_key(|thread| thread.index);
        (finished, threads)
    }
}

/// One thread of a run.
pub(super) struct SenderThread {
    run: Arc<Run>,
    index: u32,
    flows: Vec<(u32, RouteId)>,
    /// Datagrams, or messages where flows keep their endpoints, per second of this thread; 0 = as fast as possible.
    rate: f64,
    mode: SendMode,
    core: Option<usize>,
}

/// The flows of a thread, ready to send.
enum Prepared {
    Flows(Vec<Flow>, Poller),
    Messages(Box<MessageSender>),
}

impl SenderThread {
    pub(super) fn new(run: Arc<Run>, index: u32, flows: Vec<(u32, RouteId)>, core: Option<usize>) -> Self {
        let Traffic { rate, flows: all, send, .. } = run.traffic;
        let share = flows.len() as f64 / f64::from(all.max(1));
        Self { run, index, flows, rate: rate as f64 * share, mode: send.into(), core }
    }

    /// Opens the sockets, reports that, waits for the start signal, sends, and adds its counters to those of the run.
    pub(super) fn run(self, ready: &Outbox<Result<(), Error>>, go: &Inbox<()>) {
        let prepared = match self.prepare() {
            Ok(prepared) => prepared,
            Err(error) => return drop(ready.send(Err(error))),
        };
        let _ = ready.send(Ok(()));
        if go.recv().is_ok() {
            match prepared {
                Prepared::Flows(flows, poller) => self.send(flows, poller),
                Prepared::Messages(messages) => self.send_messages(*messages),
            }
        }
    }

    fn prepare(&self) -> Result<Prepared, Error> {
        let Run { traffic, to, sealed, .. } = &*self.run;
        let size = traffic.size as usize;
        let no_socket = |error| Error::for_sockets(traffic.flows, &error);
        self.core.map_or(Ok(()), host::pin_current_thread).map_err(Error::run)?;
        let sockets = self.flows.iter().map(|_| Socket::connect(*to, None));
        let mut sockets = sockets.collect::<Result<Vec<_>, _>>().map_err(no_socket)?;
        let (sealed, buffers) = match (*sealed, sockets.first_mut()) {
            (Some(sealed), Some(first)) => {
                let mode = if sealed.mode.has_messages() { self.mode } else { SendMode::Single };
                (Some(sealed), Some(SocketBuffers::new(first, mode, traffic.flows)?))
            }
            _ => (None, None),
        };
        let Some((sealed, mut buffers)) = sealed.zip(buffers) else {
            let places = self.flows.iter().zip(sockets);
            let flows = places.map(|(&(index, id), socket)| Flow::new(index, id, socket, None));
            return Ok(Prepared::Flows(flows.collect(), Poller::new().map_err(no_socket)?));
        };
        if !sealed.mode.has_messages() {
            let flows = self.flows.iter().zip(sockets).map(|(&(index, id), mut socket)| {
                let sealer = handshake::connect(&mut socket, &mut buffers, &sealed)?;
                Ok(Flow::new(index, id, socket, Some((sealer, size))))
            });
            let flows = flows.collect::<Result<Vec<_>, Error>>()?;
            return Ok(Prepared::Flows(flows, Poller::new().map_err(no_socket)?));
        }
        let mut groups = Vec::with_capacity(sockets.len().div_ceil(GROUP));
        for (place, flows) in (0..).step_by(GROUP).zip(self.flows.chunks(GROUP)) {
            let group = sockets.drain(..flows.len()).collect();
            groups.push(ClientGroup::connect(flows, place, group, *to, &sealed, &mut buffers)?);
        }
        let messages = MessageSender::new(sealed.mode, self.burst(), size, groups, buffers);
        Ok(Prepared::Messages(messages.into()))
    }

    /// Sends messages until all are settled.
    fn send_messages(&self, mut messages: MessageSender) {
        let window = Window::begin();
        let granted = messages.clients().next().map(|client| client.socket.granted());
        let schedule = self.schedule(&window);
        let offered = messages.run(&schedule, &self.run.is_stopping);
        let (elapsed_ns, cpu) = window.end();
        messages.settle(&schedule);
        let mut totals = self.run.totals.lock().unwrap_or_else(PoisonError::into_inner);
        let (finished, _) = &mut *totals;
        if let Some(sums) = &mut finished.messages {
            sums.offered += offered;
            messages.add_to(sums);
        }
        let sent_per_flow: Vec<_> = messages.clients().map(|client| (client.flow, client.sent)).collect();
        let buffers = messages.into_buffers();
        *finished.errors.entry(Fault::WouldBlock.name().to_owned()).or_default() += buffers.blocked;
        finished.sent_bytes += buffers.sent_bytes;
        self.add(&mut totals, &sent_per_flow, &buffers.sender, granted, elapsed_ns, cpu);
    }

    fn send(&self, mut flows: Vec<Flow>, mut poller: Poller) {
        let window = Window::begin();
        let granted = flows.first().map(|flow| flow.socket.granted());
        let (burst, size) = (self.burst(), self.run.traffic.size as usize);
        let mut batch = SendBatch::new(burst, burst * size);
        let mut sender = Sender::new(self.mode);
        let schedule = self.schedule(&window);
        let mut offered = 0;
        'sending: loop {
            for flow in &mut flows {
                let last = offered + burst as u64 - 1;
                if self.run.is_stopping() || !schedule.await_turn(last, &mut poller) {
                    break 'sending;
                }
                let filled = flow.fill(&mut batch, burst, size, schedule.stamp_ns(last));
                offered += filled;
                flow.sent += filled - self.flush(&mut sender, flow, &mut batch, &mut poller, &schedule);
            }
        }
        let (elapsed_ns, cpu) = window.end();
        let due = schedule.due(Duration::from_nanos(elapsed_ns)).filter(|_| !self.run.is_stopping());
        let sent_per_flow: Vec<_> = flows.iter().map(|flow| (flow.index, flow.sent)).collect();
        let mut totals = self.run.totals.lock().unwrap_or_else(PoisonError::into_inner);
        totals.0.offered += due.map_or(offered, |due| due.max(offered));
        totals.0.sent_bytes += sender.counts().bytes;
        self.add(&mut totals, &sent_per_flow, &sender, granted, elapsed_ns, cpu);
    }

    /// Adds the counters that every kind of run has.
    fn add(
        &self,
        (finished, threads): &mut (Finished, Vec<ThreadCount>),
        sent_per_flow: &[(u32, u64)],
        sender: &Sender,
        granted: Option<Granted>,
        elapsed_ns: u64,
        cpu: Option<ThreadSample>,
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
        threads.push(ThreadCount {
            index: self.index,
            sent: Some(sent),
            cpu: cpu.map(|cpu| cpu.cpu_time()),
            ..ThreadCount::default()
        });
    }

    fn schedule(&self, window: &Window) -> Schedule {
        Schedule { start_ns: window.start_ns, rate: self.rate, length: self.run.traffic.secs }
    }

    /// The number of datagrams in a row on one flow: as many as one call carries, but at most one millisecond's worth.
    fn burst(&self) -> usize {
        burst(self.mode, self.rate, self.run.traffic.size as usize)
    }

    /// Sends the batch. Returns how many of its datagrams the kernel did not accept.
    fn flush(
        &self,
        sender: &mut Sender,
        flow: &mut Flow,
        batch: &mut SendBatch,
        poller: &mut Poller,
        schedule: &Schedule,
    ) -> u64 {
        let mut lost = 0;
        loop {
            match sender.flush(&mut flow.socket, batch, |_| lost += 1) {
                FlushEnd::Sent => return lost,
                FlushEnd::Blocked if !self.run.is_stopping() && !schedule.is_over() => {
                    poller.nap(BLOCKED_REST);
                }
                FlushEnd::Paused(time) => poller.nap(time),
                FlushEnd::Blocked | FlushEnd::Closed(_) => {
                    lost += batch.len() as u64;
                    batch.clear();
                    return lost;
                }
            }
        }
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

/// Measures the length of a run on this thread, and its CPU time.
struct Window {
    thread: u32,
    before: Option<ThreadSample>,
    start_ns: u64,
}

impl Window {
    fn begin() -> Self {
        let thread = host::current_thread_id().unwrap_or(0);
        Self { thread, before: ThreadClock::sample(thread), start_ns: clock::host_ns() }
    }

    fn end(&self) -> (u64, Option<ThreadSample>) {
        let elapsed_ns = clock::host_ns().saturating_sub(self.start_ns);
        let sample = ThreadClock::sample(self.thread).zip(self.before);
        (elapsed_ns, sample.map(|(now, before)| now.since(&before)))
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
}
