//! A running receiver as the source of a control socket, which shows its threads. Flows are not listed, closed, or traced.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use drumfire::SurveyOrder;
use drumfire::control::{Snapshot, Source, WorkerRow};
use drumfire_socket::{DropMeter, QueueState};

use super::state::{Shared, WorkerState};
use crate::clock;

/// The error for commands about connections.
const NO_PEERS: &str = "a receiver has flows of a sender and no players";

/// The drop meters of all sockets, shared by all readers.
#[derive(Clone, Debug)]
pub(super) struct Meters(Arc<Mutex<Vec<Option<DropMeter>>>>);

impl Meters {
    pub(super) fn new(meters: Vec<Option<DropMeter>>) -> Self {
        Self(Arc::new(Mutex::new(meters)))
    }

    /// Reads the state of each queue; `None` if the system does not show it.
    pub(super) fn read(&self) -> Vec<Option<QueueState>> {
        let mut meters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        meters.iter_mut().map(|meter| meter.as_mut()?.read().ok()).collect()
    }

    /// Returns whether all sockets have a meter.
    pub(super) fn are_all(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().all(Option::is_some)
    }
}

/// The source of a control socket for a receiver.
pub struct ControlSource {
    shared: Arc<Shared>,
    meters: Meters,
    /// The time of the last snapshot, and the CPU time of each thread at that time in seconds.
    before: Option<(Instant, Vec<Option<f64>>)>,
}

impl ControlSource {
    pub(super) const fn new(shared: Arc<Shared>, meters: Meters) -> Self {
        Self { shared, meters, before: None }
    }

    /// The share of a core that each thread used since the last snapshot.
    fn busy_percents(&mut self) -> Vec<Option<u64>> {
        let now = clock::now();
        let seconds = |state: &WorkerState| {
            let time = state.cpu()?.cpu_time();
            Some(time.user_s + time.sys_s)
        };
        let used: Vec<Option<f64>> = self.shared.states.iter().map(|state| seconds(state)).collect();
        let before = self.before.replace((now, used.clone()));
        let Some((then, before)) = before else { return vec![None; used.len()] };
        let elapsed = now.saturating_duration_since(then).as_secs_f64();
        let share = |(used, before): (Option<f64>, Option<f64>)| percent(used? - before?, elapsed);
        used.into_iter().zip(before).map(share).collect()
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "float casts saturate; shares are positive"
)]
fn percent(used: f64, elapsed: f64) -> Option<u64> {
    (elapsed > 0.0).then(|| (100.0 * used / elapsed).round() as u64)
}

impl Source for ControlSource {
    fn snapshot(&mut self, _: SurveyOrder, _: usize) -> Snapshot {
        let busy = self.busy_percents();
        let states = self.shared.states.iter();
        let rows = states.zip(self.meters.read()).zip(busy).map(|((state, queue), busy_percent)| WorkerRow {
            received: state.received(),
            sent: 0,
            busy_percent,
            connections: 0,
            waiting: queue.map_or(0, |queue| queue.queued_bytes.into()),
            kernel_dropped: queue.map(|queue| queue.drops),
            dropped: BTreeMap::new(),
        });
        Snapshot { what: "receiver".to_owned(), workers: rows.collect(), ..Snapshot::default() }
    }

    fn close(&mut self, _: &str, _: &str) -> Result<String, String> {
        Err(NO_PEERS.to_owned())
    }

    fn ban(&mut self, _: &str, _: Duration) -> Result<String, String> {
        Err(NO_PEERS.to_owned())
    }

    fn trace(&mut self, _: &str) -> Result<String, String> {
        Err(NO_PEERS.to_owned())
    }
}
