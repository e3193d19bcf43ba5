//! What the kernel dropped in front of a worker's socket, because nobody took it in time, and what waits there: asked for once a
//! second at most, and when the worker ends.

use std::time::Duration;

use drumfire_proto::Moment;
use drumfire_socket::{DropCounter, Io};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The datagrams dropped so far, over all sockets the worker had.
#[derive(Debug, Default)]
pub(super) struct KernelDrops {
    /// Of the socket there is, and when it was read.
    counter: Option<DropCounter>,
    read_at: Moment,
    of_this: u64,
    queued_bytes: u32,
    /// Of those before.
    before: u64,
}

impl KernelDrops {
    /// What is known now.
    pub(super) const fn count(&self) -> u64 {
        self.before.saturating_add(self.of_this)
    }

    /// Bytes of kernel memory that waited when it was read last.
    pub(super) const fn queued_bytes(&self) -> u32 {
        self.queued_bytes
    }

    /// Reads it again, if it is time.
    pub(super) fn look(&mut self, now: Moment, io: &impl Io) {
        if self.counter.is_none() || now.since(self.read_at) >= LOOK_EVERY {
            self.read_at = now;
            self.read(io);
        }
    }

    /// Reads it again.
    pub(super) fn read(&mut self, io: &impl Io) {
        if let Some(backlog) = io.backlog() {
            // The socket is the worker's alone, and was made for it.
            self.of_this = self.counter.get_or_insert_default().update(backlog.drops);
            self.queued_bytes = backlog.queued_bytes;
        }
    }

    /// Another socket follows, whose count begins at nothing.
    pub(super) fn on_replaced(&mut self) {
        self.before = self.count();
        (self.counter, self.of_this, self.queued_bytes) = (None, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumfire_socket::{Fault, Outgoing, RecvBatch, SendMode, SocketBacklog};

    /// A socket in front of which so many were dropped.
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
    fn drops_are_read_once_a_second_and_go_on_over_the_next_socket() {
        let mut overflow = KernelDrops::default();
        overflow.look(ms(5_000), &Socket(Some(3)));
        assert_eq!(overflow.count(), 3, "dropped before the first pass");
        overflow.look(ms(5_999), &Socket(Some(9)));
        assert_eq!(overflow.count(), 3);
        overflow.look(ms(6_000), &Socket(Some(9)));
        assert_eq!((overflow.count(), overflow.queued_bytes()), (9, 900));
        overflow.on_replaced();
        assert_eq!(overflow.queued_bytes(), 0);
        overflow.look(ms(6_001), &Socket(Some(2)));
        assert_eq!(overflow.count(), 11);
        overflow.read(&Socket(Some(4)));
        assert_eq!(overflow.count(), 13);
    }

    #[test]
    fn where_the_platform_keeps_no_count_there_is_none() {
        let mut overflow = KernelDrops::default();
        overflow.look(ms(5_000), &Socket(None));
        assert_eq!(overflow.count(), 0);
    }
}
