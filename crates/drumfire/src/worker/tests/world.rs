//! A simulated world: a server's workers and its clients, with queues as the network and a clock that only the test advances.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use drumfire_proto::{
    ChannelId, ClientConfig, CloseCode, CloseReason, Config, Endpoint, Message, Moment, Now, PeerId,
    Placement, Secret, ServerConfig, Shard, SingleWorker, SteeringSecret,
};
use drumfire_socket::{
    Fault, Io, Outgoing, Parker, Ready, Receiver, ReceiverConfig, RecvBatch, SendMode, Wait, Waiter,
};

use crate::admission::registry::{ConnectionRegistry, RegistryView};
use crate::admission::{AdmissionConfig, AdmissionControl};
use crate::base::clock::Clock;
use crate::base::sync::Notifier;
use crate::config::connect::ConnectOptions;
use crate::credentials::keys::ServerKey;
use crate::message::event::Event;
use crate::worker::channel::tests::LIMITS;
use crate::worker::channel::{Batch, WorkerChannel};
use crate::worker::command::Command;
use crate::worker::direct::Direct;
use crate::worker::forward::{ForwardQueue, forward_queues};
use crate::worker::pass::{Worker, WorkerParts};
use crate::worker::queue::EventQueue;
use crate::worker::sessions::Sessions;
use crate::worker::sink::Sink;
use crate::worker::transport::Transport;
use crate::worker::worker_socket::WorkerSocket;

/// The state of a simulated socket: its queues, its faults, and a record of its calls.
#[derive(Default)]
pub(super) struct Wire {
    /// Datagrams to receive, with their senders, oldest first.
    pub(super) inbox: VecDeque<(SocketAddr, Vec<u8>)>,
    /// Sent datagrams, with their receivers, oldest first.
    pub(super) outbox: Vec<(Option<SocketAddr>, Vec<u8>)>,
    /// The number of datagrams in each train that was sent.
    pub(super) trains: Vec<usize>,
    /// The clock that each receive call advances, and by how much. `None` = receiving takes no time.
    pub(super) slow: Option<(Elapsed, Duration)>,
    /// The number of receive calls that will panic.
    pub(super) panics: u32,
    /// The error of every receive call. `None` = receive calls succeed.
    pub(super) unreadable: Option<Fault>,
    /// The number of receive calls that did not panic.
    pub(super) receives: usize,
    /// Every send returns `WouldBlock`.
    pub(super) is_blocked: bool,
    /// The number of times that the worker slept.
    pub(super) sleeps: u32,
    /// The value of `sleeps` at which the socket is no longer blocked. `None` = sleeping does not change that.
    pub(super) room_after_sleeps: Option<u32>,
    /// The descriptor is lost, so every call fails.
    pub(super) is_closed: bool,
    /// The number of times that the socket can be reopened.
    pub(super) spare_descriptors: u32,
    /// The address to which sends fail, and their error.
    pub(super) refused: Option<(SocketAddr, Fault)>,
    /// The bytes of the longest datagram that can be sent. `None` = no limit.
    pub(super) datagram_max_bytes: Option<usize>,
    /// The timeout of each poll, oldest first.
    pub(super) polls: Vec<Option<Duration>>,
    /// The argument of each `watch_writable` call, oldest first.
    pub(super) watches: Vec<bool>,
}

/// A simulated socket and its parker. Clones share one state.
#[derive(Clone, Default)]
pub(super) struct Fake(pub(super) Arc<Mutex<Wire>>);

impl Io for Fake {
    fn recv(&mut self, batch: &mut RecvBatch) -> Result<(), Fault> {
        let mut wire = self.0.lock().unwrap();
        if wire.panics > 0 {
            wire.panics -= 1;
            drop(wire);
            panic!("an injected fault");
        }
        wire.receives += 1;
        if let Some((elapsed, duration)) = &wire.slow {
            elapsed.set(elapsed.get() + *duration);
        }
        if wire.is_closed {
            return Err(Fault::BadDescriptor);
        }
        if let Some(fault) = wire.unreadable {
            return Err(fault);
        }
        while let Some((from, bytes)) = wire.inbox.front() {
            if !batch.put(*from, bytes, None) {
                break;
            }
            wire.inbox.pop_front();
        }
        if batch.filled() > 0 { Ok(()) } else { Err(Fault::WouldBlock) }
    }

