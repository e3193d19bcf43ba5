//! The kernel's count of datagrams that it dropped because the receive buffer of a worker's socket was full.
//!
//! It is read once per second, because each read is a system call, and a last time when the worker ends.
//! With GRO, the kernel counts trains of datagrams.

use std::time::Duration;

use drumfire_proto::Moment;
use drumfire_socket::{DropCounter, Io};

/// The interval between two reads.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// The number of datagrams dropped so far, over all sockets that the worker has had.
#[derive(Debug, Default)]
pub(super) struct KernelDrops {
    /// Extends the kernel's 32-bit count of the present socket. `None` before the first successful read of this socket.
    counter: Option<DropCounter>,
    /// The time of the last read.
    read_at: Moment,
    /// The number of datagrams dropped at the present socket.
    present_drops: u64,
    /// The bytes of kernel memory that unread datagrams occupied at the last read.
    queued_bytes: u32,
    /// The number of datagrams dropped at earlier sockets.
    earlier_drops: u64,
}

impl KernelDrops {
    /// Returns the number of drops as of the last read, over all sockets.
    pub(super) const fn count(&self) -> u64 {
        self.earlier_drops.saturating_add(self.present_drops)
    }

    /// Returns the bytes of kernel memory that unread datagrams occupied at the last read.
    pub(super) const fn queued_bytes(&self) -> u32 {
        self.queued_bytes
    }

    /// Reads the kernel's count if the interval has passed, or if this socket was never read.
    pub(super) fn read_if_due(&mut self, now: Moment, io: &dyn Io) {
        if self.counter.is_none() || now.since(self.read_at) >= READ_INTERVAL {
            self.read_at = now;
            self.read(io);
        }
    }

    /// Reads the kernel's count now. Does nothing if the platform has none.
    pub(super) fn read(&mut self, io: &dyn Io) {
        if let Some(backlog) = io.backlog() {
            // The counter starts at 0, because the socket was created for this worker, which owns all of its drops.
            self.present_drops = self.counter.get_or_insert_default().update(backlog.drops);
            self.queued_bytes = backlog.queued_bytes;
        }
    }

    /// Starts to count at a new socket, whose kernel count starts at 0.
    pub(super) fn on_replaced(&mut self) {
        // The old socket is closed already. Drops since its last read are not counted.
        self.earlier_drops = self.count();
        (self.counter, self.present_drops, self.queued_bytes) = (None, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumfire_socket::{Fault, Outgoing, RecvBatch, SendMode, SocketBacklog};

    /// A socket with this kernel count of drops. `None` = the platform has no count.
    struct Socket(Option<u32>);

    impl Io for Socket {
        fn recv(&mut self, _: &mut RecvBatch) -> Result<(), Fault> {
            Err(Fault::WouldBlock)
        }

        fn send(&mut self, _: &mut Outgoing<'_>, _: SendMode) -> Result<usize, Fault> {
            Err(Fault::WouldBlock)
        }

        fn is_emptied_by_short_batch(&self) -> bool {
            false
        }

        fn enable_gro(&mut self) -> bool {
            false
        }

        fn backlog(&self) -> Option<SocketBacklog> {
            self.0.map(|drops| SocketBacklog { drops, queued_bytes: 100 * drops })
        }
    }

    fn ms(milliseconds: u64) -> Moment {
        Moment::from_nanos(milliseconds * 1_000_000)
    }

    #[test]
    fn drops_are_read_once_a_second_and_added_over_sockets() {
        let mut kernel_drops = KernelDrops::default();
        kernel_drops.read_if_due(ms(5_000), &Socket(Some(3)));
        assert_eq!(kernel_drops.count(), 3, "drops before the first pass are counted");
        kernel_drops.read_if_due(ms(5_999), &Socket(Some(9)));
        assert_eq!(kernel_drops.count(), 3);
        kernel_drops.read_if_due(ms(6_000), &Socket(Some(9)));
        assert_eq!((kernel_drops.count(), kernel_drops.queued_bytes()), (9, 900));
        kernel_drops.on_replaced();
        assert_eq!(kernel_drops.queued_bytes(), 0);
        kernel_drops.read_if_due(ms(6_001), &Socket(Some(2)));
        assert_eq!(kernel_drops.count(), 11);
        kernel_drops.read(&Socket(Some(4)));
        assert_eq!(kernel_drops.count(), 13);
    }

    #[test]
    fn without_a_kernel_count_the_number_of_drops_is_0() {
        let mut kernel_drops = KernelDrops::default();
        kernel_drops.read_if_due(ms(5_000), &Socket(None));
        assert_eq!(kernel_drops.count(), 0);
    }
}
