//! The worker: one socket, one endpoint, and one loop.
//!
//! The module is hidden from the documentation and makes no promise of stability, because only the simulator drives it from outside.
//!
//! A pass is `Worker::wait` and then `Worker::work`:
//!
//! 1. Read the clocks once.
//! 2. Drain the socket in batches, and open the packets in place.
//! 3. Take datagrams that other workers forwarded.
//! 4. Handle expired timers.
//! 5. Carry out the commands of the application.
//! 6. Send datagrams, and deliver the events in one batch with one wake-up. A handler receives its events before the flush, so that its
//!    replies are sent with it.
//!
//! Three traits separate the worker from its environment: `WorkerSocket` for a socket or a simulation, `Clock`, and `Sink` for the
//! application.

pub(crate) mod actions;
pub(crate) mod arena;
pub(crate) mod channel;
pub(crate) mod client_sockets;
mod closing;
pub(crate) mod command;
pub(crate) mod core;
mod datagram;
pub(crate) mod direct;
mod events;
mod fan_out;
pub(crate) mod forward;
mod groups;
mod kernel_drops;
pub(crate) mod live_links;
mod network_watch;
pub(crate) mod pass;
pub(crate) mod peers;
pub(crate) mod queue;
pub(crate) mod receipts;
mod receive_backoff;
pub(crate) mod reconnect;
pub(crate) mod send_edge;
mod send_faults;
pub(crate) mod sessions;
pub(crate) mod shutdown;
pub(crate) mod sink;
mod survey;
#[cfg(test)]
mod tests;
pub(crate) mod transport;
pub(crate) mod worker_socket;

pub use crate::admission::registry::{ConnectionRegistry, RegistryView};
pub use crate::base::wake::Wake;
pub use datagram::{inbound, push};
pub use forward::{ForwardQueue, forward_queues};
