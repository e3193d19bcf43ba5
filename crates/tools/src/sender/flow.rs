//! The flows of one sending thread: a socket each, so that each has a source port of its own.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;

use drumfire_socket::{SendBatch, Socket};

use crate::datagram::{self, Header, RouteId, STAMPED_BYTES};

/// One flow and its place in it.
pub(super) struct Flow {
    pub(super) socket: Socket,
    pub(super) index: u32,
    id: RouteId,
    next_sequence: u64,
    pub(super) sent: u64,
}

impl Flow {
    /// Opens the socket of flow `index`.
    pub(super) fn open(index: u32, id: RouteId, to: SocketAddr) -> io::Result<Self> {
        Ok(Self { socket: Socket::connect(to, None)?, index, id, next_sequence: 0, sent: 0 })
    }

    /// Puts the next `count` datagrams of `size` bytes into the batch; answers how many it took.
    pub(super) fn fill(&mut self, batch: &mut SendBatch, count: usize, size: usize, stamp_ns: u64) -> u64 {
        let stamp = NonZeroU64::new(stamp_ns).filter(|_| size >= STAMPED_BYTES);
        let mut filled = 0;
        while filled < count {
            let header = Header { id: self.id, flow: self.index, sequence: self.next_sequence, stamp };
            let is_added = batch.push_with(None, size, |memory| {
                // A size that holds no header was refused on the command line.
                let _ = datagram::encode(memory, &header);
            });
            if !is_added {
                break;
            }
            self.next_sequence += 1;
            filled += 1;
        }
        filled as u64
    }
}
