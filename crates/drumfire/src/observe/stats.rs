//! The counters of servers and clients.

use drumfire_proto::DropReason;
use drumfire_socket::{ReceiveCounts, SendCounts, SocketGrants};

/// The counters of all workers of a server since it was bound. Each worker publishes its counters after each pass.
///
/// With the feature `serde`, they can be serialized, each counter under its name:
///
/// ```
/// # #[cfg(feature = "serde")]
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use drumfire::*;
/// # let server = Server::bind(ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open))?;
/// let written = serde_json::to_value(server.control().stats())?;
/// assert_eq!(written["workers"][0]["protocol"]["connections_opened"], 0);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "serde"))]
/// # fn main() {}
/// ```
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// The counters of each worker, by index.
    pub workers: Vec<WorkerStats>,
    /// The options that the system granted the socket of each worker, by index. Empty in a simulated world.
    ///
    /// ```
    /// # use drumfire::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// let server = Server::bind(config.workers(Workers::Inline).receive_buffer_bytes(1 << 30))?;
    /// for grants in server.control().stats().sockets {
    ///     if grants.is_receive_buffer_short() {
    ///         eprintln!("raise net.core.rmem_max: {grants}");
    ///     }
    /// }
    /// # assert_eq!(server.control().stats().sockets.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub sockets: Vec<SocketGrants>,
    /// The number of workers that each running thread drives at present. Empty for a server without threads.
    pub threads: Vec<u16>,
    /// The number of sockets of other programs on the server's port. When several workers share the port, Linux lets every process of the
    /// same user share it too. Such a process receives a part of the new clients, but no packets of existing connections where
    /// [`SocketGrants::has_filter`](crate::stats::SocketGrants::has_filter) is true. The server checks every 5 s, and prints each change on
    /// standard error. `None` before the first check, on platforms that do not list sockets, and for a server with one socket, whose port
    /// cannot be shared on Linux.
    ///
    /// ```
    /// # use drumfire::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
    /// let server = Server::bind(config.workers(Workers::Inline))?;
    /// assert_eq!(server.control().stats().foreign_sockets, None);
    /// # Ok(())
    /// # }
    /// ```
    pub foreign_sockets: Option<usize>,
}

impl Stats {
    /// Returns the number of connections, including half-open and closing ones.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.workers.iter().map(|worker| worker.connections).sum()
    }

    /// Returns the number of datagrams that the protocol dropped for this reason.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.sum(|worker| worker.protocol.dropped(reason))
    }

    /// Returns the number of datagrams, mostly Hellos, that a worker forwarded to another one.
    #[must_use]
    pub fn forwarded(&self) -> u64 {
        self.sum(|worker| worker.protocol.forwarded)
    }

    /// Returns the number of received datagrams that no counter explains. It is 0, except after a panic.
    #[must_use]
    pub fn unexplained(&self) -> u64 {
        self.sum(WorkerStats::unexplained)
    }

    fn sum(&self, of: impl Fn(&WorkerStats) -> u64) -> u64 {
        self.workers.iter().map(of).sum()
    }
}

