//! Watching a server that serves, and changing its settings.

use super::Server;
use crate::base::error::ReconfigureError;
use crate::config::live::LiveConfig;
use crate::engine::control::Monitor;

impl Server {
    /// The view of an operator, to keep and to use from any thread.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        self.core.monitor()
    }

    /// The settings that can change, as they are.
    #[must_use]
    pub fn live_config(&self) -> &LiveConfig {
        &self.core.live
    }

    /// Changes settings: for connections that begin from the next pass of each worker on, which is at once. Those there
    /// are keep what they began with.
    ///
    /// ```
    /// # use drumfire::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// # let mut server = Server::bind(config)?;
    /// // Before maintenance: who plays may play on, and nobody else comes in beyond the first hundred.
    /// let mut live = server.live_config().clone();
    /// live.connections = 100;
    /// live.cookie = Cookie::UnderLoad;
    /// server.reconfigure(&live)?;
    ///
    /// live.connections = 0;
    /// let refused = server.reconfigure(&live);
    /// assert!(matches!(refused, Err(ReconfigureError::Setting { field: "connections", .. })));
    /// assert_eq!(server.live_config().connections, 100);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ReconfigureError`] naming the setting that cannot be used; then everything stays as it is.
    pub fn reconfigure(&mut self, live: &LiveConfig) -> Result<(), ReconfigureError> {
        self.front.flush();
        self.core.reconfigure(live)
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests;
