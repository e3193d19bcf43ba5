//! Types of settings, and limits.
//!
//! [`ServerConfig`](crate::ServerConfig) and [`ClientConfig`](crate::ClientConfig) are checked once, when a server or client is
//! created. A setting that cannot be used is an error that names it. No setting is changed silently.

/// Implements the methods of the settings that servers and clients have in common.
macro_rules! common_settings {
    ($config:ty) => {
        setters! {
            $config:
            /// Sets the id of the game and its build, which must be the same at both ends.
            protocol_id(protocol_id: u64) = protocol_id;

            /// Sets the largest number of connections at the same time.
            connections(connections: u32) = connections;

            /// Sets the largest number of bytes in flight of a connection.
            in_flight_bytes(bytes: usize) = bytes;

            /// Sets the congestion controller.
            congestion(congestion: Congestion) = congestion;

            /// Sets the length of the longest reliable message, in bytes.
            message_max_bytes(bytes: usize) = Some(bytes);

            /// Sets the receive buffer that each socket requests, in bytes.
            receive_buffer_bytes(bytes: usize) = Some(bytes);

            /// Sets whether busy connections keep a flight record.
            flight_recorder(is_on: bool) = is_on;

            /// Sets the simulated links of each socket: see [`conditioner`](crate::conditioner).
            conditioner(link: crate::conditioner::LinkConfig) = Some(link);
        }

        impl $config {
            /// Sets the memory of each connection for sending and for receiving, in bytes.
            #[must_use]
            pub fn memory_bytes(mut self, send: usize, receive: usize) -> Self {
                self.send_memory_bytes = send;
                self.receive_memory_bytes = receive;
                self
            }

            /// Sets the idle timeout and the timeout for an unacknowledged packet, 1 s to 49 days each.
            #[must_use]
            pub fn timeouts(mut self, idle: Duration, unacknowledged: Duration) -> Self {
                self.idle_timeout = idle;
                self.unacknowledged_timeout = unacknowledged;
                self
            }

            /// Returns the configuration of the core with these settings, for this number of connections.
            fn shared_core(&self, connections: u32) -> Config {
                // `memory_bytes` lowers the default of the longest message to a quarter of the smaller memory.
                let mut config = Config::default()
                    .protocol_id(self.protocol_id)
                    .connections(connections)
                    .memory_bytes(self.send_memory_bytes, self.receive_memory_bytes)
                    .timeouts(self.idle_timeout, self.unacknowledged_timeout)
                    .in_flight_bytes(self.in_flight_bytes)
                    .congestion(self.congestion)
                    .flight_recorder(self.flight_recorder);
                config.message_max_bytes = self.message_max_bytes.unwrap_or(config.message_max_bytes);
                // All peers together can hold the default of the core, or twice the limit of one peer if that is more.
                let peer_bytes = self.receive_memory_bytes.saturating_mul(2);
                config.event_memory_bytes = config.event_memory_bytes.max(peer_bytes);
                config
            }
        }
    };
}

pub(crate) mod client;
pub(crate) mod connect;
pub(crate) mod server;
#[cfg(test)]
mod tests;
#[cfg(feature = "serde")]
pub(crate) mod text;
pub(crate) mod threads;

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
    let problem = "must be 4096 to 1073741824; leave it out for the default";
    Err(Error::setting("receive_buffer_bytes", problem))
}

/// Checks the configuration of simulated links.
pub(crate) fn check_conditioner(conditioner: Option<&crate::conditioner::LinkConfig>) -> Result<(), Error> {
    let checked = conditioner.map_or(Ok(()), crate::conditioner::LinkConfig::check);
    checked.map_err(|error| Error::setting("conditioner", error.to_string()))
}
