//! The operator's interface to a running server: [`Control`].
//!
//! It sends commands to the workers and never waits for them. The crate `drumfire-control` makes it available through a local socket.

#[cfg(all(test, any(loom, shuttle)))]
mod interleavings;
mod links;
mod shutting_down;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::{FlightRecord, Moment, PeerId};
use drumfire_socket::SocketGrants;

use super::invalidate::{self, SeedSource};
use super::threads::pool::Pool;
use crate::admission::bans::Ban;
use crate::admission::{AdmissionControl, Gate};
use crate::base::error::Error;
use crate::base::sync::{Mutex, Pending, PendingPart, lock};
use crate::config::server::ServerConfig;
use crate::observe::stats::Stats;
use crate::observe::survey::{SURVEY_PEERS_MAX, Survey, SurveyOrder, WorkerSample};
use crate::worker::channel::{REPORTS_MAX, WorkerChannel};
use crate::worker::command::{BanOrder, Command, Query, SurveyQuery};

/// The operator's interface to a server, for any thread.
///
/// Clones control the same server. No method waits for a worker. Actions whose result comes from the workers return a [`Pending`],
/// which can be awaited, polled, or waited for. The workers carry them out between two passes, and a server with
/// [`Workers::Inline`](crate::Workers::Inline) while it is polled. After the server has ended, actions have no effect.
///
/// ```
/// # use std::time::Duration;
/// # use drumfire::*;
/// # use drumfire::admission::Ban;
/// # use drumfire::control::*;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
/// # let mut server = Server::bind(config.workers(Workers::Shards { sockets: 2, threads: 2 }))?;
/// # let mut client = Client::new(ClientConfig::default())?;
/// # client.connect((server.local_addr(), ServerKey::dev().public()))?;
/// # loop {
/// #     client.poll(Duration::from_millis(1));
/// #     server.poll(Duration::ZERO);
/// #     if server.events().any(|event| matches!(event, Event::Connected { .. })) { break }
/// # }
/// let control = server.control();
/// control.ban(Ban::Player(PlayerId(7)), Duration::MAX)?;
/// control.set_threads(1)?;
/// let survey = control.survey(SurveyOrder::Loss, 10).wait(Duration::from_secs(1));
/// let peers = survey.ok_or("a worker does not answer")?.peers;
/// for peer in &peers {
///     println!("{} at {}: round trip {:?}", peer.peer, peer.address, peer.round_trip);
/// }
/// # assert_eq!(peers.len(), 1);
/// control.close(peers[0].peer, 1, "until tomorrow");
///
/// // New players are redirected, and the server ends when it has delivered everything.
/// let other_server = "192.0.2.7:7777".parse()?;
/// control.close_gate(Some(other_server));
/// let undelivered = control.shut_down(Duration::from_secs(30)).wait(Duration::from_secs(31));
/// # assert!(undelivered.is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Control {
    server: Arc<ControlState>,
}

/// The parts of a server that a [`Control`] reaches.
pub(crate) struct ControlState {
    pub(crate) links: Arc<[Arc<WorkerChannel>]>,
    pub(crate) admission: Arc<AdmissionControl>,
    /// The configuration that the server was bound with.
    pub(crate) config: Arc<ServerConfig>,
    /// The options that the system granted the socket of each worker, by index.
    pub(crate) sockets: Vec<SocketGrants>,
    /// The threads, or `None` for a server without threads.
    pub(crate) pool: Option<Arc<Pool>>,
    /// Reads the clock of the workers.
    pub(crate) now: Box<dyn Fn() -> Moment + Send + Sync>,
    pub(crate) seed_source: Mutex<SeedSource>,
    /// Held while a change is sent to all workers, so that concurrent changes reach each worker in the same order.
    pub(crate) change_lock: Mutex<()>,
}

impl Control {
    pub(crate) fn new(server: ControlState) -> Self {
        Self { server: Arc::new(server) }
    }

    /// Returns the time of the workers.
    pub(crate) fn now(&self) -> Moment {
        (self.server.now)()
    }

    #[cfg(test)]
    pub(super) fn pool(&self) -> &Pool {
        self.server.pool.as_ref().unwrap()
    }

    /// Closes all connections and ends the threads, if the server has any.
    pub(crate) fn stop_threads(&self) {
        self.server.pool.iter().for_each(|pool| pool.stop());
    }

