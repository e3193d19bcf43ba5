//! The receiver threads: bound to one port, started, sampled while they run, and stopped.
//!
//! A thread waits, drains its socket through its stage, publishes its counters, and repeats. It owns its socket and all of its
//! state. No datagram is handed to another thread.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use drumfire::worker::{ForwardQueue, forward_queues};
use drumfire_socket::{
    ConfigError, DrainEnd, DropMeter, DropReason, GroupConfig, Poller, ReceiveCounts, Receiver,
    ReceiverConfig, ReuseportGroup, Socket, SteeringFilter, Waiter, monotonic_time,
};
use rustix::io::Errno;

use super::deliver_stage::DeliverStage;
use super::open_stage::OpenStage;
use super::plan::Plan;
use super::service::Service;
use super::stages::{PlainStage, ThreadBook, ThreadStage};
use super::state::{Session, Shared, WorkerState};
use crate::choices::{Stage, Steer};
use crate::clock;
use crate::datagram::{MAX_BYTES, MIN_BYTES, TAG_OFFSET};
use crate::error::Error;
use crate::host;
use crate::report::Granted;

/// How long the threads may take to begin a session. A thread that has ended never begins one, and the end of the run
/// reports that.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Running receiver threads.
pub(super) struct WorkerGroup {
    pub(super) address: SocketAddr,
    pub(super) shared: Arc<Shared>,
    /// Each returns `None` if it could not start.
    threads: Vec<JoinHandle<Option<ThreadBook>>>,
    granted: Granted,
}

impl WorkerGroup {
    /// Binds the group and starts a thread for each socket. `secret` selects the thread of a routing tag.
    pub(super) fn start(plan: &Plan, secret: u32, service: Option<&Service>) -> Result<Self, Error> {
        let sockets = bind(plan, secret)?;
        let address = sockets.first().map_or(Ok(plan.bind), Socket::local_addr);
        let address = address.map_err(|error| Error::for_bind("--bind", plan.bind, &error))?;
        let meters = sockets.iter().map(|socket| meter(plan, socket)).collect::<Result<_, _>>()?;
        let shared = Arc::new(Shared::new(meters));
        let mut group = Self { address, shared, threads: Vec::new(), granted: granted(&sockets) };
        if let Err(error) = group.start_threads(plan, sockets, service) {
            // The threads that did start must not keep the port.
            group.stop();
            return Err(error);
        }
        Ok(group)
    }

    fn start_threads(
        &mut self,
        plan: &Plan,
        sockets: Vec<Socket>,
        service: Option<&Service>,
    ) -> Result<(), Error> {
        let forward_queues: Vec<ForwardQueue<WorkerState>> = forward_queues(&self.shared.states);
        for ((index, socket), ring) in (0_u16..).zip(sockets).zip(forward_queues) {
            let (plan, service, shared) = (plan.clone(), service.cloned(), Arc::clone(&self.shared));
            let (outbox, inbox) = channel();
            let run = move || {
                let worker = Worker::new(&plan, index, socket, service.as_ref(), ring, shared);
                // The other end of the channel waits for this result.
                let worker = worker.map_err(|error| outbox.send(Err(error))).ok()?;
                let _ = outbox.send(Ok(()));
                Some(worker.run())
            };
            let thread = std::thread::Builder::new().name(format!("receiver-{index}")).spawn(run);
            let cannot = |error| Error::Usage(format!("--threads: a thread cannot be started: {error}"));
            self.threads.push(thread.map_err(cannot)?);
            let ended = |_| Error::Usage("a receiver thread ended before it began".to_owned());
            inbox.recv().map_err(ended)??;
        }
        Ok(())
    }

    /// The settings that the kernel granted. Whether GRO is on is known only after trains arrived.
    pub(super) fn granted(&self) -> Granted {
        let mut states = self.shared.states.iter();
        let is_gro_on = states.any(|state| state.is_gro_on.load(Ordering::Relaxed));
        Granted { gro: Some(is_gro_on), ..self.granted.clone() }
    }

