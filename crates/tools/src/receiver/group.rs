//! The receiver threads: bound to one port, started, sampled while they run, and stopped.
//!
//! A thread waits, drains its socket through its stage, publishes its counters, and repeats. It owns its socket and all of its
//! state. No datagram is handed to another thread.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use drumfire::worker::{Wake, rings};
use drumfire_socket::{
    ConfigError, DrainEnd, DropMeter, DropReason, Fault, GroupConfig, Poller, ReceiveCounts, Receiver,
    ReceiverConfig, ReuseportGroup, Socket, SteeringFilter, Wait, Waiter, Waker,
};
use rustix::io::Errno;

use super::book::StageTotals;
use super::plan::{Plan, StartError};
use super::service::{Service, StagePart};
use super::stages::ThreadStage;
use super::state::{GroupSample, Meters, Session, Shared, WorkerState};
use super::watch::ReceiverSource;
use crate::choices::{Drain, Gro, Stage, Steer};
use crate::clock;
use crate::datagram::{MAX_BYTES, MIN_BYTES, TAG_OFFSET};
use crate::host::{self, ThreadSample};
use crate::report::Granted;

/// How long the threads may take to begin a session. A thread that has ended never does; the end of the run reports it.
const BEGIN_PATIENCE: Duration = Duration::from_secs(10);

/// The thread of a worker. It returns `None` if it could not start.
type Thread = JoinHandle<Option<WorkerTotals>>;

/// Running receiver threads.
pub(super) struct WorkerGroup {
    address: SocketAddr,
    shared: Arc<Shared>,
    meters: Meters,
    threads: Vec<Thread>,
    granted: Granted,
}

impl WorkerGroup {
    /// Binds the group and starts a thread for each socket.
    pub(super) fn start(
        plan: &Plan,
        filter: Option<SteeringFilter>,
        service: Option<&Service>,
    ) -> Result<Self, StartError> {
        let sockets = bind(plan, filter)?;
        let address = sockets.first().map_or(Ok(plan.bind), Socket::local_addr).map_err(StartError::Bind)?;
        let granted = granted(&sockets);
        let shared = Arc::new(Shared {
            states: sockets.iter().map(|_| Arc::default()).collect(),
            session: OnceLock::new(),
            is_stopping: AtomicBool::new(false),
        });
        let meters = Meters::new(sockets.iter().map(meter).collect::<Result<_, _>>()?);
        let mut group = Self { address, shared, meters, threads: Vec::new(), granted };
        match group.start_threads(plan, sockets, service) {
            Ok(()) => Ok(group),
            Err(error) => {
                // The threads that did start must not keep the port.
                group.stop();
                Err(error)
            }
        }
    }

    fn start_threads(
        &mut self,
        plan: &Plan,
        sockets: Vec<Socket>,
        service: Option<&Service>,
    ) -> Result<(), StartError> {
        let rings = rings(&self.shared.states);
        for ((index, socket), ring) in (0_u16..).zip(sockets).zip(rings) {
            let part = service.map(|service| StagePart { service: service.clone(), index, ring });
            let index = u32::from(index);
            let core = plan.cores.get(index as usize % plan.cores.len().max(1)).copied();
            let worker = Worker {
                index,
                socket,
                receiver: ReceiverConfig::default().drain(plan.drain.into()).gro(plan.gro.into()),
                wait: plan.wait,
                stage: plan.stage,
                part,
                may_see_trains: plan.gro != Gro::Off && plan.drain != Drain::Recv,
                shared: Arc::clone(&self.shared),
            };
            let (thread, waker) = spawn(worker, core)?;
            self.threads.push(thread);
            if let Some(state) = self.shared.states.get(index as usize) {
                let _ = state.waker.set(waker);
            }
        }
        Ok(())
    }

    /// The address of the group, with its port resolved.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The settings that the kernel granted. Whether GRO is on is known only after trains arrived.
    pub(super) fn granted(&self) -> Granted {
        Granted { gro: Some(self.is_gro_on()), ..self.granted.clone() }
    }

    /// Returns whether any socket receives trains. The kernel then counts trains instead of datagrams.
    pub(super) fn is_gro_on(&self) -> bool {
        self.shared.states.iter().any(|state| state.is_gro_on.load(Ordering::Relaxed))
    }

    /// Begins the only session of this group, and waits until all threads know its flows. Until then a datagram would have no
    /// flow.
    pub(super) fn begin(&self, session: Session) {
        let _ = self.shared.session.set(session);
        self.wake();
        let patience = clock::now() + BEGIN_PATIENCE;
        let has_begun = |state: &Arc<WorkerState>| state.has_session.load(Ordering::Acquire);
        while !self.shared.states.iter().all(has_begun) && clock::now() < patience {
            clock::pause(Duration::from_millis(1));
        }
    }

