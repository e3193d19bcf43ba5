//! The flows of one sending thread: a socket each, so that each has a source port of its own.

use std::num::NonZeroU64;

use drumfire_puppet::PacketSealer;
use drumfire_socket::{SendBatch, Socket};

use crate::datagram::{self, Header, RouteId, STAMPED_BYTES};

/// One flow.
pub(super) struct Flow {
    pub(super) socket: Socket,
    pub(super) index: u32,
    id: RouteId,
    next_sequence: u64,
    pub(super) sent: u64,
    seal: Option<Seal>,
}

/// Seals the datagrams of a flow into packets of a connection.
struct Seal {
    sealer: PacketSealer,
    /// The next message. Only its header changes.
    payload: Box<[u8]>,
}

impl Flow {
    /// Makes flow `index` on this socket. With a sealer and a size in bytes, its datagrams are packets of a connection.
    pub(super) fn new(
        index: u32,
        id: RouteId,
        socket: Socket,
        sealer: Option<(PacketSealer, usize)>,
    ) -> Self {
        let seal = sealer.map(|(sealer, size)| {
            // Sizes that are too small were refused before.
            let payload = vec![0; PacketSealer::payload_bytes(size).unwrap_or_default()].into();
            Seal { sealer, payload }
        });
        Self { socket, index, id, next_sequence: 0, sent: 0, seal }
    }

    /// Puts the next `count` datagrams of `size` bytes into the batch. Returns how many had room.
    pub(super) fn fill(&mut self, batch: &mut SendBatch, count: usize, size: usize, stamp_ns: u64) -> u64 {
        let room = self.seal.as_ref().map_or(size, |seal| seal.payload.len());
        let stamp = NonZeroU64::new(stamp_ns).filter(|_| room >= STAMPED_BYTES);
        let mut filled = 0;
        while filled < count {
            let header = Header { id: self.id, flow: self.index, sequence: self.next_sequence, stamp };
            let seal = &mut self.seal;
            // Sizes without room for a header were refused before.
            let is_added = batch.push_with(None, size, |memory| match seal {
                None => {
                    let _ = datagram::encode(memory, &header);
                }
                Some(Seal { sealer, payload }) => {
                    let _ = datagram::encode(payload, &header);
                    // No run sends as many packets as one key can seal.
                    let _ = sealer.seal(memory, payload);
                }
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