    fn send(&mut self, outgoing: &mut Outgoing<'_>, _: SendMode) -> Result<usize, Fault> {
        let mut wire = self.0.lock().unwrap();
        if wire.is_closed {
            return Err(Fault::BadDescriptor);
        }
        if wire.is_blocked {
            return Err(Fault::WouldBlock);
        }
        let Wire { outbox, trains, refused, datagram_max_bytes, .. } = &mut *wire;
        let mut sent = 0;
        for (to, bytes) in outgoing.datagrams().take(outgoing.first_train()) {
            let is_refused = |peer: SocketAddr| to.is_none_or(|to| to == peer);
            let of_peer = refused.filter(|(peer, _)| is_refused(*peer)).map(|(_, fault)| fault);
            let of_size =
                datagram_max_bytes.filter(|most| bytes.len() > *most).map(|_| Fault::MessageTooLong);
            match of_peer.or(of_size) {
                Some(fault) if sent == 0 => return Err(fault),
                Some(_) => break,
                None => outbox.push((to, bytes.to_vec())),
            }
            sent += 1;
        }
        trains.push(sent);
        Ok(sent)
    }

    fn is_emptied_by_short_batch(&self) -> bool {
        false
    }

    fn enable_gro(&mut self) -> bool {
        false
    }
}

impl Parker for Fake {
    fn poll(&mut self, timeout: Option<Duration>) -> Result<Ready, Fault> {
        self.0.lock().unwrap().polls.push(timeout);
        Ok(Ready::default())
    }

    fn sleep(&mut self, _: Duration) {
        let mut wire = self.0.lock().unwrap();
        wire.sleeps += 1;
        wire.is_blocked &= wire.room_after_sleeps != Some(wire.sleeps);
    }
}

impl WorkerSocket for Fake {
    fn io(&mut self) -> &mut dyn Io {
        self
    }

    fn parker(&mut self) -> &mut dyn Parker {
        self
    }

    fn watch_writable(&mut self, is_blocked: bool) {
        self.0.lock().unwrap().watches.push(is_blocked);
    }

    fn reopen(&mut self) -> bool {
        let mut wire = self.0.lock().unwrap();
        let has_reserve = wire.spare_descriptors > 0;
        if has_reserve {
            wire.spare_descriptors -= 1;
            wire.is_closed = false;
        }
        has_reserve
    }
}

/// A time that all clones share.
#[derive(Clone, Default)]
pub(super) struct Elapsed(Arc<Mutex<Duration>>);

impl Elapsed {
    pub(super) fn get(&self) -> Duration {
        *self.0.lock().unwrap()
    }

    pub(super) fn set(&self, elapsed: Duration) {
        *self.0.lock().unwrap() = elapsed;
    }
}

/// The clock of all nodes. Only the test advances it.
#[derive(Clone)]
pub(super) struct Time {
    /// The time since the start of the world.
    pub(super) elapsed: Elapsed,
}

impl Clock for Time {
    fn read(&mut self) -> Now {
        let elapsed = self.elapsed.get();
        let monotonic = Moment::ORIGIN.after(elapsed);
        Now { monotonic, wall: elapsed }
    }

    fn thread_cpu_time(&mut self) -> Option<Duration> {
        None
    }
}

/// A worker with its simulated socket and its channel to the application.
pub(super) struct Node<P> {
    pub(super) worker: Worker<P>,
    pub(super) wire: Fake,
    pub(super) link: Arc<WorkerChannel>,
    pub(super) address: SocketAddr,
    /// The test takes the events from the worker, and not from the channel.
    is_direct: bool,
    /// All events that the worker has reported, oldest first.
    pub(super) received: VecDeque<Event>,
}

impl<P: Placement> Node<P> {
    pub(super) fn new(
        address: SocketAddr,
        time: &Time,
        link: &Arc<WorkerChannel>,
        (index, ring): (u16, ForwardQueue<WorkerChannel>),
        is_direct: bool,
        mut make: Box<dyn FnMut() -> Option<Endpoint<P>> + Send>,
    ) -> Self {
        let mut wire = Fake::default();
        let receiver = Receiver::new(&mut wire, &ReceiverConfig::default()).unwrap();
        let waiter = Waiter::new(Wait::Notify).unwrap();
        let endpoint = make().unwrap();
        let config = crate::config::client::ClientConfig::default();
        let sessions = (!endpoint.is_server())
            .then(|| Sessions::new(&config, false, crate::conditioner::Random::new(0)));
        let sink: Box<dyn Sink<P>> =
            if is_direct { Box::new(Direct) } else { Box::new(EventQueue::new(link)) };
        let transport = Transport::new(Box::new(wire.clone()), waiter, receiver, true);
        // A client has a connected socket, as in production.
        let transport = if sessions.is_some() { transport.connected(true) } else { transport };
        let worker = Worker::new(WorkerParts {
            index,
            transport,
            clock: Box::new(time.clone()),
            endpoint,
            make,
            sink,
            link: Arc::clone(link),
            ring: Some(ring),
            sessions,
            sockets: None,
        });
        if !is_direct {
            link.observe();
        }
        Self { worker, wire, link: Arc::clone(link), address, is_direct, received: VecDeque::new() }
    }

