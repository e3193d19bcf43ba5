//! What a puppet's server holds, as the allocator counts it, and how much that may be.

use crate::harness::{CLIENT, SERVER, address};
use crate::puppet::Puppet;
use allocation_counter::measure;
use drumfire_proto::{Endpoint, Inbound, Now};
use std::time::Duration;

/// What a connection that becomes busy takes beside messages: expanded keys, the books of its path, the flight recorder, and
/// the books of what is under way, which it has given back after the handshake.
pub(crate) const BUSY_BYTES: i64 = 13 * 1_024 + 512;

/// What a connection may hold for receiving, with a tenth more for its books.
pub(crate) const RECEIVE_BYTES: i64 = 256 * 1_024 * 11 / 10 + BUSY_BYTES;

/// The same for a connection that sends too.
pub(crate) const BOTH_BYTES: i64 = 2 * 256 * 1_024 * 11 / 10 + BUSY_BYTES;

impl Puppet {
    /// Hands the server a datagram, a millisecond later, then lets it do what `also` says and send what it wants to;
    /// its application hears nothing. Answers by how much what the server holds has grown.
    pub(crate) fn hand_counted(&mut self, datagram: &mut [u8], also: impl FnOnce(&mut Endpoint, Now)) -> i64 {
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
