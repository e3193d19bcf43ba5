//! Settings that may change while an endpoint runs. They are read when a connection begins.
//!
//! Existing connections keep the settings with which they began. Everything that packets depend on is fixed when the
//! endpoint is created.

use std::sync::Arc;
use std::time::Duration;

use drumfire_wire::ConnectionIdLength;

use super::{Endpoint, Role, whole_milliseconds};
use crate::access::Access;
use crate::config::{Config, Cookie};
use crate::congestion::Congestion;
use crate::connection::ConnectionLimits;
use crate::error::ConfigError;
use crate::placement::Placement;

/// Settings for connections that begin from now on.
#[derive(Debug)]
#[non_exhaustive]
pub struct LiveConfig {
    /// See [`Config::connections`]. If more connections exist, all of them stay, and no other one begins.
    pub connections: u32,
    /// The number of connections of all shards together, for the shell's [`Placement`].
    pub connections_total: u32,
    /// See [`Config::worker_memory_bytes`].
    pub worker_memory_bytes: usize,
    /// See [`Config::idle_timeout`].
    pub idle_timeout: Duration,
    /// See [`Config::unacknowledged_timeout`].
    pub unacknowledged_timeout: Duration,
    /// See [`Config::congestion`].
    pub congestion: Congestion,
    /// See [`crate::ServerConfig::cookie`]. Used only on a server.
    pub cookie: Cookie,
    /// The token keys and their audience. Used only on a server. Whether tokens are required, and from when they are
    /// valid, does not change.
    pub access: Access,
}

impl LiveConfig {
    /// Takes the settings of `config`, with open access and a cookie from every client.
    #[must_use]
    pub const fn new(config: &Config) -> Self {
        Self {
            connections: config.connections,
            connections_total: config.connections,
            worker_memory_bytes: config.worker_memory_bytes,
            idle_timeout: config.idle_timeout,
            unacknowledged_timeout: config.unacknowledged_timeout,
            congestion: config.congestion,
            cookie: Cookie::Always,
            access: Access::Open,
        }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// Returns the first field that is out of range.
    pub fn check(&self) -> Result<(), ConfigError> {
        // The ranges are those of `Config`, so that one place defines them.
        let config = Config::default()
            .connections(self.connections)
            .worker_memory_bytes(self.worker_memory_bytes)
            .timeouts(self.idle_timeout, self.unacknowledged_timeout)
            .congestion(self.congestion);
        config.check()?;
        self.access.check()
    }
}

impl<P: Placement> Endpoint<P> {
    /// Changes the settings for connections that begin from now on.
    ///
    /// # Errors
    /// Returns the first field that is out of range. Nothing has changed then.
    pub fn reconfigure(&mut self, live: &LiveConfig) -> Result<(), ConfigError> {
        live.check()?;
        // A socket without connection ids has one connection, whatever the setting.
        let is_alone = self.id_length == ConnectionIdLength::Zero;
        self.connections.set_limit(if is_alone { 1 } else { live.connections });
        self.budget.set_limit(live.worker_memory_bytes);
        self.placement.set_limits(live.connections, live.connections_total);
        // A new copy for new connections. Existing ones share the old copy until the last of them ends.
        self.bounds = Arc::new(ConnectionLimits { congestion: live.congestion, ..*self.bounds });
        self.shared.idle_timeout = whole_milliseconds(live.idle_timeout);
        self.shared.unacknowledged_timeout = whole_milliseconds(live.unacknowledged_timeout);
        if let Role::Server(responder) = &mut self.role {
            responder.reconfigure(self.shared, live.cookie, &live.access);
        }
        Ok(())
    }
}
