//! One pass of a worker, and what happens when a pass panics.
//!
//! A panic in the code of a connection ends that connection. The datagrams that were processed together with it are lost, as if
//! the network had dropped them, and the batch continues after them. Any other panic loses the rest of the batch, or the command
//! in which it occurred.
//!
//! After [`PANICS_IN_A_ROW`] panics that belong to no connection, without a pass that completes in between, the endpoint is
//! considered broken. Every peer of this worker is reported as disconnected, and the worker restarts on the same socket. Other
//! workers are not affected. With `panic = "abort"`, a panic ends the process instead.

mod hosted;
mod publish;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::{CloseCode, ConnectError, Endpoint, Moment, Now, PeerId, Placement};
use drumfire_socket::Poller;

use super::arena::Arena;
use super::channel::WorkerChannel;
use super::client_sockets::ClientSockets;
use super::command::Command;
use super::core::Core;
use super::forward::ForwardQueue;
use super::live_links;
use super::sessions::Sessions;
use super::sink::Sink;
use super::transport::{RETRY_AFTER, Transport};
use crate::base::clock::Clock;
use crate::base::error::Error;
use crate::conditioner::LinkConfig;
use crate::config::connect::ConnectOptions;
use crate::credentials::connect_token::ConnectToken;

/// The number of panics after which the endpoint is replaced.
pub(crate) const PANICS_IN_A_ROW: u32 = 3;

/// Timers that are late by more than this wait until the socket is drained, because it may hold a sign of life of a silent peer.
const STALL: Duration = Duration::from_secs(1);

/// The largest number of passes for which late timers wait. It is bounded, so that a flood cannot suspend timers.
const STALLED_PASSES_MAX: u32 = 64;

/// The largest number of runs in a pass of a sink that runs before the flush. It runs again if its messages caused new events.
const SINK_RUNS_PER_PASS: usize = 4;

/// Creates a new endpoint. Returns `None` if that fails, for example because the system has no randomness.
pub(crate) type Make<P> = Box<dyn FnMut() -> Option<Endpoint<P>> + Send>;

/// The components of a worker.
pub(crate) struct WorkerParts<P> {
    pub(crate) index: u16,
    pub(crate) transport: Transport,
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) endpoint: Endpoint<P>,
    pub(crate) make: Make<P>,
    pub(crate) sink: Box<dyn Sink<P>>,
    pub(crate) link: Arc<WorkerChannel>,
    /// The queues between the workers of a server. `None` at a client.
    pub(crate) ring: Option<ForwardQueue<WorkerChannel>>,
    /// The sessions of a client. `None` at a server.
    pub(crate) sessions: Option<Sessions>,
    /// The source of a client's sockets. `None` at a server, and in a simulated world.
    pub(crate) sockets: Option<ClientSockets>,
}

/// A worker: one socket and one endpoint, used by one thread at a time.
pub(crate) struct Worker<P> {
    transport: Transport,
    clock: Box<dyn Clock>,
    now: Now,
    /// Whether a pass has ended since the clock was read.
    pub(super) is_clock_stale: bool,
    /// Whether the application has called since the last pass, so that there may be something to send.
    pub(super) is_pass_due: bool,
    pub(super) core: Core<P>,
    /// The payloads of events that [`Worker::next_event`] returned.
    pub(super) arena: Arena,
    make: Make<P>,
    /// The source of a client's sockets. `None` at a server, and in a simulated world.
    sockets: Option<ClientSockets>,
    sink: Box<dyn Sink<P>>,
    pub(super) link: Arc<WorkerChannel>,
    ring: Option<ForwardQueue<WorkerChannel>>,
    /// The commands that were taken from the link and not carried out yet.
    commands: VecDeque<Command>,
    /// Whether a forwarded datagram waits for room in another worker's ring.
    is_forward_held: bool,
    /// Whether the sink has more to do immediately.
    is_sink_busy: bool,
    /// The number of passes for which late timers have waited.
    stalled_passes: u32,
    /// The number of panics that belong to no connection, since the last pass that completed.
    panics_in_a_row: u32,
}

