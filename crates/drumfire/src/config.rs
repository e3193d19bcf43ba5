//! Types of settings, and limits.
//!
//! [`ServerConfig`](crate::ServerConfig) and [`ClientConfig`](crate::ClientConfig) are checked once, when a server or client is
//! created. A setting that cannot be used is an error that names it. No setting is changed silently.

pub(crate) mod client;
pub(crate) mod connect;
pub(crate) mod server;
#[cfg(test)]
mod tests;
#[cfg(feature = "serde")]
mod text;
pub(crate) mod threads;

use std::time::Duration;

use drumfire_proto::Config;
pub use drumfire_proto::limits::MESSAGE_MAX_BYTES;
pub use drumfire_proto::{Congestion, Cookie};
pub use drumfire_socket::Wait;

use crate::base::error::Error;

pub use crate::message::group::GROUPS_PER_PEER_MAX;

/// The longest text of a close in bytes. Longer texts are cut.
pub const CLOSE_TEXT_MAX_BYTES: usize = 128;

/// The longest hello in bytes: see [`ConnectOptions::hello`](crate::ConnectOptions::hello).
pub const HELLO_MAX_BYTES: usize = 256;

/// The largest number of notes that wait for the handler of one worker.
pub const NOTES_MAX: usize = 16_384;

/// The largest datagram in bytes where the MTU of a path cannot be discovered.
pub(crate) const DATAGRAM_START_BYTES: u16 = 1_200;

/// The smallest receive buffer that can be requested, in bytes: one full datagram, as the kernel accounts for it.
const BUFFER_MIN_BYTES: usize = 4_096;

/// The largest receive buffer that can be requested, in bytes. The system accepts no larger number.
const BUFFER_MAX_BYTES: usize = 1 << 30;

/// The receive buffer in bytes of a server's socket if the settings contain no size. It is also the upper limit of the buffer that a
/// client's socket gets in this case.
///
/// Linux grants twice this size, which has room for about 10,000 short datagrams: 10 ms at a million datagrams per second. The
/// default of the system has room for 277, so a flood fills it while the thread waits for a core.
pub(crate) const RECEIVE_BUFFER_LEAST_BYTES: usize = 4 << 20;

/// Checks the size of a receive buffer.
fn check_receive_buffer(bytes: Option<usize>) -> Result<(), Error> {
    if (BUFFER_MIN_BYTES..=BUFFER_MAX_BYTES).contains(&bytes.unwrap_or(BUFFER_MIN_BYTES)) {
        return Ok(());
    }
    let problem = "must be 4096 to 1073741824; leave it out for what the system gives";
    Err(Error::setting("receive_buffer_bytes", problem))
}

/// Checks the configuration of simulated links.
#[cfg(feature = "conditioner")]
fn check_conditioner(conditioner: Option<&crate::conditioner::LinkConfig>) -> Result<(), Error> {
    Ok(conditioner.map_or(Ok(()), crate::conditioner::LinkConfig::check)?)
}

pub(crate) fn core(
    protocol_id: u64,
    connections: u32,
    (send, receive, message_max): (usize, usize, usize),
    (silent, unacknowledged): (Duration, Duration),
) -> Config {
    let mut config = Config::default()
        .protocol_id(protocol_id)
        .connections(connections)
        .memory_bytes(send, receive)
        .message_max_bytes(message_max)
        .timeouts(silent, unacknowledged);
    // All peers together can hold the default of the core, or twice the limit of one peer if that is more.
    config.event_memory_bytes = config.event_memory_bytes.max(receive.saturating_mul(2));
    config
}
