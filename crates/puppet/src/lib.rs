//! Ends of a connection that a test controls. Each performs the handshake and seals its own frames, from the wire format and the ciphers
//! alone. So it can break every rule that the core keeps.
//!
//! - [`Handshake`] performs a client's part of the handshake, [`accept_hello`] a server's. Both lead to a [`Connection`], which owns
//!   no socket and no clock.
//! - [`Connector`] performs a whole handshake. [`PacketSealer`] and [`PacketOpener`] are the halves of the connection after it:
//!   tools and benches use them where an endpoint's own work must not be measured.
//! - [`Swarm`] and [`Sender`] draw hostile traffic from a seed: frames, their fields, their order, and their packing.
//! - [`HelloFlood`] draws hostile Hellos.
//! - [`HostileEnd`] is a whole client or server that breaks the rules in one way.
//!
//! The tests that use this crate judge the other end.
#![forbid(unsafe_code)]

mod connection;
mod flood;
mod frame;
mod handshake;
mod hostile;
mod random;
mod sender;
mod state;
mod swarm;

pub use connection::{Connection, OpenedPacket, PacketOpener, PacketSealer};
pub use flood::{DrawnHello, HelloFlood};
pub use frame::{DrawnFrame, encoded};
pub use handshake::{Connector, Handshake, HelloError, accept_hello, default_parameters, server_parameters};
pub use hostile::HostileEnd;
pub use random::Random;
pub use sender::Sender;
pub use swarm::Swarm;
