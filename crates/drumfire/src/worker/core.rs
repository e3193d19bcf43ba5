//! The protocol's side of a worker: one endpoint, its peers, and what the application asks of them.
//!
//! It does no I/O and does not know the application: `transport` owns the socket, and a `sink` delivers events.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use drumfire_proto::{
    Close, CloseCode, CloseReason, ConnectError, Endpoint, LiveConfig, Message, Moment, Now, PeerId,
    PeerSummary, Placement, ReceiptId,
};

use super::arena::Arena;
use super::command::{BanOrder, Broadcast, Command, Query};
use super::fan_out::FanOut;
use super::peers::Peers;
use super::receipts::OpenReceipts;
use super::send_edge::SendEdge;
use super::sessions::Sessions;
use super::shutdown::{LOOK_EVERY, Shutdown, ShutdownOrder, Undelivered};
use super::survey::Surveys;
use crate::admission::bans::Ban;
use crate::base::error::Error;
use crate::message::event::{Closed, Event, ReconnectReason};
use crate::message::group::GroupId;
use crate::observe::observer::Observer;
use crate::observe::stats::WorkerStats;
use crate::observe::survey::PeerSample;
use crate::observe::trace::Happening;

/// The time after which an application that never polled is warned.
const POLL_EXPECTED_WITHIN: Duration = Duration::from_secs(1);

/// Whether the application has polled yet.
#[derive(Clone, Copy)]
enum PollWatch {
    /// There was no pass yet.
    New,
    /// The first pass was at this time, and there was no poll since.
    Since(Moment),
    /// There was a poll, or the warning was given.
    Over,
}

/// What follows from an event of the endpoint.
pub(crate) struct Noted {
    /// The outcomes of the open receipts of a connection that has ended. They come before the event.
    pub(crate) lost: Vec<Event>,
    /// The event, which differs for the end of a connection after which a client reconnects.
    pub(crate) event: Event,
    /// The send edge of a peer that connected or connects again, if it has one.
    pub(crate) edge: Option<Arc<SendEdge>>,
}

impl Noted {
    const fn new(event: Event) -> Self {
        Self { lost: Vec::new(), event, edge: None }
    }
}

/// The limits of a worker's peers.
pub(crate) struct Limits {
    /// The send memory of a peer, in bytes.
    pub(crate) send_memory_bytes: usize,
    /// The bytes of the longest reliable message to a peer, until its own limit is known.
    pub(crate) message_max_bytes: usize,
    /// Whether messages come from other threads.
    pub(crate) has_remote_senders: bool,
}

/// The protocol state of one worker.
pub(crate) struct Core<P> {
    /// The index of this worker, from 0.
    pub(crate) index: u16,
    /// The time at which the present pass began.
    pub(crate) now: Now,
    pub(crate) endpoint: Endpoint<P>,
    pub(crate) peers: Peers,
    /// The broadcasts that have not been sent yet.
    fan_out: FanOut,
    /// The receipts of messages from the worker's own thread.
    pub(super) receipts: OpenReceipts,
    /// Whether messages come from other threads, so that each peer has a [`SendEdge`].
    has_remote_senders: bool,
    /// The send memory of a new peer, in bytes.
    pub(crate) send_memory_bytes: usize,
    /// The bytes of the longest reliable message to a new peer, until the endpoint knows the peer's limit.
    pub(crate) message_max_bytes: usize,
    /// Stats and flight records that the application requested and has not received yet.
    answers: VecDeque<Event>,
    /// Events that were noted and that the application has not taken. They come before all others.
    noted: VecDeque<Event>,
    poll_watch: PollWatch,
    pub(super) observer: Observer,
    pub(super) shutdown: Option<Shutdown>,
    /// The sessions of a client. `None` at a server.
    pub(super) sessions: Option<Box<Sessions>>,
    /// The surveys of an operator, and the counts of the last one for rates. `None` without recent surveys.
    surveys: Option<Box<Surveys>>,
    /// The settings of the last `Reconfigure` command. `None` before the first.
    live: Option<Arc<LiveConfig>>,
    pub(crate) stats: WorkerStats,
}

