//! The protocol's side of a worker: one endpoint, its peers, and the calls of the application.
//!
//! It does no I/O and does not know the application: `transport` owns the socket, and a `sink` delivers events.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::{
    Close, CloseCode, Endpoint, IfFull, LiveConfig, Message, Moment, Now, PeerId, PeerSummary, Placement,
    ReceiptId,
};

use super::command::{BanOrder, Broadcast, Command, Query};
use super::fan_out::FanOut;
use super::peers::Peers;
use super::receipts::OpenReceipts;
use super::send_edge::{SendEdge, SendLimits};
use super::sessions::Sessions;
use super::shutdown::Shutdown;
use super::survey::Surveys;
use crate::admission::bans::Ban;
use crate::base::error::Error;
use crate::message::event::Event;
use crate::message::group::GroupId;
use crate::observe::observer::Observer;
use crate::observe::stats::WorkerStats;
use crate::observe::survey::PeerSample;

/// The time after which an application that never polled is warned.
const POLL_EXPECTED_WITHIN: Duration = Duration::from_secs(1);

/// A time after any other.
const NEVER: Moment = Moment::from_nanos(u64::MAX);

/// The protocol state of one worker.
pub(crate) struct Core<P> {
    /// The index of this worker, from 0.
    pub(crate) index: u16,
    /// The time at which the present pass began.
    pub(crate) now: Now,
    pub(crate) endpoint: Endpoint<P>,
    pub(crate) peers: Peers,
    /// The broadcasts that have not been sent yet.
    pub(super) fan_out: FanOut,
    /// The receipts of messages from the worker's own thread.
    pub(super) receipts: OpenReceipts,
    /// Whether messages come from other threads, so that each peer has a [`SendEdge`].
    pub(super) has_remote_senders: bool,
    /// The limits of the messages to a new peer.
    pub(super) limits: SendLimits,
    /// Stats and flight records that the application requested and has not received yet.
    pub(super) answers: VecDeque<Event>,
    /// Applied events that the application has not taken, and messages of the run that it takes. They come before all others.
    pub(super) queued: VecDeque<Event>,
    /// The time at which the application is warned. `None` before the first pass, [`NEVER`] after a poll or the warning.
    poll_expected_at: Option<Moment>,
    pub(super) observer: Observer,
    pub(super) shutdown: Option<Shutdown>,
    /// The sessions of a client. `None` at a server.
    pub(super) sessions: Option<Box<Sessions>>,
    /// The surveys of an operator, and the counts of the last one for rates. `None` without recent surveys.
    pub(super) surveys: Option<Box<Surveys>>,
    /// The settings of the last `Reconfigure` command. `None` before the first.
    live: Option<Arc<LiveConfig>>,
    pub(crate) stats: WorkerStats,
}

