//! The socket of a worker. The worker waits for it, drains it into the endpoint, and sends the datagrams of the endpoint.
//!
//! Datagrams that a blocked socket did not accept stay in the batch, in order. The endpoint is not asked for more until they have left.

mod over_links;

use std::io;
use std::time::Duration;

use drumfire_proto::{Endpoint, Moment, Now, PeerId, Placement};
use drumfire_socket::{
    DrainEnd, FlushEnd, Receiver, ReceiverConfig, SendBatch, SendMode, Sender, Socket, Wait, WaitEnd, Waiter,
};

use super::channel::WorkerChannel;
use super::datagram::{commit, handle_batch, inbound};
use super::kernel_drops::KernelDrops;
use super::live_links::{LiveLinks, with_system_seeds};
use super::receive_backoff::ReceiveBackoff;
use super::send_faults;
use super::worker_socket::{PolledSocket, WorkerSocket};
use crate::base::clock::Clock;
use crate::base::error::Error;
use crate::conditioner::LinkConfig;
use crate::observe::stats::WorkerStats;

/// The maximum number of datagrams that a pass receives before it handles timers and commands.
pub(crate) const BUDGET_DATAGRAMS: usize = 1_024;

/// The time after which a pass receives no more datagrams, however few it has received. A sender chooses the cost of its datagrams,
/// within bounds. The limit keeps a pass short when many senders choose the most expensive ones.
pub(crate) const BUDGET_TIME: Duration = Duration::from_millis(2);

/// The delay before a retry where no notification reports that there is room again.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(1);

/// A socket that loses its descriptor again within this time is given up, because other code keeps closing it.
pub(crate) const REOPEN_AFTER: Duration = Duration::from_secs(1);

/// The number of datagrams in a batch.
const BATCH_DATAGRAMS: usize = 128;

/// The maximum number of batches that a pass sends before the socket is read again.
const BATCHES_PER_PASS: usize = 16;

/// The maximum number of waits for room, each as long as [`RETRY_AFTER`], before a worker that ends gives up its last datagrams.
pub(crate) const LAST_WAITS_MAX: u32 = 250;

/// The number of datagrams between two readings of the clock, which is the most that one receive call returns.
const PORTION_DATAGRAMS: usize = 32;

/// The size of the memory into which the endpoint writes a datagram, in bytes.
const DATAGRAM_BYTES: usize = drumfire_proto::limits::DATAGRAM_FOUND_MAX_BYTES;

/// Sends and receives the datagrams of one worker over one socket, and waits for them.
pub(crate) struct Transport {
    pub(super) socket: Box<dyn WorkerSocket>,
    waiter: Waiter,
    receiver: Receiver,
    sender: Sender,
    batch: SendBatch,
    /// The peer of each datagram in the batch, in the same order.
    peers: Vec<Option<PeerId>>,
    /// Whether the socket is connected. It then sends to its peer, and ignores the address of a datagram.
    is_connected: bool,
    /// Whether a connected socket is replaced when the host changes its network. A refusal to send then does not end the connection.
    is_following: bool,
    /// Whether the system has refused to send from the address of a socket that follows its network. The worker clears it.
    pub(super) is_refused: bool,
    /// Whether the socket may have more datagrams. The next wait must not block then, because no edge reports them.
    is_more_waiting: bool,
    /// Whether a wait has reported datagrams since the last drain. It does not report them again.
    is_readable: bool,
    /// Whether the last wait ended without datagrams, so that the next pass can skip the receive call.
    is_quiet: bool,
    /// Whether the endpoint may have more to send after the batches of a pass.
    is_more_to_send: bool,
    /// Whether the poll watches the socket for room to write.
    is_watching_room: bool,
    /// The time after which the sender can continue, if it paused.
    rest: Option<Duration>,
    receive_backoff: ReceiveBackoff,
    /// The time at which the socket last lost its descriptor.
    lost_at: Option<Moment>,
    reopened_count: u64,
    /// Whether no descriptor of the socket is left, so that nothing can be sent or received.
    pub(super) is_gone: bool,
    kernel_drops: KernelDrops,
    /// The simulated links between the endpoint and the socket. `None` without the setting `conditioner`.
    pub(super) links: Option<Box<LiveLinks>>,
}