impl<P: Placement> Core<P> {
    pub(crate) fn new(
        index: u16,
        now: Now,
        mut endpoint: Endpoint<P>,
        limits: Limits,
        sessions: Option<Box<Sessions>>,
    ) -> Self {
        let Limits { send_memory_bytes, message_max_bytes, has_remote_senders } = limits;
        if has_remote_senders {
            endpoint.report_freed();
        }
        debug_assert_eq!(sessions.is_none(), endpoint.is_server(), "only clients have sessions");
        let observer = Observer::new(endpoint.is_server().then_some(index));
        Self {
            index,
            now,
            endpoint,
            peers: Peers::default(),
            fan_out: FanOut::default(),
            receipts: OpenReceipts::default(),
            has_remote_senders,
            send_memory_bytes,
            message_max_bytes,
            answers: VecDeque::new(),
            noted: VecDeque::new(),
            poll_watch: PollWatch::New,
            observer,
            shutdown: None,
            sessions,
            surveys: None,
            live: None,
            stats: WorkerStats::default(),
        }
    }

    /// Applies the settings of the last `Reconfigure` command to the endpoint.
    pub(crate) fn take_settings(&mut self) {
        if let Some(live) = &self.live {
            // The settings were validated before the command was sent.
            let _ = self.endpoint.reconfigure(live);
        }
    }

    /// Replaces the endpoint with one that knows no peers.
    pub(crate) fn replace_endpoint(&mut self, mut endpoint: Endpoint<P>) {
        if self.has_remote_senders {
            endpoint.report_freed();
        }
        // Ids of the abandoned peers are refused from now on.
        endpoint.succeed(&self.endpoint);
        self.endpoint = endpoint;
        self.take_settings();
    }

    /// Creates the send edge of a peer, if it needs one.
    pub(super) fn new_edge(&self, message_max_bytes: usize, is_connected: bool) -> Option<Arc<SendEdge>> {
        let edge = || Arc::new(SendEdge::new(self.send_memory_bytes, message_max_bytes, is_connected));
        self.has_remote_senders.then(edge)
    }

    /// Adds a connected peer, and returns its send edge.
    fn connected(&mut self, id: PeerId, address: SocketAddr) -> Option<Arc<SendEdge>> {
        self.observe(id, &Happening::Connected(address));
        let message_max_bytes = self.endpoint.message_max_bytes(id);
        let new_edge = self.new_edge(message_max_bytes, true);
        let edge = self.peers.connected(id, || new_edge);
        edge.iter().for_each(|edge| edge.set_message_max_bytes(message_max_bytes));
        if let Some(sessions) = &mut self.sessions {
            sessions.on_connected(self.now.monotonic, id);
        }
        if let Some(shutdown) = &mut self.shutdown {
            // The handshake began before the shutdown.
            shutdown.peers.push(id);
            shutdown.look_at = self.now.monotonic;
        }
        edge
    }

    /// Updates the peers with an event of the endpoint.
    pub(crate) fn note(&mut self, event: Event) -> Noted {
        match event {
            Event::Connected { peer, info } => {
                let edge = self.connected(peer, info.address);
                Noted { edge, ..Noted::new(Event::Connected { peer, info }) }
            }
            Event::Receipt { peer, receipt, .. } => {
                self.receipts.close(peer, receipt);
                Noted::new(event)
            }
            Event::ConnectFailed { peer, error } => {
                self.observe(peer, &Happening::ConnectFailed(error.clone()));
                self.end(peer, ReconnectReason::Failed(error))
            }
            Event::Disconnected { peer, closed } => {
                self.fan_out();
                self.observe(peer, &Happening::Disconnected(closed.reason));
                self.end(peer, ReconnectReason::Ended(closed))
            }
            event => Noted::new(event),
        }
    }