impl<P: Placement> Core<P> {
    pub(crate) fn new(
        index: u16,
        now: Now,
        mut endpoint: Endpoint<P>,
        limits: SendLimits,
        has_remote_senders: bool,
        sessions: Option<Box<Sessions>>,
    ) -> Self {
        // Without send edges, nothing reads the list of connections that have freed memory, and the endpoint need not
        // keep it.
        if has_remote_senders {
            endpoint.report_freed();
        }
        debug_assert_eq!(
            sessions.is_none(),
            endpoint.is_server(),
            "clients have sessions, and servers have none"
        );
        let observer = Observer::new(endpoint.is_server().then_some(index));
        Self {
            index,
            now,
            endpoint,
            peers: Peers::default(),
            fan_out: FanOut::default(),
            receipts: OpenReceipts::default(),
            has_remote_senders,
            limits,
            answers: VecDeque::new(),
            queued: VecDeque::new(),
            poll_expected_at: None,
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
        // A new endpoint keeps no list by default. Without the list, acknowledgments would not raise the send edges
        // of its peers.
        if self.has_remote_senders {
            endpoint.report_freed();
        }
        // Ids of the abandoned peers are refused from now on.
        endpoint.continue_peer_ids(&self.endpoint);
        self.endpoint = endpoint;
        self.take_settings();
    }

    /// Creates the send edge of a peer, if it needs one.
    pub(super) fn new_edge(&self, message_max_bytes: usize, is_connected: bool) -> Option<Arc<SendEdge>> {
        let edge = || Arc::new(SendEdge::new(self.limits.memory_bytes, message_max_bytes, is_connected));
        self.has_remote_senders.then(edge)
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
                // Its sender is not notified of room later.
                let is_taken = self.peers.has(peer)
                    && self.endpoint.send_with(self.now, peer, message, None, IfFull::Refuse).is_ok();
                // No send edge has counted this message, although it uses the same memory. The edge falls, so that
                // other senders see less room.
                self.peers.publish_edge(&self.endpoint, peer);
                self.stats.messages_undelivered += u64::from(!is_taken);
            }
            Command::ShutDown(order) => self.begin_shutdown(order),
            Command::Query(query) => self.answer(*query),
            Command::Broadcast(broadcast) => self.add_broadcast(&broadcast),
            Command::Reconfigure(live) => {
                // The settings are kept, because an endpoint that replaces this one is created with the settings of
                // the start.
                self.live = Some(live);
                self.take_settings();
            }
            Command::InvalidateKeys { seed, part: _part } => {
                // The end of this arm drops the part, which completes the result of the caller. No key exists any
                // more at that time.
                self.endpoint.invalidate_all_keys(self.now, *seed);
            }
            // The worker changes its transport, which the core does not know.
            Command::Condition(_) => {}
            #[cfg(feature = "tokio")]
            Command::Rebind(_) => {}
            Command::Options { peer, channel, options } => {
                self.endpoint.set_channel_options(peer, channel, options);
                // The endpoint forgets the options with the connection. The session applies them to the next
                // connection.
                if let Some(reconnect) = self.reconnect_state(peer) {
                    reconnect.keep_options(channel, options);
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
                // The session records the close first, so that the end of the connection starts no further attempt.
                if let Some(reconnect) = self.reconnect_state(peer) {
                    reconnect.on_close(code, &text);
                }
                let code = Close { code: CloseCode::Application, application_code: code, reason: &text };
                // The peer may have disconnected by now.
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
    pub(crate) fn add_broadcast(&mut self, broadcast: &Broadcast) {
        // The queued broadcasts go first if they cannot take this one, so that each receiver gets the messages in the
        // order of the calls.
        if !self.fan_out.may_take(broadcast) {
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

    /// Reclaims blocks of broadcasts that no connection needs, and counts the memory of the other blocks.
    pub(crate) fn reclaim_blocks(&mut self) {
        let Self { endpoint, fan_out, .. } = self;
        fan_out.blocks.reclaim();
        endpoint.set_block_bytes(fan_out.blocks.held_bytes());
    }

    /// Warns once if the application never polls. Passes come from flushes too.
    pub(crate) fn watch_polls(&mut self, is_polled: bool) {
        let now = self.now.monotonic;
        let expected_at = self.poll_expected_at.get_or_insert(now.after(POLL_EXPECTED_WITHIN));
        if is_polled {
            *expected_at = NEVER;
        } else if now >= *expected_at {
            *expected_at = NEVER;
            self.observer.warn_never_polled();
        }
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

    /// Carries out a query. A survey takes several passes: see [`Core::survey`].
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
                // The ban comes first, so that the client cannot connect again between the two. Without a ban, the
                // connection stays open.
                let banned = self.ban(&order);
                if banned.is_ok() {
                    self.carry_out(order.close);
                }
                order.part.update(|result| *result = banned);
            }
            #[cfg(feature = "tokio")]
            Query::ResumeToken { peer, part } => {
                let token = self.resume_token(peer);
                part.update(|result| *result = token);
            }
        }
    }

    /// Bans the player of a connected peer, or its IP address if it has no player.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownPeer`] if the peer has disconnected, or the error of the ban list.
    fn ban(&self, order: &BanOrder) -> Result<Ban, Error> {
        let summary = self.peers.has(order.peer).then(|| self.endpoint.peer_summary(order.peer)).flatten();
        let summary = summary.ok_or(Error::UnknownPeer)?;
        // Several players can share an address, and a player can change it. So the ban names the player where one is
        // known.
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
                peers.visit(from, count, |id, waiting_bytes| {
                    if let Some(summary) = endpoint.peer_summary(id) {
                        found(sample(id, &summary, waiting_bytes));
                    }
                });
            });
        }
        self.surveys = Some(surveys);
    }

    /// Closes a connection with these codes.
    pub(crate) fn close(&mut self, id: PeerId, code: CloseCode, application_code: u32) {
        // Earlier broadcasts are queued first. The endpoint sends waiting messages once before the close.
        self.fan_out();
        let close = Close { code, application_code, reason: b"" };
        // The peer may have disconnected by now.
        let _ = self.endpoint.close(self.now, id, &close);
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
