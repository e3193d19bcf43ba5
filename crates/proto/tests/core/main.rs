//! The core as its shell sees it: two endpoints, a seeded network, and a clock that jumps to the next timeout.
//!
//! No test sleeps or reads a clock.

#![expect(
    clippy::cast_possible_truncation,
    reason = "small numbers of a test, cut on purpose where they are cut"
)]

mod conformance;
mod connection;
mod counted;
mod delivery;
mod handshake;
mod harness;
mod hostile;
mod malformed;
mod many_connections;
mod puppet;
mod puppet_halves;
