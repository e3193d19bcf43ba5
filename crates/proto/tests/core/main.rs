//! The core as its shell sees it: two endpoints, a seeded network, and a clock that jumps to the next timeout.
//!
//! No test sleeps or reads a clock.

#![expect(
    clippy::cast_possible_truncation,
    reason = "small numbers of a test, cut on purpose where they are cut"
)]

mod admission;
mod attacks;
mod closing;
mod conformance;
mod cookies;
mod copies;
mod counted;
mod crowd;
mod delivery;
mod door_addresses;
mod door_empties;
mod door_floods;
mod door_forgeries;
mod door_hellos;
mod door_limits;
mod door_slow;
mod door_sources;
mod door_spoilt;
mod fragments;
mod full;
mod handshake;
mod harness;
mod hostile;
mod limits;
mod malformed;
mod modes;
mod paths;
mod peer_acks;
mod peer_batches;
mod peer_clocks;
mod peer_crowd;
mod peer_ids;
mod peer_rekeys;
mod peer_reordering;
mod peer_replays;
mod puppet;
mod puppet_halves;
mod rates;
mod recorder;
mod recovery;
mod rekey;
mod shards;
mod stats;
mod strategies;
mod terms;
mod timeouts;
mod tokens;
mod unsent;
