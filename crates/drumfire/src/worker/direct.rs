//! A worker on the application's own thread. Its calls reach the core directly: without a channel, a lock, or a send edge.
//!
//! Each call runs as a small pass: it reads the clock if a pass has ended since, and a panic in it costs one connection.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use drumfire_proto::{Message, PeerId, Placement, ReceiptId, Secret, SendError};

use super::actions::Actions;
use super::command::{Broadcast, Command};
use super::core::Core;
use super::pass::Worker;
use super::sink::Sink;
use crate::base::clock;
use crate::message::event::Event;
use crate::message::group::GroupId;

/// The sink of a worker whose application takes the events itself. Until then, the events wait in the endpoint, where they use the receive
/// memory of their connections.
pub(crate) struct Direct;

impl<P: Placement> Sink<P> for Direct {
    fn runs_before_flush(&self) -> bool {
        false
    }

    fn has_remote_senders(&self) -> bool {
        false
    }

    fn deliver(&mut self, core: &mut Core<P>) -> bool {
        core.watch_polls(false);
        core.apply_early();
        false
    }
}

impl<P: Placement> Worker<P> {
    /// Runs a call of the application. Returns `None` if it panicked. A panic in the code of a connection ends that connection.
    fn call<T>(&mut self, action: impl FnOnce(&mut Core<P>) -> T) -> Option<T> {
        // All calls between two passes share one reading of the clock, so that a burst of sends does not read it for
        // each message.
        if std::mem::take(&mut self.is_clock_stale) {
            self.read_clock();
        }
        // The call may queue a message, and no datagram and no timer reports that. So a pass is due.
        self.is_pass_due = true;
        let result = catch_unwind(AssertUnwindSafe(|| action(&mut self.core))).ok();
        if result.is_none() {
            self.recover();
        }
        result
    }

    /// Returns the oldest event.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        // An application calls this until there is no event. The last call must not make a pass due.
        if !self.has_events() {
            return None;
        }
        // Taking an event can make room for the peer or start an attempt to connect, so a pass is due. The time of the last pass is
        // good enough for both.
        self.is_pass_due = true;
        let Self { core, arena, .. } = self;
        let Ok(event) = catch_unwind(AssertUnwindSafe(|| core.next_event(arena))) else {
            self.recover();
            return None;
        };
        // Taking the event has started the next attempt. A connected socket must lead to its server before the next
        // pass sends.
        if matches!(event, Some(Event::Reconnecting { .. })) {
            self.follow_attempt();
        }
        event
    }

    /// Whether [`Worker::next_event`] returns an event.
    pub(crate) fn has_events(&self) -> bool {
        self.core.has_events()
    }

    /// Whether a pass is due now: the application has called, or events wait for it.
    pub(crate) fn is_due(&self) -> bool {
        self.is_pass_due || self.has_events()
    }

    /// Returns the peers, including a client's attempts to connect.
    pub(crate) fn peers(&self) -> impl ExactSizeIterator<Item = PeerId> {
        KnownLength { left: self.core.peers.len(), ids: self.core.peers.ids() }
    }

    /// Whether the connection of a peer is open, also before the application has taken the events about it.
    pub(crate) fn is_open(&self, peer: PeerId) -> bool {
        self.core.endpoint.is_open(peer)
    }

    /// Runs passes until there is an event, but no longer than `timeout`. Returns whether there is one.
    pub(crate) fn poll(&mut self, timeout: Duration) -> bool {
        self.core.watch_polls(true);
        self.run(timeout, Self::has_events)
    }

    /// Runs passes until `is_done` or `timeout` has passed. Returns whether it is done.
    pub(crate) fn run(&mut self, timeout: Duration, is_done: impl Fn(&Self) -> bool) -> bool {
        // The pass comes before the wait, so that a timeout of zero still receives and sends.
        self.work();
        let mut start = None;
        while !is_done(self) {
            // A pass can end without an event, for example after an acknowledgment. The wait then continues for the
            // rest of the time.
            let now = clock::instant();
            let left = timeout.saturating_sub(now.saturating_duration_since(*start.get_or_insert(now)));
            if left.is_zero() {
                return false;
            }
            self.wait(Some(left));
            self.work();
        }
        true
    }

    /// Invalidates the keys of all sessions. From now on, the endpoint takes its randomness from the seed.
    pub(crate) fn invalidate_keys(&mut self, seed: Secret<32>) {
        let _ = self.call(|core| core.endpoint.invalidate_all_keys(core.now, seed));
        self.flush();
    }

    /// Publishes the statistics now and after each later pass, because another thread reads them.
    pub(crate) fn observe(&self) {
        self.link.observe();
        self.link.set_stats(&self.stats());
    }
}

impl<P: Placement> Actions for Worker<P> {
    fn send(&mut self, peer: PeerId, message: Message) -> Result<(), SendError> {
        self.call(|core| core.send(peer, message)).unwrap_or(Err(SendError::Closed))
    }

    fn send_with_receipt(&mut self, peer: PeerId, message: Message) -> Result<ReceiptId, SendError> {
        self.call(|core| core.send_with_receipt(peer, message)).unwrap_or(Err(SendError::Closed))
    }

    fn broadcast(&mut self, broadcast: Broadcast) -> Result<(), SendError> {
        self.call(|core| core.broadcast(broadcast)).unwrap_or(Err(SendError::Closed))
    }

    fn join(&mut self, peer: PeerId, group: GroupId) -> bool {
        self.call(|core| core.join(peer, group)).unwrap_or(false)
    }

    fn command(&mut self, peer: PeerId, command: Command) {
        // After a panic, the end of the connection is the answer.
        let _ = self.call(|core| core.command(peer, command));
    }

    fn is_connected(&self, peer: PeerId) -> bool {
        self.core.is_connected(peer)
    }
}

/// An iterator with a known number of items.
pub(crate) struct KnownLength<I> {
    pub(crate) ids: I,
    pub(crate) left: usize,
}

impl<I: Iterator> Iterator for KnownLength<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let item = self.ids.next()?;
        self.left -= 1;
        Some(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<I: Iterator> ExactSizeIterator for KnownLength<I> {}