impl Transport {
    /// Creates the transport of a socket of the system, and sets the waker of the worker's channel.
    pub(crate) fn of_socket(
        socket: Socket,
        wait: Wait,
        conditioner: Option<&LinkConfig>,
        link: &WorkerChannel,
    ) -> Result<Self, Error> {
        let has_gso = socket.granted().has_gso;
        let mut socket = PolledSocket::new(socket)?;
        link.set_waker(socket.poller.waker());
        let receiver = Receiver::new(&mut socket.socket, &ReceiverConfig::default())?;
        let transport = Self::new(Box::new(socket), Waiter::new(wait)?, receiver, has_gso);
        Ok(transport.over(with_system_seeds(conditioner)?))
    }

    pub(crate) fn new(
        socket: Box<dyn WorkerSocket>,
        waiter: Waiter,
        receiver: Receiver,
        has_gso: bool,
    ) -> Self {
        let mode = SendMode::best(has_gso);
        Self {
            socket,
            waiter,
            receiver,
            sender: Sender::new(mode),
            batch: SendBatch::new(BATCH_DATAGRAMS, BATCH_DATAGRAMS * DATAGRAM_BYTES),
            peers: Vec::with_capacity(BATCH_DATAGRAMS),
            is_connected: false,
            is_following: false,
            is_refused: false,
            // No wait has reported the datagrams that arrived before the first one.
            is_more_waiting: true,
            is_readable: false,
            is_quiet: false,
            is_more_to_send: false,
            is_watching_room: false,
            rest: None,
            receive_backoff: ReceiveBackoff::default(),
            lost_at: None,
            reopened_count: 0,
            is_gone: false,
            kernel_drops: KernelDrops::default(),
            links: None,
        }
    }

    /// Puts these links between the endpoint and the socket.
    pub(crate) fn over(mut self, links: Option<Box<LiveLinks>>) -> Self {
        self.links = links;
        self
    }

    /// Sets that the socket is connected, and whether it is replaced when the host changes its network.
    pub(crate) fn connected(mut self, is_following: bool) -> Self {
        (self.is_connected, self.is_following) = (true, is_following);
        self
    }

    /// Continues with another descriptor of the socket after one was lost, if there is one and the last one lasted long enough.
    fn reopen(&mut self, now: Moment) {
        let has_lasted = self.lost_at.is_none_or(|at| now.since(at) >= REOPEN_AFTER);
        // A worker that has ended has reported that, so it does not start again.
        self.is_gone = self.is_gone || !has_lasted || !self.socket.reopen();
        self.lost_at = Some(now);
        if !self.is_gone {
            self.reopened_count += 1;
            // `Poller::reopen` asks for a drain before the next wait, and does not watch the new descriptor for room
            // to write.
            (self.is_more_waiting, self.is_watching_room) = (true, false);
        }
    }

    /// Fills the empty batch. Returns false if the endpoint has nothing to send.
    fn fill<P: Placement>(&mut self, endpoint: &mut Endpoint<P>, now: Now) -> bool {
        self.peers.clear();
        if self.links.is_some() {
            return self.fill_from_links(endpoint, now);
        }
        while endpoint.has_transmit()
            && self.batch.len() < BATCH_DATAGRAMS
            && let Some(memory) = self.batch.spare(DATAGRAM_BYTES)
            && let Some(transmit) = endpoint.poll_transmit(now, memory)
        {
            // A fault names a datagram by its place in the batch, so `commit` also stores the peer at that place.
            let to = (!self.is_connected).then_some(transmit.to);
            commit(&mut self.batch, &mut self.peers, to, transmit.peer, transmit.bytes);
        }
        !self.batch.is_empty()
    }

    /// Returns the number of received datagrams, including unusable ones, which cost the same.
    pub(super) fn arrivals(&self) -> u64 {
        self.receiver.arrived_count()
    }

