//! The state that receiver threads publish, and the source of a live view that shows it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use drumfire::control::SurveyOrder;
use drumfire::worker::Wake;
use drumfire_control::{Snapshot, Source, WorkerRow};
use drumfire_socket::{DropMeter, QueueState, Waker};

use crate::clock;
use crate::datagram::RouteId;
use crate::host::{ThreadClock, ThreadSample};
use crate::report::whole;

/// The state of one thread that other threads can read, on its own cache lines. Only its own thread writes it, once per pass.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct WorkerState {
    /// Datagrams received since the thread started, from any address.
    pub(super) received: AtomicU64,
    /// The time of the last pass with datagrams of the sender, on the clock of the host.
    pub(super) last_receive_ns: AtomicU64,
    pub(super) is_gro_on: AtomicBool,
    /// Whether the thread knows the flows of the session and uses them.
    pub(super) has_session: AtomicBool,
    /// The kernel's number of the thread; 0 until it runs, or if it is not known.
    pub(super) thread_id: AtomicU32,
    /// Ends the wait of the thread. Set once it runs.
    pub(super) waker: OnceLock<Waker>,
}

impl Wake for WorkerState {
    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            // A thread that cannot be woken reads the flags with its next datagram.
            let _ = waker.wake();
        }
    }
}

/// The session of the sender that was accepted.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) ids: Arc<[RouteId]>,
    pub(super) is_one_host: bool,
}

/// The state that all threads share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) states: Vec<Arc<WorkerState>>,
    /// The drop meters of all sockets; `None` where the system has none.
    meters: Mutex<Vec<Option<DropMeter>>>,
    pub(super) session: OnceLock<Session>,
    pub(super) is_stopping: AtomicBool,
}

/// The counters of all threads at one time.
#[derive(Clone, Debug)]
pub(super) struct GroupSample {
    pub(super) received: Vec<u64>,
    pub(super) queues: Vec<Option<QueueState>>,
    pub(super) cpu: Vec<Option<ThreadSample>>,
}

impl Shared {
    pub(super) fn new(meters: Vec<Option<DropMeter>>) -> Self {
        Self {
            states: meters.iter().map(|_| Arc::default()).collect(),
            meters: Mutex::new(meters),
            session: OnceLock::new(),
            is_stopping: AtomicBool::new(false),
        }
    }

    pub(super) fn sample(&self) -> GroupSample {
        GroupSample {
            received: self.states.iter().map(|state| state.received.load(Ordering::Relaxed)).collect(),
            queues: self.queues(),
            cpu: self.cpu(),
        }
    }

    /// The CPU time of each thread so far.
    pub(super) fn cpu(&self) -> Vec<Option<ThreadSample>> {
        let states = self.states.iter();
        states.map(|state| ThreadClock::sample(state.thread_id.load(Ordering::Acquire))).collect()
    }

    /// The state of each receive queue; `None` if the system does not show it.
    fn queues(&self) -> Vec<Option<QueueState>> {
        let mut meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        meters.iter_mut().map(|meter| meter.as_mut()?.read().ok()).collect()
    }

    pub(super) fn wake(&self) {
        self.states.iter().for_each(|state| state.wake());
    }
}

impl GroupSample {
    /// Kernel drops of all sockets; `None` if the system does not count them.
    pub(super) fn kernel_drops(&self) -> Option<u64> {
        self.queues.iter().map(|queue| queue.map(|queue| queue.drops)).sum()
    }

    /// Returns whether every receive queue is empty, as far as the system shows them.
    pub(super) fn is_drained(&self) -> bool {
        self.queues.iter().all(|queue| queue.is_none_or(|queue| queue.queued_bytes == 0))
    }
}

/// A running receiver as the source of a control socket or a live view, which shows its threads. Flows are not listed, closed, or
/// traced.
pub(crate) struct ReceiverSource {
    shared: Arc<Shared>,
    /// The time of the last snapshot, and the CPU time of each thread at that time in nanoseconds.
    before: Option<(Instant, Vec<Option<u64>>)>,
}

impl ReceiverSource {
    pub(super) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared, before: None }
    }

    /// The share of a core that each thread used since the last snapshot. `None` in the first snapshot, and where the system does
    /// not show the time of a thread.
    fn busy_percents(&mut self) -> Vec<Option<u64>> {
        let used = |sample: Option<ThreadSample>| sample.map(|sample| sample.run_ns);
        let (now, used): (_, Vec<_>) = (clock::now(), self.shared.cpu().into_iter().map(used).collect());
        let Some((then, before)) = self.before.replace((now, used.clone())) else {
            return vec![None; used.len()];
        };
        let elapsed = now.saturating_duration_since(then);
        used.into_iter().zip(before).map(|(used, before)| busy_percent(used, before, elapsed)).collect()
    }
}

/// Returns the share of a core, from the CPU times of a thread in nanoseconds. A thread without a time in the last snapshot had not
/// started then, so it used all of its time since.
fn busy_percent(used: Option<u64>, before: Option<u64>, elapsed: Duration) -> Option<u64> {
    let run_ns = used?.saturating_sub(before.unwrap_or(0));
    let share = run_ns as f64 / elapsed.as_nanos() as f64;
    share.is_finite().then(|| whole((100.0 * share).round()))
}

impl Source for ReceiverSource {
    fn snapshot(&mut self, _: SurveyOrder, _: usize) -> Snapshot {
        let busy = self.busy_percents();
        let states = self.shared.states.iter();
        let rows =
            states.zip(self.shared.queues()).zip(busy).map(|((state, queue), busy_percent)| WorkerRow {
                received: state.received.load(Ordering::Relaxed),
                sent: 0,
                busy_percent,
                connections: 0,
                waiting: queue.map_or(0, |queue| queue.queued_bytes.into()),
                kernel_dropped: queue.map(|queue| queue.drops),
                dropped: BTreeMap::new(),
            });
        let (program, taken_at_nanos) = ("receiver".to_owned(), clock::host_ns());
        Snapshot { program, taken_at_nanos, workers: rows.collect(), ..Snapshot::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_started_between_two_snapshots_has_a_share() {
        let elapsed = Duration::from_nanos(2_000);
        assert_eq!(busy_percent(Some(1_500), Some(1_000), elapsed), Some(25));
        assert_eq!(busy_percent(Some(500), None, elapsed), Some(25));
        assert_eq!(busy_percent(None, None, elapsed), None, "the system shows no times");
    }
}