    /// Returns the counters of all workers, as of their last pass.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let ControlState { links, sockets, pool, .. } = &*self.server;
        Stats {
            workers: links.iter().map(|link| link.stats()).collect(),
            sockets: sockets.clone(),
            threads: pool.as_ref().map(|pool| pool.shard_counts()).unwrap_or_default(),
            foreign_sockets: pool.as_ref().and_then(|pool| pool.foreign_sockets()),
        }
    }

    /// Requests the first `limit` connections in this order, at most 1,024. Each worker visits 128 connections per pass, so that a survey
    /// delays traffic by microseconds only, even with 100,000 connections. Rates need two surveys within ten seconds, at least half a
    /// second apart.
    pub fn survey(&self, order: SurveyOrder, limit: usize) -> Pending<Survey> {
        let limit = limit.min(SURVEY_PEERS_MAX);
        let links = &self.server.links;
        let workers = links.iter().map(|link| {
            let events_waiting = REPORTS_MAX.saturating_sub(link.room().0);
            WorkerSample { stats: link.stats(), busy_percent: None, events_waiting }
        });
        let survey = Survey { workers: workers.collect(), peers: Vec::new(), examined_count: 0 };
        let (survey, parts) = Pending::new(survey, links.len());
        for (link, part) in links.iter().zip(parts) {
            link.send_command(Command::Query(Box::new(Query::Survey(SurveyQuery { order, limit, part }))));
        }
        survey
    }

    /// Requests the flight record of a connection. The result is `None` if the peer has disconnected or was idle for five seconds, and
    /// without [`ServerConfig::flight_recorder`].
    pub fn flight_record(&self, peer: PeerId) -> Pending<Option<Box<FlightRecord>>> {
        self.query(peer, None, |part| Query::FlightRecord { peer, part })
    }

    /// Closes the connection of a peer with an application code and a text for the log of the peer, which is cut to 128 bytes. The
    /// application receives [`Event::Disconnected`](crate::Event::Disconnected). Does nothing if the peer has disconnected.
    pub fn close(&self, peer: PeerId, code: u32, text: &str) {
        if let Some(link) = self.link(peer) {
            link.send_command(Command::close(peer, code, text));
        }
    }

    /// Bans a peer for this duration, by its player or, in open access, by its current address, and closes its connection as
    /// [`Control::close`] does. The result is the ban.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use drumfire::*;
    /// # use drumfire::error::*;
    /// # #[cfg(feature = "tokio")]
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let server = asynchronous::Server::bind(config)?;
    /// # let clients = asynchronous::Client::new(ClientConfig::default().connections(2))?;
    /// # let to = (server.local_addr(), ServerKey::dev().public());
    /// # let client = clients.connect(to).await?;
    /// let connection = server.accept().await.ok_or("the server has ended")?;
    /// let control = server.control();
    /// let hour = Duration::from_secs(3_600);
    /// let ban = control.close_and_ban(connection.peer(), 9, "no more of this", hour).await?;
    /// assert_eq!(client.closed().await.text, "no more of this");
    ///
    /// let again = clients.connect(to).await;
    /// let banned = Some(RefuseReason::Banned);
    /// assert!(matches!(again, Err(Error::Connect(ConnectError::Refused(no))) if Some(no.reason) == banned));
    /// assert!(control.unban(ban) && control.bans().is_empty());
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "tokio"))]
    /// # fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// The result is [`Error::UnknownPeer`] if the peer has disconnected, or [`Error::TooManyBans`]. Nothing has changed.
    pub fn close_and_ban(
        &self,
        peer: PeerId,
        code: u32,
        text: &str,
        duration: Duration,
    ) -> Pending<Result<Ban, Error>> {
        let (admission, close) = (Arc::clone(&self.server.admission), Command::close(peer, code, text));
        self.query(peer, Err(Error::UnknownPeer), |part| {
            Query::CloseAndBan(BanOrder { peer, duration, admission, close, part })
        })
    }

    /// Refuses new connections that match `ban` for `duration`; `Duration::MAX` is until the server ends. A refused client receives
    /// [`RefuseReason::Banned`](crate::error::RefuseReason::Banned), with the remaining time if it is at most 18 hours. The ban holds for
    /// resume tokens too. Existing connections stay: see [`Control::close_and_ban`]. It replaces a ban of the same kind. The bans end with
    /// the server.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use drumfire::*;
    /// # use drumfire::admission::*;
    /// # use drumfire::error::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let mut server = Server::bind(config)?;
    /// let control = server.control();
    /// let network = Ban::Prefix { address: "127.0.0.0".parse()?, bits: 8 };
    /// control.ban(network, Duration::from_secs(3_600))?;
    /// # let mut client = Client::new(ClientConfig::default())?;
    /// # client.connect((server.local_addr(), ServerKey::dev().public()))?;
    /// let error = loop {
    ///     client.poll(Duration::from_millis(1));
    ///     # server.poll(Duration::ZERO);
    ///     if let Some(Event::ConnectFailed { error, .. }) = client.next_event() { break error }
    /// };
    /// assert!(matches!(error, ConnectError::Refused(refusal) if refusal.reason == RefuseReason::Banned));
    /// assert!(control.unban(network) && control.bans().is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::TooManyBans`], or [`Error::Setting`] for a prefix whose length does not fit its address.
    pub fn ban(&self, ban: Ban, duration: Duration) -> Result<(), Error> {
        self.server.admission.bans().add(self.now(), ban, duration)
    }

    /// Removes a ban. Returns whether it existed.
    pub fn unban(&self, ban: Ban) -> bool {
        self.server.admission.bans().remove(self.now(), ban)
    }

    /// Returns all bans with their remaining times.
    #[must_use]
    pub fn bans(&self) -> Vec<(Ban, Duration)> {
        self.server.admission.bans().all(self.now())
    }

    /// Refuses all new connections until [`Control::open_gate`]. Clients with a token are redirected to `redirect`, if there is one. In
    /// open access, refusals are not authenticated, so clients receive no address. Existing connections stay, and handshakes that were
    /// answered before can still complete within five seconds.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use drumfire::*;
    /// # use drumfire::error::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let mut server = Server::bind(config)?;
    /// server.control().close_gate(Some("192.0.2.8:7777".parse()?));
    /// # let mut client = Client::new(ClientConfig::default())?;
    /// # client.connect((server.local_addr(), ServerKey::dev().public()))?;
    /// let error = loop {
    ///     client.poll(Duration::from_millis(1));
    ///     # server.poll(Duration::ZERO);
    ///     if let Some(Event::ConnectFailed { error, .. }) = client.next_event() { break error }
    /// };
    /// let ConnectError::Refused(refusal) = error else { panic!("{error}") };
    /// assert_eq!((refusal.reason, refusal.address), (RefuseReason::Redirect, None));
    /// # Ok(())
    /// # }
    /// ```
    pub fn close_gate(&self, redirect: Option<std::net::SocketAddr>) {
        *self.server.admission.gate() = Gate::Closed(redirect);
    }

    /// Accepts new connections again.
    pub fn open_gate(&self) {
        *self.server.admission.gate() = Gate::Open;
    }

    /// Returns whether the gate is open, so that new connections are accepted.
    #[must_use]
    pub fn is_gate_open(&self) -> bool {
        *self.server.admission.gate() == Gate::Open
    }

    /// Changes the settings that can change while the server runs: see the table at [`ServerConfig`]. They hold for connections that
    /// begin after the next pass of their worker. Existing connections keep the settings with which they began.
    ///
    /// Give the complete configuration. The accept hook is not compared and stays the one that the server was bound with.
    ///
    /// ```
    /// use drumfire::config::Cookie;
    /// # use drumfire::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// let server = Server::bind(config.clone())?;
    /// let control = server.control();
    /// control.reconfigure(&config.clone().connections(100).cookie(Cookie::UnderLoad))?;
    ///
    /// let refused = control.reconfigure(&config.clone().connections(0));
    /// assert!(matches!(refused, Err(Error::Setting { field: "connections", .. })));
    /// let refused = control.reconfigure(&config.protocol_id(7));
    /// assert!(matches!(refused, Err(Error::Setting { field: "protocol_id", .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] with the field that cannot be used, or that differs although it cannot change. Nothing has changed.
    pub fn reconfigure(&self, config: &ServerConfig) -> Result<(), Error> {
        config.check_live(&self.server.config)?;
        let links = &self.server.links;
        let settings = Arc::new(config.live(links.len()));
        settings.check()?;
        let _change = lock(&self.server.change_lock);
        for link in links.iter() {
            link.send_command(Command::Reconfigure(Arc::clone(&settings)));
        }
        Ok(())
    }

    /// Sets the number of threads that run the workers, 1 to the number of sockets. [`Workers::Shards`](crate::Workers::Shards) binds
    /// more sockets than threads.
    ///
    /// Sockets move as a whole, with their connections and between two passes. No client reconnects, and no message is lost. New
    /// threads run when the method returns. The sockets follow, each as soon as the pass of its thread is over;
    /// [`Stats::threads`] shows the present state. A later call replaces an earlier one.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use drumfire::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// let mut server = Server::bind(config.workers(Workers::Shards { sockets: 8, threads: 1 }))?;
    /// let control = server.control();
    /// # if control.stats().workers.len() == 1 { return Ok(()) }
    /// control.set_threads(3)?;
    /// while control.stats().threads != [3, 3, 2] {
    ///     server.poll(Duration::from_millis(1));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NoThreads`], [`Error::Setting`] for a number out of range, or [`Error::Io`] if a thread cannot be started. Nothing has
    /// changed.
    pub fn set_threads(&self, threads: u16) -> Result<(), Error> {
        let pool = self.server.pool.as_ref().ok_or(Error::NoThreads)?;
        let socket_count = u16::try_from(self.server.links.len()).unwrap_or(u16::MAX);
        if !(1..=socket_count).contains(&threads) {
            let problem = format!("must be 1 to {socket_count}, at most one for each socket");
            return Err(Error::setting("threads", problem));
        }
        pool.set_threads(threads)
    }

    /// Ends all sessions, because a copy of this process may exist: the machine was resumed from a snapshot that another one was
    /// resumed from too, or the process was forked. Two copies with the same keys encrypt different packets under the same nonce,
    /// which reveals their contents and allows forgeries.
    ///
    /// Call it in each copy before the copy sends or receives again, or better before the snapshot is made. When the result is complete,
    /// the keys of all sessions and handshakes are erased at all workers, and the workers have new randomness. Every connection ends with
    /// [`CloseReason::KeysInvalidated`](crate::CloseReason::KeysInvalidated), and its unsent messages are lost. The peer receives no close,
    /// because a close would need the keys. A client is informed by the answer to its next packet
    /// ([`CloseReason::Reset`](crate::CloseReason::Reset)), and one with [`Reconnect::Within`](crate::Reconnect::Within) connects again.
    /// The key of the server and the keys of tokens stay, because they encrypt no packets.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use drumfire::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let mut server = Server::bind(config.workers(Workers::Shards { sockets: 2, threads: 2 }))?;
    /// # let config = ClientConfig::default().reconnect(Reconnect::Within(Duration::from_secs(60)));
    /// # let mut client = Client::new(config)?;
    /// # let peer = client.connect((server.local_addr(), ServerKey::dev().public()))?;
    /// # let before = loop {
    /// #     client.poll(Duration::from_millis(1));
    /// #     server.poll(Duration::ZERO);
    /// #     if let Some(Event::Connected { peer, .. }) = server.next_event() { break peer }
    /// # };
    /// // The orchestrator reports that this machine was resumed from a snapshot.
    /// let control = server.control();
    /// control.invalidate_keys().wait(Duration::from_secs(1)).ok_or("a worker does not answer")??;
    /// let ended = loop {
    ///     server.poll(Duration::from_millis(1));
    ///     if let Some(event) = server.next_event() { break event }
    /// };
    /// let Event::Disconnected { closed, .. } = ended else { panic!("{ended:?}") };
    /// assert_eq!(closed.reason, CloseReason::KeysInvalidated);
    ///
    /// // The client connects again when it next sends.
    /// client.send(peer, Message::reliable_ordered(ChannelId(0), "still there?"))?;
    /// loop {
    ///     client.poll(Duration::from_millis(1));
    ///     client.events().count();
    ///     server.poll(Duration::ZERO);
    ///     if let Some(Event::Connected { peer, .. }) = server.next_event() {
    ///         assert_ne!(peer, before);
    ///         break;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// The result is [`Error::Entropy`] if the system has no random bytes. Nothing has changed, and this copy must not continue: end the
    /// process without sending anything, by [`std::process::abort`].
    pub fn invalidate_keys(&self) -> Pending<Result<(), Error>> {
        invalidate::request(&self.server.links, &mut lock(&self.server.seed_source))
    }

    /// Sends a query about a peer to its worker. The result is `initial` if there is no such worker.
    fn query<T>(&self, peer: PeerId, initial: T, query: impl FnOnce(PendingPart<T>) -> Query) -> Pending<T> {
        match self.link(peer) {
            Some(link) => link.request(initial, |part| Command::Query(Box::new(query(part)))),
            None => Pending::ready(initial),
        }
    }

    fn link(&self, peer: PeerId) -> Option<&Arc<WorkerChannel>> {
        self.server.links.get(peer.worker())
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("workers", &self.server.links.len()).finish_non_exhaustive()
    }
}
