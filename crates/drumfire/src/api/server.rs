//! The server for a game loop. In each tick, the application calls `poll`, takes the events, calls `send`, and calls `flush`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::{ChannelId, ChannelOptions, Message, Moment, PeerId, ReceiptId, SendError};

use crate::base::clock;
use crate::base::error::Error;
use crate::config::server::ServerConfig;
use crate::config::threads::ThreadCounts;
use crate::engine::app_side::AppSide;
use crate::engine::control::Control;
use crate::engine::server_core::{ServerCore, Sinks};
use crate::message::event::Event;
use crate::message::group::{Audience, GroupId};
use crate::worker::actions::Actions;
use crate::worker::channel::WorkerChannel;
use crate::worker::command::{Broadcast, Command};
use crate::worker::direct::{Direct, KnownLength};
use crate::worker::pass::Worker;
use crate::worker::queue::EventQueue;
use crate::worker::sink::Sink;

/// A UDP server for game clients.
///
/// A server with 60 ticks per second reacts to events while it waits for the next tick, and then sends the state to all players:
///
/// ```
/// # #[cfg(feature = "postcard")]
/// # mod example {
/// use std::time::{Duration, Instant};
///
/// use drumfire::{Audience, Channel, ChannelId, Event, PeerId, SendOptions, Server};
/// # use std::collections::BTreeMap;
/// # use serde::{Deserialize, Serialize};
///
/// # #[derive(Serialize, Deserialize)]
/// # pub struct Input { pub step: i32 }
/// # #[derive(Serialize, Deserialize)]
/// # pub struct Snapshot { pub positions: Vec<(String, i32)> }
/// # #[derive(Default)]
/// # pub struct World { players: BTreeMap<PeerId, (String, i32, i32)> }
/// # impl World {
/// #     fn join(&mut self, peer: PeerId, name: &[u8]) {
/// #         self.players.insert(peer, (String::from_utf8_lossy(name).into_owned(), 0, 0));
/// #     }
/// #     fn apply(&mut self, peer: PeerId, input: Input) {
/// #         if let Some(player) = self.players.get_mut(&peer) { player.2 = input.step }
/// #     }
/// #     fn leave(&mut self, peer: PeerId) { self.players.remove(&peer); }
/// #     fn step(&mut self) { self.players.values_mut().for_each(|player| player.1 += player.2) }
/// #     fn snapshot(&self) -> Snapshot {
/// #         let position = |(name, at, _): &(String, i32, i32)| (name.clone(), *at);
/// #         Snapshot { positions: self.players.values().map(position).collect() }
/// #     }
/// # }
/// pub const INPUTS: Channel<Input> = Channel::new(ChannelId(1), SendOptions::reliable_ordered());
/// pub const SNAPSHOTS: Channel<Snapshot> = Channel::new(ChannelId(2), SendOptions::unreliable_sequenced());
///
/// pub fn tick(
///     server: &mut Server,
///     world: &mut World,
///     deadline: Instant,
/// ) -> Result<(), Box<dyn std::error::Error>> {
///     loop {
///         let left = deadline.saturating_duration_since(Instant::now());
///         server.poll(left);
///         while let Some(event) = server.next_event() {
///             match event {
///                 // The hello of the client has the name of the player.
///                 Event::Connected { peer, info } => world.join(peer, &info.hello),
///                 Event::Message { peer, payload, .. } => match INPUTS.decode(&payload) {
///                     Ok(input) => world.apply(peer, input),
///                     Err(_) => server.close(peer, 1, "not an input"),
///                 },
///                 Event::Disconnected { peer, .. } => world.leave(peer),
///                 _ => {}
///             }
///         }
///         if left.is_zero() {
///             break;
///         }
///     }
///     world.step();
///     server.broadcast(Audience::ALL, SNAPSHOTS.message(&world.snapshot())?)?;
///     server.flush();
///     Ok(())
/// }
/// # }
/// # #[cfg(feature = "postcard")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::time::{Duration, Instant};
/// # use drumfire::*;
/// # use example::*;
/// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
/// # let (mut server, mut world) = (Server::bind(config)?, World::default());
/// # let mut client = Client::new(ClientConfig::default())?;
/// # let to = ConnectOptions::new(server.local_addr(), ServerKey::dev().public()).hello("zed");
/// # let peer = client.connect(to)?;
/// # client.send(peer, INPUTS.message(&Input { step: 3 })?)?;
/// # loop {
/// #     tick(&mut server, &mut world, Instant::now() + Duration::from_millis(2))?;
/// #     client.poll(Duration::ZERO);
/// #     while let Some(event) = client.next_event() {
/// #         if let Event::Message { payload, .. } = event {
/// #             let (name, position) = &SNAPSHOTS.decode(&payload)?.positions[0];
/// #             if *position > 0 {
/// #                 assert_eq!((&name[..], position % 3), ("zed", 0));
/// #                 return Ok(());
/// #             }
/// #         }
/// #     }
/// # }
/// # }
/// # #[cfg(not(feature = "postcard"))]
/// # fn main() {}
/// ```
///
/// Dropping it closes all connections with [`CloseCode::Shutdown`](drumfire_proto::CloseCode::Shutdown) and ends
/// its threads.
pub struct Server {
    pub(crate) core: ServerCore,
    /// The application's side of the threads. Unused with [`Workers::Inline`](crate::Workers::Inline).
    pub(crate) app: AppSide,
}

