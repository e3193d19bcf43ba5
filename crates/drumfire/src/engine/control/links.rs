//! Changes of the simulated links of a server by an operator: [`Control::set_conditioner`].

use super::{Control, ControlState};
use crate::base::error::Error;
use crate::base::sync::lock;
use crate::conditioner::LinkConfig;
use crate::worker::live_links;

impl Control {
    /// Changes the simulated links of all sockets in both directions, for datagrams that are sent from then on. Datagrams in flight
    /// keep their times, and only reordered ones overtake them.
    /// [`WorkerStats::outbound_link`](crate::stats::WorkerStats::outbound_link) and
    /// [`WorkerStats::inbound_link`](crate::stats::WorkerStats::inbound_link) count what the links do.
    ///
    /// ```
    /// use drumfire::conditioner::LinkConfig;
    /// # use drumfire::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// let server = Server::bind(config.conditioner(LinkConfig::default()))?;
    /// // All players are on satellite links now.
    /// server.control().set_conditioner(&LinkConfig::satellite())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for a configuration that cannot be used, or without
    /// [`ServerConfig::conditioner`](crate::ServerConfig::conditioner). Nothing has changed.
    pub fn set_conditioner(&self, link: &LinkConfig) -> Result<(), Error> {
        let ControlState { links: channels, config, change_lock, .. } = &*self.server;
        let _change = lock(change_lock);
        live_links::request_change(channels, config.conditioner.is_some(), link)
    }
}
