//! The server with handlers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::Moment;

use super::Handler;
use super::remote::Remote;
use super::sink::HandlerSink;
use crate::base::error::Error;
use crate::base::sync::Mailbox;
use crate::config::server::ServerConfig;
use crate::config::threads::Workers;
use crate::engine::control::Control;
use crate::engine::server_core::{ServerCore, Sinks};
use crate::worker::channel::WorkerChannel;
use crate::worker::sink::Sink;

/// A server whose workers call a [`Handler`].
///
/// Dropping it closes all connections with [`CloseCode::Shutdown`](crate::error::CloseCode::Shutdown) and ends its threads.
pub struct Server<N> {
    pub(crate) core: ServerCore,
    remote: Remote<N>,
}

impl<N: Send + 'static> Server<N> {
    /// Binds the address and starts the workers. `make` creates the handler of each worker from the index of the worker.
    ///
    /// With [`Workers::Inline`] there is no thread, and [`Server::poll`] does the work. With [`Workers::Auto`] there is at least one
    /// thread, also on one core, because the application need not call `poll`.
    ///
    /// # Errors
    ///
    /// An [`Error`] that names the invalid setting, or contains the error of the operating system.
    pub fn bind<H: Handler<Note = N>>(
        config: ServerConfig,
        mut make: impl FnMut(usize) -> H,
    ) -> Result<Self, Error> {
        let needs_thread = config.workers == Workers::Auto;
        Self::with(&mut make, |sinks| ServerCore::bind(config, needs_thread, |links, _| sinks(links)))
    }

    /// Creates a server whose workers have the handlers that `make` creates.
    pub(crate) fn with<H: Handler<Note = N>>(
        make: &mut impl FnMut(usize) -> H,
        core: impl FnOnce(&mut dyn FnMut(&Arc<[Arc<WorkerChannel>]>) -> Sinks) -> Result<ServerCore, Error>,
    ) -> Result<Self, Error> {
        let mut mailboxes = Arc::default();
        let core = core(&mut |links| {
            mailboxes = links.iter().map(|_| Arc::new(Mailbox::default())).collect::<Arc<[_]>>();
            let sinks = mailboxes.iter().enumerate().map(|(index, mailbox)| {
                let sink = HandlerSink::new(make(index), Arc::clone(mailbox), Arc::clone(links));
                Box::new(sink) as Box<dyn Sink<_>>
            });
            sinks.collect()
        })?;
        let remote = Remote::new(Arc::clone(&core.links), mailboxes);
        Ok(Self { core, remote })
    }
}

impl<N> Server<N> {
    /// Returns the address to which clients connect, with its port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.core.address
    }

    /// Returns the operator's interface, for any thread: statistics, bans, settings, threads, and shutdown.
    #[must_use]
    pub fn control(&self) -> Control {
        self.core.control()
    }

    /// Returns a handle that sends to the handlers and all peers from any thread.
    #[must_use]
    pub fn remote(&self) -> Remote<N> {
        self.remote.clone()
    }

    /// With [`Workers::Inline`], receives, calls the handlers, and sends until `timeout` has passed. With threads
    /// it only waits.
    pub fn poll(&mut self, timeout: Duration) {
        match self.core.inline() {
            Some(worker) => _ = worker.run(timeout, |_| false),
            // The threads report no events, so nothing ends this wait early.
            None => self.core.notifier.wait(timeout),
        }
    }

    /// Returns the time of the server's clock. Clients know its offset.
    pub fn now(&self) -> Moment {
        self.core.now()
    }
}

impl<N> Drop for Server<N> {
    fn drop(&mut self) {
        self.core.stop();
    }
}

impl<N> std::fmt::Debug for Server<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("handler::Server").field("address", &self.core.address).finish_non_exhaustive()
    }
}
