//! Simulated links. A [`Link`] is one direction of a network path: it loses, delays, duplicates, reorders, and corrupts datagrams, and
//! counts what it did.
//!
//! It has no socket and reads no clock. The caller passes datagrams and times, and takes out datagrams and the time of the next one. The
//! same seed, configuration, and inputs give the same outputs.
//!
//! ```
//! use drumfire::conditioner::{Link, LinkConfig, Loss, Moment};
//!
//! let mut link = Link::new(LinkConfig::default().loss(Loss::Even(0.25)), 7)?;
//! let (from, to) = ("192.0.2.1:1".parse()?, "192.0.2.2:2".parse()?);
//! for _ in 0..1_000 {
//!     link.push(Moment::ORIGIN, from, to, b"input");
//! }
//! while link.poll(Moment::ORIGIN).is_some() {}
//! let counts = link.counts();
//! assert_eq!(counts.pushed, counts.delivered + counts.lost);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod config;
mod pipe;
mod presets;
mod random;

use std::net::SocketAddr;

pub use config::{Delay, LinkConfig, LinkConfigError, Loss, Rate};
pub use drumfire_proto::Moment;
pub use pipe::LinkCounts;
pub(crate) use pipe::Pipe;
pub use random::Random;

/// One direction of a simulated path.
#[derive(Debug)]
pub struct Link {
    pipe: Pipe<(SocketAddr, SocketAddr)>,
    source: Option<SocketAddr>,
}

/// A datagram that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The source address, which [`Link::rebind`] can replace.
    pub from: SocketAddr,
    /// The destination address.
    pub to: SocketAddr,
    /// The UDP payload.
    pub bytes: Vec<u8>,
}

impl Link {
    /// Makes an empty link.
    ///
    /// # Errors
    ///
    /// The first field of the configuration that is out of range.
    pub fn new(config: LinkConfig, seed: u64) -> Result<Self, LinkConfigError> {
        Ok(Self { pipe: Pipe::new(config, seed)?, source: None })
    }

    /// Replaces the configuration for datagrams that are sent from now on.
    ///
    /// # Errors
    ///
    /// The first field that is out of range. The link keeps its configuration.
    pub fn set_config(&mut self, config: LinkConfig) -> Result<(), LinkConfigError> {
        self.pipe.set_config(config)
    }

    /// Returns the configuration.
    #[must_use]
    pub const fn config(&self) -> &LinkConfig {
        self.pipe.config()
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counts(&self) -> &LinkCounts {
        self.pipe.counts()
    }

    /// Returns the number of datagrams in flight.
    #[must_use]
    pub fn flying_count(&self) -> usize {
        self.pipe.flying_count()
    }

    /// Replaces the source address of datagrams that are sent from now on, as a NAT does after it lost a mapping. `None` restores the
    /// real address. Datagrams in flight keep their address.
    pub fn rebind(&mut self, source: Option<SocketAddr>) {
        self.source = source;
    }

    /// Sends a datagram.
    pub fn push(&mut self, now: Moment, from: SocketAddr, to: SocketAddr, datagram: &[u8]) {
        self.pipe.push(now, (self.source.unwrap_or(from), to), datagram);
    }

    /// Takes out the next datagram that has arrived by now.
    pub fn poll(&mut self, now: Moment) -> Option<Datagram> {
        self.pipe.poll(now).map(|((from, to), bytes)| Datagram { from, to, bytes })
    }

    /// Returns when the next datagram arrives, or `None` if none is in flight.
    #[must_use]
    pub fn next_at(&self) -> Option<Moment> {
        self.pipe.next_at()
    }
}

#[cfg(test)]
mod tests;
