//! A server on the network of a world instead of a socket, whichever face it has.

use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::{Endpoint, ServerConfig as CoreServer};

use super::{Faces, Site};
use crate::admission::Door;
use crate::conditioner::Random;
use crate::config::{BindError, ServerConfig};
use crate::crew::Crew;
use crate::link::{Bell, Link};
use crate::owners::Owners;
use crate::testing::{EitherWorker, Seat, secret};
use crate::worker::{Parts, Worker, rings};

impl Site {
    /// One worker with one of these faces, at this place in a world's network, which begins at this time since 1970; all
    /// secrets come from `random`.
    pub(crate) fn in_memory(
        config: &Arc<ServerConfig>,
        since: Duration,
        seat: Seat,
        random: &mut Random,
        faces: impl FnOnce(&Arc<[Arc<Link>]>) -> Faces,
    ) -> Result<Self, BindError> {
        config.check()?;
        let live = config.live();
        let core = config.core(1);
        core.check()?;
        let bell = Arc::new(Bell::default());
        let links: Arc<[_]> = Arc::new([Arc::new(Link::new(Arc::clone(&bell)))]);
        let parts = (links.first().cloned(), rings(&links).pop(), faces(&links).pop());
        let (Some(link), Some(ring), Some(face)) = parts else {
            return Err(BindError::Io(std::io::ErrorKind::Other.into()));
        };
        let (address, credit_bytes) = (config.address, core.send_memory_bytes);
        let message_max_bytes = core.message_max_bytes;
        let (process_key, config) = (secret(random), Arc::clone(config));
        let door = Door::new(&config.admission, &links);
        let owners = Owners::behind(Arc::clone(&door), 1, core.connections, core.connections);
        let drawn = random.bits();
        let (mut seeds, mut later) = (Random::new(drawn), Random::new(!drawn));
        let mut endpoint = move || {
            // Nobody is owned by a worker that begins.
            owners.forget(0);
            let keys = config.key.pair();
            let persistent = keys.persistent();
            let server = CoreServer::new(keys, persistent, process_key.duplicate())
                .access(config.access.core(since))
                .cookie(config.cookie)
                .server_id(config.server_id.as_bytes());
            Endpoint::server(core.clone(), server, owners.of_worker(0), secret(&mut seeds))
        };
        let place = seat.take()?;
        let worker = Worker::new(Parts {
            index: 0,
            io: place.io,
            has_gso: false,
            is_connected: false,
            parker: place.parker,
            clock: place.clock,
            waiter: place.waiter,
            receiver: place.receiver,
            endpoint: endpoint()?,
            make: Box::new(move || endpoint().ok()),
            face,
            link,
            ring,
            credit_bytes,
            message_max_bytes,
        });
        let crew = Crew::Inline(Box::new(EitherWorker::Memory(worker)));
        let (granted, draw) = (Vec::new(), Box::new(move || Ok(secret(&mut later))));
        Ok(Self { crew, door, bell, links, address, granted, live, message_max_bytes, draw })
    }

    #[cfg(feature = "hostile")]
    pub(crate) fn turn_hostile(&mut self, peer: crate::PeerId, seed: u64) {
        if let Crew::Inline(worker) = &mut self.crew {
            worker.turn_hostile(peer, seed);
        }
    }

    /// One pass, and a wait that only says when the next is due.
    pub(crate) fn run(&mut self) {
        if let Crew::Inline(worker) = &mut self.crew {
            worker.work();
            worker.wait(None);
        }
    }
}
