//! What the kernel dropped in front of a socket, from `SO_MEMINFO`: exact, without control messages and
//! without a later datagram to carry the number.
//!
//! With GRO on, the kernel counts one drop per train.

use std::io;
use std::net::UdpSocket;

use crate::sys;

/// Turns the kernel's wrapping 32-bit counter into a 64-bit one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCounter {
    last: u32,
    total: u64,
}

impl DropCounter {
    /// A counter that starts from what the kernel shows now.
    #[must_use]
    pub fn starting_at(reading: u32) -> Self {
        Self { last: reading, total: 0 }
    }

    /// Takes a new reading and answers the drops since the start. Readings must be less than 2^32 drops apart.
    pub fn update(&mut self, reading: u32) -> u64 {
        self.total += u64::from(reading.wrapping_sub(self.last));
        self.last = reading;
        self.total
    }
}

/// One look at a socket's receive queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueState {
    /// Datagrams dropped since the meter was made (trains, with GRO on).
    pub drops: u64,
    /// Bytes of kernel memory the queue holds; 0 = everything was read.
    pub queued_bytes: u32,
    /// Bytes of kernel memory it may hold.
    pub limit_bytes: u32,
}

/// Reads one socket's queue from any thread, without touching the thread that owns the socket.
///
/// It holds a descriptor of its own: the socket stays bound while the meter lives.
#[derive(Debug)]
pub struct DropMeter {
    socket: UdpSocket,
    counter: DropCounter,
}

impl DropMeter {
    pub(crate) fn new(socket: UdpSocket) -> Self {
        let reading = sys::queue(&socket).map_or(0, |queue| queue.drops);
        Self { socket, counter: DropCounter::starting_at(reading) }
    }

    /// The queue as it is now.
    ///
    /// # Errors
    ///
    /// `Unsupported` where the platform has no such account, otherwise what the kernel answered.
    pub fn read(&mut self) -> io::Result<QueueState> {
        let queue = sys::queue(&self.socket)?;
        Ok(QueueState {
            drops: self.counter.update(queue.drops),
            queued_bytes: queue.queued_bytes,
            limit_bytes: queue.limit_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_survives_the_wrap_at_32_bits() {
        let start = u32::MAX - 4;
        let mut counter = DropCounter::starting_at(start);
        for step in 0..12_u32 {
            assert_eq!(counter.update(start.wrapping_add(step)), u64::from(step));
        }
        assert_eq!(counter.update(start.wrapping_add(11)), 11);
        assert_eq!(counter.update(start.wrapping_add(10)), 11 + u64::from(u32::MAX));
    }
}
