//! The client with a handler, on the thread of the application.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::{CloseCode, Moment, PeerId, SingleWorker};

use super::Handler;
use super::remote::Remote;
use super::sink::HandlerSink;
use crate::base::clock;
use crate::base::error::Error;
use crate::base::sync::Mailbox;
use crate::config::client::ClientConfig;
use crate::config::connect::ConnectOptions;
use crate::engine::client_socket::{ClientSocket, ReceiveBuffer};
use crate::engine::inline::worker;
use crate::observe::stats::WorkerStats;
use crate::worker::channel::WorkerChannel;
use crate::worker::forward::forward_queues;
use crate::worker::pass::Worker;

/// Connections to servers over one socket, with a [`Handler`] for their events: for bots, gateways, and load tests.
///
/// There is no thread: [`Client::poll`] does the work and calls the handler. Dropping the client closes its connections and informs
/// the servers once.
pub struct Client<N> {
    worker: Box<Worker<SingleWorker>>,
    remote: Remote<N>,
    address: SocketAddr,
    protocol_id: u64,
}

impl<N: Send + 'static> Client<N> {
    /// Binds a socket for at most `connections` connections to servers. Port 0 selects a free port.
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
    /// let mut bots = handler::Client::bind("127.0.0.1:0".parse()?, 10, &ClientConfig::default(), Counts(0))?;
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
    /// [`Error`], which names the setting that cannot be used, or has the error of the system.
    pub fn bind<H: Handler<Note = N>>(
        address: SocketAddr,
        connections: u32,
        config: &ClientConfig,
        handler: H,
    ) -> Result<Self, Error> {
        config.check()?;
        let bound = ClientSocket::bind(address, ReceiveBuffer::new(config, connections));
        let (socket, address) = bound.map_err(|error| Error::of_address(error, address))?;
        let links: Arc<[_]> = Arc::from([Arc::new(WorkerChannel::new(Arc::default()))]);
        let (Some(link), Some(ring)) = (links.first(), forward_queues(&links).pop()) else {
            // One link has one ring.
            return Err(Error::Io(std::io::ErrorKind::Other.into()));
        };
        let mailbox = Arc::new(Mailbox::default());
        let engine = Box::new(HandlerSink::new(handler, Arc::clone(&mailbox), Arc::clone(&links)));
        let (worker, _) = worker(socket, config, connections, engine, link, ring)?;
        let remote = Remote::new(links, Arc::from([mailbox]), config.message_max_bytes);
        Ok(Self { worker: Box::new(worker), remote, address, protocol_id: config.protocol_id })
    }
}

impl<N> Client<N> {
    /// Returns the bound address, with its port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Starts to connect to a server: `(address, key)`, a [`ConnectToken`](crate::ConnectToken), or [`ConnectOptions`]. The handler
    /// receives [`Event::Connected`](crate::Event::Connected), or [`Event::ConnectFailed`](crate::Event::ConnectFailed) after at most
    /// 5 s, unless [`ClientConfig::reconnect`] lets the client try again. Messages can be sent to the id immediately, except with
    /// [`Reconnect::Within`](crate::Reconnect::Within).
    ///
    /// # Errors
    ///
    /// [`Error`]. Nothing was started then.
    ///
    /// - `Setting`: the address, the hello, or the protocol id of the token cannot be used here.
    /// - `DevelopmentServer`: the address of a server with the development key is not a loopback address.
    /// - `Connect`: `TooManyConnections` if the client has its maximum number of connections, `BadServerKey` if no server can have this
    ///   key.
    pub fn connect(&mut self, to: impl Into<ConnectOptions>) -> Result<PeerId, Error> {
        let options = to.into();
        options.check(self.protocol_id)?;
        let begun = self.worker.connect(&options);
        // The Hello is sent immediately, and the attempt counts as a connection.
        self.worker.flush();
        Ok(begun?)
    }

    /// Returns a handle that sends to the handler and its peers from any thread.
    #[must_use]
    pub fn remote(&self) -> Remote<N> {
        self.remote.clone()
    }

    /// Receives, calls the handler, and sends for this long.
    pub fn poll(&mut self, timeout: Duration) {
        let start = clock::instant();
        loop {
            self.worker.work();
            let left = timeout.saturating_sub(clock::instant().saturating_duration_since(start));
            if left.is_zero() {
                return;
            }
            self.worker.wait(Some(left));
        }
    }

    /// Changes the simulated links of the socket in both directions, as
    /// [`Client::set_conditioner`](crate::Client::set_conditioner) does.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for a configuration that cannot be used, or without [`ClientConfig::conditioner`]. Nothing has changed then.
    #[cfg(feature = "conditioner")]
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
        self.worker.stats().connections
    }

    /// Returns the counters of all connections together.
    #[must_use]
    pub fn stats(&self) -> WorkerStats {
        self.worker.stats().clone()
    }
}

impl<N> Drop for Client<N> {
    fn drop(&mut self) {
        self.worker.finish(CloseCode::Application);
    }
}

impl<N> std::fmt::Debug for Client<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("handler::Client").field("address", &self.address).finish_non_exhaustive()
    }
}
