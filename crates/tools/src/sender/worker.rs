//! One sending thread: an open-loop schedule over its flows, in turn.
//!
//! Send times are fixed beforehand; a datagram that leaves late still carries the time it was meant to leave.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver as Inbox, Sender as Outbox};
use std::time::Duration;

use drumfire_socket::{Fault, FlushEnd, Parker, Poller, SendBatch, SendCounts, SendMode, Sender};

use super::flow::Flow;
use super::handshake::{Handshake, HandshakeError};
use crate::clock;
use crate::control::Sealed;
use crate::datagram::RouteId;
use crate::host::{self, ThreadClock, ThreadSample};

/// The most datagrams one `sendmmsg` carries here.
const BATCH: usize = 32;

/// The most datagrams in one train.
const TRAIN: usize = 64;

/// The most bytes in one train.
const TRAIN_BYTES: usize = 65_000;

/// A wait longer than this sleeps first; a shorter one spins, for a sleep may end this much late.
const SPIN: Duration = Duration::from_micros(60);

/// Flows that connect together.
const CONNECTING: usize = 64;

/// How long a full socket is left alone.
const BLOCKED_REST: Duration = Duration::from_micros(50);

/// One thread's part of the traffic.
pub(super) struct Part {
    pub(super) index: u32,
    pub(super) flows: Vec<(u32, RouteId)>,
    pub(super) to: SocketAddr,
    pub(super) size: usize,
    /// Set where every flow has to be a connection.
    pub(super) sealed: Option<Sealed>,
    /// Datagrams per second of this thread; 0 = as fast as possible.
    pub(super) rate: f64,
    pub(super) secs: Duration,
    pub(super) mode: SendMode,
    pub(super) core: Option<usize>,
    pub(super) is_stopping: Arc<AtomicBool>,
}

/// What a thread did.
pub(super) struct PartTotals {
    pub(super) index: u32,
    /// Flow and datagrams the kernel took of it.
    pub(super) sent_per_flow: Vec<(u32, u64)>,
    pub(super) counts: SendCounts,
    /// Datagrams that were due by the end.
    pub(super) offered: u64,
    pub(super) elapsed: Duration,
    pub(super) cpu: Option<ThreadSample>,
    /// Whether segmentation was asked for and refused.
    pub(super) is_unsegmented: bool,
    pub(super) has_gso: bool,
    pub(super) send_buffer_bytes: usize,
}

/// Why a thread could not start.
#[derive(Debug)]
pub(super) enum PartError {
    Sockets(std::io::Error),
    Pin(String),
    Handshake(String),
}

impl From<HandshakeError> for PartError {
    fn from(error: HandshakeError) -> Self {
        match error {
            HandshakeError::Io(error) => Self::Sockets(error),
            HandshakeError::Failed(line) => Self::Handshake(line),
        }
    }
}

