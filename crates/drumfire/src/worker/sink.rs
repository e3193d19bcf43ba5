//! The interface between a worker and the application. Each way to use drumfire has a sink, which is called once per pass and not
//! once per event.

use drumfire_proto::{Moment, Placement};

use super::core::Core;

/// Delivers the events of one worker to the application.
pub(crate) trait Sink<P: Placement>: Send {
    /// Whether it runs before the flush of a pass, because it answers events itself. Otherwise it runs after the flush.
    fn runs_before_flush(&self) -> bool;

    /// Whether messages come from other threads, so that each peer needs a send edge.
    fn has_remote_senders(&self) -> bool;

    /// Delivers the events of a pass. Returns whether it has more to do immediately.
    fn deliver(&mut self, core: &mut Core<P>) -> bool;

    /// Returns the time at which it must run even if there are no events.
    fn timer(&self) -> Option<Moment> {
        None
    }

    /// A shutdown has closed the last connection.
    fn on_shutdown(&mut self) {}

    /// All peers have ended, and their last events are queued. Drops the events of the endpoint that it has taken.
    fn abandon(&mut self, _core: &mut Core<P>) {}
}
