//! A server on the network of a world instead of a socket, whichever face it has.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::{Config, ConfigError, Endpoint, Secret, ServerConfig as CoreServer};
use drumfire_socket::Wait;

use super::memory::Seat;
use super::secret;
use crate::admission::Door;
use crate::admission::registry::{Owners, WorkerPlacement};
use crate::base::error::BindError;
use crate::base::sync::Bell;
use crate::conditioner::Random;
use crate::config::server::ServerConfig;
use crate::config::threads::Workers;
use crate::engine::server_core::{Faces, Site};
use crate::engine::steering::Steering;
use crate::engine::threads::Crew;
use crate::worker::channel::Link;
use crate::worker::forward::{Ring, rings};
use crate::worker::pass::{Parts, Worker};
use crate::worker::sink::Face;
use crate::worker::transport::SocketTransport;

impl Site {
    /// A worker with one of these faces at each of these places in a world's network, which begins at this time since 1970; all
    /// secrets come from `random`.
    pub(crate) fn in_memory(
        config: &Arc<ServerConfig>,
        since: Duration,
        seats: Vec<Seat>,
        random: &mut Random,
        faces: impl FnOnce(&Arc<[Arc<Link>]>) -> Faces,
    ) -> Result<Self, BindError> {
        config.check()?;
        let live = config.live();
        let count = u16::try_from(seats.len()).ok().and_then(NonZeroU16::new);
        let count = count.ok_or_else(|| BindError::Io(std::io::ErrorKind::Other.into()))?;
        let core = config.core(count.get());
        core.check()?;
        let bell = Arc::new(Bell::default());
        let links: Arc<[_]> = seats.iter().map(|_| Arc::new(Link::new(Arc::clone(&bell)))).collect();
        let (address, message_max_bytes) = (config.address, core.message_max_bytes);
        let process_key = secret(random);
        let door = Door::new(&config.admission, Link::loads(&links));
        let shared = Arc::new(Shared {
            owners: Owners::behind(Arc::clone(&door), count.get(), core.connections, config.connections),
            config: Arc::clone(config),
            core,
            since,
            process_key,
            steering: Steering::draw_from(count, || u32::try_from(random.bits() >> 32).unwrap_or(0))?,
        });
        if let Some(seat) = seats.first() {
            seat.set_filter(shared.steering.filter()?);
        }
        let parts = seats.into_iter().zip(rings(&links)).zip(links.iter()).zip(faces(&links));
        let workers = (0..).zip(parts).map(|(index, (((seat, ring), link), face))| {
            shared.worker(index, seat, ring, Arc::clone(link), face, random)
        });
        let crew = Crew::Inline(workers.collect::<Result<_, _>>()?);
        let mut later = Random::new(random.bits());
        let (granted, draw) = (Vec::new(), Box::new(move || Ok(secret(&mut later))));
        Ok(Self { crew, door, bell, links, address, granted, live, message_max_bytes, draw })
    }

    /// One pass of this worker, and a wait that only says when the next is due.
    pub(crate) fn run(&mut self, worker: usize) {
        self.worker(worker, |worker| {
            worker.work();
            worker.wait(None);
        });
    }

    /// Does this with a worker that is there.
    pub(crate) fn worker(&mut self, index: usize, work: impl FnOnce(&mut Worker<WorkerPlacement>)) {
        if let Crew::Inline(workers) = &mut self.crew
            && let Some(worker) = workers.get_mut(index)
        {
            work(worker);
        }
    }
}

/// What all workers of a world have in common.
struct Shared {
    config: Arc<ServerConfig>,
    core: Config,
    since: Duration,
    process_key: Secret<32>,
    owners: Arc<Owners>,
    steering: Steering,
}

impl Shared {
    fn worker(
        self: &Arc<Self>,
        index: u16,
        seat: Seat,
        ring: Ring<Link>,
        link: Arc<Link>,
        face: Box<dyn Face<WorkerPlacement>>,
        random: &mut Random,
    ) -> Result<Worker<WorkerPlacement>, BindError> {
        let (shared, mut seeds) = (Arc::clone(self), Random::new(random.bits()));
        let mut endpoint = move || {
            // Nobody is owned by a worker that begins.
            shared.owners.forget(index);
            shared.endpoint(index, secret(&mut seeds))
        };
        let has_threads = self.config.workers != Workers::Inline;
        let place = seat.take(if has_threads { self.config.wait } else { Wait::Notify })?;
        if has_threads {
            link.set_waker(place.waker);
        }
        let transport =
            SocketTransport::new(place.io, place.parker, place.waiter, place.receiver, place.has_gso);
        Ok(Worker::new(Parts {
            index,
            transport: Box::new(transport),
            clock: Box::new(place.clock),
            endpoint: endpoint()?,
            make: Box::new(move || endpoint().ok()),
            face,
            link,
            ring,
            credit_bytes: self.core.send_memory_bytes,
            message_max_bytes: self.core.message_max_bytes,
        }))
    }

    fn endpoint(&self, index: u16, seed: Secret<32>) -> Result<Endpoint<WorkerPlacement>, ConfigError> {
        let keys = self.config.key.pair();
        let persistent = keys.persistent();
        let server = CoreServer::new(keys, persistent, self.process_key.duplicate())
            .access(self.config.access.core(self.since))
            .cookie(self.config.cookie)
            .server_id(&self.config.effective_server_id(self.config.address))
            .shard(self.steering.shard(index));
        Endpoint::server(self.core.clone(), server, self.owners.of_worker(index), seed)
    }
}