    /// Runs one pass, and collects the reported events.
    pub(super) fn work(&mut self) {
        self.worker.work();
        if self.is_direct {
            self.received.extend(std::iter::from_fn(|| self.worker.next_event()));
            return;
        }
        let mut batch = Batch::default();
        self.link.take_reports(&mut batch);
        self.received.append(&mut batch.events);
    }

    /// Commands the worker to send a message on channel 0.
    pub(super) fn send(&self, peer: PeerId, text: &'static str) {
        let message = Message::reliable_ordered(ChannelId(0), text);
        self.link.command(&mut vec![Command::Send { peer, message, receipt: None }]);
    }

    /// Passes commands to the worker, with the room that broadcasts and posts take.
    pub(super) fn command(&self, mut commands: Vec<Command>) {
        let mut payloads = commands.iter().filter_map(Command::shared_bytes);
        assert!(payloads.all(|payload_bytes| self.link.take_room(payload_bytes)));
        self.link.command(&mut commands);
    }

    pub(super) fn stats(&self) -> crate::observe::stats::WorkerStats {
        self.link.stats()
    }
}

/// The workers of a server, and clients.
pub(super) struct World {
    pub(super) time: Time,
    /// The workers of the server, by index.
    pub(super) servers: Vec<Node<RegistryView>>,
    /// Each client, the index of the worker that receives its datagrams, and the client's id of the server.
    pub(super) clients: Vec<(Node<SingleWorker>, usize, PeerId)>,
    /// A part of the entropy of the last client. It increases with each client.
    pub(super) seed: u8,
    /// The test calls the workers directly.
    is_direct: bool,
}

/// The address that all workers of the server share.
pub(super) const SERVER: ([u8; 4], u16) = ([127, 0, 0, 1], 1);

impl World {
    pub(super) fn new(workers: u16) -> Self {
        Self::with(workers, false)
    }

    /// Creates a world of one worker whose calls, like those of its clients, reach the core directly.
    pub(super) fn direct(clients: usize) -> Self {
        let mut world = Self::with(1, true);
        (0..clients).for_each(|_| world.join(0));
        world.run_until_all_are_connected();
        world
    }

    fn with(workers: u16, is_direct: bool) -> Self {
        let time = Time { elapsed: Elapsed::default() };
        let links: Vec<_> = (0..workers)
            .map(|_| Arc::new(WorkerChannel::new(Arc::new(Notifier::default()), LIMITS)))
            .collect();
        let admission = AdmissionControl::new(&AdmissionConfig::default(), WorkerChannel::loads(&links));
        let registry = ConnectionRegistry::with_admission(admission, workers, 10_000, 30_000);
        let count = NonZeroU16::new(workers).unwrap();
        let steering = SteeringSecret::from_bits(0x9e37_79b9);
        let servers =
            forward_queues(&links).into_iter().zip(&links).zip(0..).map(|((ring, link), index)| {
                let registry = Arc::clone(&registry);
                let mut generation = 0;
                let make =
                    move || {
                        registry.forget(index);
                        generation += 1;
                        let key = |byte| Secret::new([byte; 32]);
                        let server = ServerConfig::new(ServerKey::dev().pair(), key(1), key(2))
                            .shard(Shard { index, count, steering });
                        let seed = Secret::new([generation * 16 + u8::try_from(index).unwrap(); 32]);
                        Endpoint::server(Config::default(), server, registry.of_worker(index), seed).ok()
                    };
                Node::new(SERVER.into(), &time, link, (index, ring), is_direct, Box::new(make))
            });
        Self { servers: servers.collect(), time, clients: Vec::new(), seed: 0, is_direct }
    }

    /// Adds a client that connects by way of this worker, from an address of its own.
    pub(super) fn join(&mut self, worker: usize) {
        let port = 1_000 + u16::try_from(self.clients.len()).unwrap();
        self.join_from(SocketAddr::from(([127, 0, 0, 1], port)), worker);
    }

    /// Adds a client that connects by way of this worker. Several clients can share an address.
    pub(super) fn join_from(&mut self, address: SocketAddr, worker: usize) {
        self.join_with(address, worker, ClientConfig::default());
    }

    /// Adds a client that begins this number of connections over one socket.
    pub(super) fn join_many(&mut self, connections: usize) {
        self.join_with(SocketAddr::from(([127, 0, 0, 1], 999)), 0, ClientConfig::many());
        let (client, ..) = self.clients.last_mut().unwrap();
        let options = ConnectOptions::new(SERVER.into(), ServerKey::dev().public());
        (1..connections).for_each(|_| _ = client.worker.connect(&options).unwrap());
    }