impl Server {
    /// Binds the address and starts the workers.
    ///
    /// ```
    /// # use drumfire::*;
    /// // The development key is public, so it is refused outside of loopback.
    /// let public = "0.0.0.0:0".parse().unwrap();
    /// let refused = Server::bind(ServerConfig::new(public, ServerKey::dev(), Access::Open));
    /// assert!(matches!(refused, Err(Error::DevelopmentKey)));
    ///
    /// let key = ServerKey::generate().unwrap();
    /// let server = Server::bind(ServerConfig::new(public, key, Access::Open).workers(Workers::Count(1)));
    /// assert_ne!(server.unwrap().local_addr().port(), 0);
    /// ```
    ///
    /// # Errors
    ///
    /// An [`Error`] that names the invalid setting, or contains the error of the operating system.
    pub fn bind(config: ServerConfig) -> Result<Self, Error> {
        let sinks = |links: &_, counts: ThreadCounts| Self::sinks(links, counts.threads.is_none());
        ServerCore::bind(config, false, sinks).map(Self::from_core)
    }

    /// Creates the sinks of the workers. With `is_inline`, there is one worker, which runs in the calls of the server.
    pub(crate) fn sinks(links: &Arc<[Arc<WorkerChannel>]>, is_inline: bool) -> Sinks {
        let sink = |link| -> Box<dyn Sink<_>> {
            if is_inline { Box::new(Direct) } else { Box::new(EventQueue::new(link)) }
        };
        links.iter().map(sink).collect()
    }

    /// Creates a server over workers with the sinks of [`Server::sinks`].
    pub(crate) fn from_core(core: ServerCore) -> Self {
        let app = AppSide::new(Arc::clone(&core.links));
        Self { core, app }
    }

    /// Returns the only worker of an inline server, or otherwise the application's side of the threads.
    fn actions(&mut self) -> &mut dyn Actions {
        match self.core.inline() {
            Some(worker) => worker,
            None => &mut self.app,
        }
    }

