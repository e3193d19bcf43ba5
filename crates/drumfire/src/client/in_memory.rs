//! A client on the network of a world instead of a socket.

use std::sync::Arc;

use drumfire_proto::{Alone, ClientConfig as CoreClient, Endpoint};

use super::{Client, Whom, bad_key};
use crate::conditioner::Random;
use crate::config::{BindError, ClientConfig};
use crate::front::Front;
use crate::link::{Bell, Link};
use crate::testing::{EitherWorker, Seat, secret};
use crate::worker::{Parts, Worker, rings};

impl Client {
    /// Begins to connect from this place in a world's network; all its secrets come from `random`.
    pub(crate) fn in_memory(
        whom: &Whom<'_>,
        config: &ClientConfig,
        seat: Seat,
        random: &mut Random,
    ) -> Result<Self, BindError> {
        let core = config.core();
        core.check()?;
        let links = vec![Arc::new(Link::new(Arc::new(Bell::default())))];
        let (Some(link), Some(ring)) = (links.first().cloned(), rings(&links).pop()) else {
            return Err(BindError::Io(std::io::ErrorKind::Other.into()));
        };
        let credit_bytes = core.send_memory_bytes;
        let mut seeds = Random::new(random.bits());
        let mut endpoint = move || Endpoint::client(core.clone(), CoreClient::default(), secret(&mut seeds));
        let place = seat.take()?;
        let mut worker: Worker<Alone, _, _, _> = Worker::new(Parts {
            index: 0,
            io: place.io,
            has_gso: false,
            is_connected: true,
            parker: place.parker,
            clock: place.clock,
            waiter: place.waiter,
            receiver: place.receiver,
            endpoint: endpoint()?,
            make: Box::new(move || endpoint().ok()),
            link,
            ring,
            credit_bytes,
        });
        let begun = worker.connect(whom.server, &whom.identity(), whom.token);
        let (peer, credit) = begun.map_err(bad_key)?;
        let mut front = Front::new(links);
        front.add(peer, credit);
        let worker = Box::new(EitherWorker::Memory(worker));
        Ok(Self::new(front, worker, peer, whom, config))
    }

    #[cfg(feature = "hostile")]
    pub(crate) fn turn_hostile(&mut self, seed: u64) {
        self.worker.turn_hostile(self.peer, seed);
    }

    /// Hands over what was sent but not flushed.
    pub(crate) fn flush_front(&mut self) {
        self.front.flush();
    }

    /// One pass, and a wait that only says when the next is due.
    pub(crate) fn run(&mut self) {
        self.worker.work();
        self.worker.wait(None);
    }
}
