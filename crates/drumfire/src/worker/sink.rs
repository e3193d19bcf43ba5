//! What stands between a worker and the application: it hears what happened, and nothing else of the worker is its affair.
//!
//! There is one engine and a face for each way to use it. A face is asked once per pass, not once per event.

use std::sync::Arc;

use drumfire_proto::{Moment, PeerId, Placement};

use super::core::Core;
use super::credit::Credit;

/// One worker's application.
pub(crate) trait Face<P: Placement>: Send {
    /// Whether what it answers belongs into the same flush as what it was told: then it is asked before the flush, else
    /// after it.
    fn answers_at_once(&self) -> bool;

    /// A client's attempt begins: messages may be sent from now on.
    fn begin(&mut self, peer: PeerId, credit: &Arc<Credit>);

    /// Hands over what happened. True when it has more to do at once.
    fn hand_over(&mut self, core: &mut Core<P>) -> bool;

    /// When it wants to be asked although nothing happened.
    fn timer(&self) -> Option<Moment>;

    /// All peers are gone. What the endpoint still had to say of them is not heard.
    fn abandon(&mut self, core: &mut Core<P>);
}
