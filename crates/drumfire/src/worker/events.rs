//! The events of a worker on their way to the application, and their effects on the peers.
//!
//! An event is *applied* when the worker updates its peers with it. That happens when a sink takes the event from the endpoint. Some events
//! are applied before, and queued, because their consequences must not wait for the application.

use std::sync::Arc;

use bytes::Bytes;
use drumfire_proto::{CloseCode, CloseReason, ConnectError, Event as CoreEvent, PeerId, Placement};

use super::arena::Arena;
use super::core::Core;
use super::send_edge::SendEdge;
use crate::message::event::{Closed, Event, ReconnectReason};

impl<P: Placement> Core<P> {
    /// Adds a connected peer, and returns its send edge.
    fn connected(&mut self, id: PeerId) -> Option<Arc<SendEdge>> {
        // The handshake has brought the peer's own limit. The edge of a client's attempt had the limit of the
        // configuration until now.
        let message_max_bytes = self.endpoint.message_max_bytes(id);
        let new_edge = self.new_edge(message_max_bytes, true);
        let edge = self.peers.connected(id, || new_edge);
        edge.iter().for_each(|edge| edge.set_message_max_bytes(message_max_bytes));
        let now = self.now.monotonic;
        if let Some(reconnect) = self.reconnect_state(id) {
            reconnect.on_connected(now);
        }
        if let Some(shutdown) = &mut self.shutdown {
            // The handshake began before the shutdown.
            shutdown.peers.push(id);
            shutdown.check_at = now;
        }
        edge
    }

    /// Updates the peers with an event of the endpoint. Returns the event, and the send edge of a peer that connected or connects again,
    /// if it has one. The event differs for the end of a connection after which a client reconnects. The outcomes of the open receipts of
    /// a connection that has ended are queued, because they come before the event.
    pub(crate) fn apply(&mut self, event: Event) -> (Event, Option<Arc<SendEdge>>) {
        if matches!(event, Event::Connected { .. } | Event::ConnectFailed { .. } | Event::Disconnected { .. })
        {
            // A broadcast that was queued before this event is sent before it. So it has no receiver that connected after it, and a peer
            // whose connection ends counts as a receiver.
            self.fan_out();
            self.observer.on_connection_event(self.now.monotonic, &event);
        }
        match event {
            Event::Connected { peer, .. } => {
                let edge = self.connected(peer);
                return (event, edge);
            }
            Event::ConnectFailed { peer, error } => return self.end(peer, ReconnectReason::Failed(error)),
            Event::Disconnected { peer, closed } => return self.end(peer, ReconnectReason::Ended(closed)),
            Event::Receipt { peer, receipt, .. } => self.receipts.close(peer, receipt),
            _ => {}
        }
        (event, None)
    }

    /// Removes a peer whose connection or attempt has ended.
    fn end(&mut self, peer: PeerId, end: ReconnectReason) -> (Event, Option<Arc<SendEdge>>) {
        // The peer leaves the table first, because the next attempt of its session enters the table under the same
        // id.
        let ended = self.peers.remove(peer);
        let (event, edge) = self.on_session_end(peer, end);
        let reconnects = matches!(event, Event::Reconnecting { .. });
        // Senders use the old edge until the application has taken the event, so it is marked even if the attempt has
        // an edge of its own.
        if let Some(edge) = ended {
            if reconnects { edge.end_for_reconnect() } else { edge.close() }
        }
        self.queued.extend(self.receipts.lose(peer));
        (event, edge)
    }

    /// Applies an event of the endpoint, and queues it for [`Core::pop_own_event`].
    pub(crate) fn apply_and_queue(&mut self, event: Event) {
        let (event, _) = self.apply(event);
        self.queued.push_back(event);
    }

    /// Applies all events of the endpoint before the application takes them, at a client that reconnects and during a shutdown. The next
    /// attempt and the end of the shutdown then do not wait for the application. Messages alone stay in the endpoint, whose limits
    /// count them.
    pub(crate) fn apply_early(&mut self) {
        if self.endpoint.has_lifecycle_events() && (self.shutdown.is_some() || self.reconnects()) {
            self.apply_all();
        }
    }