impl<P: Placement> Worker<P> {
    pub(crate) fn new(parts: WorkerParts<P>) -> Self {
        let WorkerParts { index, transport, mut clock, endpoint, .. } = parts;
        let now = clock.read();
        let (limits, has_remote_senders) = (parts.link.limits, parts.sink.has_remote_senders());
        let core = Core::new(index, now, endpoint, limits, has_remote_senders, parts.sessions.map(Box::new));
        Self {
            transport,
            now,
            is_clock_stale: true,
            is_pass_due: false,
            arena: Arena::default(),
            clock,
            core,
            make: parts.make,
            sockets: parts.sockets,
            sink: parts.sink,
            link: parts.link,
            ring: parts.ring,
            commands: VecDeque::new(),
            is_forward_held: false,
            is_sink_busy: false,
            stalled_passes: 0,
            panics_in_a_row: 0,
        }
    }

    /// Returns the poll that waits for the socket. A foreign event loop can watch its descriptor. `None` in a simulated world.
    pub(crate) fn poller(&self) -> Option<&Poller> {
        self.transport.socket.poller()
    }

    /// Returns the local address of a client's socket. `None` if it leads to no server yet, and in a simulated world.
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        self.sockets.as_ref().and_then(ClientSockets::local_addr)
    }

    /// Continues with a new socket at another address, and prepares the connections for it. Messages that were queued before leave
    /// through the present socket, and datagrams in it are lost. Without sockets, only the connections change.
    pub(crate) fn rebind(&mut self) -> io::Result<()> {
        self.flush();
        // This runs between two passes, so the time of the last pass is stale.
        self.read_clock();
        self.renew_socket()
    }

    /// Replaces the socket of a client, and prepares the connections for the new address.
    fn renew_socket(&mut self) -> io::Result<()> {
        if let Some(sockets) = &mut self.sockets {
            let server = self.core.only_session().map(|(_, server)| server);
            sockets.renew(server, |socket| self.transport.replace_socket(socket))?;
        }
        self.core.change_paths(self.sockets.as_ref().and_then(ClientSockets::local_addr));
        Ok(())
    }

    /// Before the next attempt of a client, connects a new socket to its server. The server may have another address, and the device
    /// may have changed its network, which a connected socket does not follow.
    pub(super) fn follow_attempt(&mut self) {
        let Some(next) = self.core.take_new_attempt() else { return };
        let Some(sockets) = self.sockets.as_mut().filter(|sockets| sockets.are_connected()) else { return };
        let renewed = sockets.renew(Some(next.server), |socket| self.transport.replace_socket(socket));
        if renewed.is_err() && next.is_redirected {
            // The present socket is connected to another server.
            self.core.close(next.peer, CloseCode::Internal, 0);
        }
    }

    /// Changes the simulated links for datagrams that are sent from now on.
    ///
    /// # Errors
    /// [`Error::Setting`] if the configuration is invalid, or if there are no links.
    pub(crate) fn set_conditioner(&mut self, config: &LinkConfig) -> Result<(), Error> {
        self.transport.links.as_mut().ok_or_else(live_links::no_links)?.set_config(config)
    }

    /// Whether the worker has ended, because no descriptor of its socket is left.
    pub(crate) fn is_over(&self) -> bool {
        self.transport.is_gone
    }

    /// Waits until there is work, but no longer than `at_most`. `None` = no limit.
    pub(crate) fn wait(&mut self, at_most: Option<Duration>) {
        // The wait counts from the start of the last pass, which saves a reading of the clock. A timer can be late by
        // the length of a pass, which the budgets bound.
        let timer = self.timer().map(|timer| timer.since(self.now.monotonic));
        if !self.transport.wait(at_most.into_iter().chain(timer).min()) {
            self.core.stats.wait_faults += 1;
        }
    }

    /// Returns the time at which a pass is due even if no datagram arrives. `None` = no pass is due.
    fn timer(&mut self) -> Option<Moment> {
        let now = self.now.monotonic;
        let retry = self.is_forward_held.then_some(now.after(RETRY_AFTER));
        let again = (self.is_sink_busy || self.core.has_survey()).then_some(now);
        let endpoint = &mut self.core.endpoint;
        // A blocked socket reports when it accepts datagrams again. To wake up earlier for sending would be a busy loop.
        let timer =
            if self.transport.is_held_back() { endpoint.poll_timer() } else { endpoint.poll_timeout() };
        let timers = timer.into_iter().chain(self.sink.timer()).chain(self.transport.links_due());
        timers
            .chain(self.core.observer.due_at())
            .chain(self.core.shutdown_timer())
            .chain(retry)
            .chain(again)
            .min()
    }

    /// Runs one pass: does the pending work, within the budgets of a pass, without waiting.
    pub(crate) fn work(&mut self) {
        self.transport.begin_pass();
        self.guarded(Self::stages);
    }

    /// Carries out commands and sends their datagrams, but receives nothing and runs no timers.
    pub(crate) fn flush(&mut self) {
        self.guarded(Self::outbound);
    }

    /// Closes all connections with this code, sends each peer one close, and ends the worker.
    pub(crate) fn finish(&mut self, code: CloseCode) {
        self.transport.read_kernel_dropped();
        self.guarded(|worker| {
            // Messages that the application sent before the end leave before the closes. The sink then delivers the
            // end of each connection, and the closes leave without simulated delays.
            worker.run_commands();
            worker.transmit();
            worker.core.close_all(code);
            worker.deliver();
            worker.transport.links.iter_mut().for_each(|links| links.release());
            // No pass follows that could send the rest.
            worker.transport.transmit_all(&mut worker.core.endpoint, worker.now);
            worker.core.endpoint.finish_transmit();
        });
        self.refresh_stats();
        self.core.observer.finish(&self.core.stats);
        // Commands that wait are dropped, which completes their results.
        self.link.end();
    }

    /// Starts to connect to a server.
    pub(crate) fn connect(&mut self, options: &ConnectOptions) -> Result<PeerId, Error> {
        self.core.check(options)?;
        if self.sockets.as_ref().is_some_and(ClientSockets::are_connected) {
            self.connect_socket(options.server)?;
        } else if self.is_over() {
            // The descriptor of a bound socket is lost, and without another one nothing would be sent.
            self.renew_socket()?;
        }
        self.read_clock();
        Ok(self.core.connect(options)?)
    }

    /// Connects the socket of a client to the server of its next session.
    fn connect_socket(&mut self, server: SocketAddr) -> Result<(), Error> {
        // The socket belongs to its session until the application has taken the last event.
        if self.core.only_session().is_some() {
            return Err(ConnectError::TooManyConnections.into());
        }
        // The last session may have queued its close, which must leave through its own socket.
        self.flush();
        let Some(sockets) = &mut self.sockets else { return Ok(()) };
        Ok(sockets.renew(Some(server), |socket| self.transport.replace_socket(socket))?)
    }

    /// Returns the newest token with which a client can reconnect to its server, also after the end of its last session.
    pub(crate) fn resume_token(&self, peer: PeerId) -> Option<ConnectToken> {
        self.core.resume_token(peer)
    }

    /// Reads the clock.
    pub(crate) fn time(&mut self) -> Moment {
        self.clock.monotonic()
    }

    pub(super) fn read_clock(&mut self) {
        self.now = self.clock.read();
        self.core.now = self.now;
    }

    /// Runs `work` and recovers from a panic in it, as described in the module docs. Then publishes the statistics.
    fn guarded(&mut self, work: impl FnOnce(&mut Self)) {
        self.read_clock();
        // A connection that a call between two passes has used must not be blamed for a panic in this pass.
        self.core.endpoint.clear_current();
        let was_gone = self.transport.is_gone;
        // Unwind safety: all state that `work` changes is consistent after a panic, or is replaced if it panics again.
        if catch_unwind(AssertUnwindSafe(|| work(self))).is_ok() {
            self.panics_in_a_row = 0;
        } else {
            self.recover();
        }
        if self.transport.is_gone && !was_gone {
            self.on_socket_lost();
        }
        self.publish();
        self.link.busy().on_pass(self.now.monotonic, self.core.endpoint.stats(), &mut *self.clock);
        (self.is_clock_stale, self.is_pass_due) = (true, false);
    }

    /// Recovers from a panic: ends the connection in whose code it occurred, or replaces the endpoint after several panics that
    /// belong to no connection.
    pub(super) fn recover(&mut self) {
        self.core.stats.panics += 1;
        let ended = catch_unwind(AssertUnwindSafe(|| self.core.endpoint.end_panicked()));
        // A panic that ended its connection does not count: the endpoint itself is intact.
        if !matches!(ended, Ok(Some(_))) {
            self.panics_in_a_row += 1;
        }
        // The panic may have skipped the sink, so the next pass follows immediately.
        self.is_sink_busy = true;
        if self.panics_in_a_row >= PANICS_IN_A_ROW {
            self.restart();
        }
    }

    /// Reports all peers as gone, because no descriptor of the socket is left. Only a client can continue, with another socket.
    fn on_socket_lost(&mut self) {
        // Dropping the shutdown and the commands completes their results.
        self.core.shutdown = None;
        if self.sockets.is_none() {
            self.link.end();
        }
        // The connections end here, and not later by their timeouts, which would report their peers again. The registry forgets them
        // after the mark of the end, so that no connection is placed here in between.
        let _ = self.replace_endpoint();
    }

    /// Replaces the socket of a client when its path is silent and the system would use another local address now.
    fn follow_network(&mut self) {
        let Some(sockets) = self.sockets.as_mut().filter(|sockets| sockets.are_connected()) else { return };
        let Some((peer, server)) = self.core.only_session() else { return };
        let (arrivals, awaits_ack) = (self.transport.arrivals(), self.core.endpoint.awaits_ack(peer));
        // The flag is taken in every pass, so that an old refusal does not count for a later path.
        let is_refused = std::mem::take(&mut self.transport.is_refused);
        if sockets.watch.is_due(self.now.monotonic, arrivals, awaits_ack, is_refused)
            && let Some(socket) = sockets.open_elsewhere(server)
            && sockets.replace(socket, |socket| self.transport.replace_socket(socket)).is_ok()
        {
            self.core.change_paths(sockets.local_addr());
        }
    }

    fn stages(&mut self) {
        // Datagrams come before timers, because an acknowledgment that has arrived cancels a timeout that is due.
        self.core.stats.panics += self.transport.receive(&mut self.core.endpoint, self.now, &mut *self.clock);
        // A single worker receives no forwarded datagrams, and a check would cost an atomic exchange.
        if let Some(ring) = self.ring.as_mut().filter(|ring| ring.has_others()) {
            self.core.stats.forwarded_in += ring.receive(&mut self.core.endpoint, self.now);
        }
        // The watch of the network compares the arrivals of this pass.
        self.follow_network();
        self.timers();
        self.outbound();
    }

    fn outbound(&mut self) {
        // Commands come after the datagrams and timers of a pass. The packets that carry their messages can then
        // carry acknowledgments too.
        self.run_commands();
        if self.core.advance_shutdown() {
            self.sink.on_shutdown();
        }
        self.core.survey(|now| self.link.busy().percent(now));
        self.is_sink_busy = false;
        // The messages of a handler leave in the same pass, so it runs before the flush. Other sinks wake the
        // application, which must not delay the datagrams.
        if self.sink.runs_before_flush() {
            self.deliver_and_transmit();
        } else {
            self.transmit();
        }
        if let Some(ring) = self.ring.as_mut().filter(|ring| ring.has_others()) {
            self.is_forward_held = ring.send(&mut self.core.endpoint);
            self.core.stats.forward_queue_full += u64::from(self.is_forward_held);
        }
        if !self.sink.runs_before_flush() {
            self.deliver();
        }
    }

    /// Runs the sink, and then sends the messages of its handlers.
    fn deliver_and_transmit(&mut self) {
        // A handler that causes its own events must not keep the worker from receiving. After the limit, the next
        // pass follows immediately.
        for _ in 0..SINK_RUNS_PER_PASS {
            self.deliver();
            self.transmit();
            if !self.core.endpoint.has_events() {
                return;
            }
        }
        self.is_sink_busy = true;
    }

    fn deliver(&mut self) {
        self.is_sink_busy |= self.sink.deliver(&mut self.core);
        // A handler may have queued broadcasts. The end of a connection may have started an attempt, whose socket must be ready before it
        // sends.
        self.core.fan_out();
        self.follow_attempt();
    }

    fn timers(&mut self) {
        let now = self.now;
        // Most passes have no due timer. Then the exact time of the next one does not matter, and it costs as much as a packet.
        if !self.core.endpoint.may_have_due_timer(now.monotonic) {
            self.stalled_passes = 0;
            return;
        }
        let due = self.core.endpoint.poll_timeout().filter(|timer| *timer <= now.monotonic);
        let Some(lateness) = due.map(|timer| now.monotonic.since(timer)) else {
            self.stalled_passes = 0;
            return;
        };
        // A process that was suspended finds its peers silent by the clock, although their datagrams wait in the
        // socket.
        let is_stalled = lateness > STALL && self.transport.is_more_waiting();
        if is_stalled && self.stalled_passes < STALLED_PASSES_MAX {
            self.stalled_passes += 1;
            return;
        }
        self.core.endpoint.handle_timeout(now);
    }

    /// Carries out the commands of the application.
    fn run_commands(&mut self) {
        self.link.take_commands(&mut self.commands);
        // Each command is removed before it is carried out. After a panic, the others are still in the queue.
        while let Some(command) = self.commands.pop_front() {
            // The room is returned before the message is sent. A panic in the send then cannot keep the room.
            if let Some(payload_bytes) = command.shared_bytes() {
                self.link.give_room(payload_bytes);
            }
            match command {
                Command::Condition(config) => {
                    // The sender of the command knows that there are links, and has checked the configuration.
                    let _ = self.set_conditioner(&config);
                }
                #[cfg(feature = "tokio")]
                Command::Rebind(part) => {
                    // The messages of earlier commands leave through the present socket.
                    self.transmit();
                    let rebound = self.renew_socket();
                    part.update(|result| *result = rebound.map_err(Error::from));
                }
                command => self.core.carry_out(command),
            }
        }
        self.core.fan_out();
    }

    fn transmit(&mut self) {
        self.transport.transmit(&mut self.core.endpoint, self.now);
        self.core.endpoint.finish_transmit();
        // Acknowledgments and sent messages free memory. One publication after both raises each edge once per pass.
        self.core.publish_edges();
    }

    /// Reports all peers as gone, and replaces the endpoint.
    pub(crate) fn restart(&mut self) {
        self.core.stats.restarts += 1;
        // If there is no new endpoint, the next panic tries again.
        self.panics_in_a_row = if self.replace_endpoint() { 0 } else { PANICS_IN_A_ROW - 1 };
    }

    /// Reports all peers as gone, and replaces the endpoint. Without randomness there is no new one, and the old one stays. Returns
    /// whether it was replaced.
    fn replace_endpoint(&mut self) -> bool {
        // The ends of the peers are reported before the endpoint that has their ids is replaced.
        self.core.abandon();
        self.sink.abandon(&mut self.core);
        let endpoint = (self.make)();
        endpoint.map(|endpoint| self.core.replace_endpoint(endpoint)).is_some()
    }
}