    /// Returns whether the system counts its drops.
    pub(super) fn has_drop_counts(&self) -> bool {
        self.meters.are_all()
    }

    pub(super) fn sample(&self) -> GroupSample {
        let states = &self.shared.states;
        GroupSample {
            received: states.iter().map(|state| state.received.load(Ordering::Relaxed)).collect(),
            queues: self.meters.read(),
            cpu: self.cpu(),
        }
    }

    /// The source of a control socket that shows these threads.
    pub(super) fn source(&self) -> ReceiverSource {
        ReceiverSource::new(Arc::clone(&self.shared), self.meters.clone())
    }

    /// The CPU time of each thread so far.
    pub(super) fn cpu(&self) -> Vec<Option<ThreadSample>> {
        self.shared.states.iter().map(|state| state.cpu()).collect()
    }

    /// The time of the last pass with datagrams of the sender on any thread, on the clock of the host; 0 if none arrived.
    pub(super) fn last_receive_ns(&self) -> u64 {
        let times = self.shared.states.iter().map(|state| state.last_receive_ns.load(Ordering::Relaxed));
        times.max().unwrap_or(0)
    }

    /// Ends the threads and returns their totals by index.
    pub(super) fn stop(self) -> Vec<WorkerTotals> {
        self.shared.is_stopping.store(true, Ordering::Release);
        self.wake();
        let mut totals: Vec<WorkerTotals> =
            self.threads.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect();
        totals.sort_by_key(|totals| totals.index);
        totals
    }

    fn wake(&self) {
        self.shared.states.iter().for_each(|state| state.wake());
    }
}

fn bind(plan: &Plan, filter: Option<SteeringFilter>) -> Result<Vec<Socket>, StartError> {
    let mut group = GroupConfig::new(plan.bind).sockets(plan.threads as usize);
    if let Some(bytes) = plan.receive_buffer_bytes {
        group = group.receive_buffer_bytes(bytes);
    }
    if let Some(filter) = filter {
        group = group.steering(filter);
    }
    ReuseportGroup::bind(&group).map(ReuseportGroup::into_sockets).map_err(|error| {
        let is_limit = matches!(Errno::from_io_error(&error), Some(Errno::MFILE | Errno::NFILE));
        if is_limit { StartError::Descriptors(error) } else { StartError::Bind(error) }
    })
}

/// The drop meter of the socket; `None` if the platform has none. The books then say so.
fn meter(socket: &Socket) -> Result<Option<DropMeter>, StartError> {
    match socket.drop_meter() {
        Ok(meter) => Ok(Some(meter)),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(None),
        Err(error) => Err(StartError::Descriptors(error)),
    }
}

/// Returns whether routing tags select the thread. One socket has nothing to steer, and some platforms allow only one.
pub(super) fn is_steered(plan: &Plan) -> bool {
    plan.steer == Steer::Tag && plan.threads > 1
}

/// The filter for this secret, if routing tags select the thread.
pub(super) fn filter(plan: &Plan, secret: u32) -> Result<Option<SteeringFilter>, StartError> {
    if !is_steered(plan) {
        return Ok(None);
    }
    SteeringFilter::new(TAG_OFFSET, MIN_BYTES, secret, plan.threads as usize)
        .map(Some)
        .map_err(|error| StartError::Setting(format!("--threads: {error}")))
}

fn granted(sockets: &[Socket]) -> Granted {
    let first = sockets.first().map(Socket::granted);
    Granted {
        receive_buffer_bytes: first.map(|granted| granted.receive_buffer_bytes as u64),
        send_buffer_bytes: first.map(|granted| granted.send_buffer_bytes as u64),
        gro: None,
        gso: None,
        filter: Some(filter_text(first.is_some_and(|granted| granted.has_filter), sockets.len()).to_owned()),
    }
}

/// The name of the mechanism that spreads datagrams over the group.
fn filter_text(has_filter: bool, sockets: usize) -> &'static str {
    match (has_filter, sockets) {
        (true, _) => Steer::Tag.name(),
        (false, 1) => "none, for one socket",
        (false, _) => Steer::Hash.name(),
    }
}

/// One thread before it starts.
pub(super) struct Worker {
    pub(super) index: u32,
    pub(super) socket: Socket,
    pub(super) receiver: ReceiverConfig,
    pub(super) wait: Wait,
    pub(super) stage: Stage,
    pub(super) may_see_trains: bool,
    /// Set if the stage has connections.
    pub(super) part: Option<StagePart>,
    pub(super) shared: Arc<Shared>,
}

