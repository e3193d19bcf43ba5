//! The workers of a server: made from its configuration, and run either by threads of their own or by the
//! application's calls.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

use drumfire_proto::{
    Access, CloseCode, Config, Cookie, Endpoint, Moment, Secret, ServerConfig as CoreServer,
};
use drumfire_socket::{GroupConfig, Poller, Receiver, ReceiverConfig, ReuseportGroup, Socket, Wait, Waiter};

use crate::clock::{self, SystemClock};
use crate::config::{BindError, DATAGRAM_START_BYTES, ServerConfig};
use crate::entropy;
use crate::keys::ServerKey;
use crate::link::Link;
use crate::owners::{Owners, WorkerPlacement};
use crate::steering::Steering;
use crate::worker::{Clock, Face, Parts, Ring, SocketWorker, rings};

/// A server's workers.
pub(crate) enum Crew {
    /// The only worker, run by whoever calls.
    Inline(Box<SocketWorker<WorkerPlacement>>),
    /// Threads that run one each.
    Threads(Vec<JoinHandle<()>>, SystemClock),
}

impl Crew {
    /// Does the I/O, where that is the caller's part.
    pub(crate) fn work(&mut self) {
        if let Self::Inline(worker) = self {
            worker.work();
        }
    }

    /// Sends what was commanded, where that is the caller's part.
    pub(crate) fn send(&mut self) {
        if let Self::Inline(worker) = self {
            worker.send();
        }
    }

    /// What the clock of all workers shows.
    pub(crate) fn time(&mut self) -> Moment {
        match self {
            Self::Inline(worker) => worker.time(),
            Self::Threads(_, clock) => clock.read().now.monotonic,
        }
    }

    /// Closes all connections and ends the threads.
    pub(crate) fn stop(&mut self, links: &[Arc<Link>], code: CloseCode) {
        match self {
            Self::Inline(worker) => worker.finish(code),
            Self::Threads(threads, _) => {
                for link in links {
                    link.stop();
                }
                for thread in threads.drain(..) {
                    // A thread that panicked outside its guard has nothing more to end.
                    let _ = thread.join();
                }
            }
        }
    }
}

/// Binds the sockets and starts a worker for each.
pub(crate) fn start(
    config: ServerConfig,
    workers: NonZeroU16,
    has_threads: bool,
    links: &[Arc<Link>],
    faces: Vec<Box<dyn Face<WorkerPlacement>>>,
) -> Result<(Crew, SocketAddr), BindError> {
    let steering = Steering::draw(workers)?;
    let mut core = config.core(workers.get());
    core.check()?;
    let group = ReuseportGroup::bind(&group(&config, workers, steering)?)?;
    let address = group.local_addr();
    let sockets = group.into_sockets();
    // Where datagrams may be cut on the way, a path cannot be asked what it carries.
    if !sockets.iter().all(Socket::never_fragment) {
        core.datagram_max_bytes = DATAGRAM_START_BYTES;
    }
    let shared = Arc::new(Shared {
        owners: Owners::new(workers.get(), core.connections),
        core,
        access: config.access.core(clock::wall()),
        cookie: config.cookie,
        key: config.key,
        server_id: config.server_id,
        process_key: entropy::secret()?,
        steering,
        clock: SystemClock::start(),
        wait: if has_threads { config.wait } else { Wait::Notify },
        has_threads,
    });
    let seats = sockets.into_iter().zip(rings(links)).zip(links).zip(faces);
    let mut seats = (0..).zip(seats).map(|(index, (((socket, ring), link), face))| Seat {
        face,
        index,
        socket,
        ring,
        link: Arc::clone(link),
        shared: Arc::clone(&shared),
    });
    if !has_threads && let Some(seat) = seats.next() {
        return Ok((Crew::Inline(Box::new(seat.take()?)), address));
    }
    // Every thread ends when one cannot start.
    let mut threads = Vec::new();
    for seat in seats {
        match spawn(seat) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                Crew::Threads(threads, shared.clock).stop(links, CloseCode::Internal);
                return Err(error);
            }
        }
    }
    Ok((Crew::Threads(threads, shared.clock), address))
}

