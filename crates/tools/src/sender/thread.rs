//! One sending thread: an open-loop schedule over its flows, in turn.
//!
//! A datagram that leaves late carries the time at which it should have left.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver as Inbox, Sender as Outbox};
use std::time::Duration;

use drumfire_socket::{FlushEnd, Granted, Parker, Poller, SendBatch, SendCounts, SendMode, Sender, Socket};

use super::client::{HandshakeError, SocketBuffers};
use super::flow::Flow;
use super::group::{ClientGroup, GROUP};
use super::handshake;
use super::messages::{MessageSender, MessageTotals};
use super::schedule::Schedule;
use crate::clock;
use crate::control::{Sealed, SentMessages};
use crate::datagram::RouteId;
use crate::host::{self, ThreadClock, ThreadSample};

/// The most datagrams one `sendmmsg` carries here.
const BATCH: usize = 32;

/// The most datagrams in one train.
const TRAIN: usize = 64;

/// The most bytes in one train.
const TRAIN_BYTES: usize = 65_000;

/// The delay before a full socket is tried again.
const BLOCKED_REST: Duration = Duration::from_micros(50);

/// The traffic of one thread.
pub(super) struct SenderThread {
    pub(super) index: u32,
    pub(super) flows: Vec<(u32, RouteId)>,
    pub(super) to: SocketAddr,
    pub(super) size: usize,
    /// Set if every flow has to be a connection.
    pub(super) sealed: Option<Sealed>,
    /// Datagrams, or messages where flows keep their endpoints, per second of this thread; 0 = as fast as possible.
    pub(super) rate: f64,
    pub(super) secs: Duration,
    pub(super) mode: SendMode,
    pub(super) core: Option<usize>,
    pub(super) is_stopping: Arc<AtomicBool>,
}

/// The totals of a thread.
pub(super) struct ThreadTotals {
    pub(super) index: u32,
    /// Each flow with its datagrams that the kernel accepted.
    pub(super) sent_per_flow: Vec<(u32, u64)>,
    pub(super) sent_bytes: u64,
    /// The counters of send calls, including handshakes.
    pub(super) counts: SendCounts,
    /// Datagrams that a full socket did not accept in time and that were dropped.
    pub(super) blocked: u64,
    /// Datagrams, or messages, that were due by the end.
    pub(super) offered: u64,
    /// Each flow with its messages, and their sums, if flows keep their endpoints.
    pub(super) messages: Option<(Vec<(u32, u64)>, SentMessages)>,
    pub(super) elapsed: Duration,
    pub(super) cpu: Option<ThreadSample>,
    /// Whether segmentation was asked for and refused.
    pub(super) is_unsegmented: bool,
    pub(super) has_gso: bool,
    pub(super) send_buffer_bytes: usize,
}

/// The reason why a thread could not start.
#[derive(Debug)]
pub(super) enum ThreadError {
    Sockets(std::io::Error),
    Pin(String),
    Handshake(String),
}

impl From<HandshakeError> for ThreadError {
    fn from(error: HandshakeError) -> Self {
        match error {
            HandshakeError::Io(error) => Self::Sockets(error),
            HandshakeError::Failed(line) => Self::Handshake(line),
        }
    }
}

/// The flows of a thread, ready to send.
enum Prepared {
    Flows(Vec<Flow>, Poller),
    MessageSender(Box<MessageSender>),
}

impl SenderThread {
    /// Opens the sockets, reports that, waits for the start signal, and sends.
    pub(super) fn run(self, ready: &Outbox<Result<(), ThreadError>>, go: &Inbox<()>) -> Option<ThreadTotals> {
        let prepared = match self.prepare() {
            Ok(prepared) => prepared,
            Err(error) => {
                let _ = ready.send(Err(error));
                return None;
            }
        };
        let _ = ready.send(Ok(()));
        go.recv().ok()?;
        Some(match prepared {
            Prepared::Flows(flows, poller) => self.send(flows, poller),
            Prepared::MessageSender(talk) => self.talk(*talk),
        })
    }

    fn prepare(&self) -> Result<Prepared, ThreadError> {
        if let Some(core) = self.core {
            host::pin_current_thread(core).map_err(|error| ThreadError::Pin(error.to_string()))?;
        }
        let sockets = self.flows.iter().map(|_| Socket::connect(self.to, None));
        let mut sockets = sockets.collect::<Result<Vec<_>, _>>().map_err(ThreadError::Sockets)?;
        let Some((sealed, first)) = self.sealed.zip(sockets.first_mut()) else {
            let places = self.flows.iter().zip(sockets);
            let flows = places.map(|(&(index, id), socket)| Flow::new(index, id, socket, None));
            return Ok(Prepared::Flows(flows.collect(), Poller::new().map_err(ThreadError::Sockets)?));
        };
        if !sealed.mode.has_messages() {
            let mut buffers = SocketBuffers::new(first, SendMode::Single).map_err(ThreadError::Sockets)?;
            let flows = self.flows.iter().zip(sockets).map(|(&(index, id), mut socket)| {
                let sealer = handshake::connect(&mut socket, &mut buffers, &sealed)?;
                Ok(Flow::new(index, id, socket, Some((sealer, self.size))))
            });
            let flows = flows.collect::<Result<Vec<_>, HandshakeError>>()?;
            return Ok(Prepared::Flows(flows, Poller::new().map_err(ThreadError::Sockets)?));
        }
        let mut buffers = SocketBuffers::new(first, self.mode).map_err(ThreadError::Sockets)?;
        let mut groups = Vec::with_capacity(sockets.len().div_ceil(GROUP));
        while !sockets.is_empty() {
            let rest = sockets.split_off(sockets.len().min(GROUP));
            let group = std::mem::replace(&mut sockets, rest);
            groups.push(ClientGroup::connect(group, self.to, &sealed, &mut buffers)?);
        }
        let talk = MessageSender::new(sealed.mode, self.burst(), self.size, groups, buffers, &self.flows);
        Ok(Prepared::MessageSender(talk.into()))
    }

