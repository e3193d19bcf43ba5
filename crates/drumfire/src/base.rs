//! Clocks, randomness, set-up errors, and synchronization. The folders above build on them.

pub(crate) mod address;
pub(crate) mod clock;
pub(crate) mod entropy;
pub(crate) mod error;
pub(crate) mod peer_map;
pub(crate) mod setters;
pub(crate) mod sync;
pub(crate) mod wake;