fn group(config: &ServerConfig, workers: NonZeroU16, steering: Steering) -> Result<GroupConfig, BindError> {
    let mut group = GroupConfig::new(config.address).sockets(usize::from(workers.get()));
    if let Some(filter) = steering.filter()? {
        group = group.steering(filter);
    }
    if let Some(bytes) = config.receive_buffer_bytes {
        group = group.receive_buffer_bytes(bytes);
    }
    Ok(group)
}

/// What all workers have in common.
struct Shared {
    core: Config,
    key: ServerKey,
    owners: Arc<Owners>,
    access: Access,
    cookie: Cookie,
    server_id: String,
    process_key: Secret<32>,
    steering: Steering,
    clock: SystemClock,
    wait: Wait,
    has_threads: bool,
}

impl Shared {
    /// A worker's endpoint, made as often as need be.
    fn endpoint(&self, index: u16) -> Result<Endpoint<WorkerPlacement>, BindError> {
        let keys = self.key.pair();
        let persistent = keys.persistent();
        let server = CoreServer::new(keys, persistent, self.process_key.duplicate())
            .access(self.access.duplicate())
            .cookie(self.cookie)
            .server_id(self.server_id.as_bytes())
            .shard(self.steering.shard(index));
        let placement = self.owners.of_worker(index);
        Ok(Endpoint::server(self.core.clone(), server, placement, entropy::secret()?)?)
    }
}

/// One worker's place.
struct Seat {
    index: u16,
    socket: Socket,
    ring: Ring<Link>,
    face: Box<dyn Face<WorkerPlacement>>,
    link: Arc<Link>,
    shared: Arc<Shared>,
}

impl Seat {
    /// Makes the worker, on the thread that is to run it.
    fn take(mut self) -> Result<SocketWorker<WorkerPlacement>, BindError> {
        let mut parker = Poller::new()?;
        parker.register(&mut self.socket, 0)?;
        // On the application's own thread it waits only when nobody is there to wake it, unless other threads reach a handler.
        if self.shared.has_threads || self.face.answers_at_once() {
            self.link.set_waker(parker.waker());
        }
        let receiver = Receiver::new(&mut self.socket, &ReceiverConfig::default())?;
        let (shared, index) = (self.shared, self.index);
        Ok(SocketWorker::new(Parts {
            index,
            has_gso: self.socket.granted().has_gso,
            is_connected: false,
            io: self.socket,
            parker,
            clock: shared.clock,
            waiter: Waiter::new(shared.wait)?,
            receiver,
            endpoint: shared.endpoint(index)?,
            credit_bytes: shared.core.send_memory_bytes,
            message_max_bytes: shared.core.message_max_bytes,
            make: Box::new(move || {
                shared.owners.forget(index);
                shared.endpoint(index).ok()
            }),
            face: self.face,
            link: self.link,
            ring: self.ring,
        }))
    }
}

/// Starts a worker's thread and waits until it is ready.
fn spawn(seat: Seat) -> Result<JoinHandle<()>, BindError> {
    let (outbox, inbox) = sync_channel(1);
    let link = Arc::clone(&seat.link);
    let name = format!("drumfire-{}", seat.index);
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        // Whoever spawned waits for this answer, so it is there to take it.
        let mut worker = match seat.take() {
            Ok(worker) => {
                let _ = outbox.send(Ok(()));
                worker
            }
            Err(error) => {
                let _ = outbox.send(Err(error));
                return;
            }
        };
        while !link.is_stopping() && !worker.is_over() {
            worker.wait(None);
            worker.work();
        }
        worker.finish(CloseCode::Shutdown);
    })?;
    match inbox.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(BindError::Io(std::io::Error::other("a worker's thread ended before it began"))),
    }
}
