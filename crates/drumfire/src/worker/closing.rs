//! The steps of a shutdown, and the end of all connections.

use drumfire_proto::{CloseCode, Moment, PeerId, Placement};

use super::core::Core;
use super::shutdown::{CHECK_INTERVAL, Shutdown, ShutdownOrder, Undelivered};

impl<P: Placement> Core<P> {
    /// Returns the bytes of messages to a peer that wait or were not acknowledged, charges included.
    fn undelivered_bytes(&self, id: PeerId) -> usize {
        self.endpoint.undelivered_bytes(id).saturating_add(self.peers.waiting_bytes(id))
    }

    /// Starts to close each connection as soon as its peer has acknowledged everything. Replaces the deadline of an earlier shutdown.
    pub(super) fn begin_shutdown(&mut self, order: ShutdownOrder) {
        let ShutdownOrder { deadline, application_code, part } = order;
        // Events are applied first: a peer whose `Connected` event waits belongs to the list of the shutdown, and a peer that has
        // disconnected does not. With a sink that applies events in each pass, `Core::connected` adds the new peers.
        self.apply_all();
        let peers = self.peers.ids().collect();
        let check_at = self.now.monotonic;
        // The result of an earlier call completes together with this one, because connections are still open.
        let mut parts = self.shutdown.take().map(|earlier| earlier.parts).unwrap_or_default();
        parts.push(part);
        self.shutdown = Some(Shutdown { deadline, application_code, parts, peers, check_at });
    }

    /// Returns the time of the next check for peers that have acknowledged everything.
    pub(super) fn shutdown_timer(&self) -> Option<Moment> {
        let shutdown = self.shutdown.as_ref()?;
        // Without any peer, one check still has to run, because it completes the result.
        (!shutdown.parts.is_empty() || !shutdown.peers.is_empty()).then_some(shutdown.check_at)
    }

    /// During a shutdown, closes the connections of peers that have acknowledged everything, and all connections at the deadline.
    /// Returns true when the last connection is closed.
    pub(super) fn advance_shutdown(&mut self) -> bool {
        let now = self.now.monotonic;
        // The shutdown is moved out, because closing a connection borrows the core. A panic in a close drops the
        // shutdown, which completes the result.
        let Some(mut shutdown) = self.shutdown.take_if(|shutdown| shutdown.check_at <= now) else {
            return false;
        };
        let Shutdown { deadline, application_code, parts, peers, check_at } = &mut shutdown;
        *check_at = now.after(CHECK_INTERVAL).min((*deadline).max(now));
        peers.retain(|id| {
            let bytes = self.undelivered_bytes(*id);
            if bytes > 0 && now < *deadline {
                return true;
            }
            // Only the deadline closes a connection with undelivered messages. The callers get these peers as the
            // result.
            if bytes > 0 {
                let undelivered = Undelivered { peer: *id, bytes };
                parts.iter().for_each(|part| part.update(|result| result.push(undelivered)));
            }
            self.close(*id, CloseCode::Shutdown, *application_code);
            false
        });
        // The results complete once. A handshake that completes later adds its peer to the list, which is closed
        // without another notification.
        let is_complete = peers.is_empty() && !parts.is_empty();
        if is_complete {
            parts.clear();
        }
        self.shutdown = Some(shutdown);
        is_complete
    }

    /// Closes all connections, with the application code of the shutdown if there is one.
    pub(crate) fn close_all(&mut self, code: CloseCode) {
        self.apply_all();
        // A handshake can complete after the shutdown. The application code informs its client whether the server will restart.
        let application_code = self.shutdown.as_ref().map_or(0, |shutdown| shutdown.application_code);
        for id in self.peers.ids().collect::<Vec<_>>() {
            self.close(id, code, application_code);
        }
    }
}