    /// Passes datagrams of the socket to the endpoint or to the inbound link, as [`Transport::receive`] says.
    fn drain<P: Placement>(&mut self, endpoint: &mut Endpoint<P>, now: Now, clock: &mut dyn Clock) -> u64 {
        if std::mem::take(&mut self.is_quiet) {
            return 0;
        }
        let began = Duration::from_nanos(now.monotonic.as_nanos());
        // `is_more_waiting` is still set from the failed drain, so the drain after the delay does not depend on a
        // notification.
        if self.receive_backoff.is_waiting(now.monotonic) {
            self.waiter.on_pass(began, 0);
            return 0;
        }
        let (before, mut panics) = (self.arrivals(), 0);
        // Set before the drain: a panic in it leaves datagrams in the socket that no edge reports.
        self.is_more_waiting = true;
        self.is_readable = false;
        let mut left = BUDGET_DATAGRAMS;
        let end = loop {
            let (portion, arrived) = (left.min(PORTION_DATAGRAMS), self.arrivals());
            let end = self.receiver.drain_mut(self.socket.io(), portion, |mut received| {
                let datagrams = received.datagrams_mut().map(inbound);
                match &mut self.links {
                    None => panics += handle_batch(endpoint, now, datagrams),
                    Some(links) => {
                        datagrams.for_each(|datagram| links.push_inbound(now.monotonic, &datagram));
                    }
                }
            });
            // Failed calls use up the budget too, and a GRO batch may be longer than the portion.
            let arrived = usize::try_from(self.arrivals().saturating_sub(arrived)).unwrap_or(usize::MAX);
            left = left.saturating_sub(arrived.max(portion));
            let mut is_late = || clock.monotonic().since(now.monotonic) >= BUDGET_TIME;
            if end != DrainEnd::BudgetSpent || left == 0 || is_late() {
                break end;
            }
        };
        // The poll is edge-triggered. It reports the datagrams that these two ends leave behind only together with
        // new ones.
        self.is_more_waiting = matches!(end, DrainEnd::BudgetSpent | DrainEnd::Starved);
        if matches!(end, DrainEnd::Closed(_)) {
            self.reopen(now.monotonic);
        }
        // A failure after datagrams is no reason to wait, because the socket makes progress.
        let arrived = self.arrivals().saturating_sub(before);
        self.receive_backoff.on_drain(now.monotonic, end == DrainEnd::Starved && arrived == 0);
        self.waiter.on_pass(began, arrived);
        panics
    }

    /// Sends the batch. Returns whether it is empty afterwards. The endpoint is notified of datagrams that cannot be sent.
    fn flush<P: Placement>(&mut self, endpoint: &mut Endpoint<P>, now: Now) -> bool {
        // A pause of the last flush is over: this call is the retry.
        self.rest = None;
        if self.batch.is_empty() {
            return true;
        }
        let Self { peers, is_following, is_refused, .. } = self;
        let end = self.sender.flush(self.socket.io(), &mut self.batch, |lost| {
            let peer = peers.get(lost.index).copied().flatten();
            let is_of_path = *is_following && send_faults::is_of_path(lost.fault);
            *is_refused |= is_of_path;
            // A connection outlives the change of the network. An attempt fails, because it has nothing to lose.
            if !(is_of_path && peer.is_some_and(|peer| endpoint.is_open(peer))) {
                send_faults::report(endpoint, now, peer, &lost);
            }
        });
        if let FlushEnd::Paused(rest) = end {
            self.rest = Some(rest);
        }
        if matches!(end, FlushEnd::Closed(_)) {
            self.reopen(now.monotonic);
        }
        let is_blocked = end == FlushEnd::Blocked;
        // Each change of the watch is a system call, so it follows only changes of the state.
        if is_blocked != self.is_watching_room {
            self.socket.watch_writable(is_blocked);
            self.is_watching_room = is_blocked;
        }
        end == FlushEnd::Sent
    }

    /// Waits for a datagram, a wake-up, or up to `at_most`. Returns false if the wait failed.
    pub(super) fn wait(&mut self, at_most: Option<Duration>) -> bool {
        let at_most = at_most.into_iter().chain(self.rest).chain(self.receive_backoff.left()).min();
        let is_busy = self.is_more_waiting() || self.is_more_to_send;
        let woken = self.waiter.wait(self.socket.parker(), at_most, is_busy);
        // Only a poll can report that there are no datagrams. After a sleep, a spin, or a failed poll, the pass has to
        // receive.
        self.is_readable |= !matches!(woken, Ok(WaitEnd::Polled(ready)) if ready.readable == 0);
        self.is_quiet = !self.is_readable && !self.is_more_waiting;
        // A failed poll returns immediately. Without the sleep, a lasting failure would take a whole core.
        if woken.is_err() {
            self.socket.parker().sleep(RETRY_AFTER);
        }
        woken.is_ok()
    }

    /// Stores the result of a wait for several transports: whether it reported datagrams for this one.
    pub(super) fn set_ready(&mut self, is_ready: bool) {
        self.is_readable |= is_ready;
        self.is_quiet = !self.is_readable && !self.is_more_waiting;
    }

    /// Forgets the results of earlier waits, so that the next pass receives.
    pub(super) fn force_receive(&mut self) {
        (self.is_more_waiting, self.is_quiet) = (true, false);
    }

    /// Returns the longest time that the next wait may take.
    pub(super) fn time_left(&self) -> Option<Duration> {
        let is_readable = self.is_readable && self.receive_backoff.left().is_none();
        let is_busy = self.is_more_waiting() || is_readable || self.is_more_to_send;
        if is_busy {
            Some(Duration::ZERO)
        } else {
            self.rest.into_iter().chain(self.receive_backoff.left()).min()
        }
    }

