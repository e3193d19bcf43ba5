//! The threads that run the workers of a server.
//!
//! [`plan`] decides which thread runs which worker.

pub(crate) mod plan;
pub(crate) mod pool;
pub(super) mod shard;
#[cfg(test)]
mod tests;
mod thread;
