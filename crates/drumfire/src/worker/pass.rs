//! One pass of a worker, and what happens when a pass panics.
//!
//! A panic is caught where it happened: in a connection's code it ends that connection, and costs the datagrams that were in the
//! stages together with it, as if the network had dropped them; the batch goes on behind them. One that is in no connection's
//! code costs what is left of the batch, and the command it happened in.
//! When [`PANICS_IN_A_ROW`] passes panic one after the other and no connection is to blame, the endpoint is taken to be
//! broken: every peer of this worker is reported as disconnected, and the worker restarts on the same socket. Other workers
//! are not affected. With `panic = "abort"` none of this holds.

mod hosted;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::{
    CloseCode, ConnectError, ConnectRequest, Endpoint, IssuedToken, Moment, Now, PeerId, Placement,
};
use drumfire_socket::Socket;

use super::channel::WorkerChannel;
use super::command::Command;
use super::core::Core;
use super::credit::Credit;
use super::forward::ForwardQueue;
use super::sink::Sink;
use super::transport::{RETRY_AFTER, Transport};
use crate::base::address::check_server;
use crate::base::clock::{Clock, Reading};
use crate::observe::observer::Shown;

/// Panicking passes after which the endpoint is replaced.
pub(crate) const PANICS_IN_A_ROW: u32 = 3;

/// Timers that are this late wait until the socket is drained: what proves a peer alive may lie there.
const STALL: Duration = Duration::from_secs(1);

/// Passes for which late timers wait at most, so that a flood cannot hold them for ever.
const STALLED_PASSES_MAX: u32 = 64;

/// Rounds in which messages that wait move up while packets leave.
const ROUNDS_PER_PASS: usize = 16;

/// Rounds in which a sink that runs before the flush runs again, because its answers caused new events.
const ANSWERS_PER_PASS: usize = 4;

/// Makes the endpoint, and makes it again.
pub(crate) type Make<P> = Box<dyn FnMut() -> Option<Endpoint<P>> + Send>;

/// What a worker is made of.
pub(crate) struct Parts<P> {
    pub(crate) index: u16,
    pub(crate) transport: Box<dyn Transport<P>>,
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) endpoint: Endpoint<P>,
    pub(crate) make: Make<P>,
    pub(crate) sink: Box<dyn Sink<P>>,
    pub(crate) link: Arc<WorkerChannel>,
    pub(crate) ring: ForwardQueue<WorkerChannel>,
    pub(crate) credit_bytes: usize,
    pub(crate) message_max_bytes: usize,
}

/// One socket, one endpoint, one thread at a time.
pub(crate) struct Worker<P> {
    transport: Box<dyn Transport<P>>,
    clock: Box<dyn Clock>,
    now: Reading,
    core: Core<P>,
    make: Make<P>,
    sink: Box<dyn Sink<P>>,
    link: Arc<WorkerChannel>,
    ring: ForwardQueue<WorkerChannel>,
    commands: VecDeque<Command>,
    is_forward_held: bool,
    /// The sink has more to do immediately.
    is_sink_busy: bool,
    stalled_passes: u32,
    panics_in_a_row: u32,
}