/// The totals of a thread, after it ended.
pub(super) struct WorkerTotals {
    pub(super) index: u32,
    pub(super) counts: ReceiveCounts,
    /// The counts when the session began.
    pub(super) before: ReceiveCounts,
    pub(super) stage: StageTotals,
    /// Set if the thread ended on its own.
    pub(super) fault: Option<Fault>,
}

impl WorkerTotals {
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
pub(super) struct ReadyWorker {
    pub(super) worker: Worker,
    pub(super) poller: Poller,
    pub(super) receiver: Receiver,
    pub(super) waiter: Waiter,
    pub(super) stage: ThreadStage,
}

impl Worker {
    /// Makes the poller and the memory.
    pub(super) fn prepare(mut self) -> Result<ReadyWorker, StartError> {
        let mut poller = Poller::new().map_err(StartError::Descriptors)?;
        poller.register(&mut self.socket, 0).map_err(StartError::Descriptors)?;
        let unusable = |error: ConfigError| StartError::Setting(format!("--{error}"));
        let config = self.receiver.clone().max_datagram_bytes(MAX_BYTES);
        let receiver = Receiver::new(&mut self.socket, &config).map_err(unusable)?;
        let waiter = Waiter::new(self.wait).map_err(unusable)?;
        let has_gso = self.socket.granted().has_gso;
        let stage = ThreadStage::new(self.stage, self.part.take(), self.may_see_trains, has_gso);
        let stage = stage.map_err(StartError::Setting)?;
        Ok(ReadyWorker { worker: self, poller, receiver, waiter, stage })
    }
}

impl ReadyWorker {
    /// Receives until the group stops or the socket fails.
    pub(super) fn run(self) -> WorkerTotals {
        let Self { mut worker, mut poller, mut receiver, mut waiter, mut stage } = self;
        let shared = Arc::clone(&worker.shared);
        let state = &shared.states[worker.index as usize];
        state.thread_id.store(host::current_thread_id().unwrap_or(0), Ordering::Release);
        let mut before_session = ReceiveCounts::default();
        let mut is_more_waiting = false;
        let mut fault = None;
        while !shared.is_stopping.load(Ordering::Acquire) {
            if let Err(error) = waiter.wait(&mut poller, stage.due_in(), is_more_waiting) {
                fault = Some(error);
                break;
            }
            if !stage.book().has_session()
                && let Some(session) = shared.session.get()
            {
                // Datagrams that arrived before the session are not part of it, even if this thread had no time for them.
                stage.pass(&mut receiver, &mut worker.socket);
                stage.begin(session);
                before_session = receiver.counts().clone();
                state.has_session.store(true, Ordering::Release);
            }
            let (before, ours_before) = (arrivals(receiver.counts()), stage.book().ours());
            let end = stage.pass(&mut receiver, &mut worker.socket);
            let new = arrivals(receiver.counts()) - before;
            waiter.on_pass(clock::now(), new);
            if new > 0 {
                // Strangers do not stretch the window.
                if stage.book().ours() > ours_before {
                    state.last_receive_ns.store(clock::host_ns(), Ordering::Relaxed);
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
        WorkerTotals {
            index: worker.index,
            counts,
            before: before_session,
            stage: stage.into_totals(),
            fault,
        }
    }
}

/// All arrivals, including unusable datagrams, which cost the same.
fn arrivals(counts: &ReceiveCounts) -> u64 {
    let dropped: u64 = DropReason::ALL.iter().map(|reason| counts.dropped(*reason)).sum();
    counts.datagrams + dropped
}

/// Starts a worker's thread and waits until it is ready to receive.
fn spawn(worker: Worker, core: Option<usize>) -> Result<(Thread, Waker), StartError> {
    let (outbox, inbox) = channel();
    let thread = std::thread::Builder::new()
        .name(format!("receiver-{}", worker.index))
        .spawn(move || {
            // The other end of the channel waits for this result.
            match pin(core).and_then(|()| worker.prepare()) {
                Ok(ready) => {
                    let _ = outbox.send(Ok(ready.poller.waker()));
                    Some(ready.run())
                }
                Err(error) => {
                    let _ = outbox.send(Err(error));
                    None
                }
            }
        })
        .map_err(|error| StartError::Setting(format!("--threads: a thread cannot be started: {error}")))?;
    match inbox.recv() {
        Ok(Ok(waker)) => Ok((thread, waker)),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(StartError::Setting("a receiver thread ended before it began".to_owned())),
    }
}

fn pin(core: Option<usize>) -> Result<(), StartError> {
    core.map_or(Ok(()), host::pin_current_thread)
        .map_err(|error| StartError::Setting(format!("--pin: {error}")))
}
