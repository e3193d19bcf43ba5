//! The client with a handler, on the thread of the application.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::{CloseCode, Moment, PeerId, SingleWorker};

use super::Handler;
use super::remote::Remote;
use super::sink::HandlerSink;
use crate::base::error::Error;
use crate::base::sync::Mailbox;
use crate::config::client::ClientConfig;
use crate::config::connect::ConnectOptions;
use crate::engine::client_worker;
use crate::observe::stats::WorkerStats;
use crate::worker::pass::Worker;

/// A client with a [`Handler`] for the events of its connections: for bots, gateways, and load tests.
///
/// There is no thread: [`Client::poll`] does the work and calls the handler. Dropping the client closes its connections and informs
/// the servers once.
pub struct Client<N> {
    worker: Box<Worker<SingleWorker>>,
    remote: Remote<N>,
}

impl<N: Send + 'static> Client<N> {
    /// Creates a client and its socket. It has at most [`ClientConfig::connections`] connections at the same time.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use drumfire::*;
    ///
    /// struct Counts(u32);
    ///
    /// impl Handler for Counts {
    ///     type Note = ();
    ///
    ///     fn on_event(&mut self, context: &mut Context<'_>, event: Event) {
    ///         if let Event::Connected { peer, .. } = event {
    ///             let _ = context.send(peer, Message::reliable_ordered(ChannelId(0), "one"));
    ///         }
    ///     }
    ///
    ///     fn on_message(&mut self, context: &mut Context<'_>, peer: PeerId, _: ChannelId, payload: &[u8]) {
    ///         self.0 += u32::from(payload == b"one");
    ///         context.close(peer, 0, "that is enough");
    ///     }
    /// }
    /// # struct Echo;
    /// # impl Handler for Echo {
    /// #     type Note = ();
    /// #     fn on_message(&mut self, context: &mut Context<'_>, peer: PeerId, channel: ChannelId, payload: &[u8]) {
    /// #         let _ = context.send(peer, Message::reliable_ordered(channel, context.copy(payload)));
    /// #     }
    /// # }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let server = handler::Server::bind(config.workers(Workers::Count(1)), |_worker| Echo)?;
    /// let mut bots = handler::Client::new(ClientConfig::default().connections(10), Counts(0))?;
    /// for _ in 0..10 {
    ///     bots.connect((server.local_addr(), ServerKey::dev().public()))?;
    /// }
    /// while bots.connections() > 0 {
    ///     bots.poll(Duration::from_millis(1));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// An [`Error`] that names the invalid setting, or contains the error of the operating system.
    pub fn new<H: Handler<Note = N>>(config: ClientConfig, handler: H) -> Result<Self, Error> {
        let link = client_worker::channel(&config);
        let (links, mailbox) = (Arc::from([Arc::clone(&link)]), Arc::new(Mailbox::default()));
        let sink = Box::new(HandlerSink::new(handler, Arc::clone(&mailbox), Arc::clone(&links)));
        let (worker, _) = client_worker::worker(config, sink, &link)?;
        Ok(Self { worker, remote: Remote::new(links, Arc::from([mailbox])) })
    }
}

impl<N> Client<N> {
    /// Returns the local address of the socket, as [`Client::local_addr`](crate::Client::local_addr) does.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.worker.local_addr()
    }

    /// Starts to connect to a server: `(address, key)`, a [`ConnectToken`](crate::ConnectToken), or [`ConnectOptions`]. The handler
    /// receives [`Event::Connected`](crate::Event::Connected), or [`Event::ConnectFailed`](crate::Event::ConnectFailed) after at most
    /// 5 s, unless [`ClientConfig::reconnect`] lets the client try again. Messages can be sent to the id immediately, except with
    /// [`Reconnect::Within`](crate::Reconnect::Within).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Client::connect`](crate::Client::connect). No attempt was started.
    pub fn connect(&mut self, to: impl Into<ConnectOptions>) -> Result<PeerId, Error> {
        let attempt = self.worker.connect(&to.into());
        // The Hello is sent immediately, and the attempt counts as a connection.
        self.worker.flush();
        attempt
    }

    /// Replaces the socket, as [`Client::rebind`](crate::Client::rebind) does.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]. The client continues with its present socket.
    pub fn rebind(&mut self) -> Result<(), Error> {
        Ok(self.worker.rebind()?)
    }

    /// Returns a handle that sends to the handler and its peers from any thread.
    #[must_use]
    pub fn remote(&self) -> Remote<N> {
        self.remote.clone()
    }

    /// Receives, calls the handler, and sends until `timeout` has passed.
    pub fn poll(&mut self, timeout: Duration) {
        self.worker.run(timeout, |_| false);
    }

    /// Changes the simulated links of the socket in both directions, as
    /// [`Client::set_conditioner`](crate::Client::set_conditioner) does.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for a configuration that cannot be used, or without [`ClientConfig::conditioner`]. Nothing has changed.
    pub fn set_conditioner(&mut self, link: &crate::conditioner::LinkConfig) -> Result<(), Error> {
        self.worker.set_conditioner(link)
    }

    /// Returns the time of the client's clock. Servers know its offset.
    pub fn now(&mut self) -> Moment {
        self.worker.time()
    }

    /// Returns the number of connections, including attempts and connections that close.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.worker.connection_count()
    }

    /// Returns the counters of all connections together.
    #[must_use]
    pub fn stats(&self) -> WorkerStats {
        self.worker.stats()
    }
}

impl<N> Drop for Client<N> {
    fn drop(&mut self) {
        self.worker.finish(CloseCode::Application);
    }
}

impl<N> std::fmt::Debug for Client<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("handler::Client").field("address", &self.local_addr()).finish_non_exhaustive()
    }
}
