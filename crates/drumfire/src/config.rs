//! What a server and a client are told when they are made: checked once, named when it cannot be used, never
//! changed silently.
//!
//! Each file here has one subject: the settings of a server, those of a client, and what is wrong with them.

pub(crate) mod client;
pub(crate) mod server;
#[cfg(test)]
mod tests;
#[cfg(feature = "serde")]
mod text;
pub(crate) mod threads;

use std::time::Duration;

use drumfire_proto::Config;

use crate::base::error::Error;

/// Bytes of the largest datagram where no path can be asked what it carries.
pub(crate) const DATAGRAM_START_BYTES: u16 = 1_200;

/// Bytes of the smallest receive buffer that may be asked for: one full datagram, as the kernel accounts for it.
const BUFFER_MIN_BYTES: usize = 4_096;

/// Bytes of the largest one: the system takes no larger number.
const BUFFER_MAX_BYTES: usize = 1 << 30;

/// Refuses a receive buffer that nobody can mean.
fn check_receive_buffer(bytes: Option<usize>) -> Result<(), Error> {
    if (BUFFER_MIN_BYTES..=BUFFER_MAX_BYTES).contains(&bytes.unwrap_or(BUFFER_MIN_BYTES)) {
        return Ok(());
    }
    let problem = "must be 4096 to 1073741824; leave it out for what the system gives";
    Err(Error::setting("receive_buffer_bytes", problem))
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
    // All peers together may hold what the core's default allows, or twice what one of them may.
    config.event_memory_bytes = config.event_memory_bytes.max(receive.saturating_mul(2));
    config
}