    /// Starts a pass. Reads the result of the last wait, if the wait did not return it.
    pub(super) fn begin_pass(&mut self) {
        if let Some(is_ready) = self.socket.end_wait() {
            self.set_ready(is_ready);
        }
    }

    /// Passes datagrams to the endpoint until there are none or the budget of the pass is spent, unless a wait has just reported
    /// that there are none. Returns the number of panics that ended a connection.
    pub(super) fn receive<P: Placement>(
        &mut self,
        endpoint: &mut Endpoint<P>,
        now: Now,
        clock: &mut dyn Clock,
    ) -> u64 {
        let panics = self.drain(endpoint, now, clock);
        panics + self.receive_from_links(endpoint, now)
    }

    /// Sends the datagrams of the endpoint, as far as there is room.
    pub(super) fn transmit<P: Placement>(&mut self, endpoint: &mut Endpoint<P>, now: Now) {
        // Each round begins with the flush, because datagrams that an earlier pass left in the batch go first.
        self.is_more_to_send = false;
        for _ in 0..BATCHES_PER_PASS {
            if !self.flush(endpoint, now) || !self.fill(endpoint, now) {
                return;
            }
        }
        // After a full number of batches, another pass follows immediately. If the socket is blocked, its
        // notification starts the next pass.
        self.is_more_to_send = self.flush(endpoint, now);
    }

    /// Sends all datagrams of the endpoint, because the worker ends. Waits while there is no room, but not for long.
    pub(super) fn transmit_all<P: Placement>(&mut self, endpoint: &mut Endpoint<P>, now: Now) {
        let mut waits = 0;
        while !self.is_gone && waits < LAST_WAITS_MAX {
            if !self.flush(endpoint, now) {
                // A wait for the socket would return immediately if it has datagrams, which no pass receives any more.
                waits += 1;
                self.socket.parker().sleep(RETRY_AFTER);
            } else if !self.fill(endpoint, now) {
                return;
            }
        }
    }

    /// Whether there may be more datagrams than the last `receive` took.
    pub(super) fn is_more_waiting(&self) -> bool {
        self.is_more_waiting && self.receive_backoff.left().is_none()
    }

    /// Whether datagrams of an earlier `transmit` still wait for room. The endpoint is not asked for more until they have left.
    pub(super) fn is_held_back(&self) -> bool {
        !self.batch.is_empty()
    }

    /// Reads the kernel's counters, if that is due.
    pub(super) fn read_kernel_counters(&mut self, now: Moment) {
        self.kernel_drops.read_if_due(now, self.socket.io());
    }

    /// Writes the counters into the statistics of the worker.
    pub(super) fn count(&self, stats: &mut WorkerStats) {
        stats.received.clone_from(self.receiver.counts());
        stats.sent.clone_from(self.sender.counts());
        stats.kernel_dropped = self.kernel_drops.count();
        stats.receive_queue_bytes = self.kernel_drops.queued_bytes();
        stats.sockets_reopened = self.reopened_count;
        if let Some(links) = &self.links {
            links.count(stats);
        }
    }

    /// Reads the kernel's counters once more, because there is no later pass.
    pub(super) fn read_kernel_dropped(&mut self) {
        self.kernel_drops.read(self.socket.io());
    }

    /// Returns when a datagram that simulated links delay is due. `None` if there is none.
    pub(super) fn links_due(&self) -> Option<Moment> {
        self.links.as_ref()?.due(!self.batch.is_empty())
    }

    /// Continues with another socket. Datagrams in the old one are lost. A simulated socket does nothing.
    ///
    /// # Errors
    ///
    /// The error of the system. Nothing has changed.
    pub(super) fn replace_socket(&mut self, socket: Socket) -> io::Result<()> {
        if let Some(polled) = self.socket.polled() {
            // The registration can fail. It comes first, so that the old socket then remains in use with its state.
            polled.replace(socket)?;
            // A kernel that refuses it here hands over single datagrams, which are read in the same way.
            if self.receiver.is_gro_on() {
                self.socket.io().enable_gro();
            }
            self.kernel_drops.on_replaced();
            self.receive_backoff.on_replaced();
            if let Some(links) = &mut self.links {
                links.on_replaced();
            }
            // No wait has reported datagrams of the new socket, so the next pass receives. Datagrams that are held
            // back leave through the new socket; another server cannot open them.
            (self.is_more_waiting, self.is_readable, self.is_quiet) = (true, false, false);
            (self.is_watching_room, self.is_gone) = (false, false);
        }
        Ok(())
    }
}
