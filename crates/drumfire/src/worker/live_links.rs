//! The simulated links between a worker and its socket, one for each direction.
//!
//! Outbound datagrams of the endpoint enter a link, and those that arrive at its end are handed to the socket. Inbound datagrams of
//! the socket enter the other link, and those that arrive are handed to the endpoint. So a link is a part of the network: the endpoint
//! cannot distinguish them. A socket without the setting `conditioner` has no links, which costs one branch for a batch.

use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::{Inbound, Moment, PeerId, Route, Transmit};

use crate::base::entropy::{self, EntropyError};
use crate::base::error::Error;
use crate::conditioner::{Link, LinkConfig};
use crate::config::check_conditioner;
use crate::observe::stats::WorkerStats;
use crate::worker::channel::WorkerChannel;
use crate::worker::command::Command;

/// Creates the links of a socket with this configuration. The seeds come from the system, so that no two sockets lose the same
/// datagrams. A real socket could not repeat a run anyway, because the threads and the kernel decide the times.
pub(crate) fn with_system_seeds(config: Option<&LinkConfig>) -> Result<Option<Box<LiveLinks>>, Error> {
    LiveLinks::new(config, || Ok(u64::from_le_bytes(entropy::bytes()?)))
}

/// The two links of one socket.
pub(crate) struct LiveLinks {
    inbound: Link<Route>,
    outbound: Link<(Route, Option<PeerId>)>,
    /// Whether outbound datagrams are not delayed any more, because the worker ends.
    is_released: bool,
}

impl LiveLinks {
    /// Creates the links with this configuration, each with a seed of its own. Returns `None` without a configuration.
    pub(crate) fn new(
        config: Option<&LinkConfig>,
        mut seed: impl FnMut() -> Result<u64, EntropyError>,
    ) -> Result<Option<Box<Self>>, Error> {
        let Some(config) = config else { return Ok(None) };
        check_conditioner(Some(config))?;
        let (inbound, outbound) = (Link::new(config.clone(), seed()?)?, Link::new(config.clone(), seed()?)?);
        Ok(Some(Box::new(Self { inbound, outbound, is_released: false })))
    }

    /// Replaces the configuration of both links for datagrams that are sent from now on.
    pub(crate) fn set_config(&mut self, config: &LinkConfig) -> Result<(), Error> {
        check_conditioner(Some(config))?;
        self.inbound.set_config(config.clone())?;
        Ok(self.outbound.set_config(config.clone())?)
    }

    /// Sends a datagram of the socket over the inbound link.
    pub(crate) fn push_inbound(&mut self, now: Moment, datagram: &Inbound<'_>) {
        self.inbound.push(since_origin(now), datagram.from, datagram.bytes);
    }

    /// Returns the next datagram for the endpoint that has arrived by now.
    pub(crate) fn pop_inbound(&mut self, now: Moment) -> Option<(Route, Vec<u8>)> {
        self.inbound.poll(since_origin(now))
    }

    /// Sends a datagram of the endpoint over the outbound link.
    pub(crate) fn push_outbound(&mut self, now: Moment, transmit: &Transmit, datagram: &[u8]) {
        self.outbound.push(since_origin(now), (transmit.to, transmit.peer), datagram);
    }

    /// Returns the next datagram for the socket that has arrived by now, with its connection if it has one.
    pub(crate) fn pop_outbound(&mut self, now: Moment) -> Option<(Route, Option<PeerId>, Vec<u8>)> {
        // No delay exceeds this time, so all datagrams of the link have arrived.
        let now = if self.is_released { Duration::MAX } else { since_origin(now) };
        self.outbound.poll(now).map(|((route, peer), bytes)| (route, peer, bytes))
    }

    /// Returns when the next datagram arrives at the end of its link. A socket that `is_blocked` takes no outbound ones.
    pub(crate) fn due(&self, is_blocked: bool) -> Option<Moment> {
        // A blocked socket is reported when it has room. A timer for its datagrams would make the wait a busy loop.
        let outbound = if is_blocked { None } else { self.outbound.next_at() };
        self.inbound.next_at().into_iter().chain(outbound).min().map(|at| Moment::ORIGIN.after(at))
    }

    /// Lets outbound datagrams arrive without delay from now on. A worker that ends cannot wait for its last ones, such as closes.
    pub(crate) fn release(&mut self) {
        self.is_released = true;
    }

    /// Loses the datagrams in flight. They belong to the old address, and a connected socket may have another server now.
    pub(crate) fn on_replaced(&mut self) {
        self.inbound.lose_all();
        self.outbound.lose_all();
    }

    /// Writes the counters into the statistics of the worker.
    pub(crate) fn count(&self, stats: &mut WorkerStats) {
        (stats.inbound_link, stats.outbound_link) = (*self.inbound.counts(), *self.outbound.counts());
    }
}

/// Returns a time as the links count it.
const fn since_origin(now: Moment) -> Duration {
    now.since(Moment::ORIGIN)
}

/// Returns the error of a change to links that do not exist.
pub(crate) fn no_links() -> Error {
    let problem =
        "was not set at the start: set it to `LinkConfig::default()`, a perfect link, to change it later";
    Error::setting("conditioner", problem)
}

/// Commands the workers of these channels to change their links. `has_links` is whether their sockets have any.
pub(crate) fn request_change(
    channels: &[Arc<WorkerChannel>],
    has_links: bool,
    config: &LinkConfig,
) -> Result<(), Error> {
    check_conditioner(Some(config))?;
    // Both checks precede the first command. Either all workers change their links, or none of them does.
    if !has_links {
        return Err(no_links());
    }
    let config = Arc::new(config.clone());
    for channel in channels {
        channel.send_command(Command::Condition(Arc::clone(&config)));
    }
    Ok(())
}
