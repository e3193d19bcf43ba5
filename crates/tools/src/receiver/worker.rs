//! One receiver thread. It waits, drains its socket through its stage, publishes its counters, and repeats.
//!
//! It owns its socket and all of its state. No datagram is handed to another thread, except in the bench for
//! [`super::hop`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use drumfire_socket::{
    ConfigError, DrainEnd, DropReason, Fault, Poller, ReceiveCounts, Receiver, ReceiverConfig, Socket, Wait,
    Waiter, Waker,
};

use super::book::StageTotals;
use super::engine::Engine;
use super::hop;
use super::pipeline::PipelinePart;
use super::plan::StartError;
use super::state::Shared;
use crate::choices::Stage;
use crate::clock;
use crate::datagram::MAX_BYTES;
use crate::host;

/// One thread before it starts.
pub(super) struct Worker {
    pub(super) index: u32,
    pub(super) socket: Socket,
    pub(super) receiver: ReceiverConfig,
    pub(super) wait: Wait,
    pub(super) stage: Stage,
    pub(super) may_see_trains: bool,
    /// Set if a second thread runs the stage, with the core to which that thread is pinned.
    pub(super) hop: Option<Option<usize>>,
    /// Set if the stage has connections.
    pub(super) pipeline: Option<PipelinePart>,
    pub(super) shared: Arc<Shared>,
}

/// The totals of a thread, after it ended.
pub(super) struct WorkerTotals {
    pub(super) index: u32,
    counts: ReceiveCounts,
    /// The counts when the session began.
    before: ReceiveCounts,
    pub(super) stages: StageTotals,
    /// Set if the thread ended on its own.
    pub(super) fault: Option<Fault>,
}

impl WorkerTotals {
    pub(super) fn new(
        index: u32,
        counts: ReceiveCounts,
        before: ReceiveCounts,
        stages: StageTotals,
        fault: Option<Fault>,
    ) -> Self {
        Self { index, counts, before, stages, fault }
    }

    /// Datagrams of the session that the socket had to drop for this reason.
    pub(super) fn dropped(&self, reason: DropReason) -> u64 {
        self.counts.dropped(reason) - self.before.dropped(reason)
    }

    /// Receive calls of the session, empty ones too.
    pub(super) fn calls(&self) -> u64 {
        self.counts.calls - self.before.calls
    }

    /// Messages of those calls. A train counts once.
    pub(super) fn messages(&self) -> u64 {
        self.counts.messages - self.before.messages
    }
}

/// A worker with the parts that must be made on its own thread.
pub(super) struct Ready {
    pub(super) worker: Worker,
    pub(super) poller: Poller,
    pub(super) receiver: Receiver,
    pub(super) waiter: Waiter,
    pub(super) engine: Engine,
}

impl Worker {
    /// Makes the poller and the memory.
    ///
    /// # Errors
    ///
    /// [`StartError`] with the setting that cannot be used here, or for want of descriptors.
    pub(super) fn prepare(mut self) -> Result<Ready, StartError> {
        let mut poller = Poller::new().map_err(StartError::Descriptors)?;
        poller.register(&mut self.socket, 0).map_err(StartError::Descriptors)?;
        let unusable = |error: ConfigError| StartError::Setting(format!("--{error}"));
        let config = self.receiver.clone().max_datagram_bytes(MAX_BYTES);
        let receiver = Receiver::new(&mut self.socket, &config).map_err(unusable)?;
        let waiter = Waiter::new(self.wait).map_err(unusable)?;
        let has_gso = self.socket.granted().has_gso;
        let engine = Engine::new(self.stage, self.pipeline.take(), self.may_see_trains, has_gso);
        let engine = engine.map_err(StartError::Setting)?;
        Ok(Ready { worker: self, poller, receiver, waiter, engine })
    }
}

impl Ready {
    /// Ends this thread's wait.
    pub(super) fn waker(&self) -> Waker {
        self.poller.waker()
    }

    /// Receives until the group stops or the socket fails.
    pub(super) fn run(self) -> WorkerTotals {
        if let Some(core) = self.worker.hop {
            return hop::run(self, core);
        }
        let Self { mut worker, mut poller, mut receiver, mut waiter, mut engine } = self;
        let shared = Arc::clone(&worker.shared);
        let state = &shared.states[worker.index as usize];
        state.set_thread_id(host::current_thread_id().unwrap_or(0));
        let mut before_session = ReceiveCounts::default();
        let mut is_more_waiting = false;
        let mut fault = None;
        while !shared.is_stopping.load(Ordering::Acquire) {
            if let Err(error) = waiter.wait(&mut poller, engine.due_in(), is_more_waiting) {
                fault = Some(error);
                break;
            }
            if !engine.book().has_session()
                && let Some(session) = shared.session.get()
            {
                // Datagrams that arrived before the session are not part of it, even if this thread had no time for them.
                engine.pass(&mut receiver, &mut worker.socket);
                engine.begin(&session.ids, session.is_one_host);
                before_session = receiver.counts().clone();
                state.on_session();
            }
            let (before, ours_before) = (arrivals(receiver.counts()), engine.book().ours());
            let end = engine.pass(&mut receiver, &mut worker.socket);
            let new = arrivals(receiver.counts()) - before;
            waiter.on_pass(clock::now(), new);
            if new > 0 {
                // Strangers do not stretch the window.
                if engine.book().ours() > ours_before {
                    state.on_ours(clock::host_ns());
                }
                state.on_pass(receiver.counts().datagrams, receiver.is_gro_on());
            }
            is_more_waiting = end.is_more_waiting();
            if let DrainEnd::Closed(error) = end {
                fault = Some(error);
                break;
            }
        }
        let counts = receiver.counts().clone();
        WorkerTotals::new(worker.index, counts, before_session, engine.into_totals(), fault)
    }
}

/// All arrivals, including unusable datagrams, which cost the same.
pub(super) fn arrivals(counts: &ReceiveCounts) -> u64 {
    let dropped: u64 = DropReason::ALL.iter().map(|reason| counts.dropped(*reason)).sum();
    counts.datagrams + dropped
}