impl Part {
    /// Opens the sockets, says so, waits for the word, sends.
    pub(super) fn run(self, ready: &Outbox<Result<(), PartError>>, go: &Inbox<()>) -> Option<PartTotals> {
        let prepared = self.prepare();
        let (flows, poller) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                let _ = ready.send(Err(error));
                return None;
            }
        };
        let _ = ready.send(Ok(()));
        go.recv().ok()?;
        Some(self.send(flows, poller))
    }

    fn prepare(&self) -> Result<(Vec<Flow>, Poller), PartError> {
        if let Some(core) = self.core {
            host::pin_current_thread(core).map_err(|error| PartError::Pin(error.to_string()))?;
        }
        let poller = Poller::new().map_err(PartError::Sockets)?;
        let flows = self.flows.iter().map(|&(index, id)| Flow::open(index, id, self.to));
        let mut flows = flows.collect::<Result<Vec<_>, _>>().map_err(PartError::Sockets)?;
        if let Some(sealed) = &self.sealed {
            for group in flows.chunks_mut(CONNECTING) {
                self.connect(group, sealed)?;
            }
        }
        Ok((flows, poller))
    }

    /// Makes these flows connections.
    fn connect(&self, flows: &mut [Flow], sealed: &Sealed) -> Result<(), HandshakeError> {
        let mut handshakes = Vec::with_capacity(flows.len());
        for flow in &mut *flows {
            let mut handshake = Handshake::begin(&mut flow.socket, self.to, sealed)?;
            // One after the other as far as both ends compute; what is left is waiting.
            while !handshake.is_connected() {
                handshake.step(&mut flow.socket)?;
            }
            handshakes.push(handshake);
        }
        flows.iter_mut().zip(handshakes).try_for_each(|(flow, handshake)| flow.seal(handshake, self.size))
    }

    fn send(self, mut flows: Vec<Flow>, mut poller: Poller) -> PartTotals {
        let thread = host::current_thread_id().unwrap_or(0);
        let before = ThreadClock::sample(thread);
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
        let is_stopped = self.is_stopping.load(Ordering::Relaxed);
        PartTotals {
            index: self.index,
            sent_per_flow: flows.iter().map(|flow| (flow.index, flow.sent)).collect(),
            counts: sender.counts().clone(),
            offered: if is_stopped {
                offered
            } else {
                schedule.due(elapsed).map_or(offered, |due| due.max(offered))
            },
            elapsed,
            cpu: ThreadClock::sample(thread).zip(before).map(|(now, then)| now.since(&then)),
            is_unsegmented: sender.mode() != self.mode,
            has_gso: granted.is_some_and(|granted| granted.has_gso),
            send_buffer_bytes: granted.map_or(0, |granted| granted.send_buffer_bytes),
        }
    }

    /// Datagrams sent in a row on one flow: what one call carries, but never more than a millisecond's worth.
    fn burst(&self) -> usize {
        let most = match self.mode {
            SendMode::Single => 1,
            SendMode::Sendmmsg => BATCH,
            SendMode::Gso => TRAIN.min(TRAIN_BYTES / self.size.max(1)),
        };
        let per_millisecond = if self.rate > 0.0 { (self.rate / 1e3).ceil() } else { f64::MAX };
        (1..=most).rev().find(|count| *count as f64 <= per_millisecond).unwrap_or(1)
    }

    /// Sends the batch; answers how many of its datagrams the kernel did not take.
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
            match sender.flush(&mut flow.socket, batch, |_, _: Fault| lost += 1) {
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

/// When each datagram is due.
struct Schedule {
    start_ns: u64,
    rate: f64,
    length: Duration,
}

impl Schedule {
    /// How many datagrams are due in this time; `None` without a rate.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "float casts saturate")]
    fn due(&self, elapsed: Duration) -> Option<u64> {
        let time = elapsed.min(self.length).as_secs_f64();
        (self.rate > 0.0).then(|| (time * self.rate).round() as u64)
    }

    /// The intended time of the `n`-th datagram, from 0; without a rate it is now.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "float casts saturate")]
    fn stamp_ns(&self, n: u64) -> u64 {
        if self.rate > 0.0 { self.start_ns + (n as f64 * 1e9 / self.rate) as u64 } else { clock::host_ns() }
    }

    /// Whether the run's time has passed.
    fn is_over(&self) -> bool {
        Duration::from_nanos(clock::host_ns().saturating_sub(self.start_ns)) >= self.length
    }

    /// Waits until the `n`-th datagram is due; false when the run is over.
    fn await_turn(&self, n: u64, poller: &mut Poller) -> bool {
        let (now, is_over) = (clock::host_ns(), self.is_over());
        if self.rate <= 0.0 {
            return !is_over;
        }
        if is_over || self.due(self.length).is_some_and(|all| n >= all) {
            return false;
        }
        let due_ns = self.stamp_ns(n);
        let rest = Duration::from_nanos(due_ns.saturating_sub(now));
        if rest > SPIN {
            poller.nap(rest - SPIN);
        }
        while clock::host_ns() < due_ns {
            std::hint::spin_loop();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(rate: f64, seconds: u64) -> Schedule {
        Schedule { start_ns: 1_000, rate, length: Duration::from_secs(seconds) }
    }

    #[test]
    fn send_times_lie_evenly_from_the_start_on() {
        let schedule = schedule(250_000.0, 1);
        assert_eq!(schedule.stamp_ns(0), 1_000);
        assert_eq!(schedule.stamp_ns(1), 5_000);
        assert_eq!(schedule.stamp_ns(250_000), 1_000_001_000);
    }

    #[test]
    fn what_is_due_follows_the_clock_and_ends_with_the_run() {
        let schedule = schedule(1_000.0, 2);
        assert_eq!(schedule.due(Duration::from_millis(500)), Some(500));
        assert_eq!(schedule.due(Duration::from_secs(2)), Some(2_000));
        assert_eq!(schedule.due(Duration::from_secs(9)), Some(2_000));
        assert_eq!(Schedule { rate: 0.0, ..schedule }.due(Duration::from_secs(1)), None);
    }

    fn part(mode: SendMode, rate: f64, size: usize) -> Part {
        Part {
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
    fn a_burst_is_what_one_call_carries_and_at_most_a_millisecond() {
        assert_eq!(part(SendMode::Single, 0.0, 128).burst(), 1);
        assert_eq!(part(SendMode::Sendmmsg, 0.0, 128).burst(), 32);
        assert_eq!(part(SendMode::Gso, 0.0, 128).burst(), 64);
        assert_eq!(part(SendMode::Gso, 0.0, 1_200).burst(), 54);
        assert_eq!(part(SendMode::Gso, 0.0, 65_507).burst(), 1);
        assert_eq!(part(SendMode::Gso, 10_000.0, 128).burst(), 10);
        assert_eq!(part(SendMode::Gso, 1.0, 128).burst(), 1);
    }
}
