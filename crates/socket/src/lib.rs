//! UDP sockets for game servers: a group of `SO_REUSEPORT` sockets on one port, drained in batches, written in
//! batches, steered by a tag inside the datagram, and waited for in the cheapest way the traffic allows.
//!
//! This crate moves datagrams and counts what happened to each. It knows no connection, no key and no packet
//! format, reads no clock and makes no decision that depends on what a datagram says.
//!
//! # The parts
//!
//! | part | what it is |
//! | --- | --- |
//! | [`ReuseportGroup`] | N sockets bound in order to one address, with an optional [`SteeringFilter`] |
//! | [`Socket`] | one of them, or a client's own; keeps the [`Io`] contract |
//! | [`Receiver`] | drains a socket in batches until it would block or a budget is spent, and counts by name |
//! | [`Sender`] | writes a [`SendBatch`] one by one, by `sendmmsg` or as GSO trains, with sticky fall-back |
//! | [`Waiter`] | waits by notification, by gathering or by spinning, through the [`Parker`] contract |
//! | [`Hub`] | one wait for the pollers of several sockets that one thread serves |
//! | [`PortWatch`] | who else has sockets on the group's port |
//! | [`DropMeter`] | what the kernel dropped in front of a socket, exactly, as `SO_MEMINFO` counts it |
//!
//! # Order of calls
//!
//! One thread owns a socket. It loops: [`Waiter::wait`]; read the clock once; [`Receiver::drain`];
//! [`Waiter::on_pass`] with what arrived; its own work; [`Sender::flush`]. Where
//! [`DrainEnd::is_more_waiting`] says so, the socket may still hold datagrams and the next wait must not block:
//! mio is edge-triggered and would not report them again.
//!
//! ```
//! use drumfire_socket::{DrainEnd, GroupConfig, Parker, Poller, Receiver, ReceiverConfig, ReuseportGroup};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let group = ReuseportGroup::bind(&GroupConfig::new("127.0.0.1:0".parse()?))?;
//! let address = group.local_addr();
//! let mut socket = group.into_sockets().remove(0);
//! let mut receiver = Receiver::new(&mut socket, &ReceiverConfig::default())?;
//! let mut poller = Poller::new()?;
//! poller.register(&mut socket, 0)?;
//!
//! std::net::UdpSocket::bind("127.0.0.1:0")?.send_to(b"hello", address)?;
//!
//! poller.poll(None)?;
//! let mut seen = Vec::new();
//! let end = receiver.drain(&mut socket, 1_024, |received| {
//!     for datagram in received.datagrams() {
//!         seen.push(datagram.bytes.to_vec());
//!     }
//! });
//! assert_eq!(end, DrainEnd::Blocked);
//! assert_eq!(seen, [b"hello"]);
//! # Ok(())
//! # }
//! ```
//!
//! # Platforms
//!
//! Linux is first class. Elsewhere, and on Linux with the feature `portable`, one socket is read and written
//! with plain calls and waited for by notification; what is not available is refused at set-up by name, never
//! replaced silently.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod batch;
mod config_error;
mod cpu;
mod drain;
mod drops;
mod fault;
mod group;
mod hub;
mod io;
mod local;
mod poller;
mod send;
mod send_batch;
mod socket;
mod steering;
mod sys;
#[cfg(feature = "serde")]
mod text;
mod train;
mod wait;
mod watch;

pub use batch::{Datagram, DatagramMut, Received, ReceivedMut, RecvBatch};
pub use config_error::ConfigError;
pub use cpu::thread_cpu_time;
pub use drain::{Drain, DrainEnd, DropReason, Gro, ReceiveCounts, Receiver, ReceiverConfig};
pub use drops::{DropCounter, DropMeter, QueueState};
pub use fault::{Fault, FaultCounts, RecvAction, SendAction, recv_action, send_action};
pub use group::{GroupConfig, ReuseportGroup};
pub use hub::Hub;
pub use io::{Backlog, Io, Parker, Ready};
pub use local::LocalAddress;
pub use poller::{Poller, Waker};
pub use send::{FlushEnd, LostDatagram, SendCounts, Sender};
pub use send_batch::{Outgoing, SendBatch, SendMode};
pub use socket::{Granted, Socket};
pub use steering::{Instruction, SteeringFilter};
pub use train::{Segments, Train};
pub use wait::{Wait, Waiter, Woken};
pub use watch::PortWatch;