/// The counters of one worker.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct WorkerStats {
    /// The counters of the protocol. Each datagram is in exactly one of them.
    pub protocol: drumfire_proto::Stats,
    /// The datagrams that the socket received, and those that it dropped before the protocol.
    pub received: ReceiveCounts,
    /// The number of datagrams that the kernel dropped because the receive buffer was full. With GRO, a train of joined datagrams
    /// counts once. More threads or a larger [`receive_buffer_bytes`](crate::ServerConfig::receive_buffer_bytes) help. Read at most
    /// once per second, and when the server ends. 0 on platforms without such a counter.
    pub kernel_dropped: u64,
    /// The kernel memory in bytes of the datagrams that waited in the socket after a pass, when `kernel_dropped` was last read. It
    /// is more than the size of the datagrams. Usually 0 for a worker that keeps up, and always on platforms that do not report it.
    pub receive_queue_bytes: u32,
    /// The datagrams that the socket sent.
    pub sent: SendCounts,
    /// The number of connections, including half-open and closing ones.
    pub connections: usize,
    /// The bytes of messages of all connections, in both directions and with a charge of 64 bytes for each message, and the memory of
    /// broadcasts that connections share. Limited by [`worker_memory_bytes`](crate::ServerConfig::worker_memory_bytes).
    pub message_memory_bytes: usize,
    /// The number of datagrams that other workers forwarded to this one.
    pub forwarded_in: u64,
    /// The number of passes after which datagrams for another worker had to wait because its queue was full.
    pub forward_queue_full: u64,
    /// The number of passes without room for more events because the application had not taken the earlier ones.
    pub event_queue_full: u64,
    /// The number of messages of the application whose connection had ended before they reached it.
    pub messages_undelivered: u64,
    /// The number of broadcasts to members whose connection was closing or had ended, counted once for each member. Broadcasts for
    /// which a member had no room are not counted here, but reported as [`Event::Missed`](crate::Event::Missed).
    pub broadcasts_undelivered: u64,
    /// The number of connections that ended before the application accepted them, and were dropped with their messages because too
    /// many of them waited. Only async servers count them.
    pub connections_unaccepted: u64,
    /// The number of notices of skipped or missed messages that were dropped because too many of them waited. Only async servers
    /// count them.
    pub notices_dropped: u64,
    /// The number of panics that were caught, in the application's code or in drumfire.
    pub panics: u64,
    /// The number of restarts of the worker. A restart closes all its connections. It happens after panics in consecutive passes, or after
    /// one outside of a pass.
    pub restarts: u64,
    /// The number of waits for datagrams that failed with an error of the system.
    pub wait_faults: u64,
    /// The number of times that the descriptor of the worker's socket was found closed, and the worker continued with another descriptor of
    /// the same socket. No connection and no datagram is lost. The cause is code in this process that closes descriptors that it does not
    /// own. If it happens again within a second, the worker ends with all its connections.
    pub sockets_reopened: u64,
    /// The simulated link from the socket to the protocol, with the setting
    /// [`conditioner`](crate::ServerConfig::conditioner). The link is between the two counts of received datagrams: `received`
    /// counts what the socket received, including the datagrams that the link then loses. `protocol` counts what the link delivers.
    /// All zero without the setting.
    pub inbound_link: crate::conditioner::LinkCounts,
    /// The simulated link from the protocol to the socket, with the same setting. `protocol` counts what the protocol sent, including
    /// the datagrams that the link then loses. `sent` counts what the link delivers to the socket. All zero without the setting.
    pub outbound_link: crate::conditioner::LinkCounts,
}

impl WorkerStats {
    /// Returns the number of received datagrams that no counter explains. It is 0, except after a panic.
    #[must_use]
    pub fn unexplained(&self) -> u64 {
        let taken = self.received.datagrams.saturating_add(self.forwarded_in);
        // The inbound link takes each datagram of the socket, and delivers fewer of them, or more.
        let taken =
            taken.saturating_add(self.inbound_link.delivered).saturating_sub(self.inbound_link.pushed);
        self.protocol.unexplained().saturating_add(taken.abs_diff(self.protocol.datagrams_received))
    }
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use super::*;

    #[test]
    fn every_counter_is_written_under_its_name() {
        let worker = WorkerStats { forwarded_in: 3, panics: 1, ..WorkerStats::default() };
        let workers = vec![worker.clone(), worker];
        let stats = Stats { workers, threads: vec![2], foreign_sockets: Some(1), ..Stats::default() };
        let written = serde_json::to_value(stats).unwrap();
        assert_eq!(written["foreign_sockets"], 1);
        assert_eq!(written["workers"].as_array().map(Vec::len), Some(2));
        let worker = &written["workers"][1];
        assert_eq!(
            (&worker["forwarded_in"], &worker["panics"], &worker["restarts"]),
            (&3.into(), &1.into(), &0.into())
        );
        assert_eq!(worker["sent"]["datagrams"], 0);
        assert_eq!(worker["protocol"]["dropped"], serde_json::json!({}));
        let debug = format!("{:#?}", WorkerStats::default());
        let names = debug.lines().filter(|line| line.starts_with("    ") && !line.starts_with("     "));
        for name in names.filter_map(|line| line.trim().split_once(':')).map(|(name, _)| name) {
            assert!(worker.get(name).is_some(), "{name}");
        }
    }
}