    /// Removes a peer whose connection or attempt has ended.
    fn end(&mut self, peer: PeerId, end: ReconnectReason) -> Noted {
        let ended = self.peers.gone(peer);
        let (event, edge) = self.on_session_end(peer, end);
        let reconnects = matches!(event, Event::Reconnecting { .. });
        if let Some(edge) = ended {
            if reconnects { edge.end_for_reconnect() } else { edge.close() }
        }
        Noted { lost: self.receipts.lose(peer), event, edge }
    }

    /// Updates the peers with an event of the endpoint, and queues it for [`Core::pop_own_event`].
    pub(crate) fn note_later(&mut self, event: Event) {
        let Noted { lost, event, .. } = self.note(event);
        self.noted.extend(lost.into_iter().chain([event]));
    }

    /// Notes all events of the endpoint before the application takes them, where it must not depend on the application what follows
    /// from them: at a client that reconnects, and during a shutdown.
    pub(crate) fn note_early(&mut self) {
        if self.shutdown.is_some() || self.endpoint.has_lifecycle_events() && self.reconnects() {
            self.note_all();
        }
    }

    /// Notes all events of the endpoint.
    fn note_all(&mut self) {
        while let Some(event) = self.endpoint.poll_event() {
            if let Some(event) = Event::of(event, Bytes::copy_from_slice) {
                self.note_later(event);
            }
        }
    }

    /// Returns the next event. `arena` has the memory for the payloads of messages.
    pub(crate) fn next_event(&mut self, arena: &mut Arena) -> Option<Event> {
        if let Some(event) = self.pop_own_event() {
            return Some(event);
        }
        loop {
            let event = self.endpoint.poll_event()?;
            if let Some(event) = Event::of(event, |payload| arena.copy(payload)) {
                let Noted { lost, event, .. } = self.note(event);
                if lost.is_empty() {
                    return Some(event);
                }
                self.noted.extend(lost.into_iter().chain([event]));
                return self.noted.pop_front();
            }
        }
    }

    /// Whether [`Core::next_event`] returns an event.
    pub(crate) fn has_events(&self) -> bool {
        self.endpoint.has_events()
            || !self.noted.is_empty()
            || self.answers.iter().any(|answer| self.peers.has(answer.peer()))
            || self.peers.has_notices()
    }

    /// Returns the next event that was noted, or of the worker's own: `Stats`, `FlightRecord`, `Missed`, or `Writable`.
    pub(crate) fn pop_own_event(&mut self) -> Option<Event> {
        self.fan_out();
        if let Some(event) = self.noted.pop_front() {
            return Some(event);
        }
        while let Some(answer) = self.answers.pop_front() {
            // No event follows the last one of a peer.
            if self.peers.has(answer.peer()) {
                return Some(answer);
            }
        }
        if let Some((peer, channel, count)) = self.peers.pop_missed() {
            return Some(Event::Missed { peer, channel, count });
        }
        self.peers.pop_writable().map(|peer| Event::Writable { peer })
    }

    /// Returns the next event that was noted.
    pub(crate) fn pop_noted(&mut self) -> Option<Event> {
        self.noted.pop_front()
    }

