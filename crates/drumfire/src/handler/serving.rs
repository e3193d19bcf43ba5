//! A server with handlers: made, looked at, ended.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::Moment;

use super::Handler;
use super::engine::Engine;
use super::remote::{Mailbox, Remote};
use crate::admission::Door;
use crate::config::{BindError, ServerConfig};
use crate::crew::{self, Crew};
use crate::link::{Bell, Link};
use crate::owners::WorkerPlacement;
use crate::stats::Stats;
use crate::worker::Face;
use crate::workers::ThreadsError;

/// Binds the address and starts the workers, each with a handler of its own that `make` makes from the worker's index.
///
/// With [`Workers::Inline`](crate::Workers::Inline) there is no thread: [`Serving::wait`] does the work.
///
/// # Errors
///
/// [`BindError`] naming the setting that cannot be used, or what the system answered.
pub fn serve<H: Handler>(
    config: ServerConfig,
    mut make: impl FnMut(usize) -> H,
) -> Result<Serving<H::Note>, BindError> {
    config.check()?;
    config.key.warn_if_dev();
    let staff = config.workers.staff();
    let bell = Arc::new(Bell::default());
    let links: Arc<[_]> = (0..staff.sockets.get()).map(|_| Arc::new(Link::new(Arc::clone(&bell)))).collect();
    let mailboxes: Arc<[_]> = links.iter().map(|_| Arc::new(Mailbox::default())).collect();
    let engines = mailboxes.iter().enumerate().map(|(index, mailbox)| {
        let engine = Engine::new(make(index), Arc::clone(mailbox), Arc::clone(&links));
        Box::new(engine) as Box<dyn Face<WorkerPlacement>>
    });
    let remote = Remote::new(Arc::clone(&links), Arc::clone(&mailboxes), config.message_max_bytes);
    let door = Door::new(&config.admission);
    let (crew, address) = crew::start(config, staff, &links, engines.collect(), &door)?;
    Ok(Serving { crew, links, bell, remote, address })
}

/// A server whose workers call handlers.
///
/// Dropping it closes all connections with [`CloseCode::Shutdown`](crate::CloseCode::Shutdown) and ends its threads.
pub struct Serving<N> {
    crew: Crew,
    links: Arc<[Arc<Link>]>,
    bell: Arc<Bell>,
    remote: Remote<N>,
    address: SocketAddr,
}

impl<N> Serving<N> {
    /// Where clients connect to, the port resolved.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// What reaches the handlers and all peers from any thread.
    #[must_use]
    pub fn remote(&self) -> Remote<N> {
        self.remote.clone()
    }

    /// Inline: works for this long, handlers and all. With threads there is nothing to do, and it waits only.
    pub fn wait(&mut self, timeout: Duration) {
        let start = crate::clock::instant();
        loop {
            let left = timeout.saturating_sub(crate::clock::instant().saturating_duration_since(start));
            if left.is_zero() {
                return;
            }
            match &mut self.crew {
                Crew::Inline(worker) => {
                    worker.wait(Some(left));
                    worker.work();
                }
                Crew::Threads(..) => self.bell.wait(left),
            }
        }
    }

    /// What the server's clock shows: the one that clients know the offset of.
    pub fn time(&mut self) -> Moment {
        self.crew.time()
    }

    /// What the workers counted.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let workers = self.links.iter().map(|link| link.stats()).collect();
        Stats { workers, threads: self.crew.threads() }
    }

    /// Lets so many threads run the workers from now on, as [`Server::set_threads`](crate::Server::set_threads) does. Handlers
    /// move with their workers.
    ///
    /// # Errors
    ///
    /// [`ThreadsError`]; then everything stays as it is.
    pub fn set_threads(&mut self, threads: u16) -> Result<(), ThreadsError> {
        self.crew.set_threads(threads, self.links.len())
    }
}

impl<N> Drop for Serving<N> {
    fn drop(&mut self) {
        self.crew.stop();
    }
}

impl<N> std::fmt::Debug for Serving<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serving").field("address", &self.address).finish_non_exhaustive()
    }
}
