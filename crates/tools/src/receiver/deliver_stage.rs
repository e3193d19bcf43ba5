//! The stage `deliver` on one receiver thread: the endpoint that serves games parses, opens, acknowledges, and delivers.
//!
//! Each message holds a raw datagram, so that flows are followed as in the stages without connections. The stage owns no
//! socket and waits for nothing.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use drumfire::worker::{self, Owners, Ring, WorkerPlacement};
use drumfire_proto::limits::DATAGRAM_SENT_MAX_BYTES;
use drumfire_proto::{
    Config, DropReason, Endpoint, Event, Moment, Now, Secret, ServerConfig, ServerKeyPair, Shard, Stats,
    SteeringSecret,
};
use drumfire_socket::{DatagramMut, Io, SendBatch, SendMode, Sender};

use super::group::{Session, WorkerState};
use super::open_stage::Handover;
use super::promise::{Delivery, OF_ITS_OWNER, Promise};
use super::stages::{StageTotals, ThreadBook};
use crate::choices::{Mode, Suite};
use crate::clock;
use crate::limits::{MAX_FLOWS, MAX_RUN};
use crate::table::thousands;

/// Datagrams written together.
const BATCH: usize = 64;

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
    mode: Mode,
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

    fn endpoint(&self, index: u16) -> Result<Endpoint<WorkerPlacement>, String> {
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

/// The stage of one thread.
pub(super) struct DeliverStage {
    mode: Mode,
    /// Whether messages are delivered as promised, in the modes that have some.
    promise: Option<Promise>,
    endpoint: Endpoint<WorkerPlacement>,
    ring: Ring<WorkerState>,
    pub(super) book: ThreadBook,
    /// The statistics of the endpoint when the session began.
    before: Stats,
    batch: SendBatch,
    sender: Sender,
    scratch: Box<[u8]>,
    forwarded_in: u64,
}

impl DeliverStage {
    pub(super) fn new(part: StagePart, has_gso: bool) -> Result<Self, String> {
        let StagePart { service, index, ring } = part;
        let endpoint = service.endpoint(index)?;
        Ok(Self {
            mode: service.mode,
            promise: None,
            before: *endpoint.stats(),
            endpoint,
            ring,
            book: ThreadBook::new(),
            batch: SendBatch::new(BATCH, BATCH * DATAGRAM_SENT_MAX_BYTES),
            sender: Sender::new(SendMode::best(has_gso)),
            scratch: vec![0; DATAGRAM_SENT_MAX_BYTES].into(),
            forwarded_in: 0,
        })
    }

    /// Begins a session. Earlier datagrams are not counted in it.
    pub(super) fn begin(&mut self, session: &Session) {
        self.before = *self.endpoint.stats();
        self.book.begin(session);
        self.promise = self.mode.has_messages().then(|| Promise::new(self.mode, session.ids.len()));
    }

    /// The time until the stage has to run again without a datagram.
    pub(super) fn due_in(&mut self) -> Option<Duration> {
        self.endpoint.poll_timeout().map(|due| due.since(now().monotonic))
    }

    /// Takes datagrams.
    pub(super) fn take<'a>(&mut self, datagrams: impl Iterator<Item = DatagramMut<'a>>) {
        let mut handled_ns = 0;
        let Self { endpoint, book, promise, .. } = self;
        endpoint.handle_datagrams(now(), datagrams.map(worker::inbound));
        while let Some(event) = endpoint.poll_event() {
            if let Event::Message { bytes, .. } = event {
                if let Some((header, promise)) = book.enter(bytes).zip(promise.as_mut()) {
                    promise.on_message(&header);
                }
                book.sample_latency(bytes, 1, &mut handled_ns);
            }
        }
    }

    /// Handles timeouts and sends everything that is ready.
    pub(super) fn finish_pass<I: Io>(&mut self, io: &mut I) {
        let now = now();
        self.forwarded_in += self.ring.receive(&mut self.endpoint, now);
        if self.endpoint.poll_timeout().is_some_and(|due| due <= now.monotonic) {
            self.endpoint.handle_timeout(now);
        }
        loop {
            while self.batch.len() < BATCH
                && let Some(transmit) = self.endpoint.poll_transmit(now, &mut self.scratch)
            {
                // The batch has room for `BATCH` datagrams of the largest size.
                let datagram = self.scratch.get(..transmit.bytes).unwrap_or_default();
                let _ = worker::push(&mut self.batch, transmit.to, datagram);
            }
            if self.batch.is_empty() {
                break;
            }
            self.sender.flush(io, &mut self.batch, |_| {});
            // A full socket counts as loss in the network, from which the endpoint recovers.
            self.batch.clear();
        }
        // A Hello for which there is no room in its ring is repeated by its client.
        self.ring.send(&mut self.endpoint);
    }

    pub(super) fn into_totals(self) -> StageTotals {
        let stats = *self.endpoint.stats();
        let is_strangers = |reason: &&DropReason| self.promise.is_none() || !OF_ITS_OWNER.contains(reason);
        let drops = DropReason::ALL
            .iter()
            .filter(is_strangers)
            .map(|reason| (reason.name().to_owned(), stats.dropped(*reason) - self.before.dropped(*reason)));
        let drops: BTreeMap<String, u64> = drops.filter(|(_, count)| *count > 0).collect();
        let mut totals = self.book.into_totals(true);
        totals.delivery =
            self.promise.map(|promise| Delivery::between(&self.before, &stats, self.mode, promise));
        for (name, count) in drops {
            *totals.strays.entry(name).or_default() += count;
        }
        totals.notes.push(format!(
            "{} connections, {} acks sent alone, {} datagrams from other threads",
            thousands(self.endpoint.connection_count() as u64),
            thousands(stats.acks_sent_alone),
            thousands(self.forwarded_in),
        ));
        totals
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