    /// Sends messages until all are settled.
    fn talk(self, mut talk: MessageSender) -> ThreadTotals {
        let cpu = CpuMeter::start();
        let granted = talk.first().map(|client| client.socket.granted());
        let start_ns = clock::host_ns();
        let schedule = Schedule { start_ns, rate: self.rate, length: self.secs };
        let offered = talk.run(&schedule, &self.is_stopping);
        let elapsed = Duration::from_nanos(clock::host_ns().saturating_sub(start_ns));
        let cpu = cpu.read();
        talk.settle(&schedule);
        let MessageTotals { sent_per_flow, messages_per_flow, messages, buffers } = talk.into_totals();
        ThreadTotals {
            sent_bytes: buffers.sent_bytes,
            blocked: buffers.blocked,
            messages: Some((messages_per_flow, SentMessages { offered, ..messages })),
            offered,
            elapsed,
            cpu,
            ..self.totals(sent_per_flow, &buffers.sender, granted)
        }
    }

    fn send(self, mut flows: Vec<Flow>, mut poller: Poller) -> ThreadTotals {
        let cpu = CpuMeter::start();
        let granted = flows.first().map(|flow| flow.socket.granted());
        let burst = self.burst();
        let mut batch = SendBatch::new(burst, burst * self.size);
        let mut sender = Sender::new(self.mode);
        let start_ns = clock::host_ns();
        let schedule = Schedule { start_ns, rate: self.rate, length: self.secs };
        let mut offered = 0;
        'sending: loop {
            for flow in &mut flows {
                let last = offered + burst as u64 - 1;
                if self.is_stopping.load(Ordering::Relaxed) || !schedule.await_turn(last, &mut poller) {
                    break 'sending;
                }
                let filled = flow.fill(&mut batch, burst, self.size, schedule.stamp_ns(last));
                offered += filled;
                flow.sent += filled - self.flush(&mut sender, flow, &mut batch, &mut poller, &schedule);
            }
        }
        let elapsed = Duration::from_nanos(clock::host_ns().saturating_sub(start_ns));
        let due = schedule.due(elapsed).filter(|_| !self.is_stopping.load(Ordering::Relaxed));
        let sent_per_flow = flows.iter().map(|flow| (flow.index, flow.sent)).collect();
        ThreadTotals {
            offered: due.map_or(offered, |due| due.max(offered)),
            elapsed,
            cpu: cpu.read(),
            ..self.totals(sent_per_flow, &sender, granted)
        }
    }

    /// The totals that every kind of run has.
    fn totals(
        &self,
        sent_per_flow: Vec<(u32, u64)>,
        sender: &Sender,
        granted: Option<Granted>,
    ) -> ThreadTotals {
        ThreadTotals {
            index: self.index,
            sent_per_flow,
            sent_bytes: sender.counts().bytes,
            counts: sender.counts().clone(),
            blocked: 0,
            offered: 0,
            messages: None,
            elapsed: Duration::ZERO,
            cpu: None,
            is_unsegmented: sender.mode() != self.mode,
            has_gso: granted.as_ref().is_some_and(|granted| granted.has_gso),
            send_buffer_bytes: granted.map_or(0, |granted| granted.send_buffer_bytes),
        }
    }

    /// The number of datagrams in a row on one flow: as many as one call carries, but at most one millisecond's worth.
    fn burst(&self) -> usize {
        let most = match self.mode {
            SendMode::Single => 1,
            SendMode::Sendmmsg => BATCH,
            SendMode::Gso => TRAIN.min(TRAIN_BYTES / self.size.max(1)),
        };
        let per_millisecond = if self.rate > 0.0 { (self.rate / 1e3).ceil() } else { f64::MAX };
        (1..=most).rev().find(|count| *count as f64 <= per_millisecond).unwrap_or(1)
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
                FlushEnd::Blocked if !self.is_stopping.load(Ordering::Relaxed) && !schedule.is_over() => {
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

/// Measures the CPU time of this thread.
struct CpuMeter {
    thread: u32,
    before: Option<ThreadSample>,
}

impl CpuMeter {
    fn start() -> Self {
        let thread = host::current_thread_id().unwrap_or(0);
        Self { thread, before: ThreadClock::sample(thread) }
    }

    fn read(&self) -> Option<ThreadSample> {
        Some(ThreadClock::sample(self.thread)?.since(self.before.as_ref()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(mode: SendMode, rate: f64, size: usize) -> SenderThread {
        SenderThread {
            index: 0,
            flows: Vec::new(),
            to: SocketAddr::from(([127, 0, 0, 1], 9)),
            size,
            sealed: None,
            rate,
            secs: Duration::from_secs(1),
            mode,
            core: None,
            is_stopping: Arc::default(),
        }
    }

    #[test]
    fn a_burst_is_one_call_or_a_millisecond() {
        assert_eq!(part(SendMode::Single, 0.0, 128).burst(), 1);
        assert_eq!(part(SendMode::Sendmmsg, 0.0, 128).burst(), 32);
        assert_eq!(part(SendMode::Gso, 0.0, 128).burst(), 64);
        assert_eq!(part(SendMode::Gso, 0.0, 1_200).burst(), 54);
        assert_eq!(part(SendMode::Gso, 0.0, 65_507).burst(), 1);
        assert_eq!(part(SendMode::Gso, 10_000.0, 128).burst(), 10);
        assert_eq!(part(SendMode::Gso, 1.0, 128).burst(), 1);
    }
}
