//! Simulated links. A [`Link`] is one direction of a network path: it loses, delays, duplicates, reorders, and
//! corrupts datagrams, and counts what it did.
//!
//! It has no socket and reads no clock. The caller passes datagrams and times, and takes out datagrams and the time of the next one. The
//! same seed, configuration, and inputs give the same outputs.
//!
//! ```
//! use std::time::Duration;
//!
//! use drumfire_socket::conditioner::{Link, LinkConfig, Loss};
//!
//! let mut link = Link::new(LinkConfig::default().loss(Loss::Random(0.25)), 7)?;
//! for number in 0..1_000 {
//!     link.push(Duration::ZERO, number, b"input");
//! }
//! while link.poll(Duration::ZERO).is_some() {}
//! let counts = link.counts();
//! assert_eq!(counts.pushed, counts.delivered + counts.lost);
//! # Ok::<(), drumfire_socket::ConfigError>(())
//! ```

mod config;
mod link;
mod presets;
mod random;
#[cfg(feature = "serde")]
mod text;

pub use config::{Delay, LinkConfig, Loss, Rate};
pub use link::{Link, LinkCounts};
pub use random::Random;

#[cfg(test)]
mod tests;
