//! What every kind of server is made of: the workers on their sockets, the door that lets clients in, and what the system granted.
//!
//! Which face the application sees is the affair of the server that is made of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use drumfire_proto::Moment;

use super::control::Monitor;
use super::invalidate::{self, Draw};
use super::threads::{self, Crew};
use crate::admission::Door;
use crate::admission::registry::WorkerPlacement;
use crate::base::entropy::{self, EntropyError};
use crate::base::error::{BindError, ReconfigureError};
use crate::base::sync::Bell;
use crate::config::live::LiveConfig;
use crate::config::server::ServerConfig;
use crate::config::threads::ThreadsError;
use crate::observe::grants::Granted;
use crate::observe::stats::Stats;
use crate::observe::trace;
use crate::worker::channel::Link;
use crate::worker::command::Command;
use crate::worker::drain::{Drain, Undelivered};
use crate::worker::sink::Face;

/// How often the application's thread looks after a server that ends.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The faces of all workers, by index.
pub(crate) type Faces = Vec<Box<dyn Face<WorkerPlacement>>>;

/// A server's workers and what they share.
pub(crate) struct Site {
    pub(crate) crew: Crew,
    pub(crate) door: Arc<Door>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) links: Arc<[Arc<Link>]>,
    pub(crate) address: SocketAddr,
    /// By worker.
    pub(crate) granted: Vec<Granted>,
    /// The settings that can change, as they are.
    pub(crate) live: LiveConfig,
    /// Bytes of the longest reliable message that this end sends.
    pub(crate) message_max_bytes: usize,
    pub(crate) draw: Draw,
}

impl Site {
    /// Binds the sockets and starts the workers, with these faces.
    pub(crate) fn bind(
        config: ServerConfig,
        faces: impl FnOnce(&Arc<[Arc<Link>]>) -> Faces,
    ) -> Result<Self, BindError> {
        config.check()?;
        config.key.warn_if_dev();
        if config.needs_server_id() {
            trace::warn_of_empty_server_id(config.address);
        }
        let staff = config.workers.staff();
        let bell = Arc::new(Bell::default());
        let links: Arc<[_]> =
            (0..staff.sockets.get()).map(|_| Arc::new(Link::new(Arc::clone(&bell)))).collect();
        let door = Door::new(&config.admission, Link::loads(&links));
        let message_max_bytes = config.message_max_bytes;
        let (faces, live) = (faces(&links), config.live());
        let (crew, address, granted) = threads::start(config, staff, &links, faces, &door)?;
        let draw = Box::new(entropy::secret);
        Ok(Self { crew, door, bell, links, address, granted, live, message_max_bytes, draw })
    }

    /// What the clock of all workers shows.
    pub(crate) fn time(&mut self) -> Moment {
        self.crew.time()
    }

    pub(crate) fn monitor(&self) -> Monitor {
        Monitor::new(Arc::clone(&self.links), Arc::clone(&self.door))
    }

    pub(crate) fn stats(&self) -> Stats {
        let workers = self.links.iter().map(|link| link.stats()).collect();
        Stats { workers, threads: self.crew.threads(), foreign_sockets: self.crew.foreign_sockets() }
    }

    /// Hands settings to all workers, if they can be used.
    pub(crate) fn reconfigure(&mut self, live: &LiveConfig) -> Result<(), ReconfigureError> {
        let core = self.live.replace(live, self.links.len())?;
        for link in self.links.iter() {
            link.command_at_once(Command::Reconfigure(Arc::clone(&core)));
        }
        // Inline it is carried out here.
        self.crew.send();
        Ok(())
    }

    /// Takes nobody new, and closes each connection when its peer has everything, at the latest after `deadline`.
    pub(crate) fn begin_drain(&mut self, deadline: Duration) -> Arc<Drain> {
        self.door.gate().close(self.door.gate().there());
        let until = self.time().after(deadline);
        let (drain, shares) = Drain::new(until, self.links.len(), &self.bell);
        for (link, share) in self.links.iter().zip(shares) {
            link.command_at_once(Command::Drain(share));
        }
        drain
    }

    /// The same, and waits for its end. Meanwhile it calls `gather` again and again, for an application that takes events.
    pub(crate) fn drain(&mut self, deadline: Duration, gather: impl FnMut()) -> Vec<Undelivered> {
        let drain = self.begin_drain(deadline);
        self.attend(&drain, gather)
    }

    /// Forgets the keys of all sessions, at all workers by the time it returns.
    pub(crate) fn invalidate_all_keys(&mut self) -> Result<(), EntropyError> {
        let drain = invalidate::command(&self.links, &self.bell, &mut self.draw)?;
        // Inline it is carried out here.
        self.crew.send();
        self.attend(&drain, || {});
        Ok(())
    }

    /// Waits until all workers are through.
    fn attend(&mut self, drain: &Drain, mut gather: impl FnMut()) -> Vec<Undelivered> {
        let mut nobody = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(undelivered) = drain.poll(&mut nobody) {
                return undelivered;
            }
            gather();
            self.crew.work();
            if !self.crew.wait(LOOK_EVERY) {
                self.bell.wait(LOOK_EVERY);
            }
        }
    }

    pub(crate) fn set_threads(&mut self, threads: u16) -> Result<(), ThreadsError> {
        self.crew.set_threads(threads, self.links.len())
    }
}
