//! The guide: from a first server to one that many play on. A page for each question, none of which has to be read before
//! another.
//!
//! | page | |
//! | --- | --- |
//! | [`first_server`] | server and client in two terminals, then on two hosts |
//! | [`delivery_modes`] | what each mode keeps, drops and costs, and which is for what |
//! | [`three_ways`] | tick, handler or async: one example in all three |
//! | [`authentication`] | logins, tokens, keys, and who comes in now |
//! | [`deploying`] | firewall, service, buffers, containers, restart and drain |
//! | [`metrics`] | every number that Prometheus can read: name, kind, unit, meaning |
//! | [`fleet`] | Agones, proxies and load balancers: which bytes lead where |
//! | [`tuning`] | workers, waiting, memory and rate; how to read the stats |
//! | [`security`] | what is on, what to set, what is not promised |
//! | [`migrating`] | from ENet, renet and LiteNetLib, name by name |
//!
//! It holds text and no code: it is built for the documentation alone, and its examples run as tests.

#[doc = include_str!("../docs/guide/authentication.md")]
pub mod authentication {}

#[doc = include_str!("../docs/guide/delivery_modes.md")]
pub mod delivery_modes {}

#[doc = include_str!("../docs/guide/deploying.md")]
pub mod deploying {}

#[doc = include_str!("../docs/guide/first_server.md")]
pub mod first_server {}

#[doc = include_str!("../docs/guide/fleet.md")]
pub mod fleet {}

#[doc = include_str!("../docs/guide/metrics.md")]
pub mod metrics {}

#[doc = include_str!("../docs/guide/migrating.md")]
pub mod migrating {}

#[doc = include_str!("../docs/guide/security.md")]
pub mod security {}

#[doc = include_str!("../docs/guide/three_ways.md")]
pub mod three_ways {}

#[doc = include_str!("../docs/guide/tuning.md")]
pub mod tuning {}

/// The program of the README, which runs as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub mod readme {}
