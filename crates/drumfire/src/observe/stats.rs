//! What a server or a client counted.

#[cfg(feature = "serde")]
mod text;

use drumfire_proto::DropReason;
use drumfire_socket::{ReceiveCounts, SendCounts};

/// What the workers of a server counted since it was bound, as they showed it after their last pass.
///
/// With the feature `serde` it can be written in any format that has serde, each counter under its name:
///
/// ```
/// # #[cfg(feature = "serde")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use drumfire::*;
/// # let server = Server::bind(ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open))?;
/// let written = serde_json::to_value(server.stats())?;
/// assert_eq!(written["workers"][0]["protocol"]["connections_opened"], 0);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "serde"))]
/// # fn main() {}
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// One for each worker, by index.
    pub workers: Vec<WorkerStats>,
    /// One for each thread that runs: how many workers it drives now. Empty where there is none.
    pub threads: Vec<u16>,
    /// Sockets of others on the server's port. Sockets of several workers share the port, and then Linux lets every process of
    /// the same user share it too; such a process gets a part of the new clients, though nothing of connections that there are
    /// where [`Granted::has_filter`](crate::Granted::has_filter). The server looks every 5 s, and a line on standard error tells
    /// of every change. `None` before the first look, where nobody can know, and where the server has one socket: nobody looks,
    /// and on Linux nobody can join.
    ///
    /// ```
    /// # use drumfire::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// let server = Server::bind(config.workers(Workers::Inline))?;
    /// assert_eq!(server.stats().foreign_sockets, None);
    /// # Ok(())
    /// # }
    /// ```
    pub foreign_sockets: Option<usize>,
}

impl Stats {
    /// Connections there are, half-open and closing ones included.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.workers.iter().map(|worker| worker.connections).sum()
    }

    /// Datagrams that the protocol dropped for this reason.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.sum(|worker| worker.protocol.dropped(reason))
    }

    /// Datagrams that one worker handed to another, Hellos as a rule.
    #[must_use]
    pub fn forwarded(&self) -> u64 {
        self.sum(|worker| worker.protocol.forwarded)
    }

    /// Datagrams that are in no counter; 0, or the books do not close. After a panic they do not.
    #[must_use]
    pub fn unexplained(&self) -> u64 {
        self.sum(WorkerStats::unexplained)
    }

    fn sum(&self, of: impl Fn(&WorkerStats) -> u64) -> u64 {
        self.workers.iter().map(of).sum()
    }
}

/// What one worker counted.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WorkerStats {
    /// What the protocol counted, every datagram under one name.
    pub protocol: drumfire_proto::Stats,
    /// What the socket received, and what it had to drop before the protocol saw it.
    pub received: ReceiveCounts,
    /// Datagrams that the kernel dropped because nobody took them from the socket in time (trains, where it hands those over
    /// whole): give the server more threads, or the socket a larger
    /// [`receive_buffer_bytes`](crate::ServerConfig::receive_buffer_bytes). Read once a second at most and when the server ends;
    /// 0 where the platform keeps no count.
    pub kernel_dropped: u64,
    /// Bytes of kernel memory that datagrams held which waited in the socket when its drops were read last, after a pass: more
    /// than the datagrams' own, and 0 where the platform does not tell. A worker that keeps up shows 0 as a rule.
    pub receive_queue_bytes: u32,
    /// What the socket sent.
    pub sent: SendCounts,
    /// Connections there are, half-open and closing ones included.
    pub connections: usize,
    /// Bytes of messages that its connections keep, both ways, 64 B more for each, as
    /// [`worker_memory_bytes`](crate::ServerConfig::worker_memory_bytes) limits them.
    pub message_memory_bytes: usize,
    /// Datagrams taken from other workers.
    pub forwarded_in: u64,
    /// Passes after which datagrams for another worker had to wait, because its ring was full.
    pub forwards_held: u64,
    /// Passes in which there was no room for more events, because the application did not take those before.
    pub events_held: u64,
    /// Messages of the application that never reached a connection, because it was over by then.
    pub messages_undelivered: u64,
    /// Broadcasts that never reached a member of their group, once for each member, because its connection was closing or over
    /// by then. What a member had no room for is told as [`Event::Missed`](crate::Event::Missed) and is not among these.
    pub broadcasts_undelivered: u64,
    /// Connections that nobody accepted and that were over, dropped with what they had brought, because there were too many
    /// of them. Async alone.
    pub connections_unaccepted: u64,
    /// Times that something was not told of messages left out, because too much of that waited already. Async alone.
    pub notices_left_out: u64,
    /// Panics that were caught, in the application's code and in ours.
    pub panics: u64,
    /// How often the worker began anew, with all its connections closed: after panics in passes one after the other, or one
    /// outside of any pass.
    pub restarts: u64,
    /// Waits that failed.
    pub wait_faults: u64,
    /// How often the system said that the worker's socket is closed or none, and the worker went on with another descriptor of it:
    /// no connection and no datagram is lost by that. Something in this process closes descriptors that are not its own. When it
    /// happens again within a second the worker ends instead, with all its connections.
    pub sockets_reopened: u64,
}

impl WorkerStats {
    /// Datagrams that are in no counter; 0, or the books do not close. After a panic they do not.
    #[must_use]
    pub fn unexplained(&self) -> u64 {
        let taken = self.received.datagrams.saturating_add(self.forwarded_in);
        self.protocol.unexplained().saturating_add(taken.abs_diff(self.protocol.datagrams_received))
    }
}
