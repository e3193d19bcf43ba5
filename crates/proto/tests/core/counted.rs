//! The memory of a puppet's server, as counted by the allocator, and its limits.

use crate::harness::{CLIENT, SERVER, address};
use crate::puppet::Puppet;
use allocation_counter::measure;
use drumfire_proto::{Endpoint, Inbound, Now};
use std::time::Duration;

/// The memory of a busy connection besides messages: expanded keys, the estimates of its path, the flight recorder,
/// and the packets in flight. It is released after the handshake.
pub(crate) const BUSY_BYTES: i64 = 13 * 1_024 + 512;

/// [`MEMORY_BYTES`](crate::harness::MEMORY_BYTES), as a number of the allocator.
pub(crate) const COUNTED_MEMORY_BYTES: i64 = 256 * 1_024;

/// The memory of a connection for receiving, plus a tenth for its tables.
pub(crate) const RECEIVE_BYTES: i64 = COUNTED_MEMORY_BYTES * 11 / 10 + BUSY_BYTES;

/// The same for a connection that also sends.
pub(crate) const BOTH_BYTES: i64 = 2 * COUNTED_MEMORY_BYTES * 11 / 10 + BUSY_BYTES;

impl Puppet {
    /// Passes a datagram to the server a millisecond later, calls `also`, and lets the server send. The application
    /// reads nothing. Returns the growth of the server's memory.
    pub(crate) fn deliver_counted(
        &mut self,
        datagram: &mut [u8],
        also: impl FnOnce(&mut Endpoint, Now),
    ) -> i64 {
        self.world.now = self.world.now.after(Duration::from_millis(1));
        let (now, mut memory) = (self.world.now(), [0; 1_472]);
        let server = &mut self.world.ends[SERVER];
        let counted = measure(|| {
            server.handle_datagrams(now, [Inbound { from: address(CLIENT).into(), bytes: datagram }]);
            server.handle_timeout(now);
            also(server, now);
            while server.poll_transmit(now, &mut memory).is_some() {}
        });
        counted.bytes_current
    }
}
