//! One pass of a worker, and what happens when a pass panics.
//!
//! A panic is caught where the pass began: what is left of the batch it happened in is lost, as if the network
//! had dropped it, and so is the command it happened in; the worker goes on with the next pass. When [`PANICS_IN_A_ROW`] passes panic one after the
//! other, the endpoint is taken to be broken: every peer of this worker is reported as disconnected, and the
//! worker begins anew on the same socket. Other workers hear nothing of it. With `panic = "abort"` none of this
//! holds.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use drumfire_proto::{
    Close, CloseCode, CloseReason, ConnectError, Endpoint, Event, IssuedToken, Moment, Now, Placement,
    ServerIdentity,
};
use drumfire_socket::{Io, Poller, Receiver, Socket, Waiter};

use super::arena::Arena;
use super::net::Net;
use super::peers::{Message, Peers};
use super::{Clock, Park, RETRY_AFTER, Reading, Ring};
use crate::credit::Credit;
use crate::event::Player;
use crate::link::{Command, Link, Report};
use crate::peer::PeerId;
use crate::stats::WorkerStats;

/// Panicking passes after which the endpoint is replaced.
pub(crate) const PANICS_IN_A_ROW: u32 = 3;

/// Timers that are this late wait until the socket is drained: what proves a peer alive may lie there.
const STALL: Duration = Duration::from_secs(1);

/// Passes for which late timers wait at most, so that a flood cannot hold them for ever.
const STALLED_PASSES_MAX: u32 = 64;

/// Rounds in which messages that wait move up while packets leave.
const ROUNDS_PER_PASS: usize = 16;

/// Makes the endpoint, and makes it again.
pub(crate) type Make<P> = Box<dyn FnMut() -> Option<Endpoint<P>> + Send>;

/// What a worker is made of.
pub(crate) struct Parts<P, I, K, C> {
    pub(crate) index: u16,
    pub(crate) io: I,
    pub(crate) has_gso: bool,
    pub(crate) is_connected: bool,
    pub(crate) parker: K,
    pub(crate) clock: C,
    pub(crate) waiter: Waiter,
    pub(crate) receiver: Receiver,
    pub(crate) endpoint: Endpoint<P>,
    pub(crate) make: Make<P>,
    pub(crate) link: Arc<Link>,
    pub(crate) ring: Ring<Link>,
    pub(crate) credit_bytes: usize,
    pub(crate) message_max_bytes: usize,
}

/// One socket, one endpoint, one thread at a time.
pub struct Worker<P, I, K, C> {
    index: u16,
    life: u16,
    net: Net<I, K>,
    clock: C,
    now: Reading,
    endpoint: Endpoint<P>,
    make: Make<P>,
    peers: Peers,
    link: Arc<Link>,
    ring: Ring<Link>,
    credit_bytes: usize,
    message_max_bytes: usize,
    commands: VecDeque<Command>,
    reports: VecDeque<Report>,
    arena: Arena,
    is_forward_held: bool,
    stalled_passes: u32,
    panics_in_a_row: u32,
    stats: WorkerStats,
}

impl<P: Placement, C: Clock> Worker<P, Socket, Poller, C> {
    /// Goes on with this socket; what the one before still held is lost.
    pub(crate) fn replace_socket(&mut self, socket: Socket) -> std::io::Result<()> {
        self.net.replace(socket)
    }
}

impl<P: Placement, I: Io, K: Park<I>, C: Clock> Worker<P, I, K, C> {
    pub(crate) fn new(parts: Parts<P, I, K, C>) -> Self {
        let Parts { index, io, has_gso, is_connected, parker, mut clock, waiter, receiver, .. } = parts;
        let net = Net::new(io, parker, waiter, receiver, has_gso);
        Self {
            index,
            life: 0,
            net: if is_connected { net.connected() } else { net },
            now: clock.read(),
            clock,
            endpoint: parts.endpoint,
            make: parts.make,
            peers: Peers::default(),
            link: parts.link,
            ring: parts.ring,
            credit_bytes: parts.credit_bytes,
            message_max_bytes: parts.message_max_bytes,
            commands: VecDeque::new(),
            reports: VecDeque::new(),
            arena: Arena::default(),
            is_forward_held: false,
            stalled_passes: 0,
            panics_in_a_row: 0,
            stats: WorkerStats::default(),
        }
    }

    /// Whether the worker can do nothing more, because its descriptor is gone.
    pub fn is_over(&self) -> bool {
        self.net.is_gone()
    }

    /// Waits until there is work, at most for `at_most` (`None` = for ever).
    pub fn wait(&mut self, at_most: Option<Duration>) {
        let now = self.now.now.monotonic;
        let timer = self.endpoint.poll_timeout().map(|timer| timer.since(now));
        let retry = self.is_forward_held.then_some(RETRY_AFTER);
        let at_most = at_most.into_iter().chain(timer).chain(retry).min();
        if !self.net.wait(at_most) {
            self.stats.wait_faults += 1;
        }
    }

