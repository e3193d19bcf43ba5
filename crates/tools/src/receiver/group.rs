//! The receiver threads together: bound, started, looked at while they run, stopped, added up.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use drumfire::worker::{Wake, rings};
use drumfire_socket::{
    DropMeter, GroupConfig, QueueState, ReceiverConfig, ReuseportGroup, Socket, SteeringFilter, Waker,
};

use rustix::io::Errno;

use super::control_source::{ControlSource, Meters};
use super::pipeline::{PipelinePart, Service};
use super::plan::{Plan, StartError};
use super::state::{Session, Shared};
use super::worker::{Worker, WorkerTotals};
use crate::choices::{Drain, Gro, Steer};
use crate::clock;
use crate::datagram::{MIN_BYTES, RouteId, TAG_OFFSET};
use crate::host::{self, ThreadSample};
use crate::report::Granted;

/// How long the threads may take to begin a session. A thread that has ended never does; the end of the run reports it.
const BEGIN_PATIENCE: Duration = Duration::from_secs(10);

/// The counters of all threads at one time.
#[derive(Clone, Debug)]
pub(super) struct GroupSample {
    pub(super) received: Vec<u64>,
    pub(super) queues: Vec<Option<QueueState>>,
    pub(super) cpu: Vec<Option<ThreadSample>>,
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
            let pipeline = service.map(|service| PipelinePart { service: service.clone(), index, ring });
            let index = u32::from(index);
            let core_of = |place: usize| plan.cores.get(place % plan.cores.len().max(1)).copied();
            let worker = Worker {
                index,
                socket,
                receiver: ReceiverConfig::default().drain(plan.drain.into()).gro(plan.gro.into()),
                wait: plan.wait,
                stage: plan.stage,
                pipeline,
                may_see_trains: plan.gro != Gro::Off && plan.drain != Drain::Recv,
                hop: plan.has_hop.then(|| core_of((plan.threads + index) as usize)),
                shared: Arc::clone(&self.shared),
            };
            let (thread, waker) = spawn(worker, core_of(index as usize))?;
            self.threads.push(thread);
            if let Some(state) = self.shared.states.get(index as usize) {
                state.set_waker(waker);
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
        self.shared.states.iter().any(|state| state.is_gro_on())
    }

    /// Begins the only session of this group, and waits until all threads know its flows. Until then a datagram would have no
    /// flow.
    pub(super) fn begin(&self, ids: Arc<[RouteId]>, is_one_host: bool) {
        let _ = self.shared.session.set(Session { ids, is_one_host });
        self.wake();
        let patience = clock::now() + BEGIN_PATIENCE;
        while !self.shared.states.iter().all(|state| state.has_session()) && clock::now() < patience {
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
            received: states.iter().map(|state| state.received()).collect(),
            queues: self.meters.read(),
            cpu: self.cpu(),
        }
    }

    /// The source of a control socket that shows these threads.
    pub(super) fn control_source(&self) -> ControlSource {
        ControlSource::new(Arc::clone(&self.shared), self.meters.clone())
    }

    /// The CPU time of each thread so far, including its second thread.
    pub(super) fn cpu(&self) -> Vec<Option<ThreadSample>> {
        self.shared.states.iter().map(|state| state.cpu()).collect()
    }

    /// The time of the last pass with datagrams of the sender on any thread, on the clock of the host; 0 if none arrived.
    pub(super) fn last_receive_ns(&self) -> u64 {
        self.shared.states.iter().map(|state| state.last_receive_ns()).max().unwrap_or(0)
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

/// Starts a worker's thread and waits until it is ready to receive.
fn spawn(worker: Worker, core: Option<usize>) -> Result<(Thread, Waker), StartError> {
    let (outbox, inbox) = channel();
    let thread = std::thread::Builder::new()
        .name(format!("receiver-{}", worker.index))
        .spawn(move || {
            // The other end of the channel waits for this result.
            match pin(core).and_then(|()| worker.prepare()) {
                Ok(ready) => {
                    let _ = outbox.send(Ok(ready.waker()));
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