    /// Applies and queues all events of the endpoint, unless the sink applies them in each pass.
    pub(super) fn apply_all(&mut self) {
        // With senders on other threads, the sink must have the send edge of each new peer.
        if self.has_remote_senders {
            return;
        }
        while let Some(event) = self.endpoint.poll_event() {
            // A queued event can wait for long. In an arena, its payload would keep a whole piece of memory, so the payload is copied.
            if let Some(event) = Event::from_core(event, Bytes::copy_from_slice) {
                self.apply_and_queue(event);
            }
        }
    }

    /// Returns the next event. `arena` has the memory for the payloads of messages.
    pub(crate) fn next_event(&mut self, arena: &mut Arena) -> Option<Event> {
        if self.has_own_events()
            && let Some(event) = self.pop_own_event()
        {
            return Some(event);
        }
        loop {
            if let Some(run) = self.endpoint.poll_run() {
                let (peer, channel) = (run.peer, run.channel);
                let message = |payload| Event::Message { peer, channel, payload: arena.copy(payload) };
                // This call returns one event. The other messages join the queued events, of which there are none now.
                self.queued.extend(run.payloads().map(message));
                return self.queued.pop_front();
            }
            let event = self.endpoint.poll_event()?;
            // A message has no effect on the peers, and most events are messages.
            if let CoreEvent::Message { peer, channel, payload } = event {
                return Some(Event::Message { peer, channel, payload: arena.copy(payload) });
            }
            if let Some(event) = Event::from_core(event, Bytes::copy_from_slice) {
                let (event, _) = self.apply(event);
                // The receipts of a connection precede its end, and this call returns one event.
                if self.queued.is_empty() {
                    return Some(event);
                }
                self.queued.push_back(event);
                return self.queued.pop_front();
            }
        }
    }

    /// Whether [`Core::next_event`] returns an event.
    pub(crate) fn has_events(&self) -> bool {
        // Stats and flight records of peers that have disconnected do not count. `pop_own_event` drops them, so a poll that counts them
        // would return without an event.
        self.endpoint.has_events()
            || !self.queued.is_empty()
            || self.answers.iter().any(|answer| self.peers.has(answer.peer()))
            || self.peers.has_notices()
    }

    /// Whether [`Core::pop_own_event`] may return an event.
    fn has_own_events(&self) -> bool {
        !self.fan_out.is_empty()
            || !self.queued.is_empty()
            || !self.answers.is_empty()
            || self.peers.may_have_notices()
    }

    /// Returns the next queued event, or the next event of the worker itself: `Stats`, `FlightRecord`, `Missed`, or `Writable`.
    pub(crate) fn pop_own_event(&mut self) -> Option<Event> {
        // Sending the broadcasts can add entries for `Missed`, which this call then finds.
        self.fan_out();
        if let Some(event) = self.queued.pop_front() {
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

    /// Returns the next queued event.
    pub(crate) fn pop_queued(&mut self) -> Option<Event> {
        self.queued.pop_front()
    }

    /// Forgets all peers, and queues the last event of each. No session of a client reconnects.
    pub(crate) fn abandon(&mut self) {
        // Stats, flight records, and broadcasts need peers. Queued events stay, because one of them can be the last event of a peer that
        // has left the table. Dropping the surveys completes their results.
        self.answers.clear();
        self.fan_out.clear();
        self.surveys = None;
        let only_peer = self.only_session().map(|(peer, _)| peer);
        let token = only_peer.and_then(|peer| Some((peer, self.resume_token(peer)?)));
        let Self { peers, sessions, receipts, queued, .. } = self;
        for (peer, is_connected) in peers.take_all() {
            queued.extend(receipts.lose(peer));
            let reconnect = sessions.as_mut().and_then(|sessions| sessions.reconnect(peer));
            queued.push_back(if is_connected {
                let reason = CloseReason::Local { code: CloseCode::Internal, application_code: 0 };
                Event::disconnected(peer, Closed::new(reason, Bytes::new()))
            } else if let Some(reconnect) = reconnect {
                reconnect.give_up(peer, ConnectError::Closed)
            } else {
                Event::ConnectFailed { peer, error: ConnectError::Closed }
            });
        }
        // The sessions are cleared last, because the end of an attempt depends on its session.
        if let Some(sessions) = sessions {
            sessions.clear(token);
        }
    }
}
