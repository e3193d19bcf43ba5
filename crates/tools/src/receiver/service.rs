//! The settings and secrets of the stages with connections, which all threads of a receiver share.

use std::collections::HashMap;
use std::num::NonZeroU16;
use std::sync::atomic::AtomicU16;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drumfire::worker::{Owners, Ring, WorkerPlacement};
use drumfire_crypto::ReplayWindow;
use drumfire_proto::{
    Config, Endpoint, Moment, Now, Secret, ServerConfig, ServerKeyPair, Shard, SteeringSecret,
};
use drumfire_puppet::{PacketOpener, PacketSealer};
use drumfire_wire::{ConnectionId, SharedParameters};

use super::state::WorkerState;
use crate::choices::{Mode, Suite};
use crate::clock;
use crate::limits::{MAX_FLOWS, MAX_RUN};

/// A connection does not end for silence during a run: a sender without an endpoint acknowledges nothing.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2 * MAX_RUN.as_secs());

/// Handshakes that may be done in a second: all flows of a sender come from one address.
const HANDSHAKES: u32 = 1_000_000;

/// The settings of both ends.
pub(crate) fn config(suite: Suite) -> Config {
    suite.config().timeouts(TIMEOUT, TIMEOUT)
}

/// The settings and secrets that the stages with connections share on all threads.
#[derive(Clone, Debug)]
pub(super) struct Service {
    pub(super) suite: Suite,
    pub(super) mode: Mode,
    keys: Arc<[u8; 32]>,
    pub(super) persistent: Arc<[u8; 32]>,
    process_key: Arc<[u8; 32]>,
    /// The owner of each connection, if tags steer. Otherwise each thread keeps the connections that the kernel's hash assigns
    /// to it.
    pub(super) shared: Option<SharedIds>,
}

/// The parts of a service by which connection ids name their thread.
#[derive(Clone, Debug)]
pub(super) struct SharedIds {
    owners: Arc<Owners>,
    pub(super) handover: Arc<Handover>,
    pub(super) steering: SteeringSecret,
    pub(super) threads: NonZeroU16,
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
            keys: random_bytes()?.into(),
            persistent: random_bytes()?.into(),
            process_key: random_bytes()?.into(),
            shared: steering.map(|(steering, threads)| SharedIds {
                owners: Owners::new(threads.get(), MAX_FLOWS),
                handover: Arc::new(Handover::default()),
                steering,
                threads,
            }),
        })
    }

    /// The public key by which a sender authenticates this receiver.
    pub(super) fn public_key(&self) -> [u8; 32] {
        *self.pair().public()
    }

    pub(super) fn pair(&self) -> ServerKeyPair {
        ServerKeyPair::from_secret(Secret::new(*self.keys))
    }

    pub(super) fn endpoint(&self, index: u16) -> Result<Endpoint<WorkerPlacement>, String> {
        let mut config = config(self.suite).connections(MAX_FLOWS);
        // A sender as fast as it can, not a game's client.
        config.pass_share_datagrams = u16::MAX;
        let (shard, placement) = match &self.shared {
            Some(SharedIds { owners, steering, threads, .. }) => {
                (Shard { index, count: *threads, steering: *steering }, owners.of_worker(index))
            }
            None => (Shard::ONLY, Owners::new(1, MAX_FLOWS).of_worker(0)),
        };
        let mut server =
            ServerConfig::new(self.pair(), Secret::new(*self.persistent), Secret::new(*self.process_key))
                .shard(shard);
        server.half_open = MAX_FLOWS;
        server.half_open_per_source = u16::MAX;
        server.handshakes_per_second = HANDSHAKES;
        server.source_handshakes_per_second = HANDSHAKES;
        Endpoint::server(config, server, placement, Secret::new(random_bytes()?))
            .map_err(|error| format!("--suite {}: {error}", self.suite))
    }
}

/// The parts from which a stage with connections is made on one thread.
pub(super) struct StagePart {
    pub(super) service: Service,
    pub(super) index: u16,
    pub(super) ring: Ring<WorkerState>,
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

impl std::fmt::Debug for Handover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handover").finish_non_exhaustive()
    }
}

/// Returns the parameters of a connection that does not end for silence during a run.
pub(crate) fn shared_parameters() -> SharedParameters {
    SharedParameters {
        silent_timeout: TIMEOUT,
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
