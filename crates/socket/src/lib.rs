//! UDP sockets for game servers.
//!
//! A server opens a group of `SO_REUSEPORT` sockets on one port. A tag inside each datagram selects the socket. Each
//! socket is read and written in batches, and its thread waits in the cheapest way for the current traffic.
//!
//! This crate moves datagrams and counts what happens to each of them. It does not know connections, keys, or packet
//! formats, and it reads no clock. Nothing depends on the content of a datagram except the steering tag.
//!
//! A *train* is a run of datagrams between the same two addresses that the kernel handles as one message. It uses UDP GSO
//! when sending, and UDP GRO when receiving. All datagrams of a train have the same length, except the last one, which
//! may be shorter.
//!
//! # The parts
//!
//! | part | purpose |
//! | --- | --- |
//! | [`ReuseportGroup`] | N sockets bound in order to one address, with an optional [`SteeringFilter`] |
//! | [`Socket`] | a socket of a group, or the connected socket of a client; implements [`Io`] |
//! | [`Receiver`] | drains a socket in batches until it would block or a budget is spent, and counts datagrams and drops |
//! | [`Sender`] | sends a [`SendBatch`] one by one, by `sendmmsg`, or as trains, and falls back when trains are refused |
//! | [`Waiter`] | waits by notification, by gathering, or by spinning, through the [`Parker`] contract |
//! | [`MultiPoller`] | waits for the pollers of all sockets that one thread serves |
//! | [`PortWatch`] | finds other sockets on the group's port |
//! | [`conditioner`] | simulates links, without a socket and without a clock |
//! | [`DropMeter`] | reads how many datagrams the kernel dropped at a socket (`SO_MEMINFO`) |
//!
//! # Order of calls
//!
//! One thread owns a socket and repeats these steps:
//!
//! 1. Wait with [`Waiter::wait`], and read the clock once.
//! 2. Receive with [`Receiver::drain`].
//! 3. Report the number of datagrams to [`Waiter::on_pass`].
//! 4. Do its own work.
//! 5. Send with [`Sender::flush`].
//!
//! If [`DrainEnd::is_more_waiting`] returns `true`, the socket may still hold datagrams, and the next wait must not block:
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
//! Linux has every feature. Other systems, and Linux with the feature `portable`, have one socket with plain receive and
//! send calls, whose thread waits by notification. A setting that needs a missing feature is refused with its name, and
//! never replaced silently.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod batch;
pub mod conditioner;
mod counts;
mod drain;
#[cfg(feature = "serde")]
pub mod duration_text;
mod error;
mod grants;
mod group;
mod poller;
mod send;
mod send_batch;
mod socket;
mod steering;
mod sys;
mod wait;

pub use batch::{Datagram, DatagramMut, GroBatch, Received, ReceivedMut, RecvBatch, Segments};
pub use counts::{DropReason, FaultCounts, ReceiveCounts, SendCounts};
pub use drain::{Drain, DrainEnd, Gro, Receiver, ReceiverConfig};
pub use error::{ConfigError, Fault, RecvAction, SendAction, recv_action, send_action};
pub use grants::SocketGrants;
pub use group::{GroupConfig, PortWatch, ReuseportGroup};
pub use poller::{MultiPoller, Poller, Waker};
pub use send::{FlushEnd, LostDatagram, Sender};
pub use send_batch::{Outgoing, SendBatch, SendMode};
pub use socket::{DropCounter, DropMeter, Io, QueueState, Socket, SocketBacklog};
pub use steering::{Instruction, SteeringFilter};
pub use sys::LocalAddress;
pub use wait::{Parker, Ready, Wait, WaitEnd, Waiter, monotonic_time, thread_cpu_time};