    /// Begins the only session of this group, and waits until all threads know its flows. Until then a datagram would have no
    /// flow.
    pub(super) fn begin(&self, session: Session) {
        let _ = self.shared.session.set(session);
        self.shared.wake();
        let has_time = clock::within(BEGIN_TIMEOUT);
        let has_begun = |state: &Arc<WorkerState>| state.has_session.load(Ordering::Acquire);
        while !self.shared.states.iter().all(has_begun) && has_time() {
            clock::pause(Duration::from_millis(1));
        }
    }

    /// The time of the last pass with datagrams of the sender on any thread, on the clock of the host; 0 if none arrived.
    pub(super) fn last_receive_ns(&self) -> u64 {
        let times = self.shared.states.iter().map(|state| state.last_receive_ns.load(Ordering::Relaxed));
        times.max().unwrap_or(0)
    }

    /// Ends the threads and returns their books by index.
    pub(super) fn stop(self) -> Vec<ThreadBook> {
        self.shared.is_stopping.store(true, Ordering::Release);
        self.shared.wake();
        self.threads.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
    }
}

fn bind(plan: &Plan, secret: u32) -> Result<Vec<Socket>, Error> {
    let mut group = GroupConfig::new(plan.bind).sockets(plan.threads as usize);
    if let Some(bytes) = plan.receive_buffer_bytes {
        group = group.receive_buffer_bytes(bytes);
    }
    if plan.is_steered() {
        let filter = SteeringFilter::new(TAG_OFFSET, MIN_BYTES, secret, plan.threads as usize);
        group = group.steering(filter.map_err(|error| Error::Usage(format!("--threads: {error}")))?);
    }
    ReuseportGroup::bind(&group).map(ReuseportGroup::into_sockets).map_err(|error| {
        let is_limit = matches!(Errno::from_io_error(&error), Some(Errno::MFILE | Errno::NFILE));
        if is_limit {
            Error::for_threads(plan.threads, &error)
        } else {
            Error::for_bind("--bind", plan.bind, &error)
        }
    })
}

/// The drop meter of the socket; `None` if the platform has none. The books then say so.
fn meter(plan: &Plan, socket: &Socket) -> Result<Option<DropMeter>, Error> {
    match socket.drop_meter() {
        Ok(meter) => Ok(Some(meter)),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(None),
        Err(error) => Err(Error::for_threads(plan.threads, &error)),
    }
}

fn granted(sockets: &[Socket]) -> Granted {
    let Some(granted) = sockets.first().map(Socket::granted) else { return Granted::default() };
    // The mechanism that spreads datagrams over the group.
    let filter = match (granted.has_filter, sockets.len()) {
        (true, _) => Steer::Tag.name(),
        (false, 1) => "none, for one socket",
        (false, _) => Steer::Hash.name(),
    };
    Granted {
        receive_buffer_bytes: Some(granted.receive_buffer_bytes as u64),
        send_buffer_bytes: Some(granted.send_buffer_bytes as u64),
        gro: None,
        gso: None,
        filter: Some(filter.to_owned()),
    }
}

struct Worker {
    shared: Arc<Shared>,
    state: Arc<WorkerState>,
    socket: Socket,
    poller: Poller,
    receiver: Receiver,
    waiter: Waiter,
    stage: Box<dyn ThreadStage>,
    book: ThreadBook,
}