    /// Does all the work there is, within the budgets of a pass, without waiting.
    pub fn work(&mut self) {
        self.guarded(Self::stages);
    }

    /// Hands over what was commanded and sends it, and reads nothing.
    pub fn send(&mut self) {
        self.guarded(Self::outbound);
    }

    /// Closes all connections with this code, tells the peers once, and is done.
    pub(crate) fn finish(&mut self, code: CloseCode) {
        self.guarded(|worker| {
            worker.obey();
            worker.transmit();
            let close = Close { code, application_code: 0, reason: b"" };
            for id in worker.peers.ids() {
                let _ = worker.endpoint.close(worker.now.now, id, &close);
            }
            worker.transmit();
            worker.report();
        });
    }

    /// Begins to connect to a server.
    pub(crate) fn connect(
        &mut self,
        server: SocketAddr,
        identity: &ServerIdentity,
        token: Option<&IssuedToken>,
    ) -> Result<(PeerId, Arc<Credit>), ConnectError> {
        self.now = self.clock.read();
        let id = self.endpoint.connect(self.now.now, server, identity, token)?;
        let credit = Arc::new(Credit::new(self.credit_bytes, self.message_max_bytes));
        self.peers.begin(id, &credit);
        Ok((PeerId::new(self.index, self.life, id), credit))
    }

    /// What lets a client come back to its server, and until when since 1970.
    pub(crate) fn resume_token(&self, peer: PeerId) -> Option<(&IssuedToken, Duration)> {
        if peer.life() != self.life {
            return None;
        }
        let (token, until) = self.endpoint.resume_token(peer.id())?;
        let Now { monotonic, wall } = self.now.now;
        Some((token, wall.saturating_add(until.since(monotonic))))
    }

    /// What the clock shows.
    pub(crate) fn time(&mut self) -> Moment {
        self.clock.read().now.monotonic
    }

    /// Takes another connection id, because packets leave from another address from now on.
    pub(crate) fn change_path(&mut self, peer: PeerId) {
        if peer.life() == self.life {
            self.now = self.clock.read();
            self.endpoint.change_path(self.now.now, peer.id());
        }
    }

    /// From now on this end of the connection breaks the rules.
    #[cfg(feature = "hostile")]
    pub(crate) fn turn_hostile(&mut self, peer: PeerId, seed: u64) {
        if peer.life() == self.life {
            self.endpoint.turn_hostile(peer.id(), seed);
        }
    }

    fn guarded(&mut self, work: impl FnOnce(&mut Self)) {
        self.now = self.clock.read();
        // Everything behind the guard is either whole after a panic or replaced when it panics again.
        if catch_unwind(AssertUnwindSafe(|| work(self))).is_ok() {
            self.panics_in_a_row = 0;
        } else {
            self.stats.panics += 1;
            self.panics_in_a_row += 1;
            if self.panics_in_a_row >= PANICS_IN_A_ROW {
                self.begin_anew();
            }
        }
        if self.net.is_gone() {
            self.abandon();
        }
        self.publish();
    }

    fn stages(&mut self) {
        let Reading { instant, now } = self.now;
        self.net.receive(&mut self.endpoint, now, instant);
        self.stats.forwarded_in += self.ring.receive(&mut self.endpoint, now);
        self.timers();
        self.outbound();
    }

    fn outbound(&mut self) {
        self.obey();
        self.transmit();
        self.is_forward_held = self.ring.send(&mut self.endpoint);
        self.stats.forwards_held += u64::from(self.is_forward_held);
        self.report();
    }

    fn timers(&mut self) {
        let now = self.now.now;
        let Some(lateness) = self
            .endpoint
            .poll_timeout()
            .filter(|timer| *timer <= now.monotonic)
            .map(|t| now.monotonic.since(t))
        else {
            self.stalled_passes = 0;
            return;
        };
        let is_stalled = lateness > STALL && self.net.is_more_waiting();
        if is_stalled && self.stalled_passes < STALLED_PASSES_MAX {
            self.stalled_passes += 1;
            return;
        }
        self.endpoint.handle_timeout(now);
    }

    /// Carries out what the application asked for.
    fn obey(&mut self) {
        self.link.take_commands(&mut self.commands);
        // One by one out of the queue: a panic in one leaves the others where they are.
        while let Some(command) = self.commands.pop_front() {
            self.carry_out(command);
        }
    }

    fn carry_out(&mut self, command: Command) {
        let now = self.now.now;
        match command {
            // Its peer went when the worker began anew.
            Command::Send { peer, .. } if peer.life() != self.life => self.stats.messages_undelivered += 1,
            Command::Send { peer, channel, bytes, options, receipt } => {
                let message = Message { channel, bytes, options, receipt };
                let is_taken = self.peers.send(&mut self.endpoint, now, peer.id(), message);
                self.stats.messages_undelivered += u64::from(!is_taken);
            }
            Command::Options { peer, channel, options } => {
                if peer.life() == self.life {
                    self.endpoint.set_channel_options(peer.id(), channel, options);
                }
            }
            Command::Forget { peer, channel, key } => {
                if peer.life() == self.life {
                    self.endpoint.forget_key(peer.id(), channel, key);
                }
            }
            Command::Measure { peer } => {
                // Nothing comes after its last report.
                if peer.life() == self.life
                    && self.peers.has(peer.id())
                    && let Some(stats) = self.endpoint.peer_stats(now, peer.id())
                {
                    self.reports.push_back(Report::Measured { peer, stats: Box::new(stats) });
                }
            }
            Command::Close { peer, code, text } => {
                if peer.life() == self.life {
                    let code = Close { code: CloseCode::Application, application_code: code, reason: &text };
                    // A peer that is gone by now needs no closing.
                    let _ = self.endpoint.close(now, peer.id(), &code);
                }
            }
        }
    }