    /// Returns the address to which clients connect, with its port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.core.address
    }

    /// Sends what was not flushed, receives, and waits up to `timeout` while there is no event. Returns whether there is an event;
    /// [`Server::next_event`] returns it. With [`Workers::Inline`](crate::Workers::Inline) it does the I/O: call it at least ten
    /// times per second. Otherwise the workers do the I/O, and it only waits.
    ///
    /// Take all events before the next call. While events are left it does not wait. With [`Workers::Inline`](crate::Workers::Inline),
    /// a message uses the receive memory of its connection until its event is taken. Otherwise each worker keeps at most 16,384 events,
    /// or 8 MiB of them. Without room for a message, its packet is not acknowledged.
    pub fn poll(&mut self, timeout: Duration) -> bool {
        if let Some(worker) = self.core.inline() {
            return worker.poll(timeout);
        }
        self.app.flush();
        let start = clock::instant();
        while !self.app.has_events() {
            self.app.take_events();
            let left = timeout.saturating_sub(clock::instant().saturating_duration_since(start));
            if left.is_zero() {
                break;
            }
            if !self.app.has_events() {
                self.core.notifier.wait(left);
            }
        }
        self.app.has_events()
    }

    /// Returns the oldest event, or `None` until the next [`Server::poll`]. It does no I/O.
    pub fn next_event(&mut self) -> Option<Event> {
        match self.core.inline() {
            Some(worker) => worker.next_event(),
            None => self.app.next_event(),
        }
    }

    /// Returns an iterator that calls [`Server::next_event`] until there is no event, for loops that do not send.
    pub fn events(&mut self) -> impl Iterator<Item = Event> {
        std::iter::from_fn(|| self.next_event())
    }

    /// Queues a message for a peer. It is sent with the next `flush` or `poll`.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use drumfire::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let mut server = Server::bind(config.workers(Workers::Shards { sockets: 2, threads: 2 }))?;
    /// # let mut client = Client::new(ClientConfig::default())?;
    /// # client.connect((server.local_addr(), ServerKey::dev().public()))?;
    /// # let peer = loop {
    /// #     client.poll(Duration::from_millis(1));
    /// #     server.poll(Duration::ZERO);
    /// #     if let Some(Event::Connected { peer, .. }) = server.next_event() { break peer }
    /// # };
    /// let message = Message::reliable_ordered(ChannelId(0), vec![7; 1_000]);
    /// let full = loop {
    ///     if let Err(error) = server.send(peer, message.clone()) {
    ///         break error;
    ///     }
    /// };
    /// assert_eq!(full, SendError::Full);
    ///
    /// // An event reports when there is room.
    /// let mut has_room = false;
    /// while !has_room {
    ///     server.poll(Duration::from_millis(1));
    ///     has_room = server.events().any(|event| event == Event::Writable { peer });
    /// #   client.poll(Duration::from_millis(1));
    /// #   client.events().for_each(drop);
    /// }
    /// server.send(peer, message)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`SendError`]. The message was not accepted.
    ///
    /// - `Full`: the peer receives messages more slowly than they are sent. [`Event::Writable`] reports when there is
    ///   room again.
    /// - `Closed`: the `Disconnected` event of the peer follows.
    /// - `TooLarge`: the message is longer than its mode and the configurations of both ends allow.
    /// - `UnknownPeer`: the connection has ended.
    pub fn send(&mut self, peer: PeerId, message: Message) -> Result<(), SendError> {
        self.actions().send(peer, message)
    }

    /// Queues a message as [`Server::send`] does, and returns an id for its receipt. [`Event::Receipt`] reports the
    /// outcome once, before the `Disconnected` event of the peer.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Server::send`]. No event follows.
    pub fn send_with_receipt(&mut self, peer: PeerId, message: Message) -> Result<ReceiptId, SendError> {
        self.actions().send_with_receipt(peer, message)
    }

    /// Returns the connected peers, as of the last `poll`.
    pub fn peers(&self) -> impl ExactSizeIterator<Item = PeerId> {
        let worker = self.core.inline_ref();
        let (here, threads) = (worker.map(Worker::peers), worker.is_none().then(|| self.app.peers()));
        let left = here.as_ref().map_or(0, ExactSizeIterator::len)
            + threads.as_ref().map_or(0, ExactSizeIterator::len);
        KnownLength { ids: here.into_iter().flatten().chain(threads.into_iter().flatten()), left }
    }

    /// Returns whether a peer is connected, and this server has not closed the connection.
    #[must_use]
    pub fn is_connected(&self, peer: PeerId) -> bool {
        self.core.inline_ref().map_or_else(|| self.app.is_connected(peer), |worker| worker.is_connected(peer))
    }

    /// Sets how the messages of a channel are sent, from the next `flush` or `poll` on. Does nothing if the peer has disconnected.
    pub fn set_channel_options(&mut self, peer: PeerId, channel: ChannelId, options: ChannelOptions) {
        self.actions().command(peer, Command::Options { peer, channel, options });
    }

    /// Adds a peer to a group, with the next `flush` or `poll`. A group exists as long as it has members. A peer leaves its groups when it
    /// disconnects. Returns whether the peer is a member now: `false` if it has disconnected, or is in
    /// [`GROUPS_PER_PEER_MAX`](crate::config::GROUPS_PER_PEER_MAX) groups.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use drumfire::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let mut server = Server::bind(config.workers(Workers::Shards { sockets: 2, threads: 2 }))?;
    /// # let mut clients = [Client::new(ClientConfig::default())?, Client::new(ClientConfig::default())?];
    /// # for client in &mut clients {
    /// #     client.connect((server.local_addr(), ServerKey::dev().public()))?;
    /// # }
    /// const RED: GroupId = GroupId(1);
    /// let mut joined = 0;
    /// while joined < 2 {
    ///     server.poll(Duration::from_millis(1));
    ///     while let Some(event) = server.next_event() {
    ///         if let Event::Connected { peer, .. } = event {
    ///             server.join(peer, RED);
    ///             joined += 1;
    ///         }
    ///     }
    /// #   clients.iter_mut().for_each(|client| drop(client.poll(Duration::ZERO)));
    /// }
    /// server.broadcast(RED, Message::reliable_ordered(ChannelId(0), "red team, go"))?;
    /// server.flush();
    /// for client in &mut clients {
    ///     let is_announcement = |event| matches!(event, Event::Message { payload, .. } if payload == "red team, go");
    ///     while !client.events().any(is_announcement) {
    ///         client.poll(Duration::from_millis(1));
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn join(&mut self, peer: PeerId, group: GroupId) -> bool {
        self.actions().join(peer, group)
    }

    /// Removes a peer from a group, with the next `flush` or `poll`. Does nothing if the peer is not a member.
    pub fn leave(&mut self, peer: PeerId, group: GroupId) {
        self.actions().command(peer, Command::Leave { peer, group });
    }

    /// Queues a message for many peers: all of them ([`Audience::ALL`]), or the members of a group. It is sent with the
    /// next `flush` or `poll`. A peer without room for the message misses it, and [`Event::Missed`] reports that, unless
    /// the channel's [`when_full`](ChannelOptions::when_full) drops another message instead. A slow peer never delays the
    /// others.
    ///
    /// Consecutive broadcasts to one group, or to all peers, with the same channel and the same options cost least. Each worker encodes
    /// them once, and the peers share their memory, except in the modes [`ReliableSequenced`](crate::Mode::ReliableSequenced) and
    /// [`ReliableLatest`](crate::Mode::ReliableLatest), and for messages of more than
    /// [`MESSAGE_MAX_BYTES`](crate::config::MESSAGE_MAX_BYTES). A `send`, a `join`, or any other call in between ends such a series.
    /// [`except`](Audience::except) does not. While slow peers hold 64 MiB of such messages of a worker, further broadcasts are copied for
    /// each peer.
    ///
    /// # Errors
    ///
    /// `TooLarge`, or `Full` when worker threads have not processed earlier broadcasts yet. In both cases, no peer receives the message.
    pub fn broadcast(&mut self, to: impl Into<Audience>, message: Message) -> Result<(), SendError> {
        self.actions().broadcast(Broadcast { audience: to.into(), message })
    }

    /// Requests the statistics of a connection and its path. [`Event::Stats`] contains them, unless the peer has disconnected.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use drumfire::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let mut server = Server::bind(config)?;
    /// # let mut client = Client::new(ClientConfig::default())?;
    /// # client.connect((server.local_addr(), ServerKey::dev().public()))?;
    /// # let peer = loop {
    /// #     client.poll(Duration::from_millis(1));
    /// #     server.poll(Duration::ZERO);
    /// #     if let Some(Event::Connected { peer, .. }) = server.next_event() { break peer }
    /// # };
    /// server.request_stats(peer);
    /// let stats = loop {
    ///     server.poll(Duration::from_millis(1));
    ///     if let Some(Event::Stats { stats, .. }) = server.next_event() { break stats }
    /// #   client.poll(Duration::ZERO);
    /// };
    /// println!("round trip {:?}, {} of {} packets lost", stats.round_trip, stats.packets_lost, stats.packets_sent);
    /// # Ok(())
    /// # }
    /// ```
    pub fn request_stats(&mut self, peer: PeerId) {
        self.actions().command(peer, Command::Measure { peer });
    }

    /// Requests the flight record of an open connection. [`Event::FlightRecord`] contains it, unless the peer has disconnected or was
    /// silent for five seconds, or [`ServerConfig::flight_recorder`] is off.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use drumfire::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let mut server = Server::bind(config.flight_recorder(true))?;
    /// # let mut client = Client::new(ClientConfig::default())?;
    /// # let peer = client.connect((server.local_addr(), ServerKey::dev().public()))?;
    /// # client.send(peer, Message::reliable_ordered(ChannelId(0), "hello"))?;
    /// # let peer = loop {
    /// #     client.poll(Duration::from_millis(1));
    /// #     server.poll(Duration::ZERO);
    /// #     if let Some(Event::Message { peer, .. }) = server.events().last() { break peer }
    /// # };
    /// server.request_flight_record(peer);
    /// let record = loop {
    ///     server.poll(Duration::from_millis(1));
    ///     if let Some(Event::FlightRecord { record, .. }) = server.next_event() { break record }
    /// #   client.poll(Duration::ZERO);
    /// };
    /// println!("{record}");
    /// # assert!(record.is_server && record.to_string().contains("received"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn request_flight_record(&mut self, peer: PeerId) {
        self.actions().command(peer, Command::Record { peer });
    }

    /// Returns the time of the server's clock. Clients know its offset: see
    /// [`PeerStats::clock_offset`](crate::PeerStats::clock_offset).
    pub fn now(&self) -> Moment {
        self.core.now()
    }

    /// Forgets a key of a [`ReliableLatest`](crate::Mode::ReliableLatest) channel, when the object of the key no longer exists. A busy
    /// connection remembers 2,048 keys. Beyond that it forgets all of them, and the newest value of each may arrive twice.
    pub fn forget_key(&mut self, peer: PeerId, channel: ChannelId, key: u64) {
        self.actions().command(peer, Command::Forget { peer, channel, key });
    }

    /// Sends all queued messages.
    pub fn flush(&mut self) {
        match self.core.inline() {
            Some(worker) => worker.flush(),
            None => _ = self.app.flush(),
        }
    }

    /// Closes the connection of a peer with the next `flush` or `poll`. The peer receives the application code, and the text for its log,
    /// which is cut to 128 bytes. Messages that still wait are sent once, as far as congestion control allows, and are not retransmitted.
    /// Messages of the peer that arrived before may still follow; [`Event::Disconnected`] is the last event. Does nothing if the peer has
    /// disconnected.
    pub fn close(&mut self, peer: PeerId, code: u32, text: &str) {
        self.actions().close(peer, code, text);
    }

    /// Returns the operator's interface, for any thread: statistics, bans, settings, threads, and shutdown.
    #[must_use]
    pub fn control(&self) -> Control {
        self.core.control()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.app.flush();
        self.core.stop();
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.core.address).finish_non_exhaustive()
    }
}