impl<P: Placement> Worker<P> {
    pub(crate) fn new(parts: Parts<P>) -> Self {
        let Parts { index, transport, mut clock, .. } = parts;
        let now = clock.read();
        let core = Core::new(index, now.now, parts.endpoint, parts.credit_bytes, parts.message_max_bytes);
        Self {
            transport,
            now,
            clock,
            core,
            make: parts.make,
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

    /// Whether the transport has a socket. A simulated one has none.
    pub(crate) fn has_socket(&self) -> bool {
        self.transport.has_socket()
    }

    /// Returns the descriptor that a foreign event loop can watch, or `None` without a socket.
    #[cfg(unix)]
    pub(crate) fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.transport.descriptor()
    }

    /// Continues with this socket. Datagrams in the old one are lost.
    pub(crate) fn replace_socket(&mut self, socket: Socket) -> std::io::Result<()> {
        self.transport.replace_socket(socket)
    }

    /// Whether the worker can do nothing more, because its descriptor is gone.
    pub(crate) fn is_over(&self) -> bool {
        self.transport.is_gone()
    }

    /// Waits until there is work, at most for `at_most` (`None` = for ever).
    pub(crate) fn wait(&mut self, at_most: Option<Duration>) {
        let timer = self.timer().map(|timer| timer.since(self.now.now.monotonic));
        if !self.transport.wait(at_most.into_iter().chain(timer).min()) {
            self.core.stats.wait_faults += 1;
        }
    }

    /// When a pass is due whatever the socket says; `None` = never.
    fn timer(&mut self) -> Option<Moment> {
        let now = self.now.now.monotonic;
        let retry = self.is_forward_held.then_some(now.after(RETRY_AFTER));
        let again = (self.is_sink_busy || self.core.has_survey()).then_some(now);
        let endpoint = &mut self.core.endpoint;
        // A socket that takes nothing says when it does again, and to look before is to spin.
        let timer =
            if self.transport.is_held_back() { endpoint.poll_timer() } else { endpoint.poll_timeout() };
        let timers = timer.into_iter().chain(self.sink.timer());
        let showing = self.core.observer.due_in(now).map(|showing| now.after(showing));
        timers.chain(showing).chain(self.core.shutdown_timer()).chain(retry).chain(again).min()
    }

    /// Does all the work there is, within the budgets of a pass, without waiting.
    pub(crate) fn work(&mut self) {
        self.transport.begin_pass();
        self.guarded(Self::stages);
    }

    /// Hands over what was commanded and sends it, and reads nothing.
    pub(crate) fn send(&mut self) {
        self.guarded(Self::outbound);
    }

    /// Closes all connections with this code, sends each peer one close, and ends.
    pub(crate) fn finish(&mut self, code: CloseCode) {
        self.transport.read_kernel_dropped();
        self.guarded(|worker| {
            worker.run_commands();
            worker.transmit();
            worker.core.close_all(code);
            worker.deliver();
            worker.transmit();
        });
        self.core.observer.finish(&self.core.stats);
        // Commands that wait are dropped, which completes their results.
        self.link.end();
    }

    /// Starts to connect to a server.
    pub(crate) fn connect(
        &mut self,
        request: &ConnectRequest<'_>,
    ) -> Result<(PeerId, Arc<Credit>), ConnectError> {
        debug_assert!(
            check_server(request.server).is_ok(),
            "the options of a client and redirects are checked"
        );
        self.read_clock();
        let id = self.core.endpoint.connect_with(self.now.now, request)?;
        let credit = Arc::new(Credit::new(self.core.credit_bytes, self.core.message_max_bytes));
        self.core.peers.begin(id, &credit);
        self.sink.begin(id, &credit);
        Ok((id, credit))
    }

    /// What lets a client come back to its server, and until when since 1970.
    pub(crate) fn resume_token(&self, peer: PeerId) -> Option<(&IssuedToken, Duration)> {
        let (token, until) = self.core.endpoint.resume_token(peer)?;
        let Now { monotonic, wall } = self.now.now;
        Some((token, wall.saturating_add(until.since(monotonic))))
    }

    /// What the clock shows.
    pub(crate) fn time(&mut self) -> Moment {
        self.clock.read().now.monotonic
    }

    /// Takes another connection id, because packets leave from another address from now on.
    pub(crate) fn change_path(&mut self, peer: PeerId) {
        self.read_clock();
        self.core.endpoint.change_path(self.now.now, peer);
    }

    fn read_clock(&mut self) {
        self.now = self.clock.read();
        self.core.now = self.now.now;
    }

    fn guarded(&mut self, work: impl FnOnce(&mut Self)) {
        self.read_clock();
        self.core.endpoint.clear_current();
        // Everything behind the guard is either whole after a panic or replaced when it panics again.
        if catch_unwind(AssertUnwindSafe(|| work(self))).is_ok() {
            // One that a connection's end made good does not count.
            self.panics_in_a_row = 0;
        } else {
            self.core.stats.panics += 1;
            let is_made_good = catch_unwind(AssertUnwindSafe(|| self.core.endpoint.end_panicked()));
            if !matches!(is_made_good, Ok(Some(_))) {
                self.panics_in_a_row += 1;
            }
            self.is_sink_busy = true;
            if self.panics_in_a_row >= PANICS_IN_A_ROW {
                self.restart();
            }
        }
        if self.transport.is_gone() {
            self.sink.abandon(&mut self.core);
            self.core.shutdown = None;
            self.link.end();
        }
        self.publish();
        self.link.busy().on_pass(&self.now, &self.core.stats.protocol, &mut *self.clock);
    }

    fn stages(&mut self) {
        self.core.stats.panics +=
            self.transport.receive(&mut self.core.endpoint, &self.now, &mut *self.clock);
        self.core.stats.forwarded_in += self.ring.receive(&mut self.core.endpoint, self.now.now);
        self.timers();
        self.outbound();
    }

    fn outbound(&mut self) {
        self.run_commands();
        if self.core.advance_shutdown() {
            self.sink.on_shutdown();
        }
        self.core.survey(|now| self.link.busy().percent(now));
        self.is_sink_busy = false;
        if self.sink.runs_before_flush() {
            self.answer();
        } else {
            self.transmit();
        }
        self.is_forward_held = self.ring.send(&mut self.core.endpoint);
        self.core.stats.forwards_held += u64::from(self.is_forward_held);
        if !self.sink.runs_before_flush() {
            self.deliver();
        }
    }

    /// Runs the sink before the flush, and sends its answers.
    fn answer(&mut self) {
        for _ in 0..ANSWERS_PER_PASS {
            self.deliver();
            self.transmit();
            if !self.core.endpoint.has_events() && !self.core.peers.has_writable() {
                return;
            }
        }
        self.is_sink_busy = true;
    }

    fn deliver(&mut self) {
        self.is_sink_busy |= self.sink.deliver(&mut self.core);
        self.core.fan_out();
    }

    fn timers(&mut self) {
        let now = self.now.now;
        let due = self.core.endpoint.poll_timeout().filter(|timer| *timer <= now.monotonic);
        let Some(lateness) = due.map(|timer| now.monotonic.since(timer)) else {
            self.stalled_passes = 0;
            return;
        };
        let is_stalled = lateness > STALL && self.transport.is_more_waiting();
        if is_stalled && self.stalled_passes < STALLED_PASSES_MAX {
            self.stalled_passes += 1;
            return;
        }
        self.core.endpoint.handle_timeout(now);
    }

    /// Carries out what the application asked for.
    fn run_commands(&mut self) {
        self.link.take_commands(&mut self.commands);
        // One by one out of the queue: a panic in one leaves the others where they are.
        while let Some(command) = self.commands.pop_front() {
            if let Some(payload_bytes) = command.shared_bytes() {
                self.link.give_room(payload_bytes);
            }
            self.core.carry_out(command);
        }
        self.core.fan_out();
    }

    fn transmit(&mut self) {
        let now = self.now.now;
        self.core.send_waiting();
        for _ in 0..ROUNDS_PER_PASS {
            let before = self.core.endpoint.stats().datagrams_sent;
            self.transport.transmit(&mut self.core.endpoint, now);
            if !self.core.peers.has_waiting() || self.core.endpoint.stats().datagrams_sent == before {
                return;
            }
            self.core.send_waiting();
        }
    }

    /// Replaces the endpoint; all its peers are gone.
    pub(crate) fn restart(&mut self) {
        self.sink.abandon(&mut self.core);
        self.panics_in_a_row = 0;
        self.core.stats.restarts += 1;
        match (self.make)() {
            Some(mut endpoint) => {
                // Ids of the abandoned peers are refused from now on.
                endpoint.succeed(&self.core.endpoint);
                self.core.endpoint = endpoint;
                self.core.take_settings();
            }
            // Without randomness there is no endpoint: go on with the old one, and try again.
            None => self.panics_in_a_row = PANICS_IN_A_ROW - 1,
        }
    }

    fn publish(&mut self) {
        let Core { stats, endpoint, observer, now, .. } = &mut self.core;
        stats.protocol = *endpoint.stats();
        self.transport.count(now.monotonic, stats);
        stats.connections = endpoint.connection_count();
        stats.message_memory_bytes = endpoint.held_bytes();
        self.link.set_stats(stats);
        let busy_percent = self.link.busy().percent(now.monotonic);
        observer.pass(now.monotonic, stats, &Shown { endpoint, busy_percent });
    }
}