    fn transmit(&mut self) {
        let now = self.now.now;
        self.stats.messages_undelivered += self.peers.send_waiting(&mut self.endpoint, now);
        for _ in 0..ROUNDS_PER_PASS {
            let before = self.endpoint.stats().datagrams_sent;
            self.net.transmit(&mut self.endpoint, now);
            if !self.peers.has_waiting() || self.endpoint.stats().datagrams_sent == before {
                return;
            }
            self.stats.messages_undelivered += self.peers.send_waiting(&mut self.endpoint, now);
        }
    }

    /// Hands events over, as many as there is room for.
    fn report(&mut self) {
        let (mut count, mut bytes) = self.link.room();
        loop {
            if count == 0 || bytes == 0 {
                self.link.report(&mut self.reports);
                if !self.link.hold() {
                    self.stats.events_held += 1;
                    return;
                }
                (count, bytes) = self.link.room();
            }
            match self.next_report() {
                Some(Some(report)) => {
                    if let Report::Message { bytes: payload, .. } = &report {
                        bytes = bytes.saturating_sub(payload.len());
                    }
                    count -= 1;
                    self.reports.push_back(report);
                }
                Some(None) => {}
                None => break,
            }
        }
        self.link.report(&mut self.reports);
    }

    /// The next event as a report; `Some(None)` for one that nobody has to hear of.
    fn next_report(&mut self) -> Option<Option<Report>> {
        let (index, life) = (self.index, self.life);
        let name = |id| PeerId::new(index, life, id);
        Some(match self.endpoint.poll_event()? {
            Event::Connected { peer, address, player, user_data } => {
                let player = player.map(|id| Box::new(Player { id, user_data: user_data.into() }));
                let credit = self.peers.connected(peer, self.credit_bytes, self.message_max_bytes);
                credit.set_message_max_bytes(self.endpoint.message_max_bytes(peer));
                Some(Report::Connected { peer: name(peer), address, player, credit })
            }
            Event::ConnectFailed { peer, error } => {
                self.stats.messages_undelivered += self.peers.gone(peer);
                Some(Report::ConnectFailed { peer: name(peer), error })
            }
            Event::Message { peer, channel, bytes } => {
                let bytes = self.arena.copy(bytes);
                Some(Report::Message { peer: name(peer), channel, bytes })
            }
            Event::Receipt { peer, receipt, outcome } => {
                Some(Report::Receipt { peer: name(peer), receipt, outcome })
            }
            Event::Skipped { peer, channel, count } => {
                Some(Report::Skipped { peer: name(peer), channel, count })
            }
            Event::Disconnected { peer, reason, text } => {
                let text = Bytes::copy_from_slice(text);
                self.stats.messages_undelivered += self.peers.gone(peer);
                Some(Report::Disconnected { peer: name(peer), reason, text })
            }
            _ => None,
        })
    }

    /// Replaces the endpoint; all its peers are gone.
    fn begin_anew(&mut self) {
        self.abandon();
        self.panics_in_a_row = 0;
        self.stats.restarts += 1;
        self.life = self.life.wrapping_add(1);
        match (self.make)() {
            Some(endpoint) => self.endpoint = endpoint,
            // Without randomness there is no endpoint: go on with the old one, and try again.
            None => self.panics_in_a_row = PANICS_IN_A_ROW - 1,
        }
    }

    /// Reports all peers as gone. What the endpoint still had to say of them is not heard.
    fn abandon(&mut self) {
        let (index, life) = (self.index, self.life);
        self.reports.extend(self.peers.take_all().map(|(id, is_connected)| {
            let peer = PeerId::new(index, life, id);
            if is_connected {
                let reason = CloseReason::Local { code: CloseCode::Internal, application_code: 0 };
                Report::Disconnected { peer, reason, text: Bytes::new() }
            } else {
                Report::ConnectFailed { peer, error: ConnectError::Closed }
            }
        }));
        // More than the bound for once: there is one for each peer, and never more.
        self.link.report(&mut self.reports);
    }

    fn publish(&mut self) {
        self.stats.protocol = *self.endpoint.stats();
        self.stats.received.clone_from(self.net.receiver().counts());
        self.stats.sent.clone_from(self.net.sender().counts());
        self.stats.connections = self.endpoint.connection_count();
        self.link.set_stats(&self.stats);
    }
}
