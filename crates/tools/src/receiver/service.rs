//! The settings and secrets of the stages with connections, which all threads of a receiver share.

use std::collections::HashMap;
use std::num::NonZeroU16;
use std::sync::atomic::AtomicU16;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drumfire::worker::{ConnectionRegistry, RegistryView};
use drumfire_crypto::ReplayWindow;
use drumfire_proto::{
    Config, Endpoint, Moment, Now, Secret, ServerConfig, ServerKeyPair, Shard, SteeringSecret,
};
use drumfire_puppet::{PacketOpener, PacketSealer};
use drumfire_wire::{ConnectionId, SharedParameters};

use crate::choices::{Mode, Suite};
use crate::clock;
use crate::limits::{MAX_FLOWS, MAX_RUN};

/// The idle and the unacknowledged timeout, longer than any run: a sender without an endpoint acknowledges nothing.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2 * MAX_RUN.as_secs());

/// The number of handshakes per second and source. It does not limit a sender, whose flows all come from one address.
const HANDSHAKES: u32 = 1_000_000;

/// The settings of both ends.
pub(crate) fn config(suite: Suite) -> Config {
    suite.config().timeouts(TIMEOUT, TIMEOUT)
}

/// The settings and secrets that the stages with connections share on all threads.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) suite: Suite,
    pub(super) mode: Mode,
    key: [u8; 32],
    pub(super) persistent: [u8; 32],
    process_key: [u8; 32],
    /// Set if tags steer, with the number of threads. Otherwise each thread keeps the connections that the kernel's hash assigns
    /// to it.
    steering: Option<(SteeringSecret, NonZeroU16)>,
    owners: Arc<ConnectionRegistry>,
    handover: Arc<Handover>,
}

impl Service {
    /// Draws all secrets; `steering` is the one the kernel's filter knows, if it has one for these threads.
    pub(super) fn new(
        suite: Suite,
        mode: Mode,
        steering: Option<(SteeringSecret, NonZeroU16)>,
    ) -> Result<Self, String> {
        suite.config().check().map_err(|error| format!("--suite {suite}: {error}"))?;
        Ok(Self {
            suite,
            mode,
            key: random_bytes()?,
            persistent: random_bytes()?,
            process_key: random_bytes()?,
            steering,
            owners: ConnectionRegistry::new(steering.map_or(1, |(_, threads)| threads.get()), MAX_FLOWS),
            handover: Arc::default(),
        })
    }

    /// The key pair by which a sender authenticates this receiver.
    pub(super) fn pair(&self) -> ServerKeyPair {
        ServerKeyPair::from_secret(Secret::new(self.key))
    }

    /// The shard of a thread, and the connections on their way to it. A thread whose connections stay has both for itself.
    pub(super) fn shard(&self, index: u16) -> (Shard, Arc<Handover>) {
        match self.steering {
            Some((steering, count)) => (Shard { index, count, steering }, Arc::clone(&self.handover)),
            None => (Shard::ONLY, Arc::default()),
        }
    }

    pub(super) fn endpoint(&self, index: u16) -> Result<Endpoint<RegistryView>, String> {
        let mut config = config(self.suite).connections(MAX_FLOWS);
        // A sender as fast as it can, not a game's client.
        config.pass_share_datagrams = u16::MAX;
        let placement = match self.steering {
            Some(_) => self.owners.of_worker(index),
            None => ConnectionRegistry::new(1, MAX_FLOWS).of_worker(0),
        };
        let (persistent, process_key) = (Secret::new(self.persistent), Secret::new(self.process_key));
        let mut server = ServerConfig::new(self.pair(), persistent, process_key).shard(self.shard(index).0);
        server.half_open = MAX_FLOWS;
        server.half_open_per_source = u16::MAX;
        server.handshakes_per_second = HANDSHAKES;
        server.source_handshakes_per_second = HANDSHAKES;
        Endpoint::server(config, server, placement, Secret::new(random_bytes()?))
            .map_err(|error| format!("--suite {}: {error}", self.suite))
    }
}

/// A connection that was accepted.
pub(super) struct Connection {
    pub(super) opener: PacketOpener,
    pub(super) window: ReplayWindow,
    pub(super) sealer: PacketSealer,
}

/// Connections on their way from the thread that accepted them to the thread that owns them.
#[derive(Default)]
pub(super) struct Handover {
    /// The owner of the next connection. Each thread gets its turn, so that connections are spread evenly.
    pub(super) next_owner: AtomicU16,
    waiting: Mutex<HashMap<ConnectionId, Connection>>,
}

impl Handover {
    pub(super) fn waiting(&self) -> MutexGuard<'_, HashMap<ConnectionId, Connection>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the parameters of a connection that does not end for silence during a run.
pub(crate) fn shared_parameters() -> SharedParameters {
    SharedParameters {
        idle_timeout: TIMEOUT,
        unacknowledged_timeout: TIMEOUT,
        ..drumfire_puppet::default_parameters().shared
    }
}

/// Draws a secret from the system.
pub(crate) fn random_bytes() -> Result<[u8; 32], String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| format!("the system has no randomness: {error}"))?;
    Ok(bytes)
}

/// The host's time, as endpoints take it.
pub(crate) fn now() -> Now {
    Now { monotonic: Moment::from_nanos(clock::host_ns()), wall: Duration::ZERO }
}
