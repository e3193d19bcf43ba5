//! The settings of a server that can change while it serves.
//!
//! Only what is looked at when a connection begins is here: nothing asks for it again with every packet, and connections
//! there are keep what they began with.

use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::{Config, Congestion, Cookie, LiveConfig as CoreLive};

use super::server::{Access, ServerConfig};
use crate::base::error::ReconfigureError;

/// The settings that can change while a server serves: take [`Server::live_config`](crate::Server::live_config), change
/// what is to change, and give it to [`Server::reconfigure`](crate::Server::reconfigure). Which settings these are, and
/// why others are not, stands in a table at [`ServerConfig`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LiveConfig {
    /// As [`ServerConfig::connections`]. When there are more than that, none is closed, and none begins.
    pub connections: u32,
    /// As [`ServerConfig::worker_memory_bytes`].
    pub worker_memory_bytes: usize,
    /// As [`ServerConfig::silent_timeout`], for connections that begin from now on.
    pub silent_timeout: Duration,
    /// As [`ServerConfig::unacknowledged_timeout`], for connections that begin from now on.
    pub unacknowledged_timeout: Duration,
    /// As [`ServerConfig::congestion`], for connections that begin from now on.
    pub congestion: Congestion,
    /// As [`ServerConfig::cookie`].
    pub cookie: Cookie,
    /// The keys of tokens, to rotate them, and their audience. Access stays open, or by token.
    pub access: Access,
}

impl ServerConfig {
    /// Those of the settings that can change while a server serves.
    #[must_use]
    pub fn live(&self) -> LiveConfig {
        LiveConfig {
            connections: self.connections,
            worker_memory_bytes: self.worker_memory_bytes,
            silent_timeout: self.silent_timeout,
            unacknowledged_timeout: self.unacknowledged_timeout,
            congestion: self.congestion,
            cookie: self.cookie,
            access: self.access.clone(),
        }
    }
}

impl LiveConfig {
    /// Takes the settings of `next` if they can be used instead of these, and returns the part of each of `workers`.
    pub(crate) fn replace(&mut self, next: &Self, workers: usize) -> Result<Arc<CoreLive>, ReconfigureError> {
        if matches!(self.access, Access::Open) != matches!(next.access, Access::Open) {
            let problem = "stays open, or by token, as long as the server serves: bind another one";
            return Err(ReconfigureError::Setting { field: "access", problem });
        }
        let core = Arc::new(next.core(workers));
        core.check()?;
        self.clone_from(next);
        Ok(core)
    }

    /// What each of so many workers is told; they share the connections evenly.
    fn core(&self, workers: usize) -> CoreLive {
        let workers = u32::try_from(workers.max(1)).unwrap_or(u32::MAX);
        let mut core = CoreLive::new(&Config::default());
        core.connections = self.connections.div_ceil(workers);
        core.connections_in_all = self.connections;
        core.worker_memory_bytes = self.worker_memory_bytes;
        core.silent_timeout = self.silent_timeout;
        core.unacknowledged_timeout = self.unacknowledged_timeout;
        core.congestion = self.congestion;
        core.cookie = self.cookie;
        // Since when tokens are good was settled when the server was bound.
        core.access = self.access.core(Duration::ZERO);
        core
    }
}