impl Worker {
    /// Makes the poller and the memory, on the thread that uses them.
    fn new(
        plan: &Plan,
        index: u16,
        mut socket: Socket,
        service: Option<&Service>,
        ring: ForwardQueue<WorkerState>,
        shared: Arc<Shared>,
    ) -> Result<Self, Error> {
        let place = usize::from(index);
        let pinned = plan.core(place).map_or(Ok(()), host::pin_current_thread);
        pinned.map_err(|error| Error::Usage(format!("--pin: {error}")))?;
        let no_descriptor = |error| Error::for_threads(plan.threads, &error);
        let unusable = |error: ConfigError| Error::Usage(format!("--{error}"));
        let mut poller = Poller::new().map_err(no_descriptor)?;
        poller.register(&mut socket, 0).map_err(no_descriptor)?;
        let config = ReceiverConfig::default().drain(plan.drain.into()).gro(plan.gro.into());
        let receiver = Receiver::new(&mut socket, &config.max_datagram_bytes(MAX_BYTES)).map_err(unusable)?;
        let waiter = Waiter::new(plan.wait).map_err(unusable)?;
        let stage: Box<dyn ThreadStage> = match service {
            None => Box::new(PlainStage(plan.stage)),
            Some(service) if plan.stage == Stage::Open => {
                Box::new(OpenStage::new(service, index).map_err(Error::Usage)?)
            }
            Some(service) => {
                let has_gso = socket.granted().has_gso;
                Box::new(DeliverStage::new(service, index, ring, has_gso).map_err(Error::Usage)?)
            }
        };
        let state = Arc::clone(&shared.states[place]);
        state.thread_id.store(host::current_thread_id().unwrap_or(0), Ordering::Release);
        let _ = state.waker.set(poller.waker());
        // With GRO, only the gaps in the flows show how much was lost, so flows are followed in the raw stage too.
        let book = ThreadBook::new(index.into(), plan.stage != Stage::Raw || plan.may_see_trains());
        Ok(Self { shared, state, socket, poller, receiver, waiter, stage, book })
    }

    /// Receives until the group stops or the socket fails.
    fn run(self) -> ThreadBook {
        let Self { shared, state, mut socket, mut poller, .. } = self;
        let Self { mut receiver, mut waiter, mut stage, mut book, .. } = self;
        let mut before = ReceiveCounts::default();
        let mut is_more_waiting = false;
        while !shared.is_stopping.load(Ordering::Acquire) {
            if let Err(error) = waiter.wait(&mut poller, stage.due_in(), is_more_waiting) {
                book.fault = Some(error);
                break;
            }
            if !book.has_session()
                && let Some(session) = shared.session.get()
            {
                // Datagrams that arrived before the session are not part of it, even if this thread had no time for them.
                stage.pass(&mut book, &mut receiver, &mut socket);
                book.begin(session);
                stage.begin(session.ids.len());
                before = receiver.counts().clone();
                state.has_session.store(true, Ordering::Release);
            }
            let (arrivals_before, ours_before) = (arrivals(receiver.counts()), book.ours);
            let end = stage.pass(&mut book, &mut receiver, &mut socket);
            let new = arrivals(receiver.counts()) - arrivals_before;
            waiter.on_pass(monotonic_time(), new);
            if new > 0 {
                // Datagrams of other programs do not extend the window.
                if book.ours > ours_before {
                    state.last_receive_ns.store(clock::host_ns(), Ordering::Relaxed);
                }
                state.received.store(receiver.counts().datagrams, Ordering::Relaxed);
                state.is_gro_on.store(receiver.is_gro_on(), Ordering::Relaxed);
            }
            is_more_waiting = end.is_more_waiting();
            if let DrainEnd::Closed(error) = end {
                book.fault = Some(error);
                break;
            }
        }
        stage.finish(&mut book);
        let counts = receiver.counts();
        let dropped = |reason| counts.dropped(reason) - before.dropped(reason);
        for reason in [DropReason::Empty, DropReason::Truncated, DropReason::Overlong] {
            book.stray(reason.name(), dropped(reason));
        }
        (book.calls, book.truncated) = (counts.calls - before.calls, dropped(DropReason::ControlTruncated));
        book
    }
}

/// All arrivals, including unusable datagrams, which cost the same.
fn arrivals(counts: &ReceiveCounts) -> u64 {
    counts.datagrams + counts.dropped_total()
}