    /// Carries out a command of the application.
    pub(crate) fn carry_out(&mut self, command: Command) {
        // Earlier broadcasts are sent first, so that all commands take effect in their order.
        if !matches!(command, Command::Broadcast(_)) {
            self.fan_out();
        }
        match command {
            Command::Send { peer, message, receipt } => self.send_admitted(peer, message, receipt),
            Command::Post { peer, message } => {
                let is_taken = self.peers.offer(&mut self.endpoint, self.now, peer, message).is_ok();
                self.peers.publish_edge(&self.endpoint, peer);
                self.stats.messages_undelivered += u64::from(!is_taken);
            }
            Command::ShutDown(order) => self.begin_shutdown(order),
            Command::Query(query) => self.answer(*query),
            Command::Broadcast(broadcast) => self.add_broadcast((*broadcast).clone()),
            Command::Reconfigure(live) => {
                self.live = Some(live);
                self.take_settings();
            }
            Command::InvalidateKeys { seed, part: _part } => {
                self.endpoint.invalidate_all_keys(self.now, *seed);
            }
            // The worker changes its transport, which the core does not know.
            #[cfg(feature = "conditioner")]
            Command::Condition(_) => {}
            Command::Options { peer, channel, options } => {
                self.endpoint.set_channel_options(peer, channel, options);
                if let Some(sessions) = &mut self.sessions {
                    sessions.keep_options(peer, channel, options);
                }
            }
            Command::Forget { peer, channel, key } => self.endpoint.forget_key(peer, channel, key),
            Command::Measure { peer } => self.measure(peer),
            Command::Record { peer } => self.record(peer),
            Command::Join { peer, group } => {
                self.join_group(peer, group);
            }
            Command::Leave { peer, group } => self.peers.groups.leave(group, peer),
            Command::Close { peer, code, text } => {
                if let Some(sessions) = &mut self.sessions {
                    sessions.on_close(peer, code, &text);
                }
                let code = Close { code: CloseCode::Application, application_code: code, reason: &text };
                // The peer may be gone by now.
                let _ = self.endpoint.close(self.now, peer, &code);
            }
        }
        // A panic after this point does not belong to a connection.
        self.endpoint.clear_current();
    }

    /// Gives a message that was admitted on another thread to its connection.
    fn send_admitted(&mut self, peer: PeerId, message: Message, receipt: Option<ReceiptId>) {
        let is_taken = self.peers.send(&mut self.endpoint, self.now, peer, message, receipt);
        self.stats.messages_undelivered += u64::from(!is_taken);
    }

    /// Adds a peer to a group. Returns whether it is a member now.
    pub(super) fn join_group(&mut self, peer: PeerId, group: GroupId) -> bool {
        self.peers.has(peer) && self.peers.groups.join(group, peer)
    }

    /// Queues a message for the peers of this worker in its audience. [`Core::fan_out`] sends it before any other message or
    /// event of a peer.
    pub(crate) fn add_broadcast(&mut self, broadcast: Broadcast) {
        if !self.fan_out.may_take(&broadcast) {
            self.fan_out();
        }
        self.fan_out.push(broadcast);
    }

    /// Sends the queued broadcasts.
    pub(crate) fn fan_out(&mut self) {
        if self.fan_out.is_empty() {
            return;
        }
        let Self { peers, endpoint, now, fan_out, stats, .. } = self;
        peers.fan_out(endpoint, *now, fan_out, &mut stats.broadcasts_undelivered);
        self.endpoint.clear_current();
    }

    /// Warns once if the application never polls. Passes come from flushes too.
    pub(crate) fn watch_polls(&mut self, is_polled: bool) {
        let now = self.now.monotonic;
        self.poll_watch = match self.poll_watch {
            PollWatch::Over => return,
            _ if is_polled => PollWatch::Over,
            PollWatch::New => PollWatch::Since(now),
            PollWatch::Since(begun) if now.since(begun) < POLL_EXPECTED_WITHIN => return,
            PollWatch::Since(_) => {
                self.observer.never_polled();
                PollWatch::Over
            }
        };
    }

    /// Publishes how much memory the senders of each peer have, where that has changed.
    pub(crate) fn publish_edges(&mut self) {
        if self.has_remote_senders {
            self.peers.publish_freed(&mut self.endpoint);
        }
    }

    fn measure(&mut self, peer: PeerId) {
        if self.peers.has(peer)
            && let Some(stats) = self.endpoint.peer_stats(self.now, peer)
        {
            self.answers.push_back(Event::Stats { peer, stats: Box::new(stats) });
        }
    }

