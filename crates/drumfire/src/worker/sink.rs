//! The interface between a worker and the application. Each way to use drumfire has a sink, which is called once per pass and not
//! once per event.

use std::sync::Arc;

use drumfire_proto::{Moment, PeerId, Placement};

use super::core::Core;
use super::credit::Credit;

/// Delivers the events of one worker to the application.
pub(crate) trait Sink<P: Placement>: Send {
    /// Whether it runs before the flush of a pass, because it answers events itself. Otherwise it runs after the flush.
    fn runs_before_flush(&self) -> bool;

    /// Starts a client's attempt to connect. Messages to the peer are accepted from now on.
    fn begin(&mut self, peer: PeerId, credit: &Arc<Credit>);

    /// Delivers the events of a pass. Returns whether it has more to do immediately.
    fn deliver(&mut self, core: &mut Core<P>) -> bool;

    /// Returns the time at which it must run even if there are no events.
    fn timer(&self) -> Option<Moment>;

    /// A shutdown has closed the last connection.
    fn on_shutdown(&mut self) {}

    /// Reports the end of all peers. Pending events of the endpoint are dropped.
    fn abandon(&mut self, core: &mut Core<P>);
}
