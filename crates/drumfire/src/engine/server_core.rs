//! The common part of all servers: the workers and their sockets, admission control, and the granted socket options. The sinks of the
//! workers decide which interface the application has.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use drumfire_proto::Moment;

use super::control::Monitor;
use super::invalidate::{self, SeedSource};
use super::threads::{self, ThreadPool};
use crate::admission::AdmissionControl;
use crate::admission::registry::RegistryView;
use crate::base::entropy::{self, EntropyError};
use crate::base::error::{BindError, ReconfigureError};
use crate::base::sync::Notifier;
use crate::config::live::LiveConfig;
use crate::config::server::ServerConfig;
use crate::config::threads::ThreadsError;
use crate::observe::grants::Granted;
use crate::observe::stats::Stats;
use crate::observe::trace;
use crate::worker::channel::WorkerChannel;
use crate::worker::command::Command;
use crate::worker::drain::{DrainProgress, Undelivered};
use crate::worker::sink::Sink;

/// How often the application's thread checks whether a server has ended.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The sinks of all workers, by index.
pub(crate) type Sinks = Vec<Box<dyn Sink<RegistryView>>>;

/// A server's workers and what they share.
pub(crate) struct ServerCore {
    pub(crate) pool: ThreadPool,
    pub(crate) admission: Arc<AdmissionControl>,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) links: Arc<[Arc<WorkerChannel>]>,
    pub(crate) address: SocketAddr,
    /// By worker.
    pub(crate) granted: Vec<Granted>,
    /// The settings that can change, as they are.
    pub(crate) live: LiveConfig,
    /// Bytes of the longest reliable message that this end sends.
    pub(crate) message_max_bytes: usize,
    pub(crate) seed_source: SeedSource,
}

impl ServerCore {
    /// Binds the sockets and starts the workers, with these sinks.
    pub(crate) fn bind(
        config: ServerConfig,
        sinks: impl FnOnce(&Arc<[Arc<WorkerChannel>]>) -> Sinks,
    ) -> Result<Self, BindError> {
        config.check()?;
        config.key.warn_if_dev();
        if config.needs_server_id() {
            trace::warn_of_empty_server_id(config.address);
        }
        let counts = config.workers.counts();
        let notifier = Arc::new(Notifier::default());
        let links: Arc<[_]> =
            (0..counts.sockets.get()).map(|_| Arc::new(WorkerChannel::new(Arc::clone(&notifier)))).collect();
        let admission = AdmissionControl::new(&config.admission, WorkerChannel::loads(&links));
        let message_max_bytes = config.message_max_bytes;
        let (sinks, live) = (sinks(&links), config.live());
        let (pool, address, granted) = threads::start(config, counts, &links, sinks, &admission)?;
        let seed_source = Box::new(entropy::secret);
        Ok(Self { pool, admission, notifier, links, address, granted, live, message_max_bytes, seed_source })
    }

    /// What the clock of all workers shows.
    pub(crate) fn time(&mut self) -> Moment {
        self.pool.time()
    }

    pub(crate) fn monitor(&self) -> Monitor {
        Monitor::new(Arc::clone(&self.links), Arc::clone(&self.admission))
    }

    pub(crate) fn stats(&self) -> Stats {
        let workers = self.links.iter().map(|link| link.stats()).collect();
        Stats { workers, threads: self.pool.threads(), foreign_sockets: self.pool.foreign_sockets() }
    }

    /// Hands settings to all workers, if they can be used.
    pub(crate) fn reconfigure(&mut self, live: &LiveConfig) -> Result<(), ReconfigureError> {
        let core = self.live.replace(live, self.links.len())?;
        for link in self.links.iter() {
            link.command_at_once(Command::Reconfigure(Arc::clone(&core)));
        }
        // Inline it is carried out here.
        self.pool.send();
        Ok(())
    }

    /// Takes nobody new, and closes each connection when its peer has everything, at the latest after `deadline`.
    pub(crate) fn begin_drain(&mut self, deadline: Duration) -> Arc<DrainProgress> {
        self.admission.gate().close(self.admission.gate().there());
        let until = self.time().after(deadline);
        let (drain, shares) = DrainProgress::new(until, self.links.len(), &self.notifier);
        for (link, share) in self.links.iter().zip(shares) {
            link.command_at_once(Command::Drain(share));
        }
        drain
    }

    /// The same, and waits for its end. Meanwhile it calls `gather` again and again, for an application that takes events.
    pub(crate) fn drain(&mut self, deadline: Duration, gather: impl FnMut()) -> Vec<Undelivered> {
        let drain = self.begin_drain(deadline);
        self.wait_all(&drain, gather)
    }

    /// Forgets the keys of all sessions, at all workers by the time it returns.
    pub(crate) fn invalidate_all_keys(&mut self) -> Result<(), EntropyError> {
        let drain = invalidate::command(&self.links, &self.notifier, &mut self.seed_source)?;
        // Inline it is carried out here.
        self.pool.send();
        self.wait_all(&drain, || {});
        Ok(())
    }

    /// Waits until all workers are through.
    fn wait_all(&mut self, drain: &DrainProgress, mut gather: impl FnMut()) -> Vec<Undelivered> {
        let mut nobody = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(undelivered) = drain.poll(&mut nobody) {
                return undelivered;
            }
            gather();
            self.pool.work();
            if !self.pool.wait(LOOK_EVERY) {
                self.notifier.wait(LOOK_EVERY);
            }
        }
    }

    pub(crate) fn set_threads(&mut self, threads: u16) -> Result<(), ThreadsError> {
        self.pool.set_threads(threads, self.links.len())
    }
}