    fn record(&mut self, peer: PeerId) {
        if self.peers.has(peer)
            && let Some(record) = self.endpoint.flight_record(self.now, peer)
        {
            self.answers.push_back(Event::FlightRecord { peer, record: Box::new(record) });
        }
    }

    /// Carries out a query of an operator. A survey takes several passes: see [`Core::survey`].
    fn answer(&mut self, query: Query) {
        match query {
            Query::Survey(survey) => {
                self.surveys.get_or_insert_default().add(self.now.monotonic, survey);
            }
            Query::FlightRecord { peer, part } => {
                let has_peer = self.peers.has(peer);
                let record = has_peer.then(|| self.endpoint.flight_record(self.now, peer)).flatten();
                part.update(|result| *result = record.map(Box::new));
            }
            Query::CloseAndBan(order) => {
                let banned = self.ban(&order);
                if banned.is_ok() {
                    self.carry_out(order.close);
                }
                order.part.update(|result| *result = banned);
            }
        }
    }

    /// Bans the player of a connected peer, or its IP address if it has no player.
    ///
    /// # Errors
    /// [`Error::UnknownPeer`] if the peer is gone, or the error of the ban list.
    fn ban(&self, order: &BanOrder) -> Result<Ban, Error> {
        let summary = self.peers.has(order.peer).then(|| self.endpoint.peer_summary(order.peer)).flatten();
        let summary = summary.ok_or(Error::UnknownPeer)?;
        let ban = summary.player.map_or(Ban::Address(summary.address.ip()), Ban::Player);
        order.admission.bans().add(self.now.monotonic, ban, order.duration)?;
        Ok(ban)
    }

    /// Whether a survey needs another pass immediately.
    pub(crate) fn has_survey(&self) -> bool {
        self.surveys.as_ref().is_some_and(|surveys| surveys.is_running())
    }

    /// Visits the next connections for a survey, if there is one. `busy_percent` is called only in that case.
    pub(crate) fn survey(&mut self, busy_percent: impl FnOnce(Moment) -> u8) {
        let now = self.now.monotonic;
        // The surveys are moved out, so that a panic drops them. This completes their results for the operator.
        let Some(mut surveys) = self.surveys.take().filter(|surveys| !surveys.is_over(now)) else { return };
        if surveys.is_running() {
            let worker = (usize::from(self.index), busy_percent(now));
            let Self { peers, endpoint, .. } = self;
            let slot_count = peers.slot_count();
            surveys.step(now, worker, slot_count, |from, count, found| {
                peers.look(from, count, |id, waiting_bytes| {
                    if let Some(summary) = endpoint.peer_summary(id) {
                        found(sample(id, &summary, waiting_bytes));
                    }
                });
            });
        }
        self.surveys = Some(surveys);
    }

    fn observe(&mut self, id: PeerId, what: &Happening) {
        self.observer.happened(self.now.monotonic, id, what);
    }

    /// Closes a connection with these codes.
    pub(crate) fn close(&mut self, id: PeerId, code: CloseCode, application_code: u32) {
        self.fan_out();
        let close = Close { code, application_code, reason: b"" };
        // The peer may be gone by now.
        let _ = self.endpoint.close(self.now, id, &close);
    }

    /// Returns the bytes of messages to a peer that wait or were not acknowledged, charges included.
    fn undelivered_bytes(&self, id: PeerId) -> usize {
        self.endpoint.undelivered_bytes(id).saturating_add(self.peers.waiting_bytes(id))
    }

    /// Starts to close each connection as soon as its peer has acknowledged everything. Replaces an earlier shutdown.
    fn begin_shutdown(&mut self, order: ShutdownOrder) {
        let ShutdownOrder { deadline, application_code, part } = order;
        self.note_all();
        let peers = self.peers.ids().collect();
        let look_at = self.now.monotonic;
        self.shutdown = Some(Shutdown { deadline, application_code, part: Some(part), peers, look_at });
    }

