//! One receiver thread: wait, drain, take every batch through the stages, show the counters, again.
//!
//! It owns its socket and everything it touches; nothing is handed to another thread per datagram.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use drumfire_socket::{
    DrainEnd, Fault, Poller, ReceiveCounts, Receiver, ReceiverConfig, Socket, Wait, Waiter, Waker,
};

use super::board::Board;
use super::stage::{StageTotals, Stages};
use crate::choices::Stage;
use crate::clock;
use crate::datagram::{MAX_BYTES, RouteId};
use crate::host;

/// Datagrams taken in one pass before timers and commands get their turn.
const BUDGET: usize = 1_024;

/// The flows of the sender that was welcomed.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) ids: Arc<[RouteId]>,
    pub(super) is_one_host: bool,
}

/// What all threads of a crew look at.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) boards: Vec<Board>,
    pub(super) session: OnceLock<Session>,
    pub(super) is_stopping: AtomicBool,
}

/// One thread's part of the plan.
pub(super) struct Worker {
    pub(super) index: u32,
    pub(super) socket: Socket,
    pub(super) receiver: ReceiverConfig,
    pub(super) wait: Wait,
    pub(super) stage: Stage,
    pub(super) may_see_trains: bool,
    pub(super) shared: Arc<Shared>,
}

/// What a thread counted, after it ended.
pub(super) struct WorkerTotals {
    pub(super) index: u32,
    pub(super) counts: ReceiveCounts,
    pub(super) stages: StageTotals,
    /// Set when the thread did not end because it was told to.
    pub(super) fault: Option<Fault>,
}

/// The parts of a worker that must be made on its own thread.
pub(super) struct Ready {
    worker: Worker,
    poller: Poller,
    receiver: Receiver,
    waiter: Waiter,
}

impl Worker {
    /// Makes the poller and the memory.
    ///
    /// # Errors
    ///
    /// One line that says which setting cannot be used here.
    pub(super) fn prepare(mut self) -> Result<Ready, String> {
        let mut poller = Poller::new().map_err(|error| format!("no poll for a thread: {error}"))?;
        poller
            .register(&mut self.socket, 0)
            .map_err(|error| format!("a socket cannot be polled: {error}"))?;
        let config = self.receiver.clone().max_datagram_bytes(MAX_BYTES);
        let receiver = Receiver::new(&mut self.socket, &config).map_err(|error| format!("--{error}"))?;
        let waiter = Waiter::new(self.wait).map_err(|error| format!("--{error}"))?;
        Ok(Ready { worker: self, poller, receiver, waiter })
    }
}

impl Ready {
    /// Ends this thread's wait.
    pub(super) fn waker(&self) -> Waker {
        self.poller.waker()
    }

    /// Receives until the crew stops or the socket is gone.
    pub(super) fn run(self) -> WorkerTotals {
        let Self { mut worker, mut poller, mut receiver, mut waiter } = self;
        let shared = Arc::clone(&worker.shared);
        let board = &shared.boards[worker.index as usize];
        board.set_thread_id(host::current_thread_id().unwrap_or(0));
        let mut stages = Stages::new(worker.stage, worker.may_see_trains);
        let mut is_more_waiting = false;
        let mut fault = None;
        while !shared.is_stopping.load(Ordering::Acquire) {
            if let Err(error) = waiter.wait(&mut poller, None, is_more_waiting) {
                fault = Some(error);
                break;
            }
            if !stages.has_session()
                && let Some(session) = shared.session.get()
            {
                stages.begin(&session.ids, session.is_one_host);
            }
            let before = arrivals(receiver.counts());
            let end = receiver.drain(&mut worker.socket, BUDGET, |received| stages.take(received));
            let new = arrivals(receiver.counts()) - before;
            waiter.on_pass(clock::now(), new);
            if new > 0 {
                board.on_pass(receiver.counts().datagrams, clock::host_ns(), receiver.is_gro_on());
            }
            is_more_waiting = matches!(end, DrainEnd::BudgetSpent | DrainEnd::Starved);
            if let DrainEnd::Closed(error) = end {
                fault = Some(error);
                break;
            }
        }
        WorkerTotals {
            index: worker.index,
            counts: receiver.counts().clone(),
            stages: stages.into_totals(),
            fault,
        }
    }
}

/// Everything that came, unusable datagrams too: they cost the same.
fn arrivals(counts: &ReceiveCounts) -> u64 {
    let dropped: u64 = drumfire_socket::DropReason::ALL.iter().map(|reason| counts.dropped(*reason)).sum();
    counts.datagrams + dropped
}
