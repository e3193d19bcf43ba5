//! A server with handlers: made, looked at, ended.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::Moment;

use super::Handler;
use super::remote::Remote;
use super::sink::HandlerSink;
use crate::admission::gate::Gate;
use crate::base::entropy::EntropyError;
use crate::base::error::{BindError, ReconfigureError};
use crate::base::sync::Mailbox;
use crate::config::live::LiveConfig;
use crate::config::server::ServerConfig;
use crate::config::threads::ThreadsError;
use crate::engine::control::Monitor;
use crate::engine::reconnect::SHUTDOWN_RESTARTS;
use crate::engine::server_core::{ServerCore, Sinks};
use crate::observe::grants::Granted;
use crate::observe::stats::Stats;
use crate::worker::channel::WorkerChannel;
use crate::worker::drain::Undelivered;
use crate::worker::sink::Sink;

/// Binds the address and starts the workers, each with a handler of its own that `make` makes from the worker's index.
///
/// With [`Workers::Inline`](crate::Workers::Inline) there is no thread: [`Serving::poll`] does the work.
///
/// # Errors
///
/// [`BindError`] naming the setting that cannot be used, or what the system answered.
pub fn serve<H: Handler>(
    config: ServerConfig,
    mut make: impl FnMut(usize) -> H,
) -> Result<Serving<H::Note>, BindError> {
    Serving::with(&mut make, |sinks| ServerCore::bind(config, sinks))
}

/// A server whose workers call handlers.
///
/// Dropping it closes all connections with [`CloseCode::Shutdown`](crate::error::CloseCode::Shutdown) and ends its threads.
pub struct Serving<N> {
    core: ServerCore,
    remote: Remote<N>,
    /// The application code of the goodbye.
    goodbye: u32,
}

impl<N: Send + 'static> Serving<N> {
    /// With the handlers that `make` makes for a site.
    pub(crate) fn with<H: Handler<Note = N>>(
        make: &mut impl FnMut(usize) -> H,
        core: impl FnOnce(&mut dyn FnMut(&Arc<[Arc<WorkerChannel>]>) -> Sinks) -> Result<ServerCore, BindError>,
    ) -> Result<Self, BindError> {
        let mut mailboxes = Arc::default();
        let core = core(&mut |links| {
            mailboxes = links.iter().map(|_| Arc::new(Mailbox::default())).collect::<Arc<[_]>>();
            let engines = mailboxes.iter().enumerate().map(|(index, mailbox)| {
                let engine = HandlerSink::new(make(index), Arc::clone(mailbox), Arc::clone(links));
                Box::new(engine) as Box<dyn Sink<_>>
            });
            engines.collect()
        })?;
        let remote = Remote::new(Arc::clone(&core.links), mailboxes, core.message_max_bytes);
        Ok(Self { core, remote, goodbye: 0 })
    }
}

impl<N> Serving<N> {
    #[cfg(feature = "testing")]
    pub(crate) fn core_mut(&mut self) -> &mut ServerCore {
        &mut self.core
    }

    /// Where clients connect to, the port resolved.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.core.address
    }

    /// The settings that can change, as they are.
    #[must_use]
    pub fn live_config(&self) -> &LiveConfig {
        &self.core.live
    }

    /// Changes settings, as [`Server::reconfigure`](crate::Server::reconfigure) does.
    ///
    /// # Errors
    ///
    /// [`ReconfigureError`] naming the setting that cannot be used; then everything stays as it is.
    pub fn reconfigure(&mut self, live: &LiveConfig) -> Result<(), ReconfigureError> {
        self.core.reconfigure(live)
    }

    /// What reaches the handlers and all peers from any thread.
    #[must_use]
    pub fn remote(&self) -> Remote<N> {
        self.remote.clone()
    }

    /// Inline: works for this long, handlers and all. With threads there is nothing to do, and it waits only.
    pub fn poll(&mut self, timeout: Duration) {
        let start = crate::base::clock::instant();
        loop {
            let left = timeout.saturating_sub(crate::base::clock::instant().saturating_duration_since(start));
            if left.is_zero() {
                return;
            }
            if self.core.pool.wait(left) {
                self.core.pool.work();
            } else {
                self.core.notifier.wait(left);
            }
        }
    }

    /// What the server's clock shows: the one that clients know the offset of.
    pub fn time(&mut self) -> Moment {
        self.core.time()
    }

    /// What the system granted each worker's socket, by index; less than was asked for where it says so.
    #[must_use]
    pub fn granted(&self) -> &[Granted] {
        &self.core.granted
    }

    /// Ends this server and says to all clients that another takes its place at once, as
    /// [`Server::stop_for_restart`](crate::Server::stop_for_restart) does.
    pub fn stop_for_restart(mut self) {
        self.goodbye = SHUTDOWN_RESTARTS;
    }

    /// Ends this server without haste: nobody new comes in, each connection is closed with
    /// [`CloseCode::Shutdown`](crate::error::CloseCode::Shutdown) as soon as its peer has acknowledged all that was sent to it, and all
    /// others at the deadline. Answers what stayed undelivered then. Handlers go on meanwhile.
    pub fn shut_down(mut self, deadline: Duration) -> Vec<Undelivered> {
        self.core.drain(deadline, || {})
    }

    /// The switch for new players, to keep and to use from any thread.
    #[must_use]
    pub fn gate(&self) -> Gate {
        self.core.admission.gate().clone()
    }

    /// The view of an operator, to keep and to use from any thread.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        self.core.monitor()
    }

    /// What the workers counted.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.core.stats()
    }

    /// Ends all sessions because there may be a copy of this process, as
    /// [`Server::invalidate_all_keys`](crate::Server::invalidate_all_keys) does.
    ///
    /// # Errors
    ///
    /// [`EntropyError`] when the system has no randomness. Nothing has changed then, and this copy must not go on.
    pub fn invalidate_all_keys(&mut self) -> Result<(), EntropyError> {
        self.core.invalidate_all_keys()
    }

    /// Lets so many threads run the workers from now on, as [`Server::set_threads`](crate::Server::set_threads) does. Handlers
    /// move with their workers.
    ///
    /// # Errors
    ///
    /// [`ThreadsError`]; then everything stays as it is.
    pub fn set_threads(&mut self, threads: u16) -> Result<(), ThreadsError> {
        self.core.set_threads(threads)
    }
}

impl<N> Drop for Serving<N> {
    fn drop(&mut self) {
        self.core.pool.stop(self.goodbye);
    }
}

impl<N> std::fmt::Debug for Serving<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serving").field("address", &self.core.address).finish_non_exhaustive()
    }
}