    /// Returns the time of the next check for peers that have acknowledged everything.
    pub(super) fn shutdown_timer(&self) -> Option<Moment> {
        let shutdown = self.shutdown.as_ref()?;
        (shutdown.part.is_some() || !shutdown.peers.is_empty()).then_some(shutdown.look_at)
    }

    /// During a shutdown, closes the connections of peers that have acknowledged everything, and all connections at the deadline.
    /// Returns true when the last connection is closed.
    pub(super) fn advance_shutdown(&mut self) -> bool {
        let now = self.now.monotonic;
        let Some(mut shutdown) = self.shutdown.take_if(|shutdown| shutdown.look_at <= now) else {
            return false;
        };
        let Shutdown { deadline, application_code, part, peers, look_at } = &mut shutdown;
        *look_at = now.after(LOOK_EVERY).min((*deadline).max(now));
        peers.retain(|id| {
            let bytes = self.undelivered_bytes(*id);
            if bytes > 0 && now < *deadline {
                return true;
            }
            if bytes > 0
                && let Some(part) = part
            {
                part.update(|result| result.push(Undelivered { peer: *id, bytes }));
            }
            self.close(*id, CloseCode::Shutdown, *application_code);
            false
        });
        let is_complete = peers.is_empty() && part.take().is_some();
        self.shutdown = Some(shutdown);
        is_complete
    }

    /// Closes all connections, with the application code of the shutdown if there is one.
    pub(crate) fn close_all(&mut self, code: CloseCode) {
        self.note_all();
        // A handshake can complete after the shutdown. The application code tells its client whether the server comes back.
        let application_code = self.shutdown.as_ref().map_or(0, |shutdown| shutdown.application_code);
        for id in self.peers.ids().collect::<Vec<_>>() {
            self.close(id, code, application_code);
        }
    }

    /// Forgets all peers, and queues the last event of each for [`Core::next_event`].
    pub(crate) fn abandon_later(&mut self) {
        let ends: Vec<Event> = self.abandon().collect();
        self.noted.extend(ends);
    }

    /// Forgets all peers, and returns the last event of each. A client does not reconnect then.
    pub(crate) fn abandon(&mut self) -> impl Iterator<Item = Event> {
        self.answers.clear();
        self.fan_out.clear();
        self.surveys = None;
        let ends: Vec<Event> = self
            .peers
            .take_all()
            .flat_map(|(peer, is_connected)| {
                let sessions = self.sessions.as_deref_mut();
                let lost = self.receipts.lose(peer);
                let end = if is_connected {
                    let reason = CloseReason::Local { code: CloseCode::Internal, application_code: 0 };
                    Event::disconnected(peer, Closed::new(reason, Bytes::new()))
                } else if let Some(sessions) = sessions {
                    sessions.give_up(peer, ConnectError::Closed).event(peer)
                } else {
                    Event::ConnectFailed { peer, error: ConnectError::Closed }
                };
                lost.into_iter().chain([end])
            })
            .collect();
        if let Some(sessions) = &mut self.sessions {
            sessions.clear();
        }
        ends.into_iter()
    }
}

/// Returns the survey's sample of one connection, without rates.
fn sample(peer: PeerId, summary: &PeerSummary, waiting_bytes: usize) -> PeerSample {
    PeerSample {
        peer,
        address: summary.address,
        player: summary.player,
        round_trip: summary.round_trip,
        packets_sent: summary.packets_sent,
        packets_lost: summary.packets_lost,
        packets_received: summary.packets_received,
        packets_missing: summary.packets_missing,
        bytes_sent: summary.bytes_sent,
        bytes_received: summary.bytes_received,
        queued_bytes: summary.send_memory_bytes.saturating_add(waiting_bytes),
        sent_per_second: None,
        received_per_second: None,
    }
}