    fn join_with(&mut self, address: SocketAddr, worker: usize, config: ClientConfig) {
        self.seed = self.seed.wrapping_add(1);
        let number = u16::try_from(self.clients.len()).unwrap();
        let mut seed = [self.seed; 32];
        seed[..2].copy_from_slice(&number.to_be_bytes());
        let make = move || Endpoint::client(Config::default(), config, Secret::new(seed)).ok();
        let links = [Arc::new(WorkerChannel::new(Arc::new(Notifier::default()), LIMITS))];
        let ring = forward_queues(&links).pop().unwrap();
        let mut node = Node::new(address, &self.time, &links[0], (0, ring), self.is_direct, Box::new(make));
        let options = ConnectOptions::new(SERVER.into(), ServerKey::dev().public());
        let peer = node.worker.connect(&options).unwrap();
        self.clients.push((node, worker, peer));
    }

    /// Advances the clock.
    pub(super) fn pass(&mut self, duration: Duration) {
        self.time.elapsed.set(self.time.elapsed.get() + duration);
    }

    /// Runs one pass of each client and each worker, and advances the clock by 1 ms.
    pub(super) fn step(&mut self) {
        self.step_clients();
        for server in &mut self.servers {
            server.work();
        }
        self.carry_replies();
        self.pass(Duration::from_millis(1));
    }

    /// Runs one pass of each client, and moves the sent datagrams to the workers.
    pub(super) fn step_clients(&mut self) {
        for (client, worker, ..) in &mut self.clients {
            client.work();
            let sent = std::mem::take(&mut client.wire.0.lock().unwrap().outbox);
            let mut server = self.servers[*worker].wire.0.lock().unwrap();
            server.inbox.extend(sent.into_iter().map(|(_, bytes)| (client.address, bytes)));
        }
    }

    /// Moves the datagrams that the workers sent to the clients at their addresses.
    pub(super) fn carry_replies(&mut self) {
        for (index, server) in self.servers.iter().enumerate() {
            for (to, bytes) in std::mem::take(&mut server.wire.0.lock().unwrap().outbox) {
                for (client, worker, ..) in &mut self.clients {
                    if to != Some(client.address) {
                        continue;
                    }
                    // Byte 0x8c marks a Welcome. From then on, the connection id routes the client's packets to this worker.
                    if bytes[0] == 0x8c {
                        *worker = index;
                    }
                    client.wire.0.lock().unwrap().inbox.push_back((SERVER.into(), bytes.clone()));
                }
            }
        }
    }

    /// Steps until the condition holds.
    ///
    /// # Panics
    /// After 3,000 steps.
    pub(super) fn run_until(&mut self, what: &str, is_true: impl Fn(&Self) -> bool) {
        for _ in 0..3_000 {
            if is_true(self) {
                return;
            }
            self.step();
        }
        panic!("never: {what}");
    }

    /// Returns the peers that workers reported as connected, including peers that are gone by now.
    pub(super) fn connected(&self) -> Vec<PeerId> {
        let events = self.servers.iter().flat_map(|server| &server.received);
        let peers = events.filter_map(|event| match event {
            Event::Connected { peer, .. } => Some(*peer),
            _ => None,
        });
        peers.collect()
    }

    /// Returns a world with one worker and `clients` connected clients.
    pub(super) fn of_one(clients: usize) -> Self {
        let mut world = Self::new(1);
        for _ in 0..clients {
            world.join(0);
        }
        world.run_until_all_are_connected();
        world
    }

    /// Steps until all clients are connected at both ends.
    pub(super) fn run_until_all_are_connected(&mut self) {
        self.run_until("connected", |world| {
            world.connected().len() == world.clients.len()
                && world.clients.iter().all(|client| !client.0.received.is_empty())
        });
    }

    /// Returns the messages that a client has received, in order.
    pub(super) fn texts(&self, client: usize) -> Vec<Bytes> {
        let events = self.clients[client].0.received.iter();
        let texts = events.filter_map(|event| match event {
            Event::Message { payload, .. } => Some(payload.clone()),
            _ => None,
        });
        texts.collect()
    }

    /// Returns the peers of the first worker that it reported as disconnected because of an internal error.
    pub(super) fn failed_peers(&self) -> Vec<PeerId> {
        let is_own = |reason| matches!(reason, CloseReason::Local { code: CloseCode::Internal, .. });
        self.ends().into_iter().filter(|(_, reason)| is_own(*reason)).map(|(peer, _)| peer).collect()
    }

    /// Returns the peers that the first worker reported as disconnected, with the reasons.
    pub(super) fn ends(&self) -> Vec<(PeerId, CloseReason)> {
        let ends = self.servers[0].received.iter().filter_map(|event| match event {
            Event::Disconnected { peer, closed } => Some((*peer, closed.reason)),
            _ => None,
        });
        ends.collect()
    }
}
